"""What forwarding by a full table of routes costs: the router, DPDK's own l3fwd (its FIB mode) and the Linux kernel, in
turn on one core; and the router on two, beside what two give the skeleton, of which cores share nothing.

Frames come from memory: DPDK's device for captures hands out copies of them again and again, and frees what it is
given to send. The kernel, which has no such device, gets them from a program on the same core, by a veth; what that
costs with frames that the kernel does not take is measured first, and taken off. Its frames end at an interface that
has nobody at its other end.

What is counted is the CPU time of those threads, so that others on this machine do not matter.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace import __version__
from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.full_table import CHANGES, ENTRY, ENTRY_MAC, FullTable, full_table
from tailrace.bench.function import SKELETON
from tailrace.bench.idle import cpu_seconds
from tailrace.bench.model import Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting, check_alive
from tailrace.errors import Fault, Mistake
from tailrace.functions.program import NAME, wait_until_ready
from tailrace.measure.progress import Reporter
from tailrace.process.control import Control
from tailrace.process.process import Limits, undisturbed
from tailrace.process.programs import own_program, run_system
from tailrace.resources.hugepages import PAGE_MIB
from tailrace.resources.place import POLLER_NICE
from tailrace.state.record import Process

ROUTER, L3FWD, KERNEL, ROUTER_2 = "router", "l3fwd", "kernel", "router_2_cores"
SKELETON_2 = "skeleton_2_cores"
PEERS = (L3FWD, KERNEL)
RATIOS = (
    Ratio("mpps_l3fwd", "mpps", ROUTER, L3FWD),
    Ratio("mpps_kernel", "mpps", ROUTER, KERNEL),
    Ratio("cores", "mpps", ROUTER_2, ROUTER),
    Ratio("cores_skeleton", "mpps", SKELETON_2, SKELETON),
)
MOST_ROUTES, IPV6_ROUTES = 1_000_000, 200_000
_L3FWD = Path(__file__).resolve().parents[2] / "build-l3fwd" / "l3fwd"
_LOADED = re.compile(r"tables are known after ([0-9.]+) s")
_START_SECONDS = 8.0
_READY_SECONDS = 120.0
_SETTLE_SECONDS = 0.3
_SETTLES = 30
"""At most so many times: whoever is at work for longer is measured with that work beside it."""
_RESTING = 0.02
"""Of a core: what threads that do not forward may take at rest."""
_WORKERS = "rte-worker"
"""The threads of ours that forward. Another one follows the kernel's routes: after a million it is at work for some
time longer."""
_WINDOWS = 5
"""Windows of the kernel's that are tried before it is said to have no cost of its own."""


_Measure = Callable[["RoutingPlan", FullTable, Setting], list[Sample]]


@dataclass(frozen=True)
class RoutingPlan(Plan):
    """What is to be measured. Raises Mistake where it cannot be."""

    routes: int = MOST_ROUTES
    ipv6_routes: int = IPV6_ROUTES
    """Which are there, and no frame goes to."""
    against: str = ",".join(PEERS)
    """Commas between them; or none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.routes <= MOST_ROUTES:
            raise Mistake(f"--routes {self.routes}: expected 2 to {MOST_ROUTES}")
        if not 0 <= self.ipv6_routes <= MOST_ROUTES:
            raise Mistake(f"--ipv6-routes {self.ipv6_routes}: expected 0 to {MOST_ROUTES}")
        if self.against != "none" and not set(self.peers) <= set(PEERS):
            raise Mistake(f"--against {self.against}: expected {', '.join(PEERS)}, both with a comma, or none")

    @property
    def peers(self) -> Sequence[str]:
        return () if self.against == "none" else self.against.split(",")

    @property
    def mib(self) -> int:
        """DPDK's memory of the router; l3fwd, whose tables are for a million IPv4 routes, needs its least."""
        own = 384 + (700 * self.routes + 3700 * self.ipv6_routes) // 1_000_000
        return max(own, 1280) if L3FWD in self.peers else own

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, _sides(self, []))


