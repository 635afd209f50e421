"""What is up, kept where a reboot leaves it, so that the service brings it back: the plan as it was, and its spec.

Where that is says systemd (`StateDirectory=`, systemd.exec(5)); without it nothing is kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tailrace.errors import Failure
from tailrace.plan.planned import Plan

ENVIRONMENT = "STATE_DIRECTORY"


class Kept:
    """The file, or none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._written: dict[str, Any] | None = None

    @classmethod
    def of_environment(cls) -> Kept:
        folder = os.environ.get(ENVIRONMENT)
        return cls(Path(folder.split(":")[0]) / "node.json" if folder else None)

    @property
    def path(self) -> str:
        """Empty if nothing is kept."""
        return str(self._path or "")

    def write(self, plan: dict[str, Any], spec: str) -> None:
        """Keeps this, unless it is what was kept last. Raises OSError."""
        document = {"plan": plan, "spec": spec}
        if self._path is None or document == self._written:
            return
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._written = document

    def forget(self) -> None:
        """Nothing is to be brought back. Raises OSError."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._written = None

    def read(self) -> tuple[Plan, str] | None:
        """What is to be brought back, and the spec that it was made of; None if nothing is. Raises Failure where the
        file cannot be read, Mistake where another version has written it."""
        if self._path is None or not self._path.exists():
            return None
        try:
            document = json.loads(self._path.read_text())
            return Plan.read(document["plan"]), str(document["spec"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise Failure(f"{self._path}: cannot be read ({error}); remove it, and run `tailrace up SPEC`") from None
