"""The platform's HTTP API, as far as a bot needs it.

Not the SDK's client: that one opens a connection and a TLS context for each request and fetches tokens with a blocking
call, which would stop the server's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from tenuto.channels.lark.app import LarkApp
from tenuto.errors import ChannelUnavailable, TooLarge
from tenuto.ports import Clock, utc_now

CHANNEL: Final = "lark"
_TOKEN_PATH: Final = "/open-apis/auth/v3/tenant_access_token/internal"  # noqa: S105 - a path
_BOT_PATH: Final = "/open-apis/bot/v3/info"
_MESSAGES: Final = "/open-apis/im/v1/messages"
_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)
_CONNECTIONS: Final = httpx.Limits(max_connections=50, keepalive_expiry=60)
# For a whole file, of at most 100 MB.
_DOWNLOAD_SECONDS: Final = 60.0
# The most that the platform lists at once.
_PAGE_SIZE: Final = "50"
_RENEW_EARLY: Final = timedelta(minutes=5)
_LONGEST_WAIT: Final = timedelta(minutes=5)
# The token is missing, invalid or expired.
_TOKEN_CODES: Final = frozenset({99991661, 99991663, 99991664, 99991665, 99991668, 99991671, 99991677})
# Limits of the platform, of a chat or of a message, and a message with this uuid that is still being sent.
_LATER_CODES: Final = frozenset({99991400, 230020, 230049, 11020, 11021, 11232, 11233, 11247})

_T = TypeVar("_T")


class LarkRefusal(Exception):
    """The platform refuses a request for good; `code` says why, and the request is not part of it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the platform refuses with code {code}")
        self.code = code


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Token(msgspec.Struct, frozen=True):
    tenant_access_token: str
    expire: int = 0


class Bot(msgspec.Struct, frozen=True):
    """The app's bot. `activate_status` is 2 where it can be used."""

    open_id: str
    app_name: str = ""
    activate_status: int = 2


class _BotAnswer(msgspec.Struct, frozen=True):
    bot: Bot


class Sent(msgspec.Struct, frozen=True):
    """A message of ours in a chat."""

    message_id: str
    msg_type: str = ""


class _SentAnswer(msgspec.Struct, frozen=True):
    data: Sent


class ListedSender(msgspec.Struct, frozen=True):
    """Who sent a listed message; an app is named by its app id."""

    id: str = ""
    sender_type: str = ""
    sender_name: str | None = None


class _Body(msgspec.Struct, frozen=True):
    content: str = ""


class ListedMention(msgspec.Struct, frozen=True):
    """A mention in a listed message, whose id is an open_id."""

    key: str = ""
    id: str = ""
    name: str = ""


class Listed(msgspec.Struct, frozen=True):
    """A message of a chat's list. A reply has the message that it replies to as its parent."""

    message_id: str
    parent_id: str | None = None
    root_id: str | None = None
    msg_type: str = ""
    create_time: str | int = 0
    deleted: bool = False
    sender: ListedSender = ListedSender()
    body: _Body = _Body()
    mentions: list[ListedMention] | None = None


class ListPage(msgspec.Struct, frozen=True):
    """Some messages of a chat or thread; `page_token` asks for the next ones."""

    items: list[Listed] | None = None
    has_more: bool = False
    page_token: str = ""


class _ListAnswer(msgspec.Struct, frozen=True):
    data: ListPage = ListPage()


