"""Tailrace: a deterministic host for virtual network functions, and the proof of it.

This package decides; it never touches a packet. What does lies in `dataplane/`, is spoken to over a control socket
(`tailrace.switch.control`) and is read through a shared page of counters (`tailrace.observe.page`).
"""

__version__ = "0.6.0"
