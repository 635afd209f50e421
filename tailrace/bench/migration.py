"""For how long the traffic of a machine stops when it moves to another node while it runs, how many frames that costs,
and how long it takes in all. Beside the network's outage stand the parts of it that are known: for how long the machine
stood still, as QEMU has counted, and how soon it forwarded at the target.

Two nodes of this machine (`tailrace.measure.two_nodes`) have the same chain. A hub sends the same numbered frames to
both, so each frame is seen that either forwards. The machine moves to and fro.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tailrace.bench.hub import Account, Hub
from tailrace.bench.model import Spread
from tailrace.bench.own_node import own_folder
from tailrace.errors import Failure, Mistake
from tailrace.functions.acceleration import acceleration
from tailrace.functions.runtimes import STARTERS
from tailrace.measure.own_node import OwnNode
from tailrace.measure.progress import Reporter
from tailrace.measure.two_nodes import Ends, two_nodes
from tailrace.node.claiming import claim_cpus
from tailrace.results.migration import PUBLISHED_MS

FUNCTION = "first"
_SPEC = """\
fabric: {{idle: sleep, cores: [{core}]}}
functions: {{{function}: {{kind: skeleton, runs: machine, latency: normal{arrives}}}}}
chains: {{voice: [{{if: {ends[0]}}}, {function}, {{if: {ends[1]}}}]}}
"""
_FRAMES_BETWEEN = 100
"""That the hub sees of a machine before it moves, and after that."""
_WAIT_SECONDS = 120.0
_MOVE_SECONDS = 20.0
_UP_SECONDS = 40.0
"""About what each takes with an emulated machine, for the progress bar."""


def spec_of(core: int, ends: Ends, arrives: bool) -> str:
    """A chain through a machine, between two interfaces; `arrives`: which comes from the other node."""
    return _SPEC.format(core=core, ends=ends, function=FUNCTION, arrives=", arrives: true" if arrives else "")


@dataclass(frozen=True)
class MigrationPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    times: int = 5
    rate: float = 250.0
    """Frames a second to each node; an emulated machine keeps up with few."""

    def __post_init__(self) -> None:
        if not 1 <= self.times <= 1000:
            raise Mistake(f"--times {self.times}: expected 1 to 1000")
        if not 10 <= self.rate <= 2000:
            raise Mistake(f"--rate {self.rate:g}: expected 10 to 2000 frames a second")

    @property
    def total_seconds(self) -> float:
        return _UP_SECONDS + self.times * _MOVE_SECONDS


@dataclass(frozen=True)
class Move:
    """One move: what the command says of it, and what became of the frames."""

    total_ms: float
    pause_ms: float
    """For how long it stood still, as QEMU has counted."""
    switch_ms: float
    """From its end at the source until it forwarded at the target."""
    rounds: int
    bytes: int
    frames: Account

    @classmethod
    def of(cls, said: Mapping[str, Any], frames: Account) -> Move:
        """From what `tailrace migrate --json` prints."""
        return cls(said["milliseconds"], said["pause_ms"], said["switch_ms"], said["rounds"], said["bytes"], frames)

    @property
    def times_ms(self) -> dict[str, float]:
        return {
            "outage": self.frames.outage_ms,
            "pause": self.pause_ms,
            "switch": self.switch_ms,
            "total": self.total_ms,
        }

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "frames": self.frames.document()}


@dataclass(frozen=True)
class MigrationResult:
    """What came out."""

    rate_pps: float
    moves: Sequence[Move]
    notes: Sequence[str]
    machine: Mapping[str, Any]
    asked: int
    error: Failure | None = None
    """Why fewer moves were measured than were asked for."""

    @property
    def times_ms(self) -> dict[str, Spread]:
        return {name: Spread.of([move.times_ms[name] for move in self.moves]) for name in self.moves[0].times_ms}

    def count(self, what: str) -> int:
        """Frames of all moves together that were `received`, `lost`, `duplicate` or `out_of_sequence`."""
        return sum(int(move.frames.document()[what]) for move in self.moves)

    @property
    def within_published(self) -> int:
        """How many of the moves had no longer outage than others publish."""
        return sum(move.frames.outage_ms <= PUBLISHED_MS for move in self.moves)

    def document(self) -> dict[str, Any]:
        return {
            "bench": "migration",
            "rate_pps": self.rate_pps,
            "times_ms": {name: spread.document() for name, spread in self.times_ms.items()},
            **{what: self.count(what) for what in ("received", "lost", "duplicate", "out_of_sequence")},
            "published_ms": PUBLISHED_MS,
            "within_published": self.within_published,
            "moves": [move.document() for move in self.moves],
            "asked": self.asked,
            "error": None if self.error is None else str(self.error),
            "notes": list(self.notes),
            "machine": dict(self.machine),
        }


def run(plan: MigrationPlan, folder: Path, report: Reporter) -> MigrationResult:
    """Measures all of it. What was measured before a failure is in the result, with the failure; one before the first
    move is raised. Everything that it starts and reserves is gone when it returns or raises."""
    STARTERS["machine"].check()
    with own_folder("bench migration", folder, report) as (setting, made):
        report.stage("moves", plan.total_seconds)
        # Their switches have these CPUs: nothing of the benchmark's own polls.
        claim_cpus(setting.launcher.state, (), (setting.cores.switch, setting.cores.load))
        with two_nodes(setting.launcher.state, made, (setting.cores.load, setting.cores.switch), spec_of) as two:
            into, out = ([ends[side] for ends in two.cables] for side in (0, 1))
            hub = Hub(two.network.name, into, out, plan.rate)
            moves: list[Move] = []
            error = None
            try:
                for number in range(plan.times):
                    report.advance("moves", _UP_SECONDS + number * _MOVE_SECONDS)
                    moves.append(_move(two.nodes, hub, number % 2))
            except Failure as problem:
                if not moves:
                    raise
                error = problem
            finally:
                hub.end()
        return MigrationResult(plan.rate, moves, acceleration().notes, setting.machine(), plan.times, error)


def _move(nodes: Sequence[OwnNode], hub: Hub, source: int) -> Move:
    """From one of the nodes to the other."""
    since = len(hub.received)
    hub.wait_from(source, _WAIT_SECONDS, _FRAMES_BETWEEN)
    said = json.loads(nodes[source].said("migrate", FUNCTION, str(nodes[1 - source].state), "--json"))
    hub.wait_from(1 - source, _WAIT_SECONDS, _FRAMES_BETWEEN)
    return Move.of(said, hub.account(since))
