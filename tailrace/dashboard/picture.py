"""What the page shows, as one JSON document made of two snapshots of the counter page, and what has changed between two
such documents. Pure.

`web/src/picture.ts` has the types of the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tailrace.observe.snapshot import Facts, Snapshot, rates
from tailrace.observe.top import rows
from tailrace.switch.config import planned_port

Document = dict[str, Any]
"""No value is None: in a merge patch that removes."""


def nothing(why: str) -> Document:
    """The document while there is no switch to look at."""
    return {"up": False, "why": why}


def chains(before: Snapshot, now: Snapshot) -> Document:
    """What the hops did from one snapshot to the other, each second, bytes as bits; by chain."""
    found: Document = {}
    for key, rate in rates(_of("hop", before), _of("hop", now)).items():
        name, _, number = key[1].rpartition("/")
        chain = found.setdefault(name, {"places": now.facts.chains.get(name, []), "hops": {}})
        chain["hops"][number] = {way: _way(now.slots[key], rate, f"{way}_") for way in ("forward", "back")}
    return found


def picture(before: Snapshot, now: Snapshot, hops: Document | None = None) -> Document:
    """The same of ports and workers, with `hops`, the chains, unless they are of these snapshots too."""
    ports: dict[str, list[tuple[dict[str, int], dict[str, float]]]] = {}
    for key, rate in rates(_of("queue", before), _of("queue", now)).items():
        ports.setdefault(key[1].rpartition("/")[0], []).append((now.slots[key], rate))
    facts = now.facts
    document: Document = {
        "up": True,
        "spec": facts.spec,
        "time": round(now.time, 4),
        "seconds": round(now.time - before.time, 4),
        "chains": chains(before, now) if hops is None else hops,
        "functions": _functions(facts, ports),
        "ports": {name: _port(queues, facts.ports.get(name, "")) for name, queues in ports.items()},
        "workers": {
            row.name: {
                name: _figures(value) if isinstance(value, float) else value
                for name in ("core", "idle", "busy", "asleep", "packets", "cycles_a_packet", "burst")
                if (value := getattr(row, name)) is not None
            }
            for row in rows(_of("worker", before), _of("worker", now)).workers
        },
    }
    if facts.version is not None:
        document["version"] = facts.version
    return document


def _of(kind: str, snapshot: Snapshot) -> Snapshot:
    """The slots of one kind alone."""
    return replace(snapshot, slots={key: each for key, each in snapshot.slots.items() if key[0] == kind})


def _functions(facts: Facts, ports: Iterable[str]) -> Document:
    """Each function with its ports, of whatever instance they are."""
    own: dict[str, list[str]] = {}
    for port in ports:
        own.setdefault(planned_port(port), []).append(port)
    return {
        name: {"what": each.what, "ports": [port for planned in each.ports for port in own.get(planned, ())]}
        for name, each in facts.functions.items()
    }


def _figures(value: float) -> float:
    """Four of them: what nobody can see is no change."""
    return float(f"{value:.4g}")


def _way(total: Mapping[str, int], rate: Mapping[str, float], prefix: str) -> Document:
    return {
        "packets": _figures(rate.get(f"{prefix}packets", 0.0)),
        "bits": _figures(rate.get(f"{prefix}bytes", 0.0) * 8),
        "drops": _drops([(total, rate)], f"{prefix}drop_"),
    }


def _port(queues: Iterable[tuple[dict[str, int], dict[str, float]]], state: str) -> Document:
    queues = list(queues)

    def sum_of(field: str) -> float:
        return _figures(sum(rate.get(field, 0.0) for _, rate in queues))

    return {
        "state": state,
        "received": {"packets": sum_of("received_packets"), "bits": _figures(8 * sum_of("received_bytes"))},
        "sent": {"packets": sum_of("sent_packets"), "bits": _figures(8 * sum_of("sent_bytes"))},
        "waiting": sum(total.get("waiting_packets", 0) for total, _ in queues),
        "drops": _drops(queues, "drop_"),
    }


def _drops(counted: Iterable[tuple[Mapping[str, int], Mapping[str, float]]], prefix: str) -> Document:
    """Of each reason for which something was ever dropped: how many each second, and in all."""
    found: Document = {}
    for total, rate in counted:
        for field, count in total.items():
            if field.startswith(prefix) and count:
                reason = found.setdefault(field.removeprefix(prefix).replace("_", " "), {"rate": 0.0, "total": 0})
                reason["rate"] = _figures(reason["rate"] + rate[field])
                reason["total"] += count
    return found


def patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Document:
    """What makes `new` of `old`: a JSON merge patch (RFC 7386)."""
    found: Document = {} if old.keys() <= new.keys() else {name: None for name in old if name not in new}
    for name, value in new.items():
        was = old.get(name)
        if value is was:
            continue
        if isinstance(value, dict) and isinstance(was, dict):
            if deeper := patch(was, value):
                found[name] = deeper
        elif name not in old or value != was:
            found[name] = value
    return found
