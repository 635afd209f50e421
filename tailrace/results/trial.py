"""The tester's trial.result turned into a Trial and its histograms.

What the tester says is checked before anybody believes it: counts that do not add up make the trial invalid, with the
reason, and a result that cannot be understood at all is a ResultError.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tailrace.results import histogram as hdr
from tailrace.results.hops import Joined
from tailrace.results.model import (
    Clock,
    Direction,
    Extents,
    Floor,
    HistogramReference,
    Hops,
    Interval,
    Latency,
    ResultError,
    Share,
    Soak,
    Traffic,
    Trial,
    timestamp,
)
from tailrace.results.record import TrafficKind, is_near_floor

LAYER_1_OVERHEAD = 20
"""Bytes on the wire beside a frame with its FCS: preamble and start delimiter 8, smallest gap 12 (IEEE 802.3)."""

Count = Annotated[int, Field(ge=0)]


class _Tester(BaseModel):
    # The tester may say more than is used here.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class _Latency(_Tester):
    count: Count
    min_ns: Count
    max_ns: Count
    sum_ns: Count
    counts: tuple[tuple[Count, Count], ...]


class _Extents(_Tester):
    max: Count
    sum: Count
    unknown: Count
    counts: tuple[tuple[Count, Count], ...]


class _Clock(_Tester):
    source: Literal["tsc"]
    hz: Count
    error_ppm: Annotated[float, Field(ge=0)]
    checked_seconds: Annotated[float, Field(ge=0)]


class _Interval(_Tester):
    start: Annotated[float, Field(ge=0)]
    sent: Count
    received: Count
    min_ns: Count
    max_ns: Count
    sum_ns: Count
    # What only a soak's have.
    length: Annotated[float, Field(ge=0)] | None = None
    lost: int | None = None
    duplicate: Count | None = None
    out_of_sequence: Count | None = None


class _Stream(_Tester):
    name: str
    from_: Annotated[str, Field(alias="from")]
    to: str
    offered: Count
    sent: Count
    unsent: Count
    refused: Count = 0
    received: Count
    lost: Count
    duplicate: Count
    out_of_sequence: Count
    beyond_window: Count
    window: Count | None = None
    latest: Count = 0
    extents: _Extents | None = None
    foreign: Count
    received_bytes: Count
    latency: _Latency
    intervals: tuple[_Interval, ...]


class _Result(_Tester):
    duration: Annotated[float, Field(ge=0)]
    stopped: bool
    started_at: Annotated[float, Field(ge=0)]
    soak: Soak | None = None
    clock: _Clock | None = None
    streams: Annotated[tuple[_Stream, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Measured:
    """A trial, and the histograms its directions refer to, by tag."""

    trial: Trial
    histograms: dict[str, hdr.Histogram]


def from_trial_result(
    result: Mapping[str, Any],
    *,
    name: str,
    profile: str,
    functions: int | None,
    offered_pps: float,
    flows: int | None = None,
    capture: str | None = None,
    no_loss_pps: float | None = None,
    rate_fraction: float | None = None,
    log: str | None = None,
    hops: Mapping[str, Joined] | None = None,
) -> Measured:
    """Return the trial in the tester's `result`, whose histograms will lie in `log` (a path in the run folder).

    `offered_pps` and `no_loss_pps` are frames a second in each direction. Streams that go the same way are one
    direction: counts and rates are summed, histograms merged. `hops` has what is known of a direction's parts, by its
    name. Raises ResultError if the result lacks something or its
    histogram contradicts itself.
    """
    try:
        parsed = _Result.model_validate(result)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ResultError(f"the tester's result of {name}: {where}: {first['msg']}") from error
    log = log if log is not None else f"histograms/{file_name(name)}.hlog"
    ways: dict[tuple[str, str], list[_Stream]] = {}
    for stream in parsed.streams:
        ways.setdefault((stream.from_, stream.to), []).append(stream)
    histograms: dict[str, hdr.Histogram] = {}
    try:
        directions = [_direction(streams, parsed.duration, log, histograms, hops or {}) for streams in ways.values()]
    except ResultError as error:
        raise ResultError(f"the tester's result of {name}: {error}") from error
    faults = ["stopped before its end"] if parsed.stopped else []
    faults += [fault for stream in parsed.streams if (fault := _contradiction(stream))]
    trial = Trial(
        name=name,
        profile=profile,
        flows=flows,
        capture=capture,
        functions=functions,
        offered_pps=offered_pps,
        no_loss_pps=no_loss_pps,
        rate_fraction=rate_fraction,
        duration_s=parsed.duration,
        started=timestamp(parsed.started_at),
        valid=not faults,
        reason="; ".join(faults) or None,
        directions=tuple(directions),
        headline=worse(directions),
        soak=parsed.soak,
        clock=_clock(parsed.clock),
    )
    return Measured(trial, histograms)


def worse(directions: Sequence[Direction]) -> int:
    """The index of the worse direction: the greater loss ratio, then the larger p99, then the larger maximum.

    Loss comes first because latency is measured only on what arrived. The first of equals is taken.
    """

    def badness(index: int) -> tuple[float, float, float]:
        latency = directions[index].latency_us
        return (directions[index].loss_ratio, *((latency.p99, latency.max) if latency else (0.0, 0.0)))

    return max(range(len(directions)), key=badness)


def share_of(trial: Trial, floor: Trial) -> Share | None:
    """What `trial`'s functions add to the latency of `floor`, in the headline's direction, in µs.

    None where either received nothing that way.
    """
    way = trial.worse
    for direction in floor.directions:
        if (direction.from_, direction.to) == (way.from_, way.to) and way.latency_us and direction.latency_us:
            return hdr.share(way.latency_us, direction.latency_us, floor.name)
    return None


def floor_of(result: Mapping[str, Any], kind: TrafficKind, *, ports: str, offered_pps: float) -> Floor | None:
    """The tester's floor in its trial.result of itself; None if frames were lost, so that nobody may stand on it.

    Raises ResultError if the result contradicts itself.
    """
    name = f"floor of {kind.profile}"
    measured = from_trial_result(result, name=name, profile=kind.profile, functions=0, offered_pps=offered_pps)
    trial = measured.trial
    latency = trial.worse.latency_us
    if not trial.valid or latency is None or trial.total("lost"):
        return None
    return Floor(**kind._asdict(), ports=ports, offered_pps=offered_pps, latency_us=latency)


def against_floor(trial: Trial, floor: Floor | None) -> Trial:
    """`trial` with how its median stands to the tester's own."""
    latency = trial.worse.latency_us
    if floor is None or latency is None or not floor.latency_us.p50:
        return trial
    ratio = latency.p50 / floor.latency_us.p50
    return trial.model_copy(update={"floor_ratio": ratio, "near_floor": is_near_floor(ratio)})


