"""The tester's own floor where fabrics have several kinds of port: once for each kind and profile, before it is needed.

A chain without a function is the tester's two ends, joined with each other by the least that can: ports in shared
memory and the ends of a veth need nothing between. Two TAPs need a bridge of Linux's, and two virtual functions their
card, which is then a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tailrace.errors import Failure
from tailrace.fabric.base import KERNEL, Interface
from tailrace.fabric.card import NO_CABLING, Cabling
from tailrace.fabric.kinds import MATRIX_KINDS
from tailrace.measure.floor import RATE, floor_seconds, measure_joined
from tailrace.measure.profile import Profile
from tailrace.measure.progress import Reporter
from tailrace.measure.stand import Scene, standing
from tailrace.resources.place import Placement
from tailrace.results import RunFolder
from tailrace.results.record import TrafficKind
from tailrace.state.launch import Launcher

#: Frames a second each way over interfaces of Linux's, where each takes two system calls: no queue there either.
KERNEL_RATE = 10_000.0
_JOINED_BY: dict[Interface, str] = {"tap": "linux-bridge", "passthrough": "card"}


def floors_seconds(wanted: Iterable[tuple[Interface, Profile]]) -> float:
    """Seconds that measuring these floors, each once, is expected to take."""
    kinds: dict[Interface, dict[TrafficKind, Profile]] = {}
    for interface, profile in wanted:
        kinds.setdefault(interface, {})[profile.kind] = profile
    return sum(floor_seconds(list(profiles.values())) for profiles in kinds.values())


class Floors:
    """The floors of one run. One that is gone on with measures those again that it needs: it is another time."""

    def __init__(
        self, launcher: Launcher, folder: RunFolder, report: Reporter, cabling: Cabling = NO_CABLING, *, huge: bool
    ) -> None:
        self._cabling = cabling
        self._launcher = launcher
        self._folder = folder
        self._report = report
        self._huge = huge
        self._known: set[tuple[Interface, TrafficKind]] = set()

    def stand_on(self, interface: Interface, profiles: Sequence[Profile], where: Placement) -> None:
        """The trials that follow are over ports of this kind: measures what is not known yet of their floor.

        A note says so where it cannot be.
        """
        self._folder.measure_over(interface)
        new = [each for each in profiles if (interface, each.kind) not in self._known]
        if not new:
            return
        self._known |= {(interface, each.kind) for each in new}
        self._report.stage(f"the tester's own floor over {interface}", floor_seconds(new))
        if interface == "wire":
            self._folder.note("the tester's own floor was not measured: its two ends are on different cables")
            return
        scene = Scene("floor", (), interface, huge=self._huge, cabling=self._cabling)
        kind = MATRIX_KINDS[_JOINED_BY.get(interface, "direct")]
        launcher = replace(self._launcher, logs=self._launcher.logs / f"floor-{interface}")
        rate = KERNEL_RATE if interface in KERNEL else RATE
        try:
            with standing(launcher, scene, kind, where) as stand:
                measure_joined(stand.tester, interface, self._folder, new, rate)
        except Failure as error:
            self._folder.note(f"the tester's own floor over {interface} was not measured: {error}")
