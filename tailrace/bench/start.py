"""How soon a chain forwards, by where its functions live: from `tailrace up` until it returns, in turn, and `down`. And
how soon a machine takes another one's place: one that boots, and one that goes on from a file.

With a stand-in for QEMU (`stand_in.py`) what is timed of machines is what Tailrace and libvirt do for them. Of machines
that boot, the time beyond their kernels' own boot is a row by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.bench import stand_in
from tailrace.bench.model import Spread
from tailrace.bench.own_node import own_folder
from tailrace.errors import Failure, Mistake
from tailrace.functions import agent
from tailrace.functions.acceleration import acceleration
from tailrace.functions.runtimes import STARTERS
from tailrace.measure.own_node import OwnNode
from tailrace.measure.progress import Reporter

_SECONDS = {"process": 1.0, "container": 5.0, "machine": 20.0}
"""About what one function takes, for the progress bar."""
MOST = 64
_FIRST_PROCESS = re.compile(r"^\[ *(\d+\.\d+)\] Run /init as init process", re.MULTILINE)
"""What Linux says, with its own clock in seconds, when it has booted (init/main.c)."""
COLD, WARM = "machine replaced, by one that boots", "machine replaced, from a file"


@dataclass(frozen=True)
class StartPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    times: int = 5
    counts: Mapping[str, int] | None = None
    """How many functions of each place; 8 processes, 8 containers and one machine unless said, with a stand-in one
    machine."""
    stand_in: bool = False
    """Machines have one for QEMU."""
    warm: bool = False
    """Whether a machine is also replaced, by one that boots and one that goes on from a file."""

    def __post_init__(self) -> None:
        if not 1 <= self.times <= 1000:
            raise Mistake(f"--times {self.times}: expected 1 to 1000")
        for place, count in self.chains.items():
            if place not in STARTERS:
                raise Mistake(f"--of {place}: no such place; expected {', '.join(STARTERS)}")
            if not 1 <= count <= MOST:
                raise Mistake(f"--of {place}={count}: expected 1 to {MOST}")
        if self.warm and self.stand_in:
            raise Mistake("--warm: a stand-in has no state to go on from; expected it without --stand-in")
        others = ", ".join(place for place in self.chains if place != "machine")
        if self.stand_in and others:
            raise Mistake(f"--stand-in: only machines have one, and not {others}; expected --of machine=N")

    @property
    def chains(self) -> Mapping[str, int]:
        return self.counts or ({"machine": 1} if self.stand_in else {"process": 8, "container": 8, "machine": 1})

    @property
    def total_seconds(self) -> float:
        chains = sum(_SECONDS[place] * count for place, count in self.chains.items())
        return self.times * (chains + (1.2 * _SECONDS["machine"] if self.warm else 0.0))


@dataclass(frozen=True)
class StartResult:
    """What came out."""

    times_ms: Mapping[str, Spread]
    notes: Sequence[str]
    machine: Mapping[str, Any]
    warm_over_cold: Spread | None = None
    """The time of a machine that goes on from a file, by that of one that boots: of each pair."""

    def document(self) -> dict[str, Any]:
        return {
            "bench": "start",
            "times_ms": {name: spread.document() for name, spread in self.times_ms.items()},
            "notes": list(self.notes),
            "machine": dict(self.machine),
            "warm_over_cold": self.warm_over_cold.document() if self.warm_over_cold else None,
        }


def spec_of(place: str, count: int, emulator: Path | None = None) -> str:
    """A chain of so many functions that live in a place; `emulator` stands in for a machine's QEMU."""
    names = [f"f{number}" for number in range(1, count + 1)]
    domain = f"<devices><emulator>{emulator}</emulator></devices>"
    # Nothing of it boots, and with Linux's own drivers the least memory will do.
    more = f", driver: linux, memory: 128MiB, domain: {json.dumps(domain)}" if emulator is not None else ""
    functions = ", ".join(f"{name}: {{kind: skeleton, runs: {place}{more}}}" for name in names)
    return (
        f"ports: {{west: , east: }}\nfunctions: {{{functions}}}\nchains: {{voice: [west, {', '.join(names)}, east]}}\n"
    )


