"""The knob cache_share: ways of L2 and L3 that nobody else has, by the kernel's rules (resctrl_kernel.py)."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import make
from resctrl_kernel import RESCTRL, group, masks, obey, resctrl
from tuned_host import Host, contents

from tailrace.errors import Mistake
from tailrace.host.cache_split import Level, split
from tailrace.host.journal import hold_journal
from tailrace.host.resctrl import Share
from tailrace.host.tuner import State
from tailrace.kernel.tree import Tree

OWN = "tailrace"
PLACE = f"cache:{RESCTRL}/{OWN}"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Four CPUs, of which 1 to 3 are isolated."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    obey(monkeypatch, tmp_path)
    return Host(tmp_path)


def share(host: Host, percent: int = 50) -> str:
    return host.own(f"{{cache_share: {percent}}}")


def read(host: Host, name: str, group_: str = OWN) -> str:
    return (host.folder / f"{RESCTRL}/{group_}/{name}".lstrip("/")).read_text().strip()


def caches(host: Host, level: int, *ids: tuple[int, str]) -> None:
    """Caches by id, each with the CPUs that it serves."""
    for cache, cpus in ids:
        for cpu in range(int(cpus[0]), int(cpus[-1]) + 1):
            at = f"/sys/devices/system/cpu/cpu{cpu}/cache/index{level}"
            files = {"level": str(level), "type": "Unified", "size": "1024K", "id": str(cache)}
            make(host.folder, {f"{at}/{key}": text for key, text in {**files, "shared_cpu_list": cpus}.items()})


def test_nobody_else_keeps_a_way_of_the_share(host: Host) -> None:
    resctrl(host.folder, "    MB:0=100;1=100\n    L3:0=fff;1=fff")
    before, own = contents(host.folder), share(host)
    host.apply(own)
    assert masks(host.folder, OWN) == {"L3": {0: 0x3F, 1: 0x3F}}
    assert masks(host.folder) == {"L3": {0: 0xFC0, 1: 0xFC0}}
    assert "    MB:0=100;1=100\n" in (host.folder / f"{RESCTRL}/schemata".lstrip("/")).read_text()
    assert (read(host, "mode"), read(host, "cpus_list")) == ("exclusive", "1-3")
    assert host.states(own) == {PLACE: State.RIGHT}
    assert list(host.apply(own).changed) == []
    assert host.undo() == []
    assert contents(host.folder) == before


@pytest.mark.parametrize(
    ("schemata", "info", "own", "root"),
    [
        # The highest ways, and the lowest ones, are those that devices write into.
        ("L3:0=7ff", {"cbm_mask": "7ff", "shareable_bits": "600"}, {"L3": {0: 0x1F}}, {"L3": {0: 0x7E0}}),
        ("L3:0=7ff", {"cbm_mask": "7ff", "shareable_bits": "3"}, {"L3": {0: 0x7C0}}, {"L3": {0: 0x3F}}),
        ("L3:0=fff", {"bit_usage": "0=XXSSSSSSSSSS"}, {"L3": {0: 0x3F}}, {"L3": {0: 0xFC0}}),
        # Ids with gaps, and masks that somebody has made smaller.
        (
            "L3:0=fff;4=0ff;8=ff0",
            {},
            {"L3": {0: 0x3F, 4: 0xFC0, 8: 0x3F}},
            {"L3": {0: 0xFC0, 4: 0x3F, 8: 0xFC0}},
        ),
        ("L2:0=ff;1=ff", {"cbm_mask": "ff"}, {"L2": {0: 0xF, 1: 0xF}}, {"L2": {0: 0xF0, 1: 0xF0}}),
        (
            "L2:0=fff;1=fff\n    L3:0=fff",
            {},
            {"L2": {0: 0x3F, 1: 0x3F}, "L3": {0: 0x3F}},
            {"L2": {0: 0xFC0, 1: 0xFC0}, "L3": {0: 0xFC0}},
        ),
        (
            "L3DATA:0=fff;1=fff\nL3CODE:0=fff;1=00f",
            {},
            {"L3DATA": {0: 0x3F, 1: 0xFC0}, "L3CODE": {0: 0x3F, 1: 0xFC0}},
            {"L3DATA": {0: 0xFC0, 1: 0x3F}, "L3CODE": {0: 0xFC0, 1: 0xF}},
        ),
        ("L3:0=f", {"cbm_mask": "f", "min_cbm_bits": "2"}, {"L3": {0: 0x3}}, {"L3": {0: 0xC}}),
    ],
    ids=["devices-high", "devices-low", "bit-usage", "ids", "l2", "l2-and-l3", "cdp", "least"],
)
def test_the_ways_are_those_that_can_be_had(
    host: Host, schemata: str, info: dict[str, str], own: dict[str, dict[int, int]], root: dict[str, dict[int, int]]
) -> None:
    resctrl(host.folder, schemata, **info)
    before = contents(host.folder)
    host.apply(share(host))
    assert masks(host.folder, OWN) == own
    assert masks(host.folder) == root
    assert read(host, "mode") == "exclusive"
    assert list(host.apply(share(host)).changed) == []
    assert host.undo() == []
    assert contents(host.folder) == before


def test_a_share_that_is_smaller_than_the_processor_allows_is_that(host: Host) -> None:
    resctrl(host.folder, "L3:0=fffff", cbm_mask="fffff", min_cbm_bits="2")
    host.apply(share(host, 1))
    assert masks(host.folder, OWN) == {"L3": {0: 0x3}}


def test_a_cache_of_the_isolated_cpus_alone_is_theirs_and_one_of_the_others_is_not(host: Host) -> None:
    resctrl(host.folder, "L2:0=ff;1=ff;2=ff;3=ff\nL3:0=ff;1=ff", cbm_mask="ff", min_cbm_bits="1")
    caches(host, 2, (0, "0"), (1, "1"), (2, "2"), (3, "3"))
    caches(host, 3, (0, "0-1"), (1, "2-3"))
    before = contents(host.folder)
    host.apply(share(host))
    assert masks(host.folder, OWN) == {"L2": {0: 1, 1: 0x7F, 2: 0x7F, 3: 0x7F}, "L3": {0: 0xF, 1: 0x7F}}
    assert masks(host.folder) == {"L2": {0: 0xFE, 1: 0x80, 2: 0x80, 3: 0x80}, "L3": {0: 0xF0, 1: 0x80}}
    assert read(host, "mode") == "exclusive"
    assert host.undo() == []
    assert contents(host.folder) == before


def test_where_no_way_is_the_least_nothing_is_taken_of_others_caches(host: Host) -> None:
    """As on AMD's processors."""
    resctrl(host.folder, "L3:0=ffff;1=ffff", cbm_mask="ffff", min_cbm_bits="0", sparse_masks="1")
    caches(host, 3, (0, "0-0"), (1, "1-3"))
    host.apply(share(host))
    assert masks(host.folder, OWN) == {"L3": {0: 0, 1: 0x7FFF}}
    assert masks(host.folder) == {"L3": {0: 0xFFFF, 1: 0x8000}}
    assert read(host, "mode") == "exclusive"


