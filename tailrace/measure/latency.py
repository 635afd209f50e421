"""Latency of a chain, profile by profile: search for the no-loss rate, then one measured trial at a part of it.

Both directions run at once; the worse one is the headline. Nothing here starts or ends a process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tailrace.errors import Failure
from tailrace.measure.profile import Profile
from tailrace.measure.search import SearchOptions, no_loss_rate
from tailrace.measure.tester import Stopped
from tailrace.measure.trials import Measurer, Trials, confirms, judge, whole
from tailrace.process.process import undisturbed
from tailrace.results import ResultError, Trial
from tailrace.results.findings import SearchTrial
from tailrace.results.no_loss import NoLossRate
from tailrace.spec.units import Rate

#: Seconds to wait for the last frames: of a search's trial, and of a measured one.
SEARCH_WAIT = 0.06
TRIAL_WAIT = 0.5
#: A measured trial that loses frames below what the search found shows that the search was too hopeful: another
#: follows at a lower rate, so many in all, each time at this part of it.
RETRIES = 3
RETRY_FACTOR = 0.75

Progress = Callable[[str, float], None]
"""Told what is being done and the seconds of it that are done since the last word."""


class Keeper(Protocol):
    """Where results go: a run folder."""

    def add_trial(
        self,
        result: dict[str, Any],
        *,
        name: str,
        profile: str,
        functions: int | None,
        offered_pps: float,
        searched: NoLossRate | None = None,
        confirmed: bool = False,
        rate_fraction: float | None = None,
        attempt: int | None = None,
        flows: int | None = None,
        capture: str | None = None,
    ) -> Trial: ...

    def invalidate(self, reason: str) -> None: ...


@dataclass(frozen=True)
class Case:
    """One profile through one chain."""

    name: str
    profile: Profile
    functions: int | None
    """How many in the chain; None of a device."""
    rate: Rate
    seconds: float

    def pps(self, searched: NoLossRate | None) -> float:
        """Its rate in frames a second, where that may be a part of a no-loss rate."""
        if searched is None or self.rate.fraction is None:
            return self.rate.pps or 0.0
        return searched.pps * self.rate.fraction


def find_no_loss_rate(measure: Measurer, case: Case, options: SearchOptions) -> NoLossRate:
    """The no-loss rate that short trials find. Raises Failure if there is none."""
    label = f"{case.name}: looking for the no-loss rate"
    trials = Trials(measure, case.profile, label, SEARCH_WAIT, short_repeats=0)
    bounds = no_loss_rate(trials, whole, options)
    upper = bounds.high if bounds.high < float("inf") else None
    # Nobody asked for a rate here: it looked as high as the tester had sent.
    return NoLossRate(pps=bounds.low, upper_pps=upper, limit="tester" if bounds.limit == "rate" else bounds.limit)


def measure_case(
    measure: Measurer,
    keep: Keeper,
    case: Case,
    options: SearchOptions,
    *,
    known: NoLossRate | None = None,
    measure_floor: Callable[[float], None] = lambda _: None,
    patient: Callable[[], bool] = lambda: True,
) -> Trial:
    """Searches where the rate is a part of a no-loss rate (unless that is known), measures, and keeps the trial.

    This is the rule of all methods: a no-loss rate is one only if a trial of full length confirms it. One at a part of
    it that loses frames, or whose frames the device does not take, is kept as an attempt, and is followed by another at
    a rate lower by a quarter, as long as `patient` says that there is time and there are `RETRIES`; one in which the
    tester itself fell short is repeated once at its rate before that. The last one stands, whatever it shows.
    `measure_floor` is called with its rate right after it, to measure the floor at that very rate.
    """
    searched: NoLossRate | None = None
    if case.rate.fraction is not None:
        searched = known or find_no_loss_rate(measure, case, options)
    excused = False
    for attempt in range(1, RETRIES + 2):
        rate = case.pps(searched)
        result = run_trial(measure, keep, case, rate, searched)
        if searched is None or confirms(result, rate, case.seconds) or attempt > RETRIES or not patient():
            break
        kept(keep, case, result, rate, searched, attempt=attempt)
        trial = judge(result, rate, case.seconds)
        # The first time the tester itself fell short does not count against the device.
        excused = whole(trial) and trial.fell_short == "tester" and not excused
        if not excused:
            searched = _lowered(searched, trial)
    try:
        measure_floor(rate)
    finally:  # the trial stands, whatever becomes of its floor; kept after it, so that it gets its share
        made = kept(keep, case, result, rate, searched)
    return made


def _lowered(searched: NoLossRate, trial: SearchTrial) -> NoLossRate:
    """What is looked at next, after a trial that did not confirm a rate."""
    limit = trial.fell_short if whole(trial) and trial.fell_short else "loss"
    return NoLossRate(pps=searched.pps * RETRY_FACTOR, upper_pps=trial.offered_pps, limit=limit)


def run_trial(measure: Measurer, keep: Keeper, case: Case, rate: float, searched: NoLossRate | None) -> dict[str, Any]:
    """One measured trial. If it is cut short, what it measured is kept before the cause goes on its way."""
    try:
        return measure(case.profile.streams(rate), case.seconds, TRIAL_WAIT, f"{case.name}: measuring")
    except Stopped as stopped:
        with undisturbed():
            keep.invalidate(str(stopped))
            if stopped.result is not None:
                # A trial that ended by itself, because its port went down, was cut short no less.
                kept(keep, case, {**stopped.result, "stopped": True}, rate, searched)
        raise


def kept(
    keep: Keeper,
    case: Case,
    result: dict[str, Any],
    rate: float,
    searched: NoLossRate | None = None,
    *,
    attempt: int | None = None,
) -> Trial:
    """Puts a result into the run folder: of the trial that stands, or of an attempt that another follows."""
    try:
        return keep.add_trial(
            result,
            name=case.name if attempt is None else f"{case.name}-attempt-{attempt}",
            **case.profile.kind._asdict(),
            functions=case.functions,
            offered_pps=rate,
            searched=searched,
            confirmed=searched is not None and confirms(result, rate, case.seconds),
            rate_fraction=case.rate.fraction,
            attempt=attempt,
        )
    except ResultError as error:
        raise Failure(str(error)) from None


def floor_case(case: Case) -> Case:
    """The floor to set against a chain's case: the same traffic without functions."""
    return replace(case, name=f"floor-for-{case.name}", functions=0)
