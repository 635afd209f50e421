"""`tailrace bench`: what one thing costs here and now, beside the alternative."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import typer
from rich.console import Console, RenderableType

from tailrace.bench import hop as bench_hop
from tailrace.bench import switch as bench_switch
from tailrace.bench import tester as bench_tester
from tailrace.bench.hop import HopPlan
from tailrace.bench.switch import SwitchPlan
from tailrace.bench.table import hop_table, switch_table, tester_table
from tailrace.bench.tester import TesterPlan
from tailrace.cli.output import print_json, run_command
from tailrace.errors import Mistake
from tailrace.host.state import default_folder
from tailrace.measure.progress import Reporter, Silent, reporter

app = typer.Typer(
    help="Measure what one thing costs on this machine, beside the alternative.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def bench() -> None:
    """Measure what one thing costs on this machine, beside the alternative."""


FrameOption = Annotated[int, typer.Option(metavar="BYTES", help="Frame size with the 4 of the FCS: 64 to 1518.")]
PairsOption = Annotated[int, typer.Option(metavar="N", help="How often each side is measured.")]
SecondsOption = Annotated[float, typer.Option(metavar="S", help="How long each measurement lasts.")]
CoresOption = Annotated[str | None, typer.Option(metavar="SWITCH,LOAD", help="The CPUs to use, such as 1,0.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and no progress bar.")]


@app.command()
def hop(
    frame: FrameOption = 64,
    against: Annotated[
        str | None, typer.Option(metavar="ovs-dpdk", help="Measure this switch too, in turn (A B A B).")
    ] = None,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The cost of one hop between two functions: CPU cycles a packet and Mpps, saturated, both directions.

    \b
    sudo tailrace bench hop --frame 64
    sudo tailrace bench hop --frame 512 --against ovs-dpdk --pairs 9

    DPDK's testpmd plays both functions on one core, the switch polls on another. With --against, Open vSwitch with
    DPDK is measured in turn: the same guests, two port-to-port rules, its polling thread on the same core. The
    result is the median of the pairs' ratios.

    Before each pair the distance of the two cores is measured: the round trip of a cache line; under 150 ns they are
    near. On a shared machine it changes from minute to minute and decides the absolute figures, so compare within a
    pair only.

    If traffic stalls or a packet is lost, it fails and prints no figure. It needs root, and reserves up to 800 MiB
    of huge pages, which it gives back.
    """
    _finish(
        lambda: HopPlan(frame, against, pairs, seconds, _parse_cores(cores)),
        bench_hop.run,
        hop_table,
        as_json=as_json,
    )


@app.command()
def tester(
    frame: FrameOption = 64,
    flows: Annotated[int, typer.Option(metavar="N", help="UDP flows that the tester sends each way.")] = 1,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """What checking every frame costs: the tester's rate beside plain testpmd's, on the same ports and core.

    \b
    sudo tailrace bench tester --frame 64
    sudo tailrace bench tester --frame 1518 --flows 10000 --pairs 9

    In turn (A B A B), the tester and DPDK's testpmd play both guests of one hop on one core, as fast as each can,
    both directions; the switch polls on another. testpmd passes on what comes and looks at nothing. The tester makes
    and signs every frame, and checks and times every one that it receives. The ratio is the tester's frames a second
    ÷ testpmd's, both counted by the switch; 1 would mean that proof costs nothing.

    The tester's own count stands beside, with what it lost: on a busy machine its core may be taken away for so long
    that the switch gives up waiting and drops. Its losses must be those that the switch counted, or there is no figure.

    It needs root, and reserves up to 272 MiB of huge pages, which it gives back.
    """
    _finish(
        lambda: TesterPlan(frame, flows, pairs, seconds, _parse_cores(cores)),
        bench_tester.run,
        tester_table,
        as_json=as_json,
    )


@app.command()
def switch(
    starts: Annotated[int, typer.Option(metavar="N", help="How often the switch is started.")] = 20,
    changes: Annotated[int, typer.Option(metavar="N", help="How often two ports come, are joined, and go.")] = 50,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """What the switch costs to start and to change: time until ready, memory, time to add and remove ports.

    \b
    sudo tailrace bench switch
    sudo tailrace bench switch --starts 100 --changes 500 --json

    Ready means that the control socket answers. Memory is the peak of what was resident, without a guest and with 16
    guests attached; the guests' own memory lies in huge pages and is not in it.

    Then, while the tester sends 50 000 frames a second each way through one chain, two ports with guests attached are
    added, joined, parted and removed, over and over. Each call is timed to its answer, and every frame of the
    chain beside is accounted for: none may be lost.

    It needs root, and reserves up to 528 MiB of huge pages, which it gives back.
    """
    _finish(
        lambda: SwitchPlan(starts, changes, _parse_cores(cores)),
        bench_switch.run,
        switch_table,
        as_json=as_json,
    )


class _Plan(Protocol):
    @property
    def total_seconds(self) -> float: ...


class _Result(Protocol):
    def document(self) -> dict[str, Any]: ...


PlanT = TypeVar("PlanT", bound=_Plan)
ResultT = TypeVar("ResultT", bound=_Result)


def _finish(
    make_plan: Callable[[], PlanT],
    run: Callable[[PlanT, Path, Reporter], ResultT],
    table: Callable[[ResultT], RenderableType],
    *,
    as_json: bool,
) -> None:
    """Runs a benchmark with a progress bar, shows its result, and exits."""

    def work() -> int:
        plan = make_plan()
        bar = reporter(plan.total_seconds, wanted=not as_json)
        with bar or nullcontext():
            result = run(plan, default_folder(), bar or Silent())
        if as_json:
            print_json(result.document())
        else:
            Console().print(table(result))
        return 0

    raise typer.Exit(run_command(work))


def _parse_cores(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        switch, load = (int(part) for part in text.split(","))
    except ValueError:
        raise Mistake(f"--cores {text}: expected two CPU numbers, the switch's and the load's, such as 1,0") from None
    return switch, load
