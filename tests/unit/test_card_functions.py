"""The life of virtual functions: a card in a folder, Linux's rules behind its files, netlink that only remembers."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from machines import link, make
from sriov_kernel import CARD, PCI, ROOT, SriovKernel, add_card, function_at

from tailrace.errors import Failure, Mistake
from tailrace.kernel.tree import Tree
from tailrace.node.difference import difference
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.resources import virtual_functions as the_functions
from tailrace.resources.card_netlink import message_of, words_of
from tailrace.resources.topology import Cpu
from tailrace.resources.virtual_functions import (
    FunctionRefused,
    FunctionsRefused,
    PlannedVf,
    Why,
    locate,
    unmake,
)
from tailrace.spec.load import parse_located
from tailrace.spec.model import Spec
from tailrace.state.card_functions import check_functions, give_back, missing_functions, take_functions, why_missing
from tailrace.state.record import MadeFunctions, Record, State, TakenFunction, hold
from tailrace.switch.config import configuration

AS_MADE: dict[str, Any] = {
    "mac": "00:00:00:00:00:00", "vlan": 0, "qos": 0, "min_rate": 0, "max_rate": 0,
    "spoof_check": True, "trust": False, "link": "auto",
}  # fmt: skip
WANTED = {"mac": "02:00:00:00:00:0a", "vlan": 10, "qos": 3, "max_rate": 100, "spoof_check": False, "trust": True}


class Card:
    """A card behind netlink, which refuses some words."""

    def __init__(self, *refuses: str) -> None:
        self.refuses = refuses
        self.settings: dict[int, dict[str, Any]] = {}
        self.messages: list[dict[str, Any]] = []

    def read(self, interface: str, number: int) -> dict[str, Any]:
        assert interface == "ens1f0"
        return dict(self.settings.setdefault(number, dict(AS_MADE)))

    def write(self, interface: str, number: int, values: Mapping[str, Any]) -> None:
        assert interface == "ens1f0"
        self.messages.append(dict(values))
        if any(word in self.refuses for word in values):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        self.settings[number] |= values


def planned(number: int, *, functions: int = 2, **settings: Any) -> dict[str, PlannedVf]:
    """One, for a port."""
    return {f"ports.port{number}": PlannedVf("ens1f0", CARD, number, function_at(number), functions, settings)}


def files(kernel: SriovKernel) -> dict[str, str]:
    """Everything of the card and of PCI, as text or as what a link leads to."""
    found = {}
    for path in sorted(kernel.root.rglob("*")):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        elif path.is_file() and path.name != "config":
            found[str(path)] = path.read_text().strip()
    return found


def undo(state: State, kernel: SriovKernel, card: Card) -> list[str]:
    """As `tailrace down` does it, with this kernel and this card."""
    problems: list[str | None] = []
    for thing in reversed(state.record.things):
        if isinstance(thing, TakenFunction):
            problems.append(give_back(thing, kernel, card))
        elif isinstance(thing, MadeFunctions):
            problems.append(unmake(kernel, thing.path, thing.count, thing.autoprobe))
    return [problem for problem in problems if problem is not None]


def whys(raised: pytest.ExceptionInfo[FunctionsRefused]) -> list[Why]:
    return raised.value.whys


def test_functions_are_made_set_bound_and_all_is_as_before(kernel: SriovKernel, state: State) -> None:
    before, card = files(kernel), Card()
    take_functions(state, {**planned(0, **WANTED), **planned(1)}, kernel, card)
    assert kernel.text(f"{PCI}/devices/{CARD}/sriov_numvfs") == "2"
    assert kernel.text(f"{PCI}/devices/{CARD}/sriov_drivers_autoprobe") == "1"
    assert [kernel.target(f"{PCI}/devices/{function_at(number)}/driver") for number in (0, 1)] == ["vfio-pci"] * 2
    assert card.settings[0] == AS_MADE | WANTED
    assert card.settings[1] == AS_MADE
    assert undo(state, kernel, card) == []
    assert card.settings[0] == AS_MADE
    assert files(kernel) == before


def test_it_is_on_record_before_anything_is_changed(kernel: SriovKernel, state: State) -> None:
    """Cut short at every write: what is on record then is enough to undo all of it."""
    before = files(kernel)
    whole = SriovKernel(kernel.root)
    take_functions(state, planned(0, **WANTED), whole, Card())
    writes = len(whole.written)
    assert undo(state, kernel, Card()) == []
    assert writes == 5
    for last in range(writes):
        again = State(state.folder, Record(boot=""))

        class Cut(SriovKernel):
            def write(self, path: str, value: str) -> None:
                if len(self.written) == last:  # noqa: B023 - used within this turn
                    raise KeyboardInterrupt
                super().write(path, value)

        with pytest.raises(KeyboardInterrupt):
            take_functions(again, planned(0, **WANTED), Cut(kernel.root), Card())
        assert undo(again, kernel, Card()) == []
        assert files(kernel) == before, last


def test_a_card_whose_link_goes_when_functions_are_made(tmp_path: Path, state: State) -> None:
    """A rate is told when it has its link again."""
    add_card(tmp_path / "root")
    make(tmp_path / "root", {"/sys/class/net/ens1f0/carrier": "1"})
    looked = iter("00111111")

    class Resetting(SriovKernel):
        def text(self, path: str) -> str | None:
            if path.endswith("/carrier") and self.number(f"{ROOT}/{CARD}/sriov_numvfs"):
                return next(looked)
            return super().text(path)

    class Linked(Card):
        def write(self, interface: str, number: int, values: Mapping[str, Any]) -> None:
            assert next(looked) == "1"
            super().write(interface, number, values)

    take_functions(state, planned(0, max_rate=100), Resetting(tmp_path / "root"), Linked())


def test_taking_them_again_changes_nothing(kernel: SriovKernel, state: State) -> None:
    card, ports = Card(), planned(0, **WANTED)
    take_functions(state, ports, kernel, card)
    things, written, messages = list(state.record.things), len(kernel.written), len(card.messages)
    take_functions(state, ports, kernel, card)
    assert (list(state.record.things), len(kernel.written), len(card.messages)) == (things, written, messages)


def test_a_setting_that_is_left_out_is_as_found(kernel: SriovKernel, state: State) -> None:
    card = Card()
    take_functions(state, planned(0, **WANTED), kernel, card)
    take_functions(state, planned(0, vlan=20, qos=0), kernel, card)
    assert card.settings[0] == AS_MADE | {"vlan": 20}


def test_functions_that_were_there_stay(kernel: SriovKernel, state: State) -> None:
    """Somebody has made them for Linux's own driver, and set something."""
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "4")
    card = Card()
    card.settings[2] = AS_MADE | {"vlan": 7, "mac": "02:00:00:00:00:02"}
    before, settings = files(kernel), dict(card.settings[2])
    take_functions(state, planned(2, functions=3, **WANTED), kernel, card)
    assert not [thing for thing in state.record.things if isinstance(thing, MadeFunctions)]
    assert kernel.target(f"{PCI}/devices/{function_at(2)}/driver") == "vfio-pci"
    assert undo(state, kernel, card) == []
    assert (card.settings[2], files(kernel)) == (settings, before)


