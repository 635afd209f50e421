"""Who holds what: claims that hold, claims that do not any more, and what placement leaves to others."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tailrace.errors import Failure, Mistake, Refused
from tailrace.functions.program import BUFFERS_MIB
from tailrace.functions.runtimes import STARTERS
from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.node.claiming import check_free, claim_cpus, claim_pages, claim_plans
from tailrace.node.operations import _lower, until_claimed
from tailrace.node.running import Node as Running
from tailrace.node.running import reserve_pages
from tailrace.plan.make import Plan, make_plan
from tailrace.plan.usable import Usable, left_to_others
from tailrace.process.lock import locked
from tailrace.process.process import ProcessId, identify
from tailrace.resources import hugepages, ledger, single
from tailrace.resources.claim import Claim, Memory, Pages, Part
from tailrace.resources.claims import Worker
from tailrace.resources.hugepages import Pool
from tailrace.resources.ledger import (
    Overtaken,
    claim_file,
    claims,
    exclusive_of_others,
    own_claim,
    polled_on,
    remove_claim,
    write_claim,
)
from tailrace.resources.place import place
from tailrace.resources.topology import Cpu, HugePool, Node, Topology
from tailrace.spec.load import parse_spec
from tailrace.state.record import Claimed, Held, HugePages, State, hold, peek

CHAIN = "functions: {a: skeleton}\nchains: {v: [tester.a, a, {if: eth9}]}\n"


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(ledger, "_ROOTS", tmp_path / "claims")
    monkeypatch.setattr(ledger, "ledger_folder", lambda: tmp_path / "claims")
    yield tmp_path / "claims"


def cpus(count: int) -> list[Cpu]:
    return [Cpu(number, core=number) for number in range(count)]


def test_a_claim_is_on_record_before_it_is_written_and_goes_with_what_was_up(
    tmp_path: Path, own_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(parse_spec(CHAIN, "s"), cpus=cpus(6), real_time=None)
    folder = tmp_path / "up"
    seen: list[bool] = []
    monkeypatch.setattr(
        "tailrace.node.claiming.write_claim",
        lambda claim, known, _: (seen.append(bool(peek(folder).things)), write_claim(claim, known)),
    )
    with hold(folder) as state:
        state.record.spec = "chain.yaml"
        state.add(HugePages(before=10**9, added=5, there=True, node=1, kib=1048576))
        claim_plans(state, plan)
        assert seen == [True]
        (claim,) = claims()
        assert claim.words == f"{folder} (chain.yaml)"
        assert claim.exclusive == (3, 4, 5)
        assert claim.shared == (0, 1, 2)
        assert claim.nics == ("eth9",)
        assert "a.0" in claim.ports
        assert claim.pages == (Pages(1048576, 5, 1, 10**9),)
        assert claim.parts == (
            Part("switch", memory=(Memory(0, 48 + 20),), exclusive=(3,), shared=(0, 1, 2)),
            Part("tester", exclusive=(4,), shared=(0, 1, 2), pages=(Pages(2048, 128, 0),)),
            Part("functions.a", (), (), (Memory(0, 256),), (5,), (0, 1, 2), (Pages(2048, -(-BUFFERS_MIB // 2), 0),)),
            Part("ports.if-eth9", nics=("eth9",)),
        )
        assert own_ledger.stat().st_mode & 0o777 == 0o700
        claim_plans(state, plan)
        assert [thing.kind for thing in state.record.things] == ["hugepages", "claim"]
        state.undo(state.record.things[1])
        assert claims() == []
    assert not own_ledger.exists()


def test_pages_that_a_pool_no_longer_has_are_not_given_back(
    tmp_path: Path, own_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a command that was killed, and whose pages somebody then took out of the pool by hand."""
    node = tmp_path / "node"
    node.mkdir()
    (node / "state.json").write_text("{}")
    dead = [Claim(str(tmp_path / name), "", boot_id(), ProcessId(os.getpid(), 1)) for name in ("first", "second")]
    files = [ledger.claim_file(Path(claim.folder)) for claim in dead]
    own_ledger.mkdir(mode=0o700)
    ledger._put(files[0], replace(dead[0], pages=(Pages(2048, 616, 0), Pages(1048576, 4, 0))))
    ledger._put(files[1], replace(dead[1], pages=(Pages(2048, 100, 0),)))
    mine = ledger.claim_file(node)
    ledger._put(mine, Claim(str(node), "", boot_id(), pages=(Pages(2048, 50, 0, 7),)))
    pools = {"2048": 0, "1048576": 4}
    monkeypatch.setattr(ledger, "pool_of", lambda _node, *, kib: tmp_path / f"{kib}")
    monkeypatch.setattr(ledger, "pool", lambda base: Pool(pools[base.name], 0))

    def owed() -> list[int]:
        return sorted(each.count for each in ledger.pages_to_give_back())

    steps = ((800, [4, 50, 100, 616]), (150, [0, 4, 50, 100]), (70, [0, 4, 20, 50]), (0, [0, 0, 4, 50]))
    for pools["2048"], left in steps:
        ledger.forget_pages(tmp_path / "2048")
        assert owed() == left
    # The record of who was killed says the old count still.
    assert ledger.unclaim_pages(files[0], Pages(2048, 616, 0)) == 0
    assert ledger.unclaim_pages(files[0], Pages(1048576, 4, 0)) == 4
    assert ledger.unclaim_pages(mine, Pages(2048, 50, 0, 7)) == 50
    # Who was killed between giving pages back and writing that down has none to give back.
    assert ledger.unclaim_pages(mine, Pages(2048, 50, 0, 7)) == 0
    # Who was killed between adding pages and claiming them has none on its claim.
    assert ledger.unclaim_pages(mine, Pages(2048, 60, 0, 57)) == 60
    # The claim stays as long as there may be such a record.
    (tmp_path / "second").mkdir()
    ledger.write_claim(Claim(str(node), "", boot_id()))
    assert not files[0].exists() and files[1].exists()
    assert ledger.unclaim_pages(own_ledger / "none.json", Pages(2048, 7, 0)) == 7


