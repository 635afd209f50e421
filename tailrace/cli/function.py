"""`tailrace function`: one function of what is up, wherever it lives."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli import complete, operate
from tailrace.cli.options import JsonOption
from tailrace.cli.output import print_json, print_line, run_command, wide_console
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import Mistake
from tailrace.observe.block_log import Held
from tailrace.observe.block_log import read as read_blocks
from tailrace.observe.function_log import added_lines, latest_lines, log_now, process_of
from tailrace.process.plain import plain
from tailrace.state.folder import default_folder
from tailrace.state.record import Process, State, peek

app = typer.Typer(
    help="Inspect, replace, resize, save and copy one function of what is up.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_EVER = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A function's name, or a replica's.", autocompletion=complete.replica),
]


@app.command()
def log(
    name: NameArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last so many lines.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print what is added, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a function has said: of a machine, its console.

    \b
    sudo tailrace function log first
    sudo tailrace function log first --follow
    """
    raise typer.Exit(run_command(lambda: _log(name, lines, follow=follow, as_json=as_json)))


@app.command()
def show(
    name: NameArgument,
    most: Annotated[int, typer.Option("--most", min=0, max=10000, help="Print so many rows of each table.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Print what a function has counted, and its tables: of a router its routes and neighbours.

    \b
    sudo tailrace function show edge
    sudo tailrace function show edge --most 1000 --json

    Counters that are 0 are left out, but not of --json.
    """
    raise typer.Exit(run_command(lambda: _show(name, most, as_json=as_json)))


@app.command()
def blocks(
    name: NameArgument,
    outside: Annotated[
        str | None, typer.Argument(metavar="ADDRESS[:PORT]", help="Of the pool; all of it unless given.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only who had them then, in UTC: 12:03 (of today, at any time in that minute), 12:03:20, "
            "2026-11-30T12:03, or 2h before now.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print which inside hosts of a NAT had which ports of its pool when, as far as its logs go back.

    \b
    sudo tailrace function blocks gate 198.51.100.7:40000 --at 12:03
    sudo tailrace function blocks gate --json

    It reads the logs of all instances and replicas that are still there. What was left out of them is said.
    """
    raise typer.Exit(run_command(lambda: _blocks(name, outside, at, as_json=as_json)))


@app.command()
def cpus(
    name: NameArgument,
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="How many it is to have.")],
    as_json: JsonOption = False,
) -> None:
    """Give a function more or fewer CPUs while frames move. No frame is lost, and flows keep their order.

    \b
    sudo tailrace function cpus edge 3
    sudo tailrace function cpus edge 1 --json

    It can have as many as its spec says (`cpus: {most: 4}`). In a process each has a thread; in a machine its virtual
    CPUs move, and take turns where there are fewer CPUs. The spec's file stays as it is, and `apply` goes by that.
    """
    raise typer.Exit(run_command(lambda: operate.function_cpus(name, count, as_json=as_json)))


@app.command()
def restart(name: NameArgument, as_json: JsonOption = False) -> None:
    """Replace what runs of a function by a new instance. Its chain loses at most the frames inside the old one.

    \b
    sudo tailrace function restart second

    The new one starts beside the old one, which ends when the switch has changed over. A replica's name replaces that
    replica, the function's all of them.
    """
    raise typer.Exit(run_command(lambda: operate.restart(name, as_json=as_json)))


@app.command()
def stop(name: NameArgument, as_json: JsonOption = False) -> None:
    """End a function, and do not start it again by itself. Its chain does what `on_failure` says.

    \b
    sudo tailrace function stop second
    """
    raise typer.Exit(run_command(lambda: operate.stop(name, as_json=as_json)))


@app.command()
def start(name: NameArgument, as_json: JsonOption = False) -> None:
    """Start a function that was stopped.

    \b
    sudo tailrace function start second
    """
    raise typer.Exit(run_command(lambda: operate.start(name, as_json=as_json)))


@app.command()
def explain(name: NameArgument, as_json: JsonOption = False) -> None:
    """Say what a function's latency level has set, why, and what the host does not allow.

    \b
    sudo tailrace function explain first
    """
    raise typer.Exit(run_command(lambda: _explain(name, as_json=as_json)))


@app.command()
def console(name: NameArgument) -> None:
    """Open a shell in a machine, on its second serial port. Ctrl-] leaves it.

    \b
    sudo tailrace function console first
    """
    raise typer.Exit(run_command(lambda: _console(name)))


@app.command()
def save(
    name: NameArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Replaced if it is there, once all is written.")],
    as_json: JsonOption = False,
) -> None:
    """Write a machine's whole state to a file. It stands still while that is written, and goes on.

    \b
    sudo tailrace function save first first.state

    The file has all that is in the machine's memory; only its owner can read it.
    """
    raise typer.Exit(run_command(lambda: _save(name, file, as_json=as_json)))


@app.command()
def snapshot(
    name: NameArgument,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="A word for it; none that is there is replaced.")],
    as_json: JsonOption = False,
) -> None:
    """Keep a machine's state under a name, beside the images. It goes on running.

    \b
    sudo tailrace function snapshot first before-the-change
    sudo tailrace function restore first --snapshot before-the-change
    """
    raise typer.Exit(run_command(lambda: _snapshot(name, label, as_json=as_json)))


