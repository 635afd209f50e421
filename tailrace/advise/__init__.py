"""Which interface for which traffic: a model of a machine, and what it predicts."""