def test_claims_that_do_not_hold_are_ignored_and_swept(tmp_path: Path, own_ledger: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    living = identify(child.pid)
    assert living is not None
    names = ("live", "no-record", "other-boot", "ended", "at-work")
    for name in names:
        (tmp_path / name).mkdir()
        if name != "no-record":
            (tmp_path / name / "state.json").write_text("{}")
    own_ledger.mkdir(mode=0o700)
    for number, name in enumerate(names):
        owner = {"ended": ProcessId(os.getpid(), 1), "at-work": living}.get(name)
        boot = "another" if name == "other-boot" else boot_id()
        claim = Claim(str(tmp_path / name), name, boot, owner, (number,))
        claim_file(tmp_path / name).write_text(json.dumps(asdict(claim)))
    (own_ledger / "0.json").write_text("no claim\n")
    assert [claim.spec for claim in claims()] == ["at-work", "live"]
    assert sorted(exclusive_of_others([tmp_path / "live"])) == [4]
    child.kill()
    child.wait()
    assert [claim.spec for claim in claims()] == ["live"]
    (own_ledger / "killed.new").touch()
    write_claim(Claim(str(tmp_path / "live"), "live", boot_id()))
    assert list(own_ledger.iterdir()) == [claim_file(tmp_path / "live")]
    claim_file(tmp_path / "live").with_suffix(".new").touch()
    remove_claim(claim_file(tmp_path / "live"))
    assert not own_ledger.exists()


def test_a_folder_that_others_may_open_is_refused(tmp_path: Path, own_ledger: Path) -> None:
    own_ledger.mkdir()
    own_ledger.chmod(0o755)
    with pytest.raises(Mistake, match="is not a folder that only we can open"):
        write_claim(Claim(str(tmp_path), "", boot_id()))
    own_ledger.rmdir()
    own_ledger.symlink_to(tmp_path)
    with pytest.raises(Mistake, match="is not a folder that only we can open"):
        write_claim(Claim(str(tmp_path), "", boot_id()))


def test_who_writes_is_waited_for_with_a_limit(
    tmp_path: Path, own_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "PATIENCE", 0.1)
    own_ledger.mkdir(mode=0o700)
    with (
        locked(own_ledger / "lock"),
        pytest.raises(Failure, match=f"process {os.getpid()} .* has been writing to {own_ledger} for 0.1 s"),
    ):
        write_claim(Claim(str(tmp_path), "", boot_id()))


def test_a_claim_whose_record_is_lost_is_undone_by_down(tmp_path: Path, own_ledger: Path) -> None:
    folder = tmp_path / "up"
    with hold(folder) as state:
        claim_cpus(state, [1])
    (folder / "state.json").unlink()
    assert claims() == []
    with hold(folder, damaged=True) as state:
        assert _lower(state).undone == [f"claim {claim_file(folder)}"]
    assert not own_ledger.exists()


def test_after_a_boot_the_claim_is_removed_where_it_has_stayed(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    with hold(folder) as state:
        claim_cpus(state, [1])
    record = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**record, "boot": "another"}))
    assert peek(folder).things == [Claimed(str(claim_file(folder)))]


