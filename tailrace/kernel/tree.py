"""Files of /sys, /proc and /etc under a root that can be moved, so that a copy of another machine's can stand in."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

_NUMBERS = re.compile(r"(\d+)")
_ENDS = " \t\r\n\0"
"""White space, and the zero byte that some kernels show: nohz_full before 4.0, a node's cpulist in 5.15-rc."""
_CHUNK = 1 << 16
"""So much is read at once: Linux refuses to fill a buffer of 4 MiB from a file of /proc/sys."""
_MOST_CHUNKS = 1024
"""More than any of these files has."""


def natural(text: str) -> tuple[str | int, ...]:
    """A sort key by which cpu2 comes before cpu10."""
    return tuple(int(part) if part.isdigit() else part for part in _NUMBERS.split(text))


@dataclass(frozen=True)
class Tree:
    """A machine's files. Paths are absolute, as on that machine; `root` is where they are found."""

    root: Path = field(default=Path("/"))

    @property
    def live(self) -> bool:
        """Whether this is the running machine and not a copy of one."""
        return self.root == Path("/")

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """The content without white space and zero bytes at its ends; None if there is no file or it cannot be read."""
        # Thousands of files are read of a large machine, so no Path is made for each.
        try:
            with open(f"{self.root}/{path}", errors="replace") as file:  # noqa: PTH123
                return "".join(islice(iter(lambda: file.read(_CHUNK), ""), _MOST_CHUNKS)).strip(_ENDS)
        except (OSError, ValueError):  # the path may come from a file whose content cannot be one
            return None

    def gzipped(self, path: str) -> str | None:
        """The content of a compressed file; None if there is none or it cannot be read."""
        try:
            return gzip.decompress(self.at(path).read_bytes()).decode(errors="replace")
        except (OSError, EOFError, zlib.error):
            return None

    def raw(self, path: str, most: int) -> bytes | None:
        """The first bytes of a file; None if there is none or it cannot be read."""
        try:
            with self.at(path).open("rb") as file:
                return file.read(most)
        except (OSError, ValueError):
            return None

    def number(self, path: str) -> int | None:
        """The file's content as a whole number; None if it is not one."""
        text = self.text(path)
        try:
            return int(text, 0) if text is not None else None
        except ValueError:
            return None

    def number_hex(self, path: str) -> int | None:
        """The file's content as a hexadecimal number without a prefix; None if it is not one."""
        try:
            return int(self.text(path) or "", 16)
        except ValueError:
            return None

    def exists(self, path: str) -> bool:
        return self.at(path).exists()

    def names(self, folder: str) -> list[str]:
        """What is in a folder, in natural order; empty if it is not there."""
        try:
            return sorted(os.listdir(self.at(folder)), key=natural)  # noqa: PTH208 - names alone are wanted
        except (OSError, ValueError):
            return []

    def find(self, folder: str, pattern: str) -> Iterator[tuple[str, int]]:
        """The entries of a folder that are `pattern` with a number for its one `*`, with that number, in its order."""
        wanted = re.compile(re.escape(pattern).replace(r"\*", r"(\d+)") + "$")
        for name in self.names(folder):
            found = wanted.match(name)
            if found:
                yield f"{folder}/{name}", int(found[1])

    def target(self, path: str) -> str | None:
        """The last part of what a symbolic link points at; None if it is none."""
        try:
            return self.at(path).readlink().name
        except (OSError, ValueError):
            return None

    def write(self, path: str, value: str) -> None:
        """Writes a value in one write, as sysfs wants it. Raises OSError."""
        descriptor = os.open(self.at(path), os.O_WRONLY | (0 if self.live else os.O_TRUNC))
        try:
            os.write(descriptor, value.encode() + b"\n")
        finally:
            os.close(descriptor)
