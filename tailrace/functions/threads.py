"""More and fewer CPUs of a function that runs: one thread on each (dataplane/functions/threads.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from tailrace.errors import Fault
from tailrace.functions.runtime import Used
from tailrace.functions.show import call
from tailrace.state.record import Process, State

WAIT_MS = 100
"""For how long the first frame on a new CPU is waited for; where no traffic comes, there is none."""


@dataclass(frozen=True)
class Resized:
    """A function whose CPUs are others now; times in ms from when that was asked for."""

    before: tuple[int, ...]
    now: tuple[int, ...]
    queues_moved: int
    vcpus_moved: int | None
    """Of a machine: virtual CPUs that are on others now."""
    handed_over_ms: float
    """When each queue was with the thread that is to have it, or each virtual CPU on its CPU."""
    first_frame_ms: float | None
    """When the last of the new threads had moved its first frames; None: there is none, or nothing came."""


def use_cpus(state: State, process: Process, cpus: Sequence[int], wait_ms: int = 0) -> Used:
    """Has a function that is up run one thread on each of these CPUs from now on. Raises Mistake, Failure, and then
    nothing has changed."""
    try:
        return Used.model_validate(call(state, process, "use_cpus", cpus=list(cpus), wait_ms=wait_ms))
    except ValidationError:
        raise Fault(f"{process.name} answers with something else than what it has done with its CPUs") from None
