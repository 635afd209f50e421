"""A router between two real TCP/IP stacks: what ping, traceroute, tracepath and iperf3 say of it, in IPv4 and IPv6, and
that its routes and neighbours are those of the kernel in its own network namespace, as they change.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from running_node import Command, needs_a_node, open_folder, wait_until

from tailrace.functions.names import outer_name

pytestmark = [
    *needs_a_node,
    pytest.mark.unsanitized,  # the tables alone take most of its memory
    pytest.mark.requires_program("ip", "ping", "iperf3", "traceroute", "tracepath", "mtr"),
]
SECONDS = 2


def run(*arguments: str, timeout: float = 60, status: int | None = 0) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)
    assert status is None or done.returncode == status, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@dataclass
class Host:
    """A network namespace with one interface, eth0, and a default route by the router."""

    namespace: str
    network: int

    @property
    def interface(self) -> str:
        """The end in the root namespace, which is the device port."""
        return self.namespace

    @property
    def addresses(self) -> dict[int, str]:
        return {4: f"198.18.{self.network}.2", 6: f"2001:db8:{self.network}::2"}

    @property
    def routers(self) -> dict[int, str]:
        return {4: f"198.18.{self.network}.1", 6: f"2001:db8:{self.network}::1"}

    def run(self, *arguments: str, timeout: float = 60, status: int | None = 0) -> str:
        return run("ip", "netns", "exec", self.namespace, *arguments, timeout=timeout, status=status)

    def make(self) -> None:
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", self.interface, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        self.run("ip", "link", "set", "lo", "up")
        for version, length in ((4, 24), (6, 64)):
            self.run(
                "ip", "address", "add", f"{self.addresses[version]}/{length}", "dev", "eth0", *["nodad"][: version // 6]
            )
        self.run("ip", "link", "set", "eth0", "up")
        run("ip", "link", "set", self.interface, "up")
        for version in (4, 6):
            self.run("ip", f"-{version}", "route", "add", "default", "via", self.routers[version])

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.interface], check=False, capture_output=True)

    def ping(self, to: str, *options: str, status: int | None = 0) -> str:
        """What ping says that sends one packet."""
        return self.run("ping", "-n", "-W", "2", "-c", "1", *options, to, status=status)

    def says(self, to: str, words: str, *options: str) -> bool:
        """Whether ping says that."""
        return words in self.ping(to, *options, status=None)

    def reaches(self, to: str, *options: str) -> bool:
        """Whether it is answered from there."""
        return self.says(to, "1 received", *options)

    def introduces_itself(self, to: str) -> bool:
        """Asks for that address anew, by which its own is heard of, and says whether it is answered from there.

        A kernel ignores a new address of a neighbour that it has heard from within the last second (locktime).
        """
        self.run("ip", "neighbour", "flush", "dev", "eth0")
        return self.reaches(to)

    def ping_all(self, to: str, count: int = 10) -> str:
        """What ping says whose first packets are all answered. It waits for the last answers only with a deadline."""
        said = self.run("ping", "-n", "-i", "0.01", "-w", "30", "-c", str(count), to)
        assert sorted(map(int, re.findall("icmp_seq=([0-9]+) ttl", said))) == list(range(1, count + 1)), said
        return said


@dataclass
class Scene:
    left: Host
    right: Host
    command: Command
    namespace: str

    def within(self, *arguments: str) -> str:
        """Run in the router's own network namespace."""
        return run("ip", "netns", "exec", self.namespace, *arguments)

    def by_kernel(self) -> int:
        """Bytes that the router has handed to its namespace's kernel."""
        links = json.loads(self.within("ip", "-j", "-s", "link"))
        return sum(int(each["stats64"]["rx"]["bytes"]) for each in links if each["ifname"].startswith("port"))


def spec_of(left: Host, right: Host, routes: str) -> str:
    ports = "".join(
        f"      port{number}: [{host.routers[4]}/24, '{host.routers[6]}/64']\n"
        for number, host in enumerate((left, right))
    )
    return (
        f"functions:\n  edge:\n    kind: router\n    router:\n{ports}      routes: {routes}\n"
        f"chains: {{wan: [{{if: {left.interface}}}, edge, {{if: {right.interface}}}]}}\n"
    )


ROUTES = "{198.51.100.0/24: 198.18.79.2, '2001:db8:100::/48': '2001:db8:79::2'}"


