"""A session of the OpenAI Agents SDK, kept by tenuto.

    session = TenutoSession("conversation-1", "chat.db", user="ann")
    result = await Runner.run(agent, "Hello!", session=session)

Items come back as they were added. A compaction stores a summary beside the items, which stay in the session's log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from msgspec.structs import replace

from tenuto.app import Tenuto
from tenuto.client.api import TenutoApi
from tenuto.errors import Invalid
from tenuto.integrations import missing_extra
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.integrations.session_log import SessionLog
from tenuto.model import Message, Scope, Session
from tenuto.model.generation import TurnSnapshot
from tenuto.model.message import is_summary
from tenuto.model.policy import Preset
from tenuto.model.prompt import Language
from tenuto.model.turn import MAX_WINDOW
from tenuto.model.values import JsonObject, deep_copy
from tenuto.ports import utc_now
from tenuto.sessions import fresh_id
from tenuto.sessions.items import draft_from_item, item_from_message
from tenuto.sessions.openai_parts import show_media, shown_item

try:
    from agents.items import TResponseInputItem
    from agents.memory import OpenAIResponsesCompactionArgs, SessionABC, SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
except ImportError as error:
    raise missing_extra("openai-agents") from error

_SUMMARY: Final = "Summary of the conversation so far:\n{}"


class TenutoSession(SessionABC):
    """The items of one conversation.

    `where` is an open installation, or the URL or the file of a store, which is opened once per process. The
    conversation belongs to `scope`, or to that user of that tenant; in these bounds the id is the id of a session of
    tenuto. Items after `compact_over` of them are compacted into a summary at the end of a run; with `None` only when
    `run_compaction` is forced to.
    """

    def __init__(
        self,
        session_id: str,
        where: Installation,
        scope: Scope | None = None,
        *,
        user: str | None = None,
        tenant: str = "local",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        compact_over: int | None = None,
    ) -> None:
        if compact_over is not None and compact_over < 2:
            raise Invalid("compact_over must be at least 2")
        self.session_id = session_id
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self.scope = scope or Scope(tenant=tenant, user=user)
        self._as_tenant = scope is not None
        self._compact_over = compact_over
        self._bridge = find_bridge(where)
        self._session_log: SessionLog | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items, or the newest of them, oldest first; those that were compacted are one item with their summary."""
        most = resolve_session_limit(limit, self.session_settings)
        if most == 0:
            return []
        items = await self._bridge.read(lambda app: self._read(app, most if most is not None and most > 0 else None))
        # Callers change items, and the messages that hold them may be those of a cache.
        return cast("list[TResponseInputItem]", deep_copy(items))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Store items, all or none of them."""
        if not items:
            return
        now = utc_now()
        drafts = [draft_from_item(cast("JsonObject", item), new_id=fresh_id, now=now) for item in items]
        await self._bridge.write(lambda app: self._open_log(app).append(drafts))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it; `None` if there is none."""
        messages = await self._bridge.write(
            lambda app: self._open_log(app).remove(lambda head, log: log[-1:], newest=1)
        )
        return cast("TResponseInputItem", deep_copy(_item_of(messages[0]))) if messages else None

    async def clear_session(self) -> None:
        """Remove the session with all of its items."""
        await self._bridge.write(lambda app: self._open_log(app).delete())

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        """Cover items by a summary if there are more than `compact_over`; if it is forced, all but the newest turn.

        The summary is made by the model of the settings; without one it consists of quotations.
        """
        if args is not None and args.get("force"):
            await self._bridge.write(lambda app: self._compact(app, over=1, keep=0))
        elif self._compact_over is not None:
            over = self._compact_over
            await self._bridge.write(lambda app: self._compact(app, over=over, keep=over // 2))

    def close(self) -> None:
        """Release the store that this session named; it is closed with its last user."""
        self._bridge.close()

    def _open_log(self, app: TenutoApi) -> SessionLog:
        self._session_log = self._session_log or SessionLog(app, self.scope, self.session_id, as_tenant=self._as_tenant)
        return self._session_log

    async def _read(self, app: TenutoApi, limit: int | None) -> list[JsonObject]:
        session_log, size = self._open_log(app), limit or MAX_WINDOW
        log: tuple[Message, ...] = ()
        items: list[JsonObject] = []
        page = await session_log.page(size)
        while page is not None:
            log = (*page.messages, *log)
            items, is_complete = _items_of(page.session, log)
            if is_complete or (limit is not None and len(items) >= limit):
                break
            page = await session_log.page(size, page)
        return items if limit is None else items[-limit:]

    async def _compact(self, app: TenutoApi, *, over: int, keep: int) -> None:
        if not isinstance(app, Tenuto):
            raise Invalid("a server compacts its sessions itself: compaction from here needs tenuto.open")
        page = await self._open_log(app).page(1)
        if page is None:
            return
        # The model that summarises is opened with the chat.
        await app.chat()
        turn = TurnSnapshot(
            scope=self.scope,
            session=page.session,
            assistant="",
            language=Language.ENGLISH,
            policies=_compressing(app.policies, over, keep),
            prompt=app.settings.own_prompt(),
            question="",
        )
        await app.upkeep.after_turn.compress(turn)


def _compressing(policies: Preset, over: int, keep: int) -> Preset:
    return replace(policies, context=replace(policies.context, compress_over=over, keep_verbatim=keep))


def _item_of(message: Message) -> JsonObject:
    """The item of a message; what other programs stored is in the form of the Responses API."""
    show = show_media(contents={content.id: content for content in message.contents})
    return shown_item(item_from_message(message), show)


def _items_of(session: Session, log: Sequence[Message]) -> tuple[list[JsonObject], bool]:
    """The items of this end of a log, and whether a summary stands for all that precedes it."""
    if not any(map(is_summary, log)):
        return [_item_of(message) for message in log], False
    # Only a compacted log needs the room that makes prompts, which takes long to import.
    from tenuto.context.compression import LogTail

    tail = LogTail(log)
    summary = tail.summary(session.window_start)
    if summary is None:
        return [_item_of(message) for message in tail.talk], False
    summary_item: JsonObject = {"role": "system", "content": _SUMMARY.format(summary.text)}
    rest = [_item_of(message) for message in tail.talk if message.seq > summary.through]
    return [summary_item, *rest], log[0].seq <= summary.through + 1
