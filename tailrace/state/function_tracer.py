"""The kernel's tracer of functions, armed for a measurement (measure/function_trace.py): how the kernel is put back."""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import Failure, Mistake
from tailrace.process.lock import Held, locked
from tailrace.process.plain import last_line
from tailrace.process.programs import finished, system_program

INSTANCE = "tailrace-functions"
"""Ours, where the kernel traces functions in instances too. Of this host each state folder has one, `instance_of()`."""
NOTES = ("functions", "functions.new", "functions.error", "functions.functions", "functions.taken")
"""In the state folder: what was set before, and files that are there only while it is armed."""


def _find(otherwise: str) -> str:
    return f"""\
t=/sys/kernel/tracing
[ -e $t/available_tracers ] || mount -t tracefs tracefs $t ||
	{{ {otherwise}echo 'tracefs cannot be mounted'; exit 1; }}
"""


FIND = _find("")
"""Shell: tracefs is `$t`."""
_FIND_ARMED = _find("[ -e $note ] || exit 0; ")
"""Without tracefs and without a note nothing was armed."""
BOOT = "$(cat /proc/sys/kernel/random/boot_id)"
"""Shell: this boot. A note of another one is of a kernel that is gone."""
FORGET = "rm -f $note $note.new $note.error $note.functions $note.taken"
DISARM = f"""\
# An older version's says no boot, and may be of this one.
if grep -q '^boot ' $note 2>/dev/null && ! grep -qx "boot {BOOT}" $note; then {FORGET} || exit 1; fi
{_FIND_ARMED}bad=0
d=$t/instances/$instance
if [ -d $d ]; then
	echo nop >$d/current_tracer || bad=1
	rmdir $d || bad=1
fi
if [ -e $note ]; then
	# It was armed where the whole kernel has one.
	if grep -q '^tracing_on ' $note; then
		echo 0 >$t/tracing_on || bad=1
		echo nop >$t/current_tracer || bad=1
		echo >$t/set_ftrace_filter || bad=1
		[ ! -e $t/snapshot ] || echo 0 >$t/snapshot || bad=1
		echo >$t/trace || bad=1
	fi
	while read -r name value; do
		case $name in
		tracing_on | tracing_cpumask | trace_clock | buffer_size_kb | options/funcgraph-abstime | \\
			options/funcgraph-proc | options/funcgraph-overhead | options/funcgraph-tail)
			echo "$value" >"$t/$name" || bad=1
			;;
		esac
	done <$note
fi
[ $bad != 0 ] || {FORGET} || bad=1
exit $bad
"""
"""Shell: what was armed with `$note` is put back."""
_SECONDS = 60.0
_LOCK = Path("/run/tailrace-functions.lock")
_PATIENCE = 2 * _SECONDS
"""Seconds that another node is waited for while it arms its tracer, or puts it back."""


def instance_of(folder: Path) -> str:
    """The name of the instance of who has that state folder."""
    return f"{INSTANCE}-{zlib.crc32(str(folder.resolve()).encode()):08x}"


def run_here(script: str, seconds: float = _SECONDS) -> str:
    """What a script prints that uses this host's tracefs, which nobody else sees mounted. Raises Failure."""
    done = finished([str(system_program("unshare")), "--mount", "sh", "-c", script], seconds)
    if done.returncode != 0:
        raise Failure(last_line(done.stdout, "") or last_line(done.stderr, f"status {done.returncode}"))
    return done.stdout


@contextmanager
def alone() -> Iterator[None]:
    """No other node arms this host's tracer in the block, or puts it back: each looks first what is set. Raises
    Failure, Mistake."""
    try:
        with locked(_LOCK, patience=_PATIENCE):
            yield
    except Held as error:
        raise Failure(f"{error} has been setting the kernel's tracer for {_PATIENCE:g} s; end it") from None
    except OSError as error:
        raise Failure(f"{_LOCK}: {error.strerror}; this lock protects the kernel's tracer of functions") from None


def disarming(note: str, instance: str) -> str:
    """The script after which a kernel's tracer is as it was before it was armed with that note. It fails where
    something cannot be put back; the note is kept then, and it may be run again."""
    return f"note={shlex.quote(note)}\ninstance={shlex.quote(instance)}\n{DISARM}"


def disarm_here(note: str, instance: str) -> str | None:
    """Does so on this host. Returns why it could not, or None."""
    try:
        with alone():
            run_here(disarming(note, instance))
    except (Failure, Mistake) as error:
        return f"the kernel's tracer of functions: {error}"
    return None
