"""The HTTP side of the platform: tokens, the bot's own identity, messages sent, changed and listed."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.lark_platform.chats import BOT, BOT_NAME, Chat, Message, World
from tests.lark_platform.faults import (
    BOT_OUTSIDE,
    INVALID_REQUEST,
    INVALID_TOKEN,
    NO_SUCH_FILE,
    NOT_THE_SENDER,
    RECALLED,
    TOO_LONG,
    WRONG_SECRET,
    Fault,
    refusal,
)

Handler = Callable[[Request], Awaitable[Response]]
UUID_MILLISECONDS = 60 * 60 * 1000
_TOKEN_MILLISECONDS = 2 * UUID_MILLISECONDS
_MAX_UUID = 50
_TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"
_MAX_BYTES = {"text": 150 * 1024, "post": 30 * 1024, "interactive": 30 * 1024}


@dataclass(kw_only=True)
class OpenApi:
    """The routes below `/open-apis`. `faults` are asked in order; `delay` is waited before each answer."""

    world: World
    faults: list[Fault] = field(default_factory=list)
    token_down: bool = False
    delay: float = 0.0
    _tokens: dict[str, int] = field(default_factory=dict)
    _uuids: dict[str, Message] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        """All of them, each with the name that `World.count` notes it by."""
        messages, one = "/open-apis/im/v1/messages", "/open-apis/im/v1/messages/{message_id}"
        return [
            Route(_TOKEN_PATH, self._count("token", self._give_token), methods=["POST"]),
            Route("/open-apis/bot/v3/info", self._guard("bot", self._bot), methods=["GET"]),
            Route(messages, self._guard("send", self._send), methods=["POST"]),
            Route(messages, self._guard("list", self._list), methods=["GET"]),
            Route(f"{one}/reply", self._guard("reply", self._reply), methods=["POST"]),
            Route(f"{one}/resources/{{file_key}}", self._guard("file", self._file), methods=["GET"]),
            Route(one, self._guard("patch", self._change), methods=["PATCH"]),
            Route(one, self._guard("put", self._change), methods=["PUT"]),
        ]

    def expire_tokens(self) -> None:
        """Refuse every token given so far."""
        self._tokens.clear()

    async def _give_token(self, request: Request) -> Response:
        """The tenant's token: the same one until half an hour before it expires."""
        if self.token_down:
            return Response("upstream connect error", 503)
        given, app, now = await request.json(), self.world.app, self.world.now()
        if (given.get("app_id"), given.get("app_secret")) != (app.app_id, app.app_secret):
            return refusal(WRONG_SECRET, status=200)
        lasting = [token for token, until in self._tokens.items() if until - now > UUID_MILLISECONDS // 2]
        token = lasting[0] if lasting else f"t-{secrets.token_hex(20)}"
        until = self._tokens.setdefault(token, now + _TOKEN_MILLISECONDS)
        return JSONResponse({"code": 0, "msg": "ok", "tenant_access_token": token, "expire": (until - now) // 1000})

    def _count(self, kind: str, handler: Handler) -> Handler:
        """Wait as long as was set, answer, and count the request once its answer is settled."""

        async def answer(request: Request) -> Response:
            await asyncio.sleep(self.delay)
            settled = await handler(request)
            self.world.count(kind)
            return settled

        return answer

    def _guard(self, kind: str, handler: Handler) -> Handler:
        """Answer a request, unless its token is invalid or a fault is set."""

        async def answer(request: Request) -> Response:
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if self._tokens.get(token, 0) <= self.world.now():
                return refusal(INVALID_TOKEN)
            chat = request.query_params.get("container_id")
            message = self.world.messages.get(request.path_params.get("message_id", ""))
            fault = next((one for one in self.faults if one.strikes(kind, chat, message)), None)
            return fault.answer() if fault is not None else await handler(request)

        return self._count(kind, answer)

    async def _file(self, request: Request) -> Response:
        """The content behind a key of a message."""
        key = request.path_params["file_key"]
        message = self.world.messages.get(request.path_params["message_id"])
        is_right_type = request.query_params.get("type") == ("image" if key.startswith("img_") else "file")
        if message is None or not is_right_type:
            return refusal(INVALID_REQUEST)
        if f'"{key}"' not in message.content or key not in self.world.files:
            return refusal(NO_SUCH_FILE)
        headers = {"Content-Disposition": 'attachment; filename="file"'}
        return Response(self.world.files[key], headers=headers, media_type="application/octet-stream")

    async def _bot(self, request: Request) -> Response:
        bot = {"activate_status": 2, "app_name": BOT_NAME, "avatar_url": "", "ip_white_list": [], "open_id": BOT}
        return JSONResponse({"code": 0, "msg": "ok", "bot": bot})

    async def _reply(self, request: Request) -> Response:
        parent = self.world.messages.get(request.path_params["message_id"])
        if parent is None:
            return refusal(INVALID_REQUEST)
        if parent.recalled:
            return refusal(RECALLED)
        return self._post(parent.chat, await request.json(), parent)

    async def _send(self, request: Request) -> Response:
        body, kind = await request.json(), request.query_params.get("receive_id_type")
        receiver = body.get("receive_id")
        if kind == "chat_id":
            chat = self.world.chats.get(receiver)
        else:
            chat = next((one for one in self.world.chats.values() if not one.group and receiver in one.members), None)
        return refusal(INVALID_REQUEST) if chat is None else self._post(chat, body, None)

    def _post(self, chat: Chat, body: dict[str, Any], parent: Message | None) -> Response:
        """Add the bot's message, or return the one that an equal `uuid` made within the last hour."""
        if not chat.bot_inside:
            return refusal(BOT_OUTSIDE)
        if (code := _unfit(body)) is not None:
            return refusal(code)
        uuid = body.get("uuid")
        message = self._uuids.get(uuid) if uuid else None
        if message is None or self.world.now() - message.created > UUID_MILLISECONDS:
            thread = _thread(parent, in_thread=bool(body.get("reply_in_thread")))
            message = self.world.add_message(chat, BOT, body["msg_type"], body["content"], parent=parent, thread=thread)
        if uuid:
            self._uuids[uuid] = message
        return self._show(message)

    async def _change(self, request: Request) -> Response:
        """PATCH replaces a card, PUT a text or a post."""
        message = self.world.messages.get(request.path_params["message_id"])
        if message is None or (request.method == "PATCH") != (message.kind == "interactive"):
            return refusal(INVALID_REQUEST)
        if message.recalled or not message.by_bot:
            return refusal(RECALLED if message.recalled else NOT_THE_SENDER)
        if not message.chat.bot_inside:
            return refusal(BOT_OUTSIDE)
        body = {"msg_type": message.kind, **await request.json()}
        if (code := _unfit(body)) is not None:
            return refusal(code)
        message.content, message.updated = body["content"], self.world.now()
        self.world.announce()
        return (
            JSONResponse({"code": 0, "msg": "success", "data": {}})
            if request.method == "PATCH"
            else self._show(message)
        )

    async def _list(self, request: Request) -> Response:
        """A page of a chat or a thread; a chat's has the first of threads only, a thread's no limits of time."""
        query = request.query_params
        found = self._container(query.get("container_id_type"), query.get("container_id", ""))
        size, start = int(query.get("page_size", 20)), int(query.get("page_token", "") or 0)
        if (
            found is None
            or not 1 <= size <= 50
            or (query.get("container_id_type") == "thread" and "start_time" in query)
        ):
            return refusal(INVALID_REQUEST)
        after, before = int(query.get("start_time", 0)), int(query.get("end_time", 10**11))
        found = [one for one in found if after <= one.created // 1000 <= before]
        if query.get("sort_type") == "ByCreateTimeDesc":
            found.reverse()
        if any(not one.chat.bot_inside for one in found[:1]):
            return refusal(BOT_OUTSIDE)
        more = start + size < len(found)
        items = [self.world.listed(one) for one in found[start : start + size]]
        page = {"has_more": more, "page_token": str(start + size) if more else "", "items": items}
        return JSONResponse({"code": 0, "msg": "success", "data": page})

    def _container(self, kind: str | None, container: str) -> list[Message] | None:
        if kind == "thread":
            return [one for one in self.world.messages.values() if one.thread == container] or None
        chat = self.world.chats.get(container) if kind == "chat" else None
        return None if chat is None else [one for one in chat.messages if one.thread is None or one.parent is None]

    def _show(self, message: Message) -> Response:
        return JSONResponse({"code": 0, "msg": "success", "data": self.world.listed(message)})


def _thread(parent: Message | None, *, in_thread: bool) -> str | None:
    """The thread of a reply; a reply in a thread begins one where there is none."""
    if parent is None:
        return None
    if in_thread and parent.root.thread is None:
        parent.root.thread = parent.thread = f"omt_{secrets.token_hex(8)}"
    return parent.thread


def _unfit(body: dict[str, Any]) -> int | None:
    """Why a message is not taken."""
    kind, content, uuid = body.get("msg_type"), body.get("content"), body.get("uuid") or ""
    if kind not in _MAX_BYTES or not isinstance(content, str) or len(uuid) > _MAX_UUID:
        return INVALID_REQUEST
    if len(content.encode()) > _MAX_BYTES[kind]:
        return TOO_LONG
    try:
        fields = json.loads(content)
    except ValueError:
        return INVALID_REQUEST
    fits = isinstance(fields, dict) and bool(fields) and (kind != "text" or bool(fields.get("text")))
    return None if fits else INVALID_REQUEST
