"""`LarkPlatform`: what a test does on the platform, and what came of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
from starlette.applications import Starlette

from tenuto.ports import Clock, utc_now
from tests.lark_platform.api import OpenApi
from tests.lark_platform.callbacks import (
    Callback,
    Forgery,
    LarkCredentials,
    Payload,
    forge_callback,
    make_callback,
    make_challenge,
)
from tests.lark_platform.chats import BOT, Chat, Event, Message, World, content_of
from tests.lark_platform.connection import LongConnections
from tests.lark_platform.faults import RATE_LIMITED, RECALLED, Fault
from tests.servers.loopback import serving
from tests.timeouts import LONG

SCHEDULE = (timedelta(), timedelta(seconds=15), timedelta(minutes=5), timedelta(hours=1), timedelta(hours=6))
"""The waits before each delivery of an event that is not acknowledged."""
_MESSAGES = frozenset({"send", "reply", "patch", "put", "list"})


@dataclass(frozen=True)
class Delivered:
    """A bot's answer to a callback, and the seconds that it took."""

    status: int
    body: bytes
    seconds: float


class LarkPlatform:
    """A running platform with one app; its attributes and methods may be used at any time."""

    def __init__(self, world: World, api: OpenApi, connections: LongConnections, http: httpx.AsyncClient) -> None:
        self.url = ""
        self.app = world.app
        self.api = api
        self.connections = connections
        self._world = world
        self._http = http

    @property
    def requests(self) -> Counter[str]:
        """How often the bot asked: token, bot, send, reply, patch, put, list, file, endpoint."""
        return self._world.requests

    @property
    def files(self) -> dict[str, bytes]:
        """The contents behind the keys of pictures and files."""
        return self._world.files

    def p2p(self, user: str) -> Chat:
        """A chat of this person and the bot."""
        return self._world.add_chat(user, group=False)

    def group(self, *members: str) -> Chat:
        """A group of these people and the bot."""
        return self._world.add_chat(*members, group=True)

    def say(
        self,
        chat: Chat,
        user: str,
        text: str = "",
        *,
        kind: str = "text",
        mention_bot: bool = False,
        mentions: Sequence[str] = (),
        pictures: Sequence[str] = (),
        thread: str | None = None,
    ) -> Event:
        """A person's message, and the event about it, which is not delivered yet. The first in a thread is its root."""
        assert user in chat.members
        mentioned = (BOT, *mentions) if mention_bot else tuple(mentions)
        root = next((one for one in chat.messages if thread is not None and one.thread == thread), None)
        content = content_of(kind, text, mentioned, pictures)
        message = self._world.add_message(chat, user, kind, content, mentions=mentioned, parent=root, thread=thread)
        return self._world.message_event(message)

    def second_event(self, event: Event) -> Event:
        """Another event about the same message, with an id of its own."""
        assert event.message is not None
        return self._world.message_event(event.message)

    def other_event(self, kind: str, event: Payload | None = None) -> Event:
        """An event of another type."""
        return self._world.make_event(kind, event or {})

    def callback(self, event: Event) -> Callback:
        """An event as a genuine request."""
        return make_callback(self.app, event.payload, self._world.clock())

    def forge(self, event: Event, how: Forgery) -> Callback:
        """An event as a request that must be refused."""
        return forge_callback(self.app, event.payload, how, self._world.clock())

    def challenge(self, challenge: str) -> Callback:
        """The request that checks an address."""
        return make_challenge(self.app, challenge, self._world.clock())

    async def deliver(self, what: Event | Callback, to: str) -> Delivered:
        """Post an event or a request to the bot's address, and wait for its answer."""
        request = what if isinstance(what, Callback) else self.callback(what)
        begun = time.perf_counter()
        answer = await self._http.post(to, content=request.body, headers=dict(request.headers))
        return Delivered(answer.status_code, answer.content, time.perf_counter() - begun)

    async def redeliver(
        self,
        event: Event,
        to: str,
        *,
        factor: float = 0.0,
        advance: Callable[[timedelta], object] = lambda _: None,
        until_acknowledged: bool = False,
    ) -> list[Delivered]:
        """Deliver on the whole schedule, as if no acknowledgement arrived, or until one does.

        Each wait is handed to `advance`, for a test with a clock of its own, and lasts `factor` times its length.
        """
        delivered: list[Delivered] = []
        for wait in SCHEDULE:
            advance(wait)
            await asyncio.sleep(wait.total_seconds() * factor)
            delivered.append(await self.deliver(event, to))
            if until_acknowledged and delivered[-1].status == httpx.codes.OK:
                break
        return delivered

    async def push(self, event: Event, seconds: float = LONG) -> int:
        """Deliver an event by the long connection, once there is one; returns the code of its acknowledgement."""
        await self._world.until(lambda: self.connections.open or None, seconds)
        return await self.connections.push(event, seconds)

    def recall(self, event: Event) -> None:
        """The person takes the message back: it can no longer be answered."""
        assert event.message is not None
        event.message.recalled = True

    def refuse_replies(
        self, code: int = RECALLED, *, times: int | None = None, about: Chat | Event | None = None
    ) -> None:
        """Refuse replies with this code: the next ones or all, in a chat, to a message or everywhere."""
        self._fault({"reply", "send"}, code=code, times=times, about=about)

    def rate_limit(self, times: int | None = None, *, reset: int = 1, about: Chat | Event | None = None) -> None:
        """Refuse requests about messages until the limit is reset, in so many seconds by the header."""
        headers = {"x-ogw-ratelimit-limit": "100", "x-ogw-ratelimit-reset": str(reset)}
        self._fault(_MESSAGES, code=RATE_LIMITED, status=429, times=times, about=about, headers=headers)

    def fail(self, *kinds: str, status: int = 503, times: int | None = None, about: Chat | Event | None = None) -> None:
        """Answer requests of these kinds (see `requests`), by default all about messages, with a server's error."""
        self._fault(kinds or _MESSAGES, status=status, times=times, about=about)

    def recover(self) -> None:
        """End every refusal that was set."""
        self.api.faults.clear()
        self.api.token_down, self.api.delay = False, 0.0

    def replies(self, event: Event) -> list[Message]:
        """What the bot replied to a message, oldest first."""
        assert event.message is not None
        return [one for one in event.message.chat.messages if one.by_bot and one.parent is event.message]

    async def reply_to(self, event: Event, *, saying: str = "", seconds: float = LONG) -> Message:
        """The first reply to a message whose text contains these words, as soon as there is one."""
        return await self._world.until(
            lambda: next((one for one in self.replies(event) if saying in one.text), None), seconds
        )

    async def until_requested(self, kind: str, times: int, seconds: float = LONG) -> None:
        """Wait until the bot has made so many requests of a kind, refused ones included."""
        await self._world.until(lambda: self.requests[kind] >= times or None, seconds)

    def chat_log(self, chat: Chat) -> list[tuple[str, str]]:
        """Who said what in a chat, oldest first."""
        return [(one.sender, one.text) for one in chat.messages]

    def _fault(self, kinds: Iterable[str], *, about: Chat | Event | None = None, **fields: Any) -> None:
        subject = about.message if isinstance(about, Event) else about
        fault = Fault(kinds=frozenset(kinds), about=None if subject is None else subject.id, **fields)
        self.api.faults.append(fault)


@asynccontextmanager
async def start_lark_platform(
    app: LarkCredentials | None = None, *, clock: Clock = utc_now
) -> AsyncIterator[LarkPlatform]:
    """A platform on a free port, until the block ends. It lives in the test's loop: blocking clients need a thread."""
    world = World(app=app or LarkCredentials(), clock=clock)
    api, connections = OpenApi(world=world), LongConnections(world=world)
    served = Starlette(routes=[*api.routes(), *connections.routes()])
    async with httpx.AsyncClient(timeout=LONG, trust_env=False) as http, serving(served, websockets=True) as url:
        platform = LarkPlatform(world, api, connections, http)
        platform.url = url
        yield platform
