"""A node of a benchmark's own, operated by the command as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tailrace.errors import Failure
from tailrace.node.folder import ENVIRONMENT


class OwnNode:
    """In a folder of its own."""

    def __init__(self, folder: Path, spec: str) -> None:
        self.state = folder / "node"
        self.spec = folder / "spec.yaml"
        self.spec.write_text(spec)

    def command(self, *words: str) -> float:
        """Runs the command; returns how long it took, in ms. Raises Failure."""
        began = time.monotonic()
        isolated = ["-I"] if sys.flags.isolated else []
        done = subprocess.run(
            [sys.executable, *isolated, "-m", "tailrace.cli.main", *words],
            capture_output=True,
            text=True,
            env={**os.environ, ENVIRONMENT: str(self.state)},
            check=False,
        )
        if done.returncode != 0:
            raise Failure(f"tailrace {' '.join(words)}: {done.stderr.strip()}")
        return (time.monotonic() - began) * 1e3
