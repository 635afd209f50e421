"""The TAP between a device that QEMU emulates and the switch: QEMU has one end, and the switch opens the other as an
interface. Nothing else is to be on it: the host's own stack sends nothing there, and answers nothing from there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tailrace.errors import Failure
from tailrace.process.programs import run_system
from tailrace.state.record import State, Tap

_CONFIGURATION = Path("/proc/sys/net")
_CLOSED = ("ipv6/conf/{}/disable_ipv6", "ipv4/conf/{}/rp_filter", "ipv4/conf/{}/drop_unicast_in_l2_multicast")
"""Set to 1: nothing is sent by itself, and no source address is one that may come from there.

Source: Documentation/networking/ip-sysctl.rst."""


def make_tap(state: State, name: str, of: str, user: int, group: int) -> None:
    """Makes the TAP of a function's port, on record first, for who runs as this user and group to open. Raises
    Failure."""
    tap = Tap(name, of)
    state.add(tap)
    problem = tap.undo()  # one of that name which a record that was lost has left
    if problem is not None:
        raise Failure(problem)
    run_system("ip", "tuntap", "add", "dev", name, "mode", "tap", "user", str(user), "group", str(group))
    for key in _CLOSED:
        with suppress(FileNotFoundError):  # a kernel without IPv6
            (_CONFIGURATION / key.format(name)).write_text("1")
    run_system("ip", "link", "set", "dev", name, "alias", f"tailrace: {of}", "arp", "off", "up")
