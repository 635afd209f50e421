"""What the machine has, and who holds it: CPUs, huge pages, interfaces, PCI devices."""
