"""The conversation store of Pydantic AI, kept by tenuto.

    store = TenutoConversationStore("chat.db", user="ann")
    conversation = await store.load("conversation-1") or Conversation(conversation_id="conversation-1")
    await store.save(await agent.run("Hello!", conversation=conversation))

A conversation is a session: its entries are messages, linked by their parents, and its record is in the session's
metadata, stored in one step with new entries. A fork has copies of the entries that it shares, so that the deletion of
a conversation removes all of its text, and nothing of others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec

from tenuto.client.api import TenutoApi
from tenuto.errors import SessionNotFound
from tenuto.integrations import missing_extra
from tenuto.integrations.embedded_media import EmbeddedMedia
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.integrations.parts import FrameworkForm, without
from tenuto.integrations.session_log import SessionLog, SessionLogs, abandon_on_error, has_access, with_title
from tenuto.lru_cache import LruCache
from tenuto.model import Changes, Draft, Message, OpenTurn, Role, Scope, Session, SessionQuery
from tenuto.model.values import JsonObject
from tenuto.ports import utc_now

try:
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
except ImportError as error:
    raise missing_extra("pydantic-ai") from error

_NAME: Final = "pydantic_ai"
"""The key of a session's metadata that holds the record, and of a message's extra fields."""
_FORM: Final = FrameworkForm(
    *(_NAME, "content", lambda part: part.get("part_kind") in ("user-prompt", "text")),
    media=EmbeddedMedia(("data", "media_type"), url_safe=True),
)
_RECORDS: Final = TypeAdapter(ConversationRecord)
_PAGE: Final = 100
_PLACES: Final = 10_000


class TenutoConversationStore(ConversationStore):
    """The conversations of one owner.

    `where` is an open installation, or the URL or the file of a store, which is opened once per process. The
    conversations belong to `scope`, or to that user of that tenant; the `scope` of the methods tells those of one owner
    apart.
    """

    def __init__(
        self, where: Installation, scope: Scope | None = None, *, user: str | None = None, tenant: str = "local"
    ) -> None:
        self.scope = scope or Scope(tenant=tenant, user=user)
        self._bridge = find_bridge(where)
        self._as_tenant = scope is not None
        self._logs = SessionLogs(as_tenant=self._as_tenant)
        # In which conversations the histories of entries lie that this process has met.
        self._places = LruCache[str, str](_PLACES)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation."""

        async def read(app: TenutoApi) -> Session | None:
            try:
                return await self._open_log(app, conversation_id).on_session(app.sessions.get)
            except SessionNotFound:
                return None

        head = await self._bridge.read(read)
        return self._record(head) if head is not None else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The records, those whose sessions were changed last first."""

        async def read(app: TenutoApi) -> list[ConversationRecord]:
            records: list[ConversationRecord] = []
            async for record in self._records(app):
                if limit is not None and len(records) >= limit:
                    break
                if scope is None or record.scope == scope:
                    records.append(record)
            return sorted(records, key=lambda record: record.updated_at, reverse=True)

        return await self._bridge.read(read)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store record and entries in one step, or raise `ConversationConflict` and store nothing."""
        await self._bridge.write(lambda app: self._write(app, record, new_entries, expected_revision))
        self._note(record)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Remove the session with all of its entries, or raise `ConversationConflict`."""

        async def delete(app: TenutoApi) -> None:
            log = self._open_log(app, conversation_id)
            turn = await self._begin(log, conversation_id)
            async with abandon_on_error(log, turn):
                self._check(turn.session, conversation_id, expected_revision)
                await log.delete()

        await self._bridge.write(delete)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """One entry; `KeyError` if there is none."""
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id`, or the last of them; `KeyError` if one is missing."""
        if head_id is None or limit == 0:
            return []
        return await self._bridge.read(lambda app: self._history(app, head_id, limit))

    def close(self) -> None:
        """Release the store that this object named; it is closed with its last user."""
        self._bridge.close()

    def _open_log(self, app: TenutoApi, conversation_id: str) -> SessionLog:
        return self._logs.find(app, self.scope, conversation_id)

    async def _begin(self, log: SessionLog, conversation_id: str) -> OpenTurn:
        try:
            return await log.begin()
        except SessionNotFound:
            raise ConversationConflict(conversation_id) from None

    async def _write(
        self, app: TenutoApi, record: ConversationRecord, entries: Sequence[ConversationEntry], if_head: str | None
    ) -> None:
        log, name = self._open_log(app, record.conversation_id), record.conversation_id
        if if_head is None:
            await log.create()
        turn = await self._begin(log, name)
        async with abandon_on_error(log, turn):
            self._check(turn.session, name, if_head)
            try:
                copied_entries = await self._entries_to_copy(app, log, turn.session, record, entries)
            except KeyError:
                raise ConversationConflict(name) from None
            drafts = [_draft(entry) for entry in (*copied_entries, *entries)]
            fields = _RECORDS.dump_python(record, mode="json")
            changes = with_title(turn.session, drafts, Changes(metadata={_NAME: fields}))
            await log.finish(turn, drafts, changes)

    def _check(self, head: Session, conversation_id: str, if_head: str | None) -> None:
        record = self._record(head)
        if (record.revision if record is not None else None) != if_head:
            raise ConversationConflict(conversation_id)

    async def _entries_to_copy(
        self,
        app: TenutoApi,
        log: SessionLog,
        head: Session,
        record: ConversationRecord,
        entries: Sequence[ConversationEntry],
    ) -> list[ConversationEntry]:
        """The history that a new record shares with another conversation."""
        current = self._record(head)
        first = entries[0].parent_id if entries else record.head_id
        if first is None or (current is not None and first in (current.head_id, *current.branches)):
            return []
        page = await log.page(_PAGE)
        while page is not None:
            if any(message.id == first for message in page.messages):
                return []
            page = await log.page(_PAGE, page)
        return await self._history(app, first, None)

    async def _history(self, app: TenutoApi, head_id: str, limit: int | None) -> list[ConversationEntry]:
        place = self._places.get(head_id)
        if place is not None:
            messages = await self._walk(self._open_log(app, place), head_id, limit)
            if messages:
                return messages
        async for record in self._records(app):
            messages = await self._walk(self._open_log(app, record.conversation_id), head_id, limit)
            if messages:
                return messages
        raise KeyError(head_id)

    async def _walk(self, log: SessionLog, head_id: str, limit: int | None) -> list[ConversationEntry]:
        """The history from an entry back, as far as the limit; empty if the session does not hold all of it.

        Where the session keeps its newest messages only, the oldest of them is where the history begins.
        """
        by_id: dict[str, Message] = {}
        line: list[Message] = []
        size, oldest = max(limit or 0, _PAGE), 1
        page = await log.page(size)
        while page is not None and page.messages:
            by_id |= {message.id: message for message in page.messages}
            line, is_complete = _line(by_id, head_id, limit)
            if is_complete:
                return _entries(line)
            oldest = page.messages[0].seq
            page = await log.page(size, page)
        if not line or oldest == 1:
            return []
        return _entries([msgspec.structs.replace(line[0], parent=None), *line[1:]])

    async def _records(self, app: TenutoApi) -> AsyncIterator[ConversationRecord]:
        query = SessionQuery(limit=_PAGE)
        while True:
            page = await app.sessions.list(self.scope, query)
            for head in page.sessions:
                has_rights = has_access(self.scope, head, as_tenant=self._as_tenant)
                if has_rights and (record := self._record(head)) is not None:
                    yield record
            if page.cursor is None:
                return
            query = SessionQuery(limit=_PAGE, cursor=page.cursor)

    def _record(self, head: Session) -> ConversationRecord | None:
        fields = head.metadata.get(_NAME)
        if fields is None:
            return None
        record = _RECORDS.validate_json(msgspec.json.encode(fields))
        self._note(record)
        return record

    def _note(self, record: ConversationRecord) -> None:
        for entry in filter(None, (record.head_id, *record.branches)):
            self._places.put(entry, record.conversation_id)


