"""The results of `tailrace bench` for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tailrace.bench.automatic import GOALS_MS as AUTOMATIC_GOALS_MS
from tailrace.bench.automatic import AutomaticResult
from tailrace.bench.dashboard import DashboardResult
from tailrace.bench.migration import MigrationResult
from tailrace.bench.model import (
    OVS_DPDK,
    TAILRACE,
    ChangeResult,
    Comparison,
    Distance,
    Figures,
    Kinds,
    Pair,
    Spread,
)
from tailrace.bench.plug import PUBLISHED_MS as PLUG_PUBLISHED_MS
from tailrace.bench.plug import PlugResult, p99
from tailrace.bench.service import ServiceResult
from tailrace.bench.start import StartResult
from tailrace.results.migration import PUBLISHED_MS


@dataclass(frozen=True)
class Column:
    """A figure as the table shows it, for every side that has it, with its ratio where there is one."""

    figure: str
    heading: str
    digits: int = 1

    def show(self, figures: Figures) -> str:
        """The side's figure; empty if it has none."""
        value = figures.get(self.figure)
        return "" if value is None else f"{value:.{self.digits}f}"


CYCLES, MPPS = Column("cycles_per_packet", "cycles"), Column("mpps", "Mpps", 3)


def comparison_table(result: Comparison, title: str, columns: Sequence[Column], notes: Sequence[str]) -> Group:
    """One row a pair where that is readable, else one row a side; the medians of the ratios last."""
    sides = len(result.pairs[0].sides)
    table = _table(title)
    (_row_a_pair if sides * len(columns) <= 4 and sides <= 2 else _row_a_side)(table, result, columns)
    said = [
        *notes,
        "core to core: a cache line's round trip, before, between and after the windows of a side.",
    ]
    said += [_other_note(result, which, columns) for which in result.others]
    said += _moved_notes(result)
    said.append(_machine_note(result.machine))
    return Group(table, *(Text(note, style="dim") for note in said))


def kinds_table(result: Kinds, title: str, columns: Mapping[str, Sequence[Column]], notes: Sequence[str]) -> Group:
    """One row for each figure of a kind of traffic: the medians of the sides, and the median, the least and the most of
    the pairs' ratios; for each distance between the cores."""
    table = _table(title)
    for heading in ("traffic", "", TAILRACE, OVS_DPDK):
        table.add_column(heading, justify="left" if heading in ("traffic", "") else "right", no_wrap=True)
    table.add_column("ratio", justify="right", style="bold", no_wrap=True)
    table.add_column("pairs", justify="right", no_wrap=True)
    _add_distance_columns(table)
    for kind, comparison in result.measured.items():
        for pairs in comparison.by_distance.values() or [comparison.pairs]:
            for column in columns[kind]:
                table.add_row(kind, *_over_pairs(comparison, pairs, column), *_distance_cells(pairs[0]))
        table.add_section()
    said = [*notes, "core to core: a cache line's round trip, before, between and after the windows of a side."]
    said += [f"{kind} failed: {reason}" for kind, reason in result.reasons.items()]
    said += [_machine_note(comparison.machine) for comparison in list(result.measured.values())[:1]]
    return Group(table, *(Text(note, style="dim") for note in said))


def _over_pairs(result: Comparison, pairs: Sequence[Pair], column: Column) -> tuple[str, ...]:
    """A figure of both sides over some pairs, and its ratio."""

    def side(name: str) -> str:
        found = [pair.sides[name][column.figure] for pair in pairs if name in pair.sides]
        return column.show({column.figure: median(found)}) if found else ""

    known = {ratio.figure: ratio for ratio in result.ratios}
    ratios = [value for pair in pairs if (value := known[column.figure].of(pair.sides)) is not None]
    shown = f"{median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]" if ratios else ""
    return column.heading.replace("\n", " "), side(TAILRACE), side(OVS_DPDK), shown, str(len(pairs))


def _row_a_pair(table: Table, result: Comparison, columns: Sequence[Column]) -> None:
    """Each figure of both sides and their ratio beside each other."""
    first = result.pairs[0]
    shown = [(column, [name for name in first.sides if column.figure in first.sides[name]]) for column in columns]
    ratios = {ratio.figure: ratio for ratio in result.ratios if ratio.of(first.sides) is not None}
    table.add_column("pair", justify="right", no_wrap=True)
    for column, sides in shown:
        for name in sides:
            table.add_column(f"{name}\n{column.heading}", justify="right", no_wrap=True)
        if column.figure in ratios:
            table.add_column("\nratio", justify="right", style="bold", no_wrap=True)
    _add_distance_columns(table)
    for number, pair in enumerate(result.pairs, 1):
        row = [str(number)]
        for column, sides in shown:
            row += [column.show(pair.sides[name]) for name in sides]
            if column.figure in ratios:
                row.append(_times(ratios[column.figure].of(pair.sides)))
        table.add_row(*row, *_distance_cells(pair))
    if not ratios:
        return
    table.add_section()
    row = ["median"]
    for column, sides in shown:
        row += [""] * len(sides)
        if column.figure in ratios:
            row.append(_times(result.median(ratios[column.figure])))
    table.add_row(*row, "", "")


