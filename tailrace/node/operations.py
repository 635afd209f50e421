"""`tailrace up`, `plan`, `apply`, `rollback`, `drain` and `down`: a plan made to live on, compared with what is up,
changed while frames move, and undone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tailrace.errors import Failure, Interrupted, Mistake, TailraceError
from tailrace.functions.runtime import Arrival, Origin, Starter
from tailrace.functions.runtimes import RUNTIMES, STARTERS
from tailrace.functions.threads import Resized
from tailrace.node import failovers
from tailrace.node.change import change_over, end_processes, recover
from tailrace.node.claiming import check_free, claim_plans
from tailrace.node.difference import Difference, difference
from tailrace.node.failovers import plug_failovers
from tailrace.node.images import check_images, look_for_images
from tailrace.node.outages import count_outages, keep_lost
from tailrace.node.running import Node, quietly, reserve_each
from tailrace.node.status import changed_outside
from tailrace.node.strays import beside_record, check_no_strays
from tailrace.plan.make import make_plan, resized, scaled
from tailrace.plan.planned import Plan, PlannedFunction, PlannedPort
from tailrace.process.process import undisturbed
from tailrace.resources.hugepages import POOL, Wanted, size_words
from tailrace.resources.ledger import Overtaken, claim_file, own_claim
from tailrace.spec.load import parse_located
from tailrace.spec.position import Document
from tailrace.spec.units import show_size
from tailrace.state.card_functions import check_functions, missing_functions, take_functions
from tailrace.state.folder import default_folder, not_yours, run_folder
from tailrace.state.launch import LOG_BYTES
from tailrace.state.ours import check as check_ours_to_be
from tailrace.state.record import Change, FilePath, Held, Planned, Process, Record, State, hold_run, peek
from tailrace.switch.config import SWITCH, instance_name
from tailrace.switch.confine import kept_user

#: Makes the plan of a spec, given the one that is up.
PlanMaker = Callable[[Plan | None], Plan]
T = TypeVar("T")
_TRIES = 5
_SAVES = 12
"""From when a machine has come from elsewhere until its change is made: of a record; few more than there are."""
_LOGS, _LOGS_BYTES = 16, 4 * LOG_BYTES


@dataclass(frozen=True)
class Raised:
    """What `up` came to."""

    changed: bool
    said: str
    notes: tuple[str, ...] = ()


def bring_up(held: Held, plan: Plan, spec: str) -> Raised:
    """Applies a plan where nothing is up. What is up by the same plan or the same spec is not changed: what has ended
    of it is brought back as it was, and the rest left alone. Raises Mistake, Failure."""
    state = held.state()
    record = state.record
    again = ""
    if record.things:
        if record.complete:
            return _bring_back(state, plan, spec)
        again = " again (it was incomplete)"
        problems = state.undo_all()
    else:
        check_no_strays(held.folder)
        problems = state.clear_sockets()
    if problems:
        raise Failure("; ".join(problems))
    state.record = Record(boot=record.boot)
    return _start(state, plan, spec, again)


def until_claimed(change: Callable[[], T]) -> T:
    """Makes a change that plans and claims; again where another has claimed the same cores in between. Raises Overtaken
    if that happens again and again."""
    for _ in range(_TRIES - 1):
        with suppress(Overtaken):
            return change()
    return change()


def look_ahead(folder: Path, plan: Plan) -> Plan:
    """Finds what a plan names and this machine lacks, as `bring_up` would; looks only. The plan, with notes of what
    could not be looked at. Raises Refused, Mistake where the folder is somebody else's, and Failure where what is up
    there is not known."""
    if not peek(folder).things:
        check_no_strays(folder)
    if not (folder / "state.json").exists():
        check_ours_to_be(folder)
    Node.of(State(folder, Record(boot="")), plan, logs=folder / "logs", tied=False).check_named()
    return _noted(plan, look_for_images(plan, [each.name for each in plan.started]))


def _noted(plan: Plan, notes: Sequence[str]) -> Plan:
    return replace(plan, notes=(*plan.notes, *notes))


def _start(state: State, plan: Plan, spec: str, again: str) -> Raised:
    state.record.purpose = "up"
    state.record.plan = plan.as_data()
    state.record.spec = spec
    state.record.stopped = _arriving(plan)
    try:
        state.save()
        check_images(plan, [each.name for each in plan.started])
        node = Node.of(state, plan, logs=state.logs, tied=False)
        node.prepare()
        node.start()
    except BaseException as error:
        with undisturbed():
            problems = state.undo_all()
        left = f" (and could not be taken down: {'; '.join(problems)})" if problems else ""
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"{_what_ended(error)}; everything was taken down{left}") from None
        if isinstance(error, TailraceError) and problems:
            raise Failure(f"{error}{left}") from None
        raise
    kept = kept_user(state.folder) if plan.user is None else None
    return Raised(True, f"up{again}: {contents_of(plan)}", (*node.notes, *([kept] if kept else [])))


def _arriving(plan: Plan) -> list[str]:
    """The functions that come from other nodes: each is as one that was stopped until it does."""
    return [each.name for each in plan.started if each.arrives]


def interrupted(error: KeyboardInterrupt) -> Interrupted:
    """What is said of an operation that was cut short, and had nothing to take back."""
    return Interrupted(_what_ended(error))


def _what_ended(error: KeyboardInterrupt) -> str:
    """Who asked for the end: Python's own exception of Ctrl-C has no words."""
    return str(error) or "interrupted by Ctrl-C"


