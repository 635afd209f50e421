"""What a report says of the causes of slow frames: an incident is told once."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from run_folders import add, joined
from tester_results import both_ways

from tailrace.bench.browser import CHROMIUM, browser
from tailrace.measure.cause_meter import CauseMeter
from tailrace.measure.causes import Account, Holders, Hop, Poller, Share
from tailrace.measure.causes import Cause as Held
from tailrace.measure.frame_causes import FrameCauses
from tailrace.measure.hops import Part
from tailrace.measure.host.tools import from_values
from tailrace.observe.gaps import Wait
from tailrace.observe.hop_trace import Record
from tailrace.observe.recording import Series
from tailrace.report.causes import INTERRUPT, incidents, table_of
from tailrace.report.host import remarks
from tailrace.report.html import write_report
from tailrace.report.table import print_run, print_summary
from tailrace.results import Run, RunFolder
from tailrace.results.causes import Cause, CausedFrame, Causes, Recurrence
from tailrace.results.host import HostSoak, HostTrial

BEGAN = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
HOG = Cause(
    kind="task", text="another task ran on CPU 1: hog (thread 9)", part="tester.a to the switch", thread="worker-0",
    cpu=1, us=200.0, share=0.8, events=1, knobs=("isolcpus", "cpuset_partition"),
)  # fmt: skip


def frame(sequence: int, at_us: float, latency_us: float = 250.0) -> CausedFrame:
    return CausedFrame(
        sequence=sequence, latency_us=latency_us, sent=BEGAN + timedelta(microseconds=at_us), sent_tsc=1, part=HOG.part,
        cpu=1, causes=(HOG,), unexplained_us=30.0, usual_us=20.0, evidence=(),
    )  # fmt: skip


def causes(*frames: CausedFrame) -> Causes:
    return Causes(
        frames=frames, unexamined=2, gaps={"worker-0": 3}, limit_us=5.0, clock_error_us=0.015, lost=0,
        recurrences=(
            Recurrence(text=HOG.text, cpu=1, first_of=len(frames), count=12, total_us=2400.0, longest_us=210.0,
                       knobs=HOG.knobs),
        ),
        recorded={"softirqs": "tracepoints"}, missing={"system management interrupts": "/dev/cpu/0/msr: none"},
    )  # fmt: skip


def test_frames_that_were_slow_together_are_one_incident() -> None:
    frames = [frame(10, 100), frame(11, 120), frame(12, 340), frame(900, 5000)]
    assert [(worst.sequence, more) for worst, more in incidents(frames)] == [(10, 2), (900, 0)]


def test_the_tables_say_hop_cpu_causes_and_knobs() -> None:
    table = table_of("64 B", causes(frame(10, 100), frame(11, 120)))
    (incident,) = table.incidents
    assert incident.heading == (
        "frame 10 and 1 more: 250 µs, held up in tester.a to the switch on CPU 1, sent 12:00:00.000100 UTC"
    )
    assert incident.parts == (
        ("200 µs", "80%", HOG.text),
        ("30.0 µs", "12%", "unexplained"),
        ("20.0 µs", "8%", "usual"),
    )
    assert table.cause_rows[0][1:3] == ("2", "12")
    assert table.cause_rows[0][-1] == "isolcpus, cpuset_partition"
    assert "Usual: no thread was held up" in table.remarks[0]
    assert any("2 were overwritten" in remark for remark in table.remarks)


def many(sequence: int = 10, at_us: float = 100.0) -> CausedFrame:
    """A frame of which most is unexplained, and the rest by six causes."""
    took = (120.0, 60.0, 40.0, 9.0, 7.0, 4.0)
    each = tuple(
        HOG.model_copy(update={"text": f"cause {number}", "us": us, "share": us / 1000})
        for number, us in enumerate(took)
    )
    shared = each[1].model_copy(update={"held_up_us": {"wan": 45.0, "tester": 15.0}})
    return frame(sequence, at_us, 1000.0).model_copy(
        update={
            "causes": (each[0], shared, *each[2:]), "unexplained_us": 700.0, "usual_us": 60.0,
            "evidence": ("tester noted 3 gaps, the longest 690.0 µs", "the hypervisor took 10 ms of CPU 0"),
        }
    )  # fmt: skip


def test_of_interrupts_it_says_when_they_were_raised() -> None:
    table = table_of("interrupt-native", causes(frame(10, 100)), INTERRUPT)
    (incident,) = table.incidents
    assert incident.heading.startswith("interrupt 10: 250 µs, held up in") and ", raised 12:00:00" in incident.heading
    assert table.remarks[0].startswith("1 slow interrupts in 1 incident. ") and "kept the receiver" in table.remarks[0]


def test_what_a_frame_is_told_to_have_waited_for_adds_up_the_greatest_first() -> None:
    table = table_of("64 B", causes(many(), frame(900, 5000)))
    parts = table.incidents[0].parts
    assert [(us, text) for us, _, text in parts] == [
        ("700 µs", "unexplained"),
        ("120 µs", "cause 0"),
        ("60.0 µs", "cause 1; wan 45.0 µs, tester 15.0 µs"),
        ("40.0 µs", "cause 2"),
        ("20.0 µs", "3 smaller causes"),
        ("60.0 µs", "usual"),
    ]
    assert sum(float(us.removesuffix(" µs")) for us, _, _ in parts) == 1000
    assert sum(int(share.removesuffix("%")) for _, share, _ in parts) == 100
    assert "In 1 of the slow frames the unexplained time is longer than any cause." in table.remarks
    assert not any("more is unexplained" in remark for remark in table_of("", causes(frame(1, 1))).remarks)


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_has_all_of_a_frame_and_what_was_seen_meanwhile(tmp_path: Path, width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    print_run(caused(tmp_path, many()).run, console)
    text = " ".join(console.export_text().split())
    for said in ("700 µs 70% unexplained", "20.0 µs 2% 3 smaller causes", "meanwhile: tester noted 3 gaps, the longest"
                 " 690.0 µs; the hypervisor took 10 ms of CPU 0"):  # fmt: skip
        assert said in text


@pytest.mark.parametrize("width", [1280, 400])
def test_a_page_shows_why_and_unfolds_what_was_seen(tmp_path: Path, width: int) -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium to draw with")
    page = write_report(caused(tmp_path, many(), frame(900, 5000)).path)
    with browser(tmp_path / "profile") as chromium:
        chromium.open(page, width)
        # Causes, CPU and unexplained time stand on the page as it opens, and nothing has to be scrolled to the side.
        for text in ("cause 0", "unexplained", "usual", "held up in"):
            ends = chromium.evaluate(ENDS % json.dumps(text))
            assert ends and max(ends) <= width
        assert [shown for _, shown in chromium.evaluate(SEEN)] == [False, False]
        chromium.evaluate("document.querySelectorAll('.incidents summary').forEach(each => each.click())")
        assert chromium.evaluate(SEEN) == [[each, True] for each in many().evidence]
        assert chromium.complaints == []


ENDS = """[...document.querySelectorAll(".incidents th, .incidents td")].filter(
    cell => cell.textContent.includes(%s)).map(cell => cell.getBoundingClientRect().right)"""
"""Where cells with a text end, from the left of the page."""
SEEN = "[...document.querySelectorAll('.incidents details li')].map(each => [each.textContent, each.checkVisibility()])"
"""What was seen meanwhile, and whether it is unfolded."""


def interrupts(runs: Path, **found: Causes | None) -> RunFolder:
    """A run of `measure interrupts` that found this of its receivers."""
    histogram = from_values({10_000: 100})
    with RunFolder.create(runs, "interrupts", spec="", host={}, command=[], versions={}) as folder:
        trials = [
            HostTrial(
                name=f"interrupt-{side}-none-cpu1", test=f"interrupt-{side}", load="none", host_profile=None, cpu=1,
                role="receiver", started=folder.run.started, duration_s=1, samples=100, missed=0,
                latency_us=histogram.latency(), causes=each, histogram=None, intervals=(),
            )
            for side, each in found.items()
        ]  # fmt: skip
        soak = HostSoak(asked_s=1, slices=1, done=1, end_s=1, boot="this-boot")
        folder.keep_host_slice([(trial, histogram) for trial in trials], soak)
    return folder


def summary(run: Run) -> list[str]:
    console = Console(width=120, record=True, file=io.StringIO())
    print_summary(run, console)
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_a_summary_has_the_worst_interrupts_of_each_receiver(tmp_path: Path) -> None:
    slow = causes(*(frame(number, 1000 * number, 300 - number) for number in range(1, 6)))
    lines = summary(interrupts(tmp_path / "one", native=slow).run)
    at = lines.index("The worst of interrupt-native-none-cpu1")
    assert [line.split(":")[0] for line in lines if line.startswith("interrupt ")] == [
        "interrupt 1", "interrupt 2", "interrupt 3"
    ]  # fmt: skip
    assert lines[at + 2 : at + 5] == [f"200 µs 67% {HOG.text}", "30.0 µs 10% unexplained", "20.0 µs 7% usual"]
    lines = summary(interrupts(tmp_path / "two", native=slow, tuned=causes(many(77)), untuned=causes()).run)
    assert [line.split(":")[0] for line in lines if line.startswith("interrupt ")] == ["interrupt 1", "interrupt 77"]
    assert not any("The worst of" in line for line in summary(interrupts(tmp_path / "none", native=None).run))


def test_the_page_says_why_interrupts_were_slow(tmp_path: Path) -> None:
    found = causes(frame(1234, 100)).model_copy(update={"gaps": {}, "limit_us": 0.0})
    page = write_report(interrupts(tmp_path, native=found, timer=None).path).read_text(encoding="utf-8")
    section = re.search(r"<h2>Why the slowest were slow</h2>.*?</section>", page, re.DOTALL)
    assert section is not None
    text = " ".join(re.sub(r"<[^>]+>", " ", section[0]).split())
    for said in (
        "interrupt-native-none-cpu1 interrupt 1,234: 250 µs, held up in", "raised 12:00:00.000100 UTC",
        f"200 µs 80% {HOG.text}", "30.0 µs 12% unexplained", "20.0 µs 8% usual", "isolcpus, cpuset_partition",
        "1 slow interrupts in 1 incident", INTERRUPT.remark,
    ):  # fmt: skip
        assert said in text
    assert section[0].count("<h3>") == 1
    assert "untuned one 168.84 and 5.55" in page


def test_of_a_specs_machine_it_is_said_what_it_is(tmp_path: Path) -> None:
    (said, _) = remarks(interrupts(tmp_path, ue=None).run)
    assert said == "interrupt-ue: the same in a machine with the latency level and the memory of the spec's ue."


def caused(runs: Path, *frames: CausedFrame) -> RunFolder:
    """A run with these slow frames."""
    with RunFolder.create(runs, "latency", spec="", host={}, command=[], versions={}) as folder:
        add(folder, {**both_ways(500), "hops": {"a-to-b": joined(causes(*frames))}}, functions=2)
    return folder


def test_what_is_mostly_unexplained_counts_as_no_causes_first(meter: CauseMeter) -> None:
    hog, part = Held("task", "hog", 1, 900), Part("ring", "x")
    share = Share(hog, part, 400, 1, (("worker-0", 400),))
    rest = Share(Held("unexplained", "", 1, 7), part, 500, 1, (("worker-0", 500),))
    (found,) = meter._recurrences([Account((share,), 500, rest, 100), Account((share,), 0, None, 100)], {})
    assert (found.text, found.first_of, found.count) == ("another task ran on CPU 1: hog (thread 900)", 1, 5)


@pytest.fixture
def meter() -> CauseMeter:
    made = object.__new__(CauseMeter)
    made.watched = []
    series = [Series(1, "task", 900, "hog", 5, 2000, 700)]
    made.recorder = SimpleNamespace(recording=SimpleNamespace(series=lambda: series))  # type: ignore[assignment]
    made._before, made._began, made.hz = {}, 50, 1_000_000
    return made


@pytest.mark.parametrize("whole", [True, False])
def test_a_receiver_without_room_is_counted_over_the_trial_if_all_its_waits_are_kept(whole: bool) -> None:
    waits = [Wait(100, 200, 0, 4), Wait(300, 350, 7, 4), Wait(500, 900, 0, 1)]
    loop = SimpleNamespace(waits_between=lambda *_: (waits, [], whole))
    cause = Held("full", "first.0", 1, 7)
    meter = object.__new__(CauseMeter)
    meter.watched = [SimpleNamespace(poller=Poller("worker-0", 7, 1), loop=loop)]  # type: ignore[misc]
    meter.recorder = SimpleNamespace(recording=SimpleNamespace(series=list, until=1000))  # type: ignore[assignment]
    meter._before, meter._began, meter.hz = {}, 50, 1_000_000
    told = Account((Share(cause, Part("ring", "x"), 150, 2, (("worker-0", 150),)),), 0, None, 10)
    found = meter._recurrences([told, told], {"first.0": 4, "tester.b": 1})
    assert [(each.text, each.cpu, each.first_of, each.count, each.total_us, each.longest_us) for each in found] == (
        [("first.0 had no room", 1, 2, 2, 150.0, 100.0)] if whole else []
    )


def test_who_had_the_frame_in_each_part_of_its_way() -> None:
    class Watched:
        def __init__(self, poller: Poller) -> None:
            self.poller = poller

    tester, first, one, two = (
        Poller(name, number, number % 3) for number, name in enumerate(("tester", "first", "worker-0", "worker-1"))
    )
    meter = object.__new__(FrameCauses)
    meter.watched = [Watched(each) for each in (tester, first, one, two)]  # type: ignore[misc]
    meter.worker_of = {"tester.a": "worker-0", "first.1": "worker-1", "other.1": "worker-1"}.__getitem__
    hops = [Record(1, 10, 11, "tester.a", "first.0"), Record(1, 20, 21, "first.1", "tester.b")]
    numbers = {"tester.a": 0, "first.0": 4, "first.1": 5, "tester.b": 1}
    before, after = Hop(one, 0, 4, "first.0", first), Hop(two, 5, 1, "tester.b", tester)
    assert meter.holders(hops, numbers) == [
        Holders(one, tester, (before, after)), Holders(one), Holders(first, two, (after,)), Holders(two),
        Holders(tester, two),
    ]  # fmt: skip
    # A guest that is not ours has no poller that we know of.
    hops = [Record(1, 10, 11, "tester.a", "other.0"), Record(1, 20, 21, "other.1", "tester.b")]
    assert meter.holders(hops, numbers)[0].onward[0].receiver is None
    assert meter.holders(hops, numbers)[2] == Holders(None, two, (Hop(two, -1, 1, "tester.b", tester),))
