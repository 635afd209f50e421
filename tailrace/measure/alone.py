"""The tester soaked by itself, so that what it adds to a soak, and the slowest it ever was, are known.

A second tester, on the core of the first, which sleeps meanwhile, has two ports of the kind of the first one's, joined
with each other and with nothing else: there is nothing between that could be to blame.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import Failure
from tailrace.measure.joined import Joined, joined_ports
from tailrace.measure.latency import TRIAL_WAIT
from tailrace.measure.profile import Profile
from tailrace.measure.session import Session
from tailrace.measure.tester import Tester
from tailrace.node.running import reserve_pages
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.process.process import undisturbed
from tailrace.resources.hugepages import PAGE_MIB
from tailrace.results.model import Alone
from tailrace.results.soak import alone_of
from tailrace.state.record import FilePath

_NAME = "tester-alone"


@contextmanager
def _joined_tester(session: Session, joined: Joined, socket: Path) -> Iterator[Tester]:
    first = session.tester
    state = first.launcher.state
    state.add(FilePath(str(socket)))
    if first.huge:
        reserve_pages(state, TESTER_BUFFERS_MIB // PAGE_MIB)
    tester = Tester.start(
        first.launcher, joined.ports, first.place, memory_mib=TESTER_BUFFERS_MIB, huge=first.huge, name=_NAME
    )
    try:
        yield tester
    finally:
        with undisturbed():
            tester.stop()
            socket.unlink(missing_ok=True)


def soak_alone(session: Session, profile: Profile, pps: float, seconds: float) -> Alone | None:
    """What the tester measures of itself in so many seconds of the soak's traffic; None where it cannot, with a note.

    Raises Stopped if it is cut short.
    """
    uri = session.tester.ports[0][1]
    socket = session.tester.launcher.state.folder / "alone.sock"
    joined = joined_ports(uri, socket)
    if joined is None:
        kind = uri.partition(":")[0]
        session.folder.note(f"the tester was not soaked alone: two {kind}: ports cannot be joined without a cable")
        return None
    before = session.stage_seconds
    with _joined_tester(session, joined, socket) as tester:
        result = tester.trial(
            profile.streams(pps),
            seconds,
            wait=TRIAL_WAIT,
            watch=session.check,
            progress=lambda done: session.report.advance("the tester alone", before + done),
            interval=max(0.1, seconds / 600),
            pace=1.0,
        )
    session.stage_seconds = before + seconds + TRIAL_WAIT
    alone = alone_of(result, joined.kind, pps)
    if alone is None:
        raise Failure("no frame of the tester came back to itself; see the log of tester-alone in the run folder")
    return alone
