"""Fabrics without I/O: who is at which end of a link, where everything runs, which words of a spec one cannot carry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.errors import Mistake
from tailrace.fabric import ovs_dpdk
from tailrace.fabric.base import Interface, Port
from tailrace.fabric.direct import Direct
from tailrace.fabric.fit import check_fits, words_beyond
from tailrace.fabric.kinds import KINDS, check_installed, parse_fabrics, parse_interface
from tailrace.fabric.network import Network
from tailrace.functions.process import inside
from tailrace.functions.program import BUFFERS_MIB
from tailrace.functions.runtime import Instance
from tailrace.measure.stand import Placed, Scene, SceneFunction, placement
from tailrace.process import programs
from tailrace.resources import hugepages
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state.record import Record, State

PLAIN = """\
functions: {first: skeleton, second: skeleton}
chains: {voice: [tester.a, first, second, tester.b]}
"""


def cpus(count: int) -> list[Cpu]:
    return [Cpu(number, core=number) for number in range(count)]


def scene(functions: int, interface: Interface | None = None, ends: Interface | None = None) -> Scene:
    names = tuple(SceneFunction(f"f{number}") for number in range(functions))
    return Scene("chain", names, interface, ends)


@pytest.fixture
def direct(tmp_path: Path) -> Direct:
    state = State(tmp_path, Record(boot="none"))
    state.save()
    fabric = Direct(state, Network(state))
    fabric.start()
    return fabric


def ports(functions: int, interface: Interface) -> list[Port]:
    return scene(functions, interface).ports(KINDS["direct"])


@pytest.mark.parametrize(("name", "package"), [("ovs-dpdk", "openvswitch-switch-dpdk"), ("linux-bridge", "iproute2")])
def test_a_fabric_that_is_not_installed_names_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, package: str
) -> None:
    monkeypatch.setattr(ovs_dpdk, "_VSWITCHD", str(tmp_path / "ovs-vswitchd-dpdk"))
    monkeypatch.setattr(programs.shutil, "which", lambda *_, **__: None)
    with pytest.raises(Mistake, match=f"install it with `sudo apt-get install {package}`"):
        check_installed([KINDS[name]])
    check_installed([KINDS["direct"]])


@pytest.mark.parametrize("functions", [0, 1, 2, 5])
@pytest.mark.parametrize("interface", ["vhost-user", "memif"])
def test_each_direct_link_has_one_end_that_waits_and_it_is_started_first(
    direct: Direct, functions: int, interface: Interface
) -> None:
    uris = direct.carry("chain", ports(functions, interface))
    chain = list(uris_in_order(uris, functions))
    waits = ["net_vhost" in uri or "role=server" in uri for uri in chain]
    for one, other in zip(waits[::2], waits[1::2], strict=True):
        assert one != other
    # The order of starts: functions from the last to the first, then the tester's ends. Who calls finds who waits.
    order = [(2 * number + 1, 2 * number + 2) for number in reversed(range(functions))] + [(0, len(chain) - 1)]
    there: set[str] = set()
    for owner in order:
        for index in owner:
            path = socket_of(chain[index])
            if waits[index]:
                there.add(path)
            else:
                assert path in there


def uris_in_order(uris: dict[str, str], functions: int) -> list[str]:
    names = ["tester.a", *(f"f{number}.{side}" for number in range(functions) for side in (0, 1)), "tester.b"]
    return [uris[name] for name in names]


def socket_of(uri: str) -> str:
    return uri.partition("/")[2].partition(",")[0]


def test_a_program_never_has_two_devices_of_one_name(direct: Direct) -> None:
    uris = direct.carry("chain", ports(1, "vhost-user"))
    assert uris["f0.0"].startswith("vdev:net_vhost0,")
    assert uris["f0.1"].startswith("vdev:net_vhost1,")


def test_what_direct_made_is_on_record_and_gone_when_it_stops(direct: Direct, tmp_path: Path) -> None:
    direct.carry("chain", ports(2, "vhost-user"))
    folders = list((tmp_path / "sockets").iterdir())
    assert len(folders) == 3
    (folders[0] / "link.sock").touch()
    direct.stop()
    assert not list((tmp_path / "sockets").iterdir())


def test_a_tap_has_a_switch_at_one_end(direct: Direct) -> None:
    with pytest.raises(Mistake, match="tap has a switch at one end"):
        direct.carry("chain", ports(1, "tap"))


def test_without_a_switch_the_tester_has_a_core_alone() -> None:
    found = placement(scene(1), KINDS["direct"], cpus(2), real_time=True)
    assert found.tester is not None
    assert not found.oversubscribed
    assert found.tester.core != found.functions["f0"].core
    found = placement(scene(3), KINDS["linux-bridge"], cpus(2), real_time=True)
    assert found.tester is not None
    assert found.oversubscribed
    assert "The tester has core 1 alone, the functions share core 0" in found.headline
    assert {each.core for each in found.functions.values()} == {0}


def test_a_switch_keeps_its_core() -> None:
    found = placement(scene(1), KINDS["tailrace"], cpus(2), real_time=True)
    assert found.tester is not None
    assert found.oversubscribed
    assert found.switch.core != found.tester.core == found.functions["f0"].core


@pytest.mark.parametrize(
    ("kind", "functions", "interface", "ends", "count"),
    [
        ("tailrace", 1, "memif", None, 2),
        ("linux-bridge", 2, "veth", None, 2),
        ("direct", 2, "vhost-user", "veth", 2),
    ],
)
def test_that_functions_look_by_time_is_reported_where_they_share_a_core(
    kind: str, functions: int, interface: Interface, ends: Interface | None, count: int
) -> None:
    def caveat(wanted: Scene, cores: int) -> str | None:
        return Placed(KINDS[kind], placement(wanted, KINDS[kind], cpus(cores), real_time=True)).caveat(wanted)

    wanted = scene(functions, interface, ends)
    assert "no receive interrupts" in (caveat(wanted, count) or "")
    assert caveat(wanted, 8) is None
    assert caveat(scene(0, interface, ends), count) is None


def test_a_kind_of_port_that_a_fabric_has_not() -> None:
    with pytest.raises(Mistake, match="linux-bridge has no memif ports; it has tap, veth"):
        placement(scene(1, "memif"), KINDS["linux-bridge"], cpus(2), real_time=True)


def test_fabrics_are_named() -> None:
    assert [kind.name for kind in parse_fabrics("direct, tailrace")] == ["direct", "tailrace"]
    with pytest.raises(Mistake, match="'vpp' is no fabric; expected some of tailrace, ovs-dpdk, linux-bridge, direct"):
        parse_fabrics("tailrace,vpp")
    with pytest.raises(Mistake, match="tailrace is listed twice"):
        parse_fabrics("tailrace,tailrace")
    with pytest.raises(Mistake, match="no such kind of port; expected vhost-user, memif, tap, veth"):
        parse_interface("sriov")


def test_every_fabric_carries_a_plain_chain() -> None:
    spec = parse_spec(PLAIN, "s.yaml")
    assert words_beyond(spec) == []
    assert [check_fits(spec, kind) for kind in KINDS.values()] == [None] * len(KINDS)


def test_a_fabric_says_which_words_it_cannot_carry() -> None:
    spec = parse_spec(
        """\
