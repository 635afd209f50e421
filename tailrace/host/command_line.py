"""The kernel's command line, read as the kernel reads it: its words, and of a repeated one what counts.

Sources: Linux, lib/cmdline.c (next_arg), kernel/params.c (parse_args, parameq) and
Documentation/admin-guide/kernel-parameters.rst for the words; for each parameter the code that `PARAMETERS` names.
Logic without I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tailrace.host.setting import Form, meaning
from tailrace.kernel.cpus import parse_list, show_list

_SPACE = " \t\n\v\f\r"
_SIZE = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)([kKmMgGtTpPeE]?)")
_UNITS = "KMGTPE"
_PAGES = re.compile(r"\d+:\d+(,\d+:\d+)*")
_FLAG = re.compile(r"[A-Za-z_]+")
_YES_OR_NO = re.compile(r"[yYnNtTfF01]|[oO][nNfF]")


@dataclass(frozen=True)
class Argument:
    """One word of the line."""

    name: str
    """As it is written; the kernel takes a hyphen for an underscore."""
    value: str | None = None
    """None where it has no `=`."""

    @property
    def key(self) -> str:
        """The name that the kernel compares by."""
        return self.name.replace("-", "_")

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        quote = '"' if any(letter in _SPACE for letter in self.value) else ""
        return f"{self.name}={quote}{self.value}{quote}"


@dataclass(frozen=True)
class CommandLine:
    """A command line in its two parts."""

    arguments: tuple[Argument, ...]
    """The kernel's."""
    init: str = ""
    """What follows a lone `--`: words for the first process, which the kernel does not read."""

    def values(self, name: str) -> list[str | None]:
        """What a parameter is given, each time it is."""
        return [argument.value for argument in self.arguments if argument.key == name]


@dataclass(frozen=True)
class Reader:
    """Who reads the line: what the kernel's answer depends on beside the words."""

    last_cpu: int | None = None
    """The highest number that a CPU of the machine can have (`N`); None if nobody knows."""
    parts: bool = True
    """Whether each kind of isolation has a list of its own (Linux 5.18); all shared one before."""
    tickless: bool = True
    """Whether the kernel is built with CONFIG_NO_HZ_FULL."""


def parse_line(line: str) -> CommandLine:
    """The arguments of a command line: blanks between double quotes part nothing, be they around a value or around the
    whole argument; `--` ends the kernel's part."""
    found: list[Argument] = []
    at = _skip(line, 0)
    while at < len(line):
        argument, at = _next(line, at)
        if argument == Argument("--"):
            return CommandLine(tuple(found), line[at:].strip(_SPACE))
        found.append(argument)
    return CommandLine(tuple(found))


def _skip(line: str, at: int) -> int:
    while at < len(line) and line[at] in _SPACE:
        at += 1
    return at


def _next(line: str, start: int) -> tuple[Argument, int]:
    """The argument that begins there, and where the next one does."""
    quoted = line[start] == '"'
    start += quoted
    inside, equals, end = quoted, 0, start
    while end < len(line) and (inside or line[end] not in _SPACE):
        if line[end] == "=" and not equals and end > start:
            equals = end
        inside ^= line[end] == '"'
        end += 1
    name, value = line[start : equals or end], line[equals + 1 : end] if equals else None
    if value is not None and value.startswith('"'):
        value = value[1:].removesuffix('"')
    elif quoted:
        name, value = (name.removesuffix('"'), None) if value is None else (name, value.removesuffix('"'))
    return Argument(name, value), _skip(line, end)


def show_line(arguments: Iterable[Argument]) -> str:
    """Arguments as they stand on the line."""
    return " ".join(map(str, arguments))


def read(line: CommandLine, name: str, reader: Reader) -> str | None:
    """What a parameter comes to for the kernel, in one spelling; None if it is not given, or nothing valid is."""
    known = PARAMETERS.get(name)
    return known.read(line, name, reader) if known else _last(line, name, reader)


def _last(line: CommandLine, name: str, _: Reader) -> str | None:
    given = line.values(name)
    return (given[-1] or "") if given else None


def _flag(line: CommandLine, name: str, _: Reader) -> str | None:
    """Whatever follows the name, it is set."""
    return "" if line.values(name) else None