def test_the_record_is_read_back(kernel: SriovKernel, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with hold(folder) as state:
        take_functions(state, planned(0, **WANTED), kernel, Card())
        things = list(state.record.things)
    with hold(folder) as state:
        assert state.record.things == things
        (taken,) = (thing for thing in state.record.things if isinstance(thing, TakenFunction))
        assert "vlan" in taken.changed and taken.before == AS_MADE


def test_a_card_that_was_reset(kernel: SriovKernel, state: State) -> None:
    """Its functions go, and are made again as they were to be."""
    card, ports = Card(), {**planned(0, **WANTED), **planned(1)}
    before = files(kernel)
    take_functions(state, ports, kernel, card)
    assert missing_functions(ports, kernel) == []
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "0")
    card.settings.clear()
    assert missing_functions(ports, kernel) == ["ens1f0/0", "ens1f0/1"]
    count = len(state.record.things)
    take_functions(state, ports, kernel, card)
    assert missing_functions(ports, kernel) == []
    assert (len(state.record.things), card.settings[0]) == (count, AS_MADE | WANTED)
    assert undo(state, kernel, card) == []
    assert files(kernel) == before


def test_what_was_made_again_and_not_bound_is_missing_still(kernel: SriovKernel, state: State) -> None:
    """As when the card went down in between: it is gone on with, and why that cannot be is said with the cure."""
    card, ports = Card(), planned(0)
    take_functions(state, ports, kernel, card)
    assert why_missing(ports, kernel) == []
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "0")
    flags = kernel.at("/sys/class/net/ens1f0/flags")
    flags.write_text("0x1002")
    (said,) = why_missing(ports, kernel)
    assert said.endswith("ens1f0 is down, and its functions with it; run `sudo ip link set ens1f0 up`")
    flags.write_text("0x1003")
    kernel.write(f"{ROOT}/{CARD}/sriov_drivers_autoprobe", "0")
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "2")
    kernel.write(f"{ROOT}/{CARD}/sriov_drivers_autoprobe", "1")
    (said,) = why_missing(ports, kernel)
    assert said == (
        f"ports.port0: PCI device {function_at(0)} has no driver; bind it with "
        f"`dpdk-devbind.py -b vfio-pci {function_at(0)}`"
    )
    flags.write_text("0x1002")
    (said,) = why_missing(ports, kernel)
    assert said.endswith("run `sudo ip link set ens1f0 up`")
    flags.write_text("0x1003")
    assert missing_functions(ports, kernel) == ["ens1f0/0"]
    take_functions(state, ports, kernel, card)
    assert missing_functions(ports, kernel) == [] and why_missing(ports, kernel) == []


