"""Charts that need no script: bars of throughput, heat maps, and the budget of a way as a stack.

Everything here is lengths in percent and the number of a colour (0 to 7) for the style sheet, and text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tailrace.report import figures
from tailrace.report.marked import Marked, MarkedTrial, by_profile, trials
from tailrace.report.rounds import figure
from tailrace.report.warmth import by_logarithm
from tailrace.results.findings import ThroughputFinding
from tailrace.results.model import HopPart, Trial, sent_of
from tailrace.results.spread import by_case
from tailrace.results.trial import LAYER_1_OVERHEAD


@dataclass(frozen=True)
class Segment:
    """A part of a bar."""

    percent: float
    colour: int
    title: str = ""
    text: str = ""
    """What stands in it, where there is room."""


@dataclass(frozen=True)
class Bar:
    """A bar with its name before and its value behind."""

    label: str
    value: str
    segments: tuple[Segment, ...]
    first: bool = False
    """Begins a group."""


@dataclass(frozen=True)
class BarChart:
    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Cell:
    """A field of a heat map: `heat` from 0 to 100."""

    text: str
    heat: float


@dataclass(frozen=True)
class HeatMap:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


def throughput(runs: Sequence[Marked]) -> list[BarChart]:
    """The rates without loss by frame size and length of chain: in Mpps, and in Gbps at layer 1; none if none was
    looked for."""
    if any(isinstance(each, ThroughputFinding) for one in runs for each in one.stored.run.findings):
        return _found(runs)
    measured = [
        (profile, _once([one for one in found if one.trial.no_loss_pps]))
        for profile, found in by_profile([one for one in runs if not one.is_compared])
    ]
    charts = []
    for title, of in (("Mpps", _mpps), ("Gbps at layer 1", _gbps)):
        most = max((of(one.trial) for _, found in measured for _, one in found), default=0.0)
        if not most:
            continue
        bars = [
            Bar(
                name,
                figures.mega(of(one.trial)),
                (Segment(100 * of(one.trial) / most, one.of.colour(one.trial.functions)),),
                first=number == 0,
            )
            for _, found in measured
            for number, (name, one) in enumerate(found)
        ]
        charts.append(BarChart(title, tuple(bars)))
    return charts


def _once(found: Sequence[MarkedTrial]) -> list[tuple[str, MarkedTrial]]:
    """Each rate that was found once, however many trials are at parts of it, with a name; the shortest chain first."""
    rates: dict[tuple[int, str], dict[float, MarkedTrial]] = {}
    for one in sorted(found, key=lambda one: one.trial.functions or 0):
        rates.setdefault((one.of.number, one.chain), {}).setdefault(one.trial.no_loss_pps or 0.0, one)
    return [
        (
            one.of.label(f"{figures.profile_name(one.trial.profile)}, {one.of.chains[one.trial.name]}")
            + (one.round if len(of) > 1 else ""),
            one,
        )
        for of in rates.values()
        for one in of.values()
    ]


def _found(runs: Sequence[Marked]) -> list[BarChart]:
    """The same from what searches found: the rate with the least loss of each, the median of all rounds."""
    rows: list[tuple[Marked, ThroughputFinding, tuple[list[float], list[float]]]] = []
    for one in runs:
        found = [each for each in one.stored.run.findings if isinstance(each, ThroughputFinding) and each.goals]
        for rounds in by_case(found):
            goals = [min(each.goals, key=lambda goal: goal.loss_ratio) for each in rounds]
            rates = ([goal.pps / 1e6 for goal in goals], [goal.gbps_l1 for goal in goals])
            rows.append((one, rounds[0], rates))
    rows.sort(key=lambda row: (figures.profile_place(row[1].profile), row[1].functions or 0, row[0].number))
    charts = []
    for index, title in enumerate(("Mpps", "Gbps at layer 1")):
        most = max((median(rates[index]) for _, _, rates in rows), default=0.0)
        bars, before = [], None
        for one, found_first, rates in rows if most else ():
            name = f"{figures.profile_name(found_first.profile)}, {figures.chain_name(found_first.functions)}"
            segment = Segment(100 * median(rates[index]) / most, one.colour(found_first.functions))
            first, before = before != found_first.profile, found_first.profile
            bars.append(Bar(one.label(name), figure(rates[index], figures.mega), (segment,), first))
        if bars:
            charts.append(BarChart(title, tuple(bars)))
    return charts


def _mpps(trial: Trial) -> float:
    return (trial.no_loss_pps or 0.0) / 1e6


def _gbps(trial: Trial) -> float:
    mean = trial.worse.mean_frame
    return (trial.no_loss_pps or 0.0) * (mean + LAYER_1_OVERHEAD) * 8 / 1e9 if mean else 0.0


def budgets(runs: Sequence[Marked]) -> BarChart | None:
    """The mean latency of each direction whose hops were traced, as a stack of the parts of its way; all to one scale.

    The parts of a stack add up to its length. None if no hops were traced.
    """
    found = [(one, way, way.hops) for one in trials(runs) for way in one.trial.directions if way.hops is not None]
    names = {one.number: figures.traced_names(one.stored.run) for one in runs}
    most = max((hops.average_us for _, _, hops in found), default=0.0)
    if not most:
        return None
    bars = []
    for one, way, hops in found:
        functions = [part.name for part in hops.parts if part.kind == "function"]
        segments = tuple(
            Segment(
                100 * hops.average_us * part.share / most,
                _colour(part, functions),
                f"{figures.plain(part.name)}: {figures.microseconds(part.latency_us.average)} µs, {part.share:.1%}",
                figures.plain(part.name) if part.kind == "function" else "",
            )
            for part in hops.parts
        )
        label = one.of.label(f"{names[one.of.number][one.trial.name]}, {figures.plain(way.name)}")
        bars.append(Bar(label, f"{figures.microseconds(hops.average_us)} µs", segments))
    return BarChart("Mean latency by element, µs", tuple(bars))


def _colour(part: HopPart, functions: Sequence[str]) -> int:
    """Grey for waiting in a ring, one colour for the switch, others for the functions."""
    if part.kind == "ring":
        return 0
    return 2 if part.kind == "switch" else (1, 3, 4, 5, 6, 7)[functions.index(part.name) % 6]


def heat_maps(runs: Sequence[Marked]) -> Iterator[HeatMap]:
    """Rate without loss, median and 99th percentile of every length of chain, or cell of a matrix, by profile.

    Each is the median of its rounds, with their spread; a latency that is near the tester's own floor is marked, and
    one of which a trial sent less than was offered. Only what has at least two rows and two columns is worth a map.
    """
    runs = [one for one in runs if not one.is_compared]
    for title, of, show, by_rate in (
        ("Rate without loss, Mpps", lambda trial: _mpps(trial) or None, figures.mega, False),
        ("Latency p50, µs", _latency("p50"), figures.microseconds, True),
        ("Latency p99, µs", _latency("p99"), figures.microseconds, True),
    ):
        made = _heat_map(runs, title, of, show, by_rate=by_rate)
        if len(made.rows) > 1 and len(made.columns) > 1:
            yield made


def _latency(field: str) -> Callable[[Trial], float | None]:
    return lambda trial: getattr(trial.worse.latency_us, field) if trial.worse.latency_us else None


def _heat_map(
    runs: Sequence[Marked],
    title: str,
    of: Callable[[Trial], float | None],
    show: Callable[[float], str],
    *,
    by_rate: bool,
) -> HeatMap:
    rounds: dict[tuple[int, int, str, str], list[tuple[float, Trial]]] = {}
    labels: dict[tuple[int, int, str], None] = {}
    columns: dict[str, None] = {}
    for profile, found in by_profile(runs):
        for one in found:
            value = of(one.trial)
            row = (one.trial.functions or 0, one.of.number, one.chain + (one.rate if by_rate else ""))
            # A floor that was measured for one chain at its rate is no row of its own.
            if value is None or ((*row, profile) in rounds and one.trial.round == 1):
                continue
            rounds.setdefault((*row, profile), []).append((value, one.trial))
            labels[row] = None
            columns[profile] = None
    values = {at: median(value for value, _ in each) for at, each in rounds.items()}
    warmth = by_logarithm(list(values.values()))

    def cell(at: tuple[int, int, str, str]) -> Cell | None:
        if at not in values:
            return None
        text = figure([value for value, _ in rounds[at]], show)
        if by_rate:
            trials = [trial for _, trial in rounds[at]]
            floors = [trial.floor_ratio for trial in trials if trial.floor_ratio is not None]
            text = figures.by_floor(text, median(floors) if floors else None)
            text = figures.by_sent(text, short=sent_of(trials).fell_short)
        return Cell(text, 100 * warmth(values[at]))

    rows = tuple(
        (
            row[2],
            tuple(cell((*row, profile)) for profile in columns),
        )
        for row in sorted(labels, key=lambda row: row[:2])
    )
    return HeatMap(title, tuple(figures.profile_name(profile) for profile in columns), rows)