def run(plan: RoutingPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    if L3FWD in plan.peers and not os.access(_L3FWD, os.X_OK):
        raise Mistake(
            f"l3fwd is not built (at {_L3FWD} there is none); run `scripts/setup l3fwd`, or use --against kernel"
        )

    tables: list[FullTable] = []

    @contextmanager
    def around(setting: Setting) -> Iterator[None]:
        report.stage(f"{plan.routes} routes", _START_SECONDS)
        with full_table(setting, plan.routes, plan.ipv6_routes, plan.frame) as table:
            tables.append(table)
            yield

    return compare(
        "function",
        plan,
        _sides(plan, tables),
        RATIOS,
        folder=folder,
        report=report,
        pages=plan.mib // PAGE_MIB + 8,
        programs=[NAME],
        settings={"function": ROUTER, "routes": plan.routes, "ipv6_routes": plan.ipv6_routes},
        around=around,
    )


def _sides(plan: RoutingPlan, tables: Sequence[FullTable]) -> list[Side]:
    """The first table is what is measured with, once it is there."""
    measures: dict[str, _Measure] = {ROUTER: _router, L3FWD: _l3fwd, KERNEL: _kernel, ROUTER_2: _router_2}
    measures |= {SKELETON: partial(_skeleton, cores=1), SKELETON_2: partial(_skeleton, cores=2)}

    def side(name: str, setting: Setting, step: Step) -> list[Sample]:
        setting.versions["tailrace"] = __version__
        samples = measures[name](plan, tables[0], setting)
        step(_START_SECONDS)
        return samples

    seconds = plan.seconds + _START_SECONDS
    return [Side(name, seconds, partial(side, name)) for name in (ROUTER, *plan.peers, ROUTER_2, SKELETON, SKELETON_2)]


def _window(plan: RoutingPlan, process: Process, packets: Callable[[], int], cores: int = 1) -> Figures:
    """Raises Fault if no packet passed."""
    _settle(process)
    threads = "" if process.name == L3FWD else _WORKERS
    first, used = packets(), cpu_seconds(process, threads)
    time.sleep(plan.seconds)
    passed, spent = packets() - first, cpu_seconds(process, threads) - used
    check_alive([process])
    return _figures(passed, spent, cores)


def _settle(process: Process) -> None:
    """Waits until the threads that do not forward are at rest: what they do takes memory's time from those that do."""

    def others() -> float:
        return cpu_seconds(process) - cpu_seconds(process, _WORKERS)

    for _ in range(_SETTLES):
        used = others()
        time.sleep(_SETTLE_SECONDS)
        if process.name == L3FWD or others() - used < _RESTING * _SETTLE_SECONDS:
            return


def _figures(packets: int, seconds: float, cores: int = 1) -> Figures:
    if packets <= 0 or seconds <= 0:
        raise Fault("no packet passed")
    ns = seconds * 1e9 / packets
    return {"ns_per_packet": round(ns, 2), "mpps": round(cores * 1e3 / ns, 3), "packets": packets}


def _device(number: int, frames: Path, queues: int = 1) -> str:
    return f"net_pcap{number},{f'rx_pcap={frames},' * queues}infinite_rx=1"


@contextmanager
def _function(
    kind: str, plan: RoutingPlan, table: FullTable, setting: Setting, cores: int, *options: str
) -> Iterator[tuple[Process, Control]]:
    """One of ours between the devices, on so many cores, and its control socket."""
    launcher, place = setting.launcher, setting.cores.switch_place
    cpus = (setting.cores.switch, setting.cores.load)[:cores]
    control = launcher.state.sockets / kind
    argv = [str(own_program(NAME)), kind, "--core", ",".join(map(str, cpus)), "--queues", str(cores)]
    for number, frames in enumerate(table.frames):
        argv += ["--port", f"vdev:{_device(number, frames, cores)}"]
    argv += ["--memory", str(plan.mib), "--huge", "--control", str(control), *options]
    limits = Limits(cpus=tuple({*place.cpus, *cpus}), nice=POLLER_NICE, network=table.namespace)
    process = launcher.start(kind, argv, limits)
    try:
        wait_until_ready(launcher, process, time.monotonic() + _READY_SECONDS)
        with closing(Control(control)) as asked:
            yield process, asked
    finally:
        with undisturbed():
            launcher.state.undo(process)


def _skeleton(plan: RoutingPlan, table: FullTable, setting: Setting, cores: int) -> list[Sample]:
    with _function(SKELETON, plan, table, setting, cores) as (process, asked):

        def sent() -> int:
            return sum(int(port["sent"]) for port in asked.call("show", most=0)["counters"]["ports"])

        return setting.samples([process], lambda: _window(plan, process, sent, cores))


def _router(plan: RoutingPlan, table: FullTable, setting: Setting, cores: int = 1) -> list[Sample]:
    launcher = setting.launcher
    routes = [f"ipv4-routes={plan.routes + 64}", f"ipv6-routes={plan.ipv6_routes + 64}"]
    options = [word for each in routes for word in ("--set", each)]
    with _function(ROUTER, plan, table, setting, cores, *options) as (process, asked):
        loaded = _LOADED.search(launcher.log(ROUTER).read_text())
        if loaded is None:
            raise Fault(f"{NAME} does not say how long it took to know the routes")

        def packets() -> int:
            return _counted(asked).forwarded

        def measured() -> Figures:
            window = _window(plan, process, packets, cores)
            return {**window, "load_seconds": float(loaded[1]), **_changes(plan, table, asked)}

        return setting.samples([process], measured)


@dataclass(frozen=True)
class _Counted:
    """What a router has counted."""

    forwarded: int
    others: int
    """Frames that the kernel has got, or that were dropped."""
    routes: int
    """Of IPv4."""
    lost: int
    """How often messages of the kernel were, after which it is asked for all routes."""


def _counted(router: Control) -> _Counted:
    counters = router.call("show", most=0)["counters"]
    frames = {name: sum(int(port[name]) for port in counters["routed"]) for name in counters["routed"][0]}
    forwarded = frames.pop("forwarded")
    return _Counted(forwarded, sum(frames.values()), counters["routes"]["ipv4"], counters["netlink"]["lost"])


def _changes(plan: RoutingPlan, table: FullTable, router: Control) -> Figures:
    """Changes routes in the kernel as fast as it takes them, while frames move; ends when the router knows the last,
    which comes or goes. Raises Fault if it does not get to know it."""
    wanted, before, began = min(CHANGES, plan.routes), _counted(router), time.monotonic()
    table.change()
    while (after := _counted(router)).routes == before.routes:
        if time.monotonic() - began > _READY_SECONDS:
            raise Fault(f"the router does not know the last of {wanted} changes of routes")
        time.sleep(0.01)
    seconds = time.monotonic() - began
    return {
        "changes_per_second": round(wanted / seconds),
        "forwarded_meanwhile": after.forwarded - before.forwarded,
        "not_forwarded": after.others - before.others,
        "read_anew": after.lost - before.lost,
    }


def _router_2(plan: RoutingPlan, table: FullTable, setting: Setting) -> list[Sample]:
    return _router(plan, table, setting, cores=2)


def _l3fwd(plan: RoutingPlan, table: FullTable, setting: Setting) -> list[Sample]:
    launcher, core = setting.launcher, setting.cores.switch
    prefix = f"tailrace-l3fwd-{os.getpid()}"
    argv = [str(_L3FWD), "--lcores", f"0@{core}", "--in-memory", "--no-pci", "--file-prefix", prefix]
    argv += ["-m", str(plan.mib)]
    for number, frames in enumerate(table.frames):
        argv += ["--vdev", _device(number, frames)]
    argv += ["--", "-p", "3", "-P", "--lookup=fib", "--config=(0,0,0),(1,0,0)", "--parse-ptype"]
    argv += [f"--rule_ipv4={table.rules[0]}", f"--rule_ipv6={table.rules[1]}"]
    process = launcher.start(L3FWD, argv, Limits(cpus=setting.cores.switch_place.cpus, nice=POLLER_NICE))
    runtime = Path("/var/run/dpdk", prefix)
    try:
        with _Telemetry(runtime / "dpdk_telemetry.v2", process) as telemetry:
            return setting.samples([process], lambda: _window(plan, process, telemetry.sent))
    finally:
        with undisturbed():
            launcher.state.undo(process)
            with suppress(OSError):
                for each in runtime.iterdir():
                    each.unlink()
                runtime.rmdir()


class _Telemetry:
    """What a program of DPDK's has sent, which it tells at its telemetry socket."""

    def __init__(self, path: Path, process: Process) -> None:
        self._path, self._process = path, process
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_READY_SECONDS)

    def __enter__(self) -> _Telemetry:
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            check_alive([self._process])
            with suppress(OSError):
                self._socket.connect(str(self._path))
                break
            if time.monotonic() > deadline:
                raise Fault(f"{self._process.name}: no telemetry at {self._path}")
            time.sleep(0.05)
        self._socket.recv(1 << 16)
        while self.sent() == 0:
            check_alive([self._process])
            if time.monotonic() > deadline:
                raise Fault(f"{self._process.name} forwards nothing")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def sent(self) -> int:
        """Frames of both ports."""
        try:
            return sum(self._stats(port).get("opackets", 0) for port in range(2))
        except (OSError, ValueError) as error:
            raise Fault(f"{self._process.name}: {error}") from None

    def _stats(self, port: int) -> dict[str, int]:
        self._socket.send(f"/ethdev/stats,{port}".encode())
        answer: dict[str, dict[str, int] | None] = json.loads(self._socket.recv(1 << 16))
        return answer.get("/ethdev/stats") or {}