def test_a_card_that_has_gone_has_nothing_to_be_undone(kernel: SriovKernel, state: State) -> None:
    take_functions(state, planned(0, **WANTED), kernel, Card())
    kernel.at(f"{PCI}/devices/{CARD}").unlink()
    assert undo(state, kernel, Card()) == []
    with pytest.raises(FunctionsRefused, match="the card ens1f0 is gone") as raised:
        take_functions(state, planned(0), kernel, Card())
    assert Why.GONE in whys(raised)


def test_functions_of_somebody_else_are_not_removed(kernel: SriovKernel, state: State) -> None:
    """Ours went with a reset; then somebody has made others."""
    take_functions(state, planned(0), kernel, Card())
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "0")
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "5")
    assert undo(state, kernel, Card()) == []
    assert kernel.text(f"{ROOT}/{CARD}/sriov_numvfs") == "5"


def test_all_that_is_in_the_way_is_said_at_once(tmp_path: Path, state: State) -> None:
    add_card(tmp_path / "root", most=4, iommu=False, up=False)
    (tmp_path / "root/sys/bus/pci/drivers/vfio-pci/new_id").unlink()
    (tmp_path / "root/sys/bus/pci/drivers/vfio-pci").rmdir()
    kernel = SriovKernel(tmp_path / "root")
    before = files(kernel)
    with pytest.raises(FunctionsRefused) as raised:
        take_functions(state, planned(0, functions=9), kernel, Card())
    assert whys(raised) == [Why.DOWN, Why.NO_IOMMU, Why.NO_VFIO, Why.TOO_MANY]
    assert raised.value.lines[0] == (
        "ports.port0: ens1f0 is down, and its functions with it; run `sudo ip link set ens1f0 up`"
    )
    assert files(kernel) == before
    assert state.record.things == []


