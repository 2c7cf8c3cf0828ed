"""What follows the turns, off the request path: for now, sweeping what expired."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from tenuto.errors import Unavailable
from tenuto.sessions import Sessions

_log = logging.getLogger(__name__)
_BATCH = 1000


class Upkeep:
    """Keeps the house in order while the application runs."""

    def __init__(self, *, sessions: Sessions, sweep_every: timedelta) -> None:
        self._sessions = sessions
        self._sweep_every = sweep_every

    async def run(self) -> None:
        """Sweep again and again, until cancelled; a store that is away is tried again at the next round."""
        while True:
            try:
                await self.sweep()
            except Unavailable as away:
                _log.warning("expired sessions were not swept: %s", away)
            except Exception:
                # Whatever one round met, the next ones are still needed.
                _log.exception("expired sessions were not swept")
            await asyncio.sleep(self._sweep_every.total_seconds())

    async def sweep(self) -> int:
        """Remove everything that has expired by now, in bounded steps; tells how many sessions went."""
        total = 0
        while True:
            gone = await self._sessions.sweep(_BATCH)
            total += gone
            if gone < _BATCH:
                return total
