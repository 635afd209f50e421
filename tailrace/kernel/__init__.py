"""Linux, as its files say it: /sys and /proc of this machine or of a copy, lists of CPUs, the boot."""
