"""Open vSwitch with DPDK, from Debian, as a fabric to compare with: private, and gone when it is stopped.

It has a database, sockets and a log of its own in the state's folder, so an Open vSwitch that the machine runs is not
touched. One polling thread (PMD) on one core. Where guests listen, its vhost-user ports are clients
(dpdkvhostuserclient, what Open vSwitch recommends); where they connect, it listens (dpdkvhostuser). Memory comes from
anonymous huge pages; no file system is mounted.
Source: https://docs.openvswitch.org/en/latest/topics/dpdk/
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.errors import Failure, Fault, Mistake
from tailrace.fabric.base import KERNEL, Counters, Port, pairs
from tailrace.fabric.linux_bridge import kernel_port
from tailrace.fabric.network import Network
from tailrace.process.process import Limits
from tailrace.resources.place import Place
from tailrace.resources.topology import allowed_cpus
from tailrace.state.launch import Launcher
from tailrace.state.record import FilePath, Folder, Process
from tailrace.switch.confine import listening_at

MEMORY_MIB = 1024
"""What it takes unless told otherwise. With half of it, its first try at a pool of buffers (262,144 of them) eats all
there is before it fails, and a port whose guest comes at that moment cannot be made."""
_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_VSWITCHD = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
_BRIDGE = "br0"
_PREFIX = "tailrace-ovs"
_RUNTIME = Folder(f"/var/run/dpdk/{_PREFIX}")
"""DPDK makes it, empty, and leaves it."""
_PMD = re.compile(r"^pmd thread .*?(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
_DROPPED = re.compile(r"\b(?:dropped|lost):(\d+)")
_DATAPATH_DROP = re.compile(r"^datapath_drop_(?!upcall_error|lock_error)\w+ .*total: (\d+)", re.MULTILINE)
"""Those two are what `lost:` counts."""
_FLOW_PACKETS = re.compile(r"\bn_packets=(\d+)")
_FEATURES = re.compile(r'\bfeatures="0x([0-9a-f]+)"')
_RING_PACKED = 34
"""VIRTIO_F_RING_PACKED (virtio 1.1, section 6)."""


@dataclass(frozen=True)
class PmdStats:
    """What the PMD threads counted since they started: dpif-netdev/pmd-stats-show."""

    packets: int
    idle_cycles: int
    busy_cycles: int


def parse_pmd_stats(text: str) -> PmdStats:
    """The sum over PMD threads (the main thread polls nothing). Raises ValueError if a number is missing.

    Open vSwitch counts a polling iteration's TSC cycles as processing if it received or sent a packet, and
    otherwise as idle (lib/dpif-netdev-perf.h, pmd_perf_end_iteration). A PMD that has not polled yet prints no cycles.
    """
    sums = {"packets received": 0, "idle cycles": 0, "processing cycles": 0}
    blocks = _PMD.findall(text)
    if not blocks:
        raise ValueError("no PMD thread in the statistics")
    for block in blocks:
        for name in sums:
            found = re.search(rf"^\s*{name}: (\d+)", block, re.MULTILINE)
            if found is None:
                raise ValueError(f"no '{name}' in the statistics")
            sums[name] += int(found[1])
    return PmdStats(sums["packets received"], sums["idle cycles"], sums["processing cycles"])


def parse_dropped(text: str) -> int:
    """Packets dropped at any port, receiving or sending, or for want of a flow: dpctl/show -s."""
    return sum(int(count) for count in _DROPPED.findall(text))


def parse_datapath_drops(text: str) -> int:
    """Packets dropped between ports, as to a port that was just made anew: coverage/show.

    A polling thread adds its part about once a second.
    """
    return sum(int(count) for count in _DATAPATH_DROP.findall(text))


def parse_flow_packets(text: str) -> list[int]:
    """The packets of each rule: ovs-ofctl dump-flows."""
    return [int(count) for count in _FLOW_PACKETS.findall(text)]


def parse_layouts(text: str) -> list[str]:
    """The layout of each guest's rings, by the features that it took: the status of interfaces."""
    return ["packed" if int(features, 16) >> _RING_PACKED & 1 else "split" for features in _FEATURES.findall(text)]


