"""The intervals of a soak, as they are kept: what was asked, each stretch without a break, each interval of it.

How they lie in a file is `tailrace.results.interval_log`; what they come to is `tailrace.results.soak`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tailrace.results.histogram import HIGHEST_NS, Histogram, index_of
from tailrace.results.no_loss import Limit
from tailrace.results.record import Count

FORMAT = 1

#: What the counts of a direction in an interval and its line's own words take at most, in bytes.
_WORDS = 700
#: As a rule a distribution has some hundreds of buckets: bytes of a direction in an interval.
_USUAL = 1_200
_HEAD = 4096


def _stream(document: dict[str, Any]) -> dict[str, Any]:
    """Raises ValueError unless it says what it is called, and from where to where it goes."""
    for key in ("name", "from", "to"):
        if not isinstance(document.get(key), str):
            raise ValueError(f"a stream without a text {key!r}")
    return document


#: What a reader takes of a log: bounds that nothing measured comes near, so that whatever reckons with it can.
Number = Annotated[int, Field(ge=-(1 << 100), le=1 << 100)]
Seconds = Annotated[float, Field(ge=-1e11, le=1e11)]
Rate = Annotated[float, Field(ge=0, le=1e15)]
Stream = Annotated[dict[str, Any], AfterValidator(_stream)]


@dataclass(frozen=True)
class Header:
    """What a soak was asked to be."""

    name: str
    profile: str
    functions: Count | None
    """None: a device between two ports."""
    duration_s: Annotated[Seconds, Field(gt=0)]
    interval_s: Annotated[Seconds, Field(gt=0)]
    offered_pps: Rate
    """In each direction, frames a second."""
    no_loss_pps: Rate | None
    rate_fraction: Rate | None
    streams: tuple[Stream, ...]
    """As the tester was given it."""
    started_at: Seconds
    """Seconds since 1970."""
    alone: dict[str, Any] | None = None
    """What the tester measured of itself before (`tailrace.results.model.Alone`)."""
    no_loss_limit: Limit | None = None
    """What kept that rate from being higher (`tailrace.results.no_loss.NoLossRate`); None: not known."""
    capture: str | None = None
    """What results call the capture file by that is sent; None: none is, or the log is of before it was kept."""
    ports: tuple[str, str] | None = None
    """The URIs of the ports that a device lies between; None: it is a chain, or the log is of before they were kept."""
    hops: bool = False
    causes: bool = False
    gap_limit_s: Seconds = 5e-6
    """Whether single frames are followed (`measure soak --hops`, `--causes`, `--gap-limit`)."""
    format: int = FORMAT

    def intervals(self, seconds: float) -> int:
        """How many there are in so much time."""
        return math.ceil(seconds / self.interval_s)

    def most_bytes(self, intervals: int) -> int:
        """The most that a log of so many intervals can take.

        A histogram has at most `index_of(HIGHEST_NS)` buckets. A bucket takes a byte for each 7 bits of its count and
        of a sign (HdrHistogram's ZigZag LEB128), which for a given number of frames is the most if all counts are
        alike. Deflate makes nothing longer by more than a thousandth, and base64 makes 4 bytes of 3.
        """
        frames = max(self.offered_pps, 1.0) * self.interval_s
        buckets = min(index_of(HIGHEST_NS) + 1, frames)
        each = 1 + max(math.log(2 * frames / buckets, 128), 0)
        way = math.ceil((104 + buckets * each * 1.001) * 4 / 3) + _WORDS
        return _HEAD + intervals * len(self.streams) * way

    def usual_bytes(self, intervals: int) -> int:
        """About what a log of so many intervals takes."""
        return _HEAD + intervals * len(self.streams) * _USUAL


@dataclass(frozen=True)
class Part:
    """A stretch that one tester measured without a break."""

    number: Number
    """From 1."""
    offset_s: Seconds
    """Its start, in seconds after the start of the soak."""
    started_at: Seconds
    """Seconds since 1970, by the machine's clock."""
    boot: str
    """The machine's boot id."""
    boot_time: Seconds
    """Seconds of CLOCK_BOOTTIME, which nobody sets."""


@dataclass(frozen=True)
class Way:
    """What happened to the frames of one direction in an interval."""

    name: str
    offered: Number
    sent: Number
    refused: Number
    """Of those offered and not sent, what the device under test did not take in time."""
    received: Number
    lost: Number
    """Negative where more frames came late, and took their loss back, than were lost."""
    duplicate: Number
    out_of_sequence: Number
    beyond_window: Number
    foreign: Number
    sent_bytes: Number
    received_bytes: Number
    in_flight: Number
    """Of those sent, how many were under way at its end and have come since: the next interval receives them."""
    min_ns: Number
    max_ns: Number
    sum_ns: Number
    p50_ns: Number
    p99_ns: Number
    """Latencies of the frames received; all 0 if there were none."""
    window: Number | None = None
    """The analyser's window in frames; None: not known, as of a log of before it was kept."""
    latest: Number = 0
    """How far below the number expected the latest frame beyond the window was, of its part so far; 0: none was."""


@dataclass(frozen=True)
class Interval:
    """One interval; times in seconds after the start of the soak."""

    part: Number
    number: Number
    """In its part, from 0."""
    start_s: Seconds
    end_s: Seconds
    real_time: Seconds
    """Seconds since 1970 at its end, by the machine's clock."""
    clock_step_s: Seconds
    """How far that clock was set since the interval before; 0 if it just ran."""
    ways: tuple[Way, ...]
    histograms: tuple[Histogram, ...] = field(default=(), repr=False)
    """Of each way; none where the reader did not ask for them."""


@dataclass(frozen=True)
class End:
    """A part that has ended in order."""

    reason: str | None
    """None: its time was up."""
    whole: bool = True
    """Whether its last interval is the last that the tester measured."""


Entry = Part | Interval | End
