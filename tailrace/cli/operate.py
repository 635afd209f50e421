"""What `up`, `plan`, `apply`, `rollback`, `drain`, `status` and `down` show of what the service does.

What these commands need is loaded when they need it: most only ask, and are to answer at once.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.cli.output import ask, can_ask, error_line, plain_console, print_json, print_line, telling
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import ExitCode, Mistake
from tailrace.node import client
from tailrace.node.client import NoService
from tailrace.process.control import ControlLost
from tailrace.spec.source import printable, read_source
from tailrace.state.folder import default_folder, not_yours

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Answer = Mapping[str, Any]
_SIGNS = {"add": ("+", "green"), "change": ("~", "yellow"), "remove": ("-", "red")}
_PATIENCE = 5.0
"""Seconds for a service that is about to end."""
_LOOK_SECONDS = 0.2
"""Between two looks whether a replica that drains has flows."""
_FLAPS = 5  # stations that flap, of each bridge: a guest may have any number do so


def ask_service(
    method: str, *, start: bool = True, look: bool = False, show: bool = True, **params: Any
) -> dict[str, Any]:
    """One method of the node's service. `look`: by the socket for those who may only look. `show`: lines about what is
    being done are printed."""
    logger = logging.getLogger("tailrace")
    verbose = 2 if logger.isEnabledFor(logging.DEBUG) else int(logger.isEnabledFor(logging.INFO))

    def told(text: str) -> None:
        if show:
            with telling("continuing"):
                print_line(text)

    answer: dict[str, Any] = client.ask(
        default_folder(),
        method,
        look=look,
        start=start,
        told=told,
        logged=logger.log,
        verbose=verbose,
        **params,
    )
    return answer


def check_up() -> None:
    """Raises Mistake where nothing is up here, as every change says it, before a service is started to be asked."""
    from tailrace.node import operations
    from tailrace.state.record import peek

    folder = default_folder()
    operations.check_up(folder, peek(folder))


def _spec(path: Path) -> dict[str, str]:
    """A spec's file as the service takes it. Raises Mistake."""
    shown = printable(str(path))
    return {"text": read_source(path), "name": shown, "path": str(path.absolute()), "folder": str(Path.cwd())}


def up(spec_path: Path, *, huge: bool, dry_run: bool, as_json: bool) -> int:
    spec = _spec(spec_path)
    if dry_run:
        return _dry_run(spec, huge=huge, as_json=as_json)
    raised = ask_service("node.up", show=not as_json, spec=spec, huge=huge)
    with telling(raised["said"]):
        if as_json:
            print_json({"changed": raised["changed"], "notes": raised["notes"], **_found()})
            return 0
        _notes(raised["notes"])
        print_line(f"{raised['said']}. See `tailrace status`; end it with `tailrace down`.")
    return 0


def _dry_run(spec: Mapping[str, str], *, huge: bool, as_json: bool) -> int:
    from tailrace.node import operations

    make, document = operations.planner(spec["text"], spec["name"], Path(spec["folder"]), huge, default_folder())
    plan = make(None)
    with document.locating():
        plan = operations.look_ahead(default_folder(), plan)
    if as_json:
        print_json({"plan": plan.identity, **plan.as_data()})
    else:
        print_line("\n".join(plan.lines()))
    return 0


# --- plan, apply, rollback, drain ----------------------------------------------------------------------------------


def _propose(spec: Mapping[str, str], huge: bool | None) -> dict[str, Any]:
    """What `apply` would do; without a service, of what one that has ended has left up."""
    with suppress(NoService):
        return ask_service("node.plan", start=False, look=True, spec=spec, huge=huge)
    from tailrace.node import operations

    make, document = operations.planner(spec["text"], spec["name"], Path(spec["folder"]), huge, default_folder())
    with document.locating():
        return operations.propose(default_folder(), make).as_data()


def plan(spec_path: Path, *, huge: bool | None, as_json: bool) -> int:
    wanted = _propose(_spec(spec_path), huge)
    if as_json:
        print_json(_without(wanted, "nothing"))
    else:
        for line in wanted.get("common", ()):
            print_line(line)
        show_difference(wanted, plain_console())
        _notes(wanted["notes"])
        if wanted["version"] is None:
            print_line("Nothing is up: `tailrace up` creates all of this.")
        elif not wanted["nothing"] and not wanted["needs_restart"]:
            print_line(
                f"This is the difference to version {wanted['version']}. To apply it, if that version is still up: "
                f"`tailrace apply {spec_path} --base {wanted['version']}`."
            )
    return ExitCode.DONE if wanted["nothing"] else ExitCode.DIFFERENT


