"""Applying a tuning plan, checking it and undoing it: each change is journalled first, a failure undoes the rest."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tailrace.errors import Failure, Mistake
from tailrace.host.boot import BootLoader
from tailrace.host.journal import BOOT_FILE, Applied, Entry, Journal, boot_id
from tailrace.host.machine import DISTURBERS, Machine
from tailrace.host.process import undisturbed
from tailrace.host.setting import Form, Setting, plain
from tailrace.host.tuning import Step, TuningPlan
from tailrace.host.values import Values
from tailrace.host.writers import forget_writers


class State(enum.Enum):
    """How a place stands to what is wanted of it."""

    RIGHT = "right"
    DRIFTED = "drifted"
    """It was set, and something has changed it since."""
    REFUSED = "cannot be set here"
    """The kernel keeps its own value, for a good reason."""
    REBOOT = "waits for a reboot"
    WRONG = "wrong"
    """It has never been set."""


@dataclass(frozen=True)
class Checked:
    """A place, as verified."""

    step: Step
    state: State
    by: str | None = None
    """Who changed it, where that can be known."""


@dataclass(frozen=True)
class Outcome:
    """What applying did."""

    changed: Sequence[Step]
    refused: Sequence[tuple[Step, str]]
    """Places that the kernel refused for a good reason, with its words."""
    put_back: Sequence[str]
    """Places that an earlier profile had set and this one leaves alone."""
    reboot: bool
    """Whether something takes effect at the next boot only."""


def check_tunable(machine: Machine) -> None:
    """Raises Mistake where another tuner would fight over the same knobs."""
    fighting = [name for name in machine.disturbers if name != "thermald"]
    if fighting:
        said = ", ".join(f"{name} ({DISTURBERS[name]})" for name in fighting)
        raise Mistake(
            f"another tuner is active: {said}; stop it first, for instance with `systemctl disable --now {fighting[0]}`"
        )


def check_writable(steps: Sequence[Step], machine: Machine) -> None:
    """Raises Failure if a file that is to be written cannot be: before anything is changed."""
    for step in steps:
        path = machine.tree.at(step.setting.target)
        if step.setting.scheme != "file" or step.setting.optional or os.access(path, os.W_OK):
            continue
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        error = OSError(errno.EROFS if read_only else errno.EACCES, "")
        raise Failure(f"{step.setting.target}: {_reason(error)} ({step.knob.name}); nothing is changed")


def apply(plan: TuningPlan, machine: Machine, journal: Journal, *, boot: bool = True) -> Outcome:
    """Makes the host what the plan says: first puts back what an earlier profile set and this one leaves alone, then
    makes every change that is missing.

    Boot-time knobs go into the boot loader's file unless `boot` is false; then that file stays as it is. Raises Mistake
    or Failure, and then the host is as it was before the call.
    """
    check_tunable(machine)
    values, mark = Values(machine.tree), boot_id(machine.tree)
    if boot and plan.arguments():
        values.boot.path(plan.arguments())
    todo = [step for step in plan.steps("run") if not step.done and step.now is not None]
    check_writable(todo, machine)
    wanted = {step.setting.place for step in plan.steps("run")}
    gone = [
        entry
        for entry in reversed(journal.entries)
        if entry.boot == mark and entry.setting.scheme != BOOT_FILE and entry.place not in wanted
    ]
    forget_writers(journal.path.parent)
    before = {entry.place: entry for entry in journal.entries}, journal.applied
    work = _Work(values, journal, mark)
    try:
        journal.note(*(work.entry(step.setting, step.now) for step in todo), applied=plan.asked)
        for entry in gone:
            work.put_back(entry)
        for step in todo:
            work.set(step)
        if boot:
            work.stage(plan)
    except BaseException:
        with undisturbed():
            if before[0]:
                work.roll_back(*before)
            else:
                undo(machine, journal)
        raise
    journal.note(*(replace(work.entry(step.setting, step.now), refused=True) for step, _ in work.refused))
    waits = boot and any(not step.done for step in plan.steps("boot"))
    return Outcome(work.changed, work.refused, [entry.place for entry in gone], waits)


class _Work:
    """The changes of one call, which it can take back."""

    def __init__(self, values: Values, journal: Journal, mark: str) -> None:
        self.changed: list[Step] = []
        self.refused: list[tuple[Step, str]] = []
        self._values, self._journal, self._mark = values, journal, mark
        self._back: list[Callable[[], object]] = []
        """What takes each change back, in the order of the changes."""

    def entry(self, setting: Setting, was: str | None) -> Entry:
        return Entry(
            setting.place,
            setting.form.value,
            None if was is None else plain(setting.form, was),
            setting.wanted,
            self._mark,
        )

    def put_back(self, entry: Entry) -> None:
        """What an earlier profile changed. Raises OSError."""
        now = self._values.read(entry.setting)
        if now is None or entry.was is None:
            return
        setting = Setting(entry.place, entry.was, Form(entry.form))
        if not setting.satisfied(now):
            self._back.append(partial(self._values.write, setting, plain(setting.form, now)))
            self._values.write(setting, entry.was)

    def set(self, step: Step) -> None:
        """One place. Raises Failure unless the kernel refuses for a good reason."""
        assert step.now is not None
        self._back.append(partial(self._values.write, step.setting, plain(step.setting.form, step.now)))
        try:
            self._values.write(step.setting, step.setting.wanted)
        except OSError as error:
            self._back.pop()
            if not _kept(step.setting, error):
                raise Failure(f"{step.setting.target}: {_reason(error)} ({step.knob.name})") from None
            self.refused.append((step, error.strerror or str(error)))
            return
        self.changed.append(step)

    def stage(self, plan: TuningPlan) -> None:
        """The boot loader's file. Raises Failure."""
        loader, arguments = self._values.boot, plan.arguments()
        was = loader.staged() if loader.kind() else None
        if not arguments and was is None:
            return
        text = loader.text(arguments) if arguments else None
        if text is not None and was is not None and text.strip() == was.strip():
            return
        self._journal.note(Entry(f"{BOOT_FILE}:", Form.TEXT.value, was, text or "", self._mark))
        self._back.append(partial(loader.stage, f"{was}\n" if was else None))
        loader.stage(text)

    def roll_back(self, entries: Mapping[str, Entry], applied: Applied | None) -> None:
        """Takes back what was done; the journal says again what it said before."""
        for back in reversed(self._back):
            with suppress(OSError, Failure):
                back()
        self._journal.note(*entries.values(), applied=applied)


