"""The server's own work on tasks: the engine is opened beside it, and it serves without one if that fails."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tenuto.app import Tenuto
from tenuto.background import running
from tenuto.errors import TenutoError, Unavailable
from tenuto.logs import describe_exception
from tenuto.model.values import View
from tenuto.pauses import Backoff

_log = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


class TaskWorkerView(View, frozen=True, kw_only=True, omit_defaults=True):
    """Whether this server works on tasks; `error` is the code of the reason if it cannot."""

    status: str
    error: str | None = None


class TaskWorker:
    """Opens the engine at the start if agents are set, or if plans were run before: some may be unfinished.

    Otherwise the first request that needs the engine opens it, so that a server without tasks never imports it.
    """

    def __init__(self, tenuto: Tenuto) -> None:
        self._tenuto = tenuto
        self._error: str | None = None

    @property
    def view(self) -> TaskWorkerView | None:
        """How it stands; `None` if nothing needs the engine."""
        if self._tenuto.works_on_tasks:
            return TaskWorkerView(status="ready")
        return None if self._error is None else TaskWorkerView(status="unavailable", error=self._error)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the engine meanwhile."""
        async with running(self._open(), "task worker"):
            yield

    async def _open(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while await self._failed_for_now():
            await backoff.wait()

    async def _failed_for_now(self) -> bool:
        """Open the engine if it is needed; returns whether to try again."""
        try:
            if self._tenuto.settings.agents is not None or await self._tenuto.tasks.has_runs():
                await self._tenuto.engine()
            self._error = None
        except TenutoError as error:
            if self._error != error.code:
                _log.error("this server does not work on tasks: %s", error)
            self._error = error.code
            return isinstance(error, Unavailable)
        except Exception as error:
            self._error = "engine_failed"
            _log.error("this server does not work on tasks: %s", describe_exception(error))
        return False
