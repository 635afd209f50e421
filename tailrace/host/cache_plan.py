"""Which ways of which caches a share is given: what the machine has, what others have, what devices write into.

Source: as resctrl.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tailrace.errors import Mistake
from tailrace.host.cache_split import Level, Masks, split
from tailrace.host.cgroups import CACHE
from tailrace.host.machine import Machine
from tailrace.host.resctrl import RESCTRL, Schemata, Share, group_cpus, parse_schemata
from tailrace.kernel.cpus import show_list
from tailrace.kernel.tree import Tree

_NOT_GROUPS = ("info", "mon_groups", "mon_data")


def plan_share(machine: Machine, isolated: Collection[int], cpus: Collection[int], percent: int) -> Share | None:
    """What gives `cpus`, those of the isolated ones that stay online, ways of their own; None without cache allocation.

    Raises Mistake where other people's groups, or devices, do not leave so much, or have a CPU of them.
    """
    tree = machine.tree
    root = parse_schemata(tree.text(f"{RESCTRL}/schemata") or "")
    if not root:
        return None
    groups = _other_groups(tree)
    for name in groups:
        theirs = set(group_cpus(tree, f"{RESCTRL}/{name}")) & set(cpus)
        if theirs:
            raise Mistake(
                f"knobs.cache_share: CPUs {show_list(theirs)} are in {RESCTRL}/{name}, a group that is not Tailrace's; "
                "take them out of it, or give the roles other CPUs"
            )
    own: dict[str, Masks] = {}
    kept: dict[str, Masks] = {}
    exclusive = True
    for level in _levels(machine, isolated, root, list(groups.values())):
        made = split(level, percent)
        own |= dict.fromkeys(level.names, made.own)
        kept |= made.root
        exclusive = exclusive and made.exclusive
    mode = "" if tree.text(f"{RESCTRL}/mode") is None else "exclusive" if exclusive else "shareable"
    return Share(show_list(cpus), mode, own, kept)


def _other_groups(tree: Tree) -> dict[str, Schemata]:
    """Other people's control groups, each with its masks."""
    own = CACHE.rpartition("/")[2]
    texts = {
        name: tree.text(f"{RESCTRL}/{name}/schemata") for name in tree.names(RESCTRL) if name not in (*_NOT_GROUPS, own)
    }
    return {name: parse_schemata(text) for name, text in texts.items() if text is not None}


def _levels(
    machine: Machine, isolated: Collection[int], root: Schemata, groups: Collection[Schemata]
) -> Iterator[Level]:
    tree = machine.tree
    own = parse_schemata(tree.text(f"{CACHE}/schemata") or "")
    for number in (2, 3):
        names = [name for name in root if name.startswith(f"L{number}")]
        if not names:
            continue
        info = f"{RESCTRL}/info/{names[0]}"
        ids = root[names[0]]
        mine = {cache: _any(own, names, cache) for cache in ids}
        taken = dict.fromkeys(ids, 0)
        devices = dict.fromkeys(ids, tree.number_hex(f"{info}/shareable_bits") or 0)
        for group in groups:
            for cache in ids:
                # One that is locked shows one resource alone, and is locked for both.
                taken[cache] |= _any(group, names, cache)
        for name in names:
            for cache, letters in _usage(tree.text(f"{RESCTRL}/info/{name}/bit_usage") or ""):
                if cache in ids:
                    devices[cache] |= _marked(letters, "XH")
                    taken[cache] |= _marked(letters, "E") & ~mine[cache] & ~_any(root, names, cache)
                    taken[cache] |= _marked(letters, "P")
        least = tree.number(f"{info}/min_cbm_bits")
        yield Level(
            names=names,
            whole=tree.number_hex(f"{info}/cbm_mask") or _all(root, names),
            least=1 if least is None else least,
            sparse=tree.number(f"{info}/sparse_masks") == 1,
            devices=devices,
            taken=taken,
            root={name: root[name] for name in names},
            own=mine,
            users=_users(machine, number, isolated),
        )


def _any(schemata: Schemata, names: Collection[str], cache: int) -> int:
    """The ways that a group has of a cache by any of these resources."""
    mask = 0
    for name in names:
        mask |= schemata.get(name, {}).get(cache, 0)
    return mask


def _all(schemata: Schemata, names: Collection[str]) -> int:
    """The ways that a group has of any cache."""
    mask = 0
    for name in names:
        for cache in schemata[name]:
            mask |= schemata[name][cache]
    return mask


def _usage(text: str) -> Iterator[tuple[int, str]]:
    """`0=XXSSEE;1=...` by cache."""
    for cache, letters in re.findall(r"(\d+)=([0A-Z]+)", text):
        yield int(cache), letters


def _marked(letters: str, kinds: str) -> int:
    """The ways that are marked so; the highest stands first."""
    return sum(1 << bit for bit, letter in enumerate(reversed(letters)) if letter in kinds)


def _users(machine: Machine, level: int, isolated: Collection[int]) -> dict[int, str]:
    """Whose CPUs the caches of a level serve, as far as the kernel reports their ids."""
    found = {}
    for cache in machine.caches:
        if cache.level == level and cache.id is not None and cache.kind != "Instruction" and cache.cpus:
            ours = set(cache.cpus) & set(isolated)
            found[cache.id] = "others" if not ours else "own" if ours == set(cache.cpus) else "both"
    return found
