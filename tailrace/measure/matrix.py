"""`tailrace measure matrix`: fabrics × kinds of interface × patterns × numbers of functions × frame sizes.

Patterns are those of RFC 8204: P is an end outside the machine, V a function. North/south frames come in and go out
by an interface of Linux's (a veth in a private network namespace stands for the NIC, but where a card carries them);
east/west ones go from function to function, and the tester is the outermost two.

Every cell is kept as soon as it is known, so that a run that was cut short goes on where it stood (`--resume`). With
`--repeat` the whole matrix is measured in rounds, so that what changes on the machine meets all cells alike.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Literal

from tailrace.errors import Failure, Interrupted, Mistake
from tailrace.fabric.base import Interface
from tailrace.fabric.card import NO_CABLING, Cabling
from tailrace.fabric.kinds import CARD, MATRIX_KINDS, Kind
from tailrace.measure.fit import beyond
from tailrace.measure.floors import Floors, floors_seconds
from tailrace.measure.latency import Case
from tailrace.measure.matrix_stacks import Way, measure_way, ways_left
from tailrace.measure.method import profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.progress import Reporter
from tailrace.measure.session import Session, keep_aside
from tailrace.measure.side import Load, measured
from tailrace.measure.stand import Placed, Scene, SceneFunction, placed, standing
from tailrace.measure.tester import Stopped
from tailrace.resources.place import Placement
from tailrace.results.comparison import CellRound, MatrixCell
from tailrace.results.findings import StacksFinding
from tailrace.results.model import Run
from tailrace.results.record import name_in_round
from tailrace.results.run import RunFolder
from tailrace.spec.tests import Matrix
from tailrace.state.launch import Launcher

Ends = Literal["north/south", "east/west"]
_START_SECONDS = 5.0
"""Of all on a stand that does not boot."""
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
    cabling: Cabling = NO_CABLING
    runs: str = "process"
    """Where the functions live."""

    @property
    def outside(self) -> Interface:
        """What an end outside the machine is."""
        return _outside(self.kind, self.cabling)

    @property
    def pattern(self) -> str:
        return pattern(self.ends, self.functions)

    @property
    def name(self) -> str:
        return f"{self.kind.name}-{self.interface}-{self.pattern}-{self.profile.name}"

    @property
    def scene(self) -> Scene:
        functions = tuple(SceneFunction(f"vnf{number}") for number in range(1, self.functions + 1))
        ends = self.outside if self.ends == "north/south" else self.interface
        return Scene("matrix", functions, self.interface, ends, cabling=self.cabling, runs=self.runs)

    @property
    def tester_ports(self) -> Interface:
        """What the tester's ports are."""
        return self.scene.interfaces(self.kind)[1]

    @property
    def stand(self) -> tuple[str, str, str, int]:
        """Cells in which this is equal are measured on one stand."""
        return (self.kind.name, self.interface, self.ends, self.functions)

    @property
    def start_seconds(self) -> float:
        """How long its stand is expected to take until it stands. Machines boot side by side."""
        return _START_SECONDS + (self.scene.runtime.boot_seconds if self.functions else 0.0)

    def finding(self) -> MatrixCell:
        """What is kept of it, without figures."""
        return MatrixCell(
            name=self.name,
            **self.profile.kind._asdict(),
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
    cabling = Cabling(tuple(test.card), tuple(test.outside))
    found: dict[str, Cell] = {}
    for ends, number in shapes:
        for interface in test.interfaces:
            for fabric in test.fabrics:
                kind = MATRIX_KINDS[fabric]
                used = _outside(kind, cabling) if _all_outside(kind, ends, number) else interface
                for each in profiles:
                    cell = Cell(kind, used, ends, number, each, cabling, test.runs_in)
                    found.setdefault(cell.name, cell)
    return list(found.values())


def _outside(kind: Kind, cabling: Cabling) -> Interface:
    """What an end outside the machine is."""
    return "wire" if kind is CARD or (kind.name == "tailrace" and cabling.outward) else OUTSIDE


def _all_outside(kind: Kind, ends: Ends, functions: int) -> bool:
    """Whether every port is of the kind that the outside has: without a switch a link has one kind at both ends."""
    return ends == "north/south" and functions <= (1 if kind.name == "direct" else 0)


def why_not(cell: Cell) -> str | None:
    """Why a cell cannot be had on this machine, or None."""
    try:
        cell.kind.installed()
        if cell.functions and cell.runs != "process":
            cell.scene.runtime.check()
        placed(cell.scene, [cell.kind])
    except Mistake as refusal:
        return str(refusal)
    if (cell.kind is CARD or cell.tester_ports == "wire") and cell.profile.contents is not None:
        return "a card passes on only frames that bear the tester's addresses; expected sizes, not a capture"
    return beyond(cell.profile, cell.scene.carries(cell.kind))


def seconds(rounds: Sequence[Sequence[Cell]], test: Matrix) -> float:
    """How long the cells of all rounds are expected to take."""
    wanted = list(chain.from_iterable(rounds))
    floors = floors_seconds((cell.tester_ports, cell.profile) for cell in wanted)
    starts = sum(sum({cell.stand: cell.start_seconds for cell in each}.values()) for each in rounds)
    return floors + starts + sum(_load(cell, test).duration for cell in wanted)


def placements(wanted: Sequence[Cell]) -> list[Placement]:
    """Where everything runs on each stand. Raises Mistake if a cell cannot be had here."""
    return [placed(group[0].scene, [group[0].kind])[0].placement for group in stands(wanted)]


def pages(wanted: Sequence[Cell], *, huge: bool) -> int:
    """2 MiB pages for the hungriest cell."""
    return max((replace(cell.scene, huge=huge).pages(cell.kind) for cell in wanted), default=0)


def done(run: Run) -> set[tuple[str, int]]:
    """The names of cells and stacks with figures, each with a round of which it has them: those need not be measured
    again."""
    found = {(cell.name, each.round) for cell in run.findings if isinstance(cell, MatrixCell) for each in cell.rounds}
    return found | {(each.case, each.round) for each in run.findings if isinstance(each, StacksFinding) and each.gbps}


def left(
    test: Matrix, known: Collection[tuple[str, int]] = (), repeat: int = 1
) -> tuple[list[list[Cell]], list[tuple[Cell, str]]]:
    """What is to be measured in each round besides the `known`, and the cells that cannot be had here, with the reason.

    A cell that has all its rounds is in neither.
    """
    numbers = range(1, repeat + 1)
    rounds: list[list[Cell]] = [[] for _ in numbers]
    refused: list[tuple[Cell, str]] = []
    for group in stands([cell for cell in cells(test) if any((cell.name, number) not in known for number in numbers)]):
        reason = why_not(group[0])
        if reason is not None:
            refused += [(cell, reason) for cell in group]
            continue
        for number, wanted in zip(numbers, rounds, strict=True):
            wanted += [cell for cell in group if (cell.name, number) not in known]
    return rounds, refused


def _load(cell: Cell, test: Matrix) -> Load:
    return Load(cell.name, cell.profile, test.rate, test.duration)


def _cause(error: Failure | Mistake | Stopped) -> BaseException:
    """What was the matter. Raises the error again if the user asked for an end."""
    cause = error.cause if isinstance(error, Stopped) else error
    if isinstance(cause, Interrupted):
        raise error
    return cause


class _CellFailed(Exception):
    """Why a cell could not be measured on a stand that stood."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class MatrixRun:
    """A matrix at work."""

    def __init__(self, test: Matrix, launcher: Launcher, folder: RunFolder, report: Reporter, *, huge: bool) -> None:
        self._test = test
        self._launcher = launcher
        self._folder = folder
        self._report = report
        self._huge = huge
        self._repeat = folder.run.repeat
        self._floors = Floors(launcher, folder, report, Cabling(tuple(test.card), tuple(test.outside)), huge=huge)
        self._allowed = os.sched_getaffinity(0)

    def run(self) -> None:
        """Measures what is not done yet. A cell that fails is kept with the reason, and the others go on."""
        if self._test.runs_in != "process":
            self._folder.note(f"each function lives in a {self._test.runs_in} of its own")
        for note in (each.note for each in profiles_of(self._test) if each.note is not None):
            self._folder.note(note)
        known = done(self._folder.run)
        rounds, refused = left(self._test, known, self._repeat)
        ways, refused_ways = ways_left(self._test, known, self._repeat)
        for way, reason in refused_ways:
            if any(case == way.case for case, _ in known):  # what was measured of it stays
                self._folder.note(f"TCP between two stacks by {way.name}: not all rounds can be had here: {reason}")
            else:
                self._put(way.finding().model_copy(update={"not_here": reason}))
        for cell, reason in refused:
            self._put(self._known(cell).model_copy(update={"valid": True, "reason": None, "not_here": reason}))
        failed = 0
        for number, wanted in enumerate(rounds, 1):
            self._folder.begin_round(number)
            for group in stands(wanted):
                try:
                    failed += self._stand(group, number)
                finally:
                    os.sched_setaffinity(0, self._allowed)
            for way in ways[number - 1]:
                try:
                    failed += self._way(way, number)
                finally:
                    os.sched_setaffinity(0, self._allowed)
        if failed:
            asked = sum(map(len, rounds)) + sum(map(len, ways))
            of = f"{asked} cells{' and ways' if any(ways) else ''}" + (
                f" in {self._repeat} rounds" if self._repeat > 1 else ""
            )
            self._folder.invalidate(f"{failed} of {of} failed; measure them again with --resume")

    def _known(self, cell: Cell) -> MatrixCell:
        """What is kept of a cell so far."""
        found = (each for each in self._folder.run.findings if isinstance(each, MatrixCell) and each.name == cell.name)
        return next(found, None) or cell.finding()

    def _way(self, way: Way, number: int) -> int:
        """Measures what one way carries between two stacks, for the n-th time; returns 1 if that failed."""
        try:
            found = measure_way(way, self._test, self._launcher, self._folder, self._report, number, huge=self._huge)
        except (Failure, Mistake) as error:
            self._folder.put_finding(way.finding().model_copy(update={"valid": False, "reason": str(_cause(error))}))
            return 1
        self._folder.put_finding(found)
        return 0

    def _put(self, finding: MatrixCell | StacksFinding) -> None:
        self._folder.put_finding(finding, of_all_rounds=True)

    def _stand(self, group: Sequence[Cell], number: int) -> int:
        """Measures cells on one stand, for the n-th time; returns how many failed."""
        first = group[0]
        scene = replace(first.scene, huge=self._huge)
        (where,) = placed(scene, [first.kind])
        caveat = where.caveat(scene)
        if caveat is not None:
            self._folder.note(caveat)
        waiting = list(group)
        failed = 0
        while waiting:
            try:
                self._measure(scene, where, waiting, number)
            except _CellFailed as error:
                # The stand may be why, so the cells that are left get another.
                failed += self._fail([waiting.pop(0)], error.cause, number)
            except (Failure, Mistake, Stopped) as error:
                failed += self._fail(waiting, _cause(error), number)
                break
        return failed

    def _fail(self, group: Sequence[Cell], cause: BaseException, number: int) -> int:
        """Keeps why these cells were not measured for the n-th time; returns how many they are."""
        for cell in group:
            reason = str(cause) if self._repeat == 1 else f"round {number}: {cause}"
            self._put(self._known(cell).model_copy(update={"valid": False, "reason": reason, "not_here": None}))
        return len(group)

    def _measure(self, scene: Scene, where: Placed, waiting: list[Cell], number: int) -> None:
        """Measures cells one by one, and takes those that are done off the list.

        Raises _CellFailed if the first that is left failed; Failure, Mistake or Stopped if none can be measured.
        """
        keep_aside(where.placement.switch)
        first = waiting[0]
        self._floors.stand_on(first.tester_ports, [cell.profile for cell in waiting], where.placement)
        label = f"{first.kind.name}, {first.interface}, {first.pattern}"
        if self._repeat > 1:
            label += f" ({number} of {self._repeat})"
        self._report.stage(label, first.start_seconds + sum(_load(cell, self._test).duration for cell in waiting))
        place = f"{first.kind.name}-{first.interface}-{first.pattern}"
        logs = self._launcher.logs / name_in_round(place, number)
        with standing(replace(self._launcher, logs=logs), scene, where.kind, where.placement) as stand:
            self._folder.ran(stand.version())
            for note in stand.notes:
                self._folder.note(note)
            session = Session(stand.tester, self._folder, stand.check, None, self._report)
            session.stage_seconds = first.start_seconds
            while waiting:
                try:
                    found = self._cell(session, waiting[0], number)
                except (Failure, Mistake, Stopped) as error:
                    raise _CellFailed(_cause(error)) from error
                self._put(self._known(waiting[0]).with_round(found))
                waiting.pop(0)

    def _cell(self, session: Session, cell: Cell, number: int) -> CellRound:
        """Measures a cell, for the n-th time."""
        load = _load(cell, self._test)
        case = Case(self._trial_name(cell, number), cell.profile, cell.functions, load.rate, load.seconds)
        trial = measured(session, case)
        latency = trial.worse.latency_us
        return CellRound(
            round=number,
            trial=trial.name,
            no_loss_pps=trial.no_loss_pps,
            searched=trial.searched,
            offered_pps=trial.offered_pps,
            mpps=trial.worse.mpps,
            loss_ratio=trial.worse.loss_ratio,
            p50_us=latency.p50 if latency else None,
            p99_us=latency.p99 if latency else None,
            p99_9_us=latency.p99_9 if latency else None,
            max_us=latency.max if latency else None,
            floor_ratio=trial.floor_ratio,
            sent_ratio=trial.sent_ratio,
        )

    def _trial_name(self, cell: Cell, number: int) -> str:
        """The cell's name; with "again" if a run that was cut short has kept a part of a trial of this round."""
        taken = {trial.stands_as for trial in self._folder.run.trials}
        name, times = cell.name, 1
        while name_in_round(name, number) in taken:
            times += 1
            name = f"{cell.name}-again-{times}"
        return name


def stands(wanted: Sequence[Cell]) -> Iterator[list[Cell]]:
    """The cells in groups that are measured on one stand."""
    for _, group in groupby(wanted, key=lambda cell: cell.stand):
        yield list(group)