def _bring_back(state: State, wanted: Plan, spec: str) -> Raised:
    """Brings back what has ended of what is up. A difference between that and what is wanted (a replica was drained,
    the spec edited) is reported, not made, so that nothing stands in the way of what ran. Raises Mistake, Failure."""
    record = state.record
    if not _same(wanted, Plan.read(record.plan)) and os.path.realpath(spec) != os.path.realpath(record.spec):
        ended = "" if _switch_runs(state) else f", and its switch has ended: `tailrace up {record.spec}` resumes it"
        raise Mistake(
            f"another plan ({record.spec}) is up{ended}; change it with `tailrace apply SPEC`, "
            "or run `tailrace down` first"
        )
    node, said = _taken_up(state)
    try:
        changes = node.unlike()
        why = [f"{name} had ended" for name in _ended(state)]
        why += [f"{each.what} {each.name} was missing" for each in changes if each.change == "add"]
        why += [f"port {name} was gone" for name in node.gone()]
        if why:
            _apply(node, node.plan, record.spec, None)
            said.append(f"up again ({', '.join(why)}): {contents_of(node.plan)}")
        else:
            how = f"is not as planned; `tailrace plan {record.spec}` shows how"
            node.notes += [f"{each.what} {each.name} {how}" for each in changes]
        other = f"what is up is not what {spec} says now: `tailrace plan {spec}` shows the difference, `apply` makes it"
        # Pages are as they are there unless somebody says otherwise, as for `plan` and `apply`.
        here = replace(wanted.placed_as(node.plan), huge=node.plan.huge)
        same = here.identity == node.plan.identity or node.difference_to(here)[1].nothing
        if not said and not same:
            raise Mistake(other)
        notes = node.notes if same else [*node.notes, other]
        return Raised(bool(said), "; ".join(said) or "already up: this very plan, and all of it is alive", tuple(notes))
    finally:
        node.fabric.close()


def _same(wanted: Plan, plan: Plan) -> bool:
    return wanted.placed_as(plan).identity == plan.identity


def _switch_runs(state: State) -> bool:
    return any(process.name == SWITCH and process.id.alive() for process in state.processes())


def _taken_up(state: State) -> tuple[Node, list[str]]:
    """The node on record, and what is to be said of it: a switch that has ended is resumed, and a change that was cut
    short is ended. Raises Failure."""
    node = Node.of(state, Plan.read(state.record.plan), logs=state.logs, tied=False)
    try:
        if _switch_runs(state):
            node.attach()
            said = recover(state, node.fabric)
        else:
            said = _resume(node)
    except BaseException:
        node.fabric.close()
        raise
    plan = Plan.read(state.record.plan)
    said += _made_again(state, plan)
    quietly(lambda: claim_plans(state, plan))
    return replace(node, plan=plan, notes=[]), said


def _made_again(state: State, plan: Plan) -> list[str]:
    """What is to be said of virtual functions that had gone, or are to be in front of a port and are not. Where they
    cannot be made again, nothing else waits."""
    try:
        names = ", ".join(_make_again(state, plan))
    except TailraceError as error:
        return [f"virtual functions that had gone cannot be made again: {error}"]
    said = [f"virtual functions that had gone are made again: {names}"] if names else []
    return said + plug_failovers(state, plan)


def _make_again(state: State, plan: Plan) -> list[str]:
    lost = missing_functions(plan.vfs)
    if lost:
        take_functions(state, plan.vfs)
    return lost


def plug_again(held: Held) -> bool:
    """Plugs virtual functions that machines have let go of when they were not to any more; returns whether any may
    still be let go of."""
    state = held.state()
    return failovers.plug_again(state, Plan.read(state.record.plan))


def functions_gone(held: Held) -> list[str]:
    """The names of virtual functions that went with a reset of their card. Raises Failure, Mistake."""
    return missing_functions(Plan.read(held.state().record.plan).vfs)


def make_functions_again(held: Held) -> list[str]:
    """Makes virtual functions again that went with a reset of their card, for the switch to open; returns all that the
    plan has. Raises Failure, Mistake."""
    state = held.state()
    plan = Plan.read(state.record.plan)
    if _make_again(state, plan) and (problems := plug_failovers(state, plan)):
        raise Failure("; ".join(problems))
    return [each.name for each in plan.vfs.values()]


