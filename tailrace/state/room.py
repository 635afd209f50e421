"""Room on a disk for what has to be written later, whatever has filled the disk by then."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType

_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""Of a file system that has no files without a name (O_TMPFILE)."""


class Room:
    """A file without a name that has so many bytes of its disk; nothing is left of it after any end.

    Where the file system has no such files, or does not set room aside, `write` needs what is free then.
    """

    def __init__(self, folder: Path, size: int) -> None:
        """Raises OSError, with the folder's name, where the disk does not have them."""
        self._file: int | None = None
        try:
            self._file = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            os.posix_fallocate(self._file, 0, size)
        except OSError as error:
            if self._file is None and error.errno in _NO_NAMELESS:
                return
            if self._file is not None and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                return
            self.close()
            raise OSError(error.errno, error.strerror, str(folder)) from None

    def write(self, path: Path, text: str) -> None:
        """Becomes the file of that name, in place of one that is there. Raises OSError."""
        if self._file is None:
            path.write_text(text)
            return
        with os.fdopen(self._file, "wb", closefd=False) as file:
            file.write(text.encode())
            file.truncate()
        path.unlink(missing_ok=True)
        # With a folder, though the path is absolute: without one Python calls link(2), which does not follow this link.
        os.link(f"/proc/self/fd/{self._file}", path, src_dir_fd=self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def __enter__(self) -> Room:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()
