"""A task that takes the receiver's CPU on purpose, each time known by the TSC: it is named as what held interrupts up.

Nothing is said of how long interrupts took, and what else held some up is no part of the answer: it is asked of the
interrupts that were under way while the task ran, and how many there were is held against how often it ran.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from running_node import Command, needs_a_node

from tailrace.results.causes import Causes

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("tailrace-recorder", "tailrace-injector"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs, for the receiver and for the rest"),
    pytest.mark.unsanitized,
]

LEAST = 20
"""Injections that some interrupt was under way in."""


@contextmanager
def injecting(binaries: Path, cpu: int, spans: list[tuple[int, int]]) -> Iterator[None]:
    """A real-time task above the receiver's priority that takes the CPU for 500 µs, again and again, in the block."""
    argv = [str(binaries / "test/tailrace-injector"), "hog", "--cpu", str(cpu), "--priority", "97", "--us", "500"]
    ended = Event()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        requests, answers = process.stdin, process.stdout
        assert requests is not None and answers is not None

        def work() -> None:
            while not ended.is_set():
                requests.write("\n")
                requests.flush()
                begin, end = map(int, answers.readline().split())
                spans.append((begin, end))

        thread = Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            requests.close()
            assert process.wait(10) == 0


def test_a_task_that_held_interrupts_up_is_named_first(command: Command, binaries: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    spans: list[tuple[int, int]] = []
    words = ("--sides", "native", "--cpu", str(cpu), "--period", "200us", "--duration", "3s", "--causes", "--json")
    with injecting(binaries, cpu, spans):
        run = json.loads(command("measure", "interrupts", *words).stdout)
    assert run["valid"], run["reason"]
    (native,) = [trial for trial in run["host_trials"] if trial["test"] == "interrupt-native"]
    assert all(trial["causes"] is None for trial in run["host_trials"] if trial is not native)
    causes = Causes.model_validate(native["causes"])
    assert len(causes.frames) + causes.unexamined > 0
    assert len(causes.frames) <= 100
    # Raised while the task ran, and not so shortly before its end that nothing is to be explained.
    held = [
        frame
        for frame in causes.frames
        if any(begin <= frame.sent_tsc < end - (end - begin) // 4 for begin, end in spans)
    ]
    right = [frame for frame in held if frame.causes and "tailrace-inject" in frame.causes[0].text]
    said = "\n".join(f"{frame.latency_us:.0f} µs: {[c.text for c in frame.causes]}" for frame in causes.frames)
    assert len(held) >= LEAST, said
    assert len(right) >= 0.9 * len(held), said
    for frame in causes.frames:
        parts = sum(cause.us for cause in frame.causes) + frame.unexplained_us + frame.usual_us
        assert parts == pytest.approx(frame.latency_us, abs=0.01)
    (hog,) = [each for each in causes.recurrences if "tailrace-inject" in each.text]
    assert hog.cpu == cpu and len(right) <= hog.first_of <= hog.count
