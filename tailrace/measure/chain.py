"""The work of `tailrace measure latency` and of `tailrace demo`: which cases are measured, in which order.

A floor is measured on the very same processes as its chain: the switch is told to join the tester's two ends and,
afterwards, to lead through the functions again. The two are neighbours in time and alike in rate, because what another
guest of the machine's hypervisor does changes from minute to minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tailrace.measure.latency import (
    SEARCH_WAIT,
    TRIAL_WAIT,
    Case,
    floor_case,
    kept,
    measure_case,
    run_trial,
)
from tailrace.measure.profile import Profile
from tailrace.measure.search import SearchOptions
from tailrace.measure.session import Session
from tailrace.plan import PlannedChain
from tailrace.results import Trial
from tailrace.spec import Rate

FLOOR = ("tester.a", "tester.b")


@dataclass(frozen=True)
class Wiring:
    """A way from one end of the tester to the other."""

    chain: PlannedChain

    def through(self, session: Session, functions: int) -> None:
        """Leads the chain through its first `functions` functions."""
        if session.node is None:
            return
        session.node.lead(self.chain.name, self.chain.through[:functions])


@dataclass(frozen=True)
class Timing:
    """How long the parts of a case take."""

    trial: float
    floor: float
    options: SearchOptions = field(default_factory=SearchOptions)
    patient: Callable[[], bool] = lambda: True
    """Whether there is time to repeat a trial that did not bear out its search."""

    @property
    def search(self) -> float:
        """Seconds that a search is expected to take."""
        return 8 * (self.options.trial_seconds + SEARCH_WAIT + 0.02)

    def of(self, case: Case, *, with_floor: bool) -> float:
        """Seconds that a case is expected to take, floor included."""
        total = case.seconds + TRIAL_WAIT
        if case.rate.fraction is not None:
            total += self.search
        return total + (self.floor + TRIAL_WAIT if with_floor else 0.0)


def measure(
    session: Session, wiring: Wiring | None, cases: Iterable[Case], timing: Timing, *, with_floor: bool
) -> list[Trial]:
    """Measures the cases in order; with the floor of each at its rate, where it has functions."""
    trials = []
    for case in cases:
        floor = with_floor and case.functions > 0 and wiring is not None
        session.stage(case.name, timing.of(case, with_floor=floor))
        if wiring is not None:
            wiring.through(session, case.functions)

        def measure_floor(rate: float, case: Case = case, floor: bool = floor) -> None:
            if floor and wiring is not None:
                _measure_floor(session, wiring, case, rate, timing.floor)

        trials.append(
            measure_case(
                session.measure,
                session.folder,
                case,
                timing.options,
                measure_floor=measure_floor,
                patient=timing.patient,
            )
        )
    return trials


def _measure_floor(session: Session, wiring: Wiring, case: Case, rate: float, seconds: float) -> None:
    floor = replace(floor_case(case), seconds=seconds, rate=Rate(pps=rate))
    wiring.through(session, 0)
    kept(session.folder, floor, run_trial(session.measure, session.folder, floor, rate, None), rate, None)


def case_name(profile: Profile, functions: int) -> str:
    """floor-64, one-function-imix, ..."""
    counts = {0: "floor", 1: "one-function", 2: "two-functions"}
    return f"{counts.get(functions, f'{functions}-functions')}-{profile.name}"
