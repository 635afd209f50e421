"""DPDK's testpmd: a program with its drivers that is not ours, told by its prompt what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path


class Testpmd:
    """Between its ports, the first and the second and so on, unless an option says otherwise."""

    __test__ = False

    def __init__(
        self, folder: Path, devices: Sequence[str], *options: str, queues: int = 1, mode: str = "io", name: str = ""
    ) -> None:
        """`devices` are DPDK's, as `--vdev` has them; `options` are testpmd's own."""
        self.log = folder / f"testpmd{name}.log"
        arguments = ["dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "-l", "0,1"]
        arguments += [f"--vdev={device}" for device in devices]
        prefix = f"tailrace-test-{uuid.uuid4().hex[:8]}"
        self.runtime = Path("/var/run/dpdk", prefix)
        arguments += ["--file-prefix", prefix, "--", "--interactive"]
        arguments += ["--total-num-mbufs=32768", f"--forward-mode={mode}", f"--rxq={queues}", f"--txq={queues}"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*arguments, *options], stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
            )

    def say(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        status = self.process.wait(60)
        shutil.rmtree(self.runtime, ignore_errors=True)  # DPDK leaves it
        return status

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def end(self) -> list[dict[str, int]]:
        """Stop, and return what was counted: one for each port, and one for all together."""
        if self.process.poll() is None:
            self.say("stop", "quit")
        self.wait()
        text = self.log.read_text().partition("Telling cores to stop")[2]
        counts = re.findall(r"RX-packets: (\d+) .*?\n\s*TX-packets: (\d+) .*?TX-dropped: (\d+)", text, re.S)
        return [{"received": int(r), "sent": int(t), "dropped": int(d)} for r, t, d in counts]
