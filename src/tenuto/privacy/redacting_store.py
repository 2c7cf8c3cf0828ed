"""A store behind the privacy policy: everything that is written passes it, whatever the caller.

Reads change nothing. `begin_turn` returns the user message as it was sent, since the turn still needs it; stored is
the redacted one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from tenuto.compare_and_set import write_if_unchanged
from tenuto.errors import DecryptionFailed, SessionForeign, SessionNotFound, TurnLost, Unavailable
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    Draft,
    EraseResult,
    FinishTurn,
    ForkRequest,
    Message,
    NewSession,
    OpenTurn,
    RemovedSession,
    Rewrite,
    Scope,
    Session,
    StateChange,
    StateEntry,
    Truncation,
)
from tenuto.model.privacy import Sink, state_sink
from tenuto.model.session import PRIVACY_ALSO, drop_nulls
from tenuto.model.turn import TurnState
from tenuto.model.values import Json, JsonObject, check_json, replace_valid
from tenuto.ports import SessionStore, StateStore, Store, StoreUpkeep, TraceStore, release_lease
from tenuto.privacy.crypto.vault import Vault
from tenuto.privacy.record_redaction import (
    MessageRedaction,
    keep_record_types,
    redact_state,
    redact_title,
    redact_trace,
    session_texts,
)
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.unused_values import drop_unused_values, iter_trace_pages, placeholders_after

_log = logging.getLogger(__name__)
_DETECTOR: Final = "detector"
"""Name of the external detector in `Trace.degraded`."""


class RedactingStore:
    """A store behind the privacy policy."""

    def __init__(self, *, store: Store, redactor: Redactor) -> None:
        self.inner = store
        self.redactor = redactor
        self.sessions = _RedactingSessions(store.sessions, store.traces, redactor)
        self.traces = store.traces
        self.state = _RedactingState(store.state, redactor)
        self.upkeep = _VaultUpkeep(store.upkeep, redactor.vault)


class _RedactingSessions:
    """The `SessionStore` port behind the privacy policy."""

    def __init__(self, inner: SessionStore, traces: TraceStore, redactor: Redactor) -> None:
        self._inner = inner
        self._traces = traces
        self._redactor = redactor
        self.running_turn = inner.running_turn
        self.renew_turn, self.get, self.messages, self.list = inner.renew_turn, inner.get, inner.messages, inner.list
        self.search = inner.search
        # Callers of `rewrite` have redacted the data: this is how private data is removed later.
        self.rewrite = inner.rewrite
        self.attachments, self.attachment = inner.attachments, inner.attachment
        self.remove_attachment = inner.remove_attachment

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        redaction = MessageRedaction(self._redactor, scope)
        if request.create is None and redaction.keeps(request.user_messages):
            turn = await self._inner.begin_turn(scope, request)
            admitted = request.user_messages
            return turn if turn.state is TurnState.OPENED else _with_live_messages(turn, admitted, admitted)
        admitted = await redaction.admit_messages(request.user_messages)
        vault_session = await self._vault_session(redaction, scope, request.session_id)
        redacted = await redaction.messages(vault_session, admitted)
        create = await redaction.head(None, request.create) if request.create is not None else None
        # With a vault every turn needs the store, which holds it: a journal is no substitute.
        journaled = request.journaled and not redaction.uses_vault
        stored_request = request
        if (redacted, create, journaled) != (request.user_messages, request.create, request.journaled):
            stored_request = replace_valid(request, user_messages=redacted, create=create, journaled=journaled)
        turn = await self._inner.begin_turn(scope, stored_request)
        if _needs_placeholders(redaction, vault_session, turn.session) and turn.state is not TurnState.FINISHED:
            try:
                redacted = await redaction.messages(turn.session, admitted)
                stored = await self._rewrite_with_placeholders(
                    redaction, turn.session, turn.user_messages, redacted, request.create if turn.created else None
                )
            except BaseException:
                await release_lease(self._inner.finish_turn, turn)
                raise
            turn = replace(turn, user_messages=stored, window=_replace_messages(turn.window, stored))
        if redacted is admitted and turn.state is TurnState.OPENED:
            return turn  # The messages are stored as they were sent.
        return _with_live_messages(turn, redacted, admitted)

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        scope, session = turn.scope, turn.session
        redaction = MessageRedaction(self._redactor, scope)
        neutralized = redaction.neutralize_drafts(request.reply)
        changes, trace = request.changes, request.trace
        head = await self._head_of(turn) if changes is not None or trace is not None else session
        if changes is not None:
            changes = await redaction.head(session, keep_record_types(head, changes), head.metadata)
        records = before = self._redactor.for_records(head.metadata)
        if changes is not None:
            records = self._redactor.for_records(head.metadata, changes.metadata)
        if trace is not None:
            trace = await redact_trace(records, scope, session, trace)
            if self._redactor.degraded and _DETECTOR not in trace.degraded:
                trace = replace_valid(trace, degraded=(*trace.degraded, _DETECTOR))
        # An answer cannot be refused: of one that is too dense the rest is withheld.
        reply = await redaction.messages(session, neutralized, whole=False)
        try:
            if (reply, changes, trace) != (request.reply, request.changes, request.trace):
                request = replace_valid(request, reply=reply, changes=changes, trace=trace)
            result = await self._inner.finish_turn(turn, request)
        except (TurnLost, SessionNotFound):
            # The session may have been deleted while the model answered; its vault must go as well.
            if self._redactor.vault is not None and redaction.uses_vault:
                await self._redactor.vault.delete_if_session_gone(session)
            raise
        if records is not before:
            result = replace(result, session=await self._redact_earlier(scope, result.session, records))
        return replace(result, trace=trace) if trace is not None else result

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        redaction = MessageRedaction(self._redactor, scope)
        admitted = await redaction.admit_messages(batch.messages)
        vault_session = await self._vault_session(redaction, scope, session_id)
        messages = await redaction.messages(vault_session, admitted)
        create = await redaction.head(None, batch.create) if batch.create is not None else None
        stored_batch = batch
        if messages is not batch.messages or create is not batch.create:
            stored_batch = replace_valid(batch, messages=messages, create=create)
        result = await self._inner.append(scope, session_id, stored_batch)
        if not _needs_placeholders(redaction, vault_session, result.session) or result.duplicate:
            return result
        messages = await redaction.messages(result.session, admitted)
        stored = await self._rewrite_with_placeholders(
            redaction, result.session, result.messages, messages, batch.create if result.created else None
        )
        return replace(result, messages=stored)

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        redaction = MessageRedaction(self._redactor, scope)
        vault_session = await self._vault_session(redaction, scope, session_id)
        noted: JsonObject = {}
        if changes.title or PRIVACY_ALSO in changes.metadata:
            session = vault_session or await self._inner.get(scope, session_id)
            changes, noted = keep_record_types(session, changes), session.metadata
        return await self._inner.patch(scope, session_id, await redaction.head(vault_session, changes, noted))

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        redaction = MessageRedaction(self._redactor, scope)
        vault_session = await self._vault_session(redaction, scope, session_id)
        if request.title is not None:
            noted = (vault_session or await self._inner.get(scope, session_id)).metadata
            request = replace(request, title=await redaction.title(None, request.title, noted))
        fork = await self._inner.fork(scope, session_id, request)
        if vault_session is not None and self._redactor.vault is not None:
            vault = self._redactor.vault
            await vault.copy(vault_session, fork)
            if request.at is not None:
                await drop_unused_values(self._inner, self._traces, vault, fork, await vault.marks(fork))
        return fork

    # Removing messages removes the values behind their placeholders: messages first; left-over values are found later.

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        removed_names = await self._removed_placeholders(scope, session_id, request.after)
        session = await self._inner.truncate(scope, session_id, request)
        if removed_names and self._redactor.vault is not None:
            await drop_unused_values(self._inner, self._traces, self._redactor.vault, session, removed_names)
        return session

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        session = await self._inner.reset(scope, session_id, keep_metadata=keep_metadata)
        if self._redactor.vault is not None:
            # Placeholders in the head keep their values.
            marks = await self._redactor.vault.marks(session)
            await self._redactor.vault.retain(session, session_texts(session), marks)
        return session

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._inner.delete(scope, session_id)
        if self._redactor.vault is not None:
            await self._redactor.vault.delete_values(scope, session_id)

    async def _head_of(self, turn: OpenTurn) -> Session:
        """The head of a turn's session, which a turn restored from its ticket lacks."""
        if turn.session.version:
            return turn.session
        try:
            return await self._inner.get(turn.scope, turn.session.id)
        except SessionNotFound:
            return turn.session  # `finish_turn` raises the fitting error.

    async def _redact_earlier(self, scope: Scope, session: Session, records: Redactor) -> Session:
        """Redact the title and the traces of a session whose records are to show less from now on.

        The turn is stored, so a store that fails now must not fail it; a later scan finds what is left.
        """
        try:
            async for page in iter_trace_pages(self._traces, scope, session.id):
                redacted = [await redact_trace(records, scope, session, trace) for trace in page]
                changed = tuple(new for old, new in zip(page, redacted, strict=True) if new is not old)
                if changed:
                    session = await self._inner.rewrite(scope, session.id, Rewrite(traces=changed))
            while (changes := await redact_title(self._redactor, session)) != Changes():
                changes = replace(changes, if_version=session.version)
                patched = await write_if_unchanged(self._inner.patch(scope, session.id, changes))
                session = patched or await self._inner.get(scope, session.id)
        except (SessionNotFound, Unavailable) as error:
            _log.warning("title and traces of session %s were not redacted again: %s", session.id, error.code)
        return session

    async def _vault_session(self, redaction: MessageRedaction, scope: Scope, session_id: str) -> Session | None:
        """The session whose vault new values go into; `None` without a vault, or where the session does not exist yet.

        Reading the session first checks the scope: no caller adds values to the vault of a foreign session.
        """
        if not redaction.uses_vault:
            return None
        try:
            return await self._inner.get(scope, session_id)
        except SessionForeign:
            raise
        except SessionNotFound:
            return None  # The store decides what this means for the call.

    async def _removed_placeholders(self, scope: Scope, session_id: str, after: int) -> frozenset[str]:
        """The placeholders in messages after a sequence number, and in their traces."""
        if self._redactor.vault is None:
            return frozenset()
        try:
            return await placeholders_after(self._inner, self._traces, scope, session_id, after)
        except (SessionNotFound, DecryptionFailed):
            return frozenset()  # The store decides what this means for the call.

    async def _rewrite_with_placeholders(
        self,
        redaction: MessageRedaction,
        session: Session,
        stored: tuple[Message, ...],
        redacted: Sequence[Draft],
        create: NewSession | None,
    ) -> tuple[Message, ...]:
        """Put placeholders into messages that were stored redacted before their session existed.

        After a crash before this step the redactions stay: the values are lost, not exposed.
        """
        head = await redaction.head(session, create) if create is not None else None
        if head is not None and not _shows_head(session, head):
            changes = Changes(
                title=head.title, context=head.context, attributes=head.attributes, metadata=head.metadata
            )
            await self._inner.patch(session.scope, session.id, changes)
        marked = tuple(
            replace(message, parts=word.parts, metadata=word.metadata, extra=word.extra)
            for message, word in zip(stored, redacted, strict=True)
        )
        if marked != stored:
            await self._inner.rewrite(session.scope, session.id, Rewrite(messages=marked))
        return marked