def _kernel(plan: RoutingPlan, table: FullTable, setting: Setting) -> list[Sample]:
    """Both windows are of one sample: what it costs to hand frames over, and that with forwarding."""
    namespace, outside = table.namespace, f"tre{os.getpid() % 100_000}"
    run_system("ip", "link", "add", outside, "type", "veth", "peer", "name", ENTRY, "netns", namespace)
    try:
        run_system("ip", "link", "set", outside, "up")
        run_system("sysctl", "-qw", f"net.ipv4.conf.{ENTRY}.rp_filter=0", namespace=namespace)
        run_system("ip", "-n", namespace, "link", "set", ENTRY, "address", ENTRY_MAC, "up")

        def forwarded() -> int:
            lines = run_system("cat", "/proc/net/snmp", namespace=namespace).splitlines()
            names, values = (line.split() for line in lines if line.startswith("Ip: "))
            return int(values[names.index("ForwDatagrams")])

        with _sender(setting, table.foreign, outside) as handing:
            # The least of some windows: what else the core does can only add.
            alone = min(handing.ns_per_packet(plan.seconds / 4, handing.sent) for _ in range(4))
        with _sender(setting, table.entering, outside) as handing:

            def measured() -> Figures:
                for _ in range(_WINDOWS):
                    if (ns := handing.ns_per_packet(plan.seconds, forwarded) - alone) > 0:
                        return {
                            "ns_per_packet": round(ns, 2),
                            "mpps": round(1e3 / ns, 3),
                            "handing_over_ns": round(alone, 2),
                        }
                raise Fault("the kernel forwards in no time; use more --seconds")

            return setting.samples([handing.process], measured)
    finally:
        with undisturbed():
            run_system("ip", "link", "delete", outside)


