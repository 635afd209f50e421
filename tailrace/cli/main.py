"""The command line: `tailrace COMMAND`. Each command's help teaches it with an example."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli import complete, exit_codes
from tailrace.cli.lazy import load_when_used
from tailrace.cli.options import (
    DEFAULT_DASHBOARD,
    DEFAULT_METRICS,
    DEFAULT_RUNS,
    ConnectionsOption,
    HugeOption,
    JsonOption,
    RunsOption,
)
from tailrace.cli.output import COLOURS, choose_voice, error_line, open_streams, run_command
from tailrace.errors import ExitCode, Mistake

app = typer.Typer(
    name="tailrace",
    help="Run chains of virtual network functions (VNFs), tune the host for low latency, and measure both.\n\n"
    "Begin with:  sudo tailrace demo",
    epilog="Exit codes (docs/exit-codes.md):\n\n\b\n" + "\n".join(exit_codes.lines()),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
if TYPE_CHECKING:
    from tailrace.cli import (
        advise,
        bench,
        commands,
        counters,
        function,
        host,
        image,
        measure,
        measure_host,
        node,
        observe,
        operate,
        results,
    )
    from tailrace.cli import dashboard as the_dashboard
    from tailrace.cli import watch as the_watch
else:
    bench, commands, counters = map(load_when_used, ("bench", "commands", "counters"))
    host, measure, measure_host, node = map(load_when_used, ("host", "measure", "measure_host", "node"))
    observe, operate, results = map(load_when_used, ("observe", "operate", "results"))
    advise, function, image = map(load_when_used, ("advise", "function", "image"))
    the_dashboard, the_watch = map(load_when_used, ("dashboard", "watch"))

#: Commands that start what polls, or decide on which CPUs.
STARTING = ("up", "plan", "demo", "measure", "compare", "bench")
#: Commands of commands, loaded where they are asked for or listed.
GROUPS: dict[str, Callable[[], typer.Typer]] = {
    "measure": lambda: measure.app,
    "compare": lambda: measure_host.compare_app,
    "bench": lambda: bench.app,
    "host": lambda: host.app,
    "node": lambda: node.app,
    "function": lambda: function.app,
    "image": lambda: image.app,
    "advise": lambda: advise.app,
}

SpecArgument = Annotated[
    Path,
    typer.Argument(metavar="SPEC", help="A spec, such as examples/chain.yaml.", autocompletion=complete.spec),
]
KeepHugeOption = Annotated[
    bool | None,
    typer.Option("--huge/--no-huge", help="2 MiB pages for new functions, or not. Default: as for those that are up."),
]
BaseOption = Annotated[
    int | None, typer.Option(metavar="VERSION", help="Only if this version is up (`tailrace plan` shows it).")
]


def _version(wanted: bool) -> None:
    if wanted:
        raise typer.Exit(run_command(lambda: commands.version(as_json=False)))


@app.callback()
def voice(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors: no notes, no progress bar.")] = False,
    verbose: Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, help="Show what is being done; -vv also each call and program."),
    ] = 0,
    color: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="auto (on a terminal), always or never.",
            autocompletion=complete.words("auto", "always", "never"),
        ),
    ] = "auto",
    _: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    if color not in COLOURS:
        raise typer.BadParameter(f"{color!r} is none of {', '.join(COLOURS)}", param_hint="--color")
    if quiet and verbose:
        raise typer.BadParameter("not both --quiet and --verbose")
    choose_voice(quiet=quiet, verbose=verbose, colour=color)


@app.command()
def up(
    spec: SpecArgument,
    as_json: JsonOption = False,
    huge: HugeOption = True,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would be done, and do nothing."),
    ] = False,
) -> None:
    """Start what a spec asks for: switch, functions in sandboxes, chains. They run until `tailrace down`.

    \b
    sudo tailrace up examples/chain.yaml
    sudo tailrace status
    sudo tailrace down

    A second `up` with the same spec changes nothing, and restarts what has ended, with the configuration that it had.
    Use `tailrace apply` for an edited spec. The spec is checked first. If it is wrong, or names what this machine does
    not have (users, interfaces, devices, folders), the message has file, line and column, and nothing is started.
    --dry-run makes the same checks.
    """
    raise typer.Exit(run_command(lambda: operate.up(spec, huge=huge, dry_run=dry_run, as_json=as_json)))


@app.command()
def plan(spec: SpecArgument, as_json: JsonOption = False, huge: KeepHugeOption = None) -> None:
    """Show the difference between what is up and what a spec asks for; change nothing.

    \b
    sudo tailrace plan examples/chain-of-two.yaml
    sudo tailrace plan examples/chain-of-two.yaml --json | jq '.changes[]'

    + is started or added, ~ is changed, - ends or is removed. The exit status is 0 if there is no difference, 3 if
    there is one, 2 if the spec is wrong.
    """
    raise typer.Exit(run_command(lambda: operate.plan(spec, huge=huge, as_json=as_json)))


@app.command()
def apply(
    spec: SpecArgument,
    as_json: JsonOption = False,
    huge: KeepHugeOption = None,
    base: BaseOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal it never asks.")] = False,
) -> None:
    """Change what is up into what a spec asks for, while frames move: completely, or not at all.

    \b
    sudo tailrace up examples/chain.yaml
    sudo tailrace apply examples/chain-of-two.yaml
    sudo tailrace rollback

    New functions start first, beside those that run. Then the switch changes over in one step. Then what is not needed
    ends. Chains that do not change lose no frame. A function that changes is replaced by a new one; its chain loses at
    most the frames that were in it.
    """
    raise typer.Exit(run_command(lambda: operate.apply(spec, huge=huge, base=base, yes=yes, as_json=as_json)))


@app.command()
def rollback(as_json: JsonOption = False, base: BaseOption = None) -> None:
    """Go back to what was up before the last apply, functions included. A second rollback undoes the first.

    \b
    sudo tailrace rollback
    """
    raise typer.Exit(run_command(lambda: operate.rollback(base=base, as_json=as_json)))


@app.command()
def scale(
    name: Annotated[str, typer.Argument(metavar="FUNCTION", help="Its name.", autocompletion=complete.function)],
    count: Annotated[int, typer.Argument(metavar="N", min=1, max=64, help="How many replicas it is to have.")],
    wait: Annotated[
        str, typer.Option(metavar="TIME", help="How long those that are too many may keep their flows.")
    ] = "30s",
    as_json: JsonOption = False,
) -> None:
    """Give a function more or fewer replicas. Flows stay with the replica that they have, as long as it is there.

    \b
    sudo tailrace scale fw 3
    sudo tailrace scale fw 1 --wait 5min

    Those that are too many, of the highest numbers, drain first; each is ended when it has no flow, or when the time is
    over: then its flows move to others. The spec's file stays as it is, so an apply of it goes back to what it says.
    """
    raise typer.Exit(run_command(lambda: operate.scale(name, count, wait, as_json=as_json)))


@app.command()
def drain(
    replica: Annotated[
        str | None,
        typer.Argument(
            metavar="REPLICA", help="Its name, such as fw-2 (`tailrace status`).", autocompletion=complete.replica
        ),
    ] = None,
    as_json: JsonOption = False,
    active: Annotated[bool, typer.Option("--active", help="Give it new flows again.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Move every machine to another node (--to).")] = False,
    to: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="That node, as `tailrace migrate` takes it.", autocompletion=complete.host),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --all: print what would move and what stays, and do nothing.")
    ] = False,
) -> None:
    """Give a replica of a function no new flows, so that it can be removed when the last flow has ended. With --all,
    make the host ready for maintenance: its machines go to another node, one by one, while they run.

    \b
    sudo tailrace drain fw-2
    sudo tailrace status | grep 'function fw'
    sudo tailrace drain fw-2 --active
    sudo tailrace drain --all --to other-host --dry-run
    sudo tailrace drain --all --to other-host

    In a spec the same is `replicas: {1: active, 2: draining}`. A drain can be rolled back like any change. What cannot
    move stays and runs, each with the reason; the exit code is 1 then.
    """

    def call() -> int:
        if every:
            from tailrace.cli import evacuate

            if replica is not None or active or to is None:
                raise Mistake("--all: expected --to HOST, and neither a REPLICA nor --active")
            return evacuate.run(to, dry_run=dry_run, as_json=as_json)
        if replica is None or to is not None or dry_run:
            raise Mistake("expected a REPLICA, or --all with --to HOST and, if you like, --dry-run")
        return operate.drain(replica, active=active, as_json=as_json)

    raise typer.Exit(run_command(call))


@app.command()
def migrate(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A function in a machine.", autocompletion=complete.replica)
    ],
    host: Annotated[
        str | None,
        typer.Argument(
            metavar="HOST",
            help="Another node: a host that ssh reaches, or the state folder of a node of this machine.",
            autocompletion=complete.host,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print all reasons why it cannot be, and do nothing.")
    ] = False,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What it may send in a second: 100MiB. Default: all there is.")
    ] = None,
    downtime: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long it may stand still at the end.", show_default="300ms"),
    ] = None,
    connections: ConnectionsOption = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="End a move of NAME that is at work.")] = False,
    post_copy: Annotated[bool, typer.Option("--post-copy", "--postcopy", hidden=True)] = False,
    as_json: JsonOption = False,
) -> None:
    """Move a machine to another node while it runs and frames move.

    \b
    sudo tailrace migrate first other-host --dry-run
    sudo tailrace migrate first other-host
    sudo tailrace migrate first --cancel

    The other node has the function in its plan, stopped. Its memory is sent while it runs (pre-copy); then it stands
    still for a moment, and goes on there. Ctrl-C or a failure before that leave it running here. The exit code is 2 if
    it cannot move, with all reasons.
    """
    from tailrace.cli import migrate as moves

    def call() -> int:
        if post_copy:
            raise Mistake(moves.NO_POST_COPY)
        if cancel:
            if host is not None or dry_run or {bandwidth, downtime, connections} != {None}:
                raise Mistake("--cancel: expected NAME alone, whose move ends; nothing else applies to that")
            return moves.cancel(name, as_json=as_json)
        if host is None:
            raise Mistake("expected a HOST to move it to, or --cancel")
        limits = moves.limits_of(bandwidth, downtime, connections)
        if dry_run:
            return moves.dry_run(name, host, as_json=as_json)
        return moves.run(name, host, limits, as_json=as_json)

    raise typer.Exit(run_command(call))


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show what is up: processes, ports with their counters and drops, chains by hop, replicas, bridges.

    \b
    sudo tailrace status
    sudo tailrace status --json | jq '.ports[] | {name, state, drops}'

    The exit status is 0 if all is well or nothing is up, and 1 if something that should run does not.
    """
    raise typer.Exit(run_command(lambda: operate.status(as_json=as_json)))


