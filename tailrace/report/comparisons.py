"""What comparisons found, as tables: fabrics beside each other, quiet beside noisy, and the matrix with its heat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tailrace.process.plain import plain
from tailrace.report.figures import MISSING, chain_name, mega, microseconds, no_loss_words, percent, profile_name
from tailrace.report.marks import bound_remark, by_bound, by_floor, by_sent, short_remark
from tailrace.report.rounds import figure, interval_words, pooled_remark, remark, spread_words
from tailrace.report.section import Section
from tailrace.report.warmth import warmth
from tailrace.results.comparison import NEIGHBOUR_FIGURE, NO_LOSS_FIGURE, ComparedRatio, ComparisonFinding, MatrixCell
from tailrace.results.no_loss import Bound
from tailrace.results.pooled import pool
from tailrace.results.record import Measurement, Sent
from tailrace.results.spread import by_case
from tailrace.results.table_findings import figures

_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    (NO_LOSS_FIGURE, "no-loss Mpps (short trials)", mega),
    ("p50_us", "p50 µs", microseconds),
    ("p90_us", "p90 µs", microseconds),
    ("p99_us", "p99 µs", microseconds),
    ("p99.9_us", "p99.9 µs", microseconds),
    ("max_us", "max µs", microseconds),
    (NEIGHBOUR_FIGURE, "neighbour's Mpps", mega),
)
_HOW = (
    "Figures are medians over pairs, with the lowest and the highest in brackets. The last column is the ratio to "
    "the baseline: the median of the pairs' ratios, in brackets its {interval}. {pair} An interval that contains 1 "
    "shows no difference; few pairs make a wide one."
)


def _times(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio < 1000 else f"{ratio:,.0f}"


def ratio_words(ratio: ComparedRatio) -> str:
    """× 2.41 [2.30–2.58]"""
    if ratio.low is None or ratio.high is None:
        return f"× {_times(ratio.median)}"
    return f"× {_times(ratio.median)} [{_times(ratio.low)}–{_times(ratio.high)}]"


def comparisons(found: Sequence[Measurement]) -> Iterator[Section]:
    """A table for each kind of traffic that was compared; where it was in several rounds, one of all before theirs."""
    for rounds in by_case(each for each in found if isinstance(each, ComparisonFinding)):
        if len(rounds) > 1:
            yield _pooled(rounds)
        for finding in rounds:
            yield _comparison(finding)


def _pooled(rounds: Sequence[ComparisonFinding]) -> Section:
    """What the rounds say together: the spread over them of what each says by itself."""
    first = rounds[0]
    known = pool([list(figures(each)) for each in rounds])
    sides = dict.fromkeys(side for each in rounds for side in each.sides)
    rows = []
    for name, title, show in _FIGURES:
        for side in sides:
            if (median := known.get((None, f"{side} {name}"))) is not None:
                text = spread_words(median, show)
                if name == "p50_us":
                    floor = known.get((None, f"{side} floor_ratio"))
                    text = by_floor(text, floor.median if floor else None)
                ratio = known.get((None, f"{side}/{first.baseline} {name}"))
                times = f"× {spread_words(ratio, _times)}" if ratio else MISSING
                rows.append(
                    (
                        title,
                        plain(side),
                        by_sent(text, short=_sent(rounds, side).marks(name)),
                        by_sent(times, short=_sent(rounds, side, first.baseline).marks(name)) if ratio else times,
                    )
                )
    rates = figure([each.offered_pps / 1e6 for each in rounds], mega)
    noise = first.method == "noise"
    return Section(
        f"{_what(first)}, {profile_name(first.profile)}, {chain_name(first.functions)} at {rates} Mpps each way, "
        f"all {len(rounds)} rounds together",
        ("figure", "neighbour" if noise else "fabric", "median", f"× {plain(first.baseline)}"),
        tuple(rows),
        (pooled_remark(len(rounds)), *_short_remarks(rounds)),
        naming=2,
    )


def _what(finding: ComparisonFinding) -> str:
    return "Noisy neighbours" if finding.method == "noise" else "Fabrics"


def _offered(finding: ComparisonFinding) -> Iterator[str]:
    """Of which no-loss rate what was offered is a part."""
    if finding.searched and finding.rate_fraction is not None:
        side = min(finding.searched, key=lambda side: finding.searched[side].pps)
        lowest, whose = ("", "this") if len(finding.searched) == 1 else ("lowest ", "each side's own")
        yield (
            f"Offered: {100 * finding.rate_fraction:.4g}% of the {lowest}no-loss rate, "
            f"{no_loss_words(finding.searched[side])} ({plain(side)}). Before the pairs, a full-length trial "
            f"was made at that part of {whose} rate."
        )
    if any(finding.values(side, NEIGHBOUR_FIGURE) for side in finding.sides):
        yield "Neighbour's Mpps: what its own function forwarded in the trial, each way, in the worse direction."
    if any(finding.values(side, NO_LOSS_FIGURE) for side in finding.sides):
        yield "No-loss rates of pairs are those of short trials; no full-length trial confirmed them."


def _bounds(finding: ComparisonFinding) -> Iterator[Bound | None]:
    """The limits of the tester's among the figures that are shown of a comparison."""
    yield from (rate.bound for rate in finding.searched.values())
    yield from (finding.bound(side, NO_LOSS_FIGURE) for side in finding.sides)
    yield from (ratio.bound for ratio in finding.ratios)


