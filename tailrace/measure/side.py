"""One side of a comparison: what is measured of it, and the figures that are set against another side's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.measure.latency import (
    SEARCH_WAIT,
    TRIAL_WAIT,
    Case,
    find_no_loss_rate,
    kept,
    measure_case,
    run_trial,
)
from tailrace.measure.method import profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.search import SearchOptions
from tailrace.measure.session import Session
from tailrace.results import Trial
from tailrace.results.comparison import NO_LOSS_FIGURE
from tailrace.results.no_loss import NoLossRate
from tailrace.spec.tests import Latency
from tailrace.spec.units import Rate

#: Figures of latency that ratios are made of; where sides have no-loss rates of their own, of these too.
LATENCY_FIGURES = ("p50_us", "p90_us", "p99_us", "p99.9_us", "max_us")
FIGURES = (NO_LOSS_FIGURE, *LATENCY_FIGURES)
SEARCH = SearchOptions()


@dataclass(frozen=True)
class Load:
    """One kind of load at one rate."""

    name: str
    """Unique among those of a run: 64, imix, 64-at-50."""
    profile: Profile
    rate: Rate
    seconds: float

    def case(self, name: str, functions: int | None) -> Case:
        return Case(f"{self.name}-{name}", self.profile, functions, self.rate, self.seconds)

    @property
    def duration(self) -> float:
        """Seconds that measuring it takes, with its search where it has one, if the first trial stands."""
        found = 10 * (SEARCH.trial_seconds + SEARCH_WAIT) if self.rate.fraction is not None else 0.0
        return self.seconds + TRIAL_WAIT + found


def loads_of(tests: Sequence[Latency]) -> list[Load]:
    """The loads of latency tests, each with a name of its own. Raises Mistake if a capture file cannot be used."""
    loads: list[Load] = []
    for test in tests:
        for profile in profiles_of(test):
            for rate in test.rate:
                base = profile.name if len(test.rate) == 1 else f"{profile.name}-at-{rate}"
                taken = sum(load.name == base or load.name.startswith(f"{base}-again-") for load in loads)
                loads.append(Load(f"{base}-again-{taken}" if taken else base, profile, rate, test.duration))
    return loads


def measured(session: Session, case: Case) -> Trial:
    """The trial of a case at its rate; kept. At a part of a no-loss rate that is looked for, and confirmed by the rule
    for all methods (`measure_case`)."""
    return measure_case(session.measure, session.folder, case, SEARCH)


def no_loss(session: Session, case: Case) -> NoLossRate:
    """The no-loss rate that short trials find. Raises Failure if there is none."""
    return find_no_loss_rate(session.measure, case, SEARCH)


def at_rate(session: Session, case: Case, rate: float) -> Trial:
    """One measured trial at a rate that has been decided, whatever it shows; kept."""
    return kept(session.folder, case, run_trial(session.measure, session.folder, case, rate, None), rate)


def figures(trial: Trial, searched: NoLossRate | None = None) -> dict[str, float]:
    """What is compared: the no-loss rate that was looked for beside a trial; and of the trial percentiles of the worse
    direction in µs, lost frames as a part of those sent, its median as a multiple of the tester's own, where that is
    known, and the part of the frames offered that was sent.
    """
    found: dict[str, float] = {}
    if searched is not None:
        found[NO_LOSS_FIGURE] = round(searched.pps / 1e6, 6)
    worse = trial.worse
    found["mpps"] = worse.mpps
    found["loss_ratio"] = worse.loss_ratio
    latency = worse.latency_us
    if latency is not None:
        found |= {
            "p50_us": latency.p50,
            "p90_us": latency.p90,
            "p99_us": latency.p99,
            "p99.9_us": latency.p99_9,
            "max_us": latency.max,
        }
    if trial.floor_ratio is not None:
        found["floor_ratio"] = trial.floor_ratio
    if trial.sent_ratio is not None:
        found["sent_ratio"] = trial.sent_ratio
    return found
