"""A virtual machine of the test's own: QEMU, booted from what `scripts/guest-image` made, driven line by line.

Commands run inside over a serial port (`tests/guest/init` answers them), QEMU itself is driven over QMP.  A machine is
a context manager; whatever happens, its process ends with it.  Everything waited for has a time limit.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qemu.qmp import QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "build-images"
QEMU = "qemu-system-x86_64"
BACKPORTED = IMAGES / "qemu"
"""The folder of a QEMU from 8.0 on: the installed one, or that of Debian's backports; or of `missing`: why not."""
BOOT = 600
"""Seconds that an emulated machine with a function may take to forward, on the busiest host."""

STUCK = re.compile(r"soft lockup|detected (expedited )?stall")
"""What a kernel says on its console of a CPU that does not go on."""

Value = str | int


class MachineError(Exception):
    """A machine that did not do what it was told: what, and the end of its console."""


@dataclass(frozen=True)
class Nic:
    """A virtio-net device whose back end is a vhost-user switch."""

    path: Path
    """Of the socket."""
    server: bool = False
    """QEMU listens there, and the switch connects, and connects again when it was started anew."""
    queues: int = 1
    """Queue pairs."""
    options: Mapping[str, Value] = field(default_factory=dict)
    """Of QEMU's virtio-net-pci: packed="on", mrg_rxbuf="off", rx_queue_size=1024, …"""


@dataclass(frozen=True)
class Hardware:
    """What a machine is made of."""

    nics: Sequence[Nic] = ()
    memory: int = 256
    """MiB, in a file that back ends map."""
    slots: int = 0
    """For memory to be plugged while it runs, up to 4 GiB."""
    cpus: int = 1
    kernel: str = "cloud"
    """Debian's linux-image-…-amd64, as `scripts/guest-image` knows it."""
    layers: Sequence[str] = ("base",)
    """Of the initramfs, on top of the kernel's modules."""
    command_line: str = ""
    """For the kernel, on top of the console."""
    backported: bool = False
    """Run by the QEMU of BACKPORTED."""
    machine: str = "q35"
    clock: bool = False
    """Its time stamp counter is said to be invariant, as the host's is, which an emulated one is made of; QEMU says so
    by itself only under KVM."""
    numa: Sequence[Sequence[str]] = ()
    """For each node, its CPUs' numbers and ranges; memory is shared out evenly."""
    arguments: Sequence[str | Path] = ()
    """Of QEMU, for anything else."""


class Background:
    """A command that runs inside while others do."""

    def __init__(self, machine: Machine, mark: str) -> None:
        self._machine = machine
        self._mark = mark

    def wait(self, seconds: float = 60) -> str:
        """What it printed, once it has ended by itself with status 0."""
        out = f"/run/{self._mark}"
        self._machine.run(f"while [ ! -e {out}.status ]; do sleep 0.1; done", seconds)
        return self._machine.run(f"cat {out}; exit $(cat {out}.status)")

    def follow(self, machine: Machine) -> None:
        """The machine has been migrated, and the command with it."""
        self._machine = machine

    def output(self) -> str:
        """What it has printed so far."""
        return self._machine.run(f"cat /run/{self._mark}")

    def end(self, signal: str = "TERM", seconds: float = 60) -> str:
        """End it by a signal; what it printed."""
        out = f"/run/{self._mark}"
        self._machine.run(f"kill -{signal} -$(cat {out}.pid)")
        self._machine.run(f"while [ ! -e {out}.status ]; do sleep 0.1; done", seconds)
        return self.output()


