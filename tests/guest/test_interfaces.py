"""Machines of each kind of interface, with DPDK's drivers inside and with Linux's, as a user has them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import linux
import pytest
from machine import Hardware, Machine, Nic, mac
from running_node import Command, needs_a_node

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "virsh", "qemu-system-x86_64"),
    pytest.mark.timeout(900),
]

KINDS = ("virtio", "e1000e", "vmxnet3")


def spec_of(words: str) -> str:
    """A chain through a machine of each kind. The switch sleeps, so that emulated machines have the CPU."""
    functions = "".join(
        f"  f-{kind}: {{kind: skeleton, runs: machine, interface: {kind}, {words}}}\n" for kind in KINDS
    )
    path = ", ".join(["tester.a", *(f"f-{kind}" for kind in KINDS), "tester.b"])
    return (
        f"functions:\n{functions}chains: {{voice: [{path}]}}\nfabric: {{idle: sleep}}\n"
        "tests: [latency: {frames: [64, 1518], rate: 200pps, duration: 2s}]\n"
    )


def taps() -> set[str]:
    return {path.name for path in Path("/sys/class/net").glob("tap????????")}


def assert_apart(interfaces: set[str]) -> None:
    """The host's own stack does not use them."""
    settings = Path("/proc/sys/net")
    for name in interfaces:
        assert (settings / f"ipv6/conf/{name}/disable_ipv6").read_text() == "1\n"
        assert (settings / f"ipv4/conf/{name}/rp_filter").read_text() == "1\n"


@pytest.mark.whole
@pytest.mark.parametrize("driver", ["dpdk", "linux"])
def test_a_chain_of_each_kind_loses_no_frame_and_leaves_nothing(command: Command, driver: str) -> None:
    words = f"driver: {driver}"
    if driver == "linux":  # the cloud kernel has no driver for all of them
        command("image", "build", "stock", "--kernel", "stock")
        words += ", image: stock"
    spec, before = command.spec(spec_of(words)), taps()
    command("up", spec)
    try:
        made = taps() - before
        assert len(made) == 2 * len(KINDS)
        assert_apart(made)
        assert {each["state"] for each in command.status()["ports"] if "tester" not in each["name"]} == {"up"}
        result = json.loads(command("measure", "latency", spec, "--json").stdout)
        frames = [way for trial in result["trials"] for way in trial["directions"]]
        assert sum(way["received"] for way in frames) == sum(way["sent"] for way in frames) > 100
    finally:
        command("down")
    assert taps() == before


EXITS = """\
functions: {first: {kind: skeleton, runs: machine}}
chains: {voice: [tester.a, first, tester.b]}
fabric: {idle: sleep}
tests: [exits: {interfaces: [vhost-user, e1000e], rate: 200pps, duration: 2s}]
"""


def test_exits_are_counted_by_interface(command: Command) -> None:
    before = taps()
    document = json.loads(command("measure", "exits", command.spec(EXITS), "--json").stdout)
    found = {each["interface"]: each for each in document["findings"]}
    assert list(found) == ["vhost-user", "e1000e"] and document["valid"]
    for each in found.values():
        assert each["packets"] > 100 and each["drivers"] == ["dpdk"]
    if found["e1000e"]["source"] == "emulated":
        assert found["e1000e"]["reasons"]["e1000e-mmio write"] > 100
        assert not any(reason.startswith("e1000e") for reason in found["vhost-user"]["reasons"])
    assert taps() == before


ENDS = ("west", "east")
CLIENTS = """\
ports: {west: {path: FOLDER/west, mode: client}, east: {path: FOLDER/east, mode: client}}
functions: {first: {kind: skeleton, runs: machine, interface: virtio, driver: linux, latency: high}}
chains: {voice: [west, first, east]}
fabric: {idle: sleep}
"""


def test_stock_linux_guests_reach_each_other_through_linux_in_a_machine(
    command: Command, tmp_path: Path, accelerator: str
) -> None:
    """By ping, TCP and scp, with the offloads that their drivers have by themselves."""
    folder, before = command.folder_for_sockets(), taps()
    open_to_all = ("sh", "-c", 'umask 0; exec "$@"', "sh")  # the switch is another user
    command("up", command.spec(CLIENTS.replace("FOLDER", str(folder))))
    try:
        made = taps() - before
        assert len(made) == 2
        assert_apart(made)
        nics = [[Nic(folder / name, server=True, options={"mac": mac(number)})] for number, name in enumerate(ENDS)]
        hardware = [Hardware(each, layers=("base", "ssh")) for each in nics]
        west, east = (
            Machine(tmp_path, name, each, accelerator=accelerator, within=open_to_all)
            for name, each in zip(ENDS, hardware, strict=True)
        )
        with west, east:
            for number, machine in enumerate((west, east), 1):
                linux.configure(machine, number)
            address = f"{linux.ADDRESS}.2"
            linux.ping(west, address, size=1472)
            linux.tcp(west, east, address)
            linux.tcp(west, east, address, "--reverse")
            linux.scp(west, east, address)
        log = command("function", "log", "first").stdout
        assert len(re.findall(r"interrupts of \S+ are not coalesced: .*rx-usecs 0", log)) == 2
    finally:
        command("down")