def _ended(state: State) -> list[str]:
    return [process.name for process in state.processes() if not process.id.alive()]


def _resume(node: Node) -> list[str]:
    """Starts the switch again, ends a change that was cut short, and waits for the functions that outlived the switch,
    whose ports it is given where it has lost what it kept; what is to be said of that."""
    state = node.state
    try:
        node.fabric.resume()
        recovered = recover(state, node.fabric)
        lost = replace(node, plan=Plan.read(state.record.plan)).give_back_ports()
        alive = [process for process in state.processes() if process.id.alive()]
        known = {port.name for port in node.fabric.ports()}
        owners = {process.name for process in alive}
        node.wait_for([port for port in known if port.rpartition(".")[0] in owners], processes=alive)
    except Failure as error:
        raise Failure(
            f"{error} (the switch could not be brought back as it was, and what else is up goes on: mend that and try "
            "again, or start anew with `tailrace down` and `tailrace up SPEC`)"
        ) from None
    version, _ = node.fabric.configuration()
    outlived = ", ".join(process.name for process in alive if process.name != SWITCH)
    never = f"; never stopped: {outlived}" if outlived else ""
    kept = ", as what it had kept is lost" if lost else ""
    return [f"resumed: the switch had ended and goes on with version {version}{kept}{never}", *recovered]


def contents_of(plan: Plan) -> str:
    """2 functions, 1 guest, 2 ports, 1 chain: what was started, what others start, and how it is joined."""
    inner = {side for each in plan.functions for side in each.ports}
    words = [RUNTIMES[each.runs].counted for each in plan.functions]
    counts = {
        **{word: words.count(word) for word in dict.fromkeys(each.counted for each in RUNTIMES.values())},
        "port": sum(port.name not in inner for port in plan.ports),
        "chain": len(plan.chains),
        "bridge": len(plan.bridges),
    }
    return ", ".join(f"{number} {what}{'' if number == 1 else 's'}" for what, number in counts.items() if number)


# --- plan and apply ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proposal:
    """A difference to what is up, and the version that it was found from."""

    version: int | None
    """None: nothing is up."""
    plan: Plan
    wanted: Difference

    @property
    def pages(self) -> Wanted:
        """Huge pages that what it starts needs."""
        return self.plan.pages_of(self.wanted.start)

    def as_data(self) -> dict[str, Any]:
        """As the service's `node.plan` gives it (`tailrace.node.api.Proposal`)."""
        wanted = self.wanted
        return {
            "version": self.version,
            "common": self.plan.common_lines() if self.version is None else [],
            "changes": [change.as_data() for change in wanted.changes],
            "counts": wanted.counts(),
            "start": list(wanted.start),
            "stop": list(wanted.stop),
            "needs_restart": list(wanted.fixed),
            "nothing": wanted.nothing,
            "notes": list(self.plan.notes),
        }


@dataclass(frozen=True)
class Applied:
    """What a change came to."""

    proposal: Proposal
    version: int
    notes: tuple[str, ...] = ()
    back_to: str | None = None
    """The spec whose plan `tailrace rollback` goes back to."""
    resized: Mapping[str, Resized] = field(default_factory=dict)
    """Functions whose CPUs are others now, by name."""
    repaired: bool = False
    """The plan is the one that was up: what had ended is there again, and there is no change to go back from."""

    @property
    def changed(self) -> bool:
        return not self.proposal.wanted.nothing

    def as_data(self) -> dict[str, Any]:
        """As the service's `node.apply` gives it (`tailrace.node.api.Applied`)."""
        return {
            **self.proposal.as_data(),
            "changed": self.changed,
            "version": self.version,
            "notes": list(self.notes),
            "back_to": self.back_to,
            "repaired": self.repaired,
            "resized": {name: asdict(each) for name, each in self.resized.items()},
        }


def planner(text: str, name: str, folder: Path, huge: bool | None, state: Path) -> tuple[PlanMaker, Document]:
    """How a spec's text, called `name` in messages, becomes a plan beside the one that is up in the folder `state`, and
    its document; its relative paths begin in `folder`. Memory is as it is there unless `huge` says otherwise. Raises
    Mistake."""
    spec, document = parse_located(text, name)

    def make(old: Plan | None) -> Plan:
        pages = huge if huge is not None else (old.huge if old else True)
        keep = old.placement if old else None
        sized = {each.name: each.cpus for each in old.functions if each.automatic} if old else {}
        return make_plan(spec, huge=pages, document=document, keep=keep, sized=sized, folder=folder, own=[state])

    return make, document


