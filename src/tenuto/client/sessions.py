"""`RemoteSessions`: sessions on a server, with the methods of `Sessions`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from decimal import Decimal
from typing import Final
from urllib.parse import unquote

from msgspec.structs import replace

from tenuto.client.http import ApiCall, HttpClient, path
from tenuto.client.wire import (
    append_result_from,
    changes_to_json,
    draft_to_json,
    export_to_json,
    finish_to_json,
    instant_from,
    messages_from,
    refuse_unsent,
    session_from,
    turn_from,
    usage_to_json,
    value_from,
)
from tenuto.errors import SessionNotFound
from tenuto.model import (
    AppendResult,
    Attachment,
    Changes,
    Content,
    FinishTurn,
    Message,
    MessageMatch,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Scope,
    SearchPage,
    SearchQuery,
    Session,
    SessionHit,
    SessionPage,
    SessionQuery,
    SessionStats,
    Truncation,
)
from tenuto.model.session import cost_nanos
from tenuto.model.values import Json, JsonObject, check_type
from tenuto.sessions import AppendRequest, TurnRequest, fresh_id
from tenuto.sessions.transfer import ExportedSession, ExportFormat

# Messages of one request; a larger page takes several.
_MOST: Final = 1000


class RemoteSessions:
    """The sessions of a server; errors, values and guarantees are those of `Sessions`."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def create(
        self,
        scope: Scope,
        new: NewSession | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Session, bool]:
        """Create a session, or return the caller's own of that id; the flag says whether it is new.

        Its retention is the server's.
        """
        new = NewSession() if new is None else new
        body = {name: getattr(new, name) for name in ("title", "context", "attributes", "metadata")}
        if session_id is not None:
            body["id"] = session_id
        headers = {"Idempotency-Key": idempotency_key or fresh_id()}
        call = ApiCall("POST", path("sessions"), body, headers=headers, repeatable=True)
        response = await self._http.send(scope, call)
        return session_from(response.json()), response.status_code == 201

    async def get(self, scope: Scope, session_id: str) -> Session:
        """The session's head."""
        return session_from(await self._http.json(scope, _read(session_id)))

    async def list(self, scope: Scope, query: SessionQuery | None = None) -> SessionPage:
        """The caller's sessions, latest change first."""
        query = query or SessionQuery()
        parameters = {"limit": query.limit, "cursor": query.cursor, "title": query.title, "status": query.status}
        body = await self._http.json(scope, ApiCall("GET", path("sessions"), query=parameters, repeatable=True))
        return SessionPage(sessions=tuple(map(session_from, body["sessions"])), cursor=body["cursor"])

    async def search(self, scope: Scope, query: SearchQuery | str) -> SearchPage:
        """The caller's sessions that have all words of a text in their titles and messages, latest change first."""
        query = SearchQuery(text=query) if isinstance(query, str) else query
        parameters = {"limit": query.limit, "cursor": query.cursor, "q": query.text, "status": query.status}
        body = await self._http.json(scope, ApiCall("GET", path("sessions"), query=parameters, repeatable=True))
        found = [
            SessionHit(
                session=session_from(one),
                matches=tuple([value_from(match, MessageMatch) for match in body["matches"].get(one["id"], ())]),
            )
            for one in body["sessions"]
        ]
        return SearchPage(found=tuple(found), cursor=body["cursor"], unsearched=body["unsearched"])

    async def messages(self, scope: Scope, session_id: str, query: Page | None = None) -> MessagePage:
        """A page of its messages, oldest first; by default the newest page."""
        query = query or Page()
        refuse_unsent(query, Page(), "touch")
        page = await self._page(scope, session_id, replace(query, limit=min(query.limit, _MOST)))
        while len(page.messages) < query.limit and page.messages:
            missing = min(query.limit - len(page.messages), _MOST)
            if query.after is None and page.more_before:
                more = await self._page(scope, session_id, Page(limit=missing, before=page.messages[0].seq))
                page = replace(page, messages=more.messages + page.messages, more_before=more.more_before)
            elif query.after is not None and page.more_after:
                more = await self._page(scope, session_id, Page(limit=missing, after=page.messages[-1].seq))
                page = replace(page, messages=page.messages + more.messages, more_after=more.more_after)
            else:
                break
        return page

    async def _page(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        parameters = {
            "limit": query.limit,
            "before": query.before,
            "after": query.after,
            "summaries": True,
            "head": True,
        }
        body = await self._http.json(scope, _read(session_id, "messages")._replace(query=parameters))
        return MessagePage(
            session=session_from(body["session"]),
            messages=messages_from(body["messages"]),
            more_before=body["more_before"],
            more_after=body["more_after"],
        )

    async def iter_pages(self, scope: Scope, session: Session, size: int = 200) -> AsyncIterator[tuple[Message, ...]]:
        """All messages up to the head's `last_seq`, page by page."""
        after = 0
        while after < session.last_seq:
            page = await self.messages(scope, session.id, Page(limit=size, after=after))
            yield tuple(message for message in page.messages if message.seq <= session.last_seq)
            if not page.more_after:
                return
            after = page.messages[-1].seq

    async def append(self, scope: Scope, session_id: str, request: AppendRequest) -> AppendResult:
        """Append messages to a session that exists, by the caller's key or producer number at most once."""
        check_type(request, AppendRequest, "the request")
        body: JsonObject = {"messages": list(map(draft_to_json, request.messages))}
        if request.usage is not None:
            body["usage"] = usage_to_json(request.usage)
        headers = {}
        if request.producer is not None:
            body["producer"] = {"id": request.producer.id, "seq": request.producer.seq}
        else:
            headers["Idempotency-Key"] = request.idempotency_key or fresh_id()
        call = _write(session_id, "messages", body=body)._replace(headers=headers, repeatable=True)
        return append_result_from(await self._http.json(scope, call))

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        """Change title, status, context, attributes or metadata."""
        check_type(changes, Changes, "the changes")
        body = {**changes_to_json(changes), "if_version": changes.if_version}
        # After a lost answer the version is another one, so that a repetition would be refused.
        call = ApiCall("PATCH", path("sessions", session_id), body, about=_about(session_id))
        return session_from(await self._http.json(scope, call._replace(repeatable=changes.if_version is None)))

    async def set_attribute(self, scope: Scope, session_id: str, name: str, value: Json) -> bool:
        """Set one attribute; returns False if there is no such session."""
        try:
            await self.patch(scope, session_id, Changes(attributes={name: value}))
        except SessionNotFound:
            return False
        return True

    async def get_attribute(self, scope: Scope, session_id: str, name: str) -> Json:
        """One attribute, `None` when it or its session is absent."""
        try:
            return (await self.get(scope, session_id)).attributes.get(name)
        except SessionNotFound:
            return None

    async def reset(self, scope: Scope, session_id: str) -> Session:
        """Remove the messages and keep the session with its assistant; a running turn is lost."""
        return session_from(await self._http.json(scope, _write(session_id, "reset")))

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        """Remove what follows a message, except the messages of `keep_seqs`."""
        refuse_unsent(request, Truncation(after=0), "within_turn")
        body = {"after": request.after, "if_version": request.if_version, "keep_seqs": request.keep_seqs}
        return session_from(await self._http.json(scope, _write(session_id, "truncate", body=body)))

    async def fork(
        self, scope: Scope, session_id: str, at: int | None = None, new_id: str | None = None, title: str | None = None
    ) -> Session:
        """Copy a session up to a message into a new one."""
        body = {"at": at, "id": new_id, "title": title}
        return session_from(await self._http.json(scope, _write(session_id, "fork", body=body)))

    async def delete(self, scope: Scope, session_id: str) -> None:
        """Remove the session and everything of it."""
        call = ApiCall("DELETE", path("sessions", session_id), about=_about(session_id), repeatable=True, gone=True)
        await self._http.send(scope, call)

    async def attachments(self, scope: Scope, session_id: str) -> tuple[Attachment, ...]:
        """What is known of the session's attachments, in the order in which they came."""
        body = await self._http.json(scope, _read(session_id, "attachments"))
        return tuple([value_from(each, Attachment) for each in body["attachments"]])

    async def attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Content:
        """One attachment with its bytes."""
        response = await self._http.send(scope, _read(session_id, "attachments", attachment_id))
        name = unquote(response.headers["content-disposition"].partition("filename*=UTF-8''")[2])
        return Content(
            id=attachment_id,
            media_type=response.headers["content-type"],
            data=response.content,
            # One without a name is saved under its id.
            name=name if name != attachment_id else "",
        )

    async def remove_attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Session:
        """Remove an attachment; the messages that showed it stay, with a mark in its place."""
        call = ApiCall("DELETE", path("sessions", session_id, "attachments", attachment_id), about=_about(session_id))
        return session_from(await self._http.json(scope, call))

    async def restore(self, scope: Scope, saved: ExportedSession) -> Session:
        """Import an exported session under a fresh id, with all its messages or not at all."""
        call = ApiCall("POST", path("sessions", "import"), export_to_json(saved))
        return session_from(await self._http.json(scope, call))

    async def export(
        self, scope: Scope, session_id: str, export_format: ExportFormat = ExportFormat.JSON
    ) -> AsyncIterator[bytes]:
        """A session as a file, piece by piece, redacted as the server's policy for exports says."""
        call = _read(session_id, "export")._replace(query={"format": export_format})
        async with aclosing(self._http.pieces(scope, call)) as pieces:
            async for piece in pieces:
                yield piece

    async def stats(self, scope: Scope) -> SessionStats:
        """Totals of the caller's sessions."""
        body = await self._http.json(scope, ApiCall("GET", path("stats"), repeatable=True))
        return value_from(body, SessionStats, cost_nanos=cost_nanos(Decimal(body["cost_usd"])))

    # Turns

    async def begin(self, scope: Scope, request: TurnRequest, window: int | None) -> OpenTurn:
        """Open a turn; the window is fitted by the server."""
        check_type(request, TurnRequest, "the request")
        refuse_unsent(request, TurnRequest(), "new_session", "policy")
        body = {"messages": list(map(draft_to_json, request.user_messages)), "window": window}
        return await self.begin_with(scope, body, request.session_id, request.idempotency_key)

    async def begin_with(self, scope: Scope, body: JsonObject, session_id: str | None, key: str | None) -> OpenTurn:
        """Open a turn with messages in the server's form."""
        headers = {"Idempotency-Key": key or fresh_id()}
        about = _about(session_id) if session_id is not None else {}
        call = ApiCall("POST", path("turns"), {**body, "session_id": session_id}, headers=headers, about=about)
        return turn_from(await self._http.json(scope, call._replace(repeatable=True)), scope)

    async def finish(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        """Store the reply and release the session; again has no effect."""
        check_type(turn, OpenTurn, "the turn")
        step, body = ("abandon", None) if request.abandoned else ("finish", finish_to_json(request))
        return append_result_from(await self.end_with(turn, step, body))

    async def end_with(self, turn: OpenTurn, step: str, body: JsonObject | None) -> JsonObject:
        """Finish, renew or abandon a turn."""
        check_type(turn, OpenTurn, "the turn")
        about = {**_about(turn.session.id), "turn_id": turn.id}
        return await self._http.json(
            turn.scope, ApiCall("POST", path("turns", turn.id, step), body, about=about, repeatable=True)
        )

    async def renew(self, turn: OpenTurn) -> OpenTurn:
        """Extend the lease of a long turn."""
        lease = await self.end_with(turn, "renew", None)
        return replace(turn, id=lease["turn_id"], lease_until=instant_from(lease["lease_until"]))


def _about(session_id: str) -> dict[str, str]:
    return {"session_id": session_id}


def _read(session_id: str, *further: str) -> ApiCall:
    return ApiCall("GET", path("sessions", session_id, *further), about=_about(session_id), repeatable=True)


def _write(session_id: str, *further: str, body: JsonObject | None = None) -> ApiCall:
    return ApiCall("POST", path("sessions", session_id, *further), body, about=_about(session_id))
