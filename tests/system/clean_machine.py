"""The command, and what it can leave on a machine: nothing may be left when a test is over, whatever was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running_node import Command, open_folder, pages, wait_until

from tailrace.state.folder import folder_in_use

PLAIN = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"


def network() -> set[str]:
    """Network namespaces of Tailrace's, and interfaces of the machine's own network."""
    names = {path.name for path in Path("/run/netns").glob("tailrace-*")}
    return names | {path.name for path in Path("/sys/class/net").iterdir()}


def things(command: Command, kind: str = "process") -> list[dict[str, Any]]:
    """What is on record, of one kind; while it is being written, nothing."""
    try:
        record = json.loads((folder_in_use(command.state) / "state.json").read_text())
    except (OSError, ValueError):
        return []
    return [each for each in record["things"] if each["kind"] == kind]


def is_alive(process: dict[str, Any]) -> bool:
    try:
        stat = Path(f"/proc/{process['pid']}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


@contextmanager
def clean(tailrace: Path, folder: Path) -> Iterator[Command]:
    """The command in a folder of its own; after the block and `tailrace down`, the machine must be as it was.

    Its state is where every user may enter, so the switch is a user of its own. What a failed test leaves running is
    ended first, so that it costs no other test its cores.
    """
    before, links = pages(), network()
    with open_folder() as reachable:
        command = Command(tailrace, folder, reachable / "state")
        yield command
        command.end_begun()
        if command.leftovers():  # most tests have ended with `down`
            command("down")
        wait_until(lambda: not command.leftovers())
    assert pages() <= before
    assert network() <= links
    assert not Path("/run/dpdk/tailrace-ovs").exists()