def _last_of(*words: str) -> Callable[[CommandLine, str, Reader], str | None]:
    """Of one of these words the last; others are not heard."""

    def reads(line: CommandLine, name: str, _: Reader) -> str | None:
        given = [value for value in line.values(name) if value in words]
        return given[-1] if given else None

    return reads


def _boolean(line: CommandLine, name: str, _: Reader) -> str | None:
    """The last that says yes or no (kstrtobool); without a value, yes."""
    given = ["1" if value is None else value for value in line.values(name)]
    valid = [value for value in given if _YES_OR_NO.match(value)]
    return valid[-1] if valid else given[-1] if given else None


def _on_unless_off(line: CommandLine, name: str, reader: Reader) -> str | None:
    """What is on where the line says nothing of it; without a value it says nothing."""
    given = tuple(argument for argument in line.arguments if argument.value is not None)
    return _boolean(CommandLine(given), name, reader) or "on"


def _off_by_word(line: CommandLine, name: str, _: Reader) -> str | None:
    """The last with a value counts: off if it is one of two words, else on, also if it is none of the known ones."""
    given = [value for value in line.values(name) if value is not None]
    return ("0" if given[-1].lower() == "off" or given[-1] == "0" else "1") if given else None


def _huge_page_mitigation(line: CommandLine, name: str, _: Reader) -> str | None:
    """The last that is a word of its own or says yes or no; with a value, as it takes no argument without one."""
    words = {"off": "0", "never": "0", "force": "1", "auto": "auto"}
    given = [words.get(value, value) for value in line.values(name) if value is not None]
    valid = [value for value in given if value == "auto" or _YES_OR_NO.match(value)]
    return valid[-1] if valid else None


def _passed_through(line: CommandLine, name: str, reader: Reader) -> str | None:
    """iommu, whose pt and nopt iommu.passthrough says in other words."""
    found = []
    for argument in line.arguments:
        passed = meaning(Form.BOOLEAN, argument.value or "") if argument.key == "iommu.passthrough" else None
        found.append(Argument(name, "pt" if passed else "nopt") if isinstance(passed, bool) else argument)
    return _all(("pt", "nopt", "off"), ("force", "noforce"), beats="off")(CommandLine(tuple(found)), name, reader)


def _all(
    *rivals: Sequence[str], comma: bool = True, beats: str | None = None
) -> Callable[[CommandLine, str, Reader], str | None]:
    """Words that add up. Of `rivals` the last one counts, but for one that `beats` the others whenever it comes."""

    def reads(line: CommandLine, name: str, _: Reader) -> str | None:
        given = [value for value in line.values(name) if value is not None]
        found: list[str] = []
        for word in [word for value in given for word in (value.split(",") if comma else [value])]:
            among = next((rival for rival in rivals if word in rival), ())
            if beats in among and beats in found:
                continue
            found = [*(each for each in found if each not in among and each != word), word]
        return " ".join(found) if given else None

    return reads


def _cpus(value: str, reader: Reader) -> tuple[int, ...] | None:
    """A list of CPUs; None if the kernel refuses it, as one with a CPU that the machine cannot have."""
    try:
        cpus = parse_list(value, last=reader.last_cpu)
    except ValueError:
        return None
    return None if cpus and reader.last_cpu is not None and cpus[-1] > reader.last_cpu else cpus


def _cpu_list(line: CommandLine, name: str, reader: Reader) -> str | None:
    given = line.values(name)
    if not given:
        return None
    cpus = _cpus(given[-1] or "", reader)
    return given[-1] if cpus is None else show_list(cpus)


def _callbacks(line: CommandLine, name: str, reader: Reader) -> str | None:
    """rcu_nocbs: the last list, or all CPUs if that is none, and those of nohz_full (rcu_init_nohz)."""
    given, tickless = line.values(name), _isolation(line, reader).get("nohz", ())
    if not given and not tickless:
        return None
    cpus = _cpus(given[-1] or "", reader) if given else ()
    if cpus is None:
        return "all"
    return show_list({*cpus, *tickless})


def _tickless(line: CommandLine, _: str, reader: Reader) -> str | None:
    if not line.values("nohz_full"):
        return None
    cpus = _isolation(line, reader).get("nohz")
    return show_list(cpus) if cpus else ""


