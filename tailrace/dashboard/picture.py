"""What the page shows, as one JSON document made of the counter page, and what has changed between two such documents.

`web/src/picture.ts` has the types of the document.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tailrace.dashboard.turns import WINDOW, Between, Document, Rows, Show, Turns, figures, growing, patch
from tailrace.observe.page import Table
from tailrace.observe.snapshot import Facts, Snapshot
from tailrace.observe.top import rows
from tailrace.switch.config import planned_port


def nothing(why: str) -> Document:
    """The document while there is no switch to look at."""
    return {"up": False, "why": why}


@dataclass(frozen=True)
class Totals:
    """Of all chains together, each second."""

    packets: float = 0.0
    """Delivered at either end."""
    bits: float = 0.0
    drops: float = 0.0
    losing: int = 0
    """Chains that drop."""


class Pictures:
    """Pictures of one node, one after the other."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque()
        self._chains = Turns("forward_", "back_")
        self._ports = Turns("received_", "sent_")
        self._states: dict[str, str] = {}
        self._functions: tuple[object, object, Document] = (None, None, {})
        self._compared = False
        """All chains and ports, for the picture that was taken last."""

    @property
    def live(self) -> bool:
        """Whether tables that are live do for the next picture."""
        return self._compared and (self._chains.many or self._ports.many)

    def take(self, now: Snapshot, queues: Table, hops: Table) -> Document:
        """What workers (`now`), queues and hops have done, each second, bytes as bits. Empty for the first, which there
        is nothing to compare with."""
        facts = now.facts
        self._compared = not hops.live
        chains = self._chains.take(now.time, hops, _chain_of(facts))
        other: list[str] = []
        if facts.ports is not self._states:
            names = dict.fromkeys(name.rpartition("/")[0] for name, _ in queues.slots)
            other = [name for name in names if facts.ports.get(name) != self._states.get(name)]
            self._states = facts.ports
        ports = self._ports.take(now.time, queues, _port_of(facts), other)
        self._kept.append(now)
        while len(self._kept) > 2 and now.time - self._kept[1].time >= WINDOW:
            self._kept.popleft()
        before = self._kept[0]
        if len(self._kept) == 1:
            return {}
        document: Document = {
            "up": True,
            "spec": facts.spec,
            "time": round(now.time, 4),
            "seconds": round(now.time - before.time, 4),
            "chains": chains,
            "functions": self._functions_of(facts, queues),
            "ports": ports,
            "workers": _workers(before, now),
        }
        if facts.version is not None:
            document["version"] = facts.version
        return document

    def totals(self) -> Totals:
        """Of the picture that was taken last: of all chains as they are now, whichever it has anew."""
        between, chains = self._chains.between, self._chains.rows
        if between is None:
            return Totals()
        out = between.flow("forward_", [max(rows, key=_number) for rows in chains.values()])
        back = between.flow("back_", [min(rows, key=_number) for rows in chains.values()])
        losing = growing(between)
        every = [(name, row) for name, rows in chains.items() for _, row in rows]
        return Totals(
            packets=out["packets"] + back["packets"],
            bits=out["bits"] + back["bits"],
            drops=sum(between.rate(field, every) for field in between.dropped),
            losing=len({name for name, row in every if row in losing}),
        )

    def change(self, old: Document, new: Document) -> Document:
        """What makes the picture that was taken last of the one before."""
        return patch(old, new, {"chains": self._chains.changes, "ports": self._ports.changes})

    def _functions_of(self, facts: Facts, queues: Table) -> Document:
        """Each function with its ports, of whatever instance they are."""
        planned, slots, found = self._functions
        if planned is not facts.functions or slots is not queues.slots:
            own: dict[str, list[str]] = {}
            for port in dict.fromkeys(name.rpartition("/")[0] for name, _ in queues.slots):
                own.setdefault(planned_port(port), []).append(port)
            found = {
                name: {"what": each.what, "ports": [port for planned in each.ports for port in own.get(planned, ())]}
                for name, each in facts.functions.items()
            }
            self._functions = facts.functions, queues.slots, found
        return found


def _number(hop: tuple[str, int]) -> int:
    return int(hop[0])


def _chain_of(facts: Facts) -> Show:
    def chain(name: str, rows: Rows, between: Between) -> Document:
        hops = {
            row[0]: {
                way: {**between.flow(f"{way}_", [row]), "drops": between.drops(f"{way}_drop_", [row])}
                for way in ("forward", "back")
            }
            for row in rows
        }
        return {"places": facts.chains.get(name, []), "hops": hops}

    return chain


def _port_of(facts: Facts) -> Show:
    def port(name: str, rows: Rows, between: Between) -> Document:
        return {
            "state": facts.ports.get(name, ""),
            "received": between.flow("received_", rows),
            "sent": between.flow("sent_", rows),
            "waiting": sum(between.now["waiting_packets"][row] for _, row in rows),
            "drops": between.drops("drop_", rows),
        }

    return port


def _workers(before: Snapshot, now: Snapshot) -> Document:
    return {
        row.name: {
            name: figures(value) if isinstance(value, float) else value
            for name in ("core", "idle", "busy", "asleep", "packets", "cycles_a_packet", "burst")
            if (value := getattr(row, name)) is not None
        }
        | ({"bursts": {size: round(share, 2) for size, share in row.bursts.items()}} if row.bursts else {})
        for row in rows(before, now).workers
    }