def apply(spec_path: Path, *, huge: bool | None, base: int | None, yes: bool, as_json: bool) -> int:
    spec = _spec(spec_path)
    shown: list[str] = []
    if not yes and can_ask():
        notes = ask_service("node.resume")["notes"]
        wanted = _propose(spec, huge)
        if not as_json:
            _notes(notes)
        if not wanted["nothing"]:
            if not as_json:
                show_difference(wanted, plain_console())
                shown = wanted["notes"]
                _notes(shown)
            if not wanted["needs_restart"]:
                sys.stdout.flush()
                ask("Make these changes?")
            base = wanted["version"] if base is None else base
    applied = ask_service("node.apply", spec=spec, huge=huge, base=base)
    applied["notes"] = [each for each in applied["notes"] if each not in shown]
    return _show_applied(applied, "is up as it stands: nothing to change", as_json=as_json)


def rollback(*, base: int | None, as_json: bool) -> int:
    applied = ask_service("node.rollback", base=base)
    return _show_applied(applied, "is the same as what is up: nothing to change", as_json=as_json)


def drain(replica: str, *, active: bool, as_json: bool) -> int:
    applied = ask_service("node.drain", replica=replica, active=active)
    word = "active" if active else "draining"
    more = f"{replica} gets no new flow; `tailrace status` says how many it still has." if not active else ""
    return _show_applied(applied, f"{replica} is {word} already: nothing to change", more, as_json=as_json)


def scale(name: str, count: int, wait: str, *, as_json: bool) -> int:
    """Adds replicas, or drains those that are too many and ends each once it has no flow, or when the wait is over."""
    from tailrace.spec.units import parse_duration

    try:
        seconds = parse_duration(wait)
    except ValueError as error:
        raise Mistake(f"--wait: {error}") from None
    applied = ask_service("function.scale", name=name, count=count)
    draining = _flows_left(name)
    if not draining:
        return _show_applied(applied, f"{name} has {count} already: nothing to change", as_json=as_json)
    deadline = time.monotonic() + seconds
    while any(draining.values()) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        draining = _flows_left(name)
    left = sum(draining.values())
    applied = ask_service("function.scale", name=name, count=count, remove=True)
    more = f"{left} flows were moved, because they had not ended within {wait}." if left else ""
    return _show_applied(applied, "nothing to change", more, as_json=as_json)


def _flows_left(name: str) -> dict[str, int]:
    """How many flows each replica of a function has that drains."""
    functions = ask_service("node.status", show=False)["functions"]
    replicas: list[dict[str, Any]] = next((each["replicas"] for each in functions if each["name"] == name), [])
    return {each["name"]: each["flows"] or 0 for each in replicas if each["state"] == "draining"}


def function_cpus(name: str, count: int, *, as_json: bool) -> int:
    applied = ask_service("function.cpus", name=name, count=count)
    more = [_resized_words(each, at) for each, at in applied["resized"].items()]
    if applied["changed"]:
        more.append(f"All was done after {applied['milliseconds']:.1f} ms.")
    cpus = f"{count} CPU{'' if count == 1 else 's'}"
    return _show_applied(applied, f"{name} has {cpus} already: nothing to change", "\n".join(more), as_json=as_json)


def _resized_words(name: str, resized: Mapping[str, Any]) -> str:
    after = f"after {resized['handed_over_ms']:.1f} ms"
    if resized["vcpus_moved"] is not None:
        moved = resized["vcpus_moved"]
        return f"{name}: {moved} virtual CPU{' was' if moved == 1 else 's were'} moved {after}."
    moved = resized["queues_moved"]
    said = f"{name}: {moved} queue{' was' if moved == 1 else 's were'} handed over {after}"
    if len(resized["now"]) <= len(resized["before"]):
        return f"{said}."
    first = resized["first_frame_ms"]
    came = (
        "no frame has come on a new CPU yet" if first is None else f"the first frame on a new CPU after {first:.1f} ms"
    )
    return f"{said}; {came}."


