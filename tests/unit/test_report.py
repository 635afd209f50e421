"""Reports: the table fits its terminal, the page is safe with hostile input, and a real browser draws it."""

from __future__ import annotations

import html
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import add, joined, run_folder, without_loss
from tester_results import both_ways, latency, result, samples_of, stream

from tailrace.bench.browser import CHROMIUM, Browser, browser
from tailrace.errors import Mistake
from tailrace.measure.share import figures_of
from tailrace.measure.side import figures as side_figures
from tailrace.report import curves, figures
from tailrace.report.caveats import warnings
from tailrace.report.hops import tables
from tailrace.report.html import write_comparison, write_report
from tailrace.report.marked import mark
from tailrace.report.table import print_run
from tailrace.results import ResultError, Run, RunFolder
from tailrace.results.comparison import CellRound, ComparedPair, ComparisonFinding, MatrixCell, ratios_of
from tailrace.results.diff import facts
from tailrace.results.findings import BurstFinding
from tailrace.results.histogram import Histogram, from_tester
from tailrace.results.model import Interval
from tailrace.results.share import Budget, Element, ShareFinding, SharePair, contributions_of
from tailrace.results.stored import read_run

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[31m\u202e&amp;'\""


def printed(run: Run, width: int) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: PTH123, SIM115
    print_run(run, console)
    return console.export_text()


# The terminal


def test_at_120_columns_there_is_one_table(tmp_path: Path) -> None:
    run = run_folder(tmp_path).run
    text = printed(run, 120)
    assert text.count("frames   VNFs") == 1
    latency = run.trials[2].worse.latency_us
    assert latency is not None
    row = next(line for line in text.splitlines() if line.startswith(" 64 B") and " 2 " in line).split()
    assert row[:6] == ["64", "B", "2", "1.500", "0.0030", "0.0020"]
    assert row[6:9] == ["0", "0", "0"]
    assert float(row[9]) == pytest.approx(latency.min, rel=0.005)
    assert float(row[12]) == pytest.approx(latency.p99, rel=0.005)
    assert float(row[14]) == pytest.approx(latency.max, rel=0.005)
    share = run.trials[2].share_us
    assert share is not None
    assert row[15:] == [figures.microseconds(share.p50), figures.microseconds(share.p99)]


@pytest.mark.parametrize("width", [80, 120])
def test_no_cell_is_cut_or_wrapped(tmp_path: Path, width: int) -> None:
    folder = run_folder(tmp_path, chains=2)
    slow = stream([9_000_000_000] * 50, lost=123_456_789, duplicate=7, out_of_sequence=1_234_567)
    with folder:
        add(folder, result(slow), "1518", 2)
    text = printed(folder.run, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "…" not in text
    for figure in ("123,456,789", "1,234,567", "9,000,000"):
        assert figure in text
    # At 80 columns the latency of such frames needs two tables by itself.
    assert text.count("VNFs  ") == {80: 3, 120: 2}[width]


def test_an_oversubscribed_host_is_the_first_thing_said(tmp_path: Path) -> None:
    run = run_folder(tmp_path, oversubscribed=True).run
    assert printed(run, 120).splitlines()[0].startswith("More pollers than cores")
    assert printed(run, 120).count("More pollers") == 1


def test_rows_are_in_order_of_size_then_chain(tmp_path: Path) -> None:
    run = run_folder(tmp_path, profiles=("1518", "imix", "64", "256"), chains=2).run
    order = [(trial.profile, trial.functions) for trial in figures.in_order(run)]
    assert order == [(profile, chain) for profile in ("64", "256", "1518", "imix") for chain in (0, 1)]


def test_faults_of_either_direction_are_in_the_table_and_the_verdict(tmp_path: Path) -> None:
    # The worse direction is the one that lost; the disorder of the other must not vanish.
    a = stream([5_000] * 100, lost=2)
    b = stream([5_000] * 100, "b-to-a", duplicate=3, out_of_sequence=4, foreign=5, offered=103, unsent=6)
    with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={}) as folder:
        add(folder, result(a, b))
    text = printed(folder.run, 120)
    row = next(line for line in text.splitlines() if line.startswith(" 64 B"))
    assert row.split()[6:9] == ["2", "3", "4"]
    assert "Of 199 frames sent: 2 lost, 3 duplicated, 4 out of sequence." in text
    assert "The tester sent less than was offered: 64 B, floor 5.83 %." in text
    assert "b-to-a: 5 frames arrived that this trial did not send" in text


def test_a_tester_that_fell_short_is_said_once_for_all_trials(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={}) as folder:
        for functions, unsent in enumerate((0, 1, 25_000)):
            way = stream([900] * 75_000, offered=75_000 + unsent, unsent=unsent)
            add(folder, result(way, stream([900] * 9, "b-to-a")), functions=functions)
    assert [text for text in warnings(folder.run) if "sent less" in text] == [
        "The tester sent less than was offered: 64 B, 1 VNF < 0.01 %; 64 B, 2 VNFs 25.00 %."
    ]


def test_a_report_takes_the_place_of_nothing_but_a_file(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "runs").path
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("pipe", "a device"), ("runs", "a folder")):
        with pytest.raises(Mistake, match=f"{name}: there is {what}; expected a file"):
            write_report(run, tmp_path / name)
    (tmp_path / "there.html").write_text("before")
    (tmp_path / "link.html").symlink_to("there.html")
    write_report(run, tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert "<html" in (tmp_path / "there.html").read_text()
    assert (tmp_path / "pipe").is_fifo()


def test_versions_of_what_ran_are_kept_side_by_side(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={"tailrace": "1"}) as folder:
        folder.ran({"dpdk": "22.11", "tailrace-switch": "1"})
        folder.ran({"dpdk": "22.11", "tailrace-switch": "2"})
        folder.ran({"dpdk": "22", "tailrace-switch": "1"})
    versions = {"tailrace": "1", "dpdk": "22.11, 22", "tailrace-switch": "1, 2"}
    assert json.loads((folder.path / "results.json").read_text())["versions"] == versions


def test_a_run_without_fault_says_so_and_only_then(tmp_path: Path) -> None:
    run = run_folder(tmp_path).run
    assert "Of 36,000 frames sent, none was lost, duplicated or out of sequence." in printed(run, 120)


def test_an_invalid_run_and_trial_say_why(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={})
    with pytest.raises(RuntimeError), folder:
        add(folder, result(stream([], lost=3), stopped=True))
        raise RuntimeError("later")
    text = printed(folder.run, 120)
    assert text.splitlines()[0] == "Not valid: 64-0: stopped before its end"
    assert " 64 B !" in text
    assert "64 B, floor (trial 64-0) is not valid: stopped before its end" in text


def test_a_terminal_is_not_obeyed_to(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, notes=["\x1b[2Jgone [bold]x[/bold]\r"], fabric="a\x9b31mb")
    with folder:
        folder.invalidate("\x07[red]bell\u202e")
    text = printed(folder.run, 200)
    assert "[bold]x[/bold]" in text
    assert "[red]bell" in text
    assert not set("\x1b\x07\r\x9b\u202e") & set(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0.00"),
        (4.206, "4.21"),
        (9.996, "10.0"),
        (35.24, "35.2"),
        (99.96, "100"),
        (12_345.4, "12,345"),
        (-0.4, "-0.40"),
    ],
)
def test_microseconds(number: float, text: str) -> None:
    assert figures.microseconds(number) == text