@app.command()
def snapshots(as_json: JsonOption = False) -> None:
    """Show the snapshots that are kept.

    \b
    sudo tailrace function snapshots
    """
    raise typer.Exit(run_command(lambda: _snapshots(as_json=as_json)))


@app.command()
def export(
    name: NameArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    as_json: JsonOption = False,
) -> None:
    """Write a machine to one file, a tar archive, to be moved to another host: what it is, its state, its image.

    \b
    sudo tailrace function export first first.tar
    """
    raise typer.Exit(run_command(lambda: _export(name, file, as_json=as_json)))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As `export` has written it.")],
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Where its state goes: a new file, NAME.state.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Take over a machine that was exported: its image, and its state in a file, from which `restore` has it go on.

    \b
    sudo tailrace function import first.tar
    sudo tailrace up chain.yaml && sudo tailrace function restore first first.state

    All of it is checked before anything is made, and nothing that is there is replaced.
    """
    raise typer.Exit(run_command(lambda: _import(file, state, as_json=as_json)))


@app.command()
def restore(
    name: NameArgument,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="As `save` has written it.")] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            metavar="LABEL",
            help="Of this function, in place of a file.",
            autocompletion=complete.snapshot,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Have a machine go on from a file or a snapshot, in place of what runs of it.

    \b
    sudo tailrace function restore first first.state
    sudo tailrace function restore first --snapshot before-the-change

    It is started beside the one that runs, which ends when the switch has changed over. If it does not start, nothing
    has changed. It has to have the same function, memory and CPUs as the one that was saved.
    """
    raise typer.Exit(run_command(lambda: _restore(name, file, snapshot, as_json=as_json)))


@app.command()
def clone(
    name: NameArgument,
    to: Annotated[
        str, typer.Argument(metavar="TO", help="The machine that becomes the copy.", autocompletion=complete.replica)
    ],
    as_json: JsonOption = False,
) -> None:
    """Have a machine go on as a copy of another one, booted as that is, with MAC addresses and a machine id of its own.

    \b
    sudo tailrace function clone first second
    sudo tailrace scale first 2 && sudo tailrace function clone first first-2

    What ran of it until then ends when the switch has changed over to the copy.
    """
    raise typer.Exit(run_command(lambda: operate.clone(name, to, as_json=as_json)))


@app.command()
def xml(name: NameArgument, as_json: JsonOption = False) -> None:
    """Print a machine in libvirt's words, as it runs.

    \b
    sudo tailrace function xml first | less
    """
    raise typer.Exit(run_command(lambda: _xml(name, as_json=as_json)))


