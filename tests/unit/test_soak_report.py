"""The report of a soak of 40 hours, 14,400 intervals: small, soon there, and with every extreme, loss and gap on it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from rich.console import Console
from soaks import GAP_AFTER, GAP_S, LOSSES, SPIKES, forty_hours

from tailrace.bench.browser import CHROMIUM, browser
from tailrace.report import soak
from tailrace.report.curves import LONGEST, over_time
from tailrace.report.html import write_report
from tailrace.report.table import print_run
from tailrace.results import RunFolder
from tailrace.results.model import Alone, Latency
from tailrace.results.soak import as_trial


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The run folder of such a soak."""
    made = RunFolder.create(
        tmp_path_factory.mktemp("runs"), "soak", spec="", host={}, command=["tailrace"], versions={}
    )  # fmt: skip
    result = as_trial(*forty_hours(), stopped=False)
    latency = Latency(min=1.0, average=2.0, p50=2.0, p90=3.0, p99=4.0, p99_9=5.0, p99_99=6.0, max=77.0)
    alone = Alone(
        seconds=300.0, ports="vhost-user", offered_pps=40.0, sent=24_000, unsent=17, lost=0, duplicate=0,
        out_of_sequence=0, latency_us=latency,
    )  # fmt: skip
    result["soak"] = result["soak"].model_copy(update={"alone": alone, "log": "histograms/soak-64.intervals.hlog"})
    made.add_trial(result, name="soak-64", profile="64", functions=1, offered_pps=40.0)
    made.finish()
    return made


def second(number: int) -> float:
    """The start of an interval."""
    return 10.0 * number + (GAP_S if number >= GAP_AFTER else 0.0)


def test_no_extreme_no_loss_and_no_gap_is_thinned_out(folder: RunFolder) -> None:
    (trial,) = folder.run.trials
    lines = over_time(trial.worse.intervals)
    assert len(lines["x"]) <= LONGEST + 3
    seen = {value for value in lines["max"] if value is not None}
    for slow in SPIKES.values():
        assert slow / 1e3 in seen
    assert min(value for value in lines["min"] if value is not None) == min(
        each.min_us for each in trial.worse.intervals if each.min_us is not None
    )
    assert lines["gaps"] == [[second(GAP_AFTER - 1) + 10.0, second(GAP_AFTER)]]
    assert sum(lost for _, lost, _, _ in lines["faults"]) == sum(LOSSES.values())
    for number in LOSSES:
        assert any(0 <= second(number) - at < 200 for at, *_ in lines["faults"])
    # At the gap the line is broken, and no group reaches over it.
    broken = lines["x"].index(second(GAP_AFTER - 1) + 10.0)
    assert lines["max"][broken] is None and lines["x"][broken + 1] == second(GAP_AFTER)


def test_the_intervals_that_stand_out_are_in_the_table(folder: RunFolder) -> None:
    (section,) = soak.sections(folder.run)
    text = "\n".join(" ".join(row) for row in section.rows)
    for slow in SPIKES.values():
        assert f"{slow / 1e3:,.0f} " in text
    for lost in LOSSES.values():
        assert f" {lost:,} " in text
    told = " ".join(section.remarks)
    assert "40 h 0 min of 40 h 0 min were measured in 2 parts, in 14,400 intervals of 10 s" in told
    assert "The tester alone, 5 min 0 s over vhost-user ports" in told and "77.0 at most" in told
    assert "none lost, duplicated or out of sequence; 17 more unsent" in told
    assert "Nothing was measured for 2 h 0 min from 16 h 40 min on: the machine was rebooted." in told
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    print_run(folder.run, console)
    assert "Nothing was measured for 2 h 0 min" in console.export_text()


def test_the_page_is_small_and_a_browser_has_it_soon(folder: RunFolder, tmp_path: Path) -> None:
    page = write_report(folder.path)
    assert page.stat().st_size <= 5 << 20
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert data is not None
    assert len(json.loads(data[1])[0]["times"][0]["x"]) > 1000
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with browser(tmp_path / "profile") as chromium:
        for width in (1280, 400):
            chromium.open(page, width)
            root = "document.documentElement"
            assert chromium.evaluate(f"{root}.dataset.charts") == "3"
            assert chromium.evaluate(f"{root}.scrollWidth") <= width
            assert float(chromium.evaluate(f"{root}.dataset.drawnAfter")) <= 2000, "ms until every chart was drawn"
            if pictures := os.environ.get("TAILRACE_PICTURES"):  # to be looked at
                chromium.picture(Path(pictures) / f"40-hours-{width}.png")
        assert chromium.complaints == []
