"""What tools say, made into histograms; and the run that lets tools, loads and profiles take turns."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest
from machines import machine

from tailrace.bench.browser import CHROMIUM, browser
from tailrace.cli.measure_host import _listed, _putting_back
from tailrace.errors import Failure, Interrupted, Mistake
from tailrace.host import tuner
from tailrace.host.journal import hold_journal
from tailrace.host.machine import read_machine
from tailrace.host.profile import load_profile
from tailrace.host.tuning import make_tuning_plan
from tailrace.kernel.tree import Tree
from tailrace.measure.host import run as host_run
from tailrace.measure.host import tracers
from tailrace.measure.host.plan import LONGEST_SLICE, HostPlan, read_plan
from tailrace.measure.host.run import measure_host
from tailrace.measure.host.tools import Progress, Setting, Slice, from_values, parse_cyclictest, parse_oslat
from tailrace.measure.host.tracers import TRACERS
from tailrace.measure.progress import Silent
from tailrace.measure.session import Request, run_on_host
from tailrace.plan.make import make_plan
from tailrace.report import host as report
from tailrace.report.html import write_report
from tailrace.resources.topology import Cpu
from tailrace.results import RunFolder, load_run
from tailrace.results.histogram import Histogram
from tailrace.results.lock import alone_in
from tailrace.spec.load import parse_spec
from tailrace.state.record import FilePath, hold, hold_run, peek


def test_what_cyclictest_could_not_hold_counts_as_its_maximum() -> None:
    thread = {"histogram": {"3": 10, "7": 2}, "cycles": 13, "min": 3, "max": 2_000_000, "cpu": 4}
    found = parse_cyclictest({"thread": {"0": thread}})
    histogram = found[4].histogram
    assert (histogram.count, histogram.min_ns, histogram.max_ns) == (13, 3000, 2_000_000_000)
    histogram = parse_cyclictest({"thread": {"0": thread}}, unit_ns=1)[4].histogram
    assert (histogram.count, histogram.min_ns, histogram.max_ns) == (13, 3, 2_000_000)


def test_the_last_bucket_of_oslat_counts_as_its_maximum() -> None:
    thread = {"histogram": {"1": 1000, "41": 1, "1024": 2}, "min": 1, "max": 631859, "cpu": 1}
    histogram = parse_oslat({"thread": {"0": thread}})[1].histogram
    assert (histogram.count, histogram.min_ns, histogram.max_ns) == (1003, 1000, 631_859_000)


@pytest.mark.parametrize(
    ("tracer", "line", "figure", "cpu", "ns"),
    [
        (
            "timerlat",
            "          <idle>-0       [002] d..h1   54.029328: #7  context    irq timer_latency       932 ns",
            "timerlat-irq",
            2,
            932,
        ),
        (
            "timerlat",
            "        timerlat/2-868   [002] .....   54.029342: #7  context thread timer_latency     11700 ns",
            "timerlat-thread",
            2,
            11700,
        ),
        (
            "osnoise",
            "  osnoise/1-960 [001] ..... 5789.8575: sample_threshold: start 5789.857 duration 3531 ns interference 1",
            "osnoise",
            1,
            3531,
        ),
        (
            "hwlat",
            "  <...>-1729 [000] d...   714.756290: #3     inner/outer(us):   16/16    ts:1499801095.1 count:1",
            "hwlat",
            0,
            16000,
        ),
        (
            "hwlat",
            "  <...>-1638 [003] d...   107.345260: #2     inner/outer(us):    0/38    ts:1586.1234567890 count:2",
            "hwlat",
            3,
            38000,
        ),
        (
            "hwlat",
            "  <...>-1638 [003] d...   108.345260: #3     inner/outer(us):   27/   4  ts:1587.1234567890 count:1",
            "hwlat",
            3,
            27000,
        ),
    ],
)
def test_a_tracers_line_is_one_value(tracer: str, line: str, figure: str, cpu: int, ns: int) -> None:
    values: dict[tuple[str, int], Counter[int]] = {(figure, cpu): Counter()}
    TRACERS[tracer]._take(line, values)
    TRACERS[tracer]._take("something else entirely", values)
    assert values == {(figure, cpu): Counter({ns: 1})}


def test_no_value_is_an_empty_histogram() -> None:
    assert from_values({}) == Histogram()
    assert from_values({5: 0}) == Histogram()


class Fake:
    """Measures a known value: so many µs by profile."""

    name = "cyclictest"

    def __init__(self, us: Mapping[str | None, int]) -> None:
        self.us, self.now = us, None
        self.order: list[str | None] = []

    def switch(self, profile: str | None) -> None:
        self.now = profile  # type: ignore[assignment]

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        self.order.append(self.now)
        progress(seconds)
        return {self.name: {cpu: Slice(from_values({self.us[self.now] * 1000: 100}), 1) for cpu in setting.cpus}}


@pytest.fixture(autouse=True)
def nothing_runs_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_run, "load", lambda *_: nullcontext())
    monkeypatch.setattr(host_run, "_on", lambda _: nullcontext((0, 1)))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "host", spec="# host\n", host={}, command=["tailrace"], versions={})


def test_profiles_take_turns_and_nothing_is_lost_between_slices(folder: RunFolder) -> None:
    fake = Fake({"vanilla": 40, "latency": 10})
    plan = HostPlan([fake], ["none", "cpu"], {1: "switch"}, (0,), 12, ("vanilla", "latency"), least_rounds=3)
    measure_host(plan, folder, Silent(), fake.switch)
    run = folder.finish()
    assert fake.order == ["vanilla", "vanilla", "latency", "latency"] * 3
    assert run.valid and len(run.host_trials) == 4
    for trial in run.host_trials:
        assert (trial.samples, trial.missed, len(trial.intervals), trial.duration_s) == (300, 3, 3, 3.0)
    ratios = report.compared(run)
    assert {(each.figure, each.summary.median) for each in ratios} == {("p99.99", 0.25), ("max", 0.25)}
    assert load_run(folder.path).host_trials == run.host_trials
    text = write_report(folder.path).read_text()
    assert "latency ÷ vanilla" in text and "No curve" not in text


def test_hours_are_cut_into_slices_of_a_minute_at_most() -> None:
    plan = HostPlan([Fake({None: 1})], ["none", "cpu", "memory"], {1: "switch"}, (0,), 12 * 3600)
    assert plan.slice_seconds <= LONGEST_SLICE
    assert plan.rounds * plan.slices * plan.slice_seconds == pytest.approx(12 * 3600, rel=0.01)


def test_too_short_a_time_is_refused() -> None:
    with pytest.raises(Mistake, match="too short for 6 slices"):
        HostPlan([Fake({None: 1})], ["none", "cpu", "memory"], {1: "switch"}, (0,), 2, ("a", "b"))


def test_a_run_that_is_cut_short_keeps_what_it_has(folder: RunFolder) -> None:
    fake = Fake({None: 5})

    class Ending(Fake):
        def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
            if self.order:
                raise KeyboardInterrupt
            return fake.measure(setting, seconds, progress) if not self.order.append(None) else {}

    plan = HostPlan([Ending({None: 5})], ["none"], {1: "switch"}, (0,), 4, least_rounds=2)
    with pytest.raises(KeyboardInterrupt), folder:
        measure_host(plan, folder, Silent())
    run = load_run(folder.path)
    assert not run.valid and run.reason == "interrupted"
    assert [trial.samples for trial in run.host_trials] == [100]


class Dying(Fake):
    """Ends as a process does that is killed: nothing is put in order."""

    class Death(BaseException):
        pass

    def __init__(self, us: Mapping[str | None, int], after: int) -> None:
        super().__init__(us)
        self.after = after

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        if len(self.order) == self.after:
            raise self.Death
        return super().measure(setting, seconds, progress)


def test_what_tracers_share_is_put_back_also_after_a_run_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(tracers, "TRACING", tmp_path)
    period, cpus = tmp_path / "period", tmp_path / "cpus"
    period.write_text("700\n")
    cpus.write_text("0-3\n")

    killed = tracers._options({"cpus": "1", "period": "1000"})
    killed.__enter__()
    assert (cpus.read_text(), period.read_text()) == ("1", "1000")
    with tracers._options({"period": "9"}):
        assert (cpus.read_text(), period.read_text()) == ("0-3", "9")
    assert (cpus.read_text(), period.read_text()) == ("0-3", "700")
    assert not (tmp_path / "state").exists()
    del killed


def test_a_note_that_is_somebodys_is_not_taken_for_one_of_a_tracer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_STATE", str(tmp_path / "mine"))
    monkeypatch.setattr(tracers, "TRACING", tmp_path)
    (tmp_path / "mine").mkdir()
    note, period = tmp_path / "mine/tracing.json", tmp_path / "period"
    note.write_text('{"period": "1"}')
    period.write_text("700")
    with pytest.raises(Mistake, match="nothing says that it is Tailrace's"), tracers._options({"period": "9"}):
        pass
    assert (note.read_text(), period.read_text()) == ('{"period": "1"}', "700")


@pytest.mark.parametrize("after", range(6))
def test_a_run_that_was_killed_goes_on_where_it_was(folder: RunFolder, after: int) -> None:
    def plan(tool: Fake) -> HostPlan:
        return HostPlan([tool], ["none", "cpu"], {1: "switch"}, (0,), 6, least_rounds=3)

    with pytest.raises(Dying.Death):
        measure_host(plan(Dying({None: 40}, after)), folder, Silent())
    again = RunFolder.reopen(folder.path)
    rest = Fake({None: 10})
    measure_host(plan(rest), again, Silent())
    run = again.finish()
    assert run.valid and len(rest.order) == 6 - after
    assert run.host_soak is not None and run.host_soak.done == run.host_soak.slices == 6
    assert len(run.host_soak.gaps) == (1 if after else 0)
    assert sum(trial.samples for trial in run.host_trials) == 600
    assert [len(trial.intervals) for trial in run.host_trials] == [3, 3]
    assert len(list(folder.path.glob("histograms/*"))) == 2
    text = write_report(folder.path).read_text()
    assert ("Nothing was measured for" in text) is bool(after)


def test_notes_that_grow_are_kept_with_each_slice(folder: RunFolder) -> None:
    """So a run that is killed has those of what it has measured, and the rest adds its own."""

    def measure(tool: Fake, into: RunFolder, what: str) -> None:
        plan = HostPlan([tool], ["none"], {1: "switch"}, (0,), 5, least_rounds=5)
        measure_host(plan, into, Silent(), notes=lambda: ["always", f"{len(tool.order)} {what}"])

    folder.note("the first")
    with pytest.raises(Dying.Death):
        measure(Dying({None: 40}, 2), folder, "lost")
    assert load_run(folder.path).notes == ("the first", "always", "2 lost")
    again = RunFolder.reopen(folder.path)
    measure(Fake({None: 10}), again, "lost later")
    again.note("another")
    again.note_anew(["3 lost in the end"])
    assert load_run(folder.path).notes == ("the first", "always", "2 lost", "another", "3 lost in the end")


def test_a_clock_that_is_set_is_reported_and_moves_nothing(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    boot, wall = 5000.0, folder.run.started.timestamp()

    class Minute(Fake):
        """Takes a minute; in the second the clock is set back by an hour."""

        def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
            nonlocal boot, wall
            boot += 60
            wall += 60.01 - (3600 if len(self.order) == 1 else 0)  # which is disciplined besides
            return super().measure(setting, seconds, progress)

    def plan(seconds: float) -> HostPlan:
        return HostPlan([Minute({None: 40})], ["none"], {1: "switch"}, (0,), seconds)

    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "clock_gettime", lambda _: boot)
    measure_host(plan(240), folder, Silent())
    soak = folder.run.host_soak
    assert soak is not None and soak.end_s == pytest.approx(240)
    (step,) = soak.clock_steps
    assert (step.at_s, step.step_s) == (pytest.approx(120), pytest.approx(-3600, abs=0.1))
    (trial,) = folder.run.host_trials
    assert [each.start_s for each in trial.intervals] == pytest.approx([0, 60, 120, 180])
    assert any("The clock was set by -3599.990 s before 2 min 0 s" in each for each in report.remarks(folder.run))

    boot += 600
    again = RunFolder.reopen(folder.path)
    measure_host(plan(300), again, Silent())
    assert again.run.host_soak is not None
    (gap,) = again.run.host_soak.gaps
    assert (gap.start_s, gap.end_s) == (pytest.approx(240), pytest.approx(840))


def test_a_browser_draws_a_run_with_a_gap(folder: RunFolder, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    now = folder.run.started.timestamp()

    class Slow(Fake):
        """Takes the time that a slice takes."""

        def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
            nonlocal now
            now += 60
            return super().measure(setting, seconds, progress)

    plan = HostPlan([Slow({None: 40})], ["none", "cpu"], {0: "system", 1: "switch"}, (0,), 2400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: now)
        patch.setattr(time, "clock_gettime", lambda _: now)
        first = HostPlan(plan.tools, plan.loads, plan.cpus, plan.control, 1200)
        measure_host(first, folder, Silent())
        now += 600
        again = RunFolder.reopen(folder.path)
        measure_host(plan, again, Silent())
    again.finish()
    page = write_report(folder.path)
    with browser(tmp_path / "profile") as chromium:
        for width in (1280, 400):
            chromium.open(page, width)
            root = "document.documentElement"
            assert chromium.evaluate(f"{root}.dataset.charts") == "6"
            assert chromium.evaluate(f"{root}.scrollWidth") <= width
            if pictures := os.environ.get("TAILRACE_PICTURES"):  # to be looked at
                chromium.picture(Path(pictures) / f"host-soak-{width}.png")
        assert chromium.complaints == []


def asked(folder: Path, resume: Path | None = None) -> Request:
    return Request("host", folder / "runs", folder / "state", ("tailrace",), "# host\n", "host", None, resume=resume)


def never(*_: object) -> None:
    pytest.fail("something was measured")


def test_two_commands_do_not_measure_into_one_folder(folder: RunFolder, tmp_path: Path) -> None:
    before = (folder.path / "results.json").read_text()
    with alone_in(folder.path), pytest.raises(Mistake, match="another command measures into it"):
        run_on_host(asked(tmp_path, folder.path), never, [1])
    assert (folder.path / "results.json").read_text() == before


def test_the_host_is_measured_by_one_command_at_a_time(tmp_path: Path) -> None:
    with hold_run(tmp_path / "state"), pytest.raises(Mistake, match="is in use"):
        run_on_host(asked(tmp_path), never, [1])
    assert not (tmp_path / "runs").exists()


def test_the_cpus_of_what_is_up_are_not_measured(tmp_path: Path) -> None:
    text = "functions: {first: skeleton}\nchains: {v: [tester.a, first, tester.b]}\n"
    up = make_plan(parse_spec(text, "s"), cpus=[Cpu(n, 0, n) for n in range(6)], real_time=None)
    with hold(tmp_path / "state") as state:
        state.record.plan, state.record.spec = up.as_data(), "chain.yaml"
        state.add(FilePath(str(tmp_path / "socket")))
    for core in (up.placement.switch.core, up.placement.functions["first"].core):
        with pytest.raises(Mistake, match=f"chain.yaml is up and has CPU {core}; run `tailrace down`, or .* --cpus"):
            run_on_host(asked(tmp_path), never, [0, core])
    plan = HostPlan([Fake({None: 1})], ["none"], {0: "system"}, (0,), 2)
    finished = run_on_host(asked(tmp_path), lambda folder, _: measure_host(plan, folder, Silent()), plan.cpus)
    assert finished.run.valid
    assert len(peek(tmp_path / "state").things) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [("x", "--cpus: 'x' is no CPU"), ("3-1", "--cpus: '3-1' ends before it begins"), (",", "--cpus: no CPU is named")],
)
def test_wrong_cpus_are_reported_by_their_option(text: str, words: str) -> None:
    with pytest.raises(Mistake, match=words):
        _listed(text)


def test_a_plan_is_read_again_from_what_it_wrote() -> None:
    fake = Fake({None: 1})
    plan = HostPlan([fake], ["none", "memory"], {0: "system", 3: "vnf"}, (0, 1), 43_200.0)
    assert read_plan("# a comment\n" + plan.text(), "spec.yaml", lambda _: fake) == plan
    assert [turn.load for turn in plan.turns(plan.all_slices - 1)] == ["memory"]
    for text in ("", "tools: [x]", "[", plan.text().replace("memory", "disk")):
        with pytest.raises(Mistake, match=r"spec.yaml: .* begin a new run"):
            read_plan(text, "spec.yaml", lambda _: fake)


def test_what_a_run_may_take_on_disk_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = HostPlan([Fake({None: 1})], ["none"], dict.fromkeys(range(96), "vnf"), (0,), 43_200.0)
    plan.check_space(tmp_path)
    monkeypatch.setattr("tailrace.measure.host.plan.free_bytes", lambda _: plan.most_bytes - 1)
    with pytest.raises(Mistake, match=r"720 slices may take .* MiB"):
        plan.check_space(tmp_path)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (KeyboardInterrupt(), Interrupted, "interrupted by Ctrl-C; besides, not all was put back: "),
        (Failure("cyclictest was killed"), Failure, "cyclictest was killed; besides, not all was put back: "),
        (None, Failure, "not all was put back: "),
    ],
)
def test_what_is_not_put_back_is_reported_beside_what_ended_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, kind: type[Exception], words: str
) -> None:
    tree = machine(tmp_path)
    write = Tree.write

    def failing(tree: Tree, path: str, value: str) -> None:
        if path.endswith("stat_interval"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        write(tree, path, value)

    def compare() -> None:
        with _putting_back(journal, tree):
            if error is not None:
                raise error

    with hold_journal(tmp_path / "state") as journal:
        found = read_machine(tree)
        tuner.apply(make_tuning_plan(found, load_profile("latency")), found, journal, boot=False)
        with monkeypatch.context() as patch:
            patch.setattr(Tree, "write", failing)
            with pytest.raises(kind, match=f"{words}.*stat_interval: .*; run `tailrace host undo`"):
                compare()
        with pytest.raises(type(error)) if error else nullcontext():
            compare()  # what is left is put back, and there is nothing to add
    assert not (tmp_path / "state/journal").exists()
