"""The exit codes of the command: docs/exit-codes.md and `tailrace --help` are made from this table.

`python -m tailrace.cli.exit_codes` writes the page.
"""

from __future__ import annotations

from pathlib import Path

from tailrace.errors import ExitCode

PATH = Path(__file__).parents[2] / "docs/exit-codes.md"


#: What a code means for some commands in particular.
_PARTICULAR = {
    "`plan`": "0: the spec is what is up. 3: it differs, or nothing is up.",
    "`apply`, `host apply`, `host undo`": "4: the answer was not yes. They ask if standard input is a terminal and "
    "`--yes` is missing.",
    "`host apply`": "2: kernel arguments would change, and there is neither a terminal nor `--yes`.",
    "`status`": "1: something that should run does not run.",
    "`host verify`, `host watch`": "1: something that was set has been changed, or has gone with a reboot.",
    "`down`, `host undo`": "1: something could not be undone; run it again.",
    "`measure ...`, `compare ...`, `demo`": "1: the run is not valid; its results so far are kept.",
    "`migrate`": "1: it failed; what became of the machine is said. 2: it cannot move, with all reasons; or "
    "`--cancel`, and no move of it is at work.",
    "`drain --all`": "1: not all could be moved; the reasons stand beside what stays.",
    "`report`": "1 or 2: a run could not be read; the others are shown.",
    "`capture`": "0: also when Ctrl-C ends it, which is its normal end.",
}
_HEAD = """\
# Exit codes

Every command of `tailrace` ends with one of these codes. Results go to standard output; an error is one line on
standard error.

| code | meaning |
| ---: | --- |
"""


_MIDDLE = """
## By command

| command | code |
| --- | --- |
"""


def lines() -> list[str]:
    """One line a code, for a terminal."""
    return [f"{code.value:>3}  {code.meaning}" for code in ExitCode]


def page() -> str:
    """docs/exit-codes.md."""
    codes = "".join(f"| {code.value} | {code.meaning} |\n" for code in ExitCode)
    particular = "".join(f"| {commands} | {text} |\n" for commands, text in _PARTICULAR.items())
    return f"{_HEAD}{codes}{_MIDDLE}{particular}"


if __name__ == "__main__":
    PATH.write_text(page())
