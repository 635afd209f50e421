"""Whether what a test asks for fits the ports that it is to go through, as far as that is known beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.results.trial import LAYER_1_OVERHEAD
from tailrace.spec import units
from tailrace.spec.tests import IMIX_MEAN, LARGEST_FRAME, Traffic, packet_rates

#: An Ethernet header and the FCS, which the MTU leaves out (IEEE 802.3).
_AROUND = 14 + 4


@dataclass(frozen=True)
class Carries:
    """What a port can carry; None is not known."""

    name: str
    longest: int | None = None
    """Bytes of the longest frame, FCS included."""
    bits: int | None = None
    """Bits a second at layer 1."""


def carries(uri: str, net: Path = Path("/sys/class/net")) -> Carries:
    """What the port of a URI can carry: of a Linux interface its MTU, and its speed if it is a real one's."""
    scheme, _, name = uri.partition(":")
    if scheme != "if":
        return Carries(uri)
    mtu = _number(net / name / "mtu")
    # A virtual interface has a speed too, which is nobody's.
    speed = _number(net / name / "speed") if (net / name / "device").exists() else None
    return Carries(uri, mtu + _AROUND if mtu else None, speed * 10**6 if speed and speed > 0 else None)


def check_fit(test: Traffic, ports: Iterable[Carries]) -> None:
    """Raises Mistake, naming the option, where a frame is too long or a rate too high for a port."""
    profiles = test.frames if test.pcap is None else []
    rates = packet_rates(test)
    for port in ports:
        for frames in profiles:
            longest = LARGEST_FRAME if frames == "imix" else frames
            if port.longest is not None and longest > port.longest:
                raise Mistake(
                    f"--frames: {frames} is too long for {port.name}, whose MTU lets frames of {port.longest} B pass; "
                    f"expected at most that, or `ip link set {port.name.partition(':')[2]} mtu {longest - _AROUND}`"
                )
            if port.bits is None:
                continue
            most = port.bits / ((IMIX_MEAN if frames == "imix" else frames) + LAYER_1_OVERHEAD) / 8
            if max(rates, default=0.0) > most:
                what = f"{units.show_packet_rate(round(max(rates)))} of {frames}{'' if frames == 'imix' else ' B'}"
                raise Mistake(
                    f"--rate: {what} frames is more than {port.name} carries at {units.show_bit_rate(port.bits)}; "
                    f"expected at most {units.show_packet_rate(int(most))}"
                )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
