"""What is up, as plain data: the record's processes, and what the switch says of ports, chains, bridges and flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake, TailraceError
from tailrace.fabric.base import PortState
from tailrace.fabric.tailrace import port_states
from tailrace.functions.runtimes import program_of
from tailrace.functions.runtimes import unlike as unlike_outside
from tailrace.node.difference import Change, unlike
from tailrace.node.outages import LOST, functions_of
from tailrace.node.strays import check_no_strays
from tailrace.observe.page import Page
from tailrace.plan.planned import Plan, cpus_of, identity_of
from tailrace.process.control import UNKNOWN, Control, ControlError
from tailrace.state.card_functions import have_functions, why_missing
from tailrace.state.folder import folder_in_use
from tailrace.state.record import Outages, Process, Record, State, VfioFile, check_ours, peek
from tailrace.switch.config import SWITCH, function_name, instance_name

_METHOD_MISSING = -32601


def status(folder: Path) -> dict[str, Any]:
    """What is up; looks only. Raises Failure if the record is damaged, or lost of what runs, Mistake if it is another
    user's."""
    nothing: dict[str, Any] = {
        "state": "down",
        "service": None,
        "folder": str(folder),
        "broken": [],
        "unlike": [],
        "processes": [],
        "ports": [],
        "chains": [],
        "functions": [],
        "bridges": [],
    }
    folder = folder_in_use(folder)
    if not (folder / "state.json").exists():
        check_no_strays(folder)
        return nothing
    record = peek(folder)
    if not record.things:
        return nothing
    check_ours(folder)
    try:
        return _of_record(State(folder, record))
    except (LookupError, TypeError, ValueError, AttributeError):
        Plan.read(record.plan)  # which says if it is that
        raise


def _of_record(state: State) -> dict[str, Any]:
    """What is up, of what is on record."""
    record = state.record
    threads = cpus_of(record.plan)
    processes = [
        {**_process(process, record.restarts), "cpus": threads.get(function_name(process.name))}
        for process in state.processes()
    ]
    switch = _switch(state)
    changes = _unlike(state, switch) + changed_outside(state)
    broken = [] if record.complete else ["not all of it was started"]
    broken += [f"{process['name']} has ended" for process in processes if not process["alive"]]
    if switch is None and any(process["name"] == SWITCH and process["alive"] for process in processes):
        broken.append("the switch does not answer")
    for port in switch["ports"] if switch else []:
        if port["state"] not in ("up", "waiting"):
            broken.append(f"port {port['name']} is {port['state']}")
    broken += [f"{each.what} {each.name} is missing" for each in changes if each.change == "add"]
    broken += _card_problems(state)
    word = "broken" if broken else "up"
    if record.purpose == "run":
        at_work = record.owner is not None and record.owner.alive()
        word, broken = ("run", []) if at_work else ("broken", ["the run that this belongs to has ended"])
    placement = record.plan.get("placement", {})
    return {
        "state": word,
        "service": None,
        "folder": str(state.folder),
        "spec": record.spec,
        "plan": identity_of(record.plan),
        "version": switch["version"] if switch else None,
        "owner": record.owner.pid if record.owner and record.purpose == "run" else None,
        "oversubscribed": placement.get("oversubscribed"),
        "placement": placement,
        "broken": broken,
        "unlike": [each.as_data() for each in changes],
        "processes": processes,
        "ports": switch["ports"] if switch else [],
        "chains": [_chain(chain, switch) for chain in record.plan.get("chains", [])],
        "functions": _functions(record, switch),
        "bridges": switch["bridges"] if switch else [],
        "workers": switch["workers"] if switch else [],
    }


def _unlike(state: State, switch: dict[str, Any] | None) -> list[Change]:
    """What the switch carries otherwise than the record says; nothing while that is in the making."""
    record = state.record
    if switch is None or switch["config"] is None or record.purpose != "up" or not record.complete or record.changing:
        return []
    try:
        plan = Plan.read(record.plan)
    except Mistake:  # of another version, which says more of it
        return []
    return unlike(plan, state.sockets, record.instances, switch["config"], record.around)


def _card_problems(state: State) -> list[str]:
    """Why virtual functions that went with their card are not made again."""
    record = state.record
    if not have_functions(state) or record.purpose != "up" or not record.complete or record.changing:
        return []
    try:
        return why_missing(Plan.read(record.plan).vfs)
    except Mistake:  # of another version, which says more of it
        return []


def changed_outside(state: State) -> list[Change]:
    """The functions of which somebody else has changed something while they run."""
    found: list[Change] = []
    for process in state.processes():
        if process.runtime and process.id.alive():
            with suppress(TailraceError):  # who runs it does not answer, which its own commands say
                said = unlike_outside(process, state.logs)
                if said:
                    found.append(Change("change", "process", function_name(process.name), tuple(said)))
    return found


