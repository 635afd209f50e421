"""Methods as a whole, against a simulated device and a run folder: what is kept, in rounds, also when cut short."""

from __future__ import annotations

import csv
import io
import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from captures import TAG, pcap_of
from rich.console import Console
from simulated_device import SimulatedDevice
from soaks import header as soak_header
from soaks import write as write_soak
from tester_results import both_ways
from typer.testing import CliRunner

from tailrace.cli import commands, main
from tailrace.cli.commands import MeasureOptions, check_captures, measure, override
from tailrace.cli.measure import _begun
from tailrace.errors import Failure, Mistake
from tailrace.measure import session as the_session
from tailrace.measure.burst import BurstMethod, Bursts, limit_of
from tailrace.measure.chain import LatencyMethod, throughput_of
from tailrace.measure.demo import run_demo
from tailrace.measure.fit import Carries, carries, check_fit
from tailrace.measure.floor import measure_joined
from tailrace.measure.loss import LossMethod
from tailrace.measure.method import Method, Place, run_steps
from tailrace.measure.profile import capture, profile
from tailrace.measure.search import Bounds
from tailrace.measure.session import Finished, Request, Tracing, _new_folder
from tailrace.measure.soak import SoakMethod, _keep, recover
from tailrace.measure.tester import Stopped
from tailrace.measure.throughput import ThroughputMethod, find_throughput
from tailrace.measure.trials import Trials
from tailrace.report import figures
from tailrace.report.curves import charts
from tailrace.report.findings import sections
from tailrace.report.html import write_report
from tailrace.report.lines import Chart, Line, ticks
from tailrace.report.marked import mark
from tailrace.report.table import print_run
from tailrace.results import Run, RunFolder, load_run
from tailrace.results.lock import alone_in
from tailrace.results.no_loss import NoLossRate
from tailrace.results.record import TrafficKind
from tailrace.results.stored import read_run
from tailrace.results.table import csv_text
from tailrace.spec.load import load_located
from tailrace.spec.source import SpecError
from tailrace.spec.tests import METHODS, Burst, Latency, Loss, Matrix, Throughput
from tailrace.spec.traffic import Traffic

FAST = {"wait": "1ms", "trial": "100ms", "duration": "1s"}


@dataclass
class Bench:
    """What a method has of a session."""

    measure: Any
    folder: RunFolder
    node: Any = None
    hops: None = None
    stages: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def stage(self, label: str, seconds: float) -> None:
        assert seconds > 0
        self.stages.append(label)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def run(folder: Path, method: Method[Any], test: Traffic, device: Any, repeat: int = 1) -> Run:
    with RunFolder.create(folder, "run", spec="", host={}, command=[], versions={}, repeat=repeat) as made:
        run_steps(Bench(device, made), method.steps([test], Place()), repeat)  # type: ignore[arg-type]
    assert load_run(made.path) == made.run
    report = write_report(made.path).read_text()
    for section in sections(made.run):
        assert f"<h2>{section.heading}</h2>" in report
        assert report.count("<svg") == sum(len(each.charts) for each in sections(made.run))
    return made.run


def test_throughput_is_found_by_size_and_every_trial_kept(tmp_path: Path) -> None:
    device = SimulatedDevice(1e6)
    test = Throughput.model_validate({**FAST, "frames": [64, 1518]})
    found = run(tmp_path, ThroughputMethod(), test, device)
    assert [each.name for each in found.findings] == ["through-64", "through-1518"]
    assert sum(len(each.trials) for each in found.findings) == len(device.trials)
    first = found.findings[0]
    assert [goal.loss_ratio for goal in first.goals] == [0.0, 0.005]
    ndr = first.goals[0]
    assert ndr.pps == pytest.approx(1e6, rel=0.01)
    assert ndr.gbps_l1 == pytest.approx(ndr.pps * 84 * 8 / 1e9)
    assert found.valid


def test_a_measurement_is_repeated_in_rounds_and_has_a_spread(tmp_path: Path) -> None:
    limits = iter([1.00e6, 1.10e6, 1.04e6])
    device = SimulatedDevice(0.0)

    def measure(streams: list[dict[str, Any]], *rest: Any) -> dict[str, Any]:
        return device(streams, *rest)

    class Slower(ThroughputMethod):
        def steps(self, tests: Any, place: Place) -> Any:
            (step,) = super().steps(tests, place)

            def work(session: Any) -> None:
                device.capacity = next(limits)
                step.work(session)

            return [type(step)(step.name, step.seconds, work)]

    test = Throughput.model_validate({**FAST, "frames": 64, "loss": "0%", "search": "tst009"})
    found = run(tmp_path, Slower(), test, measure, repeat=3)
    assert [each.name for each in found.findings] == ["through-64", "through-64-round-2", "through-64-round-3"]
    assert {each.case for each in found.findings} == {"through-64"}
    (section,) = sections(found)
    assert len(section.rows) == 1
    median, low, high = (float(figure) for figure in re.findall(r"[0-9.]+", section.rows[0][3]))
    assert section.rows[0][3] == f"{median:.3f} ({low:.4g}–{high:.3f})"
    assert (median, low, high) == pytest.approx((1.04, 1.0, 1.1), abs=0.01)


def test_the_curve_of_loss_ends_after_two_rates_without(tmp_path: Path) -> None:
    test = Loss.model_validate({"frames": 64, "rate": "1Mpps", "step": "10%", "duration": "1s", "wait": "1ms"})
    (curve,) = run(tmp_path, LossMethod(), test, SimulatedDevice(7.5e5)).findings
    assert [round(trial.offered_pps) for trial in curve.trials] == [1_000_000, 900_000, 800_000, 700_000, 600_000]
    assert [trial.loss_ratio for trial in curve.trials[:3]] == pytest.approx([0.25, 1 / 6, 0.0625])
    assert [trial.lost for trial in curve.trials[3:]] == [0, 0]


