"""Which functions of a kernel an interrupt went through, by its own tracer (ftrace's function_graph): of this host's
kernel, or of a machine's.

The tracer runs all the while, on the receiver's CPU, and overwrites its oldest lines. When the slowest interrupt so far
is found, the lines are set aside (a snapshot; where the kernel has none, the tracer stands still until they are read)
and those of its time are read. On both sides it is the same shell script. It takes few functions of the kernel's
thousands: those between an interrupt and the thread that waits for it. The clock is the TSC, to 1000 cycles, because
the kernel prints times of these lines so.

A machine is not trusted: what it says is read within bounds. Of this host's kernel all is put back afterwards.

Source: Linux, Documentation/trace/ftrace.rst.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tailrace.errors import Failure, Mistake
from tailrace.functions import agent
from tailrace.kernel.cpus import show_mask
from tailrace.observe.recording import Event
from tailrace.process.plain import plain
from tailrace.state.function_tracer import (
    BOOT,
    DISARM,
    FIND,
    FORGET,
    INSTANCE,
    NOTES,
    alone,
    disarming,
    instance_of,
    run_here,
)
from tailrace.state.launch import Launcher
from tailrace.state.record import ArmedTracer

FUNCTION = "function"
"""The kind of its events: `id` is the thread, `extra` how deep it was called."""
MOST_LINES = 1500
"""Of one interrupt, each 120 letters at most: what a machine's agent has to say through its serial port."""
MOST_DEPTH = 50
RESOLUTION = 1000
"""Cycles to which a line says its time."""
FUNCTIONS = (
    # An interrupt comes, is handled, and is over.
    "common_interrupt", "sysvec_.*", "handle_(edge|fasteoi|level)_irq", "handle_irq_event", "irq_enter_rcu",
    "irq_exit_rcu", "hrtimer_interrupt", "update_process_times", "(sched|scheduler)_tick",
    "sched_ttwu_pending", "flush_smp_call_function_queue", "vfio_msihandler", "vring_interrupt",
    # What it leaves for later.
    "(__do|handle)_softirqs?", "net_rx_action", "__napi_poll", "virtnet_poll", "napi_gro_receive",
    "netif_receive_skb.*", "packet_rcv", "tpacket_rcv", "run_timer_softirq", "rcu_core", "(run_)?rebalance_domains",
    # The thread that waits is woken, and runs.
    "eventfd_(signal|signal_mask|read)", "sock_def_readable", "packet_recvmsg", "hrtimer_wakeup", "do_nanosleep",
    "futex_(wait|wake)", "signal_wake_up_state", "wake_up_process", "try_to_wake_up", "ttwu_do_activate",
    "enqueue_task_.*", "dequeue_task_.*", "check_preempt_curr.*", "wakeup_preempt.*", "resched_curr.*", "schedule",
    "schedule_idle", "__schedule", "pick_next_task_.*", "finish_task_switch.*", "kvm_vcpu_(block|kick|halt)",
    # What may be in its way.
    "do_user_addr_fault", "exit_to_user_mode_prepare", "do_syscall_64", "ksys_(read|write)", "do_idle",
)  # fmt: skip
"""Patterns of names: kernels have more and less of them."""

