"""Huge pages that tuning adds and gives back by count: those of others, before and since, stay."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import make
from tuned_host import Host

from tailrace.host import page_pools
from tailrace.host.journal import ENVIRONMENT
from tailrace.host.page_pools import PagePools, Pages
from tailrace.host.tuner import State
from tailrace.kernel.tree import Tree
from tailrace.resources import hugepages
from tailrace.resources import ledger as held

POOL = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
PLACE = f"pages:{POOL}"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "state"))
    return Host(tmp_path)


def total(host: Host) -> int:
    return Tree(host.folder).number(POOL) or 0


def change(host: Host, by: int) -> None:
    """Somebody else adds pages, or takes some away."""
    make(host.folder, {POOL: str(total(host) + by)})


def test_what_others_have_before_and_since_stays(host: Host) -> None:
    change(host, 100)
    own = host.own("{huge_pages_2mib: 512}")
    assert [step.now for step in host.plan(own).steps()] == ["100 (0 ours)"]
    host.apply(own)
    assert total(host) == 512
    change(host, 50)
    assert host.states(own) == {PLACE: State.RIGHT}
    assert not host.apply(own).changed
    assert host.undo() == []
    assert total(host) == 150
    assert host.undo() == []
    assert total(host) == 150


def test_enough_of_others_are_left_as_they_are(host: Host) -> None:
    change(host, 4000)
    own = host.own("{huge_pages_2mib: 100}")
    assert not host.apply(own).changed
    assert total(host) == 4000
    assert host.undo() == []
    assert total(host) == 4000


def test_what_was_taken_away_is_added_again_and_given_back_once(host: Host) -> None:
    change(host, 100)
    own = host.own("{huge_pages_2mib: 512}")
    host.apply(own)
    change(host, -200)
    assert host.states(own) == {PLACE: State.DRIFTED}
    host.apply(own)
    assert total(host) == 512
    assert host.undo() == []
    assert total(host) == 100


def test_another_profile_gives_back_what_it_does_not_want(host: Host) -> None:
    change(host, 100)
    host.apply(host.own("{huge_pages_2mib: 512}"))
    host.apply(host.own("{huge_pages_2mib: 256}"))
    assert total(host) == 256
    host.apply(host.own("{vm.stat_interval: 33}"))
    assert total(host) == 100
    assert host.undo() == []
    assert total(host) == 100


@pytest.mark.parametrize("before", [True, False])
def test_who_is_killed_while_pages_are_added_has_those_that_are_there(
    host: Host, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    write = Tree.write

    class Killed(BaseException):
        pass

    def dying(tree: Tree, path: str, value: str) -> None:
        if not before:
            write(tree, path, value)
        raise Killed

    change(host, 100)
    pools = PagePools(Tree(host.folder), host.state)
    monkeypatch.setattr(Tree, "write", dying)
    with pytest.raises(Killed):
        pools.write(POOL, "512")
    monkeypatch.setattr(Tree, "write", write)
    assert pools.read(POOL) == ("100 (0 ours)" if before else "512 (412 ours)")
    pools.write(POOL, "100 (0 ours)")
    assert total(host) == 100
    assert not (host.state / "pages").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"boot": "another", "pools": {}}', '{"pools": 7}'])
def test_a_count_that_is_damaged_or_of_another_boot_is_none(host: Host, text: str) -> None:
    pools = PagePools(Tree(host.folder), host.state)
    pools.write(POOL, "512")
    (host.state / "pages").write_text(text)
    assert pools.read(POOL) == "512 (0 ours)"


def test_a_place_that_is_not_there_is_none(tmp_path: Path) -> None:
    pools = PagePools(Tree(tmp_path), tmp_path)
    assert pools.read(POOL) is None
    with pytest.raises(FileNotFoundError):
        pools.write(POOL, "5")
    with pytest.raises(OSError, match="is no number of pages"):
        pools.write(POOL, "many")


class LiveTree(Tree):
    """A copied machine that is taken for this one."""

    @property
    def live(self) -> bool:
        return True


def test_pages_of_nodes_are_not_counted_and_are_theirs_to_give_back(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes and goes first."""
    locked: list[int] = []
    alone = hugepages.alone

    def counted() -> object:
        locked.append(total(host))
        return alone(tmp_path)

    monkeypatch.setattr(page_pools.hugepages, "alone", counted)
    monkeypatch.setattr(page_pools, "boot_id", lambda _: "boot")
    monkeypatch.setattr(hugepages, "pool_of", lambda node, *, kib: Path(f"{node or 0}/{kib}"))
    claimed: list[held.Pages] = []
    monkeypatch.setattr(page_pools, "pages_to_give_back", lambda: claimed)
    forgotten: list[Path] = []
    monkeypatch.setattr(page_pools, "forget_pages", forgotten.append)
    pools = PagePools(LiveTree(host.folder), host.state)

    def node(by: int) -> None:
        """Nodes have so many more; those on another node or of another size do not count."""
        count = by + (claimed[0].count if claimed else 0)
        claimed[:] = [held.Pages(2048, count, 0), held.Pages(2048, 7, 1), held.Pages(1 << 20, 7, 0)]
        change(host, by)

    node(160)
    assert pools.read(POOL) == "0 (0 ours)"
    pools.write(POOL, "512")
    assert locked == [160]
    assert total(host) == 672
    node(-160)
    assert (total(host), pools.read(POOL)) == (512, "512 (512 ours)")
    node(30)
    pools.write(POOL, "0 (0 ours)")
    assert total(host) == 30
    assert forgotten == [Path("0/2048")] * 2


SAYS: list[tuple[str, str, bool]] = [
    ("512 (0 ours)", "512", True),
    ("600 (512 ours)", "512", True),
    ("511 (511 ours)", "512", False),
    ("600 (600 ours)", "512", False),
    ("600 (0 ours)", "512 (0 ours)", True),
    ("512 (12 ours)", "512 (0 ours)", False),
    ("many", "many", True),
    ("many", "512", False),
]


@pytest.mark.parametrize(("found", "wanted", "right"), SAYS)
def test_what_a_value_says(found: str, wanted: str, right: bool) -> None:
    assert Pages.says(found, wanted) is right


def test_a_value_is_read_as_it_is_written() -> None:
    parse: Callable[[str], Pages] = Pages.parse
    for text in ("512", "512 (0 ours)", "0 (0 ours)"):
        assert str(parse(text)) == text