@pytest.mark.parametrize("device", [SimulatedDevice(1e9, sender=6.5e5), SimulatedDevice(6.5e5, holds_back=True)])
def test_a_curve_does_not_end_on_rates_that_were_not_offered(tmp_path: Path, device: SimulatedDevice) -> None:
    """Nothing of what was sent was lost, but what the tester or the device held back says nothing of its rate."""
    words = {"frames": 64, "rate": "1Mpps", "step": "10%", "duration": "1s", "wait": "1ms"}
    (curve,) = run(tmp_path, LossMethod(), Loss.model_validate(words), device).findings
    assert sum(trial.lost for trial in curve.trials) == 0
    points = curve.points
    assert [part for part, trial in points.items() if trial.fell_short] == [1.0, 0.9, 0.8, 0.7]
    assert list(points)[4:] == [0.6, 0.5]


def test_the_full_rate_of_a_curve_is_what_the_tester_can_send(tmp_path: Path) -> None:
    test = Loss.model_validate({"frames": 64, "duration": "1s", "wait": "1ms"})
    (curve,) = run(tmp_path, LossMethod(), test, SimulatedDevice(3e6, sender=4e6)).findings
    assert curve.full_pps == 4e6
    assert curve.trials[0].loss_ratio == pytest.approx(0.25)


@pytest.mark.parametrize("buffer", [100, 2048, 50_000])
def test_the_longest_burst_tells_of_the_buffer(tmp_path: Path, buffer: int) -> None:
    # While n frames come in at 10 Mpps, n / 10 leave at 1 Mpps: the longest burst is the buffer / 0.9.
    device = SimulatedDevice(1e6, buffer=buffer, sender=1e7)
    test = Burst.model_validate({"frames": 64, "times": 3, "longest": "1s", "wait": "1ms", "precision": "0.1%"})
    (burst,) = run(tmp_path, BurstMethod(), test, device).findings
    assert len(burst.frames) == 3
    assert burst.limit == "loss"
    assert burst.average == pytest.approx(buffer / 0.9, rel=0.003, abs=2)
    assert burst.deviation <= 2 + 0.001 * burst.average
    # RFC 9004, section 6.4: the corrected time is that of the buffer's frames at the rate they came in.
    assert burst.corrected_buffer_s == pytest.approx(buffer / 1e7, rel=0.05)


def test_repetitions_of_a_burst_do_not_rest_on_each_other(tmp_path: Path) -> None:
    """Else their deviation would say less than the device's."""
    device = SimulatedDevice(1e6, buffer=3000, sender=1e7)
    lengths: list[int] = []

    def measure(streams: list[dict[str, Any]], *rest: Any) -> dict[str, Any]:
        lengths.append(streams[0].get("count", 0))
        return device(streams, *rest)

    test = Burst.model_validate({"frames": 64, "times": 3, "longest": "1s", "wait": "1ms", "precision": "1%"})
    (burst,) = run(tmp_path, BurstMethod(), test, measure).findings
    tried = [length for length in lengths if length]
    assert len(tried) == burst.trials
    third = len(tried) // 3
    assert tried == tried[:third] * 3, "the device is the same, so each of them finds its way alike"
    assert burst.deviation == 0


def test_pauses_are_those_of_rfc_2544_before_trials_of_full_length(tmp_path: Path) -> None:
    """Unless something else is said, which holds for every trial."""
    tests: list[tuple[Method[Any], dict[str, Any]]] = [
        (ThroughputMethod(), {**FAST, "loss": "0%"}),
        (LossMethod(), {"rate": "1Mpps", "duration": "1s", "wait": "1ms"}),
        (BurstMethod(), {"times": 2, "longest": "100ms", "wait": "1ms"}),
    ]
    for method, words in tests:
        for settle, before in ((None, 5.0), ("2s", 2.0), ("0s", 0.0)):
            test = METHODS[method.name].model_validate(
                {"frames": 64, **words, **({"settle": settle} if settle else {})}
            )
            device = SimulatedDevice(1e6, buffer=100)
            with RunFolder.create(tmp_path, "run", spec="", host={}, command=[], versions={}) as made:
                bench = Bench(device, made)
                run_steps(bench, method.steps([test], Place()))  # type: ignore[arg-type]
            long = sum(seconds >= 1 for _, seconds in device.trials) if method.name != "burst" else 0
            number = long if settle is None else len(device.trials) if before else 0
            assert bench.pauses == [before] * number, (method.name, settle)
            assert settle or number or method.name == "burst"


