"""Latency of a chain, profile by profile: search for the no-loss rate, then one measured trial at a part of it.

Both directions run at once; the worse one is the headline. Nothing here starts or ends a process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tailrace.errors import Failure
from tailrace.measure.profile import Profile
from tailrace.measure.search import SearchOptions, no_loss_rate
from tailrace.measure.tester import Stopped
from tailrace.measure.trials import Measurer, Trials, judge, whole
from tailrace.results import ResultError, Trial
from tailrace.results.findings import SearchTrial
from tailrace.spec import Rate

#: Seconds to wait for the last frames: of a search's trial, and of a measured one.
SEARCH_WAIT = 0.06
TRIAL_WAIT = 0.5
#: A measured trial that loses frames below what the search found shows that the search was too hopeful: it is
#: repeated at a lower rate, this often, each time this much lower.
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
        no_loss_pps: float | None = None,
        rate_fraction: float | None = None,
        flows: int | None = None,
        capture: str | None = None,
    ) -> Trial: ...

    def note(self, text: str) -> None: ...

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


def find_no_loss_rate(measure: Measurer, keep: Keeper, case: Case, options: SearchOptions) -> float:
    """The no-loss rate in each direction, in frames a second; a note says so if it was not found as closely as meant,
    or is that of the tester.

    Raises Failure if there is none.
    """
    label = f"{case.name}: looking for the no-loss rate"
    trials = Trials(measure, case.profile, label, SEARCH_WAIT, short_repeats=0)
    bounds = no_loss_rate(trials, whole, options)
    if bounds.limit == "trials":
        upper = f"and {bounds.high / 1e6:.4g} Mpps" if bounds.high < float("inf") else "Mpps and what can be sent"
        keep.note(
            f"{case.name}: the no-loss rate lies between {bounds.low / 1e6:.4g} {upper}; the {len(trials.made)} short "
            f"trials that there are for it did not bring it to within {options.precision:.0%}"
        )
    elif bounds.limit in ("tester", "rate"):
        keep.note(
            f"{case.name}: in trials of {options.trial_seconds:g} s nothing was lost as fast as the tester itself "
            "could send on its core, so the no-loss rate to start from is the tester's, and the device's may be higher"
        )
    return bounds.low


def measure_case(
    measure: Measurer,
    keep: Keeper,
    case: Case,
    options: SearchOptions,
    *,
    known_no_loss: float | None = None,
    measure_floor: Callable[[float], None] = lambda _: None,
    patient: Callable[[], bool] = lambda: True,
) -> Trial:
    """Searches where the rate is a fraction (unless the no-loss rate is known), measures, and keeps the trial.

    `measure_floor` is called with the trial's rate right after it, to measure the floor at that very rate.
    A measured trial below the searched rate that loses frames, or in which the device does not take them, is repeated
    lower as long as `patient` says that there is time, and a note says so; one in which the tester itself fell short is
    repeated once at its rate before that.
    """
    no_loss: float | None = None
    if case.rate.fraction is not None:
        no_loss = known_no_loss or find_no_loss_rate(measure, keep, case, options)
        rate = no_loss * case.rate.fraction
    else:
        rate = case.rate.pps or 0.0
    excused = False
    for attempt in range(RETRIES + 1):
        result = run_trial(measure, keep, case, rate, no_loss)
        trial = judge(result, rate, case.seconds)
        good = whole(trial) and trial.fell_short is None
        if no_loss is None or good or attempt == RETRIES or not patient():
            break
        # The first time the tester itself fell short does not count against the device.
        excused = whole(trial) and trial.fell_short == "tester" and not excused
        keep.note(f"{case.name}: {_why_again(trial)}, so the trial was repeated" + ("" if excused else _LOWER))
        if not excused:
            no_loss *= RETRY_FACTOR
            rate = no_loss * (case.rate.fraction or 1.0)
    try:
        measure_floor(rate)
    finally:  # the trial stands, whatever becomes of its floor; kept after it, so that it gets its share
        made = kept(keep, case, result, rate, no_loss)
    return made


_LOWER = f" at a rate lower by {1 - RETRY_FACTOR:.0%}"


def _why_again(trial: SearchTrial) -> str:
    """What was wrong with a trial, for people."""
    if whole(trial):
        who = "the device did not take" if trial.fell_short == "refused" else "the tester itself could not send"
        offered = trial.sent + trial.unsent
        return f"at {trial.offered_pps / 1e6:.4g} Mpps {who} {trial.unsent:,} of {offered:,} frames, and none was lost"
    return (
        f"a trial at {trial.offered_pps / 1e6:.4g} Mpps lost {trial.lost:,} of {trial.sent:,} frames sent "
        f"({trial.duplicate + trial.out_of_sequence:,} duplicated or out of sequence, {trial.foreign:,} foreign, "
        f"{trial.unsent:,} unsent)"
    )


def run_trial(measure: Measurer, keep: Keeper, case: Case, rate: float, no_loss: float | None) -> dict[str, Any]:
    """One measured trial. If it is cut short, what it measured is kept before the cause goes on its way."""
    try:
        return measure(case.profile.streams(rate), case.seconds, TRIAL_WAIT, f"{case.name}: measuring")
    except Stopped as stopped:
        keep.invalidate(str(stopped))
        if stopped.result is not None:
            # A trial that ended by itself, because its port went down, was cut short no less.
            kept(keep, case, {**stopped.result, "stopped": True}, rate, no_loss)
        raise


def kept(keep: Keeper, case: Case, result: dict[str, Any], rate: float, no_loss: float | None) -> Trial:
    """Puts a result into the run folder."""
    try:
        return keep.add_trial(
            result,
            name=case.name,
            profile=case.profile.name,
            functions=case.functions,
            offered_pps=rate,
            no_loss_pps=no_loss,
            rate_fraction=case.rate.fraction,
            flows=case.profile.traffic.get("flows"),
            capture=Path(case.profile.traffic["pcap"]).name if "pcap" in case.profile.traffic else None,
        )
    except ResultError as error:
        raise Failure(str(error)) from None


def floor_case(case: Case) -> Case:
    """The floor to set against a chain's case: the same traffic without functions."""
    return replace(case, name=f"floor-for-{case.name}", functions=0)
