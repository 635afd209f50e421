"""What a machine is, which core gets which role, what a profile wants of it: over machines made of files."""

from __future__ import annotations

import io
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import AMD_FLAGS, add_nic, link, machine, make
from rich.console import Console, RenderableType

from tailrace.errors import Mistake
from tailrace.host import show
from tailrace.host.capabilities import CAPABILITIES, find_capabilities
from tailrace.host.knobs import FAMILIES, KNOBS
from tailrace.host.machine import read_machine
from tailrace.host.pages import PATH, page
from tailrace.host.picture import draw
from tailrace.host.profile import load_profile, profile_names
from tailrace.host.tuner import Checked, State
from tailrace.host.tuning import make_tuning_plan
from tailrace.kernel.cpus import parse_list, parse_mask, show_groups, show_list, show_mask
from tailrace.kernel.tree import Tree
from tailrace.resources.roles import deal_roles
from tailrace.resources.topology import HugePool

CPU_SETS = st.sets(st.integers(0, 300))


@given(CPU_SETS)
def test_lists_and_masks_say_what_they_were_made_of(cpus: set[int]) -> None:
    assert parse_list(show_list(cpus)) == parse_list(show_groups(cpus)) == tuple(sorted(cpus))
    assert parse_mask(show_mask(cpus)) == tuple(sorted(cpus))


def test_lists_and_masks_are_written_as_the_kernel_does() -> None:
    assert show_list([0, 1, 2, 8]) == "0-2,8"
    assert show_mask([0, 32]) == "1,00000001"
    assert parse_mask("ff,00000001") == (0, *range(32, 40))


def test_a_list_may_take_some_of_each_group() -> None:
    assert parse_list("0-9:1/4,20") == (0, 4, 8, 20)
    assert parse_list("3-10:2/4") == (3, 4, 7, 8)
    assert show_groups([0, 1, *range(3, 40, 2), *range(43, 80, 2), 90, 95]) == "0-1,3-39:1/2,43-79:1/2,90,95"
    assert show_groups(range(8)) == "0-7" and show_groups([5]) == "5" and show_groups([]) == ""


@pytest.mark.parametrize("text", ["0-7:1", "0-7:5/4", "0-7:1/0", "7:1/2"])
def test_what_is_no_group_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a list such as"):
        parse_list(text)