def _short_remarks(rounds: Sequence[ComparisonFinding]) -> Iterator[str]:
    """What the mark of figures of a lower rate means, where there are any."""
    sides = dict.fromkeys(side for each in rounds for side in each.sides)
    if (said := short_remark({plain(side): _sent(rounds, side) for side in sides})) is not None:
        yield said


def _sent(rounds: Sequence[ComparisonFinding], *sides: str) -> Sent:
    """What was sent to the sides, in the pairs of all rounds that have all of them."""
    return sum((each.sent(*sides) for each in rounds), Sent(()))


def _comparison(finding: ComparisonFinding) -> Section:
    noise = finding.method == "noise"
    rows = [
        (title, plain(side), _marked(finding, side, name, figure(values, show)), _by(finding, side, name))
        for name, title, show in _FIGURES
        for side in finding.sides
        if (values := finding.values(side, name))
    ]
    rows += [
        ("most lost", plain(side), by_sent(percent(max(values)), short=finding.sent(side).fell_short), MISSING)
        for side in finding.sides
        if (values := finding.values(side, "loss_ratio"))
    ]
    remarks = [*_offered(finding), *filter(None, [bound_remark(_bounds(finding))]), *_short_remarks([finding])]
    remarks += [f"{plain(side)} was left out: {plain(reason)}" for side, reason in finding.left_out.items()]
    whole = sum(len(pair.sides) == (2 if noise else len(finding.sides)) for pair in finding.pairs)
    if not noise and whole < len(finding.pairs):
        remarks.append(f"The last of {len(finding.pairs)} pairs is incomplete: the run was cut short.")
    return Section(
        f"{_what(finding)}, {profile_name(finding.profile)}, {chain_name(finding.functions)} at "
        f"{mega(finding.offered_pps / 1e6)} Mpps each way, {_count_pairs(finding)}",
        ("figure", "neighbour" if noise else "fabric", "median", f"× {plain(finding.baseline)}"),
        tuple(rows),
        (_HOW.format(interval=interval_words(finding.ratios), pair=_pair(finding)), *remarks),
        naming=2,
    )


def _pair(finding: ComparisonFinding) -> str:
    """What a pair is, and how it was ordered."""
    if finding.method == "noise":
        return "A pair is a quiet trial and, right after it, a noisy one."
    begun = {next(iter(pair.sides), None) for pair in finding.pairs}
    turns = "each pair begins with the next fabric, so each is first and last equally often"
    order = turns if len(begun) > 1 or len(finding.pairs) < 2 else "always in this order"
    return f"A pair is every fabric once, one after the other; {order}."


def _marked(finding: ComparisonFinding, side: str, name: str, text: str) -> str:
    text = by_floor(text, finding.floor_ratio(side)) if name == "p50_us" else text
    text = by_bound(text, finding.bound(side, name))
    return by_sent(text, short=finding.sent(side).marks(name))


