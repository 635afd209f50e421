"""A virtual machine between two ports of the switch, with DPDK's virtio driver; the tester counts every frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import linux
import pytest
from machine import Hardware, Machine, Nic, Value, mac
from running_switch import RunningSwitch, wait_until
from running_tester import RunningTester, Trial, both_ways
from wiring import assert_no_fault

from tailrace.resources.hugepages import POOL

pytestmark = pytest.mark.requires_program("tailrace-switch", "tailrace-tester", "qemu-system-x86_64", "dpdk-testpmd")

OUTAGES = (0, 0, 0.3, 2.0)
"""Seconds for which there is no switch."""
ENDS = ("a", "b")
INSIDE = ("left", "right")

INPUT = "/run/testpmd"
TESTPMD = (
    # A FIFO that it has open for both ways: it ends when its input does.
    f"[ -p {INPUT} ] || mkfifo {INPUT}; dpdk-testpmd --lcores 0@0,1@0 --in-memory -m 96 --no-telemetry -- "
    f"--interactive --total-num-mbufs=8192 --forward-mode=io --rxq={{pairs}} --txq={{pairs}} {{start}} <>{INPUT}"
)
FORWARDS = "io packet forwarding"
"""It says when it begins."""
SKELETON = "tailrace-vnf skeleton --huge --memory 64 --port pci:{nics[0]} --port pci:{nics[1]}"
UIO = "uio_pci_generic"
VIRTIO = "virtio-pci"


@pytest.fixture
def paths(switch: RunningSwitch) -> dict[str, Path]:
    names = (ENDS[0], *INSIDE, ENDS[1])
    paths = {name: switch.add_guest(name) for name in names}
    switch.set_chain("chain", *names)
    return paths


@contextmanager
def run_tester(binaries: Path, folder: Path, paths: Mapping[str, Path]) -> Iterator[RunningTester]:
    running = RunningTester(
        binaries / "tester/tailrace-tester", folder, {name: f"vhost:{paths[name]}" for name in ENDS}
    )
    try:
        yield running
    finally:
        assert running.end() == 0


@pytest.fixture
def tester(binaries: Path, tmp_path: Path, paths: dict[str, Path]) -> Iterator[RunningTester]:
    with run_tester(binaries, tmp_path, paths) as running:
        yield running


class Function:
    """A program with DPDK's driver, between the first two NICs of a machine and between the next two."""

    def __init__(
        self, switch: RunningSwitch, machine: Machine, program: str, pairs: int = 1, start: str = "--auto-start"
    ) -> None:
        self.switch = switch
        self.machine = machine
        machine.run(f"modprobe {UIO}; echo 80 >{POOL}/nr_hugepages")
        interfaces = [f"eth{number}" for number in range(len(machine.hardware.nics))]
        self.nics = [linux.pci_address(machine, interface) for interface in interfaces]
        self.program = program.format(nics=self.nics, pairs=pairs, start=start)
        self.bind(UIO)
        self.start()

    def bind(self, driver: str) -> None:
        """Give the NICs to another driver."""
        for nic in self.nics:
            device = f"/sys/bus/pci/devices/{nic}"
            self.machine.run(
                f"echo {nic} >{device}/driver/unbind; echo {driver} >{device}/driver_override; "
                f"echo {nic} >/sys/bus/pci/drivers_probe; [ -e {device}/driver ]"
            )

    def start(self) -> None:
        self.running = self.machine.begin(self.program)

    def say(self, *lines: str) -> None:
        """To testpmd."""
        self.machine.run(f"printf '%s\\n' {' '.join(map(repr, lines))} >{INPUT}")

    def wait_state(self, state: str) -> None:
        """Of both ports."""
        try:
            for name in INSIDE:
                self.switch.wait_state(name, state)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.running.output()}") from None


def boot(folder: Path, nics: Sequence[Nic], accelerator: str, memory: int = 384) -> Machine:
    return Machine(folder, "vnf", Hardware(nics, memory=memory, layers=("base", "dpdk")), accelerator=accelerator)


def inside(paths: Mapping[str, Path], options: dict[str, Value], queues: int = 1, *, server: bool = False) -> list[Nic]:
    return [Nic(paths[name], server, queues, {"mac": mac(i), **options}) for i, name in enumerate(INSIDE)]


def assert_all_arrived(trial: Trial) -> None:
    """Every frame that was sent arrived once, in order and whole; most of what should be sent was."""
    for each in trial["streams"]:
        assert each["received"] == each["sent"] > each["offered"] / 10, each
        for key in ("lost", "duplicate", "out_of_sequence", "beyond_window", "foreign"):
            assert each[key] == 0, (key, each)
        assert each["received_bytes"] == each["sent_bytes"]


def drops(switch: RunningSwitch, *ports: str) -> dict[str, dict[str, int]]:
    return {
        port: {key: count for key, count in switch.counters(port).items() if key.startswith("drop_")} for port in ports
    }


def assert_layout(switch: RunningSwitch, options: dict[str, Value]) -> None:
    for name in INSIDE:
        assert switch.port(name)["attached"]["layout"] == ("packed" if options.get("packed") == "on" else "split")


def forward(switch: RunningSwitch, tester: RunningTester, machine: Machine, program: str) -> Function:
    """Start a program between both NICs; returns once frames come through it both ways."""
    function = Function(switch, machine, program)
    function.wait_state("up")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        trial = tester.trial(both_ways(100), 0.2, wait=0.3)
        if all(each["received"] for each in trial["streams"]):
            return function
    raise AssertionError(f"nothing comes through\n{function.running.output()}")


PACKED: dict[str, Value] = {"packed": "on"}
LAYOUTS = pytest.mark.parametrize(
    "options", [pytest.param({}, id="split", marks=pytest.mark.whole), pytest.param(PACKED, id="packed")]
)
PLAIN: dict[str, Value] = {"mrg_rxbuf": "off", "indirect_desc": "off"}
PROGRAMS = [
    pytest.param(TESTPMD, {}, id="testpmd"),
    pytest.param(TESTPMD, PLAIN, id="testpmd-plain"),
    pytest.param(TESTPMD, PACKED, id="testpmd-packed"),
    pytest.param(TESTPMD, PACKED | PLAIN, id="testpmd-packed-plain"),
    pytest.param(SKELETON, {}, id="skeleton"),
    pytest.param(SKELETON, PACKED, id="skeleton-packed"),
]


@pytest.mark.whole
@pytest.mark.parametrize(("program", "options"), PROGRAMS)
def test_every_frame_crosses_a_function_in_a_machine(
    switch: RunningSwitch,
    tester: RunningTester,
    tmp_path: Path,
    paths: dict[str, Path],
    accelerator: str,
    program: str,
    options: dict[str, Value],
) -> None:
    with boot(tmp_path, inside(paths, options), accelerator) as machine:
        function = forward(switch, tester, machine, program)
        assert_layout(switch, options)
        before = drops(switch, *ENDS, *INSIDE)
        assert_all_arrived(tester.trial(both_ways(1000, frames=[64, 256, 1518]), 1.0, wait=5.0))
        function.running.end()
        assert drops(switch, *ENDS, *INSIDE) == before


@pytest.mark.whole
@LAYOUTS
def test_frames_go_around_on_every_pair(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, options: dict[str, Value]
) -> None:
    """The switch leads what comes by one NIC to the other, and so does testpmd: bursts that it sends on each pair are
    under way until it ends, and none of them is lost."""
    pairs = 4
    paths = {name: switch.add_guest(name, queues=pairs) for name in INSIDE}
    switch.join(*INSIDE)
    with boot(tmp_path, inside(paths, options, pairs), accelerator) as machine:
        function = Function(switch, machine, TESTPMD, pairs, start="")
        function.wait_state("up")
        for name in INSIDE:
            wait_until(lambda name=name: switch.port(name)["pairs"] == pairs, f"{pairs} pairs at {name}")  # type: ignore[misc]
        assert_layout(switch, options)
        function.say("start tx_first 1")

        def moved(count: int) -> bool:
            queues = [f"{name}/{queue}" for name in INSIDE for queue in range(pairs)]
            counters = [slot.counters for slot in switch.page.slots() if slot.name in queues]
            return len(counters) == len(queues) and all(each["received_packets"] > count for each in counters)

        wait_until(lambda: moved(2000), "frames go around on every pair", 60)
        assert_no_fault(switch, *INSIDE)
        assert not any(count for each in drops(switch, *INSIDE).values() for count in each.values())