def test_a_number_of_functions_that_is_fixed(kernel: SriovKernel, state: State) -> None:
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "1")
    with pytest.raises(FunctionsRefused, match="has 1 virtual functions and 2 are needed") as raised:
        check_functions(state, planned(1), kernel)
    assert whys(raised) == [Why.FIXED]


def test_a_function_that_another_process_has(
    kernel: SriovKernel, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", iter(range(0, 1000, 10)).__next__)
    take_functions(state, planned(0), kernel, Card())
    make(kernel.root, {"/proc/77/comm": "qemu-system-x86", "/proc/78/comm": "cat"})
    link(kernel.root, "/proc/77/fd/9", "/dev/vfio/30")
    link(kernel.root, "/proc/78/fd/9", "/dev/vfio/31")
    problem = f"virtual function {function_at(0)} is in use by process 77; end that, then `tailrace down`"
    assert undo(state, kernel, Card()) == [problem, problem]
    assert kernel.text(f"{ROOT}/{CARD}/sriov_numvfs") == "2"
    with pytest.raises(FunctionsRefused, match=r"ens1f0/0 is in use by process 77 \(qemu-system-x86\)") as raised:
        check_functions(State(state.folder, Record(boot="")), planned(0), kernel)
    assert whys(raised) == [Why.IN_USE]


def test_a_function_that_is_an_interface_of_linux(kernel: SriovKernel, state: State) -> None:
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "2")
    make(kernel.root, {f"{ROOT}/{function_at(0)}/net/ens1f0v0/mtu": "1500", "/sys/class/net/ens1f0v0/flags": "0x1003"})
    with pytest.raises(FunctionsRefused, match="run `sudo ip link set ens1f0v0 down`") as raised:
        check_functions(state, planned(0), kernel)
    assert whys(raised) == [Why.IN_USE]


def test_a_group_with_a_device_that_linux_uses(tmp_path: Path, state: State) -> None:
    """It is known only when the function is there, which then goes again."""
    add_card(tmp_path / "root")
    kernel, before = SriovKernel(tmp_path / "root", shared=True), files(SriovKernel(tmp_path / "root"))
    with pytest.raises(FunctionsRefused, match=f"shares IOMMU group 20 with {CARD} .igb.") as raised:
        take_functions(state, planned(0, functions=1), kernel, Card())
    assert whys(raised) == [Why.SHARED_GROUP]
    assert undo(state, kernel, Card()) == []
    assert files(kernel) == before


def test_a_function_in_the_no_iommu_mode_of_vfio(kernel: SriovKernel, state: State) -> None:
    """Whoever has bound it so: it stays as it is."""
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "2")
    group = kernel.at(f"{ROOT}/{function_at(0)}/iommu_group").resolve()
    (group / "name").write_text("vfio-noiommu\n")
    before = files(kernel)
    with pytest.raises(FunctionsRefused, match="load vfio without enable_unsafe_noiommu_mode") as raised:
        take_functions(state, planned(0), kernel, Card())
    assert whys(raised) == [Why.NO_IOMMU]
    assert files(kernel) == before and state.record.things == []


def test_a_card_that_linux_has_no_interface_of(kernel: SriovKernel, state: State) -> None:
    shutil.rmtree(kernel.at(f"{ROOT}/{CARD}/net"))
    with pytest.raises(FunctionsRefused, match=r"no Linux interface \(its driver: igb\); bind it to its own") as raised:
        check_functions(state, planned(0), kernel)
    assert whys(raised) == [Why.NO_INTERFACE]


