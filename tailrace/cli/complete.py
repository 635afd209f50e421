"""What a shell may complete: the values that arguments take. Nothing here fails: what cannot be read completes nothing.

Loaded at each press of the Tab key, so it imports nothing that takes long.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

YAML = (".yaml", ".yml")


def spec(incomplete: str) -> list[str]:
    """YAML files, and the folders on the way to them."""
    return _paths(incomplete, YAML)


def profile(incomplete: str) -> list[str]:
    """The profiles by name, and YAML files."""
    folder = Path(__file__).parent.parent / "host/profiles"
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete)] + _paths(incomplete, YAML)


def run(incomplete: str) -> list[str]:
    """Runs in the folder `runs`, the newest first, and folders."""
    try:
        found = sorted((path.name for path in Path("runs").iterdir() if path.is_dir()), reverse=True)
    except OSError:
        found = []
    return [name for name in found if name.startswith(incomplete)] + _paths(incomplete, ())


def words(*values: str) -> Callable[[str], list[str]]:
    """What completes one of these."""

    def completed(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return completed


def listed(*values: str) -> Callable[[str], list[str]]:
    """What completes a list of these with commas between them, each once."""

    def completed(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        have = before.split(",")
        return [f"{before}{comma}{value}" for value in values if value.startswith(last) and value not in have]

    return completed


kernel = words("cloud", "rt", "stock")
"""The kernels that a machine's image may have."""
interrupt_path = listed("msix", "vring", "ipi", "timer")
"""How interrupts come to a receiver."""
interrupt_side = listed("native", "tuned", "untuned")
"""Receivers where no spec names others."""
interrupt_load = listed("none", "cpu", "memory", "machines")
"""What else may run while interrupts are measured."""


def cards(incomplete: str) -> list[str]:
    """The network cards that may have virtual functions, in a list with commas between them."""
    found = Path("/sys/class/net").glob("*/device/sriov_totalvfs")
    return listed(*sorted(path.parent.parent.name for path in found))(incomplete)


def image(incomplete: str) -> list[str]:
    """The machines' images."""
    try:
        found = (path.parent.name for path in _images().glob("*/image.json"))
        return sorted(name for name in found if name.startswith(incomplete))
    except OSError:
        return []


def snapshot(ctx: Any, incomplete: str) -> list[str]:
    """The snapshots of the function that the line names (`ctx` is typer's context)."""
    try:
        found = (path.stem for path in (_images() / "snapshots" / str(ctx.params.get("name"))).glob("*.state"))
        return sorted(label for label in found if label.startswith(incomplete))
    except OSError:
        return []


def _images() -> Path:
    return Path(os.environ.get("TAILRACE_IMAGES", "/var/lib/tailrace/images"))


def function(incomplete: str) -> list[str]:
    """The functions of what is up, each once however many replicas it has."""
    return _named("functions", incomplete, "function")


def replica(incomplete: str) -> list[str]:
    """The functions and replicas of what is up."""
    return _named("functions", incomplete)


def host(incomplete: str) -> list[str]:
    """State folders that have a service; hosts are the shell's own to know."""
    return [folder for folder in _paths(incomplete, ()) if incomplete.startswith("/")]


def port(incomplete: str) -> list[str]:
    """The ports of what is up."""
    return _named("ports", incomplete)


def chain(incomplete: str) -> list[str]:
    """The chains of what is up."""
    return _named("chains", incomplete)


def _named(section: str, incomplete: str, key: str = "name") -> list[str]:
    """The names in a section of the plan that is up, which is on record for everybody to read."""
    folder = Path(os.environ.get("TAILRACE_STATE", "/run/tailrace"))
    try:
        things = json.loads((folder / "state.json").read_text())["plan"][section]
        return sorted({each[key] for each in things if each[key].startswith(incomplete)})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _paths(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    """Files with these endings, and folders; of a single folder its content, because a shell ends the word there."""
    found = sorted(_under(incomplete, endings))
    if len(found) == 1 and found[0].endswith("/") and found[0] != incomplete:
        return sorted(_under(found[0], endings)) or found
    return found


def _under(incomplete: str, endings: tuple[str, ...]) -> Iterator[str]:
    start, _, rest = incomplete.rpartition("/")
    start += "/" if "/" in incomplete else ""
    try:
        entries = list(os.scandir(Path(start or ".").expanduser()))
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(rest) or (entry.name.startswith(".") and not rest):
            continue
        if entry.is_dir():
            yield f"{start}{entry.name}/"
        elif entry.name.endswith(endings) if endings else False:
            yield f"{start}{entry.name}"