def propose(folder: Path, make: PlanMaker) -> Proposal:
    """What `apply` would do; looks only. Raises Mistake, also where the switch says that it cannot be (Refused), or
    Failure."""
    record = peek(folder) if (folder / "state.json").exists() else None
    if record is None or not record.things:
        plan = look_ahead(folder, make(None))
        wanted = difference(None, plan, running={}, instances={}, alive=(), sockets=folder / "sockets")
        return Proposal(None, plan, wanted)
    check_up(folder, record)
    node = Node.of(State(folder, record), Plan.read(record.plan), logs=folder / "logs", tied=False)
    node.attach()
    try:
        proposal = _proposal(node, make(node.plan))
        if not proposal.wanted.fixed:
            _check_new_ports(node, proposal.plan)
            notes = look_for_images(proposal.plan, proposal.wanted.start)
            check_free(node.state, node.plan, proposal.plan, pages=proposal.pages)
            node.fabric.check(proposal.wanted.config)
            return replace(proposal, plan=_noted(proposal.plan, notes))
        return proposal
    finally:
        node.fabric.close()


def _check_new_ports(node: Node, plan: Plan) -> list[PlannedPort]:
    """The ports of a plan that the one that is up has not. Raises Refused where one cannot be had."""
    known = {port.name for port in node.plan.ports}
    fresh = [port for port in plan.ports if port.name not in known]
    replace(node, plan=plan).check_ports_of(fresh)
    check_functions(node.state, plan.vfs)
    return fresh


def check_up(folder: Path, record: Record) -> None:
    """Raises Mistake unless `tailrace up` has left something that can be changed; Failure where its record is lost."""
    if not record.things:
        check_no_strays(folder)
        elsewhere = not_yours(default_folder())
        raise Mistake(f"nothing is up ({elsewhere})" if elsewhere else "nothing is up; run `tailrace up SPEC`")
    if not record.complete:
        raise Mistake(f"what is up is incomplete; run `tailrace up {record.spec}` first")


def _proposal(node: Node, plan: Plan, leave: Collection[str] = (), anew: Collection[str] = ()) -> Proposal:
    version, wanted = node.difference_to(plan, leave, anew)
    return Proposal(version, plan, wanted)


@contextmanager
def changing(held: Held) -> Iterator[Node]:
    """The node that is up, with every change before this one ended. A switch that has ended is resumed first, so that
    no command is refused for the want of another."""
    state = held.state()
    check_up(state.folder, state.record)
    node, said = _taken_up(state)
    node.notes += said
    try:
        yield node
    finally:
        node.fabric.close()


def resume(held: Held) -> list[str]:
    """Resumes a switch that has ended, as every change does first; what is to be said of that."""
    with changing(held) as node:
        return node.notes


def apply(held: Held, make: PlanMaker, spec: str, base: int | None = None) -> Applied:
    """Changes what is up into a plan, whole or not at all; with `base`, only from that version. Raises Mistake if it
    cannot be (Conflict if another version is up), Failure if it went wrong, in which case nothing has changed."""
    with changing(held) as node:

        def change() -> Applied:
            plan = make(node.plan)
            node.notes[:] = dict.fromkeys([*node.notes, *plan.notes])
            return _apply(node, plan, spec, base)

        return until_claimed(change)


def rollback(held: Held, base: int | None = None) -> Applied:
    """Goes back to the plan before the last change; that change can be had again by doing so once more."""
    with changing(held) as node:
        previous = node.state.record.previous
        if previous is None:
            raise Mistake("nothing has been applied since `tailrace up`, so there is nothing to go back to")
        return _apply(node, Plan.read(previous.plan), previous.spec, base)


def drain(held: Held, replica: str, *, active: bool = False) -> Applied:
    """Gives a replica no new flows (or, `active`, gives it some again); those that it has stay with it."""
    with changing(held) as node:
        plan = node.plan
        known = {each.name: each for each in plan.functions}
        if replica not in known:
            raise Mistake(f"{replica!r} is no replica; expected one of {', '.join(known) or 'none: no function is up'}")
        group = [each for each in plan.functions if each.function == known[replica].function]
        waits = next((each.name for each in group if each.state == "standby"), None)
        if waits is not None and (active or replica == waits):
            raise Mistake(f"{waits!r} is in standby; expected `replicas` in the spec to say which are, and `apply`")
        others = [each for each in group if each.state == "active" and each.name != replica]
        if not active and not others:
            name = known[replica].function
            raise Mistake(
                f"{replica!r} is the last active replica of {name!r}; `tailrace scale {name} 2` gives it another"
            )
        changed: PlannedFunction = replace(known[replica], state="active" if active else "draining")
        functions = tuple(changed if each.name == replica else each for each in plan.functions)
        return _apply(node, replace(plan, functions=functions), node.state.record.spec, None)


def scale(held: Held, name: str, count: int, *, remove: bool = False) -> Applied:
    """Gives a function so many active replicas. What is too many gets no new flows or, with `remove`, is ended; the
    spec's file stays as it is. Raises Failure, Mistake."""
    with changing(held) as node:

        def change() -> Applied:
            plan = scaled(node.plan, name, count, remove=remove, own=[held.folder])
            return _apply(node, plan, node.state.record.spec, None)

        return until_claimed(change)


