"""Who disciplines this host's clock by PTP: linuxptp's ptp4l, asked over its management socket (pmc(8))."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.process.programs import system_program

PTP4L, PMC = "ptp4l", "pmc"
_NTP = ("chronyd", "ntpd", "systemd-timesyn")
"""By the names that Linux has for them: 15 letters."""
_SOCKET, _DOMAIN = "/var/run/ptp4l", "0"
_MOST = 4
"""Instances of ptp4l that are asked."""
_SECONDS = 2.0
_SAID = re.compile(r"^\s*(master_offset|gmIdentity|portState)\s+(\S+)", re.MULTILINE)
_FOLLOWS = "SLAVE"
"""The state of a port that follows a master, once its servo is locked."""


@dataclass(frozen=True)
class Ptp:
    """What one ptp4l says."""

    master: str = ""
    """The grandmaster's identity; empty: it follows none."""
    offset_ns: int = 0
    """From the master, when it was last measured."""


def programs(proc: Path = Path("/proc")) -> dict[int, str]:
    """Who may discipline a clock, by process."""
    found: dict[int, str] = {}
    for comm in proc.glob("[0-9]*/comm"):
        try:
            name = comm.read_text().strip()
        except OSError:  # it has ended
            continue
        if name in (PTP4L, "phc2sys", *_NTP):
            found[int(comm.parent.name)] = name
    return dict(sorted(found.items()))


def settings_of(words: Sequence[str], folder: Path) -> dict[str, str]:
    """The management socket and the domain that a ptp4l with this command line has, started in this folder."""
    told: dict[str, str] = {}
    files: list[str] = []
    rest = iter(words)
    for word in rest:
        name, is_there, value = word.partition("=")
        if word == "-f":
            files.append(next(rest, ""))
        elif word.startswith("-f"):
            files.append(word[2:])
        elif name in ("--uds_address", "--domainNumber"):
            told[name[2:]] = value if is_there else next(rest, "")
    kept = {"uds_address": _SOCKET, "domainNumber": _DOMAIN}
    for file in files:
        try:
            text = (folder / file).read_text(errors="replace")
        except OSError:
            continue
        kept |= dict(re.findall(r"^\s*(uds_address|domainNumber)\s+(\S+)", text, re.MULTILINE))
    return kept | told


def parse(said: str) -> Ptp:
    """What pmc has written of one ptp4l."""
    found = _SAID.findall(said)
    facts = dict(found)
    if (_FOLLOWS not in (value for name, value in found if name == "portState")) or "gmIdentity" not in facts:
        return Ptp()
    offset = facts.get("master_offset", "")
    return Ptp(facts["gmIdentity"][:64], int(offset) if re.fullmatch(r"-?\d{1,18}", offset) else 0)


def _ask(pid: int) -> Ptp:
    """Raises OSError, SubprocessError, Mistake where there is no pmc."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    has = settings_of(words[1:], Path(f"/proc/{pid}/cwd").resolve())
    argv = [system_program(PMC), "-u", "-b", "0", "-s", has["uds_address"], "-d", has["domainNumber"]]
    argv += ["GET TIME_STATUS_NP", "GET PORT_DATA_SET"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace")
    return parse(done.stdout)


def _answers(found: dict[int, str]) -> Iterator[Ptp]:
    for pid in [pid for pid, name in found.items() if name == PTP4L][:_MOST]:
        try:
            yield _ask(pid)
        except (OSError, subprocess.SubprocessError, Mistake):
            continue


def ptp(found: dict[int, str]) -> Ptp | None:
    """The ptp4l among these that follows a master, or one that follows none; None: none answers."""
    answers = list(_answers(found))
    return next((each for each in answers if each.master), answers[0] if answers else None)
