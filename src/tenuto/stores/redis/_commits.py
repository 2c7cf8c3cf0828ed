"""Commits on their way: those of one iteration of the event loop are one call to each server that holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import hiredis

from tenuto.model.stored import Action, RecordChange
from tenuto.stores.redis._cluster import key_slot
from tenuto.stores.redis._feed import RedisRecordFeed
from tenuto.stores.redis._index import Places
from tenuto.stores.redis._keys import RecordKeys
from tenuto.stores.redis._resp import CallFailed, CallTimeout, Part, Reply, pack, response_error
from tenuto.stores.redis._scripts import script
from tenuto.stores.redis._servers import Servers
from tenuto.stores.redis._wire import change_words, compared_words, source_words

_INSISTS_AFTER: Final = 2
"""Conflicts in a row after which a process asks for its turn."""
_MOST_CONFLICTS: Final = 1000
_LONGEST_WAIT: Final = 0.15
_MOST: Final = 32
"""Commits in one call: other clients wait while it runs."""


@dataclass(slots=True, eq=False)
class _Commit:
    changes: Sequence[RecordChange]
    on_reply: Callable[[Reply], None]
    on_failure: Callable[[CallFailed], None]
    indexed: bool
    until: float
    """When it must have ended, by the clock of the loop."""


class CommitBatches:
    """Gathers commits, and tells the feed what came of each before its caller knows."""

    def __init__(
        self, servers: Servers, keys: RecordKeys, places: Places, feed: RedisRecordFeed, writer: bytes
    ) -> None:
        self._servers = servers
        self._keys = keys
        self._places = places
        self._feed = feed
        self._writer = writer
        self._conflicts = dict[bytes, int]()
        self._early = dict[bytes, Reply]()
        self._queued = dict[bytes, list[_Commit]]()
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
        until = asyncio.get_running_loop().time() + self._servers.client.policy.call_timeout
        self._append(_Commit(changes, on_reply, on_failure, indexed, until))

    def _append(self, commit: _Commit) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(commit)
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
        names, words = list[bytes](), list[Part]([self._writer])
        for commit in commits:
            self._write(commit, names, words)
        source = script("commit")
        packed = pack(("EVALSHA", source.sha, len(names), *names, *words))

        def on_reply(reply: Reply) -> None:
            self._feed.caught_up()
            for commit, answer in zip(commits, reply, strict=True):
                self._end(commit, made=answer[0] == b"made")
                if answer[0] == b"wait":
                    self._wait(commit)
                elif answer[0] == b"failed":
                    commit.on_failure(response_error(hiredis.ReplyError(answer[1].decode(errors="replace"))))
                else:
                    self._early.pop(commit.changes[0].key, None)
                    self._count_conflicts(commit, refused=answer[0] == b"refused")
                    commit.on_reply(answer)

        def on_failure(failed: CallFailed) -> None:
            self._feed.caught_up()
            for commit in commits:
                self._end(commit, made=False)
                commit.on_failure(failed)

        self._servers.client.submit(packed, names[0], on_reply, on_failure, safe=False, script=source)

    def _write(self, commit: _Commit, names: list[bytes], words: list[Part]) -> None:
        """Append the keys and words of a commit."""
        changes, keys, servers = commit.changes, self._keys, self._servers
        start, records = len(words), len(changes)
        words += (records, 0)
        copied = None
        for change in changes:
            names.append(keys.record(change.key))
            insists = self._conflicts.get(change.key, 0) + 1 >= _INSISTS_AFTER
            words += compared_words(change, indexed=commit.indexed, insists=insists)
            copied = copied or change.copies
        if copied is not None:
            names.append(keys.record(copied.source))
            words[start] = records + 1
            words += source_words(copied)
        for change in changes:
            # One server has the indexes as well.
            own, above = ([], []) if servers.sharded else self._places.of_change(change, lowered=commit.indexed)
            words += change_words(change, keys, own + above, sharded=servers.sharded)
            self._feed.expect(change.key, change.revision if change.action is Action.WRITE else 0)
        words[start + 1] = len(words) - start - 2

    # Turns, where many processes change one record

    def _count_conflicts(self, commit: _Commit, *, refused: bool) -> None:
        if len(self._conflicts) > _MOST_CONFLICTS:
            self._conflicts.clear()
        for change in commit.changes:
            if refused:
                self._conflicts[change.key] = self._conflicts.get(change.key, 0) + 1
            else:
                self._conflicts.pop(change.key, None)

    def _wait(self, commit: _Commit) -> None:
        """Wait for the turn of this process; if nothing is heard of it, ask again."""
        key = commit.changes[0].key
        if key in self._early:
            commit.on_reply(self._early.pop(key))
            return
        asyncio.get_running_loop().call_later(_LONGEST_WAIT, self._ask_again, key, commit)
        self._queued.setdefault(key, []).append(commit)

    def _ask_again(self, key: bytes, commit: _Commit) -> None:
        queued = self._queued.get(key, [])
        if commit not in queued:
            return  # Its turn has come meanwhile.
        queued.remove(commit)
        if not queued:
            del self._queued[key]
        if asyncio.get_running_loop().time() < commit.until:
            self._append(commit)
        else:
            commit.on_failure(CallTimeout("others were always before it"))

    def on_turn(self, note: bytes) -> None:
        """The turn has come, with what stands now: what the commit was made of is not current any more."""
        reader = hiredis.Reader()
        reader.feed(note)
        record, standing = reader.gets()
        key, answer = self._keys.parse_record(record), [b"refused", 0, 1, standing]
        queued = self._queued.pop(key, [])
        for commit in queued:
            commit.on_reply(answer)
        if not queued and key in self._feed.under_way:
            # The note came on another connection, before the answer that tells to wait.
            self._early[key] = answer

    def _end(self, commit: _Commit, *, made: bool) -> None:
        for change in commit.changes:
            self._feed.end(change.key, made=made)
