"""A machine's whole state in a file: it goes on from there, and so does a copy of it, by `tailrace function`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import BOOT
from running_node import Command, needs_machines

from tailrace.functions import agent
from tailrace.functions.domain import mac_address, machine_id
from tailrace.functions.names import outer_name

pytestmark = needs_machines

SPEC = """\
fabric: {idle: sleep}
functions: {first: {kind: skeleton, runs: machine}, second: {kind: skeleton, runs: machine}}
chains: {voice: [tester.a, first, second, tester.b]}
tests: [latency: {frames: 64, rate: 500pps, duration: 2s}]
"""
WHO = "cat /etc/machine-id /run/mark"


@pytest.fixture(scope="module")
def node(command: Command) -> Iterator[Command]:
    """The chain is up."""
    command("up", command.spec(SPEC))
    yield command
    command("down")


@pytest.fixture(scope="module")
def saved(node: Command) -> Path:
    inside(node, "first", "echo here >/run/mark")
    file = node.folder / "first.state"
    answer = json.loads(node("function", "save", "first", file, "--json").stdout)
    assert answer["bytes"] == file.stat().st_size > 1 << 20
    assert file.stat().st_mode & 0o777 == 0o600
    return file


def process(node: Command, name: str) -> str:
    """The process that a function is now."""
    return str(next(each["name"] for each in node.status()["processes"] if each["function"] == name and each["alive"]))


def inside(node: Command, name: str, words: str) -> str:
    return agent.ask(node.state / "logs" / f"{process(node, name)}.agent", words)


def assert_forwards(node: Command) -> None:
    """At a rate that an emulator keeps up with when it has just begun to translate."""
    result = json.loads(node("measure", "latency", node.spec(SPEC), "--json").stdout)
    frames = [way for trial in result["trials"] for way in trial["directions"]]
    drops = [(each["name"], each["drops"]) for each in node.status()["ports"]]
    assert sum(way["received"] for way in frames) == sum(way["sent"] for way in frames) > 100, drops


def test_a_machine_goes_on_from_a_file_and_forwards(node: Command, saved: Path) -> None:
    assert_forwards(node)  # it goes on after it was saved
    before, who = process(node, "first"), inside(node, "first", WHO)
    inside(node, "first", "rm /run/mark")
    node("function", "restore", "first", saved)
    assert process(node, "first") != before
    assert inside(node, "first", WHO) == who
    assert_forwards(node)


def test_a_restore_that_fails_leaves_the_old_one_running(node: Command, saved: Path) -> None:
    before = process(node, "first")
    short = node.folder / "short.state"
    short.write_bytes(saved.read_bytes()[: saved.stat().st_size // 2])
    assert "first" in node("function", "restore", "first", short, status=1).stderr
    assert "is no machine that was saved" in node("function", "restore", "first", node.spec(SPEC), status=2).stderr
    assert process(node, "first") == before and node.status()["state"] == "up"
    assert not list(node.state.glob("*.state"))


def test_a_full_disk_is_told_and_what_was_there_stays(node: Command, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], check=True)
    try:
        file = tmp_path / "first.state"
        file.write_text("the user's")
        said = node("function", "save", "first", file, status=1).stderr
        assert f"{file}: " in said and "nothing was written" in said
        assert [each.name for each in tmp_path.iterdir()] == ["first.state"] and file.read_text() == "the user's"
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.whole
def test_libvirt_killed_while_it_saves(node: Command, tmp_path: Path) -> None:
    """It is told, what was there stays, and the machine goes on."""
    if Path("/run/libvirt/libvirt-sock").exists():
        pytest.skip("libvirt's daemon is the system's")
    file = tmp_path / "first.state"
    file.write_text("the user's")
    daemon = int(Path("/run/tailrace-libvirt/libvirtd.pid").read_text())
    before = process(node, "first")
    saving = node.begin("function", "save", "first", file)
    deadline = time.monotonic() + 60
    while not any(tmp_path.glob(".first.state-*/state")):  # it is there for a moment only
        assert saving.poll() is None and time.monotonic() < deadline
    os.kill(daemon, signal.SIGKILL)
    _, said = saving.communicate(timeout=BOOT)
    assert saving.returncode == 1 and f"{file}: libvirt does not save it" in said, said
    assert [each.name for each in tmp_path.iterdir()] == ["first.state"] and file.read_text() == "the user's"
    assert process(node, "first") == before
    assert_forwards(node)


def test_a_copy_is_another_machine(node: Command) -> None:
    node("function", "clone", "first", "second")
    copy = process(node, "second")
    name = outer_name(node.state, copy)
    assert inside(node, "second", "cat /etc/machine-id").strip() == machine_id(name).hex
    assert inside(node, "first", "cat /etc/machine-id").strip() != machine_id(name).hex
    assert inside(node, "second", "hostname").strip() == name
    log = node("function", "log", "second").stdout
    assert all(f"its address is {mac_address(name, port)}" in log for port in (0, 1))
    assert inside(node, "second", "cat /run/mark") == "here\n", "it has booted by itself"
    assert not list(node.state.glob("*.clone"))
    assert_forwards(node)


@pytest.mark.whole
def test_a_snapshot_and_an_export_are_where_it_goes_on_from(node: Command, images: Path, tmp_path: Path) -> None:
    node("function", "snapshot", "first", "before")
    try:
        assert "has a snapshot before already" in node("function", "snapshot", "first", "before", status=2).stderr
        (kept,) = json.loads(node("function", "snapshots", "--json").stdout)
        assert (kept["name"], kept["label"]) == ("first", "before")
        node("function", "restore", "first", "--snapshot", "before")
    finally:
        shutil.rmtree(images / "snapshots")
    file, state = tmp_path / "first.tar", tmp_path / "first.state"
    node("function", "export", "first", file)
    made = json.loads(node("function", "import", file, "--state", state, "--json").stdout)
    assert made["function"]["kind"] == "skeleton" and not made["new_image"]
    assert "is there already" in node("function", "import", file, "--state", state, status=2).stderr
    node("function", "restore", "first", state)
    assert_forwards(node)
