"""The schema's migrations: numbered, named, forward only, applied by one function."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

import asyncpg

from tenuto.errors import InvalidSetting, Unavailable
from tenuto.stores.postgres._client import Connection, quote_identifier
from tenuto.stores.postgres._errors import DRIVER_ERRORS, STORE, ServerDiskFull, ServerReadOnly, fault

log = logging.getLogger(__name__)

# Processes that start at the same time migrate one after the other.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tenuto migrations'), hashtext($1))"
_NUMBERED = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step; its number is its place, and it never changes after a release."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """Identifies the step: a schema with another step of this number is not ours."""
        return sha256(self.sql.encode()).hexdigest()


@cache
def migrations() -> tuple[Migration, ...]:
    """All steps that this release knows, in order."""
    found = []
    for file in files("tenuto.stores.postgres").joinpath("migrations").iterdir():
        match = _NUMBERED.fullmatch(file.name)
        if match is not None:
            found.append(Migration(int(match[1]), match[2], file.read_text("utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


async def migrate(connection: Connection, schema: str) -> None:
    """Migrate the schema.

    A schema of a later release is refused, and one that no release has made.

    Raises:
        Unavailable: it is of a later release or of none, or the server refused a step.
        InvalidSetting: the schema's name or the database's encoding cannot be used.
    """
    steps = migrations()
    if not 1 <= len(schema.encode()) <= 63 or "\0" in schema:
        raise InvalidSetting("schema", "a Postgres name has 1 to 63 bytes")
    try:
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise InvalidSetting("store", f"the database is encoded as {encoding}; tenuto needs UTF8")
        if await _applied_number(connection, schema, steps) < steps[-1].number:
            await _apply_pending(connection, schema, steps)
    except DRIVER_ERRORS as exc:
        failed = fault(exc, sent=True)
        raise (
            failed
            if isinstance(failed, ServerDiskFull | ServerReadOnly)
            else Unavailable(STORE, "could not be prepared")
        ) from exc


async def _applied_number(connection: Connection, schema: str, steps: tuple[Migration, ...]) -> int:
    """The last step applied; 0 for an empty database."""
    table = f"{quote_identifier(schema)}.migrations"
    if await connection.fetchval("SELECT to_regclass($1)", table) is None:
        return 0
    # A table's name cannot be an argument; the schema's is quoted above. With `to_jsonb` a missing column is null.
    applied = await connection.fetch(
        f"SELECT number, to_jsonb(step) ->> 'digest' AS digest FROM {table} AS step ORDER BY number"  # noqa: S608
    )
    number: int = applied[-1]["number"] if applied else 0
    known = steps[-1].number
    if any(step["digest"] != ours.digest for step, ours in zip(applied, steps, strict=False)):
        raise Unavailable(
            STORE, "was set up by a version from before the first release: begin with a new schema or database"
        )
    if number > known:
        raise Unavailable(
            STORE, f"was set up by a later release (schema {number}; this release knows {known}): upgrade tenuto"
        )
    return number


async def _apply_pending(connection: Connection, schema: str, steps: tuple[Migration, ...]) -> None:
    async with connection.transaction():
        await connection.execute(_LOCK, schema)
        # A role that may not create schemas can use an existing one.
        if await connection.fetchval("SELECT to_regnamespace($1)", quote_identifier(schema)) is None:
            await connection.execute(f"CREATE SCHEMA {quote_identifier(schema)}")
        await connection.execute(f"SET LOCAL search_path TO {quote_identifier(schema)}")
        done = await _applied_number(connection, schema, steps)
        if not done:
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations "
                "(number int PRIMARY KEY, name text NOT NULL, digest text NOT NULL, "
                "applied_at timestamptz NOT NULL DEFAULT now())"
            )
        for migration in steps[done:]:
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO migrations (number, name, digest) VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.digest,
            )
            log.info("schema %s: applied migration %04d %s", schema, migration.number, migration.name)


async def warn_if_rls_bypassed(connection: Connection, _schema: str) -> None:
    """Warn if row-level security does not bind our role: then only the statements separate tenants."""
    try:
        unbound = await connection.fetchval(
            "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
        )
    except asyncpg.PostgresError as exc:
        raise Unavailable(STORE) from exc
    if unbound:
        log.warning(
            "the Postgres role is a superuser or bypasses row-level security: tenants are kept apart by tenuto's "
            "statements alone; give tenuto a plain role"
        )
