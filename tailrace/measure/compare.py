"""`tailrace compare`: the same chain on several fabrics, which take turns (A B C, B C A, C A B), and their ratios.

Each pair begins with the next fabric, so that each comes first, and last, equally often: what changes steadily on the
machine, or what a fabric leaves behind for the one after it, meets all alike.

All fabrics are offered the same rate, because latency at different rates cannot be compared: where a test gives a part
of the no-loss rate, it is that part of the lowest one, which is looked for on each fabric first, and confirmed there by
a trial of full length.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tailrace.errors import Failure, Mistake
from tailrace.fabric.base import Interface
from tailrace.measure.core_to_core import NEAR_NS, core_to_core
from tailrace.measure.floors import Floors, floors_seconds
from tailrace.measure.latency import Case
from tailrace.measure.profile import Profile
from tailrace.measure.progress import Reporter
from tailrace.measure.search import NoRate
from tailrace.measure.session import Session, keep_aside
from tailrace.measure.side import FIGURES, Load, at_rate, figures, measured, no_loss
from tailrace.measure.stand import Placed, Scene, standing
from tailrace.results.comparison import FIRST_LOOK, ComparedPair, ComparisonFinding, ratios_of
from tailrace.results.no_loss import NoLossRate
from tailrace.results.run import RunFolder
from tailrace.state.launch import Launcher

START_SECONDS = 5.0
"""What bringing one fabric up and down takes, for the progress bar."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class ComparePlan:
    """What is compared."""

    scene: Scene
    fabrics: Sequence[Placed]
    """The first is what all others are divided by."""
    loads: Sequence[Load]
    pairs: int = 5

    def __post_init__(self) -> None:
        if len(self.fabrics) < 2:
            raise Mistake("one fabric alone cannot be compared; expected at least two, such as tailrace,ovs-dpdk")
        if self.pairs < 1:
            raise Mistake(f"--pairs {self.pairs}: expected at least 1")

    @property
    def searches(self) -> bool:
        return any(load.rate.fraction is not None for load in self.loads)

    @property
    def profiles(self) -> list[Profile]:
        return list({load.profile.kind: load.profile for load in self.loads}.values())

    def order(self, pair: int) -> list[Placed]:
        """The fabrics in the order of a pair, the first of which is 1."""
        first = (pair - 1) % len(self.fabrics)
        return [*self.fabrics[first:], *self.fabrics[:first]]

    def ends(self, fabric: Placed) -> Interface:
        """What the tester's ports are on a fabric."""
        return self.scene.interfaces(fabric.kind)[1]

    @property
    def total_seconds(self) -> float:
        """How long it is expected to take."""
        once = sum(load.duration for load in self.loads) + START_SECONDS + LOOK_SECONDS
        first = sum(load.duration for load in self.loads if load.rate.fraction is not None) + START_SECONDS
        floors = floors_seconds((self.ends(fabric), each) for fabric in self.fabrics for each in self.profiles)
        return floors + len(self.fabrics) * (self.pairs * once + (first if self.searches else 0.0))

    @property
    def pages(self) -> int:
        return max(self.scene.pages(fabric.kind) for fabric in self.fabrics)


