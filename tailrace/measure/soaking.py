"""One part of a soak: the tester's records put into the interval log, as they come, until its time is up.

The tester hands over a record of each interval (`dataplane/tester/records.h`), which is in the log, on disk, before the
next one ends; so whatever happens to this process or to the machine, what was measured is there. Neither the tester nor
this process holds more after a week than after a minute.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tailrace.errors import Failure, Fault
from tailrace.kernel.boot import boot_id
from tailrace.measure.hop_meter import LOOK, HopMeter
from tailrace.measure.latency import TRIAL_WAIT
from tailrace.measure.tester import Stopped
from tailrace.measure.wall_clock import clock_step
from tailrace.process.control import Control
from tailrace.process.process import undisturbed
from tailrace.results.histogram import Histogram, from_tester
from tailrace.results.interval_log import IntervalLog
from tailrace.results.intervals import End, Interval, Part, Way
from tailrace.results.soak import SUMMED, Totals

#: How often the switch and the processes are looked at, in seconds. The tester's core may be this process's too.
_LOOK = 2.0
#: A tester that has been told to end, and still has not after so many seconds, is left: somebody else has its core.
_PATIENCE = 10.0
#: Less than this is not worth a start of its own, in seconds.
SHORTEST = 0.5


class Soaked(Protocol):
    """The tester that soaks."""

    control: Control

    def begin(
        self, streams: list[dict[str, Any]], seconds: float, *, wait: float, interval: float, more: dict[str, Any]
    ) -> None: ...

    def cut_short(self, wait: float) -> dict[str, Any] | None: ...


@dataclass
class Soaking:
    """One part of a soak: from the tester's start to its end."""

    tester: Soaked
    log: IntervalLog
    totals: Totals
    """What is in the log already, and what is added."""
    check: Callable[[], None]
    """Raises if something that the soak depends on has broken."""
    progress: Callable[[float], None]
    """Told the seconds measured, of the whole soak."""
    tell: Callable[[str], None]
    """Told, in a sentence, what whoever watches should know."""
    hops: HopMeter | None = None
    """Where single frames are followed."""
    offset: float = 0.0
    """Start of this part, in seconds after the start of the soak."""
    _before: dict[str, dict[str, Any]] = field(default_factory=dict)
    _clock: float = 0.0
    _kept: int = 0

    def run(self) -> None:
        """Measures what is missing. Raises Stopped if it is cut short; what was measured then is in the log."""
        header = self.log.header
        seconds = header.duration_s - self.totals.measured_s
        if seconds < SHORTEST:
            return
        try:
            self._begin()
            try:
                streams = list(header.streams)
                followed = self.hops.begin(streams, seconds) if self.hops else {}
                self.tester.begin(
                    streams,
                    seconds,
                    wait=TRIAL_WAIT,
                    interval=max(0.1, seconds / 600),
                    more={"record": header.interval_s, **followed},
                )
                self._follow()
            except (Exception, KeyboardInterrupt) as error:
                with undisturbed():
                    self.tester.cut_short(TRIAL_WAIT)
                    self.last_words(str(error) or "interrupted")
                raise
        except (Exception, KeyboardInterrupt) as error:
            raise Stopped(self._explained(error), None) from error

    def _begin(self) -> None:
        boot_time = time.clock_gettime(time.CLOCK_BOOTTIME)
        part = Part(self.totals.parts + 1, 0.0, time.time(), boot_id(), boot_time)
        first = self.totals.first
        if first is not None:
            if first.boot == part.boot:
                self.offset = first.offset_s + part.boot_time - first.boot_time
            else:  # only the clock on the wall has run all the time
                self.offset = first.offset_s + part.started_at - first.started_at
            if self.offset < self.totals.end_s:
                self.tell(
                    "the machine's clock was set back after the soak began, so the length of the gap is not known"
                )
                self.offset = self.totals.end_s
            part = replace(part, offset_s=self.offset)
        self.log.begin(part)
        self.totals.add(part)
        self._clock = time.time() - time.monotonic()

    def _follow(self) -> None:
        interval = self.log.header.interval_s
        before = self.totals.measured_s
        began = time.monotonic()
        looked = 0.0
        while not self._take():
            due = began + (self._kept + 1) * interval + min(TRIAL_WAIT, interval / 2) + 0.02
            self._sleep(max(min(due - time.monotonic(), _LOOK), min(interval / 4, 0.1)))
            if time.monotonic() - looked > min(_LOOK, interval) / 2:
                looked = time.monotonic()
                self.check()
                self.progress(before + time.monotonic() - began)
        status = self.tester.control.call("trial.status")
        if status["state"] == "failed":
            raise Fault(f"the tester failed: {status['reason']}")
        self._end(End(None))

    def _sleep(self, seconds: float) -> None:
        """Leaves the tester alone, but for slow frames that are to be looked up before the switch forgets them."""
        if self.hops is None:
            time.sleep(seconds)
            return
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
            self.hops.look(self.tester.control)

    def _take(self) -> bool:
        """Puts the records that there are into the log; whether the trial has ended and that was the last."""
        answer = self.tester.control.call("trial.records", kept=self._kept)
        for record in answer["records"]:
            interval = self._interval(record)
            self.log.add(interval)
            self.totals.add(interval)
            self._before = {stream["name"]: stream for stream in record["streams"]}
            self._clock = record["real_time"] - record["monotonic"]
            self._kept = record["number"] + 1
            if interval.clock_step_s:
                self.tell(
                    f"the machine's clock was set by {interval.clock_step_s:+.3f} s; the soak uses the TSC, so "
                    "its figures are not affected"
                )
        return bool(answer["ended"]) and not answer["records"]

    def _interval(self, record: dict[str, Any]) -> Interval:
        histograms = [from_tester(stream["latency"]) for stream in record["streams"]]
        off = record["real_time"] - record["monotonic"] - self._clock
        return Interval(
            part=self.totals.parts,
            number=record["number"],
            start_s=self.offset + record["start"],
            end_s=self.offset + record["end"],
            real_time=record["real_time"],
            clock_step_s=clock_step(off, record["end"] - record["start"]),
            ways=tuple(map(self._way, record["streams"], histograms)),
            histograms=tuple(histograms),
        )

    def _way(self, stream: dict[str, Any], histogram: Histogram) -> Way:
        """What is new in a record, whose counts are those since the tester began."""
        name = stream["name"]
        before = self._before.get(name, {})
        latency = histogram.latency()
        return Way(
            name=name,
            **{count: stream[count] - before.get(count, 0) for count in SUMMED},
            in_flight=stream["in_flight"],
            window=stream["window"],
            latest=stream["latest"],
            min_ns=histogram.min_ns,
            max_ns=histogram.max_ns,
            sum_ns=histogram.sum_ns,
            p50_ns=round(latency.p50 * 1e3) if latency else 0,
            p99_ns=round(latency.p99 * 1e3) if latency else 0,
        )

    def last_words(self, reason: str) -> None:
        """Keeps what can still be had, and says why it ended; to be said again if the disk had no room for them."""
        if self.totals.ended is not None:
            return
        whole = False
        with suppress(OSError):
            with suppress(Failure):
                deadline = time.monotonic() + _PATIENCE
                while not (whole := self._take()) and time.monotonic() < deadline:
                    time.sleep(0.02)
            self._end(End(reason, whole))

    def _end(self, end: End) -> None:
        self.log.end(end)
        self.totals.add(end)

    def _explained(self, error: BaseException) -> BaseException:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return Failure(
                f"{self.log.path}: {error.strerror}; the {self.totals.intervals:,} intervals before are kept: make "
                "room, then continue with `tailrace measure soak --resume RUN`"
            )
        return error
