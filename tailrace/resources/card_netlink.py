"""What a card does with its virtual functions, asked and told by netlink (rtnetlink(7), IFLA_VFINFO_LIST)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

_LINKS = ("auto", "enable", "disable")
"""IFLA_VF_LINK_STATE_…, in their order."""
GROUPS = (("mac",), ("vlan", "qos"), ("min_rate", "max_rate"), ("spoof_check",), ("trust",), ("link",))
"""What one message sets together. In this order: what comes after an address must not be undone by it."""
WITH_FUNCTIONS = 1
"""RTEXT_FILTER_VF."""


class CardSettings(Protocol):
    """The one edge at which a card is asked and told; a test has another one behind it."""

    def read(self, interface: str, number: int) -> dict[str, Any]:
        """The settings of a function, by the words of the spec, as far as the driver tells. Raises OSError."""

    def write(self, interface: str, number: int, values: Mapping[str, Any]) -> None:
        """Sets one of GROUPS. Raises OSError, as the driver refuses it."""


class CardNetlink:
    """The kernel's."""

    def read(self, interface: str, number: int) -> dict[str, Any]:
        with _route() as route:
            (link,) = route.link("get", index=socket.if_nametoindex(interface), ext_mask=WITH_FUNCTIONS)
        functions = link.get_attr("IFLA_VFINFO_LIST")
        for each in functions.get_attrs("IFLA_VF_INFO") if functions is not None else ():
            found = {name: each.get_attr(f"IFLA_VF_{name}") for name in _NAMES}
            if any(part is not None and part["vf"] == number for part in found.values()):
                return dict(words_of(found))
        return {}

    def write(self, interface: str, number: int, values: Mapping[str, Any]) -> None:
        with _route() as route:
            function = {"vf": number, **message_of(values)}
            route.link("set", index=socket.if_nametoindex(interface), vf=function)


_NAMES = ("MAC", "VLAN", "RATE", "SPOOFCHK", "TRUST", "LINK_STATE")


def words_of(found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What netlink says of a function, by its attributes, in the words of the spec."""
    if found["MAC"] is not None:
        yield "mac", found["MAC"]["mac"].lower()
    if found["VLAN"] is not None:
        yield from ((name, found["VLAN"][name]) for name in ("vlan", "qos"))
    if found["RATE"] is not None:
        yield from ((f"{name}_rate", found["RATE"][f"{name}_tx_rate"]) for name in ("min", "max"))
    for key, word in (("SPOOFCHK", "spoof_check"), ("TRUST", "trust")):
        # A driver that does not know says -1.
        if found[key] is not None and found[key][key.lower()] in (0, 1):
            yield word, bool(found[key][key.lower()])
    if found["LINK_STATE"] is not None and found["LINK_STATE"]["link_state"] < len(_LINKS):
        yield "link", _LINKS[found["LINK_STATE"]["link_state"]]


def message_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same the other way, as pyroute2 takes it."""
    said: dict[str, Any] = {}
    if "mac" in values:
        said["mac"] = values["mac"]
    if "vlan" in values:
        said["vlan"] = {"vlan": values["vlan"], "qos": values.get("qos", 0)}
    if "min_rate" in values or "max_rate" in values:
        said["rate"] = {f"{name}_tx_rate": values.get(f"{name}_rate", 0) for name in ("min", "max")}
    if "spoof_check" in values:
        said["spoofchk"] = int(values["spoof_check"])
    if "trust" in values:
        said["trust"] = int(values["trust"])
    if "link" in values:
        said["link_state"] = _LINKS.index(values["link"])
    return said


@contextmanager
def _route() -> Iterator[Any]:
    from pyroute2 import IPRoute  # takes a tenth of a second, which only these few commands pay
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        with IPRoute() as route:
            yield route
    except NetlinkError as error:
        raise OSError(error.code, os.strerror(error.code)) from None
