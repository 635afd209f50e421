"""Two interfaces as one port: a link is lost, an interface deleted, and the frames go by the other."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from private_network import End, Network, statistics
from running_node import Command
from running_switch import RunningSwitch, switch_of_devices, wait_until
from test_device_kinds import COUNT, Guest, exchange, frames
from test_service import listening
from test_switch_events import Listener

from tailrace.process.control import ControlError

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("ip", "tailrace-switch")]
URI = "bond:active-backup,if:left0,if:left1"


@pytest.fixture
def switch(binaries: Path, tmp_path: Path, network: Network) -> Iterator[RunningSwitch]:
    with switch_of_devices(binaries, tmp_path, network.within) as running:
        yield running


@pytest.fixture
def guest(switch: RunningSwitch) -> Iterator[Guest]:
    guest = Guest(switch, "guest")
    yield guest
    guest.end()


@pytest.fixture
def ends(network: Network) -> Iterator[list[End]]:
    """The far ends of two cables."""
    for i in range(2):
        network.pair(f"left{i}", f"right{i}")
    ends = [End(network, f"right{i}") for i in range(2)]
    yield ends
    for end in ends:
        end.close()


def members(switch: RunningSwitch) -> list[tuple[str, bool, str | None]]:
    return [(each["state"], each["active"], each["reason"]) for each in switch.port("wan")["bond"]["members"]]


def wait_members(switch: RunningSwitch, *wanted: tuple[str, bool, str | None]) -> None:
    wait_until(lambda: members(switch) == list(wanted), f"members {wanted}, they are {members(switch)}")


UP, BACKUP, DOWN = ("up", True, None), ("up", False, None), ("down", False, "it has no link")


def addresses(network: Network) -> dict[str, str]:
    return {name: network.run("cat", f"/sys/class/net/{name}/address").strip() for name in ("left0", "left1")}


def test_the_other_member_takes_over(network: Network, switch: RunningSwitch, guest: Guest, ends: list[End]) -> None:
    before = addresses(network)
    switch.add_device("wan", URI)
    switch.wait_state("wan", "up")
    wait_members(switch, UP, BACKUP)
    assert switch.port("wan")["bond"]["mode"] == "active-backup"
    switch.join("guest", "wan")
    exchange(guest, ends[0])
    assert ends[1].received() == []
    # What comes to the backup is not received then, nor later.
    for frame in frames():
        ends[1].send(frame)
    wait_until(lambda: switch.port("wan")["bond"]["unused"] == COUNT, "frames at the backup are dropped")

    network.run("ip", "link", "set", "right0", "down")
    wait_members(switch, DOWN, UP)
    assert switch.port("wan")["state"] == "up"
    assert switch.port("wan")["reason"] == "member if:left0: it has no link"
    exchange(guest, ends[1])

    # The first one is the backup when it is back.
    network.run("ip", "link", "set", "right0", "up")
    wait_members(switch, BACKUP, UP)
    exchange(guest, ends[1])
    network.run("ip", "link", "set", "right1", "down")
    wait_members(switch, UP, DOWN)
    ends[0].close()
    ends[0] = End(network, "right0")
    exchange(guest, ends[0])

    network.run("ip", "link", "set", "right0", "down")
    switch.wait_state("wan", "down")
    network.run("ip", "link", "set", "right1", "up")
    switch.wait_state("wan", "up")
    wait_members(switch, DOWN, UP)
    assert addresses(network) == before


def test_a_member_deleted_under_traffic_and_made_again(
    network: Network, switch: RunningSwitch, guest: Guest, ends: list[End]
) -> None:
    switch.add_device("wan", URI)
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    exchange(guest, ends[0])
    network.run("ip", "link", "delete", "right0")
    wait_members(switch, ("removed", False, "it is not there any more"), UP)
    exchange(guest, ends[1])
    network.pair("left0", "right0")
    wait_members(switch, BACKUP, UP)
    exchange(guest, ends[1])
    network.run("ip", "link", "set", "right1", "down")
    wait_members(switch, UP, DOWN)
    end = End(network, "right0")
    exchange(guest, end)
    end.close()


@pytest.mark.usefixtures("ends")
def test_who_listens_hears_which_member_carries_frames(network: Network, switch: RunningSwitch) -> None:
    switch.add_device("wan", URI)
    switch.wait_state("wan", "up")
    wait_members(switch, UP, BACKUP)
    listener = Listener(switch)
    network.run("ip", "link", "set", "right0", "down")
    while True:
        said = listener.next()
        if [each["active"] for each in said["bond"]["members"]] == [False, True]:
            break
    assert (said["name"], said["state"], said["reason"]) == ("wan", "up", "member if:left0: it has no link")
    listener.end()


@pytest.mark.usefixtures("ends")
@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("bond:active-backup,if:left0,if:gone", "member if:gone of a bond: no network interface 'gone'"),
        ("bond:active-backup,if:left0,if:left0", "named twice"),
        ("bond:active-backup,if:left0", "two members or more"),
        ("bond:balance-rr,if:left0,if:left1", "is active-backup or lacp"),
        ("bond:active-backup,if:left0,tap:left1", "is if:NAME"),
        ("bond:active-backup,if:left0,if:other", "if:other belongs to port 'other'"),
    ],
)
def test_a_bond_that_cannot_be_is_refused(network: Network, switch: RunningSwitch, uri: str, why: str) -> None:
    network.pair("other", "beyond")
    switch.add_device("other", "if:other")
    files = switch.open_files()
    with pytest.raises(ControlError) as refused:
        switch.add_device("wan", uri)
    assert why in str(refused.value)
    # The monitor has one more for a moment, now and then.
    wait_until(lambda: switch.open_files() <= files, "what was opened is closed")
    switch.add_device("wan", URI)
    switch.wait_state("wan", "up")


def test_lacp_between_two_bonds(network: Network, switch: RunningSwitch, guest: Guest) -> None:
    """The cables join two bonds of this switch: LACP agrees on both, and frames go by what is left of them."""
    for i in range(2):
        network.pair(f"left{i}", f"right{i}")
    for side in ("left", "right"):
        switch.add_device(side, f"bond:lacp,if:{side}0,if:{side}1")
    other = Guest(switch, "other")
    switch.join("guest", "left")
    switch.join("right", "other")
    for side in ("left", "right"):
        switch.wait_state(side, "up")
        wait_until(lambda side=side: all(each["active"] for each in bond(switch, side)["members"]), "both carry frames")
    assert bond(switch, "left")["mode"] == "lacp"
    (partner,) = {each["partner"] for each in bond(switch, "left")["members"]}
    assert partner is not None and partner not in {each["partner"] for each in bond(switch, "right")["members"]}
    cross(guest, other)
    cross(other, guest)

    # The other end is told by LACP, and sees it by the carrier too.
    network.run("ip", "link", "set", "right0", "down")
    wait_until(lambda: active(switch, "left") == active(switch, "right") == [False, True], "one member is left")
    assert switch.port("left")["reason"] == "member if:left0: it has no link"
    cross(guest, other)
    network.run("ip", "link", "set", "right0", "up")
    wait_until(lambda: active(switch, "left") == active(switch, "right") == [True, True], "both carry frames again")
    cross(other, guest)

    # Who is behind the bond does not speak for it.
    guest.send([SLOW])
    wait_until(lambda: switch.counters("left")["drop_device_refused"] == 1, "a guest's LACP is refused")
    network.pair("near", "far")
    switch.add_device("near", "if:near")
    switch.wait_state("near", "up")
    switch.remove_chain("guest-left")
    switch.join("near", "left")
    end = End(network, "far")
    for tag in ("", "81000000", "88a8000181000002"):
        end.send(SLOW[:12] + bytes.fromhex(tag) + SLOW[12:])
    wait_until(lambda: switch.counters("left")["drop_device_refused"] == 4, "and so is another network's")
    end.close()
    other.end()


def test_lacp_with_two_other_ends(network: Network, switch: RunningSwitch, guest: Guest) -> None:
    """A cable is in the wrong switch: only the members of one other end carry frames; when that is lost, the others."""
    others = {}
    for i in range(2):
        network.pair(f"left{i}", f"right{i}")
        network.pair(f"spare{i}", f"idle{i}")
        switch.add_device(f"end{i}", f"bond:lacp,if:right{i},if:spare{i}")
        others[i] = Guest(switch, f"other{i}")
        switch.join(f"end{i}", f"other{i}")
    switch.add_device("wan", "bond:lacp,if:left0,if:left1")
    switch.join("guest", "wan")
    aside = ("up", False, "its other end is not that of the members that carry frames")
    wait_until(lambda: set(members(switch)) == {UP, aside}, "one carries frames")
    chosen = active(switch, "wan").index(True)
    wait_until(lambda: active(switch, f"end{chosen}") == [True, False], "its other end agrees")
    for name in ("wan", f"end{chosen}"):
        switch.wait_state(name, "up")
    assert len({each["partner"] for each in bond(switch, "wan")["members"]} - {None}) == 2
    cross(guest, others[chosen])
    cross(others[chosen], guest)
    wait_until(lambda: active(switch, f"end{1 - chosen}") == [False, False], "the other one does not carry frames")
    # What one sends that does not heed LACP is nobody's.
    end = End(network, f"right{1 - chosen}")
    for frame in frames():
        end.send(frame)
    wait_until(lambda: bond(switch, "wan")["unused"] == COUNT, "frames at the other member are dropped")
    end.close()

    network.run("ip", "link", "set", f"right{chosen}", "down")
    wait_until(lambda: active(switch, "wan")[1 - chosen], "the other one carries frames")
    wait_until(lambda: active(switch, f"end{1 - chosen}") == [True, False], "its other end agrees")
    for name in ("wan", f"end{1 - chosen}"):
        switch.wait_state(name, "up")
    cross(guest, others[1 - chosen])
    network.run("ip", "link", "set", f"right{chosen}", "up")
    wait_until(lambda: members(switch)[chosen] == aside, "the one that is back stays aside")
    cross(others[1 - chosen], guest)
    for other in others.values():
        other.end()


def test_lacp_with_an_end_that_never_agrees(network: Network, switch: RunningSwitch, guest: Guest) -> None:
    """It speaks LACP, and says to nobody that it joins: members of another end carry frames all the same."""
    for name, there in (("left0", "right0"), ("left1", "right1"), ("spare", "idle")):
        network.pair(name, there)
    switch.add_device("wan", "bond:lacp,if:left0,if:left1")
    switch.join("guest", "wan")
    end = End(network, "right0")

    def goes_on() -> list[bytes]:
        end.send(UNDECIDED)
        return end.received()

    # The bond says to it that it agrees.
    wait_until(
        lambda: any(each[12:14] == SLOW[12:14] and each[32] & 8 and each[40:46] == STRANGER for each in goes_on()),
        "the bond would join it",
    )
    switch.add_device("end", "bond:lacp,if:right1,if:spare")
    other = Guest(switch, "other")
    switch.join("end", "other")
    aside = ("up", False, "its other end is not that of the members that carry frames")
    wait_until(lambda: (goes_on(), members(switch))[1] == [aside, UP], "the other end's member carries frames")
    wait_until(lambda: (goes_on(), active(switch, "end"))[1] == [True, False], "which agrees")
    for name in ("wan", "end"):
        switch.wait_state(name, "up")
    cross(guest, other)
    cross(other, guest)
    end.close()
    other.end()


@pytest.fixture
def open_vswitch(network: Network) -> Iterator[Callable[..., str]]:
    """Open vSwitch without DPDK, in user space; runs ovs-vsctl, or with `show` ovs-appctl."""
    with tempfile.TemporaryDirectory(prefix="tailrace-ovs-") as folder, ExitStack() as stack:
        environment = {**os.environ, "OVS_RUNDIR": folder, "OVS_LOGDIR": folder, "OVS_DBDIR": folder}

        def run(*words: str) -> str:
            return subprocess.run(words, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout

        def start(name: str, *words: str) -> None:
            control = f"{folder}/{name}.ctl"
            command = [*network.within, name, *words, f"--unixctl={control}", "--no-chdir"]
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            wait_until(Path(control).exists, f"{name} answers")

        run("ovsdb-tool", "create", f"{folder}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        start("ovsdb-server", f"{folder}/conf.db", f"--remote=punix:{folder}/db.sock")
        set_up = partial(run, "ovs-vsctl", f"--db=unix:{folder}/db.sock")
        set_up("--no-wait", "init")
        start("ovs-vswitchd", f"unix:{folder}/db.sock")

        def ask(*words: str, show: bool = False) -> str:
            return run("ovs-appctl", "-t", f"{folder}/ovs-vswitchd.ctl", *words) if show else set_up(*words)

        yield ask


@pytest.mark.requires_program("ovs-vswitchd", "ovsdb-server", "ovs-vsctl")
def test_lacp_with_open_vswitch(
    network: Network, switch: RunningSwitch, guest: Guest, open_vswitch: Callable[..., str]
) -> None:
    for name in ("left0", "left1", "far"):
        network.pair(name, name.replace("left", "right") if name != "far" else "farther")
    words = ("lacp=active", "bond_mode=balance-tcp", "other_config:lacp-time=fast")
    open_vswitch("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    open_vswitch("add-bond", "br0", "bond0", "right0", "right1", *words, "--", "add-port", "br0", "far")
    switch.add_device("wan", "bond:lacp,if:left0,if:left1")
    switch.join("guest", "wan")
    wait_until(lambda: active(switch, "wan") == [True, True], "LACP agrees on both")
    # Both ends say that they have agreed a moment before they pass frames.
    switch.wait_state("wan", "up")

    def enabled(count: int) -> None:
        wait_until(lambda: open_vswitch("bond/show", "bond0", show=True).count(": enabled") == count, f"{count} carry")

    enabled(2)
    wait_until(lambda: open_vswitch("lacp/show", "bond0", show=True).count("current attached") == 2, "both are current")
    said = open_vswitch("lacp/show", "bond0", show=True)
    (partner,) = {each["partner"] for each in bond(switch, "wan")["members"]}
    assert f"sys_id: {partner.lower()}" in said
    end = End(network, "farther")
    pass_both(guest, end)

    network.run("ip", "link", "set", "right1", "down")
    wait_until(lambda: active(switch, "wan") == [True, False], "one member is left")
    enabled(1)
    pass_both(guest, end)
    network.run("ip", "link", "set", "right1", "up")
    wait_until(lambda: active(switch, "wan") == [True, True], "LACP agrees on both again")
    # Only LACP tells: both members keep their links.
    open_vswitch("set", "port", "bond0", "lacp=off")
    wait_until(lambda: active(switch, "wan") == [False, False], "the other end is silent")
    switch.wait_state("wan", "down")
    end.close()


def pass_both(guest: Guest, end: End) -> None:
    """Frames cross both ways, each flow by one of the members."""
    wanted = frames()
    guest.send(wanted)
    assert sorted(end.wait_received(COUNT)) == sorted(wanted)
    guest.offer(COUNT)
    for frame in wanted:
        end.send(frame)
    assert sorted(guest.wait_received(COUNT)) == sorted(wanted)


@pytest.mark.usefixtures("ends", "guest")
def test_lacp_that_nobody_answers(switch: RunningSwitch) -> None:
    switch.add_device("wan", "bond:lacp,if:left0,if:left1")
    switch.join("guest", "wan")
    alone = ("up", False, "nobody answers LACP there")
    wait_members(switch, alone, alone)
    switch.wait_state("wan", "down")
    assert [each["partner"] for each in bond(switch, "wan")["members"]] == [None, None]


SLOW = bytes.fromhex("0180c2000002 020000000001 8809 01 01").ljust(124, b"\0")
"""A frame of LACP's."""