@dataclass(frozen=True)
class Rules:
    """What a bridge does, in the words of ovs-ofctl(8)."""

    flows: Sequence[str]
    groups: Sequence[str] = ()
    ports: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By port, what is set in its record (ovs-vswitchd.conf.db(5))."""


class OvsDpdk:
    """One private Open vSwitch with DPDK."""

    kind = "ovs-dpdk"

    def __init__(
        self,
        launcher: Launcher,
        place: Place,
        *,
        nice: int = 0,
        offloads: bool = False,
        network: Network | None = None,
    ) -> None:
        self._launcher = launcher
        self._network = network
        self._place = place
        self._nice = nice
        self._offloads = offloads
        self._folder = launcher.state.sockets
        self._ports: list[str] = []
        self._started: list[Process] = []

    @staticmethod
    def installed() -> None:
        """Raises Mistake if it is not installed."""
        if not (Path(_VSWITCHD).is_file() and shutil.which("ovs-vsctl", path=_search_path()) and _SCHEMA.is_file()):
            raise Mistake(
                "Open vSwitch with DPDK is not installed; "
                "install it with `sudo apt-get install openvswitch-switch-dpdk`, or measure without it"
            )

    def version(self) -> dict[str, str]:
        """Names and versions of what is installed."""
        text = self._run(_VSWITCHD, "--version")
        found = re.findall(r"^(?:.*\((Open vSwitch)\)|(DPDK)) (\S+)", text, re.MULTILINE)
        return {"openvswitch" if name else "dpdk": version for name, _, version in found}

    def start(self) -> None:
        """Starts database and switch; returns when the bridge is there. Raises Failure."""
        self.installed()
        self._folder.mkdir(exist_ok=True)
        self._launcher.state.add(_RUNTIME)
        database, schema = self._folder / "ovs.db", str(_SCHEMA)
        self._run("ovsdb-tool", "create", str(database), schema)
        self._start("ovsdb-server", "ovsdb-server", str(database), f"--remote=punix:{self._server}")
        self._configure("--no-wait", "init")
        memory = ",".join(
            str(MEMORY_MIB if node == self._node() else 0) for node in range(max(c.node for c in allowed_cpus()) + 1)
        )
        control = next((cpu for cpu in self._place.cpus if cpu != self._place.core), self._place.core)
        settings = {
            "dpdk-init": "true",
            "dpdk-extra": f"--in-memory --no-pci --no-telemetry --file-prefix {_PREFIX}",
            "dpdk-socket-mem": memory,
            "dpdk-socket-limit": memory,
            "dpdk-lcore-mask": hex(1 << control),
            "pmd-cpu-mask": hex(1 << self._place.core),
            "userspace-tso-enable": str(self._offloads).lower(),
        }
        self._configure(
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            *(f'other_config:{key}="{value}"' for key, value in settings.items()),
        )
        self._start("ovs-vswitchd", _VSWITCHD, f"unix:{self._server}")
        self._configure("add-br", _BRIDGE, "--", "set", "bridge", _BRIDGE, "datapath_type=netdev")
        self._control_flows("del-flows", _BRIDGE)

    def carry(self, chain: str, ports: Sequence[Port]) -> dict[str, str]:  # noqa: ARG002 - rules have no names
        uris = self.plug(ports)
        for pair in pairs(ports):
            for source, target in (pair, pair[::-1]):
                rule = f"in_port={self._number(source.name)},actions=output:{self._number(target.name)}"
                self._control_flows("add-flow", _BRIDGE, rule)
        return uris

    def plug(self, ports: Sequence[Port]) -> dict[str, str]:
        """The same ports, which nothing joins yet."""
        return {port.name: self._add(port) for port in ports}

    def program(self, rules: Rules) -> None:
        """Adds rules, whose numbers of ports are those of the order in which the ports were made, from 1."""
        for port, words in rules.ports.items():
            self._configure("set", "Port", port, *words)
        for group in rules.groups:
            self._control_flows("--protocols=OpenFlow13", "add-group", _BRIDGE, group)
        flows = self._folder / "flows"
        flows.write_text("\n".join(rules.flows))
        self._control_flows("--protocols=OpenFlow13", "add-flows", _BRIDGE, str(flows))

    def _add(self, port: Port) -> str:
        """Adds a port; returns the URI of its other end."""
        name, path = port.name, self._folder / port.name
        number = len(self._ports)
        if port.interface in KERNEL:
            if self._network is None:
                raise Mistake(f"{name}: {port.interface} needs a network namespace")
            interface, uri = kernel_port(self._network, port)
            words = ["type=dpdk", f'options:dpdk-devargs="net_af_packet{number},iface={interface}"']
        else:
            if port.group is None:
                self._launcher.state.add(FilePath(str(path)))
            if port.interface == "vhost-user-client":
                if port.group is not None:
                    path = listening_at(self._launcher.state, name, port.group)
                words, uri = ["type=dpdkvhostuserclient", f'options:vhost-server-path="{path}"'], f"vhost-server:{path}"
            else:  # Open vSwitch makes the socket itself, by the port's name, in its run folder
                words, uri = ["type=dpdkvhostuser"], f"vhost:{path}"
        self._ports.append(name)
        words.append(f"ofport_request={len(self._ports)}")
        self._configure("add-port", _BRIDGE, name, "--", "set", "Interface", name, *words)
        error = self._configure("get", "Interface", name, "error").strip()
        if error not in ("[]", '""'):
            raise Failure(f"Open vSwitch: port {name}: {error}")
        return uri

    def stats(self) -> PmdStats:
        """What the PMD has counted until now. Raises Fault if the switch has died."""
        try:
            return parse_pmd_stats(self._ask("dpif-netdev/pmd-stats-show"))
        except ValueError as error:
            raise Fault(f"Open vSwitch: {error}") from None

    def dropped(self) -> int:
        """Packets dropped at its ports and between them until now."""
        shown = self._ask("dpctl/show", "-s", "netdev@ovs-netdev")
        return parse_dropped(shown) + parse_datapath_drops(self._ask("coverage/show"))

    def counters(self) -> Counters:
        """What the PMD has counted until now, and what was dropped. Raises Fault if the switch has died."""
        stats = self.stats()
        return Counters(stats.packets, stats.busy_cycles, stats.idle_cycles, self.dropped())

    def rule_packets(self) -> list[int]:
        """The packets of each rule until about a second ago."""
        return parse_flow_packets(self._run("ovs-ofctl", "dump-flows", _BRIDGE))

    def layouts(self) -> list[str]:
        """The layout of each guest's rings: split or packed."""
        return parse_layouts(self._configure("--columns=status", "list", "Interface"))

    def processes(self) -> list[Process]:
        return list(self._started)

    def stop(self) -> None:
        # Its bridge is a TAP interface, which outlives it unless it is told to clean up.
        for process in self._started:
            if process.name == "ovs-vswitchd" and process.id.alive():
                with suppress(Failure):
                    self._ask("exit", "--cleanup")
                process.id.wait(5)
        for process in reversed(self._started):
            problem = self._launcher.state.undo(process)
            if problem:
                raise Failure(problem)
        self._started = []
        self._launcher.state.clear_sockets()  # its database, the lock of that, the bridge's sockets
        self._launcher.state.undo(_RUNTIME)

    # ---

    @property
    def _server(self) -> Path:
        return self._folder / "ovs.sock"

    def _node(self) -> int:
        return next((cpu.node for cpu in allowed_cpus() if cpu.number == self._place.core), 0)

    def _number(self, port: str) -> int:
        return self._ports.index(port) + 1

    def _start(self, name: str, program: str, *arguments: str) -> None:
        control = self._folder / f"{name}.ctl"
        where = shutil.which(program, path=_search_path())
        if where is None:
            raise Mistake(f"{program} is missing; install it with `sudo apt-get install openvswitch-switch-dpdk`")
        environment = {"OVS_RUNDIR": str(self._folder), "OVS_LOGDIR": str(self._folder)}
        limits = Limits(cpus=self._place.cpus, nice=self._nice, environment=environment)
        line = [where, *arguments, f"--unixctl={control}", "--no-chdir"]
        process = self._launcher.start(name, line, limits)
        self._started.append(process)
        deadline = time.monotonic() + 15
        while not _answers(control):
            if not process.id.alive():
                raise self._launcher.failure(name, f"{name} ended before it was ready")
            if time.monotonic() > deadline:
                raise self._launcher.failure(name, f"{name} was not ready within 15 s")
            time.sleep(0.02)

    def _run(self, program: str, *arguments: str) -> str:
        where = shutil.which(program, path=_search_path()) or program
        try:
            done = subprocess.run(
                [where, *arguments],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
                env={**os.environ, "OVS_RUNDIR": str(self._folder)},
            )
        except subprocess.TimeoutExpired:
            raise self._launcher.failure("ovs-vswitchd", f"{program} had no answer from Open vSwitch") from None
        if done.returncode != 0:
            raise Failure(f"Open vSwitch: {program} {arguments[0]}: {done.stderr.strip() or 'failed'}")
        return done.stdout

    def _configure(self, *arguments: str) -> str:
        return self._run("ovs-vsctl", f"--db=unix:{self._server}", "--timeout=15", *arguments)

    def _control_flows(self, *arguments: str) -> None:
        self._run("ovs-ofctl", *arguments)

    def _ask(self, method: str, *params: str) -> str:
        """A management command, over the socket that ovs-appctl uses: JSON-RPC 1.0, no newlines."""
        request = {"id": 0, "method": method, "params": list(params)}
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(str(self._folder / "ovs-vswitchd.ctl"))
                connection.sendall(json.dumps(request).encode())
                answer = _receive(connection)
        except OSError as error:
            raise self._launcher.failure("ovs-vswitchd", f"Open vSwitch does not answer ({error.strerror})") from None
        if answer.get("error"):
            raise Failure(f"Open vSwitch: {method}: {answer['error']}")
        return str(answer["result"])


def _receive(connection: socket.socket) -> dict[str, object]:
    """One JSON text; the connection stays open after it, so its end is where it parses."""
    text = b""
    while True:
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionResetError(104, "connection closed")
        text += part
        try:
            answer: dict[str, object] = json.loads(text)
        except ValueError:
            continue
        return answer


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def _search_path() -> str:
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin:/usr/bin:/bin"
