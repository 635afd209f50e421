"""How late the host's CPUs wake up, and how long they are taken away: tools, loads, and the run."""
