"""LangGraph's store over tenuto's state: items by namespace and key, search by meaning, and times to live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

import msgspec
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from tenuto.client.api import TenutoApi
from tenuto.compare_and_set import update_states, write_if_unchanged
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.integrations.langgraph.batching import OpGatherer
from tenuto.integrations.langgraph.items import (
    Namespace,
    StoredItem,
    accepts,
    best_scores,
    check_namespace,
    encode_vector,
    field_of,
    is_expired,
    is_within,
    matches,
    micros,
    namespace_key,
    read_key,
    state_key,
)
from tenuto.integrations.langgraph.log import in_process
from tenuto.model import Scope, StateChange, StateEntry
from tenuto.ports import Clock, utc_now

ITEMS: Final = "langgraph.items"
"""The namespace of the state that holds the items."""
_CHUNK: Final = 500
# Most namespaces are small, and their neighbours' items are not wanted.
_FIRST_CHUNK: Final = 32
_BEFORE: Final = "\x1d"


class TenutoStore(BaseStore):
    """A store over an open installation, for one scope.

    Items of a user are memory: the privacy policy applies to their values, an export shows them, and erasing the user
    removes them. With `index`, items are found by meaning; every vector of the searched namespaces is compared.
    Expired items are never returned. Blocking methods are for threads other than that of the event loop.
    """

    supports_ttl = True

    def __init__(
        self,
        where: Installation,
        scope: Scope | None = None,
        *,
        user: str | None = None,
        tenant: str = "local",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self.scope = scope or Scope(tenant=tenant, user=user)
        self.ttl_config = ttl
        self.index_config = index
        self._bridge = find_bridge(where)
        self._clock = clock
        self._gatherer = OpGatherer()
        self.embeddings = ensure_embeddings(index.get("embed")) if index else None
        # Its SQLite and Postgres stores say `text_fields`.
        index_config: Any = index or {}
        self._fields: Sequence[str] = index_config.get("fields") or index_config.get("text_fields") or ["$"]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations. Reads see what was there before the writes; of several writes of one item the last counts."""
        batch = list(ops)
        # Reads settle before a cancellation is passed on as well: callers share batches.
        return await self._bridge.write(lambda app: self._batch(app, batch))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """As `abatch`, for threads other than that of the installation's event loop."""
        operations = list(ops)
        return self._bridge.wait(lambda app: self._batch(app, operations))

    async def _batch(self, app: TenutoApi, ops: Sequence[Op]) -> list[Result]:
        for op in ops:
            _check_op(op)
        self._state = in_process(app).store.state
        return await self._gatherer.run(ops, self._run)

    async def _run(self, ops: Sequence[Op]) -> list[Result]:
        vectors = await self._embed_queries(ops)
        items = iter(await self._get([op for op in ops if isinstance(op, GetOp)]))
        results = [next(items) if isinstance(op, GetOp) else await self._read(op, vectors) for op in ops]
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        await self._write(list(puts.values()))
        return results

    async def asweep_ttl(self) -> int:
        """Remove expired items; returns how many. They are not visible before, either."""
        return await self._bridge.write(self._sweep)

    def sweep_ttl(self) -> int:
        """As `asweep_ttl`, for threads other than that of the installation's event loop."""
        return self._bridge.wait(self._sweep)

    async def _sweep(self, app: TenutoApi) -> int:
        self._state = in_process(app).store.state
        now, count = micros(self._clock()), 0
        async for entry in self._scan(()):
            if is_expired(entry.value, now):
                # Unless it was put again since its page was read.
                removal = self._state.delete_state(self.scope, ITEMS, entry.key, entry.version)
                count += await write_if_unchanged(removal) or 0
        return count

    def close(self) -> None:
        """Release a store that this object named; an open installation stays open."""
        self._bridge.close()

    # Reading

    async def _read(self, op: Op, vectors: dict[str, Sequence[float]]) -> Result:
        if isinstance(op, SearchOp):
            return await self._search(op, vectors.get(op.query or ""))
        return await self._list_namespaces(op) if isinstance(op, ListNamespacesOp) else None

    async def _get(self, ops: Sequence[GetOp]) -> list[Item | None]:
        if not ops:
            return []
        keys = [state_key(op.namespace, op.key) for op in ops]
        now = micros(self._clock())
        entries = await self._state.read_states(self.scope, ITEMS, keys)
        alive = [None if one is None or is_expired(one.value, now) else one for one in entries]
        await self._refresh([one for op, one in zip(ops, alive, strict=True) if one is not None and op.refresh_ttl])
        return [
            None if one is None else msgspec.convert(one.value, StoredItem).to_item(op.namespace, op.key)
            for op, one in zip(ops, alive, strict=True)
        ]

    async def _search(self, op: SearchOp, query: Sequence[float] | None) -> list[SearchItem]:
        now, filters = micros(self._clock()), op.filter or {}
        items = [
            entry
            async for entry in self._scan(op.namespace_prefix)
            if not is_expired(entry.value, now)
            and all(accepts(field_of(entry.value["value"], name), condition) for name, condition in filters.items())
        ]
        items.sort(key=_updated_at, reverse=True)
        scores: list[float | None] = [None] * len(items)
        if query is not None:
            scores = best_scores(query, [entry.value.get("vectors", {}) for entry in items])
            # Items without a vector come last, if there is room.
            order = sorted(range(len(items)), key=lambda at: (scores[at] is None, -(scores[at] or 0.0)))
            items, scores = [items[at] for at in order], [scores[at] for at in order]
        stretch = slice(op.offset, op.offset + op.limit)
        if op.refresh_ttl:
            await self._refresh(items[stretch])
        return [
            msgspec.convert(entry.value, StoredItem).to_search_item(*read_key(entry.key), score)
            for entry, score in zip(items[stretch], scores[stretch], strict=True)
        ]

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        now = micros(self._clock())
        namespaces = {read_key(one.key)[0] async for one in self._scan(()) if not is_expired(one.value, now)}
        matching = [name for name in namespaces if all(matches(one, name) for one in op.match_conditions or ())]
        prefixes = sorted({name[: op.max_depth] for name in matching})
        return prefixes[op.offset : op.offset + op.limit]

    async def _scan(self, prefix: Namespace) -> AsyncIterator[StateEntry]:
        """The items of a namespace and of those inside it."""
        start, size = namespace_key(prefix), _FIRST_CHUNK if prefix else _CHUNK
        after = start + _BEFORE if start else ""
        while True:
            page = await self._state.list_state(self.scope, ITEMS, after, size)
            for one in page:
                if is_within(one.key, start):
                    yield one
                elif not one.key.startswith(start):
                    return
            if len(page) < size:
                return
            # Behind a namespace lie others, perhaps many: little more is read of them than there was of it.
            after, size = page[-1].key, min(2 * size, _CHUNK)

    async def _refresh(self, entries: Sequence[StateEntry]) -> None:
        """Let items live on, except those changed meanwhile, which does the same."""
        for item in entries:
            entry = msgspec.convert(item.value, StoredItem)
            if entry.ttl is not None:
                entry.extend(self._clock())
                value = msgspec.to_builtins(entry)
                await write_if_unchanged(self._state.write_state(self.scope, ITEMS, item.key, value, item.version))

    # Writing

    async def _write(self, puts: Sequence[PutOp]) -> None:
        """Store and remove items in one step; one that is there keeps the time of its creation."""
        if not puts:
            return
        vectors = await self._embed(puts)
        keys = [state_key(op.namespace, op.key) for op in puts]
        entries = [self._new_entry(op, vectors.get(place, {})) for place, op in enumerate(puts)]
        await update_states(
            self._state,
            self.scope,
            ITEMS,
            keys,
            lambda current: [_change(*one) for one in zip(keys, entries, current, strict=True)],
            guess=[None] * len(keys),
        )

    def _new_entry(self, op: PutOp, vectors: dict[str, str]) -> StoredItem | None:
        """What an operation stores; `None` if it removes."""
        if op.value is None:
            return None
        now = self._clock()
        at = micros(now)
        entry = StoredItem(value=dict(op.value), created_at=at, updated_at=at, ttl=op.ttl, vectors=vectors)
        entry.extend(now)
        return entry

    async def _embed_queries(self, ops: Sequence[Op]) -> dict[str, Sequence[float]]:
        if self.embeddings is None:
            return {}
        queries = {op.query for op in ops if isinstance(op, SearchOp) and op.query}
        return {query: await self.embeddings.aembed_query(query) for query in queries}

    async def _embed(self, puts: Sequence[PutOp]) -> dict[int, dict[str, str]]:
        """The vectors of the items that are indexed, by place and by path."""
        if self.embeddings is None:
            return {}
        texts = [(place, *one) for place, op in enumerate(puts) for one in self._texts(op)]
        if not texts:
            return {}
        embeddings = await self.embeddings.aembed_documents([text for _, _, text in texts])
        vectors: dict[int, dict[str, str]] = {}
        for (place, path, _), vector in zip(texts, embeddings, strict=True):
            vectors.setdefault(place, {})[path] = encode_vector(vector)
        return vectors

    def _texts(self, op: PutOp) -> list[tuple[str, str]]:
        if op.value is None or op.index is False:
            return []
        texts: list[tuple[str, str]] = []
        for path in self._fields if op.index is None else op.index:
            values: list[Any] = get_text_at_path(op.value, path if path == "$" else tokenize_path(path))
            texts += [(path if len(values) == 1 else f"{path}.{at}", text) for at, text in enumerate(values)]
        return texts


def _change(key: str, entry: StoredItem | None, current: StateEntry | None) -> StateChange:
    """The change that puts an entry in the place of what is stored."""
    if entry is None:
        return StateChange(key=key, removes=True)
    if current is not None:
        entry.created_at = current.value["created_at"]
    return StateChange(key=key, value=msgspec.to_builtins(entry), if_version=current.version if current else 0)


def _check_op(op: Op) -> None:
    if isinstance(op, ListNamespacesOp):
        for condition in op.match_conditions or ():
            check_namespace(condition.path)
    else:
        check_namespace(op.namespace_prefix if isinstance(op, SearchOp) else op.namespace)


def _updated_at(entry: StateEntry) -> int:
    at: int = entry.value["updated_at"]
    return at
