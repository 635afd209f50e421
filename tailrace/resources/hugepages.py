"""Huge pages, reserved while they are needed and given back: by node and by size.

Only the number that was added is taken away again, so that what somebody else reserves meanwhile is left alone. Always
in the files of a size: vm.nr_hugepages is about the default size, which may be 1 GiB (`default_hugepagesz=1G`).

Source: Linux, Documentation/admin-guide/mm/hugetlbpage.rst.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Failure, Mistake
from tailrace.kernel.cpus import parse_list
from tailrace.process.lock import Held, locked

PAGE_KIB = 2048
PAGE_MIB = PAGE_KIB >> 10
POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
"""The machine's, of pages of 2 MiB."""
_NODES = Path("/sys/devices/system/node")
_LOCK = Path("/run/tailrace-hugepages.lock")
PATIENCE = 10.0
"""Seconds that another command's change of the pool is waited for; it takes as long as the kernel makes room."""


@dataclass(frozen=True)
class Pool:
    """The pages of one size of the machine, or of a node: all, and those that nobody has taken or been promised."""

    total: int
    """Without those that have been given back and are still in use (surplus): they go when they fall free, and a total
    that counted them would keep them."""
    free: int


def pool_of(node: int | None, nodes: Path = _NODES, *, kib: int = PAGE_KIB) -> Path:
    """The pool of pages of a size (2 MiB, 1 GiB) that programs on a node's CPUs need: the node's own where several
    nodes have memory. There the kernel spreads the pages of the machine's pool over all of them, and DPDK takes memory
    of its own node."""
    machine = POOL.with_name(f"hugepages-{kib}kB")
    try:
        able = parse_list((nodes / "has_memory").read_text())
    except (OSError, ValueError):
        return machine
    own = nodes / f"node{node}/hugepages" / machine.name
    return own if node in able and len(able) > 1 and own.exists() else machine


def pool(base: Path = POOL) -> Pool:
    """The pool as it is now; empty where the kernel has none."""
    promised, surplus = base / "resv_hugepages", base / "surplus_hugepages"
    try:
        total = int((base / "nr_hugepages").read_text())
        total -= int(surplus.read_text()) if surplus.exists() else 0
        free = int((base / "free_hugepages").read_text())
        # A node does not tell: pages are promised by the machine, and may be taken anywhere.
        machine = POOL.with_name(base.name) / promised.name
        reserved = int((promised if promised.exists() else machine).read_text())
    except OSError:
        return Pool(0, 0)
    return Pool(total, max(free - reserved, 0))


Wanted = Mapping[tuple[int, int], int]
"""How many huge pages, by a CPU on their node and the size of each in KiB."""


def by_pool(wanted: Wanted, nodes: Mapping[int, int]) -> dict[Path, tuple[int | None, int, int]]:
    """What is wanted of each pool: its node, the size in KiB, the count. `nodes` are those of CPUs."""
    pools: dict[Path, tuple[int | None, int, int]] = {}
    for (cpu, kib), pages in wanted.items():
        base = pool_of(nodes.get(cpu), kib=kib)
        node, _, before = pools.get(base, (nodes.get(cpu), kib, 0))
        pools[base] = (node, kib, before + pages)
    return pools


def size_words(kib: int) -> str:
    """2 MiB, 1 GiB."""
    return f"{kib >> 20} GiB" if kib >= 1 << 20 else f"{kib >> 10} MiB"


def _size(base: Path) -> str:
    named = re.fullmatch(r"hugepages-(\d+)kB", base.name)
    return size_words(int(named[1]) if named else PAGE_KIB)


def command(count: int, base: Path = POOL) -> str:
    """What makes a pool this large."""
    return f"echo {count} | sudo tee {base}/nr_hugepages"


@contextmanager
def alone(base: Path = POOL) -> Iterator[None]:
    """No other Tailrace changes the pool meanwhile: the kernel takes totals only, so two at once would lose pages.

    Raises Failure if another one still does after a while.
    """
    if not os.access(base / "nr_hugepages", os.W_OK):  # `add` says so
        yield
        return
    with ExitStack() as held:
        try:
            held.enter_context(locked(_LOCK, patience=PATIENCE))
        except Held as error:
            raise Failure(f"{error} has been changing the pool of huge pages for {PATIENCE:g} s; end it") from None
        except OSError as error:
            raise Failure(f"{_LOCK}: {error.strerror}; this lock protects the pool of huge pages") from None
        yield


def missing(pages: int, base: Path = POOL) -> int:
    """How many pages must be added so that `pages` are free."""
    return max(pages - pool(base).free, 0)


def add(pages: int, base: Path = POOL) -> None:
    """Adds pages to the pool. Raises Failure or Mistake, with the command that helps, and then adds none."""
    before = pool(base)
    if pages == 0:
        return
    advice = command(before.total + pages, base)
    try:
        (base / "nr_hugepages").write_text(str(before.total + pages))
    except FileNotFoundError:
        raise Mistake(f"no huge pages: this kernel has none of {_size(base)}; use --no-huge (slower)") from None
    except PermissionError:
        raise Mistake(
            f"no huge pages: {pages} of {_size(base)} are missing and only root can reserve them; "
            f"run `{advice}`, or start this command with sudo, or use --no-huge (slower)"
        ) from None
    except OSError as error:
        raise Failure(f"no huge pages: {error.strerror}; try `{advice}`, or use --no-huge (slower)") from None
    after = pool(base)
    if after.total < before.total + pages:
        remove(after.total - before.total, base)
        raise Failure(
            f"no huge pages: {pages} of {_size(base)} were asked for in {base}, and memory had room for "
            f"{after.total - before.total}; free some with `sudo sysctl vm.compact_memory=1` or by ending other "
            "programs, or use --no-huge (slower)"
        )


def remove(pages: int, base: Path = POOL) -> None:
    """Takes pages out of the pool again; pages still in use are given back by the kernel when they fall free."""
    if pages > 0:
        (base / "nr_hugepages").write_text(str(max(pool(base).total - pages, 0)))
