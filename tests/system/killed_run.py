"""A run of `measure interrupts` in whose middle something happens."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running_node import Command, wait_until

from tailrace.process.process import descendants, identify


@contextmanager
def with_a_slice(command: Command, *words: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run whose first slice is measured, and its folder; it has ended after the block."""
    known = set(command.runs.glob("*/results.json"))
    running = command.begin("measure", "interrupts", *words, "--runs", command.runs, "--json")

    def folder() -> Path | None:
        for file in set(command.runs.glob("*/results.json")) - known:
            if results(file.parent)["host_soak"]:
                return file.parent
        return None

    found: Path = wait_until(folder, command.limit)
    started = list(filter(None, map(identify, descendants(running.pid))))
    try:
        yield running, found
    finally:
        running.kill()
        running.communicate()
        wait_until(lambda: not any(process.alive() for process in started))


def results(folder: Path) -> dict[str, Any]:
    """What a run has found so far."""
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def killed_after_a_slice(command: Command, *words: str) -> tuple[Path, dict[str, Any]]:
    """The run's folder, and what it has found when it is killed: as soon as its first slice is measured."""
    with with_a_slice(command, *words) as (_, folder):
        pass
    return folder, results(folder)
