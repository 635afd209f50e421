"""Latency histograms: the tester's counts, quantiles of them, and HDR V2 histogram logs.

The layout is HdrHistogram's with a lowest value of 1 ns and two significant digits: 128 buckets for each power of two,
so that a bucket is at most 1/128 (0.8 %) as wide as the values in it. Minimum, maximum and sum are kept beside the
counts and are exact. A quantile is nearest-rank (RFC 2330, section 11.3) and is given as the upper edge of its bucket,
never above the maximum: it errs by at most 0.8 %, and only to the slow side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from tailrace.results.model import Latency, ResultError, Share, timestamp

HIGHEST_NS = 3_600_000_000_000
"""Largest value that the logs can hold: one hour."""

DIGITS = 2
"""Significant decimal digits of the layout."""

QUANTILES = {
    "p50": Fraction(50, 100),
    "p90": Fraction(90, 100),
    "p99": Fraction(99, 100),
    "p99_9": Fraction(999, 1000),
    "p99_99": Fraction(9999, 10000),
}


def index_of(value: int) -> int:
    """The bucket that counts `value` (ns)."""
    if value < 256:
        return value
    shift = value.bit_length() - 8
    return (shift << 7) + (value >> shift)


def bounds(index: int) -> tuple[int, int]:
    """The smallest and the largest value (ns) that bucket `index` counts."""
    if index < 256:
        return index, index
    shift = (index >> 7) - 1
    low = (index - (shift << 7)) << shift
    return low, low + (1 << shift) - 1


@dataclass(frozen=True)
class Histogram:
    """A latency distribution: `counts` by bucket in rising order, none of them 0; the rest in ns, exact.

    An empty one has no counts, and its minimum, maximum and sum are 0.
    """

    counts: tuple[tuple[int, int], ...] = ()
    min_ns: int = 0
    max_ns: int = 0
    sum_ns: int = 0

    @property
    def count(self) -> int:
        """How many values were recorded."""
        return sum(count for _, count in self.counts)

    def value_at_rank(self, rank: int) -> int:
        """The `rank`-th smallest value (from 1) in ns, as the upper edge of its bucket and at most the maximum."""
        return self.values_at_ranks([rank])[0]

    def values_at_ranks(self, ranks: Iterable[int]) -> list[int]:
        """value_at_rank of each of `ranks`, which must rise. Raises ValueError for a rank that there is not."""
        values: list[int] = []
        buckets = iter(self.counts)
        index, seen = 0, 0
        last = self.counts[-1][0] if self.counts else 0
        for rank in ranks:
            if rank < 1:
                raise ValueError(f"rank {rank} is below 1")
            while seen < rank:
                try:
                    index, count = next(buckets)
                except StopIteration:
                    raise ValueError(f"rank {rank} of {seen} values") from None
                seen += count
            # Values above the tester's range are counted in its last bucket, so that one's upper edge is the maximum.
            values.append(self.max_ns if index == last else bounds(index)[1])
        return values

    def quantile(self, share: Fraction) -> int:
        """The smallest value (ns) that at least `share` of the values did not exceed; ValueError if empty."""
        exact = share * self.count
        return self.value_at_rank(max(1, -(-exact.numerator // exact.denominator)))

    def latency(self) -> Latency | None:
        """Minimum, mean, percentiles and maximum in µs; None if empty."""
        count = self.count
        if not count:
            return None
        quantiles = {name: self.quantile(share) / 1e3 for name, share in QUANTILES.items()}
        return Latency(min=self.min_ns / 1e3, average=self.sum_ns / count / 1e3, max=self.max_ns / 1e3, **quantiles)

    def to_hdr(self) -> HdrHistogram:
        """The same counts as an HdrHistogram of the hdrhistogram library, with the exact minimum and maximum."""
        hdr = HdrHistogram(1, HIGHEST_NS, DIGITS)
        for index, count in self.counts:
            hdr.counts[index] = count
        hdr.total_count = self.count
        if self.counts:
            # The encoder stops at the bucket of the maximum, and must neither cut a count off nor run past the array.
            hdr.min_value = self.min_ns
            hdr.max_value = min(self.max_ns, HIGHEST_NS)
        return hdr


def from_tester(latency: Mapping[str, Any]) -> Histogram:
    """The histogram in the tester's {"count","min_ns","max_ns","sum_ns","counts":[[index,count],…]}, where a sum of
    2⁶³ and more is text.

    Raises ResultError if it contradicts itself: figures that nobody could stand behind.
    """
    merged: dict[int, int] = {}
    for index, count in latency["counts"]:
        if not 0 <= index <= index_of(HIGHEST_NS) or count < 0:
            raise ResultError(f"latency histogram: bucket {index} with a count of {count} cannot be")
        merged[index] = merged.get(index, 0) + count
    counts = tuple(sorted((index, count) for index, count in merged.items() if count))
    total = sum(count for _, count in counts)
    if total != latency["count"]:
        raise ResultError(f"latency histogram: its buckets hold {total} frames, but it counted {latency['count']}")
    if not counts:
        return Histogram()
    low, high, summed = latency["min_ns"], latency["max_ns"], int(latency["sum_ns"])
    first, last = counts[0][0], counts[-1][0]
    if not (0 <= low <= high and index_of(high) >= last and (index_of(low) == first or first == last)):
        raise ResultError(f"latency histogram: a minimum of {low} ns and a maximum of {high} ns contradict its buckets")
    if not low * total <= summed <= high * total:
        raise ResultError(f"latency histogram: a sum of {summed} ns contradicts its minimum and maximum")
    return Histogram(counts, low, high, summed)


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """All values of all `histograms` in one; nothing is averaged."""
    full = [histogram for histogram in histograms if histogram.counts]
    if not full:
        return Histogram()
    counts: dict[int, int] = {}
    for histogram in full:
        for index, count in histogram.counts:
            counts[index] = counts.get(index, 0) + count
    return Histogram(
        tuple(sorted(counts.items())),
        min(histogram.min_ns for histogram in full),
        max(histogram.max_ns for histogram in full),
        sum(histogram.sum_ns for histogram in full),
    )


def share(chain: Latency, floor: Latency, name: str) -> Share:
    """`chain` less `floor` (the trial called `name`), figure by figure, in µs."""
    return Share(
        floor=name,
        average=chain.average - floor.average,
        p50=chain.p50 - floor.p50,
        p99=chain.p99 - floor.p99,
        max=chain.max - floor.max,
    )


def log_text(start: float, seconds: float, histograms: Mapping[str, Histogram]) -> str:
    """An HDR V2 histogram log with one line for each of `histograms` by tag, all of the same `seconds` from `start`.

    `start` is in seconds since the epoch.
    """
    return log_head(start) + "".join(log_line(tag, 0.0, seconds, histogram) for tag, histogram in histograms.items())


def log_head(start: float, *comments: str) -> str:
    """The first lines of an HDR V2 histogram log whose times count from `start` (seconds since the epoch).

    The lines are written here because hdrhistogram's HistogramLogWriter knows no tags, rounds the maximum down to a
    whole unit, and fails on the start time; the histograms are encoded by the library.
    """
    lines = [
        "#[Latency in ns, one way]",
        "#[Histogram log format version 1.3]",
        f"#[BaseTime: {start:.3f} (seconds since epoch)]",
        f"#[StartTime: {start:.3f} (seconds since epoch), {timestamp(start).isoformat()}]",
        *comments,
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    return "\n".join(lines) + "\n"


def log_line(tag: str, start: float, seconds: float, histogram: Histogram) -> str:
    """One line of a log: `seconds` from `start` (after the log's) on, under a tag.

    Values are in ns; the maximum beside them is in ms, as is usual in such logs, with six decimals and so exact.
    """
    payload = histogram.to_hdr().encode().decode("ascii")
    return f"Tag={tag},{start:.3f},{seconds:.3f},{histogram.max_ns / 1e6:.6f},{payload}\n"


def decode(payload: str | bytes) -> Histogram:
    """The histogram in a line of a log; extremes and sum are those of its buckets. Raises ResultError."""
    try:
        return _from_hdr(HdrHistogram.decode(payload))
    except ResultError:
        raise
    except Exception as error:  # the library raises bare and private exceptions alike
        raise ResultError(f"not an HDR histogram: {error}") from error


def read_log(path: Path) -> dict[str, Histogram]:
    """The histograms in an HDR V2 log by tag; lines of one tag are merged.

    A log keeps no sum, and minima and maxima only as buckets: sums come from the buckets' middles, extremes are the
    buckets' edges. Where the trial's exact figures are at hand, put them in place. Raises ResultError if the log cannot
    be read.
    """
    found: dict[str, Histogram] = {}
    try:
        reader = HistogramLogReader(str(path), HdrHistogram(1, HIGHEST_NS, DIGITS))
        try:
            while (hdr := reader.get_next_interval_histogram()) is not None:
                tag = hdr.tag or ""
                found[tag] = merge([found.get(tag, Histogram()), _from_hdr(hdr)])
        finally:
            reader.close()
    except Exception as error:  # the library raises bare and private exceptions alike on a damaged log
        raise ResultError(f"{path}: cannot be read as an HDR histogram log: {error}") from error
    return found


def _from_hdr(hdr: HdrHistogram) -> Histogram:
    if hdr.unit_magnitude != 0 or hdr.significant_figures != DIGITS:
        raise ResultError(f"of {hdr.significant_figures} digits and not of {DIGITS}")
    counts = tuple((index, hdr.counts[index]) for index in range(hdr.counts_len) if hdr.counts[index])
    if not counts:
        return Histogram()
    total = sum(sum(bounds(index)) * count for index, count in counts)
    return Histogram(counts, bounds(counts[0][0])[0], bounds(counts[-1][0])[1], total // 2)
