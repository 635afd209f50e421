"""What a file of shell assignments sets, such as /etc/default/grub, read and not run: it may be another machine's.

Quotes, escapes and $NAME are read as a shell does. What depends on more than that (a condition, a command, another
file) is not guessed: the names that it may set are unsure.
Source: POSIX.1-2017, Shell Command Language, 2.2, 2.6 and 2.9. Logic without I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
_NAME = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_OPERATORS = re.compile(r"&&|\|\||[;&|()\n]")
_BLANKS = " \t"
_PLAIN = re.compile(r"[^\s;&|()'\"\\$`]+")
_IN_QUOTES = re.compile(r"[^\"\\$`]+")
_BEGIN = ("if", "for", "while", "until", "case", "{")
_END = ("fi", "done", "esac", "}")
_GO_ON = ("then", "else", "elif", "do", "!")
_ELSEWHERE = (".", "source", "eval")


@dataclass
class Word:
    """One word of a command."""

    raw: str = ""
    """As it is written."""
    value: str | None = ""
    """What it comes to; None if that cannot be known."""

    def add(self, raw: str, value: str | None) -> None:
        self.raw += raw
        self.value = None if self.value is None or value is None else self.value + value


@dataclass
class ShellSettings:
    """The variables that files have set, one after the other."""

    values: dict[str, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    """Names of which it cannot be known what they are set to."""
    elsewhere: bool = False
    """Whether a file goes on in another one, or runs text that it makes."""

    def known(self, names: Iterable[str]) -> bool:
        """Whether it is known what all of these are set to."""
        return not self.elsewhere and not self.unsure & set(names)

    def read(self, text: str) -> None:
        """Goes through one more file."""
        at, depth, parentheses, perhaps = 0, 0, 0, False
        words: list[Word] = []
        while at <= len(text):
            operator = _OPERATORS.match(text, at)
            if at == len(text) or operator:
                depth += self._command(words, sure=depth + parentheses == 0 and not perhaps)
                if words or not operator or operator[0] != "\n":  # a line may end after `&&`
                    perhaps = operator is not None and operator[0] in ("&&", "||", "|", "&")
                if operator:  # a pattern of `case` ends with one that nothing has begun
                    parentheses = max(parentheses + {"(": 1, ")": -1}.get(operator[0], 0), 0)
                words, at = [], operator.end() if operator else at + 1
            elif text[at] == "#":
                at = text.find("\n", at) if "\n" in text[at:] else len(text)
            elif text[at] in _BLANKS or text.startswith("\\\n", at):
                at += 1 if text[at] in _BLANKS else 2
            else:
                word, at = self._word(text, at)
                words.append(word)

    def _command(self, words: list[Word], *, sure: bool) -> int:
        """Takes in what a command sets; returns by how much deeper in conditions and loops the next one stands."""
        depth = 0
        words = [word for word in words if word.value != "" or set(word.raw) & set("'\"")]  # $EMPTY is no word
        while words and words[0].raw in (*_BEGIN, *_END, *_GO_ON):
            depth += (words[0].raw in _BEGIN) - (words[0].raw in _END)
            words, sure = words[1:], False
        if words and words[0].raw in ("export", "readonly"):
            words = [Word(word.raw.lstrip("'\""), word.value) for word in words[1:] if "=" in word.raw]
        elif words and words[0].raw in _ELSEWHERE:
            self.elsewhere = True
        elif words and words[0].raw == "unset":
            for word in words[1:]:
                self._set(word.raw, "", sure=sure)
        set_here = [(found[1], word) for word in words if (found := _ASSIGNMENT.match(word.raw))]
        if len(set_here) == len(words):  # before the words of a command they are for that command alone
            for name, word in set_here:
                value = None if word.value is None else word.value.partition("=")[2]
                self._set(name, value, sure=sure)
        return depth

    def _set(self, name: str, value: str | None, *, sure: bool) -> None:
        if sure and value is not None:
            self.values[name] = value
            self.unsure.discard(name)
        else:
            self.unsure.add(name)

    def _word(self, text: str, at: int) -> tuple[Word, int]:
        """The word that begins there, and where it ends."""
        word, start, quoted = Word(), at, False
        while at < len(text):
            plain = (_IN_QUOTES if quoted else _PLAIN).match(text, at)
            name = _NAME.match(text, at)
            if plain:
                word.add(plain[0], plain[0])
                at = plain.end()
            elif name:
                known = (name[1] or name[2]) not in self.unsure
                word.add(name[0], self.values.get(name[1] or name[2], "") if known else None)
                at = name.end()
            elif text[at] == '"':
                quoted = not quoted
                word.add('"', "")
                at += 1
            elif text[at] == "'":
                end = text.find("'", at + 1)
                end = len(text) if end < 0 else end
                word.add(text[at : end + 1], text[at + 1 : end])
                at = end + 1
            elif text[at] == "\\":
                letter = text[at + 1 : at + 2]
                kept = f"\\{letter}" if quoted and letter not in ('"', "\\", "$", "`", "\n") else letter
                word.add(text[at : at + 2], "" if letter == "\n" else kept)
                at += 2
            elif text[at] in "$`":
                end = _substitution(text, at)
                word.add(text[at:end], "$" if end == at + 1 and text[at] == "$" else None)
                at = end
            elif quoted or at == start:
                word.add(text[at], text[at])
                at += 1
            else:
                break
        return word, at


def _substitution(text: str, at: int) -> int:
    """The end of a `$(...)`, `${...}` or a pair of backquotes that begins there; of a lone `$`, its own."""
    if text[at] == "`":
        end = text.find("`", at + 1)
        return len(text) if end < 0 else end + 1
    pairs = {"(": ")", "{": "}"}
    if text[at + 1 : at + 2] not in pairs:
        return at + 1 + (text[at + 1 : at + 2] in tuple("?*@#$!-0123456789"))
    opened, depth, end = text[at + 1], 0, at + 1
    while end < len(text):
        depth += (text[end] == opened) - (text[end] == pairs[opened])
        end += 1
        if depth == 0:
            break
    return end
