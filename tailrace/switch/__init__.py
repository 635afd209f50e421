"""The switch as Python knows it: its control socket, its configuration, what it may still do once it runs."""
