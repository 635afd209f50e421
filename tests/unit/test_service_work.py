"""What the service does by itself, without a switch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.node.service import Service
from tailrace.state.record import Held


def test_the_end_of_a_measurement_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it changes the switch: each would be a look every few seconds while it measures."""
    service = Service(Held(tmp_path), while_up=True)
    at_work, timers = [True], list[Callable[[], object]]()
    monkeypatch.setattr("tailrace.node.service.run_at_work", lambda _: at_work[0])
    monkeypatch.setattr(service.server, "soon", timers.append)

    def work() -> None:
        while not service._queue.empty():
            service._queue.get().do()

    for _ in range(3):
        service._configured_by(1)
        work()
    assert len(timers) == 1
    at_work[0] = False
    service._compare()  # as the timer has it done
    service._configured_by(1)
    assert service._queue.qsize() == 1
    service.server.loop.close()
