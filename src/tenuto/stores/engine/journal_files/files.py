"""The database of a folder: its schema, and each step as SQL.

Deleted rows are overwritten. A file that a newer release wrote is left as it is.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.stores.encoding import from_micros
from tenuto.stores.engine.journal_folder import (
    JournalCounts,
    JournaledSession,
    Offer,
    QuarantinedTurn,
    StoredBase,
    StoredRow,
)

FILE: Final = "journal.db"
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE session (
    key BLOB PRIMARY KEY, tenant TEXT NOT NULL, site TEXT NOT NULL, revision INTEGER NOT NULL,
    incarnation TEXT NOT NULL, base BLOB NOT NULL, holder TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE row (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL, number INTEGER NOT NULL, turn TEXT NOT NULL, at INTEGER NOT NULL,
    tenant TEXT NOT NULL, site TEXT NOT NULL, session TEXT NOT NULL, users TEXT NOT NULL, body BLOB NOT NULL,
    aside TEXT, aside_at INTEGER
) STRICT;
CREATE UNIQUE INDEX row_place ON row (key, number) WHERE aside IS NULL;
CREATE INDEX row_age ON row (at) WHERE aside IS NULL;
CREATE INDEX row_turn ON row (turn, aside);
CREATE INDEX row_aside ON row (aside_at) WHERE aside IS NOT NULL;
CREATE TABLE member (number INTEGER PRIMARY KEY, nonce TEXT NOT NULL) STRICT;
CREATE TABLE tally (waiting INTEGER NOT NULL, quarantined INTEGER NOT NULL) STRICT;
INSERT INTO tally VALUES (0, 0)
"""
# How many turns wait, and how many are quarantined: the first row of a turn counts it, the last one takes it away.
_TRIGGERS: Final = (
    """
    CREATE TRIGGER row_added AFTER INSERT ON row WHEN (
        SELECT count(*) FROM (SELECT 1 FROM row WHERE turn = NEW.turn AND aside IS NULL LIMIT 2)
    ) = 1 BEGIN UPDATE tally SET waiting = waiting + 1; END
    """,
    """
    CREATE TRIGGER row_set_aside AFTER UPDATE OF aside ON row BEGIN
        UPDATE tally SET
            waiting = waiting - NOT EXISTS (SELECT 1 FROM row WHERE turn = NEW.turn AND aside IS NULL),
            quarantined = quarantined + ((
                SELECT count(*) FROM (SELECT 1 FROM row WHERE turn = NEW.turn AND aside IS NOT NULL LIMIT 2)
            ) = 1);
    END
    """,
    """
    CREATE TRIGGER row_removed AFTER DELETE ON row WHEN NOT EXISTS (
        SELECT 1 FROM row WHERE turn = OLD.turn AND (aside IS NULL) = (OLD.aside IS NULL)
    ) BEGIN
        UPDATE tally SET waiting = waiting - (OLD.aside IS NULL), quarantined = quarantined - (OLD.aside IS NOT NULL);
    END
    """,
)
_DROP_OFFERS: Final = "DELETE FROM session WHERE key NOT IN (SELECT key FROM row WHERE aside IS NULL)"
# A row whose users cannot be read may be of any user: it goes with the first of its site that is erased.
_KEYS_OF_USER: Final = """
SELECT DISTINCT key FROM row WHERE tenant = ? AND site = ? AND at <= ? AND CASE WHEN json_valid(users)
THEN EXISTS (SELECT 1 FROM json_each(row.users) AS one WHERE one.value = ?) ELSE 1 END
"""
_ERASE_USER: Final = _KEYS_OF_USER.replace("SELECT DISTINCT key", "DELETE")


