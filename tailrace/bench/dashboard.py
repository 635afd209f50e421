"""What the dashboard costs with many chains, and how soon it shows a change: its server's CPU time, a frame's work in
Chromium, the times from a counter's change to the painted pixel and from a function's death to the painted alarm, the
page's size and first paint, and the heap.

A node of the benchmark's own has all its chains between the tester's two ports, told apart by the flows that the tester
sends; the other ports have nobody. The page's times are those of the browser's own clock (`performance.now`).
"""

from __future__ import annotations

import gzip
import math
import os
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tailrace import dashboard
from tailrace.bench.browser import CHROMIUM, Browser
from tailrace.bench.looker import dashboard_of, looked_at, wait_for
from tailrace.bench.netdata import PROGRAM, Netdata, netdata
from tailrace.bench.own_node import own_folder, resident_mib
from tailrace.bench.setting import Setting
from tailrace.dashboard.events import KEPT
from tailrace.errors import Failure, Mistake
from tailrace.measure.own_node import OwnNode
from tailrace.measure.profile import profile
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import Tester
from tailrace.node.restarts import PAUSES
from tailrace.node.status import status
from tailrace.observe.page import Page
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.process.process import cpu_seconds
from tailrace.process.programs import system_program
from tailrace.state.record import State, peek

FIRST_ADDRESS, FIRST_PORT, ADDRESSES = "198.18.1.", 1024, 256
"""Flow k of the tester: see scale.py."""
_NOBODY = "198.18.0.1/32"
"""Sends nothing."""
RATE = 10.0
"""Packets a second of each chain, each way."""
_STATIC = Path(dashboard.__file__).parent / "static"
_SETTLE = 3.0
_PATIENCE = 60.0
_CHANGE_SECONDS = 2.5
_DEATH_SECONDS = 4.0
_TESTER_NICE = 10
"""On two cores the browser shares the tester's, and is what is measured."""
_WIDTH, _HEIGHT = 1440, 900
_TRACE_SECONDS = 30.0
"""Chromium keeps so many events and no more."""
_TRACED = ("disabled-by-default-devtools.timeline", "blink.user_timing")
"""Categories of Chromium's: tasks of threads with their CPU time, and what the page marks."""
_DIES = "dies"
"""The function that is killed."""
_RATE = """[document.querySelector('[data-hop="chain-0/0"][data-way="forward"]'), shown => shown.textContent]"""
_ALARMS = f"""[document.querySelector('.bell'), shown => [...shown.querySelectorAll('li')].filter(
  each => /{_DIES}(@\\d+)? function[.]died/.test(each.textContent)).length]"""
"""Each instance that takes the place of one has a name of its own."""
#: Notes when something is painted that was not so before: an element, and what is read of it.
_WHEN_PAINTED = """(() => {
  const [shown, read] = WHAT;
  const before = read(shown);
  window.bench.painted = null;
  const observer = new MutationObserver(() => {
    if (read(shown) === before) return;
    observer.disconnect();
    requestAnimationFrame(() => {
      const {port1, port2} = new MessageChannel();
      port1.onmessage = () => { window.bench.painted = performance.timeOrigin + performance.now(); };
      port2.postMessage(0);
    });
  });
  observer.observe(shown, {characterData: true, childList: true, subtree: true});
})()"""


