"""The numbers of users and groups that the switch and functions are given, which belong to nobody."""

from __future__ import annotations

import os
from contextlib import suppress

NUMBERS = range(61184, 65520)
"""Those that systemd gives to services for as long as they run (DynamicUser)."""


def in_use() -> set[int]:
    """Those that a process runs as, whosever it is."""
    found = set()
    with os.scandir("/proc") as entries:
        for each in entries:
            if each.name.isdecimal():
                with suppress(OSError):  # it has ended
                    found.add(each.stat().st_uid)
    return found
