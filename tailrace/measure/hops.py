"""Where a frame's time goes: the tester's records of single frames joined with the switch's hop trace.

A frame's way is cut where it changes hands. It waits in the sender's ring (the switch comes round to it), is in the
switch (one copy), then with a function, which is everything from its receive ring to its transmit ring, and so on,
until the last ring hands it to the tester. All times are of one clock, so the parts of a frame add up to its latency,
exactly; and so do the means of the parts over many frames.

Two sets of frames are joined: a sample (each n-th of every stream), for histograms, and the slowest of the trial. Which
were the slowest is known only after they have arrived, and the switch remembers all frames for a fraction of a second
only: so they are looked up while the trial runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from tailrace.observe.hop_trace import HopTrace, Record, frame_key
from tailrace.results.histogram import Histogram, index_of
from tailrace.results.hops import Joined
from tailrace.results.model import HopPart, Hops, SlowFrame
from tailrace.switch.config import planned_port

#: Sampled frames in a trial, about: enough for a 99.9th percentile, and few enough to be joined in a second.
SAMPLES = 20_000
#: What the switch's trace takes at most (dataplane/switch/trace.h).
_EVERY_MOST = 1 << 30


@dataclass(frozen=True)
class Sighting:
    """A frame as the tester knows it; times in TSC cycles."""

    stream: int
    sequence: int
    sent: int
    received: int

    @property
    def key(self) -> int:
        return frame_key(self.stream, self.sequence)


@dataclass(frozen=True)
class Part:
    """One part of a way."""

    kind: Literal["ring", "switch", "function", "interrupt"]
    """"ring": waiting for the switch or the tester; "switch": being copied; "function": with a function;
    "interrupt": of an interrupt, which is in one."""
    name: str


Way = tuple[Part, ...]


def sample_every(frames: float, wanted: int = SAMPLES) -> int:
    """The power of two n with which each n-th of so many frames is about `wanted` of them, or a few more."""
    every = 1
    while frames / (2 * every) > wanted and every < _EVERY_MOST:
        every *= 2
    return every


def function_name(entered: str, left: str) -> str:
    """What lies between two ports of the switch: "first" between first.0 and first.1, or first@2.0 and first@2.1."""
    entered, left = planned_port(entered), planned_port(left)
    one, two = entered.rpartition(".")[0], left.rpartition(".")[0]
    return one if one and one == two else f"{entered} to {left}"


def cut(sighting: Sighting, records: Iterable[Record]) -> tuple[Way, list[int]] | None:
    """The parts of the frame's way, and the cycles that each took; None if the records are not those of one way.

    Parts have the names of the plan: the user knows a function, and not which process stands for it now.
    """
    hops = sorted(records, key=lambda record: record.arrived)
    if not hops:
        return None
    parts = [Part("ring", f"{planned_port(hops[0].source)} to the switch")]
    times = [sighting.sent]
    for hop, after in zip(hops, [*hops[1:], None], strict=True):
        parts.append(Part("switch", f"{planned_port(hop.source)} to {planned_port(hop.target)}"))
        times += [hop.arrived, hop.left]
        if after is None:
            parts.append(Part("ring", f"the switch to {planned_port(hop.target)}"))
        else:
            parts.append(Part("function", function_name(hop.target, after.source)))
    times.append(sighting.received)
    cycles = [late - early for early, late in pairwise(times)]
    # A function may have a frame back in the switch before the burst it came with has been shown: that is the
    # function's doing, not the switch's.
    for i in range(len(cycles) - 1):
        if cycles[i + 1] < 0 and parts[i].kind == "switch":
            cycles[i] += cycles[i + 1]
            cycles[i + 1] = 0
    return (tuple(parts), cycles) if min(cycles) >= 0 else None


@dataclass
class Slowest:
    """The slowest frames, whose records are collected while the trial runs."""

    trace: HopTrace
    records: dict[int, list[Record]] = field(default_factory=dict)
    _tried: set[int] = field(default_factory=set)

    def look_up(self, frames: Iterable[Sighting]) -> None:
        """Takes the records of those that are new from the trace, while they are there."""
        frames = list(frames)
        new = {frame.key: (frame.sent, frame.received) for frame in frames if frame.key not in self._tried}
        if new:
            self._tried |= new.keys()
            self.records |= self.trace.recent_of(new)
        kept = {frame.key for frame in frames}
        self.records = {key: records for key, records in self.records.items() if key in kept}
        self._tried &= kept


def of_function(record: Record, owners: Mapping[str, str]) -> Record:
    """The record as if the function's first replica stood for all: `owners` has the function of each replica."""

    def port(name: str) -> str:
        owner, dot, side = planned_port(name).rpartition(".")
        return f"{owners.get(owner, owner)}{dot}{side}"

    return record._replace(source=port(record.source), target=port(record.target))