def _kept(setting: Setting, error: OSError) -> bool:
    """Whether the kernel keeps its own value here, whoever asks: a parameter that is read only, an interrupt that it
    manages itself."""
    if setting.optional or error.errno in (errno.ENODEV, errno.EOPNOTSUPP):
        return True
    return error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() == 0


def _reason(error: OSError) -> str:
    if error.errno == errno.EROFS:
        return "read-only: this is a container whose host must be tuned from outside"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "not permitted; start it with sudo"
    return error.strerror or str(error)


def undo(machine: Machine, journal: Journal) -> list[str]:
    """Puts everything back, last change first. Returns what could not be put back; the journal stays for that.

    Doing it again is harmless. What was set in an earlier boot has gone with it.
    """
    values, mark = Values(machine.tree), boot_id(machine.tree)
    problems = []
    for entry in reversed(journal.entries):
        try:
            _restore(values, entry, mark)
        except (OSError, Failure) as error:
            problems.append(f"{entry.setting.target or values.boot.path()}: {error}")
    if not problems:
        journal.clear()
        forget_writers(journal.path.parent)
    return problems


def _restore(values: Values, entry: Entry, mark: str) -> None:
    if entry.setting.scheme == BOOT_FILE:
        if values.boot.kind() and values.boot.staged() != (entry.was or None):
            values.boot.stage(f"{entry.was}\n" if entry.was else None)
        return
    if entry.boot != mark or entry.was is None:
        return
    now = values.read(entry.setting)
    if now is None or Setting(entry.place, entry.was, Form(entry.form)).satisfied(now):
        return
    values.write(entry.setting, entry.was)


def verify(
    plan: TuningPlan, machine: Machine, journal: Journal, writers: Mapping[str, str] | None = None
) -> list[Checked]:
    """Every place of the plan, read again; `writers` are those who were seen to write, by file."""
    entries = {entry.place: entry for entry in journal.entries if entry.boot == boot_id(machine.tree)}
    loader = BootLoader(machine.tree)
    staged = loader.staged() or "" if loader.kind() else ""
    found = []
    for step in plan.steps():
        if step.done or (step.now is None and not step.reboot):
            found.append(Checked(step, State.RIGHT))
        elif step.reboot:
            waits = f"{step.setting.target}={step.setting.wanted}".rstrip("=") in staged
            found.append(Checked(step, State.REBOOT if waits else State.WRONG))
        else:
            entry = entries.get(step.setting.place)
            found.append(_drift(step, entry, machine, (writers or {}).get(step.setting.target)))
    return found


def _drift(step: Step, entry: Entry | None, machine: Machine, writer: str | None) -> Checked:
    if entry is None:
        return Checked(step, State.WRONG)
    if entry.refused:
        return Checked(step, State.REFUSED)
    culprits = [writer] if writer else [name for name in machine.disturbers if _touches(name, step)]
    return Checked(step, State.DRIFTED, ", ".join(culprits) or None)


def _touches(disturber: str, step: Step) -> bool:
    """Whether a disturber that runs is known to change such a place."""
    kinds = {
        "irqbalance": ("/proc/irq/",),
        "power-profiles-daemon": ("/cpufreq/", "energy_"),
        "thermald": ("/cpufreq/",),
        "ksmtuned": ("/ksm/",),
        "cpupower": ("/cpufreq/",),
        "auto-cpufreq": ("/cpufreq/",),
        "tuned": ("/",),
    }
    return any(part in step.setting.target for part in kinds.get(disturber, ()))
