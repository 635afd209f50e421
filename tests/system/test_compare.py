"""`tailrace compare` as a user runs it: what cannot be compared is said in one line, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_node import Command, needs_a_node, pages, wait_until

pytestmark = [*needs_a_node, pytest.mark.requires_program("ovs-vswitchd-dpdk", "stress-ng")]
PLAIN = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"


def network() -> set[str]:
    """Network namespaces of Tailrace's, and interfaces of the machine's own network."""
    names = {path.name for path in Path("/run/netns").glob("tailrace-*")}
    return names | {path.name for path in Path("/sys/class/net").iterdir()}


@pytest.fixture
def command(tailrace: Path, tmp_path: Path) -> Iterator[Command]:
    before, links = pages(), network()
    command = Command(tailrace, tmp_path)
    yield command
    command("down")
    wait_until(lambda: not command.leftovers())
    assert pages() <= before
    assert network() <= links


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--fabrics", "tailrace"), "one fabric alone cannot be compared"),
        (("--fabrics", "tailrace,vpp"), "'vpp' is no fabric"),
        (("--fabrics", "linux-bridge,tailrace", "--interface", "memif"), "linux-bridge has no memif ports"),
        (("--interface", "sriov"), "no such kind of port"),
    ],
)
def test_mistakes_are_one_line(command: Command, options: tuple[str, ...], expected: str) -> None:
    refused = command("compare", command.spec(PLAIN), *options, status=2)
    assert expected in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_fabric_says_which_words_it_cannot_carry(command: Command) -> None:
    text = PLAIN.replace("[tester.a, first, tester.b]", "{path: [tester.a, first, tester.b], match: {vlan: 5}}")
    refused = command("compare", command.spec(text), "--fabrics", "tailrace,linux-bridge", status=2)
    assert "linux-bridge cannot carry chains.voice.match" in refused.stderr


def test_what_is_not_installed_is_named(command: Command) -> None:
    command.environment["TAILRACE_BINARIES"] = str(command.folder)
    refused = command("compare", command.spec(PLAIN), "--fabrics", "direct,tailrace", status=2)
    assert "tailrace-switch is not built" in refused.stderr