@app.command()
def top(
    as_json: JsonOption = False,
    once: Annotated[bool, typer.Option("--once", help="Print everything once, and end.")] = False,
    sort: Annotated[
        str,
        typer.Option(
            metavar="BY",
            help="name, packets or drops.",
            autocompletion=complete.words("name", "packets", "drops"),
        ),
    ] = "name",
    every: Annotated[str, typer.Option(metavar="TIME", help="Between two updates: 1s.")] = "1s",
    only: Annotated[str | None, typer.Option(metavar="TEXT", help="Ports and chains with this in the name.")] = None,
) -> None:
    """Watch ports, chains (hop by hop) and workers live: rates, drops, load, cycles a packet, bursts, sleeps.

    \b
    sudo tailrace top
    sudo tailrace top --sort packets --every 500ms
    sudo tailrace top --once --json | jq '.workers[] | {name, busy, cycles_a_packet}'

    Keys: q ends it, s changes the order. It reads the switch's page of counters, which costs the switch nothing, and
    continues after a restart of the switch. --json prints one document a line for each update.
    """
    options = counters.TopOptions(as_json, once, sort, every, only)
    raise typer.Exit(run_command(lambda: counters.top(options)))


@app.command()
def events(
    as_json: JsonOption = False,
    since: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Also those that were: from this one on.")
    ] = None,
    alarms: Annotated[bool, typer.Option("--alarms", help="Only what somebody has to look after.")] = False,
) -> None:
    """Show what happens on the node, as it happens: functions, ports and the switch that come, go and come back.

    \b
    sudo tailrace events
    sudo tailrace events --since 1 --json | jq 'select(.kind == "function.died")'

    It ends with Ctrl-C, and when the service ends. docs/service.md lists the kinds of events. --json prints one
    document a line.
    """
    raise typer.Exit(run_command(lambda: operate.events(since, alarms=alarms, as_json=as_json)))


