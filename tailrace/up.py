"""`tailrace up`, `status` and `down`: a plan applied to live on, looked at, and undone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Interrupted, Mistake, TailraceError
from tailrace.fabric.base import PortState
from tailrace.host.process import identify
from tailrace.host.state import Process, Record, State, hold, peek
from tailrace.measure.session import undisturbed
from tailrace.node import Node
from tailrace.plan import Plan, identity_of
from tailrace.vnf.sandbox import program_in


@dataclass(frozen=True)
class Raised:
    """What `up` came to."""

    changed: bool
    said: str
    notes: tuple[str, ...] = ()


def bring_up(folder: Path, plan: Plan, spec: str) -> Raised:
    """Applies a plan. The same plan again changes nothing, or brings back what has ended. Raises Mistake, Failure."""
    with hold(folder) as state:
        record = state.record
        again = ""
        if record.things:
            if record.purpose != "up":
                raise Mistake("a crashed run has left something; run `tailrace down` first")
            if identity_of(record.plan) != plan.identity:
                raise Mistake(f"another plan ({record.spec}) is up; run `tailrace down` first")
            dead = [process.name for process in state.processes() if not process.id.alive()]
            if record.complete and not dead:
                return Raised(False, "already up: this very plan, and all of it is alive")
            again = f" again ({', '.join(dead)} had ended)" if dead else " again (it was incomplete)"
            problems = state.undo_all()
            if problems:
                raise Failure("; ".join(problems))
            folder.mkdir(exist_ok=True)
            state.record = Record(boot=record.boot)
        return _apply(state, plan, spec, again)


def _apply(state: State, plan: Plan, spec: str, again: str) -> Raised:
    state.record.purpose = "up"
    state.record.owner = identify(os.getpid())
    state.record.plan = plan.as_data()
    state.record.spec = spec
    state.save()
    node = Node.of(state, plan, logs=state.logs, tied=False)
    try:
        node.prepare()
        node.start()
    except BaseException as error:
        with undisturbed():
            problems = state.undo_all()
        left = f" (and could not be taken down: {'; '.join(problems)})" if problems else ""
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"{error or 'interrupted by Ctrl-C'}; everything was taken down{left}") from None
        if isinstance(error, TailraceError) and problems:
            raise Failure(f"{error}{left}") from None
        raise
    count = len(plan.functions)
    functions = f"{count} function{'' if count == 1 else 's'}"
    return Raised(True, f"up{again}: {functions}, {len(plan.chains)} chain(s)", tuple(node.notes))


@dataclass(frozen=True)
class Lowered:
    """What `down` came to."""

    undone: list[str]
    problems: list[str]


def take_down(folder: Path) -> Lowered:
    """Undoes all that is on record, after any end; harmless where nothing is up. Raises Mistake if a run is at work."""
    if not folder.exists():
        return Lowered([], [])
    with hold(folder) as state:
        undone = [_describe(thing) for thing in state.record.things]
        with undisturbed():
            return Lowered(undone, state.undo_all())


def _describe(thing: Any) -> str:
    if isinstance(thing, Process):
        return f"process {thing.pid} ({thing.name})"
    what = getattr(thing, "path", None) or getattr(thing, "interface", None) or getattr(thing, "added", "")
    return f"{thing.kind} {what}".strip()


def status(folder: Path) -> dict[str, Any]:
    """What is up, as plain data; looks only. Raises Failure if the record is damaged."""
    nothing: dict[str, Any] = {"state": "down", "folder": str(folder), "processes": [], "ports": [], "chains": []}
    if not (folder / "state.json").exists():
        return nothing
    record = peek(folder)
    if not record.things:
        return nothing
    state = State(folder, record)
    processes = [_process(process) for process in state.processes()]
    ports = _ports(state)
    whole = record.complete and all(process["alive"] for process in processes) and ports is not None
    whole = whole and all(port["state"] in ("up", "waiting") for port in ports or [])
    word = "up" if whole else "broken"
    if record.purpose == "run":
        word = "run" if record.owner is not None and record.owner.alive() else "broken"
    placement = record.plan.get("placement", {})
    return {
        "state": word,
        "folder": str(folder),
        "spec": record.spec,
        "plan": identity_of(record.plan),
        "owner": record.owner.pid if record.owner and record.purpose == "run" else None,
        "oversubscribed": placement.get("oversubscribed"),
        "placement": placement,
        "processes": processes,
        "ports": ports or [],
        "chains": [
            {"name": chain["name"], "ports": chain["ports"], "functions": chain["functions"]}
            for chain in record.plan.get("chains", [])
        ],
    }


def _process(process: Process) -> dict[str, Any]:
    alive = process.id.alive()
    inner = program_in(process) if alive and process.program == "bwrap" else None
    return {
        "name": process.name,
        "pid": inner or process.pid,
        "sandbox_pid": process.pid if process.program == "bwrap" else None,
        "alive": alive,
    }


def _ports(state: State) -> list[dict[str, Any]] | None:
    from tailrace.control import Control
    from tailrace.fabric.tailrace import port_states
    from tailrace.page import Page

    def entry(port: PortState) -> dict[str, Any]:
        return {
            "name": port.name,
            "state": port.state,
            "reason": port.reason,
            "received_packets": port.counters.get("received_packets", 0),
            "sent_packets": port.counters.get("sent_packets", 0),
            "drops": port.drops,
        }

    try:
        control = Control(state.control, timeout=2.0)
    except Failure:
        return None
    try:
        page = Page(state.page)
        try:
            return [entry(port) for port in port_states(control, page)]
        finally:
            page.close()
    except Failure:
        return None
    finally:
        control.close()
