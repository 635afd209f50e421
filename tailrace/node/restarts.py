"""When what has ended by itself is started again: at once the first time, then after ever longer pauses. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each start; the last one before all that follow."""
FORGIVEN = 60.0
"""What has run for so many seconds begins anew with the first pause."""


@dataclass
class _Tries:
    count: int = 0
    started: float | None = None
    """When it last was; None where it has ended since."""
    due: float | None = None


@dataclass
class Restarts:
    """What is to be started again, by name, in seconds of one clock."""

    _of: dict[str, _Tries] = field(default_factory=dict)

    def ended(self, name: str, now: float) -> float:
        """Something has ended, or could not be started; returns the pause until it is to be started."""
        tries = self._of.setdefault(name, _Tries())
        if tries.started is not None and now - tries.started >= FORGIVEN:
            tries.count = 0
        tries.started = None
        pause = PAUSES[min(tries.count, len(PAUSES) - 1)]
        tries.count += 1
        tries.due = now + pause
        return pause

    def started(self, name: str, now: float) -> None:
        """It runs again."""
        tries = self._of.setdefault(name, _Tries())
        tries.started, tries.due = now, None

    def put_off(self, name: str, until: float) -> None:
        """It cannot be started now, for a reason that is not its own."""
        self._of[name].due = until

    def due(self, now: float) -> list[str]:
        """What is to be started now."""
        return [name for name, tries in self._of.items() if tries.due is not None and tries.due <= now]

    def next_in(self, now: float) -> float | None:
        """Seconds until something is to be started; None if nothing is."""
        dues = [tries.due for tries in self._of.values() if tries.due is not None]
        return max(min(dues) - now, 0.0) if dues else None

    def pause(self, name: str, now: float) -> float | None:
        """Seconds until it is started; None if it is not to be."""
        tries = self._of.get(name)
        return max(tries.due - now, 0.0) if tries is not None and tries.due is not None else None

    def forget(self, name: str) -> None:
        """It is not to be started any more: somebody else has, or has taken it away."""
        self._of.pop(name, None)
