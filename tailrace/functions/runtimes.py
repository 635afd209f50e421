"""The places where functions live: a new one is a row here, and of `tailrace.spec.runtime`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tailrace.functions.container import InContainer
from tailrace.functions.guest import Guest
from tailrace.functions.machine import InMachine
from tailrace.functions.process import InProcess
from tailrace.functions.runtime import Runtime, Starter
from tailrace.spec.kind import Network
from tailrace.state.record import Process

RUNTIMES: dict[str, Runtime] = {each.name: each for each in (InProcess(), InContainer(), InMachine(), Guest())}
#: Those in which Tailrace starts functions.
STARTERS: dict[str, Starter] = {name: each for name, each in RUNTIMES.items() if isinstance(each, Starter)}


def has_namespace(runs: str, network: Network | None) -> bool:
    """Whether a function that lives there, with that network, has a network namespace of the host's."""
    return network is not None and not RUNTIMES[runs].own_kernel


def program_of(process: Process) -> int | None:
    """The pid of the function that a process is, or holds; None where it is none, or not there."""
    return STARTERS[process.runtime].program(process) if process.runtime in STARTERS else None


def beside(process: Process, words: Sequence[str]) -> list[str]:
    """The command that runs these words where a function lives. Raises Mistake where nothing can be run there."""
    return STARTERS[process.runtime].beside(process, words)


def unlike(process: Process, logs: Path) -> list[str]:
    """What somebody else has changed of a process that is a function's, and runs. Raises Failure, Mistake."""
    return STARTERS[process.runtime].unlike(process, logs) if process.runtime in STARTERS else []


def ended_well(process: Process, logs: Path) -> bool:
    """Whether a process that has ended is a function's, and ended by itself and with status 0."""
    return process.runtime in STARTERS and STARTERS[process.runtime].ended_well(process, logs)