@app.command()
def watch(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]", help="A run folder. Default: the soak written to last.", autocompletion=complete.run
        ),
    ] = None,
    runs: RunsOption = DEFAULT_RUNS,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    every: Annotated[str, typer.Option(metavar="TIME", help="Between two updates: 2s.")] = "2s",
    as_json: JsonOption = False,
) -> None:
    """Watch a soak live, of traffic or of the host: progress, loss, order, latency (current and worst), gaps.

    \b
    tailrace watch
    tailrace watch runs/2026-11-21-143005-soak-chain --once --json | jq .worst

    It reads the disk and costs the soak nothing. Ctrl-C ends the watching, not the soak. It ends when the soak ends.
    --json prints one document a line.
    """
    raise typer.Exit(run_command(lambda: the_watch.watch(run, the_watch.WatchOptions(runs, once, every, as_json))))


@app.command()
def metrics(
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS:PORT", help="Where to answer; [::1]:PORT for IPv6. Port 0 is any free one.")
    ] = DEFAULT_METRICS,
) -> None:
    """Serve all counters as Prometheus metrics, by port, queue, chain, hop, drop reason and worker.

    \b
    sudo tailrace metrics --listen 127.0.0.1:9752 &
    curl -s http://127.0.0.1:9752/metrics | grep tailrace_port

    Each scrape reads the counters. Without a switch it answers with tailrace_up 0.
    """
    raise typer.Exit(run_command(lambda: counters.metrics(listen)))


