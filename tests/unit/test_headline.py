"""The answer first: a few lines in the terminal and at the top of the page."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_folders import add, run_folder
from tester_results import result, stream

from tailrace.report.headline import duration, headline
from tailrace.report.html import write_report
from tailrace.report.table import print_summary
from tailrace.results import Run, RunFolder


def summary(run: Run, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    print_summary(run, console)
    return console.export_text().splitlines()


@pytest.mark.parametrize(
    ("us", "text"), [(0.42, "0.42 µs"), (28.31, "28.3 µs"), (999, "999 µs"), (5_949, "5.95 ms"), (1.2e6, "1.2 s")]
)
def test_a_duration_has_the_unit_that_keeps_it_short(us: float, text: str) -> None:
    assert duration(us) == text


def new_folder(runs: Path, **changes: Any) -> RunFolder:
    return RunFolder.create(runs, "x", spec="", host={}, command=[], versions={}, **changes)


def one_function(runs: Path, *ways: tuple[int, int], attempts: int = 0) -> RunFolder:
    """64 B through a function: each trial with this latency in µs and so many frames lost; the first are attempts."""
    with new_folder(runs) as folder:
        for number, (us, lost) in enumerate(ways, 1):
            attempt = number if number <= attempts else None
            found = result(stream([us * 1000] * 99, lost=lost))
            add(folder, found, functions=1, name=f"64-{number}", attempt=attempt)
    return folder


def test_the_headline_has_rate_latency_and_loss(tmp_path: Path) -> None:
    (line,) = headline(one_function(tmp_path, (20, 0)).run)
    assert re.fullmatch(r"1 VNF, 64 B at \S+ Mpps each way: p50 20.0 µs, p99 20.0 µs, max 20.0 µs; nothing lost", line)
    (line,) = headline(one_function(tmp_path, (20, 3)).run)
    assert line.endswith("; 3 lost")


def test_a_floor_is_no_answer_where_there_is_a_chain(tmp_path: Path) -> None:
    lines = headline(run_folder(tmp_path, profiles=("64", "imix"), chains=3).run)
    assert [line.split(" at ")[0] for line in lines] == ["1 VNF, 64 B", "2 VNFs, 64 B", "1 VNF, IMIX"]
    (line,) = headline(run_folder(tmp_path, profiles=("64",), chains=1).run)
    assert line.startswith("floor, 64 B at ")


def test_attempts_that_were_repeated_are_no_answer(tmp_path: Path) -> None:
    (line,) = headline(one_function(tmp_path, (20, 0), (30, 0), attempts=1).run)
    assert "p50 30.0 µs" in line


def test_rounds_are_one_line_with_least_and_most(tmp_path: Path) -> None:
    with new_folder(tmp_path, repeat=3) as folder:
        for number, us in enumerate((20, 30, 60), 1):
            folder.begin_round(number)
            add(folder, result(stream([us * 1000] * 99)), functions=1, name="64-1")
    (line,) = headline(folder.run)
    assert "p50 30.0 µs (20.0 µs–60.0 µs)" in line


def test_the_terminal_gets_a_few_lines(tmp_path: Path) -> None:
    run = run_folder(tmp_path, profiles=("64", "256", "1518", "imix"), chains=2, oversubscribed=True).run
    lines = summary(run)
    assert len(lines) <= 8
    assert lines[1].split() == ["frames", "VNFs", "Mpps", "lost", "p50", "µs", "p99", "µs", "max", "µs"]
    assert [line.split()[0] for line in lines[2:6]] == ["64", "256", "1518", "IMIX"]
    assert lines[6].endswith("none was lost, duplicated or out of sequence.")
    assert lines[7] == "More pollers than cores: latencies include waiting for a core."
    assert max(map(len, lines)) <= 80


def test_a_fault_is_in_sight_everywhere(tmp_path: Path) -> None:
    with new_folder(tmp_path) as folder:
        add(folder, result(stream([5_000] * 100, duplicate=7)), functions=1)
    heading, row = summary(folder.run)[1:3]
    assert "duplicate" in heading
    assert " 7 " in row
    page = write_report(folder.path).read_text()
    assert '<td class="fault">7</td>' in page


@pytest.mark.parametrize(("more", "said"), [(1, "1 more note is"), (2, "2 more notes are")])
def test_long_notes_are_cut_and_counted(tmp_path: Path, more: int, said: str) -> None:
    notes = ["long " * 60, "short", "third", "fourth", "fifth"][: 3 + more]
    lines = summary(run_folder(tmp_path, chains=1, notes=notes).run)
    assert lines[-4].endswith("…") and lines[-2] == "third"
    assert lines[-1] == f"{said} in the report."


def test_the_page_answers_then_shows_then_explains(tmp_path: Path) -> None:
    page = write_report(run_folder(tmp_path, oversubscribed=True).path).read_text()
    order = [page.index(text) for text in ("1 VNF, 64 B at ", 'id="percentiles"', "<h2>Results</h2>", 'id="notes"')]
    assert order == sorted(order)


def test_earlier_attempts_are_folded_away(tmp_path: Path) -> None:
    folder = one_function(tmp_path, (20, 0), (30, 0), attempts=1)
    standing, folded = write_report(folder.path).read_text().split("1 earlier attempt<")
    assert "20.0" not in standing.split("<h2>Results</h2>")[1]
    assert "20.0" in folded.split("</details>")[0]
