"""A LangGraph checkpointer whose threads are sessions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
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
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from tenuto.client.api import TenutoApi
from tenuto.errors import Invalid
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.integrations.langgraph.items import field_of
from tenuto.integrations.langgraph.log import History, ProjectionCache, ThreadLogs, in_process, session_id_of
from tenuto.integrations.langgraph.projection import State, ordered_writes
from tenuto.integrations.langgraph.records import Blob, Put, Write, Writes
from tenuto.integrations.langgraph.retention import copy_records, delta_ancestors, delta_history, retain
from tenuto.integrations.langgraph.values import copy_value
from tenuto.integrations.langgraph.views import RunView, remember_view, view_of, with_values
from tenuto.model import Scope

_OLDEST: Final = f"{0:032}.{0:016}"
"""A version below all that `get_next_version` makes."""


class TenutoSaver(BaseCheckpointSaver[str]):
    """A checkpointer over an open installation, for one scope.

    A thread is a session of the scope's owner, and each checkpoint one atomic append to it: what did not change is not
    written again, and a call that returned is stored. Runs that work on one thread at the same time lose nothing of
    each other's lists. Blocking methods are for threads other than that of the event loop.
    """

    def __init__(
        self,
        where: Installation,
        scope: Scope | None = None,
        *,
        user: str | None = None,
        tenant: str = "local",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self.scope = scope or Scope(tenant=tenant, user=user)
        self._bridge = find_bridge(where)
        self._cache = ProjectionCache()
        self._thread_logs: ThreadLogs | None = None

    def close(self) -> None:
        """Release a store that this checkpointer named, for its copies too; an open installation stays open."""
        self._bridge.close()

    def for_scope(self, scope: Scope) -> TenutoSaver:
        """The same checkpointer for another user: `graph.copy({"checkpointer": saver.for_scope(scope)})`."""
        other = copy(self)
        other.scope, other._thread_logs = scope, None
        return other

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> TenutoSaver:
        """A checkpointer whose serializer knows further types; it decodes for itself."""
        other = super().with_allowlist(extra_allowlist)
        assert isinstance(other, TenutoSaver)
        if other is not self:
            other._cache, other._thread_logs = ProjectionCache(), None
        return other

    def session_id(self, thread_id: str) -> str:
        """The session that holds a thread, for titles, listings, retention and deletion."""
        return session_id_of(self.scope, thread_id)

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        checkpoint, view = await self._bridge.read(lambda app: self._read(self._logs(app), config))
        self._remember(config, view)
        return checkpoint

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        checkpoint, view = self._bridge.wait(lambda app: self._read(self._logs(app), config))
        self._remember(config, view)
        return checkpoint

    async def _read(self, logs: ThreadLogs, config: RunnableConfig) -> tuple[CheckpointTuple | None, RunView | None]:
        thread_id, ns, checkpoint_id = _place(config)
        projection = await logs.newest(thread_id, ns, self._load)
        if projection is None or projection.head is None:
            return None, None if checkpoint_id else RunView()
        state = projection.head
        if not checkpoint_id or state.put.id == checkpoint_id:
            checkpoint = self._tuple(thread_id, state, projection.pending_writes(state.put.id))
            return checkpoint, None if checkpoint_id else RunView.of(
                state, checkpoint.checkpoint["channel_versions"], projection.incarnation
            )
        history = await logs.history(thread_id, self._load, only=(ns, checkpoint_id))
        older = history.states.get(ns, {}).get(checkpoint_id) if history is not None else None
        if history is None or older is None:
            return None, None
        return self._tuple(thread_id, older, history.writes.get((ns, checkpoint_id), [])), None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the base class has it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        left = None if limit is None else max(limit, 0)
        for thread_id in await self._bridge.read(lambda app: self._threads(self._logs(app), config)):
            if left == 0:
                return
            history = await self._history(thread_id)
            if history is None:
                continue
            matches = self._find(history, config, filter or {}, before)[:left]
            for state in matches:
                yield self._tuple(thread_id, state, history.writes.get((state.put.ns, state.put.id), []))
            left = None if left is None else left - len(matches)

    async def _history(self, thread_id: str) -> History | None:
        return await self._bridge.read(lambda app: self._logs(app).history(thread_id, self._load))

    async def _threads(self, logs: ThreadLogs, config: RunnableConfig | None) -> list[str]:
        if config is not None and config.get("configurable", {}).get("thread_id") is not None:
            return [str(config["configurable"]["thread_id"])]
        return [thread_id async for thread_id in logs.threads()]

    def _find(
        self,
        history: History,
        config: RunnableConfig | None,
        metadata_filter: dict[str, Any],
        before: RunnableConfig | None,
    ) -> Sequence[State]:
        states = _matching(history, config, before)
        return [state for state in states if self._has(state, metadata_filter)] if metadata_filter else states

    def _has(self, state: State, metadata_filter: dict[str, Any]) -> bool:
        metadata = self._load(state.put.metadata)
        return all(field_of(metadata, name) == value for name, value in metadata_filter.items())

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the base class has it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        checkpoints = self.alist(config, filter=filter, before=before, limit=limit)
        return iter(self._bridge.wait(lambda _: _collect(checkpoints)))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        thread_id, ns, checkpoint_id = _place(config)
        history = await self._history(thread_id) if channels else None
        return delta_history(history, ns, checkpoint_id, channels, self._load)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._bridge.wait(lambda _: self.aget_delta_channel_history(config=config, channels=channels))

    # Writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        view = self._view(config)
        return await self._bridge.write(
            lambda app: self._put(self._logs(app), config, checkpoint, metadata, new_versions, view)
        )

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        view = self._view(config)
        return self._bridge.wait(
            lambda app: self._put(self._logs(app), config, checkpoint, metadata, new_versions, view)
        )

    async def _put(
        self,
        logs: ThreadLogs,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        view: RunView | None,
    ) -> RunnableConfig:
        thread_id, ns, parent = _place(config)
        record = Put(
            ns=ns,
            id=checkpoint["id"],
            parent=parent,
            checkpoint=self._dump({name: value for name, value in checkpoint.items() if name != "channel_values"}),
            metadata=self._dump(get_checkpoint_metadata(config, metadata)),
            snapshot=logs.due_snapshot(thread_id, ns, self._dump),
        )
        if view is None or view.last != parent:
            await logs.append(thread_id, with_values(record, checkpoint["channel_values"], self._dump), self._load)
        else:
            record, lists = view.difference(record, checkpoint, new_versions, self._dump, self._load)
            incarnation = await logs.append(thread_id, record, self._load, lists)
            if view.incarnation not in (None, incarnation):
                # The thread was deleted meanwhile, and with it what this is the difference to.
                await logs.append(thread_id, with_values(record, checkpoint["channel_values"], self._dump), self._load)
            view.advance(record, checkpoint, lists, incarnation)
        return _config(thread_id, ns, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, record = self._writes(config, writes, task_id, task_path)
        await self._bridge.write(lambda app: self._logs(app).append(thread_id, record, self._load))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, record = self._writes(config, writes, task_id, task_path)
        self._bridge.wait(lambda app: self._logs(app).append(thread_id, record, self._load))

    def _writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, path: str
    ) -> tuple[str, Writes]:
        thread_id, ns, checkpoint_id = _place(config)
        if checkpoint_id is None:
            raise Invalid("writes belong to a checkpoint: the configuration names none")
        records = [
            Write(WRITES_IDX_MAP.get(name, at), name, self._dump(value)) for at, (name, value) in enumerate(writes)
        ]
        return thread_id, Writes(ns=ns, id=checkpoint_id, task_id=task_id, path=path, writes=records)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A version above the current one, and different from that of another writer."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    # Removing and copying

    async def adelete_thread(self, thread_id: str) -> None:
        await self._bridge.write(lambda app: self._logs(app).delete(str(thread_id)))

    def delete_thread(self, thread_id: str) -> None:
        self._bridge.wait(lambda _: self.adelete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        runs = frozenset(run_ids)
        if runs:
            await self._bridge.write(lambda app: self._delete_for_runs(self._logs(app), runs))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._bridge.wait(lambda _: self.adelete_for_runs(run_ids))

    async def _delete_for_runs(self, logs: ThreadLogs, runs: Collection[str]) -> None:
        def is_kept(state: State, _: History) -> bool:
            return self._load(state.put.metadata).get("run_id") not in runs

        async for thread_id in logs.threads():
            await self._retain(logs, thread_id, is_kept)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise Invalid("the strategy of pruning is 'keep_latest' or 'delete'")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                await self.adelete_thread(thread_id)
            else:
                await self._prune(thread_id)

    async def _prune(self, thread_id: str) -> None:
        await self._bridge.write(lambda app: self._retain(self._logs(app), thread_id, self._is_needed))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._bridge.wait(lambda _: self.aprune(thread_ids, strategy=strategy))

    def _is_needed(self, state: State, history: History) -> bool:
        """Whether it is its namespace's newest checkpoint, or delta channels of that one are rebuilt from it."""
        newest = history.heads[state.put.ns]
        return state is newest or state.put.id in delta_ancestors(history, newest, self._load)

    async def _retain(self, logs: ThreadLogs, thread_id: str, is_kept: Callable[[State, History], bool]) -> None:
        """Remove the checkpoints of a thread that are not kept, with their writes; what changes meanwhile is kept."""
        while True:
            history = await logs.history(thread_id, self._load)
            if history is None:
                return
            states = [state for by_id in history.states.values() for state in by_id.values()]
            checkpoints = {(state.put.ns, state.put.id) for state in states if is_kept(state, history)}
            if len(checkpoints) == len(states):
                return
            if not checkpoints:
                await logs.delete(thread_id)
                return
            if await logs.keep_only(history, retain(history, checkpoints, self._dump)):
                return

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._bridge.write(lambda app: self._copy(self._logs(app), str(source_thread_id), str(target_thread_id)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._bridge.wait(lambda _: self.acopy_thread(source_thread_id, target_thread_id))

    async def _copy(self, logs: ThreadLogs, source: str, target: str) -> None:
        history = await logs.history(source, self._load)
        if history is not None and history.states:
            await logs.append_all(target, copy_records(history, self._dump))

    # What the methods share

    def _logs(self, app: TenutoApi) -> ThreadLogs:
        if self._thread_logs is None:
            self._thread_logs = ThreadLogs(in_process(app), self.scope, self._cache)
        return self._thread_logs

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
        checkpoint["channel_versions"] = _with_versions_of(values, checkpoint["channel_versions"])
        return CheckpointTuple(
            config=_config(thread_id, put.ns, put.id),
            checkpoint=checkpoint,
            metadata=self._load(put.metadata),
            parent_config=_config(thread_id, put.ns, put.parent) if put.parent else None,
            pending_writes=[(task, one.channel, self._load(one.value)) for task, one in ordered_writes(writes)],
        )

    def _view(self, config: RunnableConfig) -> RunView | None:
        return view_of(self._view_key(config))

    def _remember(self, config: RunnableConfig, view: RunView | None) -> None:
        remember_view(self._view_key(config), view)

    def _view_key(self, config: RunnableConfig) -> tuple[str, ...]:
        thread_id, ns, _ = _place(config)
        return (self.scope.tenant, self.scope.site, *self.scope.owner, thread_id, ns)


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    where = config["configurable"]
    return str(where["thread_id"]), where.get("checkpoint_ns") or "", get_checkpoint_id(config)


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _with_versions_of(values: Mapping[str, Any], versions: ChannelVersions) -> ChannelVersions:
    """The versions of a checkpoint, with one for each channel that it has only from runs at the same time.

    A graph leaves a channel without a version out of its next checkpoint, which would drop what those runs stored.
    """
    missing = dict.fromkeys((name for name in values if name not in versions), min(versions.values(), default=_OLDEST))
    return {**versions, **missing} if missing else versions


def _matching(history: History, config: RunnableConfig | None, before: RunnableConfig | None) -> list[State]:
    """The checkpoints that a listing asks for, newest first."""
    where = config["configurable"] if config is not None else {}
    ns, checkpoint_id = where.get("checkpoint_ns"), where.get("checkpoint_id")
    limit = get_checkpoint_id(before) if before is not None else None
    states = [state for name, by_id in history.states.items() if ns in (None, name) for state in by_id.values()]
    matches = [
        state
        for state in states
        if (not checkpoint_id or state.put.id == checkpoint_id) and (limit is None or state.put.id < limit)
    ]
    return sorted(matches, key=lambda state: state.put.id, reverse=True)


async def _collect(checkpoints: AsyncIterator[CheckpointTuple]) -> list[CheckpointTuple]:
    return [one async for one in checkpoints]
