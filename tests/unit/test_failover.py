"""A virtual function in front of a machine's port: what a spec says, what libvirt is told, and when the card is."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from machines import make
from sriov_kernel import CARD, PCI, ROOT, SriovKernel, function_at
from test_card_functions import AS_MADE, Card, undo
from test_machines import SETTING
from test_migrate import FUNCTION, HERE, THERE, found

from tailrace.errors import Failure, Mistake
from tailrace.functions import failover
from tailrace.functions.domain import Nic, differing, domain_xml, failover_device
from tailrace.functions.failover import plug, plugged, replug, slot_of, unplug
from tailrace.functions.vfio import take_device
from tailrace.migrate.facts import bound_devices
from tailrace.node import failovers
from tailrace.node.failovers import leaving, plug_failovers, unplug_others, unplugged
from tailrace.node.status import _failover
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.process import hypervisor
from tailrace.process.process import identify
from tailrace.resources.topology import Cpu
from tailrace.resources.virtual_functions import Failover, PlannedVf, bind
from tailrace.spec.load import parse_located
from tailrace.state import card_functions, record
from tailrace.state.card_functions import NO_MAC, take_functions
from tailrace.state.record import Process, State, VfioFile

MAC = "02:00:00:00:00:0b"
SPEC = f"""\
ports: {{left: {{vf: ens1f0/0}}}}
functions:
  fw:
    kind: skeleton
    runs: machine
    driver: linux
    failover: {{0: {{mac: '{MAC}', vf: {{of: ens1f0, number: 2, trust: true}}}}}}
bridges: {{b: [left, fw.0]}}
"""
FRONT = Failover(0, MAC, PlannedVf("ens1f0", CARD, 2, function_at(2), 3))
QEMU_USER = 64055
RUNNING = Process("fw", 1, 2, outside="m")
WITH_SLOT = replace(SETTING, nics=(Nic(MAC, "/s/0", stands_by=True), SETTING.nics[1]))


def plan_of(text: str, kernel: SriovKernel) -> Plan:
    spec, document = parse_located(text, "s.yaml")
    cpus = [Cpu(number, core=number) for number in range(4)]
    return make_plan(spec, cpus=cpus, real_time=None, document=document, tree=kernel)


def test_the_function_and_the_port_have_one_address(kernel: SriovKernel) -> None:
    plan = plan_of(SPEC, kernel)
    (fw,) = plan.functions
    (front,) = fw.failover
    assert front == Failover(
        0, MAC, PlannedVf("ens1f0", CARD, 2, function_at(2), 3, {"trust": True}, comes_and_goes=True)
    ) and fw.ports == ("fw.0", "fw.1")
    assert plan.vfs["functions.fw.failover.0"] == front.vf and plan.vfs["ports.left"].functions == 3
    assert Plan.read(plan.as_data()) == replace(plan, beside=None)


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("runs: machine\n    driver: linux", "runs: container", "failover: only machines are given devices"),
        ("driver: linux", "driver: dpdk", "failover: Linux inside makes one interface of both"),
        ("}}\nbridges", f"}}, 00: {{mac: '{MAC}'}}}}\nbridges", "'0' and '00' are the same port; expected each once"),
        ("{0: {mac", "{2: {mac", "failover: 2 is no vhost-user port of its; expected 0, 1"),
        ("driver: linux", "driver: linux\n    interface: [virtio, vhost-user]", "failover: 0 is no vhost-user port"),
        ("driver: linux", "driver: linux\n    replicas: 2", "of one replica; expected one replica"),
        (f"mac: '{MAC}', ", "", "mac"),
        ("number: 2,", "number: 2, mac: '02:00:00:00:00:0c',", "vf has the mac 02:00:00:00:00:0c"),
        ("number: 2,", "number: 0,", f"pci:{function_at(0)} is 'left''s already"),
        ("number: 2,", "number: 8,", "functions.fw.failover.0: ens1f0 has at most 8 virtual functions"),
        ("}}\nbridges", f"}}, 1: {{mac: '{MAC}'}}}}\nbridges", "failover: two ports have one mac"),
    ],
)
def test_a_failover_that_cannot_be(kernel: SriovKernel, was: str, now: str, said: str) -> None:
    assert was in SPEC
    with pytest.raises(Mistake) as raised:
        plan_of(SPEC.replace(was, now), kernel)
    assert said in str(raised.value)


def test_a_node_without_a_function_has_the_port_alone(kernel: SriovKernel, state: State) -> None:
    text = SPEC.replace(", vf: {of: ens1f0, number: 2, trust: true}", "")
    plan = plan_of(text, kernel)
    assert plan.functions[0].failover == (Failover(0, MAC, None),) and list(plan.vfs) == ["ports.left"]
    assert replug(state, RUNNING, plan.functions[0].failover) == [], "nobody is asked"


def test_the_port_stands_by_and_has_a_slot_before_it() -> None:
    xml = domain_xml(WITH_SLOT)
    first, second = ElementTree.fromstring(xml).iterfind("devices/interface")
    assert first.find("teaming").attrib == {"type": "persistent"} and second.find("teaming") is None  # type: ignore[union-attr]
    assert slot_of(xml, 0) == 1
    with pytest.raises(Failure, match="port 1 has no slot"):
        slot_of(xml, 1)
    with_device = xml.replace("</devices>", failover_device(0, "0000:3b:02.1", 1) + "</devices>")
    device = ElementTree.fromstring(with_device).find("devices/hostdev")
    assert device is not None and device.get("managed") == "no", "it stays bound to vfio-pci"
    assert device.find("teaming").attrib == {"type": "transient", "persistent": "ua-port0"}  # type: ignore[union-attr]
    assert plugged(with_device) == {0: "0000:3b:02.1"} and plugged(xml) == {}
    assert differing(xml, with_device) == [], "it comes and goes"
    assert bound_devices(ElementTree.fromstring(with_device)) == (), "it is unplugged before a move"


class Machine:
    """libvirt's, of which a device goes when its system has been asked often enough; None: never."""

    def __init__(self, patience: int | None = 2) -> None:
        self.xml, self.patience = domain_xml(replace(WITH_SLOT, user=f"+{QEMU_USER}:+107")), patience
        self.leaving: dict[str, int] = {}
        self.refuses = False

    def XMLDesc(self) -> str:
        for name, left in list(self.leaving.items()):
            self.leaving[name] = left - 1
            if left <= 0:
                devices = ElementTree.fromstring(self.xml)
                inside = devices.find("devices")
                assert inside is not None
                for each in inside.findall("hostdev"):
                    inside.remove(each)
                self.xml = ElementTree.tostring(devices, encoding="unicode")
                del self.leaving[name]
        return self.xml

    def attachDeviceFlags(self, device: str, flags: int) -> None:
        assert flags == 1
        if self.refuses:
            raise Refuses("no slot")
        self.xml = self.xml.replace("</devices>", device + "</devices>")

    def detachDeviceAlias(self, name: str, flags: int) -> None:
        assert flags == 1 and name == "ua-failover0"
        if self.patience is not None:
            self.leaving[name] = self.patience


