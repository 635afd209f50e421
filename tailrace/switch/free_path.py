"""Whether a Unix socket may be made at a path, without touching what is there."""

from __future__ import annotations

import os
import socket
import stat


def why_taken(path: str) -> str | None:
    """What is there that is not a leftover of a crash, as the end of a sentence; None if nothing is.

    A socket that nobody listens on is such a leftover: whoever makes a new one removes it.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return ": a file that is no socket is there; use another path"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except BlockingIOError:
        pass  # it listens, and many wait for it
    except OSError as error:
        return f": {error.strerror}"
    return " is in use; stop the program that listens there or use another path"
