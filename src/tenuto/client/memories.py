"""`RemoteMemories`: memories on a server, with the methods of `Memories`."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.client.http import ApiCall, HttpClient, path
from tenuto.client.wire import refuse_unsent, value_from
from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery, MemoryScores
from tenuto.model.values import JsonObject
from tenuto.recall.prepared_search import RecallResult


class RemoteMemories:
    """The memories of a server. A search that names no persona finds those of every persona."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def search(self, scope: Scope, query: MemoryQuery) -> RecallResult:
        """Search by words and by meaning, best first."""
        refuse_unsent(query, MemoryQuery(text="-"), "talk")
        names = ("limit", "kinds", "since", "until", "persona", "superseded", "mmr_lambda")
        body = {"query": query.text, **{name: getattr(query, name) for name in names}}
        if query.session_id:
            body["session_id"] = query.session_id
        result = await self._http.json(scope, ApiCall("POST", path("memories", "search"), body, repeatable=True))
        return RecallResult(tuple(map(_hit_from, result["hits"])), degraded=result["degraded"], unread=result["unread"])

    async def get(self, scope: Scope, memory_id: str) -> Memory:
        """One memory."""
        return _memory_from(await self._http.json(scope, _call("GET", memory_id)))

    async def list(
        self,
        scope: Scope,
        *,
        kinds: Sequence[MemoryKind] = (),
        session_id: str = "",
        superseded: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Memory, ...]:
        """Memories of one kind or of all, those that were said last first; `next_cursor` continues the listing."""
        if len(kinds) > 1:
            raise Invalid("a server lists memories of one kind, or of all")
        query = {
            "limit": limit,
            "cursor": cursor,
            "kind": kinds[0] if kinds else None,
            "session_id": session_id or None,
            "superseded": superseded,
        }
        body = await self._http.json(scope, ApiCall("GET", path("memories"), query=query, repeatable=True))
        return tuple(map(_memory_from, body["memories"]))

    async def preferences(self, scope: Scope) -> tuple[Memory, ...]:
        """The preferences that hold, the oldest first."""
        body = await self._http.json(scope, ApiCall("GET", path("memories", "preferences"), repeatable=True))
        return tuple(map(_memory_from, body["preferences"]))

    async def add(self, scope: Scope, text: str, *, kind: MemoryKind = MemoryKind.FACT, subject: str = "") -> Memory:
        """Remember a text. One that is remembered already is counted; so is a request that had to be sent again."""
        body = {"text": text, "kind": kind, "subject": subject}
        return _memory_from(await self._http.json(scope, ApiCall("POST", path("memories"), body, repeatable=True)))

    async def set_preferences(self, scope: Scope, texts: Sequence[str]) -> tuple[Memory, ...]:
        """Have exactly these preferences."""
        call = ApiCall("PUT", path("memories", "preferences"), {"preferences": list(texts)}, repeatable=True)
        return tuple(map(_memory_from, (await self._http.json(scope, call))["preferences"]))

    async def edit(
        self, scope: Scope, memory_id: str, *, text: str | None = None, kind: MemoryKind | None = None
    ) -> Memory:
        """Change the text or the kind of a memory."""
        call = _call("PATCH", memory_id)._replace(body={"text": text, "kind": kind})
        return _memory_from(await self._http.json(scope, call))

    async def forget(
        self,
        scope: Scope,
        memory_ids: Sequence[str] = (),
        *,
        session_id: str = "",
        everything: bool = False,
        dry_run: bool = False,
    ) -> int:
        """Remove memories by their ids, of a session, or all of the owner; returns how many there were."""
        query = {
            "ids": ",".join(memory_ids) or None,
            "session_id": session_id or None,
            "all": everything,
            "dry_run": dry_run,
        }
        if not (memory_ids or session_id or everything):
            return 0
        # Not sent again: the number of a second time would be 0.
        body = await self._http.json(scope, ApiCall("DELETE", path("memories"), query=query))
        count: int = body["forgotten"]
        return count


def _call(method: str, memory_id: str) -> ApiCall:
    return ApiCall(method, path("memories", memory_id), about={"memory_id": memory_id}, repeatable=True)


def _memory_from(body: JsonObject) -> Memory:
    return value_from(body, Memory)


def _hit_from(body: JsonObject) -> MemoryHit:
    scores = value_from(body["scores"], MemoryScores)
    return MemoryHit(memory=_memory_from(body["memory"]), score=body["score"], scores=scores)
