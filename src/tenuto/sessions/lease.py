"""The lease of a session that is busy: waiting for it, and releasing one whose process is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta

from tenuto.errors import SessionBusy, SessionElsewhere, TenutoError
from tenuto.model import BeginTurn, OpenTurn, Scope
from tenuto.pauses import Backoff
from tenuto.ports import SessionStore, release_lease
from tenuto.process_identity import is_holder_gone
from tenuto.sessions.cancellation import complete_despite_cancel

_log = logging.getLogger(__name__)


async def begin_when_free(store: SessionStore, scope: Scope, request: BeginTurn, busy_wait: timedelta) -> OpenTurn:
    """Begin, trying again while another turn runs, until the wait is over.

    A lease whose process is gone is released first. If the caller is cancelled after the store began the turn, its
    lease is released.
    """
    released = ""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + busy_wait.total_seconds()
    backoff: Backoff | None = None
    while True:
        beginning = asyncio.create_task(store.begin_turn(scope, request))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await complete_despite_cancel(_release_begun(store, beginning))
            raise
        except (SessionBusy, SessionElsewhere) as busy:
            if isinstance(busy, SessionBusy) and busy.turn_id != released and is_holder_gone(busy.turn_id):
                released = busy.turn_id
                await _release_gone(store, scope, busy)
                continue
            left = give_up - loop.time()
            if left <= 0:
                raise
            backoff = backoff or Backoff(0.015, 0.375, jitter=2 / 3)
            wait = min(backoff.next_pause(), max(busy.retry_after.total_seconds(), 0.001), left)
        await asyncio.sleep(wait)


async def _release_begun(store: SessionStore, beginning: asyncio.Future[OpenTurn]) -> None:
    with contextlib.suppress(TenutoError):
        await release_lease(store.finish_turn, await beginning)


async def _release_gone(store: SessionStore, scope: Scope, busy: SessionBusy) -> None:
    """Release the lease that refused a turn, unless it is another one by now."""
    gone = OpenTurn.named(scope, busy.session_id, busy.incarnation, busy.turn_id)
    _log.info("a lease is released, since its process is gone")
    await release_lease(store.finish_turn, gone)
