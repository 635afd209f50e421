"""Kernel arguments: what the running kernel was given, and one file of our own that gives it more at the next boot.

GRUB: a file in /etc/default/grub.d, which update-grub reads after /etc/default/grub. kernel-install (systemd-boot): a
plugin in /etc/kernel/install.d, which adds the arguments to the entries it makes. Nothing that is not ours is edited.
Sources: update-grub(8); kernel-install(8).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from tailrace.errors import Failure, Mistake
from tailrace.host.tree import Tree

GRUB_FOLDER = "/etc/default/grub.d"
GRUB_FILE = f"{GRUB_FOLDER}/zz-tailrace.cfg"
INSTALL_FOLDER = "/etc/kernel/install.d"
INSTALL_FILE = f"{INSTALL_FOLDER}/95-tailrace.install"
#: Where kernel-install has a machine's own arguments from; where there is neither, from /proc/cmdline.
LINE_FILES = ("/etc/kernel/cmdline", "/usr/lib/kernel/cmdline")
_MARK = "# Written by `tailrace host apply`; `tailrace host undo` removes it."
_GRUB = '{mark}\nGRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {arguments}"\n'
_INSTALL = """\
#!/bin/sh
{mark}
[ "$1" = add ] || exit 0
arguments="{arguments}"
token=${{KERNEL_INSTALL_ENTRY_TOKEN:-$KERNEL_INSTALL_MACHINE_ID}}
for entry in "$KERNEL_INSTALL_BOOT_ROOT/loader/entries/$token-$2"*.conf; do
	[ ! -f "$entry" ] || sed -i "s|^options .*|& $arguments|" "$entry"
done
"""
_GIVEN = re.compile(r'^\w+="(?:\$\w+ )?(.*)"$', re.MULTILINE)
"""Our arguments in either file."""
FIRST_COUNTS = ("isolcpus", "nohz_full")
"""Arguments of which the kernel keeps the first and refuses another list (Linux, kernel/sched/isolation.c)."""
_MOST = 2047
"""Letters of its command line that the kernel reads on x86 and Arm (COMMAND_LINE_SIZE), without a word of the rest."""
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
PATIENCE = 120.0
"""Seconds that a boot loader's command may take."""


class BootLoader:
    """The boot loader of one machine, as a place of kernel arguments (`argument:NAME`)."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def kind(self) -> str | None:
        """`grub` or `kernel-install`; None if it is neither."""
        if self._tree.exists("/etc/default/grub"):
            return "grub"
        # kernel-install itself is on most machines; it is the boot loader's where there are entries for one.
        plugins = any(self._tree.exists(f"{folder}/kernel/install.d") for folder in ("/etc", "/usr/lib"))
        entries = any(self._tree.exists(f"{boot}/loader/entries") for boot in ("/efi", "/boot", "/boot/efi"))
        return "kernel-install" if plugins and entries else None

    def read(self, target: str) -> str | None:
        """The argument's value that counts for the running kernel; empty if it has none, None if it is not given."""
        pairs = (argument.partition("=") for argument in (self._tree.text("/proc/cmdline") or "").split())
        given = [value for name, _, value in pairs if name == target]
        return given[0 if target in FIRST_COUNTS else -1] if given else None

    def write(self, target: str, value: str) -> None:  # noqa: ARG002 - a scheme's places have both
        raise OSError(1, "a kernel argument takes effect at the next boot")

    def check(self, arguments: Sequence[tuple[str, str]]) -> None:
        """Raises Mistake, with the arguments, where they cannot be given to the boot loader, or not taken back."""
        obstacle = (self._obstacle() or self._too_long(arguments)) if arguments else None
        if obstacle:
            raise Mistake(
                f"{obstacle}; leave the boot-time knobs out with --run-time, and give the kernel its arguments "
                f"yourself: {_words(arguments)}"
            )

    def _obstacle(self) -> str | None:
        kind = self.kind()
        if kind is None:
            return "no boot loader that Tailrace knows (GRUB, kernel-install)"
        if kind == "kernel-install" and not any(self._tree.exists(path) for path in LINE_FILES):
            # Its entries would be made of the running kernel's line, with our arguments in it, also when we undo.
            return f"kernel-install would keep the arguments for good: write the machine's own into {LINE_FILES[0]}"
        missing = [command[0] for command in self.commands() if _program(command[0]) is None]
        return f"{missing[0]} is missing" if self._tree.live and missing else None

    def _too_long(self, arguments: Sequence[tuple[str, str]]) -> str | None:
        ours = {*_words(sorted(self.staged_arguments())).split(), *_words(arguments).split()}
        others = [word for word in (self._tree.text("/proc/cmdline") or "").split() if word not in ours]
        letters = len(" ".join([*others, _words(arguments)]))
        return f"the kernel reads {_MOST} letters of its command line, not {letters}" if letters > _MOST else None

    def path(self) -> str:
        """Our file."""
        return INSTALL_FILE if self.kind() == "kernel-install" else GRUB_FILE

    def text(self, arguments: Sequence[tuple[str, str]]) -> str:
        """What our file is to say."""
        template = _GRUB if self.kind() == "grub" else _INSTALL
        return template.format(mark=_MARK, arguments=_words(arguments))

    def staged(self) -> str | None:
        """What our file says now; None if there is none."""
        return self._tree.text(self.path()) if self.kind() else None

    def staged_arguments(self) -> set[tuple[str, str]]:
        """The arguments that our file gives."""
        given = _GIVEN.search(self.staged() or "")
        words = given[1].split() if given else []
        return {(name, value) for name, _, value in (word.partition("=") for word in words)}

    def stage(self, text: str | None) -> None:
        """Writes our file, or removes it for None, and has the boot loader take it in. Raises Failure."""
        path = self._tree.at(self.path())
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
                temporary.chmod(0o755 if self.kind() == "kernel-install" else 0o644)
                temporary.replace(path)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from None
        self.refresh()

    def refresh(self) -> None:
        """Has the boot loader take our file in as it is now, which may be done again; a copied machine's is not run.

        Raises Failure.
        """
        for command in self.commands() if self._tree.live else []:
            if _program(command[0]) is None:
                raise Failure(f"{command[0]} is missing; run what makes your boot loader read {self.path()}")
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            except subprocess.TimeoutExpired:
                raise Failure(f"{shlex.join(command)}: has not ended within {PATIENCE:g} s") from None
            if done.returncode != 0:
                words = done.stderr.strip().splitlines()
                raise Failure(f"{shlex.join(command)}: {words[-1] if words else 'failed'}")

    def commands(self) -> list[list[str]]:
        """What has the boot loader take our file in: one command, or one for each kernel that is installed."""
        if self.kind() == "grub":
            return [["update-grub"]]
        found = []
        for version in self._tree.names("/lib/modules"):
            images = (f"/lib/modules/{version}/vmlinuz", f"/boot/vmlinuz-{version}")
            image = next((each for each in images if self._tree.exists(each)), None)
            if image is not None:
                found.append(["kernel-install", "add", version, image])
        return found


def _program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def _words(arguments: Sequence[tuple[str, str]]) -> str:
    """Arguments as they stand on the kernel's command line."""
    return " ".join(f"{name}={value}" if value else name for name, value in arguments)