@pytest.mark.parametrize("text", ["x", "3-1", "1-", "-1", "1-2-3", "1_0", "+1", "0-4000000000", "99999", "1:2"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a (list|range) such as"):
        parse_list(f"0,{text}")


def test_a_machine_of_two_sockets(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=8, threads=2)
    add_nic(tmp_path, "eth0", "0000:81:00.0", 1)
    found = read_machine(Tree(tmp_path))
    assert len(found.cpus) == 32
    assert found.cpu(17).siblings == (1, 17)
    assert [node.cpus for node in found.nodes] == [(*range(8), *range(16, 24)), (*range(8, 16), *range(24, 32))]
    (nic,) = found.nics
    assert (nic.name, nic.driver, nic.node, nic.most_vfs) == ("eth0", "ice", 1, 64)
    assert found.kernel.realtime


def test_every_capability_says_what_for_how_and_how_we_know(tmp_path: Path) -> None:
    machine(tmp_path)
    found = {each.capability.name: each for each in find_capabilities(read_machine(Tree(tmp_path)))}
    assert len(found) == len(CAPABILITIES)
    for each in found.values():
        assert each.capability.why and each.capability.how and each.finding.evidence
    assert found["nested-paging"].finding.present
    assert found["realtime"].finding.enabled
    assert found["sr-iov"].finding.present is None  # nothing of PCI is there
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    found = {each.capability.name: each for each in find_capabilities(read_machine(Tree(tmp_path)))}
    assert found["sr-iov"].finding.present is False


def test_a_capability_that_the_kernel_turned_off_is_there_and_off(tmp_path: Path) -> None:
    machine(tmp_path, vendor="AuthenticAMD", flags=AMD_FLAGS)
    parameter = tmp_path / "sys/module/kvm_amd/parameters/avic"
    parameter.parent.mkdir(parents=True)
    parameter.write_text("N\n")
    found = {each.capability.name: each.finding for each in find_capabilities(read_machine(Tree(tmp_path)))}
    assert (found["posted-interrupts"].present, found["posted-interrupts"].enabled) == (True, False)


def test_an_empty_tree_is_unknown_and_no_failure(tmp_path: Path) -> None:
    found = read_machine(Tree(tmp_path))
    assert found.cpus == ()
    assert all(each.finding.evidence for each in find_capabilities(found))


def test_a_kernel_without_nodes_is_one_node(tmp_path: Path) -> None:
    machine(tmp_path, cores=4)
    shutil.rmtree(tmp_path / "sys/devices/system/node")
    make(
        tmp_path,
        {
            "/proc/meminfo": "MemTotal:       16777216 kB",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "2",
        },
    )
    add_nic(tmp_path, "eth0", "0000:81:00.0", -1)
    found = read_machine(Tree(tmp_path))
    (node,) = found.nodes
    assert (node.number, node.cpus, node.memory_mib, node.huge) == (0, (0, 1, 2, 3), 16384, (HugePool(2048, 3, 2),))
    tree = printed(show.machine_tree(found, find_capabilities(found)))
    assert "eth0 at 0000:81:00.0" in tree


def test_a_card_that_dpdk_has_is_a_card(tmp_path: Path) -> None:
    """And what is no card of its own is none: a virtual function, a virtual machine's device, another class."""
    machine(tmp_path, nodes=2, cores=4)
    cards = {
        "0000:81:00.0": ("0x020000", "vfio-pci"),
        "0000:81:02.0": ("0x020000", "vfio-pci"),
        "0000:00:03.0": ("0x020000", "virtio-pci"),
        "0000:02:00.0": ("0x010802", "nvme"),
    }
    for address, (class_, driver) in cards.items():
        at = f"/sys/bus/pci/devices/{address}"
        make(tmp_path, {f"{at}/class": class_, f"{at}/numa_node": "1", f"{at}/config": ""})
        link(tmp_path, f"{at}/driver", f"../../drivers/{driver}")
    link(tmp_path, "/sys/bus/pci/devices/0000:81:02.0/physfn", "../0000:81:00.0")
    make(tmp_path, {"/sys/bus/pci/devices/0000:81:00.0/sriov_totalvfs": "64"})
    found = read_machine(Tree(tmp_path))
    assert [(nic.name, nic.driver, nic.node, nic.most_vfs) for nic in found.nics] == [
        ("0000:81:00.0", "vfio-pci", 1, 64)
    ]
    plan = make_tuning_plan(found, load_profile("latency"))
    assert plan.roles.node == 1
    assert "network card at 0000:81:00.0" in draw(found, plan.roles)
    assert not [step for step in plan.steps() if step.setting.scheme == "nic"]


@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        ("vendor_id       : IBM/S390\n# processors    : 20\nfeatures\t: esan3 zarch", "unknown"),
        ("CPU implementer\t: 0x41\nCPU architecture: 7\nCPU part\t: 0xc09", "unknown"),
        ("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c", "aarch64"),
    ],
)
def test_another_architecture_is_not_taken_for_x86_or_arm64(tmp_path: Path, text: str, architecture: str) -> None:
    make(tmp_path, {"/proc/cpuinfo": text})
    assert read_machine(Tree(tmp_path)).architecture == architecture


def test_roles_follow_the_network_cards_node_and_keep_siblings_together(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=8, threads=2)
    add_nic(tmp_path, "eth0", "0000:81:00.0", 1)
    roles = deal_roles(read_machine(Tree(tmp_path)), {"system": 1, "switch": 2, "tester": 1, "vnf": "rest"})
    assert roles.node == 1
    assert roles.cpus["switch"] == (9, 10, 25, 26)
    assert roles.system == (*range(9), *range(16, 25))
    assert set(roles.isolated) | set(roles.system) == set(range(32))


