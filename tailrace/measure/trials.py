"""Trials of a search: run, judged and written down, all of them.

What a trial says depends on what was really sent. Frames that were not sent are never lost; a trial in which the tester
fell short is said to be one and repeated, and is evidence for the rate that was sent, never against the device.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tailrace.errors import Failure
from tailrace.measure.profile import Profile
from tailrace.results.findings import SearchTrial
from tailrace.results.record import FAULTS, UNSENT_TOLERANCE
from tailrace.spec.tests import RFC_2544_SETTLE

_log = logging.getLogger(__name__)

#: Why a finding is not valid that was left before its end, wherever that was.
CUT_SHORT = "stopped before its end"
#: How often a trial is repeated in which the tester fell short.
SHORT_REPEATS = 2


class Measurer(Protocol):
    """What runs a trial: the tester, or in tests a simulated device."""

    def __call__(self, streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]: ...


class OutOfTrials(Exception):
    """As many trials as were allowed have been made."""


def is_whole(result: dict[str, Any]) -> bool:
    """Whether every frame that was sent came back, once and in order, and nothing else came."""
    return not any(stream[fault] for stream in result["streams"] for fault in FAULTS)


def whole(trial: SearchTrial) -> bool:
    """The same of a trial of a search."""
    return not any(getattr(trial, fault) for fault in FAULTS)


def kept_up(result: dict[str, Any], rate: float, seconds: float) -> bool:
    """Whether the tester sent what it was asked to, but for `UNSENT_TOLERANCE`; a rate of 0 is as much as it can."""
    if rate == 0:
        return all(stream["sent"] for stream in result["streams"])
    least = (1 - UNSENT_TOLERANCE) * rate * seconds - 1
    return all(stream["sent"] >= least for stream in result["streams"])


def short_of(trial: SearchTrial) -> Literal["tester", "refused"]:
    """Whose doing it is that frames stayed unsent: the tester's, or the device's that did not take them."""
    return "refused" if 2 * trial.refused >= trial.unsent > 0 else "tester"


def judge(result: dict[str, Any], rate: float, seconds: float) -> SearchTrial:
    """What a trial came to, from the tester's result."""
    streams = result["streams"]
    total = {
        name: sum(int(stream.get(name, 0)) for stream in streams)
        for name in ("sent", "unsent", "refused", "lost", "duplicate", "out_of_sequence", "beyond_window", "foreign")
    }
    # By the trial's whole time: a tester that was held up receives what had gathered in no time at all.
    sent = min(stream["sent"] for stream in streams) / seconds
    trial = SearchTrial(
        offered_pps=rate,
        duration_s=seconds,
        **total,
        sent_pps=min(sent, rate) if rate else sent,
        forwarded_pps=min(stream["received"] - stream["duplicate"] for stream in streams) / seconds,
        loss_ratio=max((stream["lost"] / stream["sent"] if stream["sent"] else 0.0) for stream in streams),
        fell_short=None,
    )
    return trial if kept_up(result, rate, seconds) else trial.model_copy(update={"fell_short": short_of(trial)})


def confirms(result: dict[str, Any], rate: float, seconds: float) -> bool:
    """Whether a trial of full length shows that its rate is one without loss, whatever short ones have said: it was
    sent, and all of it came back, once and in order."""
    return not result.get("stopped") and is_whole(result) and kept_up(result, rate, seconds)


@dataclass(frozen=True)
class Settle:
    """How long the device is left alone before a trial."""

    seconds: float = 0.0
    least: float = 0.0
    """Only before trials of so many seconds: a search's short ones would take minutes."""

    @classmethod
    def asked(cls, settle: float | None, duration: float) -> Settle:
        """As a test says; unless it does, RFC 2544's before trials of full length."""
        return cls(RFC_2544_SETTLE, duration) if settle is None else cls(settle)

    def before(self, seconds: float) -> float:
        """The pause before a trial of so many seconds."""
        return self.seconds if seconds >= self.least * (1 - 1e-6) else 0.0  # a library's sum may be short of it


@dataclass
class Trials:
    """The trials of one profile: each is run with this traffic and these pauses, and none is left out."""

    measure: Measurer
    profile: Profile
    label: str
    wait: float = 0.06
    """Seconds to wait for the last frames."""
    settle: Settle = Settle()
    most: int = 100
    short_repeats: int = SHORT_REPEATS
    made: list[SearchTrial] = field(default_factory=list)
    pause: Callable[[float], None] = time.sleep

    def run(self, rate: float, seconds: float) -> SearchTrial:
        """One trial at a rate (0: as fast as possible), repeated if the tester fell short without a frame lost.

        Raises OutOfTrials if there may be no more, Failure if the tester could send nothing at all.
        """
        for _ in range(1 + self.short_repeats):
            trial = self._once(rate, seconds)
            if trial.fell_short != "tester" or trial.lost:
                break
        if not trial.sent:
            raise Failure(f"{self.label}: no frame could be sent; see the logs of the run for the reason")
        return trial

    def _once(self, rate: float, seconds: float) -> SearchTrial:
        if len(self.made) >= self.most:
            raise OutOfTrials
        if pause := self.settle.before(seconds):
            self.pause(pause)
        streams = self.profile.streams(rate)
        trial = judge(self.measure(streams, seconds, self.wait, self.label), rate, seconds)
        self.made.append(trial)
        offered = f"{rate / 1e6:.4f} Mpps" if rate else "as fast as possible"
        _log.info("%s: %s for %g s: %d sent, %d lost", self.label, offered, seconds, trial.sent, trial.lost)
        return trial