@pytest.fixture
def fake_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pool of 10 pages, of which 2 are free."""
    pool = tmp_path / "hugepages-2048kB"
    pool.mkdir()
    for name, pages in (("nr", 10), ("free", 2), ("resv", 0)):
        (pool / f"{name}_hugepages").write_text(f"{pages}\n")
    monkeypatch.setattr(hugepages, "pool_of", lambda *_, **__: pool)
    return pool


def added(folder: Path, pages: int) -> None:
    with hold(folder) as state:
        claim_cpus(state, [1])
        reserve_pages(state, pages)


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_pages_of_a_lost_record_are_given_back_once_as_the_claim_says(
    tmp_path: Path, fake_pool: Path, how: str
) -> None:
    folder = tmp_path / "up"
    added(folder, 7)
    assert hugepages.pool(fake_pool).total == 15
    hugepages.add(1, fake_pool)  # somebody else's
    if how == "gone":
        (folder / "state.json").unlink()
    else:
        (folder / "state.json").write_text("{")
    write_claim(Claim(str(tmp_path / "another"), "", boot_id()))  # which sweeps those that do not hold
    with hold(folder, damaged=True) as state:
        lowered = _lower(state)
    assert (lowered.problems, lowered.notes) == ([], ())
    assert lowered.undone == [f"claim {claim_file(folder)}", "hugepages 5"]
    assert hugepages.pool(fake_pool).total == 11
    with hold(folder, damaged=True) as state:
        assert _lower(state).undone == []
    assert hugepages.pool(fake_pool).total == 11


def test_pages_that_were_given_back_are_claimed_no_more(
    tmp_path: Path, fake_pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends between the two, and loses the record then, has them given back once."""
    folder = tmp_path / "up"
    added(folder, 7)
    seen: list[int] = []
    remove = hugepages.remove

    def look(pages: int, base: Path) -> None:
        claim = own_claim(folder)
        assert claim is not None
        seen.extend(each.count for each in claim.pages)
        remove(pages, base)

    monkeypatch.setattr(hugepages, "remove", look)
    with hold(folder) as state:
        assert state.undo_all() == []
    assert seen == [0]
    assert hugepages.pool(fake_pool).total == 10


def test_pages_are_given_back_once_by_who_was_killed_before_that_was_written_down(
    tmp_path: Path, fake_pool: Path
) -> None:
    """What is in the pool then is somebody else's."""
    folder = tmp_path / "up"
    added(folder, 7)
    before = (folder / "state.json").read_bytes()
    with hold(folder) as state:
        (thing,) = (each for each in state.record.things if isinstance(each, HugePages))
        assert state.undo(thing) is None
    (folder / "state.json").write_bytes(before)
    with hold(folder) as state:
        assert state.undo_all() == []
    assert hugepages.pool(fake_pool).total == 10


