"""A tailrace-tester of the test's own: started, driven over its control socket, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from operator import ge
from pathlib import Path
from typing import Any

from running_switch import wait_until

from tailrace.process.control import Control, connect_when_ready

Trial = dict[str, Any]


def stream(name: str, source: str, target: str, rate: float, **traffic: Any) -> dict[str, Any]:
    """A stream of 64-byte frames, unless `traffic` says otherwise."""
    if "pcap" not in traffic:
        traffic.setdefault("frames", [64])
    return {"name": name, "from": source, "to": target, "rate": rate, **traffic}


def both_ways(rate: float, **traffic: Any) -> list[dict[str, Any]]:
    return [stream("there", "a", "b", rate, **traffic), stream("back", "b", "a", rate, **traffic)]


class RunningTester:
    def __init__(
        self, program: Path, folder: Path, ports: dict[str, str], *options: str, prefix: Sequence[str | Path] = ()
    ) -> None:
        self.path = folder / "tester.control"
        self.log = folder / "tester.log"
        arguments = [f"--port={name}={uri}" for name, uri in ports.items()]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*prefix, program, "--control", self.path, *arguments, *options], stderr=log
            )
        self.control: Control = connect_when_ready(self.path, lambda: self.process.poll() is None, 60)

    def call(self, method: str, **params: Any) -> Any:
        return self.control.call(method, **params)

    def start(self, streams: list[dict[str, Any]], duration: float = 1.0, **params: Any) -> None:
        self.call("trial.start", duration=duration, streams=streams, **params)

    def wait_end(self, state: str = "done", seconds: float = 60) -> Trial:
        """The result, once the trial has come to an end in this state."""
        end = time.monotonic() + seconds
        while (status := self.call("trial.status"))["state"] in ("running", "waiting"):
            assert time.monotonic() < end, status
            time.sleep(0.02)
        assert status["state"] == state, status
        result: Trial = self.call("trial.result")
        return result

    def trial(self, streams: list[dict[str, Any]], duration: float = 1.0, **params: Any) -> Trial:
        self.start(streams, duration, **params)
        return self.wait_end()

    def sent(self) -> int:
        """Frames that every stream has sent at the least."""
        return min(each["sent"] for each in self.call("trial.status")["streams"])

    def wait_more(self, count: int, seconds: float = 60) -> None:
        """Return when so many more frames of each stream have arrived."""

        def received() -> list[int]:
            return [each["received"] for each in self.call("trial.status")["streams"]]

        wanted = [each + count for each in received()]
        wait_until(lambda: all(map(ge, received(), wanted)), f"{count} more frames of each stream arrive", seconds)

    def wait_sent(self, least: int) -> None:
        wait_until(lambda: self.sent() >= least, f"{least} frames sent by each stream")

    def end(self) -> int:
        """Stop it as an operator does. Returns the exit status; fails when a sanitizer had something to say."""
        self.control.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        log = self.log.read_text()
        assert "Sanitizer" not in log and "runtime error" not in log, log
        return status


def beside_a_node(binaries: Path, folder: Path, ports: dict[str, str], *options: str) -> RunningTester:
    """One that stays on the first core: on the last one a node's switch polls, ahead of all that is not its own.

    Its control thread would have a hundredth of that core, and take half a minute to start.
    """
    within = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
    return RunningTester(binaries / "tester/tailrace-tester", folder, ports, *options, prefix=within)
