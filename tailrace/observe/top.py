"""`tailrace top`: what ports, chains and workers do right now, as tables for a terminal of 80 columns or as data.

Rows are made of two snapshots (`tailrace.observe.snapshot`), purely; how they are drawn is the second half.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tailrace.observe.metrics import BURST
from tailrace.observe.snapshot import Snapshot, rates

SORTS = ("name", "packets", "drops")


@dataclass(frozen=True)
class PortRow:
    """A port over its queues; rates for each second, bytes as bits."""

    name: str
    state: str
    received_packets: float
    received_bits: float
    sent_packets: float
    sent_bits: float
    drops: float
    reason: str
    """The reason for most of the drops, so far."""
    total_drops: int
    queues: int


@dataclass(frozen=True)
class HopRow:
    """A hop of a chain, or the whole chain (`hop` None): what left it at either end."""

    chain: str
    hop: int | None
    places: str
    forward_packets: float
    back_packets: float
    bits: float
    drops: float
    total_drops: int


@dataclass(frozen=True)
class FunctionRow:
    """A function whose flows the switch knows: how many of them found no slot in their table."""

    name: str
    crowded: float
    """Each second."""
    total_crowded: int


@dataclass(frozen=True)
class WorkerRow:
    """A worker: how busy, and what a packet costs it."""

    name: str
    core: int | None
    idle: str
    busy: float
    """Of its time, from 0 to 1."""
    asleep: float
    """The same."""
    packets: float
    cycles_a_packet: float | None
    burst: float | None
    """Packets for each round that found some."""
    sleeps: float | None
    bursts: dict[str, float]
    """How its bursts were spread by size, as shares."""


@dataclass(frozen=True)
class Rows:
    """Everything that is shown."""

    seconds: float
    version: int | None
    spec: str
    ports: tuple[PortRow, ...]
    hops: tuple[HopRow, ...]
    functions: tuple[FunctionRow, ...]
    workers: tuple[WorkerRow, ...]
    cpus: dict[str, list[int]]
    """The CPU of each thread of a function that can have more and fewer."""

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def rows(before: Snapshot, now: Snapshot, sort: str = "name") -> Rows:
    """What happened between two snapshots. `sort` orders ports and chains: by name, or the most first."""
    grown = rates(before, now)
    queues: dict[str, list[tuple[dict[str, int], dict[str, float]]]] = {}
    hops: dict[str, dict[int, tuple[dict[str, int], dict[str, float]]]] = {}
    workers = []
    for key, rate in grown.items():
        kind, name, _ = key
        total = now.slots[key]
        if kind == "worker":
            workers.append(_worker(name, rate, now))
        elif kind == "queue":
            queues.setdefault(name.rpartition("/")[0], []).append((total, rate))
        elif kind == "hop":
            chain, _, number = name.rpartition("/")
            hops.setdefault(chain, {})[int(number)] = (total, rate)
    ports = [_port(name, each, now) for name, each in queues.items()]
    chains = [_chain(name, each, now) for name, each in hops.items()]
    ordered = sorted(chains, key=lambda chain: _order(chain[0], chain[0].chain, sort))
    return Rows(
        seconds=now.time - before.time,
        version=now.facts.version,
        spec=now.facts.spec,
        ports=tuple(sorted(ports, key=lambda row: _order(row, row.name, sort))),
        hops=tuple(row for chain in ordered for row in chain),
        functions=tuple(_functions(before, now)),
        workers=tuple(sorted(workers, key=lambda row: natural(row.name))),
        cpus=dict(now.facts.cpus),
    )


def natural(name: str) -> tuple[Any, ...]:
    """tester.a before tester.b, worker-2 before worker-10."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"([0-9]+)", name) if part)


def _order(row: PortRow | HopRow, name: str, sort: str) -> tuple[Any, ...]:
    if sort == "drops":
        return -row.drops, -row.total_drops, natural(name)
    if sort == "packets":
        moved = (
            row.received_packets + row.sent_packets
            if isinstance(row, PortRow)
            else row.forward_packets + row.back_packets
        )
        return -moved, natural(name)
    return (natural(name),)


def _drops(rate: dict[str, Any]) -> float:
    return float(sum(value for name, value in rate.items() if "drop_" in name))


