"""`tailrace compare SPEC`: one chain, several fabrics, ratios; and what else is compared, as subcommands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tailrace.cli import commands, complete
from tailrace.cli.options import DEFAULT_RUNS, HugeOption, JsonOption, RunsOption
from tailrace.cli.output import run_command
from tailrace.errors import Mistake
from tailrace.fabric.fit import check_fits, words_beyond
from tailrace.fabric.kinds import KINDS, check_installed, parse_fabrics, parse_interface
from tailrace.measure.compare import ComparePlan, Comparison
from tailrace.measure.session import Request, run_own
from tailrace.measure.side import loads_of
from tailrace.measure.stand import Scene, SceneFunction, placed
from tailrace.node.claiming import claim_placements
from tailrace.spec.load import load_located
from tailrace.spec.model import Spec
from tailrace.spec.tests import Latency
from tailrace.state.folder import default_folder

FABRICS = "fabrics"
_BRIEF = {"frames": [64, 1518], "duration": "5s"}
"""Where a spec says nothing."""
_EXPECTED = ", ".join(KINDS)


@dataclass(frozen=True)
class CompareOptions:
    """What the command line says."""

    fabrics: str
    interface: str | None
    pairs: int
    changes: dict[str, str | None]
    runs: Path
    huge: bool
    as_json: bool


class SpecOrCommand(TyperGroup):
    """Takes what is no subcommand for the spec of `fabrics`, so that `tailrace compare SPEC` compares fabrics."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = [FABRICS, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=SpecOrCommand,
    help="Measure alternatives in turn, and show how much they differ. A SPEC alone compares fabrics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Measure alternatives in turn, and show how much they differ. A SPEC alone compares fabrics."""


@app.command(FABRICS)
def compare(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", help="A spec with a chain from tester.a to tester.b.", autocompletion=complete.spec
        ),
    ],
    fabrics: Annotated[
        str, typer.Option(metavar="A,B,...", help=f"The fabrics; the first is the baseline of the ratios: {_EXPECTED}.")
    ] = "tailrace,ovs-dpdk,linux-bridge,direct",
    interface: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="Kind of all ports: vhost-user, memif, tap or veth. Default: each fabric's own."
        ),
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How often each fabric is measured.")] = 5,
    frames: Annotated[str | None, typer.Option(metavar="LIST", help="Frame sizes with FCS, and imix: 64,imix.")] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE,...", help="Each way: 100kpps; 90% is of the lowest no-loss rate of all fabrics."),
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Of each measured trial: 10s.")] = None,
    flows: Annotated[int | None, typer.Option(min=1, max=1_000_000, help="UDP flows each way.")] = None,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Compare fabrics: the same chain on each, in turn (A B C, B C A), at the same rate. The result is ratios.

    \b
    sudo tailrace compare examples/chain.yaml
    sudo tailrace compare examples/chain.yaml --fabrics tailrace,ovs-dpdk --frames 64 --duration 10s --pairs 9

    \b
    tailrace       Tailrace's own one-copy switch
    ovs-dpdk       Open vSwitch with DPDK, of Debian
    linux-bridge   Linux's bridge with TAPs, untuned: the reference
    direct         each function joined to the next, without a switch: the lower bound

    A ratio is the median over pairs, with its bootstrap interval: 95 % from six pairs on. A pair is every fabric once;
    each pair begins with the next fabric, so each is first equally often. A fabric that is not installed, or cannot
    carry the spec, is refused before anything starts.
    """
    changes = {"frames": frames, "rate": rate, "duration": duration, "flows": None if flows is None else str(flows)}
    options = CompareOptions(fabrics, interface, pairs, changes, runs, huge, as_json)
    raise typer.Exit(run_command(lambda: _compare(spec, options)))


def _compare(path: Path, options: CompareOptions) -> int:
    spec, document = load_located(path)
    kinds = parse_fabrics(options.fabrics)
    problems = [problem for kind in kinds if (problem := check_fits(spec, kind))]
    if problems:
        first = words_beyond(spec)[0].split(":")[0].split(" ")[0]
        text = f"{'; '.join(problems)}; remove these words from the spec, or leave the fabric out"
        raise document.mistake(tuple(first.split(".")), text)
    scene = scene_of(path, spec, huge=options.huge, interface=options.interface)
    ports = [port for kind in kinds for port in scene.carries(kind)]
    commands.check_captures(spec, document, "latency", options.changes, ports)
    check_installed(kinds)
    commands.needs_root("compare")
    tests = [test.settings for test in spec.tests if isinstance(test.settings, Latency)]
    wanted = [commands.override(test, options.changes) for test in tests or [Latency.model_validate(_BRIEF)]]
    loads = loads_of([test for test in wanted if isinstance(test, Latency)])
    plan = ComparePlan(scene, placed(scene, kinds), loads, options.pairs)
    request = Request(
        f"compare-{path.stem}",
        options.runs,
        default_folder(),
        tuple(commands.command_line()),
        path.read_text(encoding="utf-8-sig"),
        str(path.absolute()),
        ",".join(kind.name for kind in kinds),
        method="compare",
    )
    headlines = [f"{fabric.name}: {fabric.placement.headline}" for fabric in plan.fabrics]
    many, kinds_of_load = (
        f"{number} {what}{'' if number == 1 else 's'}"
        for number, what in ((plan.pairs, "pair"), (len(plan.loads), "load"))
    )
    how_long = f"{many} of {kinds_of_load}, about {round(plan.total_seconds / 60) or 1} min"
    commands.say([*headlines, how_long], as_json=options.as_json)
    oversubscribed = any(fabric.placement.oversubscribed for fabric in plan.fabrics)
    said = (*(fabric.caveat(scene) for fabric in plan.fabrics), *(each.note for each in plan.profiles))
    caveats = dict.fromkeys(each for each in said if each is not None)
    return commands.run_with_bar(
        lambda bar: run_own(
            request,
            plan.pages,
            lambda state: claim_placements(state, [fabric.placement for fabric in plan.fabrics]),
            lambda launcher, folder, report: Comparison(plan, launcher, folder, report).run(),
            oversubscribed=oversubscribed,
            notes=(*(headlines if oversubscribed else ()), *caveats),
            report=bar,
        ),
        plan.total_seconds,
        as_json=options.as_json,
    )


def scene_of(path: Path, spec: Spec, *, huge: bool, interface: str | None = None) -> Scene:
    """The chain between the tester's ends, to stand on a fabric. Raises Mistake if there is none."""
    found = spec.tester_chain()
    if found is None:
        raise Mistake(f"{path}: no chain runs from tester.a to tester.b; expected one to compare")
    name, chain = found
    for each in chain.through:
        if spec.functions[each].network is not None:
            kind = spec.functions[each].kind
            raise Mistake(
                f"{path}: {each} is a {kind}, whose network namespace no comparison makes; expected other kinds"
            )
    functions = [
        SceneFunction(
            each, spec.functions[each].kind or "", spec.functions[each].memory, spec.functions[each].settings(0)
        )
        for each in chain.through
    ]
    if chain.ends[0] == "tester.b":
        functions.reverse()
    return Scene(
        name,
        tuple(functions),
        parse_interface(interface) if interface is not None else None,
        huge=huge,
        backpressure_us=round(spec.fabric.backpressure * 1e6),
        idle=spec.fabric.policies,
    )
