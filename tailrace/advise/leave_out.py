"""Cross-validation: how well the cells that were left out are predicted by parameters that are fitted to the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from tailrace.advise.calibrate import Checked, badness, beyond, check, fit, interpolated, interpolation_errors
from tailrace.advise.machine import FACTS, Machine
from tailrace.advise.model import STACK
from tailrace.advise.table import Row

_BESIDE = (0.77, 1.3)
_ROUNDED = 0.05
"""The part of a cell that its rounding may be: 0.35 has two digits, 0.08 has one."""


@dataclass(frozen=True)
class LeftOut:
    """Cells of one size of frames, or of one number of functions, beside what the others predict of them."""

    what: str
    machine: Machine
    """As it was fitted to the others."""
    cells: Sequence[Checked]
    interpolation: Sequence[float]
    """The errors of an interpolation of the others."""
    both: Sequence[tuple[float, float]]
    """The model's error and the interpolation's, of each cell that both say something of."""

    def errors(self, *, precise: bool = False, within: bool = False) -> list[float]:
        """Of all cells; or of those alone whose rounding is a small part of them; or that lie between the others."""
        return [
            each.error
            for each in self.cells
            if not (precise and each.row.rounding > _ROUNDED * each.row.measured)
            and not (within and beyond(self.machine, each.row.cell))
        ]


def leave_out(machine: Machine, rows: Sequence[Row]) -> list[LeftOut]:
    """Leaves out the cells of each size, then those of each number of functions, as far as others are left."""
    sizes = sorted({row.cell.frame for row in rows})
    numbers = sorted({row.cell.functions for row in rows if row.cell.traffic != STACK})
    groups = {f"{size} B": [row for row in rows if row.cell.frame == size] for size in sizes}
    groups |= {
        "1 function" if number == 1 else f"{number} functions": [
            row for row in rows if row.cell.functions == number and row.cell.traffic != STACK
        ]
        for number in numbers
    }
    return [
        _left_out(machine, what, left, known)
        for what, left in groups.items()
        if (known := [row for row in rows if row not in left])
    ]


def _left_out(machine: Machine, what: str, left: Sequence[Row], known: Sequence[Row]) -> LeftOut:
    found = min((fit(start, known, what, resamples=0) for start in _starts(machine)), key=lambda of: badness(of, known))
    cells = check(found, left)
    values = ((each, interpolated(each.row, known)) for each in cells)
    both = [(each.error, each.row.error(value)) for each, value in values if value is not None]
    return LeftOut(what, found, cells, interpolation_errors(left, known), both)


def _starts(machine: Machine) -> list[Machine]:
    """Beside the machine's parameters, which may have been fitted to the very cells that are left out."""
    names = [name for name in machine.parameters if name not in FACTS]
    return [
        machine.having({name: machine[name] * factor for name, factor in zip(names, cycle(factors), strict=False)})
        for factors in (_BESIDE, _BESIDE[::-1])
    ]
