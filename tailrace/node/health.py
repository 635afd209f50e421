"""Whether functions that run are well, found out as their spec says: by a command inside, or by the frames that wait
for them. Runs in the server's event loop.

One that is not is killed; what becomes of it then is what becomes of any that has ended by itself.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Failure, Mistake
from tailrace.functions.runtimes import beside
from tailrace.observe.page import Page
from tailrace.plan.planned import Plan, PlannedHealth
from tailrace.process.plain import last_line
from tailrace.process.process import ProcessId
from tailrace.state.record import Process, Record
from tailrace.switch.config import function_name

Counters = Mapping[str, Mapping[str, int]]
"""Of each port, by name."""


@dataclass(frozen=True)
class Checked:
    """A function that is looked after."""

    name: str
    process: ProcessId
    health: PlannedHealth
    command: tuple[str, ...]
    """What is run for that; empty: its ports are looked at."""
    ports: tuple[str, ...]


def checked(record: Record) -> list[Checked]:
    """The functions that run and are to be looked after."""
    try:
        planned = {each.name: each for each in Plan.read(record.plan).started} if record.complete else {}
    except Mistake:
        return []
    found = []
    for process in (thing for thing in record.things if isinstance(thing, Process) and thing.runtime):
        function = planned.get(function_name(process.name))
        if function is None or function.health is None or not process.id.alive():
            continue
        ports = tuple(f"{process.name}.{number}" for number in range(len(function.ports)))
        with suppress(Mistake):  # what has started it is no longer there
            command = beside(process, function.health.command) if function.health.command else ()
            found.append(Checked(process.name, process.id, function.health, tuple(command), ports))
    return found


class Health:
    """The functions of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, page: Path, unhealthy: Callable[[str, str], None]) -> None:
        """`page` is the switch's page of counters; `unhealthy` is called with the name of one that is about to be
        killed, and why."""
        self._loop = loop
        self._page = page
        self._unhealthy = unhealthy
        self._tasks: dict[Checked, asyncio.Task[None]] = {}

    def watch(self, functions: Iterable[Checked]) -> None:
        """Looks after these, and no others any more."""
        wanted = set(functions)
        for gone in set(self._tasks) - wanted:
            self._tasks.pop(gone).cancel()
        for each in wanted - set(self._tasks):
            self._tasks[each] = self._loop.create_task(self._look_after(each))

    async def _look_after(self, checked: Checked) -> None:
        failed = 0
        before: Counters = {}
        while checked.process.alive():
            if checked.command:
                await asyncio.sleep(checked.health.every)
                why = await _failure(checked.command, checked.health.timeout)
            else:
                before = self._counters()
                await asyncio.sleep(checked.health.every)
                why = stuck(before, self._counters(), checked.ports)
            failed = failed + 1 if why is not None else 0
            if why is not None and failed >= checked.health.failures:
                self._unhealthy(checked.name, why)
                checked.process.signal(signal.SIGKILL)
                return

    def _counters(self) -> Counters:
        try:
            page = Page(self._page)
        except Failure:  # the switch is away, and nothing waits
            return {}
        try:
            return page.ports()
        finally:
            page.close()


def stuck(before: Counters, now: Counters, ports: Iterable[str]) -> str | None:
    """Why a function with these ports does not forward: frames waited for it, and it took none of them. None: it
    does, or nothing has come for it."""
    for port in ports:
        if port not in before or port not in now:
            continue
        more = {name: value - before[port].get(name, 0) for name, value in now[port].items()}
        if more["sent_packets"] == 0 and (more["blocked_polls"] > 0 or more["drop_receiver_full"] > 0):
            return f"frames wait for {port}, and it takes none"
    return None


async def _failure(command: Iterable[str], seconds: float) -> str | None:
    """What is wrong where a command says so; None if nothing is."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        return f"its check has not ended within {seconds:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return None
    words = last_line(said, "")
    return f"its check ended with status {process.returncode}" + (f" ({words})" if words else "")
