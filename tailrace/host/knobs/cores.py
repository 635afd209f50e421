"""What isolated cores share with others: the scheduler's domains, the core itself, the cache."""

from __future__ import annotations

from typing import Any

from tailrace.host.cache_plan import plan_share
from tailrace.host.cgroups import CACHE, CPUSETS, DOMAIN, PARTITION
from tailrace.host.knobs.base import Context, Family, Knob, Value, file_setting, is_number
from tailrace.host.resctrl import monitoring_groups
from tailrace.host.setting import Form, Setting
from tailrace.host.task_cpus import limited
from tailrace.kernel.cpus import show_list
from tailrace.process.systemd import CGROUP, has_cpusets, systemd_has
from tailrace.resources.topology import CPUS


def _partition(context: Context, value: Value) -> list[Setting]:
    cpus, tree = show_list(context.roles.isolated), context.machine.tree
    if not value or not cpus or not tree.exists(f"{CGROUP}/cgroup.subtree_control") or systemd_has(tree):
        return []
    return [
        Setting("controller:cpuset", "on"),
        Setting(f"partition:{PARTITION}", cpus, Form.CPU_LIST, optional=True),
    ]


def _user_tasks(context: Context, value: Value) -> list[Setting]:
    """Nothing where the kernel keeps the isolated CPUs free from the start."""
    tree, isolated = context.machine.tree, set(context.roles.isolated)
    kept = {cpu.number for cpu in context.machine.cpus if cpu.isolated}
    if not value or not isolated - kept or not has_cpusets(tree):
        return []
    cpus = show_list({cpu.number for cpu in context.machine.cpus} - isolated)
    groups = [Setting(f"tasks:{group}", cpus, Form.CPU_LIST, optional=True) for group in limited(tree)]
    ours = groups and not systemd_has(tree)
    return [*([Setting("controller:cpuset", "on", optional=True)] if ours else []), *groups]


def _domains(context: Context, value: Value) -> list[Setting]:
    isolated, system = context.roles.isolated, show_list(context.roles.system)
    if not value or not isolated or not context.machine.tree.exists(f"{CPUSETS}/cpuset.sched_load_balance"):
        return []
    return [Setting(f"domains:{DOMAIN}", system, Form.CPU_LIST)]


def second_threads(context: Context) -> list[int]:
    """Those of isolated cores."""
    return [cpu for cpu in context.roles.isolated if context.machine.cpu(cpu).core != cpu]


def _siblings(context: Context, value: Value) -> list[Setting]:
    if not value:
        return []
    return [
        setting
        for cpu in second_threads(context)
        for setting in file_setting(context, f"{CPUS}/cpu{cpu}/online", "0", Form.NUMBER)
    ]


def _cache(context: Context, value: Any) -> list[Setting]:
    """Ways for the isolated CPUs alone, once no monitoring group watches these: the kernel would drop them from it."""
    offline = second_threads(context) if context.knobs.get("siblings_offline") else ()  # the kernel refuses those
    isolated = context.roles.isolated
    cpus = set(isolated) - set(offline)
    share = plan_share(context.machine, isolated, cpus, value) if value and cpus else None
    if share is None:
        return []
    watched = [
        Setting(f"file:{path}", show_list(set(theirs) - cpus), Form.CPU_LIST)
        for path, theirs in monitoring_groups(context.machine.tree)
    ]
    return [*watched, Setting(f"cache:{CACHE}", str(share))]


class Cores(Family):
    name = "cores"
    title = "Cores and caches"
    text = (
        "An isolated core still shares scheduler domains, execution units and caches, unless these knobs divide them."
    )
    knobs = (
        Knob(
            "cpuset_partition",
            "takes the isolated CPUs out of the scheduler's domains at run time, by a cgroup (version 2)",
            "no load balancing onto them; from Linux 6.8 on no unbound workqueues either",
            "only what is put into /sys/fs/cgroup/tailrace-isolated runs on these CPUs, and it runs nowhere else; that "
            "excludes Tailrace's own functions. No profile sets it; isolcpus does the same at boot without this cost",
            "Linux, Documentation/admin-guide/cgroup-v2.rst",
            "run",
            "true or false",
            _partition,
            needs="a cgroup hierarchy of version 2 at /sys/fs/cgroup that is not systemd's, and a CPU that is isolated",
        ),
        Knob(
            "user_tasks",
            "keeps tasks off the isolated CPUs at run time, by the CPUs of first-level cgroups (version 2)",
            "a function has its CPU to itself, before a reboot brings isolcpus",
            "your own processes on isolated CPUs must be in tailrace.slice (`systemd-run --scope "
            "--slice=tailrace.slice`) or, with libvirt, in machine.slice; without systemd they stay if they are pinned",
            "systemd.resource-control(5), AllowedCPUs=; Linux, Documentation/admin-guide/cgroup-v2.rst, Cpuset",
            "run",
            "true or false",
            _user_tasks,
            needs="cpusets of cgroup version 2, and isolated CPUs that isolcpus does not keep free",
        ),
        Knob(
            "scheduler_domains",
            "takes the isolated CPUs out of the scheduler's domains at run time, by cpusets (version 1)",
            "no load balancing onto them; pinned threads still run there",
            "threads already there stay until they end or are moved",
            "Linux, Documentation/admin-guide/cgroup-v1/cpusets.rst, cpuset.sched_load_balance",
            "run",
            "true or false",
            _domains,
            needs="a cpuset hierarchy of version 1 at /sys/fs/cgroup/cpuset, and a CPU that is isolated",
        ),
        Knob(
            "siblings_offline",
            "takes the second threads of isolated cores offline",
            "two threads of a core slow each other down by up to half",
            "a fifth to a third of the core's throughput",
            "Linux, Documentation/core-api/cpu_hotplug.rst",
            "run",
            "true or false",
            _siblings,
            needs="isolated cores with two threads",
        ),
        Knob(
            "cache_share",
            "gives the isolated CPUs exclusive ways of the L2 and L3 caches, which devices do not use either",
            "a neighbour that uses much memory cannot evict a function's cache lines",
            "others have less cache; of caches that no isolated CPU uses they lose the least that the processor allows",
            "Linux, Documentation/filesystems/resctrl.rst (arch/x86/resctrl.rst before 6.16); AMD64 Technology "
            "Platform Quality of Service Extensions",
            "run",
            "percent of the ways of each cache that isolated CPUs share with others, 1 to 90. Of a cache that only "
            "they use, they get all that is available",
            _cache,
            lambda value: is_number(value) and 1 <= value <= 90,
            needs="a processor with cache allocation (CAT), `mount -t resctrl resctrl /sys/fs/resctrl`, and an "
            "isolated CPU",
            kernels="from 4.10 on; exclusive from 4.19 on",
        ),
    )
