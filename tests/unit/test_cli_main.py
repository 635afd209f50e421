"""What all commands have in common: how much they say, in which colours, and what a shell completes."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ready_command
import typer
from typer.testing import CliRunner

from tailrace.bench.hop import ALL
from tailrace.bench.traffic import KINDS
from tailrace.cli import complete, function, image, main, output
from tailrace.cli.output import choose_voice, note
from tailrace.functions.images import KERNELS
from tailrace.measure.beside import LOAD as MACHINES
from tailrace.measure.host.loads import LOADS
from tailrace.measure.interrupts import FIGURES, SIDES


@pytest.fixture(autouse=True)
def _voice(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("tailrace")
    monkeypatch.setattr(logger, "level", logging.WARNING)
    monkeypatch.setattr(logger, "handlers", [])
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def run(tailrace: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return ready_command.run(tailrace, words, environment={**os.environ, **environment}, folder=Path.cwd(), timeout=60)


def test_the_version_is_an_option_and_a_command(tailrace: Path) -> None:
    said = [run(tailrace, word) for word in ("--version", "-V", "version")]
    assert {each.returncode for each in said} == {0}
    assert len({each.stdout for each in said}) == 1
    assert said[0].stdout.startswith("tailrace ")


def test_a_module_that_is_run_calls_itself_by_the_commands_name() -> None:
    """As the installed command does."""
    argv = [sys.executable, "-m", "tailrace.cli.main", "measure", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "Usage: tailrace measure " in done.stdout


def test_notes_are_not_for_who_wants_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    note("told")
    choose_voice(quiet=True, verbose=0, colour="auto")
    note("kept back")
    assert capsys.readouterr().err == "note: told\n"


def test_who_wants_to_know_is_told_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    choose_voice(quiet=False, verbose=1, colour="auto")
    logging.getLogger("tailrace.process.process").info("started %s, pid %d", "tailrace-switch", 7)
    logging.getLogger("tailrace.process.control").debug("port.list")
    said = capsys.readouterr().err
    assert said.endswith(" started tailrace-switch, pid 7\n")
    assert "port.list" not in said


@pytest.mark.parametrize(("colour", "left"), [("auto", set()), ("always", {"FORCE_COLOR"}), ("never", {"NO_COLOR"})])
def test_colours(colour: str, left: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.os, "environ", {})
    choose_voice(quiet=False, verbose=0, colour=colour)
    assert set(output.os.environ) == left


def test_colours_reach_a_pipe_where_they_are_asked_for(tailrace: Path) -> None:
    command = ("plan", str(Path("examples/chain.yaml").resolve()))
    assert "\x1b[" not in run(tailrace, *command, TERM="xterm").stdout
    assert "\x1b[" in run(tailrace, "--color", "always", *command, TERM="xterm").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--color", "blue", "status"), "'blue' is none of auto, always, never"),
        (("-q", "-v", "status"), "not both --quiet and --verbose"),
        (("--loud",), "No such option: --loud"),
    ],
)
def test_what_is_wrong_is_one_line(tailrace: Path, words: tuple[str, ...], said: str) -> None:
    done = run(tailrace, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ------- completion -------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "specs/a.yaml",
        "specs/b.yml",
        "specs/c.txt",
        "own.yaml",
        "runs/2026-11-21-soak/x",
        "runs/2026-11-22-demo/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_specs_are_yaml_files_and_folders(folder: Path) -> None:
    assert complete.spec("") == ["own.yaml", "runs/", "specs/"]
    assert complete.spec("o") == ["own.yaml"]
    assert complete.spec("s") == complete.spec("specs/") == ["specs/a.yaml", "specs/b.yml"]
    assert complete.spec(f"{folder}/ow") == [f"{folder}/own.yaml"]
    assert complete.spec("nowhere/") == []


@pytest.mark.usefixtures("folder")
def test_profiles_are_known_by_name() -> None:
    assert complete.profile("opt") == ["optimized-1", "optimized-2"]
    assert complete.profile("ow") == ["own.yaml"]


@pytest.mark.usefixtures("folder")
def test_runs_are_known_by_name() -> None:
    assert complete.run("2026") == ["2026-11-22-demo", "2026-11-21-soak"]
    assert complete.run("runs") == ["runs/2026-11-21-soak/", "runs/2026-11-22-demo/"]


def test_images_and_kernels_are_known_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path))
    for name in ("tailrace", "timely", "half"):
        (tmp_path / name).mkdir()
    for name in ("tailrace", "timely"):
        (tmp_path / name / "image.json").touch()
    assert complete.image("t") == ["tailrace", "timely"] and complete.image("h") == []
    assert complete.kernel("") == sorted(KERNELS)
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path / "none"))
    assert complete.image("") == []


def test_the_snapshots_of_the_function_that_is_named_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path))
    for name in ("first/before", "first/after", "second/other"):
        (tmp_path / "snapshots" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "snapshots" / f"{name}.state").touch()
    context: Any = typer.main.get_command(main.app).make_context("tailrace", [], resilient_parsing=True)
    for word in ("function", "restore"):
        context = context.command.commands[word].make_context(word, ["first"], parent=context, resilient_parsing=True)
    (option,) = (each for each in context.command.params if "--snapshot" in each.opts)
    assert [item.value for item in option.shell_complete(context, "")] == ["after", "before"]
    assert [item.value for item in option.shell_complete(context, "b")] == ["before"]


@pytest.mark.parametrize("app", [function.app, image.app])
def test_each_command_of_functions_and_images_shows_an_example_and_has_json(app: typer.Typer) -> None:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        assert f" {name} " in f"{command.help} ".replace("\n", " "), name
        assert name == "console" or "--json" in {option for each in command.params for option in each.opts}, name


def test_what_help_is_made_of_can_be_seen_in_an_editor() -> None:
    for path in Path(main.__file__).parent.glob("*.py"):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", path.read_text()), path


def test_what_is_up_is_known_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_STATE", str(folder))
    assert complete.port("t") == []
    plan = {
        "ports": [{"name": "tester.b"}, {"name": "tester.a"}],
        "functions": [{"name": "fw-2", "function": "fw"}, {"name": "fw", "function": "fw"}],
        "chains": [{"name": "voice"}],
    }
    (folder / "state.json").write_text(json.dumps({"plan": plan}))
    assert complete.port("t") == ["tester.a", "tester.b"]
    assert complete.replica("") == ["fw", "fw-2"]
    assert complete.function("") == ["fw"]
    assert complete.chain("v") == ["voice"]
    (folder / "state.json").write_text("[]")
    assert complete.chain("v") == []


def test_lists_are_completed_word_by_word() -> None:
    kinds = complete.listed("plain", "pin", "packed")
    assert kinds("p") == ["plain", "pin", "packed"]
    assert kinds("plain,p") == ["plain,pin", "plain,packed"]
    assert kinds("pin,x") == kinds("pin,packed,plain,") == []


def option_values(command: str, option: str) -> set[str]:
    """What a shell completes of an option."""
    context: Any = typer.main.get_command(main.app).make_context("tailrace", [], resilient_parsing=True)
    found: Any = context.command
    for word in command.split():
        found = found.commands[word]
    (param,) = (each for each in found.params if option in each.opts)
    return {item.value for item in param.shell_complete(context, "")}


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        ("bench hop", "--traffic", {*KINDS, ALL}),
        ("bench hop", "--against", {"ovs-dpdk", "none"}),
        ("bench floor", "--guest", {"forward", "rewrite"}),
        ("bench scale", "--of", {"guests", "chains", "flows"}),
        ("bench service", "--of", {"process", "container", "machine"}),
        ("top", "--sort", {"name", "packets", "drops"}),
        ("capture", "--direction", {"in", "out", "both"}),
        ("measure interrupts", "--sides", set(SIDES)),
        ("measure interrupts", "--path", set(FIGURES)),
        ("measure interrupts", "--load", {*LOADS, MACHINES}),
    ],
)
def test_what_an_option_may_be_is_completed(command: str, option: str, values: set[str]) -> None:
    assert option_values(command, option) == values


def test_bash_completes_commands_and_values(tailrace: Path, folder: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    for words, expected in (
        (["tailrace", "roll"], ["rollback"]),
        (["tailrace", "up", "s"], ["specs/a.yaml", "specs/b.yml"]),
        (["tailrace", "bench", "hop", "--traffic", "pin,short"], ["pin,short-rings"]),
    ):
        script = (
            f"source <({tailrace} --show-completion bash)\n"
            f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
            f'_tailrace_completion {tailrace}; printf "%s\\n" "${{COMPREPLY[@]}}"\n'
        )
        done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=False, cwd=folder)
        assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize(
    ("shell", "its_own"), [("bash", "COMPREPLY"), ("zsh", "#compdef tailrace"), ("fish", "complete --command tailrace")]
)
def test_there_is_a_script_for_each_shell(tailrace: Path, tmp_path: Path, shell: str, its_own: str) -> None:
    """For the one that asks, which is known by its name."""
    program = tmp_path / shell
    shutil.copy("/bin/bash", program)
    command = [program, "-c", '"$0" --show-completion; exit $?', tailrace]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "_TAILRACE_COMPLETE" in done.stdout and its_own in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["image", "build", "x", "--container", "--kernel", "bsd", "--profile", "nope", "--with", "zz", "--disk"],
            "--container takes no x, --kernel bsd, --profile nope, --with zz, --disk: ",
        ),
        (
            ["function", "restore", "fw", "fw.state", "--snapshot", "x"],
            "fw.state and --snapshot x: expected one of both",
        ),
        (["function", "restore", "fw"], "expected a file, or a snapshot's label with --snapshot"),
    ],
)
def test_what_would_be_ignored_is_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(main.app, words)
    assert done.exit_code == 2 and said in done.output


def test_words_of_options_are_completed() -> None:
    for words, option, expected in (
        (["advise", "calibrate"], "--distance", ["siblings", "near", "far"]),
        (["image", "build"], "--profile", ["latency"]),
        (["measure", "exits"], "--interfaces", ["vhost-user", "virtio", "e1000e", "vmxnet3"]),
    ):
        context: Any = typer.main.get_command(main.app).make_context("tailrace", [], resilient_parsing=True)
        for word in words:
            context = context.command.commands[word].make_context(word, [], parent=context, resilient_parsing=True)
        (found,) = (each for each in context.command.params if option in each.opts)
        assert [item.value for item in found.shell_complete(context, "")] == expected
