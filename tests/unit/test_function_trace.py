"""Lines of a kernel's function graph are read within bounds, by the clock of who asks; a machine may say anything."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import Failure
from tailrace.functions import agent
from tailrace.measure import function_trace
from tailrace.measure.function_trace import MOST_DEPTH, MOST_LINES, FunctionPaths, FunctionTracer, read_functions
from tailrace.observe.recording import Event
from tailrace.process.programs import finished
from tailrace.state import function_tracer
from tailrace.state.function_tracer import FORGET, alone, disarming, instance_of
from tailrace.state.record import ArmedTracer

HZ = 2_000_000_000
BEGIN, END = 5_000_000_000, 5_010_000_000
"""In lines' seconds 5.000000 and 5.010000: a µs there is a thousand cycles."""
GRAPH = """\
    5.000100 |   0)  tailrac-148  |   0.500 us    |  irq_enter_rcu();
    5.000200 |   0)  tailrac-148  |               |  __do_softirq() {
    5.000300 |   0)  tailrac-148  | + 10.000 us   |    net_rx_action();
    5.000300 |   1)  tailrac-148  |   0.500 us    |    of_another_cpu();
 ------------------------------------------
   0)  tailrac-148  =>   <idle>-0
 ------------------------------------------

    5.000400 |   0)    <idle>-0   |               |  schedule_idle() {
    5.000500 |   0)  tailrac-148  | ! 150.000 us  |  } /* __do_softirq */
    5.000600 |   0)    <idle>-0   |   2.000 us    |  virtnet_poll [virtio_net]();
"""


NOW = "    6.000000 |   0)    <idle>-0   |   1.000 us    |  do_idle();\n"


def event(begin: int, end: int, name: str, thread: int, depth: int, machine: str = "") -> Event:
    return Event(BEGIN + begin, BEGIN + end, 0, "function", thread, name, depth, machine)


def test_calls_and_returns_are_functions_of_each_thread() -> None:
    assert list(read_functions(GRAPH.splitlines(), BEGIN, END, HZ, 0)) == [
        event(100_000, 101_000, "irq_enter_rcu", 148, 0),
        event(300_000, 320_000, "net_rx_action", 148, 1),
        event(200_000, 500_000, "__do_softirq", 148, 0),
        event(600_000, 604_000, "virtnet_poll", 0, 1),
        event(400_000, END - BEGIN, "schedule_idle", 0, 0),  # it has not returned by then
    ]


def test_what_was_called_before_the_first_line_reaches_until_there() -> None:
    lines = ["5.000100 | 0) a-7 | ! 150.000 us | } /* schedule */", "5.000200 | 0) a-7 | 1.000 us | }"]
    assert list(read_functions(lines, BEGIN, END, HZ, 0)) == [event(0, 100_000, "schedule", 7, 0)]


@pytest.mark.parametrize(
    "line",
    [
        "", "5.000100", "5.000100 | 0) a-7 | 1.000 us |", "x.000100 | 0) a-7 | 1.000 us | f();",
        "5.000100 | 0) a | 1.000 us | f();", "5.000100 | 0) a-7 | 1.000 us | f\x1b[0m();",
        "4.000100 | 0) a-7 | 1.000 us | f();", "6.000100 | 0) a-7 | 1.000 us | f();",
        "5.000100 | 0) a-7 | 1.000 us | " + "f" * 300 + "();", "5.000100 | 0) a-7 | us | f();",
    ],
)  # fmt: skip
def test_what_is_no_line_of_that_time_is_left_out(line: str) -> None:
    assert list(read_functions([line], BEGIN, END, HZ, 0)) == []


def test_a_function_that_calls_none_is_over_with_the_next_line() -> None:
    """The kernel prints how long it took by another clock, which an emulated machine's may have a wrong rate of."""
    lines = ["5.000100 | 0) a-7 | ! 900.000 us | f();", "5.000200 | 0) b-8 | 1.000 us | g();"]
    assert list(read_functions(lines, BEGIN, END, HZ, 0)) == [
        event(100_000, 201_000, "f", 7, 0),
        event(200_000, 202_000, "g", 8, 0),
    ]


