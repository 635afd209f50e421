"""`tailrace measure matrix`: fabrics × kinds of interface × patterns × numbers of functions × frame sizes.

Patterns are those of RFC 8204: P is an end outside the machine, V a function. North/south frames come in and go out
by an interface of Linux's (a veth in a private network namespace stands for the NIC); east/west ones go from function
to function, and the tester is the outermost two.

Every cell is kept as soon as it is known, so that a run that was cut short goes on where it stood (`--resume`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from tailrace.errors import Failure, Interrupted, Mistake
from tailrace.fabric.base import Interface
from tailrace.fabric.kinds import KINDS, Kind
from tailrace.host.launch import Launcher
from tailrace.measure.latency import Case
from tailrace.measure.method import profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.progress import Reporter
from tailrace.measure.session import Session, keep_aside
from tailrace.measure.side import Load, at_rate, no_loss
from tailrace.measure.stand import Placed, Scene, SceneFunction, placed, standing
from tailrace.measure.tester import Stopped
from tailrace.results.comparison import MatrixCell
from tailrace.results.run import RunFolder
from tailrace.spec.tests import Matrix

Ends = Literal["north/south", "east/west"]
START_SECONDS = 5.0
OUTSIDE: Interface = "veth"
"""What an end outside the machine is where there is no NIC."""
PATTERNS: dict[str, tuple[Ends, int | None]] = {
    "P2P": ("north/south", 0),
    "PVP": ("north/south", 1),
    "PVVP": ("north/south", 2),
    "VV": ("east/west", 0),
    "north/south": ("north/south", None),
    "east/west": ("east/west", None),
}
"""Each with its ends and its number of functions; None: as many as are asked for."""


@dataclass(frozen=True)
class Cell:
    """One cell to be measured."""

    kind: Kind
    interface: Interface
    ends: Ends
    functions: int
    profile: Profile

    @property
    def pattern(self) -> str:
        return pattern(self.ends, self.functions)

    @property
    def name(self) -> str:
        return f"{self.kind.name}-{self.interface}-{self.pattern}-{self.profile.name}"

    @property
    def scene(self) -> Scene:
        functions = tuple(SceneFunction(f"vnf{number}") for number in range(1, self.functions + 1))
        return Scene("matrix", functions, self.interface, OUTSIDE if self.ends == "north/south" else self.interface)

    @property
    def stand(self) -> tuple[str, str, str, int]:
        """Cells in which this is equal are measured on one stand."""
        return (self.kind.name, self.interface, self.ends, self.functions)

    def finding(self) -> MatrixCell:
        """What is kept of it, without figures."""
        return MatrixCell(
            name=self.name,
            profile=self.profile.name,
            functions=self.functions,
            valid=True,
            reason=None,
            fabric=self.kind.name,
            interface=self.interface,
            ends=self.ends,
            pattern=self.pattern,
        )


def pattern(ends: Ends, functions: int) -> str:
    """P2P, PVP, PVVP, ... and VV, VVV, ...: a V for each function; east/west the tester's two as well."""
    if ends == "east/west":
        return "V" * (functions + 2)
    return "P" + ("V" * functions or "2") + "P"


def cells(test: Matrix) -> list[Cell]:
    """All cells of a matrix, each once; fabrics side by side, so that what is compared is near in time.

    A fabric without a kind of interface has no cells of it, and a pattern without functions is the same for each kind.
    """
    shapes: dict[tuple[Ends, int], None] = {}
    for name in test.patterns:
        ends, number = PATTERNS[name]
        shapes.update(dict.fromkeys((ends, each) for each in (test.functions if number is None else [number])))
    profiles = profiles_of(test)
    found: dict[str, Cell] = {}
    for ends, number in shapes:
        for interface in test.interfaces:
            for fabric in test.fabrics:
                kind = KINDS[fabric]
                if interface not in kind.interfaces:
                    continue
                used = OUTSIDE if ends == "north/south" and number == 0 else interface
                for each in profiles:
                    cell = Cell(kind, used, ends, number, each)
                    found.setdefault(cell.name, cell)
    return list(found.values())


def seconds(wanted: Sequence[Cell], test: Matrix) -> float:
    """How long the cells are expected to take."""
    stands = len({cell.stand for cell in wanted})
    return stands * START_SECONDS + sum(_load(cell, test).duration for cell in wanted)