_ARM = f"""\
# Whoever armed it with this note was killed, and the record of it lost.
if [ -f $note ] && ! (
{DISARM}) >$note.error 2>&1; then
	echo "its tracer of functions, which a run before has armed, cannot be put back: $(tail -n 1 $note.error)"
	exit 1
fi
{FORGET} || {{ echo "$note cannot be removed"; exit 1; }}
{FIND}
cannot_write() {{ echo "$note cannot be written"; exit 1; }}
used() {{ echo "its tracer of functions is used by somebody else ($1)"; exit 1; }}
# only_default FILE...: they have nothing but the kernel's remark that nothing is set.
only_default() {{
	for name in "$@"; do
		[ ! -e $t/$name ] || ! grep -qv -e '^#' -e '^no pid' $t/$name || used $name
	done
}}
# keep NAME VALUE: what was set before.
keep() {{ echo "$1 $2" >>$note.new || cannot_write; }}

grep -qw function_graph $t/available_tracers || {{ echo 'its kernel has no tracer function_graph'; exit 1; }}
grep -qw x86-tsc $t/trace_clock || {{ echo 'its tracer cannot use the TSC as its clock'; exit 1; }}
# These hold for instances, too; and how lines are printed is one setting for all of them until Linux 6.18.
only_default set_graph_function set_graph_notrace
[ ! -e $t/max_graph_depth ] || [ "$(cat $t/max_graph_depth)" = 0 ] || used max_graph_depth
for each in $t/current_tracer $t/instances/*/current_tracer; do
	[ ! -e $each ] || ! grep -qx function_graph $each || used ${{each#$t/}}
done
grep -E "^($functions)( |\\$)" $t/available_filter_functions | sed 's/ .*//' >$note.functions || cannot_write
[ -s $note.functions ] || {{ echo 'its kernel has none of these functions'; exit 1; }}
keep boot "{BOOT}"
for name in options/funcgraph-abstime options/funcgraph-proc options/funcgraph-overhead options/funcgraph-tail; do
	[ ! -e $t/$name ] || keep $name "$(cat $t/$name)"
done
d=$t/instances/$instance
mkdir $d || {{ echo 'its tracer cannot have an instance of its own'; exit 1; }}
if ! grep -qw function_graph $d/available_tracers; then
	# Older kernels trace functions in one place only, which may be somebody else's.
	rmdir $d
	d=$t
	[ "$(cat $t/current_tracer)" = nop ] || used current_tracer
	only_default set_ftrace_filter set_ftrace_notrace set_ftrace_pid set_ftrace_notrace_pid
	[ ! -e $t/events/enable ] || [ "$(cat $t/events/enable)" = 0 ] || used events/enable
	# An X where CPUs' sizes differ.
	grep -qEx '[0-9]+( \\(expanded: [0-9]+\\))?' $t/buffer_size_kb || used buffer_size_kb
	[ ! -e $t/snapshot ] || grep -q 'Snapshot is freed' $t/snapshot || used snapshot
	for name in tracing_on tracing_cpumask; do keep $name "$(cat $t/$name)"; done
	keep trace_clock "$(sed 's/.*\\[\\(.*\\)\\].*/\\1/' $t/trace_clock)"
	keep buffer_size_kb "$(sed 's/.*expanded: \\([0-9]*\\).*/\\1/' $t/buffer_size_kb)"
fi
mv $note.new $note || cannot_write
set_up() {{
	echo 0 >$d/tracing_on &&
		echo x86-tsc >$d/trace_clock &&
		echo $mask >$d/tracing_cpumask &&
		echo 4 >$d/buffer_size_kb &&
		echo $kib >$d/per_cpu/cpu$cpu/buffer_size_kb &&
		cat $note.functions >$d/set_ftrace_filter &&
		echo function_graph >$d/current_tracer || return
	for option in "abstime 1" "proc 1" "tail 1" "overhead 0"; do
		o=$d/options/funcgraph-${{option% *}}
		[ -e $o ] || o=$t/options/funcgraph-${{option% *}}
		echo ${{option#* }} >$o || return
	done
	# The memory for it is there before it is needed.
	[ ! -e $d/snapshot ] || {{ echo 1 >$d/snapshot && echo 2 >$d/snapshot; }} || return
	echo 1 >$d/tracing_on
}}
if ! set_up 2>$note.error; then
	echo "its tracer of functions refuses: $(tail -n 1 $note.error)"
	exit 1
fi
rm -f $note.error $note.functions
echo armed
"""

