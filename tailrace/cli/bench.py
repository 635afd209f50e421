"""`tailrace bench`: what one thing costs here and now, beside the alternative."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from rich.console import RenderableType

from tailrace.bench import apply as bench_apply
from tailrace.bench import chain as bench_chain
from tailrace.bench import dashboard as bench_dashboard
from tailrace.bench import floor as bench_floor
from tailrace.bench import following as bench_following
from tailrace.bench import function as bench_function
from tailrace.bench import hop as bench_hop
from tailrace.bench import idle as bench_idle
from tailrace.bench import interrupts as bench_interrupts
from tailrace.bench import latency as bench_latency
from tailrace.bench import looking as bench_looking
from tailrace.bench import priority as bench_priority
from tailrace.bench import recorder as bench_recorder
from tailrace.bench import routing as bench_routing
from tailrace.bench import scale as bench_scale
from tailrace.bench import service as bench_service
from tailrace.bench import start as bench_start
from tailrace.bench import switch as bench_switch
from tailrace.bench import tcp as bench_tcp
from tailrace.bench import tester as bench_tester
from tailrace.bench.model import OVS_DPDK, Comparison, Kinds
from tailrace.bench.sides import ALONE
from tailrace.bench.table import (
    CYCLES,
    MPPS,
    Column,
    change_table,
    comparison_table,
    dashboard_table,
    kinds_table,
    service_table,
    start_table,
)
from tailrace.bench.traffic import KINDS, PLAIN
from tailrace.cli import complete
from tailrace.cli.bench_elastic import handover, migration, plug
from tailrace.cli.bench_finish import JsonOption, finish
from tailrace.cli.bench_host import host
from tailrace.errors import Mistake
from tailrace.functions.runtimes import STARTERS
from tailrace.measure import tcp as tcp_parts
from tailrace.measure.host.tools import INTERVAL_US
from tailrace.measure.stacks import OWN_WAYS

app = typer.Typer(
    help="Measure what one thing costs on this machine, compared with an alternative.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def bench() -> None:
    """Measure what one thing costs on this machine, compared with an alternative."""


FrameOption = Annotated[int, typer.Option(metavar="BYTES", help="Frame size with the 4 bytes of the FCS: 64 to 1518.")]
PairsOption = Annotated[int, typer.Option(metavar="N", help="How often each side is measured: 1 to 1000.")]
SecondsOption = Annotated[float, typer.Option(metavar="S", help="How long each measurement lasts.")]
CoresOption = Annotated[str | None, typer.Option(metavar="SWITCH,LOAD", help="The CPUs to use, such as 1,0.")]
AgainstOption = Annotated[
    str,
    typer.Option(
        metavar=f"{OVS_DPDK}|{ALONE}",
        help="The switch that is measured in turn with Tailrace's (A B A B).",
        autocompletion=complete.words(OVS_DPDK, ALONE),
    ),
]

CYCLES_NOTE = "cycles: TSC cycles a packet, of the switch's polls that found packets."
MPPS_NOTE = "Mpps: all directions together."
LOADS_COLUMNS = [
    Column(f"{load}_{figure}_us", f"{word}\n{figure}", 2)
    for load, word in (("single", "one"), ("paced", "100k"))
    for figure in ("p50", "p99", "p99.9")
]
LOADS_NOTE = "one: one frame at a time; 100k: 100 000 a second. Medians over windows of a second."
PEER_NOTE = "ratio: ovs-dpdk ÷ tailrace for cycles, tailrace ÷ ovs-dpdk for Mpps; above 1 favours Tailrace."


@app.command()
def hop(
    traffic: Annotated[
        str,
        typer.Option(
            metavar="KIND[,KIND...]|all",
            help=f"What the guests send: {', '.join(KINDS)}.",
            autocompletion=complete.listed(*KINDS, "all"),
        ),
    ] = PLAIN,
    frame: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="Frame size with the 4 bytes of the FCS: 64 to 1518; 64 unless given."),
    ] = None,
    against: AgainstOption = OVS_DPDK,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The cost of one hop between two functions: CPU cycles a packet and Mpps, saturated, both directions.

    \b
    sudo tailrace bench hop --frame 512 --pairs 9
    sudo tailrace bench hop --frame 64 --against none

    DPDK's testpmd plays both functions on one core, the switch polls on another. Open vSwitch with DPDK is measured
    in turn: the same guests, two port-to-port rules, its polling thread on the same core. The result is the median of
    the pairs' ratios.

    Each side is measured in windows of about a quarter of a second. Between windows, while switch and load stand still,
    the distance of the two cores is measured: the round trip of a cache line. Under 45 ns they are two threads of one
    core, under 150 ns near. A hypervisor may change the distance from one second to the next, and it decides the
    absolute figures. So only windows of the same distance are compared; the result is of the most frequent one.

    --traffic has other kinds of traffic, of which the guests are ours, and Open vSwitch is configured to do the same as
    Tailrace. A kind has figures only if the run shows that the traffic was of it; every frame is checked at the end.
    With several kinds, one table has them all. mixed and iperf have frame sizes of their own; iperf takes whole
    seconds.

    If traffic stalls or a packet is lost, the command fails and prints no figure. It needs root, and reserves up to
    1.3 GiB of huge pages while it runs.
    """

    notes = [CYCLES_NOTE, MPPS_NOTE, *([PEER_NOTE] if against != ALONE else [])]

    def plan() -> bench_hop.KindsPlan:
        each = bench_hop.HopPlan(64, pairs, seconds, _parse_cores(cores), against)
        return bench_hop.KindsPlan.of(traffic, each, frame)

    finish(
        plan,
        bench_hop.run_kinds,
        partial(_hop_table, frame=frame or 64, notes=notes),
        as_json=as_json,
    )


