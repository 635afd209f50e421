"""A machine moves from this node to another one, or comes from there, while it runs.

The other node's service prepares its place by the steps of a change (`tailrace.node.change`), which ends when the
machine forwards there; what was prepared is undone if it does not come. Here, the function is one that was stopped from
the moment on when libvirt has ended its machine. Until then whatever fails leaves it running.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from tailrace.errors import Failure, Interrupted, Mistake, TailraceError
from tailrace.functions.runtime import Arrival
from tailrace.functions.transfer import COUNTED, Destination, Limits, Outgoing, Progress, counted
from tailrace.migrate.checks import Reason, reasons
from tailrace.migrate.facts import Facts, as_data, facts_of
from tailrace.node.change import end_processes
from tailrace.node.client import Client, Said
from tailrace.node.failovers import unplugged
from tailrace.node.operations import (
    Applied,
    changing,
    check_up,
    interrupted,
    lead_around,
    only_one,
    replace_function,
    resume,
    running_process,
)
from tailrace.node.peer import Host, reached
from tailrace.plan.planned import Plan
from tailrace.process import hypervisor
from tailrace.process.process import ProcessId, undisturbed
from tailrace.state.record import Held, Process, Record, State, Unsettled, peek
from tailrace.switch.config import SWITCH, instance_name
from tailrace.switch.parking import Parking

_log = logging.getLogger(__name__)
_READY_SECONDS = 120.0
"""In which the other node has prepared the place; it may have another change to end first."""
_DONE_SECONDS = 120.0
"""In which it forwards there, once it may go on."""
_SAVES = 2
"""Of the record, once a machine has ended here: they are not to find a disk full that has filled meanwhile."""
_PARKED = "parked"
"""What is told of the frames that waited for a machine which has arrived, beside `COUNTED`."""
STALLED_SECONDS = 60.0
"""In which nothing of a machine gets through before its move is given up. TCP tries for a quarter of an hour, each time
after twice as long: its next try may come only as long after an outage as that has lasted."""
_CANCEL_SECONDS = 5.0
"""In which libvirt ends a move that is cancelled, where all is well."""
_LOOK_SECONDS = 0.02
_TELL_SECONDS = 1.0
_FORWARD_SECONDS = 2.0
"""For which frames that came here are sent on to the other node while the machine stands still; and for which an answer
of the other node's is waited for meanwhile."""


class Unmovable(Mistake):
    """A machine cannot move: all reasons."""

    def __init__(self, name: str, host: str, found: list[Reason]) -> None:
        super().__init__(f"{name} cannot move to {host}: " + "; ".join(each.text for each in found))
        self._lines = [f"{name} cannot move to {host}: {each.kind}: {each.text}" for each in found]

    @property
    def lines(self) -> list[str]:
        return self._lines


def facts(folder: Path, name: str, beside: Beside) -> dict[str, Any]:
    """What this node says of itself and of a function, whatever it does at the moment. Raises Failure, Mistake."""
    record = peek(folder)
    check_up(folder, record)
    found = facts_of(folder, record, name)
    if (to := beside.to) is not None:
        found = replace(found, sends_to=(to.boot, to.folder))
    return as_data(found)


def propose(held: Held, name: str, host: str) -> list[dict[str, Any]]:
    """Why a machine cannot move to another node; looks only. Raises Failure, Mistake, Said."""
    check_up(held.folder, held.state().record)  # before anybody else is asked
    with _other(held.folder, host) as other:
        _, found = _checked(held, name, other)
        return [each.as_data() for each in found]


@contextmanager
def _other(folder: Path, host: str) -> Iterator[Host]:
    """The other node; the one of this folder cannot answer itself while it asks. Raises Failure, Mistake."""
    if host.startswith("/") and Path(host).resolve() == folder.resolve():
        raise Mistake(f"{host} is this very node; expected another one")
    with reached(host) as other:
        yield other


def _checked(held: Held, name: str, other: Host) -> tuple[Facts, list[Reason]]:
    """What the other node says, and why the machine cannot move there."""
    record = held.state().record
    check_up(held.folder, record)
    there = other.facts(name)
    return there, reasons(name, facts_of(held.folder, record, name), there)


# --- at the target -------------------------------------------------------------------------------------------------


