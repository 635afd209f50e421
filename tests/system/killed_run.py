"""A run of `measure interrupts` that is killed in the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from running_node import Command, wait_until

from tailrace.process.process import descendants, identify


def killed_after_a_slice(command: Command, *words: str) -> tuple[Path, dict[str, Any]]:
    """The run's folder, and what it has found when it is killed: as soon as its first slice is measured."""
    known = set(command.runs.glob("*/results.json"))
    running = command.begin("measure", "interrupts", *words, "--runs", command.runs, "--json")

    def results() -> dict[str, Any]:
        (file,) = set(command.runs.glob("*/results.json")) - known
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    wait_until(lambda: set(command.runs.glob("*/results.json")) > known and results()["host_soak"], command.limit)
    started = list(filter(None, map(identify, descendants(running.pid))))
    running.kill()
    running.communicate()
    wait_until(lambda: not any(process.alive() for process in started))
    return next(iter(set(command.runs.glob("*/results.json")) - known)).parent, results()
