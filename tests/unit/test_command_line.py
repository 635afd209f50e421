"""The kernel's command line, read as the kernel reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import machine, make

from tailrace.host.boot import BootLoader, argument_setting
from tailrace.host.command_line import Argument, Reader, insert, parse_line, read, show_line

FOUR = Reader(last_cpu=3)


def words(line: str) -> list[str]:
    found = parse_line(line).arguments
    return [each.name if each.value is None else f"{each.name}|{each.value}" for each in found]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", []),
        ("  quiet\tro \n", ["quiet", "ro"]),
        ("root=/dev/sda1 a==b =x", ["root|/dev/sda1", "a|=b", "=x"]),
        ('dyndbg="file a.c +p ; isolcpus=3 x" quiet', ["dyndbg|file a.c +p ; isolcpus=3 x", "quiet"]),
        ('"isolcpus=1-3" "quiet"', ["isolcpus|1-3", "quiet"]),
        ('"dyndbg=file a.c +p" x', ["dyndbg|file a.c +p", "x"]),
        ('a=b" c "d', ['a|b" c "d']),
        ('a="b', ["a|b"]),
        ('a=""', ["a|"]),
        ("a= b", ["a|", "b"]),
        ("--x=1 -- a", ["--x|1"]),
        ('a="x -- y" b', ["a|x -- y", "b"]),
    ],
)
def test_blanks_between_double_quotes_part_nothing(line: str, found: list[str]) -> None:
    assert words(line) == found


def test_a_lone_double_hyphen_ends_the_kernels_part() -> None:
    line = parse_line("quiet -- isolcpus=1-3  single")
    assert (show_line(line.arguments), line.init) == ("quiet", "isolcpus=1-3  single")
    assert read(line, "isolcpus", FOUR) is None


@pytest.mark.parametrize(
    ("line", "longer"),
    [
        ("", "new"),
        ("quiet ", "quiet new"),
        ("quiet -- single", "quiet new -- single"),
        ("-- single", "new -- single"),
        ('a="b -- c" d', 'a="b -- c" d new'),
    ],
)
def test_arguments_are_added_to_the_kernels_part(line: str, longer: str) -> None:
    assert insert(line, [Argument("new")]) == longer


def test_what_is_shown_is_read_again() -> None:
    line = 'quiet dyndbg="file a.c +p" a= x=1'
    assert show_line(parse_line(line).arguments) == line


#: What is wanted of a machine of four CPUs, a line on which the kernel finds it, and whether it does.
CASES = [
    # One list of CPUs in other words.
    ("nohz_full", "1-3", "nohz_full=1,2-3", True),
    ("nohz_full", "1-3", "nohz_full=3,1,2", True),
    ("nohz_full", "1-3", "nohz_full=1-N", True),
    ("nohz_full", "1-3", "nohz-full=1-3", True),
    ("nohz_full", "1,3", "nohz_full=1-3:1/2", True),
    ("nohz_full", "1-3", "nohz_full=all", True),  # the CPU that boots stays
    ("nohz_full", "1-3", "nohz_full=1-4", False),  # there is no CPU 4, so the kernel refuses the list
    ("nohz_full", "1-3", "nohz_full=1-2", False),
    ("nohz_full", "1-3", "nohz_full", False),
    ("irqaffinity", "0-3", "irqaffinity=all", True),
    ("irqaffinity", "0", "irqaffinity=1 irqaffinity=0", True),
    ("irqaffinity", "0", "irqaffinity=0 irqaffinity=1", False),
    ("rcu_nocbs", "1-3", "rcu_nocbs=1 rcu_nocbs=1-3", True),
    ("rcu_nocbs", "1-3", "rcu_nocbs=1-3 rcu_nocbs=1", False),
    ("rcu_nocbs", "1-3", "nohz_full=1-3", True),  # it implies the other
    ("rcu_nocbs", "1-3", "rcu_nocbs=1 nohz_full=2,3", True),
    ("rcu_nocbs", "1-3", "rcu_nocbs=0-3", False),
    # What for, and then the list; the first of a kind counts.
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=managed_irq,domain,1,2,3", True),
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=nohz,domain,managed_irq,1-3", True),
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=domain,managed_irq,1-N", True),
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=domain,newer,managed_irq,1-3", True),
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=1-3", False),
    ("isolcpus", "domain,1-3", "isolcpus=1-3", True),
    ("isolcpus", "1-3", "isolcpus=domain,1-3", True),  # of a kernel without flags
    ("isolcpus", "1-3", "isolcpus=managed_irq,1-3", False),
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=managed_irq,1-3", False),
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=1-3 isolcpus=managed_irq,1-3", True),
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=1-2 isolcpus=domain,managed_irq,1-3", False),
    ("isolcpus", "domain,managed_irq,1-3", "isolcpus=domain,managed_irq,1-3 isolcpus=1-2", True),
    ("isolcpus", "domain,1-3", "isolcpus=1-3,domain", False),
    ("isolcpus", "domain,1-3", "isolcpus=do-main,1-3", False),
    ("nohz_full", "1-3", "nohz_full=1-3 nohz_full=1-2", True),
    ("nohz_full", "1-3", "nohz_full=1-2 nohz_full=1-3", False),
    ("nohz_full", "1-3", "isolcpus=nohz,1-2 nohz_full=1-3", False),
    # Words that add up, and those of which the last counts.
    ("iommu", "pt", "iommu=force,pt", True),
    ("iommu", "pt", "iommu=pt iommu=nopt", False),
    ("iommu", "pt", "iommu=off,pt", False),
    ("iommu", "pt", "iommu.passthrough=1", True),
    ("iommu", "pt", "iommu=pt iommu.passthrough=off", False),
    ("iommu", "pt", "iommu.passthrough=0 iommu=pt", True),
    ("intel_iommu", "on", "intel_iommu=sm_on,on", True),
    ("intel_iommu", "on", "intel_iommu=off intel_iommu=on", True),
    ("intel_iommu", "on", "intel_iommu=on intel_iommu=off", False),
    ("tsc", "reliable", "tsc=reliable tsc=noirqtime", True),
    ("tsc", "reliable", "tsc=reliable,noirqtime", False),  # takes one word
    ("tsc", "nowatchdog", "tsc=nowatchdog tsc=watchdog", True),
    ("mce", "ignore_ce", "mce=bootlog mce=ignore_ce", True),
    ("idle", "poll", "idle=poll idle=halt", True),
    ("nmi_watchdog", "0", "nmi_watchdog=panic,0", True),
    ("nmi_watchdog", "0", "nmi_watchdog=0 nmi_watchdog=1", False),
    ("intel_pstate", "passive", "intel_pstate=passive intel_pstate=no_hwp", True),
    ("intel_pstate", "passive", "intel_pstate=disable intel_pstate=passive", False),
    ("amd_pstate", "guided", "amd_pstate=active amd_pstate=guided amd_pstate=new", True),
    # Yes, no and numbers in other words; module parameters.
    ("nohz", "on", "nohz=y", True),
    ("nohz", "on", "nohz=on nohz=off", False),
    ("nohz", "on", "quiet", True),  # as it is unless said
    ("audit", "0", "audit=off", True),
    ("audit", "0", "audit=0 audit=1", False),
    ("audit", "0", "audit=n", False),  # neither of its words, so it is on
    ("audit", "0", "audit=0 audit=false", False),
    ("audit", "0", "audit=OFF audit", True),  # the second is not heard
    ("nohz", "on", "nohz=off nohz", False),
    ("kvm.nx_huge_pages", "0", "kvm.nx_huge_pages=force", False),
    ("kvm.nx_huge_pages", "0", "kvm.nx_huge_pages=0 kvm.nx_huge_pages=auto", False),
    ("kvm.nx_huge_pages", "0", "kvm.nx_huge_pages=never kvm.nx_huge_pages=new", True),
    ("kvm.nx_huge_pages", "0", "kvm.nx-huge-pages=off", True),
    ("kvm.nx_huge_pages", "0", "kvm.nx_huge_pages", False),
    ("kvm_intel.ple_gap", "0", "kvm-intel.ple_gap=0x0", True),
    ("processor.max_cstate", "1", "processor.max_cstate=01", True),
    ("skew_tick", "1", "skew_tick=0 skew_tick=1", True),
    ("nosoftlockup", "", "nosoftlockup=1", True),
    # Pages of a size: the count stands after it, the first counts.
    ("default_hugepagesz", "1G", "default_hugepagesz=1024M", True),
    ("default_hugepagesz", "1G", "default_hugepagesz=2M default_hugepagesz=1G", False),
    ("hugepagesz", "1G", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=512", True),
    ("hugepages", "4", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=512", True),
    ("hugepages", "4", "hugepagesz=2M hugepages=4", False),
    ("hugepages", "4", "default_hugepagesz=1G hugepages=4", True),
    ("hugepages", "4", "hugepages=4 default_hugepagesz=1G", True),
    ("hugepages", "4", "hugepagesz=1G hugepages=2 hugepagesz=1G hugepages=4", False),
    ("hugepages", "0:1,1:3", "hugepagesz=1g hugepages=1:3,0:1", True),
    ("none.of_ours", "b", "none.of-ours=a none.of_ours=b", True),
]


@pytest.mark.parametrize(("name", "wanted", "line", "found"), CASES)
def test_each_parameter_is_read_as_its_code_reads_it(name: str, wanted: str, line: str, found: bool) -> None:
    assert argument_setting(name, wanted).satisfied(read(parse_line(f"quiet {line} ro"), name, FOUR)) is found


def test_isolation_had_one_list_for_all_before_5_18() -> None:
    line = parse_line("isolcpus=1-3 nohz_full=2-3")
    assert read(line, "nohz_full", FOUR) == "2-3"
    assert read(line, "nohz_full", Reader(last_cpu=3, parts=False)) == ""


def test_a_kernel_without_nohz_full_hears_none_of_it() -> None:
    line = parse_line("nohz_full=1-3")
    assert read(line, "rcu_nocbs", Reader(last_cpu=3, tickless=False)) is None


def test_the_last_cpu_is_the_last_that_can_ever_be_there(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    make(tmp_path, {"/proc/cmdline": "irqaffinity=2-N"})
    assert BootLoader(tree).read("irqaffinity") == "2-3"
    make(tmp_path, {"/sys/devices/system/cpu/possible": "0-7"})
    assert BootLoader(tree).read("irqaffinity") == "2-7"
