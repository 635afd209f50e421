"""From one plan to another while frames move: what is new is started beside what is there, then everything changes
over in one step, then what is no longer needed ends.

The step is one configuration of the switch, which takes it whole or not at all. Until then nothing that carries frames
has been touched, so a change that cannot be made is undone by ending what was begun for it. (The network namespace of a
router is its old instance's, too: it is given back what it had.) Each stage is on record, so that a change that a crash
has cut short is finished or undone by the next command (`recover`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tailrace.errors import Failure, Mistake, Refused, TailraceError
from tailrace.functions.handover import FOLLOWING, HandOver
from tailrace.functions.namespace import prepare_namespace
from tailrace.functions.runtimes import STARTERS, has_namespace
from tailrace.functions.show import tell
from tailrace.functions.threads import WAIT_MS, Resized
from tailrace.node.difference import Difference
from tailrace.node.failovers import plug_again, plug_failovers, unplug_others
from tailrace.plan.planned import Plan
from tailrace.process.control import ControlLost
from tailrace.process.process import undisturbed
from tailrace.state.card_functions import have_functions, return_functions, take_functions
from tailrace.state.record import Domain, FilePath, Namespace, Process, State
from tailrace.switch.config import Config, function_name, instance_name
from tailrace.switch.confine import group_for
from tailrace.switch.free_path import why_taken

if TYPE_CHECKING:
    from tailrace.fabric.tailrace import TailraceFabric
    from tailrace.node.running import Node


def change_over(
    node: Node,
    wanted: Difference,
    base: int,
    *,
    prepare: Callable[[], None] = lambda: None,
    commit: Callable[[], None] = lambda: None,
    begun: Mapping[str, Process] = MappingProxyType({}),
) -> int:
    """Makes a difference of a node's plan real; returns the new version of the configuration.

    `base` is the version that the difference was found from. `prepare` makes the machine ready; what it puts on record
    is undone if the change is not made. `commit` puts the plan on record when the switch has changed over. `begun` are
    functions that run already, whose end is the caller's if the change is not made.

    Raises Conflict if somebody else changed the configuration meanwhile, Refused if the switch does not take it, and
    Failure if a function does not start; nothing has changed then, unless the change stays on record (`changing`).
    """
    state, fabric = node.state, node.fabric
    before = list(state.record.things)
    staged: list[str] = []
    try:
        if wanted.config_changes or wanted.start:
            fabric.check(wanted.config, base)
            state.add(*_new_sockets(wanted.config, fabric.configuration()[1], before))
        prepare()
        for name in (*wanted.start, *wanted.stay):
            if name not in begun:
                node.prepare_function(node.plan, name, wanted.instances.get(name, 1))
        staged = list(wanted.stage.get("ports", {}))
        if staged:
            base = fabric.apply(wanted.stage, base)
        new = {name: wanted.instances.get(name, 1) for name in wanted.start if name not in begun}
        running = {**begun, **dict(zip(new, node.start_functions(node.plan, new), strict=True))}
        started = [running[name] for name in wanted.start]
        if state.record.changing is not None and state.record.changing.arrived:
            with undisturbed():  # first its chain: what it has in its rings leaves it at once
                try:
                    base = fabric.configure(wanted.config, base)
                finally:  # whatever becomes of its frames: it is nowhere else any more
                    _let_go_on(state, wanted.start)
        node.wait_for(staged, processes=started)
        node.wait_for_functions(wanted.start, started)
        tell_functions(state, node.plan, wanted.tell)
        handed = _hand_overs(state, node.plan, wanted.start, wanted.stop, wanted.instances)
        for each in handed:
            each.step()
        if wanted.resize:
            node.resized |= resize_functions(state, node.plan, wanted.resize, node.began, WAIT_MS)
        unplug_others(state, node.plan)
        if wanted.config_changes and not (state.record.changing is not None and state.record.changing.arrived):
            with undisturbed():  # nobody is to be informed that nothing was changed when it was
                base = fabric.configure(wanted.config, base)
    except BaseException:
        _tell_as_before(state, wanted.tell, wanted.resize)
        _take_back(state, fabric, staged, [each for each in state.record.things if each not in before])
        _set_as_before(state)
        _network_as_before(state, wanted.start)
        raise
    with undisturbed():
        state.record.instances = wanted.instances
        state.record.around = list(wanted.around)
        state.record.version = base
        commit()
        state.save()  # the change stays on record until nothing old is left: whoever comes after a crash ends it
        node.notes += _hand_rest(handed)
        problems = _end_old(state, node.plan, wanted.config, wanted.stop)
        _end_change(state, made=True)
        state.save()
        node.notes += plug_failovers(state, node.plan)
    if problems:
        raise Failure(f"the change is made, but not everything old has ended: {'; '.join(problems)}")
    return base


def tell_functions(state: State, plan: Plan, names: Collection[str]) -> None:
    """Tells functions that are up what a plan has for them. Raises Failure, Mistake."""
    running = {each.name: each for each in state.processes()}
    for name in names:
        told, process = plan.function(name).told, instance_name(name, state.record.instances.get(name, 1))
        if told is not None and process in running:
            tell(state, running[process], told)


def _hand_overs(
    state: State, plan: Plan, start: Collection[str], stop: Collection[str], instances: Mapping[str, int]
) -> list[HandOver]:
    """Of functions of which a new instance replaces one that is alive, and can go on with its connections."""
    running = {each.name: each for each in state.processes()}
    found = []
    for name in start:
        new = running.get(instance_name(name, instances.get(name, 1)))
        old = next((running[each] for each in stop if each in running and function_name(each) == name), None)
        if new is None or old is None or old.runtime != new.runtime or not old.id.alive():
            continue
        planned = plan.function(name)
        if planned.kind in FOLLOWING and STARTERS[planned.runs].hands_over:
            found.append(HandOver(state, old, new))
    return found


def _hand_rest(handed: Collection[HandOver]) -> list[str]:
    """Hands over what has begun, and what has changed, since the first step; what is to be said of it all."""
    for each in handed:
        each.step()
    return [said for each in handed if (said := each.said()) is not None]


def _end_old(state: State, plan: Plan, config: Config, stop: Collection[str]) -> list[str]:
    """Ends what a plan that is up, with this configuration of the switch, has no use for: these processes, namespaces,
    virtual functions, sockets. Returns what could not be ended."""
    problems = end_processes(state, stop) + end_namespaces(
        state, {each.name for each in plan.functions if has_namespace(each.runs, each.network)}
    )
    if have_functions(state):
        problems += return_functions(state, plan.vfs)
    forget_sockets(state, _sockets(config))
    return problems


def resize_functions(
    state: State, plan: Plan, names: Collection[str], began: float, wait_ms: int = 0
) -> dict[str, Resized]:
    """Gives functions that are up the CPUs that a plan has for them; times from `began`, of time.monotonic(), on.
    Raises Failure, Mistake."""
    running = {each.name: each for each in state.processes()}
    before = Plan.read(state.record.plan) if names and state.record.plan else plan
    found = {}
    for name in names:
        process = running.get(instance_name(name, state.record.instances.get(name, 1)))
        if process is None:
            continue
        cpus = _threads(plan, name)
        told = 1e3 * (time.monotonic() - began)
        runtime = STARTERS[plan.function(name).runs]
        used = runtime.use_cpus(state, process, cpus, wait_ms if len(cpus) > len(_threads(before, name)) else 0)
        first = None if used.first_frame_us is None else round(told + used.first_frame_us / 1e3, 3)
        handed = round(told + used.handed_over_us / 1e3, 3)
        found[name] = Resized(
            tuple(_threads(before, name)), tuple(cpus), used.queues_moved, used.vcpus_moved, handed, first
        )
    return found


def _threads(plan: Plan, name: str) -> list[int]:
    return plan.function(name).runs_on(plan.placement.functions[name])


def _tell_as_before(state: State, names: Collection[str], resized: Collection[str] = ()) -> None:
    """Tells functions what the plan on record has for them. One that cannot be told has ended, or never heard else."""
    if not (names or resized) or state.record.plan is None:
        return
    with undisturbed(), suppress(Mistake):  # a plan that another version wrote
        plan = Plan.read(state.record.plan)
        for each in plan.started:
            if each.name in names:
                with suppress(TailraceError):
                    tell_functions(state, plan, [each.name])
            if each.name in resized and each.elastic:
                with suppress(TailraceError):
                    resize_functions(state, plan, [each.name], time.monotonic())


def _set_as_before(state: State) -> None:
    """Has cards do with virtual functions what the plan on record says. One that has gone has nothing to be told."""
    if state.record.changing is not None or not have_functions(state):
        return
    with undisturbed(), suppress(TailraceError):
        plan = Plan.read(state.record.plan)
        take_functions(state, plan.vfs)
        plug_again(state, plan)
        plug_failovers(state, plan)


def _network_as_before(state: State, names: Collection[str]) -> None:
    """Has the network namespaces of these functions what the plan on record says: they were given what a change wanted
    that is not made. One that cannot be is given it when its function starts again."""
    if state.record.changing is not None or not state.record.plan:
        return
    with undisturbed(), suppress(Mistake):
        for each in Plan.read(state.record.plan).started:
            if each.name in names and each.network is not None and has_namespace(each.runs, each.network):
                with suppress(TailraceError):
                    prepare_namespace(state, each.name, each.network, group_for(state, each.name))


def _sockets(config: Config) -> list[str]:
    """The sockets that the switch makes: where it listens."""
    return list(_listening(config).values())


def _listening(config: Config) -> dict[str, str]:
    """The same by the names of their ports."""
    return {
        name: port["path"]
        for name, port in config.get("ports", {}).items()
        if port["kind"] == "guest" and port.get("mode", "server") == "server"
    }


def _new_sockets(wanted: Config, running: Config, before: Collection[object]) -> list[FilePath]:
    """The sockets that are not on record yet. Raises Refused where something of somebody else's is in the place of one:
    what is on record is removed when the change is undone, so it must be ours."""
    known = _sockets(running)
    new = {name: path for name, path in _listening(wanted).items() if FilePath(path) not in before}
    for name, path in new.items():
        taken = why_taken(path) if path not in known else None
        if taken is not None:
            raise Refused(f"ports.{name}: socket {path}{taken}")
    return [FilePath.to_be(path) for path in new.values()]


def _take_back(state: State, fabric: TailraceFabric, staged: Collection[str], things: list[Any]) -> None:
    """Ends what was begun for a change that is not made. Where the switch is lost, nobody knows whether it had changed
    over: then what was begun stays, and the change stays on record, for `recover` to end it when the switch is back; so
    it does where a machine has come from elsewhere for it."""
    if state.record.changing is not None and state.record.changing.arrived:
        return
    with undisturbed():
        try:
            fabric.configuration()
            for thing in reversed(things):
                if not isinstance(thing, FilePath):
                    state.undo(thing)
            if staged:
                state.record.version = fabric.apply({"ports": dict.fromkeys(staged)})
        except ControlLost:
            return
        except TailraceError:
            things = []  # somebody has put the ports to use: what is left is left to `tailrace down`
        _end_change(state, made=False)
        for thing in things:
            state.undo(thing)
        state.save()


def _end_change(state: State, *, made: bool) -> None:
    """The change at work is made, or nothing of it is left to be undone later; to be saved after that. If it was for a
    move, it is known from now on how that has ended; unless a copy of its machine may be left."""
    if (changing := state.record.changing) is None:
        return
    names = {instance_name(each, changing.instances.get(each, 1)) for each in changing.start}
    left = any(isinstance(each, Process | Domain) and each.whose in names for each in state.record.things)
    if made or not left:
        state.note_move(came=made)
    state.record.changing = None


def end_processes(state: State, names: Collection[str]) -> list[str]:
    """Ends processes and what belongs to them; returns what could not be ended."""
    problems = []
    for thing in reversed(list(state.record.things)):
        if thing.whose in names:
            problem = state.undo(thing)
            if problem is not None:
                problems.append(problem)
    return problems


def end_namespaces(state: State, functions: Collection[str]) -> list[str]:
    """Removes the network namespaces of functions that are none of these any more; returns what could not be."""
    left = [each for each in state.record.things if isinstance(each, Namespace) and each.of]
    return [problem for each in left if each.of not in functions and (problem := state.undo(each)) is not None]


def forget_sockets(state: State, used: Collection[str]) -> None:
    """Takes sockets of ports that are gone off the record."""
    own = {str(state.control), str(state.page), str(state.config)}
    for thing in list(state.record.things):
        if isinstance(thing, FilePath) and thing.path not in own and thing.path not in used:
            state.undo(thing)


def _let_go_on(state: State, functions: Collection[str]) -> None:
    """Has machines go on that have come from another node, where they were left standing. Raises Failure, Mistake."""
    from tailrace.functions.transfer import find, go_on  # only here: it needs libvirt

    for process in state.processes():
        if process.outside and process.id.alive() and function_name(process.name) in functions:
            go_on(find(process.outside))


def recover(state: State, fabric: TailraceFabric) -> list[str]:
    """Ends a change that a crash has cut short: it is kept if the switch had changed over, else undone. Returns what is
    to be said of it."""
    changing = state.record.changing
    if changing is None:
        return []
    if not changing.arrived:
        version, running = fabric.configuration()
    else:
        try:
            version, running = fabric.configuration()
            if running != changing.config:
                version, running = fabric.configure(changing.config, version), changing.config
        finally:
            _let_go_on(state, changing.start)
    said, made = [], running == changing.config
    if made:
        state.record.plan, state.record.spec = changing.to.plan, changing.to.spec
        state.record.previous = changing.previous
        state.record.instances, state.record.version = changing.instances, version
        state.record.around = changing.around
        # As by commit(): what was started is not stopped, also where it has ended since.
        state.record.stopped = [each for each in state.record.stopped if each not in changing.start]
        for name in changing.start:
            state.record.unsettled.pop(name, None)
            state.record.moved.pop(name, None)
        plan, stop = Plan.read(state.record.plan), changing.stop
        handed = _hand_overs(state, plan, changing.start, stop, changing.instances)
        for each in handed:
            each.step()
        said += _hand_rest(handed)
        became = "kept, as the switch had made it" if not changing.arrived else "kept, as its machine had come"
    else:
        plan = Plan.read(state.record.plan)
        stop = [instance_name(name, changing.instances.get(name, 1)) for name in changing.start]
        said += end_processes(state, stop)
        left = [port for port in changing.staged if port in running.get("ports", {})]
        if left:
            state.record.version = fabric.apply({"ports": dict.fromkeys(left)}, version)
            running = fabric.configuration()[1]
        stop = []
        became = "undone"
    said += _end_old(state, plan, running, stop)
    _end_change(state, made=made)
    state.save()
    _set_as_before(state)
    if not made:
        _network_as_before(state, changing.start)
    names = [function_name(each.name) for each in state.processes()]
    _tell_as_before(state, names, names)
    return [f"a change to {changing.to.spec} that was cut short is {became}", *said]
