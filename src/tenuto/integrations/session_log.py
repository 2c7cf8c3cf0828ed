"""The session behind a conversation of another framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Concatenate, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from tenuto.client.api import TenutoApi
from tenuto.compare_and_set import retry_on_conflict
from tenuto.errors import AttachmentNotFound, SessionNotFound
from tenuto.integrations.media import as_sent, with_media_beside
from tenuto.lru_cache import LruCache
from tenuto.model import (
    AppendResult,
    Changes,
    Content,
    Draft,
    FinishTurn,
    Message,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Role,
    Scope,
    Session,
    Truncation,
)
from tenuto.model.attachment import shown_in
from tenuto.model.message import SUMMARY, is_summary
from tenuto.model.policy import OnMissing, OnStoreDown, SessionPolicy
from tenuto.model.prompt import Language
from tenuto.model.turn import MAX_WINDOW
from tenuto.model.values import JsonObject
from tenuto.ports import release_lease
from tenuto.sessions import AppendRequest, Sessions, TurnRequest
from tenuto.sessions.ids import session_id_for_name
from tenuto.sessions.media_parts import brings_media
from tenuto.sessions.titles import with_fallback_title

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_MOST_LOGS: Final = 10_000
_TITLE: Final = SessionPolicy().fallback_title_characters


class SessionLog:
    """A session by the name that a framework gives it.

    The name is the session's id. If that id belongs to another user of the tenant, the session has an id derived from
    owner and name, so that equal names of two users are two sessions. It is made with its first message.

    A scope without user and chat has access to all sessions of its tenant. Here it means a caller who is not signed in,
    who has none of the users' sessions, unless the log is opened `as_tenant`.
    """

    def __init__(
        self, app: TenutoApi, scope: Scope, name: str, metadata: JsonObject | None = None, *, as_tenant: bool = False
    ) -> None:
        self._app = app
        self.sessions = app.sessions
        self._scope = scope
        self._name = name
        self._metadata = metadata or {}
        self._ids = (name, session_id_for_name(scope, name))
        self._as_tenant = as_tenant

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        """Store messages in one step."""
        request = AppendRequest(messages=self._with_media_beside(drafts))
        try:
            return await self.on_session(self.sessions.append, request)
        except SessionNotFound:
            session, new = await self._make()
            changes = with_title(session, drafts, Changes())
            if new and changes.fields:
                await self.sessions.patch(self._scope, session.id, changes)
            return await self.sessions.append(self._scope, session.id, request)

    async def create(self) -> tuple[Session, bool]:
        """The session, and whether it is new."""
        try:
            # Under both ids: it may have got the second one, and the first be free by now.
            return await self.on_session(self.sessions.get), False
        except SessionNotFound:
            return await self._make()

    async def _make(self) -> tuple[Session, bool]:
        session, new = await self._create_as(self._name)
        if not has_access(self._scope, session, as_tenant=self._as_tenant):
            session, new = await self._create_as(session_id_for_name(self._scope, self._name))
            self._check_access(session)
        return session, new

    async def _create_as(self, session_id: str) -> tuple[Session, bool]:
        new = NewSession(metadata=self._metadata)
        if not isinstance(self.sessions, Sessions):  # A server has its own policy.
            return await self.sessions.create(self._scope, new, session_id, self._name)
        # What a framework reads may not begin with a result whose call is gone, nor with a reply to an absent message.
        policy = self.sessions.policy
        unbounded = replace(policy, retention=replace(policy.retention, max_messages=None, max_turns=None))
        return await self.sessions.create(self._scope, new, session_id, self._name, policy=unbounded)

    def _check_access(self, session: Session) -> None:
        if not has_access(self._scope, session, as_tenant=self._as_tenant):
            raise SessionNotFound(session.id)

    async def on_session(
        self,
        act: Callable[Concatenate[Scope, str, _Parameters], Awaitable[_Result]],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Act on the session by its id.

        Raises:
            SessionNotFound: there is none.
        """
        try:
            return await self._on_id(self._ids[0], act, *args, **kwargs)
        except SessionNotFound:
            result = await self._on_id(self._ids[1], act, *args, **kwargs)
        self._ids = self._ids[::-1]
        return result

    async def _on_id(
        self,
        session_id: str,
        act: Callable[Concatenate[Scope, str, _Parameters], Awaitable[_Result]],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        if not (self._scope.owner or self._as_tenant):  # The store does not refuse it anything.
            self._check_access(await self.sessions.get(self._scope, session_id))
        return await act(self._scope, session_id, *args, **kwargs)

    async def page(self, limit: int = MAX_WINDOW, before: MessagePage | None = None) -> MessagePage | None:
        """The newest messages, or those before a page; `None` if there are none, or no session."""
        if before is not None and not before.more_before:
            return None
        query = Page(limit=min(limit, MAX_WINDOW), before=before.messages[0].seq if before is not None else None)
        try:
            page = await self.on_session(self.sessions.messages, query)
        except SessionNotFound:
            return None
        if not any(brings_media(message.parts) for message in page.messages):
            return page
        return replace(page, messages=tuple([await self._with_media(message) for message in page.messages]))

    async def _with_media(self, message: Message) -> Message:
        """The message as it was sent, with the contents that it shows unless they were removed."""
        contents: dict[str, Content] = {}
        for attachment_id in shown_in(message.parts):
            with suppress(AttachmentNotFound):
                contents[attachment_id] = await self.on_session(self.sessions.attachment, attachment_id)
        return as_sent(message, contents)

    async def messages(
        self, newest: int | None = None, *, in_window: bool = False
    ) -> tuple[Session | None, list[Message]]:
        """The head, and all messages or at least so many of the newest, oldest first and with summaries.

        With `in_window`, at least those from the session's window on.
        """
        page = await self.page(newest or MAX_WINDOW)
        head = page.session if page is not None else None
        messages: list[Message] = []
        while page is not None:
            messages[:0] = page.messages
            if newest is not None and sum(not is_summary(message) for message in messages) >= newest:
                break
            if in_window and page.messages and page.messages[0].seq <= page.session.window_start:
                break
            page = await self.page(newest or MAX_WINDOW, page)
        return head, messages

    async def remove(
        self,
        choose: Callable[[Session, Sequence[Message]], Sequence[Message]],
        newest: int | None = None,
        *,
        in_window: bool = False,
    ) -> Sequence[Message]:
        """Remove those of the (newest, or the window's) messages that are chosen, again if others come; returns them.

        Summaries of what is removed are removed with it.
        """

        async def attempt() -> Sequence[Message]:
            head, log = await self.messages(newest, in_window=in_window)
            selection = (
                choose(head, [message for message in log if not is_summary(message)]) if head is not None else ()
            )
            if head is None or not selection:
                return ()
            seqs = {message.seq for message in selection}
            after = min(seqs) - 1
            stay = tuple(one.seq for one in log if one.seq > after and one.seq not in seqs and not _covers(one, after))
            truncation = Truncation(after=after, if_version=head.version, keep_seqs=stay)
            await self.on_session(self.sessions.truncate, truncation)
            return selection

        return await retry_on_conflict(attempt)

    async def begin(self) -> OpenTurn:
        """Begin a turn without messages: until it is finished, no other turn changes the session.

        Raises:
            SessionNotFound: there is no session.
        """
        return await self.on_session(self._begin)

    async def _begin(self, scope: Scope, session_id: str) -> OpenTurn:
        policy = None
        if isinstance(self.sessions, Sessions):
            policy = replace(self.sessions.policy, on_missing=OnMissing.ERROR, on_store_down=OnStoreDown.RAISE)
        else:
            # A server has its own policy, by which it may make a session in place of one that is absent.
            await self.sessions.get(scope, session_id)
        # Short, and released if this process dies: nothing but the end of the turn follows.
        request = TurnRequest(session_id=session_id, policy=policy, renews=True)
        return await self._app.begin_turn(scope, request, 0)

    async def finish(self, turn: OpenTurn, drafts: Sequence[Draft], changes: Changes) -> None:
        """Store messages and changes in one step, and release the session."""
        messages = self._with_media_beside(drafts)
        if isinstance(self.sessions, Sessions):
            await self.sessions.check_attachments(self._scope, turn.session.id, messages)
        await self.sessions.finish(turn, FinishTurn(reply=messages, changes=changes))

    def _with_media_beside(self, drafts: Sequence[Draft]) -> tuple[Draft, ...]:
        return tuple([with_media_beside(self._scope, draft) for draft in drafts])

    async def delete(self) -> None:
        """Remove the session with all of its messages; an absent one is no error."""
        try:
            await self.on_session(self.sessions.delete)
        except SessionNotFound:
            return


class SessionLogs:
    """The sessions that an adapter has met: each is looked for under its two ids only once."""

    def __init__(self, *, as_tenant: bool = False) -> None:
        self._as_tenant = as_tenant
        self._logs = LruCache[tuple[Scope, str], SessionLog](_MOST_LOGS)

    def find(self, app: TenutoApi, scope: Scope, name: str, metadata: JsonObject | None = None) -> SessionLog:
        """The session of that name; the metadata is for a new one."""
        key = (scope, name)
        log = self._logs.get(key)
        if log is None:
            self._logs.put(key, log := SessionLog(app, scope, name, metadata, as_tenant=self._as_tenant))
        return log


def has_access(scope: Scope, session: Session, *, as_tenant: bool) -> bool:
    """Whether a session that the store has found is one for the caller of an adapter."""
    return as_tenant or bool(scope.owner) or not session.scope.owner


def with_title(session: Session, drafts: Sequence[Draft], changes: Changes) -> Changes:
    """The changes, with the first message of a user as the session's title for now if it has none."""
    first_text = next((draft.text for draft in drafts if draft.role is Role.USER and draft.text), "")
    if session.title or not first_text:
        return changes
    draft_session = with_fallback_title(NewSession(), first_text, Language.ENGLISH, _TITLE)
    return replace(changes, title=draft_session.title, metadata={**draft_session.metadata, **changes.metadata})


@asynccontextmanager
async def abandon_on_error(log: SessionLog, turn: OpenTurn) -> AsyncIterator[None]:
    """Release the turn if what belongs to it fails."""
    try:
        yield
    except BaseException:
        await release_lease(log.sessions.finish, turn)
        raise


def _covers(message: Message, after: int) -> bool:
    """Whether this is a summary of something after a message."""
    ends = [part.get("through") for part in message.parts if part["type"] == SUMMARY]
    return is_summary(message) and any(not isinstance(end, int) or end > after for end in ends)
