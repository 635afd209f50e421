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
from functools import partial
from pathlib import Path

import pytest
from iperf import iperf
from routed_hosts import Host, Scene, routed, spec_of
from running_node import needs_a_node, wait_until

pytestmark = [
    *needs_a_node,
    pytest.mark.unsanitized,  # the tables alone take most of its memory
    pytest.mark.requires_program("ip", "ping", "iperf3", "traceroute", "tracepath", "mtr"),
]
SECONDS = 1


ROUTES = "{198.51.100.0/24: 198.18.79.2, '2001:db8:100::/48': '2001:db8:79::2'}"


@pytest.fixture(scope="module")
def scene(tailrace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    mark = os.getpid() % 100_000
    hosts = (Host(f"trl{mark}", 78), Host(f"trr{mark}", 79))
    with routed(tailrace, tmp_path_factory.mktemp("router"), hosts, ROUTES) as found:
        yield found


def test_ping_loses_nothing_and_sees_one_hop(scene: Scene) -> None:
    for version in (4, 6):
        said = scene.left.ping_all(scene.right.addresses[version], 100)
        assert "duplicates" not in said and "errors" not in said
        assert said.count("ttl=63") >= 100
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


def traced(scene: Scene, version: int) -> None:
    """Sixteen probes are under way at once, each a flow of its own."""
    to = scene.right.addresses[version]
    said = scene.left.run("traceroute", f"-{version}", "-n", "-q", "1", to)
    hops = re.findall(r"^ *(\d+)  (\S+)", said, re.M)
    assert hops == [("1", scene.left.routers[version]), ("2", to)], said


def test_paths_are_traced(scene: Scene) -> None:
    left, right = scene.left, scene.right
    for version in (4, 6):
        traced(scene, version)
        to, router = right.addresses[version], left.routers[version]
        # After the last probe it waits for so many seconds, whatever has come.
        words = ("-n", "--json", "-c", "3", "-i", "0.2", "--gracetime", "2")
        report = json.loads(left.run("mtr", f"-{version}", *words, to))["report"]
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
    process.wait(60)


def test_tcp_and_udp_take_the_fast_path(scene: Scene, _server: None) -> None:
    before, moved = scene.by_kernel(), 0
    for version in (4, 6):
        to = scene.right.addresses[version]
        for options in ((), ("--reverse",), ("--udp", "--bitrate", "20M")):
            done = iperf(scene.left.run, to, SECONDS, *options)["sum_received" if "--udp" not in options else "sum"]
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


def test_next_hops_that_are_objects_are_followed(scene: Scene) -> None:
    left, right, prefix, far = scene.left, scene.right, "203.0.113.0/24", "203.0.113.9"

    def leads(*to: str) -> bool:
        shown = json.loads(scene.command("function", "show", "edge", "--json", "--most", "1000").stdout)
        return [each["to"] for each in shown["tables"]["ipv4_routes"]["rows"] if each["prefix"] == prefix] == [
            [f"{hop} port1" for hop in to]
        ] * bool(to)

    right.run("ip", "address", "add", f"{far}/32", "dev", "lo")
    nobody = f"198.18.{right.network}.99"
    for number, hop in ((1, right.addresses[4]), (2, nobody)):
        scene.within("ip", "nexthop", "add", "id", str(number), "via", hop, "dev", "port1")
    scene.within("ip", "nexthop", "add", "id", "3", "group", "1/2")
    scene.within("ip", "route", "add", prefix, "nhid", "3")
    wait_until(partial(leads, right.addresses[4], nobody))
    scene.within("ip", "nexthop", "delete", "id", "2")  # of which no route says anything
    wait_until(partial(leads, right.addresses[4]))
    left.ping_all(far)
    scene.within("ip", "nexthop", "delete", "id", "1")
    wait_until(leads)
    wait_until(partial(left.says, far, "Unreachable"))
    right.run("ip", "address", "delete", f"{far}/32", "dev", "lo")


def test_thousands_of_routes_are_followed_without_a_lost_packet(scene: Scene, tmp_path: Path) -> None:
    left, right = scene.left, scene.right

    def known() -> int:
        counters = json.loads(scene.command("function", "show", "edge", "--json", "--most", "0").stdout)["counters"]
        return int(counters["routes"]["ipv4"])

    def knows(count: int) -> bool:
        return known() == count

    before, batch = known(), tmp_path / "routes"
    for change, via, after in (
        ("add", right.addresses[4], 10_000),
        ("replace", left.addresses[4], 10_000),
        ("delete", left.addresses[4], 0),
    ):
        batch.write_text("".join(f"route {change} 10.{i // 256}.{i % 256}.0/24 via {via}\n" for i in range(10_000)))
        with ThreadPoolExecutor() as beside:
            pinging = beside.submit(left.ping_all, right.addresses[4], 100)
            scene.within("ip", "-batch", str(batch))
            pinging.result()
        wait_until(partial(knows, before + after))


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
    assert re.search(r"^forwarded +\d+ +\d+ *$", said, re.M)
    assert re.search(r"^ipv4 routes: 1 of \d+$", said, re.M)


def test_a_stale_neighbour_is_asked_again(scene: Scene) -> None:
    left, right = scene.left, scene.right

    def asked(version: int) -> bool:
        return "REACHABLE" in scene.within("ip", "neighbour", "show", right.addresses[version], "dev", "port1")

    unreached = right.run("nstat", "-asz", "UdpNoPorts", "Udp6NoPorts")
    for version, name in ((4, "ipv4"), (6, "ipv6")):
        scene.within("sysctl", "-qw", f"net.{name}.neigh.port1.delay_first_probe_time=1")
        scene.within("ip", "neighbour", "change", right.addresses[version], "dev", "port1", "nud", "stale")
        left.ping_all(right.addresses[version])
        wait_until(partial(asked, version))
    # What makes the kernel ask stays in the router.
    assert right.run("nstat", "-asz", "UdpNoPorts", "Udp6NoPorts") == unreached


def test_a_neighbour_that_moves_is_followed(scene: Scene) -> None:
    left, right = scene.left, scene.right
    old = right.run("cat", "/sys/class/net/eth0/address").strip()
    try:
        for version in (4, 6):
            left.ping_all(right.addresses[version])
            scene.within("ip", "neighbour", "change", right.addresses[version], "dev", "port1", "nud", "reachable")
        right.run("ip", "link", "set", "eth0", "address", "02:00:00:00:79:99")

        def followed(version: int) -> bool:
            return right.introduces_itself(version) and left.reaches(right.addresses[version])

        for version in (4, 6):
            wait_until(partial(followed, version), 60)
        assert "02:00:00:00:79:99" in scene.within("ip", "neighbour", "show", "dev", "port1")
    finally:
        right.run("ip", "link", "set", "eth0", "address", old)
        for version in right.routers:
            wait_until(partial(right.introduces_itself, version), 60)


#: One datagram to each address from a first one on.
SCAN = """
import ipaddress, socket, sys
first, count = ipaddress.ip_address(sys.argv[1]), int(sys.argv[2])
sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for number in range(count):
    sender.sendto(b"?", (str(first + number), 9))
"""


def test_a_scan_leaves_the_host_room_for_neighbours(scene: Scene) -> None:
    left, right = scene.left, scene.right

    def dropped() -> int:
        shown = json.loads(scene.command("function", "show", "edge", "--json", "--most", "0").stdout)
        return int(shown["counters"]["taps"][0]["unasked"])

    before = dropped()
    left.run("python3", "-c", SCAN, f"2001:db8:{right.network}::1:0", "2000")
    wait_until(lambda: dropped() > before)
    looked_for = scene.within("ip", "-6", "neighbour", "show", "nud", "incomplete", "dev", "port1").splitlines()
    assert len(looked_for) <= 2 * 256  # some more after 4 s, if the scan takes as long
    left.ping_all(right.addresses[6])


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
    wait_until(lambda: scene.command.process("edge@3"))
    wait_until(partial(left.reaches, "192.0.2.9"))
    # What the spec says no more is gone, and nothing else.
    spec = scene.command.spec(spec_of(left, right, "{203.0.113.0/24: 198.18.79.2}"))
    scene.command("apply", spec)
    routes = scene.within("ip", "route")
    assert "203.0.113.0/24 " in routes and "192.0.2.0/24 " in routes and "198.51.100.0/24" not in routes
    left.ping_all("192.0.2.9")


def test_addresses_of_one_network_are_changed_one_by_one(scene: Scene) -> None:
    """Linux would take the others with the first one, and with them the routes that lead there."""
    left, right = scene.left, scene.right
    spec, by_hand = spec_of(left, right, "{}"), ("192.0.2.0/26", "via", left.addresses[4])
    first, second, third = left.routers[4], f"198.18.{left.network}.77", f"198.18.{left.network}.78"

    def have(*addresses: str) -> None:
        listed = ", ".join(f"{each}/24" for each in addresses)
        scene.command("apply", scene.command.spec(spec.replace(f"{first}/24", listed)))
        (port,) = json.loads(scene.within("ip", "-j", "-4", "address", "show", "dev", "port0"))
        assert {each["local"] for each in port["addr_info"]} == set(addresses)

    have(first, second)
    scene.within("ip", "route", "replace", *by_hand)
    have(second, third)
    scene.within("ip", "route", "delete", *by_hand)  # which is there
    have(first)
    wait_until(partial(left.reaches, right.addresses[4]))


def test_a_change_that_cannot_be_made_leaves_the_network_as_it_was(scene: Scene) -> None:
    left, right = scene.left, scene.right

    def of_the_spec() -> str:
        return scene.within("ip", "-6", "route", "show", "proto", "116")

    before, taken = of_the_spec(), f"2001:db8:{right.network}::66"
    scene.within("ip", "address", "add", f"{taken}/128", "dev", "lo")  # so the kernel refuses it as a next hop
    try:
        routes = f"{{'2001:db8:100::/48': '{right.addresses[6]}', '2001:db8:101::/48': '{taken}'}}"
        refused = scene.command("apply", scene.command.spec(spec_of(left, right, routes)), status=1)
        assert f"`ip route replace 2001:db8:101::/48 proto 116 nexthop via {taken} dev port1`: " in refused.stderr
        assert of_the_spec() == before
    finally:
        scene.within("ip", "address", "delete", f"{taken}/128", "dev", "lo")
    left.ping_all(right.addresses[6])


def test_a_port_that_is_down_takes_nothing(scene: Scene) -> None:
    left, right = scene.left, scene.right
    left.ping_all(right.addresses[4])

    def dropped() -> int:
        shown = json.loads(scene.command("function", "show", "edge", "--json", "--most", "0").stdout)
        return int(shown["counters"]["routed"][0].get("drop_down", 0))

    def nothing_more_came() -> bool:
        before = came()
        return left.says(right.addresses[4], "0 received") and dropped() > 0 and came() == before

    def came() -> str:
        return right.run("nstat", "-asz", "IcmpInEchos")

    scene.within("ip", "link", "set", "port0", "down")
    wait_until(nothing_more_came)
    scene.within("ip", "link", "set", "port0", "up")
    # As Linux has it, IPv6 addresses and routes went with the port: a new instance is given those of the spec.
    scene.command("function", "restart", "edge")
    for version in (4, 6):
        wait_until(partial(left.reaches, right.addresses[version]))


@pytest.mark.requires_program("podman")
def test_it_lives_in_a_container_and_keeps_its_namespace(scene: Scene) -> None:
    left, right = scene.left, scene.right
    scene.within("ip", "route", "replace", "192.0.2.0/24", "via", right.addresses[4], "dev", "port1")
    scene.command("apply", scene.command.spec(spec_of(left, right, "{}", runs="container")))
    (edge,) = json.loads(scene.command("status", "--json").stdout)["functions"]
    assert edge["runs"] == "container"
    left.ping_all("192.0.2.9")
    for version in (4, 6):
        left.ping_all(right.addresses[version])
    assert "192.0.2.0/24" in scene.command("function", "show", "edge").stdout


def test_a_namespace_goes_with_its_function(scene: Scene) -> None:
    chain = f"[{{if: {scene.left.interface}}}, first, {{if: {scene.right.interface}}}]"
    scene.command("apply", scene.command.spec(f"functions: {{first: skeleton}}\nchains: {{wan: {chain}}}\n"))
    assert not Path("/run/netns", scene.namespace).exists()
