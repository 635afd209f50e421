"""A file of passwords: a line for each person, NAME:SALT:HASH (scrypt, RFC 7914; both in hexadecimal digits)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.kernel.plain_file import plain_file

_NAME = re.compile(r"[\w.@-]{1,64}")
LEAST = 12
"""Characters of a password."""
_MOST_KNOWN = 1000


def _hash(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=1 << 14, r=8, p=1)


def _read(file: Path) -> dict[str, tuple[bytes, bytes]]:
    try:
        if file.stat().st_mode & 0o077:
            raise Mistake(f"{file}: others may read it; `chmod 600` it first")
        found = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            name, salt, digest = line.split(":")
            found[name] = bytes.fromhex(salt), bytes.fromhex(digest)
    except OSError as error:
        raise Mistake(f"{file}: {error.strerror}") from None
    except ValueError:
        raise Mistake(f"{file}: expected lines NAME:SALT:HASH, as --set-password writes them") from None
    return found


def set_password(file: Path, name: str, password: str) -> None:
    """Gives a person a password, or another one. Raises Mistake."""
    if not _NAME.fullmatch(name):
        raise Mistake(f"{name!r}: expected a name of letters, digits and . _ @ -")
    if len(password) < LEAST:
        raise Mistake(f"expected a password of at least {LEAST} characters")
    file = plain_file(file)
    known = _read(file) if file.exists() else {}
    salt = secrets.token_bytes(16)
    known[name] = salt, _hash(password, salt)
    text = "".join(f"{each}:{salt.hex()}:{digest.hex()}\n" for each, (salt, digest) in known.items())
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(text)
        new.replace(file)
    except OSError as error:
        raise Mistake(f"{file}: {error.strerror}") from None


class Passwords:
    """Who may look by a name and a password (HTTP's Basic authentication); for one event loop."""

    def __init__(self, file: Path) -> None:
        """Raises Mistake."""
        if not file.exists():
            raise Mistake(
                f"{file}: No such file; `tailrace dashboard --password-file {file} --set-password NAME` makes it"
            )
        self._people = _read(file)
        self._nobody = secrets.token_bytes(16), b""
        self._key = secrets.token_bytes(32)
        self._known: set[bytes] = set()
        """Headers that were right: a hash takes long, and a browser sends them with each request."""
        self._one_by_one = asyncio.Lock()

    async def fits(self, authorization: str) -> bool:
        """Whether a header names somebody with the right password. Who guesses waits for who has guessed before."""
        kind, _, text = authorization.partition(" ")
        if kind.lower() != "basic":
            return False
        mark = hmac.digest(self._key, text.encode(errors="replace"), "sha256")
        if mark in self._known:
            return True
        try:
            name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except ValueError:
            return False
        salt, digest = self._people.get(name, self._nobody)
        async with self._one_by_one:
            found = await asyncio.to_thread(_hash, password, salt)
        if not secrets.compare_digest(found, digest):
            return False
        if len(self._known) < _MOST_KNOWN:
            self._known.add(mark)
        return True