# Curves


def test_the_curve_is_the_quantiles() -> None:
    samples = sorted(samples_of(10_000, 5))
    histogram = from_tester(latency(samples))
    axis = curves.grid(10_000)
    assert (axis[0], axis[-1], len(axis)) == (1, 10_000, 4 * curves.PER_DECADE + 1)
    values = curves.by_percentile(histogram, axis)
    for x, value in zip(axis[:-1], values[:-1], strict=True):
        assert value is not None
        exact = samples[max(1, math.ceil(10_000 * (1 - 1 / x) - 1e-6)) - 1] / 1e3
        assert exact <= value <= exact * 1.01
    assert values[-1] == samples[-1] / 1e3
    at_99 = values[2 * curves.PER_DECADE]
    figures_ = histogram.latency()
    assert figures_ is not None
    assert at_99 == figures_.p99


def test_a_shorter_curve_ends_at_its_own_maximum() -> None:
    values = curves.by_percentile(from_tester(latency([1_000, 2_000, 70_000])), curves.grid(1_000))
    drawn = [value for value in values if value is not None]
    assert drawn[-1] == 70
    assert values[len(drawn) :] == [None] * (len(values) - len(drawn))
    assert drawn[-2] < 70
    assert curves.by_percentile(Histogram(), curves.grid(10)) == [None] * len(curves.grid(10))
    assert curves.by_percentile(from_tester(latency([5_000])), curves.grid(1)) == [5]


