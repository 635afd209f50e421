"""`tailraced`: owns the record of one state folder, does what its clients ask for one at a time, and watches what runs.

Its main thread operates the node: one operation at a time, each ended in order by a cancel or SIGTERM, as a command is
by Ctrl-C. The server's thread (`tailrace.node.server`) talks to clients and watches processes. The service's own end
ends nothing: the next one takes up what runs.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import grp
import itertools
import json
import logging
import logging.handlers
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from tailrace import __version__
from tailrace.errors import Failure, Interrupted, Mistake, TailraceError
from tailrace.functions.runtime import Arrival, Origin
from tailrace.functions.runtimes import ended_well
from tailrace.functions.threads import Resized
from tailrace.functions.transfer import Limits
from tailrace.node import moving, operations, priorities
from tailrace.node.api import (
    Apply,
    Clone,
    Drain,
    FunctionCpus,
    Migrate,
    MigratePark,
    MigrateReceive,
    MigrateTo,
    Named,
    Propose,
    Restore,
    Rollback,
    Scale,
    Stop,
    Subscribe,
    Up,
)
from tailrace.node.client import API, ENDING, Client
from tailrace.node.failovers import leaving
from tailrace.node.health import Health, checked
from tailrace.node.kept import Kept
from tailrace.node.operations import PlanMaker
from tailrace.node.pools import Pools, pooled
from tailrace.node.restarts import Restarts
from tailrace.node.server import Call, Refusal, Server, refusal_of
from tailrace.node.standby import Standbys, pairs
from tailrace.node.status import status
from tailrace.node.strays import check_no_strays, strays
from tailrace.node.supervisor import Supervisor
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.process.interrupt import put_off
from tailrace.process.plain import PlainFormatter, plain_lines
from tailrace.process.process import ProcessId
from tailrace.process.systemd import enter
from tailrace.spec.load import parse_located
from tailrace.spec.position import Document
from tailrace.state.folder import LOG, default_folder
from tailrace.state.ours import forget_service
from tailrace.state.record import Held, Process, Record, State, Unsettled, holding, peek, run_at_work
from tailrace.switch.config import SWITCH, function_name, instance_name

_log = logging.getLogger("tailrace.service")
_PR_SET_NAME = 15
_PATIENCE = 2.0
"""Seconds for a service that is about to end to let go of the folder."""
_RELIEF = 60.0
"""Seconds that the service before this one may take to end what is being done."""
_UNUSED_SECONDS = 30.0
"""After which a service that was started, and asked for nothing, ends."""
_AGAIN_SECONDS = 1.0
_ASKED_AT_ONCE = 16
"""So many runtimes are asked at a time how a function has ended."""
_SEEK_SECONDS = 5.0
"""After which virtual functions that could not be made again are tried again."""
_RUN_SECONDS = 5.0
"""After which it is looked again whether a measurement has ended."""
_LOG_BYTES = 4 << 20

Answer = Mapping[str, Any]


_OWN, _OPERATES, _PLANS, _LAST = range(4)
"""What comes first: what the service does by itself, then what changes the node, then what only asks."""
_numbers = itertools.count()


def _nothing() -> Answer:
    return {}


@dataclass(order=True)
class _Work:
    """Something for the main thread: a client's call, or what the service does by itself."""

    urgency: int
    number: int = field(init=False, default_factory=lambda: next(_numbers))
    do: Callable[[], Answer] = field(compare=False, default=_nothing)
    call: Call | None = field(compare=False, default=None)
    done: Callable[[Answer | BaseException], None] = field(compare=False, default=lambda _: None)

    @property
    def looks(self) -> bool:
        """Whether it changes nothing, so that it can be begun anew."""
        return self.call is not None and not self.call.method.operates


@dataclass(frozen=True)
class _Led:
    """What was done about the chains of what has ended."""

    around: operations.LedAround
    record: Record
    """As it was before."""
    at: float
    """When it was done, of time.monotonic()."""


