"""`tailrace measure METHOD`: one command for each method of tailrace/measure, with what they have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli import complete, exits, interrupts, matrix, measure_host, measure_migration
from tailrace.cli.commands import MeasureOptions, measure
from tailrace.cli.options import DEFAULT_RUNS, HugeOption, JsonOption, RepeatOption, RunsOption
from tailrace.cli.output import note, run_command
from tailrace.errors import Mistake
from tailrace.measure.burst import BurstMethod
from tailrace.measure.chain import LatencyMethod, Throughput, throughput_of
from tailrace.measure.loss import LossMethod
from tailrace.measure.noise import NoiseMethod
from tailrace.measure.reorder import ReorderMethod
from tailrace.measure.session import Tracing
from tailrace.measure.share import ShareMethod
from tailrace.measure.soak import SoakMethod
from tailrace.measure.throughput import ThroughputMethod
from tailrace.results import ResultError, load_run
from tailrace.results.interval_log import LogReader
from tailrace.results.run import find_folder
from tailrace.results.soak import find_log
from tailrace.spec.units import parse_duration

app = typer.Typer(
    help="Measure a chain, or any device under test between two ports.", no_args_is_help=True, rich_markup_mode=None
)

app.command()(matrix.matrix)
app.command()(exits.exits)
app.command()(interrupts.interrupts)
app.command()(measure_migration.migration)

SpecArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SPEC]",
        help="A spec. Without a test of this method the defaults apply.",
        autocompletion=complete.spec,
    ),
]
BetweenOption = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="PORT PORT", help="Two ports of a device under test, instead of a spec."),
]
FramesOption = Annotated[
    str | None, typer.Option("--frames", metavar="LIST", help="Frame sizes with FCS, and imix: 64,imix.")
]
PcapOption = Annotated[
    str | None, typer.Option("--pcap", metavar="FILE", help="Send the frames of a capture file instead.")
]
DurationOption = Annotated[
    str | None, typer.Option("--duration", metavar="TIME", help="Of each measured trial, such as 10s.")
]
SettleOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Pause before every trial (0s: none). Default: 5s before trials of --duration, none before others.",
    ),
]
HopsOption = Annotated[
    bool, typer.Option("--hops", help="Show latency by hop and function, also of each of the slowest frames.")
]
CausesOption = Annotated[
    bool, typer.Option("--causes", help="Also record events on the CPUs, and show why the slowest frames were slow.")
]
GapLimitOption = Annotated[
    str, typer.Option(metavar="TIME", help="With --causes: a round of a poll loop longer than this is a gap.")
]
FlowsOption = Annotated[int | None, typer.Option("--flows", min=1, max=1_000_000, help="UDP flows each way.")]


def _duration(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise Mistake(f"{option}: {error}") from None


def _tracing(between: bool, hops: bool, causes: bool, gap_limit: str) -> Tracing:
    if between and (hops or causes):
        raise Mistake(f"{'--causes' if causes else '--hops'} needs the switch's own records; expected a SPEC with it")
    return Tracing(hops, causes, _duration("--gap-limit", gap_limit))


def _begun(folder: Path, between: tuple[str, str] | None) -> tuple[tuple[str, str] | None, Path | None]:
    """Between which ports a soak goes on, or by which spec. Raises Mistake."""
    if load_run(folder).method != SoakMethod.name:
        raise Mistake(f"{folder}: no soak was begun there; expected the run folder of one")
    try:
        header = LogReader(find_log(folder)).header
    except ResultError as error:
        raise Mistake(str(error)) from None
    if header.functions is not None:
        if between is not None:
            raise Mistake(f"{folder}: this soak is of a chain; --between is for one between two ports")
        return None, folder / "spec.yaml"
    if between is None and header.ports is None:
        raise Mistake(f"{folder}: this soak is between two ports, which are not on record; name them: --between A B")
    return between or header.ports, None


def _throughput(run: Path | None, runs: Path) -> Throughput | None:
    if run is None:
        return None
    searched = load_run(find_folder(run, runs))
    found = throughput_of(searched)
    if found and not searched.valid:
        note(f"--of {run}: that run is not valid ({searched.reason}); what it found until then is used")
    if not found:
        raise Mistake(
            f"--of {run}: no rate without loss is in this run; expected one of `tailrace measure throughput` with the "
            "loss 0%"
        )
    return found


def text(number: int | None) -> str | None:
    return None if number is None else str(number)


@app.command()
def latency(
    spec: SpecArgument = None,
    between: BetweenOption = None,
    frames: FramesOption = None,
    pcap: PcapOption = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE,...",
            help="Each way, one or several: 1Mpps, or 90% of the no-loss rate, which is searched for.",
        ),
    ] = None,
    of: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Take rates in percent of the throughput that this run of `measure throughput` found.",
            autocompletion=complete.run,
        ),
    ] = None,
    duration: DurationOption = None,
    flows: FlowsOption = None,
    floor: Annotated[
        bool, typer.Option("--floor", help="Also measure without the functions at the same rate, to show their share.")
    ] = False,
    hops: HopsOption = False,
    causes: CausesOption = False,
    gap_limit: GapLimitOption = "5us",
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Measure one-way latency, loss, duplication and order of every frame, in both directions at once.

    \b
    A chain of a spec. It is started for the measurement, unless `tailrace up` has started it:
      sudo tailrace measure latency examples/chain.yaml
      sudo tailrace measure latency examples/chain.yaml --frames 64 --rate 500kpps --duration 60s
      sudo tailrace measure latency examples/chain.yaml --rate 10%,50%,90%,100% --repeat 5
      sudo tailrace measure latency examples/chain.yaml --rate 10%,50%,90%,100% --of runs/2026-11-21-143005-throughput

    \b
    Anything else, between two ports (vhost:SOCKET, vhost-server:SOCKET, if:NAME, pci:ADDRESS):
      sudo tailrace measure latency --between vhost:A.sock vhost:B.sock --frames 64,imix --rate 1Mpps --duration 10s

    Options override the spec. The run folder has results.json, report.html and histograms.
    """

    def call() -> int:
        if between is not None and floor:
            raise Mistake("--floor needs a chain to leave the functions out of; expected a SPEC with it")
        tracing = _tracing(between is not None, hops, causes, gap_limit)
        changes = {"frames": frames, "pcap": pcap, "rate": rate, "duration": duration, "flows": text(flows)}
        method = LatencyMethod(floor, tracing, _throughput(of, runs))
        return measure(method, spec, between, MeasureOptions(changes, repeat, runs, huge, as_json))

    raise typer.Exit(run_command(call))