def words(place: str, count: int) -> str:
    """8 containers; 1 process."""
    return f"{count} {place}" if count == 1 else f"{count} {place}{'es' if place.endswith('s') else 's'}"


def run(plan: StartPlan, folder: Path, report: Reporter) -> StartResult:
    """Measures all of it. Everything that it starts and reserves is gone when it returns or raises."""
    for place in {*plan.chains, *(["machine"] if plan.warm else [])}:
        STARTERS[place].check()
    taken: dict[str, list[float]] = {}
    with own_folder("bench start", folder, report) as (setting, made):
        report.stage("chains", plan.total_seconds)
        emulator = _stand_in(made) if plan.stand_in else None
        if emulator is not None:  # what it can do libvirt asks once
            _turn(OwnNode(made, spec_of("machine", 1, emulator)), emulator)
        for number in range(plan.times):
            for place, count in plan.chains.items():
                its = emulator if place == "machine" else None
                boots = count if place == "machine" and its is None else 0
                up, kernel, down = _turn(OwnNode(made, spec_of(place, count, its)), its, boots)
                taken.setdefault(f"{words(place, count)} up", []).append(up)
                if boots:
                    taken.setdefault(f"{words(place, count)} up, beyond the kernel's boot", []).append(up - kernel)
                taken.setdefault(f"{words(place, count)} down", []).append(down)
            report.advance("chains", plan.total_seconds * (number + 1) / (plan.times * (2 if plan.warm else 1)))
        if plan.warm:
            taken |= _replaced(plan, made, report)
        ratios = [warm / cold for cold, warm in zip(taken.get(COLD, ()), taken.get(WARM, ()), strict=True)]
        notes = acceleration().notes if "machine" in plan.chains or plan.warm else ()
        if emulator is not None:
            notes = ("machines have a stand-in for QEMU, which boots nothing and moves no frame",)
        return StartResult(
            {name: Spread.of(each) for name, each in taken.items()},
            notes,
            setting.machine(),
            Spread.of(ratios) if ratios else None,
        )


def kernel_boot_ms(said: str) -> float:
    """How long a kernel took by its own clock until its first process began, from what it has said (dmesg). Raises
    Failure."""
    found = _FIRST_PROCESS.search(said)
    if found is None:
        raise Failure("a machine's kernel does not say when it had booted; build its image again: tailrace image build")
    return float(found[1]) * 1e3


def _turn(node: OwnNode, emulator: Path | None, boots: int = 0) -> tuple[float, float, float]:
    """How long `up` takes, the slowest kernel of so many machines that boot, and `down`, in ms. Raises Failure."""
    kernels = [0.0]
    try:
        # What stands in for QEMU takes no huge pages, which are reserved by then.
        up = node.command("up", str(node.spec), *(["--no-huge"] if emulator is not None else []))
        for number in range(boots):
            console = node.state / "logs" / f"f{number + 1}.log"
            kernels.append(kernel_boot_ms(agent.ask(agent.beside(console), "dmesg")))
    finally:
        down = node.command("down")
    return up, max(kernels), down


def _stand_in(folder: Path) -> Path:
    """The program, where QEMU's user can run it."""
    made = folder / "qemu"
    made.write_bytes(Path(stand_in.__file__).read_bytes())
    made.chmod(0o755)
    return made


def _replaced(plan: StartPlan, folder: Path, report: Reporter) -> dict[str, list[float]]:
    """How long it takes to replace a machine that runs, in ms: by one that boots, and by one that goes on from a file,
    in turn. Both start beside the one that runs, and are there when the switch has changed over to them."""
    cold: list[float] = []
    warm: list[float] = []
    node = OwnNode(folder, spec_of("machine", 1))
    file = folder / "f1.state"
    try:
        node.command("up", str(node.spec))
        node.command("function", "save", "f1", str(file))
        for number in range(plan.times):
            cold.append(node.command("function", "restart", "f1"))
            warm.append(node.command("function", "restore", "f1", str(file)))
            report.advance("chains", plan.total_seconds * (1 + (number + 1) / plan.times) / 2)
    finally:
        node.command("down")
    return {COLD: cold, WARM: warm}
