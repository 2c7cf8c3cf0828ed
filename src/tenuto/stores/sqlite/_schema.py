"""The tables of a SQLite file, and what is refused as not ours."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from tenuto.errors import ForeignStore, NewerStore

# "tnto" tells our files from other programs' databases, "tnut" those made before the first release.
APPLICATION_ID: Final = 0x746E746F
_UNRELEASED: Final = 0x746E7574
FORMAT: Final = 1

_COLUMNS: Final = (
    "record.*, revision, head, deadline, sessions, messages, tokens, cost_nanos, attachments, attachment_bytes"
)
_STATEMENTS: Final = (
    """
    CREATE TABLE record (
        id INTEGER PRIMARY KEY, key BLOB UNIQUE, profile BLOB NOT NULL, due INTEGER, space BLOB NOT NULL,
        owner BLOB NOT NULL, kind TEXT NOT NULL, scope BLOB, listed_at INTEGER NOT NULL, status TEXT NOT NULL,
        title TEXT NOT NULL, drawer BLOB NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, aside BLOB
    )
    """,
    # What each commit writes, apart from the columns that seldom change: a row of its own is short.
    """
    CREATE TABLE head (
        record INTEGER PRIMARY KEY, key BLOB, revision INTEGER NOT NULL, head BLOB NOT NULL, deadline INTEGER,
        sessions INTEGER NOT NULL, messages INTEGER NOT NULL, tokens INTEGER NOT NULL, cost_nanos INTEGER NOT NULL,
        attachments INTEGER NOT NULL, attachment_bytes INTEGER NOT NULL
    )
    """,
    f"CREATE VIEW whole AS SELECT {_COLUMNS} FROM record JOIN head ON head.record = record.id",  # noqa: S608
    # Values are paged by this index alone: another one finds those of an owner as well, but sorts them for each page.
    f"""
    CREATE VIEW value AS
    SELECT {_COLUMNS} FROM record INDEXED BY record_place JOIN head ON head.record = record.id WHERE kind = 'value'
    """,  # noqa: S608
    "CREATE TABLE entry (record INTEGER NOT NULL, part TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL)",
    "CREATE UNIQUE INDEX entry_place ON entry (record, part, number)",
    "CREATE INDEX record_of_site ON record (space, kind, listed_at, key)",
    "CREATE INDEX record_of_owner ON record (owner, kind, listed_at, key)",
    "CREATE INDEX record_place ON record (space, owner, drawer, name) WHERE kind = 'value'",
    "CREATE INDEX record_due ON record (due) WHERE due IS NOT NULL",
    # The words by which sessions are found: digests, and the beginning of the owner's key, as numbers. The sessions of
    # an owner with a word lie together, and so do those of all. Beside it the words of each in a row: one by one they
    # would take more than twice the room.
    """
    CREATE TABLE word (
        word INTEGER NOT NULL, owner INTEGER NOT NULL, record INTEGER NOT NULL, PRIMARY KEY (word, owner, record)
    ) WITHOUT ROWID
    """,
    "CREATE TABLE words_of (record INTEGER PRIMARY KEY, owner INTEGER NOT NULL, words BLOB NOT NULL)",
    # One row for each group commit: which records it changed, for the caches of other processes.
    "CREATE TABLE change (number INTEGER PRIMARY KEY AUTOINCREMENT, keys BLOB NOT NULL)",
)


def is_current(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the tables exist, in the format of this release.

    Raises:
        NewerStore: the file is of a newer release.
        ForeignStore: it is from before the first release, or of another program.
    """
    version, application = _pragma(db, "user_version"), _pragma(db, "application_id")
    if application == _UNRELEASED:
        raise ForeignStore("store", f"{path} is from before the first release: begin with a new file")
    if application == APPLICATION_ID and version > FORMAT:
        raise NewerStore("store", f"{path} has format {version}, and this release of tenuto reads up to {FORMAT}")
    has_tables = db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
    if application != APPLICATION_ID and (version or application or has_tables):
        raise ForeignStore("store", f"{path} is the database of another program")
    return version == FORMAT


def create_tables(db: sqlite3.Connection) -> None:
    """Create the tables, in the transaction of the caller."""
    for statement in _STATEMENTS:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    value: int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return value