def stop_ports(function: Function) -> None:
    before = function.running.output().count(FORWARDS)
    function.say("stop", "port stop all", "port start all", "start")
    wait_until(lambda: function.running.output().count(FORWARDS) > before, "it forwards again")


def start_again(function: Function) -> None:
    function.running.end()
    function.start()


def kill(function: Function) -> None:
    """The device goes on with the rings until the next program resets it."""
    function.machine.run("killall -9 dpdk-testpmd")
    function.machine.wait("! pidof dpdk-testpmd")  # which has its huge pages until then
    function.start()


def unbind(function: Function) -> None:
    function.running.end()
    function.bind(VIRTIO)
    function.machine.run("ip link set eth0 up; ip link set eth1 up")
    function.wait_state("up")
    function.bind(UIO)
    function.start()


def kill_switch(seconds: float, function: Function) -> None:
    """For so long QEMU has the rings, and the driver goes on."""
    function.switch.kill()
    time.sleep(seconds)
    function.switch.start()


Upset = Callable[[Function], None]


def live_through(function: Function, tester: RunningTester, upsets: Sequence[Upset]) -> None:
    """Frames come through again after each, and none came twice or out of its order."""
    tester.start(both_ways(500), 3600, wait=5.0)
    for upset in upsets:
        tester.wait_more(100)
        upset(function)
        function.wait_state("up")
    tester.wait_more(100)
    tester.call("trial.stop")
    for each in tester.wait_end()["streams"]:
        assert each["lost"] == each["sent"] - each["received"], each
        for key in ("duplicate", "out_of_sequence", "beyond_window", "foreign"):
            assert each[key] == 0, (key, each)


@LAYOUTS
@pytest.mark.parametrize(
    "upset", [kill, *(pytest.param(each, marks=pytest.mark.whole) for each in (stop_ports, start_again, unbind))]
)
def test_a_driver_resumes(
    switch: RunningSwitch,
    tester: RunningTester,
    tmp_path: Path,
    paths: dict[str, Path],
    accelerator: str,
    upset: Upset,
    options: dict[str, Value],
) -> None:
    with boot(tmp_path, inside(paths, options), accelerator) as machine:
        function = forward(switch, tester, machine, TESTPMD)
        live_through(function, tester, [upset] * 3)
        assert_layout(switch, options)
        assert_no_fault(switch, *ENDS, *INSIDE)


@pytest.mark.whole
@LAYOUTS
def test_a_driver_resumes_after_the_switch_was_killed(
    switch: RunningSwitch,
    lasting_switch: RunningSwitch,
    binaries: Path,
    tmp_path: Path,
    accelerator: str,
    options: dict[str, Value],
) -> None:
    """The tester's frames go through one switch into testpmd, from there through the other, which is killed, and back
    through testpmd."""
    paths = {name: lasting_switch.add_guest(name) for name in (*ENDS, "first", "last")}
    lasting_switch.join(ENDS[0], "first")
    lasting_switch.join("last", ENDS[1])
    left, right = inside({name: switch.add_guest(name, "client") for name in INSIDE}, options, server=True)
    switch.join(*INSIDE)
    first, last = (Nic(paths[name], options={"mac": mac(len(INSIDE) + i)}) for i, name in enumerate(("first", "last")))
    with (
        run_tester(binaries, tmp_path, paths) as tester,
        boot(tmp_path, (first, left, right, last), accelerator) as machine,
    ):
        function = forward(switch, tester, machine, TESTPMD)
        live_through(function, tester, [partial(kill_switch, seconds) for seconds in OUTAGES])
        assert_layout(switch, options)
        assert_no_fault(switch, *INSIDE)
        assert_no_fault(lasting_switch, *paths)
