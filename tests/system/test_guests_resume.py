"""A switch that is killed under load and started again by itself, with guests whose driver is DPDK's: where frames are
looked at, where a bridge spreads them, and where a chain ends at a device. Every frame is counted by the tester.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from private_network import Network, statistics
from running_switch import KEEP, RunningSwitch, wait_until
from running_tester import RunningTester, stream
from steered import replicas
from test_device_kinds import capture
from testpmd import Testpmd

pytestmark = pytest.mark.requires_root

KILLS = 5
RING = 256
QUEUES = 4
BURST = 64
DEVICE_RING = 1024
RATE = 2000


@dataclass
class Way:
    """What is between the tester's ports, and what they send each other."""

    streams: list[dict[str, Any]]
    configuration: dict[str, Any]
    guests: str = "ab"
    functions: tuple[str, ...] = ()
    """Each has two ports, and a process that forwards between them."""
    devices: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What a port of the switch is, and what the tester has at the other end."""
    queues: int = 1
    """Queue pairs of each guest. The tester has a port for each, whose frames are those of the flow of its number."""
    sources: int = 2
    """Receive queues of the switch, each of which may have a burst under way."""


def both(flow: int = 0, a: str = "a", b: str = "b") -> list[dict[str, Any]]:
    ends = (("there", a, b), ("back", b, a))
    return [stream(f"{name}{flow}", source, target, RATE, flow=flow) for name, source, target in ends]


MATCH = {"match": [{"protocol": 17}]}


def steered() -> Way:
    functions = {"fw": {"replicas": replicas("fw", 1)}}
    chains = {"udp": {"from": "a", "through": ["fw"], "to": "b", **MATCH}}
    return Way(both(), {"functions": functions, "chains": chains}, functions=("fw1",), sources=4)


def pinned() -> Way:
    """Flows of their own stream each, so that none may overtake itself."""
    names = ("fw1", "fw2", "fw3")
    functions = {"fw": {"replicas": replicas("fw", len(names))}}
    chains = {"c": {"from": "a", "through": ["fw"], "to": "b"}}
    flows = [each for flow in range(6) for each in both(flow)]
    return Way(flows, {"functions": functions, "chains": chains}, functions=names, sources=8)


def bridged(folder: Path) -> Way:
    """Three stations, each of which sends to the next one."""
    streams = []
    for number, (source, target) in enumerate(("ab", "bc", "ca")):
        frame = bytes((2, 0, 0, 0, 0, (number + 1) % 3, 2, 0, 0, 0, 0, number)) + b"\x88\xb5" + bytes(80)
        capture(folder / f"{source}.pcap", [frame])
        streams.append(stream(source + target, source, target, RATE, pcap=str(folder / f"{source}.pcap")))
    bridges = {"lan": {"ports": {name: {} for name in "abc"}}}
    return Way(streams, {"bridges": bridges}, guests="abc", sources=3)


def of_several_queues() -> Way:
    chains = {"a-b": {"from": "a", "through": [], "to": "b"}}
    streams = [each for queue in range(QUEUES) for each in both(queue, f"a{queue}", f"b{queue}")]
    return Way(streams, {"chains": chains}, queues=QUEUES, sources=2 * QUEUES)


def to_a_device(scheme: str) -> Way:
    chains = {"a-b": {"from": "a", "through": [], "to": "b"}}
    return Way(both(), {"chains": chains}, guests="a", devices={"b": (f"{scheme}:left", "if:right")})


class Scene:
    """The switch, and what outlives it: DPDK's testpmd, which has every guest and function and listens. Between the
    tester and a guest is another switch, because a trial ends with a port's link."""

    def __init__(self, binaries: Path, folder: Path, way: Way, packed: bool, network: Network | None) -> None:
        self.binaries, self.folder, self.way, self.packed = binaries, folder, way, packed
        self.within = network.within if network else ()
        self.drivers: list[str] = []
        self.guests: list[str] = []
        self.network = network
        self.dropped = self.taken = 0
        for name in ("inner", "outer"):
            (folder / name).mkdir()
        program = binaries / "switch/tailrace-switch"
        options = ("--idle", "sleep", "--memory", "128", "--backpressure-us", "1000000", "--cores", "0,1,0,1")
        self.outer = RunningSwitch(program, folder / "outer", *options)
        kept = ("--idle", "sleep", "--memory", "256", "--config", str(folder / "configuration.json"))
        self.switch = RunningSwitch(program, folder / "inner", *kept, *KEEP * bool(network), within=self.within)

    def begin(self) -> RunningTester:
        ports: dict[str, str] = {}
        for name in self.way.guests:
            self.drive(self.outer.add_guest(name + ".inside", queues=self.way.queues), "")
            self.listen(name)
            ports |= self.lead_to(name)
        for name in self.way.functions:
            self.listen(f"{name}.l")
            self.listen(f"{name}.r")
        for name, (uri, peer) in self.way.devices.items():
            self.switch.add_device(name, uri)
            ports[name] = peer
        self.switch.patch(**self.way.configuration)
        self.testpmd = Testpmd(self.folder, self.drivers, "--no-flush-rx", queues=self.way.queues)
        self.testpmd.say("start")
        program = self.binaries / "tester/tailrace-tester"
        options = ("--memory", "256", "--core", "0")
        self.tester = RunningTester(program, self.folder, ports, *options, prefix=self.within)
        for switch in (self.outer, self.switch):
            for port in switch.call("port.list"):
                switch.wait_state(port["name"], "up")
        listed = [(self.switch, name) for name in self.guests]
        listed += [(self.outer, f"{name}.inside") for name in self.way.guests]
        for switch, name in listed:
            wait_pairs(switch, name, self.way.queues)
        return self.tester

    def lead_to(self, name: str) -> dict[str, str]:
        """The tester's ports for a guest. Of several each is a worker's of its own, which then has its own queue of the
        guest (docs/architecture.md, "Workers"), and gets its flow back."""
        inside = name + ".inside"
        if self.way.queues == 1:
            path = self.outer.add_guest(name)
            self.outer.join(name, inside)
            return {name: f"vhost:{path}"}
        names = [f"{name}{queue}" for queue in range(self.way.queues)]
        ports = {port: f"vhost:{self.outer.add_guest(port)}" for port in names}
        for queue, port in enumerate(ports):
            ends = (port, inside) if name == "a" else (inside, port)
            self.outer.set_chain(port, *ends, match=[{"source": f"198.18.1.{queue}/32"}])
        pins = {f"{port}/0": queue for queue, port in enumerate(ports)}
        self.outer.patch(workers={"pins": pins})
        return ports

    def listen(self, name: str) -> None:
        path = self.switch.add_guest(name, mode="client", queues=self.way.queues)
        self.guests.append(name)
        self.drive(path, f",server=1,queue_size={RING},packed_vq={int(self.packed)}")

    def drive(self, path: Path, options: str) -> None:
        self.drivers.append(f"net_virtio_user{len(self.drivers)},path={path},queues={self.way.queues}{options}")

    def kill(self) -> None:
        self.switch.kill()
        self.look_back()

    def look_back(self) -> None:
        """Take what a switch has counted to that of those before; the page is there as it was left."""
        for name, counters in self.switch.page.ports().items():
            self.dropped += dropped(counters)
            if name in self.way.devices:
                self.taken += counters["received_packets"]

    def flows(self) -> list[dict[str, int | None]]:
        """How many each replica has."""
        groups = self.switch.call("function.list")
        return [{name: replica.get("flows") for name, replica in group["replicas"].items()} for group in groups]

    def moved_by_queue(self) -> list[int]:
        """Frames from each queue that this switch has."""
        slots = self.switch.page.slots()
        return [slot.counters["received_packets"] for slot in slots if "received_packets" in slot.counters]

    def known_losses(self) -> int:
        """What the switches and testpmd dropped, and what Linux had for a device and no switch took."""
        self.look_back()
        *_, all_ports = self.testpmd.end()
        away = statistics(self.network, "left", "rx_packets") - self.taken if self.network else 0
        return self.dropped + sum(map(dropped, self.outer.page.ports().values())) + all_ports["dropped"] + away

    def under_way(self) -> int:
        """Frames that one kill may cost at the most: a burst of each receive queue, and what is in a device's rings. Of
        packed rings DPDK's driver makes new ones when a back end comes back."""
        forgotten = 2 * RING * self.way.queues * len(self.guests) if self.packed else 0
        return self.way.sources * BURST + DEVICE_RING * len(self.way.devices) + forgotten

    def end(self) -> None:
        statuses = [self.tester.end()] if hasattr(self, "tester") else []
        if hasattr(self, "testpmd"):
            self.testpmd.end()
        statuses += [self.outer.end(), self.switch.end()]
        assert not any(statuses), statuses


