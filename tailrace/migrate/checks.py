"""Why a machine cannot move to another node: all reasons at once, each with what helps.

Pure: it compares what two nodes say of themselves (`tailrace.migrate.facts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tailrace.migrate.facts import Facts, FunctionFacts
from tailrace.resources.hugepages import size_words
from tailrace.spec.interface import passed_through

Kind = Literal[
    "spec",
    "function",
    "host",
    "version",
    "acceleration",
    "cpu",
    "device",
    "passthrough",
    "memory",
    "hugepages",
    "numa",
    "pinning",
    "storage",
    "image",
]


@dataclass(frozen=True)
class Reason:
    """Why it cannot be."""

    kind: Kind
    text: str
    """What is so, and what was expected or helps."""

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def reasons(name: str, source: Facts, target: Facts) -> list[Reason]:
    """Why the machine `name` cannot move from one node to another; none: it can, as far as they show."""
    return [Reason(kind, text) for kind, text in _reasons(name, source, target)]


def risks(name: str, source: Facts) -> list[str]:
    """What a move from this node may cost that keeps none from being made.

    QEMU before 9.0 forgets that an emulated CPU writes a page again after its dirty log was read ("physmem: Fix
    migration dirty bitmap coherency with TCG memory access"): the page is not sent again.
    """
    if not source.machine or source.acceleration == "kvm" or source.qemu >= _KEEPS_EMULATED_WRITES:
        return []
    return [
        f"{name} is emulated, by QEMU {_shown(source.qemu)}: before 9.0 a move of many seconds can damage the machine; "
        "give it much bandwidth and little to write"
    ]


_KEEPS_EMULATED_WRITES = 9_000_000

_Found = Iterator[tuple[Kind, str]]


def _reasons(name: str, source: Facts, target: Facts) -> _Found:
    here, there = source.function, target.function
    if here is None or source.state != "running":
        said = "is no function of what is up here" if here is None else f"does not run here (it has {source.state})"
        yield "function", f"{name} {said}; expected one that runs"
    yield from _hosts(source, target)
    yield from _disks(source, target)
    if here is not None:
        yield from _source(name, here, source)
    yield from _target(name, target)
    if source.tailrace != target.tailrace:
        yield "version", f"Tailrace is {source.tailrace} here and {target.tailrace} there; expected the same"
    if source.acceleration and target.acceleration:  # else one has no such machine, which is a reason already
        yield from _versions(source, target)
        yield from _processors(source, target, here)
    if here is not None and there is not None:
        yield from _differing(name, here, there)
        yield from _room(here, there, target)


def _hosts(source: Facts, target: Facts) -> _Found:
    if (source.boot, source.folder) == (target.boot, target.folder):
        yield "host", f"{target.folder} is this very node; expected another one"
    elif source.host == target.host:
        yield "host", f"both nodes call their host {source.host}, and libvirt moves nothing to its own host; rename one"
    if target.sends_to == (source.boot, source.folder):
        yield (
            "host",
            f"{target.host} sends a machine to this node at the moment, and does one thing at a time; wait for it",
        )
    if source.libvirt_uri and (source.boot, source.libvirt_uri) == (target.boot, target.libvirt_uri):
        yield "host", "both nodes have one libvirt; expected another host, or a libvirt of its own"


def _source(name: str, here: FunctionFacts, source: Facts) -> _Found:
    if here.runs != "machine":
        yield "function", f"{name} lives in a {here.runs}; only machines move"
    if not here.migratable:
        yield "spec", f"{name} has `migratable: false` in the spec; `tailrace apply` one without that to allow it"
    through = [each.removeprefix("pci:") for each in here.interfaces if passed_through(each)]
    seen = [each.partition(" ")[2] for each in source.devices if each.startswith("passthrough ")]
    for address in dict.fromkeys((*through, *seen)):
        yield "passthrough", f"the device {address} is passed through, and its state stays; expected `vhost-user`"
    for each in here.interfaces:
        if not passed_through(each) and each != "vhost-user":
            yield "device", f"{each} has a TAP of this host behind it, which does not move; expected `vhost-user`"
    for what, _, which in (each.partition(" ") for each in source.devices):
        if what == "disk":
            yield "storage", f"the disk {which} is a file of this host; disks are not copied: expected none"
        elif what == "device":
            yield "device", f"{which} is of this host, and its state stays; remove it from `domain`"


def _disks(source: Facts, target: Facts) -> _Found:
    """Both write down who has the machine."""
    for where, node in (("here", source), ("there", target)):
        if node.disk_free is not None and node.disk_free < _DISK_BYTES:
            left = f"{node.disk_free >> 10} KiB are free {where} on the disk of {node.folder}"
            yield "storage", f"{left}; expected at least {_DISK_BYTES >> 20} MiB, for the records of a move"


_DISK_BYTES = 2 << 20


def _target(name: str, target: Facts) -> _Found:
    if target.function is None:
        yield "function", f"{name} is in no plan of {target.host}; apply a spec there that has it, with its chain"
    elif target.state == "running":
        yield "function", f"{name} runs on {target.host} already; `tailrace function stop {name}` there first"
    elif target.state == "ended":
        yield "function", f"{name} is started again on {target.host}; `tailrace function stop {name}` there first"


def _versions(source: Facts, target: Facts) -> _Found:
    for what, here, there in (("libvirt", source.libvirt, target.libvirt), ("QEMU", source.qemu, target.qemu)):
        if there < here:
            yield "version", f"{what} is {_shown(here)} here and {_shown(there)} there; expected none that is older"
    if source.machine and source.machine not in target.kinds:
        yield "version", f"QEMU there has no machine {source.machine}; expected one that has"


def _processors(source: Facts, target: Facts, here: FunctionFacts | None) -> _Found:
    if source.acceleration != target.acceleration:
        yield "acceleration", f"machines are run by {source.acceleration} here and by {target.acceleration} there"
        return
    if source.acceleration != "kvm":
        return
    if source.cpu_mode == "host-passthrough" and source.cpu != target.cpu:
        level = f", as of `latency: {here.latency}`" if here is not None else ""
        yield "cpu", f"it has the host's own CPU{level}: {source.cpu} here, {target.cpu} there; `latency: normal` moves"
    missing = sorted(set(source.flags) - set(target.flags))
    if source.cpu_mode != "host-passthrough" and missing:
        more = f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""
        yield "cpu", f"the CPU there lacks {', '.join(missing[:_FEW])}{more}; expected one that can what this one can"


_FEW = 6


def _differing(name: str, here: FunctionFacts, there: FunctionFacts) -> _Found:
    """What the plans of the two nodes say otherwise."""
    pairs: list[tuple[Kind, str, object, object]] = [
        ("function", "kind", here.kind, there.kind),
        ("function", "runs", here.runs, there.runs),
        ("function", "settings", " ".join(here.settings), " ".join(there.settings)),
        ("device", "interface", ", ".join(here.interfaces), ", ".join(there.interfaces)),
        ("device", "failover", ", ".join(here.failover), ", ".join(there.failover)),
        ("device", "driver", here.driver, there.driver),
        ("device", "domain", here.domain, there.domain),
        ("memory", "memory", f"{here.memory_bytes >> 20}MiB", f"{there.memory_bytes >> 20}MiB"),
        ("pinning", "cpus.most", here.most_cpus, there.most_cpus),
        ("pinning", "cpus.automatic", _said(here.automatic), _said(there.automatic)),
        ("pinning", "cpus.stacked", _said(here.stacked), _said(there.stacked)),
        ("pinning", "latency", here.latency, there.latency),
        ("pinning", "priority", here.priority, there.priority),
        ("hugepages", "huge pages", _yes(here.huge), _yes(there.huge)),
        ("hugepages", "pages", size_words(here.page_kib), size_words(there.page_kib)),
        ("image", "image", here.image, there.image),
    ]
    for kind, key, one, other in pairs:
        if one != other:
            yield kind, f"{name}: {key} is {one or 'none'} here and {other or 'none'} there; expected the same"
    yield from _other_cpus(name, here, there)
    if here.network != there.network:
        yield "function", f"{name}: its addresses, routes or neighbours are others there; expected the same"
    if here.image == there.image and here.made_of != there.made_of:
        how = "is missing" if not there.made_of else "has another content"
        yield "image", f"the image {here.image} {how} there; copy it, or build both of the same packages"


def _other_cpus(name: str, here: FunctionFacts, there: FunctionFacts) -> _Found:
    """It begins there with as many CPUs of the host as the plan there says; by its load it soon has what it needs."""
    if here.automatic and there.automatic:
        if here.least_cpus != there.least_cpus:
            said = f"{here.least_cpus} here and {there.least_cpus} there"
            yield "pinning", f"{name}: cpus.start is {said}; expected the same"
    elif here.cpus != there.cpus:
        resized = here.cpus != here.least_cpus == there.cpus
        cure = f" (`tailrace function cpus {name} {there.cpus}` here)" if resized else ""
        yield "pinning", f"{name}: cpus is {here.cpus} here and {there.cpus} there; expected the same{cure}"


def _room(here: FunctionFacts, there: FunctionFacts, target: Facts) -> _Found:
    """Whether the target has what it takes."""
    mib = here.memory_bytes >> 20
    free = target.memory_free >> 20
    if there.huge:
        # What is not set aside yet is made of ordinary memory.
        page = there.page_kib >> 10
        free += target.pages_free * page
        if free < mib:
            pages = -(-mib // page)
            yield (
                "hugepages",
                f"{pages} huge pages are needed; {target.pages_free} are free there, and memory for no more",
            )
    elif free < mib:
        yield "memory", f"{mib} MiB are needed, and {free} MiB are free there"
    if there.node is not None:
        room = target.nodes.get(there.node, 0)
        room += target.pages_free * (there.page_kib >> 10) if there.huge else 0
        if room < mib:
            yield "numa", f"it would be on node {there.node} there, and {room} MiB are free on that; {mib} are needed"
    if here.own_cpus and not there.own_cpus:
        yield "pinning", "its CPUs have the host's to themselves here, and would share them there: too few are free"


def _yes(value: bool) -> str:
    return "used" if value else "not used"


def _said(value: bool) -> str:
    """As a spec has it."""
    return "true" if value else "false"


def _shown(version: int) -> str:
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"
