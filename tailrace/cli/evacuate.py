"""`tailrace drain --all`: the machines of a node go to another one, so that its host can be maintained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.cli.migrate import DOWNTIME_MS
from tailrace.cli.operate import ask_service, check_up
from tailrace.cli.output import print_json, print_line
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import ExitCode, Interrupted, TailraceError

_STAYS = "only a machine moves while it runs; `tailrace function stop` or `tailrace down` ends it"


@dataclass
class Evacuated:
    """What became of all that runs on a node."""

    host: str
    moves: list[str] = field(default_factory=list)
    """What is on the other node, or would go there."""
    stays: dict[str, list[str]] = field(default_factory=dict)
    """What stays, and why."""


def run(host: str, *, dry_run: bool, as_json: bool) -> int:
    """Moves all machines that can, one after the other; one that cannot, or fails, keeps no other from it. Raises
    Mistake where nothing is up, or HOST can be no node."""
    from tailrace.node.peer import check_host

    check_up()
    check_host(host)
    found = Evacuated(host)
    for name, runs in _running(ask_service("node.status", show=False)):
        if runs != "machine":
            found.stays[name] = [f"runs: {runs}; {_STAYS}"]
            continue
        try:
            reasons = ask_service("migrate.plan", show=False, name=name, host=host)["reasons"]
            if reasons:
                found.stays[name] = [reason["text"] for reason in reasons]
                continue
            if not dry_run:
                ask_service(
                    "migrate.run", show=not as_json, name=name, host=host, bandwidth=None, downtime_ms=DOWNTIME_MS
                )
            found.moves.append(name)
        except Interrupted:
            raise
        except TailraceError as error:
            found.stays[name] = list(error.lines)
    _show(found, dry_run=dry_run, as_json=as_json)
    return ExitCode.FAILED if found.stays else ExitCode.DONE


def _running(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The functions (replicas) that run, and where each lives."""
    for function in status["functions"]:
        for replica in function["replicas"]:
            if replica["state"] != "stopped":
                yield replica["name"], function["runs"]


def _show(found: Evacuated, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(found), "dry_run": dry_run})
        return
    table = PlainTable("function", "where" if not dry_run else "where then", "why")
    for name in found.moves:
        table.add_row(name, found.host, "")
    for name, reasons in found.stays.items():
        for number, reason in enumerate(reasons):
            table.add_row(*((name, "here") if number == 0 else ("", "")), reason)
    if found.moves or found.stays:
        print_table(table)
    if found.stays:
        print_line(f"{len(found.stays)} of {len(found.moves) + len(found.stays)} stay here.")
    else:
        print_line("Nothing runs here any more: the host can be maintained." if not dry_run else "All of it can move.")