@dataclass(frozen=True)
class DashboardPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    chains: int = 1000
    ports: int = 64
    seconds: float = 20.0
    """Of looking on."""
    changes: int = 30
    deaths: int = 0
    """Times that a function is killed."""
    heap: float = 0.0
    """Seconds for which the page's heap is watched …"""
    speed: int = 10
    """… at so many times its speed."""
    netdata: bool = False
    """Netdata is measured in turn."""

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("chains", self.chains, 1, 4000),
            ("ports", self.ports, 2, 256),
            ("seconds", self.seconds, 1, 3600),
            ("changes", self.changes, 1, 1000),
            ("deaths", self.deaths, 0, KEPT),
            ("heap", self.heap, 0, 86400),
            ("speed", self.speed, 1, 100),
        ):
            if not least <= value <= most:
                raise Mistake(f"--{name} {value:g}: expected {least} to {most}")
        if CHROMIUM is None:
            raise Mistake("bench dashboard needs Chromium; `apt-get install chromium`")
        if self.netdata:
            system_program(PROGRAM)

    @property
    def total_seconds(self) -> float:
        sides = 1 + self.netdata
        changes = _CHANGE_SECONDS * self.changes * sides
        return (
            20.0
            + self.seconds * sides
            + min(self.seconds, _TRACE_SECONDS)
            + changes
            + _DEATH_SECONDS * self.deaths
            + sum(PAUSES[min(number, len(PAUSES) - 1)] for number in range(self.deaths - 1))
            + self.heap
        )


@dataclass(frozen=True)
class DashboardResult:
    """What came out."""

    figures: Mapping[str, float]
    """By name, with the unit in it."""
    settings: Mapping[str, float]
    machine: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        return {
            "bench": "dashboard",
            "settings": dict(self.settings),
            "figures": {name: round(value, 3) for name, value in self.figures.items()},
            "machine": dict(self.machine),
        }


def run(plan: DashboardPlan, folder: Path, report: Reporter) -> DashboardResult:
    """Measures all of it. Everything that it starts and reserves is gone when it returns or raises."""
    with own_folder("bench dashboard", folder, report) as (setting, made):
        report.stage("the node", plan.total_seconds)
        node = OwnNode(made, spec(plan.chains, plan.ports))
        try:
            node.command("up", str(node.spec))
            figures = {"page_kib": page_bytes() / 1024}
            with _tester(setting, node) as tester, dashboard_of(node.state) as (process, link):
                report.stage("looking on", plan.total_seconds)
                with looked_at(link) as page:
                    figures |= _looking_on(plan, tester, process.pid, page)
                    report.stage("changes", plan.total_seconds)
                    with netdata(setting, made) if plan.netdata else nullcontext() as peer:
                        figures |= _changes(plan, node, tester, page, peer)
                        if peer:
                            main, all_of_it = peer.percent(plan.seconds)
                            figures |= {"netdata_percent": main, "netdata_with_plugins_percent": all_of_it}
                    if plan.deaths:
                        report.stage("alarms", plan.total_seconds)
                        figures |= _deaths(plan, node, page)
                if plan.heap:
                    report.stage("the heap and the memory", plan.total_seconds)
                    with looked_at(link, plan.speed) as page:
                        figures |= _memory(plan, tester, process.pid, page)
        finally:
            node.command("down")
        settings = {each.name: getattr(plan, each.name) for each in fields(plan)}
        return DashboardResult(figures, settings, setting.machine())


def spec(chains: int, ports: int, function: str = "") -> str:
    """So many chains from tester.a to tester.b, and all ports with these two; one more chain with a function."""
    lines = ["fabric: {idle: sleep}", "ports:", *(f"  p{number}: " for number in range(ports - 2)), "chains:"]
    for number in range(chains):
        match = f"{{source: {FIRST_ADDRESS}{number % ADDRESSES}/32, source_port: {FIRST_PORT + number // ADDRESSES}, "
        lines.append(f"  chain-{number}: {{path: [tester.a, tester.b], match: {match}protocol: udp}}}}")
    if function:
        lines.insert(0, f"functions: {{{function}: skeleton}}")
        lines.append(f"  to-{function}: {{path: [tester.a, {function}, tester.b], match: {{source: {_NOBODY}}}}}")
    return "\n".join(line for line in lines if ports > 2 or line != "ports:") + "\n"


def page_bytes() -> int:
    """Bytes of the page with all that it loads, each file compressed by itself."""
    return sum(len(gzip.compress(path.read_bytes())) for path in _STATIC.iterdir() if path.is_file())


