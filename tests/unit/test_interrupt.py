"""A main thread that is interrupted while it has a library's lock."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tailrace.cli.output import orderly


class AtABadMoment(logging.Handler):
    """It has its lock, and nothing yet gives it back."""

    def acquire(self) -> None:
        super().acquire()
        signal.raise_signal(signal.SIGINT)

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
    handler, logger = AtABadMoment(), logging.getLogger("tailrace.tests.interrupt")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with orderly(), pytest.raises(KeyboardInterrupt):
            logger.warning("something")
            time.sleep(60)
        assert handler.lock is not None and is_free(handler.lock)
    finally:
        logger.removeHandler(handler)


def test_who_waits_is_interrupted_at_once() -> None:
    asking = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGTERM))
    with orderly(), pytest.raises(KeyboardInterrupt, match="ended by SIGTERM"):
        asking.start()
        threading.Event().wait(60)