def test_one_more_card_does_not_reshuffle_cores(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=8)
    add_nic(tmp_path, "eth0", "0000:81:00.0", 1)
    profile = load_profile("latency")
    before = make_tuning_plan(read_machine(Tree(tmp_path)), profile)
    add_nic(tmp_path, "eth1", "0000:82:00.0", 0)
    after = make_tuning_plan(read_machine(Tree(tmp_path)), profile)
    assert before.roles.cpus == after.roles.cpus


def test_the_same_facts_give_the_same_plan(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=16, threads=2)
    documents = [
        show.plan_document(make_tuning_plan(read_machine(Tree(tmp_path)), load_profile("latency"))) for _ in range(2)
    ]
    assert documents[0] == documents[1]
    assert documents[0]["arguments"][0] == "isolcpus=domain,managed_irq,1-15,33-47"


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_fits_every_machine(tmp_path: Path, name: str) -> None:
    for number, (nodes, cores, threads) in enumerate([(1, 2, 1), (1, 4, 2), (2, 64, 2)]):
        machine(tmp_path / str(number), nodes=nodes, cores=cores, threads=threads)
        plan = make_tuning_plan(read_machine(Tree(tmp_path / str(number))), load_profile(name))
        assert plan.roles.system
        assert show.plan_lines(plan)


def printed(what: RenderableType) -> str:
    """As a terminal of 80 columns shows it, without what only lays it out."""
    console = Console(width=80, file=io.StringIO())
    console.print(what)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text, "something was cut off"
    return " ".join(text.translate(dict.fromkeys(map(ord, "├└│─"), " ")).split())


def test_nothing_is_cut_off_in_a_narrow_terminal(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=24, threads=2, interrupts=9)
    add_nic(tmp_path, "enp129s0f0np0", "0000:81:00.0", 1)
    found = read_machine(Tree(tmp_path))
    capabilities = find_capabilities(found)
    tree = printed(show.machine_tree(found, capabilities))
    for each in capabilities:
        assert f"{each.capability.title}: {each.capability.why}" in tree
    assert "CPUs of one core: 0+48, 1+49, ..., 23+71" in tree
    plan = make_tuning_plan(found, load_profile("latency"))
    table = printed(show.plan_table(plan))
    assert "madvise → never" in table and "0-95 (9×) → 0-24,48-72 (9×)" in table
    checked = printed(show.check_table([Checked(step, State.DRIFTED, "sh (process 7)") for step in plan.steps("run")]))
    assert "irq_affinity: wanted 0-24,48-72, found 0-95, by sh (process 7)" in checked
    assert "/proc/irq/32/smp_affinity_list and 6 more, which --json lists" in checked


def test_inheritance_adds_and_null_leaves_alone(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("inherits: latency\nroles: {system: 2}\nknobs: {idle_latency: 10, audit_off: null}\n")
    profile = load_profile(str(own))
    assert profile.knobs["idle_latency"] == 10
    assert "audit_off" not in profile.knobs
    assert profile.knobs["irq_affinity"] is True
    assert (profile.roles["system"], profile.roles["vnf"]) == (2, "rest")
    assert profile.line == ("latency", "throughput", "vanilla")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("knobs: {audit: true}", "knobs.audit: there is no such knob; did you mean audit_off"),
        ("knobs: {governor: 3}", "knobs.governor: 3 is wrong"),
        ("roles: {guests: 2}", "roles.guests: unknown"),
        ("roles: {system: -1}", "expected a number of cores"),
        ("inherits: fast", "mine.yaml: inherits: no profile 'fast'"),
        ("inherits: ./fast", "mine.yaml: inherits: .*/fast: No such file"),
        ("inherits: 3", "inherits: 3 is wrong"),
        ("speed: 3", "speed: unknown"),
        ("[]", "expected a mapping"),
        ("knobs: [", "while parsing"),
        ("knobs: {fair_server: 0, fair_server: 1}", "'fair_server' is used twice"),
        ("knobs: {vm.stat_interval: 010}", "knobs.vm.stat_interval: '010' is wrong"),
        ("roles: {system: 02}", "roles.system: '02' is wrong"),
        ("knobs: {audit_off: yes}", "knobs.audit_off: 'yes' is wrong"),
        ("knobs: !!set {a, b}", "the tag !!set is not known here"),
        (f"knobs: {'[' * 3000}", "mine.yaml: nested too deeply"),
    ],
)
def test_a_wrong_profile_is_one_message_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(text + "\n")
    with pytest.raises(Mistake, match=words.replace("[", r"\[")):
        load_profile(str(own))