class Comparison:
    """A comparison at work. What has been measured is in the run folder after every side."""

    def __init__(self, plan: ComparePlan, launcher: Launcher, folder: RunFolder, report: Reporter) -> None:
        self._plan = plan
        self._launcher = launcher
        self._folder = folder
        self._report = report
        self._floors = Floors(launcher, folder, report, huge=plan.scene.huge)
        self._allowed = os.sched_getaffinity(0)
        self._rates: dict[str, float] = {}
        self._searched: dict[str, dict[str, NoLossRate]] = {load.name: {} for load in plan.loads}
        self._lossy: set[tuple[str, str]] = set()
        """Loads and fabrics that have no rate without loss."""
        self._pairs: dict[str, list[ComparedPair]] = {load.name: [] for load in plan.loads}

    def run(self) -> None:
        """Measures everything. Raises what cuts it short."""
        plan = self._plan
        for fabric in plan.fabrics:  # all beforehand: the sides of a pair are to be near in time
            with self._aside(fabric):
                self._stand_on(fabric)
        if plan.searches:
            self._find_rates()
        for load in plan.loads:
            if load.rate.fraction is None:
                self._rates[load.name] = load.rate.pps or 0.0
        for number in range(1, plan.pairs + 1):
            self._pair(number)

    def _find_rates(self) -> None:
        """The rate of each load that asks for a part of the no-loss rate: of the lowest of all fabrics."""

        def look(session: Session, fabric: Placed) -> None:
            for load in self._plan.loads:
                if load.rate.fraction is not None:
                    try:
                        trial = measured(session, self._case(load, f"{fabric.name}-{FIRST_LOOK}"))
                    except NoRate as none:  # the others are compared no less, and it with them, at their rate
                        self._lossy.add((load.name, fabric.name))
                        self._folder.note(f"{fabric.name}, {load.name}: {none}")
                        continue
                    if trial.searched is not None:
                        self._searched[load.name][fabric.name] = trial.searched
                    rate = self._rates.get(load.name, trial.offered_pps)
                    self._rates[load.name] = min(rate, trial.offered_pps)

        for fabric in self._plan.fabrics:
            self._on(fabric, FIRST_LOOK, f"{fabric.name}: looking for the no-loss rate", look)
        if not any(load.name in self._rates or load.rate.pps for load in self._plan.loads):
            raise NoRate(
                "no fabric has a rate without loss, so no part of it can be measured; give a rate: --rate 10kpps"
            )

    def _pair(self, number: int) -> None:
        looks = [self._look()]
        found: dict[str, dict[str, dict[str, float]]] = {load.name: {} for load in self._plan.loads}
        searched: dict[str, dict[str, NoLossRate]] = {load.name: {} for load in self._plan.loads}

        def measure(session: Session, fabric: Placed) -> None:
            for load in self._plan.loads:
                if load.name not in self._rates:
                    continue  # no fabric carries it without loss: a note says so
                case = self._case(load, f"{fabric.name}-pair-{number}")
                if load.rate.fraction is not None and (load.name, fabric.name) not in self._lossy:
                    try:
                        searched[load.name][fabric.name] = no_loss(session, case)
                    except NoRate as none:
                        self._folder.note(f"{fabric.name}, {load.name}, pair {number}: {none}")
                trial = at_rate(session, case, self._rates[load.name])
                found[load.name][fabric.name] = figures(trial, searched[load.name].get(fabric.name))

        for fabric in self._plan.order(number):
            label = f"pair {number} of {self._plan.pairs}: {fabric.name}"
            try:
                self._on(fabric, f"pair-{number}", label, measure)
                looks.append(self._look())
            finally:
                self._keep(found, searched, looks)
        known = [look for look in looks if look is not None]
        if len({look < NEAR_NS for look in known}) > 1:
            self._folder.note(
                f"in pair {number} the distance of the cores changed, so its sides were measured under "
                "different conditions"
            )

    def _case(self, load: Load, name: str) -> Case:
        return load.case(name, len(self._plan.scene.functions))

    @contextmanager
    def _aside(self, fabric: Placed) -> Iterator[None]:
        """Keeps this process off the fabric's polling core in the block."""
        os.sched_setaffinity(0, self._allowed)
        keep_aside(fabric.placement.switch)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._allowed)

    def _stand_on(self, fabric: Placed) -> None:
        self._floors.stand_on(self._plan.ends(fabric), self._plan.profiles, fabric.placement)

    def _on(self, fabric: Placed, name: str, label: str, work: Callable[[Session, Placed], None]) -> None:
        """Does some work on a fabric that stands for it."""
        seconds = START_SECONDS + sum(load.duration for load in self._plan.loads)
        self._report.stage(label, seconds)
        launcher = replace(self._launcher, logs=self._launcher.logs / f"{name}-{fabric.name}")
        self._stand_on(fabric)
        try:
            with self._aside(fabric), standing(launcher, self._plan.scene, fabric.kind, fabric.placement) as stand:
                self._folder.ran(stand.version())
                session = Session(stand.tester, self._folder, stand.check, None, self._report)
                session.stage_seconds = START_SECONDS
                work(session, fabric)
        except Failure as error:
            raise type(error)(f"{fabric.name}: {error}") from error

    def _look(self) -> float | None:
        """How far the cores of the switch and of the tester are from each other; None where there is one core."""
        placement = self._plan.fabrics[0].placement
        if placement.tester is None or placement.tester.core == placement.switch.core:
            return None
        return round(core_to_core(self._launcher, placement.switch.core, placement.tester.core), 1)

    def _keep(
        self,
        found: dict[str, dict[str, dict[str, float]]],
        searched: dict[str, dict[str, NoLossRate]],
        looks: Sequence[float | None],
    ) -> None:
        """Puts the pair that is being measured, with those before it, into the run folder; whole pairs stay."""
        known = tuple(look for look in looks if look is not None)
        names = [fabric.name for fabric in self._plan.fabrics]
        for load in self._plan.loads:
            sides = found[load.name]
            if not sides:
                continue
            # A side that failed after its search has no figures.
            rates = {side: rate for side, rate in searched[load.name].items() if side in sides}
            pair = ComparedPair(sides=sides, searched=rates, core_to_core_ns=known)
            pairs = [*self._pairs[load.name], pair]
            if len(sides) == len(names):
                self._pairs[load.name] = pairs
            self._folder.put_finding(
                ComparisonFinding(
                    method="compare",
                    name=load.name,
                    **load.profile.kind._asdict(),
                    functions=len(self._plan.scene.functions),
                    valid=True,
                    reason=None,
                    baseline=names[0],
                    sides=tuple(names),
                    offered_pps=self._rates[load.name],
                    rate_fraction=load.rate.fraction,
                    searched=self._searched[load.name],
                    pairs=tuple(pairs),
                    ratios=ratios_of(pairs, names, names[0], list(FIGURES)),
                )
            )
