"""The tester's own floor: what it measures of itself, over ports of the kind that it measures others by.

A process of its own has two ports that are joined with each other and with nothing else, so whatever it measures is
its own sending, the port, and its own receiving. No figure of a device can be below it; one that is not well above it
says as much of the tester as of the device.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.errors import Failure, Mistake
from tailrace.measure.joined import joined_ports
from tailrace.measure.profile import Profile
from tailrace.measure.tester import TESTER, Stopped, Tester
from tailrace.process.process import undisturbed
from tailrace.resources.place import Place
from tailrace.results import RunFolder
from tailrace.state.launch import Launcher
from tailrace.state.record import FilePath

#: Frames a second each way: enough for a median of every profile, and no queue.
RATE = 100_000.0
SECONDS = 0.3
WAIT = 0.05
#: What starting and ending the tester takes, for the progress bar.
START_SECONDS = 1.5


def floor_seconds(profiles: Sequence[Profile]) -> float:
    """Seconds that measuring the floor of these is expected to take."""
    return START_SECONDS + len(profiles) * (SECONDS + WAIT) if profiles else 0.0


def measure_floor(
    launcher: Launcher, uri: str, place: Place, folder: RunFolder, profiles: Sequence[Profile], *, memory_mib: int,
    huge: bool,
) -> None:  # fmt: skip
    """Measures the floor of each profile and keeps it in the run folder; a note says so where it cannot be."""
    state = launcher.state
    socket = state.folder / "floor.sock"
    joined = joined_ports(uri, socket)
    if joined is None:
        scheme = uri.partition(":")[0]
        folder.note(
            f"the tester's own floor was not measured: two {scheme}: ports cannot be joined without a cable; join "
            "them, and measure between them"
        )
        return
    state.add(FilePath(str(socket)))
    try:
        tester = Tester.start(launcher, joined.ports, place, memory_mib=memory_mib, huge=huge)
    except Failure as error:
        # It would be taken for the one that measures, which has not been started yet.
        for process in [each for each in state.processes() if each.name == TESTER]:
            state.undo(process)
        folder.note(f"the tester's own floor was not measured: {error}")
        return
    try:
        measure_joined(tester, joined.kind, folder, profiles)
    finally:
        with undisturbed():
            tester.stop()
            socket.unlink(missing_ok=True)


def measure_joined(
    tester: Tester, ports: str, folder: RunFolder, profiles: Sequence[Profile], rate: float = RATE
) -> None:
    """Measures the floor of each profile with a tester whose ports, of this kind, are joined with each other.

    A note says so of a profile that such ports do not take: DPDK's back end, one end of joined vhost-user ports, has no
    frames of more than one buffer, and the ports of a switch may.
    """
    for profile in profiles:
        try:
            result = tester.trial(profile.streams(rate), SECONDS, wait=WAIT, watch=lambda: None)
        except Stopped as stopped:
            raise stopped.cause from None
        except Mistake as refused:
            folder.note(f"the tester's own floor of {profile.name} was not measured over {ports}: {refused}")
            continue
        folder.add_floor(result, **profile.kind._asdict(), ports=ports, offered_pps=rate)
