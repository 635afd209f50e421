"""A firewall, a NAT and a router in a chain (`examples/edge.yaml`) between two real TCP/IP stacks: what ping,
traceroute, iperf3, curl and sockets say of it, and which address the outside host sees."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from conversation import ECHO as REPEATER
from conversation import conversation
from iperf import iperf
from routed_hosts import Host, Scene, joined
from running_node import needs_a_node, wait_until

pytestmark = [
    *needs_a_node,
    pytest.mark.unsanitized,  # the router's tables alone take most of its memory
    pytest.mark.requires_program("ip", "ping", "iperf3", "curl", "traceroute"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "edge.yaml"
POOL = ipaddress.ip_network("198.51.100.0/28")
FORWARDED = "http://198.51.100.1/"
SECONDS = 2
SECOND = "10.10.0.3"
ECHO, PERF, WEB = 7, 5201, 8080
#: Answers each with the address that it sees.
SERVER = f"""
import socket, threading
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("", {ECHO}))
def answer():
    while True:
        _, peer = datagrams.recvfrom(2048)
        datagrams.sendto(" ".join(map(str, peer)).encode(), peer)
threading.Thread(target=answer).start()
with socket.create_server(("", {ECHO})) as server:
    while True:
        connection, peer = server.accept()
        connection.sendall(" ".join(map(str, peer)).encode())
        connection.close()
