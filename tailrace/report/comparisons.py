"""What comparisons found, as tables: fabrics beside each other, quiet beside noisy, and the matrix with its heat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from tailrace.report.figures import MISSING, chain_name, mega, microseconds, plain, profile_name
from tailrace.report.section import Section
from tailrace.results.comparison import ComparedPair, ComparedRatio, ComparisonFinding, MatrixCell
from tailrace.results.record import Measurement
from tailrace.results.share import ShareFinding

COMPARING = (ComparisonFinding, MatrixCell, ShareFinding)
"""Findings that say of their trials what there is to say."""
_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("no_loss_mpps", "no-loss Mpps", mega),
    ("p50_us", "p50 µs", microseconds),
    ("p99_us", "p99 µs", microseconds),
    ("p99.9_us", "p99.9 µs", microseconds),
    ("max_us", "max µs", microseconds),
)
_HOW = (
    "Figures are medians over pairs; beside each, how many times the baseline's it is: the median of the pairs' ratios "
    "with its 95 % bootstrap interval. A pair is two sides measured one right after the other; an interval around 1 "
    "shows no difference, and few pairs make a wide one."
)


def ratio_words(ratio: ComparedRatio | None) -> str:
    """× 2.41 [2.30–2.58]"""
    if ratio is None:
        return MISSING
    if ratio.low is None or ratio.high is None:
        return f"× {ratio.median:.3g}"
    return f"× {ratio.median:.3g} [{ratio.low:.3g}–{ratio.high:.3g}]"


def comparisons(found: Sequence[Measurement]) -> Iterator[Section]:
    """A table for each kind of traffic that was compared."""
    for finding in found:
        if isinstance(finding, ComparisonFinding):
            yield _comparison(finding)


def _comparison(finding: ComparisonFinding) -> Section:
    noise = finding.method == "noise"
    figures = [
        each for each in _FIGURES if any(each[0] in side for pair in finding.pairs for side in pair.sides.values())
    ]
    rows = []
    for side in finding.sides:
        row = [plain(side)]
        for name, _, show in figures:
            values = _values(finding.pairs, side, name)
            row.append(show(median(values)) if values else MISSING)
            row.append(MISSING if side == finding.baseline else ratio_words(finding.ratio(side, name)))
        most_lost = max(_values(finding.pairs, side, "loss_ratio"), default=0.0)
        row.append(f"{most_lost * 100:.3g} %" if most_lost else "0")
        rows.append(tuple(row))
    what = "Noisy neighbours" if noise else "Fabrics"
    titles = [part for _, title, _ in figures for part in (title, f"× {plain(finding.baseline)}")]
    remarks = [f"{plain(side)} was left out: {plain(reason)}" for side, reason in finding.left_out.items()]
    whole = sum(len(pair.sides) == (2 if noise else len(finding.sides)) for pair in finding.pairs)
    if not noise and whole < len(finding.pairs):
        remarks.append(f"The last of {len(finding.pairs)} pairs is not whole: it was cut short.")
    return Section(
        f"{what}, {profile_name(finding.profile)}, {chain_name(finding.functions)} "
        f"at {mega(finding.offered_pps / 1e6)} Mpps each way, {len(finding.pairs)} pairs",
        ("neighbour" if noise else "fabric", *titles, "most lost"),
        tuple(rows),
        (_HOW, *remarks),
    )


def _values(pairs: Sequence[ComparedPair], side: str, name: str) -> list[float]:
    return [pair.sides[side][name] for pair in pairs if name in pair.sides.get(side, {})]


# --- the matrix ------------------------------------------------------------------------------------------------------

_MAPS: tuple[tuple[str, str, Callable[[float], str], float], ...] = (
    ("no_loss_pps", "no-loss Mpps each way", mega, 1e6),
    ("p99_us", "p99 µs", microseconds, 1.0),
)


def heats(found: Sequence[Measurement]) -> Iterator[Section]:
    """A map for each kind of traffic and figure of a matrix: fabrics and interfaces down, patterns across."""
    cells = [each for each in found if isinstance(each, MatrixCell)]
    for profile in dict.fromkeys(cell.profile for cell in cells):
        same = [cell for cell in cells if cell.profile == profile]
        for name, words, show, unit in _MAPS:
            if any(getattr(cell, name) is not None for cell in same):
                yield _heat(same, name, f"Matrix, {profile_name(profile)}: {words}", show, unit)


def _heat(cells: Sequence[MatrixCell], name: str, heading: str, show: Callable[[float], str], unit: float) -> Section:
    order = sorted({(cell.ends != "north/south", cell.functions, cell.pattern) for cell in cells})
    columns = [pattern for *_, pattern in order]
    at = {(cell.fabric, cell.interface, cell.pattern): cell for cell in cells}
    values = [value for cell in cells if (value := getattr(cell, name)) is not None]
    low, high = min(values), max(values)
    rows, shades, remarks = [], [], dict[str, None]()
    for fabric, interface in dict.fromkeys((cell.fabric, cell.interface) for cell in cells):
        row: list[str] = [f"{fabric}, {interface}"]
        warm: list[float | None] = [None]
        for column in columns:
            cell = at.get((fabric, interface, column))
            value = getattr(cell, name) if cell else None
            row.append(_cell_words(cell, value, show, unit))
            warm.append(None if value is None else (value - low) / (high - low) if high > low else 0.5)
            if cell is not None and (cell.not_here or cell.reason):
                kind = "not here" if cell.not_here else "failed"
                remarks[
                    f"{plain(fabric)}, {interface}, {column}: {kind}: {plain(cell.not_here or cell.reason or '')}"
                ] = None
        rows.append(tuple(row))
        shades.append(tuple(warm))
    return Section(heading, ("fabric, ports", *columns), tuple(rows), tuple(remarks), heat=tuple(shades))


def _cell_words(cell: MatrixCell | None, value: float | None, show: Callable[[float], str], unit: float) -> str:
    if cell is None:
        return ""
    if value is None:
        return "not here" if cell.not_here else "failed" if cell.reason else MISSING
    lost = " !" if cell.loss_ratio else ""
    return show(value / unit) + lost
