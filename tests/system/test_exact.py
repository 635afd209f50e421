"""The tester's account of a network that errs as planned, frame by frame: equal to the plan's, in every count."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from impairment import Impairment, expected
from running_switch import RunningSwitch, wait_until
from running_tester import RunningTester, both_ways, stream

NAMES = ("a", "left", "right", "b")
WINDOW = 1 << 22
"""The tester's own, unless a trial says otherwise."""
WRAP = 1 << 48
LONGEST_NS = 60 * 10**9
"""No frame takes as long; one whose time had wrapped would, by far."""


@dataclass
class Bench:
    """Switch and tester around a function that is new for each plan. Whoever is full is waited for: nothing is lost
    but by plan."""

    binaries: Path
    switch: RunningSwitch
    tester: RunningTester

    def start(self, plan: Impairment) -> subprocess.Popen[bytes]:
        argv: list[str | Path] = [self.binaries / "functions/tailrace-vnf", "impair"]
        argv += ["--mode", "interrupt", "--memory", "96"]
        argv += [f"--port=vhost:{self.switch.folder}/{name}.sock" for name in ("left", "right")]
        function = subprocess.Popen([*argv, *plan.arguments()], stdout=subprocess.PIPE)
        for name in NAMES:
            self.switch.wait_state(name, "up")
        # Its rings are set up once more when it asks for interrupts.
        wait_until(lambda: waits_for_frames(function.pid), "the function waits for frames")
        return function

    def check(self, function: subprocess.Popen[bytes], plan: Impairment, result: dict[str, Any], window: int) -> None:
        """Ends the function and holds every count of the tester against the plan."""
        function.terminate()
        output, _ = function.communicate(timeout=60)
        for name in ("left", "right"):  # or the next one's place would seem to be taken already
            self.switch.wait_state(name, "waiting")
        counters = json.loads(output)
        for side, each in enumerate(result["streams"]):
            did = counters["impaired"][side]
            assert did["frames"] == each["sent"], f"lost before the function: {self.switch.page.ports()}"
            assert did["unplanned"] == 0
            wanted = expected(plan.arrivals(each["sent"], side), each["sent"], window)
            told = {key: each[key] for key in wanted if not key.startswith("extent")}
            told |= {f"extent_{key}": each["extents"][key] for key in ("count", "max", "sum", "unknown")}
            assert told == wanted
            assert each["window"] == window
            assert each["latency"]["count"] == each["received"]
            assert plan.delay_us * 1000 <= each["latency"]["min_ns"] <= each["latency"]["max_ns"] < LONGEST_NS


def waits_for_frames(pid: int) -> bool:
    """Whether the forwarding thread of a function sleeps in epoll_wait(2)."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if "worker" in (task / "comm").read_text():
            return (task / "syscall").read_text().split()[0] in ("232", "281")
    return False


@pytest.fixture(scope="module")
def bench(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("exact")
    options = ("--idle", "pause", "--backpressure-us", "10000000")
    switch = RunningSwitch(binaries / "switch/tailrace-switch", folder, *options)
    tester = None
    try:
        paths = {name: switch.add_guest(name) for name in NAMES}
        switch.set_chain("chain", *NAMES)
        tester = RunningTester(
            binaries / "tester/tailrace-tester", folder, {name: f"vhost:{paths[name]}" for name in "ab"}
        )
        yield Bench(binaries, switch, tester)
    finally:
        if tester is not None:
            assert tester.end() == 0
        assert switch.end() == 0


def chances(share: float) -> int:
    return round(share * 2**32)


EVERYTHING = Impairment(7, drop=chances(0.1), duplicate=chances(0.3), reorder=chances(0.05), depth=1000)
PLANS: dict[str, tuple[Impairment, dict[str, Any]]] = {
    "nothing": (Impairment(1), {}),
    "loss": (Impairment(2, drop=chances(0.2)), {}),
    "duplicates": (Impairment(3, duplicate=chances(1)), {}),
    "order": (Impairment(4, reorder=chances(0.3), depth=50), {}),
    "everything": (EVERYTHING, {}),
    "far-more-copies-than-first-ones": (
        Impairment(5, drop=chances(0.6), duplicate=chances(0.9), reorder=chances(0.2), depth=3000),
        {},
    ),
    "beyond-the-window": (
        Impairment(6, drop=chances(0.05), duplicate=chances(0.2), reorder=chances(0.1), depth=9000),
        {"window": 1024},
    ),
    "more-gaps-than-are-remembered": (
        Impairment(8, drop=chances(0.45), duplicate=chances(0.1), reorder=chances(0.02), depth=100_000),
        {},
    ),
    "over-the-wrap-of-number-and-time": (EVERYTHING, {"first_sequence": WRAP - 30_000, "clock_wraps_in": 0.5}),
    "so-rare-that-it-is-hardly-seen": (
        Impairment(10, drop=chances(0.00001), duplicate=chances(0.0001), reorder=chances(0.0001), depth=50),
        {},
    ),
    "delayed": (Impairment(9, drop=chances(0.01), reorder=chances(0.01), depth=20, delay_us=2000), {}),
}


#: Each alone is a part of what others do.
ALONE = ("nothing", "loss", "duplicates", "order")


@pytest.mark.parametrize(
    ("plan", "params"),
    [pytest.param(*each, id=name, marks=[pytest.mark.whole][: name in ALONE]) for name, each in PLANS.items()],
)
def test_every_count_is_the_plans(bench: Bench, plan: Impairment, params: dict[str, Any]) -> None:
    function = bench.start(plan)
    try:
        result = bench.tester.trial(both_ways(100_000), 1.0, wait=1.0, **params)
        assert all(each["sent"] > 500 for each in result["streams"])
        bench.check(function, plan, result, int(params.get("window", WINDOW)))
    finally:
        if function.poll() is None:
            function.kill()
            function.wait()


def test_a_learning_frame_that_comes_when_the_trial_has_begun_is_not_foreign(bench: Bench) -> None:
    """They are waited for, but not for as long as this network keeps them."""
    plan = Impairment(1, delay_us=700_000)
    function = bench.start(plan)
    try:
        result = bench.tester.trial(both_ways(10_000), 1.0, wait=2.0, learn=True)
        assert [(each["lost"], each["foreign"]) for each in result["streams"]] == [(0, 0), (0, 0)]
    finally:
        function.kill()
        function.wait()


@pytest.mark.whole
def test_ten_million_frames(bench: Bench) -> None:
    """With heavy duplication and loss together, over the wrap, and with frames later than the default window."""
    plan = Impairment(11, drop=chances(0.2), duplicate=chances(0.5), reorder=chances(0.0006), depth=6_000_000)
    function = bench.start(plan)
    try:
        bench.tester.start([stream("there", "a", "b", 0)], 300.0, wait=3.0, first_sequence=WRAP - 5_000_000)
        wait_until(lambda: bench.tester.sent() >= 10_000_000, "ten million frames sent", 240)
        bench.tester.call("trial.stop")
        result = bench.tester.wait_end()
        assert result["streams"][0]["beyond_window"] > 100
        bench.check(function, plan, result, WINDOW)
    finally:
        if function.poll() is None:
            function.kill()
            function.wait()
