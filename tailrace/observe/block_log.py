"""Which inside host of a NAT had which ports of which address when, from what the NAT's instances have logged
(dataplane/functions/nat_log.h; RFC 6888, REQ-12).

Who writes such a log may be anybody's image, so only lines that hold are read, and of them only numbers and addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.observe.function_log import processes
from tailrace.process.log_writer import previous
from tailrace.state.record import peek
from tailrace.switch.config import function_name

_ADDRESS = rb"(?:\d{1,3}\.){3}\d{1,3}"
_LINE = re.compile(
    rb" blocks: (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) "
    rb"(?:(?P<bound>begins|ends)|left out (?P<left_out>\d{1,20}) \(\S+\)|"
    rb"(?P<event>assigned|kept|released) (?P<host>" + _ADDRESS + rb") (?P<outside>" + _ADDRESS + rb")"
    rb" (?P<first>\d{1,5})-(?P<last>\d{1,5}) \d{1,20}(?: vlan (?P<vlan>\d{1,4}(?: \d{1,4})?))?)\s*$"
)
_Key = tuple[str, str, str, int, int]


@dataclass(frozen=True)
class Held:
    """A block of ports that an inside host had."""

    host: str
    vlan: str
    """Its tags, outer first; empty: none."""
    outside: str
    first: int
    last: int
    since: datetime | None
    """None: from before the log begins."""
    until: datetime | None
    """None: it still has it."""
    instance: str
    """Which instance of the function says so; one that was handed the block over says when."""

    def had(self, begin: datetime, end: datetime) -> bool:
        """Whether the host had it at any time from `begin` to `end`."""
        return (self.since is None or self.since <= end) and (self.until is None or self.until >= begin)


@dataclass(frozen=True)
class LeftOut:
    """Events that came faster than they are written."""

    instance: str
    time: datetime
    """When they were left out: they are of before."""
    count: int


@dataclass
class BlockLog:
    """What instances of a NAT have logged."""

    held: list[Held] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    begins: datetime | None = None
    """The time of the first line that there is; None: there is no line."""

    def of(self, outside: str | None, port: int | None, begin: datetime, end: datetime) -> list[Held]:
        """Those of an address, and a port, at any time from `begin` to `end`."""
        return [
            each
            for each in self.held
            if outside in (None, each.outside)
            and (port is None or each.first <= port <= each.last)
            and each.had(begin, end)
        ]


@dataclass
class _Instance:
    name: str
    begins: datetime | None = None
    ends: datetime | None = None
    open: dict[_Key, datetime] = field(default_factory=dict)
    closed: list[Held] = field(default_factory=list)


def read(folder: Path, name: str) -> BlockLog:
    """What the logs of a function, of all its replicas and of their earlier instances say, the oldest first. Raises
    Mistake, Failure."""
    planned = [each for each in peek(folder).plan.get("functions", []) if name in (each["name"], each["function"])]
    if not planned:
        raise Mistake(f"no function {name!r} is up")
    if any(each["kind"] not in ("nat", None) for each in planned):
        raise Mistake(f"{name} is a {planned[0]['kind']}; expected a function of kind nat")
    up = processes(folder)
    alive = {each.name for each in up.values() if each.id.alive()}
    log = BlockLog()
    for each in planned:
        _read_replica(log, folder / "logs", each["name"], alive)
    log.held.sort(key=lambda held: (held.since is not None, held.since))
    return log


def _read_replica(log: BlockLog, logs: Path, name: str, alive: set[str]) -> None:
    paths = sorted(
        (path for path in logs.glob(f"{name}*.log") if function_name(path.stem) == name),
        key=lambda path: int(path.stem.partition("@")[2] or 1),
    )
    found = [_read_instance(log, path) for path in paths]
    for at, instance in enumerate(found):
        ends = instance.ends
        if ends is None and at + 1 < len(found):  # it was killed, and the next one came in its place
            ends = found[at + 1].begins
        if ends is None and instance.name not in alive:
            ends = datetime.fromtimestamp(paths[at].stat().st_mtime, tz=UTC)
        still = [_held(instance.name, key, since, None) for key, since in instance.open.items()]
        log.held += [*instance.closed, *(replace(each, until=ends) for each in still)]


def _read_instance(log: BlockLog, path: Path) -> _Instance:
    instance = _Instance(path.stem)
    for time, match in _lines(path):
        if instance.begins is None or match["bound"] == b"begins":
            instance.begins = time
        log.begins = min(log.begins or time, time)
        if match["bound"] == b"ends":
            instance.ends = time
        elif match["left_out"] is not None:
            log.left_out.append(LeftOut(instance.name, time, int(match["left_out"])))
        elif match["event"] is not None:
            _take_event(instance, match, time)
    return instance


def _take_event(instance: _Instance, match: re.Match[bytes], time: datetime) -> None:
    host, vlan, outside = (match[each].decode() if match[each] else "" for each in ("host", "vlan", "outside"))
    key = (host, vlan, outside, int(match["first"]), int(match["last"]))
    if match["event"] == b"released":
        instance.closed.append(_held(instance.name, key, instance.open.pop(key, None), time))
    else:
        instance.open[key] = time


def _held(instance: str, key: _Key, since: datetime | None, until: datetime | None) -> Held:
    host, vlan, outside, first, last = key
    return Held(host, vlan, outside, first, last, since, until, instance)


def _lines(path: Path) -> Iterator[tuple[datetime, re.Match[bytes]]]:
    """Raises Mistake where it may not be read."""
    for each in (previous(path), path):
        try:
            with each.open("rb") as file:
                for line in file:
                    if (match := _LINE.search(line)) is not None:
                        with suppress(ValueError):  # no such day
                            yield datetime.fromisoformat(match["time"].decode()), match
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Mistake(f"{each}: {error.strerror}; run as the user who has started it (sudo)") from None