def test_how_deep_calls_are_is_bounded() -> None:
    lines = [f"5.{number:06} | 0) a-7 | | f{number}() {{" for number in range(1, 3 * MOST_DEPTH)]
    assert max(each.extra for each in read_functions(lines, BEGIN, END, HZ, 0)) == MOST_DEPTH - 1


_PIECES = st.sampled_from(
    ["5.000100", "5.009999", "0.0", " | ", "0) ", "a-7", "-", "1.5 us", "99999999 us", "f() {", "f();", "}", "/* f */",
     "\t", "\x00", "é"]
)  # fmt: skip
_CALLS = st.sampled_from(["f() {", "g();", "}", "} /* f */", "} /* g */"])
_LIKE = st.builds(
    lambda us, thread, took, call: f"5.{us:06} | 0) a-{thread} | {took}| {call}",
    st.integers(0, 20_000), st.integers(0, 3), st.sampled_from(["", "1.000 us ", "+ 999999999999 us "]), _CALLS,
)  # fmt: skip


@given(st.lists(st.one_of(st.text(max_size=80), st.lists(_PIECES, max_size=12).map("".join), _LIKE), max_size=60))
def test_whatever_lines_say_functions_lie_in_the_time_asked_for(lines: list[str]) -> None:
    found = list(read_functions(lines, BEGIN, END, HZ, 0, "tuned"))
    assert len(found) <= len(lines)
    for each in found:
        assert BEGIN <= each.begin <= each.end <= END and 0 <= each.extra < MOST_DEPTH
        assert (each.cpu, each.kind, each.inside) == (0, "function", "tuned") and each.name.isprintable()


def test_a_machines_functions_are_by_this_hosts_clock_and_few() -> None:
    scripts: list[str] = []

    def ask(script: str, _: float) -> str:
        scripts.append(script)
        return GRAPH + "5.000700 | 0) b-9 | 1.000 us | f();\n" * 2 * MOST_LINES

    offset = 4_000_000_000
    found = FunctionTracer(0, "tuned", ask).take(BEGIN - offset, BEGIN + 1_000_000 - offset, HZ, offset)
    assert f"begin={BEGIN - 2_000_000}\n" in scripts[0] and f"end={BEGIN + 1_400_000}\n" in scripts[0]
    assert len(found) <= MOST_LINES and found[0] == event(100_000, 101_000, "irq_enter_rcu", 148, 0, "tuned")._replace(
        begin=BEGIN + 100_000 - offset, end=BEGIN + 101_000 - offset
    )


def test_one_that_cannot_be_asked_any_more_is_left_alone_and_the_other_goes_on() -> None:
    def fails(_: str, __: float) -> str:
        raise Failure("it does not answer")

    paths = FunctionPaths(HZ, FunctionTracer(0, ask=lambda _, __: GRAPH), FunctionTracer(0, "tuned", fails))
    assert len(paths.take(BEGIN, END, 0)) == 5
    assert paths.faults == ["of its guest: it does not answer"] and paths.machine is None
    assert len(paths.take(BEGIN, END, 0)) == 5 and len(paths.faults) == 1


@dataclass
class Host:
    """In place of a session of this host's: what it is asked to do, and what it cannot."""

    folder: Path
    fails: str = ""
    done: list[str] = field(default_factory=list)

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what == self.fails:
            raise Failure(f"{what}: it cannot be")

    def tracer(self, monkeypatch: pytest.MonkeyPatch) -> FunctionTracer:
        def add(thing: ArmedTracer) -> None:
            self._do(f"recorded {Path(thing.note).name} {thing.instance}")

        def undo(_: ArmedTracer) -> str:
            self._do("undone")
            return "the disk is full"

        monkeypatch.setattr(function_trace, "run_here", lambda _: self._do("found"))
        monkeypatch.setattr(function_trace, "alone", nullcontext)
        monkeypatch.setattr(FunctionTracer, "arm", lambda tracer: self._do(f"armed {tracer.cpu}"))
        launcher = SimpleNamespace(state=SimpleNamespace(folder=self.folder, add=add, undo=undo))
        return FunctionTracer.here(launcher, 1)  # type: ignore[arg-type]