STRANGER = bytes.fromhex("020000000077")


def lacp_end(kind: int, system: bytes, state: int) -> bytes:
    """One of the two ends that a frame of LACP's tells of (IEEE 802.1AX, 6.4.2.3): key 1, port 1."""
    return struct.pack("!BBH6sHHHB3x", kind, 20, 0xFFFF, system, 1, 0xFF, 1, state)


UNDECIDED = (
    SLOW[:16] + lacp_end(1, STRANGER, 0x07) + lacp_end(2, bytes(6), 0) + bytes.fromhex("0310").ljust(16, b"\0")
).ljust(124, b"\0")
"""What an end says that is active, would aggregate, and does not join."""


def cross(one: Guest, other: Guest) -> None:
    """Frames cross, each flow by one of the members."""
    wanted = frames()
    other.offer(COUNT)
    one.send(wanted)
    assert sorted(other.wait_received(COUNT)) == sorted(wanted)


def active(switch: RunningSwitch, name: str) -> list[bool]:
    return [each["active"] for each in bond(switch, name)["members"]]


def bond(switch: RunningSwitch, name: str) -> dict[str, Any]:
    found: dict[str, Any] = switch.port(name)["bond"]
    return found


def test_a_bond_for_which_dpdk_has_no_room(network: Network, switch: RunningSwitch) -> None:
    for i in range(0, 16, 2):
        network.pair(f"d{i}", f"d{i + 1}")
    first, second = (",".join(f"if:d{i}" for i in range(start, start + 8)) for start in (0, 8))
    switch.add_device("first", f"bond:active-backup,{first}")
    with pytest.raises(ControlError) as refused:
        switch.add_device("second", f"bond:active-backup,{second}")
    assert "a bond of 8 members takes 17 of DPDK's devices; this version has room for 32, and 17" in str(refused.value)
    switch.remove_port("first")
    switch.add_device("second", f"bond:active-backup,{second}")


