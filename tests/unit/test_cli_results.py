"""`tailrace runs`, `report`, `diff`, `export`, `import` as a user runs them: what they print, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import ready_command
from rich.console import Console
from run_folders import run_folder
from typer.testing import CliRunner

from tailrace.cli import main
from tailrace.cli.results import _table, parse_time
from tailrace.errors import Mistake
from tailrace.results.index import Entry
from tailrace.results.run import UNFINISHED, find_folder


def tailrace(folder: Path, *arguments: str, status: int = 0) -> str:
    """The command's standard output; of one that fails, its only line on standard error."""
    program = Path(sys.prefix) / "bin/tailrace"
    done = ready_command.run(program, arguments, environment=dict(os.environ), folder=folder, timeout=60)
    assert done.returncode == status, done.stderr
    if status == 0:
        assert done.stderr == ""
        return done.stdout
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_run_is_found_shown_compared_and_carried(tmp_path: Path) -> None:
    made = run_folder(tmp_path / "runs", profiles=("64",), chains=2)
    name = made.path.name
    assert name in tailrace(tmp_path, "runs")
    (entry,) = json.loads(tailrace(tmp_path, "runs", "--spec", "*", "--json") or "[]") or [None]
    assert entry is None  # it was made without a spec's name
    (entry,) = json.loads(tailrace(tmp_path, "runs", "--fabric", "tailrace", "--since", "1h", "--json"))
    assert entry["folder"] == f"runs/{name}"
    assert "report.html" in tailrace(tmp_path, "report", f"runs/{name}")
    table = list(csv.DictReader(tailrace(tmp_path, "report", name, "--csv").splitlines()))
    assert [row["trial"] for row in table] == ["64-0", "64-0", "64-1", "64-1"]
    assert "KiB" in tailrace(tmp_path, "export", name)
    assert "runs/" in tailrace(tmp_path, "import", f"{name}.zip", "--runs", "elsewhere/runs")
    assert "The same: setting, host, versions, spec." in tailrace(tmp_path, "diff", name, f"elsewhere/runs/{name}")
    tailrace(tmp_path, "report", name, f"elsewhere/runs/{name}", "-o", "both.html")
    assert "2 runs side by side" in (tmp_path / "both.html").read_text()


FABRICS = "tailrace,ovs-dpdk,linux-bridge,direct"
HOST = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"


@pytest.mark.parametrize(
    ("width", "fabric", "host"),
    [
        (80, "tailrace +3", "Intel(R)"),
        (120, "tailrace +3", HOST),
        (160, "tailrace, ovs-dpdk, linux-bridge, direct", HOST),
    ],
)
def test_runs_of_several_fabrics_take_one_line_each(width: int, fabric: str, host: str) -> None:
    found = [
        Entry("2026-11-21-143005-compare-steady", fabric=FABRICS, host=HOST, trials=40),
        Entry("2026-11-21-143005-latency-chain", fabric="tailrace", host="lab", trials=4, reason="interrupted"),
        Entry("broken", unreadable="not JSON"),
        Entry("2026-11-21-153005-soak-chain", fabric="tailrace", host="lab", trials=1, reason=UNFINISHED),
    ]
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(_table(found, console))
    lines = [line.strip() for line in console.export_text().rstrip().splitlines()]
    assert all(len(line) <= width for line in lines)
    named = [line for line in lines if line.startswith(("2026", "broken"))]
    assert len(named) == len(lines) - 3 == len(found), "an empty line, two of a heading, and one for each"
    assert all(each.folder in line for each, line in zip(found, named, strict=True))
    assert named[0].endswith("40")
    assert fabric in named[0]
    assert host in named[0]
    assert ("…" in named[0]) == (width == 80)
    assert named[1].endswith("not valid")
    assert named[2].endswith("unreadable")
    assert named[3].endswith("not finished")


