"""What the intervals of a soak come to: totals that take the same memory however long it is, and a trial of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.results.histogram import Histogram
from tailrace.results.interval_log import SUFFIX, LogReader
from tailrace.results.intervals import End, Entry, Header, Interval, Part, Way
from tailrace.results.model import Alone, ClockStep, Gap, ResultError, Run, Soak
from tailrace.results.trial import from_trial_result

#: Intervals of a direction in results.json at most; of a longer soak, neighbours become one. The log keeps all.
MOST_INTERVALS = 20_000
#: Gaps and clock steps that are listed; a soak with more has other troubles.
MOST_EVENTS = 1_000

#: The counts of a direction that add up over intervals.
SUMMED = (
    "offered", "sent", "refused", "received", "lost", "duplicate", "out_of_sequence", "beyond_window", "foreign",
    "sent_bytes", "received_bytes",
)  # fmt: skip


@dataclass
class Sum:
    """All frames of one direction so far."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMMED, 0))
    window: int | None = None
    latest: int = 0
    min_ns: int = 0
    max_ns: int = 0
    sum_ns: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, way: Way, histogram: Histogram | None) -> None:
        for name in SUMMED:
            self.counts[name] += getattr(way, name)
        self.window = way.window if way.window is not None else self.window
        self.latest = max(self.latest, way.latest)
        if way.max_ns:
            self.min_ns = min(self.min_ns, way.min_ns) if self.max_ns else way.min_ns
            self.max_ns = max(self.max_ns, way.max_ns)
            self.sum_ns += way.sum_ns
        for index, count in histogram.counts if histogram else ():
            self.buckets[index] = self.buckets.get(index, 0) + count

    @property
    def histogram(self) -> Histogram:
        return Histogram(tuple(sorted(self.buckets.items())), self.min_ns, self.max_ns, self.sum_ns)


@dataclass
class Totals:
    """A soak so far, fed with the entries of its log."""

    header: Header
    ways: dict[str, Sum] = field(default_factory=dict)
    measured_s: float = 0.0
    intervals: int = 0
    parts: int = 0
    first: Part | None = None
    part: Part | None = None
    """The last one begun."""
    last: Interval | None = None
    worst: Interval | None = None
    """The one with the slowest frame."""
    gaps: list[Gap] = field(default_factory=list)
    clock_steps: list[ClockStep] = field(default_factory=list)
    ended: End | None = None
    """How the last part ended; None while it runs, or if it was cut off."""

    @property
    def end_s(self) -> float:
        """When the last interval ended, in seconds after the start."""
        return self.last.end_s if self.last else 0.0

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Part):
            self._begin(entry)
        elif isinstance(entry, End):
            self.ended = entry
        else:
            self._add(entry)

    def close_part(self) -> None:
        """The last part will not go on: if it was cut off, what was under way then is left out of account."""
        if self.last is None or (self.ended is not None and self.ended.whole):
            return
        for way in self.last.ways:
            counts = self.ways[way.name].counts
            if counts["sent"]:  # of several sizes the mean: which frames were under way is not known
                counts["sent_bytes"] -= counts["sent_bytes"] * way.in_flight // counts["sent"]
            counts["offered"] -= way.in_flight
            counts["sent"] -= way.in_flight
        self.last = replace(self.last, ways=tuple(replace(way, in_flight=0) for way in self.last.ways))

    def _begin(self, part: Part) -> None:
        if self.part is not None and len(self.gaps) < MOST_EVENTS:
            if self.ended is not None:
                reason = self.ended.reason or "its time was up"
            elif part.boot != self.part.boot:
                reason = "the machine was rebooted"
            else:
                reason = "the soak was killed or crashed"
            self.gaps.append(Gap(start_s=self.end_s, end_s=max(part.offset_s, self.end_s), reason=reason))
        if self.part is not None:
            self.close_part()
        self.first = self.first or part
        self.part, self.ended = part, None
        self.parts += 1

    def _add(self, interval: Interval) -> None:
        if interval.clock_step_s and len(self.clock_steps) < MOST_EVENTS:
            self.clock_steps.append(ClockStep(at_s=interval.end_s, step_s=interval.clock_step_s))
        for number, way in enumerate(interval.ways):
            histogram = interval.histograms[number] if interval.histograms else None
            self.ways.setdefault(way.name, Sum()).add(way, histogram)
        self.measured_s += interval.end_s - interval.start_s
        self.intervals += 1
        self.last = interval
        if self.worst is None or slowest_ns(interval) > slowest_ns(self.worst):
            self.worst = interval


def slowest_ns(interval: Interval) -> int:
    """The largest latency of an interval, of all directions."""
    return max((way.max_ns for way in interval.ways), default=0)


