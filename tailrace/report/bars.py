"""Charts that need no script: bars of throughput, heat maps, and the budget of a way as a stack.

Everything here is lengths in percent and the number of a colour (0 to 7) for the style sheet, and text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tailrace.process.plain import plain
from tailrace.report import figures
from tailrace.report.marked import Marked, MarkedTrial, by_profile, trials
from tailrace.report.marks import by_bound, by_floor, by_sent
from tailrace.report.rounds import figure
from tailrace.report.warmth import warmth
from tailrace.results.findings import ThroughputFinding
from tailrace.results.model import HopPart, Trial, sent_of
from tailrace.results.no_loss import Bound
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
    """A field of a heat map: `warmth` from 0, the worst, to 1."""

    text: str
    warmth: float


@dataclass(frozen=True)
class HeatMap:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    ends: tuple[str, str]
    """The worst and the best figure."""


_FAR = 30
"""So many times the least value is where a bar of it could hardly be seen beside the greatest."""


@dataclass(frozen=True)
class _Scale:
    """How long bars are: from 0; or from a power of ten, by the logarithm."""

    begin: float
    """0, or where a logarithmic scale begins."""
    most: float

    @property
    def words(self) -> str:
        """What is to be said of it behind a title."""
        return f", logarithmic from {self.begin:g}" if self.begin else ""

    def __call__(self, value: float) -> float:
        """Per cent of the longest bar."""
        if not self.begin:
            return 100 * value / self.most
        return 100 * math.log(value / self.begin) / math.log(self.most / self.begin) if value else 0.0


def _scale(values: Sequence[float]) -> _Scale | None:
    """The scale for bars of these values; None if all are 0."""
    known = [value for value in values if value]
    if not known:
        return None
    least, most = min(known), max(known)
    return _Scale(10.0 ** (math.ceil(math.log10(least)) - 1) if most > _FAR * least else 0.0, most)


def throughput(runs: Sequence[Marked]) -> list[BarChart]:
    """The rates without loss by frame size and length of chain: in Mpps, and in Gbps at layer 1; none if none was
    looked for."""
    if any(isinstance(each, ThroughputFinding) for one in runs for each in one.stored.run.findings):
        return _found(runs)
    measured = [
        (profile, _by_length([one for one in found if one.no_loss_pps]))
        for profile, found in by_profile([one for one in runs if not one.is_compared])
    ]
    charts = []
    for title, of in (("Mpps", _mpps), ("Gbps at layer 1", _gbps)):
        scale = _scale([of(one) for _, found in measured for _, one in found])
        if scale is None:
            continue
        bars = [
            Bar(
                name,
                by_bound(figures.mega(of(one)), _limit(one)),
                (Segment(scale(of(one)), one.look[0] if one.look else one.of.colour(one.trial.functions)),),
                first=number == 0,
            )
            for _, found in measured
            for number, (name, one) in enumerate(found)
        ]
        charts.append(BarChart(title + scale.words, tuple(bars)))
    return charts


def _limit(one: MarkedTrial) -> Bound | None:
    return one.trial.searched.bound if one.trial.searched else None


def _by_length(found: Sequence[MarkedTrial]) -> list[tuple[str, MarkedTrial]]:
    """The trials, each with a name and the part of the rate that it was at; the shortest chain first."""
    found = sorted(found, key=lambda one: (one.trial.functions or 0, one.of.number))
    chains = [(one.of.number, one.chain) for one in found]
    return [
        (
            one.of.label(f"{figures.profile_name(one.trial.profile)}, {one.of.chains[one.trial.name]}")
            + (one.round if chains.count((one.of.number, one.chain)) > 1 else "")
            + (f" ({100 * one.trial.rate_fraction:.4g}%)" if one.trial.rate_fraction is not None else ""),
            one,
        )
        for one in found
    ]


def _found(runs: Sequence[Marked]) -> list[BarChart]:
    """The same from what searches found: the rate with the least loss of each, the median of all rounds."""
    rows: list[tuple[Marked, ThroughputFinding, Bound | None, tuple[list[float], list[float]]]] = []
    for one in runs:
        found = [each for each in one.stored.run.findings if isinstance(each, ThroughputFinding) and each.goals]
        for rounds in by_case(found):
            goals = [min(each.goals, key=lambda goal: goal.loss_ratio) for each in rounds]
            rates = ([goal.pps / 1e6 for goal in goals], [goal.gbps_l1 for goal in goals])
            rows.append((one, rounds[0], next((goal.bound for goal in goals if goal.bound), None), rates))
    rows.sort(key=lambda row: (figures.profile_place(row[1].profile), row[1].functions or 0, row[0].number))
    charts = []
    for index, title in enumerate(("Mpps", "Gbps at layer 1")):
        scale = _scale([median(rates[index]) for *_, rates in rows])
        if scale is None:
            continue
        bars, before = [], None
        for one, found_first, bound, rates in rows:
            name = f"{figures.profile_name(found_first.profile)}, {figures.chain_name(found_first.functions)}"
            segment = Segment(scale(median(rates[index])), one.colour(found_first.functions))
            first, before = before != found_first.profile, found_first.profile
            value = by_bound(figure(rates[index], figures.mega), bound)
            bars.append(Bar(one.label(name), value, (segment,), first))
        charts.append(BarChart(title + scale.words, tuple(bars)))
    return charts


def bounds(runs: Sequence[Marked]) -> Iterator[Bound | None]:
    """What limits of the tester's the rates of `throughput` and `heat_maps` are."""
    for one in runs:
        run = one.stored.run
        yield from (each.searched.bound for each in run.trials if each.searched and each.name in one.confirmed)
        yield from (goal.bound for each in run.findings if isinstance(each, ThroughputFinding) for goal in each.goals)


