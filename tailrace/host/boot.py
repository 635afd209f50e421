"""Kernel arguments: what the running kernel was given, and one file of our own that gives it more at the next boot.

Which boot loader a machine is started by, whether arguments reach it, and who else has a word in them; what each boot
loader's files are is in boot_files.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import cached_property

from tailrace.errors import Failure, Mistake
from tailrace.host.boot_files import BootFiles, Grub, KernelInstall, Stage, given_arguments
from tailrace.host.command_line import PARAMETERS, Argument, CommandLine, Reader, parse_line, read, show_line
from tailrace.host.machine import Kernel, read_kernel
from tailrace.host.setting import Form, Setting
from tailrace.kernel.tree import Tree
from tailrace.process.plain import last_line
from tailrace.resources.topology import last_cpu

_MOST = 2047
"""Letters of its command line that the kernel reads on x86 and Arm (COMMAND_LINE_SIZE), without a word of the rest."""
LOADER_VARIABLE = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
"""Where a boot loader says its name to Linux: systemd-boot, and GRUB from 2.12 on (systemd's Boot Loader Interface)."""
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
PATIENCE = 120.0
"""Seconds that a boot loader's command may take."""


def argument_setting(name: str, value: str = "") -> Setting:
    """A kernel argument as a place and what is wanted there, compared as the kernel reads it."""
    known = PARAMETERS.get(name)
    return Setting(f"argument:{name}", value, known.form if known else Form.TEXT)


class BootLoader:
    """The boot loader of one machine, as a place of kernel arguments (`argument:NAME`)."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: tuple[BootFiles, ...] = (Grub(tree), KernelInstall(tree))

    def kind(self) -> str | None:
        """`grub` or `kernel-install`; None if it is neither, or cannot be known."""
        found = self._files
        return found.kind if found else None

    @cached_property
    def _kernel(self) -> Kernel:
        return read_kernel(self._tree)

    @cached_property
    def _reader(self) -> Reader:
        tickless = self._kernel.built("NO_HZ_FULL") is not False
        return Reader(last_cpu(self._tree), parts=self._kernel.since(5, 18), tickless=tickless)

    @property
    def _files(self) -> BootFiles | None:
        return self._find()[0]

    def _find(self) -> tuple[BootFiles | None, str]:
        """The boot loader in use, or why none can be named: what it says of itself counts, then the one that is set up,
        and of two of them the one whose marks the running kernel's line bears."""
        loader = "".join(letter for letter in self._tree.text(LOADER_VARIABLE) or "" if letter.isprintable()).strip()
        ready = {files.kind: files for files in self._known if files.set_up()}
        if loader:
            kind = {"systemd-boot": "kernel-install", "grub": "grub"}.get(loader.partition(" ")[0].lower())
            found = ready.get(kind or "")
            why = "is not known to Tailrace" if kind is None else "has none of the files that Tailrace would add to"
            return found, f"the machine was started by {loader}, which {why}"
        if len(ready) > 1:
            line = self._kernel.line
            if line.values("BOOT_IMAGE"):
                return ready["grub"], ""
            if any("\\" in (value or "") for value in line.values("initrd")):  # as EFI writes paths
                return ready["kernel-install"], ""
            return None, "both GRUB and systemd-boot are set up, and nothing shows which one starts the machine"
        return next(iter(ready.values()), None), "no boot loader that Tailrace knows (GRUB, kernel-install)"

    def _holder(self) -> BootFiles | None:
        """The boot loader that our file is with: another one may have come into use since."""
        return next((files for files in self._known if self._tree.exists(files.path)), None) or self._files

    def read(self, target: str) -> str | None:
        """The argument's value that counts for the running kernel; empty if it has none, None if it is not given."""
        return read(self._kernel.line, target, self._reader)

    def write(self, target: str, value: str) -> None:  # noqa: ARG002 - a scheme's places have both
        raise OSError(1, "a kernel argument takes effect at the next boot")

    def check(self, arguments: Sequence[tuple[str, str]]) -> None:
        """Raises Mistake, with the arguments, where the boot loader cannot be given them or be rid of them again, or
        where they would not reach the kernel."""
        obstacle = (self._obstacle(arguments) or self._too_long(arguments)) if arguments else None
        if obstacle:
            raise Mistake(
                f"{obstacle}; leave the boot-time knobs out with --run-time, and give the kernel these arguments "
                f"yourself: {show_line(_arguments(arguments))}"
            )

    def _obstacle(self, arguments: Sequence[tuple[str, str]]) -> str | None:
        files, why = self._find()
        if files is None:
            return why
        missing = [command[0] for command in files.commands() if _program(command[0]) is None]
        if self._tree.live and missing:
            return f"{missing[0]} is missing"
        return files.obstacle() or next(iter(self.losses(arguments)), None)

    def _too_long(self, arguments: Sequence[tuple[str, str]]) -> str | None:
        line, wanted = self._kernel.line, _arguments(arguments)
        ours = [*given_arguments(self.staged()), *wanted]
        others = [argument for argument in line.arguments if argument not in ours]
        letters = len(" ".join([*map(str, [*others, *wanted]), *(["--", line.init] if line.init else [])]))
        return (
            f"the command line would have {letters} letters, and the kernel reads only {_MOST}"
            if letters > _MOST
            else None
        )

    def _next(self, text: str | None) -> list[Stage]:
        """What the next boot's command line is made of, were our file to say `text`; empty if that cannot be known."""
        files = self._files
        return (files.stages(text) if files else None) or []

    def _lost(self, stages: Sequence[Stage], arguments: Sequence[tuple[str, str]]) -> list[str]:
        """Files that take our arguments away again, or keep the kernel from reading them: what each does."""
        files, found = self._files, {}
        ours = next((at for at, stage in enumerate(stages) if files and stage.path == files.path), None)
        for argument in _arguments(arguments) if ours is not None else ():
            for at, stage in enumerate(stages[ours:]):
                if argument in stage.parsed.arguments:
                    continue
                if at == 0 or stage.ends_early:
                    ended = next((each.path for each in stages if each.ends_early), stage.path)
                    found[ended] = (
                        f"{ended} has a `--` or an open quote, and the kernel reads no argument after it: take it out"
                    )
                else:
                    found[stage.path] = (
                        f"{stage.path} sets the arguments anew after {stages[ours or 0].path}: append to "
                        "$GRUB_CMDLINE_LINUX_DEFAULT there, or give it a name that sorts earlier"
                    )
                break
        return list(found.values())

    def conflicts(self, arguments: Sequence[tuple[str, str]]) -> list[str]:
        """Where the next boot's line will say something else of a parameter, and the kernel go by that, in spite of our
        file."""
        stages = self._next(self.text(arguments)) if arguments and self._files else []
        found = []
        for name, value in arguments if stages else ():
            last = stages[-1].parsed
            if self._satisfied(last, name, value) or Argument(name, value or None) not in last.arguments:
                continue
            others = [each.path for each in stages if {*each.parsed.values(name)} - {value or None}]
            now = read(last, name, self._reader)
            found.append(f"{(others or [stages[0].path])[0]} also sets {name}={now}, which the kernel prefers")
        return found

    def losses(self, arguments: Sequence[tuple[str, str]]) -> list[str]:
        """Files that would keep our arguments from the kernel: what each does."""
        return self._lost(self._next(self.text(arguments)), arguments) if arguments and self._files else []

    def waits(self, target: str, wanted: str) -> bool:
        """Whether the next boot brings the argument."""
        text = self.staged()
        stages = self._next(text)
        line = stages[-1].parsed if stages else CommandLine(tuple(given_arguments(text)))
        return self._satisfied(line, target, wanted)

    def spoilt_by(self, target: str, wanted: str) -> str | None:
        """The file that keeps an argument of ours from the next boot."""
        text = self.staged()
        if Argument(target, wanted or None) not in given_arguments(text):
            return None
        said = self._lost(self._next(text), [(target, wanted)]) or self.conflicts([(target, wanted)])
        return said[0].partition(" ")[0] if said else None

    def _satisfied(self, line: CommandLine, target: str, wanted: str) -> bool:
        return argument_setting(target, wanted).satisfied(read(line, target, self._reader))

    def path(self) -> str:
        """Our file."""
        files = self._holder()
        return files.path if files else self._known[0].path

    def text(self, arguments: Sequence[tuple[str, str]]) -> str:
        """What our file is to say."""
        return (self._files or self._known[0]).text(_arguments(arguments))

    def staged(self) -> str | None:
        """What our file says now; None if there is none."""
        return self._tree.text(self.path())

    def stage(self, text: str | None) -> None:
        """Writes our file, or removes it for None, and has the boot loader take it in. Raises Failure."""
        files = self._holder() if text is None else self._files
        if files is None:
            return
        path, former = self._tree.at(files.path), given_arguments(self._tree.text(files.path))
        try:
            if text is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_name(f".{path.name}.new")
                with temporary.open("w") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())  # half a file must not be what the next boot finds
                temporary.chmod(files.mode)
                temporary.replace(path)
            files.forget(former)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from None
        self.refresh()

    def refresh(self) -> None:
        """Has the boot loader take our file in as it is now, which may be done again; a copied machine's is not run.

        Raises Failure.
        """
        for command in self.commands() if self._tree.live else []:
            if _program(command[0]) is None:
                raise Failure(
                    f"{command[0]} is missing; run the command that makes your boot loader read {self.path()}"
                )
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            except subprocess.TimeoutExpired:
                raise Failure(f"{shlex.join(command)}: has not ended within {PATIENCE:g} s") from None
            if done.returncode != 0:
                raise Failure(f"{shlex.join(command)}: {last_line(done.stderr)}")
        if self._tree.live:
            self._check_lines()

    def _check_lines(self) -> None:
        """Raises Failure if what the boot loader will give the kernel has none of our arguments."""
        files, given = self._holder(), given_arguments(self.staged())
        lines = [parse_line(line) for line in files.lines()] if files and given else []
        if lines and not any(set(given) <= set(line.arguments) for line in lines):
            raise Failure(
                f"{shlex.join(self.commands()[0])}: the boot loader does not give the kernel the arguments in "
                f"{self.path()}; look for another file that sets its arguments"
            )

    def commands(self) -> list[list[str]]:
        """What has the boot loader take our file in: one command, or one for each kernel that is installed."""
        files = self._holder()
        return files.commands() if files else []


def _program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def _arguments(pairs: Sequence[tuple[str, str]]) -> list[Argument]:
    return [Argument(name, value or None) for name, value in pairs]
