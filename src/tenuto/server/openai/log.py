"""A session's messages by item ids: pages, one item, and the removal of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.compare_and_set import retry_on_conflict
from tenuto.model import Message, Page, Rewrite, Scope, Session, Truncation
from tenuto.model.message import is_summary
from tenuto.model.values import Json, JsonObject
from tenuto.server.openai.errors import ItemNotFound
from tenuto.server.openai.items import CALL, CALL_OUTPUT, items_of, items_of_message, without_item
from tenuto.sessions import Sessions

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
            items += items_of(page.messages) if ascending else reversed(items_of(page.messages))
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

    async def known_outputs(self) -> dict[str, Json]:
        """The outputs of functions among the newest items by call id, without those of calls that wait for one."""
        page = await self.sessions.messages(self.scope, self.session_id, Page(limit=_READ))
        known: dict[str, Json] = {}
        for item in items_of(page.messages):
            call = str(item.get("call_id"))
            if item["type"] == CALL_OUTPUT:
                known[call] = item.get("output")
            elif item["type"] == CALL:
                known.pop(call, None)
        return known

    async def get(self, item_id: str) -> JsonObject:
        """One item.

        Raises:
            ItemNotFound: there is none of that id.
        """
        found = await self._find(item_id)
        return next(item for item in items_of_message(found.message) if item["id"] == item_id)

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
