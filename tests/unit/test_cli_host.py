"""`tailrace host` as a user meets it: what it asks before it changes a machine, and what it refuses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import ready_command
from machines import machine
from typer.testing import CliRunner

from tailrace.cli.host import app
from tailrace.errors import ExitCode
from tailrace.host import journal, tuner
from tailrace.host.machine import read_machine
from tailrace.host.profile import load_profile
from tailrace.host.tuning import make_tuning_plan

TAILRACE = Path(sys.prefix) / "bin/tailrace"
#: Runs the command as somebody who is not root; were anything to be changed, it would fail otherwise.
NOBODY = """
import os, sys
os.geteuid = lambda: 1000
from tailrace.host import tuner
tuner.apply = tuner.undo = None
sys.argv = ["tailrace", *sys.argv[1:]]
from tailrace.cli.main import main
main()
"""


class Terminal:
    """The command on a terminal, over a machine made of files."""

    def __init__(self, folder: Path) -> None:
        self.machine, self._state = folder / "machine", folder / "state"
        machine(self.machine)

    def __call__(
        self, *words: str, answer: str = "", program: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """`program`: what runs in the command's place."""
        environment = {**os.environ, "TAILRACE_HOST_STATE": str(self._state)}
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer.encode())
            if not program:
                return ready_command.run(
                    TAILRACE, ("host", *words), environment=environment, folder=Path.cwd(), timeout=60, stdin=theirs
                )
            return subprocess.run(
                [*program, "host", *words],
                stdin=theirs,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env=environment,
            )
        finally:
            os.close(ours)
            os.close(theirs)

    def contents(self) -> dict[Path, str]:
        return {path: path.read_text() for path in self.machine.rglob("*") if path.is_file()}


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.mark.parametrize("answer", ["n\n", "\x04"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_nothing_is_changed_without_a_yes(terminal: Terminal, answer: str, options: tuple[str, ...]) -> None:
    """Ctrl-D is no answer, and --json no yes."""
    before = terminal.contents()
    done = terminal("apply", "--root", str(terminal.machine), *options, answer=answer)
    assert (done.returncode, "internal error" in done.stderr) == (ExitCode.DECLINED, False), done.stderr
    assert "Apply latency?" in done.stderr and "Apply latency?" not in done.stdout
    assert terminal.contents() == before


def test_with_a_yes_json_is_all_that_is_printed(terminal: Terminal) -> None:
    before = terminal.contents()
    place = ("--root", str(terminal.machine), "--json")
    assert json.loads(terminal("apply", *place, answer="y\n").stdout)["changed"]
    tuned = terminal.contents()
    assert tuned != before
    for answer in ("n\n", "\x04"):
        assert terminal("undo", *place, answer=answer).returncode == ExitCode.DECLINED
        assert terminal.contents() == tuned
    assert json.loads(terminal("undo", *place, answer="y\n").stdout)["problems"] == []
    assert terminal.contents() != tuned


def test_who_may_not_change_the_machine_is_told_before_being_asked(terminal: Terminal) -> None:
    assert terminal("apply", "--root", str(terminal.machine), "--yes").returncode == 0
    for what in ("apply", "undo"):
        done = terminal(what, answer="y\n", program=(sys.executable, "-c", NOBODY))
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert f"host {what} changes the machine, which needs root" in done.stderr


@pytest.mark.parametrize("every", ["0", "-1", "0s", "soon"])
def test_the_time_between_two_looks_is_a_time(terminal: Terminal, every: str) -> None:
    done = terminal("watch", "--root", str(terminal.machine), "--count", "1", "--every", every)
    assert done.returncode == 2 and "--every" in done.stderr


def test_a_copied_machine_has_a_journal_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoing one machine neither takes another's former values for its own nor throws them away."""
    monkeypatch.delenv(journal.ENVIRONMENT, raising=False)
    monkeypatch.setattr(journal, "DEFAULT", tmp_path / "journal")

    def run(name: str, *words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--root", str(tmp_path / name), "--yes"])
        assert done.exit_code == 0, done.output
        return done.output

    for name in ("one", "other"):
        machine(tmp_path / name)
    value = tmp_path / "one/proc/sys/vm/stat_interval"
    run("one", "apply")
    assert value.read_text() == "120\n"
    assert "Nothing is changed" in run("other", "undo")
    run("one", "undo")
    assert value.read_text() == "1\n"


@pytest.mark.parametrize("words", [("apply", "--profile", "throughput", "--run-time"), ("switch-mode", "throughput")])
def test_what_somebody_else_applies_meanwhile_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Their command ends just before ours has the journal."""
    folder, root, others = tmp_path / "state", tmp_path / "machine", ["latency"]
    monkeypatch.setenv(journal.ENVIRONMENT, str(folder))
    tree = machine(root)

    def hold(folder: Path) -> AbstractContextManager[journal.Journal]:
        while others:
            theirs = read_machine(tree)
            with journal.hold_journal(folder) as held:
                tuner.apply(make_tuning_plan(theirs, load_profile(others.pop())), theirs, held, boot=False)
        return journal.hold_journal(folder)

    monkeypatch.setattr(sys.modules["tailrace.cli.host"], "hold_journal", hold)
    huge = root / "sys/kernel/mm/transparent_hugepage/enabled"
    assert "[madvise]" in huge.read_text()  # as ours wants it, and theirs does not
    for command in (words, ("verify",)):
        done = CliRunner().invoke(app, [*command, "--root", str(root)])
        assert done.exit_code == 0, done.output
    assert huge.read_text() == "madvise\n"
