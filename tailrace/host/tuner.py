"""Applying a tuning plan, checking it and undoing it: each change is journalled first, a failure undoes the rest."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tailrace.errors import Failure, Mistake
from tailrace.host.boot import BootLoader
from tailrace.host.journal import BOOT_FILE, Entry, Journal, boot_id
from tailrace.host.machine import DISTURBERS, Machine
from tailrace.host.setting import Form, Setting, plain
from tailrace.host.tuning import Step, TuningPlan
from tailrace.host.values import Values


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


def apply(plan: TuningPlan, machine: Machine, journal: Journal, *, boot: bool = True) -> Outcome:
    """Makes every change that is missing. Raises Failure after undoing what this call did.

    Boot-time knobs go into the boot loader's file unless `boot` is false.
    """
    check_tunable(machine)
    values, mark = Values(machine.tree), boot_id(machine.tree)
    before = {entry.place for entry in journal.entries}
    changed: list[Step] = []
    refused: list[tuple[Step, str]] = []

    def entry(setting: Setting, was: str | None) -> Entry:
        return Entry(setting.place, setting.form.value, was, setting.wanted, mark, plan.profile.name)

    try:
        for step in plan.steps("run"):
            if step.done or step.now is None:
                continue
            noted = entry(step.setting, plain(step.setting.form, step.now))
            journal.note(noted)
            try:
                values.write(step.setting, step.setting.wanted)
            except OSError as error:
                if not _kept(step.setting, error):
                    raise Failure(f"{step.setting.target}: {_reason(error)} ({step.knob.name})") from None
                journal.note(replace(noted, refused=True))
                refused.append((step, error.strerror or str(error)))
                continue
            changed.append(step)
        if boot:
            _stage(plan, values.boot, lambda was, text: journal.note(entry(Setting(f"{BOOT_FILE}:", text), was)))
    except BaseException:
        undo(machine, journal, keep=before)
        raise
    waits = boot and any(not step.done for step in plan.steps("boot"))
    return Outcome(changed, refused, waits)


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


def _stage(plan: TuningPlan, loader: BootLoader, note: Callable[[str | None, str], None]) -> None:
    arguments = plan.arguments()
    was = loader.staged() if loader.kind() else None
    if not arguments and was is None:
        return
    text = loader.text(arguments) if arguments else None
    if text is not None and was is not None and text.strip() == was.strip():
        return
    note(was, text or "")
    loader.stage(text)


def undo(machine: Machine, journal: Journal, keep: Collection[str] = ()) -> list[str]:
    """Puts everything back, last change first. Returns what could not be put back; the journal stays for that.

    Places in `keep` were changed before and are left. Doing it again is harmless. What was set in an earlier boot has
    gone with it.
    """
    values, mark = Values(machine.tree), boot_id(machine.tree)
    problems = []
    for entry in reversed(journal.entries):
        if entry.place in keep:
            continue
        try:
            _restore(values, entry, mark)
        except (OSError, Failure) as error:
            problems.append(f"{entry.setting.target or values.boot.path()}: {error}")
    if not problems and not keep:
        journal.clear()
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


def verify(plan: TuningPlan, machine: Machine, journal: Journal) -> list[Checked]:
    """Every place of the plan, read again."""
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
            found.append(_drift(step, entry, machine))
    return found


def _drift(step: Step, entry: Entry | None, machine: Machine) -> Checked:
    if entry is None:
        return Checked(step, State.WRONG)
    if entry.refused:
        return Checked(step, State.REFUSED)
    culprits = [name for name in machine.disturbers if _touches(name, step)]
    return Checked(step, State.DRIFTED, ", ".join(culprits) or None)


def _touches(disturber: str, step: Step) -> bool:
    """Whether a disturber that runs is known to change such a place."""
    kinds = {
        "irqbalance": ("/proc/irq/",),
        "power-profiles-": ("/cpufreq/", "energy_"),
        "thermald": ("/cpufreq/",),
        "ksmtuned": ("/ksm/",),
        "cpupower": ("/cpufreq/",),
        "auto-cpufreq": ("/cpufreq/",),
        "tuned": ("/",),
    }
    return any(part in step.setting.target for part in kinds.get(disturber, ()))