def _mpps(one: MarkedTrial) -> float:
    return (one.no_loss_pps or 0.0) / 1e6


def _gbps(one: MarkedTrial) -> float:
    mean = one.trial.worse.mean_frame
    return (one.no_loss_pps or 0.0) * (mean + LAYER_1_OVERHEAD) * 8 / 1e9 if mean else 0.0


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
                f"{plain(part.name)}: {figures.microseconds(part.latency_us.average)} µs, {part.share:.1%}",
                plain(part.name) if part.kind == "function" else "",
            )
            for part in hops.parts
        )
        label = one.of.label(f"{names[one.of.number][one.trial.name]}, {plain(way.name)}")
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
        ("Rate without loss, Mpps", lambda one: _mpps(one) or None, figures.mega, False),
        ("Latency p50, µs", _latency("p50"), figures.microseconds, True),
        ("Latency p99, µs", _latency("p99"), figures.microseconds, True),
    ):
        made = _heat_map(runs, title, of, show, by_rate=by_rate)
        if len(made.rows) > 1 and len(made.columns) > 1:
            yield made


def _latency(field: str) -> Callable[[MarkedTrial], float | None]:
    return lambda one: getattr(one.trial.worse.latency_us, field) if one.trial.worse.latency_us else None


def _heat_map(
    runs: Sequence[Marked],
    title: str,
    of: Callable[[MarkedTrial], float | None],
    show: Callable[[float], str],
    *,
    by_rate: bool,
) -> HeatMap:
    rounds: dict[tuple[int, int, str, str], list[tuple[float, Trial]]] = {}
    labels: dict[tuple[int, int, str], None] = {}
    columns: dict[str, None] = {}
    for profile, found in by_profile(runs):
        for one in found:
            value = of(one)
            row = (one.trial.functions or 0, one.of.number, one.chain + (one.rate if by_rate else ""))
            # A floor that was measured for one chain at its rate is no row of its own.
            if value is None or ((*row, profile) in rounds and one.trial.round == 1):
                continue
            rounds.setdefault((*row, profile), []).append((value, one.trial))
            labels[row] = None
            columns[profile] = None
    values = {at: median(value for value, _ in each) for at, each in rounds.items()}
    warm_of = warmth(list(values.values()), more_is_better=not by_rate)

    def cell(at: tuple[int, int, str, str]) -> Cell | None:
        if at not in values:
            return None
        text = figure([value for value, _ in rounds[at]], show)
        trials = [trial for _, trial in rounds[at]]
        if not by_rate:
            limits = (each.searched.bound for each in trials if each.searched)
            text = by_bound(text, next((bound for bound in limits if bound), None))
        else:
            floors = [trial.floor_ratio for trial in trials if trial.floor_ratio is not None]
            text = by_floor(text, median(floors) if floors else None)
            text = by_sent(text, short=sent_of(trials).fell_short)
        return Cell(text, warm_of(values[at]))

    rows = tuple(
        (
            row[2],
            tuple(cell((*row, profile)) for profile in columns),
        )
        for row in sorted(labels, key=lambda row: row[:2])
    )
    ends = (show(warm_of.worst), show(warm_of.best))
    return HeatMap(title, tuple(figures.profile_name(profile) for profile in columns), rows, ends)
