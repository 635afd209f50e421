"""What in a state folder is Tailrace's: a mark says so, and only names that we give are removed.

Whoever names the folder may have named another by mistake (TAILRACE_STATE). So a folder gets a mark when it is made, or
before the first thing is written to it, which is refused where something lies at one of our names already. Without the
mark, or a record, nothing in it is removed. Nothing is removed by a link: folders are opened as what they are.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.state.folder import ENVIRONMENT, LOG, LOOK, OPERATE, RUN
from tailrace.state.function_tracer import NOTES

MARK = ".tailrace"
_RECORDS = ("state.json", "state.json.new")
_FILES = (*_RECORDS, "switch.page", "switch.page.new", "recorder.file", *NOTES)
_LOGS = (LOG, f"{LOG}.1")
TRACING_NOTE = "tracing.json"
"""What a measurement of the host has changed of the kernel's tracer: its own to remove (`measure/host/tracers.py`)."""
_CONTROLS = re.compile(r"(tester|tester-alone|neighbour-generator|.+-sender)\.control|(alone|floor)\.sock")
"""The sockets of measurements: of testers, and of who sends each side interrupts."""
_LOG_FILES = re.compile(r".+\.(log|log\.1|end|network|xml)")
"""What a function's or a daemon's log has beside it: how it ended, its inner network, its machine as it was started."""
_SWITCH_FILES = re.compile(r"switch\.(page|config)(\..+)?|(ovs\.db|\.ovs\.db\.~lock~|flows)(\..+)?|ovs-.+\.pid")
_PORT_FOLDERS = re.compile(r"link|.+\.\d+")

Kind = Callable[[int], bool]


def marked(folder: Path) -> bool:
    """Whether the folder has our mark: a file of this user's, and no link."""
    try:
        found = (folder / MARK).lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def mark(folder: Path) -> None:
    """Says that the folder is ours. Raises OSError."""
    os.close(os.open(folder / MARK, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def take(folder: Path, *, known: bool) -> None:
    """Marks a folder before anything is written to it. Unless it is `known` to be ours, by a record, it raises Mistake
    where something lies at one of our names that nothing says is ours. Raises OSError."""
    if marked(folder):
        return
    if not known:
        check(folder)
    mark(folder)


def check(folder: Path) -> None:
    """Raises Mistake where something lies at one of our names, in a folder that nothing says is ours."""
    if marked(folder):
        return
    for name in (*_FILES, "sockets", "logs", *_LOGS, TRACING_NOTE, OPERATE, LOOK):
        path = folder / name
        if os.path.lexists(path) and not (name in (OPERATE, LOOK) and stat.S_ISSOCK(path.lstat().st_mode)):
            raise Mistake(
                f"{path}: is there, and nothing says that it is Tailrace's; move it away, or set "
                f"{ENVIRONMENT} to another folder"
            )


def leave(folder: Path) -> None:
    """Removes the mark where nothing else of ours is left, and then the folder if it is empty."""
    with suppress(OSError):
        names = _names(folder)
        ours = {*_FILES, "sockets", "logs", "lock", RUN, OPERATE, LOOK, *_LOGS, TRACING_NOTE}
        if not any(name in ours or _CONTROLS.fullmatch(name) for name in names):
            (folder / MARK).unlink(missing_ok=True)
        folder.rmdir()


def forget_service(folder: Path, *, log: bool = True) -> None:
    """Removes what a service that has ended leaves in its folder, its log only if asked to; for who holds that."""
    _remove_in(folder, stat.S_ISSOCK, lambda name: name in (OPERATE, LOOK), [])
    if log and marked(folder):
        _remove_in(folder, stat.S_ISREG, lambda name: name in _LOGS, [])


def clear_sockets(folder: Path) -> list[str]:
    """Removes what is ours in the folder of sockets of a state folder, also what a record that was lost has left.
    Returns what could not be."""
    problems: list[str] = []
    sockets = folder / "sockets"
    _remove_in(sockets, stat.S_ISSOCK, lambda _: True, problems)
    _remove_in(sockets, stat.S_ISREG, lambda name: _SWITCH_FILES.fullmatch(name) is not None, problems)
    with _opened(sockets) as opened:
        if opened is None:
            return problems
        for name in _names(opened):
            if not _PORT_FOLDERS.fullmatch(name) or not stat.S_ISDIR(_mode(name, opened)):
                continue
            _remove_in(Path(name), stat.S_ISSOCK, lambda _: True, problems, within=opened)
            with suppress(OSError):
                os.rmdir(name, dir_fd=opened)
    return problems


def clear(folder: Path) -> list[str]:
    """Removes what is ours in a state folder; returns what could not be."""
    problems: list[str] = []
    _remove_in(folder / "logs", stat.S_ISREG, lambda name: _LOG_FILES.fullmatch(name) is not None, problems)
    _remove_in(folder / "logs", stat.S_ISSOCK, lambda _: True, problems)
    _remove_in(folder, stat.S_ISSOCK, lambda name: _CONTROLS.fullmatch(name) is not None, problems)
    problems += clear_sockets(folder)
    for name in ("logs", "sockets"):
        with suppress(OSError):  # stays unless it is empty
            (folder / name).rmdir()
    _remove_in(folder, stat.S_ISREG, lambda name: name in _FILES, problems)
    return problems


@contextmanager
def _opened(folder: Path, within: int | None = None) -> Iterator[int | None]:
    """A folder, open, or None: it is none, or a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(folder, flags, dir_fd=within)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _names(folder: Path | int) -> list[str]:
    with os.scandir(folder) as found:
        return [entry.name for entry in found]


def _mode(name: str, folder: int) -> int:
    """What a name in an open folder is; 0 if it has just gone."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _remove_in(
    folder: Path, kind: Kind, named: Callable[[str], bool], problems: list[str], within: int | None = None
) -> None:
    """Removes what has such a name and is of that kind, right in the folder."""
    with _opened(folder, within) as opened:
        if opened is None:
            return
        for name in _names(opened):
            if not named(name) or not kind(_mode(name, opened)):
                continue
            try:
                os.unlink(name, dir_fd=opened)
            except FileNotFoundError:
                pass
            except OSError as error:
                problems.append(f"{folder / name}: {error.strerror}")
