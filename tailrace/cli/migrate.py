"""`tailrace migrate`: a machine moves to another node while it runs."""

from __future__ import annotations

from tailrace.cli.operate import ask_service, check_up
from tailrace.cli.output import error_line, note, print_json, print_line, telling
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import ExitCode, Mistake
from tailrace.functions.transfer import Limits
from tailrace.migrate.checks import risks
from tailrace.migrate.facts import read_facts
from tailrace.spec.units import parse_duration, parse_size

DOWNTIME_MS = 300
"""Unless it is said."""
NO_POST_COPY = (
    "--post-copy: after it a machine waits for each page that it has not got yet, so that a poller stands still again "
    "and again, and a connection that is lost loses the machine; leave it out: memory is sent before (pre-copy)"
)


def dry_run(name: str, host: str, *, as_json: bool) -> int:
    """Prints why it cannot be; the status is that of a refusal then."""
    reasons = ask_service("migrate.plan", name=name, host=host)["reasons"]
    found = [] if reasons else _risks(name)
    if as_json:
        print_json({"name": name, "host": host, "possible": not reasons, "reasons": reasons, "risks": found})
        return ExitCode.MISTAKE if reasons else ExitCode.DONE
    if not reasons:
        for each in found:
            note(each)
        print_line(f"{name} can move to {host}: nothing stands in the way. `tailrace migrate {name} {host}` moves it.")
        return ExitCode.DONE
    table = PlainTable("kind", "why it cannot be")
    for reason in reasons:
        table.add_row(reason["kind"], reason["text"])
    print_table(table)
    error_line(f"{name} cannot move to {host}: {len(reasons)} reason{'' if len(reasons) == 1 else 's'}")
    return ExitCode.MISTAKE


def _risks(name: str) -> list[str]:
    return risks(name, read_facts(ask_service("migrate.facts", show=False, name=name)["facts"]))


def run(name: str, host: str, limits: Limits, *, as_json: bool) -> int:
    for each in _risks(name):
        note(each)
    moved = ask_service(
        "migrate.run",
        show=not as_json,
        name=name,
        host=host,
        **limits.as_params(),
    )
    with telling(f"{name} is on {host}"):
        if as_json:
            print_json({"name": name, **{key: value for key, value in moved.items() if key != "service_ends"}})
        else:
            print_line(
                f"{name} is on {host} now, after {moved['milliseconds'] / 1e3:.1f} s. It stood still for "
                f"{moved['pause_ms']} ms, as QEMU has counted, and forwarded there {moved['switch_ms']:.0f} ms after "
                "its end here."
            )
    return ExitCode.DONE


def cancel(name: str, *, as_json: bool) -> int:
    """Raises Mistake where nothing is up, or no move of it is at work."""
    check_up()
    cancelled = ask_service("migrate.cancel", name=name)["cancelled"]
    if as_json:
        print_json({"name": name, "cancelled": cancelled})
    else:
        print_line(f"{name}: the move was cancelled.")
    return ExitCode.DONE


def limits_of(bandwidth: str | None, downtime: str | None, connections: int | None) -> Limits:
    """What a move may take, as the command line has it. Raises Mistake."""
    return Limits(_bytes(bandwidth), DOWNTIME_MS if downtime is None else _milliseconds(downtime), connections)


def _bytes(text: str | None) -> int | None:
    """1GiB, for a second. Raises Mistake."""
    if text is None:
        return None
    try:
        size = parse_size(text.removesuffix("/s"))
    except ValueError as error:
        raise Mistake(f"--bandwidth: {error}") from None
    if size < 1 << 20:
        raise Mistake(f"--bandwidth: {text} is too little to come to an end; expected at least 1MiB")
    return size


def _milliseconds(text: str) -> int:
    """300ms. Raises Mistake."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise Mistake(f"--downtime: {error}") from None
    if not 0.001 <= seconds <= 60:
        raise Mistake(f"--downtime: {text} is not possible; expected 1ms to 60s")
    return round(seconds * 1e3)