def test_a_cache_that_others_have_whole_is_shared_where_no_isolated_cpu_uses_it(host: Host) -> None:
    """So the group cannot be exclusive, which is about all caches."""
    resctrl(host.folder, "L3:0=fff;1=fff")
    caches(host, 3, (0, "0"), (1, "1-3"))
    group(host.folder, "theirs", "L3:0=fff;1=00f")
    host.apply(share(host))
    assert masks(host.folder, OWN) == {"L3": {0: 0xFFF, 1: 0xFF0}}
    assert masks(host.folder) == {"L3": {0: 0xFFF, 1: 0xF}}
    assert read(host, "mode") == "shareable"
    assert list(host.apply(share(host)).changed) == []


def test_other_groups_keep_all_they_have(host: Host) -> None:
    resctrl(host.folder, "L3:0=3ff;1=ffc;2=fff")
    group(host.folder, "theirs", "L3:0=00f;1=c00;2=00f")
    group(host.folder, "more", "L3:0=00f;1=c00;2=e00")
    group(host.folder, "alone", "L3:0=c00;1=003;2=000", mode="exclusive")
    before = contents(host.folder)
    host.apply(share(host, 25))
    assert masks(host.folder, OWN) == {"L3": {0: 0x380, 1: 0x1C, 2: 0x1C0}}
    # This processor takes no mask with gaps, so the root group leaves ways that it shared with `more` as well.
    assert masks(host.folder) == {"L3": {0: 0x7F, 1: 0xFE0, 2: 0x3F}}
    assert masks(host.folder, "theirs") == {"L3": {0: 0xF, 1: 0xC00, 2: 0xF}}
    assert read(host, "mode") == "exclusive"
    assert host.undo() == []
    assert contents(host.folder) == before