def wait_pairs(switch: RunningSwitch, name: str, count: int) -> None:
    wait_until(lambda: switch.port(name)["pairs"] == count, f"testpmd uses all pairs of {name}")


def dropped(counters: dict[str, int]) -> int:
    return sum(count for name, count in counters.items() if name.startswith("drop_"))


def received(tester: RunningTester) -> dict[str, int]:
    return {each["name"]: each["received"] for each in tester.call("trial.status")["streams"]}


def wait_more(tester: RunningTester) -> None:
    """Each stream has more than a ring's frames more, so that what the guests had already does not count."""
    before = received(tester)
    wait_until(
        lambda: all(now > before[name] + RING for name, now in received(tester).items()),
        f"every stream goes on; {before}, {received(tester)}",
    )


@contextmanager
def scene(binaries: Path, folder: Path, way: Way, packed: bool) -> Iterator[Scene]:
    with ExitStack() as stack:
        network = None
        if way.devices:
            network = Network()
            stack.callback(network.end)
            network.pair("left", "right")
        made = Scene(binaries, folder, way, packed, network)
        stack.callback(made.end)
        yield made


WAYS: dict[str, Callable[[Path], Way]] = {
    "steered": lambda _: steered(),
    "pinned": lambda _: pinned(),
    "bridged": bridged,
    "queues": lambda _: of_several_queues(),
    "if": lambda _: to_a_device("if"),
    "xdp": lambda _: to_a_device("xdp"),
}


