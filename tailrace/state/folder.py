"""Where what is up is on record, and where the service listens; needs little else of Tailrace's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tailrace.errors import Mistake

ENVIRONMENT = "TAILRACE_STATE"
IMAGES = "TAILRACE_IMAGES"
"""The folder of machines' images."""
OPERATE = "operate.socket"
LOOK = "look.socket"
LOG = "service.log"
RUN = "run"
_ROOTS = Path("/run/tailrace")


def default_folder() -> Path:
    """$TAILRACE_STATE, by its real path, since by two names it would be two nodes; else /run/tailrace for root; else a
    folder of the user's own. Raises Mistake where a file is in its place."""
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        folder = Path(os.path.realpath(chosen))
        try:
            if not stat.S_ISDIR(folder.stat().st_mode):
                raise no_folder(folder)
        except NotADirectoryError:
            raise no_folder(folder) from None
        except OSError:  # to be made, or looked into: who does so says why it cannot be
            pass
        return folder
    if os.geteuid() == 0:
        return _ROOTS
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "tailrace" if runtime else Path(f"/tmp/tailrace-{os.geteuid()}")


def no_folder(folder: Path) -> Mistake:
    """What is said where a file is in the place of the state folder."""
    return Mistake(f"{folder}: a file is in its place; set {ENVIRONMENT} to a folder of your own")


def not_yours(folder: Path) -> str | None:
    """What to say beside "nothing is up" to a user who looks in a folder of their own while root's node is up."""
    if os.environ.get(ENVIRONMENT) or os.geteuid() == 0 or not _ROOTS.exists():
        return None
    return f"this is {folder}, your own; what root has up is in {_ROOTS}: use sudo"


def run_folder(folder: Path) -> Path:
    """Of the measurement that is at work beside what is up there: a node of its own, which ends with it."""
    return folder / RUN


def folder_in_use(folder: Path) -> Path:
    """The folder whose switch is to be looked at: of what is up, or else of the measurement that is at work."""
    run = run_folder(folder)
    return run if not (folder / "state.json").exists() and (run / "state.json").exists() else folder