def _isolated(line: CommandLine, name: str, reader: Reader) -> str | None:
    """`domain,managed_irq,1-3`: each list of CPUs, after what it is for."""
    if not line.values(name):
        return None
    flags: dict[tuple[int, ...], list[str]] = {}
    for flag, cpus in _isolation(line, reader).items():
        if flag != "nohz" or not line.values("nohz_full"):
            flags.setdefault(cpus, []).append(flag)
    return " ".join(",".join([*sorted(words), show_list(cpus)]) for cpus, words in flags.items())


def _isolation(line: CommandLine, reader: Reader) -> dict[str, tuple[int, ...]]:
    """The CPUs that isolcpus and nohz_full take away, by what for. Of each the first list counts; an argument with
    another one is dropped whole."""
    found: dict[str, tuple[int, ...]] = {}
    for argument in line.arguments:
        value = argument.value or ""
        if argument.key == "nohz_full" and reader.tickless:
            flags, cpus = {"nohz"}, _cpus(value, reader)
        elif argument.key == "isolcpus":
            words, rest = isolation_words(value)
            flags, cpus = words, None if rest is None else _cpus(rest, reader)
        else:
            continue
        if cpus and reader.last_cpu is not None and len(cpus) > reader.last_cpu:
            cpus = cpus[1:]  # the CPU that boots stays
        if not cpus or ("nohz" in flags and not reader.tickless):
            continue
        against = found.keys() & flags if reader.parts else found.keys()
        if all(found[flag] == cpus for flag in against):
            found |= dict.fromkeys(flags - found.keys(), cpus)
    return found


def isolation_words(value: str) -> tuple[set[str], str | None]:
    """What an isolcpus isolates from, and its list of CPUs; None for a list that the kernel does not come to."""
    flags: set[str] = set()
    while value[:1].isalpha():
        word, comma, value = value.partition(",")
        if not comma or not _FLAG.fullmatch(word):
            return set(), None
        if word in ("nohz", "domain", "managed_irq"):  # an unknown one is skipped
            flags.add(word)
    return flags or {"domain"}, value


def _size(text: str) -> str | None:
    """`1024M` → `1G` (memparse): in the largest unit that it is whole in; None if it is no size."""
    found = _SIZE.match(text)
    if not found:
        return None
    power = _UNITS.index(found[2].upper()) + 1 if found[2] else 0
    value = int(found[1], 16 if found[1][:2] in ("0x", "0X") else 8 if found[1][0] == "0" else 10) << 10 * power
    power = 0
    while value and value % 1024 == 0 and power < len(_UNITS):
        value, power = value // 1024, power + 1
    return f"{value}{_UNITS[power - 1] if power else ''}"


def _huge_pages(line: CommandLine) -> tuple[str | None, dict[str, str]]:
    """The default size of huge pages, and how many of each size: the first of a kind counts (mm/hugetlb.c). How many
    stands after the size; before any size, it is of the default one."""
    default: str | None = None
    sizes: dict[str, str | None] = {}
    unsized: str | None = None
    size: str | None = None
    heard = True
    for argument in line.arguments:
        value = argument.value or ""
        match argument.key:
            case "default_hugepagesz" if default is None:
                default = _size(value)
                heard = default is not None
                if default is not None and default not in sizes:
                    sizes[default], size = unsized, default
            case "hugepagesz":
                new = _size(value)
                heard = new is not None and (new not in sizes or (new == default and sizes[new] is None))
                if heard and new is not None:
                    size = new
                    sizes.setdefault(new, None)
            case "hugepages" if not heard:
                heard = True
            case "hugepages" if size is None:
                unsized = unsized or value
            case "hugepages":
                sizes[size or ""] = sizes[size or ""] or value
            case "default_hugepagesz":
                heard = False
    return default, {size: _counts(count or "") for size, count in sizes.items()}


def _counts(text: str) -> str:
    """`1:1,0:4` → `0:4,1:1`: how many pages, on which node where it says so."""
    if _PAGES.fullmatch(text):
        pairs = sorted(tuple(map(int, pair.split(":"))) for pair in text.split(","))
        return ",".join(f"{node}:{count}" for node, count in pairs)
    return str(int(text)) if text.isdecimal() and text.isascii() else text