class Receiving:
    """What the network sends here for a machine that is about to come, put aside until it goes on: behind what came for
    it where it was. `give` may be called by another thread, between `begin` and the machine's first ring."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._parking: Parking | None = None
        self._switch: list[ProcessId] = []
        """At whose ports it is to come; none: it is not known yet."""
        self._told: set[str] = set()
        """The sides of which it is known what came where the machine was."""
        self._alone = threading.Lock()

    def begin(self) -> None:
        """Of both instances: the chain leads to the one before until this one goes on. Raises Failure."""
        record = peek(self._folder)
        instances = [record.instances, record.changing.instances if record.changing is not None else {}]
        names = [instance_name(self._name, each.get(self._name, 1)) for each in instances]
        ports = {side: list(dict.fromkeys(f"{each}.{side}" for each in names)) for side in _sides(record, self._name)}
        state = State(self._folder, record)
        self._switch = [each.id for each in state.processes() if each.name == SWITCH]
        with self._alone:
            self._parking = Parking(state.control, ports, slides=True)

    @property
    def cut_off(self) -> bool:
        """The switch has ended since `begin`. QEMU 7.2 then tells the next one that the machine's driver has taken no
        feature at all, where the machine has not gone on yet: the next one would take the frames in its rings for
        others. (QEMU before 8.0 keeps for the next switch only what it had agreed on with the last one:
        `chr_closed_bh` and `vhost_user_start` of net/vhost-user.c. With a later one it was not tried.)"""
        return any(not each.alive() for each in self._switch)

    def keep(self) -> None:
        with self._alone:
            if self._parking is not None:
                self._parking.keep()

    def give(self, side: str, frames: Sequence[str]) -> None:
        """Raises Failure, Mistake."""
        with self._alone:
            if self._parking is None or side not in self._parking.sides:
                raise Mistake(f"{self._name} has no port {side} here for which frames are put aside")
            self._parking.give(side, frames)
            self._told.add(side)

    def settle(self) -> None:
        """Nothing more is given. Where none was, nobody says what the machine has got already of what came here: all of
        it counts as such, so that nothing comes twice."""
        with self._alone:
            if (parking := self._parking) is None:
                return
            for side in parking.sides:
                if side not in self._told:
                    with suppress(TailraceError):
                        parking.give(side, [])

    def drain(self) -> int:
        """Waits until the machine has got all of them; returns how many it has got."""
        with self._alone, suppress(TailraceError):
            if self._parking is not None:
                return self._parking.drain()
        return 0

    def end(self) -> None:
        with self._alone, undisturbed():
            if self._parking is not None:
                self._parking.end()
            self._parking = None


def _sides(record: Record, name: str) -> list[str]:
    """The ports of a function, as each instance's names end."""
    plan = Plan.read(record.plan)
    return [each.name.rpartition(".")[2] for each in plan.guests(plan.function(name))]


def receive(held: Held, name: str, arrival: Arrival) -> tuple[Applied, dict[str, int]]:
    """Has a function, which does not run here, go on as the machine that comes from another node; what that has taken,
    too. Raises Failure, Mistake; then nothing has changed here."""
    if name not in held.state().record.stopped:
        raise Mistake(f"{name} is not stopped here; `tailrace function stop {name}` first")
    try:
        applied = replace_function(held, name, stopped=True, origin=arrival)
    except BaseException:
        with undisturbed():
            if held.state().record.changing is not None:  # it is nowhere else any more
                resume(held)
        raise
    return applied, counted(running_process(held.state(), name).outside)


# --- at the source -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """What a move has come to."""

    host: str
    milliseconds: float
    """In all."""
    pause_ms: int
    """For how long it stood still, as QEMU has counted."""
    switch_ms: float
    """From its end here until it forwarded there."""
    rounds: int
    bytes: int
    forwarded: int
    """Frames that came for it here while it stood still, and were sent on."""
    parked: int
    """Frames that waited for it there, and that it got: with those."""


@dataclass
class _Reception:
    """The other node's part, in a thread of its own."""

    client: Client
    name: str
    domain: str
    move: str
    place: dict[str, str] = field(default_factory=dict)
    """What it is to be there (`domain`) and its name (`name`), once the place is ready."""
    taken: Mapping[str, int] | None = None
    """What the transfer has taken, once it has arrived."""
    problem: TailraceError | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        self.client.heard = self._heard
        self.client.patience(None)
        threading.Thread(target=self._receive, name="reception", daemon=True).start()

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "migrate.ready":
            self.place = {"domain": str(params["domain"]), "name": str(params["name"])}
        elif method == "migrate.arrived":
            self.taken = {key: int(params.get(key, 0)) for key in (*COUNTED, _PARKED)}

    def _receive(self) -> None:
        try:
            self.client.call("migrate.receive", name=self.name, domain=self.domain, move=self.move)
        except TailraceError as error:
            self.problem = error
        finally:
            self.ended.set()


