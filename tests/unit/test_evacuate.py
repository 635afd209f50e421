"""`tailrace drain --all`: what moves, what stays and why, whatever single moves come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli import evacuate
from tailrace.cli.main import app
from tailrace.errors import Failure, Interrupted


class Service:
    """The service, as far as it is asked here."""

    def __init__(self, **functions: str) -> None:
        """Of each function where it lives; `stopped` is one that does not run."""
        self.functions = functions
        self.reasons: dict[str, list[dict[str, str]]] = {}
        self.fails: dict[str, Exception] = {}
        self.moved: list[str] = []

    def __call__(self, method: str, *, start: bool = True, show: bool = True, **params: Any) -> dict[str, Any]:
        del start, show
        if method == "node.status":
            return {"functions": [self._function(name, runs) for name, runs in self.functions.items()]}
        assert params["host"] == "other"
        if method == "migrate.plan":
            return {"reasons": self.reasons.get(params["name"], [])}
        assert method == "migrate.run"
        if params["name"] in self.fails:
            raise self.fails[params["name"]]
        self.moved.append(params["name"])
        return {}

    def _function(self, name: str, runs: str) -> dict[str, Any]:
        state = "stopped" if runs == "stopped" else "active"
        lives = "machine" if runs == "stopped" else runs
        return {"name": name, "runs": lives, "replicas": [{"name": name, "state": state}]}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service(one="machine", two="machine", three="stopped")
    monkeypatch.setattr(evacuate, "ask_service", made)
    monkeypatch.setattr(evacuate, "check_up", lambda: None)
    return made


def drained(*options: str, status: int) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["drain", "--all", "--to", "other", "--json", *options])
    assert done.exit_code == status, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_all_machines_that_run_move(service: Service) -> None:
    found = drained(status=0)
    assert found == {"host": "other", "moves": ["one", "two"], "stays": {}, "dry_run": False}
    assert service.moved == ["one", "two"]


def test_a_dry_run_moves_none(service: Service) -> None:
    service.reasons["two"] = [{"kind": "cpu", "text": "another CPU"}, {"kind": "storage", "text": "a disk"}]
    assert drained("--dry-run", status=1) == {
        "host": "other",
        "moves": ["one"],
        "stays": {"two": ["another CPU", "a disk"]},
        "dry_run": True,
    }
    assert service.moved == []


def test_one_that_fails_keeps_no_other_from_moving(service: Service) -> None:
    service.fails["one"] = Failure("the connection was lost")
    found = drained(status=1)
    assert found["stays"] == {"one": ["the connection was lost"]}
    assert service.moved == found["moves"] == ["two"]


def test_an_interrupt_ends_all_of_it(service: Service) -> None:
    service.fails["one"] = Interrupted("cancelled")
    done = CliRunner().invoke(app, ["drain", "--all", "--to", "other"])
    assert done.exit_code == 130
    assert service.moved == []


def test_what_is_no_machine_stays_and_is_named(service: Service) -> None:
    service.functions["four"] = "process"
    found = drained(status=1)
    assert service.moved == ["one", "two"]
    assert found["stays"]["four"][0].startswith("runs: process; only a machine moves")
    text = CliRunner().invoke(app, ["drain", "--all", "--to", "other"]).stdout
    assert "1 of 3 stay here." in text


@pytest.mark.parametrize("words", [["--all"], ["fw", "--all", "--to", "other"], ["--to", "other"], [], ["--dry-run"]])
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["drain", *words])
    assert done.exit_code == 2
    assert "expected" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ["other", "--cancel", "--bandwidth", "1KiB"],
        ["other", "--cancel"],
        ["--cancel", "--dry-run"],
        ["--cancel", "--downtime", "300ms"],
        ["--cancel", "--connections", "2"],
        ["other", "--dry-run", "--bandwidth", "1KiB"],
        ["other", "--dry-run", "--downtime", "2h"],
    ],
)
def test_nothing_that_is_said_of_a_move_is_ignored(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["migrate", "first", *words])
    assert done.exit_code == 2
    assert "expected" in done.output


def test_post_copy_is_refused_with_the_reason() -> None:
    for option in ("--post-copy", "--postcopy"):
        done = CliRunner().invoke(app, ["migrate", "first", "other", option])
        assert done.exit_code == 2 and "a poller stands still again and again" in done.output
    assert "post-copy" not in CliRunner().invoke(app, ["migrate", "--help"]).stdout


@pytest.mark.parametrize(
    "words",
    [
        ["drain", "--all", "--to", "other", "--dry-run"],
        ["drain", "--all", "--to", "other"],
        ["drain", "--all", "--to", ""],
        ["migrate", "first", "--cancel"],
    ],
)
def test_where_nothing_is_up_it_is_said_before_a_service_is_started(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_STATE", str(tmp_path / "state"))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "nothing is up; run `tailrace up SPEC`" in done.output
    assert not (tmp_path / "state").exists()


def test_no_name_of_a_host_is_asked_for_no_machine(service: Service) -> None:
    done = CliRunner().invoke(app, ["drain", "--all", "--to", ""])
    assert done.exit_code == 2
    assert "'' is no host; expected" in done.output
    assert service.moved == []
