"""The containers of an ordinary user: what podman needs for them on this host, and what of a limit it can set.

Ids in a container are subordinate ids of the user's (subuid(5)). Limits are of cgroups that the user may make: under
cgroup v1 there are none, under v2 systemd gives a user some controllers.
Sources: podman(1), "Rootless mode"; podman-run(1), --userns.
"""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

from tailrace.process.programs import find_system_program, podman

_IDS = ("/etc/subuid", "/etc/subgid")
_NAMESPACES = {"kernel.unprivileged_userns_clone": 1, "user.max_user_namespaces": 10000}
"""Whether an ordinary user may make user namespaces, the first of Debian's kernels alone; with what lets them."""


def rootless_lacks(root: Path = Path("/")) -> str | None:
    """What is missing for this user's own containers, with the cure; None: nothing that shows before one is started."""
    user = os.geteuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        return (
            f"user {user} has no name here, by which podman finds the ids for its containers; expected one with a name"
        )
    if find_system_program("newuidmap") is None:
        return "an ordinary user's containers need newuidmap; install it with `sudo apt-get install uidmap`"
    for file in _IDS:
        if not _has_ids(root / file.lstrip("/"), name, user):
            words = "--add-subuids 100000-165535 --add-subgids 100000-165535"
            return (
                f"{file} has no ids for containers of {name}; add some that nobody has: `sudo usermod {words} {name}`"
            )
    for setting, usual in _NAMESPACES.items():
        with suppress(OSError):  # not every kernel has either
            if (root / "proc/sys" / setting.replace(".", "/")).read_text().strip() == "0":
                return f"{setting} is 0, so only root starts containers; `sudo sysctl -w {setting}={usual}` lets others"
    return None


def _has_ids(file: Path, name: str, user: int) -> bool:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return False
    return any(line.split(":")[0] in (name, str(user)) for line in lines)


def limited() -> frozenset[str]:
    """The controllers by which podman can limit this user's containers: cpu, cpuset, memory, pids. Raises Failure."""
    return frozenset(podman("info", "--format", "{{range .Host.CgroupControllers}}{{.}} {{end}}").split())