@dataclass
class Beside:
    """What the service does beside a move."""

    attend: Callable[[str, Callable[[], None]], None] = lambda _name, _changed: None
    """Sees to others while the machine of this name is sent, and calls what it is given when the record may be another
    by that."""
    to: Facts | None = None
    """Where a machine goes at the moment."""


def move(held: Held, name: str, host: str, limits: Limits, tell: Callable[[str], None], beside: Beside) -> Moved:
    """Moves a machine to another node. Raises Unmovable, Failure, Interrupted: then it goes on here, unless they say
    otherwise."""
    began = time.monotonic()
    check_up(held.folder, held.state().record)  # before anybody else is asked
    with _other(held.folder, host) as other, changing(held) as node, ExitStack() as stack:
        there, found = _checked(held, name, other)
        if found:
            raise Unmovable(name, host, found)
        name, _ = only_one(node, name)
        process = running_process(node.state, name)
        stack.callback(setattr, beside, "to", None)
        beside.to = there
        limits = replace(limits, connections=limits.connections or node.plan.function(name).connections)
        with unplugged(node.state, process, node.plan.function(name).failover) as without:
            if without:
                tell(f"{name}: unplugged {', '.join(without)}; its ports carry all")
            reception = _Reception(other.connect(), name, hypervisor.machine_xml(process.outside), uuid4().hex)
            with (
                closing(reception.client),
                closing(other.connect()) as going,
                closing(other.connect()) as forwarding,
                other.libvirt(there) as (uri, memory_uri),
                _parked(node.state, process, name) as parking,
                node.state.room_kept(_SAVES),
            ):

                def read_again() -> None:
                    node.state.record = held.state().record

                def keep() -> None:
                    parking.keep()
                    beside.attend(name, read_again)

                tell(f"{name}: {host} prepares a place for it")
                with _received(reception, keep, name, host):
                    to = Destination(uri, reception.place["domain"], reception.place["name"], memory_uri)
                    sending = Outgoing(process.outside, process.pid, to, limits)
                    _send(sending, reception, keep, name, host, tell)
                sent = time.monotonic()
                with undisturbed():
                    tell(f"{name} has ended here; what came for it meanwhile is sent on to {host}")
                    forwarded = _forward(parking, forwarding, name)
                    tell(f"{name} is to go on at {host}")
                    _hand_over(node.state, process.name, name, host, going, reception)
    try:
        lead_around(held)
    except TailraceError as error:
        raise Failure(f"{name} has moved, and forwards at {host}; here its chain does not know yet: {error}") from None
    ended = time.monotonic()
    taken = reception.taken or {}
    return Moved(
        host,
        round(1e3 * (ended - began), 1),
        taken.get("pause_ms", 0),
        round(1e3 * (ended - sent), 1),
        taken.get("rounds", 0),
        taken.get("bytes", 0),
        forwarded,
        taken.get(_PARKED, 0),
    )


@contextmanager
def _parked(state: State, process: Process, name: str) -> Iterator[Parking]:
    """Has the switch put aside what comes for a machine from its pause on. If the machine stays it gets that; what is
    left when it has gone is dropped and counted. Raises Failure."""
    ports = {side: [f"{process.name}.{side}"] for side in _sides(state.record, name)}
    parking = Parking(state.control, ports, slides=False)
    try:
        yield parking
    except BaseException:
        with undisturbed(), suppress(TailraceError):
            parking.drain()
        raise
    finally:
        with undisturbed():
            parking.end()


