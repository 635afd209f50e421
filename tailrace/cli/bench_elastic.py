"""`tailrace bench plug`, `migration` and `handover`: what grows, shrinks, moves and is replaced while frames move."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from tailrace.bench import automatic as bench_automatic
from tailrace.bench import handover as bench_handover
from tailrace.bench import migration as bench_migration
from tailrace.bench import plug as bench_plug
from tailrace.bench.table import Column, automatic_table, comparison_table, migration_table, plug_table
from tailrace.cli.bench_finish import JsonOption, finish
from tailrace.errors import Mistake


def plug(
    times: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How often a CPU is added and taken away.", show_default="100; 20 with --automatic"
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="PPS",
            help="Frames a second meanwhile, both ways together.",
            show_default="20000; 400000 with --automatic",
        ),
    ] = None,
    machine: Annotated[bool, typer.Option("--machine", help="Also a machine's virtual CPUs, beside hot-plug.")] = False,
    automatic: Annotated[
        bool, typer.Option("--automatic", help="By load: how soon one is taken in a burst, and given back after it.")
    ] = False,
    wave: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --automatic: how long the square wave lasts; 0: there is none.",
            show_default="130",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """How soon a function that runs has one CPU more, and one less, while frames move; and how many frames that costs.

    \b
    sudo tailrace bench plug
    sudo tailrace bench plug --times 1000 --json
    sudo tailrace bench plug --times 20 --machine
    sudo tailrace bench plug --automatic

    plug: from the call of the service until the new thread had forwarded its first frame. unplug: until the CPU was
    free for others. restart: a new instance in the function's place, which is what there is without that.

    With --machine, the virtual CPUs of a machine too, which has no ports. pool: until libvirt has moved the thread of a
    virtual CPU to another CPU of the host, without the service's own work around it. hot-plug: until a program has run
    on a virtual CPU that was added (`virsh setvcpus`) and brought up inside. Of the latter there are at most 14.

    With --automatic, a function that has its CPUs by its load. take: from the first frame of a burst until the
    function has another CPU. give back: from the end of the burst until it has given that back. Then frames come and
    stop in turn (1 s each), and each CPU that is given back and wanted again is counted.
    """
    if automatic:
        defaults = bench_automatic.AutomaticPlan
        finish(
            lambda: _automatic(
                defaults.times if times is None else times,
                defaults.rate if rate is None else rate,
                defaults.wave if wave is None else wave,
                machine=machine,
            ),
            bench_automatic.run,
            partial(automatic_table, title="CPUs by load: bursts of frames"),
            as_json=as_json,
        )
    finish(
        lambda: _by_hand(times, rate, wave, machine=machine),
        bench_plug.run,
        partial(plug_table, title="One CPU more and less for a function that runs"),
        as_json=as_json,
    )


def _automatic(times: int, rate: float, wave: float, *, machine: bool) -> bench_automatic.AutomaticPlan:
    if machine:
        raise Mistake(
            "--automatic --machine: the machine that is measured has its CPUs by hand; expected one of the two"
        )
    return bench_automatic.AutomaticPlan(times, rate, wave)


def _by_hand(times: int | None, rate: float | None, wave: float | None, *, machine: bool) -> bench_plug.PlugPlan:
    if wave is not None:
        raise Mistake(f"--wave {wave:g}: expected with --automatic")
    defaults = bench_plug.PlugPlan
    return defaults(defaults.times if times is None else times, defaults.rate if rate is None else rate, machine)


def migration(
    times: Annotated[int, typer.Option(metavar="N", help="How often the machine moves, to and fro.")] = 5,
    rate: Annotated[float, typer.Option(metavar="PPS", help="Frames a second meanwhile.")] = 250.0,
    as_json: JsonOption = False,
) -> None:
    """For how long the traffic of a machine stops when it moves to another node while it runs; and what is lost.

    \b
    sudo tailrace bench migration
    sudo tailrace bench migration --times 20 --json

    Two nodes of this machine, each with a libvirt of its own, have the same chain. outage: the longest time between two
    frames that came out of either. pause: the machine stood still, as QEMU has counted. switch: from its end at the
    source until it forwarded at the target. total: all that `tailrace migrate` took.

    Where KVM does not run machines they are emulated, and the emulator has a part in all of it: the table says so.
    """
    finish(
        lambda: bench_migration.MigrationPlan(times, rate),
        bench_migration.run,
        partial(migration_table, title="A machine moves to another node"),
        as_json=as_json,
    )


def handover(
    connections: Annotated[int, typer.Option(metavar="N", help="Connections: 1000 to 4000000.")] = 1_000_000,
    pairs: Annotated[int, typer.Option(metavar="N", help="How often they are handed over.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """How long the connections of a firewall take to the instance that replaces it.

    \b
    sudo tailrace bench handover
    sudo tailrace bench handover --connections 100000 --pairs 9 --json

    Two instances, neither of which has frames to forward. all: every connection, which in `apply` is before frames are
    led to the new instance. rest: once more, what was seen since; here that is nothing, so it is the time to look.
    round: one of those that keep a standby in step, ten a second at most, likewise with nothing that has changed.
    """
    finish(
        lambda: bench_handover.HandOverPlan(pairs=pairs, connections=connections),
        bench_handover.run,
        partial(
            comparison_table,
            title=f"{connections} connections handed over to another instance",
            columns=[
                Column("seconds", "all s", 2),
                Column("rest_seconds", "rest s", 3),
                Column("per_second", "connections/s", 0),
                Column("round_seconds", "round s", 4),
            ],
            notes=["Established TCP connections over IPv4, by the node's own calls, on two cores."],
        ),
        as_json=as_json,
    )