@pytest.mark.parametrize(
    ("name", "schemata", "mode", "usage"),
    [
        ("locked", "L3:0=3f", "pseudo-locked", "0=SSSSSSPPPPPP"),
        ("locking", "L3:uninitialized", "pseudo-locksetup", "0=000000PPPPPP"),
    ],
)
def test_locked_ways_are_left_alone(host: Host, name: str, schemata: str, mode: str, usage: str) -> None:
    resctrl(host.folder, "L3:0=fc0", bit_usage=usage)
    group(host.folder, name, schemata, mode=mode)
    host.apply(share(host, 25))
    assert masks(host.folder, OWN) == {"L3": {0: 0x1C0}}
    assert masks(host.folder) == {"L3": {0: 0xE00}}
    assert read(host, "mode") == "exclusive"


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        ({"theirs": "L3:0=fff"}, r"6 of the 12 ways of L3 cache 0 cannot be set apart.*other groups have 0xfff"),
        ({"theirs": "L3:0=0ff"}, r"take 34 % at most, or give up ways in the groups"),
        ({}, r"devices write into 0xff0.*take 34 % at most"),
    ],
    ids=["all", "some", "devices"],
)
def test_what_is_not_to_be_had_is_refused_with_what_is(host: Host, prepare: dict[str, str], why: str) -> None:
    resctrl(host.folder, "L3:0=fff", shareable_bits="0" if prepare else "ff0")
    for name, schemata in prepare.items():
        group(host.folder, name, schemata)
    before = contents(host.folder)
    with pytest.raises(Mistake, match=why):
        host.apply(share(host))
    assert contents(host.folder) == before
    if "at most" in why:
        host.apply(share(host, 34))
        assert masks(host.folder, OWN)["L3"][0].bit_count() == 4


def test_a_cpu_in_somebody_elses_group_is_not_taken_away(host: Host) -> None:
    resctrl(host.folder, "L3:0=fff")
    group(host.folder, "theirs", "L3:0=001", cpus="2-3")
    with pytest.raises(Mistake, match=r"CPUs 2-3 are in /sys/fs/resctrl/theirs.*take them out"):
        host.apply(share(host))


def test_monitoring_groups_get_their_cpus_back(host: Host) -> None:
    """The kernel takes a CPU out of them when a control group gets it."""
    resctrl(host.folder, "L3:0=fff")
    watching = f"{RESCTRL}/mon_groups"
    make(
        host.folder, {f"{watching}/all/cpus_list": "0-3", f"{watching}/two/cpus_list": "2", f"{watching}/no/tasks": ""}
    )
    make(host.folder, {f"{watching}/tasks-only/cpus_list": ""})
    before = contents(host.folder)
    host.apply(share(host))
    assert (read(host, "cpus_list", "mon_groups/all"), read(host, "cpus_list", "mon_groups/two")) == ("0", "")
    assert list(host.apply(share(host)).changed) == []
    make(host.folder, {f"{RESCTRL}/{OWN}/mon_groups/theirs/cpus_list": "1"})  # goes with the group
    assert host.undo() == []
    assert contents(host.folder) == before


def test_another_share_and_another_profile(host: Host) -> None:
    resctrl(host.folder, "L3:0=fff;1=fff", shareable_bits="c00")
    before = contents(host.folder)
    for percent, own, root in ((75, 0x1FF, 0xE00), (25, 0x7, 0xFF8), (50, 0x3F, 0xFC0)):
        host.apply(share(host, percent))
        assert masks(host.folder, OWN) == {"L3": {0: own, 1: own}}
        assert masks(host.folder) == {"L3": {0: root, 1: root}}
        assert read(host, "mode") == "exclusive"
    assert host.apply("vanilla").put_back == [PLACE]
    assert contents(host.folder) == before


def test_who_takes_the_split_away_is_reported_and_it_is_made_again(host: Host) -> None:
    resctrl(host.folder, "L3:0=fff")
    own = share(host)
    host.apply(own)
    make(host.folder, {f"{RESCTRL}/{OWN}/mode": "shareable", f"{RESCTRL}/schemata": "L3:0=fff"})
    assert host.states(own) == {PLACE: State.DRIFTED}
    host.apply(own)
    assert (masks(host.folder), read(host, "mode")) == ({"L3": {0: 0xFC0}}, "exclusive")