def file_name(name: str) -> str:
    """`name` with everything but letters, digits, dot, dash and underscore replaced: fit for a file, a tag."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:100] or "unnamed"


def _direction(
    streams: list[_Stream],
    duration: float,
    log: str,
    histograms: dict[str, hdr.Histogram],
    hops: Mapping[str, Joined],
) -> Direction:
    name = f"{streams[0].from_}-to-{streams[0].to}"
    parts = [hdr.from_tester(stream.latency.model_dump()) for stream in streams]
    whole = hdr.merge(parts)
    summed = {
        field: sum(getattr(stream, field) for stream in streams)
        for field in (
            "offered", "sent", "unsent", "refused", "received",
            "lost", "duplicate", "out_of_sequence", "beyond_window", "foreign",
        )
    }  # fmt: skip
    described: list[Traffic] = []
    for stream, part in zip(streams, parts, strict=True):
        own = len(streams) > 1 or stream.name != name
        tag = _keep(f"{name}.{stream.name}", part, histograms) if own else None
        described.append(_traffic(stream, part, duration, log, tag))
    received = summed["received"]
    return Direction(
        name=name,
        from_=streams[0].from_,
        to=streams[0].to,
        **summed,
        window=min((stream.window for stream in streams if stream.window is not None), default=None),
        latest=max(stream.latest for stream in streams),
        extents=_extents(streams),
        mean_frame=sum(stream.received_bytes for stream in streams) / received if received else 0.0,
        mpps=sum(part.mpps for part in described),
        gbps_l1=sum(part.gbps_l1 for part in described),
        gbps_l2=sum(part.gbps_l2 for part in described),
        latency_us=whole.latency(),
        histogram=_reference(log, _keep(name, whole, histograms)),
        intervals=_intervals(streams),
        hops=_hops(name, hops.get(name), log, histograms),
        streams=tuple(described) if len(streams) > 1 or streams[0].name != name else (),
    )


def _hops(name: str, joined: Joined | None, log: str, histograms: dict[str, hdr.Histogram]) -> Hops | None:
    if joined is None:
        return None
    parts = []
    for number, (part, histogram) in enumerate(zip(joined.hops.parts, joined.histograms, strict=True)):
        tag = _keep(f"{name}.part-{number}-{part.name}", histogram, histograms)
        parts.append(part.model_copy(update={"histogram": _reference(log, tag)}))
    return joined.hops.model_copy(update={"parts": tuple(parts)})


def _clock(clock: _Clock | None) -> Clock | None:
    if clock is None:
        return None
    return Clock(source=clock.source, hz=clock.hz, error_ppm=clock.error_ppm, checked_s=clock.checked_seconds)


def _extents(streams: Sequence[_Stream]) -> Extents | None:
    """How far the frames of all `streams` were reordered, or None if none was."""
    known = [stream.extents for stream in streams if stream.extents is not None]
    unknown = sum(each.unknown for each in known)
    # Extents are counted as latencies are, in frames.
    whole = hdr.merge(
        hdr.Histogram(each.counts, hdr.bounds(each.counts[0][0])[0], each.max, each.sum)
        for each in known
        if each.counts
    )
    if not whole.counts:
        return Extents(frames=0, unknown=unknown, average=0, p50=0, p99=0, max=0) if unknown else None
    return Extents(
        frames=whole.count,
        unknown=unknown,
        average=whole.sum_ns / whole.count,
        p50=whole.quantile(hdr.QUANTILES["p50"]),
        p99=whole.quantile(hdr.QUANTILES["p99"]),
        max=whole.max_ns,
    )


def _traffic(stream: _Stream, histogram: hdr.Histogram, duration: float, log: str, tag: str | None) -> Traffic:
    # By the time in which frames were sent: one that comes late does not make all of them slow.
    pps = max(stream.sent - stream.lost, 0) / duration if duration > 0 else 0.0
    mean = stream.received_bytes / stream.received if stream.received else 0.0
    latency: Latency | None = histogram.latency()
    return Traffic(
        name=stream.name,
        from_=stream.from_,
        to=stream.to,
        offered=stream.offered,
        sent=stream.sent,
        unsent=stream.unsent,
        refused=stream.refused,
        received=stream.received,
        lost=stream.lost,
        duplicate=stream.duplicate,
        out_of_sequence=stream.out_of_sequence,
        beyond_window=stream.beyond_window,
        window=stream.window,
        latest=stream.latest,
        extents=_extents([stream]),
        foreign=stream.foreign,
        mean_frame=mean,
        mpps=pps / 1e6,
        gbps_l1=pps * (mean + LAYER_1_OVERHEAD) * 8 / 1e9 if mean else 0.0,
        gbps_l2=pps * mean * 8 / 1e9,
        latency_us=latency,
        histogram=_reference(log, tag),
    )


def _keep(name: str, histogram: hdr.Histogram, histograms: dict[str, hdr.Histogram]) -> str | None:
    """Put `histogram` under a tag made of `name` that nothing else has; the tag, or None if it is empty."""
    if not histogram.counts:
        return None
    base = file_name(name)
    tag, number = base, 1
    while tag in histograms:
        number += 1
        tag = f"{base}-{number}"
    histograms[tag] = histogram
    return tag


def _reference(log: str, tag: str | None) -> HistogramReference | None:
    return HistogramReference(file=log, tag=tag) if tag is not None else None


def _intervals(streams: list[_Stream]) -> tuple[Interval, ...]:
    """The intervals of all `streams`, those with the same start (to the µs) summed."""
    together: dict[tuple[int, int], list[_Interval]] = {}
    for stream in streams:
        begun: Counter[int] = Counter()
        for interval in stream.intervals:
            start = round(interval.start * 1e6)
            together.setdefault((start, begun[start]), []).append(interval)
            begun[start] += 1  # a soak that is ended where an interval begins has another one there, of no length
    intervals = []
    for (start, _), group in sorted(together.items(), key=lambda item: item[0]):
        heard = [interval for interval in group if interval.received]
        received = sum(interval.received for interval in heard)
        intervals.append(
            Interval(
                start_s=start / 1e6,
                sent=sum(interval.sent for interval in group),
                received=received,
                min_us=min(interval.min_ns for interval in heard) / 1e3 if heard else None,
                avg_us=sum(interval.sum_ns for interval in heard) / received / 1e3 if heard else None,
                max_us=max(interval.max_ns for interval in heard) / 1e3 if heard else None,
                length_s=group[0].length,
                lost=_sum(interval.lost for interval in group),
                duplicate=_sum(interval.duplicate for interval in group),
                out_of_sequence=_sum(interval.out_of_sequence for interval in group),
            )
        )
    return tuple(intervals)


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of those that are known; None if none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _contradiction(stream: _Stream) -> str | None:
    """Why the counts of `stream` cannot all be true, or None.

    Each frame sent is either lost or received once, and copies are duplicates, save that beyond the window the analyser
    cannot know. Every frame received is timed, at the least its first copy.
    """
    unique = stream.sent - stream.lost
    copies = stream.received - stream.duplicate
    if not copies - stream.beyond_window <= unique <= copies:
        return (
            f"{stream.name}: the counts contradict each other: sent {stream.sent}, lost {stream.lost}, received "
            f"{stream.received}, duplicate {stream.duplicate}, beyond the window {stream.beyond_window}"
        )
    if not unique <= stream.latency.count <= stream.received:
        return f"{stream.name}: {stream.latency.count} frames were timed, but {stream.received} received"
    return None