@pytest.fixture(scope="module")
def scene(tailrace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    mark = os.getpid() % 100_000
    hosts = (Host(f"trl{mark}", 78), Host(f"trr{mark}", 79))
    with open_folder() as folder:
        command = Command(tailrace, tmp_path_factory.mktemp("router"), folder / "state")
        namespace = outer_name(command.state, "edge")
        try:
            for host in hosts:
                host.make()
            command("up", command.spec(spec_of(*hosts, ROUTES)))
            for to in hosts[1].addresses.values():  # addresses are tried first (RFC 4862, 5.4)
                wait_until(partial(hosts[0].reaches, to))
            yield Scene(*hosts, command, namespace)
        finally:
            command("down")
            for host in hosts:
                host.remove()
        assert not Path("/run/netns", namespace).exists()
        assert not command.leftovers()


def test_ping_loses_nothing_and_sees_one_hop(scene: Scene) -> None:
    for version in (4, 6):
        said = scene.left.ping_all(scene.right.addresses[version], 100)
        assert "duplicates" not in said and "errors" not in said
        assert said.count("ttl=63") == 100
    for version in (4, 6):
        scene.left.ping_all(scene.left.routers[version])  # the router itself
        scene.right.ping_all(scene.left.routers[version])


def test_what_ends_on_the_way_is_reported(scene: Scene) -> None:
    left, right = scene.left, scene.right

    def reported(version: int, to: str, words: str, *options: str) -> None:
        """By the router. Linux limits how many errors it sends (RFC 1812, 4.3.2.8), so some pings hear of nothing."""
        told = rf"From {left.routers[version]} .*{words}"
        wait_until(lambda: re.search(told, left.ping(to, "-W", "5", *options, status=1)), 40)

    reported(4, right.addresses[4], "Time to live exceeded", "-t", "1")
    reported(6, right.addresses[6], "Time exceeded: Hop limit", "-t", "1")
    reported(4, "203.0.113.1", "Destination Net Unreachable")
    reported(6, "2001:db8:ffff::1", "Destination unreachable: No route")
    reported(4, f"198.18.{right.network}.99", "Destination Host Unreachable")  # nobody answers for it
    reported(6, f"2001:db8:{right.network}::99", "Destination unreachable: Address unreachable")


def test_paths_are_traced(scene: Scene) -> None:
    left, right = scene.left, scene.right
    for version in (4, 6):
        to, router = right.addresses[version], left.routers[version]
        hops = re.findall(r"^ *(\d+)  (\S+) ", left.run("traceroute", f"-{version}", "-n", "-q", "1", to), re.M)
        assert hops == [("1", router), ("2", to)]
        report = json.loads(left.run("mtr", f"-{version}", "-n", "--json", "-c", "3", "-i", "0.2", to))["report"]
        assert [(each["host"], each["Loss%"]) for each in report["hubs"]] == [(router, 0), (to, 0)]


def test_a_path_has_the_mtu_of_its_narrowest_link(scene: Scene) -> None:
    left, right = scene.left, scene.right
    assert left.reaches(right.addresses[4], "-M", "do", "-s", "1472")
    scene.within("ip", "link", "set", "port1", "mtu", "1400")
    try:
        told = rf"From {left.routers[4]} .*mtu ?= ?1400"
        wait_until(lambda: re.search(told, left.ping(right.addresses[4], "-M", "do", "-s", "1373", status=1)))
        for version in (4, 6):
            assert re.search(r"pmtu 1400$", left.run("tracepath", f"-{version}", "-n", right.addresses[version]), re.M)
        assert left.reaches(right.addresses[4], "-M", "dont", "-s", "3000")  # in fragments
        assert left.reaches(right.addresses[6], "-s", "3000")
    finally:
        scene.within("ip", "link", "set", "port1", "mtu", "1500")
        for host in (left, right):
            host.run("ip", "route", "flush", "cache")
            host.run("ip", "-6", "route", "flush", "cache")


@pytest.fixture(name="_server")
def server(scene: Scene) -> Iterator[None]:
    process = subprocess.Popen(
        ["ip", "netns", "exec", scene.right.namespace, "iperf3", "--server"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: ":5201" in scene.right.run("ss", "-ltn"))
    yield
    process.terminate()
    process.wait(10)


def test_tcp_and_udp_take_the_fast_path(scene: Scene, _server: None) -> None:
    before, moved = scene.by_kernel(), 0
    for version in (4, 6):
        to = scene.right.addresses[version]
        for options in ((), ("--reverse",), ("--udp", "--bitrate", "10M")):
            said = json.loads(scene.left.run("iperf3", "--client", to, "--time", str(SECONDS), "--json", *options))
            assert "error" not in said
            done = said["end"]["sum_received" if "--udp" not in options else "sum"]
            assert done["bytes"] > 1e6
            moved += done["bytes"]
    # What a neighbour's entry takes that is stale, and the first frames; what the kernel moves is a small part.
    assert scene.by_kernel() - before < moved / 100


def test_routes_change_while_frames_move(scene: Scene) -> None:
    left, right = scene.left, scene.right
    far = {4: "198.51.100.9", 6: "2001:db8:100::9"}
    second = {4: "198.18.79.3", 6: "2001:db8:79::3"}
    for version, length, there in ((4, 24, 32), (6, 64, 128)):
        right.run("ip", "address", "add", f"{second[version]}/{length}", "dev", "eth0", *["nodad"][: version // 6])
        right.run("ip", "address", "add", f"{far[version]}/{there}", "dev", "lo")
        prefix = "198.51.100.0/24" if version == 4 else "2001:db8:100::/48"
        with ThreadPoolExecutor() as beside:
            pinging = beside.submit(left.ping_all, far[version], 200)
            for hop in (second, right.addresses) * 20:
                scene.within("ip", f"-{version}", "route", "replace", prefix, "via", hop[version], "dev", "port1")
            pinging.result()
        # Between the prefix and the host: a longer one takes over, and gives back.
        scene.within("ip", f"-{version}", "route", "add", "blackhole", f"{far[version]}/{there}")
        wait_until(partial(left.says, far[version], "0 received"))
        scene.within("ip", f"-{version}", "route", "delete", f"{far[version]}/{there}")
        wait_until(partial(left.reaches, far[version]))
        scene.within("ip", f"-{version}", "route", "delete", prefix)
        wait_until(partial(left.says, far[version], "unreachable" if version == 6 else "Unreachable"))


def test_its_tables_and_counters_are_shown(scene: Scene) -> None:
    left, right = scene.left, scene.right
    left.ping_all(right.addresses[4])
    shown = json.loads(scene.command("function", "show", "edge", "--json", "--most", "1000").stdout)
    assert {"prefix": "198.18.79.0/24", "to": ["port1"]} in shown["tables"]["ipv4_routes"]["rows"]
    (neighbour,) = [each for each in shown["tables"]["neighbours"]["rows"] if each["address"] == right.addresses[4]]
    assert neighbour["mac"] == right.run("cat", "/sys/class/net/eth0/address").strip()
    assert neighbour["port"] == 1 and neighbour["state"] in ("usable", "stale")
    assert shown["counters"]["routed"][0]["forwarded"] > 0
    said = scene.command("function", "show", "edge", "--most", "1").stdout
    assert re.search(r"^forwarded +\d+ +\d+$", said, re.M)
    assert re.search(r"^ipv4 routes: 1 of \d+$", said, re.M)


def test_a_neighbour_that_moves_is_followed(scene: Scene) -> None:
    left, right = scene.left, scene.right
    old = right.run("cat", "/sys/class/net/eth0/address").strip()
    try:
        right.run("ip", "link", "set", "eth0", "address", "02:00:00:00:79:99")
        for version in (4, 6):
            wait_until(partial(right.introduces_itself, right.routers[version]), 60)
            wait_until(partial(left.reaches, right.addresses[version]))
        assert "02:00:00:00:79:99" in scene.within("ip", "neighbour", "show", "dev", "port1")
    finally:
        right.run("ip", "link", "set", "eth0", "address", old)
        for router in right.routers.values():
            wait_until(partial(right.introduces_itself, router), 60)


def test_what_was_set_in_its_namespace_outlives_the_function(scene: Scene) -> None:
    left, right = scene.left, scene.right
    scene.within("ip", "route", "replace", "192.0.2.0/24", "via", right.addresses[4], "dev", "port1")
    right.run("ip", "address", "add", "192.0.2.9/32", "dev", "lo")
    left.ping_all("192.0.2.9")
    scene.command("function", "restart", "edge")
    left.ping_all("192.0.2.9")
    process = scene.command.process("edge@2")
    assert process is not None
    os.kill(process["pid"], 9)
    wait_until(lambda: scene.command.process("edge@3"), 30)
    wait_until(partial(left.reaches, "192.0.2.9"))
    # What the spec says no more is gone, and nothing else.
    spec = scene.command.spec(spec_of(left, right, "{203.0.113.0/24: 198.18.79.2}"))
    scene.command("apply", spec)
    routes = scene.within("ip", "route")
    assert "203.0.113.0/24 " in routes and "192.0.2.0/24 " in routes and "198.51.100.0/24" not in routes
    left.ping_all("192.0.2.9")


def test_a_namespace_goes_with_its_function(scene: Scene) -> None:
    chain = f"[{{if: {scene.left.interface}}}, first, {{if: {scene.right.interface}}}]"
    scene.command("apply", scene.command.spec(f"functions: {{first: skeleton}}\nchains: {{wan: {chain}}}\n"))
    assert not Path("/run/netns", scene.namespace).exists()
