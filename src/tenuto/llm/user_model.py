"""A model that a program hands over: whatever it stumbles over is a failure of a model, as those of providers are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from datetime import timedelta
from typing import cast

from tenuto.errors import ModelFailed, ModelTimeout, TenutoError
from tenuto.model.generation import ModelEvent, ModelRequest
from tenuto.ports import ChatModel, Tool

_log = logging.getLogger(__name__)


class UserModel:
    """The `ChatModel` port around a model that knows nothing of our errors, nor how long the next one waits for it."""

    def __init__(self, model: ChatModel, timeout: timedelta) -> None:
        self._model = model
        self._timeout = timeout

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._model.name

    @property
    def links(self) -> int:
        """How many models it may ask one after the other."""
        links: int = getattr(self._model, "links", 0)
        return links

    async def answer(self, asking: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """As the port says."""
        try:
            events = self._model.answer(asking, tools)
            async with _closing(events):
                # Once it has begun, whoever reads it keeps the time.
                async with asyncio.timeout((self._timeout * max(1, self.links)).total_seconds()):
                    first = await anext(events, None)
                if first is not None:
                    yield first
                async for event in events:
                    yield event
        except TenutoError:
            raise
        except TimeoutError:
            raise ModelTimeout(self.name) from None
        except Exception as fault:
            # Only its kind: the text of a stranger's exception may quote what a user said.
            _log.warning("model %s failed: %s", self.name, type(fault).__name__)
            raise ModelFailed(self.name, f"failed ({type(fault).__name__})") from None


def _closing(events: AsyncIterator[ModelEvent]) -> AbstractAsyncContextManager[object]:
    """Closes a generator at once; the port promises no more than an iterator, which may have nothing to close."""
    return aclosing(cast(AsyncGenerator[ModelEvent, None], events)) if hasattr(events, "aclose") else nullcontext()
