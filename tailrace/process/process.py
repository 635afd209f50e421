"""Starting, naming and ending processes so that none is ever lost and none of somebody else's is ever touched.

A process is named by its pid and its start time (clock ticks since boot), because pids are used again. It is started
held: it waits, before it becomes the program, until its name is on record, so that a crash of this process at any
moment leaves either no process or one that `tailrace down` knows.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.errors import Failure

_log = logging.getLogger(__name__)
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class ProcessId:
    """A process for good: pid and start time together are never used twice while the machine runs."""

    pid: int
    start: int

    def alive(self) -> bool:
        """Whether it runs; one that has ended and was not yet reaped does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[1] == self.start and stat[0] not in "ZX"

    def stopped(self) -> bool:
        """Whether it stands still until somebody lets it go on (SIGSTOP)."""
        stat = _stat(self.pid)
        return stat is not None and stat == ("T", self.start)

    def signal(self, number: int) -> bool:
        """Sends a signal to this process and no other; False if it has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)

    def wait(self, seconds: float) -> bool:
        """Waits until it has ended, at most so long; returns whether it has."""
        deadline = time.monotonic() + seconds
        while self.alive():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                handle = os.pidfd_open(self.pid)
            except OSError:
                break
            try:
                poller = select.poll()
                poller.register(handle, select.POLLIN)
                poller.poll(max(1, min(left, 0.5) * 1000))
            finally:
                os.close(handle)
        reap(self.pid)
        return True


STOP_SECONDS = 2.0
"""In which a process that is told to stop stands still."""
RESUME_APART_SECONDS = 0.001
"""Between two processes that go on, for the one to be at work when the other is."""
UMASK_GUEST = 0
"""For a program that listens for the switch, which is another user: its sockets are open to who may enter their folder,
and nobody else may."""


@dataclass(frozen=True)
class Limits:
    """How a process is to run; each part is set before it becomes the program."""

    cpus: tuple[int, ...] = ()
    nice: int = 0
    """Added to the niceness; a negative one needs a privilege and is left out without it."""
    data_bytes: int | None = None
    """RLIMIT_DATA."""
    locked_bytes: int | None = None
    """RLIMIT_MEMLOCK."""
    memory_bytes: int | None = None
    """What all its processes may have together, where it is a unit of systemd's (units.py)."""
    cgroup: Path | None = None
    """The cgroup's folder to enter."""
    tied: bool = True
    """Dies with this process (SIGKILL from the kernel); otherwise it lives on by itself."""
    environment: dict[str, str] = field(default_factory=dict)
    umask: int | None = None
    """As this process has it unless said."""
    groups: tuple[int, ...] = ()
    """More groups that it is in, by number; only root can say so."""
    network: str | None = None
    """The network namespace to enter (ip-netns(8)); this process's own unless said."""


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time, from /proc/PID/stat (proc(5), fields 3 and 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads, those that have ended too; 0 if there is none of this pid."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def identify(pid: int) -> ProcessId | None:
    """The full name of a running process; None if there is none of this pid."""
    stat = _stat(pid)
    return ProcessId(pid, stat[1]) if stat is not None and stat[0] not in "ZX" else None


def reap(pid: int) -> int | None:
    """The wait status of a child that has ended; None if it is no child of ours or was reaped already."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        # A process whose first thread has ended looks dead before the others are; it can be reaped only after them.
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        poller.poll(1000)
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    finally:
        os.close(handle)
    return status if done == pid else None


def how_it_ended(status: int | None) -> str:
    """Words for a wait status: "killed by signal 9 (SIGKILL)", "ended with status 1"."""
    if status is None:
        return "ended"
    code = os.waitstatus_to_exitcode(status)
    # A sandbox that waits for its program reports its signal the way a shell does.
    if code > 128 and code - 128 in set(signal.Signals):
        code = 128 - code
    if code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with status {code}"


def descendants(pid: int) -> list[int]:
    """Children and their children, nearest first."""
    found: list[int] = []
    queue = [pid]
    while queue:
        parent = queue.pop(0)
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                children = [int(child) for child in (task / "children").read_text().split()]
            except OSError:
                continue
            found.extend(children)
            queue.extend(children)
    return found


def start(
    argv: Sequence[str],
    *,
    log: Path | int,
    limits: Limits,
    record: Callable[[ProcessId], None],
    keep: Iterable[int] = (),
    stdin: int | None = None,
) -> ProcessId:
    """Starts a program, its output appended to `log`, a file or a descriptor, and returns its name.

    `record` is called with the name while the process is still held; the program starts only when it returns.
    `keep` are descriptors that the program inherits, `stdin` the one that it reads; otherwise it reads nothing.
    Raises Failure if the program cannot be started.
    """
    if isinstance(log, int):
        log_fd = os.dup(log)
    else:
        log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    name_read, name_write = os.pipe()
    go_read, go_write = os.pipe()
    error_read, error_write = os.pipe()
    child = os.fork()  # which never writes what this process has not flushed: it becomes the program, or ends at once
    if child == 0:
        try:
            os.close(go_write)
            os.close(error_read)
            _become(list(argv), log_fd, name_write, go_read, error_write, limits, keep, stdin)
        finally:
            os._exit(127)
    for descriptor in (log_fd, name_write, go_read, error_write):
        os.close(descriptor)
    try:
        with os.fdopen(name_read, "rb") as stream:
            pid = int(stream.read() or b"0")
        name = identify(pid) if pid else None
        if name is None:
            raise Failure(f"{argv[0]}: could not be started")
        record(name)
        os.write(go_write, b"g")
        os.close(go_write)
        go_write = -1
        with os.fdopen(error_read, "rb") as stream:
            error_read = -1
            problem = stream.read().decode(errors="replace")
    finally:
        for descriptor in (go_write, error_read):
            if descriptor >= 0:
                os.close(descriptor)
        if not limits.tied:
            os.waitpid(child, 0)
    if problem:
        reap(pid)
        raise Failure(f"{argv[0]}: could not be started: {problem}")
    _log.info("started %s, pid %d", Path(argv[0]).name, name.pid)
    _log.debug("pid %d: %s", name.pid, shlex.join(argv))
    return name


def _become(
    argv: list[str],
    log_fd: int,
    name_fd: int,
    go_fd: int,
    error_fd: int,
    limits: Limits,
    keep: Iterable[int],
    stdin: int | None,
) -> None:
    """In the child: set everything, wait for the word, become the program. Never returns."""
    try:
        parent = os.getppid()
        os.setsid()  # the terminal's Ctrl-C is for the command, which then ends its processes in order
        if not limits.tied:
            # The parent must be gone before the program starts, so that --die-with-parent of a sandbox means
            # the process that lives on, not the command that started it.
            between = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.001)
        os.write(name_fd, str(os.getpid()).encode())
        os.close(name_fd)
        if os.read(go_fd, 1) != b"g":
            os._exit(1)
        if limits.tied:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # died just before: nobody will tell
                os._exit(1)
        _limit(limits)
        if limits.umask is not None:
            os.umask(limits.umask)
        os.dup2(os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        for descriptor in keep:
            os.set_inheritable(descriptor, True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvpe(argv[0], argv, {**os.environ, **limits.environment})
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        os.write(error_fd, f"{where}{error.strerror}".encode())
    except BaseException as error:
        os.write(error_fd, str(error).encode())
    os._exit(127)


def _limit(limits: Limits) -> None:
    import resource

    if limits.cgroup is not None:
        (limits.cgroup / "cgroup.procs").write_text("0")
    if limits.network is not None:
        namespace = os.open(f"/run/netns/{limits.network}", os.O_RDONLY | os.O_CLOEXEC)
        if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"/run/netns/{limits.network}")
    if limits.groups and os.geteuid() == 0:
        os.setgroups(sorted({*os.getgroups(), *limits.groups}))
    if limits.cpus:
        os.sched_setaffinity(0, limits.cpus)
    if limits.nice:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, limits.nice)
            # Where the kernel shares time among sessions first (sched_autogroup), only this is heard by the others.
            Path("/proc/self/autogroup").write_text(str(limits.nice))
    if limits.data_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limits.data_bytes, limits.data_bytes))
    if limits.locked_bytes is not None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limits.locked_bytes, limits.locked_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a terminal that is closed do not cut the block short: what it takes down is taken down."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    old = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def stopped(processes: Sequence[ProcessId]) -> Iterator[None]:
    """Processes, with those below them, stand still during the block (SIGSTOP); the last goes on first.

    What has ended is left out. Raises Failure where one does not stand still within STOP_SECONDS.
    """
    held: list[ProcessId] = []
    try:
        for process in processes:
            below = [found for pid in descendants(process.pid) if (found := identify(pid)) is not None]
            for each in (process, *below):
                held.append(each)  # before it is told, so that whatever happens it goes on
                each.signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while not all(_stands_still(each) for each in held):
            if time.monotonic() > deadline:
                raise Failure(f"processes {', '.join(str(each.pid) for each in held)} cannot be stopped")
            time.sleep(0.0005)
        yield
    finally:
        with undisturbed():
            for each in reversed(held):
                each.signal(signal.SIGCONT)
                time.sleep(RESUME_APART_SECONDS)


def _stands_still(process: ProcessId) -> bool:
    """Whether all its threads are stopped (proc(5): state T), or it has ended."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "TZX":
                    return False
    return True


def set_real_time(pid: int, priority: int) -> None:
    """Gives all threads of a process, and of those below it, a SCHED_FIFO priority. What has ended is left out.

    Only once a program runs: DPDK starts its threads one by one, and the first waits for each by sleeping so short a
    time that on some machines it never gives way to one of its own real-time priority.
    """
    for process in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(priority))


def real_time_refusal(priority: int) -> str | None:
    """Why this process may not use SCHED_FIFO (found by trying, in a child), or None if it may."""
    child = os.fork()
    if child == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == 0 else os.strerror(code)


def end(name: ProcessId, *, grace: float = 3.0) -> bool:
    """Ends a process: SIGTERM, then after `grace` seconds SIGKILL. Returns whether it is gone."""
    _log.info("ending pid %d", name.pid)
    if name.signal(signal.SIGTERM) and name.wait(grace):
        return True
    name.signal(signal.SIGKILL)
    return name.wait(5.0)
