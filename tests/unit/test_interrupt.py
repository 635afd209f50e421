"""A main thread that is interrupted while it has a library's lock."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tailrace.cli.output import orderly


class TakenAtABadMoment:
    """A lock that its first owner has, and nothing yet gives it back. logging takes it by a call, or by `with` from
    Python 3.13 on."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.taken = False

    def acquire(self) -> None:
        self.lock.acquire()
        if not self.taken:
            self.taken = True
            signal.raise_signal(signal.SIGINT)

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Handler(logging.Handler):
    def createLock(self) -> None:  # noqa: N802: logging's name
        self.lock = TakenAtABadMoment()  # type: ignore[assignment]

    def emit(self, record: logging.LogRecord) -> None:
        """Nothing."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The signals' handlers are the same afterwards."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def is_free(lock: threading.RLock) -> bool:  # type: ignore[valid-type]
    """For another thread."""
    found: list[bool] = []
    asking = threading.Thread(target=lambda: found.append(lock.acquire(timeout=0)))  # type: ignore[attr-defined]
    asking.start()
    asking.join()
    return found[0]


def test_who_logs_is_interrupted_after_it() -> None:
    handler, logger = Handler(), logging.getLogger("tailrace.tests.interrupt")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with orderly(), pytest.raises(KeyboardInterrupt):
            logger.warning("something")
            time.sleep(60)
        taken = handler.lock
        assert isinstance(taken, TakenAtABadMoment) and taken.taken and is_free(taken.lock)
    finally:
        logger.removeHandler(handler)


def test_who_waits_is_interrupted_at_once() -> None:
    asking = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGTERM))
    with orderly(), pytest.raises(KeyboardInterrupt, match="ended by SIGTERM"):
        asking.start()
        threading.Event().wait(60)
