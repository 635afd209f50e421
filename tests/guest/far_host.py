"""Two nodes that are to each other what two hosts are: a network namespace for each, a cable between these, and an ssh
server at the second one. The first one's ssh has settings of the test's own, in its mount namespace.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from private_network import Network
from two_nodes import Node, two_nodes

from tailrace.process.programs import system_program

CABLE = "hosts"
"""The interface between them, at either one."""
NEAR, FAR = "198.51.100.1", "198.51.100.2"
HOST = "far"
"""What the first one's ssh calls the second one."""
_CLIENT = """\
Host {HOST} {FAR}
    HostName {FAR}
    User root
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
"""
_SERVER = """\
Port 22
ListenAddress {FAR}
HostKey {folder}/host
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AuthorizedKeysFile {folder}/authorized_keys
"""
_START = """\
set -e
mkdir -p {folder}{own} {folder}/run/sshd
mount --rbind {own} {folder}{own}
ln -sfn {state} {folder}/run/tailrace
mount --rbind {folder}/run /run
mount --bind {folder}/shadow /etc/shadow
exec {sshd} -D -e -f {folder}/sshd_config
"""
"""In a mount namespace of its own: root's node is in /run/tailrace there, and root is not locked."""


class FarHost:
    """The second node as the first one's ssh has it."""

    def __init__(self, near: Node, node: Node) -> None:
        self.node, self._folder = node, node.folder / "ssh"
        (self._folder / "etc").mkdir(parents=True)
        (self._folder / "etc/far.conf").write_text(_CLIENT.format(HOST=HOST, FAR=FAR, folder=self._folder))
        (self._folder / "shadow").write_text("root:*:20000:0:99999:7:::\n")
        for name in ("key", "host"):
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name)]
            subprocess.run(made, check=True, timeout=60)
        mount = ["mount", "--bind", str(self._folder / "etc"), "/etc/ssh/ssh_config.d"]
        subprocess.run([*near.within, *mount], check=True, timeout=60)
        self._server: subprocess.Popen[str] | None = None

    def listen(self) -> None:
        """Starts its ssh server; returns when that listens."""
        (self._folder / "sshd_config").write_text(_SERVER.format(folder=self._folder, FAR=FAR))
        script = _START.format(
            folder=self._folder, own=self.node.folder, state=self.node.state, sshd=system_program("sshd")
        )
        self._server = subprocess.Popen(
            [*self.node.within, "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._server.stderr is not None
        said = self._server.stderr.readline()
        assert "Server listening on" in said, said + self._server.stderr.read()

    def become_known(self) -> None:
        """Has the first one's ssh know its key."""
        (self._folder / "known_hosts").write_text(f"{FAR} {(self._folder / 'host.pub').read_text()}")

    def let_in(self) -> None:
        """Has its server accept the first one's key."""
        (self._folder / "authorized_keys").write_bytes((self._folder / "key.pub").read_bytes())

    def end(self) -> None:
        """Of its server; what serves a connection ends with that."""
        if self._server is not None:
            self._server.kill()
            self._server.communicate(timeout=60)


@contextmanager
def two_hosts(tailrace: Path) -> Iterator[tuple[Node, Node, FarHost]]:
    """Both, with nothing up, and how the first one reaches the second one."""
    networks = [Network(), Network()]
    try:
        networks[0].reach(CABLE, networks[1], CABLE)
        for network, address in zip(networks, (NEAR, FAR), strict=True):
            network.run("ip", "address", "add", f"{address}/24", "dev", CABLE)
        with two_nodes(tailrace, *networks) as (near, node):
            far = FarHost(near, node)
            try:
                yield near, node, far
            finally:
                far.end()
    finally:
        for network in networks:
            network.end()