def function_cpus(held: Held, name: str, count: int) -> tuple[Applied, float]:
    """Gives a function (or each of its replicas) that runs so many CPUs while frames move; the spec's file stays as it
    is. Returns also after how many ms what it has no more is free. Raises Failure, Mistake."""
    began = time.monotonic()
    with changing(held) as node:
        node.began = began
        ended = set(_ended(node.state))
        alive = {process.name for process in node.state.processes()} - ended
        for each in _chosen(node, name):
            if _process_of(node.state, each) not in alive:
                raise Mistake(f"{each} does not run; `tailrace function start {each}` starts it")

        def change() -> Applied:
            return _apply(node, resized(node.plan, name, count, own=[held.folder]), node.state.record.spec, None, ended)

        applied = until_claimed(change)
    return applied, round(1e3 * (time.monotonic() - began), 3)


def fit_cpus(held: Held, name: str, count: int) -> Applied | None:
    """Gives a function (or replica) that has its CPUs by its load so many; None if it has ended, or has its CPUs
    otherwise by now. What `rollback` goes back to stays. Raises Failure, Mistake."""
    began = time.monotonic()
    with changing(held) as node:
        node.began = began
        ended = set(_ended(node.state))
        alive = {process.name for process in node.state.processes()} - ended
        found = next((each for each in node.plan.started if each.name == name), None)
        if found is None or not found.automatic or _process_of(node.state, name) not in alive:
            return None

        def change() -> Applied:
            plan = resized(node.plan, name, count, itself=True, own=[held.folder])
            return _apply(node, plan, node.state.record.spec, None, ended, by_itself=True)

        return until_claimed(change)


def _apply(
    node: Node,
    plan: Plan,
    spec: str,
    base: int | None,
    leave: Collection[str] = (),
    anew: Collection[str] = (),
    *,
    by_itself: bool = False,
) -> Applied:
    """`leave`: processes that have ended and are to stay so; `anew`: processes that run and are replaced. `by_itself`:
    nobody has asked for it, so it is nothing to go back from."""
    state = node.state
    proposal = _proposal(node, plan, leave, anew)
    wanted = proposal.wanted
    version = proposal.version or 0
    if base is not None:
        node.fabric.check(wanted.config, base)  # another version has won: the switch says whose
    if wanted.fixed:
        raise Mistake(
            f"the running switch cannot change {'; '.join(wanted.fixed)}: run `tailrace down`, then `tailrace up SPEC`"
        )
    if wanted.nothing and plan.identity == node.plan.identity:
        return Applied(proposal, version, tuple(node.notes))
    check_free(state, node.plan, plan, pages=proposal.pages)
    previous: Planned | None = Planned(state.record.plan, state.record.spec)
    repaired = plan.identity == node.plan.identity
    # What is written otherwise, and is the same, is nothing to go back from.
    if repaired or wanted.nothing or by_itself:
        previous = state.record.previous
    state.record.changing = Change(
        to=Planned(plan.as_data(), spec),
        previous=previous,
        instances=wanted.instances,
        config=wanted.config,
        start=list(wanted.start),
        stop=list(wanted.stop),
        staged=list(wanted.stage.get("ports", {})),
        around=list(wanted.around),
        move=next((each.move for each in node.origins.values() if isinstance(each, Arrival)), ""),
    )
    state.save()
    recorded = state.record.version
    new = replace(node, plan=plan)

    def prepare() -> None:
        fresh = _check_new_ports(node, plan)
        claim_plans(state, node.plan, plan, pages=proposal.pages)
        reserve_each(state, proposal.pages)
        new.prepare_interfaces(fresh)
        take_functions(state, plan.vfs)

    def commit() -> None:
        state.record.plan, state.record.spec = plan.as_data(), spec
        there = {each.name for each in plan.functions} - set(wanted.start)
        stopped = [each for each in state.record.stopped if each in there]
        known = {each.name for each in node.plan.functions}
        state.record.stopped = stopped + [each for each in _arriving(plan) if each not in known]
        state.record.unsettled = {
            each: unsettled for each, unsettled in state.record.unsettled.items() if each in stopped
        }
        state.record.moved = {each: host for each, host in state.record.moved.items() if each in stopped}
        state.record.previous = previous

    try:
        # A machine that comes from elsewhere is nowhere else when a disk is found to be full that has filled meanwhile.
        with state.room_kept(_SAVES if state.record.changing.move else 0):
            version = change_over(new, wanted, version, prepare=prepare, commit=commit)
    except BaseException as error:
        if state.record.changing is not None:
            raise Failure(
                f"the change was cut short ({error}); `tailrace up {state.record.spec}` ends it: it is kept if the "
                "switch had made it, and undone otherwise"
            ) from None
        if isinstance(error, KeyboardInterrupt):
            # What was begun and taken back are versions, too, for whoever has another in mind (`--base`).
            now = state.record.version
            said = "" if now == recorded else f", and that is version {now} now"
            raise Interrupted(f"{_what_ended(error)}; nothing was changed{said}") from None
        raise
    finally:
        if state.record.changing is None:
            quietly(lambda: claim_plans(state, Plan.read(state.record.plan)))
    back_to = previous.spec if previous else None
    return Applied(proposal, version, tuple(new.notes), back_to, dict(new.resized), repaired)


