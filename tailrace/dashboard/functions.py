"""The functions of what is up: where each lives, how it is, what it has said; and one that is to be replaced."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.errors import Failure
from tailrace.kernel.cpus import show_list
from tailrace.node import client
from tailrace.node.status import status
from tailrace.observe.function_log import last_lines, log_of
from tailrace.state.folder import folder_in_use

LINES = 200


def functions(folder: Path) -> list[dict[str, Any]]:
    """Each replica of each function. Raises Failure, Mistake."""
    said = status(folder)
    processes = {each["function"]: each for each in said["processes"] if each["function"]}
    return [
        {
            "name": replica["name"],
            "function": each["name"],
            "kind": each["kind"],
            "runs": each["runs"],
            "flows": replica["flows"],
            **_process(processes.get(replica["name"]), replica["state"]),
        }
        for each in said["functions"]
        for replica in each["replicas"]
    ]


def _process(process: dict[str, Any] | None, state: str) -> dict[str, Any]:
    if process is None:
        return {"state": state, "pid": None, "cpus": "", "restarts": 0}
    cpus = ""
    with suppress(OSError):  # it has just ended
        cpus = show_list(os.sched_getaffinity(process["pid"]))
    return {
        "state": state if process["alive"] or state == "stopped" else "ended",
        "pid": process["pid"] if process["alive"] else None,
        "cpus": cpus,
        "restarts": process["restarts"],
    }


def log(folder: Path, name: str) -> list[str]:
    """The last lines of what a function has said. Raises Failure, Mistake."""
    path = log_of(folder_in_use(folder), name)
    try:
        with path.open("rb") as file:
            return last_lines(file, LINES)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def restart(folder: Path, name: str) -> dict[str, Any]:
    """Replaces what runs of a function by a new instance; of what is up without a service, one is started first. Raises
    Said, Mistake, Failure."""
    folder = folder_in_use(folder)
    try:
        answer = client.ask(folder, "function.restart", start=(folder / "state.json").exists(), name=name)
    except client.NoService:
        raise Failure("nothing is up; run `tailrace up SPEC`") from None
    return {"version": answer["version"]}
