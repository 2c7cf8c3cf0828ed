"""The wiring of memories: the embedder of the settings, redaction, and the policy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Final

from tenuto.llm import OFFLINE, GivenModel, ModelConnection
from tenuto.llm.embedding import open_embedder
from tenuto.model import Scope
from tenuto.model.privacy import Sink
from tenuto.ports import Clock, Embedder, OwnersOf, Store
from tenuto.privacy.json_texts import Slot
from tenuto.privacy.redactor import WITHHELD, Redactor
from tenuto.recall.embedding import CachedEmbedder
from tenuto.recall.service import Memories
from tenuto.sessions import fresh_id
from tenuto.settings import Settings
from tenuto.wiring.models import home_provider

# How long a turn waits for an embedder.
_TIMEOUT: Final = timedelta(seconds=5)


@asynccontextmanager
async def open_memories(
    settings: Settings,
    *,
    store: Store,
    redactor: Redactor,
    clock: Clock,
    models: Mapping[str, GivenModel],
    owners_of: OwnersOf,
    open_captures: Callable[[], Awaitable[object]],
) -> AsyncIterator[Memories]:
    """The memories of the settings, with their embedder; `open_captures` opens what reads statements for them.

    Raises:
        InvalidSetting: the embedder cannot be opened.
    """

    async def redact(scope: Scope, text: str) -> str | None:
        (clean,) = (await redactor.texts(Sink.MEMORY, scope, None, [Slot(text)])).texts
        return None if clean == WITHHELD else clean

    async with _open_embedder(settings, home_provider(settings, models)) as embedder:
        cached_embedder = CachedEmbedder(embedder, clock=clock, time_limit=_TIMEOUT) if embedder is not None else None
        memories = Memories(
            state=store.state,
            redact=redact,
            clock=clock,
            policy=settings.memory_policy(),
            new_id=fresh_id,
            embedder=cached_embedder,
            owners_of=owners_of,
            open_captures=open_captures,
        )
        try:
            yield memories
        finally:
            await memories.close()


def _open_embedder(settings: Settings, home: str) -> AbstractAsyncContextManager[Embedder | None]:
    # Without a model provider, address and key are meant for the embedder; a self-hosted server needs no prefix.
    ours = (home or "openai") in (OFFLINE, settings.embedder.partition(":")[0])
    access = (
        ModelConnection(base_url=settings.model_base_url, api_key=settings.model_api_key) if ours else ModelConnection()
    )
    return open_embedder(settings.embedder, access)
