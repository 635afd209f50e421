"""Tailrace: chains of virtual network functions at memory speed, on a host tuned for low latency, measured.

This package decides; it never touches a packet. What does lies in `dataplane/`, is spoken to over a control socket
(`tailrace.process.control`) and is read through a shared page of counters (`tailrace.observe.page`).
"""

__version__ = "0.6.0"
