"""Why a machine cannot move: each reason by itself, and all of them at once."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast
from xml.etree import ElementTree

import pytest
from test_machines import SETTING
from test_saved import live
from typer.models import OptionInfo

from tailrace.cli.options import ConnectionsOption
from tailrace.errors import Failure, Mistake
from tailrace.functions import machine, transfer
from tailrace.functions.domain import Nic, domain_xml
from tailrace.functions.program import READY
from tailrace.functions.runtime import Arrival
from tailrace.functions.transfer import Destination, Limits, Outgoing, Progress, await_arrival, domain_there
from tailrace.migrate.checks import reasons, risks
from tailrace.migrate.facts import Facts, FunctionFacts, as_data, bound_devices, facts_of, read_facts
from tailrace.node.difference import difference
from tailrace.node.peer import Host, reached
from tailrace.plan.make import make_plan
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.spec.model import MOST_CONNECTIONS
from tailrace.state.launch import Launcher
from tailrace.state.record import Record

CPUS = tuple(Cpu(number, core=number) for number in range(4))

FUNCTION = FunctionFacts(
    kind="skeleton",
    runs="machine",
    image="tailrace",
    made_of="abc",
    memory_bytes=256 << 20,
    cpus=1,
    latency="normal",
    interfaces=("vhost-user", "vhost-user"),
    driver="dpdk",
    settings=(),
    domain=None,
    migratable=True,
    huge=True,
    own_cpus=False,
    node=None,
)
HERE = Facts(
    host="one",
    boot="boot-1",
    folder="/run/tailrace",
    state="running",
    function=FUNCTION,
    tailrace="1.0",
    libvirt=9_000_000,
    qemu=7_002_000,
    acceleration="kvm",
    cpu="Xeon",
    flags=("avx", "sse4_2"),
    kinds=("pc-q35-7.1", "pc-q35-7.2"),
    machine="pc-q35-7.2",
    cpu_mode="host-model",
    libvirt_uri="qemu:///system",
    memory_free=8 << 30,
    pages_free=512,
    nodes={0: 16384},
)
THERE = replace(HERE, host="two", boot="boot-2", state="stopped", machine="", cpu_mode="")


def found(source: Facts = HERE, target: Facts = THERE) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in reasons("fw", source, target)]


def test_nothing_stands_in_the_way_between_hosts_that_are_alike() -> None:
    assert found() == []
    assert found(target=replace(THERE, libvirt=11_000_000, qemu=10_000_000)) == [], "newer is no reason"
    assert found(target=replace(THERE, flags=("avx", "avx512f", "sse4_2"))) == [], "nor is a CPU that can more"


SOURCES = [
    ({"state": "ended"}, "function", "does not run here (it has ended)"),
    ({"function": None}, "function", "is no function of what is up here"),
    ({"function": replace(FUNCTION, migratable=False)}, "spec", "`migratable: false`"),
    ({"devices": ("disk /d/fw.qcow2",)}, "storage", "/d/fw.qcow2"),
    ({"devices": ("passthrough 0000:3b:00.0",)}, "passthrough", "0000:3b:00.0"),
    ({"devices": ("device tpm",)}, "device", "tpm"),
    ({"cpu_mode": "host-passthrough", "cpu": "Opteron"}, "cpu", "Opteron here, Xeon there"),
    ({"flags": ("avx", "avx512f", "sse4_2")}, "cpu", "lacks avx512f"),
    ({"libvirt": 9_001_000}, "version", "libvirt is 9.1.0 here and 9.0.0 there"),
    ({"qemu": 10_000_003}, "version", "QEMU is 10.0.3 here and 7.2.0 there"),
    ({"machine": "pc-q35-10.0"}, "version", "no machine pc-q35-10.0"),
    ({"tailrace": "2.0"}, "version", "Tailrace is 2.0 here and 1.0 there"),
    ({"acceleration": "tcg"}, "acceleration", "tcg here and by kvm there"),
    ({"host": "two"}, "host", "rename one"),
]


@pytest.mark.parametrize(("change", "kind", "said"), SOURCES, ids=lambda value: value if isinstance(value, str) else "")
def test_what_the_source_has_that_does_not_move(change: dict[str, object], kind: str, said: str) -> None:
    ((what, text),) = found(replace(HERE, **change))  # type: ignore[arg-type]
    assert what == kind and said in text


TARGETS = [
    ({"state": "running"}, "function", "runs on two already"),
    ({"state": "ended"}, "function", "is started again on two"),
    ({"function": None}, "function", "in no plan of two"),
    ({"function": replace(FUNCTION, cpus=2)}, "pinning", "cpus is 1 here and 2 there"),
    ({"function": replace(FUNCTION, most_cpus=4)}, "pinning", "cpus.most is 1 here and 4 there"),
    ({"function": replace(FUNCTION, automatic=True)}, "pinning", "cpus.automatic is false here and true there"),
    ({"function": replace(FUNCTION, stacked=True)}, "pinning", "cpus.stacked is false here and true there"),
    ({"function": replace(FUNCTION, priority="1-20")}, "pinning", "priority is none here and 1-20 there"),
    (
        {"function": replace(FUNCTION, network="abc")},
        "function",
        "its addresses, routes or neighbours are others there",
    ),
    ({"function": replace(FUNCTION, memory_bytes=512 << 20)}, "memory", "256MiB here and 512MiB there"),
    ({"function": replace(FUNCTION, page_kib=1 << 20)}, "hugepages", "pages is 2 MiB here and 1 GiB there"),
    ({"function": replace(FUNCTION, interfaces=("e1000e", "e1000e"))}, "device", "interface is vhost-user"),
    ({"function": replace(FUNCTION, made_of="")}, "image", "is missing there"),
    ({"function": replace(FUNCTION, made_of="xyz")}, "image", "another content"),
    (
        {"function": replace(FUNCTION, node=1), "nodes": {0: 16384, 1: 128}, "pages_free": 63},
        "numa",
        "node 1 there, and 254 MiB are free on that; 256 are needed",
    ),
    ({"pages_free": 3, "memory_free": 64 << 20}, "hugepages", "128 huge pages are needed; 3 are free"),
    ({"sends_to": ("boot-1", "/run/tailrace")}, "host", "two sends a machine to this node at the moment"),
    ({"disk_free": 12 << 10}, "storage", "12 KiB are free there on the disk of /run/tailrace; expected at least 2 MiB"),
]


def test_an_emulator_that_loses_pages_is_told() -> None:
    emulated = replace(HERE, acceleration="tcg", qemu=7_002_022)
    assert "fw is emulated, by QEMU 7.2.22: before 9.0" in risks("fw", emulated)[0]
    for harmless in (
        replace(emulated, qemu=9_000_000),
        replace(emulated, acceleration="kvm"),
        replace(emulated, machine=""),
    ):
        assert risks("fw", harmless) == []


@pytest.mark.parametrize(("change", "kind", "said"), TARGETS, ids=lambda value: value if isinstance(value, str) else "")
def test_what_the_target_lacks(change: dict[str, object], kind: str, said: str) -> None:
    ((what, text),) = found(target=replace(THERE, **change))  # type: ignore[arg-type]
    assert what == kind and said in text


def test_room_is_asked_for_without_huge_pages_too() -> None:
    small = replace(FUNCTION, huge=False)
    ((kind, text),) = found(replace(HERE, function=small), replace(THERE, function=small, memory_free=100 << 20))
    assert kind == "memory" and "256 MiB are needed, and 100 MiB are free" in text


def test_a_node_has_room_in_what_is_free_of_it() -> None:
    on_one = replace(FUNCTION, node=1)
    here, there = replace(HERE, function=on_one), replace(THERE, function=on_one, nodes={0: 16384, 1: 128})
    assert found(here, replace(there, pages_free=64)) == [], "its huge pages that are free count"
    small = replace(on_one, huge=False)
    ((kind, text),) = found(replace(HERE, function=small), replace(there, function=small, pages_free=64))
    assert kind == "numa" and "128 MiB are free on that" in text, "but to a machine without"


def test_cpus_of_its_own_are_not_given_up() -> None:
    ((kind, _),) = found(replace(HERE, function=replace(FUNCTION, own_cpus=True)))
    assert kind == "pinning"


def test_one_that_was_given_cpus_by_hand_is_to_have_those_of_the_spec_again() -> None:
    elastic = replace(FUNCTION, most_cpus=4)
    ((kind, text),) = found(replace(HERE, function=replace(elastic, cpus=3)), replace(THERE, function=elastic))
    assert kind == "pinning" and text.endswith("expected the same (`tailrace function cpus fw 1` here)")


def test_the_cpus_that_its_load_gave_a_machine_keep_it_from_no_move() -> None:
    by_load = replace(FUNCTION, most_cpus=4, automatic=True)
    there = replace(THERE, function=by_load)
    assert found(replace(HERE, function=replace(by_load, cpus=3)), there) == []
    ((kind, text),) = found(replace(HERE, function=replace(by_load, cpus=3, least_cpus=2)), there)
    assert kind == "pinning" and "cpus.start is 2 here and 1 there" in text


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("cpus: 1", "cpus: {start: 1, most: 2}", "cpus.most is 1 here and 2 there"),
        ("cpus: {start: 1, most: 2}", "cpus: {start: 1, most: 2, automatic: true}", "cpus.automatic is false here"),
        ("latency: medium", "latency: medium, cpus: {stacked: true}", "cpus.stacked is false here"),
        ("latency: medium", "latency: medium, priority: {least: 2, most: 20}", "priority is none here"),
        ("router: {port0: [10.0.0.1/24]}", "router: {port0: [10.0.1.1/24]}", "its addresses, routes or neighbours"),
    ],
)
def test_what_cannot_change_while_it_runs_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str, other: str, said: str
) -> None:
    monkeypatch.setattr("tailrace.migrate.facts._with_machines", lambda facts, _outer: facts)

    def function(words: str) -> FunctionFacts:
        kind = "router" if "router" in words else "skeleton"
        text = f"functions: {{fw: {{kind: {kind}, runs: machine, memory: 512MiB, {words}}}}}\n"
        text += "chains: {v: [tester.a, fw, tester.b]}"
        plan = make_plan(parse_spec(text, "s"), cpus=CPUS, real_time=None)
        made = facts_of(tmp_path, Record("boot", plan=plan.as_data(), complete=True), "fw").function
        assert made is not None
        return made

    texts = [text for _, text in found(replace(HERE, function=function(one)), replace(THERE, function=function(other)))]
    assert any(said in each for each in texts), texts


def test_all_reasons_are_told_at_once() -> None:
    strange = replace(FUNCTION, interfaces=("pci:0000:3b:00.0", "e1000e"), migratable=False, latency="high")
    source = replace(HERE, function=strange, devices=("disk /d", "device vsock"), qemu=10_000_000, boot="boot-2")
    kinds = [kind for kind, _ in found(source, replace(THERE, state="running", acceleration="tcg"))]
    for kind in ("host", "spec", "passthrough", "device", "storage", "function", "version", "acceleration", "pinning"):
        assert kind in kinds
    assert kinds.count("device") == 3, "a TAP, a device, and what the other plan has"


def test_another_nodes_facts_are_read_by_their_types() -> None:
    assert read_facts(as_data(HERE)) == HERE
    for data in ({**as_data(HERE), "state": "gone"}, {"host": "x"}, [], {**as_data(HERE), "flags": 3}):
        with pytest.raises(Mistake, match="another version of Tailrace"):
            read_facts(data)


def test_what_a_domain_has_of_its_host() -> None:
    domain = ElementTree.fromstring(
        "<domain><devices><disk><source file='/d/a.qcow2'/></disk><disk><source protocol='rbd' name='p/x'/></disk>"
        "<hostdev><source><address domain='0x0000' bus='0x3b' slot='0x00' function='0x1'/></source></hostdev>"
        "<interface type='vhostuser'/><tpm/></devices></domain>"
    )
    assert bound_devices(domain) == (
        "disk /d/a.qcow2",
        "disk p/x",
        "passthrough 0000:3b:00.1",
        "device tpm",
    )


RUN = replace(SETTING, name="tailrace-1a-fw.2", command_line="console=ttyS0 tailrace.run=tailrace-vnf,skeleton")


def moved(change: str = "", to: str = "") -> ElementTree.Element:
    """What a machine is to be at the target, that is another one there than here in so much."""
    there = replace(
        RUN, name="tailrace-fw", nics=(Nic("52:54:00:00:00:0a", "/there/0"), Nic("52:54:00:00:00:0b", "/t/1"))
    )
    was = live(domain_xml(there)).replace("mode='host-passthrough'", "mode='custom'").replace(change, to)
    return ElementTree.fromstring(domain_there(was, RUN))


def test_a_machine_stays_what_it_is_and_has_the_targets_own_places() -> None:
    found = moved()
    there = ElementTree.fromstring(domain_xml(replace(RUN, name="tailrace-fw")))
    assert found.findtext("name") == "tailrace-fw" and found.findtext("uuid") == there.findtext("uuid")
    assert [each.get("address") for each in found.iterfind("devices/interface/mac")] == [
        "52:54:00:00:00:0a",
        "52:54:00:00:00:0b",
    ]
    assert [each.get("path") for each in found.iterfind("devices/interface/source")] == ["/s/0", "/s/1"]
    assert found.find("os/type").get("machine") == "pc-q35-7.2"  # type: ignore[union-attr]
    assert len(found.findall("cpu")) == 1


def test_another_machine_is_not_taken() -> None:
    memory = RUN.memory_bytes >> 10
    with pytest.raises(Mistake, match="the other node's machine: is a machine with another memory"):
        moved(f">{memory}<", f">{memory * 2}<")
    with pytest.raises(Mistake, match="another function"):
        moved("skeleton", "router")
    with pytest.raises(Mistake, match="damaged"):
        domain_there("<domain", RUN)


def test_the_time_that_is_left_is_by_what_is_written_meanwhile() -> None:
    progress = Progress(2.0, 256 << 20, 100_000_000, 60_000_000, 10_000_000, 2, 0)
    assert progress.seconds_left == 2.0 and "2 s left" in progress.text
    stuck = replace(progress, dirtied_per_second=70_000_000, throttle=20)
    assert stuck.seconds_left is None
    assert "does not converge yet" in stuck.text and "slowed down by 20 %" in stuck.text


def test_a_spec_says_what_may_move_and_what_comes() -> None:
    text = "functions: {{f: {{kind: skeleton, runs: {}}}}}\nchains: {{v: [tester.a, f, tester.b]}}\n"
    spec = parse_spec(text.format("machine, arrives: true"), "s")
    assert spec.functions["f"].arrives and spec.functions["f"].migratable
    for words in (
        "process, migratable: false",
        "container, arrives: true",
        "machine, arrives: true, migratable: false",
    ):
        with pytest.raises(Mistake, match="expected none"):
            parse_spec(text.format(words), "s")


def test_what_comes_from_elsewhere_is_not_started() -> None:
    text = "functions: {f: {kind: skeleton, runs: machine, arrives: true}}\nchains: {v: [tester.a, f, tester.b]}\n"
    plan = make_plan(parse_spec(text, "s"), cpus=CPUS, real_time=None)
    found = difference(None, plan, running={}, instances={}, alive=(), sockets=Path("/s"))
    assert found.start == () and found.stage == {}
    assert set(found.config["ports"]) >= {"f.0", "f.1"} and found.config["chains"]["v"]["through"] == ["f"]


def test_a_host_is_a_name_or_a_folder() -> None:
    for name in ("-oProxyCommand=x", "", "a b", "a/b", "x" * 300):
        with pytest.raises(Mistake, match="is no host"), reached(name):
            pass
    with reached("/run/other") as host:
        with host.libvirt(THERE) as found:
            assert not host.far and found == ("qemu:///system", "tcp://127.0.0.1")
        with pytest.raises(Mistake, match="no service runs there"):
            host.connect()


def test_ssh_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "$@" >&2\necho "Permission denied (publickey)." >&2\nexit 255\n')
    ssh.chmod(0o755)
    monkeypatch.setattr("tailrace.node.peer.system_program", lambda name: str(ssh) if name == "ssh" else name)
    said = r"far: ssh does not get there \(Permission denied.*`ssh-copy-id far`"
    with pytest.raises(Failure, match=said), reached("far"):
        pass


@pytest.mark.parametrize(
    ("settings", "memory"),
    [
        ("user root\nhostname 192.0.2.1\nport 22\n", "tcp://192.0.2.1"),
        ("hostname 2001:db8::1\nproxycommand none\n", "tcp://[2001:db8::1]"),
        ("hostname far\nproxyjump gate\n", None),
    ],
)
def test_memory_is_sent_to_where_ssh_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, memory: str | None
) -> None:
    ssh, asked = tmp_path / "ssh", tmp_path / "asked"
    # As ssh it makes the socket, and stays.
    ssh.write_text(
        f'#!/bin/sh\n[ "$1" != -G ] || {{ printf "{settings}"; exit; }}\n'
        f'echo "$@" >{asked}\ntouch {tmp_path}/libvirt.socket\nexec sleep 60\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setattr("tailrace.node.peer.system_program", lambda name: str(ssh) if name == "ssh" else name)
    host = Host("far", tmp_path, far=True)
    there = replace(THERE, libvirt_uri="qemu+unix:///system?socket=/run/tailrace-libvirt/libvirt-sock")
    with host.libvirt(there) as found:
        assert found == (f"qemu+unix:///system?socket={tmp_path}/libvirt.socket", memory)
    assert f"-L {tmp_path}/libvirt.socket:/run/tailrace-libvirt/libvirt-sock -- far" in asked.read_text()
    odd = replace(THERE, libvirt_uri="qemu+unix:///system?socket=/run/a:b")
    with pytest.raises(Mistake, match="libvirt's socket there is '/run/a:b'"), host.libvirt(odd):
        pass


class Sent:
    """libvirt, as far as a machine is sent by it."""

    VIR_MIGRATE_LIVE, VIR_MIGRATE_PEER2PEER, VIR_MIGRATE_AUTO_CONVERGE = 1, 2, 4
    VIR_MIGRATE_PAUSED, VIR_MIGRATE_PARALLEL = 8, 16
    VIR_MIGRATE_PARAM_DEST_NAME, VIR_MIGRATE_PARAM_DEST_XML = "name", "xml"
    VIR_MIGRATE_PARAM_URI, VIR_MIGRATE_PARAM_BANDWIDTH = "uri", "bandwidth"
    VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS = "connections"
    libvirtError = OSError

    def __init__(self) -> None:
        self.asked: tuple[dict[str, object], int] = ({}, 0)

    def migrateToURI3(self, _uri: str, parameters: dict[str, object], flags: int) -> None:
        self.asked = parameters, flags


@pytest.mark.parametrize(("connections", "said"), [(None, None), (1, None), (4, 4)])
def test_memory_is_sent_by_as_many_connections_as_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, connections: int | None, said: int | None
) -> None:
    libvirt = Sent()
    monkeypatch.setattr("tailrace.functions.transfer.hypervisor.library", lambda: libvirt)
    monkeypatch.setattr("tailrace.functions.transfer.find", lambda _: libvirt)
    sending = Outgoing("fw", 0, Destination("qemu:///system", "<domain/>", "fw", None), Limits(connections=connections))
    assert sending.ended.wait(30) and sending.problem is None
    parameters, flags = libvirt.asked
    assert parameters.get("connections") == said and bool(flags & Sent.VIR_MIGRATE_PARALLEL) == (said is not None)


class Here:
    """libvirt where a machine has arrived."""

    VIR_DOMAIN_PAUSED, VIR_DOMAIN_PAUSED_USER = 3, 1
    libvirtError = OSError

    def lookupByName(self, _name: str) -> Here:
        return self

    def state(self) -> tuple[int, int]:
        return self.VIR_DOMAIN_PAUSED, self.VIR_DOMAIN_PAUSED_USER


def test_a_machine_whose_switch_ended_before_it_was_there_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    libvirt = Here()
    monkeypatch.setattr("tailrace.functions.transfer.hypervisor.library", lambda: libvirt)
    monkeypatch.setattr("tailrace.functions.transfer.hypervisor.connect", lambda: libvirt)
    assert await_arrival("fw", (), lambda: None) is libvirt
    with pytest.raises(Failure, match="the switch here has ended"):
        await_arrival("fw", (), lambda: "the switch here has ended")


@pytest.mark.parametrize(("runs", "name"), [("process", "fw"), ("machine", "nosuch"), ("machine", "fw")])
def test_only_of_a_machine_is_it_needed_what_a_node_has_for_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: str, name: str
) -> None:
    def missing() -> NoReturn:
        raise Mistake("libvirt's binding for Python is missing")

    monkeypatch.setattr("tailrace.migrate.facts.hypervisor.connect", missing)
    text = f"functions: {{fw: {{kind: skeleton, runs: {runs}}}}}\nchains: {{v: [tester.a, fw, tester.b]}}"
    record = Record("boot", plan=make_plan(parse_spec(text, "s"), cpus=CPUS, real_time=None).as_data(), complete=True)
    if (runs, name) == ("machine", "fw"):
        with pytest.raises(Mistake, match="libvirt's binding"):
            facts_of(tmp_path, record, name)
        return
    facts = facts_of(tmp_path, record, name)
    assert facts.acceleration == "" and risks(name, facts) == []
    said = reasons(name, facts, replace(THERE, function=None))
    assert {each.kind for each in said} == {"function", "version"}, said  # it is another version's
    if runs == "process":
        assert "fw lives in a process; only machines move" in [each.text for each in said]


@pytest.fixture
def arrival(monkeypatch: pytest.MonkeyPatch) -> Arrival:
    """Of a machine that has ended where it came from."""
    monkeypatch.setattr(transfer, "domain_there", lambda _domain, _setting: "<domain/>")
    monkeypatch.setattr(transfer, "await_arrival", lambda *_: SimpleNamespace(XMLDesc=lambda: "<domain/>"))
    go = threading.Event()
    go.set()
    return Arrival("<domain/>", lambda _domain, _name: None, go, lambda: None, lambda: False, "move")


def arrive(folder: Path, arrival: Arrival) -> str:
    launcher = SimpleNamespace(logs=folder, log=lambda name: folder / f"{name}.log")
    return machine._arrive(cast(Launcher, launcher), "fw", arrival, SETTING)


def test_a_machine_whose_switch_ended_before_it_went_on_is_not_taken(tmp_path: Path, arrival: Arrival) -> None:
    assert arrive(tmp_path, arrival) == "<domain/>"
    with pytest.raises(Failure, match="the switch here has ended before the machine went on"):
        arrive(tmp_path, replace(arrival, cut_off=lambda: True))


def test_a_disk_that_fills_before_a_machine_is_there_does_not_lose_it(
    tmp_path: Path, arrival: Arrival, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full")

    def filled(_domain: str, _name: str) -> None:
        monkeypatch.setattr(Path, "write_text", full)
        monkeypatch.setattr(Path, "open", full)

    arrive(tmp_path, replace(arrival, ready=filled))
    monkeypatch.undo()
    assert (tmp_path / "fw.xml").read_text() == "<domain/>" and READY in (tmp_path / "fw.log").read_text()


def test_a_disk_that_is_full_is_named_before_a_machine_comes(
    tmp_path: Path, arrival: Arrival, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int, _offset: int, _size: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(Failure, match=f"^{tmp_path}: No space left on device$"):
        arrive(tmp_path, replace(arrival, ready=lambda _domain, _name: pytest.fail("it comes")))


def test_a_node_without_room_for_records_cannot_give_a_machine_away() -> None:
    ((kind, text),) = found(replace(HERE, disk_free=0))
    assert kind == "storage" and "0 KiB are free here" in text
    assert found(replace(HERE, disk_free=2 << 20)) == []


def test_the_command_takes_as_many_connections_as_a_spec() -> None:
    """It has the number itself: it would load the words of a spec for its help."""
    (option,) = (each for each in ConnectionsOption.__metadata__ if isinstance(each, OptionInfo))
    assert (option.min, option.max) == (1, MOST_CONNECTIONS)


def test_a_spec_says_by_how_many_connections_a_machine_moves() -> None:
    text = "functions: {f: {kind: skeleton, runs: machine, connections: 4}}\nchains: {v: [tester.a, f, tester.b]}\n"
    assert make_plan(parse_spec(text, "s"), cpus=CPUS, real_time=None).function("f").connections == 4
    with pytest.raises(Mistake, match="only a machine that is migratable moves"):
        parse_spec(text.replace("machine", "process"), "s")
    with pytest.raises(Mistake, match="connections"):
        parse_spec(text.replace("4", "65"), "s")
