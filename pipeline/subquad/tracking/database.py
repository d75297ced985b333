"""A database file may be somebody else's, as it lies beside runs: what is looked at before MLflow
opens it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from subquad.errors import RunError
from subquad.security.disk import opened

_NAMES_A_FILE = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that belongs to several databases: SQLite deletes a file that it names."""
_STRANGE = """
    SELECT type, name FROM sqlite_master
    WHERE type = 'view' OR type = 'trigger' AND tbl_name != 'secrets' OR sql LIKE 'CREATE VIRTUAL%'
"""
"""MLflow's own only trigger is on a table that runs have no part in."""


def check_database(database: Path) -> None:
    """Refuse a database file that is more than tables; its folder is held.

    Raises:
        RunError: it or a file beside it that SQLite would open is a link or a pipe; or it does
            things by itself; or it is no database.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        beside = database.with_name(f"{database.name}{suffix}")
        with suppress(FileNotFoundError), opened(beside) as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, end - len(_NAMES_A_FILE)))
            if stream.read() == _NAMES_A_FILE:
                raise RunError(f"{beside}: names another file, which SQLite would delete")
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)) as connection:
            for kind, name in connection.execute(_STRANGE):
                raise RunError(f"{database}: has a {kind} {name}, which MLflow does not make")
    except sqlite3.Error as error:
        raise RunError(f"{database}: {error}") from error
