"""Timing changes of a running switch beside traffic, every frame of which must come back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace.bench.guests import WAIT_SECONDS, ended, tester_at
from tailrace.bench.model import Beside
from tailrace.bench.setting import Setting
from tailrace.bench.sides import BACKPRESSURE_US, joined
from tailrace.bench.testpmd import Testpmd
from tailrace.errors import Fault
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.measure.profile import profile
from tailrace.process.process import undisturbed
from tailrace.state.record import FilePath

BESIDE_PPS = 50_000.0
"""Frames a second each way on the chain beside: few enough for any machine, so that a loss has one cause only."""
BESIDE_FRAME = 64
SETTLE_SECONDS = 0.5
"""Traffic flows so long before the first change and after the last."""
BETWEEN_SECONDS = 0.01
"""Between two changes, so that all else gets its turn."""
ATTACH_SECONDS = 10.0


@contextmanager
def bare_switch(setting: Setting) -> Iterator[TailraceFabric]:
    """A switch without ports, as `tailrace up` starts it: it keeps its configuration too."""
    options = SwitchOptions(setting.cores.switch_place, BACKPRESSURE_US, "poll", kept=True)
    fabric = TailraceFabric(setting.launcher, options)
    try:
        fabric.start()
        setting.versions |= fabric.version()
        yield fabric
    finally:
        with undisturbed():
            fabric.stop()


def sockets(setting: Setting, name: str, count: int) -> list[Path]:
    """Paths of sockets, on record, so that whoever makes them need not clean up."""
    paths = [setting.launcher.state.sockets / f"{name}{number}" for number in range(count)]
    for path in paths:
        setting.launcher.state.add(FilePath(str(path)))
    return paths


@contextmanager
def idle_guests(setting: Setting, at: Sequence[Path], *, listen: bool) -> Iterator[Testpmd]:
    """Guests that attach and send nothing."""
    cores = setting.cores
    guests = Testpmd(setting.launcher, at, core=cores.load, control=cores.control, listen=listen)
    try:
        yield guests
        guests.check_alive()
    finally:
        with undisturbed():
            guests.close()


class Traffic:
    """The chain beside: begun by `beside_traffic`, and what became of its frames once it has ended."""

    outcome: Beside


@contextmanager
def beside_traffic(setting: Setting, fabric: TailraceFabric) -> Iterator[Traffic]:
    """Steady traffic on a chain of its own between ports a and b of the switch while the block runs."""
    ends = sockets(setting, "beside", 2)
    ports = {name: {"kind": "guest", "path": str(path)} for name, path in zip("ab", ends, strict=True)}
    fabric.apply({"ports": ports, "chains": {"beside": joined("a", "b")}})
    traffic = Traffic()
    with tester_at(setting, ends, listen=False) as tester:
        wait_up(fabric, ("a", "b"))
        tester.begin(profile(BESIDE_FRAME).streams(BESIDE_PPS), 3600.0, wait=WAIT_SECONDS, interval=1.0)
        time.sleep(SETTLE_SECONDS)
        yield traffic
        time.sleep(SETTLE_SECONDS)
        result = ended(tester)
    dropped = sum(sum(port.drops.values()) for port in fabric.ports() if port.name in ("a", "b"))
    traffic.outcome = Beside.of(BESIDE_PPS, result, dropped)


def wait_up(fabric: TailraceFabric, names: Sequence[str]) -> None:
    """Waits until a guest is attached to each of the ports. Raises Fault."""
    deadline = time.monotonic() + ATTACH_SECONDS
    while True:
        states = {port.name: port.state for port in fabric.ports()}
        waiting = [name for name in names if states[name] != "up"]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise Fault(f"no guest attached to {waiting[0]} within {ATTACH_SECONDS:g} s; it is {states[waiting[0]]}")
        time.sleep(BETWEEN_SECONDS)
