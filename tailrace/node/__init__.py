"""What runs on this machine: from a plan to what is up, and from one plan to another."""