@pytest.mark.parametrize("error", [Stopped(KeyboardInterrupt("Ctrl-C"), None), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("method", "words"),
    [
        (ThroughputMethod(), {**FAST, "loss": "0%"}),
        (LossMethod(), {"rate": "1Mpps", "duration": "1s", "wait": "1ms"}),
        (BurstMethod(), {"times": 2, "longest": "100ms", "wait": "1ms"}),
    ],
)
def test_a_finding_that_is_left_in_a_pause_is_not_valid(
    tmp_path: Path, method: Method[Any], words: dict[str, Any], error: BaseException
) -> None:
    class Impatient(Bench):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            if len(self.pauses) == 2:
                raise error

    test = METHODS[method.name].model_validate({"frames": 64, **words, "settle": "2s"})
    made = RunFolder.create(tmp_path, "run", spec="", host={}, command=[], versions={})
    with pytest.raises(type(error)):
        run_steps(
            Impatient(SimulatedDevice(1e6, buffer=100), made),  # type: ignore[arg-type]
            method.steps([test], Place()),
        )
    findings = made.finish().findings
    assert [each.valid for each in findings] == [False]
    rows = csv.DictReader(io.StringIO(csv_text([made.run])))
    assert {row["trial_valid"] for row in rows if row["finding"]} == {"no"}
    assert throughput_of(made.run) == {}


def test_a_pause_that_is_cut_short_stops_as_a_trial_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(the_session.time, "sleep", interrupted)
    made = RunFolder.create(tmp_path, "run", spec="", host={}, command=[], versions={})
    session = the_session.Session(None, made, lambda: None)  # type: ignore[arg-type]
    with pytest.raises(Stopped, match="interrupted by Ctrl-C"):
        session.pause(1.0)


def test_the_search_before_bursts_is_kept_when_it_is_cut_short(tmp_path: Path) -> None:
    device = SimulatedDevice(1e6, buffer=100)

    def until_interrupted(*asked: Any) -> dict[str, Any]:
        if len(device.trials) == 3:
            raise Stopped(KeyboardInterrupt("interrupted by Ctrl-C"), None)
        return device(*asked)

    test = Burst.model_validate({"frames": 64, "times": 2, "wait": "1ms"})
    made = RunFolder.create(tmp_path, "run", spec="", host={}, command=[], versions={})
    with pytest.raises(Stopped):
        run_steps(Bench(until_interrupted, made), BurstMethod().steps([test], Place()))  # type: ignore[arg-type]
    (burst,) = made.finish().findings
    assert (burst.valid, burst.reason, burst.frames, burst.limit) == (False, "interrupted by Ctrl-C", (), None)
    assert [trial.offered_pps for trial in burst.beforehand] == [rate for rate, _ in device.trials]
    assert burst.rate_pps == max(trial.sent_pps for trial in burst.beforehand)
    (section,) = sections(made.run)
    assert set(section.rows[0][2:]) == {"-"}
    lines = [row for row in csv.DictReader(io.StringIO(csv_text([made.run]), newline="")) if row["finding"]]
    assert [row["figure"] for row in lines] == ["loss_ratio"] * 3


def test_a_device_that_holds_the_sender_back_has_no_longest_burst(tmp_path: Path) -> None:
    test = Burst.model_validate({"frames": 64, "times": 2, "longest": "100ms", "wait": "1ms"})
    (burst,) = run(tmp_path, BurstMethod(), test, SimulatedDevice(1e6, holds_back=True)).findings
    assert burst.limit == "refused"
    (section,) = sections(Run.model_validate({**BARE, "findings": [burst.model_dump()]}))
    assert "back pressure" in section.rows[0]


@pytest.mark.parametrize("held_back", [True, False])
def test_a_stumble_in_few_repetitions_is_not_what_limits_bursts(held_back: bool) -> None:
    lost, whole = Bounds(900, 1000, "loss"), Bounds(2000, limit="rate")
    bursts = Bursts(SimulatedDevice(1e6), profile(64), "bursts", 0.0, 1e6, held_back=held_back)
    other = "refused" if held_back else "longest"
    assert limit_of(bursts, [whole, lost, whole]) == limit_of(bursts, [whole]) == other
    assert limit_of(bursts, [lost, lost, whole]) == limit_of(bursts, [lost]) == "loss"


BARE: dict[str, Any] = {
    "id": "x", "name": "x", "method": "burst", "spec": None, "started": "2026-11-22T00:00:00Z", "finished": None,
    "valid": True, "reason": None,
    "command": [], "versions": {}, "host": {}, "oversubscribed": False, "notes": [], "trials": [],
}  # fmt: skip


def test_latency_at_parts_of_the_throughput_searches_once_for_each_profile(tmp_path: Path) -> None:
    device = SimulatedDevice(1e6)
    test = Latency.model_validate({"frames": 64, "rate": ["10%", "50%", "90%", "100%"], "duration": "1s"})
    trials = run(tmp_path, LatencyMethod(), test, device).trials
    assert [trial.name for trial in trials] == [f"through-64-at-{part}%" for part in (100, 90, 50, 10)]
    (no_loss,) = {trial.no_loss_pps for trial in trials}
    assert no_loss is not None
    assert [trial.offered_pps for trial in trials] == pytest.approx([no_loss * part for part in (1, 0.9, 0.5, 0.1)])
    assert sum(seconds == 1.0 for _, seconds in device.trials) == 4


def test_latency_at_parts_of_a_throughput_that_was_measured_searches_no_more(tmp_path: Path) -> None:
    searched = run(
        tmp_path, ThroughputMethod(), Throughput.model_validate({**FAST, "frames": 64}), SimulatedDevice(1e6)
    )
    throughput = throughput_of(searched)
    goal = searched.findings[0].goals[0]
    rate = NoLossRate(pps=goal.pps, upper_pps=goal.upper_pps, limit="loss")
    assert throughput == {(TrafficKind("64", 1), None): rate}
    # The device has become slower since: what is lost at the old rate is a result.
    method, device = LatencyMethod(throughput=throughput), SimulatedDevice(0.8e6)
    test = Latency.model_validate({"frames": 64, "rate": ["50%", "100%"], "duration": "1s"})
    trials = run(tmp_path, method, test, device).trials
    assert [trial.offered_pps for trial in trials] == pytest.approx([rate.pps, rate.pps / 2])
    assert trials[0].total("lost") > 0
    assert [(trial.searched, trial.no_loss_pps) for trial in trials] == [(rate, None), (rate, rate.pps)]
    assert [seconds for _, seconds in device.trials] == [1.0, 1.0]
    with pytest.raises(Mistake, match=r"no throughput of 128 of 1 flow through a device.*has 64 of 1 flow"):
        run(tmp_path, method, Latency.model_validate({"frames": 128, "rate": "50%", "duration": "1s"}), device)
    with pytest.raises(Mistake, match=r"--of: no rate is in percent"):
        run(tmp_path, method, Latency.model_validate({"frames": 64, "rate": "50kpps", "duration": "1s"}), device)


def test_a_rate_is_of_the_same_number_of_flows_and_of_no_loss(tmp_path: Path) -> None:
    def found(**words: Any) -> dict[Any, NoLossRate]:
        test = Throughput.model_validate({**FAST, "frames": 64, **words})
        return dict(throughput_of(run(tmp_path, ThroughputMethod(), test, SimulatedDevice(1e6))))

    assert found(loss="0.5%") == {}
    many = found(flows=1_000_000)
    assert list(many) == [(TrafficKind("64", 1_000_000), None)]
    for flows, known in ((1_000_000, True), (1, False)):
        test = Latency.model_validate({"frames": 64, "rate": "50%", "flows": flows})
        with nullcontext() if known else pytest.raises(Mistake, match=r"of 1 flow .*has 64 of 1,000,000 flows through"):
            LatencyMethod(throughput=many).steps([test], Place())
    # What an older Tailrace found does not say of how many flows it was.
    old = {(TrafficKind("64"), None): many[TrafficKind("64", 1_000_000), None]}
    LatencyMethod(throughput=old).steps([test], Place())


def test_tests_that_differ_in_flows_have_floors_of_their_own() -> None:
    tests = [Latency.model_validate({"frames": 64, "flows": flows}) for flows in (1, 1_000_000, 1)]
    assert [each.kind for each in LatencyMethod().profiles(tests)] == [("64", 1, None), ("64", 1_000_000, None)]


def test_a_device_is_called_one_and_never_a_floor(tmp_path: Path) -> None:
    """In table, charts and glossary, and its rates are told apart."""
    words: dict[str, Any] = {"frames": 64, "rate": ["20kpps", "10kpps"], "duration": "1s"}
    made = run(tmp_path, LatencyMethod(), Latency.model_validate(words), SimulatedDevice(1e6))
    assert {trial.functions for trial in made.trials} == {None}
    assert [figures.trial_name(trial) for trial in made.trials] == ["64 B, device"] * 2
    assert list(figures.rates(made).values()) == ["0.0200 Mpps", "0.0100 Mpps"]
    console = Console(record=True, width=160)
    print_run(made, console)
    told = console.export_text()
    assert "device" in told and "floor" not in told
    (page,) = tmp_path.glob("*/report.html")
    assert "<dt>Device</dt>" in page.read_text()
    assert "<dt>Floor</dt>" not in page.read_text()
    stored = read_run(page.parent)
    series = charts(mark([stored]))[0]["times"]
    assert [each["label"] for each in series] == ["device at 0.0200 Mpps, a-to-b", "device at 0.0100 Mpps, a-to-b"]
    assert [(each["colour"], each["dash"]) for each in series] == [(1, 0), (2, 2)]
    searched = run(
        tmp_path, ThroughputMethod(), Throughput.model_validate({**FAST, "frames": 64}), SimulatedDevice(1e6)
    )
    assert [row[1] for section in sections(searched) for row in section.rows] == ["device"] * 2


def test_an_option_that_cannot_be_says_what_can() -> None:
    with pytest.raises(Mistake, match=r"^--functions: '9' is not possible; expected less than or equal to 8$"):
        override(Matrix.model_validate({}), {"functions": "9"})
    with pytest.raises(Mistake, match=r"--search: 'none' is not possible; expected 'mlrsearch', 'tst009'"):
        override(Throughput.model_validate({}), {"search": "none"})


def test_what_a_method_cannot_do_is_reported_with_its_place_in_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    options = MeasureOptions({}, 1, tmp_path, huge=False, as_json=True)
    floor = "chains:\n  floor: [tester.a, tester.b]\n"
    path.write_text(floor + "tests:\n  - soak: {duration: 1h}\n  - latency: {}\n  - soak: {duration: 2h}\n")
    with pytest.raises(Mistake, match=r"spec\.yaml:6:\d+: tests\[2\]: a second test of soak"):
        measure(SoakMethod(), path, None, options)
    path.write_text("ports:\n  left: {}\nchains:\n  away: [left, tester.b]\n")
    with pytest.raises(Mistake, match=r"spec\.yaml:4:\d+: chains: no chain runs from tester\.a"):
        measure(LatencyMethod(), path, None, options)


def test_the_demo_measures_every_chain_with_its_floor(tmp_path: Path) -> None:
    led: list[list[str]] = []
    chain = SimpleNamespace(name="demo", functions=["first", "second"], through=["first", "second"])
    node = SimpleNamespace(plan=SimpleNamespace(chains=[chain]), lead=lambda _, through: led.append(through))
    with RunFolder.create(tmp_path, "demo", spec="", host={}, command=[], versions={}) as made:
        bench = Bench(SimulatedDevice(1e6), made, node)
        run_demo(bench)  # type: ignore[arg-type]
    trials = {trial.name: trial for trial in made.run.trials}
    assert len(trials) == len(bench.stages) + 8 == 20
    shares = {name: trial.share_us.floor for name, trial in trials.items() if trial.share_us}
    assert shares["one-function-64"] == "floor-for-one-function-64"
    assert len(shares) == 8
    # The floor of a chain is measured right after it, at its rate.
    assert led[:3] == [[], ["first"], []]
    assert trials["floor-for-one-function-64"].offered_pps == trials["one-function-64"].offered_pps


def test_what_was_measured_before_an_end_is_kept(tmp_path: Path) -> None:
    device = SimulatedDevice(1e6)

    def until_interrupted(*asked: Any) -> dict[str, Any]:
        if len(device.trials) == 5:
            raise Stopped(KeyboardInterrupt("interrupted by Ctrl-C"), None)
        return device(*asked)

    test = Throughput.model_validate({**FAST, "frames": [64, 128]})
    made = RunFolder.create(tmp_path, "run", spec="", host={}, command=[], versions={})
    with pytest.raises(Stopped):
        run_steps(Bench(until_interrupted, made), ThroughputMethod().steps([test], Place()))  # type: ignore[arg-type]
    (finding,) = made.finish().findings
    assert not finding.valid
    assert finding.reason == "interrupted by Ctrl-C"
    assert len(finding.trials) == 5
    assert not made.run.valid
    assert [row[3] for section in sections(made.run) for row in section.rows] == ["-"]


def test_a_tester_that_can_send_nothing_is_a_failure(tmp_path: Path) -> None:
    test = Throughput.model_validate({**FAST, "frames": 64})
    with pytest.raises(Failure, match="no frame could be sent"):
        run(tmp_path, ThroughputMethod(), test, SimulatedDevice(0.0, holds_back=True))


@pytest.mark.parametrize("search", ["mlrsearch", "tst009", "rfc2544"])
def test_a_search_in_which_the_tester_kept_no_rate_is_not_valid(tmp_path: Path, search: str) -> None:
    """Half of what it is to send, at each rate, and it would look ever lower: what is found then is nobody's."""
    test = Throughput.model_validate({**FAST, "frames": 64, "loss": "0%", "search": search})
    found = run(tmp_path, ThroughputMethod(), test, SimulatedDevice(1e6, stalls=1.0, sender=4e5))
    (finding,) = found.findings
    assert not finding.valid and not found.valid
    assert "the tester kept no rate, down to " in (found.reason or "")
    assert "which carried 0.4 Mpps without loss" in (found.reason or "")
    # One that is slow, or that is held up now and then, keeps others.
    for device in (SimulatedDevice(1e6, sender=4e5), SimulatedDevice(1e6, stalls=0.5)):
        found = run(tmp_path, ThroughputMethod(), test, device)
        assert found.valid, found.reason


@pytest.mark.parametrize("search", ["mlrsearch", "tst009", "rfc2544"])
def test_no_rate_with_less_loss_is_above_one_with_more(search: str) -> None:
    """However often the tester is held up in one search and not in the other."""
    test = Throughput.model_validate({**FAST, "frames": 64, "loss": ["0.5%", "0%"], "search": search})
    for seed in range(12):
        device = SimulatedDevice(1e6, stalls=0.6, seed=seed)
        trials = Trials(device, profile(64), "x", most=200, pause=lambda _: None)
        more, less = find_throughput(trials, test)
        assert less.low <= more.low <= more.high, seed


def test_a_soak_that_is_gone_on_with_stands_on_the_floor_of_its_own_traffic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the command line may have said when it was begun, and not the spec."""
    spec = "chains:\n  floor: [tester.a, tester.b]\n"
    made = RunFolder.create(tmp_path, "soak-s", spec=spec, host={}, command=[], versions={}, method="soak")
    log, totals = write_soak(made.path / "histograms", 3, made=soak_header(1000.0), end=False)
    requests: list[Request] = []

    def run_on_node(request: Request, *_: Any) -> Finished:
        requests.append(request)
        return Finished(made.path, made.run)

    monkeypatch.setattr(commands, "run_on_node", run_on_node)
    options = MeasureOptions({}, 1, tmp_path, huge=False, as_json=True, resume=made.path)
    measure(SoakMethod(tmp_path, resume=made.path), made.path / "spec.yaml", None, options)
    ((floor,),) = [request.floor for request in requests]
    assert (floor.name, floor.traffic) == ("64", {"frames": [64]})
    assert [*floor.streams(10_000.0)] == [*totals.header.streams]
    assert log.exists()


@pytest.mark.parametrize("ended", [True, False])
def test_a_soak_that_was_killed_has_the_results_of_its_log(tmp_path: Path, ended: bool) -> None:
    made = RunFolder.create(tmp_path, "soak", spec="", host={}, command=[], versions={}, method="soak")
    write_soak(made.path / "histograms", 3, made=soak_header(30.0 if ended else 100.0), end=ended)
    ran = CliRunner().invoke(main.app, ["report", str(made.path), "--csv"])
    assert ran.exit_code == 0, ran.output
    rows = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert [(row["direction"], row["received"], row["duration_s"]) for row in rows] == [
        ("a-to-b", "180", "30.0"), ("b-to-a", "180", "30.0"),
    ]  # fmt: skip
    run = load_run(made.path)
    assert run.finished is not None
    assert run.valid is ended
    if not ended:
        assert run.reason == "the soak was killed or crashed; `tailrace measure soak --resume RUN` continues it"
    (trial,) = run.trials
    assert trial.soak is not None and trial.soak.intervals == 3
    assert read_run(made.path).histograms["soak-64"].count == 180
    recover(made.path)
    assert load_run(made.path) == run
    if ended:
        with pytest.raises(Mistake, match=r"is complete \(30 s\), and its results are there"):
            SoakMethod(tmp_path, resume=made.path).steps([], Place())


def test_a_soak_that_is_being_measured_is_left_to_who_measures_it(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path, "soak", spec="", host={}, command=[], versions={}, method="soak")
    with alone_in(made.path):
        write_soak(made.path / "histograms", 3, end=False)
        recover(made.path)
    assert load_run(made.path) == made.run


def test_a_soak_without_an_interval_has_nothing_to_be_recovered(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "soak", spec="", host={}, command=[], versions={}, method="soak") as made:
        write_soak(made.path / "histograms", 0, made=soak_header(30.0), end=False)
        made.invalidate("interrupted by Ctrl-C")
    before = (made.path / "results.json").read_bytes()
    recover(made.path)
    assert (made.path / "results.json").read_bytes() == before


def test_a_soak_goes_on_with_the_capture_that_it_was_begun_with(tmp_path: Path) -> None:
    path = tmp_path / "day.pcap"
    path.write_bytes(pcap_of((60, 60)))
    sent = capture(path)
    assert sent.kind.capture is not None and sent.kind.capture.startswith("day.pcap, SHA-256 ")
    made = RunFolder.create(tmp_path, "soak", spec="", host={}, command=[], versions={}, method="soak")
    begun = soak_header(1000.0, profile="pcap", streams=tuple(sent.streams(10_000.0)), capture=sent.capture)
    write_soak(made.path / "histograms", 3, made=begun, end=False)
    method = SoakMethod(tmp_path, resume=made.path)
    assert method.profiles([])[0].kind == sent.kind
    method.steps([], Place())
    path.write_bytes(pcap_of((61, 61)))
    with pytest.raises(Mistake, match=r"the soak began with day\.pcap, SHA-256 .*, and this is day\.pcap, SHA-256"):
        method.steps([], Place())


def test_a_soak_goes_on_as_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the same ports, wherever the command is given, and with single frames followed if they were."""
    ports = ("vhost:/run/a b.sock", "vhost:/run/b.sock")
    begun = soak_header(1000.0, functions=None, ports=ports, causes=True, gap_limit_s=2e-6)
    made = RunFolder.create(tmp_path, "soak", spec="", host={}, command=[], versions={}, method="soak")
    write_soak(made.path / "histograms", 3, made=begun, end=False)
    assert _begun(made.path, None) == (ports, None)
    others = ("if:x", "if:y")
    assert _begun(made.path, others) == (others, None)
    followed: list[Tracing] = []
    monkeypatch.setattr(Tracing, "begin", lambda tracing, _: followed.append(tracing))
    SoakMethod(tmp_path, resume=made.path).begin(None)  # type: ignore[arg-type]
    assert followed == [Tracing(hops=False, causes=True, gap_limit=2e-6)]

    chain = RunFolder.create(tmp_path, "chain", spec="", host={}, command=[], versions={}, method="soak")
    write_soak(chain.path / "histograms", 3, end=False)
    assert _begun(chain.path, None) == (None, chain.path / "spec.yaml")
    with pytest.raises(Mistake, match="this soak is of a chain"):
        _begun(chain.path, others)
    refused = CliRunner().invoke(main.app, ["measure", "soak", "--resume", str(chain.path), "--causes"])
    assert refused.exit_code == 2 and "expected neither a SPEC nor other settings" in refused.stderr


@pytest.mark.parametrize("lost", [0, 1])
def test_a_soak_confirms_a_no_loss_rate_or_does_not(tmp_path: Path, lost: int) -> None:
    """It is not made again lower: what it lost in hours is its result."""
    with RunFolder.create(tmp_path, "soak", spec="", host={}, command=[], versions={}) as made:
        asked = soak_header(30.0, pps=6.0, no_loss_pps=12.0, rate_fraction=0.5, no_loss_limit="tester")
        path, totals = write_soak(made.path / "histograms", 3, made=asked)
        for count in ("offered", "sent", "lost"):
            totals.ways["a-to-b"].counts[count] += lost
        _keep(made, path, totals, stopped=False)
    (trial,) = made.run.trials
    assert trial.searched == NoLossRate(pps=12.0, limit="tester")
    assert trial.no_loss_pps == (None if lost else 12.0)
    assert (trial.rate_fraction, trial.attempt, trial.flows) == (0.5, None, None)


def test_the_command_line_goes_before_the_spec() -> None:
    test = Throughput.model_validate({"frames": [64], "duration": "5s", "trial": "1s"})
    changed = override(test, {"frames": "128,imix", "loss": "0%,1%", "rate": "1Mpps", "flows": "7", "wait": None})
    assert changed == Throughput.model_validate(
        {"frames": [128, "imix"], "duration": "5s", "trial": "1s", "loss": ["0%", "1%"], "rate": "1Mpps", "flows": 7}
    )
    assert override(Latency(), {"rate": "10%,90%"}) == Latency.model_validate({"rate": ["10%", "90%"]})
    pcap = override(Latency.model_validate({"frames": [64]}), {"pcap": "x.pcap"})
    assert pcap.pcap == "x.pcap"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"not a capture", "this is no capture file"),
        (pcap_of((60, 60))[:20] + b"\x71" + pcap_of((60, 60))[21:], "frame 1 is of link type 113 (Linux cooked"),
        (pcap_of((60, 60), (60, 60))[:-1], "the file ends within frame 2"),
        (pcap_of((64, 1500)), "frame 1 was cut to 64 of 1500 bytes"),
    ],
)
def test_a_bad_capture_is_reported_with_its_line_before_anything_starts(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    bad, runs = tmp_path / "bad.pcap", tmp_path / "runs"
    if content is not None:
        bad.write_bytes(content)
    spec = tmp_path / "s.yaml"
    chain = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"
    spec.write_text(f"{chain}tests:\n  - loss: {{frames: 64}}\n  - latency: {{pcap: {bad}}}\n")
    options = MeasureOptions({}, 1, runs, True, False)
    with pytest.raises(SpecError) as caught:
        measure(LatencyMethod(), spec, None, options)
    assert str(caught.value).startswith(f"{spec}:5:21: tests[1].latency.pcap: {bad}: {said}")
    assert not runs.exists()


def test_a_capture_that_another_takes_the_place_of_is_not_looked_at(tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text(
        "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"
        "tests: [{latency: {pcap: bad.pcap}}]\n"
    )
    known, document = load_located(spec)
    check_captures(known, document, "latency", {"frames": "64"})
    check_captures(known, document, "loss", {})
    with pytest.raises(SpecError, match=r"3:26: tests\[0\]\.latency\.pcap: bad\.pcap"):
        check_captures(known, document, "latency", {"rate": "1Mpps"})


@pytest.mark.parametrize(
    ("command", "test"), [(("measure", "matrix"), "matrix"), (("compare",), "latency")], ids=["matrix", "compare"]
)
def test_a_bad_capture_of_other_commands_is_told_too(tmp_path: Path, command: tuple[str, ...], test: str) -> None:
    bad, spec = tmp_path / "bad.pcap", tmp_path / "s.yaml"
    bad.write_bytes(pcap_of((60, 60))[:-1])
    chain = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"
    spec.write_text(f"{chain}tests:\n  - {test}: {{pcap: {bad}}}\n")
    done = CliRunner().invoke(main.app, [*command, str(spec), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 2
    assert f"{spec}:4:" in done.stderr
    assert "the file ends within frame 1" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_the_floor_of_what_joined_ports_do_not_take_is_left_out_with_a_note(tmp_path: Path) -> None:
    long = tmp_path / "long.pcap"
    long.write_bytes(pcap_of((3000, 3000)))

    def trial(streams: list[dict[str, Any]], *_: Any, **__: Any) -> dict[str, Any]:
        if "pcap" in streams[0]:
            raise Mistake("the tester refuses the traffic: frame 1 has 3000 bytes, and the ports take at most 1518")
        return both_ways(50)

    with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={}) as folder:
        tester: Any = SimpleNamespace(trial=trial)
        measure_joined(tester, "vhost-user", folder, [capture(long), profile(64)])
    assert [floor.profile for floor in folder.run.floors] == ["64"]
    (note,) = folder.run.notes
    assert note.startswith("the tester's own floor of pcap was not measured over vhost-user: the tester refuses")


@pytest.mark.parametrize(
    ("command", "test", "length", "port", "mtu"),
    [
        (("measure", "latency"), "latency", 9015, "tester.a and tester.b", 9000),
        (("measure", "latency", "--pcap"), "loss", 9015, "tester.a and tester.b", 9000),
        (("compare", "--fabrics", "tailrace,ovs-dpdk"), "latency", 1515, "ovs-dpdk's vhost-user ports", 1500),
        (("compare", "--fabrics", "tailrace,linux-bridge"), "latency", 1515, "linux-bridge's tap ports", 1500),
        (("compare", "--fabrics", "tailrace,direct"), "latency", 1515, "direct's vhost-user ports", 1500),
        (("compare", "--fabrics", "tailrace,direct", "--interface", "memif"), "latency", 1515,
         "tailrace's memif ports", 1500),
        (("measure", "matrix", "--fabrics", "linux-bridge", "--patterns", "VV"), "matrix", 1515,
         "linux-bridge's tap ports", 1500),
    ],
)  # fmt: skip
def test_a_frame_beyond_the_mtu_is_reported_before_anything_starts(
    tmp_path: Path, command: tuple[str, ...], test: str, length: int, port: str, mtu: int
) -> None:
    """With the file, the frame, its size, the MTU and what to do; of what the spec names with its line."""
    spec, long = tmp_path / "s.yaml", tmp_path / "long.pcap"
    long.write_bytes(pcap_of((60, 60), (length, length)))
    chain = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"
    spec.write_text(f"{chain}tests:\n  - {test}: {{pcap: {long}}}\n")
    option = (str(long),) if command[-1] == "--pcap" else ()
    done = CliRunner().invoke(main.app, [*command, *option, str(spec), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 2
    for said in (
        f"{long}: frame 2 has {length} bytes, {length - 14} of them payload, and the MTU of {port} is {mtu}; ",
        f"`tcpdump -r IN -w OUT less {mtu + 14}`",
        "--pcap: " if option else "this machine can have no cell" if test == "matrix" else f"{spec}:4:",
    ):
        assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("test", "column", "most"),
    [
        ("latency: {frames: [64, 1518], rate: [10%, 200Mpps]}", 41, "1518 B frames"),
        ("soak: {rate: 600Mpps}", 18, "353.833 B frames"),
        ("burst: {}\n  - loss: {rate: 200Mpps}", 18, "1518 B frames"),
    ],
)
def test_a_rate_that_no_line_carries_is_reported_with_its_place(
    tmp_path: Path, test: str, column: int, most: str
) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text(
        f"functions: {{first: skeleton}}\nchains: {{voice: [tester.a, first, tester.b]}}\ntests:\n  - {test}\n"
    )
    line = 4 + test.count("\n")
    said = rf"tests\[\d\]\.\w+\.rate: \d+Mpps of {most} is more than any line carries; exp"
    with pytest.raises(SpecError, match=rf"s\.yaml:{line}:{column}: {said}"):
        load_located(spec)


@pytest.mark.parametrize("command", [("measure", "latency"), ("measure", "soak"), ("compare",), ("measure", "matrix")])
def test_a_rate_of_the_command_line_that_no_line_carries_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text("functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n")
    options = ("--rate", "500Mpps", "--frames", "1518", "--runs", str(tmp_path / "runs"))
    done = CliRunner().invoke(main.app, [*command, str(spec), *options])
    assert done.exit_code == 2
    assert "--rate: 500Mpps of 1518 B frames is more than any line carries" in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()
    # Of small frames there are lines that carry so many: what is really sent of them is for the result to tell.
    assert override(Latency(), {"rate": "500Mpps", "frames": "64"})


def test_a_rate_that_was_not_nearly_sent_is_reported_with_the_result(tmp_path: Path) -> None:
    test = Latency.model_validate({"frames": 64, "rate": "500Mpps", "duration": "1s"})
    made = run(tmp_path, LatencyMethod(), test, SimulatedDevice(1e9, sender=4e5))
    console = Console(record=True, width=200)
    print_run(made, console)
    text = console.export_text()
    assert "†0.4000" in text
    assert "64 B, device in 1 of 1 trials, < 0.1% at least" in text
    assert "The tester sent less than was offered: 64 B, device 99.92 %" in text


def test_rates_of_the_command_line_fit_the_ports_of_the_spec_too(tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text(
        "ports: {tester.a: {rate: {packets: 500kpps}}}\n"
        "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"
    )
    options = MeasureOptions({"rate": "10kpps,1Mpps", "frames": "64"}, 1, tmp_path / "runs", True, False)
    with pytest.raises(
        Mistake, match=r"--rate: 1Mpps of 64 B frames is more than tester\.a may carry; expected at most 5"
    ):
        measure(LatencyMethod(), spec, None, options)
    assert not (tmp_path / "runs").exists()


def test_what_is_sent_padded_is_noted_in_the_run(tmp_path: Path) -> None:
    path = tmp_path / "arp.pcap"
    path.write_bytes(pcap_of((42, 42)))
    request = Request("x", tmp_path / "runs", tmp_path, ("tailrace",), "", "x", floor=(capture(path),))
    folder = _new_folder(request, oversubscribed=False, notes=("one",))
    assert folder.run.notes[0] == "one"
    assert folder.run.notes[1].startswith("1 of the 1 frames of arp.pcap are shorter than 60 bytes")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"frames": "63"}, "--frames 63: '63' is no profile"),
        ({"frames": "64", "pcap": "x"}, "--frames and --pcap both"),
        ({"loss": "50"}, "--loss: 50 has no unit"),
        ({"loss": "0%,0%"}, "--loss: 0.0 is listed twice"),
        ({"rate": "90%"}, "--rate: '90%' is not a packet rate"),
        ({"search": "linear"}, "--search: 'linear'"),
        ({"trial": "2min"}, "expected trial to be at most duration"),
        ({"flows": "x"}, "--flows: 'x'"),
    ],
)
def test_mistakes_of_the_command_line_name_the_option(changes: dict[str, str], expected: str) -> None:
    with pytest.raises(Mistake) as caught:
        override(Throughput(), changes)
    assert expected in str(caught.value)


def test_what_does_not_fit_a_port_is_refused_beforehand(tmp_path: Path) -> None:
    for name, mtu, speed, real in (
        ("small", 1000, 10_000, False),
        ("real", 1500, 1000, True),
        ("down", 1500, -1, True),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mtu").write_text(f"{mtu}\n")
        (tmp_path / name / "speed").write_text(f"{speed}\n")
        if real:
            (tmp_path / name / "device").touch()
    small, real, down = (carries(f"if:{name}", tmp_path) for name in ("small", "real", "down"))
    assert (small.mtu, small.bits, real.bits, down.bits) == (1000, None, 10**9, None)
    assert carries("vhost:/x.sock", tmp_path) == Carries("vhost:/x.sock")
    fits = Loss.model_validate({"frames": [64, 1018], "rate": "100kpps"})
    check_fit(fits, [small, real, down])
    # 64 B and 20 B of preamble and gap: 1488095.2 frames a second at 1 Gbit/s (RFC 2544, appendix B).
    check_fit(Loss.model_validate({"frames": 64, "rate": "1488095pps"}), [real])
    check_fit(Latency.model_validate({"frames": 64, "rate": ["10%", "1Mpps"]}), [real])
    with pytest.raises(
        Mistake, match=r"--frames: 1019 is too long for if:small.*at most that, or `ip link set small mtu"
    ):
        check_fit(Loss.model_validate({"frames": 1019}), [real, small])
    with pytest.raises(Mistake, match="--frames: imix is too long for if:small"):
        check_fit(Loss.model_validate({"frames": "imix"}), [small])
    with pytest.raises(Mistake, match=r"--rate: 1488096pps of 64 B.*at 1Gbps; expected at most 1488095pps"):
        check_fit(Loss.model_validate({"frames": 64, "rate": "1488096pps"}), [real])
    with pytest.raises(Mistake, match="--rate: 1Mpps of imix frames"):
        check_fit(Latency.model_validate({"frames": [64, "imix"], "rate": ["10%", "1Mpps"]}), [real])
    # A capture by the mean of its frames, and by the longest payload: 1014 and 1018 B without and with the FCS.
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_of((60, 60), (1014, 1014)))
    check_fit(Loss.model_validate({"pcap": str(path)}), [small, real])
    with pytest.raises(Mistake, match="--rate: 1Mpps of the capture frames"):
        check_fit(Loss.model_validate({"pcap": str(path), "rate": "1Mpps"}), [real])
    path.write_bytes(pcap_of((60, 60), (1015, 1015), (1018, 1018), kind=TAG))
    check_fit(Loss.model_validate({"pcap": str(path)}), [small])
    path.write_bytes(pcap_of((60, 60), (1015, 1015)))
    with pytest.raises(Mistake) as caught:
        check_fit(Loss.model_validate({"pcap": str(path)}), [real, small])
    assert str(caught.value) == (
        f"--pcap: {path}: frame 2 has 1015 bytes, 1001 of them payload, and the MTU of if:small is 1000; take out what "
        "is longer (`tcpdump -r IN -w OUT less 1014`), or `ip link set small mtu 1001`"
    )


def test_ticks_reach_the_most_and_are_round() -> None:
    assert ticks(0.93) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0) == [0.0, 1.0]
    for most in (0.0031, 7.0, 99.0, 12345.0):
        made = ticks(most)
        assert most <= made[-1] < most * 1.5
        assert 4 <= len(made) <= 8


