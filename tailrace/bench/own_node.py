"""A node of a benchmark's own, operated by the command as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tailrace import __version__
from tailrace.bench.setting import Cores, Setting, check_able, prepared
from tailrace.errors import Failure
from tailrace.measure.progress import Reporter
from tailrace.state.folder import ENVIRONMENT


@contextmanager
def own_folder(bench: str, folder: Path, report: Reporter) -> Iterator[tuple[Setting, Path]]:
    """The setting of a benchmark, and a folder for a node of its own, which goes with all that is in it. The commands
    have all CPUs: nothing of the benchmark's own polls. Raises Mistake."""
    allowed = os.sched_getaffinity(0)
    check_able(bench, ("tailrace-switch", "tailrace-vnf"))
    with prepared(folder, Cores.choose(None, bench), 0, report) as setting:
        os.sched_setaffinity(0, allowed)
        setting.versions["tailrace"] = __version__
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=setting.launcher.state.folder) as made:
            Path(made).chmod(0o755)
            yield setting, Path(made)


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


def resident_mib(pid: int) -> float:
    """Memory of a process that is resident."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