def _hop_table(result: Kinds, frame: int, notes: list[str]) -> RenderableType:
    """Of one kind its pairs, of several a row or more for each."""
    kinds = [*result.measured]
    if len(kinds) > 1 or result.failed:
        columns = {kind: KINDS[kind].columns for kind in kinds}
        return kinds_table(result, f"One hop by kind of traffic, {frame} B frames", columns, notes)
    title = f"One hop between two VNFs, {frame} B frames, saturated, both directions"
    if kinds != [PLAIN]:
        title = f"One hop, {kinds[0]}: {KINDS[kinds[0]].about}"
    return comparison_table(result.measured[kinds[0]], title, KINDS[kinds[0]].columns, notes)


@app.command()
def floor(
    guest: Annotated[
        str,
        typer.Option(
            metavar="|".join(bench_floor.GUESTS),
            help="What guests do with a frame.",
            autocompletion=complete.words(*bench_floor.GUESTS),
        ),
    ] = "forward",
    ways: Annotated[bool, typer.Option("--ways", help="Besides, the bare copy by other ways.")] = False,
    frame: FrameOption = 1518,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The cost of a hop, compared with a bare copy of the same bytes.

    \b
    sudo tailrace bench floor --frame 1518
    sudo tailrace bench floor --guest rewrite --ways

    Measured in turn (A B A B): the hop, as in `bench hop`, and a program that only copies frames from buffers that
    another core has written to buffers that it reads. The ratio is the hop's cycles a packet ÷ the floor's.

    --guest rewrite: guests read and write every byte of a frame before they send it again, on both sides. By default
    they read its header.

    --ways measures the bare copy by other ways too, and their Mpps ÷ the floor's: movsb, by the instruction rep movsb;
    next and ahead, with a frame's lines asked for while the one before it is copied, or two frames before and to the
    second cache; ring-256, with the buffers of rings of 256 descriptors instead of 1024.
    """
    finish(
        lambda: bench_floor.FloorPlan(frame, pairs, seconds, _parse_cores(cores), guest, ways),
        bench_floor.run,
        partial(
            comparison_table,
            title=f"One hop beside a bare copy, {frame} B frames, guests that {guest}",
            columns=[CYCLES, MPPS],
            notes=[CYCLES_NOTE, "ratio: tailrace ÷ floor; 1 would be a copy and nothing else."],
        ),
        as_json=as_json,
    )


@app.command()
def latency(
    frame: FrameOption = 64,
    against: AgainstOption = OVS_DPDK,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The latency of the switch: one frame at a time, and at 100 000 frames a second.

    \b
    sudo tailrace bench latency

    The tester is both guests. Latency is one-way, from ring to ring, of every frame. All must come back, once and in
    order, or there is no figure. A pair's percentiles are the medians over windows of a second, so a delay that does
    not come in every other second shows only in the maximum.
    """
    finish(
        lambda: bench_latency.LatencyPlan(frame, pairs, seconds, _parse_cores(cores), against),
        bench_latency.run,
        partial(
            comparison_table,
            title=f"One-way latency through the switch, {frame} B frames, µs",
            columns=LOADS_COLUMNS,
            notes=[LOADS_NOTE, "ratio: tailrace ÷ ovs-dpdk; below 1 is faster."],
        ),
        as_json=as_json,
    )


@app.command()
def scale(
    of: Annotated[
        str | None,
        typer.Option(
            metavar="guests|chains|flows",
            help="Only this. Default: all.",
            autocompletion=complete.words("guests", "chains", "flows"),
        ),
    ] = None,
    frame: FrameOption = 64,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The cost of a hop with few and with many guests, chains or flows, in turn.

    \b
    sudo tailrace bench scale --of chains
    sudo tailrace bench scale --json

    2 and 64 guests, joined in pairs; 1 and 1000 chains with a match each, between the same two ports, for the same
    1000 flows; 1 and 1 000 000 flows into a group of two replicas.
    """
    finish(
        lambda: bench_scale.ScalePlan(frame, pairs, seconds, _parse_cores(cores), of),
        bench_scale.run,
        partial(
            comparison_table,
            title=f"The cost of a hop by size, {frame} B frames",
            columns=[Column("hop_cycles", "cycles"), Column("empty_poll_cycles", "empty\npoll"), MPPS],
            notes=[
                "cycles: TSC cycles a packet of polls that moved packets; empty poll: cycles of one that found none."
            ],
        ),
        as_json=as_json,
    )


@app.command()
def chain(
    functions: Annotated[int, typer.Option(metavar="N", help="Functions in the chain: 1 to 8.")] = 1,
    frame: FrameOption = 64,
    against: AgainstOption = OVS_DPDK,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The rate of a chain of functions on one machine (east/west): packets a second of all functions together.

    \b
    sudo tailrace bench chain --functions 4
    """
    finish(
        lambda: bench_chain.ChainPlan(frame, pairs, seconds, _parse_cores(cores), functions, against),
        bench_chain.run,
        partial(
            comparison_table,
            title=f"East/west through {functions} functions, {frame} B frames, saturated",
            columns=[CYCLES, MPPS, Column("dropped", "dropped", 0)],
            notes=[
                CYCLES_NOTE,
                "Mpps: delivered, the sum over all functions.",
                *([PEER_NOTE] if against != ALONE else []),
            ],
        ),
        as_json=as_json,
    )


@app.command()
def tcp(
    messages: Annotated[
        str, typer.Option(metavar="BYTES[,BYTES...]", help="Bytes of each write, each size measured by itself.")
    ] = str(tcp_parts.BULK),
    against: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME...]",
            help=f"{OVS_DPDK}, {', '.join(OWN_WAYS)}, in turn with Tailrace's; or none.",
            autocompletion=complete.listed(OVS_DPDK, *OWN_WAYS),
        ),
    ] = OVS_DPDK,
    card: Annotated[
        str | None, typer.Option(metavar="NAME", help="The network card of passthrough.", autocompletion=complete.cards)
    ] = None,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 5.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The rate of TCP between two Linux network stacks through the switch, with offloads, by iperf3; and the round trip
    of a ping.

    \b
    sudo tailrace bench tcp
    sudo tailrace bench tcp --messages 64,256,1518,65536
    sudo tailrace bench tcp --messages 64,256,1518,65536 --against veth,linux-bridge,passthrough --card ens1f0

    Two network namespaces, each with a TAP interface; a small guest on virtio-user carries frames, checksum and
    segmentation requests included, between the interface and the switch. Both switches have the same guests. 1000
    pings, one each millisecond, come before the transfers.

    Without a guest: veth, a cable between the stacks (native); linux-bridge, the default of a host; passthrough, a
    virtual function of --card for each stack, with Linux's driver.
    """

    def plan() -> bench_tcp.TcpPlan:
        try:
            sizes = tuple(int(each) for each in messages.split(","))
        except ValueError:
            raise Mistake(f"--messages {messages}: expected numbers of bytes, such as 64,1518") from None
        return bench_tcp.TcpPlan(1518, pairs, seconds, _parse_cores(cores), against, card, sizes)

    def table(result: Comparison) -> RenderableType:
        return comparison_table(
            result,
            title="TCP between two network stacks, one connection",
            columns=[
                *(
                    Column(bench_tcp.figure_of(each), f"{each} B\nGbit/s" if each != tcp_parts.BULK else "Gbit/s", 2)
                    for each in result.settings["messages"]
                ),
                Column("retransmits", "retrans-\nmits", 0),
                Column("ping_min_us", "ping\nleast µs"),
                Column("ping_avg_us", "mean\nµs"),
                Column("ping_max_us", "most\nµs"),
                Column("ping_mdev_us", "mdev\nµs"),
            ],
            notes=[
                "Gbit/s: payload received, as iperf3 reports it, by writes of so many bytes.",
                f"ping: {tcp_parts.PINGS} round trips, one each ms; mdev: their standard deviation (jitter).",
                "ratio: tailrace ÷ its peer for Gbit/s, peer ÷ tailrace for round_trip; above 1 favours Tailrace.",
            ],
        )

    finish(plan, bench_tcp.run, table, as_json=as_json)


@app.command()
def idle(
    frame: FrameOption = 64,
    pairs: PairsOption = 3,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The CPU time of an idle switch, and how long a frame waits for it, with idle: poll, pause and sleep.

    For comparison it measures the wake-up of a thread without a switch.

    \b
    sudo tailrace bench idle
    """
    finish(
        lambda: bench_idle.IdlePlan(frame, pairs, seconds, _parse_cores(cores)),
        bench_idle.run,
        partial(
            comparison_table,
            title=f"An idle switch by policy, then a frame of {frame} B each 5 ms",
            columns=[Column("cpu_percent", "CPU %"), Column("p50_us", "p50 µs"), Column("p99_us", "p99 µs")],
            notes=["CPU: of one core, while no frame comes. Latency: one-way, waking included; bare wake: only that."],
        ),
        as_json=as_json,
    )