@app.command()
def dashboard(
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS:PORT", help="Where to answer; [::1]:PORT for IPv6. Port 0 is any free one.")
    ] = DEFAULT_DASHBOARD,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the token there, so that open pages stay valid over a restart."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answer by HTTPS with this certificate (PEM); needs --key.")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's private key (PEM).")] = None,
    runs: RunsOption = DEFAULT_RUNS,
    control: Annotated[
        bool, typer.Option("--control", help="Who has the link may also replace functions (`function restart`).")
    ] = False,
    alarms: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What is an alarm, and who is notified (YAML, docs/dashboard.md). Default: all."
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record what the page shows, to be replayed there.")
    ] = None,
    record_size: Annotated[
        str, typer.Option(metavar="SIZE", help="The record and the one before it, FILE.1, together.")
    ] = "64MiB",
    replay: Annotated[Path | None, typer.Option(metavar="FILE", help="Replay a record in the page.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who may look by a name and a password, without the link.")
    ] = None,
    set_password: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write a password into that file, and end. It asks for it.")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Other nodes in the same page: addresses and tokens (YAML).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show chains, ports and workers live in a browser: rates of every hop, drops by reason, ten times a second.

    \b
    sudo tailrace dashboard
    ssh -L 9753:127.0.0.1:9753 HOST          # from another machine; then open the link that it printed

    Only who has the printed link can look, and without --control nobody can change anything there. It reads the
    switch's page of counters, which costs the switch nothing, and continues after a restart of the switch. It ends with
    Ctrl-C.
    """
    options = the_dashboard.DashboardOptions(
        listen,
        token_file,
        certificate,
        key,
        runs,
        control,
        alarms,
        record,
        record_size,
        replay,
        password_file,
        set_password,
        nodes,
        as_json,
    )
    raise typer.Exit(run_command(lambda: the_dashboard.dashboard(options)))


@app.command()
def down(as_json: JsonOption = False) -> None:
    """Remove everything that Tailrace has started, also after a crash: processes, sockets, huge pages, the rest.

    \b
    sudo tailrace down

    It touches only what is on Tailrace's own record, and ends a process only if pid and start time match. It is
    harmless if nothing is up.
    """
    raise typer.Exit(run_command(lambda: operate.down(as_json=as_json)))


@app.command()
def demo(runs: RunsOption = DEFAULT_RUNS, huge: HugeOption = True, as_json: JsonOption = False) -> None:
    """Measure this machine in two minutes: the tester's own floor, a chain of one function and a chain of two.

    \b
    sudo tailrace demo

    It sends 64 B, 256 B, IMIX and 1518 B frames both ways at 90 % of the rate without loss. The result is one table,
    and a run folder with results.json and report.html. "Share" is the functions' own latency: the chain's less the
    floor's at the same rate. Everything is removed at the end.
    """
    raise typer.Exit(run_command(lambda: commands.demo(runs=runs, huge=huge, as_json=as_json)))


MatchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--match",
        metavar="FIELD=VALUE,...",
        help="Only frames with all of these: vlan (0: none), inner_vlan, ethertype, source, destination, protocol, "
        "source_port, destination_port; several --match are alternatives.",
    ),
]
ControlOption = Annotated[
    Path | None,
    typer.Option("--control", metavar="SOCKET", help="Control socket of a switch that `tailrace up` did not start."),
]


@app.command()
def capture(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The capture file, such as voice.pcap.")],
    port: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A port of the switch, such as tester.a.", autocompletion=complete.port),
    ] = None,
    chain: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A chain: what enters and leaves it.", autocompletion=complete.chain),
    ] = None,
    direction: Annotated[
        str,
        typer.Option(
            help="in: from the port, into the chain; out: to the port, out of the chain; both.",
            autocompletion=complete.words("in", "out", "both"),
        ),
    ] = "both",
    match: MatchOption = None,
    snaplen: Annotated[int, typer.Option(min=14, max=262144, help="Bytes of each frame that are kept.")] = 262144,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many frames.")] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="End after so long: 60s.")] = None,
    size: Annotated[str, typer.Option(metavar="SIZE", help="The most that a file may hold.")] = "1GiB",
    files: Annotated[
        int | None, typer.Option(min=1, help="Start a new file when one is full, and keep the last so many.")
    ] = None,
    rotate_frames: Annotated[int | None, typer.Option(min=1, help="A file is full after so many frames.")] = None,
    rotate_time: Annotated[str | None, typer.Option(metavar="TIME", help="A file is full after so long.")] = None,
    buffer: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for frames not yet written, each worker.")
    ] = "16MiB",
    control: ControlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write what a port or a chain carries to capture files, until Ctrl-C. tcpdump and Wireshark read them.

    \b
    sudo tailrace capture --port tester.a frames.pcap
    sudo tailrace capture --chain voice --match protocol=udp,destination_port=53 --count 100 dns.pcap
    sudo tailrace capture --port wan --size 100MiB --files 10 wan.pcap     # the last GiB, in ten files

    Traffic never waits for a capture. Frames that come faster than the disk takes them are left out, counted, and
    reported at the end. Times are those of the switch, in nanoseconds.
    """
    options = observe.CaptureOptions(
        port, chain, direction, tuple(match or ()), snaplen, size, files, rotate_frames, rotate_time, count, duration,
        buffer, control, as_json,
    )  # fmt: skip
    raise typer.Exit(run_command(lambda: observe.capture(file, options)))