_TAKE = f"""\
{FIND}
d=$t/instances/$instance
[ -d $d ] || d=$t
if [ -e $d/snapshot ]; then
	# Two buffers change places. Neither is cleared: what came before the last time is in the other one.
	before=$(cat $note.taken 2>/dev/null)
	echo 1 >$d/snapshot
	sed -n 's/^now ts: //p' $d/per_cpu/cpu$cpu/stats >$note.taken
	lines=$d/per_cpu/cpu$cpu/snapshot
	[ $begin -gt "${{before:-0}}" ] || lines="$d/per_cpu/cpu$cpu/trace $lines"
else
	echo 0 >$d/tracing_on
	lines=$d/per_cpu/cpu$cpu/trace
fi
for each in $lines; do
	awk -v a=$begin -v b=$end '
		$2 == "|" {{
			split($1, parts, ".")
			at = parts[1] * 1000000000 + parts[2] * 1000
			if (at < a) next
			if (at > b) exit
			gsub(/ +/, " ")
			print substr($0, 1, 120)
		}}' $each
done | head -n {MOST_LINES}
[ -e $d/snapshot ] || echo 1 >$d/tracing_on
"""


@dataclass
class FunctionTracer:
    """A kernel's tracer of functions, on one CPU of it."""

    cpu: int
    machine: str = ""
    """Whose kernel it is; empty: this host's."""
    ask: Callable[[str, float], str] = run_here
    """Runs a script as root where that kernel is, for at most so many seconds, and returns what it has printed. Raises
    Failure."""
    note: str = f"/run/{NOTES[0]}"
    """Where the kernel is: a file for what was set before."""
    instance: str = INSTANCE
    """The tracer's, where that kernel traces functions in instances."""
    kib: int = 1024
    """That it may keep: some tenths of a second."""

    @classmethod
    def here(cls, launcher: Launcher, cpu: int) -> FunctionTracer:
        """Of this host, armed until the session ends or is undone. Raises Failure, saying why it cannot be."""
        folder = launcher.state.folder
        run_here(FIND)  # else nothing need be put on record
        armed = ArmedTracer(str(folder / NOTES[0]), instance_of(folder))
        launcher.state.add(armed)
        found = cls(cpu, note=armed.note, instance=armed.instance, kib=_KIB_HERE)
        try:
            with alone():
                found.arm()
        except (Failure, Mistake) as error:
            problem = launcher.state.undo(armed)
            if problem is not None:
                raise Failure(f"{error}; and it could not be put back: {problem}") from None
            raise
        return found

    @classmethod
    def inside(cls, machine: str, socket: Path, cpu: int = 0) -> FunctionTracer:
        """Of a machine, by its agent; it is armed until the machine ends. Raises Failure, saying why it cannot be."""
        found = cls(cpu, machine, partial(agent.ask, socket))
        try:
            found.arm()
        except Failure as error:
            # It may have been late, and trace from now on.
            try:
                found.disarm()
            except Failure as problem:
                raise Failure(f"{error}; its kernel may still be traced: {problem}") from None
            raise
        return found

    def arm(self) -> None:
        """From now on it traces. Raises Failure, saying why it cannot."""
        functions = "|".join(FUNCTIONS)
        said = self._run(_ARM, _ARM_SECONDS, mask=show_mask([self.cpu]), kib=self.kib, functions=functions)
        if said.split()[-1:] != ["armed"]:
            raise Failure(f"its tracer of functions says what is not understood: {plain(said)[-80:]}")

    def disarm(self) -> None:
        """It is as it was before. Raises Failure, saying why it cannot."""
        self.ask(disarming(self.note, self.instance), _ARM_SECONDS)

    def take(self, raised: int, arrived: int, hz: int, offset: int = 0) -> list[Event]:
        """The functions that ran from shortly before `raised` until shortly after `arrived`, by the TSC of who asks,
        which that kernel's is `offset` ahead of. Raises Failure."""
        before, after = hz // 1000, hz // 5000
        begin, end = max(raised + offset - before, 0), max(arrived + offset + after, 0)
        said = self._run(_TAKE, _TAKE_SECONDS, begin=begin, end=end)
        return [
            event._replace(begin=event.begin - offset, end=event.end - offset)
            for event in read_functions(said.splitlines()[:MOST_LINES], begin, end, hz, self.cpu, self.machine)
        ]

    def _run(self, script: str, seconds: float, **values: object) -> str:
        named = {"note": self.note, "instance": self.instance, "cpu": self.cpu, **values}
        words = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in named.items())
        return self.ask(f"{words}{script}", seconds)


