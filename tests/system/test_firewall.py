"""A firewall between two real TCP/IP stacks: what ping, iperf3 and curl say of it, in IPv4 and IPv6, and that what is
allowed goes on while rules change."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conversation import ECHO, conversation
from iperf import iperf
from one_network import Host, shown
from running_node import Command, needs_a_node, open_folder, wait_until

from tailrace.functions.show import Shown
from tailrace.state.record import peek

pytestmark = [*needs_a_node, pytest.mark.requires_program("ip", "ping", "iperf3", "curl")]
SECONDS = 1
DENIED = "drop_rule"


@dataclass
class Scene:
    left: Host
    right: Host
    command: Command

    def rules(self, *rules: str, connections: int = 65536, queues: int = 1) -> Path:
        """A spec with these rules, of a firewall with so many queues and one thread."""
        listed = "".join(f"        - {{{each}}}\n" for each in rules)
        return self.command.spec(
            f"functions:\n  fw:\n    kind: firewall\n    cpus: {{most: {queues}}}\n    firewall:\n"
            f"      connections: {connections}\n"
            f"      groups: {{right: ['{self.right.addresses[4]}', '{self.right.addresses[6]}']}}\n"
            f"      rules:\n{listed}"
            f"chains: {{wan: [{{if: {self.left.namespace}}}, fw, {{if: {self.right.namespace}}}]}}\n"
        )

    def shown(self) -> Shown:
        return shown(self.command, "fw")

    def filtered(self) -> list[dict[str, Any]]:
        """The counters of both ports."""
        filtered = self.shown().counters["filtered"]
        assert isinstance(filtered, list)
        return filtered

    def dropped(self, port: int, why: str = DENIED) -> int:
        return int(self.filtered()[port][why])

    def frames(self, rule: str) -> int:
        """That a rule has decided about."""
        return next(int(str(each["frames"])) for each in self.shown().tables["rules"].rows if each["rule"] == rule)


WEB, PERF, TALK = 8000, 5201, 7000
PING = [
    f"name: ping{version}, action: allow, port: port0, protocol: {name}"
    for version, name in ((4, "icmp"), (6, "icmpv6"))
]
ALLOWED = [
    *PING,
    f"name: web, action: allow, port: port0, destination: right, protocol: tcp, destination_port: {WEB}",
    f"name: perf, action: allow, port: port0, destination: right, protocol: tcp, destination_port: {PERF}",
    f"name: perf-udp, action: allow, port: port0, destination: right, protocol: udp, destination_port: {PERF}",
]


@pytest.fixture(scope="module")
def scene(tailrace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    mark = os.getpid() % 100_000
    hosts = (Host(f"tfl{mark}", 1), Host(f"tfr{mark}", 2))
    with open_folder() as folder:
        command = Command(tailrace, tmp_path_factory.mktemp("firewall"), folder / "state")
        scene = Scene(*hosts, command)
        try:
            for host in hosts:
                host.make()
            command("up", scene.rules(*ALLOWED))
            for to in hosts[1].addresses.values():
                wait_until(partial(hosts[0].reaches, to))
            yield scene
        finally:
            command("down")
            for host in hosts:
                host.remove()
        assert not command.leftovers()


def test_only_who_may_ask_is_answered(scene: Scene) -> None:
    before = scene.dropped(1)
    for version in (4, 6):
        assert scene.left.reaches(scene.right.addresses[version])
        assert scene.left.reaches(scene.right.addresses[version], "-s", "3000")  # in fragments
        assert not scene.right.reaches(scene.left.addresses[version], "-W", "1")
    assert scene.dropped(1) >= before + 2
    assert scene.frames("ping4") >= 1 and scene.frames("ping6") >= 1
    assert re.search("ping4 +allow +[1-9]", scene.command("function", "show", "fw").stdout)


SERVER = (
    "import http.server, socket, socketserver as server; server.TCPServer.address_family = socket.AF_INET6; "
    f"server.TCPServer(('::', {WEB}), http.server.SimpleHTTPRequestHandler).serve_forever()"
)


def test_a_server_is_reached_at_the_port_that_is_allowed(scene: Scene) -> None:
    before = scene.frames("web"), scene.frames("default")
    with scene.right.serves(WEB, "python3", "-c", SERVER):
        for version in (4, 6):
            host = scene.right.addresses[version] if version == 4 else f"[{scene.right.addresses[version]}]"
            assert "HTTP/1.0 200" in scene.left.run("curl", "-sS", "-I", "--max-time", "20", f"http://{host}:{WEB}/")
            scene.left.run("curl", "-sS", "--max-time", "1", f"http://{host}:{WEB + 1}/", status=28)  # nobody answers
    assert scene.frames("web") == before[0] + 2
    assert scene.frames("default") >= before[1] + 2
    ends = [each for each in scene.shown().tables["connections"].rows if str(each["to"]).endswith(f":{WEB}")]
    assert {each["state"] for each in ends} == {"time_wait"} and len(ends) == 2


ASKS = """
import errno, socket, sys
to, port, kind = sys.argv[1], int(sys.argv[2]), getattr(socket, sys.argv[3])
client = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, kind)
client.settimeout(60)
try:
    client.connect((to, port))
    client.send(b"anybody there?")
    client.recv(1)
except OSError as error:
    print(errno.errorcode.get(error.errno, error))
