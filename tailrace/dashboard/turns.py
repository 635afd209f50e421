"""Rates of the last second of many things, a thousand at no more cost than a hundred.

All are compared every other time, column by column (`Table`); what takes more time is to write them down. So each time
only these are written anew: the first ones, which a page shows first; those that drop, or whose rates have changed; and
a share of the others in turn. In between (`Table.live`) no more is read than is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import gt, lt, ne, sub
from typing import Any

from tailrace.observe.page import Table
from tailrace.observe.top import natural

Document = dict[str, Any]
"""No value is None: in a merge patch that removes."""
Rows = list[tuple[str, int]]
"""The parts of a thing by number (queues of a port, hops of a chain), and which row of the table each is."""

Rates = Sequence[Sequence[float] | Mapping[int, float]]
"""Of each way packets a second by row, of those rows that were looked at."""
Found = tuple[Iterable[str], Rates, set[int]]
"""The things that are to be shown anew, and of their rows the rates and which of them drop."""
Show = Callable[[str, Rows, "Between"], Document]
"""A thing as it is shown."""

WINDOW = 1.0
"""Seconds that a rate is of: less, and nobody could read it."""
FIRST = 12
"""Things, in the order of their names, that are always anew: `web/src/chains.tsx` shows as many."""
FEW = 4
"""Of the others at least so many are anew each time."""
ROUND = 80
"""Times within which each had its turn."""
MOST = 25
"""Changed ones that are anew at a time."""
_CHANGED = 0.1
"""A change of a rate that is shown at once, as a share of it …"""
_NOISE = 2.0
"""… and in packets a second: a steady rate is not the same number of packets each second."""
_LEAST = 1e-3


def figures(value: float) -> float:
    """Four of them: what nobody can see is no change."""
    return value if value == 0 else float(f"{value:.4g}")


@dataclass(frozen=True)
class Between:
    """Two moments of one table."""

    seconds: float
    before: Mapping[str, Sequence[int]]
    now: Mapping[str, Sequence[int]]
    dropped: Sequence[str]
    """Fields of reasons for which anything was ever dropped."""

    def rate(self, field: str, rows: Rows, scale: int = 1) -> float:
        before, now = self.before[field], self.now[field]
        if len(rows) == 1:
            row = rows[0][1]
            grown = now[row] - before[row]
        else:
            grown = sum(now[row] - before[row] for _, row in rows)
        return figures(grown * scale / self.seconds) if grown > 0 else 0.0

    def flow(self, prefix: str, rows: Rows) -> Document:
        """Packets and bits a second."""
        return {"packets": self.rate(f"{prefix}packets", rows), "bits": self.rate(f"{prefix}bytes", rows, 8)}

    def drops(self, prefix: str, rows: Rows) -> Document:
        """Of each reason for which something was ever dropped: how many each second, and in all."""
        if not self.dropped:
            return {}
        return {
            field.removeprefix(prefix).replace("_", " "): {"rate": self.rate(field, rows), "total": total}
            for field in self.dropped
            if field.startswith(prefix) and (total := sum(self.now[field][row] for _, row in rows))
        }


class Turns:
    """The things of one kind of slot, which are named THING/PART."""

    def __init__(self, *ways: str) -> None:
        """`ways`: the prefixes of the fields of packets."""
        self._fields = [f"{way}packets" for way in ways]
        self._slots: list[tuple[str, int]] = []
        self._kept: deque[tuple[float, Mapping[str, Sequence[int]]]] = deque()
        self.rows: dict[str, Rows] = {}
        """Of each thing."""
        self.between: Between | None = None
        """What the last picture of all was made of."""
        self._order: list[str] = []
        """The things by name."""
        self._named: list[str] = []
        """The thing of each row."""
        self._bounds: list[tuple[list[float], list[float]]] = [([], []) for _ in ways]
        """Of each way: between which rates a row needs not be shown anew."""
        self._again: set[str] = set()
        """Things that have a part that they had not."""
        self._dropping: set[int] = set()
        """The rows that were shown to drop."""
        self._reasons: list[str] = []
        """Fields of reasons for which anything was ever dropped."""
        self._shown: Document = {}
        self.changes: Document = {}
        """What has made them of what they were before, as a merge patch."""
        self._gone: Document = {}
        self._turn = 0

    def take(self, time: float, table: Table, show: Show, also: Iterable[str] = ()) -> Document:
        """All things, as they are to be shown now; `show` makes one anew, `also` some that are to be. What is the same
        as before is the same object."""
        if table.slots is not self._slots:
            self._begin(table.slots)
        if not table.live:
            self._kept.append((time, table.columns))
        while len(self._kept) > 2 and time - self._kept[1][0] >= WINDOW:
            self._kept.popleft()
        (begin, before), now = self._kept[0] if self._kept else (time, {}), table.columns
        if time <= begin or not self._slots:
            self.changes, self.between = self._gone, None
            return self._shown
        if not table.live:
            self._reasons = [
                field
                for field, column in now.items()
                if column is not table.nothing and "drop_" in field and field in before and any(column)
            ]
        between = Between(max(time - begin, 1e-9), before, now, self._reasons)
        if table.live:
            wanted, rates, dropping = self._some(between, also)
        else:
            wanted, rates, dropping = self._compared(between, also)
            self.between = between
        shown, self.changes = dict(self._shown), self._gone
        for name in dict.fromkeys(wanted):
            rows = self.rows[name]
            was, now_shown = shown.get(name), show(name, rows, between)
            if was is None or (change := patch(was, now_shown)):
                shown[name] = now_shown
                self.changes[name] = now_shown if was is None else change
            for _, row in rows:
                self._note(row, rates, dropping)
        self._shown, self._gone = shown, {}
        return shown

    def _begin(self, slots: list[tuple[str, int]]) -> None:
        """There are other slots: rows move, and what is new has grown from nothing."""
        old = {slot: row for row, slot in enumerate(self._slots)}
        was = [old.get(slot, -1) for slot in slots]

        def moved(column: Sequence[Any], new: Any = 0) -> list[Any]:
            return [column[row] if row >= 0 else new for row in was]

        self._kept = deque((at, {field: moved(each) for field, each in columns.items()}) for at, columns in self._kept)
        self._bounds = [(moved(low), moved(high)) for low, high in self._bounds]
        self._dropping = {row for row, before in enumerate(was) if before in self._dropping}
        self._slots, self.rows, self._named = slots, {}, []
        for row, (slot, _) in enumerate(slots):
            name, _, part = slot.rpartition("/")
            self._named.append(name)
            self.rows.setdefault(name, []).append((part, row))
        self._order = sorted(self.rows, key=natural)
        self._gone = {name: None for name in self._shown if name not in self.rows}
        self._shown = {name: shown for name, shown in self._shown.items() if name in self.rows}
        self._again = {name for name, rows in self.rows.items() if any(was[row] < 0 for _, row in rows)}

    @property
    def many(self) -> bool:
        """So many that not all are anew each time."""
        return len(self._order) > 2 * FIRST

    def _some(self, between: Between, also: Iterable[str]) -> Found:
        """Without those whose rates have changed, which only a comparison of all shows."""
        known = self._dropping if len(self._dropping) <= MOST else ()
        wanted = [*self._in_turn(), *(self._named[row] for row in known), *also] if self.many else self._order
        rows = [row for name in wanted for row in self.rows[name]]
        rates = [{row[1]: between.rate(field, [row]) for row in rows} for field in self._fields]
        dropping: set[int] = set()
        for field in between.dropped:
            now, before = between.now[field], between.before[field]
            dropping.update(row for _, row in rows if now[row] != before[row])
        return wanted, rates, dropping

    def _compared(self, between: Between, also: Iterable[str]) -> Found:
        """Of all."""
        before, now, each = between.before, between.now, 1 / between.seconds
        rates = [  # a switch that was started anew counts from 0
            [each * grown if grown > 0 else 0.0 for grown in map(sub, now[field], before[field])]
            for field in self._fields
        ]
        dropping = growing(between)
        wanted = [*self._in_turn(), *self._changed(rates, dropping), *also] if self.many else self._order
        return wanted, rates, dropping

    def _in_turn(self) -> list[str]:
        """The things that are to be shown anew in any case."""
        first, others = self._order[:FIRST], self._order[FIRST:]
        share = max(-(-len(others) // ROUND), FEW)
        turn, self._turn = others[self._turn : self._turn + share], self._turn + share
        if self._turn >= len(others):
            self._turn = 0
        again, self._again = self._again, set()
        return [*first, *turn, *again]

    def _changed(self, rates: Sequence[Sequence[float]], dropping: set[int]) -> Iterable[str]:
        """The things that are to be shown anew since they drop, or have another rate than is shown."""
        changed = dropping | self._dropping  # it shall be seen to have ended
        for column, (low, high) in zip(rates, self._bounds, strict=True):
            changed.update(compress(count(), map(lt, column, low)), compress(count(), map(gt, column, high)))
        if len(changed) > MOST:
            changed = set(sorted(changed, key=lambda row: self._change(row, rates), reverse=True)[:MOST])
        return [self._named[row] for row in changed]

    def _change(self, row: int, rates: Sequence[Sequence[float]]) -> float:
        """How much a row differs from what is shown of it, from 0 to about 1 for each way."""
        return sum(
            abs(column[row] - most[row]) / (column[row] + most[row] + 1e-9)
            for column, (_, most) in zip(rates, self._bounds, strict=True)
        )

    def _note(self, row: int, rates: Rates, dropping: set[int]) -> None:
        """That a row is shown as it is now."""
        for column, (low, high) in zip(rates, self._bounds, strict=True):
            rate = column[row]
            if rate >= _LEAST:  # none is always another than some
                least = rate * (1 - _CHANGED) - _NOISE
                low[row] = least if least > _LEAST else _LEAST
                high[row] = rate * (1 + _CHANGED) + _NOISE
            else:
                low[row], high[row] = rate, rate * (1 + _CHANGED)
        if row in dropping:
            self._dropping.add(row)
        else:
            self._dropping.discard(row)


def growing(between: Between) -> set[int]:
    """The rows that have dropped anything."""
    found: set[int] = set()
    for field in between.dropped:
        now, before = between.now[field], between.before[field]
        if now != before:
            found.update(compress(count(), map(ne, now, before)))
    return found


def patch(old: Mapping[str, Any], new: Mapping[str, Any], known: Mapping[str, Document] | None = None) -> Document:
    """What makes `new` of `old`: a JSON merge patch (RFC 7386). `known` are the changes of some of its members."""
    found: Document = {} if old.keys() <= new.keys() else {name: None for name in old if name not in new}
    for name, value in new.items():
        was = old.get(name)
        if value is was:
            continue
        if known is not None and name in known and isinstance(was, dict):
            deeper = known[name]
        elif value == was:  # all of it: much sooner known than by going through it here
            continue
        elif isinstance(value, dict) and isinstance(was, dict):
            deeper = patch(was, value)
        else:
            found[name] = value
            continue
        if deeper:
            found[name] = deeper
    return found