def _port(name: str, queues: Sequence[tuple[dict[str, int], dict[str, float]]], now: Snapshot) -> PortRow:
    total: dict[str, int] = {}
    rate: dict[str, float] = {}
    for counters, grown in queues:
        for field, value in counters.items():
            total[field] = total.get(field, 0) + value
        for field, growth in grown.items():
            rate[field] = rate.get(field, 0.0) + growth
    dropped = {field: count for field, count in total.items() if field.startswith("drop_") and count}
    most = max(dropped, key=lambda field: dropped[field]).removeprefix("drop_") if dropped else ""
    return PortRow(
        name=name,
        state=now.facts.ports.get(name, ""),
        received_packets=rate.get("received_packets", 0.0),
        received_bits=rate.get("received_bytes", 0.0) * 8,
        sent_packets=rate.get("sent_packets", 0.0),
        sent_bits=rate.get("sent_bytes", 0.0) * 8,
        drops=_drops(rate),
        reason=most.replace("_", " "),
        total_drops=sum(dropped.values()),
        queues=len(queues),
    )


def _chain(name: str, hops: dict[int, tuple[dict[str, int], dict[str, float]]], now: Snapshot) -> list[HopRow]:
    """The chain itself, then its hops."""
    places = now.facts.chains.get(name, [])
    found = []
    for number in sorted(hops):
        total, rate = hops[number]
        known = places[number : number + 2]
        found.append(
            HopRow(
                chain=name,
                hop=number,
                places=" → ".join(known) if len(known) == 2 else f"hop {number}",
                forward_packets=rate.get("forward_packets", 0.0),
                back_packets=rate.get("back_packets", 0.0),
                bits=(rate.get("forward_bytes", 0.0) + rate.get("back_bytes", 0.0)) * 8,
                drops=_drops(rate),
                total_drops=int(_drops(total)),
            )
        )
    first, last = hops[min(hops)][1], hops[max(hops)][1]
    whole = HopRow(
        chain=name,
        hop=None,
        places=" ".join(places),
        forward_packets=last.get("forward_packets", 0.0),
        back_packets=first.get("back_packets", 0.0),
        bits=(last.get("forward_bytes", 0.0) + first.get("back_bytes", 0.0)) * 8,
        drops=sum(row.drops for row in found),
        total_drops=sum(row.total_drops for row in found),
    )
    return [whole, *found]


def _functions(before: Snapshot, now: Snapshot) -> list[FunctionRow]:
    """Counts that the switch was asked for with each snapshot (`Sampler` with `facts_every` 0)."""
    seconds = max(now.time - before.time, 1e-9)
    known = now.facts.crowded or {}
    old = known if before.facts.crowded is None else before.facts.crowded  # what was not known has not grown
    return [
        FunctionRow(name, max(count - old.get(name, 0), 0) / seconds, count)
        for name, count in sorted(known.items(), key=lambda each: natural(each[0]))
    ]


def _worker(name: str, rate: dict[str, float], now: Snapshot) -> WorkerRow:
    facts = now.facts.workers.get(name, {})
    busy, idle = rate.get("busy_cycles", 0.0), rate.get("idle_cycles", 0.0)
    asleep = rate.get("asleep_cycles", 0.0)
    time = busy + idle
    if facts.get("idle") == "sleep" and facts.get("tsc_hz"):
        # A sleep is counted when it ends: what is not counted by now is asleep, and what was counted late was before.
        time = max(float(facts["tsc_hz"]), busy + idle - asleep)
        asleep = time - (busy + idle - asleep)
    packets, polls = rate.get("packets", 0.0), rate.get("busy_polls", 0.0)
    spread = {
        match[1]: value for field, value in rate.items() if field.startswith("burst_") and (match := BURST.match(field))
    }
    bursts = sum(spread.values())
    return WorkerRow(
        name=name,
        core=facts.get("core"),
        idle=str(facts.get("idle", "")),
        busy=busy / time if time else 0.0,
        asleep=asleep / time if time else 0.0,
        packets=packets,
        cycles_a_packet=busy / packets if packets else None,
        burst=packets / polls if polls else None,
        sleeps=rate.get("sleeps"),
        bursts={size: count / bursts for size, count in spread.items()} if bursts else {},
    )


# --- drawing -------------------------------------------------------------------------------------------------------