class Service:
    """The service of one folder."""

    def __init__(self, held: Held, *, while_up: bool, groups: tuple[int | None, int | None] = (None, None)) -> None:
        self.held = held
        self.while_up = while_up
        self.server = Server(held.folder, self._answer, self._cancel, groups)
        self.supervisor = Supervisor(self.server.loop, self._look_soon, self._port_is, self._configured_by)
        page = State(held.folder, Record(boot="")).page
        self.health = Health(self.server.loop, page, lambda name, why: self._say(name, "unhealthy", why))
        self.pools = Pools(self._fit_soon, page)
        self.standbys = Standbys(State(held.folder, Record(boot="")), self._stands_by)
        self._queue: queue.PriorityQueue[_Work] = queue.PriorityQueue()
        self._timer: asyncio.Handle | None = None
        """For the next start of what has ended; the server's thread's."""
        self._now: _Work | None = None
        self._restarting: _Work | None = None
        """What is at work, while it waits for functions that were started again."""
        self._cancelled: tuple[_Work, str] | None = None
        self._stopping = False
        self._known: dict[str, ProcessId] = {}
        """What ran when it was last looked at, by name."""
        self._noticed: dict[str, ProcessId] = {}
        """What was found to have ended by itself, by name."""
        self._unseen = threading.Event()
        """Something has ended since that was last looked at."""
        self._restarts = Restarts()
        self._died: dict[str, float] = {}
        """When what is to be started again was found to have ended, by name."""
        self.failed = False
        """The last call did, and not by its caller's mistake: what was logged may tell why."""
        self._adopted = False
        """Something was taken up, and was not looked at yet."""
        self._read: Record | None = None
        """The record when it could last be read."""
        self._unreadable: str | None = None
        """Why it cannot be read now."""
        self._told: str | None = None
        """The same, as it was last said."""
        self._around: dict[str, set[str]] = {}
        """The chains that lead past functions (replicas), and these."""
        self._comparing = False
        """That waits in the queue, or for the end of a measurement."""
        self._seeking = False
        """Virtual functions that went with their card are to be made again."""
        self._not_made: str | None = None
        """Why they cannot be, as it was last said."""
        self._gone: list[str] = []
        """Which they are, since that was last found."""
        self._plugging = False
        """Machines are to be looked at that may let go of virtual functions."""
        self._settling = False
        """Other nodes are to be asked for machines that have ended here for them."""
        self._asked = Restarts()
        """How often they were; another host's may take a while not to answer."""
        self._drift: list[str] = []
        """What the switch carries otherwise than planned."""
        self._kept = Kept.of_environment()
        self._boots = Restarts()
        self._expected: tuple[str, threading.Event, moving.Receiving] | None = None
        """The machine that comes from another node, and what says that it has ended there."""
        self._beside = moving.Beside(self._see_to_others)
        self._cpus = frozenset(os.sched_getaffinity(0))
        self._waiting: dict[Call, Callable[[Answer | BaseException], None]] = {}
        """Calls that wait for another or are at work, and what answers them; the server's thread's."""
        self._methods: dict[str, Callable[[Call], Answer]] = {
            "node.plan": self._plan,
            "node.up": self._up,
            "node.apply": self._apply,
            "node.rollback": self._rollback,
            "node.drain": self._drain,
            "function.restart": self._replace,
            "function.scale": self._scale,
            "function.cpus": self._function_cpus,
            "function.stop": self._stop_function,
            "function.start": self._start_function,
            "function.restore": self._restore,
            "function.clone": self._clone,
            "migrate.plan": self._migrate_plan,
            "migrate.run": self._migrate,
            "migrate.receive": self._receive,
            "node.resume": lambda _: {"notes": operations.resume(self.held)},
            "node.down": self._down,
        }

    # --- the main thread ---------------------------------------------------------------------------------------------

    def run(self, ready: Callable[[], object]) -> None:
        """Serves until it is told to end or, where it was started for what is up, nothing is."""
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._await_end, name="signals", daemon=True).start()
        self.server.start()
        try:
            self._adopt()
            ready()
            if not self.while_up and not self.wholly_up():
                self._queue.put(_Work(_OWN, self._bring_back))
            if self.while_up:  # whoever has started it may have ended before asking for anything
                self.server.soon(lambda: self.server.loop.call_later(_UNUSED_SECONDS, self._queue.put, _Work(_PLANS)))
            while not self._stopping:
                work = self._queue.get()
                self._do(work)
                if self._adopted and work.call is not None:  # whoever has started it has left so what had ended
                    self._adopted = False
                    self._look_soon()
                self._stopping |= self._ends()
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self.server.soon(self._refuse_waiting)
            self.server.soon(self.supervisor.close)
            self.server.soon(lambda: self.health.watch(()))
            self.pools.watch(())
            self.standbys.watch(())
            self.server.soon(self._refuse_waiting)  # also what was on its way
            self.server.stop()

    def _ends(self) -> bool:
        """Whether it has nothing to be there for any more: nothing is up, and no client waits."""
        with self._queue.mutex:
            asked = any(work.call is not None for work in self._queue.queue)
        return self.while_up and not asked and not self.something_up()

    def _do(self, work: _Work) -> None:
        before = self._record() or self._read
        result = self._result_of(work)
        given_up = self._stopping or (work.call is not None and work.call.given_up is not None)
        if isinstance(result, KeyboardInterrupt) and work.looks and not given_up:
            assert work.call is not None
            work.call.begun = False
            self._queue.put(work)
            return
        self._see(before)
        self._tell_whether_readable()
        if work.call is None:
            if isinstance(result, Exception):
                _log.error("internal error", exc_info=result)
            return
        self.failed = isinstance(result, BaseException) and not isinstance(result, Mistake)
        ends = {"service_ends": self._ends()}
        if isinstance(result, BaseException):
            said = operations.interrupted(result) if isinstance(result, KeyboardInterrupt) else result
            refusal = refusal_of(said)
            refusal.data = {**(refusal.data or {}), **ends}
            result = refusal
        elif work.call.method.operates:
            result = {**result, **ends}
        work.done(result)

    def _result_of(self, work: _Work) -> Answer | BaseException:
        """Does it; a cancel may come at any moment of that, and at none after it."""
        result: Answer | BaseException
        try:
            self._now = work
            try:
                if work.call is not None:
                    work.call.begun = True  # first: from here on whoever cancels it interrupts this
                if work.call is not None and work.call.given_up is not None:
                    raise KeyboardInterrupt(work.call.given_up)
                with _logs_to(work.call):
                    result = work.do()
            finally:
                self._now = None
        except BaseException as error:
            result = error
        self._cancelled = None
        return result

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """A cancel reaches the main thread as SIGINT, and so does Ctrl-C of who runs the service in a terminal."""
        if put_off(number, frame):
            return
        if self._cancelled is not None:
            work, why = self._cancelled
            self._cancelled = None
            if work is self._now:
                raise KeyboardInterrupt(why)
            return
        self._stopping = True
        raise KeyboardInterrupt("the service was ended by Ctrl-C")

    def _await_end(self) -> None:
        """In a thread of its own: a signal is not lost in a part of an operation that nothing may disturb."""
        number = signal.sigwait({signal.SIGTERM, signal.SIGHUP})
        self._end(f"the service was ended by {signal.Signals(number).name}")

    def _end(self, why: str) -> None:
        self._stopping = True
        if (work := self._now) is not None:
            self._interrupt(work, why)
        self._queue.put(_Work(_OWN))

    def _stop(self) -> Answer:
        self._stopping = True
        return {}

    def _interrupt(self, work: _Work, why: str) -> None:
        self._cancelled = (work, why)
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGINT)

    def _refuse_waiting(self) -> None:
        self.server.ending = True
        while not self._queue.empty():
            self._queue.get().done(Refusal(ENDING, "the service is about to end"))

    # --- what runs ---------------------------------------------------------------------------------------------------

    def _record(self) -> Record | None:
        """None where it cannot be read, or is lost of what runs."""
        try:
            record = self.held.state().record
            if not _on_record(record) and any(id.alive() for id in self._known.values()):
                check_no_strays(self.held.folder)
        except TailraceError as error:
            self._unreadable = str(error)
            return None
        self._read, self._unreadable = record, None
        return record

    def _tell_whether_readable(self) -> None:
        if self._unreadable == self._told:
            return
        self._told = self._unreadable
        if self._unreadable is not None:
            self.server.publish("node.unreadable", why=self._unreadable)
        else:
            self.server.publish("node.readable")

    def something_up(self) -> bool:
        """Also where the record cannot be read and something runs, which is not left alone before `down`."""
        record = self._record()
        if record is None:
            known = any(id.alive() for id in self._known.values())
            return known or any(isinstance(each, Process) for each in strays(self.held.folder))
        return record.complete or any(isinstance(each, Process) for each in record.things)

    def wholly_up(self) -> bool:
        record = self._record()
        return record is not None and record.complete

    def _adopt(self) -> None:
        """Takes up what an earlier service has left running."""
        record = self._record()
        if record is not None and record.things:
            self._known = _running(record)
            self.server.publish("service.adopted", runs=sorted(self._known))
            self._watch(record)
            self._plug_soon(record)
            self._settle_soon(record)
            self._adopted = True
            if not self.while_up:
                self._look_soon()

    def _see(self, before: Record | None) -> None:
        """Publishes what an operation has changed, and watches what runs now."""
        now = self._record()
        if now is None:
            return
        was, runs = self._known, _running(now)
        self._known = runs
        for role in map(function_name, runs):
            self._died.pop(role, None)
            if self._restarts.pause(role, 0.0) is not None:  # somebody else has started it
                self._restarts.started(role, time.monotonic())
        if not now.things:
            self._restarts, self._noticed, self._died = Restarts(), {}, {}
        on_record = {thing.name for thing in now.things if isinstance(thing, Process)}
        for name, process in was.items():
            if runs.get(name) != process and name not in on_record:  # else it has ended by itself (_look)
                self.server.publish(_kind(name, "ended"), name, pid=process.pid)
        for name, process in runs.items():
            if was.get(name) != process:
                self.server.publish(_kind(name, "up"), name, pid=process.pid)
        if now.complete and (before is None or before.version != now.version):
            self.server.publish("version.applied", version=now.version, spec=now.spec)
        for chain in [each for each, functions in self._around.items() if not functions.intersection(now.around)]:
            del self._around[chain]
            self.server.publish("chain.restored", chain)
        if now.complete and not (before and before.complete):
            self.server.publish("node.up", spec=now.spec)
        if before is not None and before.things and not now.things:
            self.server.publish("node.down", spec=before.spec)
        self._plug_soon(now)
        self._settle_soon(now)
        if now.complete and not now.changing:
            self._keep(now)
        self._watch(now)
        watched = _on_record(now) | {priorities.key_of(each): each.id for each, _ in priorities.followers(now)}
        if any(not id.alive() and self._noticed.get(name) != id for name, id in watched.items()):
            self._look_soon()  # it has ended before it was watched

    def _keep(self, record: Record) -> None:
        """Keeps it for the next boot, and that on record."""
        try:
            self._kept.write(record.plan, record.spec)
            if record.kept != self._kept.path:
                state = State(self.held.folder, record)
                record.kept = self._kept.path
                state.save()
        except (OSError, Failure) as error:
            _log.error("what is up cannot be kept for the next boot: %s", error)

    def _bring_back(self) -> Answer:
        """Brings back what was up before the machine was started anew; again and again, where that fails."""
        if self.wholly_up():  # somebody else was first
            return {}
        now = time.monotonic()
        try:
            kept = self._kept.read()
            if kept is not None:
                operations.bring_up(self.held, *kept)
                self.server.publish("node.resumed", spec=kept[1])
        except TailraceError as error:
            pause = max(self._boots.ended("node", now), 1.0)
            self.server.publish("node.failed", why=str(error), again_in=pause)
            again = _Work(_OWN, self._bring_back)
            self.server.soon(lambda: self.server.loop.call_later(pause, self._queue.put, again))
        return {}

    def _watch(self, record: Record) -> None:
        processes = _running(record)
        control = State(self.held.folder, record).control
        functions = checked(record)
        watched = [*processes.values(), *(each.id for each, _ in priorities.followers(record) if each.id.alive())]
        self.server.soon(lambda: self.supervisor.watch(watched, processes.get(SWITCH), control))
        self.server.soon(lambda: self.health.watch(functions))
        cpus = (self._cpus - _pollers(record)) or self._cpus
        self.server.run_on(cpus)
        self.pools.watch(pooled(record), cpus)
        self.standbys.watch(pairs(record), cpus)

    def _look_soon(self) -> None:
        """In the server's thread: a process has ended, as was wanted or not: that is known once no operation runs. What
        has ended before, and does not come back, keeps nobody from looking after its chain; neither does a plan, which
        is made again after that."""
        self._unseen.set()
        self._queue.put(_Work(_OWN, self._look))
        work = self._restarting or self._now
        if work is not None and (work is self._restarting or work.looks):
            self._interrupt(work, "something else has ended")

    def _look(self) -> Answer:
        """Finds what has ended by itself; has it started again, and its chain looked after until then."""
        now = time.monotonic()
        record = self._notice(now)
        if record is None:
            return {}
        self._look_at_priorities(record, _policies(record), now)
        return self._start_again()

    def _notice(self, now: float, but: Collection[str] = ()) -> Record | None:
        """Finds what has ended by itself, has its chain looked after, and notes when it is due; not these functions (or
        replicas). Returns the record of before; None: it cannot be read."""
        self._unseen.clear()
        record = self._record()
        if record is None:
            return None
        on_record = {name: id for name, id in _on_record(record).items() if function_name(name) not in but}
        ended = [name for name, id in on_record.items() if not id.alive() and self._noticed.get(name) != id]
        for name in ended:
            self._known.pop(name, None)
            self._noticed[name] = on_record[name]
            self._died.setdefault(function_name(name), now)
        led = self._led_around(but) if ended or but else None  # first: how it ended podman may take a while to say
        policies = _policies(record)
        policy = {name: _policy_of(name, policies, record) for name in ended}
        asked = [name for name in ended if policy[name] == "on-failure" and record.complete]
        well = _ended_well(asked, record, self.held.folder / "logs")
        for name in ended:
            again = policy[name] != "never" and name not in well and record.complete
            pause = self._restarts.ended(function_name(name), now) if again else None
            self.server.publish(_kind(name, "died"), name, pid=on_record[name].pid, again_in=pause)
        if led is not None:
            self._tell_led(led)
        return record

    def _see_to_others(self, name: str, changed: Callable[[], None]) -> None:
        """While a machine is sent, which may take minutes: has the chains of what else has ended looked after. That is
        started again after the move."""
        if not self._unseen.is_set():
            return
        # A cancel comes after it: what it writes down is what the switch has then.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._notice(time.monotonic(), [name])
            changed()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def _look_at_priorities(self, record: Record, policies: Mapping[str, str], now: float) -> None:
        """Gives machines their planned priority whose follower has ended, and has it started again."""
        for follower, _ in priorities.ended(record):
            key = priorities.key_of(follower)
            if self._noticed.get(key) == follower.id:
                continue
            self._noticed[key] = follower.id
            priorities.give_back_planned(record)
            again = policies.get(function_name(follower.of), "never") != "never" and record.complete
            pause = self._restarts.ended(key, now) if again else None
            self._died[key] = now
            self.server.publish("function.priority_lost", follower.of, pid=follower.pid, again_in=pause)

    def _follow_again(self, key: str) -> None:
        """Has the priority of a machine follow again what it runs."""
        now = time.monotonic()
        try:
            name = priorities.start_again(self.held, key)
        except TailraceError as error:
            pause = self._restarts.ended(key, now)
            name = key.removesuffix(".priority")
            self.server.publish("function.priority_lost", name, why=str(error), again_in=pause)
            return
        self._restarts.started(key, time.monotonic())
        if name is not None:
            taken = round((time.monotonic() - self._died.pop(key, now)) * 1e3, 1)
            self.server.publish("function.priority_back", name, milliseconds=taken)

    def _lead_around(self) -> None:
        """Looks after the chains of what has ended, for as long as it has; tried again where that fails."""
        led = self._led_around()
        if led is not None:
            self._tell_led(led)

    def _led_around(self, but: Collection[str] = ()) -> _Led | None:
        """Does so, but not for these; what is to be told of it."""
        record = self._record()
        if record is None or not record.complete or SWITCH not in _running(record):
            return None
        try:
            return _Led(operations.lead_around(self.held, but), record, time.monotonic())
        except (TailraceError, OSError) as error:
            _log.error("chains of what has ended: %s", error)
            self.server.soon(lambda: self.server.loop.call_later(_AGAIN_SECONDS, self._look_soon))
            return None

    def _tell_led(self, led: _Led) -> None:
        for name, ended in led.around.took_over.items():
            taken = round((led.at - self._died.get(ended, led.at)) * 1e3, 1)
            self.server.publish("function.took_over", name, ended=ended, milliseconds=taken)
        functions = led.around.functions
        replicas = {each["name"] for each in led.record.plan["functions"] if each["function"] in functions}
        began = min((self._died[name] for name in replicas if name in self._died), default=led.at)
        for chain in led.around.chains:
            taken = round((led.at - began) * 1e3, 1)
            self.server.publish("chain.bypassed", chain, functions=functions, milliseconds=taken)
            self._around[chain] = self._around.get(chain, set()) | replicas

    def _start_again(self) -> Answer:
        """Starts what is due, the switch first, as functions attach to it; whatever has ended is led around."""
        now = time.monotonic()
        due = self._restarts.due(now)
        if SWITCH in due:
            self._try([SWITCH])
        self._lead_around()
        names = [name for name in due if name != SWITCH and not priorities.is_key(name)]
        record = self._record()
        if names and (record is None or SWITCH not in _running(record)):
            for name in names:
                self._restarts.put_off(name, now + _AGAIN_SECONDS)
        elif names:
            self._start_functions(names)
            self._lead_around()
        for key in filter(priorities.is_key, due):  # the last, since each waits for its machine's agent
            self._follow_again(key)
        self._wait_for_the_next()
        return {}

    def _start_functions(self, names: Sequence[str]) -> None:
        """Starts these again; they come after whatever ends meanwhile."""
        self._restarting = self._now
        try:
            if not self._try(names) and len(names) > 1:
                for name in names:  # one that cannot be started keeps no other from it
                    self._try([name])
        except (Interrupted, KeyboardInterrupt):
            for name in names:
                self._restarts.put_off(name, time.monotonic() + _AGAIN_SECONDS)
        finally:
            self._restarting = None

    def _try(self, names: Sequence[str]) -> bool:
        """Starts all of these again, or none. Raises Interrupted."""
        try:
            if list(names) == [SWITCH]:
                operations.restart_switch(self.held)
                started = [SWITCH]
            else:
                started = operations.restart(self.held, names)
        except Interrupted:
            raise
        except TailraceError as error:
            for name in names:
                pause = self._restarts.ended(name, time.monotonic())
                if len(names) == 1:
                    self.server.publish(_kind(name, "failed"), name, why=str(error), again_in=pause)
            return False
        for name in names:
            self._restarts.started(name, time.monotonic())
        for name in started:
            taken = round((time.monotonic() - self._died.pop(name, time.monotonic())) * 1e3, 1)
            self.server.publish(_kind(name, "restarted"), name, milliseconds=taken)
        return True

    def _wait_for_the_next(self) -> None:
        pause = self._restarts.next_in(time.monotonic())

        def wait() -> None:
            if self._timer is not None:
                self._timer.cancel()
            again = _Work(_OWN, self._start_again)
            self._timer = self.server.loop.call_later(pause, self._queue.put, again) if pause is not None else None

        self.server.soon(wait)

    def _port_is(self, name: str, state: str, why: str | None) -> None:
        """In the server's thread: what the switch says of a port."""
        self.server.publish(f"port.{state}", name, **({"why": why} if why else {}))
        if state == "removed" and not self._seeking:
            self._seeking = True
            self._queue.put(_Work(_OWN, self._make_functions_again))

    def _plug_soon(self, record: Record) -> None:
        """A machine may let go later of a function that it is to keep."""
        if self._plugging or not leaving(record):
            return
        self._plugging = True
        again = _Work(_OWN, self._plug_again)
        self.server.soon(lambda: self.server.loop.call_later(_SEEK_SECONDS, self._queue.put, again))

    def _plug_again(self) -> Answer:
        self._plugging = False
        record = self._record()
        if record is not None and record.complete and not record.changing:
            try:
                operations.plug_again(self.held)
            except TailraceError as error:
                _log.error("virtual functions that machines have let go of: %s", error)
        return {}  # _see() asks for the next look

    def _settle_soon(self, record: Record) -> None:
        """A machine has ended here for another node, which has not said that it has it."""
        if self._settling or not record.unsettled:
            return
        self._settling = True
        again, pause = _Work(_OWN, self._settle), self._asked.ended("unsettled", time.monotonic())
        self.server.soon(lambda: self.server.loop.call_later(pause, self._queue.put, again))

    def _settle(self) -> Answer:
        """Asks in a thread of its own: another host may take long not to answer."""
        record = self._record()
        if record is None or not record.complete or not record.unsettled:
            self._settling = False
            return {}
        wanted, folder = dict(record.unsettled), self.held.folder

        def ask() -> None:
            for name, unsettled in wanted.items():
                try:
                    came = moving.came(folder, name, unsettled)
                except Exception as error:  # whatever it is, the next one is asked
                    _log.error("%s, %s: %s", name, unsettled.host, error)
                else:
                    self._queue.put(_Work(_OWN, partial(self._settle_one, name, unsettled, came)))
            self._queue.put(_Work(_OWN, self._have_asked))

        threading.Thread(target=ask, name="unsettled", daemon=True).start()
        return {}

    def _settle_one(self, name: str, unsettled: Unsettled, came: bool) -> Answer:
        try:
            if moving.settle(self.held, name, unsettled, came=came):
                self.server.publish("function.returned", name)
        except TailraceError as error:
            _log.error("%s, %s: %s", name, unsettled.host, error)
        return {}

    def _have_asked(self) -> Answer:
        self._settling = False
        if (record := self._record()) is None or not record.unsettled:
            self._asked.forget("unsettled")
        return {}  # _see() asks for the next time

    def _make_functions_again(self) -> Answer:
        """After a reset of their card virtual functions are made again; tried again while that cannot be, as when the
        card is down."""
        record = self._record()
        if record is None or not record.complete or record.changing:
            self._seeking, self._not_made, self._gone = False, None, []
            return {}
        try:
            self._gone = list(dict.fromkeys([*self._gone, *operations.functions_gone(self.held)]))
            there = operations.make_functions_again(self.held)
        except TailraceError as error:
            if str(error) != self._not_made:
                self._not_made = str(error)
                self.server.publish("card.lost", why=self._not_made)
            again = _Work(_OWN, self._make_functions_again)
            self.server.soon(lambda: self.server.loop.call_later(_SEEK_SECONDS, self._queue.put, again))
            return {}
        back = [name for name in self._gone if name in there]
        self._seeking, self._not_made, self._gone = False, None, []
        if back:
            self.server.publish("card.back", functions=back)
        return {}

    def _say(self, name: str, what: str, why: str) -> None:
        """In the server's thread: something about a process."""
        self.server.publish(_kind(name, what), name, why=why)

    def _stands_by(self, kind: str, name: str, details: dict[str, Any]) -> None:
        """In a thread of its own: a function in standby is in step, or cannot be."""
        with suppress(RuntimeError):  # the server has ended
            self.server.soon(lambda: self.server.publish(kind, name, **details))

    def _fit_soon(self, name: str, count: int, load: float) -> None:
        """In a thread of its own: a function's load asks for so many CPUs."""
        self._queue.put(_Work(_OWN, lambda: self._fit(name, count, load)))

    def _fit(self, name: str, count: int, load: float) -> Answer:
        """Gives a function the CPUs that its load asks for; asked for again, after a pause, where that cannot be."""
        began = time.monotonic()
        why = "it could not be asked"
        has: int | None = None
        try:
            applied = operations.fit_cpus(self.held, name, count)
            has = count
            self._tell_resized(applied.resized if applied is not None else {}, began, load=round(load, 2))
        except TailraceError as error:
            why = str(error)
        finally:
            if self.pools.answered(name, has):
                self.server.publish("function.crowded", name, why=why, wanted=count, load=round(load, 2))
        return {}

    def _tell_resized(self, resized: Mapping[str, Resized], began: float, **details: Any) -> None:
        taken = round((time.monotonic() - began) * 1e3, 1)
        for name, each in resized.items():
            self.server.publish(
                "function.resized", name, before=each.before, now=each.now, milliseconds=taken, **details
            )

    def _configured_by(self, pid: int) -> None:
        """In the server's thread: somebody has changed the switch."""
        if (pid != os.getpid() or self._drift) and not self._comparing:
            self._comparing = True
            self._queue.put(_Work(_OWN, self._compare))

    def _compare(self) -> Answer:
        """Looks whether the switch is as planned; not while a measurement of ours uses it, which puts it back: it is
        waited for once, however often that changes the switch."""
        if run_at_work(self.held.folder):
            self.server.soon(
                lambda: self.server.loop.call_later(_RUN_SECONDS, self._queue.put, _Work(_OWN, self._compare))
            )
            return {}
        self._comparing = False
        record = self._record()
        if record is None or not record.complete or record.changing or SWITCH not in _running(record):
            return {}
        try:
            drift = operations.drift(self.held)
        except TailraceError as error:
            _log.error("whether the switch is as planned cannot be seen: %s", error)
            return {}
        if drift and drift != self._drift:
            self.server.publish("node.drifted", unlike=drift)
        elif self._drift and not drift:
            self.server.publish("node.as_planned")
        self._drift = drift
        return {}

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _answer(self, call: Call) -> Answer:
        """In the server's thread: a call's result."""
        name, params = call.method.name, call.params
        if name == "service.version":
            return {
                "program": "tailraced",
                "version": __version__,
                "api": API,
                "pid": os.getpid(),
                "folder": str(self.held.folder),
                "while_up": self.while_up,
            }
        if name == "events.subscribe":
            assert isinstance(params, Subscribe)
            return {"next": self.server.subscribe(call.client, params.since)}
        if name == "service.stop":
            assert isinstance(params, Stop)
            if params.when_idle:
                self._queue.put(_Work(_LAST, self._stop))
            else:
                self._end("the service was told to end")
            return {"service_ends": True}
        if name == "migrate.park":
            assert isinstance(params, MigratePark)
            return self._park(params)
        if name in ("migrate.go", "migrate.cancel"):
            assert isinstance(params, Named)
            return (self._go if name == "migrate.go" else self._cancel_move)(params.name)
        if name == "migrate.facts":  # of a node that may be busy for minutes with a move of its own
            assert isinstance(params, Named)
            facts = partial(moving.facts, self.held.folder, params.name, self._beside)
            return {"facts": await self.server.loop.run_in_executor(None, facts)}
        if name == "node.status":
            found = await self.server.loop.run_in_executor(None, status, self.held.folder)
            for process in found["processes"]:
                process["again_in"] = self._restarts.pause(function_name(process["name"]), time.monotonic())
            in_step = self.standbys.as_data()
            for replica in (each for function in found["functions"] for each in function["replicas"]):
                replica["in_step"] = in_step.get(replica["name"], [])
            return {**found, "service": {"pid": os.getpid(), "version": __version__}}
        future: asyncio.Future[Answer] = self.server.loop.create_future()

        def done(result: Answer | BaseException) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        urgency = _OPERATES if call.method.operates else _PLANS
        work = _Work(
            urgency, lambda: self._methods[name](call), call, lambda result: self.server.soon(lambda: done(result))
        )
        self._waiting[call] = done
        try:
            self._queue.put(work)
            return await future
        finally:
            del self._waiting[call]

    def _cancel(self, call: Call, why: str) -> None:
        """In the server's thread. A call that still waits for another is not begun, and has its answer now."""
        if call.given_up is not None:
            return
        call.given_up = why
        work = self._now
        if work is not None and work.call is call:
            self._interrupt(work, why)
        elif not call.begun and call in self._waiting:
            self._waiting[call](operations.interrupted(KeyboardInterrupt(why)))

    def _plan(self, call: Call) -> Answer:
        assert isinstance(call.params, Propose)
        make, document = self._planner(call.params)
        with document.locating():
            return operations.propose(self.held.folder, make).as_data()

    def _planner(self, params: Propose) -> tuple[PlanMaker, Document]:
        return operations.planner(
            params.spec.text, params.spec.name, Path(params.spec.folder), params.huge, self.held.folder
        )

    def _up(self, call: Call) -> Answer:
        assert isinstance(call.params, Up)
        given = call.params.spec
        spec, document = parse_located(given.text, given.name)
        folder, own = Path(given.folder), [self.held.folder]
        huge = call.params.huge

        def bring_up() -> operations.Raised:
            plan = make_plan(spec, huge=huge, document=document, folder=folder, own=own)
            call.tell("progress", text=plan.placement.headline)
            with document.locating():
                return operations.bring_up(self.held, plan, given.path)

        raised = operations.until_claimed(bring_up)
        return {"changed": raised.changed, "said": raised.said, "notes": list(raised.notes)}

    def _apply(self, call: Call) -> Answer:
        assert isinstance(call.params, Apply)
        make, document = self._planner(call.params)
        with document.locating():
            return operations.apply(self.held, make, call.params.spec.path, call.params.base).as_data()

    def _rollback(self, call: Call) -> Answer:
        assert isinstance(call.params, Rollback)
        return operations.rollback(self.held, call.params.base).as_data()

    def _drain(self, call: Call) -> Answer:
        assert isinstance(call.params, Drain)
        return operations.drain(self.held, call.params.replica, active=call.params.active).as_data()

    def _scale(self, call: Call) -> Answer:
        assert isinstance(call.params, Scale)
        given = call.params
        return operations.scale(self.held, given.name, given.count, remove=given.remove).as_data()

    def _function_cpus(self, call: Call) -> Answer:
        assert isinstance(call.params, FunctionCpus)
        began = time.monotonic()
        applied, milliseconds = operations.function_cpus(self.held, call.params.name, call.params.count)
        self._tell_resized(applied.resized, began)
        return {**applied.as_data(), "milliseconds": milliseconds}

    def _replace(self, call: Call) -> Answer:
        assert isinstance(call.params, Named)
        moving.check_not_there(self.held, call.params.name)
        return operations.replace_function(self.held, call.params.name).as_data()

    def _stop_function(self, call: Call) -> Answer:
        assert isinstance(call.params, Named)
        return {"stopped": operations.stop_function(self.held, call.params.name)}

    def _start_function(self, call: Call) -> Answer:
        assert isinstance(call.params, Named)
        moving.check_not_there(self.held, call.params.name)
        return operations.replace_function(self.held, call.params.name, stopped=True).as_data()

    def _restore(self, call: Call) -> Answer:
        assert isinstance(call.params, Restore)
        moving.check_not_there(self.held, call.params.name)
        origin = Origin(Path(call.params.file))
        return operations.replace_function(self.held, call.params.name, origin=origin).as_data()

    def _clone(self, call: Call) -> Answer:
        assert isinstance(call.params, Clone)
        moving.check_not_there(self.held, call.params.to)
        return operations.clone_function(self.held, call.params.name, call.params.to).as_data()

    def _migrate_plan(self, call: Call) -> Answer:
        assert isinstance(call.params, MigrateTo)
        return {"reasons": moving.propose(self.held, call.params.name, call.params.host)}

    def _migrate(self, call: Call) -> Answer:
        assert isinstance(call.params, Migrate)
        given = call.params
        limits = Limits(given.bandwidth, given.downtime_ms, given.connections)
        moved = moving.move(
            self.held,
            given.name,
            given.host,
            limits,
            lambda text: call.tell("progress", text=text),
            self._beside,
        )
        self.server.publish("function.moved", given.name, to=given.host, pause_ms=moved.pause_ms)
        return asdict(moved)

    def _receive(self, call: Call) -> Answer:
        assert isinstance(call.params, MigrateReceive)
        given, go = call.params, threading.Event()
        receiving = moving.Receiving(self.held.folder, given.name)

        def ready(domain: str, name: str) -> None:
            receiving.begin()
            call.tell("migrate.ready", domain=domain, name=name)

        def given_up() -> str | None:
            receiving.keep()
            if receiving.cut_off:
                return "the switch here has ended while it was sent"
            gone = call.given_up is not None or call.client.gone or self._stopping
            return "the other node has given up" if gone else None

        arrival = Arrival(given.domain, ready, go, given_up, lambda: receiving.cut_off, given.move)
        self._expected = (given.name, go, receiving)
        try:
            applied, taken = moving.receive(self.held, given.name, arrival)
            call.tell("migrate.arrived", **taken, parked=receiving.drain())
        finally:
            self._expected = None
            receiving.end()
        self.server.publish("function.arrived", given.name)
        return applied.as_data()

    def _park(self, given: MigratePark) -> Answer:
        """In the server's thread: frames for a machine that is expected and has not been told to go on."""
        expected = self._expected
        if expected is None or expected[0] != given.name or expected[1].is_set():
            raise Mistake(f"{given.name} is not expected here")
        expected[2].give(given.side, given.frames)
        return {"parked": True}

    def _go(self, name: str) -> Answer:
        """In the server's thread: a machine that is expected has ended where it came from."""
        expected = self._expected
        if expected is None or expected[0] != name:
            raise Mistake(f"{name} is not expected here")
        expected[2].settle()
        expected[1].set()
        return {"cancelled": False}

    def _cancel_move(self, name: str) -> Answer:
        """In the server's thread. Raises Mistake where no move of it is at work."""
        work = self._now
        call = work.call if work is not None else None
        if call is not None and isinstance(call.params, Migrate) and call.params.name == name:
            self._cancel(call, "cancelled by `tailrace migrate --cancel`")
            return {"cancelled": True}
        record = peek(self.held.folder)
        operations.check_up(self.held.folder, record)
        known = [each.name for each in Plan.read(record.plan).started]
        if name not in known:
            raise Mistake(f"{name!r} is no function that Tailrace has started; there are: {', '.join(known) or 'none'}")
        raise Mistake(f"no move of {name} is at work; `tailrace status` says whether it runs here")

    def _down(self, _call: Call) -> Answer:
        try:
            self._kept.forget()
        except OSError as error:
            _log.error("%s: %s", error.filename, error.strerror)
        return asdict(operations.take_down(self.held))


