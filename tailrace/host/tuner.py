"""Applying a tuning plan, checking it and undoing it: each change is journalled first, a failure undoes the rest."""

from __future__ import annotations

import enum
import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tailrace.errors import Failure, Mistake
from tailrace.host.boot import BootLoader
from tailrace.host.journal import BOOT_FILE, Applied, Entry, Journal
from tailrace.host.knobs import KNOBS
from tailrace.host.machine import DISTURBERS, Machine
from tailrace.host.setting import Form, Setting, plain
from tailrace.host.tuning import Step, TuningPlan
from tailrace.host.values import OWN, Values
from tailrace.host.writers import forget_writers
from tailrace.kernel.boot import boot_id
from tailrace.process.process import undisturbed

_log = logging.getLogger(__name__)

_Task = tuple[str, Callable[[], object]]
"""A place, and what is to be done there."""


class State(enum.Enum):
    """How a place stands to what is wanted of it."""

    RIGHT = "right"
    DRIFTED = "drifted"
    """It was set, and something has changed it since."""
    GONE = "gone with the reboot"
    """It was set before the machine was booted: apply again."""
    REFUSED = "cannot be set here"
    """The machine does not have it, or the kernel keeps a value of its own."""
    REBOOT = "waits for a reboot"
    WRONG = "wrong"
    """It has never been set."""

    @property
    def lost(self) -> bool:
        """Whether it was set and is no more."""
        return self in (State.DRIFTED, State.GONE)


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
    """Places that the kernel refused for a good reason, with its words, or made something else of."""
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
        if not step.setting.in_file or step.setting.optional or os.access(path, os.W_OK):
            continue
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        error = OSError(errno.EROFS if read_only else errno.EACCES, "")
        raise Failure(f"{step.setting.target}: {_reason(error)} ({step.knob.name}); nothing is changed")


def changes_boot(plan: TuningPlan, machine: Machine) -> bool:
    """Whether applying it would have the next boot get other kernel arguments."""
    loader, arguments = BootLoader(machine.tree), plan.arguments()
    return (loader.staged() or "").strip() != (loader.text(arguments).strip() if arguments else "")


def apply(plan: TuningPlan, machine: Machine, journal: Journal, *, boot: bool = True) -> Outcome:
    """Makes the host what the plan says: first puts back what an earlier profile set and this one leaves alone, then
    makes every change that is missing.

    Boot-time knobs go into the boot loader's file unless `boot` is false; then that file stays as it is. Raises Mistake
    or Failure, and then the host is as it was before the call, but for what the error says could not be put back.
    """
    check_tunable(machine)
    values, mark = Values(machine.tree), boot_id(machine.tree)
    if boot:
        values.boot.check(plan.arguments())
    steps = list(plan.steps("run"))
    todo = [step for step in steps if not step.done and step.now is not None]
    check_writable(todo, machine)
    forget_writers(journal.path.parent)
    before = {entry.place: entry for entry in journal.entries}, journal.applied
    planned = {step.setting.place for step in steps}
    gone = [entry for entry in reversed(journal.entries) if _in_force(entry, mark) and entry.place not in planned]
    work = _Work(values, journal, mark)
    try:
        # What somebody else has made right counts from now on as this profile wants it.
        right = [step for step in steps if step.done and _wanted_else(before[0].get(step.setting.place), step)]
        journal.note(*(work.entry(step) for step in (*todo, *right)), applied=plan.asked)
        later = _do_all((entry.setting.target, partial(work.put_back, entry)) for entry in gone)
        for step in todo:
            work.set(step)
        if left := _do_all(task for task, _ in later):
            raise Failure("; ".join(_problems(left)))
        work.finish()
        if boot:
            work.stage(plan)
    except BaseException as error:
        with undisturbed():
            problems = work.roll_back(*before) if before[0] else undo(machine, journal)
        if problems:
            said = "; ".join(problems)
            raise Failure(
                f"{str(error) or 'interrupted'}; not all was put back: {said}; run `tailrace host undo`"
            ) from error
        raise
    waits = boot and any(not step.done for step in plan.steps("boot"))
    return Outcome(work.changed, work.refused, [entry.place for entry in work.back], waits)


def _in_force(entry: Entry, mark: str) -> bool:
    """Whether it is about a place of the running kernel that was set in this boot, and was not put back since."""
    return entry.setting.scheme != BOOT_FILE and entry.boot == mark and entry.wanted != entry.was


def _wanted_else(entry: Entry | None, step: Step) -> bool:
    """Whether the journal says that something else is wanted there."""
    return entry is not None and not step.setting.satisfied(entry.wanted)


