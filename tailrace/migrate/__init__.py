"""Machines that move to another node while they run."""
