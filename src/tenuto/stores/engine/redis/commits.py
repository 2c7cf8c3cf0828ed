"""Commits on their way: those of one iteration of the event loop are one call to each server that holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tenuto.model.stored import Action, RecordChange
from tenuto.stores.engine.redis.feed import RedisRecordFeed
from tenuto.stores.engine.redis.keys import RecordKeys
from tenuto.stores.engine.redis.servers import Servers, engine_script
from tenuto.stores.engine.redis.wire import change_words, compared_words, source_words
from tenuto.stores.redis._cluster import key_slot
from tenuto.stores.redis._resp import CallFailed, Part, Reply, pack

_MOST: Final = 32
"""Commits in one call: other clients wait while it runs."""


class _Commit(NamedTuple):
    changes: Sequence[RecordChange]
    on_reply: Callable[[Reply], None]
    on_failure: Callable[[CallFailed], None]
    indexed: bool


class CommitBatches:
    """Gathers commits, and tells the feed what came of each before its caller knows."""

    def __init__(self, servers: Servers, keys: RecordKeys, feed: RedisRecordFeed) -> None:
        self._servers = servers
        self._keys = keys
        self._feed = feed
        self._waiting: list[_Commit] = []

    def add(
        self,
        changes: Sequence[RecordChange],
        on_reply: Callable[[Reply], None],
        on_failure: Callable[[CallFailed], None],
        *,
        indexed: bool = False,
    ) -> None:
        """Send a commit in this iteration of the loop. One of the two is called, once."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(_Commit(changes, on_reply, on_failure, indexed))
        if len(self._waiting) >= _MOST:
            self.flush()

    def flush(self) -> None:
        """Send what waits: a call that follows must not overtake it."""
        waiting, self._waiting = self._waiting, []
        if not self._servers.sharded:
            if waiting:
                self._send(waiting)
            return
        by_slot = dict[int, list[_Commit]]()
        for commit in waiting:
            by_slot.setdefault(key_slot(self._keys.record(commit.changes[0].key)), []).append(commit)
        for commits in by_slot.values():
            self._send(commits)

    def _send(self, commits: Sequence[_Commit]) -> None:
        names, words = list[bytes](), list[Part]()
        for commit in commits:
            self._write(commit, names, words)
        script = engine_script("commit")
        packed = pack(("EVALSHA", script.sha, len(names), *names, *words))

        def on_reply(reply: Reply) -> None:
            for commit, answer in zip(commits, reply, strict=True):
                self._end(commit, made=answer[0] == b"made")
                commit.on_reply(answer)

        def on_failure(failed: CallFailed) -> None:
            for commit in commits:
                self._end(commit, made=False)
                commit.on_failure(failed)

        self._servers.link.submit(packed, names[0], on_reply, on_failure, safe=False, script=script)

    def _write(self, commit: _Commit, names: list[bytes], words: list[Part]) -> None:
        """Append the keys and words of a commit."""
        changes, keys = commit.changes, self._keys
        start, records = len(words), len(changes)
        words += (records, 0)
        copied = None
        for change in changes:
            names.append(keys.record(change.key))
            words += compared_words(change, indexed=commit.indexed)
            copied = copied or change.copies
        if copied is not None:
            names.append(keys.record(copied.source))
            words[start] = records + 1
            words += source_words(copied)
        for change in changes:
            words += change_words(change, keys)
            self._feed.expect(change.key, change.revision if change.action is Action.WRITE else 0)
        words[start + 1] = len(words) - start - 2

    def _end(self, commit: _Commit, *, made: bool) -> None:
        for change in commit.changes:
            self._feed.end(change.key, made=made)
