"""Starting, naming and ending processes, by systemd and libvirt where they do it; their logs, locks and sockets."""
