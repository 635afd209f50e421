"""The dashboard's server in a thread, showing a node that is made up, so that no switch is needed."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.dashboard.api import Places
from tailrace.dashboard.nodes import Remote
from tailrace.dashboard.passwords import Passwords
from tailrace.dashboard.record import Record, Recorder
from tailrace.dashboard.rules import EVERYTHING, Rules
from tailrace.dashboard.server import Certificate, Shown, listen_on, server
from tailrace.observe.page import Table
from tailrace.observe.snapshot import Facts, Key, Planned, Snapshot

TOKEN = "a-token-that-only-tests-know"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
FACTS = Facts(
    chains={"voice": ["tester.a", "firewall", "nat", "tester.b"], "web": ["tester.a", "wan"]},
    ports={"tester.a": "up", "tester.b": "up", "firewall.0": "up", "firewall.1": "up", "nat.0": "up", "nat.1": "up",
           "wan": "waiting"},
    workers={"worker-0": {"core": 2, "idle": "poll", "tsc_hz": 2e9},
             "worker-1": {"core": 3, "idle": "sleep", "tsc_hz": 2e9}},
    version=7,
    spec="/etc/tailrace/office.yaml",
    functions={"firewall": Planned("skeleton · process", ("firewall.0", "firewall.1")),
               "nat": Planned("nat · machine", ("nat.0", "nat.1"))},
)  # fmt: skip


def hop(forward: float, back: float, full: float = 0) -> dict[str, float]:
    return {
        "forward_packets": forward, "forward_bytes": forward * 508, "forward_drop_receiver_full": full,
        "back_packets": back, "back_bytes": back * 60, "back_drop_receiver_full": 0,
    }  # fmt: skip


def queue(received: float, sent: float, full: float = 0) -> dict[str, float]:
    return {
        "received_packets": received, "received_bytes": received * 508, "waiting_packets": 0, "drop_no_match": 0,
        "sent_packets": sent, "sent_bytes": sent * 60, "drop_receiver_full": full,
    }  # fmt: skip


def worker(busy: float, idle: float, packets: float) -> dict[str, float]:
    return {
        "busy_cycles": busy,
        "idle_cycles": idle,
        "busy_polls": packets / 20,
        "packets": packets,
        "burst_1": packets / 80,
        "burst_8": 0,
        "burst_16": packets * 3 / 80,
    }


RATES: dict[Key, dict[str, float]] = {
    ("hop", "voice/0", 1): hop(1.23e6, 845e3),
    ("hop", "voice/1", 1): hop(1.23e6, 845e3, 3.4e3),
    ("hop", "voice/2", 1): hop(1.226e6, 845e3),
    ("hop", "web/0", 1): hop(20e3, 0),
    ("queue", "tester.a/0", 1): queue(1.25e6, 845e3),
    ("queue", "tester.b/0", 1): queue(845e3, 1.226e6),
    ("queue", "firewall.0/0", 1): queue(845e3, 1.23e6),
    ("queue", "firewall.1/0", 1): queue(1.23e6, 845e3),
    ("queue", "nat.0/0", 1): queue(845e3, 1.226e6, 3.4e3),
    ("queue", "nat.1/0", 1): queue(1.226e6, 845e3),
    ("queue", "wan/0", 1): queue(0, 20e3),
    ("worker", "worker-0", 1): worker(1.4e9, 0.6e9, 6.2e6),
    ("worker", "worker-1", 1): worker(0.1e9, 1.9e9, 20e3),
}
"""How much each counter grows in a second."""


def at(moment: float, rates: dict[Key, dict[str, float]] = RATES) -> dict[Key, dict[str, int]]:
    """The counters that grow so since a moment."""
    return {key: {name: int(rate * moment) for name, rate in each.items()} for key, each in rates.items()}


@dataclass
class Tables:
    """Makes tables of slots, as a page does."""

    slots: list[tuple[str, int]] = field(default_factory=list)

    def of(self, slots: dict[Key, dict[str, int]], kind: str) -> Table:
        found = {key[1:]: counters for key, counters in slots.items() if key[0] == kind}
        if list(found) != self.slots:
            self.slots = list(found)
        fields = dict.fromkeys(name for key, counters in RATES.items() if key[0] == kind for name in counters)
        return Table(self.slots, {name: [each.get(name, 0) for each in found.values()] for name in fields})


@dataclass
class MadeUp:
    """Stands in for a `Sampler`: counters that grow steadily. A test may change the rates while the server looks."""

    rates: dict[Key, dict[str, float]] = field(default_factory=lambda: dict(RATES))
    facts: Facts = FACTS
    taken: int = 0
    live: list[bool] = field(default_factory=list)
    """Of each time that tables were asked for."""
    look: Callable[[], None] = lambda: None
    """Called with each snapshot."""
    _now: float = 0.0
    _tables: dict[str, Tables] = field(default_factory=lambda: defaultdict(Tables))

    def at_hand(self) -> bool:
        return True

    def snapshot(self, *kinds: str) -> Snapshot:
        self.taken += 1
        self.look()
        now = self._now = time.monotonic()
        return Snapshot(
            now,
            at(now, {key: each for key, each in dict(self.rates).items() if not kinds or key[0] in kinds}),
            self.facts,
        )

    def tables(self, *kinds: str, live: bool = False) -> list[Table]:
        """Of the same moment as the snapshot."""
        self.live.append(live)
        slots = at(self._now, dict(self.rates))
        return [replace(self._tables[kind].of(slots, kind), live=live) for kind in kinds]

    def counters(self, kind: str, names: Sequence[str]) -> dict[str, dict[str, int]]:
        slots = at(self._now, dict(self.rates))
        return {
            key[1]: slots[key] for key in slots if key[0] == kind and {key[1], key[1].rpartition("/")[0]} & {*names}
        }


@dataclass
class Heard:
    """Stands in for `Events`."""

    latest: dict[str, dict[str, str]] = field(default_factory=dict)

    def listen(self, seconds: float) -> None:
        time.sleep(seconds)


@contextmanager
def served(
    sampler: MadeUp,
    heard: Heard | None = None,
    certificate: Certificate | None = None,
    *,
    folder: Path = Path("/nonexistent"),
    control: bool = False,
    rules: Rules = EVERYTHING,
    recorder: Recorder | None = None,
    replayed: Path | None = None,
    passwords: Passwords | None = None,
    remotes: tuple[Remote, ...] = (),
) -> Iterator[int]:
    """The port of a server on 127.0.0.1, ended with the block. In `folder` are the state and the runs that it shows."""
    file = recorder.path if recorder else replayed
    record = Record(file, recording=recorder is not None) if file else None
    places = Places(folder / "state", folder / "runs", record)
    shown = Shown(sampler, heard or Heard(), places, rules, control, recorder, passwords, remotes)  # type: ignore[arg-type]
    with listen_on("127.0.0.1", 0) as listening:
        answering = server(shown, TOKEN, "127.0.0.1", certificate)
        thread = threading.Thread(target=answering.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            answering.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


def ask(port: int, path: str = "/", headers: dict[str, str] | None = None, method: str = "GET") -> Any:
    """The answer, read."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        return answer


def status_with_functions(_: Path) -> dict[str, Any]:
    """Stands in for `status`: a function of two replicas, of which one is this process."""
    me = {"function": "nat", "pid": os.getpid(), "restarts": 2, "alive": True}
    replicas = [{"name": "nat", "state": "active", "flows": 7}, {"name": "nat-2", "state": "stopped", "flows": None}]
    return {"processes": [me], "functions": [{"name": "nat", "kind": "nat", "runs": "machine", "replicas": replicas}]}
