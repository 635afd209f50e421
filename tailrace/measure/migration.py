"""`tailrace measure migration`: a machine moves to another node while the tester's frames pass, to and fro.

Each flow is a stream of the tester, which knows for how long none of its frames came. The tester's two ports lead to
both nodes, each frame to both: so whichever node has the machine carries the traffic, and nobody has to lead it there.
The nodes are two of this machine (`two_nodes.py`), or two that are up.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tailrace.errors import Failure, Fault, Mistake
from tailrace.functions.transfer import Limits
from tailrace.measure.method import profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.progress import Reporter
from tailrace.measure.reorder import Apart
from tailrace.measure.tester import Tester
from tailrace.measure.two_nodes import Ends, two_nodes
from tailrace.node.claiming import claim_cpus
from tailrace.node.peer import Host
from tailrace.plan.make import TESTER_BUFFERS_MIB
from tailrace.plan.usable import usable_cpus
from tailrace.process.process import undisturbed
from tailrace.resources.place import POLLER_NICE, Place
from tailrace.results import ResultError, RunFolder, Trial
from tailrace.results.migration import MigrationFinding
from tailrace.spec import core_schema
from tailrace.spec.model import Spec
from tailrace.spec.position import Document
from tailrace.spec.tests import Migration
from tailrace.state.launch import Launcher, why_ended
from tailrace.state.record import State

UP_SECONDS = 40.0
MOVE_SECONDS = 10.0
"""About what each takes with an emulated machine, for the progress bar."""
_AROUND = 25
"""Frames of each stream that come before a move and after it."""
_WAIT_SECONDS = 120.0
_LAST_SECONDS = 2.0
"""For the last frames of a trial."""
_LONGEST = 24 * 3600.0
_INTERVAL = 0.05
_LOOK_SECONDS = 0.02


def machine_of(spec: Spec, document: Document, name: str | None) -> str:
    """The machine that is to move: the one of this name, or the only one that may. Raises Mistake."""
    machines = [each for each, function in spec.functions.items() if function.runs == "machine"]
    if not machines:
        raise document.mistake(("functions",), "none of them runs in a machine; expected one with `runs: machine`")
    if name is None:
        movable = [each for each in machines if spec.functions[each].migratable] or machines
        if len(movable) > 1:
            raise Mistake(f"{', '.join(movable)} are machines; say which one moves: --function NAME")
        name = movable[0]
    if name not in machines:
        raise Mistake(f"--function {name}: expected a machine of the spec: {', '.join(machines)}")
    if not spec.functions[name].migratable:
        raise document.mistake(
            ("functions", name, "migratable"), f"{name} may not be moved (`migratable: false`); expected one that may"
        )
    return name


def check_chain(spec: Spec, document: Document, name: str) -> None:
    """Raises Mistake where the chain that is measured does not lead through the machine."""
    found = spec.tester_chain()
    if found is None:
        raise document.mistake(("chains",), "no chain runs from tester.a to tester.b; expected one to measure")
    if name not in found[1].through:
        raise document.mistake(
            ("chains", found[0]), f"it does not lead through {name}, which moves; expected one that does"
        )


def spec_of(spec: Spec, text: str, name: str, core: int, ends: Ends, arrives: bool) -> str:
    """What a node has of a spec (`text`: as it is written): the chain that is measured, between two interfaces, and
    its functions; `arrives`: the machine comes there from the other one."""
    found = spec.tester_chain()
    assert found is not None, "it was checked"
    chain, through = found[0], found[1].through
    written = core_schema.read(text)["functions"]
    functions = {each: written[each] for each in through}
    if arrives:
        functions[name] = {**functions[name], "arrives": True}
    first, last = ends if found[1].ends[0] == "tester.a" else reversed(ends)
    node = {
        "fabric": {"idle": "sleep", "cores": [core]},
        "functions": functions,
        "chains": {chain: [{"if": first}, *through, {"if": last}]},
    }
    return json.dumps(node, indent=1)


# --- where it runs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cores:
    """Of what is measured on this machine alone."""

    tester: int
    switches: tuple[int, int]
    control: tuple[int, ...]
    shared: bool
    """The tester has no CPU of its own."""

    @classmethod
    def choose(cls) -> Cores:
        """Raises Mistake where there are too few."""
        free = [cpu.number for cpu in usable_cpus().cpus]
        if len(free) < 2:
            raise Mistake("two nodes and the tester need two CPUs at least; this process may use one")
        tester = free[-3] if len(free) > 2 else free[0]
        return cls(tester, (free[-1], free[-2]), tuple(each for each in free if each != tester), len(free) == 2)

    @property
    def place(self) -> Place:
        nice = 0 if self.shared else POLLER_NICE
        return Place(self.tester, tuple(sorted({self.tester, *self.control})), nice=nice)

    def claim(self, state: State) -> None:
        """Their nodes' switches sleep, so that others may have their CPUs too."""
        claim_cpus(state, () if self.shared else (self.tester,), self.control)


