"""Giving a session free whose turn ended while the store took no writes.

The lease would run out by itself, but until then nobody could go on with the session, though the store is back.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

from tenuto.errors import TenutoError, Unavailable
from tenuto.model import FinishTurn, OpenTurn
from tenuto.model.policy import SessionPolicy
from tenuto.sessions import Sessions
from tenuto.upkeep.jobs import Jobs

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_log = logging.getLogger(__name__)


class LeaseRelease:
    """Tries again and again, for as long as the turn's lease lasts."""

    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions
        # Not those of titles and summaries: where one server of several is away, sessions of the others need these.
        self._jobs = Jobs()
        self._closing = asyncio.Event()

    def release(self, turn: OpenTurn, closing: FinishTurn, policy: SessionPolicy) -> None:
        """Start it, and return at once."""
        until = asyncio.get_running_loop().time() + turn.lease.total_seconds()
        self._jobs.start("release", turn.id, lambda: self._retry_release(turn, closing, policy, until))

    async def drain(self, within: timedelta | None) -> None:
        """Try each turn that waits once more, and no longer."""
        self._closing.set()
        await self._jobs.drain(within)
        self._closing.clear()

    async def _retry_release(self, turn: OpenTurn, closing: FinishTurn, policy: SessionPolicy, until: float) -> None:
        pause = _FIRST_PAUSE
        while asyncio.get_running_loop().time() + pause < until:
            last = await self._wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            try:
                await self._sessions.finish(turn, closing, policy)
            except Unavailable:
                if last:
                    return
            except TenutoError as over:
                _log.info("a turn need not be given up any more: %s", over.code)
                return
            else:
                _log.info("a turn was given up once the store took it")
                return

    async def _wait(self, pause: float) -> bool:
        """Wait a while; tells whether it was cut short because we close."""
        try:
            async with asyncio.timeout(pause):
                return await self._closing.wait()
        except TimeoutError:
            return False