GIB = "1G"
"""The one size of huge pages that Tailrace gives the kernel; hugepagesz and hugepages are read for it."""


def _page_size(line: CommandLine, _name: str, _reader: Reader) -> str | None:
    sizes = _huge_pages(line)[1]
    return GIB if GIB in sizes else next(reversed(sizes), None)


def _page_count(line: CommandLine, _name: str, _reader: Reader) -> str | None:
    return _huge_pages(line)[1].get(GIB)


@dataclass(frozen=True)
class Parameter:
    """How the kernel reads one parameter."""

    read: Callable[[CommandLine, str, Reader], str | None]
    form: Form = Form.TEXT
    first: bool = False
    """Whether the first value counts, and a later one is refused."""


#: The parameters that Tailrace gives, and the others of whom their reading depends.
PARAMETERS = {
    "isolcpus": Parameter(_isolated, Form.ISOLATION, first=True),  # kernel/sched/isolation.c
    "nohz_full": Parameter(_tickless, Form.CPU_LIST, first=True),
    "nohz": Parameter(_on_unless_off, Form.BOOLEAN),  # kernel/time/tick-sched.c
    "skew_tick": Parameter(_last, Form.NUMBER),
    "rcu_nocbs": Parameter(_callbacks, Form.CPU_LIST),  # kernel/rcu/tree_nocb.h
    "rcutree.kthread_prio": Parameter(_last, Form.NUMBER),
    "rcupdate.rcu_normal_after_boot": Parameter(_last, Form.NUMBER),
    "irqaffinity": Parameter(_cpu_list, Form.CPU_LIST),  # kernel/irq/irqdesc.c
    "tsc": Parameter(_all(("nowatchdog", "watchdog"), comma=False, beats="nowatchdog"), Form.WORDS),
    "nosoftlockup": Parameter(_flag),  # kernel/watchdog.c
    "nmi_watchdog": Parameter(_all(("0", "1"), ("panic", "nopanic")), Form.WORDS),
    "mce": Parameter(_all(("bootlog", "nobootlog"), comma=False), Form.WORDS),  # arch/x86/kernel/cpu/mce/core.c
    "audit": Parameter(_off_by_word, Form.BOOLEAN),  # kernel/audit.c
    "intel_pstate": Parameter(
        _all(("active", "passive", "disable"), comma=False, beats="disable"), Form.WORDS
    ),  # drivers/cpufreq/intel_pstate.c
    "amd_pstate": Parameter(_last_of("active", "passive", "disable", "guided")),
    "processor.max_cstate": Parameter(_last, Form.NUMBER),
    "intel_idle.max_cstate": Parameter(_last, Form.NUMBER),
    "idle": Parameter(_all(comma=False), Form.WORDS),  # arch/x86/kernel/process.c: poll is never taken back
    "default_hugepagesz": Parameter(lambda line, _name, _reader: _huge_pages(line)[0], first=True),
    "hugepagesz": Parameter(_page_size),
    "hugepages": Parameter(_page_count, first=True),
    "intel_iommu": Parameter(_all(("on", "off"), ("sm_on", "sm_off")), Form.WORDS),  # drivers/iommu/intel/iommu.c
    "iommu": Parameter(_passed_through, Form.WORDS),  # arch/x86/kernel/pci-dma.c; drivers/iommu/iommu.c
    "kvm.kvmclock_periodic_sync": Parameter(_boolean, Form.BOOLEAN),
    "kvm.nx_huge_pages": Parameter(_huge_page_mitigation, Form.BOOLEAN),  # arch/x86/kvm/mmu/mmu.c
    "kvm_intel.ple_gap": Parameter(_last, Form.NUMBER),
}


def insert(line: str, arguments: Iterable[Argument]) -> str:
    """A command line with more arguments at the end of the kernel's part."""
    at = _skip(line, 0)
    while at < len(line):
        argument, after = _next(line, at)
        if argument == Argument("--"):
            break
        at = after
    parts = (line[:at].strip(_SPACE), show_line(arguments), line[at:].strip(_SPACE))
    return " ".join(part for part in parts if part)
