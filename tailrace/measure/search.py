"""The search for the no-loss rate: logic without I/O. The measurer is an argument, so a simulated device under test is
both the example and the unit test.

    search(lambda rate, seconds: Outcome(clean=rate <= 1_234_567, forwarded=min(rate, 1_300_000)), SearchOptions())

A rate counts only if in a trial at it every frame sent came back once and in order, and no foreign one did (RFC 2544,
section 26.1, with duplication and order added). Up to 2 % of the frames offered may stay unsent
(`latency.UNSENT_TOLERANCE`); the trial that is measured in the end shows how many did. Trials are short: the answer is
a place to start from, which the measured trial, longer and at a fraction of it, then has to bear out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.errors import Failure


@dataclass(frozen=True)
class Outcome:
    """What a trial at one rate came to, in the worse direction."""

    clean: bool
    """Nothing lost, duplicated, out of sequence or foreign, and the tester kept the rate."""
    forwarded: float
    """Frames a second that came back."""
    kept_up: bool = True
    """The tester sent at the rate asked for, or at most 2 % less."""


@dataclass(frozen=True)
class SearchOptions:
    """How long and how fine to look."""

    trial_seconds: float = 0.2
    precision: float = 0.05
    """Stop when the lowest rate that failed is at most so much above the highest that did not."""
    most_trials: int = 10
    repeats: int = 2
    """How often a rate that failed is tried before it counts as failed (ETSI GS NFV-TST 009, 12.3.3: a burst of
    somebody else's work on the machine must not decide)."""
    lowest_pps: float = 1000.0
    highest_pps: float = 200e6


Measure = Callable[[float, float], Outcome]
"""Sends at a rate (frames a second in each direction; 0: as fast as possible) for so many seconds."""


def search(measure: Measure, options: SearchOptions = SearchOptions()) -> float:
    """The highest rate in each direction, in frames a second, that was found to lose nothing.

    Raises Failure if frames are lost even at `lowest_pps`.
    """
    top = max(min(measure(0.0, options.trial_seconds).forwarded, options.highest_pps), options.lowest_pps)
    low, high = 0.0, top * 1.05
    spent = 1
    rate = top * 0.9
    while spent < options.most_trials and (low == 0.0 or high > low * (1 + options.precision)):
        clean = False
        for _ in range(options.repeats):
            spent += 1
            clean = measure(rate, options.trial_seconds).clean
            if clean or spent >= options.most_trials:
                break
        if clean:
            low = rate
        else:
            high = rate
        # Without a clean rate yet, come down fast; what a saturated device forwards can be far above what it loses at.
        rate = (low + high) / 2 if low else max(high * 0.7, options.lowest_pps)
        if high <= options.lowest_pps:
            break
    return low or _from_below(measure, options, high)


def _from_below(measure: Measure, options: SearchOptions, high: float) -> float:
    """A last word at falling rates, when the trials ran out before any rate was clean."""
    rate = high
    last = Outcome(False, 0.0)
    while rate > options.lowest_pps:
        rate = max(rate / 2, options.lowest_pps)
        last = measure(rate, options.trial_seconds)
        if last.clean:
            return rate
    if not last.kept_up:
        raise Failure(
            f"the tester cannot keep even {options.lowest_pps:.0f} frames a second: something else uses its core "
            "(see `top`); end that, and measure again"
        )
    raise Failure(
        f"frames are lost even at {options.lowest_pps:.0f} frames a second (or repeated, out of sequence, or not the "
        "tester's own), so there is no rate without loss"
    )