@app.command()
def throughput(
    spec: SpecArgument = None,
    between: BetweenOption = None,
    frames: FramesOption = None,
    pcap: PcapOption = None,
    search: Annotated[
        str | None, typer.Option(metavar="SEARCH", help="mlrsearch (RFC 9971), tst009 or rfc2544.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(metavar="RATIO,...", help="The loss to find a rate for: 0% is the no-drop rate; 0%,0.5%."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="RATIO", help="How close passed and failed are: 0.5%.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="The highest rate to try: what the port carries.")
    ] = None,
    trial: Annotated[str | None, typer.Option(metavar="TIME", help="Duration of the short search trials: 1s.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Duration of the trials that decide: 60s.")
    ] = None,
    wait: Annotated[str | None, typer.Option(metavar="TIME", help="For the last frames of a trial: 2s.")] = None,
    settle: SettleOption = None,
    flows: FlowsOption = None,
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Find the highest rate without loss (NDR), and with a little loss (PDR), by frame size.

    \b
    sudo tailrace measure throughput examples/throughput.yaml
    sudo tailrace measure throughput examples/chain.yaml --search rfc2544 --loss 0%
    sudo tailrace measure throughput examples/chain.yaml --frames 64 --duration 5s --wait 100ms --settle 0s --repeat 5

    Frames that could not be sent are never lost. A trial in which the tester fell short is repeated. It counts for the
    rate that was sent. The run folder has every trial.
    """
    changes = {
        "frames": frames, "pcap": pcap, "search": search, "loss": loss, "precision": precision, "rate": rate,
        "trial": trial, "duration": duration, "wait": wait, "settle": settle, "flows": text(flows),
    }  # fmt: skip
    options = MeasureOptions(changes, repeat, runs, huge, as_json)
    raise typer.Exit(run_command(lambda: measure(ThroughputMethod(), spec, between, options)))


@app.command()
def loss(
    spec: SpecArgument = None,
    between: BetweenOption = None,
    frames: FramesOption = None,
    pcap: PcapOption = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="The full rate: what the port carries.")] = None,
    step: Annotated[
        str | None, typer.Option(metavar="RATIO", help="Step between two rates, of the full rate: 10%.")
    ] = None,
    duration: DurationOption = None,
    wait: Annotated[str | None, typer.Option(metavar="TIME", help="For the last frames of a trial: 2s.")] = None,
    settle: SettleOption = None,
    flows: FlowsOption = None,
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Measure loss by offered rate, from the full rate down until two rates in a row lose nothing (RFC 2544, 26.3).

    \b
    sudo tailrace measure loss examples/throughput.yaml
    sudo tailrace measure loss examples/chain.yaml --frames 64,1518 --rate 8Mpps --step 5% --duration 10s --wait 100ms
    """
    changes = {
        "frames": frames, "pcap": pcap, "rate": rate, "step": step, "duration": duration, "wait": wait,
        "settle": settle, "flows": text(flows),
    }  # fmt: skip
    options = MeasureOptions(changes, repeat, runs, huge, as_json)
    raise typer.Exit(run_command(lambda: measure(LossMethod(), spec, between, options)))


@app.command()
def burst(
    spec: SpecArgument = None,
    between: BetweenOption = None,
    frames: FramesOption = None,
    times: Annotated[int | None, typer.Option(min=1, max=10_000, help="How often the search is repeated.")] = None,
    longest: Annotated[
        str | None, typer.Option(metavar="TIME", help="The longest burst to try, as sending time: 2s.")
    ] = None,
    precision: Annotated[str | None, typer.Option(metavar="RATIO", help="How close the bounds must be: 1%.")] = None,
    wait: Annotated[str | None, typer.Option(metavar="TIME", help="For the last frames of a burst: 2s.")] = None,
    settle: Annotated[str | None, typer.Option(metavar="TIME", help="Pause before every burst. Default: none.")] = None,
    flows: FlowsOption = None,
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Find the longest burst of back-to-back frames without loss, and the buffer time that it implies (RFC 9004).

    \b
    sudo tailrace measure burst examples/throughput.yaml
    sudo tailrace measure burst examples/chain.yaml --frames 64 --times 10 --wait 100ms
    """
    changes = {
        "frames": frames, "times": text(times), "longest": longest, "precision": precision, "wait": wait,
        "settle": settle, "flows": text(flows),
    }  # fmt: skip
    options = MeasureOptions(changes, repeat, runs, huge, as_json)
    raise typer.Exit(run_command(lambda: measure(BurstMethod(), spec, between, options)))


@app.command()
def reorder(
    spec: SpecArgument = None,
    frames: FramesOption = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Each way, all flows together: 20kpps.")] = None,
    duration: DurationOption = None,
    flows: Annotated[int | None, typer.Option("--flows", min=2, max=32, help="UDP flows each way.")] = None,
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Check that disturbed order is seen, and that pinned flows keep their order, if replicas delay frames unequally.

    \b
    sudo tailrace measure reorder examples/reorder.yaml
    sudo tailrace measure reorder examples/reorder.yaml --flows 32 --rate 50kpps --duration 30s

    The same flows are sent twice. As one stream each way, frames through a faster replica overtake the others. As a
    stream each, no frame may be out of sequence (RFC 4737).
    """
    changes = {"frames": frames, "rate": rate, "duration": duration, "flows": text(flows)}
    options = MeasureOptions(changes, repeat, runs, huge, as_json)
    raise typer.Exit(run_command(lambda: measure(ReorderMethod(), spec, None, options)))


@app.command()
def soak(
    spec: SpecArgument = None,
    between: BetweenOption = None,
    frames: Annotated[str | None, typer.Option(metavar="FRAME", help="A frame size with FCS, or imix.")] = None,
    pcap: PcapOption = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Each way: 1Mpps, or 50% of the no-loss rate, which is searched for."),
    ] = None,
    duration: Annotated[str | None, typer.Option("--duration", metavar="TIME", help="Of the soak: 40h.")] = None,
    interval: Annotated[str | None, typer.Option(metavar="TIME", help="Of each record: 10s.")] = None,
    alone: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long the tester is soaked alone first: 60s.")
    ] = None,
    flows: FlowsOption = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Continue the interrupted soak in this run folder.", autocompletion=complete.run
        ),
    ] = None,
    hops: HopsOption = False,
    causes: CausesOption = False,
    gap_limit: GapLimitOption = "5us",
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Soak a chain for minutes to days, with distribution, loss, duplication and order of every interval.

    \b
    sudo tailrace measure soak examples/soak.yaml
    sudo tailrace measure soak examples/chain.yaml --frames 64 --rate 1Mpps --duration 40h
    tailrace watch                                        # in another terminal
    sudo tailrace measure soak --resume runs/2026-11-21-143005-soak-chain
    sudo tailrace measure soak examples/chain.yaml --rate 100kpps --duration 8h --causes   # and why frames were slow

    The tester is soaked alone first. The command shows how much disk space the soak takes, and does not start without
    it. Each interval is on disk before the next one ends. After a crash, a reboot or a full disk, --resume measures the
    rest, and the report shows the gap. A soak between two ports continues between them, or those of --between.
    """

    def call() -> int:
        changes = {
            "frames": frames, "pcap": pcap, "rate": rate, "duration": duration, "interval": interval, "alone": alone,
            "flows": text(flows),
        }  # fmt: skip
        if resume is not None and (spec is not None or any(changes.values()) or hops or causes):
            raise Mistake("--resume continues the soak as it began; expected neither a SPEC nor other settings with it")
        folder = None if resume is None else find_folder(resume, runs)
        ports, path = between, spec
        if folder is not None:
            ports, path = _begun(folder, between)
        method = SoakMethod(runs, note, folder, _tracing(ports is not None, hops, causes, gap_limit))
        return measure(method, path, ports, MeasureOptions(changes, 1, runs, huge, as_json, folder))

    raise typer.Exit(run_command(call))


@app.command()
def noise(
    spec: SpecArgument = None,
    between: BetweenOption = None,
    neighbours: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="cpu, cache, memory, disk (stress-ng), vnf.")
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Number of pairs of a quiet and a noisy trial.")
    ] = None,
    frames: FramesOption = None,
    pcap: PcapOption = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Each way: 100kpps, or 50% of the quiet no-loss rate.")
    ] = None,
    duration: DurationOption = None,
    flows: FlowsOption = None,
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Measure latency without and with a noisy neighbour, in turn, and the ratio of each percentile.

    \b
    sudo tailrace measure noise examples/noise.yaml
    sudo tailrace measure noise examples/chain.yaml --neighbours cpu,vnf --frames 64 --rate 100kpps --pairs 9

    Neighbours run on cores without a poller. Without such a core they share those of pollers, and a note says so. A
    neighbour that cannot run here is left out, with the reason. vnf is a second chain on the same switch, at full rate.
    """
    changes = {
        "neighbours": neighbours, "pairs": text(pairs), "frames": frames, "pcap": pcap, "rate": rate,
        "duration": duration, "flows": text(flows),
    }  # fmt: skip
    options = MeasureOptions(changes, repeat, runs, huge, as_json)
    raise typer.Exit(run_command(lambda: measure(NoiseMethod(), spec, between, options)))


@app.command()
def share(
    spec: SpecArgument = None,
    function: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose share. Default: each function in turn.")
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Number of pairs: with it, with the skeleton.")
    ] = None,
    frames: FramesOption = None,
    pcap: PcapOption = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Each way: 100kpps, or 50% of the chain's no-loss rate.")
    ] = None,
    duration: DurationOption = None,
    flows: FlowsOption = None,
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Measure how much of a chain's latency one function adds, and where the rest goes.

    \b
    sudo tailrace measure share examples/share.yaml
    sudo tailrace measure share examples/chain-of-two.yaml --function second --rate 100kpps --pairs 9

    The chain is measured with the function and with the skeleton (which only forwards) in its place, in turn and at the
    same rate. Then both are traced hop by hop. The parts of a trace add up to its mean latency.
    """
    changes = {
        "function": function, "pairs": text(pairs), "frames": frames, "pcap": pcap, "rate": rate,
        "duration": duration, "flows": text(flows),
    }  # fmt: skip
    options = MeasureOptions(changes, repeat, runs, huge, as_json)
    raise typer.Exit(run_command(lambda: measure(ShareMethod(), spec, None, options)))


app.command("host")(measure_host.measure)
