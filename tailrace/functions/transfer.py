"""libvirt's part of a machine's move to another node, while it runs: peer to peer, by pre-copy.

The machine stands still at the target when all of it is there, and libvirt has ended it at the source by then. The
source says that it has, and only then does it go on at the target (`Arrival.go`): so it never runs twice.

Post-copy is not used: a poller would wait for each page that it has not got yet, and a lost connection would lose the
machine.

Source: libvirt's migration.html, and virDomainMigrateToURI3 in its API.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tailrace.errors import Failure, Mistake
from tailrace.functions.domain import MachineSetting
from tailrace.functions.saved import domain_like
from tailrace.process import hypervisor
from tailrace.process.connections import connections, give_up_after
from tailrace.process.plain import plain

BEGIN_SECONDS = 120.0
"""In which the source begins to send, and QEMU is there to receive; on a busy host."""
GO_SECONDS = 30.0
"""In which the source says that its machine has ended."""
_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class Limits:
    """What a move may take."""

    bandwidth: int | None = None
    """Bytes a second; None: all that there is."""
    downtime_ms: int = 300
    """How long it may stand still at the end; QEMU sends what is left by then when it expects to keep that."""
    connections: int | None = None
    """By how many its memory is sent (QEMU's multifd); None: as many as its spec says, which is one as a rule."""

    def as_params(self) -> dict[str, Any]:
        """As `migrate.run` takes them."""
        return asdict(self)


@dataclass(frozen=True)
class Progress:
    """How far a move has come."""

    seconds: float
    total_bytes: int
    left_bytes: int
    bytes_per_second: int
    dirtied_per_second: int
    """Bytes of memory that the machine writes, which are sent again."""
    rounds: int
    throttle: int
    """Per cent by which it is slowed down so that it comes to an end (auto-converge)."""
    sent_bytes: int = 0
    """That went out so far."""

    @property
    def seconds_left(self) -> float | None:
        """At this pace; None: as it goes now, it does not come to an end."""
        pace = self.bytes_per_second - self.dirtied_per_second
        return self.left_bytes / pace if pace > 0 else None

    @property
    def text(self) -> str:
        done = 100 * (1 - self.left_bytes / self.total_bytes) if self.total_bytes else 0.0
        left = "it does not converge yet" if self.seconds_left is None else f"{self.seconds_left:.0f} s left"
        slowed = f", slowed down by {self.throttle} %" if self.throttle else ""
        return (
            f"{done:.0f} % after {self.seconds:.0f} s, round {self.rounds}: {self.bytes_per_second / 1e6:.1f} MB/s, "
            f"it writes {self.dirtied_per_second / 1e6:.1f} MB/s; {left}{slowed}"
        )


@dataclass(frozen=True)
class Destination:
    """Where a machine goes."""

    uri: str
    """Where the source's libvirt reaches the other one."""
    domain: str
    """What it is to be there, in libvirt's words."""
    name: str
    """What libvirt calls it there."""
    memory_uri: str | None
    """Where QEMU sends its memory; None: libvirt says that."""


class Outgoing:
    """A machine that is being sent."""

    def __init__(self, name: str, pid: int, to: Destination, limits: Limits) -> None:
        """Begins; `pid`: its QEMU. Raises Failure, Mistake."""
        self._libvirt = hypervisor.library()
        self._name, self._pid, self._to, self._limits = name, pid, to, limits
        self._domain = find(name)
        self._before = connections(pid)
        """Of viewers and the like."""
        self._patient = False
        self.connections = limits.connections or 1
        """By which its memory is sent."""
        self.ways = self.connections + 1 if self.connections > 1 else 1
        """How many connections QEMU has for that: multifd has one beside those."""
        self.ended = threading.Event()
        """It is at the target and ended here, or it goes on here."""
        self.problem: str | None = None
        """Why it is not at the target."""
        threading.Thread(target=self._send, name="migrate", daemon=True).start()

    def _send(self) -> None:
        libvirt, to = self._libvirt, self._to
        parameters: dict[str, Any] = {
            libvirt.VIR_MIGRATE_PARAM_DEST_NAME: to.name,
            libvirt.VIR_MIGRATE_PARAM_DEST_XML: to.domain,
        }
        if to.memory_uri is not None:
            parameters[libvirt.VIR_MIGRATE_PARAM_URI] = to.memory_uri
        if self._limits.bandwidth is not None:
            parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = max(self._limits.bandwidth >> 20, 1)
        flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER | libvirt.VIR_MIGRATE_AUTO_CONVERGE
        flags |= libvirt.VIR_MIGRATE_PAUSED
        if self._limits.connections is not None and self._limits.connections > 1:
            flags |= libvirt.VIR_MIGRATE_PARALLEL
            parameters[libvirt.VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS] = self._limits.connections
        try:
            find(self._name).migrateToURI3(to.uri, parameters, flags)
        except (libvirt.libvirtError, Failure, Mistake) as error:
            self.problem = plain(str(error))
        finally:
            self.ended.set()

    def progress(self) -> Progress | None:
        """None before it has begun, after its end, and where libvirt does not say. It may take for as long as QEMU does
        not answer: until TCP gives up, when the network is lost while the machine stands still."""
        try:
            found = self._domain.jobStats()
        except self._libvirt.libvirtError:
            return None
        if not found.get("memory_total"):
            return None
        if not self._patient:  # it is known from the first bytes on, and not before
            self._patient = True
            with suppress(self._libvirt.libvirtError):
                self._domain.migrateSetMaxDowntime(self._limits.downtime_ms)
        return Progress(
            seconds=found.get("time_elapsed", 0) / 1e3,
            total_bytes=found["memory_total"],
            left_bytes=found.get("memory_remaining", 0),
            bytes_per_second=found.get("memory_bps", 0),
            dirtied_per_second=found.get("memory_dirty_rate", 0) * found.get("memory_page_size", 4096),
            rounds=found.get("memory_iteration", 0),
            throttle=found.get("auto_converge_throttle", 0),
            sent_bytes=found.get("memory_processed", 0),
        )

    def give_up_after(self, seconds: float) -> int:
        """Ends it when nothing gets through for so long: with its connections, as QEMU 7.2 and 10 have no words for
        that, and answer nobody while they write the last of a machine. Without, TCP decides that. Returns how many
        connections it has so far."""
        return give_up_after(self._pid, seconds, self._before)

    def still(self) -> bool:
        """Whether libvirt knows that it stands still for the last of it; it need not ask QEMU for that."""
        libvirt = self._libvirt
        with suppress(libvirt.libvirtError):
            return bool(self._domain.state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION])
        return False

    def here(self) -> bool | None:
        """Whether the machine still runs here; None: libvirt does not say."""
        libvirt = self._libvirt
        try:
            return bool(hypervisor.connect().lookupByName(self._name).isActive())
        except libvirt.libvirtError as error:
            return False if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN else None
        except (Failure, Mistake):
            return None

    def cancel(self) -> None:
        """Asks for its end; the machine goes on here, unless it is there already. It may take as long as `progress`."""
        with suppress(self._libvirt.libvirtError):
            self._domain.abortJob()