# --- what ends by itself -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LedAround:
    """What was done about functions that have ended."""

    chains: list[str] = field(default_factory=list)
    """Those that lead past functions from now on."""
    functions: list[str] = field(default_factory=list)
    """These functions."""
    took_over: dict[str, str] = field(default_factory=dict)
    """Replicas that were in standby, each with the one whose place it has."""


def lead_around(held: Held, but: Collection[str] = ()) -> LedAround:
    """Has the switch use none of the functions (or replicas) that have ended and are not to be waited for: one in
    standby takes the place of each; their other replicas take their flows or, where the spec says `on_failure: bypass`,
    their chains lead past them. `but`: somebody else sees to these. Raises Failure."""
    state = held.state()
    plan = Plan.read(state.record.plan)
    alive = {process.name for process in state.processes() if process.id.alive()}
    alive |= {_process_of(state, each) for each in but}
    if all(_process_of(state, each.name) in alive for each in plan.started):
        return LedAround()
    node = Node.of(state, plan, logs=state.logs, tied=False)
    node.attach()
    try:
        recover(state, node.fabric)
        gone = {each.name for each in plan.started if _process_of(state, each.name) not in alive}
        plan, took_over = with_standby(plan, gone)
        around, past = _left_out(plan, gone, state.record.around)
        _, running = node.fabric.configuration()
        functions: dict[str, Any] = {}
        for each in plan.functions:
            if each.function not in running["functions"]:
                continue
            if each.name in around and each.function in past:
                functions[each.function] = None
            elif each.name in took_over or (
                each.name in around and each.name in running["functions"][each.function]["replicas"]
            ):
                said = {"state": "active"} if each.name in took_over else None
                functions.setdefault(each.function, {"replicas": {}})["replicas"][each.name] = said
        left_out = {name for name, patch in functions.items() if patch is None}
        chains = {
            name: {"through": [each for each in chain.get("through", []) if each not in left_out]}
            for name, chain in running["chains"].items()
            if left_out.intersection(chain.get("through", []))
        }
        if functions:
            state.record.version = node.fabric.apply({"functions": functions, "chains": chains})
        counted = count_outages(state.record, plan.functions, gone, left_out)
        if functions or around != state.record.around or counted:
            state.record.around = around
            state.record.plan = plan.as_data() if took_over else state.record.plan
            state.save()
        return LedAround(list(chains), sorted(left_out), took_over)
    finally:
        node.fabric.close()


def with_standby(plan: Plan, gone: Collection[str]) -> tuple[Plan, dict[str, str]]:
    """A plan in which replicas in standby have the places of active ones that have ended, and these theirs; and which
    has whose."""
    took_over: dict[str, str] = {}
    for ended in (each for each in plan.functions if each.name in gone and each.state == "active"):
        waiting = (
            each.name
            for each in plan.functions
            if each.function == ended.function and each.state == "standby" and each.name not in {*gone, *took_over}
        )
        if (name := next(waiting, None)) is not None:
            took_over[name] = ended.name
    ended_names = set(took_over.values())

    def changed(each: PlannedFunction) -> PlannedFunction:
        if each.name in took_over:
            return replace(each, state="active")
        return replace(each, state="standby") if each.name in ended_names else each

    return (replace(plan, functions=tuple(map(changed, plan.functions))) if took_over else plan), took_over


def _left_out(plan: Plan, gone: Collection[str], before: Collection[str]) -> tuple[list[str], set[str]]:
    """The replicas that have ended and are not to be waited for, and the functions that are led past; `before`: those
    that were left out until now."""
    groups: dict[str, list[PlannedFunction]] = {}
    for each in plan.functions:
        groups.setdefault(each.function, []).append(each)
    all_gone = {name for name, group in groups.items() if all(each.name in gone for each in group)}
    # Where all have ended and are not led past, those that were left out before stay so.
    stays = {name for name in all_gone if groups[name][0].on_failure != "bypass"}
    around = [
        each.name
        for each in plan.functions
        if each.name in gone and (each.function not in stays or each.name in before)
    ]
    return around, all_gone - stays


def drift(held: Held) -> list[str]:
    """What the switch carries otherwise than planned: somebody else has changed it. Raises Failure, Mistake."""
    state = held.state()
    node = Node.of(state, Plan.read(state.record.plan), logs=state.logs, tied=False)
    node.attach()
    try:
        return [f"{each.what} {each.name}" for each in (*node.unlike(), *changed_outside(state))]
    finally:
        node.fabric.close()


