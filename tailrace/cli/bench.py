"""`tailrace bench`: what one thing costs here and now, beside the alternative."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Console

from tailrace.bench.hop import HopPlan, run
from tailrace.bench.table import hop_table
from tailrace.cli.output import print_json, run_command
from tailrace.errors import Mistake
from tailrace.host.state import default_folder
from tailrace.measure.progress import Silent, reporter

app = typer.Typer(
    help="Measure what one thing costs on this machine, beside the alternative.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def bench() -> None:
    """Measure what one thing costs on this machine, beside the alternative."""


@app.command()
def hop(
    frame: Annotated[int, typer.Option(metavar="BYTES", help="Frame size with the 4 of the FCS: 64 to 1518.")] = 64,
    against: Annotated[
        str | None, typer.Option(metavar="ovs-dpdk", help="Measure this switch too, in turn (A B A B).")
    ] = None,
    pairs: Annotated[int, typer.Option(metavar="N", help="How often each switch is measured.")] = 5,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long each measurement lasts.")] = 3.0,
    cores: Annotated[str | None, typer.Option(metavar="SWITCH,LOAD", help="The CPUs to use, such as 1,0.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON on standard output, and no progress bar.")
    ] = False,
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
    raise typer.Exit(run_command(lambda: _hop(frame, against, pairs, seconds, cores, as_json=as_json)))


def _hop(frame: int, against: str | None, pairs: int, seconds: float, cores: str | None, *, as_json: bool) -> int:
    plan = HopPlan(frame, against, pairs, seconds, _parse_cores(cores))
    bar = reporter(plan.total_seconds, wanted=not as_json)
    with bar or nullcontext():
        result = run(plan, default_folder(), bar or Silent())
    if as_json:
        print_json(result.document())
    else:
        Console().print(hop_table(result))
    return 0


def _parse_cores(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        switch, load = (int(part) for part in text.split(","))
    except ValueError:
        raise Mistake(f"--cores {text}: expected two CPU numbers, the switch's and the load's, such as 1,0") from None
    return switch, load