class Refuses(Exception):
    """libvirt does not do it."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    binding = SimpleNamespace(libvirtError=Refuses, VIR_DOMAIN_AFFECT_LIVE=1)
    monkeypatch.setattr(hypervisor, "library", lambda: binding)
    monkeypatch.setattr(hypervisor, "connect", lambda: SimpleNamespace(lookupByName=lambda _: made))
    return made


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Who has been given a file, one after the other."""
    found: list[int] = []
    monkeypatch.setattr(os, "chown", lambda _path, user, _group: found.append(user))
    return found


@pytest.fixture
def card(kernel: SriovKernel, owners: list[int]) -> Card:
    """With functions, which vfio-pci has."""
    assert not owners
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "3")
    for number in range(3):
        bind(kernel, function_at(number))
        group = kernel.target(f"{PCI}/devices/{function_at(number)}/iommu_group")
        make(kernel.root, {f"/dev/vfio/{group}": ""})
    return Card()


def test_the_card_has_the_address_while_the_function_is_plugged(
    machine: Machine, kernel: SriovKernel, card: Card, state: State, owners: list[int]
) -> None:
    plug(state, RUNNING, FRONT, kernel, card)
    assert plugged(machine.xml) == {0: function_at(2)} and card.settings[2]["mac"] == MAC
    assert owners == [QEMU_USER] and any(isinstance(each, VfioFile) for each in state.record.things)
    assert replug(state, RUNNING, [FRONT], kernel, card) == [] and machine.xml.count("<hostdev") == 1
    assert unplug(state, RUNNING, [0], kernel, card) == [0]
    assert plugged(machine.xml) == {} and card.settings[2]["mac"] == NO_MAC
    assert owners == [QEMU_USER, os.getuid()] and not state.record.things
    assert unplug(state, RUNNING, [0], kernel, card) == [], "none is there"
    assert replug(state, RUNNING, [FRONT], kernel, card) == [] and card.settings[2]["mac"] == MAC


