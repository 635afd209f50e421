"""What the switch may still do once it runs: as which user, with which capabilities."""

from __future__ import annotations

import os
import pwd
import stat
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tailrace.errors import Refused
from tailrace.kernel.acl import grant
from tailrace.state.folder import ENVIRONMENT
from tailrace.state.numbers import NUMBERS, in_use
from tailrace.state.record import Folder, State

#: What stands for no user where Linux takes a number (chown(2)).
_NOBODY_AT_ALL = (1 << 32) - 1


def confine(state: State, keep: Iterable[str], user: str | None) -> list[str]:
    """The options that have a switch give up what it does not need, and a folder that it may make sockets in.

    Started by root it becomes `user` ("NAME" or "UID:GID"; a number of its own if None). Nobody but that user and root
    can enter the folder of sockets, and the switch can write nowhere else. Where the state lies in somebody's private
    folder, no other user could reach its sockets: then the switch stays who it is, without capabilities. Raises Refused
    if that is not what was asked for.
    """
    kept = ",".join(keep)
    options = ["--keep", kept] if kept else []
    if user is not None:
        check_user(user, state.folder)
    elif os.geteuid() != 0 or closed_folder(state.folder) is not None:
        return options
    number = user_for(state.folder)
    options += ["--user", user or f"{number}:{number}"]
    owner = number if user is None else number_of(user)
    state.sockets.mkdir(exist_ok=True)
    # The group is root's: a sandbox is shown its own folders, and passes by none of the others.
    os.chown(state.sockets, owner, 0)
    state.sockets.chmod(0o710)
    return options


def make_folder(state: State, name: str, group: int | None = None) -> Path:
    """Makes a folder, on record, in which a guest makes the socket that the switch connects to, or the other way about.
    It is the switch's; who is in the `group`, that of the folder of sockets unless given, may make sockets there."""
    make_folders(state, {name: group})
    return state.sockets / name


def make_folders(state: State, groups: Mapping[str, int | None]) -> None:
    """Makes several, by name, each with its group; they are put on record at once."""
    folders = {name: Folder(str(state.sockets / name)) for name in groups}
    state.add(*folders.values())
    owner = state.sockets.stat()
    for name, group in groups.items():
        Path(folders[name].path).mkdir()
        folders[name].give(0o770, owner.st_uid, owner.st_gid if group is None else group)


def listening_at(state: State, name: str, group: int) -> Path:
    """Where a guest of a group makes the socket of a port, in a folder that is made for it; it may pass to there."""
    folder = make_folder(state, name, group)
    let_pass(state.sockets, group)
    return folder / "port.sock"


def group_for(state: State, function: str) -> int:
    """The number of the group of one function, and of the user that its machine is. It is no other's, so that no
    function can enter another's folder; but where the switch has no user of its own, that of the folder of sockets.
    Raises Failure."""
    if os.geteuid() != 0 or closed_folder(state.folder) is not None:
        return state.group
    mark = zlib.crc32(f"{state.folder.resolve()}/{function}".encode())
    return state.group_of(function, NUMBERS, mark % len(NUMBERS), lambda: {user_for(state.folder), *in_use()})


def let_pass(path: Path, group: int) -> None:
    """Lets a group pass through a folder of ours, and no more: for who cannot be given more groups than one."""
    grant(path, "group", group, 1)


def close_folder(path: Path) -> None:
    """The socket is there: a guest can put nothing else in its place or beside it."""
    Folder(str(path)).give(0o510)


def closed_folder(folder: Path) -> Path | None:
    """The folder that keeps others from entering this one: itself, or the nearest of those above. One that is still to
    be made will be open."""
    above = (folder.resolve(), *folder.resolve().parents)
    return next((path for path in above if path.exists() and not path.stat().st_mode & stat.S_IXOTH), None)


def check_user(user: str, folder: Path) -> None:
    """Whether a switch of this state folder can become a user ("NAME" or "UID:GID"). Raises Refused."""
    if number_of(user) == 0:
        raise Refused(f"fabric.user: {user!r} is root; expected another user, or none: then it has a number of its own")
    if os.geteuid() != 0:
        raise Refused("fabric.user: only root can have the switch become another user; run as root, or leave it out")
    closed = closed_folder(folder)
    if closed is not None:
        raise Refused(
            f"fabric.user: {user!r} could not reach the sockets in {folder}, because {closed} is closed to others; "
            f"set {ENVIRONMENT} to a folder that they may enter, such as /run/tailrace"
        )


def kept_user(folder: Path) -> str | None:
    """Why the switch of a state folder keeps root's number though no user is named, to be shown; None: it does not."""
    closed = closed_folder(folder)
    if os.geteuid() != 0 or closed is None:
        return None
    return (
        f"the switch stays root, though without capabilities: another user could not reach its sockets in {folder}, "
        f"because {closed} is closed to others; set {ENVIRONMENT} to a folder that they may enter"
    )


def number_of(user: str) -> int:
    """The number of "NAME" or "UID:GID". Raises Refused."""
    name, _, group = user.partition(":")
    if name.isdecimal():
        if max(int(name), int(group or 0)) >= _NOBODY_AT_ALL:
            raise Refused(f"fabric.user: {user!r} is out of range; expected numbers below {_NOBODY_AT_ALL}")
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Refused(f"fabric.user: no user {name!r}; 'useradd --system {name}' makes one") from None


def user_for(folder: Path) -> int:
    """The number of the user, and group, that the switch of this state folder becomes; another one for each folder."""
    return NUMBERS[zlib.crc32(str(folder.resolve()).encode()) % len(NUMBERS)]