def _histogram(values: Sequence[int]) -> Histogram:
    """Of values in ns."""
    counts = Counter(index_of(value) for value in values)
    return Histogram(tuple(sorted(counts.items())), min(values), max(values), sum(values)) if values else Histogram()


def _nanoseconds(cycles: Sequence[int], hz: int) -> list[int]:
    """Times in ns that add up to the whole's, rounded down: each is the difference of two rounded ends."""
    ends = [0]
    for each in cycles:
        ends.append(ends[-1] + each)
    return [late * 1_000_000_000 // hz - early * 1_000_000_000 // hz for early, late in pairwise(ends)]


def join(
    samples: Iterable[Sighting],
    sampled: Iterable[Record],
    slowest: Iterable[Sighting],
    records: Mapping[int, list[Record]],
    hz: int,
    owners: Mapping[str, str] | None = None,
) -> Joined | None:
    """The budget of frames that went one way, from the trial's samples and its slowest frames.

    Replicas of a function are one in the budget, by `owners` (the function of each); a slow frame names its own.
    A frame whose records are not all there, or that took another way than most did, is counted and left out. None if no
    frame could be joined.
    """
    by_frame: dict[int, list[Record]] = defaultdict(list)
    for record in sampled:
        by_frame[record.frame].append(of_function(record, owners or {}))
    ways: dict[Way, list[list[int]]] = defaultdict(list)
    total = 0
    for sighting in samples:
        total += 1
        found = cut(sighting, by_frame.get(sighting.key, ()))
        if found is not None:
            ways[found[0]].append(_nanoseconds(found[1], hz))
    if not ways:
        return None
    way = max(ways, key=lambda each: len(ways[each]))
    times = ways[way]
    histograms = tuple(_histogram([frame[i] for frame in times]) for i in range(len(way)))
    mean = sum(histogram.sum_ns for histogram in histograms) / len(times)
    slow, untraced = _slow_frames(slowest, records, hz)
    return Joined(
        Hops(
            frames=len(times),
            left_out=total - len(times),
            average_us=mean / 1e3,
            parts=tuple(
                HopPart(
                    kind=part.kind,
                    name=part.name,
                    share=histogram.sum_ns / len(times) / mean if mean else 0.0,
                    latency_us=latency,
                    histogram=None,
                )
                for part, histogram in zip(way, histograms, strict=True)
                if (latency := histogram.latency()) is not None
            ),
            slowest=slow,
            slowest_untraced=untraced,
        ),
        histograms,
    )


def _slow_frames(
    slowest: Iterable[Sighting], records: Mapping[int, list[Record]], hz: int
) -> tuple[tuple[SlowFrame, ...], int]:
    frames, untraced = [], 0
    for sighting in sorted(slowest, key=lambda each: each.sent - each.received):
        found = cut(sighting, records.get(sighting.key, ()))
        if found is None:
            untraced += 1
            continue
        way, cycles = found
        times = [each / 1e3 for each in _nanoseconds(cycles, hz)]
        frames.append(
            SlowFrame(
                sequence=sighting.sequence,
                latency_us=sum(times),
                parts=tuple(part.name for part in way),
                parts_us=tuple(times),
            )
        )
    return tuple(frames), untraced
