"""The command line: `tailrace COMMAND`. Each command's help teaches it with an example."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli import bench, commands
from tailrace.cli.output import error_line, run_command

app = typer.Typer(
    name="tailrace",
    help="A deterministic host for virtual network functions (VNFs), and the proof of it.\n\n"
    "Begin with:  sudo tailrace demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
measure_app = typer.Typer(
    help="Measure a chain, or any device under test between two ports.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(measure_app, name="measure")
app.add_typer(bench.app, name="bench")

SpecArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec, such as examples/chain.yaml.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and no progress bar.")]
RunsOption = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="Where run folders are made.")]
HugeOption = Annotated[
    bool,
    typer.Option(
        "--huge/--no-huge", help="Memory of functions and tester: 2 MiB pages, reserved and given back, or not."
    ),
]
DEFAULT_RUNS = Path("runs")


@app.command()
def up(
    spec: SpecArgument,
    as_json: JsonOption = False,
    huge: HugeOption = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
) -> None:
    """Bring up what a spec asks for: switch, functions in sandboxes, chains. It lives on until `tailrace down`.

    \b
    sudo tailrace up examples/chain.yaml
    sudo tailrace status
    sudo tailrace down

    Up again with the same spec changes nothing, and brings back what has ended. The spec is checked first: one
    message with file, line and column if it is wrong, and nothing is started.
    """
    raise typer.Exit(run_command(lambda: commands.up(spec, huge=huge, dry_run=dry_run, as_json=as_json)))


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show what is up: processes, ports with their counters and drops, chains.

    \b
    sudo tailrace status
    sudo tailrace status --json | jq '.ports[] | {name, state, drops}'

    The exit status is 0 if all is well or nothing is up, and 1 if something that should run does not.
    """
    raise typer.Exit(run_command(lambda: commands.status(as_json=as_json)))


@app.command()
def down(as_json: JsonOption = False) -> None:
    """Take everything down that Tailrace has put up, also after a crash: processes, sockets, huge pages, the rest.

    \b
    sudo tailrace down

    Only what is on Tailrace's own record is touched; a process is ended only if its pid and start time are those on
    record. Harmless when nothing is up.
    """
    raise typer.Exit(run_command(lambda: commands.down(as_json=as_json)))


@measure_app.command()
def latency(
    spec: Annotated[Path | None, typer.Argument(metavar="[SPEC]", help="A spec with a latency test.")] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="PORT PORT", help="Two ports of a device under test, instead of a spec."),
    ] = None,
    frames: Annotated[str | None, typer.Option(metavar="LIST", help="Frame sizes with FCS, and imix: 64,imix.")] = None,
    pcap: Annotated[Path | None, typer.Option(metavar="FILE", help="Send a capture file's frames instead.")] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Each way: 1Mpps, or 90% of the no-loss rate, to be found.")
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Of each measured trial: 10s.")] = None,
    flows: Annotated[int | None, typer.Option(min=1, max=1_000_000, help="UDP flows each way.")] = None,
    floor: Annotated[
        bool, typer.Option("--floor", help="Also measure without the functions at the same rate, for their own share.")
    ] = False,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    as_json: JsonOption = False,
) -> None:
    """Measure one-way latency, loss, duplication and order, both ways at once, every frame.

    \b
    A chain of a spec, brought up for it (or as `tailrace up` has left it):
      sudo tailrace measure latency examples/chain.yaml
      sudo tailrace measure latency examples/chain.yaml --frames 64 --rate 500kpps --duration 60s

    \b
    Anything else, between two ports (vhost:SOCKET, vhost-server:SOCKET, if:NAME, pci:ADDRESS):
      sudo tailrace measure latency --between vhost:A.sock vhost:B.sock --frames 64,imix --rate 1Mpps --duration 10s

    Options given here go before those in the spec. The run folder holds results.json, report.html and histograms.
    """
    options = commands.LatencyOptions(frames, pcap, rate, duration, flows, floor, runs, huge, as_json)
    raise typer.Exit(run_command(lambda: commands.latency(spec, between, options)))


@app.command()
def demo(runs: RunsOption = DEFAULT_RUNS, huge: HugeOption = True, as_json: JsonOption = False) -> None:
    """Measure this machine in two minutes: the tester's own floor, a chain of one function and a chain of two.

    \b
    sudo tailrace demo

    Four profiles (64 B, 256 B, IMIX, 1518 B), both ways, at 90 % of the rate without loss; one table, and a run folder
    with results.json and report.html. "Share" is the functions' own latency: the chain's less the floor's at the same
    rate. Everything is taken down at the end.
    """
    raise typer.Exit(run_command(lambda: commands.demo(runs=runs, huge=huge, as_json=as_json)))


@app.command()
def version(as_json: JsonOption = False) -> None:
    """Print the versions of Tailrace and of what it stands on.

    \b
    tailrace version --json
    """
    raise typer.Exit(run_command(lambda: commands.version(as_json=as_json)))


def main() -> None:
    """The entry point: wrong use is one line and status 2, like every other mistake."""
    try:
        status = app(standalone_mode=False)
    except typer.Abort:
        error_line("interrupted by Ctrl-C")
        status = 130
    except Exception as error:
        # Typer's own errors (its base class is not public) can say themselves and know their status.
        word, code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
        if word is None or code is None:
            raise
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "tailrace"
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(word() + "\n")
        else:
            error_line(f"{word().rstrip('.')}; see `{where} --help`")
        status = int(code)
    sys.exit(status or 0)


if __name__ == "__main__":
    main()
