"""Starting, naming and ending processes, and what they leave: logs and locks."""