@pytest.mark.parametrize(
    ("way", "packed"),
    [
        # Each way with one layout of rings, and the other in the whole run.
        pytest.param(way, packed, marks=() if packed == (number % 2 == 1) else pytest.mark.whole, id=f"{way}-{layout}")
        for number, way in enumerate(WAYS)
        for packed, layout in ((False, "split"), (True, "packed"))
    ],
)
def test_every_guest_goes_on(asan_binaries: Path, tmp_path: Path, way: str, packed: bool) -> None:
    generator = random.Random(1)
    shape = WAYS[way](tmp_path)
    with scene(asan_binaries, tmp_path, shape, packed) as stage:
        tester = stage.begin()
        tester.start(shape.streams, 3600)
        wait_more(tester)
        where = stage.flows()
        for _ in range(KILLS):
            wait_more(tester)
            time.sleep(generator.random() * 0.01)
            stage.kill()
            stage.switch.start()
            wait_more(tester)
        assert stage.flows() == where
        assert all(count > RING for count in stage.moved_by_queue()), stage.moved_by_queue()
        tester.call("trial.stop")
        result = tester.wait_end()
        known = stage.known_losses()
    for each in result["streams"]:
        for key in ("duplicate", "out_of_sequence", "beyond_window"):
            assert each[key] == 0, (key, each)
        assert each["lost"] == each["sent"] - each["received"], each
    lost = sum(each["lost"] for each in result["streams"])
    assert lost <= known + KILLS * stage.under_way(), (lost, known)
