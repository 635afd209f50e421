"""What has the priority of machines follow what they run, watched: where it has ended, though its machine runs, the
planned priority is given back, and it is started again. In the main thread."""

from __future__ import annotations

from tailrace.functions.priority import follow_again, give_back
from tailrace.state.launch import Launcher
from tailrace.state.record import Follower, Held, Process, Record
from tailrace.switch.config import function_name

_MARK = ".priority"


def key_of(follower: Follower) -> str:
    """What it is called among all that is started again: no function has such a name."""
    return f"{function_name(follower.of)}{_MARK}"


def is_key(name: str) -> bool:
    return name.endswith(_MARK)


def followers(record: Record) -> list[tuple[Follower, Process]]:
    """Those on record whose machine runs, with it."""
    machines = {each.name: each for each in record.things if isinstance(each, Process) and each.id.alive()}
    return [(each, machines[each.of]) for each in record.things if isinstance(each, Follower) and each.of in machines]


def ended(record: Record) -> list[tuple[Follower, Process]]:
    """Those of them that have ended."""
    return [(each, machine) for each, machine in followers(record) if not each.id.alive()]


def give_back_planned(record: Record) -> None:
    """Gives the machines of those that have ended the planned priority, if it is another."""
    for each, machine in ended(record):
        give_back(machine, each)


def start_again(held: Held, key: str) -> str | None:
    """Starts one again that has ended; its machine's name, or None where it is not wanted any more. Raises Failure,
    Mistake."""
    state = held.state()
    for each, machine in ended(state.record):
        if key_of(each) == key:
            follow_again(Launcher(state, state.logs, False), machine, each)
            return machine.name
    return None
