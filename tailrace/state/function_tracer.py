"""The kernel's tracer of functions, armed for a measurement (measure/function_trace.py): how the kernel is put back."""

from __future__ import annotations

import shlex

from tailrace.errors import Failure
from tailrace.process.plain import last_line
from tailrace.process.programs import finished, system_program

IN_TRACEFS = "instances/tailrace-functions"
"""Ours, where the kernel traces functions in instances too."""
FIND = """\
t=/sys/kernel/tracing
[ -e $t/available_tracers ] || mount -t tracefs tracefs $t || { echo 'tracefs cannot be mounted'; exit 1; }
"""
"""Shell: tracefs is `$t`."""
_DISARM = f"""\
if [ -d $t/{IN_TRACEFS} ]; then
	echo nop >$t/{IN_TRACEFS}/current_tracer
	rmdir $t/{IN_TRACEFS}
fi
if [ -e $note ]; then
	echo 0 >$t/tracing_on
	echo nop >$t/current_tracer
	echo >$t/set_ftrace_filter
	[ ! -e $t/snapshot ] || echo 0 >$t/snapshot
	echo >$t/trace
	while read -r name value; do echo "$value" >"$t/$name"; done <$note
	rm $note
fi
rm -f $note.new $note.error $note.functions
"""
_SECONDS = 60.0


def run_here(script: str) -> str:
    """What a script prints that uses this host's tracefs, which nobody else sees mounted. Raises Failure."""
    done = finished([str(system_program("unshare")), "--mount", "sh", "-c", script], _SECONDS)
    if done.returncode != 0:
        raise Failure(last_line(done.stdout, "") or last_line(done.stderr, f"status {done.returncode}"))
    return done.stdout


def disarming(note: str) -> str:
    """The script after which a kernel's tracer is as it was before it was armed with that note."""
    return f"note={shlex.quote(note)}\n{FIND}{_DISARM}"


def disarm_here(note: str) -> str | None:
    """Does so on this host. Returns why it could not, or None."""
    try:
        run_here(disarming(note))
    except Failure as error:
        return f"the kernel's tracer of functions: {error}"
    return None