def _forward(parking: Parking, to: Client, name: str) -> int:
    """Sends what was put aside on to the other node; returns how many frames. What cannot be sent is lost: the machine
    is not, whatever becomes of its frames. `to` may be left in the middle of a call."""
    forwarded, deadline = 0, time.monotonic() + _FORWARD_SECONDS
    to.patience(_FORWARD_SECONDS)
    # Twice: what waits, and what has come while that was sent. That there is none is told, too: then all that has come
    # there before is what the machine has got here. What has come by then since, it gets from here the second time.
    for side in 2 * list(parking.sides):
        more, frames = True, list[str]()
        try:
            while more and time.monotonic() < deadline:
                frames, more = parking.take(side)
                to.call("migrate.park", name=name, side=side, frames=frames)
                forwarded += len(frames)
                frames = []
        except TailraceError as error:
            _log.warning("%s: %s frames for its port %s are not sent on: %s", name, len(frames) or "later", side, error)
            if not isinstance(error, Said):  # the connection, or the switch here, is of no more use
                break
    return forwarded


@contextmanager
def _received(reception: _Reception, keep: Callable[[], None], name: str, host: str) -> Iterator[None]:
    """Has the other node prepare the place, and undo that if the machine does not come. `keep` is called meanwhile."""
    try:
        reception.begin()
        deadline = time.monotonic() + _READY_SECONDS
        while not reception.place:
            keep()
            if reception.ended.wait(_LOOK_SECONDS):
                raise Failure(f"{host} does not take {name}: {reception.problem}; it goes on here")
            if time.monotonic() > deadline:
                raise Failure(
                    f"{host} has not prepared a place in {_READY_SECONDS:g} s: something else may be at work there; "
                    f"{name} goes on here"
                )
        yield
    except BaseException as error:
        with undisturbed():
            reception.client.cancel("the machine does not come")
            reception.ended.wait(_READY_SECONDS)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"{interrupted(error)}; {name} goes on here") from None
        raise


class _Watch:
    """Asks libvirt how far a machine is that is sent, and to end that where it has to, in a thread of its own: an
    answer may take long. QEMU writes the last of a machine with its lock held, and a lost network keeps it there."""

    def __init__(self, sending: Outgoing) -> None:
        self._sending = sending
        self._moved: float | None = None
        """When it was heard that more had got through; None: it has not begun."""
        self.progress: Progress | None = None
        """As of the last answer."""
        self.still = False
        """The machine was seen to stand still, which is short as a rule."""
        self.unwanted = False
        """To be set when the move is to end."""
        self.given_up = False
        """QEMU was asked after `STALLED_SECONDS`, and no more had got through."""
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    @property
    def silent(self) -> bool:
        """It was not heard for long that more had got through."""
        return self._moved is not None and time.monotonic() - self._moved >= STALLED_SECONDS

    def _look(self) -> None:
        sent: int | None = None
        answered: float | None = None
        bounded = 0
        while not self._sending.ended.wait(_LOOK_SECONDS):
            # First: while it stands still, QEMU may not answer what is asked below before they have given up.
            if bounded < self._sending.ways:
                bounded = self._sending.give_up_after(STALLED_SECONDS)
            self.still = self.still or self._sending.still()
            asked = time.monotonic()
            if answered is None or asked - answered >= _TELL_SECONDS:
                progress = self._sending.progress()
                answered = time.monotonic()
                if progress is not None and progress.sent_bytes != sent:
                    sent, self._moved = progress.sent_bytes, answered
                elif self._moved is not None and asked - self._moved >= STALLED_SECONDS:
                    self.given_up = True
                self.progress = progress
            if self.unwanted or self.given_up:
                self._sending.cancel()  # again and again: libvirt refuses that until it has begun


