"""`tailrace measure latency`, and the work of `tailrace demo`: which cases are measured, in which order.

A floor is measured on the very same processes as its chain: the switch is asked to join the tester's two ends and,
afterwards, to lead through the functions again. The two are neighbours in time and alike in rate, because what another
guest of the machine's hypervisor does changes from minute to minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from tailrace.errors import Mistake
from tailrace.measure.latency import (
    SEARCH_WAIT,
    TRIAL_WAIT,
    Case,
    floor_case,
    kept,
    measure_case,
    run_trial,
)
from tailrace.measure.method import Method, Place, Step, name_of, profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.search import SearchOptions
from tailrace.measure.session import Session, Tracing
from tailrace.results import Run
from tailrace.results.findings import ThroughputFinding
from tailrace.results.no_loss import NoLossRate
from tailrace.results.record import TrafficKind
from tailrace.spec.tests import Latency
from tailrace.spec.units import Rate

Throughput = Mapping[tuple[TrafficKind, int | None], NoLossRate]
"""By kind of traffic and number of functions (None: of a device)."""

#: Longer than the demo's: a rate that a longer trial is to confirm.
SEARCH = SearchOptions(trial_seconds=0.5, precision=0.03)


@dataclass(frozen=True)
class Timing:
    """How long the parts of a case take."""

    trial: float
    floor: float
    options: SearchOptions = field(default_factory=SearchOptions)
    patient: Callable[[], bool] = lambda: True
    """Whether there is time to repeat a trial that did not confirm its search."""

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
    session: Session,
    place: Place,
    cases: Iterable[Case],
    timing: Timing,
    *,
    with_floor: bool,
    throughput: Throughput | None = None,
) -> None:
    """Measures the cases in order; with the floor of each at its rate, where it has functions.

    The no-loss rate is searched for once for each profile and length of chain, unless `throughput` has it: what a trial
    has left of it holds for those that follow.
    """
    known: dict[tuple[TrafficKind, int | None], NoLossRate] = dict(throughput or {})
    for case in cases:
        place.lead(session, case.functions)

        def measure_floor(rate: float, case: Case = case) -> None:
            if with_floor and case.functions:
                _measure_floor(session, place, case, rate, timing.floor)

        trial = measure_case(
            session.measure,
            session.folder,
            case,
            timing.options,
            known=known_rate(known, case.profile.kind, case.functions),
            measure_floor=measure_floor,
            # A throughput that was measured stands: what is lost at it is a result.
            patient=timing.patient if throughput is None else lambda: False,
        )
        if trial.searched is not None:
            known[case.profile.kind, case.functions] = trial.searched


def _measure_floor(session: Session, place: Place, case: Case, rate: float, seconds: float) -> None:
    floor = replace(floor_case(case), seconds=seconds, rate=Rate(pps=rate))
    place.lead(session, 0)
    kept(session.folder, floor, run_trial(session.measure, session.folder, floor, rate, None), rate)


def throughput_of(run: Run) -> Throughput:
    """The rates without loss that `measure throughput` found; of several rounds the median."""
    found: dict[tuple[TrafficKind, int | None], list[NoLossRate]] = {}
    for finding in run.findings:
        if isinstance(finding, ThroughputFinding) and finding.valid:
            for goal in finding.goals:
                if goal.loss_ratio == 0 and goal.pps > 0:
                    rate = NoLossRate(pps=goal.pps, upper_pps=goal.upper_pps, limit=goal.limit)
                    found.setdefault((finding.traffic_kind, finding.functions), []).append(rate)
    return {key: _median(rates) for key, rates in found.items()}


def known_rate(throughput: Throughput, kind: TrafficKind, functions: int | None) -> NoLossRate | None:
    """What is known for such traffic; of a run that does not say of how many flows or which capture, by its profile."""
    return throughput.get((kind, functions)) or throughput.get((TrafficKind(kind.profile), functions))


def _median(rates: Sequence[NoLossRate]) -> NoLossRate:
    """The median of several rounds; one whose limit was the tester's is enough for that to be the limit."""
    limit = next((rate.limit for rate in rates if rate.bound), rates[0].limit)
    upper = max((rate.upper_pps for rate in rates if rate.upper_pps is not None), default=None)
    return NoLossRate(pps=median(rate.pps for rate in rates), upper_pps=upper, limit=limit)


def _through(kind: TrafficKind, functions: int | None) -> str:
    """64 of 1 flow through 1 function, day.pcap through a device"""
    what = kind.capture or (kind.profile if kind.flows is None else f"{kind.profile} of {_number(kind.flows, 'flow')}")
    return f"{what} through {'a device' if functions is None else _number(functions, 'function')}"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class LatencyMethod(Method[Latency]):
    """`tailrace measure latency`."""

    floor: bool = False
    tracing: Tracing = field(default_factory=Tracing)
    throughput: Throughput | None = None
    """What a rate in percent is of; None: of a no-loss rate, to be searched for."""

    name = "latency"

    def steps(self, tests: Sequence[Latency], place: Place) -> list[Step]:
        if self.throughput is not None and all(rate.fraction is None for test in tests for rate in test.rate):
            raise Mistake("--of: no rate is in percent, so none is of that run; expected a --rate in percent: 50%")
        steps: list[Step] = []
        for test in tests:
            timing = Timing(test.duration, min(test.duration, 10.0), SEARCH)
            for profile in profiles_of(test):
                name = name_of(profile, place, [step.name for step in steps])
                cases = [
                    Case(
                        f"{name}-at-{rate}" if len(test.rate) > 1 else name,
                        profile,
                        place.functions,
                        rate,
                        test.duration,
                    )
                    # The highest first: if it loses frames, the no-loss rate is lowered, for the others too.
                    for rate in sorted(test.rate, key=lambda rate: -(rate.fraction or 0.0))
                ]
                searches = [case for case in cases if case.rate.fraction is not None]
                if self.throughput is not None and searches:
                    self._check_known(profile, place)
                seconds = sum(timing.of(case, with_floor=self.floor and bool(case.functions)) for case in cases)
                seconds -= timing.search * max(len(searches) - (self.throughput is None), 0)
                work = partial(self._measure, place=place, cases=cases, timing=timing)
                steps.append(Step(name, seconds, work))
        return steps

    def _check_known(self, profile: Profile, place: Place) -> None:
        if known_rate(self.throughput or {}, profile.kind, place.functions) is None:
            known = ", ".join(_through(*each) for each in self.throughput or {})
            raise Mistake(
                f"--of: no throughput of {_through(profile.kind, place.functions)} is in that run; "
                f"it has {known or 'none'}"
            )

    def _measure(self, session: Session, place: Place, cases: list[Case], timing: Timing) -> None:
        measure(session, place, cases, timing, with_floor=self.floor, throughput=self.throughput)

    def begin(self, session: Session) -> None:
        self.tracing.begin(session)

    def end(self, session: Session) -> None:
        self.tracing.end(session)