"""


def test_who_is_rejected_is_told(scene: Scene) -> None:
    told = [
        f"name: told-{protocol}, action: reject, port: port0, protocol: {protocol}, destination_port: {WEB + 2}"
        for protocol in ("tcp", "udp")
    ]
    scene.command("apply", scene.rules(*ALLOWED, *told))

    def asks(version: int, kind: str) -> str:
        to = scene.right.addresses[version]
        return scene.left.run("python3", "-c", ASKS, to, str(WEB + 2), kind).strip()

    for version, prohibited in ((4, "EHOSTUNREACH"), (6, "EACCES")):
        assert asks(version, "SOCK_STREAM") == "ECONNREFUSED"
        assert asks(version, "SOCK_DGRAM") == prohibited
    said = scene.left.run("curl", "-sS", f"http://{scene.right.addresses[4]}:{WEB + 2}/", status=7)
    assert "Connection refused" in said or "Couldn't connect" in said or "Could not connect" in said, said
    assert scene.frames("told-tcp") == 3 and scene.frames("told-udp") == 2
    counters = scene.filtered()[0]
    assert counters["rejected"] == 5 and counters["unanswered"] == 0
    scene.command("rollback")


def test_tcp_and_udp_at_full_speed(scene: Scene) -> None:
    with scene.right.serves(PERF, "iperf3", "--server"):
        for version in (4, 6):
            to = scene.right.addresses[version]
            for options in ((), ("--reverse",), ("--udp", "--bitrate", "20M")):
                done = iperf(scene.left.run, to, SECONDS, *options)["sum_received" if "--udp" not in options else "sum"]
                assert done["bytes"] > 1e6
    assert all(
        port[name] == 0 for port in scene.filtered() for name in ("drop_checksum", "drop_transport", "drop_length")
    )


def test_connections_go_on_while_rules_are_replaced(scene: Scene) -> None:
    before, begun = scene.command.process("fw"), scene.frames("perf")
    with scene.right.serves(PERF, "iperf3", "--server"), ThreadPoolExecutor() as beside:
        to = scene.right.addresses[4]
        running = beside.submit(iperf, scene.left.run, to, 6)
        wait_until(lambda: scene.frames("perf") >= begun + 2)  # the control connection, and the one that carries data
        drops = scene.dropped(0), scene.dropped(1)
        said = scene.command("apply", scene.rules(*PING)).stdout
        assert re.search("rules: 5 → 2", said), said
        scene.left.run("curl", "-sS", "--max-time", "1", f"http://{to}:{PERF}/", status=28)
        scene.command("apply", scene.rules(*PING, "name: more, action: deny, protocol: udp"))
        done = running.result()
    assert done["sum_received"]["bytes"] > 1e6
    assert scene.dropped(0) > drops[0]  # the connection that was refused
    assert scene.dropped(1) == drops[1]
    assert scene.command.process("fw") == before
    scene.command("rollback")
    assert scene.shown().tables["rules"].total == 1 + len(PING)


def test_rules_are_there_again_after_a_crash(scene: Scene) -> None:
    process = scene.command.process("fw")
    assert process is not None
    os.kill(process["pid"], 9)
    wait_until(lambda: scene.command.process("fw@2"))
    wait_until(partial(scene.left.reaches, scene.right.addresses[4]))
    assert not scene.right.reaches(scene.left.addresses[4], "-W", "1")


def test_connections_go_on_through_an_instance_that_is_replaced(scene: Scene) -> None:
    """By `apply` with other settings, more queues among them, and by a restart: one connection is idle meanwhile, one
    at full speed."""
    talk = f"name: talk, action: allow, port: port0, protocol: tcp, destination_port: {TALK}"
    scene.command("apply", scene.rules(*ALLOWED, talk))
    to = scene.right.addresses[4]
    with (
        scene.right.serves(TALK, "python3", "-c", ECHO, str(TALK)),
        scene.right.serves(PERF, "iperf3", "--server"),
        conversation(scene.left.namespace, to, TALK) as idle,
        ThreadPoolExecutor() as beside,
    ):
        assert idle.says("before") == "before"
        begun, instance = scene.frames("perf"), _instance(scene)
        running = beside.submit(iperf, scene.left.run, to, 8)
        wait_until(lambda: scene.frames("perf") >= begun + 2)
        said = scene.command("apply", scene.rules(*ALLOWED, talk, connections=1000, queues=3)).stdout
        assert re.search("fw: [1-9][0-9]* connections handed over$", said, re.M), said
        assert _instance(scene) == instance + 1
        assert _handed_over(scene)["taken"] >= 3
        assert idle.says("after") == "after"
        scene.command("function", "restart", "fw")
        assert _instance(scene) == instance + 2
        done = running.result()
        assert idle.says("at last") == "at last"
    assert done["sum_received"]["bytes"] > 1e6
    assert [scene.dropped(port, "drop_state") for port in range(2)] == [0, 0]
    handed = _handed_over(scene)
    assert handed["taken"] >= 3 and handed["unfit"] == handed["malformed"] == handed["no_room"] == 0
    assert re.search("handed_over: taken +[1-9]", scene.command("function", "show", "fw").stdout)


def _instance(scene: Scene) -> int:
    return peek(scene.command.state).instances.get("fw", 1)


def _handed_over(scene: Scene) -> dict[str, int]:
    handed = scene.shown().counters["handed_over"]
    assert isinstance(handed, dict)
    return handed