def test_a_driver_that_refuses_is_named_with_each_of_its_words(kernel: SriovKernel, state: State) -> None:
    before, card = files(kernel), Card("min_rate", "link")
    ports = {**planned(0, max_rate=100, link="enable"), **planned(1, min_rate=10, vlan=3)}
    with pytest.raises(FunctionsRefused) as raised:
        take_functions(state, ports, kernel, card)
    assert whys(raised) == [Why.REFUSED] * 3
    assert "ens1f0/0: the driver of ens1f0 refuses max_rate 100 (Operation not supported)" in raised.value.lines[0]
    assert "ens1f0/0: the driver of ens1f0 refuses link enable" in raised.value.lines[1]
    assert "ports.port1: ens1f0/1: the driver of ens1f0 refuses min_rate 10" in raised.value.lines[2]
    assert undo(state, kernel, card) == []
    assert (card.settings[1], files(kernel)) == (AS_MADE, before)


def test_a_card_without_room_for_functions(tmp_path: Path, state: State) -> None:
    add_card(tmp_path / "root")
    kernel = SriovKernel(tmp_path / "root", refuses={"sriov_numvfs": errno.ENOMEM})
    before = files(kernel)
    with pytest.raises(Failure, match="does not make 2 virtual functions: Cannot allocate memory"):
        take_functions(state, planned(0), kernel, Card())
    assert undo(state, kernel, Card()) == []
    assert files(kernel) == before


def test_who_is_not_root_is_told_so(tmp_path: Path, state: State) -> None:
    add_card(tmp_path / "root")
    kernel = SriovKernel(tmp_path / "root", refuses={"sriov_drivers_autoprobe": errno.EACCES})
    with pytest.raises(Mistake, match="virtual functions of ens1f0 are made by root"):
        take_functions(state, planned(0), kernel, Card())


@pytest.mark.parametrize(
    ("of", "number", "why", "said"),
    [
        ("eth9", 0, Why.NO_CARD, "there is no network card eth9"),
        ("0000:99:00.0", 0, Why.NO_CARD, "there is no network card 0000:99:00.0"),
        ("ens1f0", 8, Why.TOO_MANY, "ens1f0 has at most 8 virtual functions; expected a number from 0 to 7"),
        (function_at(0), 0, Why.NO_SRIOV, f"is a virtual function itself, of {CARD}"),
        ("../../etc", 0, Why.NO_CARD, "there is no network card"),
        ("eth0", 0, Why.NO_SRIOV, "eth0 is no PCI card, so it has no virtual functions"),
        ("lo", 0, Why.NO_SRIOV, "lo is no PCI card"),
    ],
)
def test_a_function_that_no_card_has(kernel: SriovKernel, of: str, number: int, why: Why, said: str) -> None:
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "1")
    make(kernel.root, {"/sys/class/net/lo/flags": "0x9"})
    link(kernel.root, "/sys/class/net/eth0/device", "../../../virtio2")
    with pytest.raises(FunctionRefused, match=said) as raised:
        locate(kernel, of, number)
    assert raised.value.why is why


def test_a_card_without_sr_iov(kernel: SriovKernel) -> None:
    kernel.at(f"{ROOT}/{CARD}/sriov_totalvfs").unlink()
    with pytest.raises(FunctionRefused, match="has no virtual functions") as raised:
        locate(kernel, "ens1f0", 0)
    assert raised.value.why is Why.NO_SRIOV


def test_where_a_function_will_be(kernel: SriovKernel) -> None:
    """Before it is made, by the card's offset and stride; afterwards where Linux has put it."""
    for name in ("ens1f0", CARD):
        assert [locate(kernel, name, number)[1] for number in (0, 3)] == [function_at(0), function_at(3)]
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "2")
    kernel.at(f"{ROOT}/{CARD}/virtfn1").unlink()
    link(kernel.root, f"{ROOT}/{CARD}/virtfn1", "../0000:3c:00.1")
    assert locate(kernel, "ens1f0", 1) == (CARD, "0000:3c:00.1")


