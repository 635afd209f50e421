"""Fitting a machine's parameters to a table, and how well it then predicts.

The fit lessens a sum over the cells' errors; each parameter is moved in turn, by steps that shrink. It is
deterministic, and so is the bootstrap (Efron, 1979).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tailrace.advise.machine import FACTS, LEAST, MOST, Calibrated, Machine, Span, Value
from tailrace.advise.model import SHORTEST, STACK, Cell, Limit, limits, needs
from tailrace.advise.table import Row

_STEP, _LEAST_STEP = 0.3, 0.001
_RESAMPLES, _SEED = 200, 1
_STARTS = (0.8, 1.25)
"""Beside the fitted values, where each fit of the bootstrap starts: one that starts at a minimum may stay there."""
_SQUARES, _FAR = 16, 0.1
_NOTHING = 1e-3
"""Of cells that are 0 within their rounding, what the logarithm is taken of."""


@dataclass(frozen=True)
class Checked:
    """A row beside its prediction."""

    row: Row
    bottleneck: Limit
    predicted: float
    """As the row has its figure: Mpps, or Gbit/s."""

    @property
    def error(self) -> float:
        return self.row.error(self.predicted)


def predict(machine: Machine, cell: Cell) -> Limit | None:
    """The lowest limit of a cell; None where the machine has no such interface."""
    return next(iter(limits(machine, cell)), None)


def check(machine: Machine, rows: Sequence[Row]) -> list[Checked]:
    """All rows that the model has an answer for."""
    found = []
    for row in rows:
        bottleneck = predict(machine, row.cell)
        if bottleneck is not None:
            found.append(Checked(row, bottleneck, row.predicted(bottleneck.mpps)))
    return found


def fit(machine: Machine, rows: Sequence[Row], source: str, *, resamples: int = _RESAMPLES) -> Machine:
    """The machine with the parameters that decide one of these rows fitted to them, from where they stand, and with
    the ends of their intervals."""
    names = _deciding(machine, rows)
    values = _fitted(machine, Counter(rows), names, {})
    chance = random.Random(_SEED)
    spread: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(resamples):
        start = {name: values[name] * chance.uniform(*_STARTS) for name in names}
        again = _fitted(machine, Counter(chance.choices(rows, k=len(rows))), names, start)
        for name in names:
            spread[name].append(again[name])
    parameters = dict(machine.parameters)
    for name in names:
        low, high = _middle_95(spread[name] or [values[name]])
        parameters[name] = Value(value=_short(values[name]), source=source, low=_short(low), high=_short(high))
    good_for = calibrated([row for row in rows if predict(machine, row.cell) is not None])
    known = machine.calibrated.model_copy(update=dict(good_for.model_dump(exclude_none=True)))
    return machine.model_copy(update={"calibrated": known, "parameters": parameters})


def _middle_95(found: Sequence[float]) -> tuple[float, float]:
    """Between which 95 % lie: as many are left out below as above."""
    ordered = sorted(found)
    out = int(0.025 * len(ordered))
    return ordered[out], ordered[-1 - out]


def calibrated(rows: Sequence[Row]) -> Calibrated:
    """What parameters are good for that were fitted to these rows."""
    stack = [row.cell for row in rows if row.cell.traffic == STACK]
    others = [row.cell for row in rows if row.cell.traffic != STACK]
    return Calibrated(
        frames=span_of([each.frame for each in others]),
        messages=span_of([each.frame for each in stack]),
        functions=span_of([each.functions for each in others]),
        stacks=span_of([each.functions for each in stack]),
    )


def span_of(found: Sequence[int]) -> Span | None:
    """The least and the most; None of none."""
    return (min(found), max(found)) if found else None


def beyond(machine: Machine, cell: Cell) -> list[str]:
    """What of a cell lies outside of what the machine's parameters were fitted to."""
    stack = cell.traffic == STACK
    return machine.calibrated.beyond(cell.frame, cell.functions, messages=stack)


def _short(value: float) -> float:
    return float(f"{min(max(value, LEAST), MOST):.4g}")