@app.command()
def verify(name: NameArgument, as_json: JsonOption = False) -> None:
    """Check how a machine is tuned inside, place by place, as `tailrace host verify` does of the host.

    \b
    sudo tailrace function verify first

    Its image has to be of a profile: `tailrace image build NAME --profile latency`. The exit code is 1 if something
    that can be set is not as the profile wants it.
    """
    raise typer.Exit(run_command(lambda: _verify(name, as_json=as_json)))


def _process(name: str) -> Process:
    """The process of a function that is up. Raises Mistake."""
    return process_of(default_folder(), name)


def _machine(name: str) -> Process:
    process = _process(name)
    if process.runtime != "machine":
        raise Mistake(f"{name} lives in a {process.runtime}, which has no such thing; expected a machine's name")
    return process


def _log(name: str, lines: int, *, follow: bool, as_json: bool) -> int:
    if follow and as_json:
        raise Mistake("--json prints what is there, and --follow what comes; expected one of them")
    log = log_now(default_folder(), name)
    path = log()
    try:
        found, file = latest_lines(path, lines)
        with file:
            if as_json:
                print_json({"log": str(path), "lines": found})
                return 0
            for line in found:
                print_line(plain(line))
            if follow:
                for line in added_lines(file, log):
                    print_line(plain(line))
    except OSError as error:
        raise Mistake(f"{log()}: {error.strerror}; run as the user who has started it (sudo)") from None
    return 0


def _show(name: str, most: int, *, as_json: bool) -> int:
    from tailrace.functions.show import ask

    folder = default_folder()
    record = peek(folder)
    shown = ask(State(folder, record), _process(name), most)
    waits = any(each["name"] == name and each.get("state") == "standby" for each in record.plan.get("functions", []))
    in_step = operate.in_step(name) if waits else []
    out = operate.outages(name)
    if as_json:
        print_json({"name": name, **shown.model_dump(), "in_step": in_step, "outages": out})
        return 0
    print_line(f"{name}: {shown.function}")
    if said := operate.outage_words(out):
        print_line(said)
    for words in operate.in_step_words(in_step):
        print_line(f"in standby: {words}")
    counters = PlainTable("", "port0", "port1")
    for what, numbers in shown.counted():
        counters.add_row(what, *map(str, numbers))
    print_table(counters)
    for title, found in shown.tables.items():
        print_line(f"\n{title.replace('_', ' ')}: {len(found.rows)} of {found.total}")
        table = PlainTable(*(column.replace("_", " ") for column in found.columns))
        for row in found.texts():
            table.add_row(*row)
        print_table(table)
    return 0


def _blocks(name: str, outside: str | None, at: str | None, *, as_json: bool) -> int:
    begin, end = moment(at, datetime.now(UTC)) if at is not None else _EVER
    address, port = _address_and_port(outside) if outside is not None else (None, None)
    log = read_blocks(default_folder(), name)
    found = log.of(address, port, begin, end)
    if as_json:
        left_out = [asdict(each) | {"time": _shown_time(each.time)} for each in log.left_out]
        print_json({"name": name, "begins": _in_json(log.begins), "blocks": _held_in_json(found), "left_out": left_out})
        return 0
    table = PlainTable("host", "vlan", "outside", "ports", "from", "until", "said by")
    for each in found:
        since, until = _shown_time(each.since, f"before {_shown_time(log.begins)}"), _shown_time(each.until, "now")
        ports = f"{each.first}-{each.last}"
        table.add_row(each.host, each.vlan or "-", each.outside, ports, since, until, each.instance)
    print_table(table)
    for left in log.left_out:
        print_line(f"{left.instance}: {left.count} events before {_shown_time(left.time)} were left out")
    if log.begins is None:
        print_line(f"no log of {name} says anything of blocks yet")
    elif begin < log.begins and at is not None:
        print_line(f"the logs begin at {_shown_time(log.begins)}; what was before is not known")
    return 0


