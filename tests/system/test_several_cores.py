"""Functions that follow connections, on several threads behind a switch: both directions of each flow meet in one of
them, and every frame is accounted for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from front_end import FrontEnd
from running_switch import RunningSwitch, wait_until
from scapy.layers.inet import ICMP, IP, UDP, fragment
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from tailrace.process.control import Control

THREADS, FLOWS = 3, 60
RING = 256
LEFT, RIGHT = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


@pytest.fixture
def switch(binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--memory", "128", "--idle", "sleep")
    yield running
    assert running.end() == 0


class Between:
    """A function of several threads in a chain, and its neighbours."""

    def __init__(self, switch: RunningSwitch, control: Control, ends: tuple[FrontEnd, FrontEnd]) -> None:
        self.switch, self.control, self.ends = switch, control, ends

    def sends(self, port: int, *packets: Packet) -> None:
        for packet in packets:
            self.ends[port].send(bytes(packet))
        self.ends[port].kicks(1)

    def arrive(self, port: int, count: int) -> list[Packet]:
        """What leaves there next."""
        arrived = [Ether(each) for each in self.ends[port].wait_received(count)]
        self.ends[port].offer_buffers(count)
        assert len(arrived) == count
        return arrived

    def shown(self) -> dict[str, Any]:
        shown = self.control.call("show", most=2 * FLOWS * THREADS)
        assert isinstance(shown, dict)
        return shown

    def decided(self, of: str, port: int) -> int:
        """Frames that came in there, and what becomes of them is known."""
        did = self.shown()["counters"][of][port]
        return sum(count for name, count in did.items() if name == "passed" or name.startswith("drop_"))

    def handed_on(self) -> list[int]:
        return [row["handed_on"] for row in self.shown()["tables"]["queues"]["rows"]]

    def accounted(self, of: str, received: tuple[int, int]) -> None:
        """Each port has received so many frames, and what became of them comes to as many."""

        def all_counted() -> bool:
            """A thread counts what came after it has handed it on, and what it has sent after that is gone."""
            counters = self.shown()["counters"]
            passed = sum(each["passed"] + each.get("hairpinned", 0) for each in counters[of])
            came, went = (sum(each[name] for each in counters["ports"]) for name in ("received", "sent"))
            return bool(came >= sum(received) and went >= passed)

        wait_until(all_counted, "what came and what passed is counted")
        counters = self.shown()["counters"]
        for port in range(2):
            did = counters[of][port]
            drops = sum(count for name, count in did.items() if name.startswith("drop_"))
            forwarded = counters["ports"][port]
            assert forwarded["received"] == received[port] == did["passed"] + did.get("hairpinned", 0) + drops
            assert (
                forwarded["sent"] == did["passed"] + counters[of][not port].get("hairpinned", 0)
                and forwarded["drop_full"] == 0
            )
        sent = sum(each["sent"] for each in counters["ports"])
        assert sent == sum(each["passed"] + each.get("hairpinned", 0) for each in counters[of])
        for port in ("fw.0", "fw.1"):
            drops = {key: value for key, value in self.switch.counters(port).items() if key.startswith("drop_")}
            assert not any(drops.values()), drops


@contextmanager
def function(switch: RunningSwitch, binaries: Path, folder: Path, kind: str, *settings: str) -> Iterator[Between]:
    sockets = [folder / f"fw{port}.sock" for port in range(2)]
    log, cpu = folder / "function.log", str(min(os.sched_getaffinity(0)))
    argv: list[str | Path] = [binaries / "functions/tailrace-vnf", kind, "--mode", "interrupt", "--memory", "128"]
    argv += ["--queues", str(THREADS), "--core", ",".join([cpu] * THREADS), "--control", folder / "fw.control"]
    argv += [f"--port=vhost-server:{each}" for each in sockets] + [f"--set={each}" for each in settings]
    ends = (FrontEnd(ring_size=RING), FrontEnd(ring_size=RING))
    with log.open("w") as said:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=said)
    try:
        for port, path in enumerate(sockets):
            queues = {"queues": THREADS, "spread": True}
            switch.patch(ports={f"fw.{port}": {"kind": "guest", "path": str(path), "mode": "client", **queues}})
        wait_until(lambda: "forwarding" in log.read_text(), "it forwards")
        for name, end in zip("ab", ends, strict=True):
            end.start(switch.add_guest(name))
            switch.wait_state(name, "up")
            end.offer_buffers(RING - 1)
        switch.set_chain("wan", "a", "fw.0", "fw.1", "b")
        with closing(Control(folder / "fw.control")) as control:
            yield Between(switch, control, ends)
        for end in ends:
            end.end()
    finally:
        process.terminate()
        assert process.wait(60) == 0


def there(packet: Packet) -> Packet:
    return Ether(src=LEFT, dst=RIGHT) / packet


def back(packet: Packet) -> Packet:
    return Ether(src=RIGHT, dst=LEFT) / packet


def test_a_firewall_knows_each_flow_both_ways(switch: RunningSwitch, binaries: Path, tmp_path: Path) -> None:
    """Of two families; then answers in fragments, and errors, which have no ports of their own."""
    out = {"name": "out", "action": "allow", "port": 0}
    ports = range(1000, 1000 + FLOWS)
    with function(switch, binaries, tmp_path, "firewall") as between:
        between.control.call("configure", rules=[out])
        for ip, left, right in ((IP, "198.18.0.1", "198.18.0.2"), (IPv6, "2001:db8::1", "2001:db8::2")):
            asks = [there(ip(src=left, dst=right) / UDP(sport=port, dport=53)) for port in ports]
            answers = [back(ip(src=right, dst=left) / UDP(sport=53, dport=port)) for port in ports]
            before = between.decided("filtered", 1)
            between.sends(1, *answers)  # to nobody: all are dropped
            wait_until(lambda end=before + FLOWS: between.decided("filtered", 1) == end, "they are")  # type: ignore[misc]
            between.sends(0, *asks)
            assert {each[UDP].sport for each in between.arrive(1, FLOWS)} == set(ports)
            between.sends(1, *answers)
            assert {each[UDP].dport for each in between.arrive(0, FLOWS)} == set(ports)
        assert between.handed_on() == [0] * THREADS  # the switch has them come in where they belong
        received = [2 * FLOWS, 4 * FLOWS]

        for port in ports:
            answer = IP(src="198.18.0.2", dst="198.18.0.1", id=port) / UDP(sport=53, dport=port) / Raw(bytes(100))
            between.sends(1, *map(back, fragment(answer, fragsize=64)))
        between.arrive(0, 2 * FLOWS)
        for port in ports:
            asked = IP(src="198.18.0.1", dst="198.18.0.2") / UDP(sport=port, dport=53)
            between.sends(1, back(IP(src="198.18.0.3", dst="198.18.0.1") / ICMP(type=3, code=3) / asked))
        assert {each[3].sport for each in between.arrive(0, FLOWS) if each.haslayer(ICMP)} == set(ports)
        received[1] += 3 * FLOWS
        assert sum(between.handed_on()) > 0
        between.accounted("filtered", (received[0], received[1]))
        shown = between.shown()
        known, rules = shown["counters"]["connections"], shown["tables"]["rules"]["rows"]
        assert known["known"] == known["begun"] == len(shown["tables"]["connections"]["rows"]) == 2 * FLOWS
        assert {each["rule"]: each["frames"] for each in rules} == {"default": 2 * FLOWS, "out": 2 * FLOWS}
        assert all(row["received_0"] > 0 for row in shown["tables"]["queues"]["rows"])


@pytest.mark.parametrize(
    ("kind", "settings", "told"),
    [
        ("firewall", (), {"default": "allow"}),
        pytest.param("nat", ("pool=203.0.113.1/32", "inside=198.18.0.0/24"), None, marks=pytest.mark.whole),
    ],
)
def test_connections_are_forgotten_though_no_frame_comes(
    switch: RunningSwitch,
    binaries: Path,
    tmp_path: Path,
    kind: str,
    settings: tuple[str, ...],
    told: dict[str, Any] | None,
) -> None:
    """The threads sleep until something comes, and yet what has aged goes."""
    with function(switch, binaries, tmp_path, kind, "one_way=1", *settings) as between:
        if told is not None:
            between.control.call("configure", **told)
        frame = IP(src="198.18.0.1", dst="198.19.0.2")
        between.sends(0, *[there(frame / UDP(sport=port, dport=53)) for port in range(1000, 1000 + FLOWS)])
        between.arrive(1, FLOWS)

        def known() -> dict[str, int]:
            connections = between.shown()["counters"]["connections"]
            assert isinstance(connections, dict)
            return connections

        wait_until(lambda: known()["known"] == 0, "all are forgotten")
        assert known()["aged"] == known()["begun"] == FLOWS


def test_a_nat_gives_hosts_of_all_threads_its_pool(switch: RunningSwitch, binaries: Path, tmp_path: Path) -> None:
    """Answers come to who asked, and hosts reach each other by the pool, whichever thread has which of them."""
    hosts = [f"10.0.0.{number}" for number in range(1, FLOWS + 1)]
    server, pool = "198.18.0.2", ("pool=203.0.113.1/32", "inside=10.0.0.0/8", "block=512")
    with function(switch, binaries, tmp_path, "nat", *pool) as between:
        between.sends(0, *[there(IP(src=host, dst=server) / UDP(sport=2000, dport=53)) for host in hosts])
        outside = [each[UDP].sport for each in between.arrive(1, FLOWS) if each[IP].src == "203.0.113.1"]
        assert len(set(outside)) == len({port // 512 for port in outside}) == FLOWS  # a block for each
        between.sends(1, *[back(IP(src=server, dst="203.0.113.1") / UDP(sport=53, dport=port)) for port in outside])
        answered = between.arrive(0, FLOWS)
        assert sorted(each[IP].dst for each in answered) == sorted(hosts)
        assert {each[UDP].dport for each in answered} == {2000}
        assert sum(between.handed_on()) > 0

        # From each to the next one, by the pool; the sender is seen as it is outside.
        rows = between.shown()["tables"]["mappings"]["rows"]
        ends = {row["inside"].partition(":")[0]: int(row["outside"].partition(":")[2]) for row in rows}
        for host, other in zip(hosts, hosts[1:] + hosts[:1], strict=True):
            between.sends(0, there(IP(src=host, dst="203.0.113.1") / UDP(sport=2000, dport=ends[other])))
        turned = between.arrive(0, FLOWS)
        assert {(each[IP].dst, each[UDP].sport) for each in turned} == {
            (other, ends[host]) for host, other in zip(hosts, hosts[1:] + hosts[:1], strict=True)
        }
        between.accounted("translated", (2 * FLOWS, FLOWS))
        counters = between.shown()["counters"]
        assert counters["translated"][0]["hairpinned"] == counters["mappings"]["known"] == FLOWS
        assert counters["blocks"]["taken"] == FLOWS and counters["connections"]["known"] == 3 * FLOWS


def test_a_balancer_leads_each_connection_to_one_back_end(
    switch: RunningSwitch, binaries: Path, tmp_path: Path
) -> None:
    """And what that answers comes from the virtual address, whichever threads the two come by."""
    ends = {f"198.18.1.{number}": f"02:00:00:00:01:0{number}" for number in range(1, 4)}
    back_ends = [{"name": ip, "address": ip, "port": 5353} for ip in ends]
    service: dict[str, Any] = {"name": "names", "address": "192.0.2.1", "port": 53, "protocol": "udp"}
    service |= {"health": {"by": "neighbour", "interval": 600_000}, "back_ends": back_ends}  # asked once
    ports = range(1000, 1000 + FLOWS)
    with function(switch, binaries, tmp_path, "balancer") as between:
        between.control.call("configure", source=["198.18.1.9"], services=[service])
        asked: list[Packet] = []

        def all_up() -> bool:
            """Once they have said where they are."""
            for each in map(Ether, between.ends[1].received()):
                between.ends[1].offer_buffers(1)
                asked.append(each)
                arp = ARP(op="is-at", hwsrc=ends[each.pdst], psrc=each.pdst, hwdst=each.src, pdst=each.psrc)
                between.sends(1, Ether(src=ends[each.pdst], dst=each.src) / arp)
            return [row["state"] for row in between.shown()["tables"]["back_ends"]["rows"]] == ["up"] * len(ends)

        wait_until(all_up, "the back ends are up")
        between.sends(0, *[there(IP(src="198.18.0.1", dst="192.0.2.1") / UDP(sport=port, dport=53)) for port in ports])
        chosen = {each[UDP].sport: each[IP].dst for each in between.arrive(1, FLOWS)}
        assert set(chosen) == set(ports) and set(chosen.values()) == set(ends)
        assert sum(between.handed_on()) == 0  # the switch has them come in where they belong
        for port, ip in chosen.items():
            between.sends(1, back(IP(src=ip, dst="198.18.0.1") / UDP(sport=5353, dport=port)))
        answered = between.arrive(0, FLOWS)
        assert {each[UDP].dport for each in answered} == set(ports)
        assert {(each[IP].src, each[UDP].sport) for each in answered} == {("192.0.2.1", 53)}
        assert sum(between.handed_on()) > 0
        between.sends(0, *[there(IP(src="198.18.0.1", dst="192.0.2.1") / UDP(sport=port, dport=53)) for port in ports])
        assert {each[UDP].sport: each[IP].dst for each in between.arrive(1, FLOWS)} == chosen
        shown = between.shown()
        did, known = shown["counters"]["balanced"], shown["counters"]["connections"]
        assert did[0]["passed"] == 2 * FLOWS and did[1]["passed"] == FLOWS
        assert known["known"] == known["begun"] == FLOWS and not any(each["unkept"] for each in did)
        rows = shown["tables"]["back_ends"]["rows"]
        assert sum(row["connections"] for row in rows) == sum(row["begun"] for row in rows) == FLOWS
        assert sum(row["frames"] for row in rows) == 2 * FLOWS
