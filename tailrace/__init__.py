"""Tailrace: a deterministic host for virtual network functions, and the proof of it."""
