"""`tailrace measure migration`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli import commands, complete
from tailrace.cli.migrate import limits_of
from tailrace.cli.options import DEFAULT_RUNS, ConnectionsOption, JsonOption, RepeatOption, RunsOption
from tailrace.cli.output import run_command
from tailrace.errors import Mistake
from tailrace.fabric.kinds import ETHERNET_MTU
from tailrace.functions.acceleration import acceleration
from tailrace.functions.runtimes import STARTERS
from tailrace.measure.fit import Carries, carries, check_fit
from tailrace.measure.migration import (
    UP_SECONDS,
    Cores,
    Ground,
    check_chain,
    ground_between,
    machine_of,
    measure_migration,
    own_ground,
    place_of,
    seconds,
    spec_of,
)
from tailrace.measure.progress import Reporter, Silent
from tailrace.measure.session import Request, run_on_host, run_own
from tailrace.measure.tester import absolute_uri
from tailrace.node.peer import Host, reached
from tailrace.plan.usable import usable_cpus
from tailrace.resources.place import place_tester
from tailrace.results import RunFolder
from tailrace.spec.load import load_located
from tailrace.spec.tests import Migration
from tailrace.state.folder import default_folder
from tailrace.state.launch import Launcher


def migration(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", help="A spec whose chain leads through a machine.", autocompletion=complete.spec
        ),
    ],
    function: Annotated[
        str | None, typer.Option(metavar="NAME", help="The machine that moves. Default: the only one that may.")
    ] = None,
    frames: Annotated[str | None, typer.Option(metavar="LIST", help="Frame sizes with FCS, and imix: 64,imix.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Each way, all flows together: 200pps.")] = None,
    flows: Annotated[int | None, typer.Option("--flows", min=1, max=32, help="UDP flows each way.")] = None,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="SIZE", help="As `tailrace migrate` has it; so the next.")
    ] = None,
    downtime: Annotated[str, typer.Option(metavar="TIME", help="How long it may stand still at the end.")] = "300ms",
    connections: ConnectionsOption = None,
    hosts: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="HOST HOST", help="Two nodes that are up, as `tailrace migrate` takes them."),
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="PORT PORT", help="With --hosts: the tester's two ports, which lead to both."),
    ] = None,
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    as_json: JsonOption = False,
) -> None:
    """Measure for how long the traffic of a machine stops when it moves to another node, and what becomes of frames.

    \b
    sudo tailrace measure migration examples/migration.yaml
    sudo tailrace measure migration examples/migration.yaml --repeat 20 --json
    sudo tailrace measure migration spec.yaml --hosts /run/tailrace other-host --between if:eth1 if:eth2

    The machine moves to and fro while the tester sends. Each flow is a stream; the outage is the longest time without a
    frame of one. Without --hosts, two nodes of this machine are made for it, each with a libvirt of its own, and each
    frame is sent to both.
    """
    changes = {"frames": frames, "rate": rate, "flows": None if flows is None else str(flows)}

    def call() -> int:
        asked, document = load_located(spec)
        name = machine_of(asked, document, function)
        if (hosts is None) != (between is None):
            raise Mistake("--hosts and --between belong together; expected both, or none of them")
        if hosts is None:
            check_chain(asked, document, name)
        found = [(number, test.settings) for number, test in enumerate(asked.tests) if test.kind == "migration"]
        if len(found) > 1:
            raise document.mistake(("tests", found[1][0]), "a second test of migration; expected one in a spec")
        test = commands.override(found[0][1] if found else Migration(), changes)
        assert isinstance(test, Migration)
        limits = limits_of(bandwidth, downtime, connections)
        uris = [absolute_uri(uri) for uri in between or ()]
        check_fit(test, [carries(uri) for uri in uris] or [Carries("the nodes' interfaces", ETHERNET_MTU)])
        text = spec.read_text(encoding="utf-8-sig")
        request = Request(
            f"migration-{spec.stem}",
            runs,
            default_folder(),
            tuple(commands.command_line()),
            text,
            str(spec.absolute()),
            repeat=repeat,
            method="migration",
        )
        through = next((each.through for each in asked.chains.values() if name in each.through), [name])

        def measured(ground: Ground, folder: RunFolder, report: Reporter) -> None:
            measure_migration(ground, test, limits, len(through), repeat, folder, report)

        if hosts is not None:
            return _between(request, name, hosts, uris, measured, seconds(test, repeat), as_json=as_json)
        commands.needs_root("measure migration")
        STARTERS["machine"].check()
        cores = Cores.choose()
        notes = list(acceleration().notes)
        commands.say(
            [
                f"{name} moves to and fro between two nodes of this machine; the tester is on CPU {cores.tester}.",
                *notes,
            ],
            as_json=as_json,
        )

        def work(launcher: Launcher, folder: RunFolder, report: Reporter) -> None:
            report.stage("starting two nodes", UP_SECONDS)
            with own_ground(launcher, cores, name, partial(spec_of, asked, text, name)) as ground:
                measured(ground, folder, report)

        return commands.run_with_bar(
            lambda bar: run_own(request, 0, cores.claim, work, oversubscribed=cores.shared, notes=notes, report=bar),
            UP_SECONDS + seconds(test, repeat),
            as_json=as_json,
        )

    raise typer.Exit(run_command(call))


def _between(
    request: Request,
    name: str,
    names: tuple[str, str],
    uris: list[str],
    measured: Callable[[Ground, RunFolder, Reporter], None],
    expected: float,
    *,
    as_json: bool,
) -> int:
    """Two nodes that are up: whether they are there, and the machine can move, is known before anything starts."""
    if names[0] == names[1] or uris[0] == uris[1]:
        raise Mistake("--hosts and --between: one is named twice; expected two hosts and two ports")
    with ExitStack() as stack:
        first, second = (stack.enter_context(reached(each)) for each in names)
        hosts: tuple[Host, Host] = (first, second)
        source = place_of(name, names, [host.facts(name).state for host in hosts])
        reasons = hosts[source].ask("migrate.plan", name=name, host=names[1 - source])["reasons"]
        if reasons:
            said = "; ".join(f"{each['kind']}: {each['text']}" for each in reasons)
            raise Mistake(f"{name} cannot move from {names[source]} to {names[1 - source]}: {said}")
        commands.needs_root("measure migration")
        free = usable_cpus()
        where = place_tester(free.cpus)
        if free.notes:  # their pollers are on it, too
            where = replace(where, nice=0)
        commands.say([f"{name} moves to and fro between {names[0]} and {names[1]}.", *free.notes], as_json=as_json)

        def work(launcher: Launcher, folder: RunFolder, report: Reporter) -> None:
            for note in free.notes:
                folder.note(note)
            with ground_between(launcher, where, name, hosts, uris) as ground:
                measured(ground, folder, report)

        return commands.run_with_bar(
            lambda bar: run_on_host(
                request, lambda folder, launcher: work(launcher, folder, bar or Silent()), (where.core,)
            ),
            expected,
            as_json=as_json,
        )
