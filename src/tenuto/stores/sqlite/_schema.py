"""The tables, and the numbered steps by which a file of any age becomes one of today."""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from tenuto.errors import InvalidSetting
from tenuto.stores.codec import digest_id

# "tnut": distinguishes our files from other programs' databases.
APPLICATION_ID: Final = 0x746E7574

# A message's place is its session's row number and its sequence number in one integer: SQLite's fastest key, by which
# a session's log is one stretch. 2**33 sessions and 2**30 messages in each fit into its 63 bits.
SEQ_BITS: Final = 30
MAX_SEQ: Final = (1 << SEQ_BITS) - 1
MAX_ROW: Final = (1 << 63 - SEQ_BITS) - 1


# Files of the formats up to this one were made before there was a release, and are not read by any.
UNRELEASED: Final = 2


class Migration(NamedTuple):
    """One step forward; there is no way back. It never changes once a release has it."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS: Final = (
    Migration(
        "sessions, their logs, and state",
        (
            # What every turn changes: small, so that a turn rewrites little. `sweep_at` never lies behind
            # `expires_at`; it follows lazily, which spares each turn an index entry.
            # A damaged session has no key, space and owner: nothing finds it.
            """
            CREATE TABLE session (
                id INTEGER PRIMARY KEY,
                key BLOB UNIQUE,
                space BLOB,
                owner BLOB,
                incarnation TEXT NOT NULL,
                created_at INTEGER NOT NULL,
                updated_at INTEGER NOT NULL,
                expires_at INTEGER,
                sweep_at INTEGER,
                version INTEGER NOT NULL,
                turns INTEGER NOT NULL,
                messages INTEGER NOT NULL,
                last_seq INTEGER NOT NULL,
                window_start INTEGER NOT NULL,
                tokens INTEGER NOT NULL,
                cost_nanos INTEGER NOT NULL,
                keyed INTEGER NOT NULL,
                lease TEXT,
                lease_until INTEGER,
                lease_key BLOB,
                recent_keyed BLOB,
                closed TEXT
            )
            """,
            "CREATE INDEX session_by_space ON session (space, updated_at, key) WHERE space IS NOT NULL",
            "CREATE INDEX session_by_owner ON session (owner, updated_at, key) WHERE owner IS NOT NULL",
            "CREATE INDEX session_by_sweep ON session (sweep_at) WHERE sweep_at IS NOT NULL",
            # What seldom changes and may be large.
            """
            CREATE TABLE profile (
                session INTEGER PRIMARY KEY,
                session_id TEXT NOT NULL,
                scope BLOB NOT NULL,
                idle INTEGER,
                touch TEXT NOT NULL,
                max_messages INTEGER,
                max_turns INTEGER,
                title TEXT NOT NULL,
                folded_title TEXT NOT NULL,
                status TEXT NOT NULL,
                context BLOB NOT NULL,
                attributes BLOB NOT NULL,
                metadata BLOB NOT NULL,
                forked_id TEXT,
                forked_seq INTEGER
            )
            """,
            # The order of its columns is the order of `_heads.Head`.
            """
            CREATE VIEW head AS SELECT
                s.id, s.key, s.space, s.owner, s.created_at, s.updated_at, s.version, s.turns, s.messages,
                s.last_seq, s.window_start, s.tokens, s.cost_nanos, s.keyed, s.incarnation, p.session_id, p.scope,
                p.touch, p.title, p.folded_title, p.status, p.context, p.attributes, p.metadata, s.expires_at,
                s.sweep_at, s.lease, s.lease_until, s.lease_key, s.recent_keyed, s.closed, p.idle, p.max_messages,
                p.max_turns, p.forked_id, p.forked_seq
            FROM session AS s LEFT JOIN profile AS p ON p.session = s.id
            """,
            # Bodies lie in the order they came, so that what many sessions say at once fills few pages; in the order
            # of places each append would touch pages of its own.
            """
            CREATE TABLE message (
                id INTEGER PRIMARY KEY,
                place INTEGER NOT NULL UNIQUE,
                turn INTEGER NOT NULL,
                body BLOB NOT NULL
            )
            """,
            # Writes that came with an idempotency key; `n` counts them within their session. The latest few wait in
            # `session.recent_keyed` and come here together: the session's row is written at each turn anyway.
            """
            CREATE TABLE keyed (
                session INTEGER NOT NULL,
                key BLOB NOT NULL,
                n INTEGER NOT NULL,
                fingerprint BLOB NOT NULL,
                number INTEGER NOT NULL,
                words_first INTEGER NOT NULL,
                words_last INTEGER NOT NULL,
                turn_id TEXT NOT NULL,
                reply_first INTEGER NOT NULL,
                reply_last INTEGER NOT NULL,
                finished INTEGER NOT NULL,
                PRIMARY KEY (session, key)
            ) WITHOUT ROWID
            """,
            """
            CREATE TABLE mark (
                session INTEGER NOT NULL,
                producer TEXT NOT NULL,
                seq INTEGER NOT NULL,
                PRIMARY KEY (session, producer)
            ) WITHOUT ROWID
            """,
            """
            CREATE TABLE quarantine (
                session INTEGER PRIMARY KEY,
                key BLOB,
                space BLOB,
                owner BLOB,
                reason TEXT NOT NULL,
                set_aside_at INTEGER NOT NULL
            )
            """,
            """
            CREATE TABLE state (
                drawer BLOB NOT NULL,
                key TEXT NOT NULL,
                value BLOB NOT NULL,
                version INTEGER NOT NULL,
                owner BLOB NOT NULL,
                PRIMARY KEY (drawer, key)
            ) WITHOUT ROWID
            """,
            "CREATE INDEX state_by_owner ON state (owner)",
            # One row for each group commit: which sessions it changed, for other processes' caches.
            "CREATE TABLE change (number INTEGER PRIMARY KEY, writer INTEGER NOT NULL, keys BLOB NOT NULL)",
        ),
    ),
    # A trace's place is its session's row number and its turn's number, as a message's.
    Migration("traces", ("CREATE TABLE trace (place INTEGER PRIMARY KEY, body BLOB NOT NULL)",)),
    # A drawer is a digest. What users and chats keep must be found without knowing its names; the tenant's own is not
    # looked for, and has none of these.
    Migration(
        "the names of state",
        (
            "ALTER TABLE state ADD COLUMN space BLOB",
            "ALTER TABLE state ADD COLUMN scope BLOB",
            "ALTER TABLE state ADD COLUMN namespace TEXT",
            "CREATE INDEX state_by_space ON state (space, owner, drawer, key) WHERE space IS NOT NULL",
        ),
    ),
    # Names that another backend can take over: producers as digests, as there; and the site of the tenant's own state,
    # which has no `space`, since that would list it.
    Migration(
        "names for other backends",
        ("UPDATE mark SET producer = digest_id(producer)", "ALTER TABLE state ADD COLUMN home BLOB"),
    ),
)


FORMAT: Final = UNRELEASED + len(MIGRATIONS)


def is_current(db: sqlite3.Connection) -> bool:
    """Whether the file needs no migration.

    Raises:
        InvalidSetting: the file is of a newer release, from before the first one, or of another program.
    """
    version, application = _pragma(db, "user_version"), _pragma(db, "application_id")
    if version > FORMAT and application == APPLICATION_ID:
        raise InvalidSetting("SQLite file", f"it has format {version}, and this release of tenuto reads up to {FORMAT}")
    if 0 < version <= UNRELEASED and application == APPLICATION_ID:
        raise InvalidSetting(
            "SQLite file", f"it has format {version}, from before the first release: begin with a new file"
        )
    has_tables = db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
    if application != APPLICATION_ID and (version or application or has_tables):
        raise InvalidSetting("SQLite file", "it is the database of another program")
    return version == FORMAT


def create(db: sqlite3.Connection) -> None:
    """Apply what is missing, in one transaction; the caller has begun it."""
    db.create_function("digest_id", 1, digest_id, deterministic=True)
    done = max(_pragma(db, "user_version"), UNRELEASED)
    for number, migration in enumerate(MIGRATIONS[done - UNRELEASED :], done + 1):
        for statement in migration.statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {number}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    value: int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return value