@contextmanager
def _tester(setting: Setting, node: OwnNode) -> Iterator[Tester]:
    ports = [(name, f"vhost:{node.state / 'sockets' / f'tester.{name}'}.sock") for name in "ab"]
    place = replace(setting.cores.load_place, nice=_TESTER_NICE)
    tester = Tester.start(setting.launcher, ports, place, memory_mib=TESTER_BUFFERS_MIB, huge=False)
    try:
        setting.versions |= tester.version()
        yield tester
    finally:
        tester.stop()


def _traffic(plan: DashboardPlan, tester: Tester, seconds: float) -> None:
    """Frames through all chains."""
    tester.begin(profile(64, plan.chains).streams(RATE * plan.chains), seconds, wait=1.0)


def _looking_on(plan: DashboardPlan, tester: Tester, server: int, page: Browser) -> dict[str, float]:
    """The server's CPU time and the page's frames, while frames pass all chains; then the frames' CPU time, traced."""
    _traffic(plan, tester, plan.seconds + _TRACE_SECONDS + 60)
    time.sleep(_SETTLE)
    page.evaluate("bench.frames = [], bench.pictures = 0")
    page.call("Performance.enable", timeDomain="threadTicks")
    began, busy, tasks = time.monotonic(), cpu_seconds(server), _metric(page, "TaskDuration")
    time.sleep(plan.seconds)
    lasted = time.monotonic() - began
    busy, tasks = cpu_seconds(server) - busy, _metric(page, "TaskDuration") - tasks
    frames = sorted(page.evaluate("bench.frames"))
    pictures = page.evaluate("bench.pictures")
    page.begin_trace(*_TRACED)
    time.sleep(min(plan.seconds, _TRACE_SECONDS))
    work = sorted(work_of(page.end_trace()))
    tester.cut_short(1.0)
    if not frames or not work:
        raise Failure("the page was sent no picture")
    return {
        "server_percent": busy / lasted * 100,
        "browser_percent": tasks / lasted * 100,
        "pictures_per_s": pictures / lasted,
        "frame_p50_ms": quantile(frames, 0.5),
        "frame_p99_ms": quantile(frames, 0.99),
        "frame_max_ms": frames[-1],
        "frame_cpu_p50_ms": quantile(work, 0.5),
        "frame_cpu_p99_ms": quantile(work, 0.99),
        "frame_cpu_max_ms": work[-1],
        "first_paint_ms": page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"),
    }


def work_of(events: Sequence[Mapping[str, Any]]) -> list[float]:
    """CPU time in ms that the page's main thread took for each picture: of all its tasks up to the next one. No wait
    for a core is in it."""
    marks = [each for each in events if each["name"] == "picture" and each.get("cat") == _TRACED[1]]
    if not marks:
        return []
    thread = marks[0]["pid"], marks[0]["tid"]
    times = sorted(each["ts"] for each in marks)
    work = [0.0] * len(times)
    for each in events:
        if each["name"] != "RunTask" or (each["pid"], each["tid"]) != thread or "tdur" not in each:
            continue
        # The mark of a picture is made within its first task.
        at = bisect_right(times, each["ts"] + each["dur"]) - 1
        if at >= 0:
            work[at] += each["tdur"] / 1e3
    return work[:-1]  # the last was not traced to its end