@dataclass
class FunctionPaths:
    """The tracers of who is in an interrupt's way: of this host's kernel, and of the machine's where there is one."""

    hz: int
    """Of the TSC."""
    host: FunctionTracer | None
    machine: FunctionTracer | None = None
    faults: list[str] = field(default_factory=list)
    """Why one of them could not be asked any more."""

    def take(self, raised: int, arrived: int, offset: int | None) -> list[Event]:
        """What is known of an interrupt that has arrived just now, by this host's TSC; the machine's is `offset`
        ahead."""
        found: list[Event] = []
        try:
            found += self.host.take(raised, arrived, self.hz) if self.host is not None else []
        except Failure as error:
            self.faults.append(f"of this host: {error}")
            self.host = None
        try:
            if self.machine is not None and offset is not None:
                found += self.machine.take(raised, arrived, self.hz, offset)
        except Failure as error:
            self.faults.append(f"of its guest: {error}")
            self.machine = None
        return found


_KIB_HERE = 4096
_ARM_SECONDS, _TAKE_SECONDS = 60.0, 15.0
"""An emulated machine on a busy host. A slice waits for what is taken: less than a slice's patience."""
_NAME = r"[\w.]{1,80}"
_LINE = re.compile(
    r"(\d{1,12})\.(\d{6}) \| (\d{1,5})\) .{1,40}-(\d{1,7}) \| (?:(?:[-+!#*@$] ?)?(\d{1,12}(?:\.\d{1,3})?) us )?\| "
    rf"(?:(?P<leaf>{_NAME})(?: \[\w+\])?\(\);|(?P<opens>{_NAME})(?: \[\w+\])?\(\) {{|"
    rf"}}(?: /\* (?P<closes>{_NAME})(?: \[\w+\])? \*/)?)"
)
"""As the kernel prints it with the options above, but for spaces: `7012.456789 | 1) bash-7 | 1.234 us | schedule();`"""
_MOST_LENGTH = 200


@dataclass(frozen=True)
class _Open:
    name: str
    begin: int


def read_functions(lines: Sequence[str], begin: int, end: int, hz: int, cpu: int, machine: str = "") -> Iterator[Event]:
    """What lines of a function graph say, by the TSC of who printed them; whatever else they are is left out. All lie
    between `begin` and `end`: what was called before, or has not returned by then, reaches until there. A function
    that calls no other is over when the next line is printed, whatever it took by the kernel's other clock."""
    open_of: dict[int, list[_Open]] = {}
    leaf: Event | None = None
    for line in lines:
        read = _LINE.fullmatch(" ".join(line[:_MOST_LENGTH].split()))
        if read is None or int(read[3]) != cpu:
            continue
        at, thread = int(read[1]) * 1_000_000_000 + int(read[2]) * RESOLUTION, int(read[4])
        if not begin - RESOLUTION <= at <= end:
            continue
        at = max(at, begin)
        if leaf is not None:
            yield leaf._replace(end=min(leaf.end, max(at + RESOLUTION, leaf.begin)))
            leaf = None
        stack = open_of.setdefault(thread, [])
        took = round(float(read[5]) * hz / 1e6) if read[5] else 0

        def event(name: str, first: int, last: int, depth: int, thread: int = thread) -> Event:
            first, last = max(first, begin), min(max(last, first), end)
            return Event(first, max(first, last), cpu, FUNCTION, thread, name, depth, machine)

        if read["leaf"]:
            leaf = event(read["leaf"], at, at + took, len(stack))
        elif read["opens"]:
            if len(stack) < MOST_DEPTH:
                stack.append(_Open(read["opens"], at))
        elif stack and read["closes"] in (None, stack[-1].name):
            one = stack.pop()
            yield event(one.name, one.begin, at, len(stack))
        elif read["closes"]:  # it was called before the first line, and so was all that is open
            stack.clear()
            yield event(read["closes"], at - took, at, 0)
    if leaf is not None:
        yield leaf
    for thread, stack in open_of.items():
        for depth, one in enumerate(stack):
            yield Event(one.begin, end, cpu, FUNCTION, thread, one.name, depth, machine)