class Machine:
    def __init__(
        self,
        folder: Path,
        name: str,
        hardware: Hardware,
        *,
        accelerator: str = "tcg",
        incoming: bool = False,
        within: Sequence[str] = (),
    ):
        """`within`: a command that runs another one, as `ip netns exec NAME` does."""
        self.name = name
        self.folder = folder / name
        self.hardware = hardware
        self.console = self.folder / "console"
        self.accelerator = accelerator
        self.incoming = incoming
        self.within = within
        self._count = 0

    # ------- start and end -------

    def __enter__(self) -> Self:
        """Starts it and returns while it boots, for which its first command waits.

        With `incoming` it does not boot, but waits for a migration.
        """
        self.folder.mkdir()
        self._initramfs = self.folder / "initramfs"
        with self._initramfs.open("wb") as file:
            for layer in (f"{self.hardware.kernel}/modules", *self.hardware.layers):
                with (IMAGES / f"{layer}.cpio").open("rb") as source:
                    shutil.copyfileobj(source, file)
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [*self.within, *self._command()],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                # Else it tries the modules of the installed one.
                env={**os.environ, "QEMU_MODULE_DIR": str(BACKPORTED)} if self.hardware.backported else None,
            )
        try:
            self.qmp = self._retry(self._open_monitor, "QEMU to answer")
            self._agent = self._retry(self._open_agent, "the serial port")
            self._received = b""
            self._ready = self.incoming
            if not self.incoming:
                self.execute("cont")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        with suppress(Exception):
            self.qmp.close()
        with suppress(AttributeError):
            self._agent.close()
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._initramfs.unlink()

    def _command(self) -> list[str | Path]:
        hardware = self.hardware
        command: list[str | Path] = [BACKPORTED / QEMU, "-L", BACKPORTED] if hardware.backported else [QEMU]
        command += ["-nodefaults", "-no-user-config", "-display", "none", "-S"]
        command += ["-accel", "tcg,thread=multi" if self.accelerator == "tcg" else self.accelerator]
        says = ",+invtsc,x-force-features=on" if hardware.clock else ""
        command += ["-cpu", ("max" if self.accelerator == "tcg" else "host") + says]
        command += ["-smp", str(hardware.cpus), "-name", self.name]
        command += ["-m", f"{hardware.memory}M" + (f",slots={hardware.slots},maxmem=4G" if hardware.slots else "")]
        if hardware.numa:
            command += ["-M", hardware.machine]
            for node, cpus in enumerate(hardware.numa):
                size = hardware.memory // len(hardware.numa)
                command += ["-object", f"memory-backend-memfd,id=ram{node},size={size}M,share=on"]
                command += ["-numa", ",".join(["node", *(f"cpus={each}" for each in cpus), f"memdev=ram{node}"])]
        else:
            command += ["-M", f"{hardware.machine},memory-backend=ram"]
            command += ["-object", f"memory-backend-memfd,id=ram,size={hardware.memory}M,share=on"]
        command += ["-kernel", IMAGES / hardware.kernel / "vmlinuz", "-initrd", self._initramfs]
        command += ["-append", f"console=ttyS0 panic=-1 {hardware.command_line}".strip()]
        command += ["-serial", f"file:{self.console}"]
        command += [
            "-chardev",
            f"socket,id=agent,path={self.folder}/agent,server=on,wait=off",
            "-serial",
            "chardev:agent",
        ]
        command += ["-qmp", f"unix:{self.folder}/qmp,server=on,wait=off"]
        for number, nic in enumerate(hardware.nics):
            command += nic_arguments(nic, number, msix=self.accelerator != "tcg" or hardware.backported)
        if self.incoming:
            command += ["-incoming", "defer"]
        return [*command, *hardware.arguments]

    # ------- the machine inside -------

    def wait_ready(self, seconds: float = 240) -> None:
        """Return once it has come up.

        QEMU's emulation of several CPUs may stay at one instruction for good while the kernel, booting, changes its own
        code beside it. The kernel's watchdog tells, or RCU, which waits for the CPU, and the machine is then started
        once more; a tuned kernel has no watchdog.
        """
        again = self.accelerator == "tcg"
        while not self._ready:
            try:
                self._ready = self._line(seconds / 2 if again else seconds) == b"ready"
            except MachineError:
                if not again:
                    raise
                again = False
                watched = "nosoftlockup" not in self.hardware.command_line.split()
                if not watched or STUCK.search(self.console.read_text(errors="replace")):
                    self.reset()

    def run(self, command: str, seconds: float = 60) -> str:
        """What a shell command printed inside; MachineError unless its status was 0."""
        status, output = self.ask(command, seconds)
        if status != 0:
            raise MachineError(f"{self.name}: '{command}' ended with status {status}\n{output}{self.ends()}")
        return output

    def ask(self, command: str, seconds: float = 60) -> tuple[int, str]:
        """Exit status and output of a shell command inside."""
        self.wait_ready()
        self._agent.sendall(base64.b64encode(command.encode()) + b"\n")
        status, _, output = self._line(seconds, command).partition(b" ")
        return int(status), base64.b64decode(output).decode(errors="replace")

    def begin(self, command: str) -> Background:
        """Starts a command in a process group of its own, and returns."""
        self._count += 1
        mark = f"background{self._count}"
        # Nothing of it may hold the agent's output. By its path, the shell is none of busybox's, which would run that
        # one's own programs: its ping marks in a signal handler what it sent, beside the loop that marks what came,
        # and now and then takes an answer for a second one.
        # The signal that ends the command is for the group; this shell survives it and says how the command ended.
        script = f"trap : TERM; ({command}) >/run/{mark} 2>&1; echo $? >/run/{mark}.status"
        script = base64.b64encode(script.encode()).decode()
        self.run(
            f"echo {script} | base64 -d >/run/{mark}.sh; "
            f"setsid /bin/sh -c 'echo $$ >/run/{mark}.pid; exec /bin/sh /run/{mark}.sh' </dev/null >/dev/null 2>&1 & "
            f"while [ ! -e /run/{mark}.pid ]; do sleep 0.01; done"
        )
        return Background(self, mark)

    def wait(self, condition: str, seconds: float = 120) -> None:
        """Return when a shell command succeeds inside, tried again and again."""
        deadline = time.monotonic() + seconds
        while self.ask(condition)[0] != 0:
            if time.monotonic() > deadline:
                raise MachineError(f"{self.name}: not in {seconds} s: {condition}{self.ends()}")

    def _line(self, seconds: float, what: str = "a sign of life") -> bytes:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            self._agent.settimeout(max(left, 0.001))
            try:
                new = self._agent.recv(1 << 20)
            except TimeoutError:
                raise MachineError(f"{self.name}: no answer in {seconds} s: {what}{self.ends()}") from None
            if not new:
                raise MachineError(f"{self.name}: QEMU ended while it was asked: {what}{self.ends()}")
            self._received += new
        line, _, self._received = self._received.partition(b"\n")
        return line.strip()

    # ------- QEMU -------

    def execute(self, command: str, **arguments: Any) -> Any:
        """A command of QMP; MachineError with QEMU's words when it refuses."""
        try:
            # QMP writes some arguments with hyphens.
            return self.qmp.cmd(command, **{name.replace("_", "-"): value for name, value in arguments.items()})
        except QMPError as error:
            raise MachineError(f"{self.name}: {command}: {error}{self.ends()}") from None

    def wait_event(self, name: str, seconds: float = 120) -> dict[str, Any]:
        """The next event of this name that has not been asked for yet; others before it are forgotten."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                event = self.qmp.pull_event(wait=max(deadline - time.monotonic(), 0.001))
            except (QMPError, TimeoutError):
                event = None
            if event is None:
                raise MachineError(f"{self.name}: no event {name} in {seconds} s{self.ends()}")
            if event["event"] == name:
                return dict(event)

    def reset(self) -> None:
        """What its reset button does; returns while it boots."""
        self._ready = False
        self.execute("system_reset")

    def ends(self) -> str:
        """The last lines of its console and of QEMU's own messages, for an error."""
        text = ""
        for path in (self.console, self.folder / "log"):
            if path.exists():
                lines = path.read_text(errors="replace").splitlines()[-15:]
                text += f"\n--- {self.name}: {path.name}\n" + "\n".join(lines)
        return text

    # ------- parts -------

    def _retry(self, attempt: Callable[[], Any], what: str, seconds: float = 60) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError, QMPError):
                return attempt()
            if self.process.poll() is not None:
                raise MachineError(f"{self.name}: QEMU ended with status {self.process.returncode}{self.ends()}")
            if time.monotonic() > deadline:
                raise MachineError(f"{self.name}: waited {seconds} s for {what}{self.ends()}")
            time.sleep(0.05)

    def _open_monitor(self) -> QEMUMonitorProtocol:
        if not (self.folder / "qmp").exists():
            raise FileNotFoundError
        monitor = QEMUMonitorProtocol(str(self.folder / "qmp"))
        monitor.connect()
        monitor.settimeout(60)
        return monitor

    def _open_agent(self) -> socket.socket:
        agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            agent.connect(str(self.folder / "agent"))
        except OSError:
            agent.close()
            raise
        return agent


def mac(number: int) -> str:
    return f"52:54:00:00:00:{number:02x}"


def nic_arguments(nic: Nic, number: int, *, msix: bool) -> list[str]:
    """Of QEMU, for the machine's NIC of this number."""
    options: dict[str, Value] = {"mac": mac(number + 1), "romfile": "", **nic.options}
    if nic.queues > 1:
        options["mq"] = "on"
    if not msix:
        # With MSI-X, QEMU 7.2 crashes under emulation when a driver starts a vhost-user device.
        options.setdefault("vectors", 0)
    wait = ",server=on,wait=off" if nic.server else ",reconnect=1"
    return [
        "-chardev",
        f"socket,id=switch{number},path={nic.path}{wait}",
        "-netdev",
        f"vhost-user,id=net{number},chardev=switch{number},queues={nic.queues}",
        "-device",
        f"virtio-net-pci,id=nic{number},netdev=net{number}"
        + "".join(f",{name}={value}" for name, value in options.items()),
    ]
