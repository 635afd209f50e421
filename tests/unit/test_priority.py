"""The priority of a machine's virtual CPUs that follows what it runs: the spec's word, the plan, and what a machine is
not believed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import Failure
from tailrace.functions import priority
from tailrace.functions.runtime import PriorityRange
from tailrace.plan.make import priority_of
from tailrace.process.real_time_groups import grant, groups_without_time, take_back
from tailrace.spec.load import load_spec
from tailrace.spec.model import Function
from tailrace.state.record import Process

SPEC = (
    "functions: {{r: {{kind: skeleton, runs: {runs}, priority: {priority}}}}}\nchains: {{c: [tester.a, r, tester.b]}}\n"
)


def function(folder: Path, bounds: str, runs: str = "machine") -> Function:
    path = folder / "spec.yaml"
    path.write_text(SPEC.format(priority=bounds, runs=runs))
    return load_spec(path).functions["r"]


def test_the_bounds_of_a_spec_are_planned(tmp_path: Path) -> None:
    assert priority_of(function(tmp_path, "{}")) == PriorityRange(0, 40, (), 1000)
    said = "{least: 5, most: 30, tasks: [cyclictest, 'ktimers/0'], within: 250us}"
    assert priority_of(function(tmp_path, said)) == PriorityRange(5, 30, ("cyclictest", "ktimers/0"), 250)


@pytest.mark.parametrize(
    ("bounds", "runs", "said"),
    [
        ("{most: 50}", "machine", "most"),
        ("{least: 41}", "machine", "least: 41 is more than most, 40"),
        ("{within: 1us}", "machine", "expected 200us to 100ms"),
        ("{tasks: ['a:b']}", "machine", "tasks"),
        ("{tasks: [a2345678901234567]}", "machine", "tasks"),
        ("{}", "process", "runs: machine"),
    ],
)
def test_bounds_that_cannot_be_are_refused(tmp_path: Path, bounds: str, runs: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        function(tmp_path, bounds, runs)


@pytest.mark.parametrize("bounds", [PriorityRange(0, 40), PriorityRange(3, 9, ("a", "b/0"), 200)])
def test_the_bounds_are_read_from_the_machine_as_it_was_started(tmp_path: Path, bounds: PriorityRange) -> None:
    (word,) = priority.priority_words(bounds)
    xml = tmp_path / "r.xml"
    for line in (f"<cmdline>quiet {word}</cmdline>", f"<cmdline>{word} tailrace.profile=latency</cmdline>"):
        xml.write_text(line)
        assert priority.priority_range(xml) == bounds
    xml.write_text("<cmdline>quiet</cmdline>")
    assert priority.priority_range(xml) is None
    assert priority.priority_range(tmp_path / "none.xml") is None


MACHINE = Process("r", 1, 1, outside="tailrace-r")


@pytest.mark.parametrize(
    ("says", "address"),
    [
        ("Host virtual address for 0x1c06b4000 (pc.ram) is 0x7f3e1c06b000\r\n", 0x7F3E1C06B000),
        ("Memory at address 0xfee00000 is not RAM\r\n", None),
        ("No memory is mapped at address 0xffffffff000\r\n", None),
        ("", None),
    ],
)
def test_only_a_page_of_its_own_memory_is_taken(
    monkeypatch: pytest.MonkeyPatch, says: str, address: int | None
) -> None:
    def monitor(name: str, command: str, *, human: bool) -> str:
        assert (name, human) == ("tailrace-r", True) and command.startswith("gpa2hva 0x")
        return says

    monkeypatch.setattr(priority.hypervisor, "monitor", monitor)
    if address is not None:
        assert priority._page_here(MACHINE, 0x1C06B4000) == address
        return
    with pytest.raises(Failure, match="not of its memory"):
        priority._page_here(MACHINE, 0x1C06B4000)


class _Launcher:
    def log(self, name: str) -> Path:
        return Path(f"{name}.log")


@pytest.mark.parametrize("said", ["", "hello", "0x", "0x12; rm -rf /", "0x11112222333344445", "0x1000\n0x2000\n"])
def test_an_agent_that_names_no_page_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(priority.agent, "ask", lambda *words: asked.append(words) or said)
    launcher: Any = _Launcher()
    with pytest.raises(Failure, match="names no page"):
        priority._page_inside(launcher, MACHINE, PriorityRange(0, 40, ("cyclictest",)))
    assert asked[0][1].endswith("tailrace-priority-agent --task cyclictest")


def test_groups_get_real_time_and_give_it_back(tmp_path: Path) -> None:
    """As CONFIG_RT_GROUP_SCHED has it under cgroup v1; a group that has some keeps what it has."""
    times = {"": 950000, "a": 150000, "machine": 0, "machine/m": 0, "machine/m/vcpu0": 0, "machine/m/vcpu1": 0}
    times |= {"machine/n": 0, "machine/n/vcpu0": 0}
    for name, time in times.items():
        (tmp_path / "cpu" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "cpu" / name / "cpu.rt_runtime_us").write_text(f"{time}\n")
    for thread, group in ((10, "m/vcpu0"), (11, "m/vcpu1"), (20, "n/vcpu0")):
        (tmp_path / str(thread)).mkdir()
        (tmp_path / str(thread) / "cgroup").write_text(f"2:cpuset:/other\n1:cpu,cpuacct:/machine/{group}\n0::/\n")

    def now(name: str) -> int:
        return int((tmp_path / "cpu" / name / "cpu.rt_runtime_us").read_text())

    here = {"root": tmp_path / "cpu", "proc": tmp_path}
    found = groups_without_time([10, 11, 12], **here)
    assert found == [str(tmp_path / "cpu" / each) for each in list(times)[2:6]]
    grant(found, 2)
    assert now("machine") == 800000 * 3 // 4
    assert now("machine/m") == 600000 * 3 // 4
    assert now("machine/m/vcpu0") == now("machine/m/vcpu1") == 225000
    assert groups_without_time([10, 11], **here) == []
    # Another machine in the same group, which the first one does not outlive.
    second = groups_without_time([20], found, **here)
    assert second == [str(tmp_path / "cpu" / each) for each in ("machine", "machine/n", "machine/n/vcpu0")]
    grant(second, 1)
    assert now("machine") == 600000 and now("machine/n/vcpu0") == now("machine/n") == 150000 * 3 // 4
    take_back(found[1:])  # the kernel lets nobody take what others in a group have of it
    take_back(second)
    assert {name: now(name) for name in times} == times
    assert groups_without_time([10, 11], root=tmp_path / "none", proc=tmp_path) == []
