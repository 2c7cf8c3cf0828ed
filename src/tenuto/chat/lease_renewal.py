"""The lease of a turn, renewed as long as the turn runs."""

from __future__ import annotations

import asyncio
import logging

from tenuto.chat.deps import ChatDeps
from tenuto.errors import TenutoError, TurnLost
from tenuto.model import OpenTurn

_log = logging.getLogger(__name__)


class LeaseRenewal:
    """Renews a turn's lease until `stop`; most turns end before the first renewal."""

    def __init__(self, means: ChatDeps, turn: OpenTurn | None) -> None:
        self._sessions = means.sessions
        self._keeper: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        if turn is not None:
            pause = turn.lease.total_seconds() / 3
            self._alarm = asyncio.get_running_loop().call_later(pause, self._start_renewing, turn, pause)

    async def stop(self) -> None:
        """End the renewal, and raise what it failed with."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._keeper is not None:
            self._keeper.cancel()
            # `wait` and not `await`: a cancellation of the caller must pass.
            await asyncio.wait((self._keeper,))
            if not self._keeper.cancelled():
                self._keeper.result()

    def _start_renewing(self, turn: OpenTurn, pause: float) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._renew(turn, pause))

    async def _renew(self, turn: OpenTurn, pause: float) -> None:
        while True:
            try:
                await self._sessions.renew(turn)
            except TurnLost:
                return
            except TenutoError as failed:
                _log.warning("a turn's lease was not renewed: %s", failed.code)
            await asyncio.sleep(pause)