def _kind(name: str, what: str) -> str:
    """The kind of an event about a process."""
    return f"{SWITCH if name == SWITCH else 'function'}.{what}"


def _policies(record: Record) -> dict[str, str]:
    """Whether the switch and each function are started again."""
    try:
        plan = Plan.read(record.plan)
    except Mistake:
        return {}
    return {SWITCH: plan.restart, **{each.name: each.restart for each in plan.functions}}


def _policy_of(name: str, policies: Mapping[str, str], record: Record) -> str:
    """Whether a process that has ended is started again."""
    role = function_name(name)
    if name not in (SWITCH, instance_name(role, record.instances.get(role, 1))):
        return "never"  # another has its place already
    return policies.get(role, "never")


def _ended_well(names: Sequence[str], record: Record, logs: Path) -> set[str]:
    """Those that have ended as one does that is done. All are asked after at once: podman may take seconds for each."""
    processes = [each for each in record.things if isinstance(each, Process) and each.name in names]
    if not processes:
        return set()
    with ThreadPoolExecutor(max_workers=min(len(processes), _ASKED_AT_ONCE)) as pool:
        well = pool.map(lambda process: ended_well(process, logs), processes)
        return {process.name for process, done in zip(processes, well, strict=True) if done}


def _on_record(record: Record) -> dict[str, ProcessId]:
    """The processes by name."""
    return {thing.name: thing.id for thing in record.things if isinstance(thing, Process)}