def _metric(page: Browser, name: str) -> float:
    found = page.call("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in found if each["name"] == name))


def quantile(ordered: Sequence[float], share: float) -> float:
    """By nearest rank."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def _changes(
    plan: DashboardPlan, node: OwnNode, tester: Tester, page: Browser, peer: Netdata | None
) -> dict[str, float]:
    """How long changes take to be seen: here, and in turn by the peer."""
    counters = Page(State(node.state, peek(node.state)).page)
    taken: dict[str, list[float]] = {"change_to_pixel": [], **({"change_to_netdata": []} if peer else {})}
    try:
        for _ in range(plan.changes):
            taken["change_to_pixel"].append(_change(counters, tester, page))
            if peer:
                taken["change_to_netdata"].append(peer.change())
    finally:
        counters.close()
    return _spread(taken)


def _spread(taken: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {
        f"{name}_{which}_ms": quantile(sorted(values), share)
        for name, values in taken.items()
        for which, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def _change(counters: Page, tester: Tester, page: Browser) -> float:
    """From the moment at which the first chain's counter has grown to when the page has painted its rate, in ms."""
    wait_for(page, "document.querySelector('[data-hop=\"chain-0/0\"]').textContent.startsWith('0')")
    page.evaluate(_WHEN_PAINTED.replace("WHAT", _RATE))
    changed: list[float] = []
    watching = threading.Thread(target=_watch, args=(counters, changed))
    watching.start()
    tester.begin(profile(64, 1).streams(1000.0), 0.5, wait=0.5)
    watching.join()
    painted = _painted(page, "a change of the first chain's rate")
    tester.cut_short(1.0)
    return painted - changed[0] * 1e3


def _painted(page: Browser, what: str) -> float:
    """When what was to be noted was painted, in ms of the wall clock. Raises Failure."""
    wait_for(page, "bench.painted !== null", f"paint {what}")
    return float(page.evaluate("bench.painted"))


def _deaths(plan: DashboardPlan, node: OwnNode, page: Browser) -> dict[str, float]:
    """How long it takes from SIGKILL for a function to when the bell has painted its death, in ms."""
    node.spec.write_text(spec(plan.chains, plan.ports, _DIES))
    node.command("apply", str(node.spec))
    page.evaluate("document.querySelector('.bell button').click()")
    taken: list[float] = []
    last = 0
    for _ in range(plan.deaths):
        last = _alive(node, last)
        page.evaluate(_WHEN_PAINTED.replace("WHAT", _ALARMS))
        began = time.time()
        os.kill(last, signal.SIGKILL)
        taken.append(_painted(page, f"the death of {_DIES}") - began * 1e3)
    return _spread({"death_to_alarm": taken})


def _alive(node: OwnNode, other_than: int) -> int:
    """The process of the function that dies, once it is another, and nothing is being started any more: what is killed
    as it starts has not died but failed. Raises Failure, Mistake."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        said = status(node.state)
        for each in said["processes"] if said["state"] == "up" else ():
            if each["function"] == _DIES and each["alive"] and each["pid"] != other_than:
                return int(each["pid"])
        time.sleep(0.5)
    raise Failure(f"the function {_DIES} has not come back")


def _watch(counters: Page, changed: list[float]) -> None:
    """Notes when the first hop's counter has grown."""

    def now() -> int:
        table = counters.table("hop")
        row = next(row for row, (name, _) in enumerate(table.slots) if name == "chain-0/0")
        return table.columns["forward_packets"][row]

    before, deadline = now(), time.monotonic() + 20
    while now() == before and time.monotonic() < deadline:
        time.sleep(0.001)
    changed.append(time.time())


def _memory(plan: DashboardPlan, tester: Tester, server: int, page: Browser) -> dict[str, float]:
    """The page's heap after a collection and the server's memory: once a minute of history is full, halfway, and at the
    end. What is kept for ever grows in both halves."""
    _traffic(plan, tester, plan.heap + 120)
    time.sleep(60 / plan.speed + _SETTLE)

    def used() -> dict[str, float]:
        page.evaluate("bench.frames = []")
        page.call("HeapProfiler.collectGarbage")
        return {
            "heap_mib": page.call("Runtime.getHeapUsage")["usedSize"] / 2**20,
            "nodes": float(page.call("Memory.getDOMCounters")["nodes"]),
            "server_mib": resident_mib(server),
        }

    taken = {"before": used()}
    pictures, began = page.evaluate("bench.pictures"), time.monotonic()
    for when in ("halfway", "after"):
        time.sleep(plan.heap / 2)
        taken[when] = used()
    pictures, lasted = page.evaluate("bench.pictures") - pictures, time.monotonic() - began
    tester.cut_short(1.0)
    found = {f"{when}_{name}": value for when, values in taken.items() for name, value in values.items()}
    return {"heap_pictures_per_s": pictures / lasted, **found}