def connect(folder: Path, *, create: bool = True) -> sqlite3.Connection:
    """Open the database, and create it if it is missing.

    Raises:
        Unavailable: a newer release wrote it.
        sqlite3.Error, OSError: it cannot be opened.
    """
    path = folder / FILE
    if create:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            _sync_folder(folder)
    address = f"{path.absolute().as_uri()}?mode=rw"
    db = sqlite3.connect(address, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        _check_version(db)
        for name, value in (("journal_mode", "TRUNCATE"), ("synchronous", "FULL"), ("secure_delete", "ON")):
            db.execute(f"PRAGMA {name} = {value}")
        if create:
            _ensure_schema(db)
    except BaseException:
        db.close()
        raise
    return db


def count_journal(folder: Path) -> JournalCounts:
    """Count a journal's rows from outside, as a member of none."""
    if not (folder / FILE).exists():
        return JournalCounts()
    try:
        with closing(connect(folder, create=False)) as db:
            return JournalCounts() if _version(db) == 0 else count_rows(db)
    except (sqlite3.Error, OSError, Unavailable):
        return JournalCounts(unreadable=1)


def list_quarantined(folder: Path) -> tuple[QuarantinedTurn, ...]:
    """The turns in a journal that the store can never take, read from outside.

    Raises:
        Unavailable: the journal cannot be read, or a newer release wrote it.
    """
    if not (folder / FILE).exists():
        return ()
    try:
        with closing(connect(folder, create=False)) as db:
            return () if _version(db) == 0 else read_quarantined(db)
    except (sqlite3.Error, OSError) as error:
        raise Unavailable("journal", "cannot be read") from error


def files_from_before(folder: Path) -> tuple[str, ...]:
    """The names of files in which a development version left turns, one file for each of its processes."""
    return tuple(sorted(file.name for file in folder.glob("*.db") if file.stem.isdecimal()))


def _check_version(db: sqlite3.Connection) -> None:
    if _version(db) > _VERSION:
        raise Unavailable("journal", "was written by a newer release")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _ensure_schema(db: sqlite3.Connection) -> None:
    if _version(db) == _VERSION:
        return
    db.execute("BEGIN EXCLUSIVE")
    if _version(db) == 0:
        for statement in (*_SCHEMA.split(";"), *_TRIGGERS):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")


def _sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Steps


def count_rows(db: sqlite3.Connection) -> JournalCounts:
    """How many turns the rows belong to."""
    waiting, quarantined, oldest = db.execute(
        "SELECT waiting, quarantined, (SELECT min(at) FROM row WHERE aside IS NULL) FROM tally"
    ).fetchone()
    return JournalCounts(waiting=waiting, quarantined=quarantined, oldest=oldest)


def read_quarantined(db: sqlite3.Connection) -> tuple[QuarantinedTurn, ...]:
    """The turns that the store can never take, the oldest first."""
    found = db.execute(
        "SELECT tenant, site, session, turn, min(at), min(aside_at), min(aside) FROM row WHERE aside IS NOT NULL "
        "GROUP BY turn, key ORDER BY min(at), min(id)"
    )
    return tuple(
        [
            QuarantinedTurn(
                site=Scope(tenant=tenant, site=site),
                session_id=session_id,
                turn=turn,
                at=from_micros(at),
                quarantined_at=from_micros(since),
                reason=reason,
            )
            for tenant, site, session_id, turn, at, since, reason in found
        ]
    )


def users_aside(db: sqlite3.Connection) -> tuple[tuple[Scope, str], ...]:
    """The users of quarantined rows, by site."""
    found = db.execute(
        "SELECT DISTINCT tenant, site, one.value FROM row, "
        "json_each(CASE WHEN json_valid(row.users) THEN row.users ELSE '[]' END) AS one WHERE aside IS NOT NULL"
    )
    return tuple([(Scope(tenant=tenant, site=site), user) for tenant, site, user in found])


def read_session(db: sqlite3.Connection, key: bytes, first: int = 0) -> JournaledSession | None:
    """What is held of a session, of its rows those from a number on."""
    found = db.execute("SELECT tenant, site, revision, incarnation, base FROM session WHERE key = ?", (key,)).fetchone()
    if found is None:
        return None
    tenant, site, revision, incarnation, body = found
    rows = db.execute(
        "SELECT number, session, turn, at, users, body FROM row "
        "WHERE key = ? AND number >= ? AND aside IS NULL ORDER BY number",
        (key, first),
    )
    return JournaledSession(
        site=Scope(tenant=tenant, site=site),
        base=StoredBase(revision=revision, incarnation=incarnation, body=body),
        rows=tuple([_to_row(row) for row in rows]),
    )


def _to_row(found: tuple[Any, ...]) -> StoredRow:
    number, session_id, turn, at, users, body = found
    try:
        names = tuple([str(user) for user in json.loads(users)])
    except (ValueError, TypeError):
        names = ()
    return StoredRow(number=number, session_id=session_id, turn=turn, at=at, users=names, body=body)


def fenced_keys(db: sqlite3.Connection) -> tuple[bytes, ...]:
    """The sessions with rows that wait, oldest row first."""
    found = db.execute("SELECT key FROM row WHERE aside IS NULL GROUP BY key ORDER BY min(id)")
    return tuple([key for (key,) in found])


def put_offers(db: sqlite3.Connection, offers: Sequence[Offer]) -> None:
    """Leave records; rows that wait go on from them."""
    for offer in offers:
        _put_base(db, offer.key, offer.site, offer.base)


def _put_base(db: sqlite3.Connection, key: bytes, site: Scope, base: StoredBase) -> None:
    db.execute(
        "INSERT INTO session (key, tenant, site, revision, incarnation, base) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE "
        "SET revision = excluded.revision, incarnation = excluded.incarnation, base = excluded.base",
        (key, site.tenant, site.site, base.revision, base.incarnation, base.body),
    )


def append_row(db: sqlite3.Connection, key: bytes, site: Scope, base: StoredBase, row: StoredRow) -> bool:
    """Add a row if it is the session's next one behind this base."""
    found = db.execute("SELECT revision, incarnation FROM session WHERE key = ?", (key,)).fetchone()
    newest = db.execute("SELECT max(number) FROM row WHERE key = ? AND aside IS NULL", (key,)).fetchone()[0]
    if row.number != (newest or 0) + 1 or (found is not None and found != (base.revision, base.incarnation)):
        return False
    if found is None:
        _put_base(db, key, site, base)
    db.execute(
        "INSERT INTO row (key, number, turn, at, tenant, site, session, users, body) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (key, row.number, row.turn, row.at, site.tenant, site.site, row.session_id, json.dumps(row.users), row.body),
    )
    return True


def remove_rows(db: sqlite3.Connection, key: bytes, through: int, base: StoredBase) -> None:
    """Remove a session's rows up to a number; the others go on from this record."""
    db.execute("DELETE FROM row WHERE key = ? AND number <= ? AND aside IS NULL", (key, through))
    if not _drop_empty(db, key):
        db.execute(
            "UPDATE session SET revision = ?, incarnation = ?, base = ? WHERE key = ?",
            (base.revision, base.incarnation, base.body, key),
        )


def set_row_aside(db: sqlite3.Connection, key: bytes, row: StoredRow, reason: str, now: int) -> None:
    """Quarantine a row, if it still waits; another one may have its number by now."""
    db.execute(
        "UPDATE row SET aside = ?, aside_at = ? WHERE key = ? AND number = ? AND turn = ? AND at = ? AND aside IS NULL",
        (reason, now, key, row.number, row.turn, row.at),
    )
    _drop_empty(db, key)


def _drop_empty(db: sqlite3.Connection, key: bytes) -> bool:
    """Remove the record of a session if no row waits behind it."""
    gone = f"{_DROP_OFFERS} AND key = ?"
    return db.execute(gone, (key,)).rowcount > 0


def drop_offers(db: sqlite3.Connection) -> None:
    """Remove records without rows."""
    db.execute(_DROP_OFFERS)


def purge_rows(db: sqlite3.Connection, before: int) -> None:
    """Remove rows that were quarantined before a time."""
    db.execute("DELETE FROM row WHERE aside IS NOT NULL AND aside_at < ?", (before,))


def keys_of_user(db: sqlite3.Connection, site: Scope, user: str, until: int) -> tuple[bytes, ...]:
    """The sessions with rows of a user."""
    found = db.execute(_KEYS_OF_USER, (site.tenant, site.site, until, user))
    return tuple([key for (key,) in found])


def erase_user(db: sqlite3.Connection, site: Scope, user: str, until: int) -> int:
    """Remove a user's rows, and the site's records without rows: any may hold the user's messages."""
    count = db.execute(_ERASE_USER, (site.tenant, site.site, until, user)).rowcount
    db.execute(f"{_DROP_OFFERS} AND tenant = ? AND site = ?", (site.tenant, site.site))
    return count


# Locks


def try_lock(db: sqlite3.Connection, key: bytes, holder: str, is_gone: Callable[[str], bool]) -> bool:
    """Hold a session, if no living process does."""
    found = db.execute("SELECT holder FROM session WHERE key = ?", (key,)).fetchone()
    if found is not None and found[0] not in (None, holder) and not is_gone(found[0]):
        return False
    db.execute("UPDATE session SET holder = ? WHERE key = ?", (holder, key))
    return True


def release(db: sqlite3.Connection, key: bytes, holder: str) -> None:
    """Hold a session no more."""
    db.execute("UPDATE session SET holder = NULL WHERE key = ? AND holder = ?", (key, holder))


def enter_member(db: sqlite3.Connection, member: int, nonce: str) -> str:
    """Note which process a place is now; returns what it holds sessions as."""
    db.execute("INSERT OR REPLACE INTO member (number, nonce) VALUES (?, ?)", (member, nonce))
    return f"{member}:{nonce}"


def member_of(db: sqlite3.Connection, holder: str) -> int | None:
    """The place of a holder, if no later process has taken it."""
    number, _, nonce = holder.partition(":")
    found = db.execute("SELECT number FROM member WHERE number = ? AND nonce = ?", (int(number), nonce)).fetchone()
    return None if found is None else int(found[0])
