"""DPDK's own testpmd as the guests: virtio-user ports in one process, forwarding in pairs as fast as they can.

A client that we did not write, started with the same parameters whatever the switch is. It is the socket's server,
because a switch that is the client is how Open vSwitch is deployed. Packets are made once and then circulate; in the
end testpmd only receives, until nothing is left on its way, so that sent and received are compared to the last packet.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Fault, Mistake
from tailrace.process.plain import plain
from tailrace.process.process import UMASK_GUEST, Limits, how_it_ended, reap
from tailrace.process.programs import system_program
from tailrace.resources.place import POLLER_NICE
from tailrace.state.launch import Launcher
from tailrace.state.record import Process

FCS = 4
"""Bytes of the frame check sequence: part of a frame's size, absent from memory."""
MEMORY_MIB = 256
QUEUE = 1024
MBUFS = 32768
BURSTS = 32
DRAIN_SECONDS = 5.0
STILL_SECONDS = 1.0
"""Nothing came for so long: nothing is on its way, also where something else has the switch's core for a while."""
_PREFIX = "tailrace-load"
_PROMPT = "testpmd> "
_PORT = re.compile(r"NIC statistics for port (\d+).*?RX-packets: (\d+).*?TX-packets: (\d+)", re.DOTALL)


@dataclass(frozen=True)
class Traffic:
    """Packets of both ports together, since testpmd started."""

    sent: int
    received: int


def parse_port_stats(text: str, count: int = 2) -> Traffic:
    """The sum of the ports in the output of `show port stats all`. Raises ValueError unless there are `count`."""
    ports = {port: (int(received), int(sent)) for port, received, sent in _PORT.findall(text)}
    if len(ports) != count:
        raise ValueError(f"statistics of {len(ports)} ports instead of {count}")
    return Traffic(sum(sent for _, sent in ports.values()), sum(received for received, _ in ports.values()))


def program() -> str:
    """The path of testpmd. Raises Mistake if it is not installed."""
    try:
        return system_program("dpdk-testpmd")
    except Mistake:
        raise Mistake("dpdk-testpmd is missing; install it with `sudo apt-get install dpdk-dev`") from None


def arguments(sockets: Sequence[Path], core: int, control: int, *, listen: bool = True) -> list[str]:
    """The command line: forwarding on CPU `core`, commands read on CPU `control`.

    A switch connects to guests that listen; otherwise they connect to the switch.
    """
    server = ",server=1" * listen
    devices = [f"net_virtio_user{n},path={path},queue_size={QUEUE}{server}" for n, path in enumerate(sockets)]
    return _between(devices, core, control)


def _between(devices: Sequence[str], core: int, control: int) -> list[str]:
    """The command line with these virtual devices, in DPDK's words."""
    line = ["--lcores", f"0@{control},1@{core}", "--in-memory", "--single-file-segments"]
    line += ["--no-pci", "--no-telemetry", "--file-prefix", _PREFIX, "-m", str(MEMORY_MIB)]
    for device in devices:
        line += ["--vdev", device]
    return [*line, "--", "-i", "--nb-cores=1", f"--total-num-mbufs={MBUFS}"]


class Testpmd:
    """A running testpmd, told what to do through its prompt."""

    __test__ = False

    def __init__(
        self,
        launcher: Launcher,
        sockets: Sequence[Path],
        *,
        core: int,
        control: int,
        listen: bool = True,
        devices: Sequence[str] = (),
    ) -> None:
        """`devices`, in DPDK's words, stand in the place of sockets."""
        self._state = launcher.state
        self._log = launcher.log("testpmd")
        self._log.unlink(missing_ok=True)
        self._read = 0
        self._ports = len(devices or sockets)
        words = _between(devices, core, control) if devices else arguments(sockets, core, control, listen=listen)
        line = [system_program("stdbuf"), "-oL", program(), *words]
        limits = Limits(cpus=tuple(sorted({core, control})), nice=POLLER_NICE, umask=UMASK_GUEST)
        stdin, self._commands = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = launcher.start("testpmd", line, limits, stdin=stdin)
        except BaseException:
            os.close(self._commands)
            raise
        finally:
            os.close(stdin)

    @property
    def process(self) -> Process:
        return self._process

    def alive(self) -> bool:
        return self._process.id.alive()

    def check_alive(self) -> None:
        """Raises Fault, with how it ended, if it has."""
        if not self.alive():
            raise self._died()

    def wait_ready(self, seconds: float = 20.0) -> None:
        """Waits for the prompt: the switch has connected to both ports."""
        self._expect(_PROMPT, seconds, "did not come up: the switch did not connect to both of its ports")

    def start(self, frame: int) -> None:
        """Sends some bursts of 32 packets from each port and forwards from then on whatever comes."""
        self._command("set fwd io")
        self._command(f"set txpkts {frame - FCS}")
        self._command(f"start tx_first {BURSTS}")

    def forward(self) -> None:
        """Forwards whatever comes, and sends nothing of its own."""
        self._command("set fwd io")
        self._command("start")

    def stop(self) -> Traffic:
        """Ends forwarding at once, and returns the totals."""
        self._command("stop")
        return self._totals()

    def drain(self) -> Traffic:
        """Ends forwarding, receives until nothing comes any more, and returns the totals."""
        self._command("stop")
        self._command("set fwd rxonly")
        self._command("start")
        began = changed = time.monotonic()
        last = self._totals()
        while last.received != last.sent and time.monotonic() - began < DRAIN_SECONDS:
            time.sleep(0.2)
            now = self._totals()
            if now != last:
                last, changed = now, time.monotonic()
            elif time.monotonic() - changed > STILL_SECONDS:
                break
        self._command("stop")
        return self._totals()

    def quit(self) -> None:
        """Ends it in order; the caller need not if it has died already."""
        with suppress(OSError):
            os.write(self._commands, b"quit\n")
        self._process.id.wait(5.0)
        self.close()

    def close(self) -> None:
        """Ends it in any case."""
        if self._commands >= 0:
            os.close(self._commands)
            self._commands = -1
        self._state.undo(self._process)
        with suppress(OSError):
            Path("/var/run/dpdk", _PREFIX).rmdir()  # DPDK makes it, empty, and leaves it

    def _totals(self) -> Traffic:
        text = self._command("show port stats all")
        try:
            return parse_port_stats(text, self._ports)
        except ValueError as error:
            raise Fault(f"testpmd: {error}; see {self._log}") from None

    def _command(self, text: str) -> str:
        try:
            os.write(self._commands, text.encode() + b"\n")
        except OSError:
            raise self._died() from None
        return self._expect(_PROMPT, 10.0, f"did not answer `{text}`")

    def _expect(self, wanted: str, seconds: float, otherwise: str) -> str:
        """The output since the last call, up to and with `wanted`."""
        deadline = time.monotonic() + seconds
        while True:
            alive = self.alive()
            with self._log.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            end = new.find(wanted.encode())
            if end >= 0:
                end += len(wanted)
                self._read += end
                return new[:end].decode(errors="replace")
            if not alive:
                raise self._died()
            if time.monotonic() > deadline:
                raise Fault(f"testpmd {otherwise}{self._last_words()}")
            time.sleep(0.02)

    def _died(self) -> Fault:
        return Fault(f"testpmd {how_it_ended(reap(self._process.pid))}{self._last_words()}")

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip(" #")]
        wanted = [line for line in lines if re.search(r"error|cannot|fail|cause", line, re.IGNORECASE)] or lines
        return f": {plain(wanted[-1])}" if wanted else ""
