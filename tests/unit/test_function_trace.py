"""Lines of a kernel's function graph are read within bounds, by the clock of who asks; a machine may say anything."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import Failure
from tailrace.measure.function_trace import MOST_DEPTH, MOST_LINES, FunctionPaths, FunctionTracer, read_functions
from tailrace.observe.recording import Event
from tailrace.state.function_tracer import disarming
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

    def ask(script: str) -> str:
        scripts.append(script)
        return GRAPH + "5.000700 | 0) b-9 | 1.000 us | f();\n" * 2 * MOST_LINES

    offset = 4_000_000_000
    found = FunctionTracer(0, "tuned", ask).take(BEGIN - offset, BEGIN + 1_000_000 - offset, HZ, offset)
    assert f"begin={BEGIN - 2_000_000}\n" in scripts[0] and f"end={BEGIN + 1_400_000}\n" in scripts[0]
    assert len(found) <= MOST_LINES and found[0] == event(100_000, 101_000, "irq_enter_rcu", 148, 0, "tuned")._replace(
        begin=BEGIN + 100_000 - offset, end=BEGIN + 101_000 - offset
    )


def test_one_that_cannot_be_asked_any_more_is_left_alone_and_the_other_goes_on() -> None:
    def fails(_: str) -> str:
        raise Failure("it does not answer")

    paths = FunctionPaths(HZ, FunctionTracer(0, ask=lambda _: GRAPH), FunctionTracer(0, "tuned", fails))
    assert len(paths.take(BEGIN, END, 0)) == 5
    assert paths.faults == ["of its guest: it does not answer"] and paths.machine is None
    assert len(paths.take(BEGIN, END, 0)) == 5 and len(paths.faults) == 1


@pytest.mark.parametrize("works", [True, False])
def test_of_this_host_it_is_on_record_before_it_is_armed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    done: list[str] = []

    def add(thing: ArmedTracer) -> None:
        done.append(f"recorded {Path(thing.note).name}")

    def arm(tracer: FunctionTracer) -> None:
        done.append(f"armed {tracer.cpu}")
        if not works:
            raise Failure("its kernel has no tracer function_graph")

    monkeypatch.setattr(FunctionTracer, "arm", arm)
    state = SimpleNamespace(folder=tmp_path, add=add, undo=lambda _: done.append("undone"))
    launcher = SimpleNamespace(state=state)
    if works:
        assert FunctionTracer.here(launcher, 1).machine == ""  # type: ignore[arg-type]
    else:
        with pytest.raises(Failure):
            FunctionTracer.here(launcher, 1)  # type: ignore[arg-type]
    assert done == ["recorded functions", "armed 1", *([] if works else ["undone"])]


# --- the scripts, with files in place of a kernel's -----------------------------------------------------------------


def tracefs(folder: Path, *, snapshot: bool = True) -> Path:
    """Files as a kernel has them, where writing does nothing but to keep what was written."""
    (folder / "per_cpu/cpu0").mkdir(parents=True)
    for name in ("options", "instances"):
        (folder / name).mkdir()
    for option in ("abstime", "proc", "overhead", "tail"):
        (folder / f"options/funcgraph-{option}").write_text("0\n")
    for name, text in {
        "available_tracers": "function_graph function nop", "current_tracer": "nop", "trace_clock": "[local] x86-tsc",
        "set_ftrace_filter": "#### all functions enabled ####", "buffer_size_kb": "7 (expanded: 1408)",
        "tracing_on": "1", "tracing_cpumask": "f", "trace": "", "per_cpu/cpu0/buffer_size_kb": "7",
        "available_filter_functions": "schedule\nschedule_tail\nvirtnet_poll [virtio_net]\nelse",
    }.items():  # fmt: skip
        (folder / name).write_text(f"{text}\n")
    if snapshot:
        (folder / "snapshot").write_text("")
    (folder / f"per_cpu/cpu0/{'snapshot' if snapshot else 'trace'}").write_text(GRAPH)
    return folder


def tracer_of(folder: Path, top: Path) -> FunctionTracer:
    """Of these files. A kernel's new instance has files at once, and this one's has no tracer of functions."""
    made = "\t(cd $t/instances/tailrace-functions && echo nop >available_tracers)\n\trmdir() { rm -r $1; }\n"

    def run(script: str) -> str:
        script = script.replace("t=/sys/kernel/tracing\n", f"t={top}\n").replace(_NEW, _NEW + made)
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise Failure(done.stdout.strip() or done.stderr.strip())
        return done.stdout

    return FunctionTracer(0, ask=run, note=str(folder / "note"))


_NEW = "mkdir $d 2>/dev/null || { [ -d $d ] || { echo 'its tracer can have no instances'; exit 1; }; }\n"
SET = ("current_tracer", "trace_clock", "tracing_cpumask", "buffer_size_kb", "tracing_on", "options/funcgraph-proc")


def is_set(top: Path) -> list[str]:
    return [(top / name).read_text().strip() for name in SET]


@pytest.mark.parametrize("snapshot", [True, False])
def test_where_functions_are_traced_in_one_place_only_all_is_put_back(tmp_path: Path, snapshot: bool) -> None:
    top = tracefs(tmp_path / "tracing", snapshot=snapshot)
    tracer = tracer_of(tmp_path, top)
    tracer.arm()
    assert is_set(top) == ["function_graph", "x86-tsc", "1", "4", "1", "1"]
    assert (top / "set_ftrace_filter").read_text().split() == ["schedule", "virtnet_poll"]
    assert (top / "per_cpu/cpu0/buffer_size_kb").read_text() == "1024\n"
    if snapshot:  # the kernel has it as it was armed
        (top / "per_cpu/cpu0/snapshot").write_text(GRAPH)
    names = {each.name for each in tracer.take(BEGIN, BEGIN + 100_000, HZ)}
    assert names == {"irq_enter_rcu", "net_rx_action", "__do_softirq", "schedule_idle"}  # not of later
    assert is_set(top)[4] == "1"
    tracer.ask(disarming(tracer.note))
    assert is_set(top) == ["nop", "local", "f", "1408", "1", "0"]
    assert list(tmp_path.glob("note*")) == [] and list((top / "instances").iterdir()) == []


def test_a_tracer_that_is_somebody_elses_or_is_none_is_left_alone(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    tracer = tracer_of(tmp_path, top)
    (top / "current_tracer").write_text("function\n")
    with pytest.raises(Failure, match="is used by somebody else"):
        tracer.arm()
    tracer.ask(disarming(tracer.note))
    assert is_set(top) == ["function", "[local] x86-tsc", "f", "7 (expanded: 1408)", "1", "0"]
    (top / "available_tracers").write_text("nop\n")
    with pytest.raises(Failure, match="has no tracer function_graph"):
        tracer.arm()


def test_a_kernel_that_refuses_says_what_it_said_and_is_put_back(tmp_path: Path) -> None:
    top = tracefs(tmp_path / "tracing")
    (top / "available_filter_functions").write_text("none of them\n")  # else all of its functions would be traced
    tracer = tracer_of(tmp_path, top)
    with pytest.raises(Failure, match="its tracer of functions refuses: it has none of these functions"):
        tracer.arm()
    assert is_set(top)[0] == "nop"
    tracer.ask(disarming(tracer.note))
    assert is_set(top) == ["nop", "local", "f", "1408", "1", "0"]
