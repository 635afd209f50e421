"""What is kept for the next boot, and what is said of a file that is no good."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.errors import Failure, Mistake
from tailrace.functions.machine import InMachine
from tailrace.functions.process import InProcess
from tailrace.node.kept import ENVIRONMENT, Kept
from tailrace.plan.make import make_plan
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state.record import Process

SPEC = "functions: {first: {kind: skeleton, on_failure: bypass}}\nchains: {v: [tester.a, first, tester.b]}\n"


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    plan = make_plan(parse_spec(SPEC, "s"), cpus=[Cpu(n, 0, n) for n in range(4)], real_time=None)
    kept = Kept(tmp_path / "node.json")
    assert kept.read() is None
    kept.write(plan.as_data(), "/etc/chain.yaml")
    again = Kept(tmp_path / "node.json").read()
    assert again is not None and again[0].identity == plan.identity and again[1] == "/etc/chain.yaml"
    before = (tmp_path / "node.json").stat().st_mtime_ns
    kept.write(plan.as_data(), "/etc/chain.yaml")
    assert (tmp_path / "node.json").stat().st_mtime_ns == before, "what is the same is not written"
    kept.forget()
    kept.forget()
    assert kept.read() is None and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"spec": 1}'])
def test_a_file_that_is_no_good_is_named_and_left(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node.json"
    path.write_text(text)
    with pytest.raises(Failure, match=rf"^{path}: cannot be read .*; remove it"):
        Kept(path).read()
    assert path.read_text() == text


def test_another_versions_plan_is_named(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"plan": {"what": "this was"}, "spec": "x"}))
    with pytest.raises(Mistake, match="another version of Tailrace"):
        Kept(path).read()


def test_without_a_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    kept = Kept.of_environment()
    kept.write({}, "x")
    kept.forget()
    assert kept.read() is None
    monkeypatch.setenv(ENVIRONMENT, f"{tmp_path}:/elsewhere")
    Kept.of_environment().write({"a": 1}, "x")
    assert json.loads((tmp_path / "node.json").read_text()) == {"plan": {"a": 1}, "spec": "x"}


@pytest.mark.parametrize(
    ("text", "well"),
    [
        ('{ "child-pid": 7 }\n{ "exit-code": 0 }\n', True),
        ('{ "child-pid": 7 }\n{ "exit-code": 1 }\n', False),
        ('{ "child-pid": 7 }\n', False),  # the sandbox itself was killed
        ("", False),
        ("0\n", False),
        ("rubbish", False),
    ],
)
def test_how_a_function_ended_is_read_of_its_sandbox(tmp_path: Path, text: str, well: bool) -> None:
    assert not InProcess().ended_well(Process("fw", 1, 1), tmp_path)
    (tmp_path / "fw.end").write_text(text)
    assert InProcess().ended_well(Process("fw", 1, 1), tmp_path) is well


@pytest.mark.parametrize(
    ("text", "well"),
    [
        ("tailrace: the function has ended with status 0\n[    3.2] reboot: Power down\n", True),
        ("tailrace: the function has ended with status 1\n[    3.2] reboot: Power down\n", False),
        ("[    3.2] reboot: Power down\n", True),  # an image of somebody's own
        ("[    3.2] it runs\n", False),
    ],
)
def test_how_a_function_ended_is_read_of_its_machine(tmp_path: Path, text: str, well: bool) -> None:
    assert not InMachine().ended_well(Process("fw", 1, 1), tmp_path)
    (tmp_path / "fw.log").write_text(text)
    assert InMachine().ended_well(Process("fw", 1, 1), tmp_path) is well
