"""What lies between what is up and what a plan asks for, as data: which functions start and end, and what of the
switch's configuration is new, other or gone.

Pure functions: `tailrace plan` prints the result, `tailrace apply` does what it says (`tailrace.node.change`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal

from tailrace.plan.planned import OWN_IMAGE, Plan, PlannedFunction, match_words
from tailrace.spec.balancer import SECRETS
from tailrace.spec.model import FLOW_AGEING
from tailrace.state.record import Granted
from tailrace.switch.config import SECTIONS, Config, configuration, function_name, instance_name, port_name

Kind = Literal["add", "change", "remove"]

#: What the switch takes for granted where nothing is said.
_PORT_DEFAULTS: Config = {
    "mode": "server",
    "queues": 1,
    "offloads": True,
    "absent": "drop",
    "spread": False,
    "unread": False,
}
_CHAIN_DEFAULTS: Config = {"through": [], "match": [], "priority": 0}
_FUNCTION_DEFAULTS: Config = {"ageing": FLOW_AGEING}
_REPLACED = "a new one takes its place"
_STAYS = "it stays stopped"


@dataclass(frozen=True)
class Change:
    """One line of a difference."""

    change: Kind
    what: str
    """process, port, function, chain, bridge, mirror, trace, workers."""
    name: str
    detail: tuple[str, ...] = ()
    """What is other: `through: fw → fw router`."""
    why: str = ""
    """Of a process that starts: why it is where it is."""

    def as_data(self) -> dict[str, Any]:
        data = {"change": self.change, "what": self.what, "name": self.name, "detail": list(self.detail)}
        return data | ({"why": self.why} if self.why else {})


@dataclass(frozen=True)
class Difference:
    """What is to be done, in this order: stage ports, start, change over, stop."""

    changes: tuple[Change, ...]
    start: tuple[str, ...]
    """Functions (replicas) of the plan of which a new instance starts."""
    stop: tuple[str, ...]
    """Processes that end."""
    instances: dict[str, int]
    """The instance of each function afterwards."""
    config: Config
    """What the switch is afterwards."""
    stage: Config
    """The ports that must be there before the functions start, as a merge patch."""
    config_changes: bool = False
    around: tuple[str, ...] = ()
    """Functions that have ended and stay so, of which the switch uses none."""
    tell: tuple[str, ...] = ()
    """Functions that go on, and are told something else."""
    resize: tuple[str, ...] = ()
    """Functions that go on, and have more or fewer CPUs."""
    stay: tuple[str, ...] = ()
    """Functions that were stopped and stay so, whose next instance has other ports."""
    fixed: tuple[str, ...] = field(default=())
    """What would need the switch started anew."""

    @property
    def nothing(self) -> bool:
        return not self.changes and not self.fixed

    def counts(self) -> dict[str, int]:
        return {
            "add": sum(each.change == "add" for each in self.changes),
            "change": sum(each.change == "change" for each in self.changes),
            "remove": sum(each.change == "remove" for each in self.changes),
        }


def difference(
    old: Plan | None,
    new: Plan,
    *,
    running: Config,
    instances: Mapping[str, int],
    alive: Collection[str],
    sockets: Path,
    granted: Granted | None = None,
    around: Collection[str] = (),
    anew: Collection[str] = (),
    stopped: Collection[str] = (),
) -> Difference:
    """From what is up to a plan.

    `old` is the plan that is up; `running` the switch's configuration; `granted` what the switch has kept at its start;
    `instances` and `alive` say which processes of functions there are. A process that has ended, that cannot become
    what it should be, or that is to be made `anew`, is replaced by a new one; of those `around`, which are counted
    among the living, the switch uses none. What was `stopped`, which is counted among them too, is not started unless
    it is to be made anew: it may have moved to another node.
    """
    before = {each.name: each for each in old.started} if old else {}
    after = {each.name: each for each in new.started}
    start, stop, tell, resize, stay, changes = [], [], [], [], [], []
    which: dict[str, int] = {each.name: 1 for each in new.functions if not each.started}
    for name, function in after.items():
        have = instances.get(name, 1)
        process = instance_name(name, have)
        was = before.get(name)
        why = new.placement.functions[name].why
        which[name] = have
        if was is None and function.arrives:
            changes.append(
                Change("add", "process", name, ("it comes from another node", _process_words(function, new)))
            )
        elif was is None:
            which[name] = _free(function, alive, running)
            start.append(name)
            changes.append(Change("add", "process", name, (_process_words(function, new),), why))
        elif (
            process in stopped
            and process not in anew
            and (any(_ports_gone(function, have, running)) or old is None or _replaced(name, old, new))
        ):
            which[name] = have + 1
            stay.append(name)
            stop.append(process)
            changes.append(Change("change", "process", name, (*_process_change(was, function, old, new), _STAYS), why))
        elif process in anew or process not in alive or any(_ports_gone(function, have, running)):
            which[name] = have + 1
            start.append(name)
            stop.append(process)
            ended = "" if process in anew else "it has ended: "
            changes.append(Change("change", "process", name, (f"{ended}{_REPLACED}",)))
        elif old is None or _replaced(name, old, new):
            which[name] = have + 1
            start.append(name)
            stop.append(process)
            changes.append(
                Change("change", "process", name, (*_process_change(was, function, old, new), _REPLACED), why)
            )
        else:
            said: list[str] = []
            if was.told != function.told:
                tell.append(name)
                said += _told_change(was.told or {}, function.told or {})
            if function.elastic and (was.cpus != function.cpus or _threads(name, old) != _threads(name, new)):
                resize.append(name)
                said.append(f"CPUs: {_shown_threads(name, old)} → {_shown_threads(name, new)}")
            if was.automatic != function.automatic:
                said.append(f"cpus.automatic: {json.dumps(was.automatic)} → {json.dumps(function.automatic)}")
            if was.busy != function.busy:
                said.append(f"cpus.busy: {was.busy:.0%} → {function.busy:.0%}")
            polled, polls = was.load == "rings", function.load == "rings"
            if was.automatic and function.automatic and polled != polls:
                said.append(f"cpus.polls: {json.dumps(polled)} → {json.dumps(polls)}")
            if said:
                changes.append(Change("change", "process", name, tuple(said)))
    for name in before:
        if name not in after:
            stop.append(instance_name(name, instances.get(name, 1)))
            changes.append(Change("remove", "process", name))
    changes += _set_otherwise(old, new) if old else []
    around = [name for name in after if name in around and name not in start]
    config = configuration(new, sockets, which, around)
    found = config_changes(running, config)
    own = {port_name(port, which) for name in after for port in after[name].ports}
    # What happens to a function says that its ports come and go; what a port that stays may carry is a change itself.
    shown = [
        each
        for each in found
        if each.what != "port" or each.change == "change" or not _of_function(each.name, before, after)
    ]
    stage = {
        name: config["ports"][name]
        for name in sorted(own)
        if function_name(name.rpartition(".")[0]) in start and name in config["ports"]
    }
    return Difference(
        changes=(*changes, *shown),
        start=tuple(start),
        stop=tuple(stop),
        instances={name: number for name, number in which.items() if number != 1},
        config=config,
        stage={"ports": stage} if stage else {},
        config_changes=bool(found),
        around=tuple(around),
        tell=tuple(tell),
        resize=tuple(resize),
        stay=tuple(stay),
        fixed=tuple(_fixed(old, new, granted or Granted())) if old else (),
    )


def _set_otherwise(old: Plan, new: Plan) -> list[Change]:
    """What cards are to do otherwise with virtual functions that stay."""
    before = old.vfs
    found = []
    for user, vf in new.vfs.items():
        was = before.get(user)
        if was is None or was.address != vf.address:
            continue
        words = dict.fromkeys((*was.settings, *vf.settings))
        pairs = ((word, was.settings.get(word), vf.settings.get(word)) for word in words)
        said = [f"vf.{word}: {_as_found(first)} → {_as_found(then)}" for word, first, then in pairs if first != then]
        if said:
            section, name = user.split(".")[:2]
            what = "port" if section == "ports" else "process"
            found.append(Change("change", what, name, tuple(said)))
    return found


def _as_found(value: Any) -> Any:
    return "as found" if value is None else value


def _free(function: PlannedFunction, alive: Collection[str], running: Config) -> int:
    """The first instance of which nothing is left."""
    number = 1
    while instance_name(function.name, number) in alive or not all(_ports_gone(function, number, running)):
        number += 1
    return number


def _ports_gone(function: PlannedFunction, instance: int, running: Config) -> list[bool]:
    """Of each port of an instance, whether the switch has it no more."""
    ports = running.get("ports", {})
    return [port_name(port, {function.name: instance}) not in ports for port in function.ports]


def _replaced(name: str, old: Plan, new: Plan) -> bool:
    """Whether an instance of a function cannot become what a plan has."""
    return old.function(name).fixed != new.function(name).fixed or _moved(name, old, new)


def _moved(name: str, old: Plan, new: Plan) -> bool:
    before, now = old.placement.functions.get(name), new.placement.functions[name]
    if before is not None and new.function(name).elastic:  # its threads move
        before = replace(before, core=now.core, cpus=now.cpus, cores=now.cores)
    return before != now or old.huge != new.huge


def _threads(name: str, plan: Plan) -> list[int]:
    """The CPU of each thread of a function that can have more or fewer; none of any other."""
    function = plan.function(name)
    return function.runs_on(plan.placement.functions[name]) if function.elastic else []


def _shown_threads(name: str, plan: Plan) -> str:
    return ", ".join(map(str, _threads(name, plan)))


def _of_function(port: str, *plans: Mapping[str, PlannedFunction]) -> bool:
    owner = function_name(port.rpartition(".")[0])
    return any(owner in plan for plan in plans)


def _process_words(function: PlannedFunction, plan: Plan) -> str:
    place = plan.placement.functions[function.name]
    return f"{function.what} on {place.words}, {place.mode} mode"


def _told_change(was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """In a few words; of a list, how many there were and are."""
    said = []
    for key in now:
        before, after = was.get(key), now[key]
        if isinstance(before, list) and isinstance(after, list) and before != after:
            new = len(set(map(json.dumps, after)) - set(map(json.dumps, before)))
            said.append(f"{key}: {len(before)} → {len(after)}, {new} of them new")
        elif before != after:
            said.append(f"{key}: another one" if key in SECRETS else f"{key}: {before} → {after}")
    return tuple(said)


def _process_change(was: PlannedFunction, now: PlannedFunction, old: Plan | None, new: Plan) -> tuple[str, ...]:
    said = []
    if was.kind != now.kind:
        said.append(f"kind: {was.kind} → {now.kind}")
    if was.image != now.image:
        said.append(f"image: {was.image or OWN_IMAGE} → {now.image or OWN_IMAGE}")
    if was.latency != now.latency:
        said.append(f"latency: {was.latency} → {now.latency}")
    if was.priority != now.priority:
        said.append(f"priority: {_priority_words(was)} → {_priority_words(now)}")
    if was.domain != now.domain:
        said.append("domain: its fragment is other")
    if was.runs != now.runs:
        said.append(f"runs: {was.runs} → {now.runs}")
    if was.memory_bytes != now.memory_bytes:
        said.append(f"memory: {was.memory_bytes >> 20}MiB → {now.memory_bytes >> 20}MiB")
    if was.most_cpus != now.most_cpus:
        said.append(f"cpus.most: {was.most_cpus} → {now.most_cpus}")
    if was.cpus != now.cpus:
        said.append(f"cpus: {was.cpus} → {now.cpus}")
    if was.stacked != now.stacked:
        said.append(f"cpus.stacked: {json.dumps(was.stacked)} → {json.dumps(now.stacked)}")
    if was.interfaces != now.interfaces:
        said.append(f"interface: {', '.join(was.interfaces)} → {', '.join(now.interfaces)}")
    if was.failover_ports != now.failover_ports:
        said.append(f"failover: {_failover_words(was)} → {_failover_words(now)}")
    if was.driver != now.driver:
        said.append(f"driver: {was.driver} → {now.driver}")
    if was.queues != now.queues:
        said.append(f"queues: {', '.join(map(str, was.queues))} → {', '.join(map(str, now.queues))}")
    if old is not None and old.placement.functions.get(now.name) != new.placement.functions[now.name]:
        said.append(f"it moves to {new.placement.functions[now.name].words}")
    return tuple(said)


def _failover_words(function: PlannedFunction) -> str:
    return ", ".join(f"{port} ({mac})" for port, mac in function.failover_ports) or "none"


def _priority_words(function: PlannedFunction) -> str:
    bounds = function.priority
    if bounds is None:
        return "its latency's"
    named = f" of {', '.join(bounds.tasks)}" if bounds.tasks else ""
    return f"{bounds.least} to {bounds.most}{named}, every {bounds.period_us}us"


def _fixed(old: Plan, new: Plan, granted: Granted) -> list[str]:
    """What the running switch cannot become."""
    said = []
    pairs: list[tuple[str, Any, Any]] = [
        ("fabric", old.fabric, new.fabric),
        ("fabric.backpressure", f"{old.backpressure_us}us", f"{new.backpressure_us}us"),
        ("fabric.idle", old.idle, new.idle),
        ("fabric.user", old.user, new.user),
        ("fabric.memory", _mib(old.memory_mib), _mib(new.memory_mib)),
        ("the workers' cores", list(old.placement.workers), list(new.placement.workers)),
    ]
    for key, was, now in pairs:
        if was != now:
            said.append(f"{key}: {_short(was)} → {_short(now)}")
    if new.opens_pci and not old.opens_pci and not granted.pci:
        said.append("a PCI device, for which the switch has not looked at its start")
    # What the switch has given up at its start it cannot take back.
    lacking = set(new.capabilities) - set(old.capabilities) - set(granted.capabilities)
    if lacking:
        said.append(f"a device port that needs the capabilities {', '.join(sorted(lacking))}, which it has given up")
    strange = set(new.groups) - set(old.groups) - set(granted.groups)
    if strange:
        said.append(f"a socket of the group {', '.join(sorted(strange))}, which it is not in")
    return said


def _mib(size: int | None) -> str | None:
    return None if size is None else f"{size}MiB"


# --- configurations ------------------------------------------------------------------------------------------------


def config_changes(old: Config, new: Config) -> list[Change]:
    """What is new, other and gone between two configurations of the switch."""
    found = []
    for section in SECTIONS:
        was, now = old.get(section) or {}, new.get(section) or {}
        what = section.removesuffix("s")
        moved = _moved_chains(was, now) if section == "chains" else {}
        for name in now:
            if name not in was:
                found.append(Change("add", what, name, (_whole(what, now[name]),)))
            else:
                detail = _details(_full(what, was[name]), _full(what, now[name])) + moved.get(name, [])
                if detail:
                    found.append(Change("change", what, name, tuple(detail)))
        found += [Change("remove", what, name) for name in was if name not in now]
    for key in ("trace", "workers"):
        detail = _details(_flat(old.get(key) or {}), _flat(new.get(key) or {}))
        if detail:
            found.append(Change("change", key, key, tuple(detail)))
    return found


def unlike(
    plan: Plan, sockets: Path, instances: Mapping[str, int], running: Config, around: Collection[str] = ()
) -> list[Change]:
    """What a switch carries otherwise than a plan that is up says: what it lacks is to be added."""
    return config_changes(running, configuration(plan, sockets, instances, around))


def _moved_chains(was: Config, now: Config) -> dict[str, list[str]]:
    """What is to be said of chains that another one of their priority now stands before: the first is asked first."""
    said = {}
    for priority in {chain.get("priority", 0) for chain in now.values()}:
        after = [name for name, chain in now.items() if name in was and chain.get("priority", 0) == priority]
        kept = set(after)
        before = [name for name in was if name in kept]
        if before == after:
            continue
        for tag, _, _, begin, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            for place in range(begin, end) if tag in ("insert", "replace") else ():
                behind = f"after {after[place - 1]}" if place else f"before {after[1]}"
                said[after[place]] = [f"order: now {behind}"]
    return said


def _full(what: str, value: Config) -> Config:
    defaults = {"port": _PORT_DEFAULTS, "chain": _CHAIN_DEFAULTS, "function": _FUNCTION_DEFAULTS}.get(what, {})
    if value.get("kind") == "device":
        defaults = {"queues": 1}
    if value.get("match") == [{}]:
        defaults, value = {**defaults, "match": []}, {key: each for key, each in value.items() if key != "match"}
    flat = _flat({**defaults, **value})
    return {key: each for key, each in flat.items() if not (key == "rate.share" and each == 1)}


def _flat(value: Config, before: str = "") -> Config:
    """Nested keys as one: {"rate": {"max": 1}} is {"rate.max": 1}."""
    found: Config = {}
    for key, each in value.items():
        if isinstance(each, dict) and each:
            found.update(_flat(each, f"{before}{key}."))
        elif each != {} or before:
            found[f"{before}{key}"] = each
    return found


def _details(was: Config, now: Config) -> list[str]:
    pairs = {key: (_value(was, key), _value(now, key)) for key in (*was, *now)}
    return [
        f"{key}: {_short(before)} → {_short(after)}"
        for key, (before, after) in pairs.items()
        if _same(before) != _same(after)
    ]


def _value(flat: Config, key: str) -> Any:
    """None where there is none; a replica that is there is active where nothing is said."""
    replica = key.removesuffix(".state")
    return flat.get(key, "active" if replica != key and f"{replica}.left" in flat else None)


def _same(value: Any) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _short(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        if not value:
            return "none"
        return " ".join(each if isinstance(each, str) else json.dumps(each) for each in value)
    return str(value) if isinstance(value, str | int) else json.dumps(value)


def _whole(what: str, value: Config) -> str:
    """A new thing in a few words."""
    if what == "chain":
        path = " ".join([value["from"], *value.get("through", []), value["to"]])
        matches = [match for match in value.get("match", []) if match]
        return f"{path} for {' or '.join(match_words(match) for match in matches)}" if matches else path
    if what == "port":
        words = str(value.get("device") or value.get("path"))
        return words + "".join(f", {key} {_short(each)}" for key, each in _flat(value).items() if key in _SHOWN)
    if what == "function":
        return f"replicas {' '.join(value['replicas'])}"
    if what == "bridge":
        return " ".join(value["ports"])
    return ", ".join(f"{key} {_short(each)}" for key, each in value.items())


_SHOWN = (
    "queues",
    "absent",
    "rate.max",
    "rate.packets",
    "rate.to.max",
    "rate.to.packets",
    "rate.to.latency",
    "rate.share",
)
