"""Multiple Loss Ratio search (RFC 9971) with FD.io's library, our tester as its measurer.

A goal is as RFC 9971 gives it for TST 009: a load passes if at least half of the time measured at it did, in trials of
the final duration. Frames that were not sent are never loss. A load that could not be offered is none to build on,
whoever's failing it was, so the library is given how much of it was missing and looks lower; what was sent without loss
is evidence for that rate all the same.
"""

from __future__ import annotations

import math

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from tailrace.errors import Failure
from tailrace.measure.search import Bounds
from tailrace.measure.trials import OutOfTrials, Trials
from tailrace.results.findings import SearchTrial
from tailrace.spec.tests import Throughput

#: The library's own end to a search, in seconds: ours is the number of trials.
_FOREVER = 1e9
#: Loads are the library's, which rounds them; these are the same.
_SAME = 1e-6


class _Measurer(AbstractMeasurer):  # type: ignore[misc]  # the library is not typed
    """Our trials as the library wants them; the worse direction is what counts."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        trial = self._trials.run(intended_load, intended_duration)
        offered = max(round(trial.sent_pps * trial.duration_s), 1)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=offered,
            # A single frame of millions is a loss too.
            loss_count=math.ceil(trial.loss_ratio * offered),
            intended_count=round(intended_load * intended_duration) if trial.fell_short else None,
        )


def multiple_loss_ratios(trials: Trials, test: Throughput, lowest: float, highest: float) -> list[Bounds]:
    """The bounds for each loss ratio of the test between two rates, in frames a second."""
    goals = [
        SearchGoal(
            loss_ratio=loss,
            exceed_ratio=0.5,
            relative_width=test.precision,
            initial_trial_duration=test.trial,
            final_trial_duration=test.duration,
            duration_sum=2 * test.duration,
            preceding_targets=2,
            fail_fast=False,
        )
        for loss in test.loss
    ]
    config = Config()
    config.goals = goals
    config.min_load, config.max_load = lowest, highest
    config.search_duration_max = _FOREVER
    config.warmup_duration = 0.0
    began = len(trials.made)
    try:
        found = MultipleLossRatioSearch(config).search(_Measurer(trials), debug=lambda _: None)
    except RuntimeError as error:
        raise Failure(f"{trials.label}: MLRsearch gave up: {error}") from None
    except OutOfTrials:
        return [_by_hand(trials.made[began:], loss, test.duration) for loss in test.loss]
    bounds = []
    for goal in goals:
        lower, upper = found[goal].relevant_lower_bound, found[goal].relevant_upper_bound
        bounds.append(
            _bounds(
                trials.made[began:],
                goal.loss_ratio,
                float(lower) if lower else 0.0,
                float(upper) if upper else math.inf,
                test.duration,
            )
        )
    return bounds


def _bounds(made: list[SearchTrial], loss: float, low: float, high: float, seconds: float) -> Bounds:
    """The library's bounds as we report them: by what was really sent, and with what the limit was."""
    # What passed at the upper bound or above it passed by chance: most of the time there was lossy.
    passed = [
        trial for trial in made if trial.duration_s >= seconds and trial.loss_ratio <= loss and trial.sent_pps < high
    ]
    sent = [trial.sent_pps for trial in passed if trial.fell_short or trial.offered_pps <= low * (1 + _SAME)]
    if high == math.inf:
        return Bounds(max(sent, default=0.0), high, "rate")
    at_high = [trial for trial in made if abs(trial.offered_pps - high) <= high * _SAME]
    lossy = any(trial.loss_ratio > loss for trial in at_high)
    # The last one: those before it may have been repeated because they did not count.
    short = next((trial.fell_short for trial in reversed(at_high) if trial.fell_short), None)
    return Bounds(max(sent, default=0.0), high, "loss" if lossy or short is None else short)


def _by_hand(made: list[SearchTrial], loss: float, seconds: float) -> Bounds:
    """What can be said when the trials ran out: the highest rate that passed below all that failed."""
    failed = min((trial.offered_pps for trial in made if trial.loss_ratio > loss), default=math.inf)
    passed = [
        trial.sent_pps
        for trial in made
        if trial.loss_ratio <= loss and trial.offered_pps < failed and trial.duration_s >= seconds
    ]
    return Bounds(max(passed, default=0.0), failed, "trials")