def short(value: float) -> str:
    """Three figures and a unit: 0, 12.3k, 1.23M."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * 0.9995:
            shown = value / factor
            return f"{shown:.3g}{unit}" if shown < 999.5 else f"{shown:.0f}{unit}"
    return f"{value:.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def draw(found: Rows, *, height: int | None = None, sort: str = "name") -> RenderableType:
    """Tables of it all, at most `height` lines: the last ports and hops are left out before the workers are."""
    head = Text("tailrace top", style="bold")
    version = f", version {found.version}" if found.version is not None else ""
    head.append(f"  {found.spec}{version}, each second, sorted by {sort}", style="default")
    workers = _workers_table(found.workers)
    ports, hops = list(found.ports), list(found.hops)
    crowded = [row for row in found.functions if row.total_crowded]
    left = None if height is None else height - 6 - len(found.workers) - len(crowded) - len(found.cpus)
    notes = [_crowded(row) for row in crowded]
    notes += [_cpus(name, cpus) for name, cpus in sorted(found.cpus.items(), key=lambda each: natural(each[0]))]
    if left is not None and len(ports) + len(hops) > left:
        half = max(left // 2, 1)
        keep_ports = max(min(len(ports), left - min(len(hops), half)), 1)
        keep_hops = max(left - keep_ports, 1)
        cut = max(len(ports) - keep_ports, 0) + max(len(hops) - keep_hops, 0)
        ports, hops = ports[:keep_ports], hops[:keep_hops]
        if cut:
            notes.append(Text(f"{cut} more rows: a larger window, or --once, shows them", style="dim"))
    parts: list[RenderableType] = [head, workers, _ports_table(ports)]
    if hops:
        parts.append(_hops_table(hops))
    return Group(*parts, *notes)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name, justify in columns:
        left = justify == "left"
        table.add_column(
            name,
            justify="left" if left else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if left and not table.columns else None,
        )
    return table


def _crowded(row: FunctionRow) -> Text:
    text = f"function {row.name}: {short(row.total_crowded)} times the flow table was full"
    return Text(text, style="bold red" if row.crowded else "default")


def _cpus(name: str, cpus: Sequence[int]) -> Text:
    return Text(f"function {name}: {len(cpus)} CPU{'' if len(cpus) == 1 else 's'} ({', '.join(map(str, cpus))})")


def _ports_table(ports: Sequence[PortRow]) -> Table:
    table = _table(
        ("port", "left"), ("state", "left"), ("rx pps", "right"), ("rx bps", "right"), ("tx pps", "right"),
        ("tx bps", "right"), ("drops/s", "right"), ("dropped", "right"),
    )  # fmt: skip
    for row in ports:
        state = Text(
            row.state, style={"up": "green", "quarantined": "bold red", "down": "red"}.get(row.state, "yellow")
        )
        table.add_row(
            row.name,
            state,
            short(row.received_packets),
            short(row.received_bits),
            short(row.sent_packets),
            short(row.sent_bits),
            Text(short(row.drops), style="bold red" if row.drops else "default"),
            short(row.total_drops),
        )
    return table


def _hops_table(hops: Sequence[HopRow]) -> Table:
    table = _table(
        ("chain", "left"), ("there pps", "right"), ("back pps", "right"), ("bps", "right"), ("drops/s", "right"),
        ("dropped", "right"),
    )  # fmt: skip
    for row in hops:
        name = Text(f"{row.chain}: {row.places}", style="bold") if row.hop is None else Text(f"  {row.places}")
        table.add_row(
            name,
            short(row.forward_packets),
            short(row.back_packets),
            short(row.bits),
            Text(short(row.drops), style="bold red" if row.drops else "default"),
            short(row.total_drops),
        )
    return table


def _workers_table(workers: Sequence[WorkerRow]) -> Table:
    table = _table(
        ("worker", "left"), ("core", "right"), ("idle", "left"), ("busy", "right"), ("asleep", "right"),
        ("pps", "right"), ("cycles/packet", "right"), ("burst", "right"), ("sleeps/s", "right"),
    )  # fmt: skip
    for row in workers:
        colour = "green" if row.busy < 0.7 else ("yellow" if row.busy < 0.95 else "red")
        table.add_row(
            row.name,
            "" if row.core is None else str(row.core),
            row.idle,
            Text(f"{row.busy:.0%}", style=colour),
            f"{row.asleep:.0%}",
            short(row.packets),
            "–" if row.cycles_a_packet is None else short(row.cycles_a_packet),
            "–" if row.burst is None else f"{row.burst:.1f}",
            "–" if row.sleeps is None else short(row.sleeps),
        )
    return table


def only(found: Rows, pattern: str | None) -> Rows:
    """The rows whose port or chain has the pattern in its name."""
    if not pattern:
        return found
    return replace(
        found,
        ports=tuple(row for row in found.ports if pattern in row.name),
        hops=tuple(row for row in found.hops if pattern in row.chain),
        functions=tuple(row for row in found.functions if pattern in row.name),
    )
