"""The loopback platform behaves as the official client of Lark expects its platform to."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.clock import FakeClock
from tests.lark_platform import Callback, Forgery, LarkPlatform, start_lark_platform
from tests.lark_platform.chats import BOT

ADDRESS = "http://bot.example/lark/events"


@pytest.fixture(scope="module")
def lark() -> Any:
    """The official package, imported once: it takes seconds. It would log to the standard output."""
    logging.getLogger("Lark").disabled = True
    # It takes the loop of the thread that imports it, or leaves a new one open.
    imported = "lark_oapi" in sys.modules
    with ThreadPoolExecutor(1) as thread:
        package = thread.submit(pytest.importorskip, "lark_oapi").result()
    if not imported:
        package.ws.client.loop.close()
    return package


@pytest.fixture
async def platform() -> AsyncIterator[LarkPlatform]:
    async with start_lark_platform() as platform:
        yield platform


def official_client(lark: Any, platform: LarkPlatform) -> Any:
    app = platform.app
    return lark.Client.builder().app_id(app.app_id).app_secret(app.app_secret).domain(platform.url).build()


def reply_request(im: Any, message_id: str, text: str, uuid: str) -> Any:
    body = im.ReplyMessageRequestBody.builder().msg_type("text").content(json.dumps({"text": text})).uuid(uuid).build()
    return im.ReplyMessageRequest.builder().message_id(message_id).request_body(body).build()


@pytest.mark.requirement("D8")
async def test_the_official_client_replies_once_and_lists(lark: Any, platform: LarkPlatform) -> None:
    """What group context is read from; a repeated `uuid` adds no message."""
    im, client = lark.api.im.v1, official_client(lark, platform)
    group = platform.group("ou_alice", "ou_bob")
    platform.say(group, "ou_bob", "Lunch at one.")
    asked = platform.say(group, "ou_alice", "When is lunch?", mention_bot=True, mentions=["ou_bob"])
    assert asked.message is not None
    listing = im.ListMessageRequest.builder().container_id_type("chat").container_id(group.id).page_size(2)

    def ask() -> tuple[Any, ...]:
        request = reply_request(im, asked.message.id, "At one.", "u1")  # type: ignore[union-attr]
        first, second = client.im.v1.message.reply(request), client.im.v1.message.reply(request)
        newest = client.im.v1.message.list(listing.sort_type("ByCreateTimeDesc").build())
        rest = client.im.v1.message.list(listing.page_token(newest.data.page_token).build())
        return first, second, newest, rest

    first, second, newest, rest = await asyncio.to_thread(ask)

    assert (first.code, second.code, newest.code, rest.code) == (0, 0, 0, 0)
    assert first.data.message_id == second.data.message_id
    assert [reply.text for reply in platform.replies(asked)] == ["At one."]
    assert [item.sender.id for item in newest.data.items] == [platform.app.app_id, "ou_alice"]
    assert [mention.id for mention in newest.data.items[1].mentions] == [BOT, "ou_bob"]
    assert [item.body.content for item in rest.data.items] == ['{"text": "Lunch at one."}']
    assert (newest.data.has_more, rest.data.has_more) == (True, False)
    assert platform.requests == {"token": 1, "reply": 2, "list": 2}


def raw_request(lark: Any, callback: Callback) -> Any:
    request = lark.RawRequest()
    request.uri, request.body, request.headers = "/", callback.body, dict(callback.headers)
    return request


@pytest.mark.requirement("T14")
async def test_the_official_handler_takes_only_genuine_events(lark: Any, platform: LarkPlatform) -> None:
    """A signed and encrypted callback is what the platform's own code accepts; it checks no age."""
    heard: list[str] = []
    builder = lark.EventDispatcherHandler.builder(platform.app.encrypt_key, platform.app.verification_token)
    handler = builder.register_p2_im_message_receive_v1(lambda data: heard.append(data.event.message.content)).build()
    event = platform.say(platform.p2p("ou_alice"), "ou_alice", "你好")

    refused = {how: handler.do(raw_request(lark, platform.forge(event, how))).status_code for how in Forgery}
    assert refused == dict.fromkeys(Forgery, 500) | {Forgery.OLD_TIMESTAMP: 200}
    heard.clear()
    taken = handler.do(raw_request(lark, platform.callback(event)))
    challenged = handler.do(raw_request(lark, platform.challenge("c1")))

    assert (taken.status_code, heard) == (200, ['{"text": "你好"}'])
    assert json.loads(challenged.content) == {"challenge": "c1"}