@dataclass(frozen=True)
class Ground:
    """What a machine moves on."""

    name: str
    """The machine."""
    hosts: tuple[Host, Host]
    tester: Tester

    def check(self) -> None:
        """Raises Fault where the tester has ended."""
        if not self.tester.process.id.alive():
            raise Fault(why_ended(self.tester.launcher, self.tester.process))

    def place(self) -> int:
        """Which of the hosts has it. Raises Failure, Mistake, Said."""
        states = [host.facts(self.name).state for host in self.hosts]
        return place_of(self.name, [host.name for host in self.hosts], states)

    def move(self, source: int, limits: Limits) -> dict[str, Any]:
        """From one of them to the other; what that one's service says of it. Raises Failure, Mistake, Said."""
        client = self.hosts[source].connect()
        try:
            client.patience(None)
            return dict(
                client.call("migrate.run", name=self.name, host=self.hosts[1 - source].name, **limits.as_params())
            )
        finally:
            client.close()


def place_of(name: str, hosts: Sequence[str], states: Sequence[str]) -> int:
    """Which host has a machine, by its state on each. Raises Mistake where that is not one of two."""
    if sorted(states) != ["running", "stopped"]:
        said = ", ".join(f"{state} on {host}" for host, state in zip(hosts, states, strict=True))
        raise Mistake(f"{name} is {said}; expected it to run on one of them and to be stopped on the other")
    return list(states).index("running")


