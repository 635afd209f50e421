"""Guests around a switch whose frames it has to look at: which of them a frame reaches, and what was counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from front_end import RECEIVES, SENDS, FrontEnd
from running_switch import RunningSwitch, wait_until
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

BURST = 32
RING = 128


def udp(source_port: int = 1024, port: int = 80, *, source: str = "10.0.0.1", to: str = "10.0.0.2") -> bytes:
    """A frame of a UDP flow over IPv4, with something in it."""
    return frame(IP(src=source, dst=to) / UDP(sport=source_port, dport=port) / Raw(b"x" * 40))


def frame(
    packet: Packet, vlans: Sequence[int] = (), *, source: str = "02:00:00:00:00:0a", to: str = "02:00:00:00:00:0b"
) -> bytes:
    """The packet as a frame, under these VLAN tags, the outermost first; two are QinQ."""
    head: Packet = Ether(src=source, dst=to, **({"type": 0x88A8} if len(vlans) == 2 else {}))
    for vlan in vlans:
        head = head / Dot1Q(vlan=vlan)
    return bytes(head / packet)


def pieces6(port: int, identification: int, *, options: bool = False, source_port: int = 9) -> list[bytes]:
    """The fragments of a UDP datagram over IPv6; with destination options, behind the fragment header, if so asked."""
    transport: Packet = UDP(sport=source_port, dport=port) / Raw(b"p" * 3000)
    if options:
        transport = IPv6ExtHdrDestOpt() / transport
    datagram = IPv6(src="2001:db8::1", dst="2001:db8::2") / IPv6ExtHdrFragment(id=identification) / transport
    pieces = [frame(piece) for piece in fragment6(datagram, 1280)]
    assert len(pieces) == 3
    assert all(Ether(piece)[IPv6ExtHdrFragment].nh == (60 if options else 17) for piece in pieces)
    return pieces


def answer(of: bytes) -> bytes:
    """The frame that comes back: every address and port the other way round."""
    parsed = Ether(of)
    parsed.src, parsed.dst = parsed.dst, parsed.src
    for layer in (IP, IPv6):
        if layer in parsed:
            parsed[layer].src, parsed[layer].dst = parsed[layer].dst, parsed[layer].src
    for layer in (TCP, UDP):
        if layer in parsed:
            parsed[layer].sport, parsed[layer].dport = parsed[layer].dport, parsed[layer].sport
            parsed[layer].chksum = None
    if ICMP in parsed and parsed[ICMP].type == 8:
        parsed[ICMP].type = 0
        parsed[ICMP].chksum = None
    return bytes(parsed)


class Guests:
    """A front end for each port; each offers buffers as they are used up, unless it is told to be slow."""

    def __init__(self, switch: RunningSwitch, names: Iterable[str]) -> None:
        self.switch = switch
        self.guests = {name: FrontEnd(ring_size=RING) for name in names}
        self.slow: set[str] = set()
        switch.patch(
            ports={name: {"kind": "guest", "path": str(switch.folder / f"{name}.sock")} for name in self.guests}
        )
        for name in self.guests:
            self.attach(name)

    def add(self, name: str) -> None:
        """A port that comes later."""
        self.guests[name] = FrontEnd(ring_size=RING)
        self.switch.add_guest(name)
        self.attach(name)

    def attach(self, name: str) -> None:
        self.guests[name].start(self.switch.folder / f"{name}.sock")
        self.switch.wait_state(name, "up")

    def offer(self) -> None:
        """Let every guest that is not slow have buffers for a burst."""
        for name, guest in self.guests.items():
            outstanding = (guest.added[RECEIVES] - guest.seen[RECEIVES]) & 0xFFFF
            if name not in self.slow and outstanding < BURST:
                guest.offer_buffers(BURST - outstanding)

    def _sent(self) -> dict[str, int]:
        counters = self.switch.page.ports()
        return {name: counters[name]["sent_packets"] for name in self.guests}

    def send(self, sender: str, *frames: bytes) -> dict[str, list[bytes]]:
        """What each guest received of the frames, when the switch is done with all of them."""
        arrived: dict[str, list[bytes]] = {name: [] for name in self.guests}
        guest = self.guests[sender]
        for start in range(0, len(frames), BURST):
            self.offer()
            before = self._sent()
            for one in frames[start : start + BURST]:
                guest.send(one)
            guest.kicks(SENDS)  # the worker may sleep
            wait_until(lambda: guest.used_index(SENDS) == guest.added[SENDS], "the switch has taken all frames")
            # What was given has been counted by now, and is shown very soon.
            for name, count in self._sent().items():
                if count > before[name]:
                    arrived[name] += self.guests[name].wait_received(count - before[name])
        return {name: received for name, received in arrived.items() if received}

    def where(self, sender: str, one: bytes) -> str:
        """The only guest that the frame reached, unchanged; "" for none."""
        arrived = self.send(sender, one)
        assert all(frames == [one] for frames in arrived.values()), arrived
        assert len(arrived) <= 1, f"reached {list(arrived)}"
        return next(iter(arrived), "")

    def spread(self, sender: str, frames: Sequence[bytes]) -> list[str]:
        """For each frame the guest that it reached. All frames differ."""
        reached = {one: name for name, received in self.send(sender, *frames).items() for one in received}
        assert len(reached) == len(frames)
        return [reached[one] for one in frames]

    def drops(self, name: str) -> dict[str, int]:
        """The counters of a port that say why frames were dropped, if any were."""
        counters = self.switch.counters(name).items()
        return {reason: count for reason, count in counters if reason.startswith("drop_") and count}

    def end(self) -> None:
        for guest in self.guests.values():
            guest.end()


def replicas(function: str, count: int, **states: str) -> dict[str, Any]:
    """The replicas 1 to `count` of a function, with the ports that they are at; some in another state."""
    return {
        f"{function}{i}": {
            "left": f"{function}{i}.l",
            "right": f"{function}{i}.r",
            "state": states.get(f"{function}{i}", "active"),
        }
        for i in range(1, count + 1)
    }
