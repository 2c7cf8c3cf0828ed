"""The items of a session by their ids: pages, one item, and the removal of one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.compare_and_set import retry_on_conflict
from tenuto.errors import AttachmentNotFound
from tenuto.model import Content, Draft, Message, Page, Rewrite, Scope, Session, Truncation
from tenuto.model.attachment import shown_in
from tenuto.model.message import is_summary, readable_part
from tenuto.model.values import JsonObject
from tenuto.server.openai.errors import ItemNotFound
from tenuto.server.openai.items import as_text, items_of, items_of_message, without_item
from tenuto.sessions import Sessions
from tenuto.sessions.openai_parts import show_media

# Messages that a search for an item reads at once.
_READ: Final = 200


class ItemPage(NamedTuple):
    """Some items, and whether more follow in the asked order."""

    items: list[JsonObject]
    more: bool


class _Found(NamedTuple):
    """A message with an item, its session, and the numbers of the messages after it."""

    message: Message
    session: Session
    later: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ItemLog:
    """The items of one session, as the scope sees it; every method raises `SessionNotFound` outside."""

    sessions: Sessions
    scope: Scope
    session_id: str

    async def page(self, *, limit: int, after: str | None, ascending: bool) -> ItemPage:
        """Items after one, in the asked order.

        Raises:
            ItemNotFound: there is no item `after`.
        """
        edge = 0 if ascending else None
        if after is not None:
            seq = (await self._find(after)).message.seq
            edge = seq - 1 if ascending else seq + 1
        items: list[JsonObject] = []
        while True:
            query = Page(limit=limit + 1, after=edge) if ascending else Page(limit=limit + 1, before=edge)
            page = await self.sessions.messages(self.scope, self.session_id, query)
            found = items_of(page.messages, self.session_id)
            items += found if ascending else reversed(found)
            if after is not None:
                place = next((place for place, item in enumerate(items) if item["id"] == after), -1)
                items, after = items[place + 1 :], None
            if len(items) > limit or not (page.more_after if ascending else page.more_before):
                return ItemPage(items[:limit], len(items) > limit)
            edge = page.messages[-1 if ascending else 0].seq

    async def newest_ids(self) -> set[str]:
        """The ids of the newest items."""
        page = await self.sessions.messages(self.scope, self.session_id, Page(limit=_READ))
        return {item["id"] for item in items_of(page.messages)}

    async def without_known(self, drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
        """The messages without calls that stand among the newest ones already, and without outputs that do and whose
        calls wait for no other, unless nothing else is left."""
        page = await self.sessions.messages(self.scope, self.session_id, Page(limit=_READ))
        known: dict[str, str] = {}
        calls: set[str] = set()
        for message in page.messages:
            known |= _outputs_of(message)
            for called in _calls_of(message):
                calls.add(called)
                known.pop(called, None)
        new = tuple([draft for draft in drafts if not (_is_of_calls(draft) and calls.issuperset(_calls_of(draft)))])
        return tuple([draft for draft in new if not (_outputs_of(draft).items() & known.items())]) or new

    async def get(self, item_id: str) -> JsonObject:
        """One item, with the contents that it shows.

        Raises:
            ItemNotFound: there is none of that id.
        """
        message = (await self._find(item_id)).message
        contents: dict[str, Content] = {}
        for attachment_id in shown_in(message.parts):
            # One that is removed meanwhile stays a reference.
            with suppress(AttachmentNotFound):
                contents[attachment_id] = await self.sessions.attachment(self.scope, self.session_id, attachment_id)
        show = show_media(self.session_id, contents)
        return next(item for item in items_of_message(message, show) if item["id"] == item_id)

    async def remove(self, item_id: str) -> Session:
        """Remove one item; a turn that runs meanwhile is lost.

        Raises:
            ItemNotFound: there is none of that id.
            Unavailable: the session changed again and again.
        """

        async def attempt() -> Session:
            message, session, later = await self._find(item_id)
            rest = without_item(message, item_id)
            if rest is not None:
                change = Rewrite(messages=(replace(message, parts=rest),), if_version=session.version)
                return await self.sessions.rewrite(self.scope, self.session_id, change)
            cut = Truncation(after=message.seq - 1, if_version=session.version, keep_seqs=later)
            return await self.sessions.truncate(self.scope, self.session_id, cut)

        return await retry_on_conflict(attempt)

    async def _find(self, item_id: str) -> _Found:
        """The newest message with this item."""
        before: int | None = None
        later: list[int] = []
        while True:
            page = await self.sessions.messages(self.scope, self.session_id, Page(limit=_READ, before=before))
            for message in reversed(page.messages):
                if not is_summary(message) and any(item["id"] == item_id for item in items_of_message(message)):
                    return _Found(message, page.session, tuple(later))
                later.append(message.seq)
            if not page.more_before:
                raise ItemNotFound
            before = page.messages[0].seq


def _outputs_of(message: Draft) -> dict[str, str]:
    """The outputs of functions in a message as texts, by the ids of their calls."""
    parts = [part for part in map(readable_part, message.parts) if part["type"] == "tool_result"]
    return {part["call_id"]: as_text(part.get("output", "")) for part in parts}


def _calls_of(message: Draft) -> list[str]:
    return [part["id"] for part in map(readable_part, message.parts) if part["type"] == "tool_call"]


def _is_of_calls(message: Draft) -> bool:
    return bool(message.parts) and len(_calls_of(message)) == len(message.parts)