class _Work:
    """The changes of one call, which it can take back."""

    def __init__(self, values: Values, journal: Journal, mark: str) -> None:
        self.changed: list[Step] = []
        self.refused: list[tuple[Step, str]] = []
        self.back: list[Entry] = []
        """What of an earlier profile was put back."""
        self._absent: list[Entry] = []
        """What of it is not there now: where it comes again it comes as the kernel makes it."""
        self._values, self._journal, self._mark = values, journal, mark
        self._undoing: list[_Task] = []
        """What takes each change back, in the order of the changes."""

    def entry(self, step: Step) -> Entry:
        setting = step.setting
        was = None if step.now is None else plain(setting.form, step.now)
        return Entry(setting.place, setting.form.value, was, setting.wanted, self._mark, knob=step.knob.name)

    def put_back(self, entry: Entry) -> None:
        """What an earlier profile changed. Raises OSError."""
        now = self._values.read(entry.setting)
        if entry.was is None or (now is None and entry.setting.scheme not in OWN):
            self._absent.append(entry)
            return
        if now is not None:
            self._begin(entry.setting, now)
        self._values.restore(entry.setting, entry.was)
        self.back.append(entry)

    def set(self, step: Step) -> None:
        """One place. Raises Failure unless the kernel refuses for a good reason."""
        assert step.now is not None
        self._begin(step.setting, step.now)
        try:
            self._values.write(step.setting, step.setting.wanted)
        except OSError as error:
            if not _kept(step.setting, error):
                raise Failure(f"{step.setting.target}: {_reason(error)} ({step.knob.name})") from None
            self.refused.append((step, error.strerror or str(error)))
            return
        _log.info("%s: %s → %s (%s)", step.setting.target, step.now, step.setting.wanted, step.knob.name)
        self.changed.append(step)

    def _begin(self, setting: Setting, now: str) -> None:
        """A change that even a failing write may make half of."""
        self._undoing.append((setting.target, partial(self._values.restore, setting, plain(setting.form, now))))

    def finish(self) -> None:
        """Reads back what was set, when all is, because one value may bound another; notes what the kernel did not
        take, with or without a word, and what was put back."""
        kept = {
            step.setting.place: plain(step.setting.form, now)
            for step in self.changed
            if (now := self._values.read(step.setting)) is not None and not step.setting.satisfied(now)
        }
        self.refused += [
            (step, f"the kernel made it {kept[step.setting.place]}")
            for step in self.changed
            if step.setting.place in kept
        ]
        self.changed = [step for step in self.changed if step.setting.place not in kept]
        self._journal.note(
            *(replace(self.entry(step), refused=True, kept=kept.get(step.setting.place)) for step, _ in self.refused),
            *map(_put_back, (*self.back, *self._absent)),
        )

    def stage(self, plan: TuningPlan) -> None:
        """The boot loader's file. Raises Failure."""
        loader, arguments = self._values.boot, plan.arguments()
        was, text = loader.staged(), loader.text(arguments) if arguments else None
        same = (was or "").strip() == (text or "").strip()
        if same and not any(entry.setting.scheme == BOOT_FILE for entry in self._journal.entries):
            return
        # What is staged already is staged again: the boot loader may not have heard of it when an earlier call ended.
        if not same:
            self._journal.note(Entry(f"{BOOT_FILE}:", Form.TEXT.value, was, text or "", self._mark))
        self._undoing.append((loader.path(), partial(loader.stage, f"{was}\n" if was else None)))
        loader.stage(text)

    def roll_back(self, entries: Mapping[str, Entry], applied: Applied | None) -> list[str]:
        """Takes back what was done; the journal says again what it said before. Returns what could not be."""
        problems = _problems(_do_all(reversed(self._undoing)))
        new = (entry for entry in self._journal.entries if entry.place not in entries)
        begun = (_put_back(entry) for entry in new if entry.setting.scheme != BOOT_FILE)
        try:
            self._journal.note(*entries.values(), *begun, applied=applied)
        except Failure as error:
            problems.append(str(error))
        return problems


def _put_back(entry: Entry) -> Entry:
    """As the journal has a place that is as it was."""
    return replace(entry, wanted=entry.was or "", refused=False, kept=None)


def _do_all(tasks: Iterable[_Task]) -> list[tuple[_Task, str]]:
    """Does them in this order, and those that failed again as long as others do not: the kernel takes some values only
    after others, such as an energy preference after the governor. Returns what failed in the end, and why."""
    left = list(tasks)
    while True:
        failed: list[tuple[_Task, str]] = []
        for task in left:
            try:
                task[1]()
            except OSError as error:
                failed.append((task, _reason(error)))
            except (Failure, Mistake) as error:
                failed.append((task, str(error)))
        if len(failed) in (0, len(left)):
            return failed
        left = [task for task, _ in failed]


def _problems(failed: Sequence[tuple[_Task, str]]) -> list[str]:
    return [f"{place}: {why}" for (place, _), why in failed]