def _line(by_id: dict[str, Message], head_id: str, limit: int | None) -> tuple[list[Message], bool]:
    """The messages from an entry back to the first or as many as asked for, oldest first, and whether that is all."""
    line: list[Message] = []
    entry: str | None = head_id
    while entry is not None and (limit is None or len(line) < limit):
        message = by_id.get(entry)
        if message is None:
            return line[::-1], False
        line.append(message)
        entry = message.parent
    return line[::-1], True


def _draft(entry: ConversationEntry) -> Draft:
    (body,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    draft = _FORM.draft(_role(body), body["parts"], without(body, "parts"), message_id=entry.id, sent_at=utc_now())
    return msgspec.structs.replace(draft, parent=entry.parent_id)


def _role(body: JsonObject) -> Role:
    if body["kind"] == "response":
        return Role.ASSISTANT
    kinds = {part["part_kind"] for part in body["parts"]}
    if "user-prompt" in kinds:
        return Role.USER
    return Role.TOOL if kinds & {"tool-return", "retry-prompt"} else Role.SYSTEM


def _entries(line: Iterable[Message]) -> list[ConversationEntry]:
    line = list(line)
    bodies = [{**(_FORM.rest(one) or {}), "parts": _FORM.elements(one)} for one in line]
    messages: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(msgspec.json.encode(bodies))
    pairs = zip(line, messages, strict=True)
    return [ConversationEntry(id=one.id, parent_id=one.parent, message=message) for one, message in pairs]
