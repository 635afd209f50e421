"""When the main thread may be interrupted.

KeyboardInterrupt comes between any two steps of it. Within a library that has taken a lock, and has not yet begun what
gives it back whatever happens, it would keep that lock for good: the next thread that logs anything would wait for it.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_AGAIN_SECONDS = 0.005
_TAKES_OR_GIVES = {"acquire", "release", "__enter__", "__exit__", "notify", "notify_all", "set"}


def put_off(number: int, frame: FrameType | None) -> bool:
    """Whether a signal's handler comes at such a moment, in this frame of the main thread; the signal then comes again
    a little later, and the handler is to do nothing now."""
    if not _within_lock(frame):
        return False
    ident = threading.main_thread().ident
    assert ident is not None
    again = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (ident, number))
    again.daemon = True
    again.start()
    return True


def _within_lock(frame: FrameType | None) -> bool:
    if frame is not None and frame.f_code.co_name in _TAKES_OR_GIVES and frame.f_globals.get("__name__") == "threading":
        return True
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "logging":
            return True
        frame = frame.f_back
    return False