def stop(name: str, *, as_json: bool) -> int:
    stopped = ask_service("function.stop", name=name)["stopped"]
    with telling("it was stopped"):
        if as_json:
            print_json({"stopped": stopped})
        else:
            print_line(f"Stopped: {', '.join(stopped)}. `tailrace function start {name}` starts it again.")
    return 0


def start(name: str, *, as_json: bool) -> int:
    applied = ask_service("function.start", name=name)
    return _show_applied(applied, f"{name} was not stopped", anew=name, as_json=as_json)


def restart(name: str, *, as_json: bool) -> int:
    applied = ask_service("function.restart", name=name)
    return _show_applied(applied, f"{name} was not replaced", anew=name, as_json=as_json)


def restore(name: str, file: Path, *, as_json: bool) -> int:
    applied = ask_service("function.restore", name=name, file=str(file.absolute()))
    return _show_applied(applied, f"{name} was not replaced", anew=name, as_json=as_json)


def clone(name: str, to: str, *, as_json: bool) -> int:
    applied = ask_service("function.clone", name=name, to=to)
    return _show_applied(applied, f"{to} was not replaced", anew=to, as_json=as_json)


def _show_applied(applied: Answer, same: str, more: str = "", *, anew: str = "", as_json: bool) -> int:
    """`same`: what to say where nothing has changed; `anew`: the function that was to have a new instance."""
    with telling(f"version {applied['version']} is up all the same"):
        _tell_applied(applied, same, more, anew, as_json=as_json)
    return 0


def _tell_applied(applied: Answer, same: str, more: str, anew: str, *, as_json: bool) -> None:
    if as_json:
        print_json(_without(applied, "nothing", "back_to", "repaired", "service_ends"))
        return
    if not applied["changed"]:
        _notes(applied["notes"])
        print_line(f"Version {applied['version']}: {same}.")
        return
    show_difference(applied, plain_console())
    _notes(applied["notes"])
    print_line(f"Version {applied['version']} is up{_way_back(applied, anew)}")
    if more:
        print_line(more)


def _way_back(applied: Answer, anew: str) -> str:
    """The end of the sentence that says what is up: what `tailrace rollback` would do now."""
    if not applied["repaired"]:
        return ". Go back with `tailrace rollback`."
    before = f"; `tailrace rollback` goes back to what was up before it, of {applied['back_to']}"
    other = f"a new instance of {anew}" if anew else "what had ended"
    return f": the same as before, with {other}{before if applied['back_to'] else ''}."


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        print_line(f"note: {note}")


def _without(answer: Answer, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key not in keys}


def show_difference(wanted: Answer, console: Console) -> None:
    """The difference as lines with +, ~ and -, coloured on a terminal, and their sum."""
    from rich.text import Text

    for change in wanted["changes"]:
        console.print(change_line(change), soft_wrap=True)
        if change.get("why"):
            console.print(Text(f"    core: {change['why']}", style="dim"), soft_wrap=True)
    for fixed in wanted["needs_restart"]:
        console.print(Text(f"! {fixed}: needs a restart of the switch (`tailrace down`, `tailrace up`)", style="red"))
    if wanted["nothing"]:
        console.print("No changes: what is up is what the spec asks for.")
        return
    counts = wanted["counts"]
    console.print(f"{counts['add']} to add, {counts['change']} to change, {counts['remove']} to remove.")


def change_line(change: Answer) -> Text:
    from rich.text import Text

    sign, colour = _SIGNS[change["change"]]
    line = Text(f"{sign} {change['what']} {change['name']}", style=colour)
    detail = "; ".join(each for each in change["detail"] if each)
    return line.append(f"  {detail}", style="default") if detail else line


# --- status and down -----------------------------------------------------------------------------------------------


def _found() -> dict[str, Any]:
    """What is up: by the service or, where that has ended, by what it has left."""
    with suppress(NoService):
        answer: dict[str, Any] = client.ask(default_folder(), "node.status", look=True, start=False)
        return answer
    from tailrace.node.status import status

    return status(default_folder())


