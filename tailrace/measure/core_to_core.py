"""How far two cores are from each other: the round trip of a cache line, which sets the cost of whatever they share."""

from __future__ import annotations

import json

from tailrace.errors import Failure
from tailrace.process.process import Limits
from tailrace.process.programs import own_program
from tailrace.resources.place import POLLER_NICE
from tailrace.state.launch import Launcher

CORE_TO_CORE = "tailrace-core-to-core"
DISTANCE_SECONDS = 60.0
"""How long measuring it may take; idle cores take a small part of it."""
NEAR_NS = 150.0
"""Under this two cores share their last-level cache."""


def core_to_core(launcher: Launcher, one: int, other: int) -> float:
    """Round trip of a cache line between two cores while both are otherwise idle, in ns. Raises Failure."""
    name = "core-to-core"
    launcher.log(name).unlink(missing_ok=True)
    argv = [str(own_program(CORE_TO_CORE)), "--cores", f"{one},{other}", "--json"]
    process = launcher.start(name, argv, Limits(cpus=(one, other), nice=POLLER_NICE))
    ended = process.id.wait(DISTANCE_SECONDS)
    launcher.state.undo(process)
    if not ended:
        raise Failure(f"the distance of cores {one} and {other} could not be measured: they are not idle")
    try:
        return float(json.loads(launcher.last_words(name))["round_trip_ns"])
    except ValueError:
        raise launcher.failure(name, f"{CORE_TO_CORE} failed") from None
