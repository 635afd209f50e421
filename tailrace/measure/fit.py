"""Whether what a test asks for fits the ports that it is to go through, as far as that is known beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.measure.profile import Profile, capture
from tailrace.results.trial import LAYER_1_OVERHEAD
from tailrace.spec import units
from tailrace.spec.traffic import IMIX_MEAN, LARGEST_FRAME, Traffic, packet_rates

#: An Ethernet header, and that with the FCS, which the MTU leaves out (IEEE 802.3).
_HEADER, _AROUND = 14, 14 + 4


@dataclass(frozen=True)
class Carries:
    """What a port can carry; None is not known."""

    name: str
    mtu: int | None = None
    """Bytes of the longest payload of a frame."""
    bits: int | None = None
    """Bits a second at layer 1."""
    interface: str | None = None
    """Whose MTU the user can change."""

    def raised_to(self, mtu: int) -> str:
        """How the MTU is made larger, where the user can."""
        return f", or `ip link set {self.interface} mtu {mtu}`" if self.interface else ""


def carries(uri: str, net: Path = Path("/sys/class/net")) -> Carries:
    """What the port of a URI can carry: of a Linux interface its MTU, and its speed if it is a real one's."""
    scheme, _, name = uri.partition(":")
    if scheme != "if":
        return Carries(uri)
    mtu = _number(net / name / "mtu")
    # A virtual interface has a speed too, which is nobody's.
    speed = _number(net / name / "speed") if (net / name / "device").exists() else None
    return Carries(uri, mtu or None, speed * 10**6 if speed and speed > 0 else None, name)


def check_fit(test: Traffic, ports: Sequence[Carries]) -> None:
    """Raises Mistake, naming the option, where a frame is too long or a rate too high for a port."""
    held = capture(Path(test.pcap)) if test.pcap is not None else None
    if held is not None and (why := beyond(held, ports)) is not None:
        raise Mistake(f"--pcap: {why}")
    sizes = {_named(frames): LARGEST_FRAME if frames == "imix" else frames for frames in test.frames}
    means = {_named(frames): IMIX_MEAN if frames == "imix" else frames for frames in test.frames}
    if held is not None and held.contents is not None:
        sizes, means = {}, {"the capture": held.contents.mean}
    rates = packet_rates(test)
    for port in ports:
        for what, size in sizes.items():
            if port.mtu is not None and size > port.mtu + _AROUND:
                raise Mistake(
                    f"--frames: {what.removesuffix(' B')} is too long for {port.name}, whose MTU lets frames of "
                    f"{port.mtu + _AROUND} B pass; expected at most that{port.raised_to(size - _AROUND)}"
                )
        for what, mean in means.items() if port.bits is not None else ():
            most = (port.bits or 0) / (mean + LAYER_1_OVERHEAD) / 8
            if max(rates, default=0.0) > most:
                raise Mistake(
                    f"--rate: {units.show_packet_rate(round(max(rates)))} of {what} frames is more than {port.name} "
                    f"carries at {units.show_bit_rate(port.bits or 0)}; expected at most "
                    f"{units.show_packet_rate(int(most))}"
                )


def beyond(profile: Profile, ports: Iterable[Carries]) -> str | None:
    """Why the frames of a capture are too long for one of the ports, or None."""
    held = profile.contents
    if held is None:
        return None
    for port in ports:
        if port.mtu is not None and held.payload > port.mtu:
            return (
                f"{profile.traffic['pcap']}: frame {held.number} has {held.length} bytes, {held.payload} of them "
                f"payload, and the MTU of {port.name} is {port.mtu}; take out what is longer (`tcpdump -r IN -w OUT "
                f"less {port.mtu + _HEADER}`){port.raised_to(held.payload)}"
            )
    return None


def _named(frames: int | str) -> str:
    return str(frames) if frames == "imix" else f"{frames} B"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
