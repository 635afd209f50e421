"""The index of a folder of runs: which there are, of which spec, on which host and fabric, and when.

It is a SQLite file beside the run folders and holds nothing of its own: each time it is opened it takes in the folders
that are new or have changed, and forgets those that are gone. So it may be deleted, damaged, or of another version at
any time, and is then made anew. Where it cannot be written, it is made in memory.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from tailrace.results.model import FORMAT, ResultError, Run, Unreadable
from tailrace.results.run import RESULTS, load_run

INDEX = ".index.sqlite"
#: Of the table below and of the results that are read into it: what an older Tailrace could not read, this one may.
_VERSION = 1000 + FORMAT
_SCHEMA = """
CREATE TABLE runs (
  folder TEXT PRIMARY KEY, modified INTEGER NOT NULL, size INTEGER NOT NULL,
  started REAL, finished REAL, name TEXT, method TEXT, spec TEXT, host TEXT, fabric TEXT,
  trials INTEGER, reason TEXT, unreadable TEXT
);
CREATE INDEX runs_by_date ON runs (started);
"""


@dataclass(frozen=True)
class Entry:
    """What the index knows of one folder. Times are seconds since the epoch."""

    folder: str
    """Its name in the folder of runs."""
    started: float | None = None
    finished: float | None = None
    name: str | None = None
    method: str | None = None
    spec: str | None = None
    host: str | None = None
    fabric: str | None = None
    trials: int | None = None
    reason: str | None = None
    """Why it is not valid; None if it is."""
    unreadable: str | None = None
    """Why its results cannot be read; all else is unknown then."""


_COLUMNS = tuple(each.name for each in fields(Entry))


def find_runs(
    runs: Path,
    *,
    spec: str | None = None,
    host: str | None = None,
    fabric: str | None = None,
    method: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Entry]:
    """The runs in the folder `runs` that are all of what is given, the newest first.

    Names are compared without regard to case, and may hold the wildcards `*` and `?`. A folder whose results cannot be
    read is listed where nothing is asked for. Raises Unreadable if there is no such folder.
    """
    if not runs.is_dir():
        raise Unreadable(f"{runs}: no such folder; nothing has been measured here yet (see `tailrace measure --help`)")
    wanted = {"spec": spec, "host": host, "fabric": fabric, "method": method}
    terms = [f"lower({column}) GLOB ?" for column, text in wanted.items() if text is not None]
    values: list[Any] = [_pattern(text) for text in wanted.values() if text is not None]
    for term, when in (("started >= ?", since), ("started < ?", until)):
        if when is not None:
            terms.append(term)
            values.append(when.timestamp())
    query = f"SELECT {', '.join(_COLUMNS)} FROM runs {'WHERE ' if terms else ''}{' AND '.join(terms)}"
    with _opened(runs) as database:
        _refresh(database, runs)
        found = database.execute(f"{query} ORDER BY started IS NULL, started DESC, folder DESC", values).fetchall()
    return [Entry(**dict(zip(_COLUMNS, row, strict=True))) for row in found]


def host_name(host: Mapping[str, Any]) -> str | None:
    """What a host is called: its own name, else its processor's; None where its facts do not say."""
    for part, key in (("system", "name"), ("cpu", "model")):
        facts = host.get(part)
        if isinstance(facts, Mapping) and facts.get(key):
            return str(facts[key])
    return None


def _pattern(text: str) -> str:
    """`text` for GLOB, in which a bracket would open a set of characters."""
    return text.lower().replace("[", "[[]")


@contextmanager
def _opened(runs: Path) -> Iterator[sqlite3.Connection]:
    """The index on disk; in memory where that cannot be."""
    database = _on_disk(runs / INDEX) or _create(sqlite3.connect(":memory:"))
    with closing(database):
        yield database


def _on_disk(path: Path) -> sqlite3.Connection | None:
    for _ in range(2):
        try:
            database = sqlite3.connect(path, timeout=10)
        except sqlite3.Error:
            return None
        try:
            database.execute("BEGIN IMMEDIATE")  # finds out whether it can be written, and keeps others out meanwhile
            if database.execute("PRAGMA user_version").fetchone() != (_VERSION,):
                _create(database)
            database.execute(f"SELECT {', '.join(_COLUMNS)}, modified, size FROM runs LIMIT 1").fetchall()
            return database
        except sqlite3.OperationalError as error:
            database.close()
            if "no such" not in str(error):
                return None  # a folder that is not ours to write, or a full disk
        except sqlite3.DatabaseError:
            database.close()
        path.unlink(missing_ok=True)
    return None


def _create(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute("DROP TABLE IF EXISTS runs")
    for statement in filter(str.strip, _SCHEMA.split(";")):
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {_VERSION}")
    return database


def _refresh(database: sqlite3.Connection, runs: Path) -> None:
    """Takes in what has changed in the folder."""
    known = {
        folder: (modified, size)
        for folder, modified, size in database.execute("SELECT folder, modified, size FROM runs")
    }
    there: dict[str, tuple[int, int]] = {}
    with os.scandir(runs) as entries:
        for found in entries:
            if found.name.startswith("."):
                continue  # no run: such as what an import left behind that was killed
            try:
                stat = (Path(found.path) / RESULTS).stat()
            except OSError:
                continue
            there[found.name] = (stat.st_mtime_ns, stat.st_size)
    database.executemany("DELETE FROM runs WHERE folder = ?", [(name,) for name in known.keys() - there.keys()])
    columns = ("modified", "size", *_COLUMNS)
    insert = f"INSERT OR REPLACE INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for name, stamp in there.items():
        if known.get(name) != stamp:
            entry = _entry(runs / name)
            database.execute(insert, (*stamp, *(getattr(entry, column) for column in _COLUMNS)))
    database.commit()


def _entry(folder: Path) -> Entry:
    try:
        run = load_run(folder)
    except ResultError as error:
        return Entry(folder.name, unreadable=str(error))
    return _entry_of(folder.name, run)


def _entry_of(folder: str, run: Run) -> Entry:
    return Entry(
        folder,
        run.started.timestamp(),
        run.finished.timestamp() if run.finished else None,
        run.name,
        run.method,
        run.spec,
        host_name(run.host),
        run.fabric,
        len(run.trials) + len(run.host_trials),
        run.reason,
    )
