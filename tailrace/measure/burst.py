"""Back-to-back frames (RFC 9004): the longest burst, sent as fast as possible, of which no frame is lost.

It is searched for by binary search with loss verification, several times; the average is the benchmark, and with the
throughput it shows how long the device's buffer lasts (section 6.4). A device that holds the sender back instead of
dropping frames has no such buffer to be filled: the finding says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from tailrace.errors import Failure
from tailrace.measure.method import Method, Place, Step, name_of, profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.search import Bounds, Range, SearchOptions, Tried, bracket, no_loss_rate
from tailrace.measure.session import Session
from tailrace.measure.tester import Stopped
from tailrace.measure.trials import CUT_SHORT, Measurer, Settle, Trials
from tailrace.results.findings import BurstFinding
from tailrace.spec.tests import Burst

#: How often a burst must lose frames before that counts (TST 009, 12.3.3).
REPEATS = 2
#: How long the search for rate and throughput beforehand measures at each rate, in seconds.
BEFOREHAND = SearchOptions(trial_seconds=0.5, precision=0.02, most_trials=20)
#: Where every repetition begins to look, in frames.
FIRST = 1024


@dataclass
class Bursts:
    """Bursts of one profile, and what they came to."""

    measure: Measurer
    profile: Profile
    label: str
    wait: float
    rate: float
    """How fast the tester can send, in frames a second."""
    settle: float = 0.0
    """Seconds before each burst."""
    pause: Callable[[float], None] = time.sleep
    sent: int = 0
    held_back: bool = False
    """Whether the device ever did not take frames as fast as they came."""
    lengths: list[int] = field(default_factory=list)

    def try_length(self, frames: float) -> Tried:
        """Whether a burst of so many frames comes back whole."""
        count = max(round(frames), 1)
        tried = Tried(False, count, "loss")
        for _ in range(REPEATS):
            if self.settle:
                self.pause(self.settle)
            streams = [{**stream, "count": count} for stream in self.profile.streams(0.0)]
            # Twice the time, for a device that takes them slowly.
            result = self.measure(streams, max(2 * count / self.rate, 0.01), self.wait, self.label)
            self.sent += 1
            self.held_back |= any(stream.get("held", 0) for stream in result["streams"])
            if not any(stream["lost"] for stream in result["streams"]):
                least = min(stream["sent"] for stream in result["streams"])
                tried = Tried(True, least, "refused")
                break
        return tried

    def search(self, longest: int, precision: float) -> Bounds:
        """One repetition; its length goes to `lengths`.

        All begin alike. One that began at the length before would mostly find that again, and the deviation of the
        lengths would say nothing of the device.
        """
        where = Range(min(FIRST, longest), 1, longest, precision, step=1)
        bounds = bracket(self.try_length, where)
        self.lengths.append(int(bounds.low))
        return bounds


def limit_of(bursts: Bursts, bounds: Sequence[Bounds]) -> Literal["loss", "refused", "longest"] | None:
    """What kept bursts from being longer: loss, if it did in most repetitions; in fewer the machine stumbled. None if
    no repetition came to its end."""
    if not bounds:
        return None
    if 2 * sum(each.limit == "loss" for each in bounds) > len(bounds):
        return "loss"
    return "refused" if bursts.held_back else "longest"


@dataclass(frozen=True)
class BurstMethod(Method[Burst]):
    """`tailrace measure burst`."""

    name = "burst"

    def steps(self, tests: Sequence[Burst], place: Place) -> list[Step]:
        steps: list[Step] = []
        for test in tests:
            for profile in profiles_of(test):
                name = name_of(profile, place, [step.name for step in steps])
                seconds = 10 + test.times * 20 * (test.wait + (test.settle or 0.0) + 0.05)
                steps.append(Step(name, seconds, partial(_measure, name=name, profile=profile, test=test, place=place)))
        return steps


def _measure(session: Session, name: str, profile: Profile, test: Burst, place: Place) -> None:
    place.lead(session, place.functions)
    settle = test.settle or 0.0
    label = f"{name}: throughput beforehand"
    trials = Trials(session.measure, profile, label, settle=Settle(settle), pause=session.pause)
    throughput, longest = 0.0, 0
    bounds: list[Bounds] = []
    reason: str | None = CUT_SHORT
    bursts = Bursts(session.measure, profile, f"{name}: bursts", test.wait, 0.0, settle, session.pause)
    try:
        throughput = no_loss_rate(trials, lambda trial: trial.loss_ratio == 0, BEFOREHAND).low
        bursts.rate = _fastest(trials)
        longest = max(round(test.longest * bursts.rate), 2)
        while len(bounds) < test.times:
            bounds.append(bursts.search(longest, test.precision))
        reason = None
    except (Stopped, Failure) as error:
        reason = str(error) or CUT_SHORT
        raise
    finally:
        if trials.made:
            rate = _fastest(trials)
            session.folder.add_finding(
                BurstFinding(
                    name=name,
                    **profile.kind._asdict(),
                    functions=place.functions,
                    valid=reason is None,
                    reason=reason,
                    frames=tuple(bursts.lengths),
                    longest=longest,
                    step=max(1, round(test.precision * min(bursts.lengths, default=0))),
                    rate_pps=rate,
                    throughput_pps=min(throughput, rate),
                    limit=limit_of(bursts, bounds),
                    trials=bursts.sent,
                    beforehand=tuple(trials.made),
                )
            )


def _fastest(trials: Trials) -> float:
    """How fast the tester sent at most, in frames a second."""
    return max(trial.sent_pps for trial in trials.made)
