"""The switch as Python knows it: its configuration, and what it may still do once it runs."""
