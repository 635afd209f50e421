"""Lists and masks of CPUs, in the forms in which the kernel reads and writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST = 1 << 16
"""Beyond any number of CPUs that Linux can be built for (CONFIG_NR_CPUS)."""
_ENDS = ("first", "end")
_BETWEEN = re.compile(r"[\s,]+")
_NUMBER = "[0-9]{1,9}|N"
_REGION = re.compile(
    f"(?:(?P<all>[aA][lL]{{2}})|(?P<first>{_NUMBER})(?:-(?P<end>{_NUMBER}))?)"
    f"(?::(?P<used>{_NUMBER})/(?P<size>{_NUMBER}))?"
)


def parse_list(text: str, last: int | None = None) -> tuple[int, ...]:
    """`0-3,8` → (0, 1, 2, 3, 8), sorted; empty for an empty list. `0-7:1/4` → (0, 4): the first 1 of each 4. With the
    highest CPU of a machine (`last`), `N` is that one and `all` is every one to it. Raises ValueError.

    Sources: Linux, Documentation/core-api/printk-formats.rst, "%*pbl"; Documentation/admin-guide/kernel-parameters.rst,
    "cpu lists"; lib/bitmap-str.c (bitmap_parselist).
    """
    cpus: set[int] = set()
    for part in filter(None, _BETWEEN.split(text)):
        found = _REGION.fullmatch(part)
        if not found or (last is None and (found["all"] or "N" in part)):
            raise ValueError(f"{part!r} is no CPU and no range of CPUs; expected a list such as 1,4-7")
        first, end = (0, last or 0) if found["all"] else (_number(found[key] or found["first"], last) for key in _ENDS)
        used, size = (_number(found[key] or "1", last) for key in ("used", "size"))
        if max(first, end) >= MOST:
            raise ValueError(f"{part!r} is no CPU and no range of CPUs; expected a list such as 1,4-7")
        if first > end:
            raise ValueError(f"{part!r} ends before it begins; expected a range such as 4-7")
        if size < 1 or used > size or (found["used"] and not (found["end"] or found["all"])):
            raise ValueError(f"{part!r} is no range of CPUs; expected a list such as 1,4-7 or 0-15:1/4")
        cpus.update(cpu for cpu in range(first, end + 1) if (cpu - first) % size < used)
    return tuple(sorted(cpus))


def _number(text: str, last: int | None) -> int:
    return (last or 0) if text == "N" else int(text)


def cpus_of(text: str | None) -> tuple[int, ...]:
    """The CPUs of a list that the kernel shows; none where it shows none, or something else."""
    try:
        return parse_list(text or "")
    except ValueError:
        return ()


def show_list(cpus: Iterable[int]) -> str:
    """(0, 1, 2, 8) → `0-2,8`."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def show_groups(cpus: Iterable[int]) -> str:
    """As show_list, and (0, 2, 4, 6) → `0-6:1/2`: where CPUs are numbered by turns over the nodes, lists are long."""
    numbers, shown = sorted(set(cpus)), []
    while numbers:
        step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
        count = next((n for n in range(1, len(numbers)) if numbers[n] != numbers[0] + n * step), len(numbers))
        if step > 1 and count < 3:  # a group of two is not shorter
            count = 1
        group = f":1/{step}" if step > 1 and count > 1 else ""
        shown.append(f"{numbers[0]}-{numbers[count - 1]}{group}" if count > 1 else f"{numbers[0]}")
        numbers = numbers[count:]
    return ",".join(shown)


def parse_mask(text: str) -> tuple[int, ...]:
    """`ff,00000001` → (0, 32, 33, ..., 39): words of 32 bits in hexadecimal, the highest first. Raises ValueError."""
    words = text.strip().split(",")
    value = 0
    for word in words:
        value = value << 32 | int(word, 16)
    return tuple(bit for bit in range(value.bit_length()) if value >> bit & 1)


def show_mask(cpus: Iterable[int], width: int = 0) -> str:
    """(0, 32) → `1,00000001`; padded with zeros to `width` CPUs."""
    value = sum(1 << cpu for cpu in set(cpus))
    words = max(1, -(-max(value.bit_length(), width) // 32))
    shown = [f"{value >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words))]
    return ",".join([shown[0].lstrip("0") or "0", *shown[1:]]) if words > 1 else f"{value:x}"
