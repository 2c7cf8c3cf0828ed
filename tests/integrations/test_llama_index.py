"""Chat stores of LlamaIndex, both generations: archives, deletions, keys, and the classes that use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import tenuto
from tenuto.client.api import TenutoApi
from tenuto.errors import Invalid
from tenuto.model import MessagePage
from tests.journeys.http_service import BASE, http_service
from tests.samples import ANN, BOB

if TYPE_CHECKING:
    from llama_index.core.base.llms.types import ChatMessage


def said(*texts: str) -> list[ChatMessage]:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole

    return [ChatMessage(role=MessageRole.USER, content=text) for text in texts]


@asynccontextmanager
async def by_http() -> AsyncIterator[TenutoApi]:
    async with http_service() as service, tenuto.connect(BASE, transport=httpx.ASGITransport(service.app)) as client:
        yield client


@pytest.mark.parametrize("place", [lambda: tenuto.open("memory://"), by_http], ids=["here", "http"])
async def test_archived_and_deleted_messages_leave_the_queue(
    place: Callable[[], AbstractAsyncContextManager[TenutoApi]],
) -> None:
    from llama_index.core.memory import Memory
    from llama_index.core.storage.chat_store.base_db import MessageStatus

    from tenuto.integrations.llama_index import TenutoChatStore

    async with place() as app:
        store = TenutoChatStore(app, app.scope(user="ann"))

        async def texts(status: MessageStatus | None = MessageStatus.ACTIVE, **part: Any) -> list[Any]:
            return [message.content for message in await store.get_messages("k", status, **part)]

        await store.add_messages("k", said("a", "b", "c", "d", "e"))
        await store.add_message("k", said("old")[0], MessageStatus.ARCHIVED)
        assert await store.archive_oldest_messages("k", 1) == said("a")
        assert await store.delete_oldest_messages("k", 1) == said("b")
        assert (await texts(), await texts(limit=1, offset=1)) == (["c", "d", "e"], ["d"])
        assert (await texts(MessageStatus.ARCHIVED), await store.count_messages("k", None)) == (["a", "old"], 5)
        assert await store.delete_message("k", 4) == said("d")[0]
        assert await store.delete_message("k", 4) is None
        await store.delete_messages("k", MessageStatus.ARCHIVED)
        assert await texts(None) == ["c", "e"]
        await store.set_messages("k", said("new"))
        assert (await texts(None), await store.get_keys()) == (["new"], ["k"])
        assert await TenutoChatStore(app, tenant=ANN.tenant).get_keys() == []
        await store.delete_messages("k")
        assert (await texts(None), await store.get_keys()) == ([], [])
        memory = Memory.from_defaults(session_id="m", chat_store=store, token_limit=60, token_flush_size=20)
        for number in range(12):
            await memory.aput(said(f"A question with the number {number} in it")[0])
        active, whole = await memory.aget(), await store.count_messages("m", None)
        assert (0 < len(active) < 12, whole) == (True, 12)


async def test_only_what_is_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Active messages by the pages of the window, and the newest message alone."""
    from tenuto.integrations.llama_index import TenutoBaseChatStore, TenutoChatStore

    monkeypatch.setattr("tenuto.integrations.session_log.MAX_WINDOW", 2)
    async with tenuto.open("memory://") as app:
        store, pages = TenutoChatStore(app, ANN), list[MessagePage]()
        await store.add_messages("k", said(*"abcdefgh"))
        await store.archive_oldest_messages("k", 5)
        read = app.sessions.messages

        async def listen(*asked: Any) -> MessagePage:
            pages.append(await read(*asked))
            return pages[-1]

        monkeypatch.setattr(app.sessions, "messages", listen)
        assert await store.get_messages("k") == said(*"fgh")
        assert await store.delete_oldest_messages("k", 1) == said("f")
        assert await TenutoBaseChatStore(app, ANN).adelete_last_message("k") == said("h")[0]
        assert [len(page.messages) for page in pages] == [2, 2, 2, 2, 1]


async def test_the_older_store_blocks_in_any_thread_but_that_of_its_loop(tmp_path: Path) -> None:
    from llama_index.core.memory import ChatMemoryBuffer

    from tenuto.integrations.llama_index import TenutoBaseChatStore

    def talk(store: TenutoBaseChatStore) -> None:
        buffer = ChatMemoryBuffer.from_defaults(chat_store=store, token_limit=1000)
        for message in said("a", "b", "c", "d"):
            buffer.put(message)
        assert store.delete_message("chat_history", 1) == said("b")[0]
        assert store.delete_message("chat_history", 9) is None
        assert store.delete_last_message("chat_history") == said("d")[0]
        assert buffer.get_all() == said("a", "c")
        store.set_messages("chat_history", said("x"))
        assert (store.get_messages("chat_history"), store.get_keys()) == (said("x"), ["chat_history"])
        assert (store.delete_messages("chat_history"), store.delete_messages("chat_history")) == (said("x"), None)

    talk(by_file := TenutoBaseChatStore(tmp_path / "chat.db", BOB))
    by_file.close()
    async with tenuto.open("memory://") as app:
        store = TenutoBaseChatStore(app, ANN)
        await asyncio.to_thread(talk, store)
        with pytest.raises(Invalid, match="asynchronous"):
            store.get_keys()
