"""What runs on this machine: from a spec to a plan, from a plan to what is up, and from one plan to another."""
