"""A node of a measurement's own, operated by the command as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tailrace.errors import Failure
from tailrace.state.folder import ENVIRONMENT


class OwnNode:
    """In a folder of its own."""

    def __init__(
        self,
        folder: Path,
        spec: str,
        *,
        within: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`within`: what is put before its commands, as by `nsenter`; `environment`: what these have beside ours."""
        self.state = folder / "node"
        self.spec = folder / "spec.yaml"
        self.spec.write_text(spec)
        self._within = within
        self._environment = {**environment, ENVIRONMENT: str(self.state)}

    def command(self, *words: str) -> float:
        """Runs the command; returns how long it took, in ms. Raises Failure."""
        began = time.monotonic()
        self.said(*words)
        return (time.monotonic() - began) * 1e3

    def said(self, *words: str) -> str:
        """Runs the command; returns what it prints. Raises Failure."""
        isolated = ["-I"] if sys.flags.isolated else []
        done = subprocess.run(
            [*self._within, sys.executable, *isolated, "-m", "tailrace.cli.main", *words],
            capture_output=True,
            text=True,
            env={**os.environ, **self._environment},
            check=False,
        )
        if done.returncode != 0:
            raise Failure(f"tailrace {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout
