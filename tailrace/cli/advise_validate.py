"""`tailrace advise validate`: a table of measured rates beside what a machine's parameters predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tailrace.advise.calibrate import beyond, check, choices, fit, interpolation_errors, middle, percentile, shown
from tailrace.advise.leave_out import leave_out
from tailrace.advise.machine import PARAMETERS, Machine, read_machine
from tailrace.advise.model import lacking
from tailrace.advise.table import Row, read_table
from tailrace.cli.output import note, print_json, print_line
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import Mistake

_GAP = 0.05
"""By which part an interface must have carried more for its choice to be counted."""


def unique(found: Iterable[list[str]]) -> list[str]:
    """All words, each once."""
    return list(dict.fromkeys(word for words in found for word in words))


def say_beyond(found: list[str]) -> None:
    """What of a question lies outside of what the parameters were fitted to."""
    if found:
        print_line(f"Extrapolated: {'; '.join(found)}.")


def validate_table(table: Path, calibrating: Path | None, of: Path | None, *, as_json: bool) -> int:
    """Prints each cell beside its prediction, and the errors. Returns 0. Raises Mistake."""
    rows, machine = read_table(table), read_machine(of)
    known = rows
    if calibrating is not None:
        known = read_table(calibrating)
        if not as_json:
            note(f"fits to {calibrating.name}, and 200 times more for the intervals: half a minute for 66 cells")
        machine = fit(machine, known, f"fitted to {calibrating.name}")
    checked = check(machine, rows)
    errors, baseline = [each.error for each in checked], interpolation_errors(rows, known)
    chosen = choices(checked, _GAP)
    document = {
        "machine": machine.name,
        "rows": [
            {
                "traffic": each.row.cell.traffic,
                "interface": each.row.cell.interface,
                "frame_bytes": each.row.cell.frame,
                "functions": each.row.cell.functions,
                "measured_mpps": each.row.mpps,
                "measured_gbps": each.row.gbps,
                "predicted_mpps": shown(each.bottleneck.mpps),
                "bottleneck": each.bottleneck.name,
                "error": round(each.error, 5),
                "extrapolated": bool(beyond(machine, each.row.cell)),
            }
            for each in checked
        ],
        "beyond": unique(beyond(machine, each.row.cell) for each in checked),
        "left_out": len(rows) - len(checked),
        "why_left_out": [{"rows": count, "why": why} for why, count in _why_left_out(machine, rows).items()],
        "median_error": _rounded(middle, errors),
        "p95_error": _rounded(_p95, errors),
        "interpolation_median_error": _rounded(middle, baseline),
        "interpolation_p95_error": _rounded(_p95, baseline),
        "choices": len(chosen),
        "right_choices": sum(measured == predicted for measured, predicted in chosen),
        "parameters": {
            name: {**value.model_dump(), "unit": PARAMETERS[name].unit, "meaning": PARAMETERS[name].meaning}
            for name, value in machine.parameters.items()
        },
    }
    if as_json:
        print_json(document)
        return 0
    _show_validation(document)
    return 0


def _why_left_out(machine: Machine, rows: Sequence[Row]) -> dict[str, int]:
    """Why rows have no prediction, and how many."""
    found: Counter[str] = Counter()
    for row in rows:
        lacks = lacking(machine, row.cell)
        if lacks is None:
            found[f"the model has nothing for {row.cell.traffic} by {row.cell.interface}"] += 1
        elif lacks:
            found[f"{row.cell.traffic} by {row.cell.interface}: the machine lacks {', '.join(lacks)}"] += 1
    return dict(found)


def _say_left_out(why: Sequence[Mapping[str, Any]]) -> None:
    for each in why:
        print_line(f"Left out: {each['rows']} row{'' if each['rows'] == 1 else 's'}. {_capital(each['why'])}.")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _show_validation(document: dict[str, Any]) -> None:
    table = PlainTable("traffic", "interface", "bytes", "functions", "measured", "predicted", "error", "bottleneck")
    for row in document["rows"]:
        stack = row["measured_mpps"] is None
        measured = f"{row['measured_gbps']} Gbit/s" if stack else f"{row['measured_mpps']} Mpps"
        predicted = row["predicted_mpps"] * (8 * row["frame_bytes"] / 1e3 if stack else 1)
        table.add_row(
            row["traffic"], row["interface"], str(row["frame_bytes"]), str(row["functions"]), measured,
            f"{predicted:.3g}", f"{100 * row['error']:.1f} %", row["bottleneck"],
        )  # fmt: skip
    print_table(table)
    if not document["rows"]:
        print_line("Nothing of this table can be predicted.")
        _say_left_out(document["why_left_out"])
        return
    half, p95 = document["interpolation_median_error"], document["interpolation_p95_error"]
    baseline = f"{100 * half:.1f} % and {100 * p95:.1f} %" if half is not None else "unknown, the cells are too few"
    print_line(
        f"Error: median {100 * document['median_error']:.1f} %, 95th percentile {100 * document['p95_error']:.1f} %; "
        f"of an interpolation {baseline}."
    )
    if document["choices"]:
        print_line(
            f"Best interface: right {document['right_choices']} of {document['choices']} times, where it was "
            f"measured to carry {100 * _GAP:.0f} % more than the next."
        )
    _say_left_out(document["why_left_out"])
    say_beyond(document["beyond"])


def validate_left_out(table: Path, of: Path | None, *, as_json: bool) -> int:
    """Prints how well cells are predicted that were left out of the fit. Returns 0. Raises Mistake."""
    rows, machine = read_table(table), read_machine(of)
    groups = leave_out(machine, rows)
    if not groups:
        raise Mistake(f"{table}: all cells have one size and one number of functions; expected others to fit to")
    why = _why_left_out(machine, rows)
    document = {
        "machine": machine.name,
        "left_out": sum(why.values()),
        "why_left_out": [{"rows": count, "why": each} for each, count in why.items()],
        "groups": [
            {
                "left_out": each.what,
                "cells": len(each.cells),
                "median_error": _rounded(middle, each.errors()),
                "p95_error": _rounded(_p95, each.errors()),
                "two_digits_p95_error": _rounded(_p95, each.errors(precise=True)),
                "interpolation_median_error": _rounded(middle, each.interpolation),
                "interpolation_p95_error": _rounded(_p95, each.interpolation),
            }
            for each in groups
        ],
        "both": _both([pair for each in groups for pair in each.both]),
        "between": {
            "median_error": _rounded(middle, [error for each in groups for error in each.errors(within=True)]),
            "p95_error": _rounded(_p95, [error for each in groups for error in each.errors(within=True)]),
            "two_digits_p95_error": _rounded(
                _p95, [error for each in groups for error in each.errors(within=True, precise=True)]
            ),
        },
    }
    if as_json:
        print_json(document)
        return 0
    _show_left_out(document)
    return 0


def _both(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Of cells that the model and an interpolation predict from the same others: how far each is off."""
    model, line = [each for each, _ in pairs], [each for _, each in pairs]
    return {
        "cells": len(pairs),
        "median_error": _rounded(middle, model),
        "p95_error": _rounded(_p95, model),
        "interpolation_median_error": _rounded(middle, line),
        "interpolation_p95_error": _rounded(_p95, line),
        "model_nearer": sum(one < other for one, other in pairs),
        "interpolation_nearer": sum(one > other for one, other in pairs),
    }


