"""Who has a file locked, reported to whoever finds it so. The kernel knows: nothing is written down, so nothing is
left of a holder that was killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tailrace.process.plain import plain
from tailrace.process.process import identify

#: What runs as a module of Python's, and its name.
_MODULES = {"tailrace.node.service": "tailraced"}
_LONGEST_COMMAND = 120


def lock_holder(file: int | Path) -> int | None:
    """The process that has a lock (flock(2)) on an open file, or on one by its path; None where there is none, or it
    is not seen from here."""
    found = os.stat(file)  # noqa: PTH116 - of either
    name = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()  # 3: FLOCK ADVISORY WRITE 4711 00:1a:23456 0 EOF
        if fields[1] == "FLOCK" and fields[5] == name and int(fields[4]) > 0:
            return int(fields[4])
    return None


def described(pid: int) -> str | None:
    """A process in words: its number, its command, and since when it has run; None if it has ended."""
    process = identify(pid)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
        up = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return None
    if process is None:
        return None
    # Of `python3 /usr/bin/tailrace apply SPEC` what its user has typed.
    ours = next((place for place, word in enumerate(words) if word in _MODULES or Path(word).name == "tailrace"), 0)
    text = " ".join([_MODULES.get(words[ours], Path(words[ours]).name), *words[ours + 1 :]])
    shown = plain(text, _LONGEST_COMMAND)
    began = time.time() - up + process.start / os.sysconf("SC_CLK_TCK")
    return f"process {pid} (`{shown}`, since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(began))})"