def test_no_change_touches_the_address_of_one_that_is_plugged(
    machine: Machine, kernel: SriovKernel, card: Card, state: State
) -> None:
    plan = plan_of(SPEC, kernel)
    take_functions(state, plan.vfs, kernel, card)
    assert card.settings[2]["mac"] == AS_MADE["mac"] and card.settings[2]["trust"]
    plug(state, RUNNING, plan.functions[0].failover[0], kernel, card)
    assert plugged(machine.xml) == {0: function_at(2)}
    take_functions(state, plan.vfs, kernel, card)
    assert card.settings[2]["mac"] == MAC
    assert undo(state, kernel, card) == []
    assert card.settings[2] == AS_MADE, "it is given back"


def test_the_machine_may_open_what_is_passed_through_to_it(
    machine: Machine, kernel: SriovKernel, owners: list[int], state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not plugged(machine.xml)
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "1")
    address = function_at(0)
    make(kernel.root, {f"/dev/vfio/{kernel.target(f'{PCI}/devices/{address}/iommu_group')}": ""})
    given_back: list[str] = []
    device = SimpleNamespace(detachFlags=lambda _: bind(kernel, address), reAttach=lambda: given_back.append(address))
    names = {"pci_0000_3b_02_0": device}
    connection = SimpleNamespace(nodeDeviceLookupByName=names.__getitem__)
    monkeypatch.setattr(hypervisor, "connect", lambda: connection)
    take_device(state, "fw", address, QEMU_USER, connection, kernel)
    (thing,) = state.record.things
    assert (
        owners == [QEMU_USER] and thing.whose == "fw" and kernel.target(f"{PCI}/devices/{address}/driver") == "vfio-pci"
    )
    assert state.undo(thing) is None and owners == [QEMU_USER, 0] and given_back == [address]
    # One that vfio-pci had before stays where it is.
    take_device(state, "fw", address, QEMU_USER, connection, kernel)
    (thing,) = state.record.things
    assert state.undo(thing) is None and given_back == [address]


def test_a_system_that_does_not_let_go_keeps_it(
    machine: Machine, kernel: SriovKernel, card: Card, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "UNPLUG_SECONDS", 0.0)
    machine.patience = None
    plug(state, RUNNING, FRONT, kernel, card)
    with pytest.raises(Failure, match=r"has not let go of the virtual function of port 0 in 0 s; it needs the drivers"):
        unplug(state, RUNNING, [0], kernel, card)
    assert plugged(machine.xml) == {0: function_at(2)} and card.settings[2]["mac"] == MAC


@pytest.mark.parametrize("later", [False, True])
def test_who_interrupts_an_unplug_has_it_plugged_again(
    machine: Machine, kernel: SriovKernel, card: Card, state: State, running: Process, later: bool, monkeypatch: Any
) -> None:
    """Whether the machine's system lets go of it before the command ends or after."""
    plan = plan_of(SPEC, kernel)

    def let_go() -> None:
        machine.leaving.clear()
        machine.xml = domain_xml(WITH_SLOT)

    def interrupt(_: float) -> None:
        if not later:
            let_go()
        raise KeyboardInterrupt

    machine.patience = None
    plug_failovers(state, plan)
    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt), unplugged(state, running, plan.functions[0].failover):
            pass
    assert leaving(state.record) == later and plugged(machine.xml) == {0: function_at(2)}
    assert card.settings[2]["mac"] == MAC
    if later:
        assert failovers.plug_again(state, plan), "it still has it"
        let_go()
        assert not failovers.plug_again(state, plan)
    assert plugged(machine.xml) == {0: function_at(2)} and card.settings[2]["mac"] == MAC


def test_another_function_takes_the_place_of_one(
    machine: Machine, kernel: SriovKernel, card: Card, state: State, running: Process
) -> None:
    plug_failovers(state, plan_of(SPEC, kernel))
    other = plan_of(SPEC.replace("number: 2", "number: 1"), kernel)
    unplug_others(state, other)
    assert plugged(machine.xml) == {} and card.settings[2]["mac"] == NO_MAC and running.outside == "m"
    plug_failovers(state, other)
    assert plugged(machine.xml) == {0: function_at(1)} and card.settings[1]["mac"] == MAC
    unplug_others(state, other)
    assert plugged(machine.xml) == {0: function_at(1)}
    unplug_others(state, plan_of(SPEC.replace(", vf: {of: ens1f0, number: 2, trust: true}", ""), kernel))
    assert plugged(machine.xml) == {} and card.settings[1]["mac"] == NO_MAC


