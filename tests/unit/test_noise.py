"""Noise without neighbours: which cores they get, which cannot be had, whose turn it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tester_results import result, stream

from tailrace.errors import Mistake
from tailrace.measure import neighbour as the_neighbour
from tailrace.measure import noise as the_noise
from tailrace.measure.method import Place
from tailrace.measure.neighbour_function import Ran, passed_on
from tailrace.measure.noise import NoiseMethod, refusal, spare
from tailrace.plan.planned import PlannedChain
from tailrace.report.comparisons import comparisons
from tailrace.resources.place import place
from tailrace.resources.topology import Cpu
from tailrace.results.comparison import ComparisonFinding, places
from tailrace.results.no_loss import NoLossRate
from tailrace.results.run import RunFolder
from tailrace.results.table_findings import lines
from tailrace.spec.tests import Noise

CHAIN = PlannedChain("voice", "tester.a", ("first",), "tester.b", True)


def session(folder: RunFolder, cores: int) -> Any:
    cpus = [Cpu(number, core=number) for number in range(cores)]
    placement = place(cpus, ["first"], tester=True, real_time=True)
    return SimpleNamespace(folder=folder, node=SimpleNamespace(plan=SimpleNamespace(placement=placement)))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "noise", spec="", host={}, command=(), versions={})


def test_neighbours_get_the_cores_that_no_poller_has(folder: RunFolder) -> None:
    cpus, shared = spare(session(folder, 6), range(6))
    assert not shared
    assert cpus == (0, 1, 2)
    assert spare(session(folder, 2), range(2)) == ((0,), True)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    def missing(name: str) -> str:
        raise Mistake(f"{name} is missing; install it with `sudo apt-get install {name}`")

    monkeypatch.setattr(the_neighbour, "system_program", missing)
    said = refusal(session(folder, 2), "cpu")
    assert said == "stress-ng is missing; install it with `sudo apt-get install stress-ng`"
    assert refusal(session(folder, 2), "vnf") is None
    assert "only Tailrace's own switch" in str(refusal(SimpleNamespace(node=None), "vnf"))


def test_a_disk_is_no_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(the_neighbour, "system_program", lambda name: f"/bin/{name}")
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/vda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n")
    kinds = {path: the_neighbour._file_system(Path(path), mounts) for path in ("/run/x", "/runs/x", "/")}
    assert kinds == {"/run/x": "tmpfs", "/runs/x": "ext4", "/": "ext4"}
    monkeypatch.setattr(the_neighbour, "_file_system", lambda _: "tmpfs")
    assert "is in memory, not on a disk" in str(the_neighbour.why_not("disk", tmp_path))
    assert the_neighbour.why_not("cache", tmp_path) is None


def test_a_neighbour_is_bounded_in_time_and_kept_to_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(the_neighbour, "system_program", lambda name: f"/bin/{name}")
    line = the_neighbour.command("disk", (2, 3), "/state/neighbour")
    assert line[:3] == ["/bin/stress-ng", "--hdd", "2"]
    assert line[line.index("--taskset") + 1] == "2,3"
    assert line[line.index("--temp-path") + 1] == "/state/neighbour"
    assert int(line[line.index("--timeout") + 1]) == the_neighbour.MOST_SECONDS


def test_quiet_and_noisy_take_turns(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    turns: list[tuple[str, str]] = []
    working = ""

    @contextmanager
    def neighbour(*given: Any) -> Iterator[Ran]:
        nonlocal working
        working = given[1]
        ran = Ran()
        yield ran
        ran.pps = 3e5 if working == "vnf" else None
        working = ""

    def at_rate(*given: Any) -> dict[str, float]:
        turns.append((working, given[1].name))
        return {"p99_us": 10.0 if working == "quiet" else 30.0}

    monkeypatch.setattr(the_noise, "neighbour", neighbour)
    monkeypatch.setattr(the_noise, "at_rate", at_rate)
    monkeypatch.setattr(the_noise, "figures", lambda *given: given[0])
    monkeypatch.setattr(the_noise, "why_not", lambda name, _: "no disk" if name == "disk" else None)
    test = Noise.model_validate({"neighbours": ["cpu", "disk", "vnf"], "pairs": 2, "rate": "1kpps"})
    (step,) = NoiseMethod(cpus=(0, 1)).steps([test], Place(CHAIN))
    step.work(session(folder, 2))
    assert [side for side, _ in turns] == ["quiet", "cpu", "quiet", "vnf"] * 2
    assert len({name for _, name in turns}) == len(turns)
    (finding,) = folder.run.findings
    assert isinstance(finding, ComparisonFinding)
    assert finding.left_out == {"disk": "no disk"}
    assert {(each.side, each.median, each.pairs) for each in finding.ratios} == {("cpu", 3.0, 2), ("vnf", 3.0, 2)}
    assert any("no core is free" in note for note in folder.run.notes)
    # At what rate the neighbour's function ran is kept and shown; it is no figure of the trial beside it.
    assert [side for pair in finding.pairs for side, each in pair.sides.items() if "neighbour_mpps" in each] == [
        "vnf"
    ] * 2
    (section,) = comparisons([finding])
    assert ("neighbour's Mpps", "vnf", "0.3000", "-") in section.rows
    assert any(text.startswith("Neighbour's Mpps: what its own function forwarded") for text in section.remarks)
    assert {line["value"] for line in lines(finding) if line["figure"] == "vnf neighbour_mpps"} == {0.3}


def test_what_a_neighbour_passed_on_is_that_of_its_worse_direction() -> None:
    made = result(stream([1_000] * 50, duplicate=10), stream([1_000] * 90, "b-to-a"), seconds=2.0)
    assert passed_on(made) == 20.0
    assert passed_on(None) is None
    assert Ran(passed_on(made)).figures == {"neighbour_mpps": 2e-5}
    assert Ran().figures == {}


def test_the_rate_is_confirmed_quietly_before_and_its_limit_is_said(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder
) -> None:
    rates: list[float] = []
    searched = NoLossRate(pps=1e6, limit="tester")

    def measured(_: Any, case: Any) -> Any:
        assert case.name == "one-function-64-quiet-first-look"
        return SimpleNamespace(searched=searched, offered_pps=5e5)

    def at_rate(*given: Any) -> dict[str, float]:
        rates.append(given[2])
        return {"p99_us": 10.0}

    monkeypatch.setattr(the_noise, "neighbour", lambda *_: nullcontext(Ran()))
    monkeypatch.setattr(the_noise, "measured", measured)
    monkeypatch.setattr(the_noise, "at_rate", at_rate)
    monkeypatch.setattr(the_noise, "figures", lambda *given: given[0])
    monkeypatch.setattr(the_noise, "why_not", lambda *_: None)
    test = Noise.model_validate({"neighbours": ["cpu"], "pairs": 2, "rate": "50%"})
    (step,) = NoiseMethod(cpus=(0, 1)).steps([test], Place(CHAIN))
    step.work(session(folder, 2))
    assert rates == [5e5] * 4
    (finding,) = folder.run.findings
    assert isinstance(finding, ComparisonFinding)
    assert (finding.rate_fraction, finding.searched) == (0.5, {"quiet": searched})
    (section,) = comparisons([finding])
    assert any("Offered: 50% of the no-loss rate, ≥1.000 Mpps (quiet)" in text for text in section.remarks)
    assert any(text.startswith("≥: nothing was lost") for text in section.remarks)
    assert places([finding])["one-function-64-quiet-first-look"].words == "quiet, first look"


def test_nothing_to_be_had_is_a_mistake(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    monkeypatch.setattr(the_noise, "why_not", lambda *_: "not here")
    test = Noise.model_validate({"neighbours": "cpu", "rate": "1kpps"})
    (step,) = NoiseMethod(cpus=(0, 1)).steps([test], Place(CHAIN))
    with pytest.raises(Mistake, match="no neighbour can run here: cpu: not here"):
        step.work(session(folder, 2))
