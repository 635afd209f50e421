"""One value somewhere on the machine: how it is read, compared, set and put back. What every knob comes down to.

A place is a text, so that a journal can keep it:

    file:PATH               a file of /sys or /proc
    argument:NAME           a kernel argument, in effect after a reboot (boot.py)
    thread:COMM             the CPUs that the kernel threads of this name may use
    controller:NAME         whether first-level groups have a cgroup controller (cgroups.py)
    priority:COMM           the real-time priority of the kernel threads of this name
    tasks:GROUP             the CPUs that tasks of a first-level cgroup may use (task_cpus.py)
    partition:FOLDER        a cpuset partition of isolated CPUs (cgroups.py)
    domains:FOLDER          the CPUs among which the scheduler balances (cgroups.py)
    cache:FOLDER            ways of the caches for some CPUs alone (resctrl.py)
    nic:NAME/WHAT           queues and coalescing of a network card (nics.py)
    pages:PATH              the file of a pool of huge pages, by count (page_pools.py)
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.host.page_pools import Pages
from tailrace.host.resctrl import Share
from tailrace.kernel.cpus import parse_list, parse_mask


class Form(enum.Enum):
    """How a value is written, so that two writings of one value are known to be the same."""

    TEXT = "text"
    NUMBER = "number"
    CHOICE = "choice"
    """`always [madvise] never`: the one in brackets counts."""
    CPU_LIST = "cpu-list"
    CPU_MASK = "cpu-mask"
    BOOLEAN = "boolean"
    """Yes or no in one of the kernel's spellings (kstrtobool): y, 1, on, n, 0, off."""
    WORDS = "words"
    """Words, of which more may be there than are wanted."""
    ISOLATION = "isolation"
    """`domain,managed_irq,1-3`: what CPUs are isolated from, of which more may be there than is wanted."""


SCHEMES = (
    "file", "argument", "thread", "controller", "priority", "tasks", "partition", "domains", "cache", "nic", "pages",
)  # fmt: skip
_CHOSEN = re.compile(r"\[([^\]]+)\]")
_OCTAL = re.compile(r"0[0-7]+")


def meaning(form: Form, text: str) -> object:
    """What a value says, comparable with ==. A value of another form is taken as it stands."""
    text = text.strip()
    try:
        match form:
            case Form.NUMBER:
                return int(text, 8 if _OCTAL.fullmatch(text) else 0)
            case Form.CPU_LIST:
                return parse_list(text)
            case Form.CPU_MASK:
                return parse_mask(text)
            case Form.CHOICE:
                found = _CHOSEN.search(text)
                return found[1] if found else text
            case Form.BOOLEAN:
                return _boolean(text)
            case Form.WORDS:
                return frozenset(text.split())
            case Form.ISOLATION:
                return frozenset(_isolation(text))
            case Form.TEXT:
                return text
    except ValueError:
        return text


def _boolean(text: str) -> bool:
    """Raises ValueError for what is neither."""
    for value, letters in ((True, "yYtT1"), (False, "nNfF0")):
        if text[:1] and text[0] in letters:
            return value
    if text[:1] in ("o", "O") and text[1:2] in ("n", "N", "f", "F"):
        return text[1] in "nN"
    raise ValueError(text)


def _isolation(text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What for, and which CPUs. Raises ValueError."""
    for part in text.split():
        *flags, first = part.split(",", part.count(",", 0, _first_digit(part)))
        for flag in flags or ["domain"]:  # as the kernel takes it
            yield flag, parse_list(first)


def _first_digit(text: str) -> int:
    return next((at for at, letter in enumerate(text) if letter.isdigit()), len(text))


def plain(form: Form, text: str) -> str:
    """What must be written to have this value again: the chosen word alone."""
    return str(meaning(form, text)) if form is Form.CHOICE else text.strip()


@dataclass(frozen=True)
class Setting:
    """A place and the value that is wanted there."""

    place: str
    wanted: str
    form: Form = Form.TEXT
    optional: bool = False
    """The kernel may refuse it here for good reason, such as an interrupt that it manages itself."""

    @property
    def scheme(self) -> str:
        return self.place.partition(":")[0]

    @property
    def target(self) -> str:
        return self.place.partition(":")[2]

    @property
    def in_file(self) -> bool:
        """Whether its target is a file of the kernel's, whose writers can be seen."""
        return self.scheme in ("file", "pages")

    def satisfied(self, text: str | None) -> bool:
        """Whether what was read says what is wanted."""
        if text is None:
            return False
        if self.scheme == "cache":
            return Share.parse(text).like(Share.parse(self.wanted))
        if self.scheme == "pages":
            return Pages.says(text, self.wanted)
        found, wanted = meaning(self.form, text), meaning(self.form, self.wanted)
        return found >= wanted if isinstance(found, frozenset) and isinstance(wanted, frozenset) else found == wanted
