"""Which ways of each L2 and L3 cache the isolated CPUs get for themselves, and which everybody else keeps.

A split is exclusive: no other control group of resctrl has a way of it, the root group included, and no device writes
into it. Other people's groups keep all that they have. Logic only; resctrl.py reads and writes the masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tailrace.errors import Mistake

Masks = Mapping[int, int]
"""Ways by cache id, a bit for each."""


@dataclass(frozen=True)
class Level:
    """The caches of one level, as resctrl shows them."""

    names: Sequence[str]
    """The resources: L3, or L3CODE and L3DATA where code and data are told apart (CDP)."""
    whole: int
    """Every way (`cbm_mask`)."""
    least: int
    """So many ways the processor wants in a mask (`min_cbm_bits`); 0 on AMD."""
    sparse: bool
    """Whether a mask may have gaps (`sparse_masks`)."""
    devices: Masks
    """Ways that devices write into as well (`shareable_bits`; X and H in `bit_usage`)."""
    taken: Masks
    """Ways of other people's groups, and locked ones."""
    root: Mapping[str, Masks]
    """What the root group has of each resource."""
    own: Masks
    """What the isolated CPUs have already."""
    users: Mapping[int, str]
    """Whose CPUs a cache serves: `own`, `others`, or `both`, which is also what is not known."""

    @property
    def title(self) -> str:
        return self.names[0][:2]


@dataclass(frozen=True)
class Split:
    """The ways of one level."""

    own: Masks
    root: Mapping[str, Masks]
    exclusive: bool
    """Whether nobody shares any of `own`."""


@dataclass(frozen=True)
class _Choice:
    own: int
    root: Mapping[str, int]


def split(level: Level, percent: int) -> Split:
    """The ways of each cache: `percent` of those that the isolated CPUs share with others, of their own caches all that
    devices and the root group's minimum leave, of others' caches as few as the processor allows.

    Raises Mistake where that is more than devices and other groups leave.
    """
    own: dict[int, int] = {}
    root: dict[str, dict[int, int]] = {name: {} for name in level.names}
    exclusive = True
    for cache in level.root[level.names[0]]:
        choice = _choose(level, cache, percent)
        if choice is None:  # no isolated CPU uses it, so sharing it harms nobody
            exclusive = False
            before = {name: level.root[name][cache] for name in level.names}
            choice = _Choice(before[level.names[0]], before)
        own[cache] = choice.own
        for name in level.names:
            root[name][cache] = choice.root[name]
    return Split(own, root, exclusive)


def _choose(level: Level, cache: int, percent: int) -> _Choice | None:
    user = level.users.get(cache, "both")
    if user == "others":
        return _fit(level, cache, level.least)
    ways = level.whole.bit_count()
    if user == "own":
        wanted = max(1, level.least)
        found = _most(level, cache)
    else:
        wanted = max(1, level.least, ways * percent // 100)
        found = _fit(level, cache, wanted)
    if found is not None:
        return found
    most = _most(level, cache)
    advice = f"take {-(-100 * most.own.bit_count() // ways)} % at most, or " if most else ""
    raise Mistake(
        f"knobs.cache_share: {wanted} of the {ways} ways of {level.title} cache {cache} cannot be set apart: "
        f"devices write into {level.devices.get(cache, 0):#x}, other groups have {level.taken.get(cache, 0):#x}; "
        f"{advice}give up ways in the groups in /sys/fs/resctrl"
    )


def _most(level: Level, cache: int) -> _Choice | None:
    """As many ways as can be set apart."""
    for count in range(level.whole.bit_count(), max(1, level.least) - 1, -1):
        found = _set_apart(level, cache, count, {name: level.root[name][cache] for name in level.names})
        if found is not None:
            return found
    return None


def _fit(level: Level, cache: int, count: int) -> _Choice | None:
    """So many ways; where the isolated CPUs have more already, the root group gets the others."""
    own = level.own.get(cache, 0)
    return _set_apart(level, cache, count, {name: level.root[name][cache] | own for name in level.names})


def _set_apart(level: Level, cache: int, count: int, root: Mapping[str, int]) -> _Choice | None:
    """So many ways, those that they are already if that can be, else where the root group loses least."""
    free = level.whole & ~level.devices.get(cache, 0) & ~level.taken.get(cache, 0)
    found: list[tuple[bool, int, int, _Choice]] = []
    for own in _candidates(level, free, count):
        kept = {name: _kept(level, mask & ~own) for name, mask in root.items()}
        if all(kept.values()):
            lost = sum((root[name] & ~mask).bit_count() for name, mask in kept.items())
            found.append((own != level.own.get(cache), lost, own, _Choice(own, kept)))
    return min(found, key=lambda each: each[:3])[3] if found else None


def _candidates(level: Level, free: int, count: int) -> Iterator[int]:
    """Neighbouring ways, which every processor takes, the lowest first; without any the lowest of all."""
    run = (1 << count) - 1
    places = [place for place in range(free.bit_length() + 1) if run << place & ~free == 0]
    yield from (run << place for place in places)
    if level.sparse and not places and free.bit_count() >= count:
        mask = sum(1 << bit for bit in [bit for bit in range(free.bit_length()) if free >> bit & 1][:count])
        if _run(mask).bit_count() >= level.least:
            yield mask


def _kept(level: Level, mask: int) -> int:
    """The part of a mask that the processor takes; 0 if there is none."""
    if level.sparse and mask and _run(mask).bit_count() >= level.least:
        return mask
    longest = 0
    while mask:
        run = _run(mask)
        mask &= ~run
        if run.bit_count() > longest.bit_count():
            longest = run
    return longest if longest.bit_count() >= level.least else 0


def _run(mask: int) -> int:
    """Its lowest ways that are neighbours; the kernel counts these against `min_cbm_bits`."""
    lowest = mask & -mask
    return mask & ~(mask + lowest)
