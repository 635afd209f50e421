"""Memory: page merging, transparent huge pages, huge pages on the right node, the share of the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.host.knobs.base import (
    Context,
    Family,
    Knob,
    file_setting,
    huge_pages_by_node,
    is_number,
    is_number_by_node,
    one_of,
)
from tailrace.host.setting import Form, Setting
from tailrace.resources.topology import NODES

TRANSPARENT = "/sys/kernel/mm/transparent_hugepage"


def _file(path: str, form: Form) -> Callable[[Context, Any], Iterable[Setting]]:
    return lambda context, value: file_setting(context, path, value, form)


def _pages(context: Context, value: Any) -> list[Setting]:
    """The pages on the nodes that are named, or that of the switch and the functions, by count; others keep theirs."""
    return [
        Setting(f"pages:{path}", str(count))
        for node, count in huge_pages_by_node(context, "huge_pages_2mib", value, 2).items()
        if context.machine.tree.exists(path := f"{NODES}/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
    ]


class PageMerging(Family):
    name = "pages"
    title = "Page merging and transparent huge pages"
    text = "A thread that touches memory waits while the kernel rearranges it."
    knobs = (
        Knob(
            "transparent_huge_pages",
            "when the kernel makes huge pages on its own",
            "`never` or `madvise`: making a huge page delays a page fault, splitting one interrupts every CPU",
            "programs that do not ask for huge pages get none",
            "Linux, Documentation/admin-guide/mm/transhuge.rst; TuneD network-latency",
            "run",
            "always, madvise or never",
            _file(f"{TRANSPARENT}/enabled", Form.CHOICE),
            one_of("always", "madvise", "never"),
            needs="a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
        Knob(
            "transparent_defrag",
            "whether a page fault waits for memory compaction",
            "compaction takes milliseconds",
            "fewer huge pages",
            "Linux, Documentation/admin-guide/mm/transhuge.rst",
            "run",
            "always, defer, defer+madvise, madvise or never",
            _file(f"{TRANSPARENT}/defrag", Form.CHOICE),
            one_of("always", "defer", "defer+madvise", "madvise", "never"),
            needs="a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
            kernels="any; defer+madvise from 4.11 on",
        ),
        Knob(
            "page_merging",
            "whether the kernel merges equal pages of guests (KSM)",
            "a write to a merged page causes a fault and a copy",
            "similar guests take more memory",
            "Linux, Documentation/admin-guide/mm/ksm.rst; TuneD realtime-virtual-host",
            "run",
            "0: stop; 1: run; 2: stop and separate what was merged",
            _file("/sys/kernel/mm/ksm/run", Form.NUMBER),
            lambda value: is_number(value) and 0 <= value <= 2,
            needs="a kernel with CONFIG_KSM",
        ),
    )


class HugePages(Family):
    name = "huge-pages"
    title = "Huge pages by node"
    text = "Memory for functions and guests, on the node of their cores."
    knobs = (
        Knob(
            "huge_pages_2mib",
            "reserves pages of 2 MiB on the node of the switch and the functions, or the nearest with memory: so many "
            "at least, beside those that `tailrace up` adds",
            "access to another node's memory takes 1.5 to 2 times as long",
            "nothing else can use the memory",
            "Linux, Documentation/admin-guide/mm/hugetlbpage.rst",
            "run",
            "a number, or numbers by node: {0: 512, 1: 64}",
            _pages,
            is_number_by_node,
            needs="a kernel with CONFIG_HUGETLBFS",
            mib=2,
        ),
    )