@contextmanager
def own_ground(launcher: Launcher, cores: Cores, name: str, spec: Callable[[int, Ends, bool], str]) -> Iterator[Ground]:
    """Two nodes of this machine in the block. Raises Failure."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-", dir=launcher.state.folder)))
        folder.chmod(0o755)
        two = stack.enter_context(two_nodes(launcher.state, folder, cores.switches, spec))
        uris = []
        for side in (0, 1):
            inner, outer = two.network.veth()
            two.network.hub(inner, [cable[side] for cable in two.cables])
            uris.append(f"if:{outer}")
        tester = _tester(replace(launcher, network=two.network.name), uris, cores.place)
        stack.callback(tester.stop)
        first, second = (Host(str(node.state), node.state, far=False) for node in two.nodes)
        yield Ground(name, (first, second), tester)


@contextmanager
def ground_between(
    launcher: Launcher, place: Place, name: str, hosts: tuple[Host, Host], uris: Sequence[str]
) -> Iterator[Ground]:
    """Two nodes that are up, and the tester between two ports that lead to both. Raises Failure, Mistake."""
    tester = _tester(launcher, uris, place)
    try:
        yield Ground(name, hosts, tester)
    finally:
        tester.stop()


def _tester(launcher: Launcher, uris: Sequence[str], place: Place) -> Tester:
    ports = list(zip(("a", "b"), uris, strict=True))
    return Tester.start(launcher, ports, place, memory_mib=TESTER_BUFFERS_MIB, huge=False)


# --- measuring -----------------------------------------------------------------------------------------------------


def seconds(test: Migration, repeat: int) -> float:
    """How long the moves are expected to take."""
    return repeat * len(test.frames) * MOVE_SECONDS


def measure_migration(
    ground: Ground, test: Migration, limits: Limits, functions: int, repeat: int, folder: RunFolder, report: Reporter
) -> None:
    """All moves; what was measured of one that fails is kept, too. Raises Failure, Fault, Mistake, Said."""
    folder.ran(ground.tester.version())
    acceleration = ground.hosts[0].facts(ground.name).acceleration
    kind: Literal["kvm", "emulated"] = "kvm" if acceleration == "kvm" else "emulated"
    for number in range(1, repeat + 1):
        folder.begin_round(number)
        for profile in profiles_of(test):
            name = f"migration-{profile.name}"
            report.stage(name if repeat == 1 else f"{name} ({number} of {repeat})", MOVE_SECONDS)
            case = partial(_finding, name=name, profile=profile, functions=functions, acceleration=kind, test=test)
            apart = Apart(profile.name, profile.traffic, flows=test.flows)
            keep = partial(
                folder.add_trial, name=name, **profile.kind._asdict(), functions=functions, offered_pps=test.rate
            )
            said, result = _under_traffic(ground, apart, test.rate, limits, keep, folder)
            folder.add_finding(case(said, result, _kept(keep, result)))


def _under_traffic(
    ground: Ground,
    traffic: Profile,
    rate: float,
    limits: Limits,
    keep: Callable[[dict[str, Any]], Trial],
    folder: RunFolder,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One move while frames pass: what the service says of it, and the tester of the frames."""
    tester = ground.tester
    tester.begin(traffic.streams(rate), _LONGEST, wait=_LAST_SECONDS, interval=_INTERVAL, watch=ground.check)
    try:
        _wait_for_frames(ground, "before it moves")
        said = ground.move(ground.place(), limits)
        _wait_for_frames(ground, "after its move")
    except BaseException as error:
        with undisturbed():
            folder.invalidate(str(error) or "interrupted")
            if (measured := tester.cut_short(_LAST_SECONDS)) is not None:
                _kept(keep, {**measured, "stopped": True})
        raise
    result = tester.cut_short(_LAST_SECONDS)
    if result is None:
        ground.check()
        raise Failure("the tester does not say what it measured")
    return said, {**result, "stopped": False}  # it was to end when the machine had moved


def _kept(keep: Callable[[dict[str, Any]], Trial], result: dict[str, Any]) -> Trial:
    try:
        return keep(result)
    except ResultError as error:
        raise Failure(str(error)) from None


def _wait_for_frames(ground: Ground, when: str) -> None:
    """Until some more of each stream have come. Raises Failure, Fault."""

    def received() -> dict[str, int]:
        return {each["name"]: each["received"] for each in ground.tester.control.call("trial.status")["streams"]}

    before, deadline = received(), time.monotonic() + _WAIT_SECONDS
    while missing := [name for name, count in received().items() if count < before[name] + _AROUND]:
        ground.check()
        if time.monotonic() > deadline:
            raise Failure(
                f"no frames come through {ground.name} {when}, of {', '.join(missing)}, in {_WAIT_SECONDS:g} s; do the "
                "tester's ports lead to both nodes?"
            )
        time.sleep(_LOOK_SECONDS)


def _finding(
    said: Mapping[str, Any],
    result: Mapping[str, Any],
    trial: Trial,
    *,
    name: str,
    profile: Profile,
    functions: int,
    acceleration: Literal["kvm", "emulated"],
    test: Migration,
) -> MigrationFinding:
    return MigrationFinding(
        name=name,
        **profile.kind._asdict(),
        functions=functions,
        valid=trial.valid,
        reason=trial.reason,
        trial=trial.name,
        acceleration=acceleration,
        outages_ms={each["name"]: each["longest_gap_ns"] / 1e6 for each in result["streams"]},
        frame_ms=1e3 * test.flows / test.rate,
        pause_ms=said["pause_ms"],
        switch_ms=said["switch_ms"],
        total_ms=said["milliseconds"],
        **{key: said[key] for key in ("rounds", "bytes", "forwarded", "parked")},
        **{key: trial.total(key) for key in ("lost", "duplicate", "out_of_sequence")},
    )