@dataclass(frozen=True)
class _Handing:
    """A program that hands frames to the kernel, on a core of its own."""

    process: Process
    core: int
    control: Control

    def sent(self) -> int:
        return sum(int(each["sent"]) for each in self.control.call("show", most=0)["counters"]["ports"])

    def used(self) -> float:
        """CPU time of the program, in whose calls the kernel forwards, and of the kernel's thread that may do it."""
        return cpu_seconds(self.process) + cpu_seconds(_softirq_thread(self.core))

    def ns_per_packet(self, seconds: float, packets: Callable[[], int]) -> float:
        time.sleep(_SETTLE_SECONDS)
        first, used = packets(), self.used()
        time.sleep(seconds)
        return float(_figures(packets() - first, self.used() - used)["ns_per_packet"])


def _softirq_thread(core: int) -> Process:
    name = f"ksoftirqd/{core}"
    for each in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if each.read_text().strip() == name:
                return Process(name, int(each.parent.name), 0, name)
    raise Fault(f"this kernel has no thread {name}")


@contextmanager
def _sender(setting: Setting, frames: Path, interface: str) -> Iterator[_Handing]:
    launcher, core = setting.launcher, setting.cores.switch
    control = launcher.state.sockets / "sender"
    argv = [str(own_program(NAME)), "skeleton", "--port", f"vdev:{_device(0, frames)}", "--port", f"if:{interface}"]
    argv += ["--core", str(core), "--memory", "64", "--huge", "--control", str(control)]
    process = launcher.start("sender", argv, Limits(cpus=setting.cores.switch_place.cpus, nice=POLLER_NICE))
    try:
        wait_until_ready(launcher, process, time.monotonic() + _READY_SECONDS)
        with closing(Control(control)) as asked:
            yield _Handing(process, core, asked)
    finally:
        with undisturbed():
            launcher.state.undo(process)
