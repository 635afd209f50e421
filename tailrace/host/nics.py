"""`nic:NAME/WHAT`: queues and coalescing of a network card."""

from __future__ import annotations

import errno

from tailrace.errors import Failure
from tailrace.kernel.tree import Tree
from tailrace.process.programs import Late
from tailrace.resources.ethtool import read_setting, write_setting


class Nics:
    """The network cards of the running machine; a copied one's cannot be asked."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        name, _, what = target.partition("/")
        if not self._tree.live:
            return None
        try:
            return read_setting(name, what)
        except Late as error:
            raise _late(error) from None
        except Failure:
            return None

    def write(self, target: str, value: str) -> None:
        name, _, what = target.partition("/")
        if not self._tree.live:
            raise OSError(errno.EPERM, "a copied machine's network cards cannot be set")
        try:
            write_setting(name, what, value)
        except Late as error:
            raise _late(error) from None
        except Failure as error:
            raise OSError(errno.EOPNOTSUPP, str(error)) from None


def _late(error: Late) -> OSError:
    return OSError(errno.ETIMEDOUT, str(error))
