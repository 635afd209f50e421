"""What all tests share: where programs are, what a test needs of the machine, and a check that nothing is left behind.

A test that needs something of the machine says so by a marker and is skipped with the reason where that is missing;
`pytest -ra` prints the reasons.  The leftover check runs once, when the session ends, and fails the session.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
from hypothesis import settings
from private_network import Network

from tailrace.resources.claims import holder
from tailrace.resources.hugepages import POOL, pool

# The machine may be busy with something else: how long an example takes is no fault.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

REPOSITORY = Path(__file__).resolve().parent.parent
SESSION = "TAILRACE_TEST_SESSION"
TEST_PREFIX = "tailrace-test-"
PROGRAMS = ("tailrace-", "dpdk-testpmd", "ovs-vswitchd", "ovsdb-server", "qemu-system-")

MARKERS = {
    "requires_root": "needs root: network namespaces, huge pages, sandboxes",
    "requires_hugepages": "reserves 2 MiB huge pages at run time, so it needs root and free memory",
    "requires_program(name, ...)": "needs these programs on the PATH, or built (tailrace-...)",
    "requires_first_pid_namespace": "needs the PID namespace that the kernel counts in, with its own threads",
    "sanitized": "run with the programs of build-asan, and only by `make test-long` with those of build too",
    "unsanitized": "about speed or memory, which the sanitizers change, or about the command alone",
    "whole": "only in `make test-long`",
}


def pytest_configure(config: pytest.Config) -> None:
    for name, text in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {text}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With programs of $TAILRACE_BINARIES only those tests run that take them from there."""
    if "TAILRACE_BINARIES" not in os.environ:
        return
    others = [each for each in items if "asan_binaries" in getattr(each, "fixturenames", ())]
    config.hook.pytest_deselected(items=others)
    items[:] = [each for each in items if each not in others]


def find_program(name: str, build: str = "build") -> Path | None:
    """A program: ours from the build folder, others from the PATH or Open vSwitch's own folder; None if missing."""
    if name.startswith("tailrace-"):
        return next(iter(sorted((REPOSITORY / build).glob(f"*/{name}"))), None)
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin:/usr/lib/openvswitch-switch-dpdk"
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def _in_first_pid_namespace() -> bool:
    """There the kernel's own threads have process 2 as their parent."""
    try:
        return Path("/proc/2/comm").read_text() == "kthreadd\n"
    except OSError:
        return False


def pytest_runtest_setup(item: pytest.Item) -> None:
    hugepages = item.get_closest_marker("requires_hugepages")
    if (item.get_closest_marker("requires_root") or hugepages) and os.geteuid() != 0:
        pytest.skip("needs root; `make test` runs these by sudo")
    pages = POOL / "nr_hugepages"
    if hugepages and not os.access(pages, os.W_OK):
        pytest.skip(f"needs huge pages, and {pages} cannot be written here")
    if item.get_closest_marker("requires_first_pid_namespace") and not _in_first_pid_namespace():
        pytest.skip("needs the machine's first PID namespace, and this is another one")
    for marker in item.iter_markers("requires_program"):
        for name in marker.args:
            if find_program(name) is None:
                pytest.skip(f"needs {name}; `make test` installs or builds it")


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The build folder, or $TAILRACE_BINARIES, with the programs in switch/, functions/, tester/ and bench/."""
    folder = Path(os.environ.get("TAILRACE_BINARIES", REPOSITORY / "build"))
    if not folder.is_dir():
        pytest.skip("the data plane is not built: scripts/setup build")
    return folder


@pytest.fixture(scope="session")
def asan_binaries() -> Path:
    """The same, built with the address and undefined-behaviour sanitizers."""
    folder = REPOSITORY / "build-asan"
    if not folder.is_dir():
        pytest.skip("the sanitizer build is missing: scripts/setup asan")
    return folder


@pytest.fixture(scope="session")
def tailrace() -> Path:
    """The command as a user runs it."""
    return REPOSITORY / ".venv/bin/tailrace"


@pytest.fixture
def network() -> Iterator[Network]:
    """A network namespace of the test's own."""
    network = Network()
    yield network
    network.end()


