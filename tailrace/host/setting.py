"""One value somewhere on the machine: how it is read, compared, set and put back. What every knob comes down to.

A place is a text, so that a journal can keep it:

    file:PATH               a file of /sys or /proc
    argument:NAME           a kernel argument, in effect after a reboot (boot.py)
    thread:COMM             the CPUs that the kernel threads of this name may use
    controller:NAME         whether first-level groups have a cgroup controller (groups.py)
    priority:COMM           the real-time priority of the kernel threads of this name
    partition:FOLDER        a cpuset partition of isolated CPUs (groups.py)
    domains:FOLDER          the CPUs among which the scheduler balances (groups.py)
    cache:FOLDER            ways of the caches for some CPUs alone (resctrl.py)
    nic:NAME/WHAT           queues and coalescing of a network card (nics.py)
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from tailrace.host.cpus import parse_list, parse_mask
from tailrace.host.resctrl import Share


class Form(enum.Enum):
    """How a value is written, so that two writings of one value are told to be the same."""

    TEXT = "text"
    NUMBER = "number"
    CHOICE = "choice"
    """`always [madvise] never`: the one in brackets counts."""
    CPU_LIST = "cpu-list"
    CPU_MASK = "cpu-mask"


SCHEMES = ("file", "argument", "thread", "controller", "priority", "partition", "domains", "cache", "nic")
_CHOSEN = re.compile(r"\[([^\]]+)\]")


def meaning(form: Form, text: str) -> object:
    """What a value says, comparable with ==. A value of another form is taken as it stands."""
    text = text.strip()
    try:
        match form:
            case Form.NUMBER:
                return int(text, 0)
            case Form.CPU_LIST:
                return parse_list(text)
            case Form.CPU_MASK:
                return parse_mask(text)
            case Form.CHOICE:
                found = _CHOSEN.search(text)
                return found[1] if found else text
            case Form.TEXT:
                return text
    except ValueError:
        return text


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

    def satisfied(self, text: str | None) -> bool:
        """Whether what was read says what is wanted."""
        if self.scheme == "cache" and text is not None:
            return Share.parse(text).like(Share.parse(self.wanted))
        return text is not None and meaning(self.form, text) == meaning(self.form, self.wanted)
