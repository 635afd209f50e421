"""The search for the highest rate that passes: logic without I/O. What tries a rate is an argument, so a simulated
device under test is both the example and the unit test.

    bounds = bracket(lambda rate: Tried(rate <= 1_234_567, rate, "loss"), Range(start=1_300_000))

A step up from the start, twice as wide each time, or down, four times as wide (a device that loses frames at any rate
is to be found out soon), until one rate has passed and one has failed; then halving what lies between, on a logarithmic
scale. Both the binary search of ETSI GS NFV-TST 009 (12.3.2; with loss
verification, 12.3.3) and that of RFC 2544 (26.1) are this with another idea of what a failure is (`verified`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tailrace.errors import Failure
from tailrace.measure.trials import OutOfTrials, Trials, short_of
from tailrace.results.findings import SearchTrial

LOWEST_PPS = 1000.0
HIGHEST_PPS = 200e6
#: What may be tried above what the tester sent when it sent as fast as it could: bursts of a paced sender differ.
HEADROOM = 1.05
#: A trial that loses more than this part counts at once (TST 009, 12.3.3: the threshold z), where it is used.
PLAIN_LOSS = 0.1


class NoRate(Failure):
    """The device loses frames at any rate."""


@dataclass(frozen=True)
class Tried:
    """What came of trying a rate."""

    passed: bool
    rate: float
    """What was really sent: where the rate passed, this is what it passed for."""
    limit: Literal["loss", "refused", "tester"]
    """What kept it from passing, or from being sent as it was meant, if anything did."""


@dataclass(frozen=True)
class Range:
    """Where to look, in frames a second, and how closely."""

    start: float
    lowest: float = LOWEST_PPS
    highest: float = HIGHEST_PPS
    precision: float = 0.005
    step: float = 0.0
    """Only multiples of it are tried: 1 where frames are counted. 0: any number."""
    resolution: float = 0.0
    """Bounds no farther apart than this are close enough, however low they are."""

    def width_at(self, rate: float) -> float:
        """How far apart bounds may be there."""
        return max(rate * self.precision, self.step, self.resolution)


@dataclass
class Bounds:
    """The highest rate that passed and the lowest that did not (or could not be sent), so far."""

    low: float = 0.0
    high: float = math.inf
    limit: Literal["loss", "refused", "tester", "rate", "trials"] = "rate"
    """What the upper bound is: `rate` where there was no more to try."""

    def learn(self, rate: float, tried: Tried, tolerance: float) -> None:
        """Takes in what came of a rate; one that was not sent to within `tolerance` is as far up as there is to go."""
        if tried.passed:
            self.low = max(self.low, min(tried.rate, rate))
            if self.low >= self.high:  # what was known from shorter trials is overruled
                self.high, self.limit = math.inf, "rate"
        if rate < self.high and not (tried.passed and tried.rate * (1 + tolerance) >= rate):
            self.high, self.limit = rate, tried.limit


def bracket(attempt: Callable[[float], Tried], where: Range, bounds: Bounds | None = None) -> Bounds:
    """Narrows the bounds down to the precision; what is known beforehand may be given. Never raises OutOfTrials."""
    bounds = bounds or Bounds()
    rate = min(max(where.start, where.lowest), where.highest)
    width = where.precision
    try:
        while True:
            if where.step:
                rate = where.step * round(rate / where.step)
            bounds.learn(rate, attempt(rate), where.precision / 4)
            if bounds.low and bounds.high <= bounds.low + where.width_at(bounds.low):
                return bounds
            if bounds.low and bounds.high < math.inf:
                rate = math.sqrt(bounds.low * bounds.high)
            elif bounds.low:
                if rate >= where.highest:
                    return bounds
                rate = min(max(bounds.low * (1 + width), bounds.low + where.step), where.highest)
                width *= 2
            else:
                if bounds.high <= where.lowest:
                    return bounds
                rate = max(min(bounds.high / (1 + width), bounds.high - where.step), where.lowest)
                width *= 4
    except OutOfTrials:
        bounds.limit = "trials"
        return bounds


def verified(
    trials: Trials, seconds: float, passes: Callable[[SearchTrial], bool], repeats: int, plain_loss: float = PLAIN_LOSS
) -> Callable[[float], Tried]:
    """Tries a rate up to `repeats` times until it passes: once is RFC 2544, more is loss verification by TST 009.

    A burst of somebody else's work on the machine must not decide; a loss of more than `plain_loss` does at once.
    """

    def attempt(rate: float) -> Tried:
        for _ in range(repeats):
            trial = trials.run(rate, seconds)
            if passes(trial):
                return Tried(True, trial.sent_pps, short_of(trial))
            if trial.loss_ratio > plain_loss:
                break
        return Tried(False, trial.sent_pps, "loss")

    return attempt


@dataclass(frozen=True)
class SearchOptions:
    """How long and how fine to look for a no-loss rate to start from."""

    trial_seconds: float = 0.2
    precision: float = 0.05
    most_trials: int = 24
    repeats: int = 2
    lowest_pps: float = LOWEST_PPS
    highest_pps: float = HIGHEST_PPS


def no_loss_rate(
    trials: Trials, passes: Callable[[SearchTrial], bool], options: SearchOptions = SearchOptions()
) -> Bounds:
    """The highest rate in each direction that was found to pass in short trials, and the lowest that did not.

    The lower bound is above zero: a place to start from, which a measured trial, longer and at a fraction of it, then
    has to confirm. If the trials ran out before the bounds were close, the limit is `trials`.
    Raises Failure if no rate passes down to the lowest.
    """
    trials.most = options.most_trials
    first = trials.run(0.0, options.trial_seconds)
    # What a saturated device forwards can be above the rate at which it begins to lose, or below it.
    start = min(max(first.forwarded_pps * 0.95, options.lowest_pps), options.highest_pps)
    highest = max(min(HEADROOM * max(first.sent_pps, first.forwarded_pps), options.highest_pps), start)
    where = Range(start, options.lowest_pps, highest, options.precision)
    attempt = verified(trials, options.trial_seconds, passes, options.repeats, plain_loss=1.0)
    bounds = bracket(attempt, where)
    return bounds if bounds.low else _from_below(trials, passes, options, min(bounds.high, start))


def _from_below(trials: Trials, passes: Callable[[SearchTrial], bool], options: SearchOptions, high: float) -> Bounds:
    """A last word at falling rates, when the trials ran out before any rate passed."""
    trials.most = len(trials.made) + 40
    rate = high
    while rate > options.lowest_pps:
        high, rate = rate, max(rate / 2, options.lowest_pps)
        trial = trials.run(rate, options.trial_seconds)
        if passes(trial):
            return Bounds(min(trial.sent_pps, rate), high, "trials")
    if trials.made[-1].fell_short == "tester":
        raise Failure(
            f"the tester cannot keep even {options.lowest_pps:.0f} frames a second: something else uses its core "
            "(see `top`); end that, and measure again"
        )
    raise NoRate(
        f"frames are lost even at {options.lowest_pps:.0f} frames a second (or repeated, out of sequence, or not the "
        "tester's own), so there is no rate without loss"
    )
