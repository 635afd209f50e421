"""`tailrace measure matrix`: fabrics × kinds of interface × patterns × numbers of functions × frame sizes.

Patterns are those of RFC 8204: P is an end outside the machine, V a function. North/south frames come in and go out
by an interface of Linux's (a veth in a private network namespace stands for the NIC); east/west ones go from function
to function, and the tester is the outermost two.

Every cell is kept as soon as it is known, so that a run that was cut short goes on where it stood (`--resume`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from tailrace.errors import Failure, Interrupted, Mistake
from tailrace.fabric.base import Interface
from tailrace.fabric.kinds import KINDS, Kind
from tailrace.host.launch import Launcher
from tailrace.host.place import Placement
from tailrace.measure.floors import Floors, floors_seconds
from tailrace.measure.latency import Case
from tailrace.measure.method import profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.progress import Reporter
from tailrace.measure.session import Session, keep_aside
from tailrace.measure.side import Load, at_rate, no_loss
from tailrace.measure.stand import Placed, Scene, SceneFunction, placed, standing
from tailrace.measure.tester import Stopped
from tailrace.results.comparison import MatrixCell
from tailrace.results.model import Run
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
    def tester_ports(self) -> Interface:
        """What the tester's ports are."""
        return self.scene.interfaces(self.kind)[1]

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

    What a fabric has not is a cell too, which says so. A pattern is the same for each kind of interface where no
    function has a port of that kind.
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
                used = OUTSIDE if _all_outside(kind, ends, number) else interface
                for each in profiles:
                    cell = Cell(kind, used, ends, number, each)
                    found.setdefault(cell.name, cell)
    return list(found.values())


def _all_outside(kind: Kind, ends: Ends, functions: int) -> bool:
    """Whether every port is of the kind that the outside has: without a switch a link has one kind at both ends."""
    return ends == "north/south" and functions <= (1 if kind.name == "direct" else 0)


def why_not(cell: Cell) -> str | None:
    """Why a cell cannot be had on this machine, or None."""
    try:
        cell.kind.installed()
        placed(cell.scene, [cell.kind])
    except Mistake as refusal:
        return str(refusal)
    return None


def seconds(wanted: Sequence[Cell], test: Matrix) -> float:
    """How long the cells are expected to take."""
    floors = floors_seconds((cell.tester_ports, cell.profile) for cell in wanted)
    starts = len({cell.stand for cell in wanted}) * START_SECONDS
    return floors + starts + sum(_load(cell, test).duration for cell in wanted)


def placements(wanted: Sequence[Cell]) -> list[Placement]:
    """Where everything runs on each stand. Raises Mistake if a cell cannot be had here."""
    return [placed(group[0].scene, [group[0].kind])[0].placement for group in stands(wanted)]


def pages(wanted: Sequence[Cell], *, huge: bool) -> int:
    """2 MiB pages for the hungriest cell."""
    return max((replace(cell.scene, huge=huge).pages(cell.kind) for cell in wanted), default=0)


def done(run: Run) -> set[str]:
    """The names of cells with figures, which need not be measured again."""
    found = (each for each in run.findings if isinstance(each, MatrixCell))
    return {cell.name for cell in found if cell.valid and cell.not_here is None}


def left(test: Matrix, known: Collection[str] = ()) -> tuple[list[Cell], list[tuple[Cell, str]]]:
    """What is to be measured besides the `known`, and the cells that cannot be had here, each with the reason."""
    wanted: list[Cell] = []
    refused: list[tuple[Cell, str]] = []
    for group in stands([cell for cell in cells(test) if cell.name not in known]):
        reason = why_not(group[0])
        if reason is None:
            wanted += group
        else:
            refused += [(cell, reason) for cell in group]
    return wanted, refused


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
        self._floors = Floors(launcher, folder, report, huge=huge)
        self._allowed = os.sched_getaffinity(0)

    def run(self) -> None:
        """Measures what is not done yet. A cell that fails is kept with the reason, and the others go on."""
        wanted, refused = left(self._test, done(self._folder.run))
        for cell, reason in refused:
            self._folder.put_finding(cell.finding().model_copy(update={"not_here": reason}))
        failed = 0
        for group in stands(wanted):
            try:
                failed += self._stand(group)
            finally:
                os.sched_setaffinity(0, self._allowed)
        if failed:
            self._folder.invalidate(f"{failed} of {len(wanted)} cells failed; measure them again with --resume")

    def _stand(self, group: Sequence[Cell]) -> int:
        """Measures cells on one stand; returns how many failed."""
        first = group[0]
        scene = replace(first.scene, huge=self._huge)
        (where,) = placed(scene, [first.kind])
        caveat = where.caveat(scene)
        if caveat is not None:
            self._folder.note(caveat)
        waiting = list(group)
        try:
            self._measure(scene, where, waiting)
            return 0
        except (Failure, Mistake, Stopped) as error:
            cause = error.cause if isinstance(error, Stopped) else error
            if isinstance(cause, Interrupted):
                raise
            for cell in waiting:
                self._folder.put_finding(cell.finding().model_copy(update={"valid": False, "reason": str(cause)}))
            return len(waiting)

    def _measure(self, scene: Scene, where: Placed, waiting: list[Cell]) -> None:
        """Measures cells one by one, and takes those that are done off the list."""
        keep_aside(where.placement.switch)
        first = waiting[0]
        self._floors.stand_on(first.tester_ports, [cell.profile for cell in waiting], where.placement)
        label = f"{first.kind.name}, {first.interface}, {first.pattern}"
        self._report.stage(label, START_SECONDS + sum(_load(cell, self._test).duration for cell in waiting))
        logs = self._launcher.logs / f"{first.kind.name}-{first.interface}-{first.pattern}"
        with standing(replace(self._launcher, logs=logs), scene, where.kind, where.placement) as stand:
            session = Session(stand.tester, self._folder, stand.check, None, self._report)
            session.stage_seconds = START_SECONDS
            while waiting:
                self._folder.put_finding(self._cell(session, waiting[0]))
                waiting.pop(0)

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
            "floor_ratio": trial.floor_ratio,
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