def test_thinning_keeps_every_maximum_and_every_gap() -> None:
    def interval(number: int, us: float | None) -> Interval:
        return Interval(start_s=number, sent=1, received=int(us is not None), min_us=us, avg_us=us, max_us=us)

    number = 3 * curves.LONGEST
    long = [interval(index, None if 30 <= index < 36 else 5) for index in range(number)]
    long[4_001] = interval(4_001, 777)
    found = curves.over_time(long)
    assert len(found["x"]) == curves.LONGEST
    assert found["max"][4_001 // 3] == 777
    assert found["min"][4_001 // 3] == 5
    assert found["avg"][4_001 // 3] == pytest.approx((777 + 5 + 5) / 3, rel=1e-5)
    for name in ("min", "avg", "max"):
        assert [index for index, value in enumerate(found[name]) if value is None] == [10, 11]


def test_the_frequency_curve_holds_every_frame_once_and_in_its_place() -> None:
    samples = samples_of(10_000, 5)
    shares = curves.frequencies(from_tester(latency(samples)))
    assert sum(shares.values()) == pytest.approx(1)
    for number, share in shares.items():
        low, high = (1e3 * 10 ** ((number + more) / curves.PER_DECADE) for more in (0, 1))
        # A bucket at an edge is divided between its two bins: at most 1 % beyond on either side.
        inside = sum(low * 1.01 <= value < high * 0.99 for value in samples) / 10_000
        around = sum(low * 0.99 <= value < high * 1.01 for value in samples) / 10_000
        assert inside - 1e-9 <= share <= around + 1e-9
    assert curves.frequencies(Histogram()) == {}
    assert sum(curves.frequencies(from_tester(latency([0, 0, 1]))).values()) == pytest.approx(1)


# The page


class Page(HTMLParser):
    """What a browser would make elements and attributes of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_the_page_is_one_small_file_that_asks_for_nothing(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, profiles=("64", "256", "1518", "imix"))
    path = write_report(folder.path)
    assert path == folder.path / "report.html"
    assert path.stat().st_size < 1_000_000
    elements = Page(path.read_text()).elements
    for tag, attributes in elements:
        assert tag not in {"iframe", "object", "embed", "img"}
        assert attributes.get("src") is None
        assert (attributes.get("href") or "data:").startswith(("data:", "#"))
    assert not re.search(r"url\(|@import", path.read_text())


def test_the_page_holds_the_figures_of_the_run(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    text = write_report(folder.path).read_text()
    cells = [html.unescape(cell) for cell in re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", text)]
    for trial in folder.run.trials:
        for column in (*figures.NAMING, *figures.TRAFFIC, *figures.latency_columns([folder.run])):
            assert column.cell(trial) in cells
    assert "tailrace demo --runs &#39;my runs&#39;" in text
    assert "fabric: tailrace" in text
    assert "cpu: model" in cells
    assert "Some CPU" in cells
    assert "none was lost, duplicated or out of sequence" in text
    assert "Not valid" not in text
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[0])
    assert [profile["title"] for profile in data] == ["64 B", "IMIX"]
    worst = folder.run.trials[2].worse
    assert worst.latency_us is not None
    drawn = [value for value in data[0]["percentiles"][2]["y"] if value is not None]
    assert drawn[-1] == pytest.approx(worst.latency_us.max, rel=1e-5)
    assert max(data[0]["times"][2]["max"]) == pytest.approx(worst.latency_us.max, rel=1e-5)


def hostile_folder(runs: Path) -> RunFolder:
    folder = run_folder(
        runs,
        spec=HOSTILE,
        host={HOSTILE: {HOSTILE: [HOSTILE]}},
        command=[HOSTILE],
        versions={HOSTILE: HOSTILE, "tailrace": HOSTILE},
        fabric=HOSTILE,
        notes=[HOSTILE],
    )
    with folder:
        odd = stream(samples_of(100, 1)) | {"name": HOSTILE, "from": HOSTILE, "to": "b", "foreign": 1}
        add(folder, result(odd), HOSTILE, 1, name=HOSTILE)
        folder.invalidate(HOSTILE)
    return folder


def test_hostile_strings_stay_text(tmp_path: Path) -> None:
    ordinary = write_report(run_folder(tmp_path / "a").path).read_text()
    hostile = write_report(hostile_folder(tmp_path / "b").path).read_text()
    assert "owned" in hostile
    elements = Page(hostile).elements
    assert (
        [tag for tag, _ in elements].count("script") == [tag for tag, _ in Page(ordinary).elements].count("script") == 3
    )
    assert not [attributes for _, attributes in elements if any(name.startswith("on") for name in attributes)]
    assert "img" not in [tag for tag, _ in elements]
    # And turn no other text around: neither as they are nor as JSON has them.
    data = re.findall(r'<script type="application/json" id="data">(.*?)</script>', hostile, re.S)[0]
    labels = [each["label"] for profile in json.loads(data) for each in profile["percentiles"]]
    assert labels and not any("\u202e" in label or "\x1b" in label for label in labels)


def test_an_invalid_run_has_a_banner_with_the_reason(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, oversubscribed=True)
    with folder:
        folder.invalidate('the function "first" was killed by signal 9')
    text = html.unescape(write_report(folder.path).read_text())
    assert 'role="alert"><strong>Not valid: the function "first" was killed by signal 9' in text
    assert "More pollers than cores" in text


def test_a_lost_histogram_costs_its_curve_and_is_said(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, profiles=("64",), chains=2)
    (folder.path / "histograms/64-1.hlog").unlink()
    (folder.path / "spec.yaml").unlink()
    text = write_report(folder.path).read_text()
    assert "No curve for 64 B, 1 VNF" in text
    assert "No spec" in text
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.S)[0])
    assert len(data[0]["percentiles"]) == 1
    assert len(data[0]["times"]) == 2


def test_a_run_that_measured_nothing_still_has_a_report(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, profiles=())
    text = write_report(folder.path).read_text()
    assert "Not valid: nothing was measured" in text
    assert "<h2>Results" not in text


def test_no_report_without_results(tmp_path: Path) -> None:
    with pytest.raises(ResultError):
        write_report(tmp_path)


def test_facts_are_flattened() -> None:
    tree = {"cpu": {"cores": 2, "smt": False}, "flags": ["a", "b"], "none": [], "numa": [{"mib": 1}], "x": None}
    assert facts(tree) == [
        ("cpu: cores", "2"),
        ("cpu: smt", "no"),
        ("flags", "a, b"),
        ("none", "none"),
        ("numa 0: mib", "1"),
        ("x", "unknown"),
    ]


# A real browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with browser(tmp_path_factory.mktemp("profile")) as made:
        made.call("Page.addScriptToEvaluateOnNewDocument", source=LABELS)
        yield made


def traced_folder(runs: Path) -> RunFolder:
    """A run whose latency was taken apart by hop, in both directions."""
    folder = run_folder(runs, profiles=(), chains=0)
    with RunFolder(folder.path, folder.run.model_copy(update={"finished": None})) as folder:
        add(folder, {**both_ways(500), "hops": {name: joined() for name in ("a-to-b", "b-to-a")}}, functions=2)
    return folder


def several(runs: Path) -> Path:
    folders = [
        run_folder(runs, profiles=("64", "imix"), no_loss=6e6),
        run_folder(runs, profiles=("64", "1518"), fabric="ovs-dpdk", no_loss=2e6),
        hostile_folder(runs),
        traced_folder(runs),
    ]
    return write_comparison([folder.path for folder in folders], runs / "several.html")


def nothing_received(runs: Path) -> Path:
    """A time axis without a point, and no distribution."""
    with RunFolder.create(runs, "x", spec="", host={}, command=[], versions={}) as folder:
        add(folder, result(stream([], lost=5)))
    return write_report(folder.path)


def soaked(runs: Path) -> Path:
    """A trial of 40 hours with a value every 10 s."""
    with RunFolder.create(runs, "soak", spec="", host={}, command=[], versions={}) as folder:
        add(folder, result(stream(samples_of(14_400 * 2, 1), intervals=14_400, seconds=144_000.0), seconds=144_000.0))
    return write_report(folder.path)


def compared(runs: Path) -> Path:
    """Two fabrics in turn, each on the floor of its own kind of port, and cells of a matrix."""
    sides = {"tailrace": ("vhost-user", 1_000, 20_000), "linux-bridge": ("tap", 8_000, 12_000)}
    profiles = ("64", "1518")
    with RunFolder.create(runs, "compare", spec="", host={}, command=[], versions={}) as folder:
        for ports, floor_ns, _ in sides.values():
            for each in profiles:
                folder.add_floor(both_ways(200, base_ns=floor_ns), profile=each, ports=ports, offered_pps=1e5)
        for each in profiles:
            pairs = []
            for number in (1, 2):
                found = {}
                for side, (ports, _, ns) in sides.items():
                    name = f"{each}-{side}-pair-{number}"
                    folder.measure_over(ports)
                    add(folder, both_ways(500, seed=number, base_ns=ns), each, 1, name=name)
                    found[side] = side_figures(folder.run.trials[-1])
                    folder.put_finding(
                        MatrixCell(
                            name=name, profile=each, functions=1, valid=True, reason=None, fabric=side, interface="tap",
                            ends="east/west", pattern="VVV",
                        ).with_round(
                            CellRound(
                                round=1, trial=name, p50_us=found[side]["p50_us"], p99_us=30.0, max_us=90.0,
                                floor_ratio=found[side]["floor_ratio"],
                            )
                        )
                    )  # fmt: skip
                pairs.append(ComparedPair(sides=found))
            folder.put_finding(
                ComparisonFinding(
                    method="compare", name=each, profile=each, functions=1, valid=True, reason=None,
                    baseline="tailrace", sides=tuple(sides), offered_pps=1e5, pairs=tuple(pairs),
                    ratios=ratios_of(pairs, list(sides), "tailrace", ["p50_us", "p99_us"]),
                )
            )  # fmt: skip
    page = write_report(folder.path)
    marked = re.findall(r"<td>~1[34]\.\d(?: \([\d.–]+\))?</td>", page.read_text())
    assert len(marked) == 2 + 4 + 4, "in both comparisons, four cells and four trials"
    return page


def shared(runs: Path) -> Path:
    """One function's own share, of which the chain was traced with it and with the skeleton."""
    function, profile, trials = "customer-edge-router", "imix", {}
    way = "customer-edge-router.0 to customer-edge-router.1"
    pairs, budgets = [], []
    with RunFolder.create(runs, "share", spec="", host={}, command=[], versions={}) as folder:
        for number in (1, 2, 3):
            for side, ns in (("function", 1_400_000), ("skeleton", 12_000)):
                name = f"{profile}-share-of-{function}-pair-{number}-{side}"
                add(folder, both_ways(500, seed=number, base_ns=ns), profile, 3, name=name)
                trials[side] = folder.run.trials[-1]
            pairs.append(SharePair(function=figures_of(trials["function"]), skeleton=figures_of(trials["skeleton"])))
        for direction in ("a-to-b", "b-to-a"):
            elements = [
                Element(kind=kind, name=name, function_us=us, skeleton_us=us / 3)
                for kind, name, us in (
                    ("ring", "tester.a to the switch", 12.0), ("switch", way, 3.0), ("function", function, 1_400.0),
                    ("switch", way, 3.0), ("function", "lan", 40.0), ("ring", "the switch to tester.b", 9.0),
                )
            ]  # fmt: skip
            whole = sum(each.function_us for each in elements)
            budgets.append(
                Budget(
                    direction=direction, function_trial=trials["function"].name, skeleton_trial=trials["skeleton"].name,
                    elements=tuple(elements), function_us=whole, skeleton_us=whole / 3,
                )
            )  # fmt: skip
        folder.put_finding(
            ShareFinding(
                name=f"{profile}-share-of-{function}", profile=profile, functions=3, valid=True, reason=None,
                function=function, kind="router", offered_pps=1.5e6, pairs=tuple(pairs),
                contributions=contributions_of(pairs), budgets=tuple(budgets),
            )
        )  # fmt: skip
    return write_report(folder.path)


def burst(runs: Path) -> Path:
    """Bursts in rounds, of which some ended for another reason than loss."""
    with RunFolder.create(runs, "burst", spec="", host={}, command=[], versions={}, repeat=2) as folder:
        for number in (1, 2):
            folder.begin_round(number)
            for profile in ("64", "1518", "imix"):
                for functions in (1, 2):
                    folder.add_finding(
                        BurstFinding(
                            name=f"{functions}-functions-{profile}", profile=profile, functions=functions, valid=True,
                            reason=None, rate_pps=14_880_952.0, throughput_pps=1_234_567.0, longest=29_761_904, step=64,
                            frames=(1_048_576 * number, 1_234_567), trials=99,
                            limit="loss" if profile == "64" else "refused" if functions == 1 else "longest",
                        )
                    )  # fmt: skip
    return write_report(folder.path)


def differing(runs: Path) -> Path:
    """Two runs of other hosts, versions and specs, with findings of every kind that has a table of its own."""
    long = "vmlinuz-6.1.0-28-cloud-amd64 root=UUID=4b7c isolcpus=managed_irq,domain,2-31 nohz_full=2-31 rcu_nocbs=2-31"
    other = {
        "host": {"cpu": {"model": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"}, "kernel": {"command line": long}},
        "versions": {"tailrace": "0.2.0", "dpdk": "a" * 64},
        "fabric": "ovs-dpdk",
    }
    pages = [shared(runs), burst(runs), compared(runs)]
    first, last = run_folder(runs, no_loss=6e6).path, run_folder(runs, profiles=("1518",), no_loss=2e6, **other).path
    return write_comparison([first, last, *(page.parent for page in pages)], runs / "differing.html")


PAGES: dict[str, tuple[Callable[[Path], Path], int]] = {
    "ordinary": (lambda runs: write_report(run_folder(runs, no_loss=3e6).path), 6),
    "hostile": (lambda runs: write_report(hostile_folder(runs).path), 9),
    "nothing-received": (nothing_received, 1),
    "nothing-measured": (lambda runs: write_report(run_folder(runs, profiles=()).path), 0),
    "traced": (lambda runs: write_report(traced_folder(runs).path), 3),
    "several": (several, 12),
    "soak": (soaked, 3),
    "compared": (compared, 6),
    "share": (shared, 3),
    "burst": (burst, 0),
    "differing": (differing, 9),
}


LABELS = """window.cut = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
    const at = new DOMPoint(x, y).matrixTransform(this.getTransform()), wide = this.measureText(text).width;
    const left = this.textAlign === "center" ? at.x - wide / 2 : this.textAlign === "right" ? at.x - wide : at.x;
    if (left < -0.5 || left + wide > this.canvas.width + 0.5) window.cut.push(text);
    return write.call(this, text, x, y, ...more);
};"""
"""Notes what a chart writes beyond its edges."""

COVERED = """[...document.querySelectorAll(".wide")].filter(table => table.scrollWidth > table.clientWidth).flatMap(
    table => [...table.querySelectorAll("th")].filter(
        name => getComputedStyle(name).position === "sticky" && name.offsetWidth > table.clientWidth / 2
    )
).map(name => name.textContent)"""
"""What of a table that is too wide for the page takes more than half of it, wherever it is scrolled to."""


def test_curves_of_different_rates_and_rounds_look_different(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={}, repeat=2) as folder:
        for round_ in (1, 2):
            folder.begin_round(round_)
            add(folder, result(stream([1_000])), functions=0, name=f"floor-{round_}")
            for part in (1.0, 0.5):
                add(
                    folder, result(stream([2_000])), functions=1, name=f"at-{part}-{round_}",
                    rate_fraction=part, offered_pps=1e6 * part, **without_loss(1e6),
                )  # fmt: skip
    (profile,) = curves.charts(mark([read_run(folder.path)]))
    assert {(one["label"], one["colour"], one["dash"]) for one in profile["times"]} == {
        *((f"floor for 1 VNF, round {number}, a-to-b", 0, 1) for number in (1, 2)),
        *((f"1 VNF at 100%, round {number}, a-to-b", 1, number - 1) for number in (1, 2)),
        *((f"1 VNF at 50%, round {number}, a-to-b", 2, number - 1) for number in (1, 2)),
    }


@pytest.mark.parametrize("kind", PAGES)
@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_draws_every_chart_without_an_error(tmp_path: Path, chromium: Browser, kind: str, width: int) -> None:
    make, charts = PAGES[kind]
    page = make(tmp_path)
    chromium.complaints.clear()
    chromium.open(page, width, dark=width == 400)
    assert chromium.evaluate("document.documentElement.dataset.charts") == str(charts)
    assert chromium.evaluate("document.querySelectorAll('canvas').length") == charts
    assert "owned" not in chromium.evaluate("document.title").partition(",")[0]
    # Nothing sticks out sideways: what is wide scrolls by itself.
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.evaluate(COVERED) == [], "names that stay in sight leave no room for what scrolls behind them"
    assert chromium.evaluate("window.cut") == [], "labels of an axis that are cut off"
    assert page.stat().st_size < 5_000_000
    if folder := os.environ.get("TAILRACE_PICTURES"):  # to be looked at
        chromium.picture(Path(folder) / f"{kind}-{width}.png")
    if width == 1280:
        chromium.print(Path(os.environ.get("TAILRACE_PICTURES", tmp_path)) / f"{kind}.pdf")
    assert chromium.complaints == []


def test_the_functions_own_share_is_a_column_only_where_it_is_known(tmp_path: Path) -> None:
    """Else it would be an empty one, with a line on how to read it."""
    for functions, known in (((0, 1), True), ((1,), False)):
        with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={}) as folder:
            for number in functions:
                add(folder, both_ways(50), functions=number)
        text = printed(folder.run, 200)
        page = write_report(folder.path).read_text()
        for shown, where in ((text, "Share: the VNFs' own"), (page, "Share: the VNFs&#39; own")):
            assert (where in shown) == known
        assert ("p50\nshare" in text or "share" in text.partition("Share:")[0]) == known


def test_slow_frames_are_shown_by_any_replica_and_those_that_are_not_are_counted(tmp_path: Path) -> None:
    found = joined()
    (slow,) = found.hops.slowest
    names = tuple(name.replace("second", "second-2") for name in slow.parts)
    other = slow.model_copy(update={"sequence": 8, "parts": names})
    short = slow.model_copy(update={"sequence": 9, "parts": names[:5], "parts_us": slow.parts_us[:5]})
    hops = found.hops.model_copy(update={"slowest": (other, slow, short), "slowest_untraced": 3})
    folder = run_folder(tmp_path, profiles=(), chains=0)
    with RunFolder(folder.path, folder.run.model_copy(update={"finished": None})) as folder:
        add(folder, {**both_ways(500), "hops": {"a-to-b": replace(found, hops=hops)}}, functions=2)
    (table,) = tables(folder.run)
    assert [row[0] for row in table.slow_rows] == ["8", "7"]
    assert table.slow_titles[2:] == tuple(part.name for part in hops.parts)
    assert "Of the trial's slowest, 3 were overwritten in the trace before they were read." in table.remark
    assert "1 took another path" in table.remark
