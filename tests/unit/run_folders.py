"""Run folders with made-up measurements, for whatever reads run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tester_results import both_ways, latency

from tailrace.results import RunFolder
from tailrace.results.causes import Causes
from tailrace.results.histogram import from_tester
from tailrace.results.hops import Joined
from tailrace.results.model import HopPart, Hops, SlowFrame
from tailrace.results.no_loss import NoLossRate


def run_folder(
    runs: Path,
    *,
    profiles: tuple[str, ...] = ("64", "imix"),
    chains: int = 3,
    no_loss: float | None = None,
    **changes: Any,
) -> RunFolder:
    """A finished run: each profile through chains of 0, 1, … functions. `no_loss` is the floor's rate without loss."""
    arguments: dict[str, Any] = {
        "spec": "fabric: tailrace\n",
        "host": {"cpu": {"model": "Some CPU", "cores": 2}, "flags": ["constant_tsc"], "isolated": None},
        "command": ["tailrace", "demo", "--runs", "my runs"],
        "versions": {"tailrace": "0.1.0"},
        "fabric": "tailrace",
    }
    with RunFolder.create(runs, "demo", **{**arguments, **changes}) as folder:
        for profile in profiles:
            for functions in range(chains):
                document = both_ways(3_000, seed=functions, base_ns=3_000 * (1 + functions))
                found = without_loss(no_loss / (1 + functions)) if no_loss else {}
                add(folder, document, profile, functions, **found)
    return folder


def without_loss(pps: float) -> dict[str, Any]:
    """What `add_trial` is given for a trial that confirmed a no-loss rate."""
    return {"searched": NoLossRate(pps=pps, limit="loss"), "confirmed": True}


def add(folder: RunFolder, document: dict[str, Any], profile: str = "64", functions: int = 0, **changes: Any) -> None:
    arguments = {"name": f"{profile}-{functions}", "offered_pps": 1.5e6, **changes}
    folder.add_trial(document, profile=profile, functions=functions, **arguments)


def joined(causes: Causes | None = None) -> Joined:
    """A direction taken apart by hop, with why its slowest frames were slow."""
    histograms = tuple(from_tester(latency([ns] * 100)) for ns in (900, 300, 5_000, 310, 14_000, 290, 1_200))
    ways = ("ring", "switch", "function", "switch", "function", "switch", "ring")
    names = (
        "a to the switch",
        "a to first.0",
        "first",
        "first.1 to second.0",
        "second",
        "second.1 to b",
        "the switch to b",
    )
    total = sum(histogram.sum_ns for histogram in histograms)
    parts = [
        HopPart(kind=kind, name=name, share=each.sum_ns / total, latency_us=found, histogram=None)
        for kind, name, each in zip(ways, names, histograms, strict=True)
        if (found := each.latency())
    ]
    slow = SlowFrame(sequence=7, latency_us=22, parts=names, parts_us=(0.9, 0.3, 5, 0.31, 14, 0.29, 1.2))
    hops = Hops(
        frames=100, left_out=0, average_us=total / 100e3, parts=tuple(parts), slowest=(slow,), slowest_untraced=0,
        causes=causes,
    )  # fmt: skip
    return Joined(hops, histograms)