def test_a_dot_that_another_would_hide_is_a_ring_around_it() -> None:
    """NDR and PDR are often the same rate: both are to be seen."""
    lines = tuple(
        Line(name, (("64 B", y), ("1518 B", 1.0))) for name, y in (("NDR", 2.0), ("PDR", 2.5), ("PDR 2", 2.5))
    )
    svg = str(Chart("t", "x", "y", lines).svg)
    dots = re.findall(r'<circle .*? r="(\d+)" style="(.*?)"><title>(.*?): (.*?),', svg)
    found = {(name, frames): (int(radius), "fill: none" in style) for radius, style, name, frames in dots}
    assert found == {
        ("NDR", "64 B"): (3, False), ("PDR", "64 B"): (6, True), ("PDR 2", "64 B"): (3, False),
        ("NDR", "1518 B"): (9, True), ("PDR", "1518 B"): (6, True), ("PDR 2", "1518 B"): (3, False),
    }  # fmt: skip


def test_a_chart_escapes_what_it_shows() -> None:
    chart = Chart("<t>", "x", "y", (Line("<b>&", (("<g>", 1.0), ("h", 2.0))),))
    assert "<b>" not in chart.svg and "<g>" not in chart.svg and "<t>" not in chart.svg
    assert chart.svg.count("<circle") == 2