def status(*, as_json: bool) -> int:
    found = _found()
    code = ExitCode.FAILED if found["state"] == "broken" else ExitCode.DONE
    if as_json:
        print_json(found)
        return code
    if found["state"] == "down":
        print_line("Nothing is up.")
        _notes([elsewhere] if (elsewhere := not_yours(default_folder())) else [])
        return 0
    back = "" if found["owner"] else f"`tailrace up {found['spec']}` brings it back, "
    broken = f"{'; '.join(found['broken'])} ({back}`tailrace down` clears it)"
    words = {"up": "Up", "broken": f"BROKEN: {broken}"}
    head = words.get(found["state"], f"A run is at work (process {found['owner']})")
    version = f" (version {found['version']})" if found["version"] else ""
    print_line(f"{head}: {found['spec']}{version}")
    if found["service"] is None and found["owner"] is None:
        print_line(f"note: no service watches it; `tailrace up {found['spec']}` starts one")
    _show_status(found)
    return code


def _show_status(found: dict[str, Any]) -> None:
    for change in found["unlike"]:
        if change["change"] != "add":
            how = f"`tailrace plan {found['spec']}` shows how"
            if change["what"] == "process":  # by who runs it, of which no plan knows
                how = ", ".join(change["detail"])
            print_line(f"note: {change['what']} {change['name']} is not as planned; {how}")
    processes = PlainTable("process", "pid", "state")
    for process in found["processes"]:
        cpus = f", on CPU {', '.join(map(str, process['cpus']))}" if process.get("cpus") else ""
        processes.add_row(process["name"], str(process["pid"]), f"running{cpus}" if process["alive"] else "ended")
    print_table(processes)
    ports = PlainTable("port", "state", "received", "sent", "drops")
    replicas = [each for function in found["functions"] for each in function["replicas"]]
    stopped = {each["name"]: each for each in replicas if each["state"] == "stopped"}
    for port in found["ports"]:
        drops = ", ".join(f"{name.removeprefix('drop_')} {count}" for name, count in port["drops"].items())
        why = _how_to_start(port["name"], stopped) or port["reason"]
        if port.get("bond"):
            from tailrace.fabric.base import members_words

            why = members_words(port["bond"], why)
        state = port["state"] + (f" ({why})" if why else "")
        ports.add_row(port["name"], state, str(port["received_packets"]), str(port["sent_packets"]), drops or "none")
    print_table(ports)
    for chain in found["chains"]:
        _show_chain(chain)
    for function in found["functions"]:
        crowded = function.get("crowded")
        first = function["replicas"][0]
        if len(function["replicas"]) > 1 or first["state"] != "active" or first.get("failover") or crowded:
            print_line(f"function {function['name']}: {', '.join(map(_replica_words, function['replicas']))}")
        if said := outage_words(function.get("outages", {})):
            print_line(f"function {function['name']}: {said}")
        if crowded:
            print_line(f"  {crowded} times the flow table was full")
    for bridge in found["bridges"]:
        _show_bridge(bridge)


def _how_to_start(port: str, stopped: Mapping[str, dict[str, Any]]) -> str | None:
    """What starts the function of a port, if that was stopped."""
    if not stopped:
        return None
    from tailrace.switch.config import planned_port  # which takes as long to load as the rest of `status`

    owner = planned_port(port).rpartition(".")[0]
    if owner not in stopped:
        return None
    if (there := stopped[owner].get("moved_to")) is not None:
        return f"moved to {there}"
    if stopped[owner].get("arrives"):
        return "comes by `tailrace migrate`"
    return f"`tailrace function start {owner}` starts it"


def _show_chain(chain: dict[str, Any]) -> None:
    path = " ".join([chain["from"], *chain["through"], chain["to"]])
    match = _match(chain["match"]) if chain["match"] else ""
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


def _match(match: Sequence[dict[str, Any]]) -> str:
    from tailrace.plan.planned import match_words

    return " or ".join(match_words(each) for each in match)


def _replica_words(replica: dict[str, Any]) -> str:
    flows = "" if replica["flows"] is None else f", {replica['flows']} flows{' left' * (replica['state'] != 'active')}"
    behind = "".join(f", {each}" for each in in_step_words(replica.get("in_step", ())))
    ways = "".join(f", port {each['port']} by {each['by'] or 'the switch'}" for each in replica.get("failover", ()))
    handed = replica.get("handed_to")
    there = replica.get("moved_to")
    left = f", moved to {handed}, which has not said that it has it" if handed is not None else ""
    left = f", moved to {there}" if there is not None else left
    return f"{replica['name']} ({replica['state']}{flows}{behind}{ways}{left})"


