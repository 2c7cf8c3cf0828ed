"""Encryption at rest, over any backend.

Messages, titles, values of heads, texts of traces, and state are sealed. Ids, roles, times, counters and the names of
values stay readable, since stores need them. Records from before encryption was switched on stay readable, and are
sealed when they are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, SessionCorrupt, SessionNotFound, TenutoError
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    StateChange,
    StateEntry,
    Truncation,
)
from tenuto.model.privacy import is_sealed
from tenuto.model.scope import session_key
from tenuto.model.turn import Trace
from tenuto.model.values import Json, check_json
from tenuto.ports import Cipher, Ciphers, SessionStore, StateStore, Store, TraceStore, release_lease
from tenuto.stores.codec import encode_cursor, to_micros
from tenuto.stores.sealed_state import is_always_plain
from tenuto.stores.sealed_values import (
    UNOPENED,
    looks_sealed,
    reseal_messages,
    reseal_session,
    seal_batch,
    seal_begin_turn,
    seal_changes,
    seal_finish_turn,
    seal_fork_request,
    seal_rewrite,
    seal_state,
    unseal_listed_session,
    unseal_messages,
    unseal_session,
    unseal_state,
    unseal_trace,
    unseal_turn,
)

_CHUNK: Final = 200
_MOST_DOUBTS: Final = 10_000
_Name: TypeAlias = tuple[str, str, str]
_Answer = TypeVar("_Answer")


class EncryptedStore:
    """A store over one that gets sealed texts only.

    With `sealing` off it opens sealed records and writes plain ones, which is how encryption is switched off. Listings
    show a session whose head was tampered with under the title `[SEALED]`; reading it is an error.
    """

    def __init__(self, *, store: Store, ciphers: Ciphers, sealing: bool = True) -> None:
        self.inner = store
        seals = _CipherProvider(ciphers, sealing=sealing)
        self.sessions = _EncryptedSessions(store.sessions, seals)
        self.traces = _EncryptedTraces(store.traces, seals)
        self.state = _EncryptedState(store.state, seals)
        self.upkeep = store.upkeep


class _CipherProvider:
    """Chooses the cipher of a call."""

    def __init__(self, ciphers: Ciphers, *, sealing: bool) -> None:
        self.ciphers = ciphers
        self._sealing = sealing

    async def cipher_for_write(self, scope: Scope, lookalike: bool) -> Cipher | None:
        """The cipher, requested before anything is written, since a key may be missing.

        Text in the form of sealed text is always sealed, so that it is read back unchanged.
        """
        return await self.ciphers.cipher_for_sealing(scope) if self._sealing or lookalike else None

    async def open_with_retry(self, scope: Scope, step: Callable[[Cipher], _Answer]) -> _Answer:
        """Run a step with the cipher, once more with fresh keys if it fails: another process may have added one."""
        try:
            return step(await self.ciphers.cipher_for_opening(scope))
        except DecryptionFailed:
            return step(await self.ciphers.cipher_for_opening(scope, refresh=True))


class _EncryptedSessions:
    """The `SessionStore` port over sealed texts."""

    def __init__(self, inner: SessionStore, seals: _CipherProvider) -> None:
        self._inner = inner
        self._seals = seals
        # Sessions that did not open: they are read before anything is written into them.
        self._doubtful: dict[_Name, None] = {}
        self.renew_turn, self.delete = inner.renew_turn, inner.delete

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        cipher = await self._seals.cipher_for_write(scope, looks_sealed(request))
        await self._check_opens(scope, request.session_id, request.window)
        turn = await self._inner.begin_turn(scope, seal_begin_turn(cipher, request) if cipher else request)
        try:
            return await self._seals.open_with_retry(scope, lambda cipher: unseal_turn(cipher, turn))
        except BaseException as failure:
            self._add_suspect(scope, request.session_id, failure)
            await release_lease(self._inner.finish_turn, turn)
            raise

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        cipher = await self._seals.cipher_for_write(turn.scope, looks_sealed(request))
        sealed = seal_finish_turn(cipher, turn.session.id, request) if cipher else request
        return await self._unseal_append_result(turn.scope, await self._inner.finish_turn(turn, sealed))

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        cipher = await self._seals.cipher_for_write(scope, looks_sealed(batch))
        await self._check_opens(scope, session_id)
        sealed = seal_batch(cipher, session_id, batch) if cipher else batch
        appended = await self._inner.append(scope, session_id, sealed)
        try:
            return await self._unseal_append_result(scope, appended)
        except DecryptionFailed as failure:
            self._add_suspect(scope, session_id, failure)
            raise

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return await self._unseal_session(scope, await self._inner.get(scope, session_id))

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        found = await self._inner.messages(scope, session_id, query)
        return await self._seals.open_with_retry(
            scope,
            lambda cipher: replace(
                found,
                session=unseal_session(cipher, found.session),
                messages=unseal_messages(cipher, found.session, found.messages),
            ),
        )

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        page = await (self._inner.list(scope, query) if query.title is None else self._search_titles(scope, query))
        return await self._seals.open_with_retry(
            scope,
            lambda cipher: replace(page, sessions=tuple(unseal_listed_session(cipher, each) for each in page.sessions)),
        )

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        cipher = await self._seals.cipher_for_write(scope, looks_sealed(changes))
        sealed = seal_changes(cipher, session_id, changes) if cipher else changes
        return await self._unseal_session(scope, await self._inner.patch(scope, session_id, sealed))

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        return await self._unseal_session(
            scope, await self._inner.reset(scope, session_id, keep_metadata=keep_metadata)
        )

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        cipher = await self._seals.cipher_for_write(scope, looks_sealed(request))
        sealed = seal_fork_request(cipher, request) if cipher else request
        source = await self._inner.get(scope, session_id)
        fork = await self._inner.fork(scope, session_id, sealed)
        try:
            if source.forked_from is not None:
                fork = await self._reseal_fork(scope, source, fork, titled=request.title is not None)
            return await self._unseal_session(scope, fork)
        except BaseException:
            # Each retry would leave another fork that does not open.
            with suppress(TenutoError):
                await self._inner.delete(scope, fork.id)
            raise

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        session = await self._inner.truncate(scope, session_id, request)
        return await self._unseal_session(scope, session)

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        cipher = await self._seals.cipher_for_write(scope, looks_sealed(request))
        sealed = seal_rewrite(cipher, session_id, request) if cipher else request
        return await self._unseal_session(scope, await self._inner.rewrite(scope, session_id, sealed))

    # What the methods share

    async def _check_opens(self, scope: Scope, session_id: str, window: int = 0) -> None:
        """Check that a session opens before messages are stored in it, if a key is missing or it failed before.

        Otherwise a refused call would store its messages, again with each retry.
        """
        name = (scope.tenant, scope.site, session_id)
        if name not in self._doubtful and (await self._seals.ciphers.cipher_for_opening(scope)).whole:
            return
        try:
            await self.messages(scope, session_id, Page(limit=max(1, window)))
        except SessionCorrupt:
            raise  # It is in quarantine now, and its id is free again.
        except SessionNotFound:
            pass  # The store decides what that means.
        self._doubtful.pop(name, None)

    def _add_suspect(self, scope: Scope, session_id: str, failure: BaseException) -> None:
        if isinstance(failure, DecryptionFailed):
            self._doubtful[scope.tenant, scope.site, session_id] = None
            if len(self._doubtful) > _MOST_DOUBTS:
                del self._doubtful[next(iter(self._doubtful))]

    async def _unseal_session(self, scope: Scope, session: Session) -> Session:
        return await self._seals.open_with_retry(scope, lambda cipher: unseal_session(cipher, session))

    async def _reseal_fork(self, scope: Scope, source: Session, fork: Session, *, titled: bool) -> Session:
        """Seal again for a fork of a fork what was written in neither of the two."""
        assert source.forked_from is not None
        cipher, branch = await self._seals.ciphers.cipher_for_sealing(scope), source.forked_from.seq
        changes = await self._seals.open_with_retry(
            scope, lambda opener: reseal_session(opener, source, fork, titled=titled)
        )
        if changes is not None:
            fork = await self._inner.patch(scope, fork.id, changes)
        more, after = True, 0
        while more:
            page = await self._inner.messages(scope, fork.id, Page(limit=_CHUNK, after=after))
            old = [message for message in page.messages if message.seq <= branch]
            rewriting = reseal_messages(cipher, source, fork, old)
            if rewriting is not None:
                fork = await self._inner.rewrite(scope, fork.id, rewriting)
            more, after = page.more_after and len(old) == _CHUNK, old[-1].seq if old else 0
        return fork

    async def _unseal_append_result(self, scope: Scope, appended: AppendResult) -> AppendResult:
        return await self._seals.open_with_retry(
            scope,
            lambda cipher: replace(
                appended,
                session=unseal_session(cipher, appended.session),
                messages=unseal_messages(cipher, appended.session, appended.messages),
            ),
        )

    async def _search_titles(self, scope: Scope, query: SessionQuery) -> SessionPage:
        """Find sessions by a part of their title, which the store cannot read, page by page."""
        assert query.title is not None
        wanted, found, cursor = query.title.casefold(), list[Session](), query.cursor
        while len(found) <= query.limit:
            page = await self._inner.list(scope, replace(query, title=None, limit=_CHUNK, cursor=cursor))
            opened = await self._seals.open_with_retry(
                scope,
                lambda cipher: [unseal_listed_session(cipher, each) for each in page.sessions],  # noqa: B023
            )
            titles = ["" if each.title == UNOPENED else each.title.casefold() for each in opened]
            found += [each for each, title in zip(page.sessions, titles, strict=True) if wanted in title]
            cursor = page.cursor
            if cursor is None:
                break
        chosen, cursor = found[: query.limit], None
        if len(found) > len(chosen):
            last = chosen[-1]
            cursor = encode_cursor(to_micros(last.updated_at), session_key(last.scope, last.id))
        return SessionPage(sessions=tuple(chosen), cursor=cursor)


class _EncryptedTraces:
    """The `TraceStore` port over sealed texts."""

    def __init__(self, inner: TraceStore, seals: _CipherProvider) -> None:
        self._inner = inner
        self._seals = seals

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        found = await self._inner.trace(scope, session_id, number)
        return None if found is None else (await self._open(scope, session_id, (found,)))[0]

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        return await self._open(scope, session_id, await self._inner.traces(scope, session_id, limit, before))

    async def _open(self, scope: Scope, session_id: str, traces: tuple[Trace, ...]) -> tuple[Trace, ...]:
        return await self._seals.open_with_retry(
            scope, lambda cipher: tuple(unseal_trace(cipher, session_id, trace) for trace in traces)
        )


class _EncryptedState:
    """The `StateStore` port over sealed values."""

    def __init__(self, inner: StateStore, seals: _CipherProvider) -> None:
        self._inner = inner
        self._seals = seals
        self.delete_state, self.state_keys, self.list_state_locations = (
            inner.delete_state,
            inner.state_keys,
            inner.list_state_locations,
        )

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        entry = await self._inner.read_state(scope, namespace, key)
        return None if entry is None else (await self._open(scope, namespace, (entry,)))[0]

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        check_json(value, "the state value")
        sealed = await self._seal(scope, namespace, key, value)
        entry = await self._inner.write_state(scope, namespace, key, sealed, if_version)
        return replace(entry, value=value)

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        found = await self._inner.read_states(scope, namespace, keys)
        opened = iter(await self._open(scope, namespace, tuple(entry for entry in found if entry is not None)))
        return tuple(None if entry is None else next(opened) for entry in found)

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        sealed = [
            one if one.removes else replace(one, value=await self._seal(scope, namespace, one.key, one.value))
            for one in changes
        ]
        return await self._inner.change_states(scope, namespace, sealed)

    async def _seal(self, scope: Scope, namespace: str, key: str, value: Json) -> Json:
        if is_always_plain(scope, namespace):
            return value
        cipher = await self._seals.cipher_for_write(scope, is_sealed(value))
        return seal_state(cipher, scope, namespace, key, value) if cipher else value

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        return await self._open(scope, namespace, await self._inner.list_state(scope, namespace, after, limit))

    async def _open(self, scope: Scope, namespace: str, entries: tuple[StateEntry, ...]) -> tuple[StateEntry, ...]:
        if is_always_plain(scope, namespace):
            return entries
        return await self._seals.open_with_retry(
            scope, lambda cipher: tuple(unseal_state(cipher, scope, namespace, entry) for entry in entries)
        )