def as_found(network: Network) -> list[tuple[str, str]]:
    flags = [network.run("cat", f"/sys/class/net/{name}/flags") for name in ("left0", "left1")]
    return list(zip(addresses(network).values(), flags, strict=True))


@pytest.mark.usefixtures("ends")
def test_members_are_as_they_were_after_any_end(network: Network, switch: RunningSwitch) -> None:
    """Their addresses, and the flags with which they are or are not promiscuous."""
    before = as_found(network)
    switch.add_device("wan", URI)
    switch.wait_state("wan", "up")
    network.run("ip", "link", "set", "right0", "down")
    wait_members(switch, DOWN, UP)
    network.run("ip", "link", "set", "right0", "up")
    switch.remove_port("wan")
    assert as_found(network) == before
    switch.add_device("wan", URI)
    switch.wait_state("wan", "up")
    assert as_found(network) != before
    switch.kill()
    assert as_found(network) == before
    switch.start()
    switch.add_device("wan", URI)
    switch.wait_state("wan", "up")


def test_frames_on_several_queues(network: Network, switch: RunningSwitch, guest: Guest, ends: list[End]) -> None:
    switch.add_device("wan", URI, queues=2)
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    exchange(guest, ends[0])
    network.run("ip", "link", "set", "right0", "down")
    wait_members(switch, DOWN, UP)
    exchange(guest, ends[1])