def pages(wanted: Sequence[Cell], *, huge: bool) -> int:
    """2 MiB pages for the hungriest cell."""
    return max((replace(cell.scene, huge=huge).pages(cell.kind) for cell in wanted), default=0)


def done(folder: RunFolder) -> set[str]:
    """The names of cells that need not be measured again: those with figures, and those that cannot be had here."""
    return {each.name for each in folder.run.findings if isinstance(each, MatrixCell) and each.valid}


def _load(cell: Cell, test: Matrix) -> Load:
    return Load(cell.name, cell.profile, test.rate, test.duration)


class MatrixRun:
    """A matrix at work."""

    def __init__(self, test: Matrix, launcher: Launcher, folder: RunFolder, report: Reporter, *, huge: bool) -> None:
        self._test = test
        self._launcher = launcher
        self._folder = folder
        self._report = report
        self._huge = huge
        self._allowed = os.sched_getaffinity(0)

    def run(self) -> None:
        """Measures what is not done yet. A cell that fails is kept with the reason, and the others go on."""
        known = done(self._folder)
        left = [cell for cell in cells(self._test) if cell.name not in known]
        failed = 0
        for group in stands(left):
            try:
                failed += self._stand(group)
            finally:
                os.sched_setaffinity(0, self._allowed)
        if failed:
            self._folder.invalidate(f"{failed} of {len(left)} cells failed; measure them again with --resume")

    def _stand(self, group: Sequence[Cell]) -> int:
        """Measures cells on one stand; returns how many failed."""
        first = group[0]
        scene = replace(first.scene, huge=self._huge)
        label = f"{first.kind.name}, {first.interface}, {first.pattern}"
        self._report.stage(label, START_SECONDS + sum(_load(cell, self._test).duration for cell in group))
        try:
            (where,) = placed(scene, [first.kind])
        except Mistake as refusal:
            for cell in group:
                self._folder.put_finding(cell.finding().model_copy(update={"not_here": str(refusal)}))
            return 0
        left = list(group)
        try:
            self._measure(scene, where, left)
            return 0
        except (Failure, Stopped) as error:
            cause = error.cause if isinstance(error, Stopped) else error
            if isinstance(cause, Interrupted):
                raise
            for cell in left:
                self._folder.put_finding(cell.finding().model_copy(update={"valid": False, "reason": str(cause)}))
            return len(left)

    def _measure(self, scene: Scene, where: Placed, left: list[Cell]) -> None:
        """Measures cells one by one, and takes those that are done off the list."""
        keep_aside(where.placement.switch)
        first = left[0]
        logs = self._launcher.logs / f"{first.kind.name}-{first.interface}-{first.pattern}"
        with standing(replace(self._launcher, logs=logs), scene, where.kind, where.placement) as stand:
            session = Session(stand.tester, self._folder, stand.check, None, self._report)
            session.stage_seconds = START_SECONDS
            while left:
                self._folder.put_finding(self._cell(session, left[0]))
                left.pop(0)

    def _cell(self, session: Session, cell: Cell) -> MatrixCell:
        load = _load(cell, self._test)
        case = Case(self._trial_name(cell), cell.profile, cell.functions, load.rate, load.seconds)
        if load.rate.fraction is not None:
            most = no_loss(session, case)
            rate = most * load.rate.fraction
        else:
            most, rate = None, load.rate.pps or 0.0
        trial = at_rate(session, case, rate, most)
        latency = trial.worse.latency_us
        figures = {
            "no_loss_pps": most,
            "offered_pps": rate,
            "mpps": trial.worse.mpps,
            "loss_ratio": trial.worse.loss_ratio,
            "trial": trial.name,
        }
        if latency is not None:
            figures |= {
                "p50_us": latency.p50,
                "p99_us": latency.p99,
                "p99_9_us": latency.p99_9,
                "max_us": latency.max,
            }
        return cell.finding().model_copy(update=figures)

    def _trial_name(self, cell: Cell) -> str:
        """The cell's name; with a number if a run that was cut short has kept a part of a trial under it."""
        taken = {trial.name for trial in self._folder.run.trials}
        name, number = cell.name, 1
        while name in taken:
            number += 1
            name = f"{cell.name}-again-{number}"
        return name


def stands(wanted: Sequence[Cell]) -> Iterator[list[Cell]]:
    """The cells in groups that are measured on one stand."""
    for _, group in groupby(wanted, key=lambda cell: cell.stand):
        yield list(group)