def domain_there(domain: str, setting: MachineSetting) -> str:
    """What a machine that runs elsewhere as `domain` is to be here: it keeps its identity and its CPU. Raises Mistake
    where it is another machine than `setting` says."""
    try:
        was = ElementTree.fromstring(domain)
    except ElementTree.ParseError as error:
        raise Mistake(f"the other node's machine is damaged ({error})") from None
    here = domain_like(domain, setting, "the other node's machine")
    for tag in ("name", "uuid"):  # libvirt gives it another name itself
        found = here.find(tag)
        assert found is not None
        found.text = was.findtext(tag)
    devices = here.find("devices")
    assert devices is not None
    for each in devices.findall("controller"):
        devices.remove(each)
    devices.extend(was.findall("devices/controller"))  # all, and in their order
    old, cpu = here.find("cpu"), was.find("cpu")
    if old is not None and cpu is not None:
        here.insert(list(here).index(old), cpu)
        here.remove(old)
    return ElementTree.tostring(here, encoding="unicode")


def await_arrival(name: str, sockets: Sequence[Path], given_up: Callable[[], str | None]) -> Any:
    """Waits until a machine is here, and stands still; returns it as libvirt's binding has it (virDomain). Raises
    Failure where it does not come, or is `given_up` (why) before it is known to be here."""
    libvirt = hypervisor.library()
    # libvirt answers nobody about it while QEMU waits for the switch to come to its ports.
    deadline = time.monotonic() + BEGIN_SECONDS
    closed = list(sockets)
    while closed:
        closed = [each for each in closed if not hypervisor.open_to_all(each)]
        if (why := given_up()) is not None:
            raise Failure(why)
        if time.monotonic() > deadline:
            raise Failure("the other node has not begun to send it")
        time.sleep(_LOOK_SECONDS)
    connection, seen = hypervisor.connect(), False
    while True:
        try:
            domain = connection.lookupByName(name)
            state, reason = domain.state()
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise Failure(f"libvirt does not show it: {error}") from None
            state = reason = None
        if state is None and (seen or time.monotonic() > deadline):
            raise Failure("it did not arrive: the other node has given up, or was lost")
        seen |= state is not None
        if (why := given_up()) is not None:  # first: what was lost before it was here may have damaged it
            raise Failure(why)
        if state == libvirt.VIR_DOMAIN_PAUSED and reason == libvirt.VIR_DOMAIN_PAUSED_USER:
            return domain
        time.sleep(_LOOK_SECONDS)


COUNTED = {"pause_ms": "downtime", "total_ms": "time_elapsed", "rounds": "memory_iteration", "bytes": "memory_total"}
"""What is told of a transfer, by libvirt's name of it."""


def counted(name: str) -> dict[str, int]:
    """Of a machine that has arrived: how many ms it stood still (`pause_ms`) and took in all (`total_ms`), in how many
    `rounds` its memory was sent and how many `bytes` that has, as libvirt has counted; 0 where it does not say."""
    libvirt = hypervisor.library()
    found: dict[str, Any] = {}
    with suppress(libvirt.libvirtError, Failure, Mistake):
        flags = libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED | libvirt.VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED
        found = find(name).jobStats(flags)
    return {key: int(found.get(said, 0)) for key, said in COUNTED.items()}


def find(name: str) -> Any:
    """A machine as libvirt's binding has it (virDomain). Raises Failure, Mistake."""
    libvirt = hypervisor.library()
    try:
        return hypervisor.connect().lookupByName(name)
    except libvirt.libvirtError as error:
        raise Failure(f"libvirt does not find it: {plain(str(error))}") from None


def go_on(domain: Any) -> None:
    """Has a machine go on that has arrived, if it does not yet. Raises Failure."""
    libvirt = hypervisor.library()
    try:
        if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
            domain.resume()
    except libvirt.libvirtError as error:
        raise Failure(f"libvirt does not let it go on: {plain(str(error))}") from None
