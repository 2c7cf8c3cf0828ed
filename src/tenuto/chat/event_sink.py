"""Who hears an answer as it comes: nobody, or a reader, who may be slower than the model and may leave halfway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, Protocol

from tenuto.chat.request import ChatEvent, ToolStarted
from tenuto.model.generation import TextDelta

# So far the model may be ahead of its reader.
_QUEUED: Final = 64


class EventSink(Protocol):
    """Whom a turn tells what happens in it."""

    @property
    def listens(self) -> bool:
        """Whether they want to hear words as they come."""
        ...

    @property
    def delivered_text(self) -> str | None:
        """The words of the answer that have reached them so far; `None` for those who wait for the whole of it."""
        ...

    async def emit_event(self, event: ChatEvent) -> None:
        """Say what happened, and wait while they cannot keep up."""
        ...


class NullSink:
    """For callers that want the whole answer."""

    listens = False
    delivered_text: str | None = None

    async def emit_event(self, event: ChatEvent) -> None:
        """They hear of it in the end."""


class StreamSink:
    """Somebody who takes events one by one."""

    listens = True

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ChatEvent | None] = asyncio.Queue(maxsize=_QUEUED)
        self._heard: list[str] = []

    @property
    def delivered_text(self) -> str | None:
        """What was taken of the answer, which begins behind the last tool."""
        return "".join(self._heard)

    async def emit_event(self, event: ChatEvent) -> None:
        """Put the event where the reader takes it from."""
        await self._queue.put(event)

    def close(self) -> None:
        """Tell that nothing more comes."""
        # Room or not, the reader must learn that this is the end; where there is none, the ended task tells it.
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def events(self, task: asyncio.Task[None]) -> AsyncIterator[ChatEvent]:
        """Every event until the end, or until the task that tells them is done."""
        while not (task.done() and self._queue.empty()):
            event = await self._queue.get()
            if event is None:
                return
            if isinstance(event, TextDelta):
                self._heard.append(event.text)
            elif isinstance(event, ToolStarted):
                self._heard.clear()
            yield event
