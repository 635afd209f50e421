"""The files that give the kernel its arguments at the next boot: GRUB's, and those of kernel-install (systemd-boot).

Of each, Tailrace writes one file of its own: one in /etc/default/grub.d, which update-grub reads after
/etc/default/grub, or a plugin in /etc/kernel/install.d, which adds the arguments to the entries that kernel-install
makes. Both put them before a lone `--`, from which on a line is for the first process. Nothing that is not ours is
edited. Sources: update-grub(8); kernel-install(8); the UAPI group's Boot Loader Specification.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from tailrace.host.command_line import Argument, CommandLine, insert, parse_line, show_line
from tailrace.host.shell_settings import ShellSettings
from tailrace.kernel.tree import Tree

GRUB_DEFAULTS = "/etc/default/grub"
GRUB_FOLDER = "/etc/default/grub.d"
GRUB_FILE = f"{GRUB_FOLDER}/zz-tailrace.cfg"
GRUB_MENU = "/boot/grub/grub.cfg"
GRUB_LINES = ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")
"""What update-grub makes the line of an ordinary menu entry of, in this order."""
INSTALL_FOLDER = "/etc/kernel/install.d"
INSTALL_FILE = f"{INSTALL_FOLDER}/95-tailrace.install"
INSTALL_SETTINGS = ("/etc/kernel/install.conf", "/usr/lib/kernel/install.conf")
#: Where kernel-install has a machine's own arguments from; where there is neither, from /proc/cmdline.
LINE_FILES = ("/etc/kernel/cmdline", "/usr/lib/kernel/cmdline")
BOOT_FOLDERS = ("/efi", "/boot", "/boot/efi")
"""Where kernel-install looks for the boot loader's entries."""
_MARK = "# Written by `tailrace host apply`; `tailrace host undo` removes it."
_PART = """\
# Prints the kernel's part of a command line, which a lone "--" ends; blanks between double quotes part nothing.
tailrace_kernels_part() (
	rest=$1 part= word= quoted=
	while [ -n "$rest" ]; do
		tail=${rest#?}
		letter=${rest%"$tail"}
		case $quoted$letter in
		[[:space:]])
			case $word in -- | '"--"') break ;; esac
			part=$part$word$letter word=
			;;
		*)
			case $letter$quoted in
			\\") quoted=q ;;
			\\"q) quoted= ;;
			esac
			word=$word$letter
			;;
		esac
		rest=$tail
	done
	case $word in -- | '"--"') ;; *) part=$part$word ;; esac
	printf %s "$part"
)
"""
_GRUB = f"""\
{_MARK}
tailrace_arguments="@ARGUMENTS@"
{_PART}tailrace_part=$(tailrace_kernels_part "$GRUB_CMDLINE_LINUX_DEFAULT")
tailrace_rest=${{GRUB_CMDLINE_LINUX_DEFAULT#"$tailrace_part"}}
tailrace_part=${{tailrace_part% }}
GRUB_CMDLINE_LINUX_DEFAULT="${{tailrace_part:+$tailrace_part }}$tailrace_arguments${{tailrace_rest:+ $tailrace_rest}}"
"""
_INSTALL = f"""\
#!/bin/sh
{_MARK}
tailrace_arguments="@ARGUMENTS@"
[ "$1" = add ] || exit 0
set -e
{_PART}
# Of several `options` lines, which count together, one gets the arguments: the first with a "--", or else the last.
add_arguments() {{
	blank=$(printf '\\t') number=0 at=0 ended=
	while IFS= read -r line || [ -n "$line" ]; do
		number=$((number + 1))
		case $line in
		"options "* | "options$blank"*)
			case " $line " in *" $tailrace_arguments "*) return 0 ;; esac
			[ -n "$ended" ] || at=$number
			[ "$(tailrace_kernels_part "$line")" = "$line" ] || ended=yes
			;;
		esac
	done <"$1"
	number=0
	while IFS= read -r line || [ -n "$line" ]; do
		number=$((number + 1))
		if [ "$number" = "$at" ]; then
			part=$(tailrace_kernels_part "$line")
			rest=${{line#"$part"}}
			line="${{part% }} $tailrace_arguments${{rest:+ $rest}}"
		fi
		printf '%s\\n' "$line"
	done <"$1" >"$1.new"
	[ "$at" -gt 0 ] || printf 'options %s\\n' "$tailrace_arguments" >>"$1.new"
	mv "$1.new" "$1"
}}

# TOKEN-VERSION.conf, or with boot counting TOKEN-VERSION+LEFT.conf or TOKEN-VERSION+LEFT-DONE.conf.
name=$KERNEL_INSTALL_BOOT_ROOT/loader/entries/${{KERNEL_INSTALL_ENTRY_TOKEN:-$KERNEL_INSTALL_MACHINE_ID}}-$2
for entry in "$name.conf" "$name"+[0-9]*.conf; do
	[ -f "$entry" ] || continue
	count=${{entry#"$name"}}
	count=${{count%.conf}}
	case ${{count#+}} in *[!0-9-]*) continue ;; esac
	version=$(sed -n 's/^version[[:space:]]*\\(.*[^[:space:]]\\)[[:space:]]*$/\\1/p' "$entry" | head -n 1)
	[ "${{version:-$2}}" = "$2" ] || continue
	add_arguments "$entry"
done
"""
_GIVEN = re.compile(r'^\w+="(?:\$\w+ )?(.*)"$', re.MULTILINE)
"""Our arguments in either file, also as earlier versions of Tailrace wrote it."""
_MENU_LINE = re.compile(r"^\s*linux(?:16|efi)?\s+\S+(.*)$", re.MULTILINE)
_OPTIONS = re.compile(r"^options[ \t](.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Stage:
    """The next boot's command line, as it stands after one of the files that it is made of."""

    path: str
    line: str

    @cached_property
    def parsed(self) -> CommandLine:
        return parse_line(self.line)

    @property
    def ends_early(self) -> bool:
        """Whether the kernel reads nothing that is added: after a lone `--`, or within quotes that never end."""
        return bool(self.parsed.init) or self.line.count('"') % 2 == 1


class BootFiles(Protocol):
    """How one boot loader is given arguments."""

    kind: str
    path: str
    """Our file."""
    mode: int

    def set_up(self) -> bool:
        """Whether the machine has what belongs to this boot loader."""

    def obstacle(self) -> str | None:
        """Why arguments cannot be given, or not be taken back."""

    def text(self, arguments: Sequence[Argument]) -> str:
        """What our file is to say."""

    def stages(self, text: str | None) -> list[Stage] | None:
        """What the next boot's line is made of, were our file to say `text`; None if that cannot be known."""

    def commands(self) -> list[list[str]]:
        """What has the boot loader take our file in."""

    def lines(self) -> list[str]:
        """The command lines that the boot loader has been given, one for each kernel or menu entry."""

    def forget(self, arguments: Sequence[Argument]) -> None:
        """Takes arguments of ours out of what the commands do not make anew. Raises OSError."""


def given_arguments(text: str | None) -> list[Argument]:
    """The arguments that a file of ours gives."""
    found = _GIVEN.search(text or "")
    return list(parse_line(found[1]).arguments) if found else []


class Grub:
    """GRUB as Debian has it, with update-grub."""

    kind = "grub"
    path = GRUB_FILE
    mode = 0o644

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def set_up(self) -> bool:
        # /etc/default/grub comes with a package, and stays when that is removed.
        return self._tree.exists(GRUB_DEFAULTS) and self._tree.exists(GRUB_MENU)

    def obstacle(self) -> str | None:
        return None

    def text(self, arguments: Sequence[Argument]) -> str:
        return _GRUB.replace("@ARGUMENTS@", show_line(arguments))

    def stages(self, text: str | None) -> list[Stage] | None:
        settings, found = ShellSettings(), []
        for path, content in self._files(text):
            if path == GRUB_FILE:
                name = GRUB_LINES[1]
                settings.values[name] = insert(settings.values.get(name, ""), given_arguments(content))
            else:
                settings.read(content)
            if not settings.known(GRUB_LINES):
                return None
            found.append(Stage(path, " ".join(settings.values.get(name, "") for name in GRUB_LINES).strip()))
        return found

    def _files(self, text: str | None) -> Iterator[tuple[str, str]]:
        """Each file that update-grub reads, and what it says, in its order: that of their bytes."""
        ours = GRUB_FILE.rpartition("/")[2]
        names = {name for name in self._tree.names(GRUB_FOLDER) if name.endswith(".cfg") and name[0] != "."}
        yield GRUB_DEFAULTS, self._tree.text(GRUB_DEFAULTS) or ""
        for name in sorted({*(names - {ours}), *([ours] if text else [])}, key=str.encode):
            path = f"{GRUB_FOLDER}/{name}"
            yield path, (text or "") if name == ours else self._tree.text(path) or ""

    def commands(self) -> list[list[str]]:
        return [["update-grub"]]

    def lines(self) -> list[str]:
        return _MENU_LINE.findall(self._tree.text(GRUB_MENU) or "")

    def forget(self, arguments: Sequence[Argument]) -> None:
        """update-grub makes its file anew."""


class KernelInstall:
    """systemd-boot, or another boot loader that reads entries of the Boot Loader Specification, with kernel-install."""

    kind = "kernel-install"
    path = INSTALL_FILE
    mode = 0o755

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def set_up(self) -> bool:
        # kernel-install itself is on most machines; it is the boot loader's where there are entries for one.
        plugins = any(self._tree.exists(f"{folder}/kernel/install.d") for folder in ("/etc", "/usr/lib"))
        return plugins and any(self._tree.exists(f"{boot}/loader/entries") for boot in BOOT_FOLDERS)

    def obstacle(self) -> str | None:
        if not any(self._tree.exists(path) for path in LINE_FILES):
            # Its entries would be made of the running kernel's line, with our arguments in it, also when we undo.
            return f"kernel-install would keep the arguments for good: write the machine's own into {LINE_FILES[0]}"
        settings = ShellSettings()
        path = next((path for path in INSTALL_SETTINGS if self._tree.exists(path)), None)
        settings.read((self._tree.text(path) if path else None) or "")
        layout = settings.values.get("layout", "")
        if layout not in ("", "auto", "bls"):
            return f"{path} makes kernel-install write no entries that take arguments (layout={layout})"
        return None

    def text(self, arguments: Sequence[Argument]) -> str:
        return _INSTALL.replace("@ARGUMENTS@", show_line(arguments))

    def stages(self, text: str | None) -> list[Stage] | None:
        path = next((path for path in LINE_FILES if self._tree.exists(path)), None)
        if path is None:
            return None
        line = " ".join((self._tree.text(path) or "").split("\n"))
        ours = [Stage(INSTALL_FILE, insert(line, given_arguments(text)))] if text else []
        return [Stage(path, line), *ours]

    def commands(self) -> list[list[str]]:
        found = []
        for version in self._tree.names("/lib/modules"):
            images = (f"/lib/modules/{version}/vmlinuz", f"/boot/vmlinuz-{version}")
            image = next((each for each in images if self._tree.exists(each)), None)
            if image is not None:
                found.append(["kernel-install", "add", version, image])
        return found

    def lines(self) -> list[str]:
        texts = (self._tree.text(path) or "" for path in self._entries())
        return [" ".join(_OPTIONS.findall(text)) for text in texts]

    def forget(self, arguments: Sequence[Argument]) -> None:
        """An entry that has booted is renamed where boots are counted, and kernel-install makes another beside it."""
        ours = show_line(arguments)
        for path in self._entries():
            text = self._tree.text(path) or ""
            if ours and f" {ours}" in text:
                at = self._tree.at(path)
                temporary = at.with_name(f"{at.name}.new")
                temporary.write_text(re.sub(rf" {re.escape(ours)}(?=[ \t\n]|$)", "", text) + "\n")
                temporary.replace(at)

    def _entries(self) -> list[str]:
        folders = [f"{boot}/loader/entries" for boot in BOOT_FOLDERS]
        return [f"{folder}/{name}" for folder in folders for name in self._tree.names(folder) if name.endswith(".conf")]
