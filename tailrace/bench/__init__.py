"""What one thing costs, beside the alternative, on this machine and at this moment."""