fabric: {kind: tailrace, workers: 2}
ports: {tester.a: {rate: 1Gbps}}
functions: {first: {kind: skeleton, replicas: 2}, router: skeleton}
chains:
  voice: {path: [tester.a, first, tester.b], match: {vlan: 5}, priority: 3}
bridges: {lan: [router.0, router.1]}
""",
        "s.yaml",
    )
    assert words_beyond(spec) == [
        "ports.tester.a.rate",
        "functions.first.replicas",
        "chains.voice.match",
        "chains.voice.priority",
        "bridges.lan",
        "fabric.workers",
    ]
    assert check_fits(spec, KINDS["tailrace"]) is None
    said = check_fits(spec, KINDS["linux-bridge"])
    assert said is not None
    assert said.startswith(
        "linux-bridge cannot carry ports.tester.a.rate, functions.first.replicas, chains.voice.match"
    )


@pytest.mark.parametrize(
    ("uri", "expected", "seen"),
    [
        ("vhost:/s/a.sock", "vhost:/run/port1", ["--ro-bind", "/s/a.sock", "/run/port1"]),
        ("vhost-server:/s/a/sock", "vhost-server:/run/port1/sock", ["--bind", "/s/a", "/run/port1"]),
        ("memif:/s/x/l.sock,role=client", "memif:/run/port1/l.sock,role=client", ["--bind", "/s/x", "/run/port1"]),
        (
            "vdev:net_vhost3,iface=/s/x/l.sock,queues=1",
            "vdev:net_vhost3,iface=/run/port1/l.sock,queues=1",
            ["--bind", "/s/x", "/run/port1"],
        ),
        ("tap:tap0", "tap:tap0", []),
    ],
)
def test_a_function_sees_its_own_sockets_and_no_more(uri: str, expected: str, seen: list[str]) -> None:
    assert inside(uri, 1) == (expected, seen)


def test_only_a_function_on_an_interface_of_linux_has_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace.functions import process as sandbox
    from tailrace.resources.place import Place

    monkeypatch.setattr(sandbox, "own_program", lambda name: Path("/bin") / name)
    monkeypatch.setattr(sandbox, "system_program", lambda name: f"/bin/{name}")
    monkeypatch.setattr(sandbox, "visible_libraries", lambda *_: [])
    place = Place(0, (0,))
    plain = sandbox.command(Instance("f", "skeleton", ("vhost:/s/a", "vhost:/s/b"), place, 1, True))
    linux = sandbox.command(Instance("f", "skeleton", ("tap:tap0", "tap:tap1"), place, 1, True))
    assert "--unshare-net" in plain
    assert "--disable-userns" in plain
    assert "--cap-add" not in plain
    assert "--unshare-net" not in linux
    assert [linux[i + 1] for i, word in enumerate(linux) if word == "--cap-add"] == [
        "CAP_NET_ADMIN",
        "CAP_NET_RAW",
        "CAP_IPC_LOCK",
    ]


@pytest.mark.parametrize(
    ("fabric", "interface", "ends", "said"),
    [
        ("tailrace", "memif", None, "machines have vhost-user ports here, .* but no memif"),
        ("linux-bridge", "tap", None, "machines have vhost-user ports here, .* but no tap"),
        ("direct", "vhost-user", None, "direct joins no machines"),
        ("tailrace", "vhost-user", "veth", None),
        ("ovs-dpdk", "vhost-user", None, None),
    ],
)
def test_machines_are_behind_switches(
    fabric: str, interface: Interface, ends: Interface | None, said: str | None
) -> None:
    machines = replace(scene(2, interface, ends), runs="machine")
    if said is None:
        placement(machines, KINDS[fabric], cpus(2), real_time=True)
    else:
        with pytest.raises(Mistake, match=said):
            placement(machines, KINDS[fabric], cpus(2), real_time=True)
    placement(replace(scene(0, interface), runs="machine"), KINDS[fabric], cpus(2), real_time=True)


def test_the_memory_of_machines_is_in_huge_pages_whole() -> None:
    plain, machines = scene(2), replace(scene(2), runs="machine")
    (function, _) = machines.functions
    more = machines.pages(KINDS["tailrace"]) - plain.pages(KINDS["tailrace"])
    assert more == 2 * (function.memory_bytes - (BUFFERS_MIB << 20) >> 20) // hugepages.PAGE_MIB
