"""What a comparison found: figures as measured, and the ratios of each pair.

Absolute figures depend on the machine and, on a shared one, on the minute. So two sides are compared only within
a pair, measured one right after the other, and the result is the median of the pairs' ratios. A hypervisor may move the
two CPUs nearer or farther from one second to the next, which decides more than anything else: so a side is measured
in short windows with a look at the distance between each two, and windows are compared with those of the same distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, get_args

from tailrace.errors import Fault
from tailrace.fabric.base import Counters
from tailrace.measure.core_to_core import NEAR_NS
from tailrace.results.ratio import Figures as Figures
from tailrace.results.ratio import Ratio as Ratio
from tailrace.results.ratio import Summary

TAILRACE = "tailrace"
OVS_DPDK = "ovs-dpdk"


@dataclass(frozen=True)
class Window:
    """Two readings and the time between them."""

    first: Counters
    last: Counters
    seconds: float

    @property
    def packets(self) -> int:
        return self.last.packets - self.first.packets

    @property
    def dropped(self) -> int:
        return self.last.dropped - self.first.dropped

    def figures(self) -> dict[str, float]:
        """What the switch did in it. Raises Fault if no packet was delivered.

        `cycles_per_packet`: busy cycles a packet, the way Open vSwitch counts its processing cycles. `mpps`: million
        packets a second that guests were given, all directions together. `busy`: share of the polling thread's
        cycles that were busy; 1 means that the switch was the limit. `dropped` packets are not in `mpps`.
        """
        busy = self.last.busy_cycles - self.first.busy_cycles
        idle = self.last.idle_cycles - self.first.idle_cycles
        delivered = self.packets - self.dropped
        if delivered <= 0 or busy <= 0 or self.seconds <= 0:
            raise Fault("no packet passed")
        return {
            "cycles_per_packet": round(busy / self.packets, 2),
            "mpps": round(delivered / self.seconds / 1e6, 4),
            "packets": self.packets,
            "dropped": self.dropped,
            "busy": round(busy / (busy + idle), 4),
        }


Distance = Literal["siblings", "near", "far"]
"""How two CPUs lie to each other: two threads of one core, two cores of one last-level cache, or farther."""
SIBLINGS_NS = 45.0
"""Under this, a cache line's round trip stays within one core."""


def distance(round_trip_ns: float) -> Distance:
    """The name of a cache line's round trip."""
    if round_trip_ns < SIBLINGS_NS:
        return "siblings"
    return "near" if round_trip_ns < NEAR_NS else "far"


@dataclass(frozen=True)
class Sample:
    """One side over one short window, and how far the two CPUs were from each other right before and after it."""

    figures: Figures
    looks_ns: tuple[float, float]
    """Round trip of a cache line between the switch's CPU and the load's, both otherwise idle."""

    @property
    def steady(self) -> bool:
        """Whether they were equally far at both looks."""
        return distance(self.looks_ns[0]) == distance(self.looks_ns[1])


SUMS = ("packets", "dropped")
"""Figures that count; of all others the median over the windows stands for the side."""


def merged(samples: Sequence[Sample]) -> Figures:
    """The figures of several windows as one: sums of what counts, the largest of maxima, medians of the rest."""

    def one(name: str) -> float:
        values = [sample.figures[name] for sample in samples]
        if name in SUMS:
            return sum(values)
        return max(values) if name.endswith("max_us") else round(median(values), 4)

    return {name: one(name) for name in samples[0].figures}


@dataclass(frozen=True)
class Pair:
    """Each side once, one right after the other: of its windows those at one distance, the same for all sides."""

    samples: Mapping[str, Sequence[Sample]]

    @property
    def sides(self) -> Mapping[str, Figures]:
        return {name: merged(samples) for name, samples in self.samples.items()}

    @property
    def core_to_core_ns(self) -> float:
        """The median of all looks."""
        return median(look for samples in self.samples.values() for sample in samples for look in sample.looks_ns)

    @property
    def distance(self) -> Distance:
        return distance(self.core_to_core_ns)

    @property
    def near(self) -> bool:
        return self.core_to_core_ns < NEAR_NS

    @property
    def steady(self) -> bool:
        """Whether the CPUs were equally far at every look, so that all sides met the same machine."""
        looks = [look for samples in self.samples.values() for sample in samples for look in sample.looks_ns]
        return len({distance(look) for look in looks}) == 1

    def document(self) -> dict[str, Any]:
        return {
            **{name: dict(figures) for name, figures in self.sides.items()},
            "core_to_core_ns": round(self.core_to_core_ns, 1),
            "distance": self.distance,
            "near": self.near,
            "steady": self.steady,
            "windows": min(len(samples) for samples in self.samples.values()),
        }


