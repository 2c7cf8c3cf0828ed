"""The lease of a turn: waiting for a busy session, releasing a lease whose process is gone or whose work fails, and
work that comes to its end even if its caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from tenuto.errors import SessionBusy, SessionElsewhere, TenutoError
from tenuto.model import AppendResult, BeginTurn, FinishTurn, OpenTurn, Scope
from tenuto.pauses import Backoff
from tenuto.ports import SessionStore, release_lease
from tenuto.process_identity import is_holder_gone
from tenuto.sessions.requests import TurnRequest

_Result = TypeVar("_Result")
_ASKED: Final = TurnRequest()
# A turn that lives renews its lease every three seconds.
_RENEWS_WITHIN: Final = 5.0
_log = logging.getLogger(__name__)


async def begin_when_free(
    store: SessionStore, scope: Scope, request: BeginTurn, busy_wait: timedelta, asked: TurnRequest = _ASKED
) -> OpenTurn:
    """Begin, trying again while another turn runs, until the wait is over; longer if the turn of the same key is
    seen to live, which then has its answer.

    A lease whose process is gone is released first. If the caller is cancelled after the store began the turn, its
    lease is released.
    """
    released = ""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + busy_wait.total_seconds()
    until: datetime | None = None
    backoff: Backoff | None = None
    while True:
        beginning = asyncio.create_task(store.begin_turn(scope, request))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await complete_despite_cancel(_release_begun(store, beginning))
            raise
        except (SessionBusy, SessionElsewhere) as error:
            if isinstance(error, SessionBusy) and error.turn_id != released and is_holder_gone(error.turn_id):
                released = error.turn_id
                await _release_gone(store, scope, error)
                continue
            now, rest = loop.time(), error.retry_after.total_seconds()
            if isinstance(error, SessionBusy) and error.same_key and asked.renews:
                if asked.joins_running:
                    raise
                if until is not None and error.until is not None and error.until > until:
                    give_up = max(give_up, now + _RENEWS_WITHIN)
                until = error.until
            left = give_up - now
            if left <= 0:
                raise
            backoff = backoff or Backoff(0.015, 0.375, jitter=2 / 3)
            wait = min(backoff.next_pause(), max(rest, 0.001), left)
        await asyncio.sleep(wait)


async def _release_begun(store: SessionStore, beginning: asyncio.Future[OpenTurn]) -> None:
    with contextlib.suppress(TenutoError):
        await release_lease(store.finish_turn, await beginning)


async def _release_gone(store: SessionStore, scope: Scope, busy: SessionBusy) -> None:
    """Release the lease that refused a turn, unless it is another one by now."""
    gone = OpenTurn.named(scope, busy.session_id, busy.incarnation, busy.turn_id)
    _log.info("a lease is released, since its process is gone")
    await release_lease(store.finish_turn, gone)


async def complete_despite_cancel(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Wait until the work is done, and only then pass on a cancellation; `asyncio.shield` would leave it unowned."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as error:
        cancelled = error
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    # Retrieved, so that asyncio does not log an unretrieved exception.
    task.exception()
    raise cancelled


async def release_on_error(
    finish: Callable[[OpenTurn, FinishTurn], Awaitable[AppendResult]],
    turn: OpenTurn,
    work: Coroutine[Any, Any, _Result],
) -> _Result:
    """Wait for work that belongs to a begun turn; if it fails, release the lease."""
    try:
        return await work
    except BaseException:
        await complete_despite_cancel(release_lease(finish, turn))
        raise
