"""Machines that are a load, while others are measured; a program that computes stands for QEMU."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL, SIGSTOP

import pytest

from tailrace.cli.interrupts import _check_machines, _neighbours
from tailrace.errors import Fault, Mistake
from tailrace.functions import images
from tailrace.measure.beside import LOAD, PROGRAM, Guest, Loads, Neighbour
from tailrace.process.process import Limits, cpu_seconds
from tailrace.state.launch import Launcher
from tailrace.state.record import Process, hold


def until(what: Callable[[], bool], why: str) -> None:
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < 60, why
        time.sleep(0.01)


def stands_still(process: Process) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def standing(folder: Path) -> Iterator[tuple[Neighbour, Process]]:
    """One that stands still, and its process."""
    with hold(folder / "state") as state:
        launcher = Launcher(state, folder, tied=True)
        process = launcher.start("office", [sys.executable, "-c", "while True: pass"], Limits())
        try:
            process.id.signal(SIGSTOP)
            until(lambda: stands_still(process), "it does not stop")
            yield Neighbour("office", Guest("normal"), _process=process, _launcher=launcher), process
        finally:
            assert state.undo_all() == []


def compute(process: Process, seconds: float) -> None:
    """Until it has had so much more of a CPU."""
    used = cpu_seconds(process.pid)
    until(lambda: cpu_seconds(process.pid) - used >= seconds, "it does not run")


def test_a_neighbour_runs_in_the_turns_of_its_load_alone(tmp_path: Path) -> None:
    with standing(tmp_path) as (office, process):
        for kind in ("none", LOAD, "none", LOAD):
            with Loads([office])(kind, 1, (0,), (0,), tmp_path):
                if kind == LOAD:
                    compute(process, 0.05)
                    assert office._taken()[1] >= office.cpu_seconds + 0.05, "a note has what it takes now"
                else:
                    assert stands_still(process)
            until(lambda: stands_still(process), "it does not stop")
        assert office.cpu_seconds >= 0.1
        assert office.seconds > 0
        assert office.note().startswith("office ran beside for ") and office.note().endswith(" s of CPU in these")


def test_a_neighbour_that_has_ended_is_no_load(tmp_path: Path) -> None:
    with standing(tmp_path) as (office, process):
        with pytest.raises(Fault, match="office"), office.at_work():
            process.id.signal(SIGKILL)
            assert process.id.wait(60)
        with pytest.raises(Fault, match="office"), office.at_work():
            pytest.fail("it is at work")
        assert office.seconds == 0


@pytest.mark.parametrize(
    ("names", "machines", "said"),
    [
        ("office", {}, "expected a spec that has these machines"),
        ("mail", {"office": Guest("normal")}, "'mail' is unknown; expected office"),
        ("office, radio", {"office": Guest("normal"), "radio": Guest("high")}, "--beside radio: at `latency: high`"),
    ],
)
def test_a_machine_that_can_be_no_neighbour_is_a_mistake(names: str, machines: dict[str, Guest], said: str) -> None:
    with pytest.raises(Mistake, match=said.replace("(", r"\(")):
        _neighbours(names, machines)


def test_neighbours_are_those_named() -> None:
    machines = {"radio": Guest("high"), "office": Guest("normal"), "mail": Guest("medium", image="own")}
    assert [each.name for each in _neighbours("mail,office,mail", machines)] == ["mail", "office"]


def test_the_image_of_a_neighbour_has_the_program_of_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path))
    for name, programs in (("plain", ()), ("loaded", (PROGRAM,))):
        (tmp_path / name).mkdir()
        images.store(tmp_path / name, "linux-image-6.1", {"vmlinuz": b"kernel", "initramfs": b"files"}, "", programs)
    assert images.machine_image("loaded").programs == (PROGRAM,)
    with pytest.raises(
        Mistake, match=r"the image plain has no stress-ng; build it: `tailrace image build plain --with"
    ):
        _check_machines(["loaded"], ["plain"])
    with pytest.raises(Mistake, match="there is no image 'missing'"):
        _check_machines(["missing"], ["loaded"])
    assert _check_machines([], []) == []
