"""How the command speaks: results on standard output, everything else on standard error; errors are one line."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from tailrace.errors import Interrupted, TailraceError

if TYPE_CHECKING:
    from tailrace.measure.session import Finished

DEBUG = "TAILRACE_DEBUG"


def error_line(message: str) -> None:
    """One line on standard error."""
    text = " ".join(message.split("\n"))
    sys.stderr.write(f"tailrace: {text}\n")


def note(message: str) -> None:
    """A line for whoever watches, on standard error."""
    print(f"note: {message}", file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def wide_console() -> Console:
    """For tables and trees: as wide as the terminal, and as their longest line where there is none, so that a file or
    another program gets all of it."""
    return Console() if sys.stdout.isatty() else Console(width=10_000)


def print_line(text: str) -> None:
    """A line for people, unwrapped and unstyled."""
    sys.stdout.write(text + "\n")


@contextmanager
def orderly() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: in order, with everything taken down."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    # A parent that ignores Ctrl-C for its background jobs (sh -c 'tailrace ... &') does not mean us.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield


def run_command(call: Callable[[], int]) -> int:
    """The exit status of a command; every error becomes one line."""
    try:
        with orderly():
            return call()
    except Interrupted as error:
        error_line(str(error))
        return 130
    except KeyboardInterrupt as error:
        error_line(str(error) or "interrupted by Ctrl-C")
        return 130
    except TailraceError as error:
        error_line(str(error))
        return error.exit_status
    except BrokenPipeError:
        # The reader of our output has gone (tailrace ... | head): no words to anybody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        error_line(f"{where}{error.strerror or error}")
        return 1
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
        return 1


def show_finished(finished: Finished, *, as_json: bool) -> int:
    """Shows a run's results and says where they are; returns the exit status."""
    from tailrace.report.table import print_run  # not loaded by commands that measure nothing

    if as_json:
        document = finished.run.model_dump(mode="json")
        print_json({**document, "folder": str(finished.folder)})
    elif finished.run.trials or finished.run.findings or finished.run.host_trials:
        console = Console()
        print_run(finished.run, console)
        console.print(Text(f"Run folder: {finished.folder}"), soft_wrap=True)
        if finished.report is not None:
            console.print(Text(f"Report:     {finished.report}"), soft_wrap=True)
    if finished.error is not None:
        count = len(finished.run.trials) + len(finished.run.findings) + len(finished.run.host_trials)
        kept = f"{count} result{'' if count == 1 else 's'}" if count else "no result"
        error_line(f"the run is not valid: {finished.error}; what was measured ({kept}) is in {finished.folder}")
        return finished.error.exit_status
    if not finished.run.valid:
        error_line(f"the run is not valid: {finished.run.reason}")
        return 1
    return 0
