"""How soon a machine that runs has one CPU more: by pools, where the thread of a virtual CPU that it has
already is moved to another CPU of the host, and by hot-plug, as `virsh setvcpus` does it. Both in turn, with one
machine.

The machine has no ports: frames are not counted here. No CPU is unplugged: of an emulated machine, libvirt is not told
that its system has let go of one, and says so after 5 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from tailrace.bench.setting import Setting
from tailrace.errors import Failure
from tailrace.functions import agent
from tailrace.functions.machine import InMachine
from tailrace.functions.runtime import Instance
from tailrace.functions.vcpus import spread
from tailrace.process import hypervisor
from tailrace.process.process import undisturbed
from tailrace.resources.place import Place

POOL_PLUG, POOL_UNPLUG = "machine: pool plug", "machine: pool unplug"
HOT_PLUG, SETVCPUS, QUESTION = "machine: hot-plug", "machine: setvcpus alone", "machine: a question"
MOST_TIMES = 14
"""Of hot-plug: each gives the machine a virtual CPU that it cannot take back."""
UP_SECONDS, ROUND_SECONDS, POOL_SECONDS = 40.0, 1.0, 0.02
"""About what its boot, a round of hot-plug and one of the pool take where it is emulated, for the progress bar."""
_NAME = "plugged"
_MIB = 256
_FIRST = 2
"""Virtual CPUs that it boots with."""
_ONLINE = "/sys/devices/system/cpu/cpu{0}/online"
_BRING_UP = f"until [ -e {_ONLINE} ]; do :; done; [ $(cat {_ONLINE}) = 1 ] || echo 1 >{_ONLINE}; taskset {{1:x}} true"
"""Linux shows a CPU that was plugged, and leaves it to others whether it is used. Then a program runs on it."""
_ANSWER_SECONDS = 60.0
_LISTEN_SECONDS = 5.0


def measure(setting: Setting, times: int, step: Callable[[float], None]) -> dict[str, list[float]]:
    """How long each takes, in ms: of the pool so many times, and in between of hot-plug, at most MOST_TIMES. `step` is
    told how many seconds of it are done.

    A pool's is from the call of libvirt until the thread is on its CPU, without what `function cpus` does around it;
    the plug by hot-plug until a program has run on the new CPU, of which `setvcpus` is libvirt's part, and a question
    is what asking inside costs by itself. Raises Failure.
    """
    taken: dict[str, list[float]] = {name: [] for name in (POOL_PLUG, POOL_UNPLUG, HOT_PLUG, SETVCPUS, QUESTION)}
    pool = (setting.cores.switch, setting.cores.load)
    rounds = min(times, MOST_TIMES)
    with _machine(setting, pool, _FIRST + rounds) as (name, inside):
        for number in range(_FIRST, _FIRST + rounds):
            for _ in range(_share(times, rounds, number - _FIRST)):
                for what, own in ((POOL_PLUG, pool), (POOL_UNPLUG, pool[:1])):
                    taken[what].append(_timed(partial(hypervisor.pin_vcpus, name, spread(own, _FIRST))))
            step(UP_SECONDS + (number - _FIRST) * ROUND_SECONDS + len(taken[POOL_PLUG]) * POOL_SECONDS)
            began = time.monotonic()
            hypervisor.plug_vcpus(name, number + 1)
            taken[SETVCPUS].append(_since(began))
            agent.ask(inside, _BRING_UP.format(number, 1 << number), _ANSWER_SECONDS)
            taken[HOT_PLUG].append(_since(began))
            taken[QUESTION].append(_timed(partial(agent.ask, inside, f"taskset {1 << number:x} true", _ANSWER_SECONDS)))
    return taken


def _share(times: int, rounds: int, which: int) -> int:
    """How many of so many times are done in one of the rounds."""
    return times // rounds + (which < times % rounds)


def seconds(times: int) -> float:
    """About how long it takes, for the progress bar."""
    return UP_SECONDS + min(times, MOST_TIMES) * ROUND_SECONDS + times * POOL_SECONDS


@contextmanager
def _machine(setting: Setting, pool: tuple[int, int], most: int) -> Iterator[tuple[str, Path]]:
    """One that has booted, with two virtual CPUs of so many that it may have, all on the first CPU of the pool:
    libvirt's name for it, and the socket of its agent."""
    launcher = setting.launcher
    state = launcher.state
    instance = Instance(
        name=_NAME,
        kind="bench",
        ports=(),
        place=Place(pool[0], tuple(sorted(pool)), cores=pool[:1]),
        memory_bytes=_MIB << 20,
        huge=False,
        most_cpus=most,
        plugged=_FIRST,
        in_place="tailrace.run=bridge",  # of no ports: it does nothing, and says when it has booted
    )
    before = list(state.record.things)
    try:
        runtime, deadline = InMachine(), time.monotonic() + InMachine.patience
        process = runtime.start(launcher, instance).process
        runtime.wait(launcher, process, instance.place, deadline)
        inside = agent.beside(launcher.log(_NAME))
        _wait_listens(inside, deadline)
        yield process.outside, inside
    finally:
        with undisturbed():
            for thing in reversed([each for each in state.record.things if each not in before]):
                state.undo(thing)


def _wait_listens(inside: Path, deadline: float) -> None:
    """Until the agent gives the answer to the last question: what comes while it begins it may take for another one.
    Raises Failure."""
    for number in count():
        try:
            if agent.ask(inside, f"echo {number}", _LISTEN_SECONDS).strip() == str(number):
                return
        except Failure:
            if time.monotonic() > deadline:
                raise


def _timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return _since(began)


def _since(began: float) -> float:
    return 1e3 * (time.monotonic() - began)
