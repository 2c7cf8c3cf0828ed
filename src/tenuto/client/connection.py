"""`tenuto.connect`: an installation behind a server, with the interface of one in this process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpx
import msgspec

from tenuto.client.http import ApiCall, ClientPolicy, HttpClient, path
from tenuto.client.sessions import RemoteSessions
from tenuto.client.tasks import RemoteTasks
from tenuto.errors import Invalid, InvalidSetting, Unavailable
from tenuto.model import Content, Draft, FinishTurn, OpenTurn, Role, Scope, Session, Usage, text_part
from tenuto.model.status import StatusView
from tenuto.model.values import check_text, check_type
from tenuto.ports import utc_now
from tenuto.sessions import TurnRequest, fresh_id

if TYPE_CHECKING:
    from tenuto.chat import ChatRequest, Reply
    from tenuto.client.chat import RemoteChat
    from tenuto.client.memories import RemoteMemories
    from tenuto.model.generation import ToolSpec
    from tenuto.model.values import JsonObject


# The server closes a connection that was idle for five seconds; one that is closed while it is used loses a request.
_CONNECTIONS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=100, keepalive_expiry=4)


class TenutoClient:
    """An installation behind a server: its sessions, and the short way to a turn, as `Tenuto` has them.

    `owner` is the scope that the key stands for; `scope` begins with it.
    """

    def __init__(self, http: HttpClient, owner: Scope) -> None:
        self._http = http
        self.owner = owner
        self.sessions = RemoteSessions(http)
        self.tasks = RemoteTasks(http)

    async def chat(self) -> RemoteChat:
        """Turns with the server's assistants."""
        # Replies and events load the room of chat, which keeping sessions does without.
        from tenuto.client.chat import RemoteChat

        return RemoteChat(self._http)

    async def memories(self) -> RemoteMemories:
        """What is remembered of users and chats beyond their sessions."""
        from tenuto.client.memories import RemoteMemories

        return RemoteMemories(self._http)

    async def status(self) -> StatusView:
        """How the server process is; with keys, for the role admin.

        Raises:
            AccessRefused: the key is not valid, or its role is another.
            Unavailable: the server does not answer, or not as a tenuto server.
        """
        body = await self._http.json(None, ApiCall("GET", path("status"), repeatable=True))
        try:
            return msgspec.convert(body, StatusView)
        except msgspec.ValidationError:
            raise Unavailable("server", "answers with another status: is it of the same version?") from None

    def scope(
        self,
        *,
        tenant: str | None = None,
        site: str | None = None,
        user: str | None = None,
        channel: str | None = None,
        chat: str | None = None,
        thread: str | None = None,
        persona: str | None = None,
        visitor: bool = False,
    ) -> Scope:
        """The scope of a caller; tenant, site and user are those of the key unless named."""
        return Scope(
            tenant=self.owner.tenant if tenant is None else tenant,
            site=self.owner.site if site is None else site,
            user=self.owner.user if user is None else user,
            channel=channel,
            chat=chat,
            thread=thread,
            persona=persona,
            visitor=visitor,
        )

    def draft(self, text: str, *, role: Role = Role.ASSISTANT, speaker: str | None = None) -> Draft:
        """A message of plain text."""
        check_text(text, "the message")
        return Draft(id=fresh_id(), role=role, sent_at=utc_now(), parts=(text_part(text),), speaker=speaker)

    async def begin(
        self,
        scope: Scope,
        text: str,
        *,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        window: int | None = None,
    ) -> OpenTurn:
        """Store the user message, take the lease, and load the conversation for the model: `summary` and `window`.

        Raises:
            SessionBusy: another turn runs, or this one, whose answer was lost; the same key resumes it when its lease
                has ended.
        """
        check_type(scope, Scope, "scope")
        body = {"message": {"role": Role.USER, "text": check_text(text, "the message")}, "window": window}
        return await self.sessions.begin_with(scope, body, session_id, idempotency_key)

    async def begin_turn(self, scope: Scope, request: TurnRequest, window: int | None = None) -> OpenTurn:
        """As `begin`, with messages of any kind."""
        return await self.sessions.begin(scope, request, window)

    async def finish(
        self, turn: OpenTurn, reply: str | Sequence[Draft] = (), *, tokens: int = 0, cost_nanos: int = 0
    ) -> Session:
        """Store the reply, add its usage, and release the lease."""
        if not isinstance(reply, str | list | tuple):
            raise Invalid(f"the reply must be a text (str) or a list of Draft, not {type(reply).__name__}")
        drafts = (self.draft(reply),) if isinstance(reply, str) else tuple(reply)
        usage = Usage(tokens=tokens, cost_nanos=cost_nanos)
        return (await self.sessions.finish(turn, FinishTurn(reply=drafts, usage=usage))).session

    async def abandon(self, turn: OpenTurn) -> Session:
        """Release the lease without a reply; the user message stays stored, and the same key resumes."""
        return (await self.sessions.finish(turn, FinishTurn(abandoned=True))).session

    async def ask(
        self,
        scope: Scope,
        text: str | ChatRequest,
        *,
        session_id: str | None = None,
        assistant: str | None = None,
        persona: str | None = None,
        language: str | None = None,
        idempotency_key: str | None = None,
        profile: JsonObject | None = None,
        edit: int | None = None,
        attachments: Sequence[Content] = (),
        messages: tuple[Draft, ...] = (),
        tools: tuple[ToolSpec, ...] = (),
        tool_choice: str | None = None,
    ) -> Reply:
        """Send a message to an assistant and get its reply; a `ChatRequest` may be given in place of the text."""
        from tenuto.chat.request import request_from

        check_type(scope, Scope, "scope")
        request = request_from(
            text,
            session_id=session_id,
            assistant=assistant,
            persona=persona,
            language=language,
            idempotency_key=idempotency_key,
            profile=profile,
            edit=edit,
            attachments=attachments,
            messages=messages,
            tools=tools,
            tool_choice=tool_choice,
        )
        return await (await self.chat()).take_turn(scope, request)


@asynccontextmanager
async def connect(
    url: str,
    key: str | None = None,
    *,
    tenant: str | None = None,
    site: str = "",
    policy: ClientPolicy = ClientPolicy(),  # noqa: B008 (a frozen value)
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[TenutoClient]:
    """Connect to a tenuto server: `tenuto.connect("https://tenuto.example", key)`.

    Connections are kept open and shared. The server is asked for whom the key stands; with a `tenant` named here, it is
    not, and a wrong one is refused by the first request.

    Raises:
        InvalidSetting: the URL is none of a server.
        AccessRefused: the key is not valid.
        Unavailable: the server does not answer.
    """
    if not re.match(r"https?://[^/]", url):
        raise InvalidSetting("url", "must begin with http:// or https:// and name a host")
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, transport=transport, limits=_CONNECTIONS) as pool:
        http = HttpClient(pool, policy)
        owner = Scope(tenant=tenant, site=site) if tenant is not None else await _find_owner(http)
        yield TenutoClient(http, owner)


async def _find_owner(http: HttpClient) -> Scope:
    body = await http.json(None, ApiCall("GET", path("scope"), repeatable=True))
    return Scope(**{name: body[name] for name in ("tenant", "site", "user")})
