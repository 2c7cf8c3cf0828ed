"""Routes for memories: what is remembered of the caller beyond one session."""

from __future__ import annotations

from typing import NamedTuple, Self

from starlette.requests import Request

from tenuto.errors import Invalid, MemoryNotFound
from tenuto.model import Scope
from tenuto.model.memory import MemoryQuery
from tenuto.model.values import View
from tenuto.recall.service import Memories
from tenuto.recall.views import MemoryHits, MemoryList, MemoryView
from tenuto.server.auth import scope_of, service
from tenuto.server.handlers import Answer
from tenuto.server.openapi import Router
from tenuto.server.requests import AddMemory, ChangeMemory, ForgetQuery, MemoryListQuery, SearchMemories, SetPreferences

routes = Router("memories", prefix="/v1")


class PreferenceList(View, frozen=True, kw_only=True):
    """The current preferences, oldest first: memories of the kind `preference`."""

    preferences: list[MemoryView]


class ForgetView(View, frozen=True, kw_only=True):
    """How many memories were forgotten; in a `dry_run`, how many would be."""

    forgotten: int
    dry_run: bool


class OwnMemories(NamedTuple):
    """The memories, and whose; a caller that stands for many users names one."""

    memories: Memories
    scope: Scope

    @classmethod
    async def of_request(cls, request: Request) -> Self:
        """The memories that a request is about.

        Raises:
            Invalid: no user is named, and nothing is remembered for callers without one.
        """
        scope, memories = await scope_of(request), await service(request).tenuto.memories()
        memories.check_owner(scope)
        return cls(memories, scope)


@routes.get("/memories")
async def list_memories(own: OwnMemories, query: MemoryListQuery) -> MemoryList:
    """List memories. The one that was said last comes first."""
    found = await own.memories.list(
        own.scope,
        kinds=(query.kind,) if query.kind is not None else (),
        session_id=query.session_id or "",
        superseded=query.superseded,
        limit=query.limit,
        cursor=query.cursor,
    )
    return MemoryList.page(found, query.limit, unread=await own.memories.has_unread(own.scope))


@routes.post("/memories", 201, 200)
async def add_memory(own: OwnMemories, body: AddMemory) -> Answer[MemoryView]:
    """Add a memory.

    The text is redacted by the privacy policy. A memory that exists already counts one more mention (200).
    """
    added = await own.memories.add(own.scope, body.text, kind=body.kind, subject=body.subject)
    if added.mentions > 1:
        return Answer(MemoryView.of(added))
    return Answer(MemoryView.of(added), 201, {"Location": f"/v1/memories/{added.id}"})


@routes.delete("/memories")
async def forget_memories(own: OwnMemories, query: ForgetQuery) -> ForgetView:
    """Delete memories by id, of one session, or all.

    To delete by content, search first and delete the ids of the hits.
    """
    if sum([query.ids is not None, query.session_id is not None, query.all]) != 1:
        raise Invalid("name the memories to forget by exactly one of ids=…, session_id=… and all=true")
    ids = [one for one in (query.ids or "").split(",") if one]
    forgotten = await own.memories.forget(
        own.scope, ids, session_id=query.session_id or "", everything=query.all, dry_run=query.dry_run
    )
    return ForgetView(forgotten=forgotten, dry_run=query.dry_run)


@routes.post("/memories/search")
async def search_memories(own: OwnMemories, body: SearchMemories) -> MemoryHits:
    """Search memories by words and by meaning. The best hit comes first; each has the parts of its score."""
    if not body.query.strip():
        raise Invalid("query: is empty")
    query = MemoryQuery(
        text=body.query,
        limit=body.limit,
        kinds=tuple(body.kinds),
        since=body.since,
        until=body.until,
        session_id=body.session_id or "",
        persona=body.persona,
        any_persona=body.persona is None,
        superseded=body.superseded,
        mmr_lambda=body.mmr_lambda,
    )
    return MemoryHits.of(await own.memories.search(own.scope, query))


@routes.get("/memories/preferences")
async def get_preferences(own: OwnMemories) -> PreferenceList:
    """List the caller's preferences."""
    return PreferenceList(preferences=list(map(MemoryView.of, await own.memories.preferences(own.scope))))


@routes.put("/memories/preferences")
async def set_preferences(own: OwnMemories, body: SetPreferences) -> PreferenceList:
    """Replace the caller's preferences. Those that exist already stay as they are; others are added or deleted."""
    held = await own.memories.set_preferences(own.scope, body.preferences)
    return PreferenceList(preferences=list(map(MemoryView.of, held)))


@routes.get("/memories/{memory_id}")
async def get_memory(own: OwnMemories, memory_id: str) -> MemoryView:
    """Get one memory."""
    return MemoryView.of(await own.memories.get(own.scope, memory_id))


@routes.patch("/memories/{memory_id}", problems=(409,))
async def change_memory(own: OwnMemories, memory_id: str, body: ChangeMemory) -> MemoryView:
    """Change the text or the kind of a memory."""
    return MemoryView.of(await own.memories.edit(own.scope, memory_id, text=body.text, kind=body.kind))


@routes.delete("/memories/{memory_id}")
async def forget_memory(own: OwnMemories, memory_id: str) -> None:
    """Delete one memory and its vector."""
    if not await own.memories.forget(own.scope, [memory_id]):
        raise MemoryNotFound
