"""What the ports of a SQLite file share: its threads, its clock, and what becomes of damaged records."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.ports import Clock
from tenuto.stores.codec import to_micros
from tenuto.stores.sqlite import _edits
from tenuto.stores.sqlite._errors import CorruptRow
from tenuto.stores.sqlite._heads import Ask, make_lookup
from tenuto.stores.sqlite._readers import ReaderThreads
from tenuto.stores.sqlite._writer import Transaction, WriterThread

_logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Runs steps in the writer's thread or in a reader's."""

    def __init__(self, *, clock: Clock, writer: WriterThread, readers: ReaderThreads) -> None:
        self.clock = clock
        self.writer = writer
        self.readers = readers

    def ask(self, scope: Scope, session_id: str) -> Ask:
        """The session that is asked for, and when."""
        return make_lookup(scope, session_id, self.clock())

    async def write(self, step: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step; a damaged record that it meets is set aside before the caller hears of it."""
        try:
            return await self.writer.run(step, *args, **kwargs)
        except CorruptRow as damage:
            await self._try_quarantine(damage)
            raise

    async def read(self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `write`, in a reader's thread."""
        try:
            return await self.readers.run(step, *args, **kwargs)
        except CorruptRow as damage:
            await self._try_quarantine(damage)
            raise

    async def _try_quarantine(self, damage: CorruptRow) -> None:
        try:
            await self.quarantine(damage)
        except Unavailable:
            # The file may be full or read-only. The caller's answer is the same, and the next call tries again.
            _logger.warning("a damaged session (row %d) could not be set aside", damage.row)

    async def quarantine(self, damage: CorruptRow) -> None:
        """Keep a damaged record apart, so that its id is free again."""
        now = to_micros(self.clock())
        await self.writer.run(_edits.quarantine_session, damage.row, damage.session_id, damage.reason, now)
