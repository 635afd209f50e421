"""What a function of Tailrace's says of itself while it runs: its counters and tables (dataplane/functions/report.h).

All functions are shown the same way: what they count and which tables they have is known to themselves alone.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from tailrace.errors import Failure, Fault, Mistake
from tailrace.functions import agent
from tailrace.functions.program import control_beside
from tailrace.process import hypervisor
from tailrace.process.control import Control, ControlLost, request_line, result_of
from tailrace.process.plain import plain
from tailrace.state.record import Process, State

_MOST_WORD = 64
_MOST_NAMES = 1024
_MOST_PORTS = 256
_MOST_COLUMNS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Word = Annotated[str, AfterValidator(lambda text: plain(text, _MOST_WORD).strip())]
"""A name or a title; who says it is not trusted."""
Said = Annotated[str, AfterValidator(lambda text: plain(text).strip())]
Cell = int | Said | Annotated[list[Said], Field(max_length=_MOST_NAMES)] | None
Ports = Annotated[list[dict[Word, int | Said]], Field(max_length=_MOST_PORTS)]


class Rows(BaseModel):
    """A table, or the beginning of one."""

    total: int
    rows: list[Annotated[dict[Word, Cell], Field(max_length=_MOST_COLUMNS)]]

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0]) if self.rows else []

    def texts(self) -> Iterator[list[str]]:
        """What stands in the columns, row by row."""
        return ([_text(row.get(column), time=column == "time") for column in self.columns] for row in self.rows)


class Shown(BaseModel):
    """What a function says."""

    function: Word
    counters: Annotated[dict[Word, int | Said | dict[Word, int] | Ports], Field(max_length=_MOST_NAMES)]
    tables: Annotated[dict[Word, Rows], Field(max_length=_MOST_COLUMNS)]

    def counted(self) -> Iterator[tuple[str, list[int]]]:
        """Counters that are not 0, by name: of each port, or one number of the whole function."""
        for name, value in self.counters.items():
            if isinstance(value, list):
                yield from _by_port(value)
            elif isinstance(value, dict):
                yield from ((f"{name}: {key}", [number]) for key, number in value.items() if number)
            elif isinstance(value, int) and value:
                yield name, [value]


def ask(state: State, process: Process, most: int) -> Shown:
    """Asks a function that is up, with so many rows of each table at most. Raises Mistake, Failure."""
    if _is_anothers(state, process.name):
        raise Mistake(f"{process.name} cannot be asked; expected one of Tailrace's own kinds")
    try:
        shown = Shown.model_validate(call(state, process, "show", most=most))
    except ValidationError:
        raise Fault(f"{process.name} answers with something else than its counters and tables") from None
    if any(len(table.rows) > max(most, _MOST_NAMES) for table in shown.tables.values()):
        raise Fault(f"{process.name} answers with more rows than it was asked for")
    return shown


def _is_anothers(state: State, name: str) -> bool:
    """Whether the plan has it without a kind. Of a machine from somebody else's disk nobody inside would answer."""
    function = name.partition("@")[0]  # of any instance
    return any(each["name"] == function and not each["kind"] for each in state.record.plan.get("functions", []))


def tell(state: State, process: Process, told: dict[str, Any]) -> None:
    """Tells a function that is up what holds from now on. Raises Mistake, Failure, and then nothing has changed."""
    call(state, process, "configure", **told)


def call(state: State, process: Process, method: str, **params: Any) -> Any:
    """Calls a method of a function that is up: at its control socket, or by the agent of its machine. Raises Mistake,
    Failure."""
    path = control_beside(state.sockets / f"{process.name}.0" / "sock")
    try:
        # A function could have put a link there before its folder was closed.
        there = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        there = False
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}; run as the user who has started it (sudo)") from None
    inside = agent.beside(state.logs / f"{process.name}.log")
    if not there and inside.is_socket():
        if process.outside and (why := hypervisor.stands_still(process.outside)) is not None:
            raise Failure(f"{process.name} stands still: {why}")
        return _call_inside(inside, process.name, method, params)
    if not there:
        raise Mistake(f"{process.name} cannot be asked; expected one of Tailrace's own kinds")
    try:
        control = Control(path)
    except ControlLost as error:
        raise Mistake(f"{error}; run as the user who has started it (sudo)") from None
    try:
        return control.call(method, **params)
    except ControlLost as error:
        raise Failure(f"{process.name}: {error}") from None
    finally:
        control.close()


def _call_inside(path: Path, name: str, method: str, params: dict[str, Any]) -> Any:
    try:
        answer = json.loads(agent.call(path, request_line(1, method, params)))
    except Failure as error:
        raise Failure(f"{name}: {error}") from None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("id") != 1:
        raise Fault(f"{name} answers with something else than what it was asked")
    try:
        return result_of(method, answer)
    except ControlLost as error:
        raise Fault(f"{name}: {error}") from None


def _by_port(ports: Ports) -> Iterator[tuple[str, list[int]]]:
    for name in ports[0] if ports else ():
        numbers = [number for each in ports if isinstance(number := each.get(name), int)]
        if any(numbers):
            yield name, numbers


def _text(cell: Cell, *, time: bool) -> str:
    """`time`: a number is of seconds since 1970; a function may say any."""
    if time and isinstance(cell, int):
        with suppress(OverflowError):
            return f"{_EPOCH + timedelta(seconds=cell):%Y-%m-%d %H:%M:%S} UTC"
    return ", ".join(cell) if isinstance(cell, list) else "-" if cell is None else str(cell)
