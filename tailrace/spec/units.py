"""Quantities with their units written out: 60s, 20ms, 1Mpps, 90%, 2GiB.

Each parser returns the quantity in its base unit and raises `ValueError` with "what; what was expected".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_QUANTITY = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ%]*)\s*$")

DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
RATES = {"pps": 1.0, "kpps": 1e3, "Mpps": 1e6, "Gpps": 1e9}
BIT_RATES = {"bps": 1, "kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9}
SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?(us|µs|ms|s|min|h)$"
RATE_PATTERN = r"^[0-9]+(\.[0-9]+)?(%|pps|kpps|Mpps|Gpps)$"
RATIO_PATTERN = r"^[0-9]+(\.[0-9]+)?%$"
BIT_RATE_PATTERN = r"^[0-9]+(\.[0-9]+)?(bps|kbps|Mbps|Gbps)$"
PACKET_RATE_PATTERN = r"^[0-9]+(\.[0-9]+)?(pps|kpps|Mpps|Gpps)$"
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?(KiB|MiB|GiB|TiB)$"


#: Beyond any line: 64-byte frames fill 400 Gbit/s at 0.6 Gpps.
MOST_PPS = 1e9
#: Twice the fastest line there is.
MOST_BPS = 1600 * 10**9
#: Before any unit: beyond everything that is measured, and far from where a float is infinite.
MOST_NUMBER = 1e18


def shown(value: Any) -> str:
    """A value in a message: as it was written, not as Python holds it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, bytes):
        return "binary data"
    return repr(value) if isinstance(value, str | int | float) else f"'{value}'"


@dataclass(frozen=True)
class Rate:
    """How fast to send in each direction: packets a second, or a fraction of the no-loss rate."""

    pps: float | None = None
    fraction: float | None = None

    def __str__(self) -> str:
        if self.fraction is not None:
            return f"{self.fraction * 100:g}%"
        pps = self.pps or 0.0
        for unit, factor in (("Gpps", 1e9), ("Mpps", 1e6), ("kpps", 1e3)):
            if pps >= factor:
                return f"{pps / factor:.10g}{unit}"
        return f"{pps:.10g}pps"


def _split(value: Any, kind: str, example: str, units: dict[str, Any]) -> tuple[float, str]:
    expected = f"expected {kind} such as {example} (units: {', '.join(units)})"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{shown(value)} is not {kind}; {expected}")
    match = _QUANTITY.match(str(value))
    if match is None:
        raise ValueError(f"{shown(value)} is not {kind}; {expected}")
    number, unit = match.groups()
    if unit == "":
        raise ValueError(f"{value} has no unit; {expected}")
    if unit not in units:
        raise ValueError(f"{value!r} is not {kind}: {unit!r} is no such unit; {expected}")
    if float(number) > MOST_NUMBER:
        raise ValueError(f"a number of {len(number.partition('.')[0])} digits is out of range; {expected}")
    return float(number), unit


def parse_duration(value: Any) -> float:
    """Seconds, more than zero."""
    seconds = parse_pause(value)
    if seconds <= 0:
        raise ValueError(f"{value} is no time at all; expected a duration of more than zero, such as 60s")
    return seconds


def parse_pause(value: Any) -> float:
    """Seconds, which may be none: 0s."""
    number, unit = _split(value, "a duration", "60s or 20ms", DURATIONS)
    return number * DURATIONS[unit]


def parse_size(value: Any) -> int:
    """Bytes, more than zero."""
    number, unit = _split(value, "a size", "256MiB or 2GiB", SIZES)
    size = round(number * SIZES[unit])
    if size <= 0:
        raise ValueError(f"{value} is nothing; expected a size of more than zero, such as 256MiB")
    return size


def parse_rate(value: Any) -> Rate:
    """A rate in each direction: absolute, or a part of the no-loss rate (more than 0 %, at most 100 %)."""
    if isinstance(value, Rate):
        return value
    number, unit = _split(value, "a rate", "90% (of the no-loss rate) or 1Mpps", {"%": 0.01, **RATES})
    if number <= 0:
        raise ValueError(f"{value} sends nothing; expected a rate of more than zero, such as 90% or 1Mpps")
    if unit == "%":
        if number > 100:
            raise ValueError(f"{value} is more than the no-loss rate; expected at most 100%")
        return Rate(fraction=number / 100)
    if number * RATES[unit] > MOST_PPS:
        raise ValueError(f"{value} is more than any line carries; expected at most 1Gpps")
    return Rate(pps=number * RATES[unit])


def parse_ratio(value: Any, within: tuple[float, float] | None = None) -> float:
    """A part of a whole, written in per cent: 0.5% is 0.005; from nothing to all of it, or as narrow as `within`."""
    number, _ = _split(value, "a ratio", "0.5%", {"%": 0.01})
    if within is not None and not within[0] <= number / 100 <= within[1]:
        least, most = map(show_ratio, within)
        raise ValueError(f"{value} is out of range; expected {least} to {most}")
    if number > 100:
        raise ValueError(f"{value} is more than everything; expected at most 100%")
    return number / 100


def show_ratio(value: float) -> str:
    return f"{value * 100:.10g}%"


def parse_bit_rate(value: Any) -> int:
    """Bits a second on layer 2, FCS included; at least one, at most 1600Gbps."""
    number, unit = _split(value, "a bit rate", "1Gbps or 200Mbps", BIT_RATES)
    bits = round(number * BIT_RATES[unit])
    if not 1 <= bits <= MOST_BPS:
        raise ValueError(f"{value} is out of range; expected a bit rate from 1bps to 1600Gbps")
    return bits


def parse_packet_rate(value: Any) -> int:
    """Whole packets a second; at least one, at most 1Gpps."""
    number, unit = _split(value, "a packet rate", "1Mpps or 500kpps", RATES)
    packets = round(number * RATES[unit])
    if not 1 <= packets <= MOST_PPS:
        raise ValueError(f"{value} is out of range; expected a packet rate from 1pps to 1Gpps")
    return packets


def _largest(value: int, units: dict[str, Any]) -> str:
    """A whole number in the largest unit that divides it."""
    unit, factor = next(
        (unit, int(factor)) for unit, factor in reversed(units.items()) if value % int(factor) == 0 or factor == 1
    )
    return f"{value // factor}{unit}"


def show_bit_rate(value: int) -> str:
    return _largest(value, BIT_RATES)


def show_packet_rate(value: int) -> str:
    return _largest(value, RATES)


def show_duration(seconds: float) -> str:
    """The shortest way to write a duration that reads back as the same: 60s, 20ms, 1.5s."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.10g}{unit}"
    return f"{seconds / 1e-6:.10g}us" if seconds else "0s"


def show_span(seconds: float) -> str:
    """A length of time to be read, to the second or the minute: 40 h 0 min, 12 min 5 s, 8 s."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def show_size(size: int) -> str:
    for unit, factor in reversed(SIZES.items()):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size / (1 << 10):.10g}KiB"