def outage_words(counts: Mapping[str, int]) -> str:
    """Out 3 times (bypassed 2, dropped 1), 120 frames lost; empty where nothing was."""
    ways = {"bypassed": "bypass", "blocked": "block", "dropped": "drop"}
    said = {way: count for way, key in ways.items() if (count := counts.get(key, 0))}
    times = sum(said.values())
    out = f"out {times} time{'' if times == 1 else 's'} ({', '.join(f'{way} {count}' for way, count in said.items())})"
    lost = counts.get("lost", 0)
    return ", ".join([*([out] if times else []), *([f"{lost} frames lost"] if lost else [])])


def in_step_words(said: Iterable[dict[str, Any]]) -> Iterator[str]:
    """How far a function in standby is behind each of those whose connections it gets."""
    for each in said:
        behind, lost = each["behind_ms"], ", ".join(f"{number} {name}" for name, number in each["not_taken"].items())
        words = "not all connections yet" if behind is None else f"{behind / 1e3:.1f} s behind"
        words += f" of {each['of']}" + (f" (not taken: {lost})" if lost else "")
        yield f"{words}: {each['why']}" if each["why"] else words


def outages(name: str) -> dict[str, int]:
    """How often a function, or that of a replica, was out, and what it lost; nothing where no service runs."""
    for function in _found()["functions"]:
        if name in (function["name"], *(each["name"] for each in function["replicas"])):
            return dict(function.get("outages", {}))
    return {}


def in_step(name: str) -> list[dict[str, Any]]:
    """The same of one function, as the service says it; nothing where none runs."""
    replicas = [each for function in _found()["functions"] for each in function["replicas"]]
    return next((each["in_step"] for each in replicas if each["name"] == name), [])


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


def events(since: int | None, *, alarms: bool, as_json: bool) -> int:
    try:
        listening = client.Client(default_folder(), look=True)
    except NoService:
        raise Mistake("no service runs, so nothing can be heard of; start one with `tailrace up SPEC`") from None
    try:
        listening.subscribe(since)
        while True:
            event = listening.next_event()
            if event is not None and (not alarms or event.get("level", "alarm") == "alarm"):
                print_line(json.dumps(event) if as_json else _event_line(event))
                sys.stdout.flush()
    except (KeyboardInterrupt, ControlLost):
        return ExitCode.DONE
    finally:
        listening.close()


def _event_line(event: Mapping[str, Any]) -> str:
    """2026-11-27T10:36:31.428Z function.died first (pid 8626, again_in 0)"""
    if event["kind"] == "events.lost":
        return f"events {event['from']} to {event['to']} are not kept any more"
    said = [f"{name.replace('_', ' ')} {value}" for name, value in event["details"].items() if value is not None]
    details = ", ".join(said)
    about = f" {event['about']}" if event["about"] else ""
    return printable(f"{event['time']} {event['kind']}{about}{f' ({details})' if details else ''}")


def _lower() -> dict[str, Any]:
    """Takes everything down: by the service, or here where none runs. It has ended then, if it was there for this."""
    with suppress(NoService):
        answer: dict[str, Any] = client.ask(default_folder(), "node.down", start=False)
        return answer
    from dataclasses import asdict

    from tailrace.node.operations import take_down
    from tailrace.node.strays import strays
    from tailrace.state.ours import forget_service
    from tailrace.state.record import holding

    if not default_folder().exists() and not strays(default_folder()):
        return {"undone": [], "problems": [], "notes": []}
    with holding(default_folder(), patience=_PATIENCE) as held:
        lowered = take_down(held)
        forget_service(held.folder)
        return asdict(lowered)


def down(*, as_json: bool) -> int:
    lowered = _lower()
    undone, problems = lowered["undone"], lowered["problems"]
    said = f"Down: {len(undone)} things undone, nothing of ours is left." if not problems else ""
    said = said if undone else "Nothing was up."
    with telling(said.rstrip(".") or "not everything could be undone"):
        if as_json:
            print_json(_without(lowered, "service_ends"))
        else:
            print_line(said)
            elsewhere = None if undone else not_yours(default_folder())
            _notes([*lowered["notes"], *([elsewhere] if elsewhere else [])])
    for problem in problems:
        error_line(problem)
    return ExitCode.FAILED if problems else ExitCode.DONE