class _RedactingState:
    """The `StateStore` port behind the privacy policy: memories and tasks pass it, the project's own state does not."""

    def __init__(self, inner: StateStore, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor
        self.read_state, self.list_state, self.delete_state = inner.read_state, inner.list_state, inner.delete_state
        self.state_keys, self.list_state_locations = inner.state_keys, inner.list_state_locations
        self.read_states = inner.read_states

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        sink = state_sink(scope, namespace)
        if sink is not None:
            value = await redact_state(self._redactor, sink, scope, key, check_json(value, "the state value"))
        return await self._inner.write_state(scope, namespace, key, value, if_version)

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        sink = state_sink(scope, namespace)
        if sink is not None:
            changes = [await self._redact(sink, scope, one) for one in changes]
        return await self._inner.change_states(scope, namespace, changes)

    async def _redact(self, sink: Sink, scope: Scope, change: StateChange) -> StateChange:
        if change.removes:
            return change
        value = await redact_state(self._redactor, sink, scope, change.key, change.value)
        return change if value is change.value else replace(change, value=value)


class _VaultUpkeep:
    """The `StoreUpkeep` port that also deletes the vault values of removed sessions."""

    def __init__(self, inner: StoreUpkeep, vault: Vault | None) -> None:
        self._inner = inner
        self._vault = vault
        self.list_sites, self.compact, self.stats, self.ping = inner.list_sites, inner.compact, inner.stats, inner.ping
        self.index_words, self.index_all = inner.index_words, inner.index_all

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        gone = await self._inner.sweep(limit)
        await self._delete_values(*gone)
        return gone

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        gone = await self._inner.evict(scope, keep, keep_session)
        await self._delete_values(*gone)
        return gone

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        vault, erased = self._vault, await self._inner.erase(scope, limit)
        sizes = (
            [await vault.size(item.scope, item.session_id) for item in erased.removed_sessions]
            if vault is not None
            else []
        )
        await self._delete_values(*erased.removed_sessions)
        return replace(erased, vault_values=sum(sizes))

    async def _delete_values(self, *gone: RemovedSession) -> None:
        if self._vault is not None:
            for item in gone:
                await self._vault.delete_values(item.scope, item.session_id)


def _shows_head(session: Session, head: NewSession) -> bool:
    """Whether the session already has the values of that head."""
    values = (head.title, *(drop_nulls(value) for value in (head.context, head.attributes, head.metadata)))
    return values == (session.title, session.context, session.attributes, session.metadata)


def _needs_placeholders(entry: MessageRedaction, known: Session | None, session: Session) -> bool:
    """Whether the messages went into another session than the one whose placeholders they have."""
    return entry.uses_vault and (known is None or known.incarnation != session.incarnation)


def _replace_messages(window: tuple[Message, ...], words: Sequence[Message]) -> tuple[Message, ...]:
    own = {message.id: message for message in words}
    return tuple(own.get(message.id, message) for message in window)


def _with_live_messages(turn: OpenTurn, kept: Sequence[Draft], said: Sequence[Draft]) -> OpenTurn:
    """The turn with its user messages as they were sent.

    A retried turn has the same messages, as its idempotency key guarantees. A finished turn stays as it is stored, and
    so do messages that were rewritten since.
    """
    if turn.state is TurnState.FINISHED or len(turn.user_messages) != len(said):
        return turn
    live: dict[str, Message] = {
        stored.id: replace(stored, parts=own.parts, metadata=own.metadata, extra=own.extra, tokens=own.tokens)
        for stored, screened, own in zip(turn.user_messages, kept, said, strict=True)
        if stored.parts == screened.parts
    }
    words = tuple(live.values())
    return replace(
        turn,
        user_messages=_replace_messages(turn.user_messages, words),
        window=_replace_messages(turn.window, words),
        live_ids=tuple([one.id for one in turn.user_messages if one.id in live and live[one.id].parts != one.parts]),
    )