def _process_of(state: State, name: str) -> str:
    """The process that a function is now."""
    return instance_name(name, state.record.instances.get(name, 1))


def restart(held: Held, names: Collection[str]) -> list[str]:
    """Starts those of these functions (or replicas) again that have ended, and no others; returns which it did. Raises
    Failure, Mistake."""
    with changing(held) as node:
        state = node.state
        ended = set(_ended(state))
        wanted = [name for name in names if _process_of(state, name) in ended]
        if not wanted:
            return []
        for name in wanted:
            state.record.restarts[name] = state.record.restarts.get(name, 0) + 1
        replaced, ports = {_process_of(state, name) for name in wanted}, node.fabric.ports()
        _apply(node, node.plan, state.record.spec, None, ended - replaced)
        if keep_lost(state.record, ports, replaced):
            state.save()
        for name in wanted:
            _forget_logs(state, name)
        return wanted


def replace_function(
    held: Held, name: str, *, stopped: bool = False, alone: bool = False, origin: Origin | Arrival | None = None
) -> Applied:
    """Starts a new instance of a function (or of all its replicas) beside the one that runs, changes over to it when it
    forwards, and ends the old one. `stopped`: only of what was stopped; `alone`: of no other replica than the one that
    is called so; `origin`: what the new one, which is alone, goes on from. Raises Failure, Mistake."""
    with changing(held) as node:
        record = node.state.record
        chosen = _chosen(node, name)
        if alone or origin is not None:
            only, runtime = only_one(node, name)
            chosen = [only]
            if origin is not None:
                runtime.check_origin(only, origin)
                node.origins[only] = origin
        chosen = [each for each in chosen if not stopped or each in record.stopped]
        anew = [_process_of(node.state, each) for each in chosen]
        ports = node.fabric.ports()
        applied = _apply(node, node.plan, record.spec, None, anew=anew)
        if keep_lost(record, ports, anew):
            node.state.save()
        for each in chosen:
            _forget_logs(node.state, each)
        return applied


def save_function(folder: Path, name: str, path: Path) -> int:
    """Writes a function's whole state to a file, and leaves it running; returns the bytes. Raises Failure, Mistake."""
    state = State(folder, peek(folder))
    check_up(state.folder, state.record)
    node = Node.of(state, Plan.read(state.record.plan), logs=state.logs, tied=False)
    only, runtime = only_one(node, name)
    return runtime.save(running_process(state, only), path)


def described(folder: Path, name: str) -> dict[str, Any]:
    """A function that is up as a spec has it, as far as its machine depends on it. Raises Mistake."""
    plan = Plan.read(peek(folder).plan)
    planned = next((each for each in plan.started if each.name == name), None)
    if planned is None:
        raise Mistake(f"{name!r} is no function that Tailrace has started")
    said: dict[str, Any] = {"kind": planned.kind, "runs": planned.runs, "image": planned.image}
    said |= {"memory": show_size(planned.memory_bytes), "cpus": _as_in_spec(planned), "latency": planned.latency}
    said |= {"pages": size_words(planned.page_kib).replace(" ", "")}
    said |= {"interface": list(planned.interfaces), "driver": planned.driver, "domain": planned.domain}
    return {key: value for key, value in said.items() if value is not None}


def _as_in_spec(planned: PlannedFunction) -> int | dict[str, int]:
    """Its CPUs as a spec has them."""
    return planned.cpus if planned.cpus == planned.most_cpus else {"start": planned.cpus, "most": planned.most_cpus}


def clone_function(held: Held, name: str, to: str) -> Applied:
    """Has a function go on as a copy of another one, with an identity of its own, in place of what it was. Raises
    Failure, Mistake."""
    with changing(held) as node:
        state = node.state
        source, runtime = only_one(node, name)
        target, place = only_one(node, to)
        if source == target:
            raise Mistake(f"{name!r} cannot be a copy of itself; expected another function's name")
        file = state.folder / f"{target}.clone"
        origin = Origin(file, copy=True)
        on_record = FilePath(str(file))
        state.add(on_record)
        try:
            runtime.save(running_process(state, source), file)
            place.check_origin(target, origin)
            node.origins[target] = origin
            applied = _apply(node, node.plan, state.record.spec, None, anew=[_process_of(state, target)])
        finally:
            state.undo(on_record)
        _forget_logs(state, target)
        return applied


def only_one(node: Node, name: str) -> tuple[str, Starter]:
    """The one replica that a name stands for, and where it lives. Raises Mistake."""
    chosen = _chosen(node, name)
    if name in chosen:  # of several, the one that is called like their function
        chosen = [name]
    if len(chosen) > 1:
        raise Mistake(f"{name!r} has several replicas; name one of them: {', '.join(chosen)}")
    planned = next(each for each in node.plan.started if each.name == chosen[0])
    return chosen[0], STARTERS[planned.runs]


