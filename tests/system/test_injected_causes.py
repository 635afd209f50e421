"""Delays that are put in on purpose, each known by its time: the right cause is ranked first.

The unit is one injection in a short trial. Of the slowest frames the slowest that was under way during it is asked for,
whatever else held up frames before and after; what it blames first must be what was put in.

Where something else held that frame up for longer than the injection did, the injection is not the right answer. That
is decided without asking for causes, from the stamps of the tester and the switch alone, and such an injection is made
again. So is one during which the kernel itself counted time that a hypervisor took, if most of the frame's time is told
as unexplained: that is the right answer then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from running_node import ONE, needs_a_node

from tailrace.functions.runtimes import program_of
from tailrace.measure.chain import LatencyMethod
from tailrace.measure.profile import profile
from tailrace.measure.session import Request, Session, Tracing, run_on_node
from tailrace.observe.gaps import Gaps
from tailrace.plan.make import make_plan
from tailrace.process.process import descendants
from tailrace.results.causes import Cause, CausedFrame
from tailrace.spec.load import parse_spec

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("tailrace-recorder", "tailrace-injector"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs, for the switch and for the rest"),
    pytest.mark.unsanitized,
]

RATE = 20_000.0
"""Frames a second each way: four each way in the shortest delay."""
SECONDS = 0.3
WAIT = 0.1
TRIES = 4


@dataclass(frozen=True)
class Kind:
    """A kind of injection, and the cause that must be found."""

    name: str
    thread: str
    """Whom it holds up; the injector is on that one's core."""
    cause: str
    word: str
    """In the cause's text."""
    delay_us: float | None
    """What it holds frames up for; None: as long as the disk takes."""

    def right(self, cause: Cause) -> bool:
        return (cause.kind, cause.thread) == (self.cause, self.thread) and self.word in cause.text


KINDS = (
    Kind("hog", "worker-0", "task", "tailrace-inject", 200),  # the kernel keeps 15 letters of a name
    Kind("storm", "worker-0", "interrupt", "the timer's interrupt", 400),
    Kind("fault", "first", "fault", "page faults of first", None),
    Kind("stop", "first", "stopped", "first was stopped by a signal", 5000),
)


@dataclass(frozen=True)
class Found:
    """What came of one injection."""

    kind: Kind
    frame: CausedFrame | None
    """The slowest that was under way."""
    inside_us: float
    """What of its time it was with the function."""
    least_us: float
    """The latency of the fastest of the slowest frames: one below is not among them."""
    stolen: bool
    """Whether a hypervisor took a CPU meanwhile."""

    @property
    def disturbed(self) -> bool:
        """Whether something else held frames up for longer."""
        delay = self.kind.delay_us
        if self.frame is None:
            return delay is not None and self.least_us > delay
        if self.stolen and self.frame.unexplained_us > self.frame.latency_us / 2:
            return True
        if delay is None:
            return self.inside_us < self.frame.latency_us / 2
        return self.frame.latency_us > 2 * delay

    @property
    def right(self) -> bool:
        return self.frame is not None and bool(self.frame.causes) and self.kind.right(self.frame.causes[0])

    def __str__(self) -> str:
        if self.frame is None:
            return f"{self.kind.name}: no slow frame"
        causes = ", ".join(f"{cause.us:.0f} µs {cause.text}" for cause in self.frame.causes)
        rest = f"{self.frame.unexplained_us:.0f} µs unexplained, {self.frame.usual_us:.0f} µs usual"
        return f"{self.kind.name}: {self.frame.latency_us:.0f} µs in {self.frame.part}: {causes}, {rest}"


def address_of(program: Path, symbol: str) -> int:
    """Where a function of a program is, as its symbols say."""
    lines = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return next(int(line.split()[0], 16) for line in lines if line.endswith(f" {symbol}"))


