"""What the loop around a function costs: the skeleton, and DPDK's testpmd in its io mode, in turn on one core, between
the same two devices. These (net_null) always have frames and take all, so nothing else is in the figures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace import __version__
from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.model import Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.testpmd import MEMORY_MIB, Testpmd
from tailrace.errors import Fault
from tailrace.functions.program import BUFFERS_MIB, NAME, wait_until_ready
from tailrace.measure.progress import Reporter
from tailrace.process.process import Limits, undisturbed
from tailrace.process.programs import own_program
from tailrace.resources.hugepages import PAGE_MIB
from tailrace.resources.place import POLLER_NICE

SKELETON, TESTPMD = "skeleton", "testpmd"
RATIOS = (Ratio("time", "ns_per_packet", SKELETON, TESTPMD),)
"""Of time, and so of cycles, as both have the same core."""
_DEVICES = ("net_null0", "net_null1")
_START_SECONDS = 2.0


@dataclass(frozen=True)
class FunctionPlan(Plan):
    """What is to be measured."""

    @property
    def sides(self) -> list[Side]:
        measures: dict[str, Callable[[FunctionPlan, Setting], Figures]] = {SKELETON: _skeleton, TESTPMD: _testpmd}
        seconds = self.seconds + _START_SECONDS
        return [Side(name, seconds, partial(_side, partial(each, self))) for name, each in measures.items()]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: FunctionPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    pages = max(BUFFERS_MIB, MEMORY_MIB) // PAGE_MIB
    return compare("function", plan, plan.sides, RATIOS, folder=folder, report=report, pages=pages, programs=[NAME])


def _side(measure: Callable[[Setting], Figures], setting: Setting, step: Step) -> list[Sample]:
    setting.versions["tailrace"] = __version__
    samples = setting.samples([], partial(measure, setting))
    step(_START_SECONDS)
    return samples


def _figures(packets: int, seconds: float) -> Figures:
    """Raises Fault if no packet passed."""
    if packets <= 0:
        raise Fault("no packet passed")
    figures = {"ns_per_packet": round(seconds * 1e9 / packets, 3), "mpps": round(packets / seconds / 1e6, 3)}
    return {**figures, "packets": packets}


def _skeleton(plan: FunctionPlan, setting: Setting) -> Figures:
    launcher, place = setting.launcher, setting.cores.switch_place
    argv = [str(own_program(NAME)), SKELETON, *(word for each in _DEVICES for word in ("--port", f"vdev:{each}"))]
    argv += ["--core", str(place.core), "--memory", str(BUFFERS_MIB), "--huge"]
    process = launcher.start(SKELETON, argv, Limits(cpus=place.cpus, nice=POLLER_NICE))
    try:
        wait_until_ready(launcher, process, time.monotonic() + 20)
        began = time.monotonic()
        time.sleep(plan.seconds)
    finally:
        with undisturbed():
            ended = time.monotonic()
            launcher.state.undo(process)
    try:
        ports = json.loads(launcher.last_words(SKELETON))["ports"]
    except (ValueError, LookupError, TypeError):
        raise Fault(str(launcher.failure(SKELETON, f"{NAME} failed"))) from None
    return _figures(sum(port["sent"] for port in ports), ended - began)


def _testpmd(plan: FunctionPlan, setting: Setting) -> Figures:
    cores = setting.cores
    load = Testpmd(setting.launcher, (), devices=_DEVICES, core=cores.switch, control=cores.control)
    try:
        load.wait_ready()
        load.forward()
        began = time.monotonic()
        time.sleep(plan.seconds)
        lasted = time.monotonic() - began
        return _figures(load.stop().sent, lasted)
    finally:
        with undisturbed():
            load.close()
