"""The terminal's view of what changed from one run to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tailrace.process.plain import plain
from tailrace.report.figures import MISSING, count, mega, microseconds
from tailrace.report.marks import BOUNDS, FELL_SHORT, NEAR_FLOOR, bound_remark
from tailrace.report.rounds import spread_words
from tailrace.results.compared import Compared, Mark
from tailrace.results.diff import Difference, Differing
from tailrace.results.record import FLOOR_TIMES, UNSENT_TOLERANCE
from tailrace.results.spread import Spread

SHOWN: dict[str, Callable[[float], str]] = {
    "Mpps": mega,
    "µs": microseconds,
    "×": lambda value: f"{value:.3g}",
    "%": lambda value: f"{value:.3g}",
}


MARKS: dict[Mark, str] = {
    "fell_short": FELL_SHORT,
    "near_floor": NEAR_FLOOR,
    "at_least": BOUNDS["at_least"],
    "at_most": BOUNDS["at_most"],
    "unknown": BOUNDS["unknown"],
}


def value_text(value: float | int, unit: str, spread: Spread | None = None, marks: Sequence[Mark] = ()) -> str:
    """A figure as tables show it: 1.23, †1.23 where it is marked, 1.23 (1.10–1.40) of several rounds."""
    show = SHOWN.get(unit) or _whole
    return "".join(MARKS[mark] for mark in marks) + (show(value) if spread is None else spread_words(spread, show))


def _whole(number: float) -> str:
    return count(int(number))


def ratio_text(figure: Compared) -> str:
    """B ÷ A with two decimals; = where nothing changed, and a dash where A is 0."""
    if figure.a == figure.b:
        return "="
    return MISSING if figure.ratio is None else f"{figure.ratio:.2f}"


def print_difference(found: Difference, console: Console) -> None:
    """Print what differs, and that nothing does where it is so."""
    console.print(Text(f"A: {plain(found.a)}\nB: {plain(found.b)}", style="bold"))
    for title, rows in (("How it was run", found.setting), ("Host", found.host), ("Versions", found.versions)):
        if rows:
            console.print(_pairs(title, rows))
    if found.spec:
        console.print(Text("Spec", style="bold"))
        for line in found.spec:
            colour = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            console.print(Text(plain(line), style=colour), soft_wrap=True)
        console.print()
    parts = {"setting": found.setting, "host": found.host, "versions": found.versions, "spec": found.spec}
    same = [name for name, rows in parts.items() if not rows]
    if same:
        console.print(Text(f"The same: {', '.join(same)}."))
    if found.figures:
        console.print(_figures(found.figures))
        for reading in _reading(found):
            console.print(Text(reading, style="dim"))
    for each in found.rates:
        a, b = (", ".join(map(plain, rates)) for rates in (each.a, each.b))
        text = f"{plain(each.trial)}: A was measured at {a} and B at {b}, with no rate in common"
        console.print(Text(f"{text}: latencies at different rates cannot be compared."), soft_wrap=True)
    for differing in found.unlike:
        text = f"{plain(differing.trial)}: {plain(differing.a)} in A and {plain(differing.b)} in B"
        console.print(Text(f"{text}: the {differing.what} differs."), soft_wrap=True)
    for letter, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            console.print(Text(f"Only {letter} has: {', '.join(map(plain, names))}."), soft_wrap=True)
    for line in _not_measured(found):
        console.print(Text(line), soft_wrap=True)


def _not_measured(found: Difference) -> Iterator[str]:
    """Each reason once, with the cells."""
    cells: dict[tuple[str, str | None], list[str]] = {}
    for each in found.not_measured:
        cells.setdefault((each.run.upper(), each.reason), []).append(plain(each.name))
    for (letter, reason), names in cells.items():
        why = f": {plain(reason)}" if reason else ""
        yield f"Not measured in {letter}: {', '.join(names)}{why}."


def _reading(found: Difference) -> Iterator[str]:
    if any(figure.unit in ("Mpps", "frames") for figure in found.figures):
        yield "Rates and latency are those of each trial's worse direction; counts are of all."
    if any(figure.spreads for figure in found.figures):
        yield (
            "Where a trial was repeated: the median, with the lowest and the highest in brackets; frames lost, "
            "duplicated or out of sequence are summed."
        )
    used = {mark for figure in found.figures for marks in figure.marks.values() for mark in marks}
    if "fell_short" in used:
        yield (
            f"{FELL_SHORT}: less than {1 - UNSENT_TOLERANCE:.0%} of the frames offered were sent in a trial behind the "
            "figure, so it is of a lower rate."
        )
    if "near_floor" in used:
        yield (
            f"{NEAR_FLOOR}: less than {FLOOR_TIMES} times the tester's own floor, so it says as much of the tester "
            "as of the device."
        )
    if (said := bound_remark(mark for mark in BOUNDS if mark in used)) is not None:
        yield said
    if found.rounds[0] != found.rounds[1]:
        a, b = ("one round" if number == 1 else f"{number} rounds" for number in found.rounds)
        yield f"A has {a} and B {b}: sums are over these."


def _pairs(title: str, rows: Sequence[Differing]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in (title, "A", "B"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(text if text is not None else MISSING)) for text in (row.name, *row.values)))
    return table


def _figures(figures: Sequence[Compared]) -> Table:
    """The figures of each trial below its name, which may be longer than any column beside others could be."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for number, column in enumerate(("figure", "A", "B", "B ÷ A")):
        table.add_column(column, justify="left" if number < 1 else "right", no_wrap=number > 0, overflow="fold")
    before = None
    for number, figure in enumerate(figures):
        if figure.trial != before:
            table.add_row(Text(plain(figure.trial), style="bold"), "", "", "")
        before = figure.trial
        last = number + 1 == len(figures) or figures[number + 1].trial != figure.trial
        unit = "" if figure.unit == "frames" else f", {figure.unit}"
        table.add_row(
            Text(f"  {plain(figure.figure)}{unit}"),
            value_text(figure.a, figure.unit, figure.a_spread, figure.a_marks),
            value_text(figure.b, figure.unit, figure.b_spread, figure.b_marks),
            ratio_text(figure),
            end_section=last,
        )
    return table
