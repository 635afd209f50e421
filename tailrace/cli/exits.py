"""`tailrace measure exits`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli import commands, complete
from tailrace.cli.options import DEFAULT_RUNS, HugeOption, JsonOption, RunsOption
from tailrace.cli.output import run_command
from tailrace.fabric.kinds import KINDS
from tailrace.measure.exits import machines_of, measure_exits, seconds, with_interface
from tailrace.measure.fit import Carries, check_fit
from tailrace.measure.session import Request, plan_beside, run_in_turn
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.spec.interface import WORDS
from tailrace.spec.load import load_located
from tailrace.spec.tests import Exits
from tailrace.state.folder import default_folder


def exits(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", help="A spec whose chain leads through a machine.", autocompletion=complete.spec
        ),
    ],
    interfaces: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"Kinds to compare: {', '.join(WORDS)}. Default: all.",
            autocompletion=complete.listed(*WORDS),
        ),
    ] = None,
    frames: Annotated[str | None, typer.Option(metavar="LIST", help="Frame sizes with FCS, and imix: 64,imix.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Each way: 5kpps.")] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Of each trial: 5s.")] = None,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Count why machines leave their guests while frames pass, by the kind of their interfaces.

    \b
    sudo tailrace measure exits examples/exits.yaml
    sudo tailrace measure exits examples/exits.yaml --interfaces virtio,e1000e --rate 10kpps --json

    The chain is brought up with each kind in turn. With KVM these are its exits. Where machines are emulated, accesses
    to device registers stand in, and the report says so.
    """
    changes = {"interfaces": interfaces, "frames": frames, "rate": rate, "duration": duration}

    def call() -> int:
        asked, document = load_located(spec)
        if asked.tester_chain() is None:
            raise document.mistake(("chains",), "no chain runs from tester.a to tester.b; expected one to measure")
        found = [(number, test.settings) for number, test in enumerate(asked.tests) if test.kind == "exits"]
        if len(found) > 1:
            raise document.mistake(("tests", found[1][0]), "a second test of exits; expected one in a spec")
        test = commands.override(found[0][1] if found else Exits(), changes)
        assert isinstance(test, Exits)
        check_fit(test, [Carries("tester.a and tester.b", KINDS["tailrace"].mtu("vhost-user"))])

        def plan_with(kind: str) -> Plan:
            spec = with_interface(asked, kind)
            return plan_beside(default_folder(), lambda own: make_plan(spec, huge=huge, document=document, own=own))

        plans: dict[str, Plan] = {kind: plan_with(kind) for kind in test.interfaces}
        for plan in plans.values():
            machines_of(plan)
        commands.needs_root("measure exits")
        text = spec.read_text(encoding="utf-8-sig")
        name = f"exits-{spec.stem}"
        command = tuple(commands.command_line())
        request = Request(name, runs, default_folder(), command, text, str(spec.absolute()), method="exits")
        commands.say([next(iter(plans.values())).placement.headline], as_json=as_json)
        return commands.run_with_bar(
            lambda bar: run_in_turn(request, plans, lambda kind, session: measure_exits(kind, test, session), bar),
            seconds(test),
            as_json=as_json,
        )

    raise typer.Exit(run_command(call))
