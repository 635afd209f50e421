"""What is held by what is up in one state folder, as data; `tailrace.resources.ledger` keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.process.process import ProcessId
from tailrace.resources.single import card_of, nic_name, nic_words

_MOST_NAMES = 8
"""That are shown of who share something."""


@dataclass(frozen=True)
class Pages:
    """Huge pages that were added to a pool."""

    kib: int
    count: int
    node: int | None = None
    """None: to the machine's pool."""
    before: int | None = None
    """How many the pool had then, which tells them from others that were added; None: not said."""


@dataclass(frozen=True)
class Memory:
    """Ordinary memory of a node, none of it in huge pages."""

    node: int
    mib: int
    reserved: bool = False
    """Taken whole, and of this node alone, as a machine's is; otherwise what a limit lets its owner use at the most."""

    @property
    def words(self) -> str:
        return str(self.mib) if self.reserved else f"up to {self.mib}"


@dataclass(frozen=True)
class Part:
    """What one of those who share a claim has of it."""

    who: str
    """switch, tester, or as a spec has it: ports.wan, functions.fw."""
    nics: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    """Outside the state folder, by their real paths."""
    memory: tuple[Memory, ...] = ()
    exclusive: tuple[int, ...] = ()
    """CPUs that it polls on."""
    shared: tuple[int, ...] = ()
    """Those that it uses otherwise."""
    pages: tuple[Pages, ...] = ()
    """Huge pages that it uses, whoever has added them."""
    alone: bool = False
    """Nobody else is put on the CPUs that it polls on (latency high)."""

    @property
    def name(self) -> str:
        """Without its section."""
        return self.who.partition(".")[2] or self.who


@dataclass(frozen=True)
class Claim:
    """What is held by what is up in one state folder."""

    folder: str
    spec: str
    boot: str
    owner: ProcessId | None = None
    """The command that a measurement belongs to, which it ends with."""
    exclusive: tuple[int, ...] = ()
    """CPUs that are polled on."""
    shared: tuple[int, ...] = ()
    """CPUs of control threads and of what sleeps until it is notified."""
    pages: tuple[Pages, ...] = ()
    nics: tuple[str, ...] = ()
    """PCI addresses and interfaces."""
    ports: tuple[str, ...] = ()
    network: str = ""
    """The network namespace of its interfaces; empty: not said by the version that has written it."""
    parts: tuple[Part, ...] = ()
    """Who has what of it."""

    @property
    def words(self) -> str:
        return f"{self.folder} ({self.spec})" if self.spec else self.folder

    @property
    def alone(self) -> frozenset[int]:
        """CPUs that nobody else is put on."""
        return frozenset(cpu for part in self.parts if part.alone for cpu in part.exclusive)

    def on(self, cpu: int) -> str:
        """Who of them polls on a CPU, in words."""
        return self.whose(lambda part: cpu in part.exclusive)

    def singles(self) -> dict[str, tuple[str, str]]:
        """What only one can have, by one name each: what it is, in words, and who of them has it."""
        whose = {nic: part.who for part in self.parts for nic in part.nics}
        found = {nic_name(nic, self.network): (nic_words(nic), whose.get(nic, "")) for nic in self.nics}
        for part in self.parts:
            found |= {f"socket {path}": (f"the socket {path}", part.who) for path in part.sockets}
        return found

    def cards(self, tree: Tree) -> dict[str, tuple[str, str]]:
        """The cards that its interfaces are of, in the form of `singles`: nobody else can have one of these whole."""
        found = {}
        for part in self.parts or (Part("", self.nics),):
            for nic in part.nics:
                card = card_of(nic, self.network, tree)
                if card is not None:
                    found[card] = (nic_words(nic), part.who)
        return found

    def whose(self, has: Callable[[Part], object]) -> str:
        """Who of them has something, in words; the whole where that is not said."""
        names = [part.name for part in self.parts if has(part)]
        if not names:
            return self.words
        more = f" and {len(names) - _MOST_NAMES} others" if len(names) > _MOST_NAMES else ""
        return f"{', '.join(names[:_MOST_NAMES])}{more} of {self.words}"

    def reserved(self, node: int) -> int:
        """MiB of a node that all of them have reserved."""
        return sum(each.mib for part in self.parts for each in part.memory if each.node == node and each.reserved)

    @property
    def ending(self) -> str:
        """What makes it go."""
        if self.owner is not None:
            return f"wait for that measurement (process {self.owner.pid}) to end"
        return f"end that node first (`tailrace down`, with TAILRACE_STATE={self.folder})"

    def holds(self) -> bool:
        """Whether what has claimed it is still there."""
        alive = self.owner is None or self.owner.alive()
        return self.boot == boot_id() and alive and (Path(self.folder) / "state.json").exists()

    @property
    def owed(self) -> tuple[Pages, ...]:
        """The huge pages that are to be given back when what has added them is gone, whether it is on record or not."""
        return self.pages if self.boot == boot_id() else ()
