"""One table of exit codes for all commands, in code, in the help and in docs/exit-codes.md."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from machines import machine, make

from tailrace.cli import exit_codes, operate
from tailrace.cli import main as the_main
from tailrace.cli.output import run_command
from tailrace.errors import Declined, ExitCode, Failure, Fault, Interrupted, Mistake, Refused
from tailrace.host.journal import ENVIRONMENT


def test_the_page_is_as_the_code_says() -> None:
    assert exit_codes.PATH.read_text() == exit_codes.page(), "run `python -m tailrace.cli.exit_codes`"


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The command as its user runs it, in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["tailrace", *words])
    with pytest.raises(SystemExit) as ended:
        the_main.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def commands(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not hasattr(command, "commands"):
        yield name
        return
    for word, each in command.commands.items():
        yield from commands(each, (*name, word))


ALL = list(commands(typer.main.get_command(the_main.app)))


def test_no_command_is_left_out() -> None:
    for name in ("apply", "host apply", "measure latency", "bench hop", "import", "compare host"):
        assert tuple(name.split()) in ALL


@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_help_is_done_and_an_unknown_option_a_mistake(
    name: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *name, "--help") == ExitCode.DONE
    assert run(monkeypatch, *name, "--no-such-option") == ExitCode.MISTAKE
    assert "--no-such-option" in capsys.readouterr().err


def test_the_help_lists_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--help") == ExitCode.DONE
    shown = capsys.readouterr().out
    assert exit_codes.PATH.name in shown
    for code in ExitCode:
        assert f"{code.value}  {code.meaning}" in shown


def test_no_command_and_one_that_is_none_are_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "no-such-command") == ExitCode.MISTAKE
    assert run(monkeypatch) == ExitCode.MISTAKE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Failure("x"), ExitCode.FAILED),
        (Fault("x"), ExitCode.FAILED),
        (OSError(28, "No space left on device"), ExitCode.FAILED),
        (RuntimeError("a fault of ours"), ExitCode.FAILED),
        (Mistake("x"), ExitCode.MISTAKE),
        (Refused("x"), ExitCode.MISTAKE),
        (Declined("x"), ExitCode.DECLINED),
        (Interrupted("x"), ExitCode.INTERRUPTED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (BrokenPipeError(), ExitCode.NO_READER),
    ],
    ids=repr,
)
def test_each_end_has_its_code(error: BaseException, code: ExitCode) -> None:
    def call() -> int:
        raise error

    assert run_command(call) == code


class Node:
    """What a node says, in the place of one that is up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nothing = False
        self.applied = 0
        monkeypatch.setattr(operate, "read_source", lambda _: "")
        monkeypatch.setattr(operate.client, "ask", self.ask)

    def ask(self, _folder: Path, method: str, **_: object) -> dict[str, Any]:
        counts = {"add": 1, "change": 0, "remove": 0}
        proposal = {"nothing": self.nothing, "changes": [], "needs_restart": [], "counts": counts}
        proposal |= {"notes": [], "version": 1}
        if method == "node.apply":
            self.applied += 1
            return {**proposal, "changed": True, "version": 2, "notes": [], "repaired": False}
        return {"node.resume": {"notes": []}, "node.plan": proposal}[method]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Standard input is a terminal on which this is typed."""
    ours, theirs = pty.openpty()

    def types(text: str) -> None:
        os.write(ours, text.encode())
        monkeypatch.setattr(sys, "stdin", open(theirs, encoding="utf-8", closefd=False))  # noqa: SIM115

    yield types
    os.close(ours)
    os.close(theirs)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of files."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "state"))
    monkeypatch.setattr(os, "fsync", lambda _: None)
    machine(tmp_path / "machine")
    return tmp_path / "machine"


def contents(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("nothing", [True, False])
def test_a_plan_says_whether_there_is_a_difference(node: Node, monkeypatch: pytest.MonkeyPatch, nothing: bool) -> None:
    node.nothing = nothing
    for more in ((), ("--json",)):
        code = run(monkeypatch, "plan", "spec.yaml", *more)
        assert code == (ExitCode.DONE if nothing else ExitCode.DIFFERENT)


@pytest.mark.parametrize("typed", ["n\n", "\n", "maybe\n", "\x04"])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_to_decline_is_the_same_for_all_commands(
    node: Node,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[str], None],
    typed: str,
    more: tuple[str, ...],
) -> None:
    answer(typed)
    assert run(monkeypatch, "apply", "spec.yaml", *more) == ExitCode.DECLINED
    assert node.applied == 0
    before = contents(files)
    answer(typed)
    assert run(monkeypatch, "host", "apply", "--root", str(files), *more) == ExitCode.DECLINED
    assert contents(files) == before
    assert run(monkeypatch, "host", "apply", "--root", str(files), "--yes") == ExitCode.DONE
    tuned = contents(files)
    answer(typed)
    assert run(monkeypatch, "host", "undo", "--root", str(files), *more) == ExitCode.DECLINED
    assert contents(files) == tuned != before


@pytest.mark.parametrize("typed", ["y\n", "YES\n"])
def test_to_agree_is_the_same_for_all_commands(
    node: Node, files: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], None], typed: str
) -> None:
    answer(typed)
    assert run(monkeypatch, "apply", "spec.yaml") == ExitCode.DONE
    assert node.applied == 1
    for verb in ("apply", "undo"):
        answer(typed)
        assert run(monkeypatch, "host", verb, "--root", str(files)) == ExitCode.DONE


def test_without_a_terminal_the_next_boot_is_changed_with_yes_alone(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    grub, before = files / "etc/default/grub.d/zz-tailrace.cfg", contents(files)

    def apply(*words: str) -> int:
        return run(monkeypatch, "host", "apply", "--root", str(files), *words)

    for words in ((), ("--json",), ("--profile", "optimized-1")):
        assert apply(*words) == ExitCode.MISTAKE
        assert "--yes" in capsys.readouterr().err
        assert contents(files) == before
    assert apply("--run-time") == ExitCode.DONE
    assert apply("--profile", "throughput") == ExitCode.DONE  # which has no kernel arguments
    assert not grub.exists()
    assert apply("--yes") == ExitCode.DONE
    assert grub.exists()
    assert apply() == ExitCode.DONE  # they are there already
    assert apply("--profile", "throughput") == ExitCode.MISTAKE  # would take them away
    assert grub.exists()
    assert apply("--profile", "throughput", "--yes") == ExitCode.DONE
    assert not grub.exists()


def test_what_is_not_as_it_should_be_has_failed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = ("--root", str(files))
    assert run(monkeypatch, "host", "verify", *root) == ExitCode.MISTAKE  # nothing is applied
    assert run(monkeypatch, "host", "apply", "--yes", *root) == ExitCode.DONE
    assert run(monkeypatch, "host", "verify", *root) == ExitCode.DONE
    assert run(monkeypatch, "host", "watch", "--count", "1", *root) == ExitCode.DONE
    make(files, {"/proc/sys/vm/stat_interval": "7"})
    assert run(monkeypatch, "host", "verify", *root) == ExitCode.FAILED
    assert run(monkeypatch, "host", "watch", "--count", "1", *root) == ExitCode.FAILED


@pytest.mark.parametrize(("state", "code"), [("down", ExitCode.DONE), ("broken", ExitCode.FAILED)])
def test_status_tells_by_its_code(monkeypatch: pytest.MonkeyPatch, state: str, code: ExitCode) -> None:
    monkeypatch.setattr(operate.client, "ask", lambda *_words, **_more: {"state": state})
    assert run(monkeypatch, "status", "--json") == code


@pytest.mark.parametrize(("problems", "code"), [([], ExitCode.DONE), (["busy"], ExitCode.FAILED)])
def test_down_tells_by_its_code(monkeypatch: pytest.MonkeyPatch, problems: list[str], code: ExitCode) -> None:
    lowered = {"undone": ["a"], "problems": problems, "notes": []}
    monkeypatch.setattr(operate.client, "ask", lambda *_words, **_more: lowered)
    assert run(monkeypatch, "down") == code


@pytest.mark.parametrize(
    "words",
    [
        ("up", "no-such-spec.yaml"),
        ("plan", "no-such-spec.yaml"),
        ("apply", "no-such-spec.yaml"),
        ("measure", "latency", "no-such-spec.yaml"),
        ("measure", "latency"),
        ("compare", "no-such-spec.yaml"),
        ("report", "no-such-run"),
        ("diff", "no-such-run", "no-such-run"),
        ("export", "no-such-run"),
        ("import", "no-such-file.zip"),
        ("watch", "no-such-run"),
        ("top", "--sort", "x"),
        ("metrics", "--listen", "x"),
        ("host", "plan", "--profile", "no-such-profile"),
        ("host", "switch-mode", "no-such-mode"),
        ("host", "inspect", "--root", "/nowhere"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_a_mistake(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *words) == ExitCode.MISTAKE, capsys.readouterr().err
    assert len(capsys.readouterr().err.splitlines()) == 1
