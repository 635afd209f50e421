"""resctrl in a folder: the files of a machine with cache allocation, and the kernel's rules for writing to them.

The rules are those of Linux, fs/resctrl/ctrlmondata.c (cbm_validate, parse_cbm) and fs/resctrl/rdtgroup.c
(rdtgroup_mode_test_exclusive, cpus_ctrl_write, cpus_mon_write).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import make

from tailrace.kernel.cpus import parse_list, show_list
from tailrace.kernel.tree import Tree

RESCTRL = "/sys/fs/resctrl"
Masks = dict[str, dict[int, int]]


def resctrl(folder: Path, schemata: str, *, mode: bool = True, **info: str) -> None:
    """Mounts it: the root group's schemata, and for each resource's `info` the same values, such as cbm_mask."""
    files = {f"{RESCTRL}/schemata": schemata, f"{RESCTRL}/cpus_list": "", f"{RESCTRL}/tasks": "1"}
    if mode:
        files[f"{RESCTRL}/mode"] = "shareable"
    for name in re.findall(r"(L[23]\w*):", schemata):
        values = {"cbm_mask": "fff", "min_cbm_bits": "1", "shareable_bits": "0", "num_closids": "16", **info}
        files |= {f"{RESCTRL}/info/{name}/{key}": value for key, value in values.items()}
    make(folder, files)
    (folder / f"{RESCTRL}/mon_data/mon_L3_00".lstrip("/")).mkdir(parents=True)
    (folder / f"{RESCTRL}/mon_groups".lstrip("/")).mkdir()


def group(folder: Path, name: str, schemata: str, *, cpus: str = "", mode: str = "shareable") -> None:
    """A control group of somebody else's."""
    at = f"{RESCTRL}/{name}"
    make(folder, {f"{at}/schemata": schemata, f"{at}/cpus_list": cpus, f"{at}/mode": mode})


def masks(folder: Path, name: str = "") -> Masks:
    """What a group has of each cache; the root group without a name."""
    return _masks((folder / f"{RESCTRL}/{name}/schemata".lstrip("/")).read_text())


def _masks(text: str) -> Masks:
    return {
        name: {int(cache): int(mask, 16) for cache, mask in re.findall(r"(\d+)=(\w+)", line)}
        for name, line in re.findall(r"^\s*(L[23]\w*):(.*)$", text, re.MULTILINE)
        if "=" in line
    }


def obey(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Writing to the files of resctrl is refused where the kernel refuses it, and does what it does there."""
    write = Tree.write

    def writing(tree: Tree, path: str, value: str) -> None:
        if path.startswith(RESCTRL):
            at, _, file = path.removeprefix(RESCTRL).strip("/").rpartition("/")
            check = {"schemata": _schemata, "mode": _mode, "cpus_list": _cpus}[file]
            check(folder, at, value)
        write(tree, path, value)

    monkeypatch.setattr(Tree, "write", writing)


def _refuse(why: str) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), why)


def _info(folder: Path, name: str, key: str, default: str) -> str:
    path = folder / f"{RESCTRL}/info/{name}/{key}".lstrip("/")
    return path.read_text().strip() if path.exists() else default


def _groups(folder: Path) -> Iterator[str]:
    yield ""
    for path in sorted((folder / RESCTRL.lstrip("/")).iterdir()):
        if (path / "schemata").exists() and path.name != "info":
            yield path.name


def _mode_of(folder: Path, name: str) -> str:
    path = folder / f"{RESCTRL}/{name}/mode".lstrip("/")
    return path.read_text().strip() if path.exists() else "shareable"


def _overlaps(folder: Path, own: str, found: Masks, *, exclusive: bool) -> str | None:
    """The group whose masks these touch; with `exclusive` only of those that are exclusive themselves."""
    for name in _groups(folder):
        if name == own or (exclusive and _mode_of(folder, name) not in ("exclusive", "pseudo-locked")):
            continue
        theirs = masks(folder, name)
        for resource, line in found.items():
            for cache, mask in line.items():
                if any(mask & theirs[each].get(cache, 0) for each in theirs if each[:2] == resource[:2]):
                    return name or "the root group"
    return None


def _devices(folder: Path, found: Masks) -> bool:
    return any(
        mask & int(_info(folder, resource, "shareable_bits", "0"), 16)
        for resource, line in found.items()
        for mask in line.values()
    )


def _schemata(folder: Path, own: str, value: str) -> None:
    found, every = _masks(value), masks(folder)
    for resource, line in found.items():
        if line.keys() - every.get(resource, {}).keys():
            _refuse("no such cache")
        least = int(_info(folder, resource, "min_cbm_bits", "1"))
        whole = int(_info(folder, resource, "cbm_mask", "fff"), 16)
        sparse = _info(folder, resource, "sparse_masks", "0") == "1"
        for mask in line.values():
            runs = re.findall("1+", f"{mask:b}")
            if mask & ~whole or (least and not mask):
                _refuse("mask out of range")
            if len(runs) > 1 and not sparse:
                _refuse(f"{mask:x} has non-consecutive 1-bits")
            if runs and len(runs[-1]) < least:
                _refuse(f"need at least {least} bits")
    if other := _overlaps(folder, own, found, exclusive=True):
        _refuse(f"overlaps with exclusive group {other}")
    if _mode_of(folder, own) == "exclusive" and (_overlaps(folder, own, found, exclusive=False)):
        _refuse("overlaps with other group")


def _mode(folder: Path, own: str, value: str) -> None:
    if value != "exclusive":
        return
    found, every = masks(folder, own), masks(folder)
    if {name: line.keys() for name, line in found.items()} != {name: line.keys() for name, line in every.items()}:
        _refuse("the default of a cache that was left out overlaps")
    if other := _overlaps(folder, own, found, exclusive=False):
        _refuse(f"schemata overlaps with {other}")
    if _devices(folder, found):
        _refuse("schemata overlaps with what devices use")


def _cpus(folder: Path, own: str, value: str) -> None:
    at, cpus = folder / RESCTRL.lstrip("/"), set(parse_list(value))
    if "mon_groups" in own:
        for name in _groups(folder):
            if name and cpus & set(parse_list((at / name / "cpus_list").read_text())):
                _refuse("can only add CPUs of the parent")
        return
    for path in at.rglob("cpus_list"):
        if path.parent not in (at, at / own):
            path.write_text(show_list(set(parse_list(path.read_text())) - cpus) + "\n")