"""
CLIENT = """
import socket, sys
client = socket.socket(socket.AF_INET, getattr(socket, sys.argv[1]))
client.settimeout(60)
client.bind(("", int(sys.argv[3])))
client.connect((sys.argv[2], 7))
client.send(b"who")
print(client.recv(100).decode())
"""


class Inside(Host):
    """The host on the left of the example."""

    @property
    def addresses(self) -> dict[int, str]:
        return {4: "10.10.0.2", 6: "2001:db8:80::2"}

    @property
    def routers(self) -> dict[int, str]:
        return {4: "10.10.0.1", 6: "2001:db8:80::1"}


@pytest.fixture(scope="module")
def scene(tailrace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    mark = os.getpid() % 100_000
    left, right = Inside(f"tnl{mark}", 80), Host(f"tnr{mark}", 81)
    spec = EXAMPLE.read_text().replace("tr-left", left.interface).replace("tr-right", right.interface)
    with joined(tailrace, tmp_path_factory.mktemp("nat"), (left, right), spec) as found:
        yield found


@contextmanager
def serving(host: Host, port: int, *program: str) -> Iterator[None]:
    process = subprocess.Popen(
        ["ip", "netns", "exec", host.namespace, *program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: f":{port} " in host.run("ss", "-ltn"))
        yield
    finally:
        process.kill()
        process.wait(60)


def seen(scene: Scene, kind: str, port: int) -> tuple[str, int]:
    """The address and port that the outside host sees of a socket that is bound to a port."""
    said = scene.left.run("python3", "-c", CLIENT, kind, scene.right.addresses[4], str(port)).split()
    return said[0], int(said[1])


def shown(scene: Scene) -> dict[str, dict[str, dict[str, list[dict[str, object]]]]]:
    found: dict[str, dict[str, dict[str, list[dict[str, object]]]]]
    found = json.loads(scene.command("function", "show", "gate", "--json", "--most", "1000").stdout)
    return found


def test_the_outside_sees_an_address_of_the_pool(scene: Scene) -> None:
    with serving(scene.right, ECHO, "python3", "-c", SERVER):
        found = {
            (kind, port): seen(scene, kind, port) for kind in ("SOCK_STREAM", "SOCK_DGRAM") for port in (4000, 4001)
        }
    (address,) = {address for address, _ in found.values()}
    assert ipaddress.ip_address(address) in POOL
    rows = shown(scene)["tables"]["mappings"]["rows"]
    names = {"SOCK_STREAM": "tcp", "SOCK_DGRAM": "udp"}
    for (kind, inside), (_, outside) in found.items():
        ends = {"inside": f"10.10.0.2:{inside}", "outside": f"{address}:{outside}", "protocol": names[kind]}
        assert any(ends.items() <= row.items() for row in rows), (ends, rows)
        assert kind == "SOCK_STREAM" or inside % 2 == outside % 2
    (block,) = shown(scene)["tables"]["blocks"]["rows"]
    assert block["host"] == "10.10.0.2" and block["outside"] == address
    (event,) = shown(scene)["tables"]["block_events"]["rows"]
    assert event["event"] == "assigned" and event["first"] == block["first"]


def test_ping_and_its_fragments_pass(scene: Scene) -> None:
    for version in (4, 6):
        scene.left.ping_all(scene.right.addresses[version], 50)
        assert scene.left.reaches(scene.right.addresses[version], "-s", "3000")
    assert not scene.right.reaches(scene.left.addresses[4], "-W", "1")
    assert not scene.right.reaches(str(POOL[5]), "-W", "1")
    assert re.search(r"^drop_unmapped +\d+ +[1-9]", scene.command("function", "show", "gate").stdout, re.M)


def test_errors_come_back_to_who_caused_them(scene: Scene) -> None:
    left, to, router = scene.left, scene.right.addresses[4], scene.left.routers[4]
    hops = re.findall(r"^ *(\d+)  (\S+) ", left.run("traceroute", "-4", "-n", "-q", "1", to), re.M)
    assert hops == [("1", router), ("2", to)]
    scene.within("ip", "link", "set", "port1", "mtu", "1400")
    try:
        told = rf"From {router} .*mtu ?= ?1400"
        wait_until(lambda: re.search(told, left.ping(to, "-M", "do", "-s", "1373", status=1)))
    finally:
        scene.within("ip", "link", "set", "port1", "mtu", "1500")
        left.run("ip", "route", "flush", "cache")


def test_tcp_and_udp_at_full_speed(scene: Scene) -> None:
    with serving(scene.right, PERF, "iperf3", "--server"):
        for options in ((), ("--reverse",), ("--udp", "--bitrate", "10M")):
            to = scene.right.addresses[4]
            end = iperf(scene.left.run, to, SECONDS, *options)
            assert end["sum_received" if "--udp" not in options else "sum"]["bytes"] > 1e6


def test_a_forward_leads_inside_from_both_sides(scene: Scene) -> None:
    with serving(scene.left, WEB, "python3", "-m", "http.server", str(WEB)):
        for host in (scene.right, scene.left):  # from inside it is a hairpin
            wait_until(partial(answers, host), 60)
    counters = json.loads(scene.command("function", "show", "gate", "--json").stdout)["counters"]
    assert counters["translated"][0]["hairpinned"] > 0


def answers(host: Host) -> bool:
    return "200 OK" in host.run("curl", "-sS", "-I", "--max-time", "20", FORWARDED, status=None)


def test_connections_keep_their_addresses_when_the_instance_is_replaced(scene: Scene) -> None:
    """By one with other queues, too. The outside host would reset a connection that comes from another port. The logs
    of all instances say who had which ports when."""
    scene.left.run("ip", "address", "add", f"{SECOND}/24", "dev", "eth0")
    scene.left.run("ping", "-c", "1", "-w", "60", "-I", SECOND, scene.right.addresses[4])
    with (
        serving(scene.right, WEB, "python3", "-c", REPEATER, str(WEB)),
        conversation(scene.left.namespace, scene.right.addresses[4], WEB) as idle,
    ):
        assert idle.says("before") == "before"
        ends = outside_ends(scene)
        (end,) = ends
        begun = wait_until(lambda: holders(scene, end) == {("10.10.0.2", "gate")} and datetime.now(UTC))
        wait_until(lambda: {host for host, _ in holders(scene)} == {"10.10.0.2", SECOND})
        spec = scene.command.folder / "spec.yaml"
        text = spec.read_text()
        assert "pool: 198.51.100.0/28\n" in text and "kind: nat\n" in text
        other = text.replace("pool:", "connections: 5000\n      pool:")
        other = other.replace("kind: nat\n", "kind: nat\n    cpus: {most: 3}\n")
        said = scene.command("apply", scene.command.spec(other, "other.yaml")).stdout
        assert re.search("gate: [1-9][0-9]* connections handed over$", said, re.M), said
        assert outside_ends(scene) == ends
        assert idle.says("after") == "after"
        scene.command("function", "restart", "gate")
        assert idle.says("at last") == "at last"
        assert outside_ends(scene) == ends
        wait_until(lambda: ("10.10.0.2", "gate@3") in holders(scene, end))
        then = holders(scene, end, "--at", f"{begun:%Y-%m-%dT%H:%M:%S}")
        assert ("10.10.0.2", "gate") in then and {host for host, _ in then} == {"10.10.0.2"}
    counters = json.loads(scene.command("function", "show", "gate", "--json").stdout)["counters"]
    assert counters["handed_over"]["taken"] >= 1
    assert counters["handed_over"]["unfit"] == counters["handed_over"]["malformed"] == 0
    assert [port["drop_state"] for port in counters["translated"]] == [0, 0]


def holders(scene: Scene, *arguments: str) -> set[tuple[str, str]]:
    """The inside hosts that had an address and port outside, and the instances whose logs say so."""
    found = json.loads(scene.command("function", "blocks", "gate", *arguments, "--json").stdout)
    assert found["left_out"] == []
    return {(each["host"], each["instance"]) for each in found["blocks"]}


def outside_ends(scene: Scene) -> set[str]:
    """What the outside host sees of the conversation."""
    return set(re.findall(r"198\.51\.100\.\d+:\d+", scene.right.run("ss", "-tn", "state", "established")))


@pytest.mark.requires_program("podman")
def test_it_lives_in_a_container_behind_a_firewall_in_another(scene: Scene) -> None:
    text = (scene.command.folder / "spec.yaml").read_text()
    before = {instance for _, instance in holders(scene)}
    text = re.sub(r"kind: (firewall|nat)\n", r"kind: \1\n    runs: container\n", text)
    scene.command("apply", scene.command.spec(text, "contained.yaml"))
    functions = json.loads(scene.command("status", "--json").stdout)["functions"]
    assert [each["runs"] for each in functions] == ["container", "container", "process"]
    for version in (4, 6):
        scene.left.ping_all(scene.right.addresses[version])
    assert not scene.right.reaches(scene.left.addresses[4], "-W", "1")
    with serving(scene.left, WEB, "python3", "-m", "http.server", str(WEB)):
        wait_until(partial(answers, scene.right), 60)
    wait_until(lambda: {instance for _, instance in holders(scene)} > before)
    assert re.search(r"^web +allow +[1-9]", scene.command("function", "show", "fw").stdout, re.M)
