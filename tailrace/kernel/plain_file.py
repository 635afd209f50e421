"""Where a file goes that takes the place of what is there."""

from __future__ import annotations

from pathlib import Path

from tailrace.errors import Mistake


def plain_file(path: Path) -> Path:
    """Where a file that is asked for at `path` is written: what a link leads to, so that the link stays.

    Raises Mistake if there is something else than a file, which the file would take the place of.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise Mistake(f"{path}: there is a {'folder' if target.is_dir() else 'device'}; expected a file, or a new name")
    return target
