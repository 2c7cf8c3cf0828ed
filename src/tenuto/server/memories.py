"""Routes for memories: what is remembered of the caller beyond one session."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import Invalid, MemoryNotFound
from tenuto.model import Scope
from tenuto.model.memory import MemoryQuery
from tenuto.model.values import View
from tenuto.recall.service import Memories
from tenuto.recall.views import MemoryHits, MemoryList, MemoryView
from tenuto.server.auth import asking, service
from tenuto.server.json_io import answer, body_of, parse_query, path_parameter
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import AddMemory, ChangeMemory, ForgetQuery, MemoryListQuery, SearchMemories, SetPreferences

routes = Router("memories", prefix="/v1")


class PreferenceList(View, frozen=True, kw_only=True):
    """The current preferences, oldest first: memories of the kind `preference`."""

    preferences: list[MemoryView]


class ForgetView(View, frozen=True, kw_only=True):
    """How many memories were forgotten; in a `dry_run`, how many would be."""

    forgotten: int
    dry_run: bool


@routes.get("/memories", describe(MemoryList, query=MemoryListQuery))
async def list_memories(request: Request) -> Response:
    """List memories. The one that was said last comes first."""
    memories, scope = await _open(request)
    asked = parse_query(request, MemoryListQuery)
    found = await memories.list(
        scope,
        kinds=(asked.kind,) if asked.kind is not None else (),
        session_id=asked.session_id or "",
        superseded=asked.superseded,
        limit=asked.limit,
        cursor=asked.cursor,
    )
    return answer(MemoryList.page(found, asked.limit))


@routes.post("/memories", describe(MemoryView, 201, 200, body=AddMemory))
async def add_memory(request: Request) -> Response:
    """Add a memory.

    The text is redacted by the privacy policy. A memory that exists already counts one more mention (200).
    """
    memories, scope = await _open(request)
    body = await body_of(request, AddMemory)
    added = await memories.add(scope, body.text, kind=body.kind, subject=body.subject)
    if added.mentions > 1:
        return answer(MemoryView.of(added))
    return answer(MemoryView.of(added), 201, {"Location": f"/v1/memories/{added.id}"})


@routes.delete("/memories", describe(ForgetView, query=ForgetQuery))
async def forget_memories(request: Request) -> Response:
    """Delete memories by id, of one session, or all.

    To delete by content, search first and delete the ids of the hits.
    """
    memories, scope = await _open(request)
    asked = parse_query(request, ForgetQuery)
    if sum([asked.ids is not None, asked.session_id is not None, asked.all]) != 1:
        raise Invalid("name the memories to forget by exactly one of ids=…, session_id=… and all=true")
    ids = [one for one in (asked.ids or "").split(",") if one]
    forgotten = await memories.forget(
        scope, ids, session_id=asked.session_id or "", everything=asked.all, dry_run=asked.dry_run
    )
    return answer(ForgetView(forgotten=forgotten, dry_run=asked.dry_run))


@routes.post("/memories/search", describe(MemoryHits, body=SearchMemories))
async def search_memories(request: Request) -> Response:
    """Search memories by words and by meaning. The best hit comes first; each has the parts of its score."""
    memories, scope = await _open(request)
    body = await body_of(request, SearchMemories)
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
    return answer(MemoryHits.of(await memories.search(scope, query)))


@routes.get("/memories/preferences", describe(PreferenceList))
async def get_preferences(request: Request) -> Response:
    """List the caller's preferences."""
    memories, scope = await _open(request)
    return answer(PreferenceList(preferences=list(map(MemoryView.of, await memories.preferences(scope)))))


@routes.put("/memories/preferences", describe(PreferenceList, body=SetPreferences))
async def set_preferences(request: Request) -> Response:
    """Replace the caller's preferences. Those that exist already stay as they are; others are added or deleted."""
    memories, scope = await _open(request)
    body = await body_of(request, SetPreferences)
    held = await memories.set_preferences(scope, body.preferences)
    return answer(PreferenceList(preferences=list(map(MemoryView.of, held))))


@routes.get("/memories/{memory_id}", describe(MemoryView))
async def get_memory(request: Request) -> Response:
    """Get one memory."""
    memories, scope = await _open(request)
    return answer(MemoryView.of(await memories.get(scope, path_parameter(request, "memory_id"))))


@routes.patch("/memories/{memory_id}", describe(MemoryView, body=ChangeMemory, problems=(409,)))
async def change_memory(request: Request) -> Response:
    """Change the text or the kind of a memory."""
    memories, scope = await _open(request)
    body = await body_of(request, ChangeMemory)
    memory_id = path_parameter(request, "memory_id")
    return answer(MemoryView.of(await memories.edit(scope, memory_id, text=body.text, kind=body.kind)))


@routes.delete("/memories/{memory_id}", describe(None, 204))
async def forget_memory(request: Request) -> Response:
    """Delete one memory and its vector."""
    memories, scope = await _open(request)
    memory_id = path_parameter(request, "memory_id")
    if not await memories.forget(scope, [memory_id]):
        raise MemoryNotFound
    return Response(status_code=204)


async def _open(request: Request) -> tuple[Memories, Scope]:
    """The memories, and whose; a caller that stands for many users names one.

    Raises:
        Invalid: no user is named, and nothing is remembered for callers without one.
    """
    scope = await asking(request)
    memories = await service(request).tenuto.memories()
    memories.check_owner(scope)
    return memories, scope
