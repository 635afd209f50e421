"""Starts programs for one state: on record first, output in a log, ending with the command or living on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.errors import Failure
from tailrace.host.process import Limits, ProcessId, start
from tailrace.host.state import Process, State


@dataclass(frozen=True)
class Launcher:
    """What every start in one session has in common."""

    state: State
    logs: Path
    tied: bool
    """Processes die with this command (a run), or live on by themselves (`tailrace up`)."""
    network: str | None = None
    """The network namespace that they run in; this command's own unless said."""

    def start(
        self, name: str, argv: Sequence[str], limits: Limits, keep: Iterable[int] = (), stdin: int | None = None
    ) -> Process:
        """Starts a program under a name of ours and records it."""
        held: list[Process] = []

        def record(process: ProcessId) -> None:
            held.append(Process(name, process.pid, process.start, Path(argv[0]).name))
            self.state.add(held[0])

        limits = replace(limits, tied=self.tied, network=limits.network or self.network)
        start(argv, log=self.log(name), limits=limits, record=record, keep=keep, stdin=stdin)
        return held[0]

    def log(self, name: str) -> Path:
        """Where the output of a process goes."""
        return self.logs / f"{name}.log"

    def last_words(self, name: str) -> str:
        """The last line that a process wrote, which is its error if it has failed."""
        try:
            lines = [line for line in self.log(name).read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            return ""
        errors = [line for line in lines if " error: " in line]
        return (errors or lines or [""])[-1]

    def failure(self, name: str, what: str) -> Failure:
        """An error that says what happened to a process and what it said itself."""
        words = self.last_words(name)
        return Failure(f"{what}: {words}" if words else f"{what}; see {self.log(name)}")
