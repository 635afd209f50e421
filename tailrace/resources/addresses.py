"""Which addresses are this host's own."""

from __future__ import annotations

import ipaddress
import socket


def is_own(address: str) -> bool:
    """Whether an interface of this host has it. A link-local one, which may be any link's, is not looked for."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((address, 9))  # which sends nothing: what is sent to oneself has that very source
            return ipaddress.ip_address(asked.getsockname()[0]) == ipaddress.ip_address(address)
    except OSError:
        return False
