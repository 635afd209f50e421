"""What can go wrong, as a line for the person at the keyboard: what, where, what to do."""

from __future__ import annotations

import enum
from collections.abc import Sequence


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
    ExitCode.DONE: "done, or nothing to do; a check found everything right",
    ExitCode.FAILED: "failed, or a check found something wrong",
    ExitCode.MISTAKE: "refused: correct the command, the spec or the set-up first",
    ExitCode.DIFFERENT: "`plan`: the spec differs from what is up",
    ExitCode.DECLINED: "you did not answer yes; nothing was changed",
    ExitCode.INTERRUPTED: "ended by Ctrl-C, SIGTERM or SIGHUP, after cleaning up",
    ExitCode.NO_READER: "the reader of the output has closed it, as `head -1` does after a line",
}


class TailraceError(Exception):
    """An error that is shown as a line, or several where several things are wrong, and never as a traceback."""

    exit_status = ExitCode.FAILED

    @property
    def lines(self) -> Sequence[str]:
        """A line for each thing that is wrong."""
        return [str(self)]


class Mistake(TailraceError):
    """The user asked for something that cannot be: corrected by changing the request or the set-up."""

    exit_status = ExitCode.MISTAKE


class Refused(Mistake):
    """None of a configuration is taken: the message begins with the key at fault (`ports.wan: why`)."""


class Declined(TailraceError):
    """The user was asked and did not say yes: nothing was changed."""

    exit_status = ExitCode.DECLINED


class Failure(TailraceError):
    """What was asked for is sound, and doing it failed."""


class Fault(Failure):
    """Something that a measurement depends on broke while it ran, so what was measured is not valid."""


class Interrupted(TailraceError):
    """The user (or the system, with SIGTERM) asked for an end."""

    exit_status = ExitCode.INTERRUPTED
