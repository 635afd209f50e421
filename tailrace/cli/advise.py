"""`tailrace advise`: which interface for which traffic, and why."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from tailrace.advise.calibrate import shown
from tailrace.advise.chain import (
    FRAMES,
    HYBRID,
    SR_IOV,
    Chain,
    Frame,
    answers,
    assignments,
    changes,
    missing,
    sizes_of,
    turning_points,
    unbounded,
)
from tailrace.advise.learn import UNKNOWN, Measured, of_switch, read_measured
from tailrace.advise.learn import learn as learn_from
from tailrace.advise.machine import DISTANCES, Machine, read_machine, show_machine
from tailrace.advise.model import CARD, FCS
from tailrace.advise.of_spec import chains_of
from tailrace.advise.table import FRAME_SIZES
from tailrace.cli import complete
from tailrace.cli.advise_bench import calibrate_machine, check_outputs, compare_chains, write_text
from tailrace.cli.advise_validate import say_beyond, unique, validate_left_out, validate_table
from tailrace.cli.options import JsonOption
from tailrace.cli.output import note, print_json, print_line, run_command
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import Mistake, TailraceError
from tailrace.plan.make import make_plan
from tailrace.report.advice import draw
from tailrace.spec.load import load_located
from tailrace.spec.model import Spec
from tailrace.spec.position import Document
from tailrace.spec.traffic import IMIX_MEAN

_FRAMES = "64,256,1518"
IMIX: Literal["imix"] = "imix"
_BINDING = "The rates are bounds: nothing else on the machine is taken into account."


class _SpecFirst(TyperGroup):
    """`tailrace advise SPEC` without another word."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            near = difflib.get_close_matches(args[0], self.commands, 1)
            if near and not args[0].startswith("-") and not Path(args[0]).exists():
                ctx.fail(f"{args[0]}: no such command, nor a spec; did you mean {near[0]}?")
            args = ["spec", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_SpecFirst,
    help="Predict what a chain carries with each kind of interface, and name the bottleneck.\n\n"
    "`advise SPEC` is short for `advise spec SPEC`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
MachineOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The machine, by `advise calibrate`. Default: that of the published tables."),
]


