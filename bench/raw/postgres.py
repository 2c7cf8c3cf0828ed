"""asyncpg's pool, every statement committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from bench.raw.bodies import decode_bodies, encode_turn
from bench.workload import WINDOW, Turn

_SCHEMA: Final = """
CREATE TABLE message (
    id bigint GENERATED ALWAYS AS IDENTITY, session text NOT NULL, body bytea NOT NULL, PRIMARY KEY (session, id)
)
"""
_INSERT: Final = "INSERT INTO message (session, body) VALUES ($1, $2)"
_INSERT_BOTH: Final = "INSERT INTO message (session, body) VALUES ($1, $2), ($1, $3)"
_NEWEST: Final = f"SELECT body FROM message WHERE session = $1 ORDER BY id DESC LIMIT {WINDOW}"


class RawPostgres:
    """One table and three statements."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        rows = [(session, body) for turn in turns for body in encode_turn(turn)]
        await self._pool.copy_records_to_table("message", records=rows, columns=("session", "body"))

    async def append(self, session: str, turn: Turn) -> None:
        await self._pool.execute(_INSERT_BOTH, session, *encode_turn(turn))

    async def load(self, session: str) -> int:
        rows = await self._pool.fetch(_NEWEST, session)
        return decode_bodies(row[0] for row in reversed(rows))

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = encode_turn(turn)
        found = await self.load(session)
        await self._pool.execute(_INSERT, session, question)
        await self._pool.execute(_INSERT, session, answer)
        return found

    async def close(self) -> None:
        await self._pool.close()


async def open_pool(url: str) -> RawPostgres:
    """JSON in and out."""
    pool = await asyncpg.create_pool(url)
    await pool.execute(_SCHEMA)
    return RawPostgres(pool)