def _send(
    sending: Outgoing,
    reception: _Reception,
    keep: Callable[[], None],
    name: str,
    host: str,
    tell: Callable[[str], None],
) -> None:
    """Sends it, and says how far it is. `keep` is called meanwhile."""
    watch = _Watch(sending)
    shown: Progress | None = None
    silent = still = False
    cancelled: KeyboardInterrupt | None = None
    since = 0.0
    while True:
        if cancelled is not None and time.monotonic() - since >= _CANCEL_SECONDS:
            raise cancelled  # libvirt may wait for a copy there that stands still: who receives it ends that now
        try:
            if sending.ended.wait(_LOOK_SECONDS):
                break
            keep()
            # Nobody wants it, or is there to receive it.
            watch.unwanted |= cancelled is not None or reception.ended.is_set()
            if (progress := watch.progress) is not None and progress is not shown:
                shown = progress
                tell(progress.text)
            if watch.still and not still:
                still = True
                tell(f"{name} stands still; the rest of it is sent")
            if watch.silent and not silent:
                silent = True
                tell(
                    f"nothing of it is known to have come through to {host} for {STALLED_SECONDS:g} s: the move is "
                    "given up unless QEMU says otherwise when it answers"
                )
        except KeyboardInterrupt as error:
            if cancelled is None:
                cancelled, since = error, time.monotonic()
    if sending.problem is None:
        return  # also where it was cancelled too late
    there = f" ({host}: {reception.problem})" if reception.problem is not None else ""
    if sending.here() is False:
        raise Failure(
            f"{name} has ended here while it was sent: {sending.problem}{there}; its `restart` starts it anew here, "
            f"or else `tailrace up` does; {name}.log in the node's logs has what it said last"
        )
    if cancelled is not None:
        raise cancelled
    damaged = ""
    if sending.connections > 1:
        damaged = (
            "; where QEMU is 7.2, a move by several connections that has failed can leave it unable to move again "
            f"until it is started anew: `tailrace function restart {name}`"
        )
    if watch.given_up or watch.silent:
        raise Failure(
            f"{name} goes on here: nothing of it has come through to {host} for {STALLED_SECONDS:g} s, and its move "
            f"has ended ({sending.problem}); see whether the network between the hosts is well, and move it again"
            f"{there}{damaged}"
        )
    raise Failure(f"{name} goes on here: {sending.problem}{there}{damaged}")


def _hand_over(state: State, process: str, name: str, host: str, going: Client, reception: _Reception) -> None:
    """It has ended here, and stays so whatever becomes of this service; then it goes on there. Raises Failure where it
    is not known that it does: the lack of an answer says nothing, and the service asks for one (`came`)."""
    state.record.stopped = sorted({*state.record.stopped, name})
    state.record.unsettled[name] = Unsettled(host, reception.move)
    state.save()
    refused: TailraceError | None = None
    try:
        going.call("migrate.go", name=name)
    except TailraceError as error:
        refused = error
    ended = reception.ended.wait(_DONE_SECONDS)
    end_processes(state, [process])
    if not ended or reception.problem is not None:
        raise Failure(
            f"{name} has ended here, and {host} does not say that it forwards there ({reception.problem or refused}): "
            f"it is asked until it says whether {name} has come there; if not, {name} is started anew here"
        )
    del state.record.unsettled[name]
    state.record.moved[name] = host
    state.save()


def came(folder: Path, name: str, unsettled: Unsettled) -> bool:
    """Asks another node whether a machine has come that has ended here for it; no other operation is waited for. Raises
    Failure, Mistake, Said where it does not know, or does not answer: then the machine may run there."""
    with _other(folder, unsettled.host) as other:
        moves = other.facts(name).moves
    if unsettled.move not in moves:
        raise Failure(
            "it does not know, or not yet, whether the machine has come. If a change there was cut short, `tailrace "
            "up` there ends that. If you know that it runs nowhere, "
            f"`tailrace function start {name}` starts it anew here; "
            f"`tailrace function stop {name}` ends the asking"
        )
    return moves[unsettled.move]


def settle(held: Held, name: str, unsettled: Unsettled, *, came: bool) -> bool:
    """Does what is to be done where another node has said whether a machine has come. What has not is started anew, if
    nobody has done something about it since; returns whether it was. Raises Failure, Mistake."""
    resume(held)  # a change that was cut short may have started it
    state = held.state()
    if state.record.unsettled.get(name) != unsettled:
        return False
    if not came and name in state.record.stopped:
        replace_function(held, name, stopped=True, alone=True)
        return True
    del state.record.unsettled[name]
    if came and name in state.record.stopped:
        state.record.moved[name] = unsettled.host
    state.save()
    return False


def check_not_there(held: Held, name: str) -> None:
    """Raises Mistake where a function, or a replica of it, has moved to another node and runs there. A node that does
    not answer says nothing: it may be lost, with all that ran there."""
    record = held.state().record
    functions = {each.name: each.function for each in Plan.read(record.plan).started} if record.moved else {}
    for each, host in record.moved.items():
        if name not in (each, functions.get(each)):
            continue
        try:
            with _other(held.folder, host) as other:
                state = other.facts(each).state
        except TailraceError as error:
            _log.warning("%s has moved to %s, which does not say whether it runs there: %s", each, host, error)
            continue
        if state == "running":
            raise Mistake(
                f"{each} has moved to {host}, and runs there; `tailrace function stop {each}` there ends it, and "
                f"`tailrace migrate` there brings it back"
            )
