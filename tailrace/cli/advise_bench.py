"""`tailrace advise calibrate` and `chains`: a machine's parameters by `bench hop`, and `bench chain` beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tailrace.advise.calibrate import worker_machine
from tailrace.advise.chain import WORKER, circle
from tailrace.advise.machine import DISTANCES, PARAMETERS, Machine, read_machine, show_machine
from tailrace.advise.of_card import card_parameters
from tailrace.advise.table import FRAME_SIZES, MOST_FUNCTIONS
from tailrace.cli.output import print_json, print_line
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import Mistake
from tailrace.kernel.tree import Tree

_SWITCH_BOUND = 0.95
"""Of the time of the switch's core, from which on that was the limit, and not the functions'."""
_MPPS, _BUSY = (1e-6, 1e5), (1e-4, 1)
"""What a benchmark can find: rates, and the part of its time that a core was busy."""


@dataclass(frozen=True)
class _Bench:
    """What `tailrace bench hop` or `bench chain` found of Tailrace's switch at one distance of the two cores; medians
    over its pairs."""

    cpu: str
    distance: str | None
    frame: int
    functions: int | None
    pairs: int
    mpps: float
    hop_ns: float
    """Of the switch's core."""
    busy: float


def _read_bench(path: Path, command: str) -> list[_Bench]:
    """One for each distance, the most frequent first. Raises Mistake."""
    try:
        document = json.loads(path.read_text())
        if document["bench"] != command:
            raise ValueError
        pairs = [*document["pairs"], *(pair for each in document.get("others", {}).values() for pair in each["pairs"])]
        distances = dict.fromkeys(pair.get("distance") for pair in pairs)
        if not distances:
            raise ValueError
        return [
            _bench(document, command, [p["tailrace"] for p in pairs if p.get("distance") == each], each)
            for each in distances
        ]
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except _Impossible as error:
        raise Mistake(f"{path}: {error}; expected a result of `tailrace bench {command} --json`") from None
    except (ValueError, LookupError, TypeError, AttributeError, ZeroDivisionError, RecursionError):
        raise Mistake(f"{path}: expected a result of `tailrace bench {command} --json`") from None


def _bench(
    document: Mapping[str, Any], command: str, sides: Sequence[Mapping[str, Any]], distance: str | None
) -> _Bench:
    if distance not in (None, *DISTANCES):
        raise ValueError
    sides = [{**side, "mpps": _within(side, "mpps", *_MPPS), "busy": _within(side, "busy", *_BUSY)} for side in sides]
    functions = _within(document, "functions", 1, MOST_FUNCTIONS) if command == "chain" else None
    return _Bench(
        cpu=str(document["machine"]["cpu"]),
        distance=distance,
        frame=int(_within(document, "frame", *FRAME_SIZES)),
        functions=None if functions is None else int(functions),
        pairs=len(sides),
        mpps=median([side["mpps"] for side in sides]),
        hop_ns=median([1e3 * side["busy"] / side["mpps"] for side in sides]),
        busy=median([side["busy"] for side in sides]),
    )


class _Impossible(ValueError):
    """A figure that no benchmark finds."""


