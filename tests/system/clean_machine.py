"""The command, and what it can leave on a machine: nothing may be left when a test is over, whatever was killed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from running_node import Command, open_folder, pages, wait_until

from tailrace.functions.names import outer_name
from tailrace.state.folder import folder_in_use

PLAIN = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"


#: Network namespaces are named after the process that has made them, or after a mark of the node's state folder.
_OF_PROCESS, _OF_NODE = re.compile(r"tailrace-(?:test-)?(\d{1,7})-"), re.compile(r"tailrace-[0-9a-f]{8}-")


def network(command: Command) -> set[str]:
    """Network namespaces of Tailrace's, without those of other nodes and of processes beside this one, and interfaces
    of the machine's own network."""
    names = {path.name for path in Path("/run/netns").glob("tailrace-*") if not _anothers(path.name, command)}
    return names | {path.name for path in Path("/sys/class/net").iterdir()}


def _anothers(namespace: str, command: Command) -> bool:
    if _OF_NODE.match(namespace):
        return not namespace.startswith(outer_name(command.state, ""))
    made = _OF_PROCESS.match(namespace)
    try:
        return made is not None and command.mark not in Path(f"/proc/{made[1]}/environ").read_bytes().split(b"\0")
    except OSError:  # who has made it is gone, and might have been of this test
        return False


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
    with open_folder() as reachable:
        command = Command(tailrace, folder, reachable / "state")
        before, links = pages(), network(command)
        yield command
        command.end_begun()
        if command.leftovers():  # most tests have ended with `down`
            command("down")
        wait_until(lambda: not command.leftovers())

    def left() -> list[str]:
        more = [f"huge pages: {before} before, {pages()} now"] if pages() > before else []
        return [*more, *sorted(network(command) - links)]

    with suppress(AssertionError):  # others, who run beside this, have some for a while
        wait_until(lambda: not left())
    assert not (found := left()), f"left behind: {', '.join(found)}"
    assert not Path("/run/dpdk/tailrace-ovs").exists()