def test_a_function_that_linux_puts_elsewhere(kernel: SriovKernel, state: State) -> None:
    port = {"ports.port0": replace(planned(0)["ports.port0"], address="0000:3b:1f.7")}
    with pytest.raises(FunctionsRefused, match=f"is at {function_at(0)}, not at 0000:3b:1f.7") as raised:
        take_functions(state, port, kernel, Card())
    assert whys(raised) == [Why.GONE]
    assert undo(state, kernel, Card()) == []


def test_nothing_of_this_machine_is_looked_at_for_other_ports(state: State) -> None:
    take_functions(state, {}, Tree(state.folder))
    assert state.record.things == []


def test_the_words_of_netlink() -> None:
    """As igb's were read in QEMU, and with what a driver does not tell."""
    found: dict[str, Any] = {
        "MAC": {"vf": 0, "mac": "02:00:00:00:00:0A"},
        "VLAN": {"vf": 0, "vlan": 100, "qos": 3},
        "RATE": {"vf": 0, "min_tx_rate": 0, "max_tx_rate": 500},
        "SPOOFCHK": {"vf": 0, "spoofchk": 0},
        "TRUST": {"vf": 0, "trust": 1},
        "LINK_STATE": {"vf": 0, "link_state": 2},
    }
    words = dict(words_of(found))
    assert words == {
        "mac": "02:00:00:00:00:0a", "vlan": 100, "qos": 3, "min_rate": 0, "max_rate": 500,
        "spoof_check": False, "trust": True, "link": "disable",
    }  # fmt: skip
    said = message_of(words)
    assert said == {
        "mac": "02:00:00:00:00:0a", "vlan": {"vlan": 100, "qos": 3}, "rate": {"min_tx_rate": 0, "max_tx_rate": 500},
        "spoofchk": 0, "trust": 1, "link_state": 2,
    }  # fmt: skip
    assert message_of({"max_rate": 0, "min_rate": 0}) == {"rate": {"min_tx_rate": 0, "max_tx_rate": 0}}
    unknown = {**dict.fromkeys(found), "SPOOFCHK": {"vf": 0, "spoofchk": 0xFFFFFFFF}, "LINK_STATE": {"link_state": 9}}
    assert dict(words_of(unknown)) == {}


# --- from a spec to a plan -----------------------------------------------------------------------------------------

SPEC = """\
ports:
  left: {vf: ens1f0/0}
  right: {vf: {of: ens1f0, number: 2, mac: '02:00:00:00:00:0A', vlan: 10, max_rate: 100Mbps, trust: true}}
chains: {v: [left, right]}
"""


class WithInterfaces(SriovKernel):
    """Linux's driver of functions makes an interface of each."""

    def write(self, path: str, value: str) -> None:
        super().write(path, value)
        device = self.at(f"/sys/bus/pci/devices/{value}")
        if path.endswith("drivers_probe") and (device / "driver").resolve().name == "igbvf":
            (device / "net" / f"vf{value[-1]}").mkdir(parents=True)


def test_functions_for_linux_need_no_vfio(tmp_path: Path, state: State) -> None:
    add_card(tmp_path / "root", iommu=False)
    kernel, card = WithInterfaces(tmp_path / "root"), Card()
    before = files(kernel)
    found = take_functions(state, planned(0) | planned(1, vlan=10), kernel, card, linux=True)
    assert found == {"ports.port0": f"vf{function_at(0)[-1]}", "ports.port1": f"vf{function_at(1)[-1]}"}
    assert card.settings[1]["vlan"] == 10
    assert undo(state, kernel, card) == []
    assert files(kernel) == before