def _running(record: Record) -> dict[str, ProcessId]:
    return {name: id for name, id in _on_record(record).items() if id.alive()}


def _pollers(record: Record) -> frozenset[int]:
    """The CPUs that poll."""
    try:
        placement = Plan.read(record.plan).placement if record.plan else None
    except Mistake:
        return frozenset()
    if placement is None:
        return frozenset()
    polling = [core for place in placement.functions.values() if place.mode == "poll" for core in place.cores]
    return frozenset((*placement.workers, placement.switch.core, *polling))


class _ToCaller(logging.Handler):
    """Sends what is logged to the client whose call it is about."""

    def __init__(self, call: Call) -> None:
        super().__init__(logging.DEBUG if call.verbose > 1 else logging.INFO)
        self._call = call

    def emit(self, record: logging.LogRecord) -> None:
        self._call.tell("log", level=record.levelno, text=record.getMessage())


@contextmanager
def _logs_to(call: Call | None) -> Iterator[None]:
    if call is None or not call.verbose:
        yield
        return
    logger, handler = logging.getLogger("tailrace"), _ToCaller(call)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level, handler.level))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


# --- the program ---------------------------------------------------------------------------------------------------


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tailraced", description="The service that runs a node, for one state folder.")
    parser.add_argument("folder", type=Path, nargs="?", help="default: $TAILRACE_STATE, or /run/tailrace")
    parser.add_argument("--while-up", action="store_true", help="end when nothing is up")
    parser.add_argument("--operate-group", metavar="GROUP", type=_group_id, help="who may operate, beside the owner")
    parser.add_argument("--look-group", metavar="GROUP", type=_group_id, help="who may look, beside the owner")
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _group_id(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise argparse.ArgumentTypeError(f"no group {name!r}; make it: `groupadd {name}`") from None


def _log_to(folder: Path | None) -> None:
    """Logs to a file of bounded size, or to standard error where that is the journal's, or a terminal."""
    handler: logging.Handler
    if folder is None:
        handler = logging.StreamHandler()
        handler.setFormatter(PlainFormatter("%(message)s"))
    else:
        handler = logging.handlers.RotatingFileHandler(folder / LOG, maxBytes=_LOG_BYTES, backupCount=1)
        handler.setFormatter(PlainFormatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s"))
    logger = logging.getLogger("tailrace")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _notify_systemd() -> None:
    """Tells systemd that the service answers (sd_notify(3)), where it was started by that."""
    address = os.environ.pop("NOTIFY_SOCKET", None)
    if address is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, suppress(OSError):
        notify.sendto(b"READY=1", address.replace("@", "\0", 1) if address.startswith("@") else address)


def _relieve(folder: Path) -> None:
    """Has a service that a command has started for what is up make room for this one, which is to stay, once nothing is
    being done. Whatever else is in the way is said by who wants to hold the folder."""
    with suppress(TailraceError):
        client = Client(folder)
        try:
            if client.call("service.version")["while_up"]:
                client.call("service.stop", when_idle=True)
                client.wait_for_end(_RELIEF)
        finally:
            client.close()


def main(argv: list[str] | None = None) -> int:
    """Runs the service; returns its exit status."""
    options = _arguments(sys.argv[1:] if argv is None else argv)
    enter()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"tailraced", 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})

    def tell(answer: Mapping[str, Any]) -> None:
        if options.ready_fd is None:
            return
        os.write(options.ready_fd, json.dumps(answer).encode() + b"\n")
        os.close(options.ready_fd)
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def ready() -> None:
        tell({"pid": os.getpid()})
        _notify_systemd()

    try:
        folder = Path(os.path.realpath(options.folder or default_folder()))
        if not options.while_up:
            _relieve(folder)
        with holding(folder, patience=_PATIENCE) as held:
            held.take()
            earlier = (folder / LOG).exists()
            _log_to(folder if options.while_up else None)
            service = Service(held, while_up=options.while_up, groups=(options.operate_group, options.look_group))
            in_order = False
            try:
                service.run(ready)
                in_order = True
            finally:
                if options.while_up and not service.something_up():
                    said = (folder / LOG).is_file() and (folder / LOG).stat().st_size > 0
                    forget_service(folder, log=not said or (in_order and not (earlier and service.failed)))
    except (TailraceError, OSError) as error:
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        why = error if isinstance(error, TailraceError) else Failure(f"{where}{error.strerror or error}")
        tell({"lines": list(why.lines), "exit_status": int(why.exit_status)})
        if options.ready_fd is None:
            print(f"tailraced: {plain_lines(str(why))}", file=sys.stderr)
        return int(why.exit_status)
    return 0


if __name__ == "__main__":
    sys.exit(main())