def test_a_kernel_without_modes_splits_all_the_same(host: Host) -> None:
    """Before Linux 4.19."""
    resctrl(host.folder, "L3:0=fff", mode=False)
    host.apply(share(host))
    assert (masks(host.folder, OWN), masks(host.folder)) == ({"L3": {0: 0x3F}}, {"L3": {0: 0xFC0}})
    assert host.states(share(host)) == {PLACE: State.RIGHT}


def test_memory_bandwidth_alone_is_no_cache_allocation(host: Host) -> None:
    resctrl(host.folder, "MB:0=100;1=100")
    assert host.plan(share(host)).missing().keys() == {"cache_share"}


def test_a_group_of_an_earlier_version_is_taken_away(host: Host) -> None:
    """It did not touch the root group, and its journal says nothing of it."""
    resctrl(host.folder, "L3:0=fff")
    before = contents(host.folder)
    host.apply(share(host))
    journal = host.state / "journal"
    journal.write_text(re.sub(r'"was": "root [^"]*"', '"was": ""', journal.read_text()))
    make(host.folder, {f"{RESCTRL}/schemata": "L3:0=fff"})
    with hold_journal(host.state) as held:
        assert held.entries[0].was == ""
    assert host.undo() == []
    assert contents(host.folder) == before


def test_a_cache_whose_cpus_are_offline_does_not_keep_the_others_from_being_put_back(host: Host) -> None:
    """The kernel shows it no more, and refuses a mask for it."""
    resctrl(host.folder, "L3:0=fff;1=fff")
    own = share(host)
    host.apply(own)
    make(host.folder, {f"{RESCTRL}/schemata": "L3:0=fc0", f"{RESCTRL}/{OWN}/schemata": "L3:0=3f"})
    assert host.states(own) == {PLACE: State.RIGHT}
    assert host.undo() == []
    assert masks(host.folder) == {"L3": {0: 0xFFF}}


@pytest.mark.parametrize(
    "text",
    ["root L3:0=fff", "1-3 exclusive L2:0=3;1=3 L3:0=3f root L2:0=c;1=c L3:0=fc0", "1 L3:0=1 root L3:0=2", "root"],
)
def test_a_value_is_read_as_it_was_written(text: str) -> None:
    assert str(Share.parse(text)) == text


LEVELS = st.builds(
    Level,
    names=st.sampled_from([("L3",), ("L3CODE", "L3DATA")]),
    whole=st.sampled_from([0xF, 0x7FF, 0xFFFFF]),
    least=st.integers(0, 2),
    sparse=st.booleans(),
    devices=st.fixed_dictionaries({0: st.integers(0, 0xFFFFF)}),
    taken=st.fixed_dictionaries({0: st.integers(0, 0xFFFFF)}),
    root=st.just({}),
    own=st.just({}),
    users=st.sampled_from([{}, {0: "own"}, {0: "others"}, {0: "both"}]),
)


RUN = st.tuples(st.integers(0, 19), st.integers(0, 19))
"""Where a run of ways begins and how long it is, of those that there are."""


@settings(max_examples=150)
@given(level=LEVELS, percent=st.integers(1, 90), roots=st.tuples(RUN, RUN))
def test_a_split_is_one_that_the_kernel_takes(
    level: Level, percent: int, roots: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    width, found = level.whole.bit_length(), dict[str, dict[int, int]]()
    for name, (low, length) in zip(level.names, roots, strict=False):
        count = min(max(1, level.least, length + 1), width)
        found[name] = {0: ((1 << count) - 1) << low % (width - count + 1)}
    level = replace(level, root=found)
    try:
        made = split(level, percent)
    except Mistake:
        return
    assert valid(level, made.own[0])
    for name in level.names:
        assert valid(level, made.root[name][0]) and made.root[name][0]
        assert not made.root[name][0] & ~found[name][0]
    if not made.exclusive:
        assert level.users == {0: "others"}
        return
    others = level.devices[0] | level.taken[0]
    assert not made.own[0] & (others | ~level.whole)
    assert not any(made.own[0] & made.root[name][0] for name in level.names)
    assert split(replace(level, own=made.own, root=made.root), percent) == made


def valid(level: Level, mask: int) -> bool:
    runs = re.findall("1+", f"{mask:b}")
    if not runs:
        return level.least == 0
    return (level.sparse or len(runs) == 1) and len(runs[-1]) >= level.least and not mask & ~level.whole


def test_nothing_is_written_where_nothing_was_asked_for(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    resctrl(host.folder, "L3:0=fff")
    monkeypatch.setattr(Tree, "write", lambda *_: pytest.fail("written"))
    host.plan(share(host))