@app.command()
def spec(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec.", autocompletion=complete.spec)],
    machine: MachineOption = None,
    frames: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help=f"Frame sizes with FCS, and imix: 64,imix. Default: those of the spec's tests, or {_FRAMES}.",
        ),
    ] = None,
    learn: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="A run of `measure throughput` on this machine: refines what a hop takes. Can be given several times.",
            autocompletion=complete.run,
        ),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw each limit and the rates by size of frame.")
    ] = None,
    on_card: Annotated[
        bool, typer.Option("--on-card", help="As if both ends of each chain were ports of the machine's card.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the machine with what --learn found.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """For each chain of a spec: the rate with each kind of interface, the bottleneck, and the kind to choose.

    \b
    tailrace advise examples/chain-of-two.yaml --on-card
    tailrace advise examples/chain-of-two.yaml --machine here.yaml --frames 64,512 --json
    tailrace advise examples/chain.yaml --machine here.yaml --learn runs/2026-11-21-143005-throughput-chain -o here.yaml
    tailrace advise examples/chain-of-two.yaml --on-card --chart limits.svg

    `tailrace advise SPEC` is short for `tailrace advise spec SPEC`. With --learn it also prints what was measured
    beside what the machine's parameters predicted before and predict now; without --machine it then knows what the
    runs say, and nothing else.
    """
    options = AdviseOptions(machine, frames, tuple(learn or ()), chart, output, on_card)
    raise typer.Exit(run_command(lambda: _advise(spec, options, as_json=as_json)))


@app.command()
def validate(
    table: Annotated[Path, typer.Argument(metavar="FILE.csv", help="A published table of rates.")],
    calibrate: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Fit the parameters to this table first.")
    ] = None,
    machine: MachineOption = None,
    left_out: Annotated[
        bool,
        typer.Option(
            "--leave-out", help="Fit to the table without one size, or one number of functions, and predict these."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare a table of measured rates with the model's predictions, cell by cell.

    \b
    tailrace advise validate tables.csv
    tailrace advise validate others.csv --calibrate tables.csv --json
    tailrace advise validate tables.csv --leave-out

    The columns are traffic,interface,frame_bytes,functions,gbps,mpps. One of the last two may be empty; where mpps is
    there, it is compared. A cell within its own rounding counts as right. Beside the model's errors stand those of an
    interpolation of the calibrating cells, or of the table's own.
    """

    def call() -> int:
        if not left_out:
            return validate_table(table, calibrate, machine, as_json=as_json)
        if calibrate is not None:
            raise Mistake("--leave-out fits to the table itself; expected no --calibrate with it")
        return validate_left_out(table, machine, as_json=as_json)

    raise typer.Exit(run_command(call))


@app.command()
def calibrate(
    benches: Annotated[list[Path], typer.Argument(metavar="HOP.json...", help="Results of `bench hop --json`.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The machine's file.")],
    distance: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="How far the two cores were from each other: near or far, or siblings. Default: what was most often.",
            autocompletion=complete.words(*DISTANCES),
        ),
    ] = None,
    card: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The card whose link and PCIe the file has too. Default: the only one there is.",
            autocompletion=complete.cards,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make the parameters of this machine from what one hop costs here.

    \b
    sudo tailrace bench hop --frame 64 --against none --json > 64.json
    sudo tailrace bench hop --frame 1518 --against none --json > 1518.json
    tailrace advise calibrate 64.json 1518.json -o here.yaml

    On virtual machines the two cores may be near each other at one moment and far at the next, and a hop then takes
    three times as long. Results say which pairs were measured at which distance; one machine's file is of one distance.

    Where this machine has a card, the file has the rate of its link and what PCIe leaves (line_gbps, pcie_gbps).
    """
    raise typer.Exit(run_command(lambda: calibrate_machine(benches, output, distance, card, as_json=as_json)))


@app.command()
def chains(
    benches: Annotated[list[Path], typer.Argument(metavar="CHAIN.json...", help="Results of `bench chain --json`.")],
    machine: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="The machine, by `advise calibrate`; or one for each distance of its cores."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Compare the rates of chains of 1 to 8 functions, as measured here, with the predictions from one hop.

    \b
    sudo tailrace bench chain --functions 4 --against none --json > 4.json
    tailrace advise chains 1.json 2.json 4.json 8.json --machine here.yaml

    The rate is that of all functions together. They share a core, and the switch has another, so one of these two is
    the limit. What was measured at another distance of the two cores than a machine's parameters is left out.
    """
    raise typer.Exit(run_command(lambda: compare_chains(benches, machine, as_json=as_json)))


def _frames(text: str) -> list[Frame]:
    least, most = FRAME_SIZES
    found: list[Frame] = []
    for word in text.split(","):
        if word != IMIX and not (word.isascii() and word.isdigit() and len(word) < 9 and least <= int(word) <= most):
            raise Mistake(f"--frames {text}: expected sizes from {least} to {most}, or {IMIX}, such as {_FRAMES}")
        found.append(IMIX if word == IMIX else int(word))
    return list(dict.fromkeys(found))


def _frames_of(asked: Spec) -> list[Frame]:
    """Those of the spec's tests; captures have none that are known."""
    tests = [test.settings for test in asked.tests]
    return list(dict.fromkeys(frame for each in tests if each.pcap is None for frame in each.frames))


@dataclass(frozen=True)
class AdviseOptions:
    """How `tailrace advise SPEC` was asked."""

    machine: Path | None
    frames: str | None
    learn: tuple[Path, ...]
    chart: Path | None
    output: Path | None
    on_card: bool


def _advise(path: Path, options: AdviseOptions, *, as_json: bool) -> int:
    given = None if options.frames is None else _frames(options.frames)
    machine = UNKNOWN if options.learn and options.machine is None else read_machine(options.machine)
    if options.output and not options.learn:
        raise Mistake("--output keeps what --learn finds; expected --learn RUN too")
    check_outputs([options.output, options.chart], [path, *options.learn])
    check_outputs([options.chart], [options.machine] if options.machine else [])
    if options.chart and options.chart.suffix not in ("", ".svg"):
        raise Mistake(f"--chart {options.chart}: the chart is SVG; expected a name that ends in .svg")
    asked, document = load_located(path)
    sizes = given or _frames_of(asked) or _frames(_FRAMES)
    chains = chains_of(asked, on_card=options.on_card)
    if not chains:
        raise document.mistake(("chains",), "no chain leads through a function; expected one to advise on")
    all_measured = read_measured(options.learn)
    learned, before = of_switch(machine, all_measured), machine
    if options.learn:
        machine = learn_from(machine, learned)
    if not any(answers(machine, chain, FRAMES[0]) for chain in chains.values()):
        raise Mistake(_nothing_known(machine, chains, options.machine))
    if options.output:
        write_text(options.output, show_machine(machine))
    if options.chart:
        write_text(options.chart, draw(machine, chains, all_measured.measured))
    advised = {chain: _advice(machine, chain, sizes) for chain in dict.fromkeys(chains.values())}
    found: dict[str, Any] = {
        "machine": machine.name,
        "chains": [{"chain": name, **advised[chain]} for name, chain in chains.items()],
        "learned": {
            "measured": [_compared(each, before, machine) for each in learned.measured],
            "left_out": [{"what": what, "why": why} for what, why in learned.left_out],
        },
    }
    if options.machine is not None or options.learn:
        found["oversubscribed"] = _oversubscribed(asked, document, path)
    if as_json:
        print_json(found)
        return 0
    print_line(f"Machine: {machine.name}")
    if found.get("oversubscribed"):
        print_line(f"On this host: {found['oversubscribed']} The rates are of a core for each.")
    for each in found["chains"]:
        _show_chain(each)
    if options.learn:
        _show_learned(found["learned"])
    if options.machine is None and not options.learn:
        note("this is the machine of the published tables; for this one: `tailrace advise calibrate`")
    print_line(_BINDING)
    return 0


def _oversubscribed(asked: Spec, document: Document, path: Path) -> str | None:
    """What `up` would say of this host's CPUs, where they are fewer than what polls; None where they suffice, or where
    the spec cannot be brought up here anyway."""
    try:
        placement = make_plan(asked, document=document, folder=path.parent).placement
    except TailraceError:
        return None
    return placement.headline if placement.oversubscribed else None


def _advice(machine: Machine, chain: Chain, sizes: list[Frame]) -> dict[str, Any]:
    return {
        "functions": chain.functions,
        "function_cpus": chain.cores,
        "chains_by_function": chain.in_function,
        "ends_on_card": chain.ends,
        "chains_on_card": chain.on_card,
        "chains_by_switch": chain.beside,
        "rows": [
            {
                "frames": size,
                "frame_bytes": round(_mean(size), 1) if size == IMIX else size,
                "interface": each.interface,
                "inner_hops_by_card": each.by_card,
                "in_spec": each.in_spec,
                "assignment": each.words,
                "predicted_mpps": shown(each.mpps),
                "predicted_gbps": shown(each.mpps * 8 * (_mean(size) - FCS) / 1e3),
                "bottleneck": each.bottleneck.name,
                "extrapolated": bool(_beyond(machine, chain, [size])),
            }
            for size in sizes
            for each in answers(machine, chain, size)
        ],
        "recommended": list(_recommended(machine, chain)),
        "changes": [asdict(each) for size in sizes for each in changes(machine, chain, size)],
        "beyond": _beyond(machine, chain, sizes),
        "hint": _hint(machine, chain),
        "missing": {kind: list(names) for kind, names in missing(machine, chain).items()},
        "without": {limit: list(names) for limit, names in unbounded(machine, chain).items()},
    }


def _mean(frame: Frame) -> float:
    """Bytes of a frame with FCS."""
    return IMIX_MEAN if frame == IMIX else frame


def _beyond(machine: Machine, chain: Chain, frames: Sequence[Frame]) -> list[str]:
    return unique(machine.calibrated.beyond(size, chain.functions) for frame in frames for size in sizes_of(frame))


def _shown(frame: Frame) -> str:
    return IMIX if frame == IMIX else f"{frame} B"


def _hint(machine: Machine, chain: Chain) -> str | None:
    """Why nothing is said of a card that the machine has."""
    if chain.ends or any(name not in machine for name in CARD):
        return None
    return "No end of it is a port of a card, so no hop goes by one; --on-card asks as if both were."


def _nothing_known(machine: Machine, chains: dict[str, Chain], path: Path | None) -> str:
    """What a machine lacks that says nothing of any chain."""
    lacks = unique(
        [f"{kind} {', '.join(names)}"] for chain in chains.values() for kind, names in missing(machine, chain).items()
    )
    wanted = "; or for ".join(lacks)
    return f"{path or machine.name}: too few parameters for any answer; expected for {wanted} (docs/advise.md)"


def _recommended(machine: Machine, chain: Chain) -> Iterator[dict[str, Any]]:
    """Which kind to choose from which size on, and why: at the shortest frames, and at the longest that each is for."""
    for number, best in enumerate(turning_points(machine, chain)):
        at = best.frames[1 if number else 0]
        found: dict[str, Any] = {
            "from_frame_bytes": best.frames[0],
            "interface": best.answer.interface,
            "assignment": best.words,
            "reason": _reason(machine, chain, at),
            "in_spec": best.answer.in_spec,
        }
        if not best.answer.in_spec:
            hybrid = best.answer.interface == HYBRID and not chain.one_replica
            found["not_in_spec"] = _OF_REPLICAS if hybrid else _AT_THE_SWITCH
            other = next((each for each in assignments(machine, chain, at) if each.in_spec), None)
            found["instead"] = other and {
                "assignment": other.words,
                "frame_bytes": at,
                "predicted_mpps": shown(other.mpps),
            }
        yield found


_ALIKE = 0.999
_AT_THE_SWITCH = "each function has a port at the switch"
_OF_REPLICAS = "a virtual function is one replica's, and a function at its ends has several"


def _reason(machine: Machine, chain: Chain, frame: int) -> str:
    """Why the best kind is that at a size of frames."""
    best, *others = answers(machine, chain, frame)
    other = next((each for each in others if each.mpps < _ALIKE * best.mpps), None)
    if other is None:
        return f"at {frame} B it carries {best.mpps:.3g} Mpps, and {'no other more' if others else 'there is no other'}"
    return (
        f"at {frame} B it carries {best.mpps:.3g} Mpps, and {other.words} {other.mpps:.3g}, bounded by "
        f"{other.bottleneck.name}"
    )


def _compared(each: Measured, before: Machine, after: Machine) -> dict[str, Any]:
    was, now = each.predicted(before), each.predicted(after)
    return {
        "run": each.run,
        "name": each.name,
        "frame_bytes": each.frame,
        "functions": each.chain.functions,
        "measured_mpps": round(each.mpps, 4),
        "predicted_mpps": None if was is None else round(was, 4),
        "error": None if was is None else round(was / each.mpps - 1, 5),
        "learned_mpps": None if now is None else round(now, 4),
        "learned_error": None if now is None else round(now / each.mpps - 1, 5),
    }


def _show_chain(chain: dict[str, Any]) -> None:
    print_line("")
    many = "1 function" if chain["functions"] == 1 else f"{chain['functions']} functions"
    cpus = "" if chain["function_cpus"] == 1 else f", of {chain['function_cpus']} CPUs behind the switch"
    print_line(f"{chain['chain']}, {many}{cpus}")
    table = PlainTable("frame", "interface", "Mpps", "Gbit/s", "bottleneck")
    for row in chain["rows"]:
        table.add_row(
            _shown(row["frames"]), row["assignment"], f"{row['predicted_mpps']:.3g}",
            f"{row['predicted_gbps']:.3g}", row["bottleneck"],
        )  # fmt: skip
    if chain["rows"]:
        print_table(table)
        _show_choice(chain)
    if chain["hint"]:
        print_line(chain["hint"])
    for kind, names in chain["missing"].items():
        print_line(f"No answer for {kind}: the machine's parameters lack {', '.join(names)}.")
    for limit, names in chain["without"].items():
        print_line(f"Without the limit of {limit}: the machine's parameters lack {', '.join(names)}.")
    say_beyond(chain["beyond"])


def _show_choice(chain: dict[str, Any]) -> None:
    first, *others = chain["recommended"]
    always = "" if others else ", whatever the size of frames"
    print_line(f"Choose {first['assignment']}{always}: {first['reason']}.")
    _show_instead(first)
    for each in others:
        print_line(f"From frames of {each['from_frame_bytes']} B on choose {each['assignment']}: {each['reason']}.")
        _show_instead(each)
    for each in chain["changes"]:
        side = "more" if each["value"] > each["now"] else "less"
        print_line(
            f"{_shown(each['frame'])}: {each['interface']} would be better if {each['parameter']} were "
            f"{each['value']:.3g} {each['unit']} or {side}; it is {each['now']:.3g}."
        )


def _show_instead(recommended: dict[str, Any]) -> None:
    """What a spec can say, where it cannot say what is the best."""
    if recommended["in_spec"]:
        return
    other = recommended["instead"]
    measured = "; `measure matrix --fabrics card` can measure it" if recommended["interface"] == SR_IOV else ""
    best = (
        f"Of what it can say the best is {other['assignment']}: {other['predicted_mpps']:.3g} Mpps at "
        f"{other['frame_bytes']} B."
        if other
        else "Of what it can say nothing is known."
    )
    print_line(f"A spec cannot say that, because {recommended['not_in_spec']}{measured}. {best}")


def _show_learned(learned: dict[str, Any]) -> None:
    def beside(mpps: float | None, error: float | None) -> str:
        return "unknown" if mpps is None or error is None else f"{mpps:.3g} ({100 * error:+.1f} %)"

    print_line("")
    table = PlainTable("measured", "frame", "functions", "Mpps", "predicted", "after learning")
    for row in learned["measured"]:
        table.add_row(
            f"{row['run']}, {row['name']}", f"{row['frame_bytes']} B", str(row["functions"]),
            f"{row['measured_mpps']:.3g}", beside(row["predicted_mpps"], row["error"]),
            beside(row["learned_mpps"], row["learned_error"]),
        )  # fmt: skip
    print_table(table)
    for each in learned["left_out"]:
        print_line(f"Left out: {each['what']} {each['why']}.")