def test_what_is_inherited_is_looked_for_beside_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/base.yaml").write_text("inherits: vanilla\nknobs: {vm.stat_interval: 33}\n")
    (tmp_path / "own/mine.yaml").write_text("inherits: base.yaml\n")
    monkeypatch.chdir(tmp_path)
    assert load_profile("own/mine.yaml").knobs == {"vm.stat_interval": 33}
    monkeypatch.chdir(tmp_path / "own")
    assert load_profile("mine.yaml").line == ("base", "vanilla")


def test_a_profile_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"about: caf\xe9\n")
    with pytest.raises(Mistake, match=r"mine.yaml: not text in UTF-8"):
        load_profile(str(tmp_path / "mine.yaml"))


def test_a_profile_that_inherits_itself_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("inherits: b/mine.yaml\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/mine.yaml").write_text("inherits: ../mine.yaml\n")
    with pytest.raises(Mistake, match="inherits itself"):
        load_profile(str(own))


def test_more_cores_than_there_are_is_refused(tmp_path: Path) -> None:
    machine(tmp_path, cores=4)
    with pytest.raises(Mistake, match="more than the 4 cores of node 0"):
        deal_roles(read_machine(Tree(tmp_path)), {"system": 1, "switch": 4})


def test_a_card_that_is_not_there_is_refused(tmp_path: Path) -> None:
    machine(tmp_path)
    add_nic(tmp_path, "eth0", "0000:81:00.0", 0)
    with pytest.raises(Mistake, match="no network card 'eth7'; the physical ones are: eth0"):
        deal_roles(read_machine(Tree(tmp_path)), {"system": 1}, "eth7")


def test_every_knob_is_documented_and_named_once() -> None:
    every = [knob for family in FAMILIES for knob in family.knobs]
    assert len(every) == len(KNOBS)
    for knob in every:
        assert all((knob.what, knob.why, knob.cost, knob.source, knob.takes)), knob.name


def test_the_page_of_knobs_is_made_from_the_declarations() -> None:
    assert PATH.read_text() == page(), "write it again with `python -m tailrace.host.pages`"


def test_the_picture_shows_every_cpu_once(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=20, threads=2)
    found = read_machine(Tree(tmp_path))
    picture = ElementTree.fromstring(draw(found, make_tuning_plan(found, load_profile("latency")).roles))
    titles = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(set(titles)) == 80
    assert "CPU 1: switch" in titles


@pytest.mark.parametrize("garbage", [b"", b"-1", b"0-3,,x", b"9" * 24, b"a b\0c", bytes(range(128, 160))], ids=repr)
def test_garbage_is_no_value_in_whichever_file(tmp_path: Path, garbage: bytes) -> None:
    tree = machine(tmp_path, nodes=2, cores=1, interrupts=1)
    add_nic(tmp_path, "eth0", "0000:81:00.0", 0)
    for path in [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]:
        before = path.read_bytes()
        path.write_bytes(garbage)
        found = read_machine(tree)
        find_capabilities(found)
        try:
            make_tuning_plan(found, load_profile("latency"))
        except Mistake as mistake:
            assert "core" in str(mistake)  # of which none is left
        path.write_bytes(before)
