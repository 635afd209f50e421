"""What a switch that runs still is and may do: its user, its capabilities, its filter of system calls."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_end import FrontEnd
from guest_pair import GuestPair
from running_node import Command, open_folder
from running_switch import RunningSwitch, wait_until

from tailrace.process.control import ControlError

USER, GROUP = 64123, 64124
NOBODY = 65534
NET_RAW, NET_ADMIN = 1 << 13, 1 << 12


def status(pid: int) -> Iterator[dict[str, str]]:
    """/proc/PID/status of every thread (proc(5))."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        lines = (thread / "status").read_text().splitlines()
        yield {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def check_threads(pid: int, user: int, group: int, capabilities: int = 0) -> None:
    threads = list(status(pid))
    assert len(threads) >= 4
    for thread in threads:
        assert thread["Uid"].split() == [str(user)] * 4
        assert thread["Gid"].split() == [str(group)] * 4
        assert thread["Groups"] == ""
        for kind in ("CapEff", "CapPrm", "CapBnd"):
            assert int(thread[kind], 16) == capabilities
        assert int(thread["CapInh"], 16) == int(thread["CapAmb"], 16) == 0
        assert thread["NoNewPrivs"] == "1"
        assert thread["Seccomp"] == "2"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with open_folder() as made:
        yield made


@pytest.fixture
def own(folder: Path) -> Path:
    """One in it that belongs to the switch's user."""
    path = folder / "switch"
    path.mkdir()
    os.chown(path, USER, GROUP)
    return path


@pytest.mark.requires_root
def test_it_serves_as_another_user_without_capabilities_and_filtered(asan_binaries: Path, own: Path) -> None:
    program = asan_binaries / "switch/tailrace-switch"
    switch = RunningSwitch(program, own, "--user", f"{USER}:{GROUP}", "--config", own / "config", "--idle", "pause")
    try:
        check_threads(switch.process.pid, USER, GROUP)
        pair = GuestPair(switch, ("a", "b"))
        pair.exchange()
        check_threads(switch.process.pid, USER, GROUP)  # also those that were started since
        path = own / "a.sock"
        assert (path.stat().st_uid, path.stat().st_gid) == (USER, GROUP)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        capture = switch.call("capture.start", port="a")
        pair.exchange()
        switch.call("capture.stop", capture=capture["capture"])
        whole, *patches = map(json.loads, (own / "config").read_text().splitlines())
        said = [whole["config"], *(line["patch"] for line in patches)]
        assert {name for each in said for name in each.get("ports", {})} == {"a", "b"}
        switch.kill()
        switch.start()
        check_threads(switch.process.pid, USER, GROUP)
        # What it kept was taken up as that user too: whoever could write the file gains nothing by it.
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (USER, 0o666)
        switch.remove_chain("a-b")
        switch.remove_port("a")
        assert not path.exists()
        pair.end()
        assert switch.end() == 0
    finally:
        if switch.process.poll() is None:
            switch.kill()


def listens(path: Path, mode: int) -> socket.socket:
    """As QEMU does that root has started, but for the mode."""
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(60)
    listener.bind(str(path))
    path.chmod(mode)
    listener.listen()
    return listener


@pytest.mark.requires_root
def test_a_port_that_reaches_nobody_says_why_and_what_to_do(asan_binaries: Path, folder: Path, own: Path) -> None:
    program = asan_binaries / "switch/tailrace-switch"
    switch = RunningSwitch(program, own, "--user", f"{USER}:{GROUP}", "--idle", "sleep")
    path = folder / "vm.sock"
    switch.patch(ports={"vm": {"kind": "guest", "path": str(path), "mode": "client"}})

    def wait_reason(words: str) -> None:
        wait_until(lambda: words in (switch.port("vm")["reason"] or ""), f"{words}, it is {switch.port('vm')}")

    wait_reason(f"{path}: there is no such socket yet")
    path.write_text("")
    path.chmod(0o666)
    wait_reason("that is no socket")
    path.unlink()
    listens(path, 0o666).close()
    wait_reason("nobody listens there")
    path.unlink()
    with listens(path, 0o755) as listener:
        wait_reason(f"which is user {USER} and group {GROUP}, may not connect there")
        os.chown(path, -1, GROUP)
        path.chmod(0o775)
        guest = FrontEnd()
        guest.accept(listener)
        guest.set_up()
        switch.wait_state("vm", "up")
        assert switch.port("vm")["reason"] is None
        guest.end()
    said = re.findall(r"port vm: (.*)", switch.log.read_text())
    assert sum("may not connect" in line for line in said) == 1  # not at each try
    assert switch.end() == 0


@pytest.mark.requires_root
def test_a_guest_that_listens_is_resumed_by_a_switch_that_is_nobody(asan_binaries: Path, folder: Path) -> None:
    own = folder / "switch"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    switch = RunningSwitch(
        asan_binaries / "switch/tailrace-switch", own, "--user", f"{NOBODY}:{NOBODY}", "--config", own / "config"
    )
    with listens(folder / "vm.sock", 0o777) as listener:
        switch.patch(ports={"vm": {"kind": "guest", "path": str(folder / "vm.sock"), "mode": "client"}})
        guest = FrontEnd()
        for again in (True, False):
            guest.accept(listener)
            guest.set_up()
            switch.wait_state("vm", "up")
            if again:
                switch.kill()
                switch.start()
                check_threads(switch.process.pid, NOBODY, NOBODY)
        guest.end()
    assert switch.end() == 0


@pytest.mark.requires_root
def test_a_device_that_needs_more_is_refused_with_what_to_do(asan_binaries: Path, own: Path) -> None:
    program = asan_binaries / "switch/tailrace-switch"
    switch = RunningSwitch(program, own, "--idle", "sleep")
    check_threads(switch.process.pid, 0, 0)
    for uri, needs in (("if:lo", "net_raw net_admin"), ("tap:tap9", "net_admin")):
        with pytest.raises(ControlError, match=rf"{uri} needs capabilities .*: {needs}; .* --keep"):
            switch.add_device("wan", uri)
    assert switch.call("port.list") == []
    assert switch.end() == 0


@pytest.mark.requires_root
def test_it_keeps_what_it_is_told_to(asan_binaries: Path, own: Path) -> None:
    switch = RunningSwitch(
        asan_binaries / "switch/tailrace-switch",
        own,
        *("--user", f"{USER}:{GROUP}", "--keep", "net_raw,net_admin", "--idle", "sleep"),
    )
    check_threads(switch.process.pid, USER, GROUP, NET_RAW | NET_ADMIN)
    switch.add_device("wan", "if:lo")
    switch.wait_state("wan", "up")
    switch.remove_port("wan")
    assert switch.end() == 0


@pytest.mark.requires_root
@pytest.mark.requires_hugepages
@pytest.mark.requires_program("tailrace-switch", "tailrace-vnf", "bwrap")
def test_the_switch_that_tailrace_up_starts_is_nobody(tailrace: Path, folder: Path) -> None:
    """Functions in their sandboxes attach to its sockets; others cannot come near them."""
    command = Command(tailrace, folder)
    spec = command.spec("functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n")
    try:
        command("up", spec)
        process = command.process("switch")
        assert process is not None
        (user,) = {int(thread["Uid"].split()[0]) for thread in status(process["pid"])}
        assert user >= 61184
        check_threads(process["pid"], user, user)
        sockets = command.state / "sockets"
        assert (sockets.stat().st_uid, sockets.stat().st_gid) == (user, 0)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o710
        # A function made its socket there, and can make nothing more.
        assert (sockets / "first.0/sock").is_socket()
        assert ((sockets / "first.0").stat().st_uid, stat.S_IMODE((sockets / "first.0").stat().st_mode)) == (
            user,
            0o510,
        )
        ports = command.status()["ports"]
        states = {port["name"]: port["state"] for port in ports}
        assert {port["name"] for port in ports if (port["attached"] or {}).get("memory")} == {"first.0", "first.1"}
        assert {name for name, state in states.items() if state == "up"} == {"first.0", "first.1"}
    finally:
        command("down")
    wait_until(lambda: not command.leftovers(), "nothing is left")


NODE = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"


@pytest.mark.requires_root
@pytest.mark.requires_hugepages
@pytest.mark.requires_program("tailrace-switch", "tailrace-vnf", "bwrap")
def test_a_switch_becomes_the_user_that_the_spec_names(tailrace: Path, folder: Path) -> None:
    command = Command(tailrace, folder)
    try:
        assert "note: the switch" not in command("up", command.spec(f"fabric: {{user: {USER}:{GROUP}}}\n{NODE}")).stdout
        process = command.process("switch")
        assert process is not None
        check_threads(process["pid"], USER, GROUP)
    finally:
        command("down")
    wait_until(lambda: not command.leftovers(), "nothing is left")


@pytest.mark.requires_root
@pytest.mark.requires_hugepages
@pytest.mark.requires_program("tailrace-switch", "tailrace-vnf", "bwrap")
def test_a_user_who_cannot_reach_the_sockets_is_refused_and_root_is_reported(tailrace: Path, folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    command = Command(tailrace, private)
    named = command.spec(f"fabric: {{user: {USER}:{GROUP}}}\n{NODE}")
    refused = command("up", named, status=2).stderr
    assert f"{named}:1:10: fabric.user: '{USER}:{GROUP}' could not reach the sockets in {command.state}" in refused
    assert f"because {private} is closed to others; set TAILRACE_STATE to a folder" in refused
    assert refused.count("\n") == 1
    assert not command.leftovers()
    try:
        raised = command("up", command.spec(NODE)).stdout
        assert "note: the switch stays root, though without capabilities: another user could not reach" in raised
        assert f"because {private} is closed to others" in raised
        process = command.process("switch")
        assert process is not None
        check_threads(process["pid"], 0, 0)
    finally:
        command("down")
    wait_until(lambda: not command.leftovers(), "nothing is left")
