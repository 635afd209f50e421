"""The host's side of `measure interrupts --functions` on a kernel that traces functions, as Debian's does: a machine is
the host there. The tracer is armed, shows what the slowest interrupt went through, and is put back, also after a kill
that has left no record."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path

import pytest
from machine import Hardware, Machine
from trace_events import read_trace

pytestmark = [
    pytest.mark.requires_program("qemu-system-x86_64"),
    pytest.mark.whole,  # one to three minutes where machines are emulated
    pytest.mark.timeout(2400),
]

#: For whatever an emulated machine on a busy one does.
PATIENCE = 900
TRACE = "/run/trace.json"
SET = (
    "current_tracer trace_clock tracing_on tracing_cpumask set_ftrace_filter snapshot options/funcgraph-abstime "
    "options/funcgraph-proc options/funcgraph-overhead options/funcgraph-tail"
)
SETTINGS = f"cd /sys/kernel/tracing && tail {SET} && ls instances"
#: In KiB. Of memory that is first made when somebody traces: what it would be, which the kernel rounds up to pages.
SIZE = "sed 's/.*expanded: \\(.*\\))/\\1/' /sys/kernel/tracing/buffer_size_kb"
#: What a measurement does that is killed when it has armed the tracer.
KILLED = """\
import os, signal
from pathlib import Path
from tailrace.measure.function_trace import FunctionTracer
from tailrace.state.launch import Launcher
from tailrace.state.record import hold_run

with hold_run(Path("/run/tailrace")) as state:
    state.logs.mkdir()
    FunctionTracer.here(Launcher(state, state.logs, tied=True), 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
LEFT = "find /run/tailrace /run/tailrace-claims /run/tailrace-functions.lock 2>/dev/null"


def tailrace(*words: str) -> str:
    text = json.dumps([words])
    within = "PYTHONPATH=/opt/tailrace TAILRACE_BINARIES=/usr/bin"  # also of the service
    return f"{within} exec /usr/bin/python3 /usr/bin/tailrace-commands '{text}'"


def check_put_back(host: Machine, before: str, size: int) -> None:
    assert host.run(SETTINGS) == before
    assert size <= int(host.run(SIZE)) < size + 4


def test_the_kernel_of_the_host_tells_functions_and_is_put_back(tmp_path: Path, accelerator: str) -> None:
    layers = ("base", "python", "tailrace", "interrupts")
    hardware = Hardware(layers=layers, cpus=2, memory=1280, clock=True)
    with Machine(tmp_path, "host", hardware, accelerator=accelerator) as host:
        host.run("mkdir -p /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup")
        host.run("mount -t tracefs tracefs /sys/kernel/tracing")
        before, size = host.run(SETTINGS), int(host.run(SIZE))

        words = ("--sides", "native", "--period", "20ms", "--duration", "3s", "--runs", "/run/runs", "--json")
        words += ("--trace", TRACE, "--functions")
        answer = json.loads(host.run(tailrace("measure", "interrupts", *words), PATIENCE))
        assert answer["status"] == 0, answer
        run = json.loads(answer["out"])
        assert not [note for note in run["notes"] if "are not traced" in note]
        check_put_back(host, before, size)
        path = tmp_path / "trace.json"
        path.write_bytes(base64.b64decode(host.run(f"base64 -w 0 {TRACE}")))
        found = read_trace(path)
        slow = [each for each in found if each.track == "the slowest interrupts"]
        functions = [each for each in found if each.track.startswith("functions of thread ")]
        within = {each.name for each in functions for one in slow if each.ts < one.end and each.end > one.ts}
        # The thread of the receiver has read the eventfd, and slept meanwhile.
        assert {"eventfd_read", "schedule"} <= within, (within, run["notes"])

        program = base64.b64encode(KILLED.encode()).decode()
        host.run(f"echo {program} | base64 -d >/run/killed.py")
        assert host.ask("PYTHONPATH=/opt/tailrace python3 -P /run/killed.py", PATIENCE)[0] == 128 + signal.SIGKILL
        assert host.run(SETTINGS) != before
        host.run("echo damaged >/run/tailrace/run/state.json")
        said = json.loads(host.run(tailrace("down"), PATIENCE))
        assert said["status"] == 0 and "nothing of ours is left" in said["out"], said
        check_put_back(host, before, size)
        assert host.run(f"{LEFT}; true") == ""
