"""Work that belongs to a begun turn: should it fail, the session is given free."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from tenuto.errors import TenutoError
from tenuto.model import Closing, OpenTurn
from tenuto.sessions import Sessions
from tenuto.sessions.waiting import uncut

_Done = TypeVar("_Done")
_log = logging.getLogger(__name__)


async def guarded(sessions: Sessions, turn: OpenTurn, work: Coroutine[Any, Any, _Done]) -> _Done:
    """Do what belongs to a begun turn; when it fails the session is given free."""
    try:
        return await work
    except BaseException:
        await uncut(let_go(sessions, turn))
        raise


async def let_go(sessions: Sessions, turn: OpenTurn) -> None:
    """Give the session free; where that is impossible the lease runs out by itself."""
    try:
        await sessions.finish(turn, Closing(abandoned=True))
    except TenutoError as failed:
        _log.info("a turn could not be given up: %s", failed.code)
