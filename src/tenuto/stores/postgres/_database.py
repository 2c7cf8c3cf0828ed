"""What the ports over Postgres share: connections, clock, and quarantine."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any

from tenuto.errors import SessionCorrupt, Unavailable
from tenuto.model import Session
from tenuto.ports import Clock
from tenuto.stores.codec import Undecodable
from tenuto.stores.postgres._client import Link, Row
from tenuto.stores.postgres._feed import PATIENCE, WRITER_LENGTH
from tenuto.stores.postgres._ops import Place
from tenuto.stores.postgres._rows import session_of

log = logging.getLogger(__name__)


class Database:
    """The schema of one store; `writer` is the name that its changes are announced under."""

    def __init__(self, link: Link, *, clock: Clock) -> None:
        self.link = link
        self.clock = clock
        self.writer = secrets.token_hex(WRITER_LENGTH // 2)

    async def wait_for_caches(self, news: int) -> None:
        await wait_for_caches(self.link, news)

    async def session(self, asked: Place, row: Row) -> Session:
        """The session in a row of an answer."""
        try:
            return session_of(row["head"])
        except Undecodable as exc:
            raise await self.quarantine(asked, row, exc) from exc

    async def readable(self, head: Row, now: int) -> Session | None:
        """The session of a head in a listing; `None` if it cannot be read."""
        try:
            return session_of(head)
        except Undecodable as exc:
            asked = Place(head["key"], head["space"], head["owner"], True, now)
            await self.quarantine(asked, {"head": head}, exc)
            return None

    async def quarantine(self, asked: Sequence[Any], row: Any, exc: Undecodable) -> SessionCorrupt:
        """Quarantine an unreadable record, and return the error to raise."""
        head = row["head"]
        added = row.get("added") or 0
        await self.link.fetch(
            "SELECT set_aside($1, $2, $3, $4, $5, $6, $7)",
            self.writer,
            head["ref"],
            asked[0],
            asked[1],
            asked[4],
            str(exc),
            head["last_seq"] - added + 1 if added else None,
        )
        log.warning("a session could not be read and was set aside: record %d, %s", head["ref"], exc)
        return SessionCorrupt(head["id"])


async def wait_for_caches(link: Link, news: int) -> None:
    """Wait until every cache has acknowledged a strict change. It is committed, so this must not raise."""
    until = time.monotonic() + PATIENCE
    pause = 0.001
    while time.monotonic() < until:
        try:
            if (await link.row("SELECT heard_by_all($1) AS heard", news))["heard"]:
                return
        except Unavailable as exc:
            log.debug("could not check whether caches acknowledged a change: %s", exc)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
    log.warning("a cache did not acknowledge a change within %s s; it serves nothing until it does", PATIENCE)