@asynccontextmanager
async def connected(lark: Any, platform: LarkPlatform, handler: Any) -> AsyncIterator[None]:
    """The official client of the long connection, in a thread with a loop of its own: its module has one for all."""
    loop = lark.ws.client.loop = asyncio.new_event_loop()
    client = lark.ws.Client(
        platform.app.app_id, platform.app.app_secret, event_handler=handler, domain=platform.url, auto_reconnect=False
    )

    def run() -> None:
        asyncio.set_event_loop(loop)
        with closing(loop):
            # It ends only when its loop is stopped.
            with suppress(RuntimeError):
                client.start()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    async def stop() -> None:
        await client._disconnect()
        loop.stop()

    running = asyncio.create_task(asyncio.to_thread(run))
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop)
        await running


async def test_the_official_long_connection_acknowledges_events(lark: Any, platform: LarkPlatform) -> None:
    heard: list[str] = []

    def hear(data: Any) -> None:
        heard.append(data.event.message.message_id)
        if len(heard) > 1:
            raise ValueError("not now")

    handler = lark.EventDispatcherHandler.builder("", "").register_p2_im_message_receive_v1(hear).build()
    chat = platform.p2p("ou_alice")
    events = [platform.say(chat, "ou_alice", "one"), platform.say(chat, "ou_alice", "two")]

    async with connected(lark, platform, handler):
        codes = [await platform.push(event) for event in events]

    assert codes == [200, 500]
    assert heard == [message.id for message in chat.messages]


async def test_refusals_have_the_codes_of_the_platform() -> None:
    clock = FakeClock()
    async with start_lark_platform(clock=clock) as platform, httpx.AsyncClient(base_url=platform.url) as http:
        app, chat = platform.app, platform.p2p("ou_alice")
        event = platform.say(chat, "ou_alice", "hello")
        assert event.message is not None
        path = f"/open-apis/im/v1/messages/{event.message.id}/reply"

        async def token(secret: str = app.app_secret) -> httpx.Response:
            body = {"app_id": app.app_id, "app_secret": secret}
            return await http.post("/open-apis/auth/v3/tenant_access_token/internal", json=body)

        async def reply() -> tuple[int, int]:
            answer = await http.post(path, json={"msg_type": "text", "content": '{"text": "hi"}', "uuid": "u"})
            return answer.status_code, answer.json()["code"]

        assert (await token("guessed")).json()["code"] == 10014
        platform.api.token_down = True
        assert (await token()).status_code == 503
        platform.recover()
        assert await reply() == (400, 99991663)
        http.headers["Authorization"] = f"Bearer {(await token()).json()['tenant_access_token']}"

        platform.rate_limit(times=1, reset=3)
        platform.fail(times=1)
        platform.refuse_replies(230099, times=1, about=event)
        assert [await reply() for _ in range(4)] == [(429, 99991400), (503, 0), (400, 230099), (200, 0)]
        assert len(platform.replies(event)) == 1

        clock.advance(timedelta(minutes=61))
        assert await reply() == (200, 0)
        assert len(platform.replies(event)) == 2
        chat.bot_inside = False
        assert await reply() == (400, 230002)
        platform.recall(event)
        assert await reply() == (400, 230011)
        clock.advance(timedelta(minutes=61))
        assert await reply() == (400, 99991663)