def _by(finding: ComparisonFinding, side: str, name: str) -> str:
    ratio = finding.ratio(side, name)
    if ratio is None:
        return MISSING
    text = by_bound(ratio_words(ratio), ratio.bound)
    return by_sent(text, short=finding.sent(side, finding.baseline).marks(name))


def _count_pairs(finding: ComparisonFinding) -> str:
    """5 pairs; of noise, those of each neighbour."""
    most = max((sum(side in pair.sides for pair in finding.pairs) for side in finding.sides[1:]), default=0)
    again = f", round {finding.round}" if finding.round > 1 else ""
    return f"{most} pair{'' if most == 1 else 's'}{again}"


# --- the matrix ------------------------------------------------------------------------------------------------------

LOST = "!"
"""Stands after a figure of a trial that lost frames."""
NONE = "none"
"""Stands where no trial confirmed a no-loss rate."""
_NO_LOSS = "no_loss_pps"
_MAPS: tuple[tuple[str, str, Callable[[float], str], float], ...] = (
    (_NO_LOSS, "no-loss Mpps each way", mega, 1e6),
    ("p99_us", "p99 µs", microseconds, 1.0),
)
_MORE_IS_BETTER = frozenset({"no_loss_pps"})


def cells_table(found: Sequence[Measurement]) -> Iterator[Section]:
    """All cells of a matrix that were measured, one below the other."""
    cells = [each for each in found if isinstance(each, MatrixCell)]
    rows = [
        (
            plain(cell.fabric),
            plain(cell.interface),
            plain(cell.pattern),
            profile_name(cell.profile),
            _of_cell(cell, "loss_ratio", percent),
            *(_of_cell(cell, name, microseconds) for name in ("p50_us", "p99_us", "max_us")),
            str(len(cell.rounds)),
        )
        for cell in cells
        if cell.trial is not None
    ]
    if rows:
        searched = any(cell.no_loss_pps is not None or cell.not_confirmed for cell in cells)
        where = "the map above, and in " if searched else ""
        yield Section(
            "Matrix, all cells",
            ("fabric", "ports", "pattern", "frames", "lost", "p50 µs", "p99 µs", "max µs", "rounds"),
            tuple(rows),
            (
                f"Latency and loss are those of the worse direction; rates are in {where}results.json.",
                *remark(max(len(cell.rounds) for cell in cells)),
                *_short_cells(cells),
            ),
            naming=4,
        )


def heats(found: Sequence[Measurement]) -> Iterator[Section]:
    """A map for each kind of traffic and figure of a matrix: fabrics and interfaces down, patterns across."""
    cells = [each for each in found if isinstance(each, MatrixCell)]
    maps = [
        _heat(same, name, f"Matrix, {profile_name(profile)}: {words}", show, unit)
        for profile in dict.fromkeys(cell.profile for cell in cells)
        if (same := [cell for cell in cells if cell.profile == profile])
        for name, words, show, unit in _MAPS
        if any(getattr(cell, name) is not None or (name == _NO_LOSS and cell.not_confirmed) for cell in same)
    ]
    yield from maps[:-1]
    for last in maps[-1:]:
        # What holds of all maps is said once.
        yield replace(last, remarks=(*_reasons(cells), *last.remarks))


def _heat(cells: Sequence[MatrixCell], name: str, heading: str, show: Callable[[float], str], unit: float) -> Section:
    """One map, of cells with the same kind of traffic."""
    order = sorted({(cell.ends != "north/south", cell.functions or 0, cell.pattern) for cell in cells})
    columns = [pattern for *_, pattern in order]
    at = {(cell.fabric, cell.interface, cell.pattern): cell for cell in cells}
    values = [value for cell in cells if (value := getattr(cell, name)) is not None]
    warm_of = warmth(values, more_is_better=name in _MORE_IS_BETTER)
    rows, shades = [], []
    measured = [cell for cell in cells if cell.not_here is None]
    for fabric, interface in dict.fromkeys((cell.fabric, cell.interface) for cell in (*measured, *cells)):
        row: list[str] = [f"{fabric}, {interface}"]
        warm: list[float | None] = [None]
        for column in columns:
            cell = at.get((fabric, interface, column))
            value = getattr(cell, name) if cell else None
            row.append(_cell_words(cell, name, show, unit))
            warm.append(None if value is None else warm_of(value))
        rows.append(tuple(row))
        shades.append(tuple(warm))
    marked = [cell for cell in cells if cell.sent.marks(name)]
    about = _no_loss_remarks(cells) if name == _NO_LOSS else _lost_remark(cells)
    remarks = (*about, *_short_cells(marked))
    ends = (show(warm_of.worst / unit), show(warm_of.best / unit))
    return Section(heading, ("fabric, ports", *columns), tuple(rows), remarks, heat=tuple(shades), ends=ends)