def _held_in_json(found: Sequence[Held]) -> list[dict[str, object]]:
    times = [{"since": _in_json(each.since), "until": _in_json(each.until)} for each in found]
    return [asdict(each) | time for each, time in zip(found, times, strict=True)]


def _in_json(time: datetime | None) -> str | None:
    return None if time is None else _shown_time(time)


def _shown_time(time: datetime | None, otherwise: str = "-") -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ") if time is not None else otherwise


def moment(text: str, now: datetime) -> tuple[datetime, datetime]:
    """From when to when a time stands for, in UTC: a minute where it has no seconds. Raises Mistake."""
    from tailrace.cli.results import parse_time

    clock = re.fullmatch(r"\d\d:\d\d(:\d\d)?", text)
    try:
        begin = parse_time("--at", f"{now:%Y-%m-%d}T{text}" if clock else text, now)
    except Mistake:
        raise Mistake(
            f"--at {text}: not a time; expected one in UTC such as 12:03, 12:03:20 or 2026-11-30T12:03, or a duration "
            "before now such as 2h"
        ) from None
    minute = re.search(r"(^|T)\d\d:\d\d(Z|[+-]\d\d:\d\d)?$", text) is not None
    return begin, begin + timedelta(seconds=59 if minute else 0)


def _address_and_port(text: str) -> tuple[str, int | None]:
    address, colon, port = text.partition(":")
    try:
        if colon and not 0 < int(port) < 1 << 16:
            raise ValueError
        return str(IPv4Address(address)), int(port) if colon else None
    except ValueError:
        raise Mistake(
            f"{text} is no address; expected one of the pool, such as 198.51.100.7 or 198.51.100.7:40000"
        ) from None


def _explain(name: str, *, as_json: bool) -> int:
    from tailrace.functions.acceleration import acceleration
    from tailrace.functions.traits import read_traits
    from tailrace.kernel.tree import Tree
    from tailrace.plan.levels import Machine, explained
    from tailrace.plan.planned import Plan
    from tailrace.resources.topology import read_cpus

    _process(name)
    plan = Plan.read(peek(default_folder()).plan)
    function = next(each for each in plan.started if each.name == name)
    points = explained(
        function,
        plan.placement.functions[name],
        huge=plan.huge,
        cpus=read_cpus(Tree()),
        machine=Machine(acceleration(), read_traits(Tree())) if function.runs == "machine" else None,
    )
    if as_json:
        print_json({"name": name, "latency": function.latency, "points": [asdict(each) for each in points]})
        return 0
    print_line(f"{name} runs in a {function.runs}, latency {function.latency}.")
    table = PlainTable("", "set", "why")
    for each in points:
        table.add_row(each.what, each.is_set, each.why)
    print_table(table)
    for each in points:
        if each.lacking:
            print_line(f"not here: {each.lacking}")
    return 0


def _console(name: str) -> int:
    from tailrace.process.hypervisor import console_command

    words = console_command(_machine(name).outside)
    os.execv(words[0], words)


def _save(name: str, file: Path, *, as_json: bool) -> int:
    from tailrace.node.operations import save_function

    size = save_function(default_folder(), name, file.absolute())
    if as_json:
        print_json({"name": name, "file": str(file.absolute()), "bytes": size})
    else:
        print_line(f"{name} is saved in {file}: {size / 1e6:.1f} MB.")
    return 0


def _restore(name: str, file: Path | None, label: str | None, *, as_json: bool) -> int:
    if file is not None and label is not None:
        raise Mistake(f"{file} and --snapshot {label}: expected one of both, a file or a snapshot")
    if file is None and label is None:
        raise Mistake("expected a file, or a snapshot's label with --snapshot")
    if file is None:
        file = _snapshot_file(name, label or "")
        if not file.exists():
            raise Mistake(f"{name} has no snapshot {label}; `tailrace function snapshots` shows those there are")
    return operate.restore(name, file, as_json=as_json)