@dataclass(frozen=True)
class Belongings:
    """What Tailrace and the programs it starts can leave on a machine.

    `others` are such programs that somebody else runs beside us, told apart by the mark in their environment.
    """

    processes: frozenset[str]
    others: frozenset[str]
    sockets: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]
    """Our run folder, named network namespaces, and what DPDK makes for our programs."""
    interfaces: frozenset[str]
    hugepages: int

    @classmethod
    def now(cls) -> Belongings:
        folders = (Path("/run/tailrace"), Path("/run/tailrace-claims"), Path("/run/netns"))
        dpdk = [path for path in Path("/run/dpdk").glob("tailrace-*") if not path.name.startswith(TEST_PREFIX)]
        return cls(
            processes=frozenset(_processes(others=False)),
            others=frozenset(_processes(others=True)),
            sockets=frozenset(_sockets()),
            mounts=frozenset(
                line.split()[1]
                for line in Path("/proc/self/mounts").read_text().splitlines()
                if "tailrace" in line or line.split()[2] == "hugetlbfs"
            ),
            files=frozenset(str(path) for folder in folders for path in folder.rglob("*"))
            | {str(path) for path in dpdk},
            interfaces=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
            hugepages=pool().total,
        )


def _processes(*, others: bool) -> Iterator[str]:
    """Programs of ours that this session started, or that others did. A defunct one, which nobody reaps, is none."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z" and Path(command).name.startswith(PROGRAMS) and _of_session(folder) != others:
                yield f"{folder.name} {command}"
        except (OSError, IndexError):
            continue


def _of_session(folder: Path) -> bool:
    """Whether a process, by its folder in /proc, is of this session, whose mark it inherits. In a sandbox it has no
    environment at all, and then that of whoever has started it counts, if that one is still there."""
    mark = f"{SESSION}={os.environ.get(SESSION)}".encode()
    while folder.name not in ("0", "1"):
        environment = (folder / "environ").read_bytes().split(b"\0")
        if any(value.startswith((b"PATH=", b"HOME=")) for value in environment):
            return mark in environment
        folder = folder.with_name((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return True


def _sockets() -> Iterator[str]:
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        path = line.split(maxsplit=7)[7:]
        if path and "tailrace" in path[0]:
            yield path[0]


_WORKER = "@tailrace-worker-on-core-"


def _taken_cores() -> set[int]:
    """Those that a worker of a switch has, by its name (`tailrace.resources.claims`)."""
    return {int(path.removeprefix(_WORKER)) for path in _sockets() if path.startswith(_WORKER)}


def _what_it_does(process: int) -> str:
    """What is to be known of a process that does not end, and of its threads."""
    folder = Path(f"/proc/{process}")
    files = [folder / "cmdline", *sorted(folder.glob("task/*/stat")), *sorted(folder.glob("task/*/stack"))]
    found = []
    for file in files:
        with suppress(OSError):
            found.append(f"{file}: " + file.read_text(errors="replace").replace("\0", " ").strip())
    return "\n".join(found)


def _is_defunct(process: int) -> bool:
    """Its first thread has ended; another may still be in the kernel, and then its files are open."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


@pytest.fixture(autouse=True)
def cores_are_free_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """A switch that a test leaves has its core, and each test after it would fail: it is named, and ended."""
    before = _taken_cores()
    yield
    if request.path.parent.name == "unit":  # no switch is started there
        return
    deadline = time.monotonic() + 10
    while (left := _taken_cores() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    ours = {int(each.split()[0]) for each in _processes(others=False)}
    told = []
    for process in {found for core in left if (found := holder(core)) is not None}:
        if process in ours or _is_defunct(process):
            told.append(_what_it_does(process))
            os.kill(process, signal.SIGKILL)
    assert not told, "\n".join(["a switch is left that has a core:", *told])


def pytest_sessionstart(session: pytest.Session) -> None:
    os.environ[SESSION] = str(uuid.uuid4())
    session.config.stash[_before] = Belongings.now()


_before = pytest.StashKey[Belongings]()
_left = pytest.StashKey[list[str]]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    for folder in Path("/run/dpdk").glob(f"{TEST_PREFIX}*"):  # DPDK's, empty, of the programs that tests start
        with suppress(OSError):
            folder.rmdir()
    before, after = session.config.stash.get(_before, None), Belongings.now()
    if before is None:
        return
    if after.others or before.others:  # what is not a process cannot be told from theirs
        before, after = (replace(after, processes=then.processes) for then in (before, after))
    left = []
    for kind in fields(Belongings):
        was, now = getattr(before, kind.name), getattr(after, kind.name)
        if kind.name == "others":
            continue
        if isinstance(now, int):
            if now > was:
                left.append(f"{kind.name}: {was} before, {now} now")
        else:
            left += [f"{kind.name}: {thing}" for thing in sorted(now - was)]
    session.config.stash[_left] = left
    if left and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = config.stash.get(_left, [])
    if left:
        terminalreporter.section("left behind", red=True, bold=True)
        for line in left:
            terminalreporter.line(f"FAILED left behind: {line}")
