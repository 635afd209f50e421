"""`cache:FOLDER`: a control group of resctrl with CPUs and ways of its own, and the root group without these ways.

The value is one line, `CPUS [MODE] RESOURCE:ID=MASK;... root RESOURCE:ID=MASK;...`; without a group only `root ...`.
Both groups are one value because the kernel refuses masks that overlap while one of them is exclusive, so which is
written first depends on both.

Source: Linux, Documentation/filesystems/resctrl.rst (Documentation/arch/x86/resctrl.rst before 6.16).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tailrace.host.cache_split import Masks
from tailrace.host.cgroups import make
from tailrace.kernel.cpus import parse_list, show_list
from tailrace.kernel.tree import Tree

RESCTRL = "/sys/fs/resctrl"
_LINE = re.compile(r"^\s*(L[23](?:CODE|DATA)?):(.*)$", re.MULTILINE)
"""A cache's line of `schemata`; memory bandwidth (MB, SMBA) is left alone."""
_MASK = re.compile(r"(\d+)=\s*([0-9a-fA-F]+)")
_NO_CPU = "none"

Schemata = Mapping[str, Masks]


def parse_schemata(text: str) -> Schemata:
    """The masks of each cache resource; nothing for a line without masks (`uninitialized`)."""
    found = {
        name: {int(cache): int(mask, 16) for cache, mask in _MASK.findall(masks)} for name, masks in _LINE.findall(text)
    }
    return {name: masks for name, masks in found.items() if masks}


def show_line(name: str, masks: Masks) -> str:
    """`L3:0=3f;1=3f`, as `schemata` takes it."""
    return f"{name}:{';'.join(f'{cache}={mask:x}' for cache, mask in masks.items())}"


@dataclass(frozen=True)
class Share:
    """The value of a `cache:` place."""

    cpus: str
    """Empty: no group."""
    mode: str
    """Empty where the kernel has none (before 4.19)."""
    own: Schemata
    root: Schemata = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Share:
        group, _, root = text.partition("root")
        words = group.split()
        cpus = words[0] if words else ""
        mode = next((word for word in words[1:] if ":" not in word), "")
        return cls(cpus, mode, parse_schemata("\n".join(words)), parse_schemata("\n".join(root.split())))

    def like(self, other: Share) -> bool:
        """Whether both say the same of the caches that both tell of. The kernel shows none whose CPUs are all offline,
        and an earlier version of Tailrace left the root group alone."""
        pairs = ((self.own, other.own), (self.root, other.root))
        return (self.cpus, self.mode) == (other.cpus, other.mode) and all(
            mask == theirs[name].get(cache, mask)
            for ours, theirs in pairs
            for name in ours.keys() & theirs.keys()
            for cache, mask in ours[name].items()
        )

    def __str__(self) -> str:
        own, root = ([show_line(*line) for line in sorted(masks.items())] for masks in (self.own, self.root))
        return " ".join([*filter(None, (self.cpus, self.mode)), *own, "root", *root])


class CacheShares:
    """Reads and writes `cache:` places."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        text = self._tree.text(f"{RESCTRL}/schemata")
        if text is None:
            return None
        root = parse_schemata(text)
        if not self._tree.exists(target):
            return str(Share("", "", {}, root))
        cpus, mode, own = (self._tree.text(f"{target}/{name}") or "" for name in ("cpus_list", "mode", "schemata"))
        return str(Share(_list(cpus) or _NO_CPU, mode, parse_schemata(own), root))

    def write(self, target: str, value: str) -> None:
        """Raises OSError with the kernel's own words."""
        try:
            self._write(target, Share.parse(value))
        except OSError as error:
            status = self._tree.text(f"{RESCTRL}/info/last_cmd_status") if self._tree.live else None
            if status in (None, "", "ok"):
                raise
            raise OSError(error.errno, f"{error.strerror}: {' '.join(status.split())}") from None

    def _write(self, target: str, share: Share) -> None:
        there = parse_schemata(self._tree.text(f"{RESCTRL}/schemata") or "")
        if self._tree.text(f"{target}/mode") == "exclusive":
            self._tree.write(f"{target}/mode", "shareable")  # until no mask overlaps another
        if not share.cpus:
            self._remove(target)
        self._write_masks(f"{RESCTRL}/schemata", _shown(share.root, there))
        if not share.cpus:
            return
        self._tree.at(target).mkdir(exist_ok=True)
        self._write_masks(f"{target}/schemata", _shown(share.own, there))
        make(self._tree, f"{target}/cpus_list", "" if share.cpus == _NO_CPU else share.cpus)
        if share.mode:
            make(self._tree, f"{target}/mode", share.mode)

    def _write_masks(self, path: str, masks: Schemata) -> None:
        if self._tree.live and masks:
            self._tree.write(path, "\n".join(show_line(*line) for line in masks.items()))
        if self._tree.live or not masks:
            return
        at = self._tree.at(path)
        text = at.read_text() if at.exists() else ""
        for name, line in masks.items():
            text = text if re.search(rf"^\s*{name}:", text, re.MULTILINE) else f"{text}{show_line(name, line)}\n"
        make(self._tree, path, _merged(text, masks).removesuffix("\n"))

    def _remove(self, target: str) -> None:
        at = self._tree.at(target)
        if self._tree.live:
            if at.exists():
                at.rmdir()  # the kernel takes its files and monitoring groups with it
        else:
            shutil.rmtree(at, ignore_errors=True)


def _shown(schemata: Schemata, there: Schemata) -> Schemata:
    """Of these masks those of caches that the kernel shows: it refuses others."""
    found = {
        name: {cache: mask for cache, mask in masks.items() if cache in there.get(name, {})}
        for name, masks in schemata.items()
    }
    return {name: masks for name, masks in found.items() if masks}


def _merged(text: str, masks: Schemata) -> str:
    """A copied `schemata` with other masks, and otherwise as it was: the kernel does that to its own."""

    def line(found: re.Match[str]) -> str:
        new = masks.get(found[1], {})

        def mask(each: re.Match[str]) -> str:
            return f"{each[1]}={new[int(each[1])]:0{len(each[2])}x}" if int(each[1]) in new else each[0]

        return _MASK.sub(mask, found[0])

    return _LINE.sub(line, text)


def _list(text: str) -> str:
    """A list of CPUs in one form."""
    try:
        return show_list(parse_list(text))
    except ValueError:
        return text


def monitoring_groups(tree: Tree) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The monitoring groups of the root group: the file that lists the CPUs that each watches, and these CPUs. The
    kernel drops a CPU from them when a control group gets it, and does not put it back."""
    for name in tree.names(f"{RESCTRL}/mon_groups"):
        path = f"{RESCTRL}/mon_groups/{name}"
        if tree.exists(f"{path}/cpus_list"):
            yield f"{path}/cpus_list", group_cpus(tree, path)


def group_cpus(tree: Tree, group: str) -> tuple[int, ...]:
    try:
        return parse_list(tree.text(f"{group}/cpus_list") or "")
    except ValueError:
        return ()
