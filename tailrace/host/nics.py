"""`nic:NAME/WHAT`: queues and coalescing of a network card, by ethtool(8)."""

from __future__ import annotations

import errno
import re
import subprocess

from tailrace.process.programs import system_program
from tailrace.resources.tree import Tree

#: What can be set: the option that shows, the one that sets, the word that sets, and how the value is shown.
_WHAT = {
    "queues": ("-l", "-L", "combined", re.compile(r"Current hardware settings:.*?Combined:\s+(\d+)", re.DOTALL)),
    "adaptive-rx": ("-c", "-C", "adaptive-rx", re.compile(r"Adaptive RX:\s+(on|off)")),
    "rx-usecs": ("-c", "-C", "rx-usecs", re.compile(r"^rx-usecs:\s+(\d+)", re.MULTILINE)),
}


class Nics:
    """The network cards of the running machine; a copied one's cannot be asked."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        name, _, what = target.partition("/")
        if not self._tree.live:
            return None
        show, _, _, shown = _WHAT[what]
        done = self._ethtool(show, name)
        found = shown.search(done.stdout) if done.returncode == 0 else None
        return found[1] if found else None

    def write(self, target: str, value: str) -> None:
        name, _, what = target.partition("/")
        if not self._tree.live:
            raise OSError(1, "a copied machine's network cards cannot be set")
        _, set_, word, _ = _WHAT[what]
        done = self._ethtool(set_, name, word, value)
        if done.returncode != 0:
            raise OSError(95, done.stderr.strip() or "ethtool failed")

    @staticmethod
    def _ethtool(*words: str) -> subprocess.CompletedProcess[str]:
        command = [system_program("ethtool"), *words]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except subprocess.TimeoutExpired:
            raise OSError(errno.ETIMEDOUT, "ethtool has not ended within 10 s") from None
