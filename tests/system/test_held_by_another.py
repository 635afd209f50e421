"""Two nodes on one machine: what the one holds is refused to the other, with its name, before anything is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clean_machine import clean
from running_node import Command, needs_a_node, wait_until

pytestmark = [*needs_a_node, pytest.mark.unsanitized]

TAP = f"trh{os.getpid()}"
FIRST = """\
fabric: {{idle: sleep}}
ports: {{wan: {{device: {{tap: {tap}}}}}, vm: {{path: {folder}/vm.sock}}}}
chains: {{v: [wan, vm]}}
"""
SECOND = """\
fabric: {{idle: sleep}}
ports:
  a: {a}
  b:
chains: {{v: [a, b]}}
"""


def test_an_interface_and_a_socket_that_another_node_holds(tailrace: Path, command: Command, tmp_path: Path) -> None:
    """`plan`, `up` and `apply` all name the holder; once it is down the other has them."""
    folder = command.folder_for_sockets()
    first, second = command.spec(FIRST.format(folder=folder, tap=TAP)), tmp_path / "second"
    second.mkdir()
    with clean(tailrace, second) as other:
        command("up", first)
        holder = f"{command.state} ({first}); use another, or end that node first"
        spec = other.spec(SECOND.format(a=f"{{device: {{if: {TAP}}}}}"))
        for words in ("plan", "up"):
            refused = other(words, spec, status=2).stderr
            assert f"3:3: ports.a: the interface {TAP} is held by wan of {holder}" in refused
        wait_until(lambda: not other.state.exists())
        other("up", other.spec(SECOND.format(a=""), "free.yaml"))
        spec = other.spec(SECOND.format(a=f"{{path: {folder}/vm.sock}}"))
        for words in ("plan", "apply"):
            refused = other(words, spec, status=2).stderr
            assert f"3:3: ports.a: the socket {folder}/vm.sock is held by vm of {holder}" in refused
        command("down")
        assert "a" in other("apply", spec).stdout
        other("down")
