"""A tester whose two ports are joined with each other, for whatever measures floors without any process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tester_results import result, stream

from tailrace.errors import Failure
from tailrace.measure import floors as the_floors


class JoinedTester:
    """Every frame takes 1 µs over shared memory and 8 µs over interfaces of Linux's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: str = "") -> None:
        self.stood: list[tuple[str, str]] = []
        """What was joined, and by which fabric."""
        self._fails = fails
        monkeypatch.setattr(the_floors, "standing", self._standing)

    @contextmanager
    def _standing(self, *given: Any) -> Iterator[Any]:
        _, scene, kind, _ = given
        assert not scene.functions
        self.stood.append((scene.interface, kind.name))
        if scene.interface == self._fails:
            raise Failure("it does not start")
        median_ns = 8_000 if scene.interface in ("tap", "veth") else 1_000
        yield SimpleNamespace(tester=SimpleNamespace(trial=lambda *_, **__: result(stream([median_ns] * 100))))
