"""The exit codes of the command, all of them: docs/exit-codes.md and `tailrace --help` are made of this table.

`python -m tailrace.exit_codes` writes the page.
"""

from __future__ import annotations

import enum
from pathlib import Path

PATH = Path(__file__).parents[1] / "docs/exit-codes.md"


class ExitCode(enum.IntEnum):
    """What a command's end means."""

    DONE = 0
    FAILED = 1
    MISTAKE = 2
    DIFFERENT = 3
    DECLINED = 4
    INTERRUPTED = 130
    NO_READER = 141

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done, or nothing was to be done; what was looked at is as it should be",
    ExitCode.FAILED: "doing it failed, or what was looked at is not as it should be",
    ExitCode.MISTAKE: "refused: the command, a spec or the set-up has to be corrected first",
    ExitCode.DIFFERENT: "`plan`: the spec asks for something else than what is up",
    ExitCode.DECLINED: "you were asked and did not say yes: nothing was changed",
    ExitCode.INTERRUPTED: "ended by Ctrl-C, SIGTERM or SIGHUP, in order",
    ExitCode.NO_READER: "the reader of the output has gone, as `head -1` does after a line",
}
#: What a code means for some commands in particular.
_PARTICULAR = {
    "`plan`": "0: what is up is what the spec asks for. 3: it is not, or nothing is up.",
    "`apply`, `host apply`, `host undo`": "4: the answer was not yes. They ask if standard input is a terminal and "
    "`--yes` is not given.",
    "`host apply`": "2: kernel arguments are to be changed, and there is neither a terminal nor `--yes`.",
    "`status`": "1: something that should run does not.",
    "`host verify`, `host watch`": "1: something that was set has been changed since, or has gone with a reboot.",
    "`down`, `host undo`": "1: not everything could be undone; call it again.",
    "`measure ...`, `compare ...`, `demo`": "1: the run is not valid; what was measured until then is kept.",
    "`report`": "1 or 2: a run could not be read; the others are shown.",
    "`capture`": "0: also when Ctrl-C ends it, which is how it is meant to end.",
}
_HEAD = """\
# Exit codes

All commands of `tailrace` end with one of these:

| code | meaning |
| ---: | --- |
"""


_MIDDLE = """
Of some commands in particular:

| command | code |
| --- | --- |
"""
_END = """
Errors are one line on standard error; results go to standard output.
"""


def lines() -> list[str]:
    """One line a code, for a terminal."""
    return [f"{code.value:>3}  {code.meaning}" for code in ExitCode]


def page() -> str:
    """docs/exit-codes.md."""
    codes = "".join(f"| {code.value} | {code.meaning} |\n" for code in ExitCode)
    particular = "".join(f"| {commands} | {text} |\n" for commands, text in _PARTICULAR.items())
    return f"{_HEAD}{codes}{_MIDDLE}{particular}{_END}"


if __name__ == "__main__":
    PATH.write_text(page())