@contextmanager
def injector(binaries: Path, kind: Kind, session: Session) -> Iterator[subprocess.Popen[str]]:
    assert session.node is not None
    placement = session.node.plan.placement
    place = placement.functions.get(kind.thread, placement.switch)
    function = next(process for process in session.node.state.processes() if process.name == "first")
    inside = program_of(function)
    assert inside is not None
    argv = [binaries / "test/tailrace-injector", kind.name, "--cpu", place.core, "--process", inside]
    argv += ["--at", address_of(binaries / "functions/tailrace-vnf", "forward_run")]
    with subprocess.Popen(
        [str(word) for word in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def inject(session: Session, kind: Kind, process: subprocess.Popen[str]) -> Found:
    """One trial with one injection in it, which begins once frames have been on their way for a while."""
    assert process.stdin is not None and process.stdout is not None
    requests = process.stdin
    watch, asked = session.check, False

    def check() -> None:
        nonlocal asked
        watch()
        if not asked:
            asked = True
            requests.write("\n")
            requests.flush()

    session.check = check
    stolen = stolen_ticks()
    try:
        result = session.measure(profile(64).streams(RATE), SECONDS, WAIT, kind.name)
    finally:
        session.check = watch
    begin, end = map(int, process.stdout.readline().split())
    hz = result["tsc_hz"]
    slowest = [
        (frame, sum(us for us, part in zip(slow.parts_us, slow.parts, strict=True) if part == "first"))
        for joined in result["hops"].values()
        for frame in joined.hops.causes.frames
        for slow in joined.hops.slowest
        if slow.sequence == frame.sequence
    ]
    under_way = [
        (frame, inside)
        for frame, inside in slowest
        if frame.sent_tsc < end and frame.sent_tsc + frame.latency_us * 1e-6 * hz > begin
    ]
    frame, inside = max(under_way, key=lambda each: each[0].latency_us, default=(None, 0.0))
    least = min((frame.latency_us for frame, _ in slowest), default=0.0)
    return Found(kind, frame, inside, least, stolen_ticks() > stolen)


def stolen_ticks() -> int:
    """Time that a hypervisor has taken from all CPUs so far (proc(5): the eighth number), in ticks."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8])


def inject_until_undisturbed(session: Session, kind: Kind, process: subprocess.Popen[str]) -> Found:
    """The first injection that is the greatest of what held frames up; the last where none was."""
    for _ in range(TRIES - 1):
        found = inject(session, kind, process)
        if not found.disturbed:
            return found
        print(f"again  {found}")
    return inject(session, kind, process)


def prefer(session: Session) -> None:
    """Everything that takes part goes before whatever else runs on this machine, and stays alike among itself."""
    assert session.node is not None
    for process in (process.pid for process in session.node.state.processes()):
        for each in (process, *descendants(process)):
            for thread in Path(f"/proc/{each}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), -20)
            set_autogroup(each, -20)
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    set_autogroup(os.getpid(), -20)


def set_autogroup(process: int, nice: int) -> None:
    """Where the kernel shares time among sessions first (sched_autogroup), only this is heard by the others.

    The file is empty for a process that never had a session of its own: it is in no group, and its nice value counts.
    """
    path = Path(f"/proc/{process}/autogroup")
    if path.exists() and path.read_text():
        path.write_text(str(nice))


@pytest.fixture
def itself() -> Iterator[None]:
    """A measurement keeps itself off the switch's core, and here it is this process that measures."""
    before = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    yield
    os.sched_setaffinity(0, before[0])
    os.setpriority(os.PRIO_PROCESS, 0, before[1])
    set_autogroup(os.getpid(), before[1])


def run_one(folder: Path, work: Callable[[Session], None]) -> None:
    request = Request("causes", folder / "runs", folder / "state", ("tailrace",), ONE, "causes")
    finished = run_on_node(request, make_plan(parse_spec(ONE, "causes")), work)
    if finished.error is not None:
        raise finished.error


@pytest.mark.requires_first_pid_namespace
@pytest.mark.usefixtures("itself")
@pytest.mark.parametrize("times", [5, pytest.param(25, marks=pytest.mark.whole)])
def test_what_was_put_in_is_ranked_first(
    binaries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setenv("TAILRACE_STATE", str(tmp_path / "state"))
    all_found: list[Found] = []

    def work(session: Session) -> None:
        method = LatencyMethod(tracing=Tracing(causes=True))
        method.begin(session)
        prefer(session)
        try:
            with ExitStack() as stack:
                processes = [(kind, stack.enter_context(injector(binaries, kind, session))) for kind in KINDS]
                for _ in range(times):
                    all_found.extend(inject_until_undisturbed(session, *each) for each in processes)
        finally:
            method.end(session)

    run_one(tmp_path, work)
    said = "\n".join(f"{'right' if found.right else 'WRONG'} {found}" for found in all_found)
    print(said)
    assert len(all_found) == len(KINDS) * times
    assert sum(found.right for found in all_found) >= 0.95 * len(all_found), said


@pytest.mark.usefixtures("itself")
def test_the_switch_notes_how_long_frames_waited_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is stopped for so long that its ring must be full."""
    monkeypatch.setenv("TAILRACE_STATE", str(tmp_path / "state"))
    rate, stopped = 150_000.0, 0.015
    waits: list[float] = []

    def work(session: Session) -> None:
        assert session.node is not None
        (switch,) = (process for process in session.node.state.processes() if process.name == "switch")
        function = next(process for process in session.node.state.processes() if process.name == "first")
        inside = program_of(function)
        assert inside is not None
        watch = session.check

        def check() -> None:
            watch()
            os.kill(inside, signal.SIGSTOP)
            try:
                time.sleep(stopped)
            finally:
                os.kill(inside, signal.SIGCONT)

        session.check = check
        gaps = Gaps(switch.pid)
        session.measure(profile(64).streams(rate), 2.5, WAIT, "waits")
        session.check = watch
        found, _, _ = gaps.loops[0].waits_between(0, 1 << 63)
        waits.extend((wait.end - wait.begin) / gaps.tsc_hz for wait in found)
        gaps.close()

    run_one(tmp_path, work)
    assert max(waits) > 0.001, waits