def test_pages_that_were_not_claimed_yet_are_given_back_also_where_such_were_given_back_before(
    tmp_path: Path, fake_pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "up"
    added(folder, 7)
    with hold(folder) as state:
        (thing,) = (each for each in state.record.things if isinstance(each, HugePages))
        assert state.undo(thing) is None

    def killed(state: State) -> None:
        if any(isinstance(each, HugePages) and each.there for each in state.record.things):
            raise KeyboardInterrupt
        claim_pages(state)

    monkeypatch.setattr("tailrace.node.running.claim_pages", killed)
    (fake_pool / "free_hugepages").write_text("2\n")
    with pytest.raises(KeyboardInterrupt):
        added(folder, 7)
    assert hugepages.pool(fake_pool).total == 15
    with hold(folder) as state:
        assert state.undo_all() == []
    assert hugepages.pool(fake_pool).total == 10


def test_pages_of_an_earlier_boot_are_not_given_back(tmp_path: Path, fake_pool: Path) -> None:
    folder = tmp_path / "up"
    added(folder, 7)
    claim = own_claim(folder)
    assert claim is not None
    claim_file(folder).write_text(json.dumps(asdict(replace(claim, boot="another"))))
    (folder / "state.json").unlink()
    with hold(folder, damaged=True) as state:
        assert _lower(state).undone == [f"claim {claim_file(folder)}"]
    assert hugepages.pool(fake_pool).total == 15


def test_where_the_claim_is_damaged_too_it_is_said_that_pages_stay(tmp_path: Path, fake_pool: Path) -> None:
    folder = tmp_path / "up"
    added(folder, 7)
    (folder / "state.json").write_text("{")
    claim_file(folder).write_text('{"pages": [')
    with hold(folder, damaged=True) as state:
        (note,) = _lower(state).notes
    assert f"so was the claim ({claim_file(folder)}): huge pages that were added are not known and stay" in note
    assert hugepages.pool(fake_pool).total == 15


def test_pages_of_a_lost_record_are_those_of_what_comes_up_there_next(tmp_path: Path, fake_pool: Path) -> None:
    folder = tmp_path / "up"
    added(folder, 7)
    (folder / "state.json").unlink()
    (fake_pool / "free_hugepages").write_text("7\n")
    added(folder, 7)
    (claim,) = claims()
    assert [pages.count for pages in claim.pages] == [5]
    with hold(folder) as state:
        assert state.undo_all() == []
    assert hugepages.pool(fake_pool).total == 10


def other(tmp_path: Path, *polled: int) -> dict[int, Claim]:
    claim = Claim(str(tmp_path / "other"), "other.yaml", boot_id(), exclusive=polled)
    return dict.fromkeys(polled, claim)


def test_what_others_poll_on_is_left_to_them(tmp_path: Path) -> None:
    found = left_to_others(Usable(cpus(6)), other(tmp_path, 4, 5), named=(), least=1)
    placed = place(found.cpus, ["a"], tester=True, real_time=True)
    assert placed.tester is not None
    assert {placed.switch.core, placed.tester.core, placed.functions["a"].core} == {1, 2, 3}
    assert found.notes == (f"CPUs left to others (4-5: {tmp_path}/other (other.yaml))",)
    assert [cpu.number for cpu in found.allowed] == list(range(6))


def test_a_sibling_of_what_others_poll_on_is_left_to_them(tmp_path: Path) -> None:
    machine = [Cpu(number, core=number % 2) for number in range(4)]
    found = left_to_others(Usable(machine), other(tmp_path, 1), named=(), least=1)
    assert [cpu.number for cpu in found.cpus] == [0, 2]


def test_where_too_few_are_left_they_are_shared_with_a_note(tmp_path: Path) -> None:
    found = left_to_others(Usable(cpus(2)), other(tmp_path, 0, 1), named=(), least=1)
    assert [cpu.number for cpu in found.cpus] == [0, 1]
    (note,) = found.notes
    assert note.startswith("too few CPUs are free, so some are shared")
    assert "other.yaml" in note


def test_what_switches_of_no_node_poll_on_is_left_to_them(tmp_path: Path) -> None:
    switches = {3: Worker(7), 5: Worker(7)}
    found = left_to_others(Usable(cpus(6)), {**switches, **other(tmp_path, 4)}, (), 1, switches)
    assert [cpu.number for cpu in found.cpus] == [0, 1, 2]
    assert found.notes == (
        f"CPUs left to others (3,5: a switch's worker, process 7; 4: {tmp_path}/other (other.yaml))",
    )


@pytest.mark.parametrize(
    ("switches", "least", "left"), [({1}, 1, [0]), ({1}, 2, [0, 1]), ({0, 1}, 1, [0, 1]), (set(), 1, [0, 1])]
)
def test_where_too_few_are_left_no_worker_of_a_switch_is_shared_with_if_that_can_be(
    tmp_path: Path, switches: set[int], least: int, left: list[int]
) -> None:
    found = left_to_others(Usable(cpus(2)), other(tmp_path, 0, 1), (), least, switches)
    assert [cpu.number for cpu in found.cpus] == left
    assert found.notes[0].startswith("too few CPUs are free, so some are shared")


HIGH = CHAIN.replace("a: skeleton", "a: {kind: skeleton, latency: high}")


def beside_high(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A node in a folder of its own has a function of latency high, on a machine with so many CPUs."""
    monkeypatch.setattr("tailrace.plan.usable.allowed_cpus", lambda: cpus(count))
    monkeypatch.setattr("tailrace.plan.usable.workers", lambda *_: {})  # of switches of this machine
    with hold(tmp_path / "high") as state:
        state.record.spec = "high.yaml"
        claim_plans(state, make_plan(parse_spec(HIGH, "s"), cpus=cpus(3), real_time=None))


def test_nobody_is_put_on_a_cpu_that_a_function_of_level_high_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_high(tmp_path, monkeypatch, 3)
    (claim,) = claims()
    (high,) = claim.alone
    assert claim.exclusive == (0, 1, 2) and claim.on(high) == f"a of {tmp_path}/high (high.yaml)"
    plan = make_plan(parse_spec(CHAIN, "s"), real_time=None)  # the others are shared, which is said
    used = {plan.placement.switch.core, plan.placement.functions["a"].core}
    assert high not in used and "too few CPUs are free" in plan.notes[0]
    with pytest.raises(Mistake, match=rf"fabric\.workers: 3 workers .* CPU {high} is held by a of .*/high \("):
        make_plan(parse_spec(f"fabric: {{workers: 3}}\n{CHAIN}", "s"), real_time=None)


def test_a_function_of_level_high_has_no_cpu_that_others_poll_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_high(tmp_path, monkeypatch, 3)
    spec = parse_spec(HIGH.replace("a, {if: eth9}", "a, {if: eth8}").replace("tester.a", "{if: eth7}"), "s")
    with pytest.raises(Mistake, match=r"high takes a core of its own, and CPU . is held by (switch|tester) of .*/high"):
        make_plan(spec, real_time=None)
    monkeypatch.setattr("tailrace.plan.usable.allowed_cpus", lambda: cpus(4))
    with pytest.raises(Mistake, match=r"2 pollers have 1 here \(.* held by a of .*/high \(.*expected medium"):
        make_plan(spec, real_time=None)
    monkeypatch.setattr("tailrace.plan.usable.allowed_cpus", lambda: cpus(5))
    plan = make_plan(spec, real_time=None)
    assert {plan.placement.switch.core, plan.placement.functions["a"].core} == {3, 4}
    kept = make_plan(spec, real_time=None, keep=replace(plan.placement, functions={"a": plan.placement.functions["a"]}))
    assert kept.placement.functions == plan.placement.functions


def test_where_others_have_all_cpus_to_themselves_nothing_is_placed(tmp_path: Path) -> None:
    held = other(tmp_path, 0, 1)
    with pytest.raises(Refused, match=r"CPUs 0-1 are held by .*/other \(other\.yaml\); end one first"):
        left_to_others(Usable(cpus(2)), held, (), 1, (), held)


def test_a_core_that_is_named_and_held_is_refused_with_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = [Cpu(number, core=number % 3) for number in range(6)]
    monkeypatch.setattr("tailrace.node.running.allowed_cpus", lambda: threads)
    monkeypatch.setattr("tailrace.node.running.taken", lambda _: None)  # by switches of this machine
    spec = parse_spec(f"fabric: {{cores: [5]}}\n{CHAIN}", "s")
    plan = make_plan(spec, cpus=cpus(6), real_time=None)
    with hold(tmp_path / "other") as state:
        state.record.spec = "other.yaml"
        claim_cpus(state, [5])
        node = Running.of(Held(tmp_path / "mine").state(), plan, logs=tmp_path, tied=False)
        with pytest.raises(Refused, match=r"fabric\.cores: core 5 is held by .*/other \(other\.yaml\), and") as refused:
            node.check_cores()
        assert "name another with `fabric: {cores: [1]}`" in str(refused.value), "2 is of the same core as 5"
        own = Running.of(state, plan, logs=tmp_path, tied=False)
        own.check_cores()


def test_a_sibling_of_a_named_core_that_others_poll_on_is_said(tmp_path: Path) -> None:
    machine = [Cpu(number, core=number % 2) for number in range(4)]
    found = left_to_others(Usable(machine), other(tmp_path, 1), named=[3], least=1)
    assert [cpu.number for cpu in found.cpus] == [0, 2, 3]
    assert found.notes[0] == (
        f"fabric.cores: CPU 3 is a thread of the core of CPU 1, on which {tmp_path}/other (other.yaml) polls: "
        "each slows the other"
    )


def test_all_cpus_of_a_function_are_said_and_claimed(tmp_path: Path) -> None:
    plan = make_plan(parse_spec(CHAIN, "s"), cpus=cpus(8), real_time=None)
    placement = place(cpus(8), ["a"], tester=True, real_time=True, several={"a": 2})
    plan = replace(plan, placement=placement)
    assert "start a (skeleton) in a process on cores 6, 7, poll mode" in plan.lines()
    assert "  cores 6, 7: node 0, whole cores" in plan.lines()
    with hold(tmp_path / "up") as state:
        claim_plans(state, plan)
    (claim,) = claims()
    assert claim.exclusive == (4, 5, 6, 7)


# --- what only one can have ----------------------------------------------------------------------------------------

DEVICES = """\
functions: {a: {kind: skeleton, runs: machine, interface: [vhost-user, {passthrough: "0000:31:00.1"}]}}
ports:
  wan: {device: {if: eth9}}
  lan: {device: {pci: "0000:31:00.0"}}
  mem: {device: {memif: "/run/x/../mem.sock,role=server"}}
  peer: {device: {memif: /run/peer.sock}}
  vm: {path: /run/vm.sock, socket: {mode: "0600"}}
chains: {v: [wan, lan], w: [mem, peer]}
bridges: {b: {ports: [vm, a.0]}}
"""


def plan_of(spec: str, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr("tailrace.functions.machine.check_passthrough", lambda _: None)
    return make_plan(parse_spec(spec, "s"), cpus=cpus(8), real_time=None)


@pytest.mark.parametrize(
    ("port", "key", "what"),
    [
        ("{device: {if: eth9}}", "ports.p", "the interface eth9 is held by wan of"),
        ("{device: {xdp: eth9}}", "ports.p", "the interface eth9 is held by wan of"),
        ("{device: {pci: '0000:31:00.0'}}", "ports.p", "the PCI device 0000:31:00.0 is held by lan of"),
        ("{device: {pci: '0000:31:00.1'}}", "ports.p", "the PCI device 0000:31:00.1 is held by a of"),
        ("{device: {memif: '/run/mem.sock,role=server'}}", "ports.p", "the socket /run/mem.sock is held by mem of"),
        ("{path: /run/vm.sock}", "ports.p", "the socket /run/vm.sock is held by vm of"),
        ("{device: {memif: /run/peer.sock}}", None, ""),
        ("{device: {if: eth8}}", None, ""),
    ],
)
def test_what_only_one_can_have_is_refused_with_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str, key: str | None, what: str
) -> None:
    first = plan_of(DEVICES, monkeypatch)
    second = plan_of(f"ports: {{p: {port}, q: }}\nchains: {{v: [p, q]}}\n", monkeypatch)
    with hold(tmp_path / "one") as one, hold(tmp_path / "two") as two:
        one.record.spec, two.record.spec = "one.yaml", "two.yaml"
        claim_plans(one, first)
        claim_plans(one, first, replace(first, idle="sleep"))  # what is its own already is nobody else's
        if key is None:
            claim_plans(two, second)
            return
        for ask in (check_free, claim_plans):
            with pytest.raises(Refused) as refused:
                ask(two, second)
            assert str(refused.value) == (
                f"{key}: {what} {tmp_path}/one (one.yaml); use another, or end that node first "
                f"(`tailrace down`, with TAILRACE_STATE={tmp_path}/one)"
            )
        assert own_claim(two.folder) is None
        assert one.undo_all() == []
        claim_plans(two, second)


def test_a_card_has_interfaces_and_an_interface_is_another_in_another_namespace(tmp_path: Path) -> None:
    for name in ("eth0", "eth1"):
        device = tmp_path / f"sys/class/net/{name}/device"
        device.parent.mkdir(parents=True)
        device.symlink_to("../../../devices/0000:31:00.0")
    tree, own, card = Tree(tmp_path), single.own_network(), "0000:31:00.0"
    assert own
    assert single.nic_name(card, own) == single.card_of("eth0", own, tree) == single.card_of("eth1", "", tree) == card
    assert single.card_of("tap0", own, tree) is single.card_of("eth0", "other", tree) is None
    assert single.nic_name("tap0", own) == single.nic_name("tap0", "")
    assert len({single.nic_name(name, network) for name in ("eth0", "eth1") for network in (own, "other")}) == 4


def test_a_claim_of_another_version_holds_its_interfaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hold(tmp_path / "two") as two, hold(tmp_path / "one") as one:
        one.save()
        claim = Claim(str(one.folder), "one.yaml", boot_id(), ProcessId(*identify_self()), nics=("eth9",))
        write_claim(claim)
        old = {key: value for key, value in asdict(claim).items() if key not in ("network", "parts")}
        claim_file(one.folder).write_text(json.dumps(old))
        said = (
            f"ports.if-eth9: the interface eth9 is held by {one.folder} .*; use another, or wait for that measurement"
        )
        with pytest.raises(Refused, match=said):
            check_free(two, plan_of(CHAIN, monkeypatch))


def identify_self() -> tuple[int, int]:
    found = identify(os.getpid())
    assert found is not None
    return found.pid, found.start


# --- memory by node ------------------------------------------------------------------------------------------------


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """CPUs 0 to 3 on node 0 and 4 to 7 on node 1, of 4096 MiB each; on node 1 as many huge pages as are in the list."""
    pages = [256]

    def read(_: Tree) -> Topology:
        found = tuple(Cpu(number, number // 4, number) for number in range(8))
        pools = ((), (HugePool(2048, pages[0], 0),))
        nodes = (Node(number, (), 4096, (), pools[number]) for number in range(2))
        return Topology(found, tuple(nodes), ())

    monkeypatch.setattr("tailrace.resources.conflict.read_memory", read)
    monkeypatch.setattr("tailrace.node.claiming.read_memory", read)
    monkeypatch.setattr(hugepages, "missing", lambda pages, _: pages)
    monkeypatch.setattr(hugepages, "pool_of", lambda node, *, kib: Path(f"{node} {kib}"))
    return pages


def memory_plan(mib: int, core: int) -> Plan:
    """Of a machine with so much memory, on a core, beside a switch on core 0; without huge pages."""
    spec = f"functions: {{a: {{kind: skeleton, runs: machine, memory: {mib}MiB}}}}\nchains: {{v: [p, a, q]}}\n"
    plan = make_plan(parse_spec(f"{spec}ports: {{p: , q: }}\n", "s"), cpus=cpus(8), real_time=None, huge=False)
    switch, function = (replace(plan.placement.switch, core=each, cpus=(each,), cores=(each,)) for each in (0, core))
    return replace(plan, placement=replace(plan.placement, switch=switch, workers=(0,), functions={"a": function}))


@pytest.mark.usefixtures("two_nodes")
def test_memory_that_a_node_has_not_left_is_refused_with_the_figures(tmp_path: Path) -> None:
    with hold(tmp_path / "one") as one, hold(tmp_path / "two") as two:
        one.record.spec = "one.yaml"
        claim_plans(one, memory_plan(3000, 4))
        (claim,) = claims()
        assert (claim.reserved(0), claim.reserved(1)) == (0, 3000)
        for ask in (check_free, claim_plans):
            with pytest.raises(Refused) as refused:
                ask(two, memory_plan(400, 5))
            assert str(refused.value) == (
                "functions.a.memory: 400 MiB (a 400) would be of node 1, which has 360 MiB left of 4096: 512 are in "
                f"huge pages, 224 kept for the system, 3000 held by {one.folder} (one.yaml); expected less, or end "
                f"that node first (`tailrace down`, with TAILRACE_STATE={one.folder})"
            )
        claim_plans(two, memory_plan(360, 5))
        claim_plans(two, memory_plan(400, 3))  # of the other node
        assert one.undo_all() == []
        claim_plans(two, memory_plan(3360, 5))


def test_who_has_its_memory_already_keeps_it(tmp_path: Path, two_nodes: list[int]) -> None:
    with hold(tmp_path / "one") as one:
        plan = memory_plan(3000, 4)
        claim_plans(one, plan)
        two_nodes[0] = 1024  # somebody has made pages of what was promised
        claim_plans(one, plan, replace(plan, idle="sleep"))
        for ask in (check_free, claim_plans):
            with pytest.raises(Refused, match=r"which has 1920 MiB left of 4096: 2048 are in huge pages"):
                ask(one, plan, memory_plan(3001, 4))
        said = replace(claims()[0], parts=())  # by the version before, which said nothing of memory
        write_claim(said)
        claim_plans(one, plan)


def test_most_of_a_node_may_be_in_huge_pages(tmp_path: Path, two_nodes: list[int]) -> None:
    two_nodes[0] = 1920
    with hold(tmp_path / "one") as one:
        claim_plans(one, memory_plan(240, 4))
        with pytest.raises(Refused, match="240 MiB left of 4096: 3840 are in huge pages, 16 kept for the system"):
            claim_plans(one, memory_plan(241, 4))


@pytest.mark.usefixtures("two_nodes")
def test_what_limits_allow_is_claimed_and_refused_to_nobody(tmp_path: Path) -> None:
    functions = ", ".join(f"f{number}: {{kind: skeleton, memory: 4000MiB}}" for number in range(3))
    spec = f"functions: {{{functions}}}\nchains: {{v: [p, f0, f1, f2, q]}}\nports: {{p: , q: }}\n"
    with hold(tmp_path / "one") as one:
        claim_plans(one, make_plan(parse_spec(spec, "s"), cpus=cpus(8), real_time=None))
    allowed = [each for part in claims()[0].parts for each in part.memory]
    assert [each.words for each in allowed] == ["up to 48", *["up to 4000"] * 3]


@pytest.mark.usefixtures("two_nodes")
def test_huge_pages_that_are_to_be_added_take_of_the_same_memory(tmp_path: Path) -> None:
    plan = memory_plan(1024, 4)
    with hold(tmp_path / "one") as one:
        claim_plans(one, plan, pages={(4, 2048): 1168})
        said = r"functions\.a\.memory: 1024 MiB \(a 1024\) and 2338 MiB of new huge pages would be of node 1"
        with pytest.raises(Refused, match=said):
            claim_plans(one, plan, pages={(4, 2048): 1169})


def test_without_huge_pages_all_of_it_is_ordinary_memory() -> None:
    assert [STARTERS[each].ordinary_bytes(256 << 20, 8, huge=True) >> 20 for each in STARTERS] == [256, 256, 0]
    assert [STARTERS[each].ordinary_bytes(256 << 20, 8, huge=False) >> 20 for each in STARTERS] == [
        256 + BUFFERS_MIB + 8,
        256 + BUFFERS_MIB + 8,
        256,
    ]


# --- two at once ---------------------------------------------------------------------------------------------------


def test_two_nodes_that_plan_at_once_have_other_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have planned before either claims: the second one plans again."""
    monkeypatch.setattr("tailrace.plan.usable.allowed_cpus", lambda: cpus(8))
    spec = parse_spec(CHAIN.replace("{if: eth9}", "tester.b"), "s")
    both = threading.Barrier(2)
    attempts: list[Path] = []

    def up(folder: Path) -> None:
        def change() -> None:
            plan = make_plan(spec, real_time=None, own=[folder])
            if attempts.count(folder) == 0:
                both.wait(60)
            attempts.append(folder)
            claim_plans(state, plan)

        with hold(folder) as state:
            until_claimed(change)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(up, tmp_path / name) for name in ("one", "other")]:
            done.result(60)
    one, other = claims()
    assert len(one.exclusive) == len(other.exclusive) == 3
    assert not set(one.exclusive) & set(other.exclusive)
    assert len(attempts) == 3


def test_what_was_known_to_be_shared_is_claimed_and_a_sibling_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "read_cpus", lambda _: [Cpu(number, core=number % 4) for number in range(8)])
    with hold(tmp_path / "other") as state:
        claim_cpus(state, [1])
    with hold(tmp_path / "own") as state:
        own = Claim(str(state.folder), "", boot_id(), exclusive=(5,))
        with pytest.raises(Overtaken, match=f"CPU 1 was claimed for {tmp_path}/other after it had been chosen here"):
            write_claim(own, frozenset())
        write_claim(own, polled_on())
        write_claim(own)


def test_who_is_overtaken_again_and_again_says_so() -> None:
    attempts: list[None] = []

    def change() -> None:
        attempts.append(None)
        raise Overtaken("CPU 1 was claimed")

    with pytest.raises(Overtaken):
        until_claimed(change)
    assert len(attempts) == 5


def test_a_plan_that_was_kept_is_claimed_as_it_is(tmp_path: Path) -> None:
    plan = replace(make_plan(parse_spec(CHAIN, "s"), cpus=cpus(6), real_time=None), beside=frozenset())
    assert Plan.read(plan.as_data()) == plan
    with hold(tmp_path / "other") as state:
        claim_cpus(state, [5])
    with hold(tmp_path / "own") as state:
        with pytest.raises(Overtaken):
            claim_plans(state, plan)
        claim_plans(state, Plan.read(plan.as_data()))
