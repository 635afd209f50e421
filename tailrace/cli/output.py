"""How the command speaks: results on standard output, everything else on standard error; an error is a line.

Whatever is printed goes through here or through a `Screen`: neither lets out what a terminal obeys.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tailrace.errors import Declined, ExitCode, Interrupted, TailraceError
from tailrace.process.interrupt import put_off
from tailrace.process.plain import MOST_ERROR, PlainFormatter, plain, plain_lines

if TYPE_CHECKING:
    from rich.console import Console

    from tailrace.measure.session import Finished

DEBUG = "TAILRACE_DEBUG"
_MAYBE_UNSEEN = re.compile("[^\n -~]")
"""What JSON leaves as it is, and a terminal may not."""


def open_streams() -> None:
    """Gives each standard stream that is closed (`tailrace ... >&-`) to /dev/null: no file that is opened later gets
    its number, and with it what is meant for the user."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


COLOURS = ("auto", "always", "never")


def choose_voice(*, quiet: bool, verbose: int, colour: str) -> None:
    """How much is said on standard error, and in which colours; for the whole process, and for those that it starts.

    By Python's own logging: what is being done is INFO, each call of a daemon and each program's arguments are DEBUG, a
    note is WARNING. Colours by the variables that other programs know, too (no-color.org, force-color.org).
    """
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logger = logging.getLogger("tailrace")
    logger.setLevel(level)
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(PlainFormatter("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    if colour != "auto":
        os.environ.pop("NO_COLOR", None)
        os.environ.pop("FORCE_COLOR", None)
        os.environ["FORCE_COLOR" if colour == "always" else "NO_COLOR"] = "1"


def is_quiet() -> bool:
    return not logging.getLogger("tailrace").isEnabledFor(logging.WARNING)


def error_line(message: str) -> None:
    """One line on standard error."""
    with suppress(OSError):  # whom else to notify?
        sys.stderr.write(f"tailrace: {plain(message, MOST_ERROR)}\n")


@contextmanager
def telling(done: str) -> Iterator[None]:
    """For the block that reports what has been done: if standard output does not take it, a full disk or a reader that
    has gone, the work is no worse for that. It is said on standard error, and the exit status stays the work's."""
    lost: OSError | None
    try:
        yield
        lost = _flush()
    except OSError as error:
        lost = _flush() or error
    if lost is not None:
        error_line(f"standard output: {lost.strerror}; {done}")


def _flush() -> OSError | None:
    """Writes what is left for standard output. The error if it cannot be: then whatever comes after it is lost, too, so
    that Python does not try once more at its end."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def note(message: str) -> None:
    """A line for whoever watches, on standard error."""
    if not is_quiet():
        print(f"note: {plain(message)}", file=sys.stderr, flush=True)


def json_text(document: Any, indent: int | None = None) -> str:
    """As JSON, with letters as they are and everything else escaped."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return _MAYBE_UNSEEN.sub(lambda found: _escaped(found[0]), text)


def _escaped(letter: str) -> str:
    if letter.isprintable():
        return letter
    return json.dumps(letter)[1:-1] if letter != "\x7f" else "\\u007f"


def print_json(document: Any) -> None:
    sys.stdout.write(json_text(document, indent=1) + "\n")


def plain_console() -> Console:
    """For lines and tables of which nothing is coloured by what it looks like."""
    from tailrace.report.screen import Screen

    return Screen(highlight=False)


def wide_console() -> Console:
    """For tables and trees: as wide as the terminal, and as their longest line where there is none, so that a file or
    another program gets all of it."""
    from tailrace.report.screen import Screen

    return Screen() if sys.stdout.isatty() else Screen(width=10_000)


def print_line(text: str) -> None:
    """A line for people, or several, unwrapped and unstyled."""
    sys.stdout.write(plain_lines(text) + "\n")


def can_ask() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty()


def ask(question: str) -> None:
    """Asks for a yes, on standard error, so that --json prints nothing else. Raises Declined for any other answer."""
    sys.stderr.write(f"{plain(question)} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        sys.stderr.write("\n")
    if answer.strip().lower() not in ("y", "yes"):
        raise Declined("not confirmed; nothing was changed")


def outlives_terminal() -> bool:
    """Whether it was started to go on when its terminal is closed (`nohup tailrace ... &`)."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@contextmanager
def orderly() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: in order, with everything taken down."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not put_off(number, frame):
            raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}" if number != signal.SIGINT else "")

    signal.signal(signal.SIGTERM, interrupt)
    if not outlives_terminal():
        signal.signal(signal.SIGHUP, interrupt)
    # A parent that ignores Ctrl-C for its background jobs (sh -c 'tailrace ... &') does not mean us.
    signal.signal(signal.SIGINT, interrupt)
    yield


def run_command(call: Callable[[], int]) -> int:
    """The exit status of a command; each thing that is wrong becomes one line. Where the output goes to a reader that
    has gone (tailrace ... | head), there are no words to anybody."""
    status = _status_of(call)
    lost = _flush()
    if lost is not None and not isinstance(lost, BrokenPipeError):
        error_line(f"standard output: {lost.strerror}")
    return (
        status
        if lost is None
        else status or (ExitCode.NO_READER if isinstance(lost, BrokenPipeError) else ExitCode.FAILED)
    )


def _status_of(call: Callable[[], int]) -> int:
    try:
        with orderly():
            return call()
    except Interrupted as error:
        error_line(str(error))
        return ExitCode.INTERRUPTED
    except KeyboardInterrupt as error:
        error_line(str(error) or "interrupted by Ctrl-C")
        return ExitCode.INTERRUPTED
    except TailraceError as error:
        for line in error.lines:
            error_line(line)
        return error.exit_status
    except BrokenPipeError:
        _flush()
        return ExitCode.NO_READER
    except OSError as error:
        where = "standard output: " if _flush() and not error.filename else ""
        where = f"{error.filename}: " if error.filename else where
        error_line(f"{where}{error.strerror or error}")
        return ExitCode.FAILED
    except Exception as error:
        # A fault of Tailrace's own. A user is helped by one line; whoever mends it asks for the rest.
        if os.environ.get(DEBUG):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        error_line(
            f"internal error at {place}: {type(error).__name__}: {error}; "
            f"please report it with what {DEBUG}=1 shows, and run `tailrace down`"
        )
        return ExitCode.FAILED


def show_finished(finished: Finished, *, as_json: bool) -> int:
    """Shows a run's results and says where they are; returns the exit status."""
    with telling(f"the results are in {finished.folder}"):
        _show_run(finished, as_json=as_json)
    if finished.error is not None:
        count = len(finished.run.trials) + len(finished.run.findings) + len(finished.run.host_trials)
        kept = f"{count} result{'' if count == 1 else 's'}" if count else "no result"
        error_line(f"the run is not valid: {finished.error}; what was measured ({kept}) is in {finished.folder}")
        return finished.error.exit_status
    if not finished.run.valid:
        error_line(f"the run is not valid: {finished.run.reason}")
        return ExitCode.FAILED
    return ExitCode.DONE


def _show_run(finished: Finished, *, as_json: bool) -> None:
    # Not loaded by commands that measure nothing.
    from rich.text import Text

    from tailrace.report.screen import Screen
    from tailrace.report.table import print_run, print_summary

    if as_json:
        document = finished.run.model_dump(mode="json")
        print_json({**document, "folder": str(finished.folder)})
    elif finished.run.trials or finished.run.findings or finished.run.host_trials:
        console = Screen()
        shown = print_run if logging.getLogger("tailrace").isEnabledFor(logging.INFO) else print_summary
        shown(finished.run, console)
        console.print(Text(f"Report: {finished.report or finished.folder}"), soft_wrap=True)