def test_a_machine_that_has_ended_has_no_address_any_more(
    machine: Machine, kernel: SriovKernel, card: Card, state: State, running: Process
) -> None:
    plug_failovers(state, plan_of(SPEC, kernel))
    assert card.settings[2]["mac"] == MAC and running.outside == "m" and plugged(machine.xml)
    (thing,) = (each for each in state.record.things if isinstance(each, VfioFile))
    assert thing.whose == "fw" and state.undo(thing) is None and card.settings[2]["mac"] == NO_MAC


def test_what_cannot_be_plugged_is_said_and_the_port_carries_all(
    machine: Machine, kernel: SriovKernel, card: Card, state: State
) -> None:
    machine.refuses = True
    (said,) = replug(state, RUNNING, [FRONT], kernel, card)
    assert "port 0 has no virtual function, and carries its frames itself: libvirt does not plug" in said
    assert card.settings[2]["mac"] == NO_MAC
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "0")
    (said,) = replug(state, RUNNING, [FRONT], kernel, card)
    assert "virtual function ens1f0/2 is not there" in said


def test_a_card_that_refuses_the_address_keeps_nothing_from_moving(
    machine: Machine, kernel: SriovKernel, card: Card, state: State
) -> None:
    card.refuses = ("mac",)
    assert not plugged(machine.xml)
    plug(state, RUNNING, FRONT, kernel, card)
    assert unplug(state, RUNNING, [0], kernel, card) == [0]


@pytest.fixture
def running(state: State, kernel: SriovKernel, card: Card, monkeypatch: pytest.MonkeyPatch) -> Process:
    """A machine on record, as this very process, on the machine of the test's card."""
    for module in (failover, record):
        monkeypatch.setattr(module, "Tree", lambda: kernel)
    monkeypatch.setattr(card_functions, "CardNetlink", lambda: card)
    me = identify(os.getpid())
    assert me is not None
    process = Process("fw", me.pid, me.start, outside="m")
    state.add(process)
    return process


def test_a_machine_that_runs_has_its_function_but_for_a_move(
    machine: Machine, kernel: SriovKernel, card: Card, state: State, running: Process
) -> None:
    plan = plan_of(SPEC, kernel)
    (front,) = plan.functions[0].failover
    planned = plan.as_data()["functions"][0]
    assert plug_failovers(state, plan) == [] and plugged(machine.xml) == {0: function_at(2)}
    assert _failover(state.record, planned) == [{"port": 0, "by": "ens1f0/2"}]
    with pytest.raises(Failure, match="it does not go"), unplugged(state, running, [front]) as without:
        assert without == ["ens1f0/2"] and plugged(machine.xml) == {} and card.settings[2]["mac"] == NO_MAC
        raise Failure("it does not go")
    assert plugged(machine.xml) == {0: function_at(2)} and card.settings[2]["mac"] == MAC, "it goes on here, with it"
    with unplugged(state, running, [front]):
        pass
    assert _failover(state.record, planned) == [{"port": 0, "by": None}]
    assert plugged(machine.xml) == {} and card.settings[2]["mac"] == NO_MAC
    machine.refuses = True
    (said,) = plug_failovers(state, plan)
    assert said.startswith("fw: port 0 has no virtual function, and carries its frames itself: ")
    with unplugged(state, running, []) as without:
        assert without == []


def test_both_nodes_have_the_address_and_either_may_have_no_function() -> None:
    behind = replace(FUNCTION, failover=(f"0 ({MAC})",))
    here, there = replace(HERE, function=behind), replace(THERE, function=behind)
    assert found(here, there) == []
    ((kind, text),) = found(here, THERE)
    assert kind == "device" and f"failover is 0 ({MAC}) here and none there" in text


def test_a_key_that_is_no_ports_number_is_said() -> None:
    text = SPEC.replace("failover: {0:", "failover: {x:")
    assert text != SPEC
    with pytest.raises(Mistake, match=r"'x' is a key of functions\.fw\.failover; expected a port's number, such as 0"):
        parse_located(text, "spec.yaml")