def _process(process: Process, restarts: Mapping[str, int]) -> dict[str, Any]:
    alive = process.id.alive()
    inner = program_of(process) if alive else None
    return {
        "name": process.name,
        "function": function_name(process.name) if process.runtime else None,
        "pid": inner or process.pid,
        "restarts": restarts.get(function_name(process.name), 0),
        "sandbox_pid": process.pid if process.runtime else None,
        "alive": alive,
    }


def _chain(chain: dict[str, Any], switch: dict[str, Any] | None) -> dict[str, Any]:
    through = chain.get("through", [])
    ends = [chain.get("start"), chain.get("end")]
    return {
        "name": chain["name"],
        "from": ends[0],
        "through": through,
        "to": ends[1],
        "match": chain.get("match", []),
        "priority": chain.get("priority", 0),
        "ports": [ends[0], *(f"{name}.{side}" for name in through for side in (0, 1)), ends[1]],
        "functions": through,
        "hops": switch["hops"].get(chain["name"], []) if switch else [],
    }


def _functions(record: Record, switch: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Each function with its replicas, how many flows each has, how many flows found no slot in the table, and how
    often it was out."""
    plan, stopped = record.plan, record.stopped
    lost = Counter[str]()
    whose = functions_of(plan)
    for port in switch["ports"] if switch else []:
        lost[whose.get(function_name(port["name"].rpartition(".")[0]), "")] += port["drops"].get(LOST, 0)
    said = {each["name"]: each for each in (switch["functions"] if switch else [])}
    found: dict[str, dict[str, Any]] = {}
    for each in plan.get("functions", []):
        name = each.get("function", each["name"])
        of_function = said.get(name, {})
        function = found.setdefault(
            name,
            {
                "name": name,
                "kind": each["kind"],
                "runs": each["runs"],
                "crowded": of_function.get("crowded"),
                "outages": _with_lost(record.outages.get(name, Outages()), lost[name]),
                "replicas": [],
            },
        )
        replicas = of_function.get("replicas", {})
        unsettled = record.unsettled.get(each["name"])
        of_switch = replicas.get(each["name"], {}) if isinstance(replicas, dict) else _named(replicas, each["name"])
        function["replicas"].append(
            {
                "name": each["name"],
                "state": "stopped" if each["name"] in stopped else each.get("state", "active"),
                "flows": of_switch.get("flows"),
                "failover": _failover(record, each),
                "in_step": [],
                "handed_to": unsettled.host if unsettled is not None else None,
                "moved_to": record.moved.get(each["name"]),
                "arrives": bool(each.get("arrives")),
            }
        )
    return list(found.values())


def _failover(record: Record, function: dict[str, Any]) -> list[dict[str, Any]]:
    """By what the frames of its ports go that may have a virtual function in front of them; None: by the switch."""
    instance = instance_name(function["name"], record.instances.get(function["name"], 1))
    plugged = {each.address for each in record.things if isinstance(each, VfioFile) and each.of == instance}
    found = []
    for each in function.get("failover", []):
        vf = each["vf"]
        there = vf is not None and vf["address"] in plugged
        found.append({"port": each["port"], "by": f"{vf['of']}/{vf['number']}" if there else None})
    return found


def _with_lost(outages: Outages, more: int) -> dict[str, int]:
    return {**outages.counts, "lost": outages.lost + more}


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next((each for each in entries if each.get("name") == name), {})


def _switch(state: State) -> dict[str, Any] | None:
    """What the running switch says; None if it does not answer."""

    def entry(port: PortState) -> dict[str, Any]:
        return {
            "name": port.name,
            "state": port.state,
            "reason": port.reason,
            "attached": port.attached,
            "bond": port.bond,
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
            configuration = _asked(control, "config.get", {})
            return {
                "ports": [entry(port) for port in port_states(control, page)],
                "hops": hops(page),
                "version": configuration.get("version"),
                "config": configuration.get("config"),
                "bridges": _asked(control, "bridge.list", []),
                "functions": _asked(control, "function.list", []),
                "workers": _asked(control, "worker.list", []),
            }
        finally:
            page.close()
    except Failure:
        return None
    finally:
        control.close()


def _asked(control: Control, method: str, otherwise: Any) -> Any:
    """The answer of a method that another version of the switch may lack."""
    try:
        return control.call(method)
    except ControlError as error:
        if error.code in (_METHOD_MISSING, UNKNOWN):
            return otherwise
        raise


def hops(page: Page) -> dict[str, list[dict[str, int]]]:
    """The counters of each chain's hops, in order."""
    found: dict[str, dict[int, dict[str, int]]] = {}
    for slot in page.slots():
        chain, _, number = slot.name.rpartition("/")
        if slot.kind == "hop" and number.isdigit():
            found.setdefault(chain, {})[int(number)] = slot.counters
    return {chain: [numbered[number] for number in sorted(numbered)] for chain, numbered in found.items()}