def _deciding(machine: Machine, rows: Sequence[Row]) -> list[str]:
    """The parameters that some row's prediction depends on, now or when they are moved by half."""
    found = []
    for name in machine.parameters:
        if name in FACTS:
            continue
        for factor in (0.5, 2.0):
            moved = machine.having({name: machine[name] * factor})
            if any(_mpps(moved, row) != _mpps(machine, row) for row in rows):
                found.append(name)
                break
    return found


def _mpps(machine: Machine, row: Row) -> float | None:
    bottleneck = predict(machine, row.cell)
    return None if bottleneck is None else bottleneck.mpps


def _fitted(
    machine: Machine, rows: Mapping[Row, int], names: Sequence[str], start: Mapping[str, float]
) -> dict[str, float]:
    """The values of these parameters that fit the rows best, each of which counts so many times."""
    at, weighted = machine.having(start), list(rows.items())
    using = {name: [number for number, (row, _) in enumerate(weighted) if name in needs(row.cell)] for name in names}
    bad = [times * _missed(at, row) for row, times in weighted]
    step = _STEP
    while step > _LEAST_STEP:
        moved = False
        for name in names:
            for factor in (1 + step, 1 / (1 + step)):
                tried = at.having({name: at[name] * factor})
                of = {number: weighted[number][1] * _missed(tried, weighted[number][0]) for number in using[name]}
                if sum(of.values()) < sum(bad[number] for number in of) - 1e-12:
                    at, moved = tried, True
                    for number, each in of.items():
                        bad[number] = each
        if not moved:
            step /= 2
    return {name: at[name] for name in names}


def badness(machine: Machine, rows: Sequence[Row]) -> float:
    """The sum of what predictions miss."""
    return sum(_missed(machine, row) for row in rows)


def _missed(machine: Machine, row: Row) -> float:
    """What a prediction misses, as a logarithm, and its square, by which a bad one counts more than two half as bad.
    Beyond _FAR it grows as a line does (Huber, 1964): cells of one digit would rule the rest."""
    bottleneck = predict(machine, row.cell)
    if bottleneck is None:
        return 0.0
    predicted = row.predicted(bottleneck.mpps)
    if row.error(predicted) == 0:
        return 0.0
    off = abs(math.log(max(predicted, _NOTHING) / max(row.measured, _NOTHING)))
    near = min(off, _FAR)
    return off + _SQUARES * near * (2 * off - near)


def interpolated(row: Row, known: Sequence[Row]) -> float | None:
    """What is read off the known cells of the same traffic and interface, as the row has its figure: along the frame's
    size and the number of functions, linear in their logarithms. None where they do not surround it. It is the line
    that a model must beat."""
    same = [
        each
        for each in known
        if each is not row and (each.cell.traffic, each.cell.interface) == (row.cell.traffic, row.cell.interface)
        and each.cell != row.cell
    ]  # fmt: skip
    found = []
    along_frame = {each.cell.frame: each for each in same if each.cell.functions == row.cell.functions}
    along_count = {each.cell.functions: each for each in same if each.cell.frame == row.cell.frame}
    for points, at in ((along_frame, row.cell.frame), (along_count, row.cell.functions)):
        value = _between({size: each.in_mpps(max(each.measured, _NOTHING)) for size, each in points.items()}, at)
        if value is not None:
            found.append(value)
    return row.predicted(math.exp(sum(map(math.log, found)) / len(found))) if found else None


def _between(points: Mapping[int, float], at: int) -> float | None:
    """Between the nearest below and above; beyond the ends along the line of the two nearest."""
    if len(points) < 2:
        return None
    below = [size for size in points if size < at]
    above = [size for size in points if size > at]
    if below and above:
        one, other = max(below), min(above)
    else:
        one, other = sorted(points, key=lambda size: abs(size - at))[:2]
    part = math.log(at / one) / math.log(other / one)
    return math.exp(math.log(points[one]) * (1 - part) + math.log(points[other]) * part)


def interpolation_errors(rows: Sequence[Row], known: Sequence[Row]) -> list[float]:
    """Of each row that the known cells say something of; a row that is itself among them is left out for it."""
    values = ((row, interpolated(row, known)) for row in rows)
    return [row.error(value) for row, value in values if value is not None]


