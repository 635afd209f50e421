"""Which capabilities a switch keeps for its device ports."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.spec.port import members_of

#: Capabilities that a device takes, by the scheme of its URI (capabilities(7), in small letters and without CAP_).
_NEEDS = {
    "if": ("net_admin", "net_raw"),
    "xdp": ("ipc_lock", "net_admin", "net_raw", "sys_admin"),
    "tap": ("net_admin",),
    "pci": ("dac_override", "ipc_lock", "sys_rawio"),
}


def capabilities(devices: Iterable[str]) -> tuple[str, ...]:
    """What a switch must keep so that these devices can be opened, and opened again when they come back."""
    opened = [each for uri in devices for each in members_of(uri)]
    return tuple(sorted({need for uri in opened for need in _NEEDS.get(uri.partition(":")[0], ())}))