def test_bad_input_is_one_line_and_status_2(tmp_path: Path) -> None:
    made = run_folder(tmp_path / "runs", profiles=("64",), chains=1)
    whole = (made.path / "results.json").read_text()
    for name, text in (("short", whole[:-200]), ("newer", whole.replace('"format": ', '"format": 9', 1))):
        shutil.copytree(made.path, tmp_path / "runs" / name)
        (tmp_path / "runs" / name / "results.json").write_text(text)
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "short.zip").write_bytes(b"PK\x03\x04")
    for arguments, words in (
        (("report", "short"), "was the file cut short?"),
        (("diff", made.path.name, "newer"), "upgrade Tailrace"),
        (("report", "notes.txt"), "not JSON"),
        (("export", "missing"), "there is no run missing"),
        (("export", "."), "is this a run folder?"),
        (("import", "short.zip"), "expected a file made by `tailrace export`"),
        (("import", "missing.zip"), "No such file"),
        (("import", "short.zip", "--most", "much"), "--most"),
        (("runs", "--since", "yesterday"), "expected a date"),
        (("runs", "--runs", "nowhere"), "no such folder"),
    ):
        assert words in tailrace(tmp_path, *arguments, status=2)


def test_a_report_leaves_out_the_runs_that_cannot_be_read_and_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, last = (run_folder(tmp_path / "runs", profiles=("64",), chains=1).path.name for _ in range(2))
    (tmp_path / "runs/broken").mkdir()
    (tmp_path / "runs/broken/results.json").write_text("{")
    for options, written in (
        (("--csv",), None),
        (("--csv", "-o", "x.csv"), "x.csv"),
        ((), "comparison.html"),
        (("-o", "x.html"), "x.html"),
    ):
        done = CliRunner().invoke(main.app, ["report", first, "broken", "missing", last, *options])
        assert done.exit_code == 2
        told = done.stderr.splitlines()
        assert len(told) == 2
        assert "runs/broken/results.json: " in told[0]
        assert "there is no run missing" in told[1]
        text = (tmp_path / written).read_text() if written else done.stdout
        assert first in text
        assert last in text
        # Where none can be read nothing is written.
        for path in tmp_path.glob("*.*"):
            path.unlink()
        done = CliRunner().invoke(main.app, ["report", "broken", "missing", *options])
        assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 2)
        assert not list(tmp_path.glob("*.*"))


@pytest.mark.parametrize(
    ("text", "day", "hour"),
    [("2026-11-20", 20, 0), ("2026-11-20 13:00", 20, 13), ("36h", 20, 0), ("2d", 19, 12), ("60min", 21, 11)],
)
def test_since(text: str, day: int, hour: int) -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert parse_time("--since", text, now) == datetime(2026, 11, day, hour, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "now", "2026-13-01", "2026-", "5", "d", "99999999999d", "-1h"])
def test_no_since(text: str) -> None:
    with pytest.raises(Mistake, match=r"^--until .*expected a date"):
        parse_time("--until", text, datetime.now(UTC))


def test_a_run_without_trials_is_not_listed_with_none(tmp_path: Path) -> None:
    """A search, a loss curve and a burst keep what they found, and no trial by itself."""
    name = run_folder(tmp_path / "runs", profiles=()).path.name
    (line,) = [line for line in tailrace(tmp_path, "runs").splitlines() if name in line]
    assert "-" in line.split()


def test_a_run_is_a_path_or_a_name(tmp_path: Path) -> None:
    made = run_folder(tmp_path / "runs", profiles=())
    assert find_folder(str(made.path), tmp_path) == made.path
    assert find_folder(made.path.name, tmp_path / "runs") == made.path
    with pytest.raises(Mistake, match=r"^there is no run /nonexistent; `tailrace runs`"):
        find_folder("/nonexistent", tmp_path / "runs")
    with pytest.raises(Mistake, match=r"^there is no run nonexistent, nor runs/nonexistent; "):
        find_folder("nonexistent", Path("runs"))
    with pytest.raises(Mistake, match="there is no run x, nor "):
        find_folder("x", tmp_path / "runs")


@pytest.mark.parametrize(
    "command",
    [
        ("watch", "{}"),
        ("measure", "soak", "--resume", "{}"),
        ("measure", "matrix", "--resume", "{}"),
        ("measure", "latency", "--between", "if:lo", "if:x", "--of", "{}"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_every_command_finds_a_run_by_its_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Here it is of no use to any of them, which is then said of its folder; and one that is not there is told."""
    monkeypatch.chdir(tmp_path)
    made = run_folder(tmp_path / "runs", chains=1)
    for name, expected in ((made.path.name, made.path.name + ": "), ("x", "there is no run x, nor runs/x; ")):
        done = CliRunner().invoke(main.app, [word.format(name) for word in command] + ["--runs", "runs"])
        assert done.exit_code == 2
        assert expected in " ".join(done.stderr.split())