def _reasons(cells: Sequence[MatrixCell]) -> Iterator[str]:
    """Why cells have no figures, each reason once, with the cells."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for cell in cells:
        if cell.not_here is not None or cell.reason is not None:
            why = ("Not here", cell.not_here) if cell.not_here is not None else ("Failed", cell.reason or "")
            found.setdefault(why, {}).setdefault(f"{cell.fabric}, {cell.interface}", []).append(cell.pattern)
    for (what, reason), places in found.items():
        said = "; ".join(f"{place}: {', '.join(dict.fromkeys(patterns))}" for place, patterns in places.items())
        yield plain(f"{what}, {reason} ({said}).")


def _no_loss_remarks(cells: Sequence[MatrixCell]) -> Iterator[str]:
    """What a no-loss rate rests on, and what its marks mean."""
    yield (
        "Short trials found the rate; a full-length trial of the cell, at a part of it, lost nothing and confirmed it."
    )
    if any(cell.not_confirmed for cell in cells):
        yield (
            f"{NONE}: no full-length trial confirmed the rate of the short trials, nor the lower rates tried after it; "
            "the cell's latency is that of the last trial."
        )
    if any(_partly_confirmed(cell) for cell in cells):
        yield f"{LOST}: so many of the rounds confirmed a rate; the figure is of these."
    if (said := bound_remark(cell.bound for cell in cells)) is not None:
        yield said


def _partly_confirmed(cell: MatrixCell) -> bool:
    """Whether a no-loss rate was confirmed in some rounds and in others not."""
    return cell.no_loss_pps is not None and any(each.searched and each.no_loss_pps is None for each in cell.rounds)


def _lost_remark(cells: Sequence[MatrixCell]) -> Iterator[str]:
    """What the mark of cells that lost frames means, where there are any."""
    if any(_lost(cell) for cell in cells):
        yield f"{LOST}: frames were lost in the measured trial; the latency is that of the frames received."


def _short_cells(cells: Sequence[MatrixCell]) -> Iterator[str]:
    """What the mark of figures of a lower rate means, where there are any."""
    said = short_remark({plain(f"{cell.place}, {profile_name(cell.profile)}"): cell.sent for cell in cells})
    if said is not None:
        yield said


def _lost(cell: MatrixCell) -> bool:
    """Whether any round lost frames."""
    found = cell.spread_of("loss_ratio")
    return found is not None and found.high > 0


def _cell_words(cell: MatrixCell | None, name: str, show: Callable[[float], str], unit: float) -> str:
    """A figure with its spread; a latency marked where the cell is near the tester's own floor."""
    if cell is None:
        return ""
    found = cell.spread_of(name)
    if found is None:
        if name == _NO_LOSS and cell.not_confirmed:
            return NONE
        return "not here" if cell.not_here else "failed" if cell.reason else MISSING
    text = spread_words(found, lambda value: show(value / unit))
    if name == _NO_LOSS and _partly_confirmed(cell):
        text += f" {found.count} of {len(cell.rounds)} {LOST}"
    elif name != _NO_LOSS and _lost(cell):
        text += f" {LOST}"
    text = by_bound(text, cell.bound if name == _NO_LOSS else None)
    text = by_floor(text, cell.floor_ratio) if name.endswith("_us") else text
    return by_sent(text, short=cell.sent.marks(name))


def _of_cell(cell: MatrixCell, name: str, show: Callable[[float], str]) -> str:
    """A figure of the table of all cells; the median marked where the cell is near the tester's own floor."""
    text = spread_words(cell.spread_of(name), show)
    text = by_floor(text, cell.floor_ratio) if name == "p50_us" else text
    return by_sent(text, short=cell.sent.marks(name))