def test_only_one_node_at_a_time_sets_the_tracer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_tracer, "_LOCK", tmp_path / "lock")
    monkeypatch.setattr(function_tracer, "_PATIENCE", 0.0)
    said = rf"process {os.getpid()} \(.*\) has been setting the kernel's tracer for 0 s; end it"
    with alone():
        with pytest.raises(Failure, match=said), alone():
            pass
        assert "has been setting" in str(function_tracer.disarm_here(str(tmp_path / "note"), "ours"))
    with alone():
        pass


def test_of_this_host_it_is_on_record_before_it_is_armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, instance = Host(tmp_path), instance_of(tmp_path)
    assert host.tracer(monkeypatch).instance == instance
    assert host.done == ["found", f"recorded functions {instance}", "armed 1"]
    assert instance != instance_of(tmp_path / "another")  # its node may trace, too


def test_what_cannot_be_armed_is_undone_and_without_tracefs_never_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without, refuses = Host(tmp_path, "found"), Host(tmp_path, "armed 1")
    with pytest.raises(Failure, match="found: it cannot be"):
        without.tracer(monkeypatch)
    assert without.done == ["found"]
    with pytest.raises(Failure, match="armed 1: it cannot be; and it could not be put back: the disk is full"):
        refuses.tracer(monkeypatch)
    assert refuses.done[2:] == ["armed 1", "undone"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_machine_that_cannot_be_armed_is_not_traced_or_that_is_said(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    asked: list[str] = []

    def ask(_: Path, script: str, __: float) -> str:
        asked.append(script)
        if len(asked) == 1 or not ends:
            raise Failure("it is late")
        return ""

    monkeypatch.setattr(agent, "ask", ask)
    with pytest.raises(Failure) as said:
        FunctionTracer.inside("tuned", Path("agent"))
    assert asked[1:] == [disarming("/run/functions", "tailrace-functions")]
    assert str(said.value) == ("it is late" if ends else "it is late; its kernel may still be traced: it is late")


def test_what_a_script_prints_need_not_be_text() -> None:
    line = r"5.000100 | 0) caf\303-7 | 1.000 us | f();"  # the kernel cuts names after 15 bytes
    printed = finished(["printf", f"{line}\\n"]).stdout
    assert [each.name for each in read_functions(printed.splitlines(), BEGIN, END, HZ, 0)] == ["f"]


# --- the scripts, with files in place of a kernel's -----------------------------------------------------------------


def tracefs(folder: Path, *, snapshot: bool = True, options: bool = True) -> Path:
    """Files as a kernel has them, where writing does nothing but to keep what was written."""
    for name in ("per_cpu/cpu0", "options", "instances", "events"):
        (folder / name).mkdir(parents=True)
    for option in ("abstime", "proc", "overhead", "tail") if options else ():
        (folder / f"options/funcgraph-{option}").write_text("0\n")
    for name, text in {
        "available_tracers": "function_graph function nop", "current_tracer": "nop", "trace_clock": "[local] x86-tsc",
        "set_ftrace_filter": "#### all functions enabled ####", "buffer_size_kb": "7 (expanded: 1408)",
        "tracing_on": "1", "tracing_cpumask": "f", "trace": "", "per_cpu/cpu0/buffer_size_kb": "7",
        "available_filter_functions": "schedule\nschedule_tail\nvirtnet_poll [virtio_net]\nelse",
        "set_ftrace_notrace": "#### no functions disabled ####", "set_ftrace_pid": "no pid", "max_graph_depth": "0",
        "set_graph_function": "#### all functions enabled ####", "events/enable": "0",
    }.items():  # fmt: skip
        (folder / name).write_text(f"{text}\n")
    if snapshot:
        (folder / "snapshot").write_text("# tracer: nop\n#\n# * Snapshot is freed *\n")
    early, late = GRAPH.splitlines(keepends=True)[:1], GRAPH.splitlines(keepends=True)[1:]
    if snapshot:  # the buffer of now has what came before the last snapshot
        (folder / "per_cpu/cpu0/trace").write_text("".join([*early, NOW]))
        (folder / "per_cpu/cpu0/snapshot").write_text("".join(late))
    else:
        (folder / "per_cpu/cpu0/trace").write_text(GRAPH)
    return folder


Asks = Callable[[str, float], str]


def asks(top: Path, *, instance: Path | None = None) -> Asks:
    """Runs scripts where these files are the kernel's. A new instance of a kernel's has files at once: those of
    `instance`, or of one that has no tracer of functions; and they go with it."""
    files = f"cp -r {instance}/. $1" if instance is not None else "echo nop >$1/available_tracers"
    kernel = f"mkdir() {{ command mkdir $1 && {files}; }}\nrmdir() {{ rm -r $1; }}\nmount() {{ false; }}\n"

    def run(script: str, seconds: float) -> str:
        script = kernel + script.replace("t=/sys/kernel/tracing\n", f"t={top}\n")
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode != 0:
            raise Failure(done.stdout.strip() or done.stderr.strip())
        return done.stdout

    return run


def tracer_of(folder: Path, ask: Asks) -> FunctionTracer:
    return FunctionTracer(0, ask=ask, note=str(folder / "note"), instance="ours")


SET = ("current_tracer", "trace_clock", "tracing_cpumask", "buffer_size_kb", "tracing_on", "options/funcgraph-proc")
FOUND = ["nop", "[local] x86-tsc", "f", "7 (expanded: 1408)", "1", "0"]
PUT_BACK = ["nop", "local", "f", "1408", "1", "0"]
TRACES = ["function_graph", "x86-tsc", "1", "4", "1", "1"]


BOOT = f"boot {Path('/proc/sys/kernel/random/boot_id').read_text()}"


def is_set(top: Path) -> list[str]:
    return [(top / name).read_text().strip() for name in SET]


def tree_of(top: Path) -> dict[str, str]:
    return {str(each.relative_to(top)): each.read_text() for each in top.rglob("*") if each.is_file()}


def check_it_traces(tracer: FunctionTracer, where: Path) -> None:
    assert (where / "set_ftrace_filter").read_text().split() == ["schedule", "virtnet_poll"]
    assert (where / "per_cpu/cpu0/buffer_size_kb").read_text() == "1024\n"
    (where / "per_cpu/cpu0/stats").write_text(f"now ts: {BEGIN}\n")
    tracer.take(BEGIN, BEGIN, HZ)
    names = {each.name for each in tracer.take(BEGIN, BEGIN + 100_000, HZ)}
    assert names == {"irq_enter_rcu", "net_rx_action", "__do_softirq", "schedule_idle"}  # not of later
    if (where / "snapshot").exists():  # what came before the last snapshot is not read for what came after it
        (where / "per_cpu/cpu0/stats").write_text(f"now ts: {BEGIN - HZ // 1000 - 1}\n")
        tracer.take(BEGIN, BEGIN, HZ)
        assert "irq_enter_rcu" not in {each.name for each in tracer.take(BEGIN, BEGIN + 100_000, HZ)}
    assert (where / "tracing_on").read_text() == "1\n"


@pytest.mark.parametrize("snapshot", [True, False])
def test_where_functions_are_traced_in_one_place_only_all_is_put_back(tmp_path: Path, snapshot: bool) -> None:
    top = tracefs(tmp_path / "tracing", snapshot=snapshot)
    tracer = tracer_of(tmp_path, asks(top))
    tracer.arm()
    assert is_set(top) == TRACES
    check_it_traces(tracer, top)
    tracer.disarm()
    assert is_set(top) == PUT_BACK
    assert list(tmp_path.glob("note*")) == [] and list((top / "instances").iterdir()) == []
    tracer.disarm()


@pytest.mark.parametrize("own", [True, False], ids=["options of its own", "options of all"])
@pytest.mark.parametrize("snapshot", [True, False])
def test_where_an_instance_traces_functions_nothing_else_changes(tmp_path: Path, own: bool, snapshot: bool) -> None:
    top, made = tracefs(tmp_path / "tracing"), tracefs(tmp_path / "made", snapshot=snapshot, options=own)
    (top / "events/enable").write_text("1\n")  # somebody's events do not matter
    before = tree_of(top)
    tracer = tracer_of(tmp_path, asks(top, instance=made))
    tracer.arm()
    ours = top / "instances/ours"
    assert [(ours / name).read_text().strip() for name in SET[:-1]] == TRACES[:-1]
    assert ((ours if own else top) / "options/funcgraph-proc").read_text() == "1\n"
    assert is_set(top)[:-1] == FOUND[:-1]
    check_it_traces(tracer, ours)
    with pytest.raises(Failure, match=r"used by somebody else \(instances/ours/current_tracer\)"):
        tracer_of(tmp_path / "made", tracer.ask).arm()
    tracer.disarm()
    assert tree_of(top) == before
    assert list(tmp_path.glob("note*")) == []


ELSES = {
    "current_tracer": "function", "events/enable": "X", "buffer_size_kb": "X", "set_ftrace_filter": "schedule",
    "snapshot": "# * Snapshot is allocated *", "set_ftrace_notrace": "schedule", "set_ftrace_pid": "1",
}  # fmt: skip
OF_ALL = {"set_graph_function": "schedule", "max_graph_depth": "3", "instances/other/current_tracer": "function_graph"}


@pytest.mark.parametrize(("name", "text"), [*ELSES.items(), *OF_ALL.items()])
def test_a_tracer_that_is_somebody_elses_is_left_alone(tmp_path: Path, name: str, text: str) -> None:
    top, made = tracefs(tmp_path / "tracing"), tracefs(tmp_path / "made")
    (top / "instances/other").mkdir()
    (top / name).write_text(f"{text}\n")
    before = tree_of(top)
    ways = [asks(top), asks(top, instance=made)] if name in OF_ALL else [asks(top)]
    for ask in ways:
        tracer = tracer_of(tmp_path, ask)
        (tmp_path / "note").write_text("boot another\ntracing_on 0\ncurrent_tracer nop\n")
        with pytest.raises(Failure, match=re.escape(f"its tracer of functions is used by somebody else ({name})")):
            tracer.arm()
        tracer.disarm()
        assert tree_of(top) == before


def test_a_kernel_without_it_or_with_our_instance_is_refused(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    tracer = tracer_of(tmp_path, asks(top))
    (top / "instances/ours").mkdir()
    with pytest.raises(Failure, match="its tracer cannot have an instance of its own"):
        tracer.arm()
    (top / "instances/ours").rmdir()
    (top / "available_filter_functions").write_text("none of them\n")  # else all of its functions would be traced
    with pytest.raises(Failure, match="its kernel has none of these functions"):
        tracer.arm()
    (top / "available_tracers").write_text("nop\n")
    with pytest.raises(Failure, match="has no tracer function_graph"):
        tracer.arm()
    assert is_set(top) == FOUND


def test_a_kernel_that_refuses_says_what_it_said_and_is_put_back(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    (top / "per_cpu/cpu0/buffer_size_kb").unlink()
    (top / "per_cpu/cpu0/buffer_size_kb").mkdir()
    tracer = tracer_of(tmp_path, asks(top))
    with pytest.raises(Failure, match=r"its tracer of functions refuses: .*buffer_size_kb"):
        tracer.arm()
    assert is_set(top)[0] == "nop"
    tracer.disarm()
    assert is_set(top) == PUT_BACK


def test_what_cannot_be_put_back_is_said_and_done_later(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    tracer = tracer_of(tmp_path, asks(top))
    tracer.arm()
    clock = top / "trace_clock"
    clock.unlink()
    clock.mkdir()
    with pytest.raises(Failure, match="trace_clock"):
        tracer.disarm()
    assert (tmp_path / "note").exists()
    clock.rmdir()
    assert [(top / name).read_text() for name in ("current_tracer", "buffer_size_kb")] == ["nop\n", "1408\n"]
    tracer.disarm()
    assert is_set(top) == PUT_BACK


def test_without_a_note_that_can_be_written_nothing_is_set(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    before = tree_of(top)
    with pytest.raises(Failure, match=r"missing/note cannot be written"):
        tracer_of(tmp_path / "missing", asks(top)).arm()
    full = tracer_of(tmp_path, asks(top))
    for name in ("note.functions", "note.new"):  # as on a full disk
        file = tmp_path / name
        file.symlink_to("/dev/full")
        with pytest.raises(Failure, match=r"/note cannot be written"):
            FunctionTracer(0, ask=lambda script, seconds: full.ask(_kept(script), seconds), note=full.note).arm()
        file.unlink()
    (tmp_path / "note").mkdir()
    with pytest.raises(Failure, match=r"/note cannot be removed"):
        full.arm()
    assert tree_of(top) == before


def _kept(script: str) -> str:
    return script.replace(FORGET, "true")


def test_a_note_sets_nothing_else(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    (tmp_path / "note").write_text(f"{BOOT}../else 1\ncurrent_tracer function\n")
    tracer_of(tmp_path, asks(top)).disarm()
    assert is_set(top) == FOUND and not (tmp_path / "else").exists()


def test_a_note_of_another_boot_is_of_a_kernel_that_is_gone(tmp_path: Path) -> None:
    top, none = tracefs(tmp_path / "tracing"), tmp_path / "nothing"
    before = tree_of(top)
    for where in (top, none):
        (tmp_path / "note").write_text("boot another\ntracing_on 0\n")
        tracer_of(tmp_path, asks(where)).disarm()
        assert not (tmp_path / "note").exists()
    assert tree_of(top) == before


def test_what_a_killed_run_has_armed_is_put_back_before_it_is_armed_anew(tmp_path: Path) -> None:
    top, made = tracefs(tmp_path / "tracing"), tracefs(tmp_path / "made")
    before = tree_of(top)
    for _ in range(2):
        tracer = tracer_of(tmp_path, asks(top, instance=made))
        tracer.arm()
    check_it_traces(tracer, top / "instances/ours")
    tracer.disarm()
    assert tree_of(top) == before


def test_what_a_killed_run_has_armed_for_the_whole_kernel_is_put_back(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    tracer = tracer_of(tmp_path, asks(top))
    tracer.arm()
    with pytest.raises(Failure, match="cannot use the TSC"):  # of the clocks this file has only the one that was set
        tracer.arm()
    assert is_set(top) == PUT_BACK and list(tmp_path.glob("note*")) == []


def test_what_a_killed_run_has_armed_and_cannot_be_put_back_is_said(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    tracer = tracer_of(tmp_path, asks(top))
    tracer.arm()
    note = (tmp_path / "note").read_text()
    clock = top / "trace_clock"
    clock.unlink()
    clock.mkdir()
    with pytest.raises(Failure, match=r"which a run before has armed, cannot be put back: .*trace_clock"):
        tracer.arm()
    assert (tmp_path / "note").read_text() == note


def test_an_older_versions_note_is_of_no_boot_and_is_put_back(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    tracer = tracer_of(tmp_path, asks(top))
    tracer.arm()
    note = tmp_path / "note"
    note.write_text(note.read_text().removeprefix(BOOT))
    tracer.disarm()
    assert is_set(top) == PUT_BACK and not note.exists()


def test_without_tracefs_nothing_was_armed(tmp_path: Path) -> None:
    tracer = tracer_of(tmp_path, asks(tmp_path / "nothing"))
    with pytest.raises(Failure, match="tracefs cannot be mounted"):
        tracer.arm()
    tracer.disarm()
    (tmp_path / "note").write_text(f"{BOOT}tracing_on 1\n")
    with pytest.raises(Failure, match="tracefs cannot be mounted"):
        tracer.disarm()