def _snapshot_file(name: str, label: str) -> Path:
    """Where a snapshot is kept. Raises Mistake."""
    from tailrace.functions.images import images_folder

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", label):
        raise Mistake(f"{label!r} is no label; expected letters, digits, dots, hyphens and underscores, 64 at most")
    return images_folder() / "snapshots" / name / f"{label}.state"


def _snapshot(name: str, label: str, *, as_json: bool) -> int:
    file = _snapshot_file(name, label)
    if file.exists():
        raise Mistake(f"{name} has a snapshot {label} already; choose another label, or remove {file}")
    _machine(name)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _save(name, file, as_json=as_json)


def _snapshots(*, as_json: bool) -> int:
    from tailrace.functions.images import images_folder

    found = sorted((images_folder() / "snapshots").glob("*/*.state"), key=lambda each: each.stat().st_mtime)
    kept = [
        {
            "name": each.parent.name,
            "label": each.stem,
            "file": str(each),
            "bytes": each.stat().st_size,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each.stat().st_mtime)),
        }
        for each in found
    ]
    if as_json:
        print_json(kept)
        return 0
    if not kept:
        print_line("There is no snapshot; `tailrace function snapshot NAME LABEL` makes one.")
        return 0
    table = PlainTable("function", "snapshot", "time", "MB")
    for row in kept:
        table.add_row(str(row["name"]), str(row["label"]), str(row["time"]), f"{float(str(row['bytes'])) / 1e6:.1f}")
    print_table(table)
    return 0


def _export(name: str, file: Path, *, as_json: bool) -> int:
    from tailrace.functions.parcel import export
    from tailrace.node.operations import described

    process = _machine(name)
    size = export(name, described(default_folder(), name), process.outside, file.absolute())
    if as_json:
        print_json({"name": name, "file": str(file.absolute()), "bytes": size})
    else:
        print_line(f"{name} is in {file}: {size / 1e6:.1f} MB. `tailrace function import {file}` takes it over.")
    return 0


def _import(file: Path, state: Path | None, *, as_json: bool) -> int:
    from tailrace.functions.parcel import import_, look_into

    if state is None:
        state = Path(f"{look_into(file).name}.state")
    made = import_(file, state.absolute())
    parcel = made.parcel
    if as_json:
        told = {"function": dict(parcel.function), "state": str(made.state), "image": str(made.image)}
        print_json({"name": parcel.name, **told, "new_image": made.new_image})
        return 0
    shown = {key: value if key != "domain" else json.dumps(value) for key, value in parcel.function.items()}
    words = ", ".join(f"{key}: {value}" for key, value in shown.items())
    print_line(
        f"The state of {parcel.name} is in {state}; its image is {made.image}{'' if made.new_image else ', as before'}."
    )
    print_line(f"In a spec it is `{parcel.name}: {{{words}}}`; then `tailrace function restore {parcel.name} {state}`.")
    return 0


def _verify(name: str, *, as_json: bool) -> int:
    from tailrace.functions import agent
    from tailrace.functions.guest_tuning import lost, verify
    from tailrace.functions.machine import machine_profile
    from tailrace.host import show

    process, logs = _machine(name), default_folder() / "logs"
    profile = machine_profile(logs, process.name)
    if not profile:
        raise Mistake(f"{name} is not tuned inside; `tailrace image build NAME --profile latency` makes such an image")
    found = verify(agent.beside(logs / f"{process.name}.log"), profile)
    wrong = lost(found)
    document = show.check_document(found)
    if as_json:
        print_json({"name": name, "profile": profile, **document, "lost": wrong})
    else:
        wide_console().print(show.check_table(found))
        print_line(", ".join(f"{count} {state}" for state, count in document["counts"].items() if count))
    return 1 if wrong else 0


def _xml(name: str, *, as_json: bool) -> int:
    from tailrace.process.hypervisor import machine_xml

    process = _machine(name)
    xml = machine_xml(process.outside)
    if as_json:
        print_json({"name": process.outside, "xml": xml})
    else:
        print_line(xml.rstrip("\n"))
    return 0
