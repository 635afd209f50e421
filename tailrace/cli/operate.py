"""What `up`, `plan`, `apply`, `rollback`, `drain`, `status` and `down` show of what they do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tailrace import up as node_up
from tailrace.cli.output import Screen, ask, can_ask, error_line, print_json, print_line, telling
from tailrace.exit_codes import ExitCode
from tailrace.fabric.difference import Change, Difference
from tailrace.host.state import default_folder
from tailrace.plan import Plan, make_plan
from tailrace.planned import match_words
from tailrace.spec.load import load_located
from tailrace.status import status as node_status
from tailrace.up import Applied, PlanMaker, Proposal

_SIGNS = {"add": ("+", "green"), "change": ("~", "yellow"), "remove": ("-", "red")}
_FLAPS = 5  # stations that flap, of each bridge: a guest may have any number do so


def up(spec_path: Path, *, huge: bool, dry_run: bool, as_json: bool) -> int:
    spec, document = load_located(spec_path)
    plan = make_plan(spec, huge=huge, document=document)
    if dry_run:
        with document.locating():
            node_up.look_ahead(default_folder(), plan)
        if as_json:
            print_json({"plan": plan.identity, **plan.as_data()})
        else:
            print_line("\n".join(plan.lines()))
        return 0
    if not as_json:
        with telling("continuing"):
            print_line(plan.placement.headline)
    with document.locating():
        raised = node_up.bring_up(default_folder(), plan, str(spec_path.absolute()))
    with telling(raised.said):
        if as_json:
            print_json({"changed": raised.changed, "notes": raised.notes, **node_status(default_folder())})
            return 0
        _notes(raised.notes)
        print_line(f"{raised.said}. See `tailrace status`; end it with `tailrace down`.")
    return 0


# --- plan, apply, rollback, drain ----------------------------------------------------------------------------------


def _maker(spec_path: Path, huge: bool | None) -> tuple[PlanMaker, Any]:
    """How a spec becomes a plan beside the one that is up; memory is as it is there unless `huge` says otherwise."""
    spec, document = load_located(spec_path)

    def make(old: Plan | None) -> Plan:
        pages = huge if huge is not None else (old.huge if old else True)
        return make_plan(spec, huge=pages, document=document, keep=old.placement if old else None)

    return make, document


def plan(spec_path: Path, *, huge: bool | None, as_json: bool) -> int:
    make, document = _maker(spec_path, huge)
    with document.locating():
        proposal = node_up.propose(default_folder(), make)
    wanted = proposal.wanted
    if as_json:
        print_json(_as_data(proposal))
    else:
        show_difference(wanted, Screen(highlight=False))
        if proposal.version is None:
            print_line("Nothing is up: `tailrace up` creates all of this.")
        elif not wanted.nothing and not wanted.fixed:
            print_line(
                f"This is the difference to version {proposal.version}. To apply it, if that version is still up: "
                f"`tailrace apply {spec_path} --base {proposal.version}`."
            )
    return ExitCode.DONE if wanted.nothing else ExitCode.DIFFERENT


def apply(spec_path: Path, *, huge: bool | None, base: int | None, yes: bool, as_json: bool) -> int:
    make, document = _maker(spec_path, huge)
    if not yes and can_ask():
        notes = node_up.resume(default_folder())
        with document.locating():
            proposal = node_up.propose(default_folder(), make)
        if not as_json:
            _notes(notes)
        if not proposal.wanted.nothing:
            if not as_json:
                show_difference(proposal.wanted, Screen(highlight=False))
            if not proposal.wanted.fixed:
                sys.stdout.flush()
                ask("Make these changes?")
            base = proposal.version if base is None else base
    with document.locating():
        applied = node_up.apply(default_folder(), make, str(spec_path.absolute()), base)
    return _show_applied(applied, "is up as it stands: nothing to change", as_json=as_json)


def rollback(*, base: int | None, as_json: bool) -> int:
    applied = node_up.rollback(default_folder(), base)
    return _show_applied(applied, "is the same as what is up: nothing to change", as_json=as_json)


def drain(replica: str, *, active: bool, as_json: bool) -> int:
    applied = node_up.drain(default_folder(), replica, active=active)
    word = "active" if active else "draining"
    more = f"{replica} gets no new flow; `tailrace status` says how many it still has." if not active else ""
    return _show_applied(applied, f"{replica} is {word} already: nothing to change", more, as_json=as_json)


def _show_applied(applied: Applied, same: str, more: str = "", *, as_json: bool) -> int:
    with telling(f"version {applied.version} is up all the same"):
        _tell_applied(applied, same, more, as_json=as_json)
    return 0


def _tell_applied(applied: Applied, same: str, more: str, *, as_json: bool) -> None:
    if as_json:
        said = {"changed": applied.changed, "version": applied.version, "notes": applied.notes}
        print_json({**_as_data(applied.proposal), **said})
        return
    if not applied.changed:
        _notes(applied.notes)
        print_line(f"Version {applied.version}: {same}.")
        return
    show_difference(applied.proposal.wanted, Screen(highlight=False))
    _notes(applied.notes)
    print_line(f"Version {applied.version} is up{_way_back(applied)}")
    if more:
        print_line(more)


def _way_back(applied: Applied) -> str:
    """The end of the sentence that says what is up: what `tailrace rollback` would do now."""
    if not applied.repaired:
        return ". Go back with `tailrace rollback`."
    before = f"; `tailrace rollback` goes back to what was up before it, of {applied.back_to}"
    return f": the same as before, with what had ended{before if applied.back_to else ''}."


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        print_line(f"note: {note}")


def _as_data(proposal: Proposal) -> dict[str, Any]:
    wanted = proposal.wanted
    return {
        "version": proposal.version,
        "changes": [change.as_data() for change in wanted.changes],
        "counts": wanted.counts(),
        "start": list(wanted.start),
        "stop": list(wanted.stop),
        "needs_restart": list(wanted.fixed),
    }


def show_difference(wanted: Difference, console: Console) -> None:
    """The difference as lines with +, ~ and -, coloured on a terminal, and their sum."""
    for change in wanted.changes:
        console.print(change_line(change), soft_wrap=True)
    for fixed in wanted.fixed:
        console.print(Text(f"! {fixed}: needs a restart of the switch (`tailrace down`, `tailrace up`)", style="red"))
    if wanted.nothing:
        console.print("No changes: what is up is what the spec asks for.")
        return
    counts = wanted.counts()
    console.print(f"{counts['add']} to add, {counts['change']} to change, {counts['remove']} to remove.")


def change_line(change: Change) -> Text:
    sign, colour = _SIGNS[change.change]
    line = Text(f"{sign} {change.what} {change.name}", style=colour)
    detail = "; ".join(each for each in change.detail if each)
    return line.append(f"  {detail}", style="default") if detail else line


# --- status and down -----------------------------------------------------------------------------------------------


def status(*, as_json: bool) -> int:
    found = node_status(default_folder())
    code = ExitCode.FAILED if found["state"] == "broken" else ExitCode.DONE
    if as_json:
        print_json(found)
        return code
    if found["state"] == "down":
        print_line("Nothing is up.")
        return 0
    back = "" if found["owner"] else f"`tailrace up {found['spec']}` brings it back, "
    broken = f"{'; '.join(found['broken'])} ({back}`tailrace down` clears it)"
    words = {"up": "Up", "broken": f"BROKEN: {broken}"}
    head = words.get(found["state"], f"A run is at work (process {found['owner']})")
    version = f" (version {found['version']})" if found["version"] else ""
    print_line(f"{head}: {found['spec']}{version}")
    _show_status(found, Screen(highlight=False))
    return code


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _show_status(found: dict[str, Any], console: Console) -> None:
    for change in found["unlike"]:
        if change["change"] != "add":
            how = f"`tailrace plan {found['spec']}` shows how"
            print_line(f"note: {change['what']} {change['name']} is not as planned; {how}")
    processes = _table("process", "pid", "state")
    for process in found["processes"]:
        processes.add_row(process["name"], str(process["pid"]), "running" if process["alive"] else "ended")
    console.print(processes)
    ports = _table("port", "state", "received", "sent", "drops")
    for port in found["ports"]:
        drops = ", ".join(f"{name.removeprefix('drop_')} {count}" for name, count in port["drops"].items())
        state = port["state"] + (f" ({port['reason']})" if port["reason"] else "")
        ports.add_row(port["name"], state, str(port["received_packets"]), str(port["sent_packets"]), drops or "none")
    console.print(ports)
    for chain in found["chains"]:
        _show_chain(chain)
    for function in found["functions"]:
        crowded = function.get("crowded")
        if len(function["replicas"]) > 1 or function["replicas"][0]["state"] != "active" or crowded:
            print_line(f"function {function['name']}: {', '.join(map(_replica_words, function['replicas']))}")
        if crowded:
            print_line(f"  {crowded} times the flow table was full")
    for bridge in found["bridges"]:
        _show_bridge(bridge)


def _show_chain(chain: dict[str, Any]) -> None:
    path = " ".join([chain["from"], *chain["through"], chain["to"]])
    match = " or ".join(match_words(each) for each in chain["match"])
    print_line(f"chain {chain['name']}: {path}{f' for {match}' if match else ''}")
    places = [chain["from"], *chain["through"], chain["to"]]
    for number, hop in enumerate(chain["hops"]):
        if len(places) < number + 2:
            break
        drops = {name: count for name, count in hop.items() if "_drop_" in name and count}
        said = ", ".join(f"{name.replace('_drop_', ' ')} {count}" for name, count in drops.items())
        print_line(
            f"  {places[number]} → {places[number + 1]}: {hop.get('forward_packets', 0)} there, "
            f"{hop.get('back_packets', 0)} back{f'; dropped: {said}' if said else ''}"
        )


def _replica_words(replica: dict[str, Any]) -> str:
    flows = "" if replica["flows"] is None else f", {replica['flows']} flows{' left' * (replica['state'] != 'active')}"
    return f"{replica['name']} ({replica['state']}{flows})"


def _show_bridge(bridge: dict[str, Any]) -> None:
    learned = bridge.get("macs", [])
    print_line(f"bridge {bridge['name']}: {len(learned)} MAC addresses")
    if bridge.get("unlearned"):
        print_line(
            f"  {bridge['unlearned']} times an address was not learned: the table, or its port's share, was full"
        )
    flaps = sorted(bridge.get("flaps", []), key=lambda flap: float(flap["last"]))
    for flap in flaps[:_FLAPS]:
        print_line(
            f"  {flap['mac']}{_vlan_words(flap)} flaps: {flap['moves']} moves, the last from {flap['from']} to "
            f"{flap['to']} {flap['last']:.0f} s ago"
        )
    if len(flaps) > _FLAPS:
        print_line(f"  {len(flaps) - _FLAPS} more flapped before")
    for entry in learned:
        print_line(f"  {entry['mac']}{_vlan_words(entry)} at {entry['port']}")


def _vlan_words(entry: dict[str, Any]) -> str:
    return f" VLAN {entry['vlan']}" if entry.get("vlan") else ""


def down(*, as_json: bool) -> int:
    lowered = node_up.take_down(default_folder())
    said = f"Down: {len(lowered.undone)} things undone, nothing of ours is left." if not lowered.problems else ""
    said = said if lowered.undone else "Nothing was up."
    with telling(said.rstrip(".") or "not everything could be undone"):
        if as_json:
            print_json({"undone": lowered.undone, "problems": lowered.problems, "notes": lowered.notes})
        else:
            print_line(said)
            _notes(lowered.notes)
    for problem in lowered.problems:
        error_line(problem)
    return ExitCode.FAILED if lowered.problems else ExitCode.DONE
