"""A LangGraph checkpointer whose threads are sessions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from tenuto.app import Tenuto
from tenuto.errors import Invalid
from tenuto.integrations.background import Blocking
from tenuto.integrations.langgraph.fold import State, ordered_writes
from tenuto.integrations.langgraph.log import FoldCache, History, ThreadLogs
from tenuto.integrations.langgraph.records import Blob, Put, Write, Writes
from tenuto.integrations.langgraph.thinning import copy_records, delta_ancestors, delta_history, retain
from tenuto.integrations.langgraph.values import copy_value
from tenuto.integrations.langgraph.views import View, remember_view, view_of, with_values
from tenuto.model import Scope

_MOST_TRIES: Final = 20


class TenutoSaver(BaseCheckpointSaver[str]):
    """A checkpointer over an open installation, for one scope.

    A thread is a session of the scope's owner, and each checkpoint one atomic append to it: what did not change is not
    written again, and a call that returned is stored. Runs that work on one thread at the same time lose nothing of
    each other's lists. Blocking methods are for threads other than that of the event loop.
    """

    def __init__(
        self,
        app: Tenuto,
        scope: Scope | None = None,
        *,
        user: str | None = None,
        tenant: str = "local",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._app = app
        self.scope = app.scope(tenant=tenant, user=user) if scope is None else scope
        self._blocking = Blocking(app)
        self._cache = FoldCache()
        self._logs = ThreadLogs(app, self.scope, self._cache)

    def for_scope(self, scope: Scope) -> TenutoSaver:
        """The same checkpointer for another user: `graph.copy({"checkpointer": saver.for_scope(scope)})`."""
        other = TenutoSaver(self._app, scope, serde=self.serde)
        other._cache = self._cache
        other._logs = ThreadLogs(self._app, scope, self._cache)
        return other

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> TenutoSaver:
        """A checkpointer whose serializer knows further types; it decodes for itself."""
        other = super().with_allowlist(extra_allowlist)
        assert isinstance(other, TenutoSaver)
        if other is not self:
            other._cache = FoldCache()
            other._logs = ThreadLogs(self._app, self.scope, other._cache)
        return other

    def session_id(self, thread_id: str) -> str:
        """The session that holds a thread, for titles, listings, retention and deletion."""
        return self._logs.session_id(thread_id)

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found, view = await self._read(config)
        self._remember(config, view)
        return found

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found, view = self._blocking.run(self._read(config))
        self._remember(config, view)
        return found

    async def _read(self, config: RunnableConfig) -> tuple[CheckpointTuple | None, View | None]:
        thread_id, ns, wanted = _place(config)
        fold = await self._logs.newest(thread_id, ns, self._load)
        if fold is None or fold.head is None:
            return None, None if wanted else View()
        state = fold.head
        if not wanted or state.put.id == wanted:
            found = self._tuple(thread_id, state, fold.pending_writes(state.put.id))
            return found, None if wanted else View.of(state, found.checkpoint["channel_versions"])
        history = await self._logs.history(thread_id, self._load)
        older = history.states.get(ns, {}).get(wanted) if history is not None else None
        if history is None or older is None:
            return None, None
        return self._tuple(thread_id, older, history.writes.get((ns, wanted), [])), None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the base class has it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        left = limit
        async for thread_id in self._threads(config):
            history = await self._logs.history(thread_id, self._load)
            for state in _matching(history, config, before) if history is not None else ():
                if left is not None and left <= 0:
                    return
                metadata = self._load(state.put.metadata)
                if any(metadata.get(name) != value for name, value in (filter or {}).items()):
                    continue
                left = None if left is None else left - 1
                assert history is not None
                yield self._tuple(thread_id, state, history.writes.get((state.put.ns, state.put.id), []))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the base class has it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        return self._blocking.iterate(self.alist(config, filter=filter, before=before, limit=limit))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        thread_id, ns, wanted = _place(config)
        history = await self._logs.history(thread_id, self._load)
        return delta_history(history, ns, wanted, channels, self._load)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._blocking.run(self.aget_delta_channel_history(config=config, channels=channels))

    # Writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._put(config, checkpoint, metadata, new_versions, self._view(config))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._blocking.run(self._put(config, checkpoint, metadata, new_versions, self._view(config)))

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        view: View | None,
    ) -> RunnableConfig:
        thread_id, ns, parent = _place(config)
        record = Put(
            ns=ns,
            id=checkpoint["id"],
            parent=parent,
            checkpoint=self._dump({name: value for name, value in checkpoint.items() if name != "channel_values"}),
            metadata=self._dump(get_serializable_checkpoint_metadata(config, metadata)),
            snapshot=self._logs.due_snapshot(thread_id, ns, self._dump),
        )
        if view is None or view.last != parent:
            await self._logs.append(
                thread_id, with_values(record, checkpoint["channel_values"], self._dump), self._load
            )
        else:
            record, decoded = view.difference(record, checkpoint, new_versions, self._dump, self._load)
            await self._logs.append(thread_id, record, self._load, decoded)
            view.advance(record, checkpoint, decoded)
        return _config(thread_id, ns, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, ns, checkpoint_id = _place(config)
        if checkpoint_id is None:
            raise Invalid("writes belong to a checkpoint: the configuration names none")
        kept = [
            Write(WRITES_IDX_MAP.get(name, place), name, self._dump(value))
            for place, (name, value) in enumerate(writes)
        ]
        record = Writes(ns=ns, id=checkpoint_id, task_id=task_id, path=task_path, writes=kept)
        await self._logs.append(thread_id, record, self._load)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._blocking.run(self.aput_writes(config, writes, task_id, task_path))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A version above the current one, and different from that of another writer."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    # Removing and copying

    async def adelete_thread(self, thread_id: str) -> None:
        await self._logs.delete(str(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        self._blocking.run(self.adelete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        runs = frozenset(run_ids)
        if not runs:
            return
        async for thread_id in self._logs.threads():
            await self._retain(thread_id, lambda state, _: self._load(state.put.metadata).get("run_id") not in runs)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._blocking.run(self.adelete_for_runs(run_ids))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise Invalid("the strategy of pruning is 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread_id)
            else:
                await self._retain(str(thread_id), lambda state, history: self._is_needed(state, history))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._blocking.run(self.aprune(thread_ids, strategy=strategy))

    def _is_needed(self, state: State, history: History) -> bool:
        """Whether it is its namespace's newest checkpoint, or delta channels of that one are rebuilt from it."""
        newest = history.heads[state.put.ns]
        return state is newest or state.put.id in delta_ancestors(history, newest, self._load)

    async def _retain(self, thread_id: str, is_kept: Any) -> None:
        """Remove the checkpoints of a thread that are not kept, with their writes; what changes meanwhile is kept."""
        for _ in range(_MOST_TRIES):
            history = await self._logs.history(thread_id, self._load)
            if history is None:
                return
            states = [state for by_id in history.states.values() for state in by_id.values()]
            kept = {(state.put.ns, state.put.id) for state in states if is_kept(state, history)}
            if len(kept) == len(states):
                return
            if not kept:
                await self._logs.delete(thread_id)
                return
            if await self._logs.keep_only(history, retain(history, kept, self._dump)):
                return
        raise Invalid("the thread changes too fast to be pruned")

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        history = await self._logs.history(str(source_thread_id), self._load)
        if history is not None and history.states:
            await self._logs.append_all(str(target_thread_id), copy_records(history, self._dump))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._blocking.run(self.acopy_thread(source_thread_id, target_thread_id))

    # What the methods share

    def _dump(self, value: Any) -> Blob:
        kind, data = self.serde.dumps_typed(value)
        return kind, bytes(data)

    def _load(self, blob: Blob) -> Any:
        return self.serde.loads_typed(blob)

    def _tuple(self, thread_id: str, state: State, writes: Sequence[Writes]) -> CheckpointTuple:
        put = state.put
        values = {name: self._load(blob) for name, blob in state.values.items()}
        values.update({name: copy_value(list(items)) for name, items in state.lists.items()})
        checkpoint: Checkpoint = self._load(put.checkpoint)
        checkpoint["channel_values"] = values
        return CheckpointTuple(
            config=_config(thread_id, put.ns, put.id),
            checkpoint=checkpoint,
            metadata=self._load(put.metadata),
            parent_config=_config(thread_id, put.ns, put.parent) if put.parent else None,
            pending_writes=[(task, one.channel, self._load(one.value)) for task, one in ordered_writes(writes)],
        )

    async def _threads(self, config: RunnableConfig | None) -> AsyncIterator[str]:
        if config is not None and config.get("configurable", {}).get("thread_id") is not None:
            yield str(config["configurable"]["thread_id"])
            return
        async for thread_id in self._logs.threads():
            yield thread_id

    def _view(self, config: RunnableConfig) -> View | None:
        return view_of(self._view_key(config))

    def _remember(self, config: RunnableConfig, view: View | None) -> None:
        remember_view(self._view_key(config), view)

    def _view_key(self, config: RunnableConfig) -> tuple[str, ...]:
        thread_id, ns, _ = _place(config)
        return (self.scope.tenant, self.scope.site, self.session_id(thread_id), ns)


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    where = config["configurable"]
    return str(where["thread_id"]), where.get("checkpoint_ns") or "", get_checkpoint_id(config)


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _matching(history: History, config: RunnableConfig | None, before: RunnableConfig | None) -> list[State]:
    """The checkpoints that a listing asks for, newest first."""
    where = config["configurable"] if config is not None else {}
    ns, wanted = where.get("checkpoint_ns"), where.get("checkpoint_id")
    limit = get_checkpoint_id(before) if before is not None else None
    states = [state for name, by_id in history.states.items() if ns in (None, name) for state in by_id.values()]
    chosen = [
        state for state in states if (not wanted or state.put.id == wanted) and (limit is None or state.put.id < limit)
    ]
    return sorted(chosen, key=lambda state: state.put.id, reverse=True)