def _within(of: Mapping[str, Any], name: str, least: float, most: float) -> float:
    """A figure of a result. Raises _Impossible."""
    value = of.get(name)
    if value is None:
        raise _Impossible(f"it has no {name}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise _Impossible(f"{name} {str(value)[:40]} is not from {least:g} to {most:g}")
    return float(value)


def calibrate_machine(
    benches: Sequence[Path], output: Path, distance: str | None, card: str | None, *, as_json: bool
) -> int:
    """Writes the file of a machine. Returns 0. Raises Mistake."""
    of_card = card_parameters(Tree(), card)
    check_outputs([output], benches)
    if distance not in (None, *DISTANCES):
        raise Mistake(f"--distance {distance}: expected {', '.join(DISTANCES)}")
    known: dict[str | None, list[_Bench]] = {}
    for path in {os.path.realpath(each): each for each in benches}.values():
        for each in _read_bench(path, "hop"):
            known.setdefault(each.distance, []).append(each)
    wanted = {
        which: found
        for which, found in known.items()
        if distance in (None, which) and len({each.frame for each in found}) > 1
    }
    if not wanted:
        there = "; ".join(f"{which or 'unknown'}: {_sizes(found)}" for which, found in known.items())
        at = "" if len(known) == 1 and distance is None else f" at one distance of the cores{_of(distance)} ({there})"
        raise Mistake(f"expected results of two sizes of frame at least{at}, such as 64 and 1518")
    which, found = max(wanted.items(), key=lambda item: sum(each.pairs for each in item[1]))
    hops = [(each.frame, each.hop_ns) for each in found]
    functions = [(each.frame, 1e3 / each.mpps) for each in found if each.busy < _SWITCH_BOUND]
    at_most = [(each.frame, 1e3 / each.mpps) for each in found if each.busy >= _SWITCH_BOUND]
    name = f"{found[0].cpu}, Tailrace" + (f", cores {which}" if which else "")
    machine = worker_machine(name, hops, "bench hop", functions, at_most)
    machine = machine.model_copy(update={"distance": which, "parameters": {**machine.parameters, **of_card.values}})
    write_text(output, show_machine(machine))
    if as_json:
        print_json(machine.model_dump(exclude_none=True))
        return 0
    at = f", its cores {which}" if which else ""
    print_line(f"{output}: {machine['worker_ns']:.3g} ns a hop, {machine['worker_byte_ns']:.3g} ns for each byte{at}.")
    if "function_ns" in machine:
        sizes = sorted({frame for frame, _ in functions})
        of = ", ".join(map(str, sizes))
        each_byte = f"{machine['function_byte_ns']:.3g} ns for each byte" if len(sizes) > 1 else "bytes not measured"
        print_line(f"Functions: {machine['function_ns']:.3g} ns a frame, {each_byte}, by frames of {of} B.")
    if at_most:
        of = "; ".join(f"{time:.3g} ns at {frame} B" for frame, time in sorted(at_most))
        print_line(f"Functions took no more than {of}, where the switch was the limit.")
    for name, value in of_card.values.items():
        print_line(f"{name}: {value.value:g} {PARAMETERS[name].unit}, {value.source}.")
    if of_card.note:
        print_line(f"Of a card: {of_card.note}.")
    return 0


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path]) -> None:
    """Raises Mistake where one output is another one's file, or something that is read."""
    taken = {os.path.realpath(each) for each in inputs}
    for each in outputs:
        if each is not None and os.path.realpath(each) in taken:
            raise Mistake(f"{each}: would be written over what this command reads or writes; expected another file")
        taken |= {os.path.realpath(each)} if each is not None else set()


def write_text(path: Path, text: str) -> None:
    """Writes a file. Raises Mistake."""
    try:
        path.write_text(text)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None


def _of(distance: str | None) -> str:
    return "" if distance is None else f", {distance}"


def _sizes(found: Sequence[_Bench]) -> str:
    return f"{', '.join(map(str, sorted({each.frame for each in found})))} B"


def compare_chains(benches: Sequence[Path], of: Sequence[Path], *, as_json: bool) -> int:
    """Prints chains of functions beside what their machine predicts. Returns 0. Raises Mistake."""
    machines = [read_machine(each) for each in of]
    for path, each in zip(of, machines, strict=True):
        if not circle(each, 64):
            raise Mistake(
                f"{path}: says nothing of Tailrace's switch, without {', '.join(each.lacks(WORKER))}; expected a "
                "file by `tailrace advise calibrate`"
            )
    known = [each for path in benches for each in _read_bench(path, "chain")]
    rows = [_row(each, machine) for each in known if (machine := _machine_of(each, machines)) is not None]
    left_out = len(known) - len(rows)
    if not rows:
        there = ", ".join(str(each) for each in dict.fromkeys(each.distance for each in known))
        raise Mistake(f"no chain was measured at the distance of the machine's cores, but {there}; expected others")
    worst = max(abs(row["error"]) for row in rows)
    if as_json:
        names = ", ".join(each.name for each in machines)
        print_json({"machine": names, "rows": rows, "left_out": left_out, "largest_error": worst})
        return 0
    table = PlainTable("functions", "frame", "cores", "measured", "predicted", "error", "bottleneck")
    for row in rows:
        table.add_row(
            str(row["functions"]), f"{row['frame_bytes']} B", row["distance"] or "", f"{row['measured_mpps']:.3g} Mpps",
            f"{row['predicted_mpps']:.3g}", f"{100 * row['error']:+.1f} %", row["bottleneck"],
        )  # fmt: skip
    print_table(table)
    print_line(f"Largest error: {100 * worst:.1f} %.")
    if left_out:
        print_line(f"Left out: {left_out} of another distance of the cores than the machine's parameters.")
    return 0


def _machine_of(bench: _Bench, machines: Sequence[Machine]) -> Machine | None:
    """That whose parameters are of the same distance; one that does not say so is of any."""
    same = [each for each in machines if None in (each.distance, bench.distance) or each.distance == bench.distance]
    return min(same, key=lambda each: each.distance != bench.distance, default=None)  # the first of the best


def _row(bench: _Bench, machine: Machine) -> dict[str, Any]:
    predicted = circle(machine, bench.frame)[0]
    return {
        "functions": bench.functions,
        "frame_bytes": bench.frame,
        "distance": bench.distance,
        "measured_mpps": round(bench.mpps, 4),
        "predicted_mpps": round(predicted.mpps, 4),
        "error": round(predicted.mpps / bench.mpps - 1, 5),
        "bottleneck": predicted.name,
        "extrapolated": bool(machine.calibrated.beyond(bench.frame, 1)),
    }