def _kept(setting: Setting, error: OSError) -> bool:
    """Whether the kernel keeps its own value here, whoever asks: a parameter that is read only, an interrupt that it
    manages itself."""
    if setting.optional or error.errno in (errno.ENODEV, errno.EOPNOTSUPP):
        return True
    return error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() == 0


def _reason(error: OSError) -> str:
    if error.errno == errno.EROFS:
        return "read-only, as in a container: tune its host from outside"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "not permitted; start it with sudo"
    return error.strerror or str(error)


def undo(machine: Machine, journal: Journal) -> list[str]:
    """Puts everything back, last change first. Returns what could not be put back; the journal stays for that.

    Doing it again is harmless. What was set in an earlier boot has gone with it.
    """
    values, mark = Values(machine.tree), boot_id(machine.tree)
    failed = _do_all(
        (entry.setting.target or values.boot.path(), partial(_restore, values, entry, mark))
        for entry in reversed(journal.entries)
    )
    if not failed:  # one value may bound another, so they are read back when all have been set
        failed = _do_all(
            (entry.setting.target, partial(_read_back, values, entry))
            for entry in journal.entries
            if entry.setting.scheme != BOOT_FILE and entry.boot == mark
        )
    if not failed:
        journal.clear()
        forget_writers(journal.path.parent)
    return _problems(failed)


def _restore(values: Values, entry: Entry, mark: str) -> None:
    if entry.setting.scheme == BOOT_FILE:
        # Also where the file is as it was: an earlier call may have ended before the boot loader heard of it.
        values.boot.stage(f"{entry.was}\n" if entry.was else None)
    elif entry.boot == mark and entry.was is not None:
        values.restore(entry.setting, entry.was)


def _read_back(values: Values, entry: Entry) -> None:
    """Raises Failure unless the place is as it was, or has gone."""
    if entry.was is None:
        return
    values.restore(entry.setting, entry.was)
    now = values.read(entry.setting)
    if now is not None and not replace(entry.setting, wanted=entry.was).satisfied(now):
        raise Failure(f"was {entry.was!r}, and the kernel made it {plain(entry.setting.form, now)!r}")


def verify(
    plan: TuningPlan, machine: Machine, journal: Journal, writers: Mapping[str, str] | None = None
) -> list[Checked]:
    """Every place of the plan, read again; `writers` are those who were seen to write, by file."""
    entries = {entry.place: entry for entry in journal.entries}
    mark, loader = boot_id(machine.tree), BootLoader(machine.tree)
    found = []
    for step in (*plan.steps(), *_unplanned(plan, machine, journal)):
        if step.done:
            found.append(Checked(step, State.RIGHT))
        elif step.reboot:
            at, wanted = step.setting.target, step.setting.wanted
            waits = loader.waits(at, wanted)
            found.append(Checked(step, State.REBOOT if waits else State.WRONG, loader.spoilt_by(at, wanted)))
        else:
            state = _state(step, entries.get(step.setting.place), mark)
            by = _culprit(step, machine, writers or {}) if state is State.DRIFTED else None
            found.append(Checked(step, state, by))
    return found


def _unplanned(plan: TuningPlan, machine: Machine, journal: Journal) -> Iterator[Step]:
    """Places that the plan's profile has set and that are not to be seen in it any more. A file or a thread that is
    not there went with its device; what Tailrace itself has made, only a person takes away."""
    if journal.applied is None or journal.applied.profile != plan.asked.profile:
        return
    values, mark = Values(machine.tree), boot_id(machine.tree)
    planned = {step.setting.place for step in plan.steps()}
    for entry in journal.entries:
        knob = KNOBS.get(entry.knob)
        if knob is None or entry.place in planned or entry.refused or not _in_force(entry, mark):
            continue
        now = values.read(entry.setting)
        if now is not None or entry.setting.scheme in OWN:
            yield Step(knob, entry.setting, now)


def _state(step: Step, entry: Entry | None, mark: str) -> State:
    """How a place of the running kernel stands that is not as it is wanted."""
    missing = step.now is None
    if entry is None or _wanted_else(entry, step):
        return State.REFUSED if missing else State.WRONG
    if entry.boot != mark:
        if missing:
            return State.REFUSED
        return State.WRONG if entry.refused else State.GONE
    if step.now is None:
        # A file that is there and cannot be read has not drifted.
        return State.REFUSED if entry.refused or step.setting.in_file else State.DRIFTED
    kept = entry.refused and entry.kept in (None, plain(step.setting.form, step.now))
    return State.REFUSED if kept else State.DRIFTED


def _culprit(step: Step, machine: Machine, writers: Mapping[str, str]) -> str | None:
    writer = writers.get(step.setting.target)
    culprits = [writer] if writer else [name for name in machine.disturbers if _touches(name, step)]
    return ", ".join(culprits) or None


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