class LarkClient:
    """Calls the platform as one app. Close it when done.

    Every method raises `ChannelUnavailable` if a retry may succeed, and `LarkRefusal` otherwise.
    """

    def __init__(self, app: LarkApp, *, clock: Clock = utc_now) -> None:
        self._app = app
        self._clock = clock
        self._token: tuple[str, datetime] | None = None
        self._renewing = asyncio.Lock()
        # Neither through a proxy, nor after a redirect: the secret goes to the configured address only.
        self._http = httpx.AsyncClient(
            base_url=app.domain, timeout=_TIMEOUT, limits=_CONNECTIONS, trust_env=False, follow_redirects=False
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def bot(self) -> Bot:
        """The app's bot."""
        return (await self._call("GET", _BOT_PATH, _BotAnswer)).bot

    async def reply(self, message_id: str, *, kind: str, content: str, uuid: str, in_thread: bool) -> Sent:
        """Reply to a message. A `uuid` that was used within the hour sends nothing; what it sent then is returned."""
        body = {"msg_type": kind, "content": content, "uuid": uuid, "reply_in_thread": in_thread}
        return (
            await self._call("POST", f"{_MESSAGES}/{quote(message_id, safe='')}/reply", _SentAnswer, body=body)
        ).data

    async def update_card(self, message_id: str, content: str) -> None:
        """Replace the content of a card of ours."""
        await self._call("PATCH", f"{_MESSAGES}/{quote(message_id, safe='')}", _Status, body={"content": content})

    async def list_messages(
        self, container: str, container_id: str, *, since: datetime | None = None, page_token: str = ""
    ) -> ListPage:
        """At most 50 messages of a `chat` or `thread`, newest first; those `since` a time, oldest first, of a chat."""
        params = {
            "container_id_type": container,
            "container_id": container_id,
            "sort_type": "ByCreateTimeDesc" if since is None else "ByCreateTimeAsc",
            "page_size": _PAGE_SIZE,
            "with_sender_name": "true",
            **({} if since is None else {"start_time": str(int(since.timestamp()))}),
            **({"page_token": page_token} if page_token else {}),
        }
        return (await self._call("GET", _MESSAGES, _ListAnswer, params=params)).data

    async def download(self, message_id: str, key: str, *, picture: bool, limit: int) -> bytes:
        """The content of a picture or file of a message.

        Raises:
            TooLarge: it has more bytes than the limit; no more are read.
        """
        path = f"{_MESSAGES}/{quote(message_id, safe='')}/resources/{quote(key, safe='')}"
        params = {"type": "image" if picture else "file"}

        async def attempt(token: str) -> bytes:
            async with asyncio.timeout(_DOWNLOAD_SECONDS):
                return await self._read_file(path, params, token, limit)

        try:
            return await self._with_token(attempt)
        except (httpx.HTTPError, TimeoutError) as error:
            raise ChannelUnavailable(CHANNEL, f"does not give a file ({type(error).__name__})") from None

    async def _read_file(self, path: str, params: Mapping[str, str], token: str, limit: int) -> bytes:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._http.stream("GET", path, params=params, headers=headers) as response:
            # A refusal is JSON; a file that is JSON has a name in its headers.
            is_json = response.headers.get("content-type", "").startswith("application/json")
            if response.status_code >= 400 or (is_json and "content-disposition" not in response.headers):
                await response.aread()
                _read(response, _Status)
                raise ChannelUnavailable(CHANNEL, "gives an answer of another kind in place of a file")
            pieces, size = list[bytes](), 0
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > limit:
                    raise TooLarge("attachment", limit)
                pieces.append(piece)
            return b"".join(pieces)

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[_T],
        *,
        body: Mapping[str, object] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> _T:
        async def attempt(token: str) -> _T:
            return _read(await self._send(method, path, body=body, params=params, token=token), kind)

        return await self._with_token(attempt)

    async def _with_token(self, attempt: Callable[[str], Awaitable[_T]]) -> _T:
        """Call with a token, and once more with a new one where it has been revoked meanwhile."""
        token = await self.token()
        try:
            return await attempt(token)
        except LarkRefusal as error:
            if error.code not in _TOKEN_CODES:
                raise
        if self._token is not None and self._token[0] == token:
            self._token = None
        try:
            return await attempt(await self.token())
        except LarkRefusal as error:
            if error.code in _TOKEN_CODES:
                raise ChannelUnavailable(CHANNEL, f"refuses its own token (code {error.code})") from error
            raise

    async def token(self) -> str:
        """A token that is valid for a while; one request at a time asks for a new one.

        A refusal is no reason to give a reply up: it succeeds as soon as the secret is corrected.
        """
        async with self._renewing:
            now = self._clock()
            if self._token is None or self._token[1] <= now:
                try:
                    answer = await self._new_token()
                except LarkRefusal as error:
                    why = f"refuses the app's id and secret (code {error.code})"
                    raise ChannelUnavailable(CHANNEL, why) from error
                life = timedelta(seconds=answer.expire)
                self._token = answer.tenant_access_token, now + life - min(_RENEW_EARLY, life / 10)
            return self._token[0]

    async def _new_token(self) -> _Token:
        body = {"app_id": self._app.app_id, "app_secret": self._app.app_secret}
        return _read(await self._send("POST", _TOKEN_PATH, body=body), _Token)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        params: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> httpx.Response:
        headers = {"Content-Type": "application/json; charset=utf-8"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        content = None if body is None else msgspec.json.encode(body)
        try:
            return await self._http.request(method, path, content=content, params=params, headers=headers)
        except httpx.HTTPError as error:
            # Without the cause, which may quote the request.
            raise ChannelUnavailable(CHANNEL, f"does not answer ({type(error).__name__})") from None


def _read(response: httpx.Response, kind: type[_T]) -> _T:
    status = response.status_code
    if status >= 500 or status == 429:
        raise ChannelUnavailable(CHANNEL, f"answers with status {status}", _retry_after(response))
    try:
        code = msgspec.json.decode(response.content, type=_Status).code
        if code in _LATER_CODES:
            raise ChannelUnavailable(CHANNEL, f"asks to slow down (code {code})", _retry_after(response))
        if code or status >= 400:
            raise LarkRefusal(code or status)
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ChannelUnavailable(CHANNEL, f"gives an answer of another kind (status {status})") from None


def _retry_after(response: httpx.Response) -> timedelta | None:
    for name in ("x-ogw-ratelimit-reset", "retry-after"):
        value = response.headers.get(name, "")
        if value.isascii() and value.isdigit():
            return min(timedelta(seconds=int(value[:9])), _LONGEST_WAIT)
    return None