def _row_a_side(table: Table, result: Comparison, columns: Sequence[Column]) -> None:
    """The sides of a pair below each other, the median of every ratio at the end."""
    table.add_column("pair", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    _add_distance_columns(table)
    for number, pair in enumerate(result.pairs, 1):
        for place, (name, figures) in enumerate(pair.sides.items()):
            about = _distance_cells(pair) if place == 0 else ("", "")
            table.add_row(
                str(number) if place == 0 else "", name, *(column.show(figures) for column in columns), *about
            )
        table.add_section()
    compared = dict.fromkeys((ratio.side, ratio.by) for ratio in result.ratios if result.median(ratio) is not None)
    for side, by in compared:
        medians = {r.figure: result.median(r) for r in result.ratios if (r.side, r.by) == (side, by)}
        cells = [_times(medians.get(column.figure)) for column in columns]
        table.add_row("", f"{side} ÷ {by}", *cells, "", "", style="bold")


def _add_distance_columns(table: Table) -> None:
    table.add_column("core to\ncore ns", justify="right", no_wrap=True)
    table.add_column("\ncores", no_wrap=True)


def _distance_cells(pair: Pair) -> tuple[str, str]:
    return f"{pair.core_to_core_ns:.0f}", _distance(pair)


def service_table(result: ServiceResult, title: str) -> Group:
    """One row a thing that is timed, then what the service takes."""
    events = result.events
    lost = events["sent"] * events["listeners"] - events["received"]
    return Group(
        _timed(result.times_ms, title),
        Text(f"While nothing happens: {result.idle_percent:.2f} % of a core, {result.memory_mib:.1f} MiB."),
        Text(
            f"{events['rate']:g} events a second to {events['listeners']:g} listeners: {lost:g} lost, "
            f"{events['percent']:.1f} % of a core."
        ),
        Text(_machine_note(result.machine), style="dim"),
    )


def dashboard_table(result: DashboardResult) -> Group:
    """One row a figure."""
    said = result.settings
    table = _table(f"The dashboard of {said['chains']:g} chains and {said['ports']:g} ports")
    table.add_column("", no_wrap=True)
    table.add_column("", justify="right")
    table.add_column("")
    for name, value in result.figures.items():
        what, _, unit = name.rpartition("_")
        table.add_row(
            what.replace("_", " "), f"{value:.1f}", {"percent": "% of a core", "s": "a second"}.get(unit, unit)
        )
    return Group(table, Text(_machine_note(result.machine), style="dim"))


def start_table(result: StartResult, title: str) -> Group:
    """One row a chain that is started, and one where it is ended."""
    said = [Text(f"note: {note}") for note in result.notes]
    if (ratio := result.warm_over_cold) is not None:
        said.insert(0, Text(f"From a file it takes {ratio.median:.2f} ({ratio.least:.2f}–{ratio.most:.2f}) of a boot."))
    return Group(_timed(result.times_ms, title), *said, Text(_machine_note(result.machine), style="dim"))


def plug_table(result: PlugResult, title: str) -> Group:
    """One row a thing that is timed, then what became of the frames."""
    traffic = result.traffic
    said = [
        f"p99: plug {p99(result.taken_ms['plug']):.2f} ms, unplug {p99(result.taken_ms['unplug']):.2f} ms.",
        f"{traffic.sent} frames were sent meanwhile ({traffic.rate_pps:g} a second): {traffic.lost} lost, "
        f"{traffic.duplicate} duplicated, {traffic.out_of_sequence} out of sequence.",
        *(f"{name}: {ratio:.3f}" for name, ratio in result.ratios.items()),
    ]
    if "pool_over_hotplug" in result.ratios:
        published = ", ".join(f"{name} about {ms:g} ms" for name, ms in PLUG_PUBLISHED_MS.items())
        said.append(f"Others publish, of a machine's pool: {published}.")
    if result.late:
        said.append(f"{result.late} times no frame came to the new CPU while it was waited for.")
    said += [f"note: {note}" for note in result.notes]
    return Group(_timed(result.times_ms, title), *map(Text, said), Text(_machine_note(result.machine), style="dim"))


def automatic_table(result: AutomaticResult, title: str) -> Group:
    """One row a thing that is timed, then the square wave, and what became of the frames."""
    traffic = result.traffic
    said = [
        *(
            f"{name}: p99 {p99(taken):.1f} ms; within {AUTOMATIC_GOALS_MS[name]:g} ms {result.within[name]} of "
            f"{len(taken)} times."
            for name, taken in result.taken_ms.items()
        ),
        f"A burst of {traffic.rate_pps:g} frames a second kept one CPU busy for {result.load:.0%} of its time; the "
        f"function had another one above {result.busy:.0%}.",
    ]
    if result.wave:
        said.append(
            f"Square wave of {result.wave:g} s: {result.flaps} CPUs were given back and wanted again, at most "
            f"{result.most_in_a_minute} in a minute."
        )
    said += [
        f"{traffic.sent} frames were sent: {traffic.lost} lost, {traffic.duplicate} duplicated, "
        f"{traffic.out_of_sequence} out of sequence.",
        *(f"note: {note}" for note in result.notes),
    ]
    return Group(_timed(result.times_ms, title), *map(Text, said), Text(_machine_note(result.machine), style="dim"))


def migration_table(result: MigrationResult, title: str) -> Group:
    """One row a part of a move, then what became of the frames."""
    moves = len(result.moves)
    sizes = [move.bytes / (1 << 20) for move in result.moves]
    said = [
        *([f"{moves} moves of {result.asked} were measured."] if result.error is not None else []),
        f"Outage: at most {PUBLISHED_MS:g} ms, which is what others publish, in {result.within_published} of {moves}.",
        f"{result.count('received')} frames came ({result.rate_pps:g} a second were sent to each node): "
        f"{result.count('lost')} lost, {result.count('duplicate')} duplicated, "
        f"{result.count('out_of_sequence')} out of sequence.",
        f"{median(sizes):.0f} MiB of memory were sent each time.",
        *(f"note: {note}" for note in result.notes),
    ]
    return Group(_timed(result.times_ms, title), *map(Text, said), Text(_machine_note(result.machine), style="dim"))


def _timed(times: Mapping[str, Spread], title: str) -> Table:
    """One row a thing that is timed."""
    table = _table(title)
    table.add_column("", no_wrap=True)
    for heading in ("times", "min ms", "median ms", "max ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, spread in times.items():
        row = [str(spread.count), f"{spread.least:.2f}", f"{spread.median:.2f}", f"{spread.most:.2f}"]
        table.add_row(name, *row)
    return table


def change_table(result: ChangeResult, title: str) -> Group:
    """One row a thing that is timed, then memory and the chain beside."""
    table = _timed(result.times_ms, title)
    beside = result.beside
    said = []
    if result.memory_mib:
        memory = ", ".join(f"{mib:.1f} MiB with {guests} guests" for guests, mib in result.memory_mib.items())
        said.append(Text(f"Memory: {memory}."))
    said.append(
        Text(
            f"Beside the changes {beside.sent} frames were sent on another chain ({beside.rate_pps:g} a second each "
            f"way): {beside.lost} lost, {beside.duplicate} duplicated, {beside.out_of_sequence} out of sequence."
        )
    )
    notes = ["A change lasts from the call to its answer."]
    if result.memory_mib:
        notes.append("Memory is the peak of what was resident, without the guests' own, which is in huge pages.")
    notes.append(_machine_note(result.machine))
    return Group(table, *said, *(Text(note, style="dim") for note in notes))


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)


def _other_note(result: Comparison, which: Distance, columns: Sequence[Column]) -> str:
    """What the pairs at another distance gave."""
    pairs = result.others[which]
    words = {column.figure: column.heading.replace("\n", " ") for column in columns}
    found = [
        f"{words[ratio.figure]} {summary.median:.2f}×"
        for ratio in result.ratios
        if ratio.figure in words and (summary := ratio.summary([pair.sides for pair in pairs]))
    ]
    distance = f"{median(pair.core_to_core_ns for pair in pairs):.0f} ns"
    said = f"With the cores {which}, {distance}: {len(pairs)} more pair{'s' * (len(pairs) > 1)}"
    return f"{said}; median ratios: {', '.join(found)}. --json has them." if found else f"{said}; --json has them."


def _moved_notes(result: Comparison) -> list[str]:
    """What became of pairs and windows during which the cores moved."""
    pairs, moved = result.pairs, result.moved
    if not all(pair.steady for pair in pairs):
        return ["* the cores moved nearer or farther during the pair: its sides met different machines."]
    said = []
    if moved:
        said.append(f"Set aside: {len(moved)} more, during which the cores moved nearer or farther; --json has them.")
    if len(pairs) < result.asked:
        why = "in twice as many tries the cores were no more often equally far for all sides"
        if result.error is not None:
            why = "then it was cut short"
        said.append(f"These are {len(pairs)} of the {result.asked} pairs that were asked for: {why}.")
    return said


def _machine_note(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cpu']}, switch on core {machine['switch_core']}, load on core {machine['load_core']}; {versions}."
    )


def _distance(pair: Pair) -> str:
    """Its name, and a mark where it changed during the pair."""
    return pair.distance + ("" if pair.steady else "*")


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}×"