def running_process(state: State, name: str) -> Process:
    """The process that a function is now. Raises Mistake where it has ended."""
    process = next((each for each in state.processes() if each.name == _process_of(state, name)), None)
    if process is None or not process.id.alive():
        raise Mistake(f"{name} has ended; `tailrace function start {name}` starts it")
    return process


def stop_function(held: Held, name: str) -> list[str]:
    """Ends a function (or all its replicas), which is not started again before somebody does so; its chain does
    meanwhile what `on_failure` says. Returns the replicas. Raises Failure, Mistake."""
    with changing(held) as node:
        state = node.state
        chosen = _chosen(node, name)
        state.record.stopped = sorted({*state.record.stopped, *chosen})
        state.record.unsettled = {
            each: unsettled for each, unsettled in state.record.unsettled.items() if each not in chosen
        }
        state.save()
        problems = end_processes(state, [_process_of(state, each) for each in chosen])
    if problems:
        raise Failure("; ".join(problems))
    lead_around(held)
    return chosen


def _chosen(node: Node, name: str) -> list[str]:
    """The replicas that a name stands for: itself, or all of a function. Raises Mistake."""
    chosen = [each.name for each in node.plan.started if name in (each.name, each.function)]
    if not chosen:
        names = ", ".join(each.name for each in node.plan.started) or "none"
        raise Mistake(f"{name!r} is no function that Tailrace has started; there are: {names}")
    return chosen


def _forget_logs(state: State, name: str) -> None:
    """Removes the logs of old instances of a function: it may end again and again. The last two keep theirs, whatever
    these have, and those before as long as all together have no more than two full ones."""
    left = _LOGS_BYTES
    for back, instance in enumerate(range(state.record.instances.get(name, 1), 0, -1)):
        names = [f"{instance_name(name, instance)}.{ending}" for ending in ("log", "log.1")]
        found = [path for each in names if (path := state.logs / each).exists()]
        left -= sum(path.stat().st_size for path in found)
        if back < 2 or (left >= 0 and back < _LOGS):
            continue
        for path in (*found, *(state.logs / f"{instance_name(name, instance)}.{each}" for each in ("end", "network"))):
            with suppress(OSError):
                path.unlink()


def restart_switch(held: Held) -> None:
    """Starts a switch that has ended again, as it was: also where what it had kept is lost. Raises Failure, Mistake."""
    with changing(held) as node:
        if any(each.change == "add" for each in node.unlike()):
            _apply(node, node.plan, node.state.record.spec, None, _ended(node.state))


# --- down ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lowered:
    """What `down` came to."""

    undone: list[str]
    problems: list[str]
    notes: tuple[str, ...] = ()


def take_down(held: Held) -> Lowered:
    """Undoes all that is on record, after any end, or what can be found where the record is lost or damaged; harmless
    where nothing is up. Raises Mistake if a measurement is at work, and nothing else is up."""
    lowered = _lower(held.state(damaged=True))
    if not run_folder(held.folder).exists():
        return lowered
    try:
        with hold_run(held.folder, damaged=True) as state:
            left = _lower(state)
    except Mistake as at_work:
        if not lowered.undone:
            raise
        return replace(lowered, notes=(*lowered.notes, str(at_work)))
    return Lowered(lowered.undone + left.undone, lowered.problems + left.problems, (*lowered.notes, *left.notes))


def _lower(state: State) -> Lowered:
    notes: tuple[str, ...] = ()
    lost = beside_record(state.folder, state.record.things)
    if lost and not state.record.things:
        state.known = True
        notes = (_pages_stay(state),) if own_claim(state.folder) is None else ()
    state.record.things += lost
    undone = [_describe(thing) for thing in state.record.things]
    with undisturbed():
        if state.record.kept:
            with suppress(OSError):
                Path(state.record.kept).unlink(missing_ok=True)
        state.record.complete = False  # whatever is left of it
        problems = state.undo_all()
    if not undone and (record := state.folder / "state.json").exists():
        notes = (*notes, f"{record}: no record of Tailrace's can be read there, so it stays as it is")
    return Lowered(undone, problems, notes)


def _pages_stay(state: State) -> str:
    """What is said where neither the record nor the claim tells which huge pages were added."""
    return (
        f"the record was lost or damaged, and so was the claim ({claim_file(state.folder)}): huge pages that were "
        f"added are not known and stay ({POOL}/nr_hugepages says how many of 2 MiB the machine has, and sets it)"
    )


def _describe(thing: Any) -> str:
    if isinstance(thing, Process):
        return f"process {thing.pid} ({thing.name})"
    what = getattr(thing, "path", None) or getattr(thing, "interface", None) or getattr(thing, "added", "")
    return f"{thing.kind} {what}".strip()
