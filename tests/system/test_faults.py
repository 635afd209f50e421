"""What breaks while a measurement runs makes the run invalid with the reason; what was measured stays."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from running_node import ONE, Command, kill_all, needs_a_node, wait_until

pytestmark = needs_a_node


@pytest.fixture
def running(command: Command) -> Iterator[subprocess.Popen[str]]:
    """A measurement of two profiles: the first is done, the second runs for a minute."""
    spec = command.spec(
        ONE.replace(
            "[latency: {frames: 64, rate: 20kpps, duration: 60s}]",
            "[latency: {frames: 64, rate: 20kpps, duration: 500ms}, "
            "latency: {frames: 256, rate: 20kpps, duration: 60s}]",
        )
    )
    process = command.begin("measure", "latency", spec, "--runs", command.runs)
    wait_until(lambda: process.poll() is not None or (command.runs.exists() and trials(command) >= 1), 60)
    before = wait_until(lambda: sum(port["received_packets"] for port in command.status()["ports"]))
    wait_until(lambda: sum(port["received_packets"] for port in command.status()["ports"]) > before + 2000)
    yield process
    process.kill()
    process.communicate()


def trials(command: Command) -> int:
    for folder in command.runs.iterdir():
        if (folder / "results.json").exists():
            return len(command.results()["trials"])
    return 0


def pid_of(command: Command, name: str) -> int:
    process: dict[str, Any] | None = command.process(name)
    assert process is not None
    return int(process["pid"])


def check_kept(command: Command, reason: str, *, cut: bool = True) -> None:
    results = command.results()
    assert not results["valid"]
    assert reason in results["reason"]
    assert results["finished"] is not None
    assert results["trials"][0]["name"] == "one-function-64"
    assert results["trials"][0]["valid"]
    if cut:
        assert results["trials"][1]["directions"][0]["received"] > 0
        assert not results["trials"][1]["valid"]
    (folder,) = command.runs.iterdir()
    assert (folder / "report.html").stat().st_size > 1000
    assert not command.leftovers()


@pytest.mark.parametrize(
    ("name", "words"), [pytest.param("first", "the function first", marks=pytest.mark.whole), ("switch", "the switch")]
)
def test_what_is_killed_makes_the_run_invalid(
    command: Command, running: subprocess.Popen[str], name: str, words: str
) -> None:
    os.kill(pid_of(command, name), signal.SIGKILL)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 1
    assert f"{words} was killed by signal 9" in error
    assert "Traceback" not in error
    check_kept(command, f"{words} was killed by signal 9")


def test_a_killed_tester_costs_only_the_trial_that_ran(command: Command, running: subprocess.Popen[str]) -> None:
    os.kill(pid_of(command, "tester"), signal.SIGKILL)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "the tester was killed by signal 9" in error
    check_kept(command, "the tester was killed", cut=False)


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGINT, "Ctrl-C"), pytest.param(signal.SIGTERM, "SIGTERM", marks=pytest.mark.whole)]
)
def test_an_interrupt_keeps_what_was_measured(
    command: Command, running: subprocess.Popen[str], number: int, words: str
) -> None:
    running.send_signal(number)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 130
    assert words in error
    check_kept(command, words)


def test_a_second_command_is_refused_while_a_run_is_at_work(command: Command, running: subprocess.Popen[str]) -> None:
    for arguments in (("down",), ("measure", "latency", command.folder / "spec.yaml")):
        refused = command(*arguments, status=2)
        assert "in use" in refused.stderr
        assert f"kill -INT {running.pid}" in refused.stderr
    (core,) = command.status()["placement"]["workers"]
    same = command.spec(f"fabric: {{cores: [{core}]}}\n{ONE}", "same-core.yaml")
    assert "is taken by a worker of another switch" in command("up", same, status=2).stderr
    assert "A run is at work" in command("status").stdout
    assert running.poll() is None


@pytest.mark.whole
def test_a_killed_command_takes_its_processes_along_and_the_next_does_the_rest(
    command: Command, running: subprocess.Popen[str]
) -> None:
    running.kill()
    running.communicate(timeout=60)
    wait_until(lambda: command.leftovers() == [str(command.state)])
    assert "none was lost" in command("measure", "latency", command.folder / "spec.yaml", "--duration", "2s").stdout
    assert not command.leftovers()


def test_a_killed_command_takes_its_processes_along_and_down_does_the_rest(
    command: Command, running: subprocess.Popen[str]
) -> None:
    before = command.results()
    running.kill()
    running.communicate(timeout=60)
    wait_until(lambda: command.leftovers() == [str(command.state)])
    command("down")
    assert not command.leftovers()
    assert command.results() == before
    assert not before["valid"]


def test_down_after_all_was_killed_at_once(command: Command, running: subprocess.Popen[str]) -> None:
    kill_all(command)
    running.communicate(timeout=60)
    command("down")
    assert not command.leftovers()
