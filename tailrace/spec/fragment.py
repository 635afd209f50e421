"""A fragment of libvirt's <domain> in a spec, for what Tailrace has no word for: read, and what it may not say refused.

It is merged into the domain that Tailrace makes (`tailrace.functions.domain`). Source: libvirt's formatdomain.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree
from xml.parsers.expat import ErrorString

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
LONGEST = 65536
_MADE = "which is made for each instance"
#: What Tailrace says of a domain itself, by its place there, and why nobody else does.
OWNED: Mapping[str, str] = {
    "name": _MADE,
    "uuid": _MADE,
    "title": _MADE,
    "memory": "which `memory` says",
    "currentMemory": "which `memory` says",
    "maxMemory": "which `memory` says",
    "memoryBacking": "which the switch shares",
    "vcpu": "which `cpus` says",
    "vcpus": "which `cpus` says",
    "cputune": "which `latency` and the plan say",
    "numatune": "which the plan says",
    "cpu/numa": "which the plan says",
    "os": "which `image` says",
    "on_poweroff": "which `restart` says",
    "on_reboot": "which `restart` says",
    "on_crash": "which `restart` says",
    "seclabel": "which confines it",
    "devices/memballoon": "as the switch has its memory mapped",
}
_PORTS = "vhostuser"
"""The type of the interfaces that are ports of a function."""


def read_fragment(text: str) -> ElementTree.Element:
    """A <domain> that holds nothing but the fragment's elements. Raises ValueError with the line of the fragment."""
    try:
        found = ElementTree.fromstring(f"<domain xmlns:qemu='{QEMU}'>{text}</domain>")
    except ElementTree.ParseError as error:
        line = min(error.position[0], len(text.splitlines()) or 1)
        raise ValueError(
            f"line {line}: {ErrorString(error.code)}; expected elements as they stand inside libvirt's <domain>"
        ) from None
    if (found.text or "").strip() or any((each.tail or "").strip() for each in found):
        raise ValueError("text outside an element; expected elements as they stand inside libvirt's <domain>")
    for each in found:
        _check(each, each.tag)
        for below in each:
            _check(below, f"{each.tag}/{below.tag}")
    return found


def _check(element: ElementTree.Element, place: str) -> None:
    shown = place.replace(f"{{{QEMU}}}", "qemu:")
    if place in OWNED:
        raise ValueError(f"{shown} is Tailrace's own, {OWNED[place]}; expected other elements")
    if place == "devices/interface" and element.get("type") == _PORTS:
        raise ValueError(f"{shown} of type {_PORTS} is Tailrace's own, a port; expected other elements")
