"""What `tailrace-vnf impair` makes of frames, and what a measurement then has to count: worked out here by themselves,
from the words at the top of dataplane/functions/impair.c and of RFC 4737, so that two who do not know each other
agree."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MASK = 2**64 - 1
GAPS = 1 << 14
"""Gaps that the tester remembers for extents."""


def splitmix(seed: int, count: int) -> Iterator[int]:
    """The first `count` numbers of SplitMix64 (Steele, Lea and Flood, 2014)."""
    state = seed & _MASK
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
        yield mixed ^ (mixed >> 31)


@dataclass(frozen=True)
class Impairment:
    """Settings of the function; chances are frames of 2^32."""

    seed: int
    drop: int = 0
    duplicate: int = 0
    reorder: int = 0
    depth: int = 1
    delay_us: int = 0

    def arguments(self) -> list[str]:
        named = {**self.__dict__, "delay-us": self.delay_us}
        del named["delay_us"]
        return [f"--set={name}={value}" for name, value in named.items()]

    def arrivals(self, sent: int, side: int) -> Iterator[int]:
        """The numbers of the frames that leave, in order, of `sent` frames (0, 1, ...) that came in at a port."""
        late: list[tuple[int, int]] = []
        drop, duplicate, reorder, depth = self.drop, self.duplicate, self.reorder, self.depth
        fates = splitmix(~self.seed if side else self.seed, 2 * sent)
        for number, (first, second) in enumerate(zip(fates, fates, strict=True)):
            if first & 0xFFFFFFFF >= drop:
                if first >> 32 < duplicate:
                    yield number
                if second & 0xFFFFFFFF < reorder:
                    heapq.heappush(late, (number + 1 + ((second >> 32) * depth >> 32), number))
                else:
                    yield number
            while late and late[0][0] <= number:
                yield heapq.heappop(late)[1]


def expected(arrivals: Iterable[int], sent: int, window: int) -> dict[str, int]:
    """What the tester has to say of these arrivals of `sent` frames numbered from 0, with its window."""
    seen = bytearray(sent)
    received = unique = duplicate = late = beyond = latest = 0
    next_expected = 0
    # First copies in order, their place among all first copies, and how many gaps there were with theirs.
    tops, places, gaps = array("q"), array("q"), array("q")
    nb_gaps = extent_max = extent_sum = extent_unknown = 0
    for number in arrivals:
        received += 1
        if number >= next_expected:
            nb_gaps += number > next_expected
            next_expected = number + 1
            seen[number] = 1
            tops.append(number)
            places.append(unique)
            gaps.append(nb_gaps)
            unique += 1
        elif number < next_expected - window:
            beyond += 1
            latest = max(latest, next_expected - number)
        elif seen[number]:
            duplicate += 1
        else:
            seen[number] = 1
            late += 1
            first = bisect_right(tops, number)  # the first to arrive of a greater number
            if nb_gaps - gaps[first] >= GAPS:
                extent_unknown += 1
            else:
                extent = unique - places[first]
                extent_max = max(extent_max, extent)
                extent_sum += extent
            unique += 1
    return {
        "received": received,
        "lost": sent - unique,
        "duplicate": duplicate,
        "out_of_sequence": late,
        "beyond_window": beyond,
        "latest": latest,
        "foreign": 0,
        "extent_count": late - extent_unknown,
        "extent_max": extent_max,
        "extent_sum": extent_sum,
        "extent_unknown": extent_unknown,
    }