def test_a_function_that_becomes_no_interface(
    kernel: SriovKernel, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(the_functions, "_LINK_SECONDS", 0.0)
    with pytest.raises(Failure, match=r"becomes no interface of Linux's \(its driver: igbvf\)"):
        take_functions(state, planned(0), kernel, Card(), linux=True)


def plan_of(text: str, tree: Tree) -> Plan:
    spec, document = parse_located(text, "s.yaml")
    return make_plan(spec, cpus=[Cpu(0), Cpu(1, core=1)], real_time=None, document=document, tree=tree)


def test_a_plan_has_the_address_of_what_is_to_be_made(kernel: SriovKernel) -> None:
    plan = plan_of(SPEC, kernel)
    left, right = plan.ports
    assert (left.device, right.device) == (f"pci:{function_at(0)}", f"pci:{function_at(2)}")
    assert left.vf == PlannedVf("ens1f0", CARD, 0, function_at(0), 3)
    assert right.vf is not None
    assert right.vf.settings == {
        "mac": "02:00:00:00:00:0a", "vlan": 10, "qos": 0, "max_rate": 100, "trust": True,
    }  # fmt: skip
    assert Plan.read(plan.as_data()) == replace(plan, beside=None)
    assert (
        f"add the port right on pci:{function_at(2)}, virtual function ens1f0/2 "
        "(mac 02:00:00:00:00:0a, vlan 10, trust True, qos 0, max_rate 100)"
    ) in plan.lines()


def test_a_function_at_the_end_of_a_chain(kernel: SriovKernel) -> None:
    plan = plan_of("chains: {v: [{vf: ens1f0/0}, {vf: ens1f0/1}]}\n", kernel)
    assert [(port.name, port.device) for port in plan.ports] == [
        ("vf-ens1f0-0", f"pci:{function_at(0)}"), ("vf-ens1f0-1", f"pci:{function_at(1)}"),
    ]  # fmt: skip
    assert [port.vf.functions for port in plan.ports if port.vf] == [2, 2]


def test_the_card_may_be_asked_for_more_functions(kernel: SriovKernel) -> None:
    text = "chains: {v: [{vf: ens1f0/0}, {vf: {of: ens1f0, number: 1, functions: 6}}]}\n"
    assert [port.vf.functions for port in plan_of(text, kernel).ports if port.vf] == [6, 6]


def test_what_a_card_does_otherwise_is_a_change(kernel: SriovKernel, tmp_path: Path) -> None:
    old = plan_of(SPEC, kernel)
    new = plan_of(SPEC.replace("vlan: 10, ", "").replace("100Mbps", "50Mbps"), kernel)
    running = configuration(old, tmp_path, {})
    (change,) = difference(old, new, running=running, instances={}, alive=(), sockets=tmp_path).changes
    assert (change.change, change.what, change.name) == ("change", "port", "right")
    assert change.detail == ("vf.vlan: 10 → as found", "vf.qos: 0 → as found", "vf.max_rate: 100 → 50")


MACHINE = """\
ports: {left: {vf: ens1f0/0}}
functions:
  fw:
    kind: skeleton
    runs: machine
    interface:
      - vhost-user
      - passthrough: {of: ens1f0, number: 2, mac: '02:00:00:00:00:0b', min_rate: 10Mbps, trust: true}
bridges: {b: [left, fw.0]}
"""


def test_a_function_that_a_machine_has_to_itself(kernel: SriovKernel, state: State) -> None:
    spec, _ = parse_located(MACHINE, "s.yaml")
    assert Spec.model_validate(spec.model_dump(by_alias=True)).functions == spec.functions
    (fw,) = plan_of(MACHINE, kernel).functions
    assert fw.interfaces == ("vhost-user", f"pci:{function_at(2)}")
    settings = {"mac": "02:00:00:00:00:0b", "min_rate": 10, "trust": True}
    vfs = plan_of(MACHINE, kernel).vfs
    assert vfs == {
        "ports.left": PlannedVf("ens1f0", CARD, 0, function_at(0), 3),
        "functions.fw.interface.ens1f0/2": PlannedVf("ens1f0", CARD, 2, function_at(2), 3, settings),
    }
    before, card = files(kernel), Card()
    take_functions(state, vfs, kernel, card)
    assert card.settings[2] == AS_MADE | settings
    assert undo(state, kernel, card) == []
    assert files(kernel) == before


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("number: 2", "number: 8", "7:7: functions.fw.interface: ens1f0 has at most 8 virtual functions"),
        ("number: 2", "number: 0", "functions.fw.interface: vf:ens1f0/0 is 'left''s already"),
        (
            "of: ens1f0, number: 2",
            f"of: '{CARD}', number: 0",
            f"functions.fw: pci:{function_at(0)} is 'left''s already",
        ),
        ("{of: ens1f0, number: 2,", "{of: ens1f0, number: 2, qos: 1,", "passthrough: qos is the priority in"),
        ("{of: ens1f0, number: 2,", "{of: ens1f0, number: x,", "passthrough: number: 'x'; expected a valid integer"),
    ],
)
def test_a_function_that_a_machine_cannot_have(kernel: SriovKernel, was: str, now: str, said: str) -> None:
    with pytest.raises(Mistake) as raised:
        plan_of(MACHINE.replace(was, now), kernel)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        ("a: {vf: ens1f0}", "1:17: ports.a.vf: 'ens1f0' is no virtual function; expected CARD/NUMBER"),
        ("a: {vf: {of: e, number: 0, mac: '01:00:00:00:00:0a'}}", "ports.a.vf.mac: '01:00:00:00:00:0a' is no station"),
        ("a: {vf: {of: e, number: 0, max_rate: 1kbps}}", "1kbps is no whole number of Mbps; expected one such as"),
        ("a: {vf: {of: e, number: 0, min_rate: 2Mbps, max_rate: 1Mbps}}", "min_rate is above max_rate"),
        ("a: {vf: {of: e, number: 0, qos: 3}}", "qos is the priority in a VLAN's tag; expected vlan beside it"),
        ("a: {vf: {of: e, number: 2, functions: 2}}", "number 2 is none of 2 functions; expected 0 to 1"),
        ("a: {vf: {of: e, number: 0, nix: 2}}", "unknown key 'nix' in ports.a.vf; expected one of of, number, mac"),
        (
            "a: {vf: {of: e, number: 0, mac: '02:00:00:00:00:0a'}}, "
            "b: {vf: {of: e, number: 1, mac: '02:00:00:00:00:0a'}}",
            "ports.b: e/1 has the mac 02:00:00:00:00:0a and the VLAN of e/0, and the card gives a frame to one of them",
        ),
        ("a: {vf: e/1}, b: {vf: e/1}", "ports.b: vf:e/1 is the port 'a' already; expected each device once"),
        ("a: {vf: ens1f0/9}", "ports.a: ens1f0 has at most 8 virtual functions; expected a number from 0 to 7"),
        ("a: {vf: eth7/0}", "ports.a: there is no network card eth7; `tailrace host inspect` lists those"),
        (f"a: {{vf: ens1f0/1}}, b: {{vf: '{CARD}/1'}}", f"ports.b: pci:{function_at(1)} is 'a''s already"),
        (f"a: {{vf: ens1f0/1}}, b: {{pci: '{function_at(1)}'}}", f"pci:{function_at(1)} is 'a''s already"),
    ],
)
def test_a_spec_that_cannot_be(kernel: SriovKernel, ports: str, said: str) -> None:
    with pytest.raises(Mistake) as raised:
        plan_of(f"ports: {{{ports}, z: }}\nchains: {{v: [a, z]}}\n", kernel)
    assert said in str(raised.value)


def test_each_thing_in_the_way_has_its_place_in_the_file() -> None:
    _, document = parse_located(SPEC, "s.yaml")
    found = [(f"ports.{name}", FunctionRefused(Why.DOWN, "it is down")) for name in ("left", "right")]
    with pytest.raises(Mistake) as raised, document.locating():
        raise FunctionsRefused(found)
    assert list(raised.value.lines) == [
        "s.yaml:2:3: ports.left: it is down", "s.yaml:3:3: ports.right: it is down",
    ]  # fmt: skip