def _p95(errors: Sequence[float]) -> float:
    return percentile(errors, 0.95)


def _rounded(of: Callable[[Sequence[float]], float], errors: Sequence[float]) -> float | None:
    return round(of(errors), 5) if errors else None


def _show_left_out(document: dict[str, Any]) -> None:
    def percent(error: float | None) -> str:
        return "" if error is None else f"{100 * error:.1f} %"

    columns = ("median", "95th percentile", "of two digits", "interpolation", "95th percentile")
    table = PlainTable("left out", "cells", *columns)
    for each in document["groups"]:
        figures = [percent(value) for name, value in each.items() if name.endswith("_error")]
        table.add_row(each["left_out"], str(each["cells"]), *figures)
    print_table(table)
    both = document["both"]
    if both["cells"]:
        print_line(
            f"Of the {both['cells']} cells that both predict from the same others: the model median "
            f"{percent(both['median_error'])}, 95th percentile {percent(both['p95_error'])}, an interpolation "
            f"{percent(both['interpolation_median_error'])} and {percent(both['interpolation_p95_error'])}; the model "
            f"is nearer {both['model_nearer']} times, the interpolation {both['interpolation_nearer']}."
        )
    between = document["between"]
    if between["median_error"] is not None:
        print_line(
            f"Cells that lie between others: median {percent(between['median_error'])}, 95th percentile "
            f"{percent(between['p95_error'])}; of two digits or more {percent(between['two_digits_p95_error'])}."
        )
    _say_left_out(document["why_left_out"])
