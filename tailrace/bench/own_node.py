"""What benchmarks with a node of their own (`tailrace.measure.own_node`) start from."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace import __version__
from tailrace.bench.setting import Cores, Setting, check_able, prepared
from tailrace.measure.progress import Reporter


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


def resident_mib(pid: int) -> float:
    """Memory of a process that is resident."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
