"""Words that others have chosen, made fit for a terminal: what a function, a machine, a container, a program or another
host says is shown as letters, and does nothing."""

from __future__ import annotations

import logging

MOST = 4096
"""Characters of a text."""
MOST_ERROR = 1 << 16
"""Of an error, which may name many things."""


def plain(text: str, most: int = MOST) -> str:
    """`text` on one line of at most so many characters. A space stands for each that is not to be seen: what moves a
    terminal's cursor, turns the direction of writing, or is no letter at all."""
    if len(text) > most:
        text = f"{text[: most - 1]}…"
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def plain_lines(text: str) -> str:
    """The same of a text that has lines, however long it is."""
    return text if text.isprintable() else "\n".join(plain(line, len(line)) for line in text.split("\n"))


def last_line(printed: str | bytes, otherwise: str = "failed") -> str:
    """The last line that a program has printed, which is its error if it has failed; `otherwise` if there is none."""
    text = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
    lines = text.strip().splitlines()
    return plain(lines[-1]).strip() if lines else otherwise


class PlainFormatter(logging.Formatter):
    """For logs that are read on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record))