def pairs_of(measured: Mapping[str, Sequence[Sample]]) -> list[Pair]:
    """One turn of all sides as a pair for each distance at which every side has steady windows.

    Where there is none, all windows are one pair, which is not steady.
    """
    found = [
        {
            name: [s for s in samples if s.steady and distance(s.looks_ns[0]) == which]
            for name, samples in measured.items()
        }
        for which in get_args(Distance)
    ]
    return [Pair(each) for each in found if all(each.values())] or [Pair(measured)]


def measure_pairs(measure: Callable[[int], list[Pair]], count: int) -> Iterator[Pair]:
    """Pairs of turn after turn until there are `count` steady ones at one distance, for at most twice as many turns.

    `measure` is given how many there are at the most frequent distance.
    """
    pairs: list[Pair] = []
    for _ in range(2 * count):
        most = Counter(pair.distance for pair in pairs if pair.steady).most_common(1)
        there = most[0][1] if most else 0
        if there >= count:
            break
        for pair in measure(there):
            pairs.append(pair)
            yield pair


def _reason(error: BaseException) -> str:
    return str(error) or "interrupted by Ctrl-C"


@dataclass(frozen=True)
class Comparison:
    """All pairs of one benchmark."""

    bench: str
    settings: Mapping[str, Any]
    """What was measured: the frame size in bytes, FCS included, and whatever else was chosen."""
    measured: Sequence[Pair]
    """At whatever distance, in their order; some perhaps not steady."""
    ratios: Sequence[Ratio]
    machine: Mapping[str, Any]
    asked: int
    """How many pairs were to be measured; where cores move too often there are fewer."""
    error: BaseException | None = None
    """What cut it short; None if nothing did."""

    @property
    def by_distance(self) -> Mapping[Distance, Sequence[Pair]]:
        """The steady pairs, those of the most frequent distance first."""
        steady = [pair for pair in self.measured if pair.steady]
        counted = Counter(pair.distance for pair in steady).most_common()
        return {which: [pair for pair in steady if pair.distance == which] for which, _ in counted}

    @property
    def pairs(self) -> Sequence[Pair]:
        """Those that the result is of: the steady ones of the most frequent distance; all where none is steady."""
        return next(iter(self.by_distance.values()), self.measured)

    @property
    def others(self) -> Mapping[Distance, Sequence[Pair]]:
        """The steady pairs of other distances."""
        return dict(list(self.by_distance.items())[1:])

    @property
    def moved(self) -> Sequence[Pair]:
        """Set aside, because the CPUs moved nearer or farther meanwhile, so that the sides have no distance in common;
        they count in no median."""
        return [pair for pair in self.measured if not pair.steady and pair not in self.pairs]

    def median(self, ratio: Ratio) -> float | None:
        """The median of the pairs' ratios; None where there is a side only."""
        found = self.summary(ratio)
        return found.median if found else None

    def summary(self, ratio: Ratio) -> Summary | None:
        """The same with its interval."""
        return ratio.summary([pair.sides for pair in self.pairs])

    def document(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            **self.settings,
            "asked": self.asked,
            **self._group(self.pairs),
            "others": {which: self._group(pairs) for which, pairs in self.others.items()},
            "moved": [pair.document() for pair in self.moved],
            "error": None if self.error is None else _reason(self.error),
            "machine": dict(self.machine),
        }

    def _group(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Pairs of one distance, with the medians of their ratios."""
        summaries = {ratio.name: ratio.summary([pair.sides for pair in pairs]) for ratio in self.ratios}
        return {
            "pairs": [pair.document() for pair in pairs],
            "ratios": {name: None if found is None else round(found.median, 3) for name, found in summaries.items()},
            "intervals": {name: None if found is None else found.document() for name, found in summaries.items()},
            "core_to_core_ns": round(median(pair.core_to_core_ns for pair in pairs), 1),
            "near": all(pair.near for pair in pairs),
        }


@dataclass(frozen=True)
class Kinds:
    """What was found of each kind of traffic, in their order."""

    measured: Mapping[str, Comparison]
    failed: Mapping[str, BaseException]
    """Why there is nothing of others: what failed, or Ctrl-C. Those after that were not begun."""

    @property
    def error(self) -> BaseException | None:
        """What cut it short, or the first failure; None if there was none."""
        errors = [*self.failed.values(), *(result.error for result in self.measured.values())]
        return next((error for error in errors if error is not None), None)

    def document(self) -> dict[str, Any]:
        """Of one kind the same as of any other comparison, of several one for each."""
        documents = [result.document() for result in self.measured.values()]
        if len(documents) == 1 and not self.failed:
            return documents[0]
        return {"bench": "hop", "kinds": documents, "failed": dict(self.reasons)}

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why there is nothing of those that failed."""
        return {kind: _reason(error) for kind, error in self.failed.items()}


@dataclass(frozen=True)
class Spread:
    """Many times of one thing, in ms."""

    count: int
    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError if there are none."""
        return cls(len(values), min(values), median(values), max(values))

    def document(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "min": round(self.least, 3),
            "median": round(self.median, 3),
            "max": round(self.most, 3),
        }


@dataclass(frozen=True)
class Beside:
    """The frames of the chain beside which ports and chains were changed, both directions together."""

    rate_pps: float
    """Frames offered a second, each way."""
    sent: int
    received: int
    unsent: int
    """Frames that the tester had no time to send; not lost."""
    lost: int
    duplicate: int
    out_of_sequence: int
    dropped: int
    """Frames that the switch counted as dropped at the chain's ports."""
    worst_us: float
    """The largest latency."""

    @classmethod
    def of(cls, rate_pps: float, result: dict[str, Any], dropped: int) -> Beside:
        """From the tester's result. Raises Fault if nothing came back."""
        streams = result["streams"]
        keys = ("sent", "received", "unsent", "lost", "duplicate", "out_of_sequence")
        total = {key: sum(int(stream[key]) for stream in streams) for key in keys}
        if any(stream["received"] == 0 for stream in streams):
            raise Fault("no frame came back on the chain beside")
        worst = max(int(stream["latency"]["max_ns"]) for stream in streams) / 1e3
        return cls(rate_pps, dropped=dropped, worst_us=worst, **total)

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ChangeResult:
    """How long each kind of change took, and what became of the frames beside."""

    bench: str
    settings: Mapping[str, Any]
    times_ms: Mapping[str, Spread]
    """Each from the call to its answer."""
    memory_mib: Mapping[int, float]
    """Peak resident memory, by the number of guests attached. Guests' own memory is in huge pages and not in it."""
    beside: Beside
    machine: Mapping[str, Any]
    core_to_core_ns: float
    pairs: Sequence[Mapping[str, Figures]] = ()
    """The times of each round by side, where changes were made on two."""
    ratios: Sequence[Ratio] = ()

    def document(self) -> dict[str, Any]:
        summaries = {ratio.name: ratio.summary(self.pairs) for ratio in self.ratios}
        return {
            "bench": self.bench,
            **self.settings,
            "pairs": [
                {side: {name: round(ms, 3) for name, ms in figures.items()} for side, figures in pair.items()}
                for pair in self.pairs
            ],
            "ratios": {name: None if found is None else round(found.median, 3) for name, found in summaries.items()},
            "times_ms": {name: spread.document() for name, spread in self.times_ms.items()},
            "memory_mib": {str(guests): round(mib, 1) for guests, mib in self.memory_mib.items()},
            "beside": self.beside.document(),
            "core_to_core_ns": round(self.core_to_core_ns, 1),
            "near": self.core_to_core_ns < NEAR_NS,
            "machine": dict(self.machine),
        }
