"""Run folders with made-up measurements, for whatever reads run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tester_results import both_ways

from tailrace.results import RunFolder
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
    """What `add_trial` is told of a trial that bore out a no-loss rate."""
    return {"searched": NoLossRate(pps=pps, limit="loss"), "borne_out": True}


def add(folder: RunFolder, document: dict[str, Any], profile: str = "64", functions: int = 0, **changes: Any) -> None:
    arguments = {"name": f"{profile}-{functions}", "offered_pps": 1.5e6, **changes}
    folder.add_trial(document, profile=profile, functions=functions, **arguments)
