"""Trial results as the tester gives them, made from known samples. The histogram is counted here by the tester's own
formula and not by tailrace's, so that the two check each other."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any


def contract_index(value: int) -> int:
    if value < 256:
        return value
    shift = math.floor(math.log2(value)) - 7
    return (shift << 7) + (value >> shift)


def latency(samples: Sequence[int]) -> dict[str, Any]:
    return {
        "count": len(samples),
        "min_ns": min(samples, default=0),
        "max_ns": max(samples, default=0),
        "sum_ns": sum(samples),
        "counts": [list(pair) for pair in sorted(Counter(map(contract_index, samples)).items())],
    }


def samples_of(number: int, seed: int, base_ns: int = 4_000) -> list[int]:
    """Latencies like those of a busy host: a lognormal body, and now and then a stall."""
    chance = random.Random(seed)
    return [
        int(
            base_ns
            + chance.lognormvariate(7.2, 0.45)
            + (chance.expovariate(1 / 60_000) if chance.random() < 2e-3 else 0)
        )
        for _ in range(number)
    ]


def stream(
    samples: Sequence[int],
    name: str = "a-to-b",
    *,
    seconds: float = 1.0,
    lost: int = 0,
    duplicate: int = 0,
    frame: int = 64,
    intervals: int = 10,
    **changes: Any,
) -> dict[str, Any]:
    """One stream whose frames (`samples`, duplicates included) came in evenly within `seconds`."""
    received = len(samples)
    sent = received - duplicate + lost
    start, end = name.split("-to-")
    size = max(1, math.ceil(received / intervals))
    return {
        "name": name,
        "from": start,
        "to": end,
        "offered": sent,
        "sent": sent,
        "unsent": 0,
        "received": received,
        "lost": lost,
        "duplicate": duplicate,
        "out_of_sequence": 0,
        "beyond_window": 0,
        "foreign": 0,
        "sent_bytes": sent * frame,
        "received_bytes": received * frame,
        "sent_seconds": seconds,
        "latency": latency(samples),
        "intervals": [
            {
                "start": number * seconds / intervals,
                "sent": len(part),
                "received": len(part),
                "min_ns": min(part, default=0),
                "max_ns": max(part, default=0),
                "sum_ns": sum(part),
            }
            for number in range(intervals)
            if (part := samples[number * size : (number + 1) * size]) is not None
        ],
        **changes,
    }


def result(*streams: dict[str, Any], seconds: float = 1.0, **changes: Any) -> dict[str, Any]:
    return {
        "tsc_hz": 2_600_000_000,
        "duration": seconds,
        "stopped": False,
        "started_at": 1_795_000_000.25,
        "streams": list(streams),
        **changes,
    }


def both_ways(
    number: int = 2_000, seed: int = 1, base_ns: int = 4_000, frame: int = 64, **changes: Any
) -> dict[str, Any]:
    return result(
        stream(samples_of(number, seed, base_ns), "a-to-b", frame=frame, **changes),
        stream(samples_of(number, seed + 1000, base_ns), "b-to-a", frame=frame, **changes),
    )