@app.command()
def trace(
    match: MatchOption = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many frames.")] = 1,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Wait no longer than this: 10s.")] = None,
    control: ControlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow the next matching frames through the switch, and print every step of each.

    \b
    sudo tailrace trace --match protocol=icmp --count 3

    Steps are: the port by which a frame enters, its chain and hop, the replica of its flow, what a bridge decides, the
    ports by which it leaves, or why it is dropped. A frame that returns from a function is followed further. Without a
    match, frames that cannot be parsed are shown too.
    """
    options = observe.TraceOptions(tuple(match or ()), count, duration, control, as_json)
    raise typer.Exit(run_command(lambda: observe.trace(options)))


@app.command()
def version(as_json: JsonOption = False) -> None:
    """Print the versions of Tailrace and of the programs that it uses.

    \b
    tailrace version --json
    """
    raise typer.Exit(run_command(lambda: commands.version(as_json=as_json)))


# A command of this module's own is run without the others: what Typer makes of each takes time.
_asked = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
_own = {command.name or str(getattr(command.callback, "__name__", "")): command for command in app.registered_commands}
if _asked in _own and sys.argv[1] == _asked:
    app.registered_commands = [_own[_asked]]
if _asked not in (*GROUPS, *_own):
    results.register(app)
for _name, _group in GROUPS.items():
    if _asked == _name or _asked not in (*GROUPS, *_own):
        app.add_typer(_group(), name=_name)


def main() -> None:
    """The entry point: wrong use is one line and status 2, like every other mistake."""
    open_streams()
    if _asked in STARTING:
        from tailrace.process.systemd import enter  # not loaded by commands that only look

        enter()
    try:
        # The installed command runs a module, whose name is nobody's command, in `--help` and for a shell's completion.
        status = app(prog_name="tailrace", standalone_mode=False)
    except typer.Abort:
        error_line("interrupted by Ctrl-C")
        status = ExitCode.INTERRUPTED
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
