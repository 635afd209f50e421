"""Where a function lives, as a spec words it, and what may be said of one there.

What is done there is `tailrace.functions.runtime`; a place has the same name in both.
"""

from __future__ import annotations

from dataclasses import dataclass

DISKS = (".qcow2", ".raw")
"""How disk images' names end (`tailrace.functions.disks`)."""
ELSEWHERE = {
    "image": "starts from none",
    "domain": "has none",
    "pages": "has pages of 2MiB",
    "migratable": "never moves",
    "latency": "has its CPUs from whoever runs it",
    "memory": "has its memory from whoever runs it",
    "restart": "is started by whoever runs it",
}
"""What a function has in the place of what may be said of one in some runtimes only."""
_STARTED = frozenset({"latency", "memory", "restart"})
"""What may be said of a function that Tailrace starts."""


@dataclass(frozen=True)
class Runtime:
    """A place where functions live."""

    words: frozenset[str] = frozenset()
    """What may be said of a function there, and not of every other; passthrough: of its interfaces."""
    started: bool = True
    """Tailrace starts it."""
    own_images: tuple[str, ...] = ()
    """How the names of images end that are the user's own, and not Tailrace's."""
    boots: bool = False
    """An image of the user's own is a disk that it boots from."""
    threads: bool = False
    """One of Tailrace's has a thread for each of its CPUs, and a queue for each."""


RUNTIMES = {
    "process": Runtime(_STARTED | {"passthrough"}, threads=True),
    "container": Runtime(_STARTED | {"image", "command"}, own_images=("",), threads=True),
    "machine": Runtime(
        _STARTED
        | {
            "image",
            "interface",
            "passthrough",
            "failover",
            "driver",
            "domain",
            "priority",
            "stacked",
            "pages",
            "migratable",
            "arrives",
        },
        own_images=DISKS,
        boots=True,
    ),
    "guest": Runtime(started=False),
}


def refusal(runs: str, word: str) -> str | None:
    """Why a word of `ELSEWHERE` cannot be said of a function that lives there; None if it can."""
    if word in RUNTIMES[runs].words:
        return None
    others = "` or `".join(name for name, each in RUNTIMES.items() if word in each.words)
    return f"{word}: a {runs} {ELSEWHERE[word]}; expected none, or `runs: {others}`"