def is_unkept(run: Run) -> bool:
    """Whether a run is of a soak that is in its log alone, because the command that measured it was killed."""
    return run.method == "soak" and not any(trial.soak for trial in run.trials)


def find_log(folder: Path) -> Path:
    """The interval log in a run folder. Raises ResultError if there is none, or more than one."""
    found = sorted((folder / "histograms").glob(f"*{SUFFIX}"))
    if len(found) != 1:
        what = "no soak" if not found else f"{len(found)} soaks"
        raise ResultError(f"{folder}: {what} in it; expected the run folder of `tailrace measure soak`")
    return found[0]


def read_totals(path: Path) -> tuple[Totals, LogReader]:
    """What a log comes to, and the reader that has read it to its end. Raises ResultError."""
    reader = LogReader(path, histograms=True)
    totals = Totals(reader.header)
    for entry in reader.entries():
        totals.add(entry)
    return totals, reader


def alone_of(result: dict[str, Any], ports: str, pps: float) -> Alone | None:
    """What the tester measured of itself in a trial; None if no frame came back. Raises ResultError."""
    trial = from_trial_result(result, name="alone", profile="alone", functions=0, offered_pps=pps).trial
    latency = trial.worse.latency_us
    if latency is None:
        return None
    counts = {name: trial.total(name) for name in ("sent", "unsent", "lost", "duplicate", "out_of_sequence")}
    return Alone(seconds=trial.duration_s, ports=ports, offered_pps=pps, latency_us=latency, **counts)


def trial_result(path: Path, totals: Totals, *, stopped: bool) -> dict[str, Any]:
    """The soak whose log is at `path` in the form of the tester's trial.result, with "soak" added, for
    `RunFolder.add_trial`.

    Raises ResultError, as when nothing was measured.
    """
    reader = LogReader(path)
    made = as_trial(totals, (entry for entry in reader.entries() if isinstance(entry, Interval)), stopped=stopped)
    made["soak"] = made["soak"].model_copy(update={"log": f"histograms/{path.name}", "damaged": reader.damaged})
    return made


def as_trial(totals: Totals, entries: Iterable[Interval], *, stopped: bool) -> dict[str, Any]:
    """The same of intervals that do not come from a log."""
    header = totals.header
    if totals.last is None:
        raise ResultError(f"{header.name}: the soak ended before its first interval of {header.interval_s:g} s did")
    totals.close_part()
    intervals: dict[str, list[dict[str, Any]]] = {name: [] for name in totals.ways}
    for group in _groups(entries, max(1, -(-totals.intervals // MOST_INTERVALS))):
        for number, name in enumerate(totals.ways):
            intervals[name].append(_merged(group, number))
    streams = []
    for stream in header.streams:
        total = totals.ways[stream["name"]]
        whole = total.histogram
        streams.append(
            {
                "name": stream["name"],
                "from": stream["from"],
                "to": stream["to"],
                **total.counts,
                "window": total.window,
                "latest": total.latest,
                "unsent": total.counts["offered"] - total.counts["sent"],
                "latency": {
                    "count": whole.count,
                    "min_ns": whole.min_ns,
                    "max_ns": whole.max_ns,
                    "sum_ns": whole.sum_ns,
                    "counts": whole.counts,
                },
                "intervals": intervals[stream["name"]],
            }
        )
    return {
        "duration": totals.measured_s,
        "stopped": stopped,
        "started_at": header.started_at,
        "streams": streams,
        "soak": Soak(
            asked_s=header.duration_s,
            interval_s=header.interval_s,
            intervals=totals.intervals,
            alone=Alone.model_validate(header.alone) if header.alone else None,
            parts=totals.parts,
            gaps=tuple(totals.gaps),
            clock_steps=tuple(totals.clock_steps),
            log="",
        ),
    }


def _groups(entries: Iterable[Interval], size: int) -> Iterator[list[Interval]]:
    """Intervals that follow each other in one part, `size` at a time."""
    group: list[Interval] = []
    for entry in entries:
        if group and (entry.part != group[0].part or len(group) == size):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _merged(group: list[Interval], number: int) -> dict[str, Any]:
    """One direction of neighbouring intervals, as the tester reports an interval."""
    ways = [interval.ways[number] for interval in group]
    heard = [way for way in ways if way.received]
    return {
        "start": group[0].start_s,
        "length": group[-1].end_s - group[0].start_s,
        **{name: sum(getattr(way, name) for way in ways) for name in _TOLD},
        "min_ns": min((way.min_ns for way in heard), default=0),
        "max_ns": max((way.max_ns for way in heard), default=0),
        "sum_ns": sum(way.sum_ns for way in heard),
    }


_TOLD = ("sent", "received", "lost", "duplicate", "out_of_sequence")
