"""What was measured on a machine, and what its model makes of that: runs of `measure throughput` beside predictions.

A run says something of the switch's cores where these were the limit. Runs whose polling threads had to share cores
measured the sharing, those in which the tester was the limit only a bound, and those that carried what the functions or
memory can say nothing of the switch: all are named and left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.advise.calibrate import span_of, worker_machine
from tailrace.advise.chain import SWITCH_CORES, Answer, Chain, answers
from tailrace.advise.machine import Machine, Value
from tailrace.advise.of_spec import chains_of
from tailrace.advise.table import FRAME_SIZES, MOST_FUNCTIONS
from tailrace.errors import Mistake, TailraceError
from tailrace.results.findings import ThroughputFinding
from tailrace.results.run import load_run
from tailrace.spec.load import load_spec

_NEAR = 0.05
"""So near to what something else carries, a throughput is that one's."""
BOTH = 2
"""Directions of the traffic of a throughput search."""
_PPS = 100, 1e11
"""The least and the most packets a second that a switch's cores can be the limit of."""


@dataclass(frozen=True)
class Measured:
    """One throughput without loss, by Tailrace's switch."""

    run: str
    name: str
    frame: int
    chain: Chain
    mpps: float
    """Both directions together."""

    @property
    def hop_ns(self) -> float:
        """What one hop took on the switch's cores, had these no other limit."""
        return self.chain.workers * 1e3 / (self.mpps * (self.chain.functions + 1))

    def answer(self, machine: Machine) -> Answer | None:
        """What is predicted for it; None where the machine has no such interface."""
        kinds = {each.interface: each for each in answers(machine, self.chain, self.frame)}
        return kinds.get("vhost-user")

    def predicted(self, machine: Machine) -> float | None:
        """In Mpps; None where the machine has no such interface."""
        answer = self.answer(machine)
        return None if answer is None else answer.mpps


@dataclass(frozen=True)
class Learned:
    """What runs say, and what of them says nothing of the switch."""

    measured: Sequence[Measured]
    left_out: Sequence[tuple[str, str]]
    """Which, and why."""


class _Several(Mistake):
    """A line for each thing that is wrong."""

    def __init__(self, said: Sequence[str]) -> None:
        super().__init__("\n".join(said))
        self._said = tuple(said)

    @property
    def lines(self) -> Sequence[str]:
        return self._said


def read_measured(folders: Sequence[Path]) -> Learned:
    """All throughputs of these run folders, each folder's once. Raises Mistake naming every one that cannot be read."""
    found: list[Measured] = []
    out: list[tuple[str, str]] = []
    wrong: list[str] = []
    for folder in {os.path.realpath(each): each for each in folders}.values():
        try:
            for each in _of_run(folder):
                if isinstance(each, Measured):
                    found.append(each)
                else:
                    out.append(each)
        except (TailraceError, OSError) as error:
            wrong.append(str(error))
    if wrong:
        raise _Several(wrong)
    return Learned(found, out)


def _of_run(folder: Path) -> Iterator[Measured | tuple[str, str]]:
    run = load_run(folder)
    searches = [each for each in run.findings if isinstance(each, ThroughputFinding)]
    if not searches:
        yield run.id, "has no throughput; expected a run of `tailrace measure throughput`"
    elif run.fabric != "tailrace":
        yield run.id, f"is of the fabric {run.fabric}, not of Tailrace's switch"
    elif run.oversubscribed:
        yield run.id, "had more polling threads than cores"
    else:
        spec = load_spec((folder if folder.is_dir() else folder.parent) / "spec.yaml")
        cores = {each.functions: each.cores for each in chains_of(spec).values()}
        for search in searches:
            yield _of_search(run.id, search, spec.fabric.number, cores.get(search.functions or 0, 1))


def _of_search(run: str, search: ThroughputFinding, workers: int, cores: int) -> Measured | tuple[str, str]:
    name = f"{run}, {search.name}"
    goal = next((each for each in search.goals if each.loss_ratio == 0), None)
    if not search.valid:
        return name, f"is not valid: {search.reason}"
    frame = int(search.profile) if re.fullmatch("[0-9]{1,4}", search.profile) else 0
    if not FRAME_SIZES[0] <= frame <= FRAME_SIZES[1] or not 1 <= (search.functions or 0) <= MOST_FUNCTIONS:
        return name, "is not of frames of one size through functions"
    if goal is None or not goal.pps:
        return name, "found no rate without loss"
    if goal.bound is not None:
        return name, f"is a bound alone: {'the tester could send no more' if goal.limit == 'tester' else goal.limit}"
    if not _PPS[0] <= goal.pps <= _PPS[1]:
        return name, f"has a rate that no switch's cores bound ({goal.pps:g} packets a second)"
    chain = Chain(search.functions or 0, workers, ends=0, cores=cores)
    return Measured(run, search.name, frame, chain, BOTH * goal.pps / 1e6)


def of_switch(machine: Machine, learned: Learned) -> Learned:
    """Those alone whose limit was the switch's cores, as far as the machine's other parameters tell; the rest is left
    out with the reason."""
    found: list[Measured] = []
    out = list(learned.left_out)
    for each in learned.measured:
        answer = each.answer(machine)
        others = [limit for limit in answer.limits if SWITCH_CORES not in limit.name] if answer else []
        lowest = min(others, key=lambda limit: limit.mpps, default=None)
        if lowest is not None and lowest.mpps <= each.mpps * (1 + _NEAR):
            why = f"is what {lowest.name} carry by the machine's parameters ({lowest.mpps:.3g} Mpps): not the switch's"
            out.append((f"{each.run}, {each.name}", why))
        else:
            found.append(each)
    return Learned(found, out)


UNKNOWN = Machine(name="the machine of these runs", parameters={})
"""What runs alone are learned into: nothing of another machine's is mixed with them."""


def learn(machine: Machine, learned: Learned) -> Machine:
    """The machine with what a hop of Tailrace's switch takes fitted to what was measured (`of_switch()`). With frames
    of one size the time for each byte stays what it was. Raises Mistake where that is not known."""
    measured = learned.measured
    points = [(each.frame, each.hop_ns) for each in measured]
    if not points:
        why = [f"left out: {what} {reason}" for what, reason in learned.left_out]
        raise _Several(["the runs say nothing of the switch: none has a throughput that its cores bounded", *why])
    sizes = sorted({size for size, _ in points})
    functions = span_of([each.chain.functions for each in measured])
    source = f"{len(points)} throughputs measured"
    if len(sizes) > 1:
        fitted = worker_machine(machine.name, points, source)
        good_for = machine.calibrated.model_copy(update={"frames": fitted.calibrated.frames, "functions": functions})
        return machine.model_copy(update={"calibrated": good_for, "parameters": machine.parameters | fitted.parameters})
    if "worker_byte_ns" not in machine:
        raise Mistake(
            "the runs have frames of one size, and the machine has no time for each byte yet; expected two sizes, or "
            "a machine by `tailrace advise calibrate`"
        )
    fixed = sum(time - machine["worker_byte_ns"] * (size - 64) for size, time in points) / len(points)
    value = Value(value=float(f"{max(fixed, 1e-3):.4g}"), source=f"{source}, frames of {sizes[0]} B")
    good_for = machine.calibrated.model_copy(update={"functions": functions})
    return machine.model_copy(update={"calibrated": good_for, "parameters": {**machine.parameters, "worker_ns": value}})
