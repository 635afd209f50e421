"""Room on disk that a run keeps for its end, so that a full disk still takes the last results.json and the report."""

from __future__ import annotations

import errno
import os
from pathlib import Path

NAME = ".reserve"
REPORT_BYTES = 4 << 20
"""What a report takes, as a rule."""


class Reserve:
    """A file of zeros in the run folder, which makes room for others when it is gone."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._size = 0
        self._spent = False

    def hold(self, size: int) -> None:
        """Keeps so many bytes, or more if more are kept already. Raises OSError if the disk does not have them."""
        if self._spent or size <= self._size:
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise OSError(error.errno, error.strerror, str(self._path)) from None
            # A file system that cannot: what was checked beforehand has to do.
        finally:
            os.close(descriptor)
        self._size = size

    def spend(self) -> None:
        """Gives the room to what the run ends with; from here on nothing is kept."""
        self._spent = True
        self._path.unlink(missing_ok=True)