def choices(checked: Sequence[Checked], gap: float) -> list[tuple[str, str]]:
    """The best interface as measured and as predicted, of all traffic, sizes and numbers of functions for which the
    best was measured to carry more than the second by that part."""
    found: list[tuple[str, str]] = []
    questions = {(each.row.cell.traffic, each.row.cell.frame, each.row.cell.functions): None for each in checked}
    for question in questions:
        same = [
            each
            for each in checked
            if (each.row.cell.traffic, each.row.cell.frame, each.row.cell.functions) == question
        ]
        best = max(same, key=_measured)
        others = [each for each in same if each.row.cell.interface != best.row.cell.interface]
        if others and _measured(best) > max(map(_measured, others)) * (1 + gap):
            chosen = max(same, key=lambda each: each.bottleneck.mpps)
            found.append((best.row.cell.interface, chosen.row.cell.interface))
    return found


def _measured(checked: Checked) -> float:
    return checked.row.in_mpps(checked.row.measured)


def percentile(errors: Sequence[float], part: float) -> float:
    """Nearest rank (RFC 2330, section 11.3); 0 of none."""
    ordered = sorted(errors)
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)] if ordered else 0.0


def shown(value: float) -> float:
    """A prediction, to the digits that it may have, however small."""
    return float(f"{value:.5g}")


def middle(errors: Sequence[float]) -> float:
    """The median; 0 of none."""
    return median(errors) if errors else 0.0


def worker_machine(
    name: str,
    points: Sequence[tuple[int, float]],
    source: str,
    functions: Sequence[tuple[int, float]] = (),
    at_most: Sequence[tuple[int, float]] = (),
) -> Machine:
    """A machine with Tailrace's switch, of sizes of frames with the ns that a hop took, two sizes or more; those that
    functions took, of sizes at which they were the limit; and those that they took `at_most`, of sizes at which the
    switch was. `source` says where these come from; the sizes are added."""
    parameters = _values("worker", _line(points), f"{source}, {_sizes(points)}")
    if functions:
        fixed, slope = _below(_line(functions), at_most)
        source_of = f"{source}, {_sizes(functions)}"
        if at_most:
            source_of += f"; no more than at {_sizes(at_most)}, where the switch was the limit"
        of = _values("function", (fixed, slope), source_of)
        if len({size for size, _ in functions}) == 1:
            taken = f"not measured: functions were the limit at one size; taken as next to nothing ({source_of})"
            of["function_byte_ns"] = of["function_byte_ns"].model_copy(update={"source": taken})
        parameters |= of
    return Machine(
        name=name, calibrated=Calibrated(frames=span_of([size for size, _ in points])), parameters=parameters
    )


def _values(what: str, line: tuple[float, float], source: str) -> dict[str, Value]:
    return {
        name: Value(value=_short(value), source=source)
        for name, value in zip((f"{what}_ns", f"{what}_byte_ns"), line, strict=True)
    }


def _sizes(points: Sequence[tuple[int, float]]) -> str:
    return f"frames of {', '.join(map(str, sorted({size for size, _ in points})))} B"


def _below(line: tuple[float, float], at_most: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The line, where it is above a bound pressed below it: by bytes first."""
    fixed, slope = line
    for size, time in at_most:
        fixed = min(fixed, time)
        if size > SHORTEST:
            slope = max(min(slope, (time - fixed) / (size - SHORTEST)), _LEAST_SLOPE)
    return fixed, slope


_LEAST_SLOPE = 1e-6


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """What takes so many ns for frames of these sizes: for the shortest, and for each byte above it. The line through
    them is that of least squares; of one size, bytes take nothing."""
    sizes, times = [size - SHORTEST for size, _ in points], [time for _, time in points]
    centre, mean = sum(sizes) / len(sizes), sum(times) / len(times)
    spread = sum((size - centre) ** 2 for size in sizes)
    slope = sum((size - centre) * (time - mean) for size, time in zip(sizes, times, strict=True)) / (spread or 1.0)
    slope = max(slope, _LEAST_SLOPE)  # noise can make a long frame the cheaper one
    return max(mean - slope * centre, 1e-3), slope
