"""What of a node can be found where its record is lost or damaged: the programs that were started with paths of its
state folder, their cgroups, the huge pages that its claim names, and a tracer of the kernel's that it has armed."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

from tailrace.errors import Failure
from tailrace.process import log_writer
from tailrace.process.process import descendants, identify
from tailrace.resources.ledger import claim_file, own_claim
from tailrace.state.folder import run_folder
from tailrace.state.function_tracer import NOTES, instance_of
from tailrace.state.ours import marked
from tailrace.state.record import ArmedTracer, Cgroup, Claimed, HugePages, Process, Scope, Thing

#: The word after which a program of ours is told what it makes in the folder; nobody else has reason to say that.
_MAKES = {"tailrace-switch": "--control", "tailrace-tester": "--control", "bwrap": "--bind"}
_WRITER = Path(log_writer.__file__).stem
_CGROUPS = Path("/sys/fs/cgroup")
_OURS = re.compile(r"tailrace-\d+[-.]")
"""Names of cgroups that a command has made: with its process's id."""


def strays(folder: Path) -> list[Thing]:
    """What runs of a state folder, in the order of its start: what is undone last comes first."""
    found: dict[int, Process] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        name = _name(entry, folder)
        process = identify(int(entry.name)) if name is not None else None
        if name is not None and process is not None:
            found[process.pid] = Process(name, process.pid, process.start, name)
    for pid in list(found):
        for below in descendants(pid):  # a sandbox is two processes, of which the outer one is ended
            found.pop(below, None)
    # Who writes a log ends after the program, however late it was started.
    processes = sorted(found.values(), key=lambda each: (each.name != _WRITER, each.start, each.pid))
    cgroups = {cgroup: None for process in processes if (cgroup := _cgroup(process.pid)) is not None}
    claim = claim_file(folder)
    claimed = [Claimed(str(claim))] if claim.exists() else []
    armed = marked(folder) and any((folder / name).exists() for name in NOTES)
    tracers = [ArmedTracer(str(folder / NOTES[0]), instance_of(folder))] if armed else []
    return [*claimed, *lost_pages(folder), *tracers, *cgroups, *processes]


def beside_record(folder: Path, things: Collection[Thing]) -> list[Thing]:
    """What there is of a folder beside what is on record, as where that is lost, or an older one was put back."""
    known = [each for each in things if isinstance(each, Process)]
    found = [each for each in strays(folder) if each not in things]
    if not known:
        return found
    started = {pid for each in known for pid in (each.pid, *descendants(each.pid))}
    # Who writes the log of what is on record may not be there itself (`tailrace.process.units`), and ends after that.
    programs = [each for each in found if isinstance(each, Process) and each.name != _WRITER]
    more = [each for each in programs if each.pid not in started]
    return [*(cgroup for each in more if (cgroup := _cgroup(each.pid)) is not None), *more]


def lost_pages(folder: Path) -> list[HugePages]:
    """The huge pages that were added for a folder, as its claim says: to be given back where no record says so."""
    claim = own_claim(folder)
    file = str(claim_file(folder))
    return [
        HugePages(each.before or 0, each.count, there=True, node=each.node, kib=each.kib, claim=file)
        for each in (claim.owed if claim is not None else ())
        if each.count
    ]


def check_no_strays(folder: Path) -> None:
    """Raises Failure where something runs of a folder on whose record there is nothing."""
    names = [f"{thing.name}, process {thing.pid}" for thing in strays(folder) if isinstance(thing, Process)]
    if names:
        raise Failure(
            f"{folder}: the record of what is up is lost, and some of it runs ({'; '.join(names)}); "
            "`tailrace down` ends what can be found of it"
        )


def _name(entry: Path, folder: Path) -> str | None:
    """Which program of the folder's a process is; None if it is none."""
    try:
        words = (entry / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    if log_writer.__file__ in words and any(_in(word, folder) for word in words):
        return _WRITER
    name = Path(words[0]).name
    makes = [after for word, after in pairwise(words) if word == _MAKES.get(name)]
    return name if any(_in(path, folder) for path in makes) else None


def _in(path: str, folder: Path) -> bool:
    """Whether a path is in a folder, and not in that of the measurement that may be at work beside it."""
    return path.startswith(f"{folder}/") and not path.startswith(f"{run_folder(folder)}/")


def _cgroup(pid: int) -> Cgroup | Scope | None:
    """The cgroup that was made for a process, which is where only ours are: by its name."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        name = Path(path).name
        if name.endswith(".service"):  # which goes with its last process
            continue
        if _OURS.match(name) and controllers in ("", "memory"):
            if name.endswith(".scope"):
                return Scope(name, "")
            return Cgroup(str(_CGROUPS / controllers / path.lstrip("/")))
    return None
