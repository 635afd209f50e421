"""Knobs whose places or values depend on the machine, and roles that stay where they are while it changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hosts import HOSTS
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import AMD_FLAGS, INTEL_FLAGS, add_nic, machine, make

from tailrace.errors import Mistake
from tailrace.host import show
from tailrace.host.journal import Applied
from tailrace.host.knobs import KNOBS
from tailrace.host.machine import Machine, read_machine
from tailrace.host.profile import load_profile
from tailrace.host.tuning import TuningPlan, make_tuning_plan
from tailrace.kernel.tree import Tree
from tailrace.resources.topology import Nic

CPU = "/sys/devices/system/cpu"


def planned(folder: Path, knobs: str, roles: str = "{}") -> TuningPlan:
    own = folder / "own.yaml"
    own.write_text(f"inherits: vanilla\nroles: {roles}\nknobs: {knobs}\n")
    return make_tuning_plan(read_machine(Tree(folder)), load_profile(str(own)))


def wanted(plan: TuningPlan) -> dict[str, str]:
    return {step.setting.target: step.setting.wanted for step in plan.steps()}


def test_the_uncore_is_kept_at_its_highest_on_every_die(tmp_path: Path) -> None:
    HOSTS["intel"](tmp_path)
    assert wanted(planned(tmp_path, "{uncore_frequency: true}")) == {
        f"{CPU}/intel_uncore_frequency/package_0{package}_die_00/min_freq_khz": "2400000" for package in range(2)
    }


def test_a_die_with_clusters_is_set_cluster_by_cluster(tmp_path: Path) -> None:
    machine(tmp_path)
    at = f"{CPU}/intel_uncore_frequency"
    for name, khz in {"package_00_die_00": 2500000, "uncore00": 2500000, "uncore01": 1800000}.items():
        make(tmp_path, {f"{at}/{name}/min_freq_khz": "800000", f"{at}/{name}/max_freq_khz": str(khz)})
    assert wanted(planned(tmp_path, "{uncore_frequency: true}")) == {
        f"{at}/uncore00/min_freq_khz": "2500000",
        f"{at}/uncore01/min_freq_khz": "1800000",
    }


@pytest.mark.parametrize(("least", "khz"), [("2500", "2500000"), ("true", "2800000")])
def test_frequencies_are_limited_by_role(tmp_path: Path, least: str, khz: str) -> None:
    HOSTS["intel"](tmp_path)
    plan = planned(tmp_path, f"{{frequency_limit: 2800, system_frequency_limit: 1500, least_frequency: {least}}}")
    found = wanted(plan)
    for cpu in range(96):
        isolated = cpu in plan.roles.isolated
        assert found[f"{CPU}/cpu{cpu}/cpufreq/scaling_max_freq"] == ("2800000" if isolated else "1500000")
        assert found.get(f"{CPU}/cpu{cpu}/cpufreq/scaling_min_freq") == (khz if isolated else None)


def test_the_systems_cpus_may_be_kept_awake_too(tmp_path: Path) -> None:
    machine(tmp_path, cores=2)
    assert wanted(planned(tmp_path, "{idle_latency: n/a, system_idle_latency: 20}")) == {
        f"{CPU}/cpu1/power/pm_qos_resume_latency_us": "n/a",
        f"{CPU}/cpu0/power/pm_qos_resume_latency_us": "20",
    }


@pytest.mark.parametrize(
    ("release", "nodes", "value", "argument"),
    [
        ("6.1.0-rt", 2, "4", "1:4"),
        ("6.1.0-rt", 2, "{1: 2, 0: 1}", "0:1,1:2"),
        ("6.1.0-rt", 1, "4", "4"),
        ("5.10.0-21-amd64", 2, "4", "4"),
        ("5.10.0-21-amd64", 2, "{0: 1, 1: 2}", "3"),
    ],
)
def test_huge_pages_of_boot_time_are_on_the_node_that_needs_them(
    tmp_path: Path, release: str, nodes: int, value: str, argument: str
) -> None:
    machine(tmp_path, nodes=nodes)
    add_nic(tmp_path, "eth0", "0000:81:00.0", nodes - 1)
    make(tmp_path, {"/proc/sys/kernel/osrelease": release})
    assert wanted(planned(tmp_path, f"{{huge_pages_1gib: {value}}}"))["hugepages"] == argument


def test_huge_pages_by_node(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2)
    places = wanted(planned(tmp_path, "{huge_pages_2mib: {0: 64, 1: 512}}"))
    assert [(path.split("/")[5], count) for path, count in places.items()] == [("node0", "64"), ("node1", "512")]
    with pytest.raises(Mistake, match="there is no node 7; this machine has 0, 1"):
        planned(tmp_path, "{huge_pages_2mib: {7: 64}}")


def test_numbers_of_huge_pages_without_a_size_are_pointed_out_before_the_default_is_1_gib(tmp_path: Path) -> None:
    machine(tmp_path)
    files = {
        "/etc/sysctl.d/20-db.conf": "# vm.nr_hugepages=7\nkernel.panic=1\n -vm/nr_hugepages = 1024",
        "/etc/sysctl.conf": "vm.nr_overcommit_hugepages=512",
        "/usr/lib/sysctl.d/50-none.conf": "vm.nr_hugepages=0",
        "/etc/sysctl.d/README": "vm.nr_hugepages=9",
        "/proc/cmdline": "quiet hugepages=2048 hugepagesz=1G hugepages=2",
    }
    make(tmp_path, files)
    warnings = planned(tmp_path, "{huge_pages_1gib: 4}").warnings
    assert [warning.partition(", which means pages of 1 GiB after a reboot")[0] for warning in warnings] == [
        "/etc/sysctl.conf sets vm.nr_overcommit_hugepages to 512",
        "/etc/sysctl.d/20-db.conf sets vm.nr_hugepages to 1024",
        "hugepages=2048 is on the kernel's command line, without a size",
        "hugepages=2 is on the kernel's command line already, set by others, and the kernel keeps the first one: "
        "remove it where it was set (the boot loader, an operator's profile) before you reboot",
    ]
    assert planned(tmp_path, "{huge_pages_2mib: 4}").warnings == []
    make(tmp_path, {"/proc/cmdline": "hugepages=2048 default_hugepagesz=1G hugepagesz=1G"})
    warnings = planned(tmp_path, "{huge_pages_1gib: 4}").warnings
    assert not any("after a reboot" in warning for warning in warnings), "that is so already"


def test_no_ordinary_thread_interrupts_a_polling_one(tmp_path: Path) -> None:
    machine(tmp_path, cores=3)
    at = "/sys/kernel/debug/sched/fair_server"
    make(tmp_path, {f"{at}/cpu{cpu}/runtime": "50000000" for cpu in range(3)})
    assert wanted(planned(tmp_path, "{fair_server: 0}")) == {f"{at}/cpu{cpu}/runtime": "0" for cpu in (1, 2)}


def test_kernel_threads_that_may_move_are_found_by_short_and_long_names(tmp_path: Path) -> None:
    machine(tmp_path)
    movable = ["rcuop/3", "jbd2/vda1-8", "rcu_tasks_trace_kthread", "rcu_tasks_rude_", "kcompactd1", "khungtaskd"]
    movable.append("kdamond.0")
    for number, name in enumerate([*movable, "ksoftirqd/1", "migration/2", "kworker/u8:2", "rcuc/1", "bash"]):
        make(tmp_path, {f"/proc/{100 + number}/comm": name, f"/proc/{100 + number}/cmdline": ""})
    assert wanted(planned(tmp_path, "{kernel_threads: true}")) == dict.fromkeys(sorted(movable), "0")


@pytest.mark.parametrize(("value", "argument"), [("true", "reliable"), ("nowatchdog", "nowatchdog")])
def test_the_tsc_is_trusted_or_only_not_watched(tmp_path: Path, value: str, argument: str) -> None:
    machine(tmp_path)
    assert wanted(planned(tmp_path, f"{{tsc_reliable: {value}}}")) == {"tsc": argument}


def test_vanilla_costs_nothing_and_throughput_no_reboot(tmp_path: Path) -> None:
    HOSTS["intel"](tmp_path)
    vanilla, throughput, latency = (
        make_tuning_plan(read_machine(Tree(tmp_path)), load_profile(name))
        for name in ("vanilla", "throughput", "latency")
    )
    assert vanilla.costs() == []
    assert "CPUs" in throughput.costs()[0] and throughput.arguments() == []
    assert ("iommu", "pt") in latency.arguments()


def test_the_memory_that_a_plan_costs_is_summed(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2)
    path = tmp_path / "own.yaml"
    path.write_text("about: x\ninherits: vanilla\nknobs: {huge_pages_1gib: {0: 2, 1: 1}, huge_pages_2mib: 512}\n")
    plan = make_tuning_plan(read_machine(Tree(tmp_path)), load_profile(str(path)))
    assert "4,096 MiB of memory are reserved as huge pages" in plan.costs()


@pytest.mark.parametrize("knobs", ["{huge_pages_1gib: 64}", "{huge_pages_1gib: {1: 64}}", "{huge_pages_2mib: 32768}"])
def test_huge_pages_leave_memory_to_linux(tmp_path: Path, knobs: str) -> None:
    """A kernel that is given such a number at boot does not start."""
    machine(tmp_path, nodes=2)
    with pytest.raises(Mistake, match=r"pages of \d+ MiB leave nothing of the 65536 MiB of node [01]; take fewer"):
        planned(tmp_path, knobs)


@pytest.mark.parametrize("knobs", ["{frequency_limit: 5}", "{huge_pages_2mib: {0: -1}}", "{tsc_reliable: fast}"])
def test_a_wrong_value_is_refused(tmp_path: Path, knobs: str) -> None:
    with pytest.raises(Mistake, match="is wrong; it takes"):
        planned(tmp_path, knobs)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    machine(folder, nodes=2, cores=4, threads=2)
    yield read_machine(Tree(folder))


NICS = st.builds(
    Nic,
    name=st.from_regex(r"en[a-z][0-9]{1,2}", fullmatch=True),
    address=st.from_regex(r"0000:[0-9a-f]{2}:00\.[0-7]", fullmatch=True),
    driver=st.just("ice"),
    node=st.sampled_from([None, 0, 1]),
    mbps=st.just(25_000),
    queues=st.just(1),
    vfs=st.just(0),
    most_vfs=st.just(64),
    virtual_function=st.booleans(),
)
FEW = settings(max_examples=40)
"""A plan reads some hundred files."""
CARDS = st.lists(NICS, max_size=4, unique_by=lambda nic: nic.address)
LATENCY = load_profile("latency")


def plan_of(machine: Machine, nics: list[Nic], kept: Applied | None = None) -> TuningPlan:
    return make_tuning_plan(replace(machine, nics=tuple(nics)), LATENCY, kept=kept)


@FEW
@given(nics=CARDS, order=st.randoms())
def test_the_same_facts_in_any_order_give_the_same_plan(two_nodes: Machine, nics: list[Nic], order: object) -> None:
    shuffled = list(nics)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (show.plan_document(plan_of(two_nodes, each)) for each in (nics, shuffled))
    for document in (first, second):  # a line for each card, in the order of the cards
        document["warnings"].sort()
        for knob in document["knobs"]:
            knob["places"].sort(key=lambda place: place["place"])
    assert first == second


@FEW
@given(before=CARDS, more=NICS)
def test_a_card_that_comes_or_goes_after_applying_moves_no_core(
    two_nodes: Machine, before: list[Nic], more: Nic
) -> None:
    applied = plan_of(two_nodes, before)
    for nics in ([*before, more], before[1:]):
        after = plan_of(two_nodes, nics, applied.asked)
        assert after.roles.cpus == applied.roles.cpus
        assert after.arguments() == applied.arguments()


@FEW
@given(before=CARDS, more=NICS)
def test_of_nodes_with_as_many_cores_only_a_card_of_a_lower_address_moves_the_roles(
    two_nodes: Machine, before: list[Nic], more: Nic
) -> None:
    assume(any(nic.node is not None and not nic.virtual_function for nic in before))
    higher = replace(more, address="0001:00:00.0")
    assert plan_of(two_nodes, [*before, higher]).roles.cpus == plan_of(two_nodes, before).roles.cpus


@FEW
@given(before=CARDS, after=CARDS)
def test_where_one_node_has_the_most_cores_no_card_moves_the_roles(
    two_nodes: Machine, before: list[Nic], after: list[Nic]
) -> None:
    cpus = tuple(replace(cpu, online=cpu.core != 3) for cpu in two_nodes.cpus)  # of the first node's four cores
    machine = replace(two_nodes, cpus=cpus)
    plans = [plan_of(machine, nics) for nics in (before, after)]
    assert plans[0].roles.cpus == plans[1].roles.cpus
    assert plans[0].roles.node == 1


def test_the_share_of_the_cache_leaves_out_threads_that_go_offline(tmp_path: Path) -> None:
    machine(tmp_path, threads=2)
    files = {f"{CPU}/cpu{cpu}/online": "1" for cpu in range(1, 8)}
    make(tmp_path, {**files, "/sys/fs/resctrl/info/L3/cbm_mask": "fff", "/sys/fs/resctrl/schemata": "L3:0=fff"})
    for siblings, cpus in {"true": "1-3", "false": "1-3,5-7"}.items():
        plan = planned(tmp_path, f"{{cache_share: 50, siblings_offline: {siblings}}}")
        assert wanted(plan)["/sys/fs/resctrl/tailrace"] == f"{cpus} L3:0=3f root L3:0=fc0"


KVM = "/sys/module/kvm/parameters"


def release(folder: Path, version: str, vendor: str = "GenuineIntel", flags: str = INTEL_FLAGS) -> None:
    machine(folder, vendor=vendor, flags=flags)
    make(folder, {"/proc/sys/kernel/osrelease": version})


@pytest.mark.parametrize(
    ("value", "now", "wanted_text"), [(-1, "Y", "Y"), (0, "Y", "N"), (-1, "N", "Y"), (0, "N", "N"), (2000, "Y", None)]
)
def test_the_timer_advance_of_newer_kernels_is_a_switch(
    tmp_path: Path, value: int, now: str, wanted_text: str | None
) -> None:
    """From Linux 6.10 on, and read only; a value in ns cannot be had there."""
    release(tmp_path, "6.12.9")
    make(tmp_path, {f"{KVM}/lapic_timer_advance": now})
    plan = planned(tmp_path, f"{{kvm_timer_advance: {value}}}")
    assert wanted(plan) == ({f"{KVM}/lapic_timer_advance": wanted_text} if wanted_text else {})
    assert all(step.setting.optional and step.done == (now == wanted_text) for step in plan.steps())
    assert ("kvm_timer_advance" in plan.missing()) == (wanted_text is None)


def test_the_timer_advance_of_older_kernels_is_a_time(tmp_path: Path) -> None:
    release(tmp_path, "6.1.0")
    make(tmp_path, {f"{KVM}/lapic_timer_advance_ns": "-1"})
    assert wanted(planned(tmp_path, "{kvm_timer_advance: 2000}")) == {f"{KVM}/lapic_timer_advance_ns": "2000"}
    assert all(step.done for step in planned(tmp_path, "{kvm_timer_advance: -1}").steps())


EVERY = "kvm_pause_exits: true, kvm_avic: true, kvm_nx_huge_pages: true"


@pytest.mark.parametrize(
    ("version", "vendor", "flags", "arguments"),
    [
        ("6.1.0", "GenuineIntel", INTEL_FLAGS, {"kvm.nx_huge_pages": "0", "kvm_intel.ple_gap": "0"}),
        ("6.1.0", "AuthenticAMD", AMD_FLAGS, {"kvm_amd.pause_filter_count": "0", "kvm_amd.avic": "1"}),
        ("6.1.0", "HygonGenuine", AMD_FLAGS, {"kvm_amd.pause_filter_count": "0", "kvm_amd.avic": "1"}),
        ("6.1.0", "AuthenticAMD", "svm npt", {}),
        ("5.7.0", "AuthenticAMD", AMD_FLAGS, {"kvm_amd.avic": "1"}),
    ],
)
def test_each_vendors_processor_has_its_own_parameters_of_kvm(
    tmp_path: Path, version: str, vendor: str, flags: str, arguments: dict[str, str]
) -> None:
    release(tmp_path, version, vendor, flags)
    assert wanted(planned(tmp_path, f"{{{EVERY}}}")) == arguments


@pytest.mark.parametrize(
    ("version", "argument"),
    [("4.14.0", "1-3"), ("4.18.0-553.el8", "domain,1-3"), ("5.6.0", "domain,managed_irq,1-3"), ("6.12.0", None)],
)
def test_isolcpus_has_the_flags_that_the_kernel_knows(tmp_path: Path, version: str, argument: str | None) -> None:
    """An older one takes nothing of an argument with another flag."""
    release(tmp_path, version)
    assert wanted(planned(tmp_path, "{isolcpus: true}"))["isolcpus"] == (argument or "domain,managed_irq,1-3")


@pytest.mark.parametrize(
    ("version", "mode", "there"),
    [
        ("6.0.0", "passive", False),
        ("6.1.0", "passive", True),
        ("6.1.0", "active", False),
        ("6.3.0", "active", True),
        ("6.3.0", "guided", False),
        ("6.4.0", "guided", True),
    ],
)
def test_amds_frequency_driver_has_the_modes_that_the_kernel_knows(
    tmp_path: Path, version: str, mode: str, there: bool
) -> None:
    release(tmp_path, version, "AuthenticAMD", AMD_FLAGS)
    assert wanted(planned(tmp_path, f"{{pstate_driver: {mode}}}")) == ({"amd_pstate": mode} if there else {})


@pytest.mark.parametrize(("version", "arguments"), [("5.1.0", {}), ("5.2.0", {"tsc": "nowatchdog"})])
def test_the_tscs_watchdog_stays_on_a_kernel_that_cannot_stop_it(
    tmp_path: Path, version: str, arguments: dict[str, str]
) -> None:
    release(tmp_path, version)
    assert wanted(planned(tmp_path, "{tsc_reliable: nowatchdog}")) == arguments


TUNED = {
    "audit_off": None,
    "receive_steering": None,
    "adaptive_coalescing_off": None,
    "kvm_timer_advance": None,
    "rcu_normal": None,
    "tsc_reliable": "TuneD network-latency",
    "vm.stat_interval": "TuneD network-latency",
    "kernel.sched_rt_runtime_us": "TuneD realtime",
    "softirq_priority": "TuneD realtime-virtual-host",
    "page_merging": "TuneD realtime-virtual-host",
    "governor": "TuneD latency-performance",
}
"""What TuneD's profiles (2.28) set, and what they do not."""


@pytest.mark.parametrize(("name", "source"), TUNED.items())
def test_a_knob_names_the_profile_that_sets_it(name: str, source: str | None) -> None:
    named = KNOBS[name].source
    assert "TuneD" not in named if source is None else source in named.split("; ")


def test_every_knob_says_who_documents_it_and_for_which_kernels() -> None:
    for knob in KNOBS.values():
        assert knob.source.startswith(("Linux, ", "ethtool(8)", "systemd.", "TuneD ")), knob.name
        assert knob.kernels, knob.name
        assert "TuneD;" not in knob.source and not knob.source.endswith("TuneD"), f"{knob.name}: which profile?"
