"""What the firewall makes of TCP, segment by segment, by RFC 9293: scapy makes each one, and after each the test looks
whether it came out at the other side, for which reason if not, and at the state that the function shows.

A line of a story is a segment: who sends it (`>`: who opened, `<`: the other end), its flags, what is odd about it, why
it is dropped (unless it passes), and the state after it (`-`: the connection is not known).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from replaying import Replay, heard_by, replaying
from running_switch import wait_until
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("ip", "tailrace-vnf")]
MACS = ("02:00:00:00:00:11", "02:00:00:00:00:12")
ADDRESSES = {4: ("198.18.80.1", "198.18.80.2"), 6: ("2001:db8:80::1", "2001:db8:80::2")}
WEB, DATA = 80, b"some data"
FAR = 1 << 30  # beyond any window (RFC 7323, 2.3)
OPENED = """
    > S            syn_sent
    < SA           syn_received
    > A            established
"""
STORIES = {
    "opened, and closed by who opened": f"""{OPENED}
        > PA data      established
        < A            established
        > FA           closing_opener
        < A            closing_opener
        < PA data      closing_opener
        > A            closing_opener
        < FA           time_wait
        > A            time_wait
    """,
    "closed by the other end": f"""{OPENED}
        < FA           closing_other
        > A            closing_other
        > PA data      closing_other
        < A            closing_other
        > FA           time_wait
        < A            time_wait
        > S            syn_sent
    """,
    "both open at once": """
        > S            syn_sent
        < S            syn_both
        > SA           established
        < SA           established
        > PA data      established
    """,
    "both close at once": f"""{OPENED}
        > FA           closing_opener
        < FA           time_wait
        > A            time_wait
        < A            time_wait
    """,
    "begun in the middle": """
        > A            drop_state -
        > PA data      drop_state -
        > FA           drop_state -
        > R            drop_state -
        < SA           drop_state -
    """,
    "opened from where no rule allows it": """
        < S            drop_rule -
        > SA           drop_state -
    """,
    "half open": """
        > S            syn_sent
        > A            drop_state syn_sent
        > PA data      drop_state syn_sent
        > SA           drop_state syn_sent
        > FA           drop_state syn_sent
        < FA           drop_state syn_sent
        < SA           syn_received
        < S            drop_state syn_received
        > A            established
    """,
    "refused": """
        > S            syn_sent
        < RA           reset
        < SA           drop_state reset
        > S            syn_sent
    """,
    "sent again": """
        > S            syn_sent
        > S again      syn_sent
        < SA           syn_received
        < SA again     syn_received
        > A            established
        < SA again     established
        > PA data      established
        > PA again     established
        < A            established
        > FA           closing_opener
        > FA again     closing_opener
        < FA           time_wait
        < FA again     time_wait
        > A            time_wait
    """,
    "reset within the window": f"""{OPENED}
        < R            reset
        > PA data      reset
        < R            reset
        < SA           drop_state reset
        > S            syn_sent
    """,
    # Sequence numbers are not looked at: an end ignores such a reset (RFC 5961, 3.2), and what goes on keeps the entry.
    "reset outside the window": f"""{OPENED}
        < R far        reset
        > PA data      reset
        < A            reset
        < PA data      reset
        > A            reset
    """,
    # An end answers it with an ACK (RFC 9293, 3.10.7.4), which has to get there.
    "data outside the window": f"""{OPENED}
        > PA far,data  established
        < A            established
        > PA data      established
        < A            established
    """,
    # RFC 9293, 3.5.1: the end that is still there answers with an ACK, to which the other one answers with a reset.
    "one end has lost it": f"""{OPENED}
        > S far        established
        < A            established
        > R            reset
        > S            syn_sent
        < SA           syn_received
        > A            established
    """,
    "data after both have closed": f"""{OPENED}
        > FA           closing_opener
        < FA           time_wait
        > A            time_wait
        > PA data      time_wait
        < R            reset
        < SA           drop_state reset
    """,
    "flags that no segment has": f"""{OPENED}
        > SF           drop_transport established
        > SR           drop_transport established
        > FR           drop_transport established
        > F            drop_transport established
        > SAF          drop_transport established
        > FPU          drop_transport established
        > none         drop_transport established
        > SFRPAU       drop_transport established
    """,
}


@dataclass
class Connection:
    """Its ends number what they send as TCP does, one beside the other."""

    replay: Replay
    version: int
    port: int
    next: list[int] = field(default_factory=lambda: [1000, 5000])
    last: list[int] = field(default_factory=lambda: [1000, 5000])

    def sends(self, end: int, flags: str, odd: set[str]) -> str | None:
        """Lets a segment in. Returns why it is dropped, None if it came out at the other side as it was."""
        sequence = self.last[end] if "again" in odd else self.next[end] + (FAR if "far" in odd else 0)
        data = DATA if odd & {"data", "again"} and "P" in flags else b""
        frame = self._frame(end, "" if flags == "none" else flags, sequence, data)
        if not odd & {"again", "far"}:
            self.last[end] = sequence
            self.next[end] += len(data) + sum(flag in flags for flag in "SF")
        before = self._filtered(end)
        self.replay.outside[end].send(frame)
        wait_until(lambda: _decided(self._filtered(end)) > _decided(before), "the segment is decided on")
        did = {name: count - before[name] for name, count in self._filtered(end).items()}
        if did["passed"]:
            out: list[bytes] = []

            def came() -> bool:
                out.extend(each for each, _ in heard_by(self.replay.outside[not end]))
                return bool(out)

            wait_until(came, "it comes out")
            assert out == [frame]
            return None
        return next(name for name, count in did.items() if name.startswith("drop_") and count)

    def state(self) -> str:
        rows = self.replay.control.call("show", most=1000)["tables"]["connections"]["rows"]
        known = [str(row["state"]) for row in rows if str(row["from"]) == self._shown()]
        assert len(known) <= 1
        return known[0] if known else "-"

    def _shown(self) -> str:
        address = ADDRESSES[self.version][0]
        return f"{address}:{self.port}" if self.version == 4 else f"[{address}]:{self.port}"

    def _frame(self, end: int, flags: str, sequence: int, data: bytes) -> bytes:
        source, destination = ADDRESSES[self.version][end], ADDRESSES[self.version][not end]
        ports = (self.port, WEB) if end == 0 else (WEB, self.port)
        packet = (IP if self.version == 4 else IPv6)(src=source, dst=destination)
        acknowledged = self.next[not end] if "A" in flags else 0
        segment = TCP(sport=ports[0], dport=ports[1], flags=flags, seq=sequence, ack=acknowledged)
        return bytes(Ether(src=MACS[end], dst=MACS[not end]) / packet / segment / Raw(data))

    def _filtered(self, port: int) -> dict[str, int]:
        counters: dict[str, int] = self.replay.control.call("show", most=0)["counters"]["filtered"][port]
        return counters


def _decided(counters: dict[str, int]) -> int:
    return sum(count for name, count in counters.items() if name == "passed" or name.startswith("drop_"))


@pytest.fixture(scope="module")
def firewall(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    """Who is at the first port may begin."""
    with replaying(binaries, tmp_path_factory.mktemp("conformance"), "firewall") as replay:
        replay.control.call("configure", rules=[{"name": "out", "action": "allow", "port": 0, "match": [{}]}])
        yield replay


ports = count(20_000)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("story", STORIES)
def test_each_segment_meets_the_state_of_its_connection(firewall: Replay, story: str, version: int) -> None:
    connection = Connection(firewall, version, next(ports))
    told: list[str] = []
    for line in STORIES[story].split("\n"):
        if not line.strip():
            continue
        end, flags, *odd, state = line.split()
        why = next((each for each in odd if each.startswith("drop_")), None)
        about = {each for words in odd if words != why for each in words.split(",")}
        told.append(line.strip())
        assert (connection.sends("><".index(end), flags, about), connection.state()) == (why, state), told