@app.command()
def tester(
    frame: FrameOption = 64,
    flows: Annotated[
        int, typer.Option(metavar="N", help="Also measure the tester with so many UDP flows each way.")
    ] = 1,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The cost of checking every frame: the rate of the tester, compared with testpmd, on the same ports and core.

    \b
    sudo tailrace bench tester --frame 64
    sudo tailrace bench tester --frame 64 --flows 1000000 --pairs 9

    The tester and DPDK's testpmd are in turn (A B A B) both guests of one hop, on one core, as fast as they can, in
    both directions. The switch polls on another core. testpmd forwards frames and checks nothing. The tester makes and
    signs every frame, and checks and times every one that it receives. The ratio is the tester's frames a second ÷
    testpmd's, both counted by the switch; at 1 checking would cost nothing. With --flows, the tester with so many flows
    is compared with the tester with one.

    On a busy machine the tester's core may be taken away for so long that the switch stops waiting and drops frames.
    There is no figure unless the tester lost as many frames as the switch dropped, and none came twice or out of
    sequence.

    It needs root, and reserves up to 272 MiB of huge pages while it runs.
    """
    each_way = f"1 and {flows} flows each way" if flows > 1 else "1 flow each way"
    finish(
        lambda: bench_tester.TesterPlan(frame, pairs, seconds, _parse_cores(cores), flows),
        bench_tester.run,
        partial(
            comparison_table,
            title=f"The tester beside testpmd, {frame} B frames, {each_way}, as fast as each can, one core",
            columns=[Column("dropped", "dropped", 0), MPPS],
            notes=[
                "Mpps: frames received, both directions together, as the switch counted them for both.",
                "dropped: by the switch, for a load whose core was taken away for 20 ms.",
                "ratio: tester ÷ testpmd" + (", and many flows ÷ one." if flows > 1 else "."),
            ],
        ),
        as_json=as_json,
    )


@app.command()
def switch(
    starts: Annotated[int, typer.Option(metavar="N", help="How often the switch is started.")] = 20,
    changes: Annotated[int, typer.Option(metavar="N", help="How often two ports are added and removed.")] = 50,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The cost of starting and changing the switch: time until ready, memory, time to add and remove ports.

    \b
    sudo tailrace bench switch
    sudo tailrace bench switch --starts 100 --changes 500 --json

    Ready means that the control socket answers. Memory is the peak of resident memory, without a guest and with 16
    guests; the guests' own memory is in huge pages and does not count.

    Then two ports with guests are added, joined, separated and removed, over and over, while the tester sends 50 000
    frames a second each way through another chain. Each call is timed until its answer. The other chain may lose no
    frame.

    It needs root, and reserves up to 528 MiB of huge pages while it runs.
    """
    finish(
        lambda: bench_switch.SwitchPlan(starts, changes, _parse_cores(cores)),
        bench_switch.run,
        partial(change_table, title="What tailrace-switch costs to start and to change"),
        as_json=as_json,
    )


@app.command()
def service(
    times: Annotated[int, typer.Option(metavar="N", help="How often a node is started, broken and ended.")] = 10,
    of: Annotated[
        str,
        typer.Option(
            metavar="|".join(STARTERS), help="Where its functions live.", autocompletion=complete.words(*STARTERS)
        ),
    ] = "process",
    listeners: Annotated[int, typer.Option(metavar="N", help="Listeners to events: 1 to 120.")] = 20,
    rate: Annotated[int, typer.Option(metavar="N", help="Events a second.")] = 1000,
    seconds: Annotated[float, typer.Option(metavar="S", help="Of events, and of nothing.")] = 10.0,
    as_json: JsonOption = False,
) -> None:
    """The service: how long commands take, how soon what was killed is there again, and what it costs.

    \b
    sudo tailrace bench service
    sudo tailrace bench service --times 50 --json
    sudo tailrace bench service --of container

    A node of two chains is started by `tailrace up`, with a service of its own. Then one function, the other function,
    whose chain leads past it, and the switch are killed in turn. Each time lasts until the service says that frames
    can go on. Then the node is taken down.

    Events come from a process that does nothing else.
    """
    finish(
        lambda: bench_service.ServicePlan(times, of, listeners, rate, seconds),
        bench_service.run,
        partial(service_table, title="The service"),
        as_json=as_json,
    )


@app.command()
def dashboard(
    chains: Annotated[int, typer.Option(metavar="N", help="Chains of the node: 1 to 4000.")] = 1000,
    ports: Annotated[int, typer.Option(metavar="N", help="Its ports: 2 to 256.")] = 64,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long is looked on.")] = 20.0,
    changes: Annotated[int, typer.Option(metavar="N", help="Changes of a counter that are timed.")] = 30,
    deaths: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Times that a function is killed, and its alarm timed. It comes back after ever longer pauses: 7 take "
            "a minute, 20 eight.",
        ),
    ] = 0,
    heap: Annotated[float, typer.Option(metavar="S", help="How long the page's heap is watched, at --speed.")] = 0,
    speed: Annotated[int, typer.Option(metavar="N", help="How many times as fast the page lives then.")] = 10,
    netdata: Annotated[
        bool, typer.Option("--netdata", help="Time Debian's Netdata in turn, until its HTTP interface has a change.")
    ] = False,
    hop: Annotated[
        int,
        typer.Option(metavar="PAIRS", help="Instead: a hop with the page open, and three others without, in turn."),
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """The dashboard: what its server and its page cost with many chains, and how soon a change is painted.

    \b
    sudo tailrace bench dashboard
    sudo tailrace bench dashboard --chains 2 --ports 4 --changes 100 --deaths 5
    sudo tailrace bench dashboard --chains 4 --ports 6 --changes 1 --heap 3600 --json
    sudo tailrace bench dashboard --chains 2 --ports 4 --netdata --changes 100
    sudo tailrace bench dashboard --hop 5 --seconds 3

    A node of its own is started, with frames through all chains, and its dashboard opened in Chromium. server: CPU time
    of `tailrace dashboard`. frame: work of the page's main thread for a picture, with waiting for a core; frame cpu:
    CPU time of that thread. change: from a counter's change to the painted pixel. death: from a function's SIGKILL to
    the alarm that the page has painted. --heap says what the page's heap (after a collection) and the server's memory
    were before, halfway and after.

    --hop measures what looking costs the switch: cycles a packet of a saturated hop as in `bench hop`, with the page
    open, in turn with the page playing a record of it, a process that reads nothing but takes as much CPU, and no page.
    On two CPUs the page shares the guests', so packets a second say nothing of the switch.
    """
    if hop:
        finish(
            lambda: bench_looking.LookingPlan(pairs=hop, seconds=seconds),
            bench_looking.run,
            partial(
                comparison_table,
                title="One hop with the dashboard's page open, and without",
                columns=[CYCLES, Column("pictures_per_s", "pictures/s"), Column("page_percent", "% of a core")],
                notes=[CYCLES_NOTE, "pictures/s: new figures shown meanwhile; % of a core: by server and browser."],
            ),
            as_json=as_json,
        )
    finish(
        lambda: bench_dashboard.DashboardPlan(chains, ports, seconds, changes, deaths, heap, speed, netdata),
        bench_dashboard.run,
        dashboard_table,
        as_json=as_json,
    )


@app.command()
def start(
    times: Annotated[int, typer.Option(metavar="N", help="How often each chain is started.")] = 5,
    of: Annotated[
        list[str] | None, typer.Option(metavar="PLACE=N", help="So many functions: container=8; may be repeated.")
    ] = None,
    warm: Annotated[
        bool, typer.Option("--warm", help="Also replace a machine, by one that goes on from a file.")
    ] = False,
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="Machines have a stand-in for QEMU, which boots nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """How soon a chain forwards, by where its functions live: process, container or machine.

    \b
    sudo tailrace bench start
    sudo tailrace bench start --of machine=4 --of container=4 --times 3 --json
    sudo tailrace bench start --of machine=64 --stand-in

    Each is timed from `tailrace up`, service and switch included, until the command returns, which it does when every
    function forwards; then `tailrace down`. The places take turns. Of machines, a row says how long that took beyond
    their kernel's own boot, by the kernel's clock.

    With --warm, a machine that was saved when it was booted takes the place of one that runs, in turn with one that
    boots.
    """
    finish(
        lambda: bench_start.StartPlan(times, _parse_counts(of), stand_in, warm),
        bench_start.run,
        partial(start_table, title="How soon a chain forwards"),
        as_json=as_json,
    )


@app.command()
def function(
    name: Annotated[str, typer.Argument(metavar="[skeleton|router|firewall|nat|balancer]")] = "skeleton",
    routes: Annotated[
        int | None, typer.Option(metavar="N", help="Of the router's: IPv4 routes. Default: 1000000.")
    ] = None,
    ipv6_routes: Annotated[
        int | None, typer.Option(metavar="N", help="Beside them, IPv6 routes. Default: 200000.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="l3fwd,kernel|none", help="Of the router's: beside what. Default: both.")
    ] = None,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The cost of a function: beside DPDK's testpmd (io), l3fwd and the kernel, or the skeleton.

    \b
    sudo tailrace bench function
    sudo tailrace bench function --pairs 9 --json
    scripts/setup l3fwd && sudo tailrace bench function router
    sudo tailrace bench function router --routes 100000 --against kernel
    sudo tailrace bench function firewall

    skeleton: both forward between two devices of DPDK's (net_null) that always have frames and take all, in turn on
    one core.

    router: frames of 64 bytes to 2048 random destinations at each port, with a full table. The router and DPDK's
    l3fwd (FIB mode) get copies of them from memory and free what they send; the Linux kernel gets them by a veth,
    without what that costs by itself. Each has CPU time of one core, in turn; the router of two, too. The kernel takes
    a minute or so for a million routes, once.

    firewall, nat, balancer: frames of a million known connections at random, over vhost-user, beside the skeleton.
    """

    def refuse_router_options() -> None:
        if (routes, ipv6_routes, against) != (None, None, None):
            raise Mistake(f"{name} has no --routes, --ipv6-routes and --against; expected them with router")

    def following() -> bench_following.FollowingPlan:
        refuse_router_options()
        return bench_following.FollowingPlan(64, pairs, seconds, _parse_cores(cores), name)

    if name == "router":
        peers = ",".join(bench_routing.PEERS) if against is None else against
        wanted = bench_routing.MOST_ROUTES if routes is None else routes
        wanted6 = bench_routing.IPV6_ROUTES if ipv6_routes is None else ipv6_routes
        finish(
            lambda: bench_routing.RoutingPlan(64, pairs, seconds, _parse_cores(cores), wanted, wanted6, peers),
            bench_routing.run,
            partial(
                comparison_table,
                title=f"The router with {wanted} IPv4 and {wanted6} IPv6 routes, 64 B frames",
                columns=[
                    Column("ns_per_packet", "ns a packet", 1),
                    MPPS,
                    Column("load_seconds", "load s", 2),
                    Column("changes_per_second", "changes/s", 0),
                    Column("not_forwarded", "lost", 0),
                ],
                notes=[
                    "ns: CPU time of the threads that forward. Mpps: in a second of it, or of as many cores as it has.",
                    "load: the routes, from the kernel to the fast path, at the start of the router.",
                    "changes: 50000 routes led elsewhere one by one, as fast as the kernel takes them. lost: frames "
                    "that the router did not forward meanwhile.",
                    "ratio: router ÷ l3fwd, router ÷ kernel, two cores ÷ one; above 1 favours the router.",
                    "cores_skeleton: two ÷ one of what shares nothing between cores, over the same devices.",
                ],
            ),
            as_json=as_json,
        )

    if name in bench_following.KINDS:
        finish(
            following,
            bench_following.run,
            partial(
                comparison_table,
                title=f"{name}: a million known connections, 64 B frames over vhost-user",
                columns=[
                    CYCLES,
                    Column("cycles_few", "of 1000 connections", 1),
                    Column("cycles_answers", "answers", 1),
                    MPPS,
                    Column("connections_per_second", "new/s", 0),
                ],
                notes=[
                    "cycles: the least that a burst took, a frame. new/s: connections that a core begins in a second.",
                    "ratio: of rates, function ÷ skeleton; 1 would be a function that costs nothing.",
                    "on_1, on_2: so many cores together, in the function's own loop, between ports in memory. cores: "
                    "two ÷ one, of a million connections; cores_few: of 1000; cores_handed_on: by any queue, so that "
                    "half are handed on; cores_skeleton: of what shares nothing. queues: two ÷ one, on one core.",
                    *(["rules: of cycles, 10000 rules ÷ 1."] if name == bench_following.FIREWALL else []),
                ],
            ),
            as_json=as_json,
        )

    def plan() -> bench_function.FunctionPlan:
        if name != "skeleton":
            raise Mistake(f"{name}: expected skeleton, router, {', '.join(bench_following.KINDS)}")
        refuse_router_options()
        return bench_function.FunctionPlan(64, pairs, seconds, _parse_cores(cores))

    finish(
        plan,
        bench_function.run,
        partial(
            comparison_table,
            title="The loop around a function: skeleton and testpmd (io), 64 B frames",
            columns=[Column("ns_per_packet", "ns a packet", 2), MPPS],
            notes=[MPPS_NOTE, "ratio: skeleton ÷ testpmd, of time and so of cycles; below 1 favours the skeleton."],
        ),
        as_json=as_json,
    )


def _parse_counts(of: list[str] | None) -> dict[str, int] | None:
    """process=8 as {process: 8}. Raises Mistake."""
    found: dict[str, int] = {}
    for each in of or []:
        place, equals, count = each.partition("=")
        if not equals or not count.isdecimal():
            raise Mistake(f"--of {each}: expected PLACE=N, such as container=8")
        found[place] = int(count)
    return found or None


@app.command()
def apply(
    chains: Annotated[int, typer.Option(metavar="N", help="Chains that are applied at once: 1 to 4000.")] = 1000,
    times: Annotated[int, typer.Option(metavar="N", help="How often each change is made.")] = 20,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The time to apply a configuration: a thousand chains at once, and one more.

    \b
    sudo tailrace bench apply
    """
    finish(
        lambda: bench_apply.ApplyPlan(chains, times, _parse_cores(cores)),
        bench_apply.run,
        partial(change_table, title=f"A configuration of {chains} chains"),
        as_json=as_json,
    )


@app.command()
def recorder(
    functions: Annotated[int, typer.Option(metavar="N", help="Functions (skeletons) in the chain: 0 to 8.")] = 0,
    frame: FrameOption = 64,
    pairs: PairsOption = 5,
    seconds: SecondsOption = 3.0,
    cores: CoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """The cost of recording the causes of delays: latency with the recorder off and on, in turn.

    \b
    sudo tailrace bench recorder
    sudo tailrace bench recorder --functions 1

    `measure latency --causes` starts the recorder. The tester is both guests, as in `bench latency`; with functions it
    is both ends of their chain. If no core is left for the functions, they share the tester's and sleep until a frame
    comes.
    """
    finish(
        lambda: bench_recorder.RecorderPlan(frame, pairs, seconds, _parse_cores(cores), functions),
        bench_recorder.run,
        partial(
            comparison_table,
            title=f"One-way latency with the recorder off and on, {functions} functions, {frame} B frames, µs",
            columns=LOADS_COLUMNS,
            notes=[LOADS_NOTE, "ratio: on ÷ off; 1 would be no cost at all."],
        ),
        as_json=as_json,
    )


@app.command()
def interrupts(
    pairs: PairsOption = 5, seconds: SecondsOption = 5.0, cores: CoresOption = None, as_json: JsonOption = False
) -> None:
    """What measuring interrupts costs, and whether its timer agrees with cyclictest: three sides in turn.

    \b
    sudo tailrace bench interrupts

    off and on: `measure interrupts --sides native` without and with `--causes`. timer: the same with `--path timer`,
    which is what cyclictest measures, on the same CPU, at the same priority and interval.
    """
    finish(
        lambda: bench_interrupts.InterruptsPlan(pairs=pairs, seconds=seconds, cores=_parse_cores(cores)),
        bench_interrupts.run,
        partial(
            comparison_table,
            title=f"Interrupts to user space every {INTERVAL_US} µs, and the timer beside cyclictest's, µs",
            columns=[
                Column(f"{of}{figure}_us", f"{heading}\n{figure}", 2)
                for of, heading in (("", "interrupt"), ("timer_", "timer"))
                for figure in ("p50", "p99", "average")
            ],
            notes=["recorder: on ÷ off; timer: off ÷ cyclictest; 1 would be no cost, and the same timer."],
        ),
        as_json=as_json,
    )


@app.command()
def priority(
    pairs: PairsOption = 5, seconds: SecondsOption = 5.0, cores: CoresOption = None, as_json: JsonOption = False
) -> None:
    """What a real-time task in a machine gains where its virtual CPU's priority follows what runs (`priority`).

    \b
    sudo tailrace bench priority

    On the CPU of the virtual one runs a load at real-time priority 10; in the machine an ordinary task computes. How
    late does a real-time task there wake up by its own timer? Measured in turn: without and with.
    """
    finish(
        lambda: bench_priority.PriorityPlan(pairs=pairs, seconds=seconds, cores=_parse_cores(cores)),
        bench_priority.run,
        partial(
            comparison_table,
            title=f"Wake-up latency in a machine every {bench_priority.PERIOD_US} µs, under load on both sides, µs",
            columns=[
                *(Column(f"{figure}_us", figure, 0) for figure in ("p50", "p99", "p99.9", "max")),
                Column(bench_priority.LOAD_FIGURE, "load's\nCPU %", 1),
            ],
            notes=["ratio: with ÷ without; below 1, the task wakes up sooner, and the load gets less of its CPU."],
        ),
        as_json=as_json,
    )


app.command()(host)
app.command()(plug)
app.command()(migration)
app.command()(handover)


def _parse_cores(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        switch, load = (int(part) for part in text.split(","))
    except ValueError:
        raise Mistake(f"--cores {text}: expected two CPU numbers, the switch's and the load's, such as 1,0") from None
    return switch, load