def wait_taken(switch: RunningSwitch, count: int) -> None:
    wait_until(lambda: switch.counters("guest")["received_packets"] >= count, f"{count} frames are taken")


def test_a_link_is_lost_under_traffic(
    network: Network, switch: RunningSwitch, guest: Guest, ends: list[End], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each frame that was sent arrives at one of the far ends, or is lost around the moment that the link is."""
    switch.add_device("wan", URI)
    switch.wait_state("wan", "up")
    wait_members(switch, UP, BACKUP)
    switch.join("guest", "wan")
    exchange(guest, ends[0])
    before = [statistics(network, f"right{i}", "rx_packets") for i in range(2)]
    sent = 0
    lost_at = moved_at = 0.0
    cut: subprocess.Popen[bytes] | None = None
    while moved_at == 0.0 or sent < 3000:
        assert lost_at == 0.0 or time.monotonic() < lost_at + 60, "frames arrive by the other member"
        guest.send(frames(8))
        sent += 8
        wait_taken(switch, COUNT + sent)
        if cut is None and sent >= 1000:
            cut, lost_at = subprocess.Popen([*network.within, "ip", "link", "set", "right0", "down"]), time.monotonic()
        if moved_at == 0.0 and cut is not None and ends[1].received():
            moved_at = time.monotonic()
    assert cut is not None and cut.wait(60) == 0
    arrived = [statistics(network, f"right{i}", "rx_packets") - before[i] for i in range(2)]
    assert arrived[0] >= 1000 and arrived[1] > 0
    assert sum(arrived) <= sent
    with capsys.disabled():
        print(
            f"\nof {sent} frames {sent - sum(arrived)} were lost; {1000 * (moved_at - lost_at):.0f} ms, `ip` included"
        )


@pytest.fixture
def interfaces(network: Network) -> Iterator[list[str]]:
    """Two of this machine, whose other ends, far0 and far1, are in the test's namespace."""
    names = [f"trb{os.getpid()}-{i}" for i in range(2)]
    for i, name in enumerate(names):
        there = ["peer", "name", f"far{i}", "netns", network.name]
        subprocess.run(["ip", "link", "add", name, "type", "veth", *there], check=True)
        network.run("ip", "link", "set", f"far{i}", "up")
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    for name in names:
        state = Path(f"/sys/class/net/{name}/operstate")
        wait_until(lambda state=state: state.read_text() == "up\n", f"{name} is up")  # type: ignore[misc]
    yield names
    for name in names:
        subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)


@pytest.mark.requires_hugepages
@pytest.mark.requires_program("tailrace-tester", "bwrap")
@pytest.mark.unsanitized
def test_the_command_tells_of_members(command: Command, network: Network, interfaces: list[str]) -> None:
    one, other = interfaces
    spec = command.spec(f"ports: {{wan: {{bond: {{members: [{one}, {other}]}}}}, lan: }}\nchains: {{v: [wan, lan]}}\n")
    command("up", spec)
    wait_until(lambda: f"up (frames by if:{one})" in command("status").stdout, "the first one carries frames")
    with listening(command) as event:
        network.run("ip", "link", "set", "far0", "down")
        while f"frames by if:{other}; member if:{one}: it has no link" not in event("port.members")["details"]["why"]:
            pass
    (wan,) = [each for each in command.status()["ports"] if each["name"] == "wan"]
    assert (wan["state"], wan["bond"]["mode"]) == ("up", "active-backup")
    assert [each["active"] for each in wan["bond"]["members"]] == [False, True]
    assert command.status()["broken"] == []
    command("plan", spec)  # there is nothing to change
