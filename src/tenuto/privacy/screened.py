"""The one place that everything stored passes: a store whose words have met the privacy policy.

Whatever door writes, it writes through here. Reading changes nothing. The words of a turn that begins come back to its
caller as they were said, since the turn is still live; what is stored of them is what the policy left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from tenuto.errors import Sealed, SessionForeign, SessionNotFound, TenutoError, TurnLost
from tenuto.model import (
    Appended,
    Batch,
    Changes,
    Closing,
    Compaction,
    Draft,
    Erased,
    Forking,
    Gone,
    Message,
    MessagePage,
    NewSession,
    Opening,
    OpenTurn,
    Page,
    Rewriting,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    StateEntry,
    StateName,
    Stats,
    Truncating,
)
from tenuto.model.privacy import is_memory
from tenuto.model.session import without_nulls
from tenuto.model.trace import Trace
from tenuto.model.turn import TurnState
from tenuto.model.values import Json, checked_json
from tenuto.ports import Store
from tenuto.privacy.leftovers import forget_unused, marks_behind
from tenuto.privacy.message_redaction import MessageRedaction
from tenuto.privacy.pages import head_texts, redact_state, redact_trace
from tenuto.privacy.redactor import Redactor

_DETECTOR: Final = "detector"
"""What a turn says that it had to do without."""
_Head = TypeVar("_Head", NewSession, Changes)


class Screened:
    """The `Store` port behind the privacy policy."""

    def __init__(self, *, store: Store, screen: Redactor) -> None:
        self._store = store
        self._screen = screen
        self._entry = MessageRedaction(screen)

    @property
    def inner(self) -> Store:
        """The store behind."""
        return self._store

    @property
    def screen(self) -> Redactor:
        """The policy it stands behind."""
        return self._screen

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        said = await self._entry.said(scope, opening.words)
        known = await self._known(scope, opening.session_id)
        words = await self._entry.messages(scope, known, said)
        create = await self._entry.head(scope, None, opening.create) if opening.create is not None else None
        # Every turn of such a policy needs the vault, which is in the store: no journal can stand in for it.
        journaled = opening.journaled and not self._screen.vaulted(scope)
        kept = replace(opening, words=words, create=create, journaled=journaled)
        turn = await self._store.begin_turn(scope, kept)
        if self._is_new(scope, known, turn.session) and turn.state is not TurnState.FINISHED:
            try:
                words = await self._entry.messages(scope, turn.session, said)
                stored = await self._settled(turn.session, turn.words, words, opening.create if turn.created else None)
            except BaseException:
                await self._let_go(turn)
                raise
            turn = replace(turn, words=stored, window=_replaced(turn.window, stored))
        return _live(turn, words, said)

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        scope, session, entry = turn.scope, turn.session, self._entry
        said = entry.unmarked(scope, closing.reply)
        changes = await entry.head(scope, session, closing.changes) if closing.changes is not None else None
        trace = await self._traced(scope, session, closing.trace) if closing.trace is not None else None
        reply = await entry.messages(scope, session, said)
        try:
            done = await self._store.finish_turn(turn, replace(closing, reply=reply, changes=changes, trace=trace))
        except (TurnLost, SessionNotFound):
            # The session may have gone while the model spoke, and shall leave nothing behind.
            if self._screen.vault is not None and self._screen.vaulted(scope):
                await self._screen.vault.forget_gone(session)
            raise
        return replace(done, trace=trace) if trace is not None else done

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        return await self._store.renew_turn(turn)

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        said = await self._entry.said(scope, batch.messages)
        known = await self._known(scope, session_id)
        messages = await self._entry.messages(scope, known, said)
        create = await self._entry.head(scope, None, batch.create) if batch.create is not None else None
        done = await self._store.append(scope, session_id, replace(batch, messages=messages, create=create))
        if not self._is_new(scope, known, done.session) or done.duplicate:
            return done
        messages = await self._entry.messages(scope, done.session, said)
        stored = await self._settled(done.session, done.messages, messages, batch.create if done.created else None)
        return replace(done, messages=stored)

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return await self._store.get(scope, session_id)

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        return await self._store.messages(scope, session_id, page)

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        return await self._store.list(scope, query)

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return await self._store.trace(scope, session_id, number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        return await self._store.traces(scope, session_id, limit, before)

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        known = await self._known(scope, session_id)
        return await self._store.patch(scope, session_id, await self._entry.head(scope, known, changes))

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewriting) -> Session:
        # What is rewritten was screened by the one who rewrites it: this is how it is taken out.
        return await self._store.rewrite(scope, session_id, rewriting)

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        known = await self._known(scope, session_id)
        if forking.title is not None:
            forking = replace(forking, title=await self._entry.title(scope, None, forking.title))
        fork = await self._store.fork(scope, session_id, forking)
        if known is not None and self._screen.vault is not None:
            await self._screen.vault.copy(known, fork)
        return fork

    # Whoever removes words removes the values behind their marks: the words first, since they can be found again.

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncating) -> Session:
        going = await self._going(scope, session_id, truncating.after)
        session = await self._store.truncate(scope, session_id, truncating)
        if going and self._screen.vault is not None:
            await forget_unused(self._store, self._screen.vault, session, going)
        return session

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        session = await self._store.reset(scope, session_id, sparing=sparing)
        if self._screen.vault is not None:
            # What the head still shows keeps its meaning.
            marks = await self._screen.vault.marks(session)
            await self._screen.vault.retain(session, head_texts(session), marks)
        return session

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._store.delete(scope, session_id)
        await self._forget(Gone(scope=scope, session_id=session_id))

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        gone = await self._store.sweep(limit)
        await self._forget(*gone)
        return gone

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        gone = await self._store.evict(scope, keep, sparing)
        await self._forget(*gone)
        return gone

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        erased = await self._store.erase(scope, limit)
        values = await self._values_of(*erased.gone)
        await self._forget(*erased.gone)
        return replace(erased, values=values)

    # What is kept of somebody passes the policy; the house's own state goes straight through

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return await self._store.read_state(scope, namespace, key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        if is_memory(scope, namespace):
            value = await redact_state(self._screen, scope, key, checked_json(value, "the state value"))
        return await self._store.write_state(scope, namespace, key, value, if_version)

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        return await self._store.delete_state(scope, namespace, key)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        return await self._store.list_state(scope, namespace, after, limit)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return await self._store.state_keys(scope, namespace, after, limit)

    async def state_names(
        self, scope: Scope, after: StateName | None = None, limit: int = 100
    ) -> tuple[StateName, ...]:
        return await self._store.state_names(scope, after, limit)

    # Upkeep goes straight through

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        return await self._store.spaces(after, limit)

    async def compact(self) -> Compaction:
        return await self._store.compact()

    async def stats(self, scope: Scope) -> Stats:
        return await self._store.stats(scope)

    async def ping(self) -> None:
        await self._store.ping()

    async def close(self) -> None:
        await self._store.close()

    # What is inside

    async def _known(self, scope: Scope, session_id: str) -> Session | None:
        """The session whose vault new values go into; `None` where none do, or it is about to begin.

        Nobody's words leave a mark in a session that is not theirs: marks are given out to a session that was seen.
        """
        if not self._screen.vaulted(scope):
            return None
        try:
            return await self._store.get(scope, session_id)
        except SessionForeign:
            raise
        except SessionNotFound:
            return None  # What that means, the store will say.

    async def _going(self, scope: Scope, session_id: str, after: int) -> frozenset[str]:
        """The marks in what stands behind a message."""
        if self._screen.vault is None:
            return frozenset()
        try:
            return await marks_behind(self._store, scope, session_id, after)
        except (SessionNotFound, Sealed):
            return frozenset()  # What that means, the store will say.

    def _is_new(self, scope: Scope, known: Session | None, session: Session) -> bool:
        """Whether the words went into another session than the one whose marks they were given."""
        if not self._screen.vaulted(scope):
            return False
        return known is None or known.incarnation != session.incarnation

    async def _settled(
        self, session: Session, stored: tuple[Message, ...], words: Sequence[Draft], create: NewSession | None
    ) -> tuple[Message, ...]:
        """Put marks into words that were stored redacted, now that there is a session they belong to.

        A process that dies before this leaves redactions: a value is lost then, and never shown to anybody.
        """
        head = await self._entry.head(session.scope, session, create) if create is not None else None
        if head is not None and not _stands(session, head):
            changes = Changes(
                title=head.title, context=head.context, attributes=head.attributes, metadata=head.metadata
            )
            await self._store.patch(session.scope, session.id, changes)
        marked = tuple(
            replace(message, parts=word.parts, metadata=word.metadata, extra=word.extra)
            for message, word in zip(stored, words, strict=True)
        )
        if marked != stored:
            await self._store.rewrite(session.scope, session.id, Rewriting(messages=marked))
        return marked

    async def _traced(self, scope: Scope, session: Session, trace: Trace) -> Trace:
        """A trace as it may be stored; it says so where the outside detector did not answer."""
        trace = await redact_trace(self._screen, scope, session, trace)
        missed = self._screen.degraded and _DETECTOR not in trace.degraded
        return replace(trace, degraded=(*trace.degraded, _DETECTOR)) if missed else trace

    async def _let_go(self, turn: OpenTurn) -> None:
        """Give the lease of a turn back that its caller cannot be handed."""
        try:
            await self._store.finish_turn(turn, Closing(abandoned=True))
        except TenutoError:
            return  # The lease runs out on its own.

    async def _values_of(self, *gone: Gone) -> int:
        """How many values the vaults of these sessions hold."""
        vault = self._screen.vault
        return sum([await vault.size(item.scope, item.session_id) for item in gone]) if vault is not None else 0

    async def _forget(self, *gone: Gone) -> None:
        if self._screen.vault is not None:
            for item in gone:
                await self._screen.vault.forget(item.scope, item.session_id)


def _stands(session: Session, head: NewSession) -> bool:
    """Whether a session shows that head already."""
    values = (head.title, *(without_nulls(value) for value in (head.context, head.attributes, head.metadata)))
    return values == (session.title, session.context, session.attributes, session.metadata)


def _replaced(window: tuple[Message, ...], words: Sequence[Message]) -> tuple[Message, ...]:
    own = {message.id: message for message in words}
    return tuple(own.get(message.id, message) for message in window)


def _live(turn: OpenTurn, kept: Sequence[Draft], said: Sequence[Draft]) -> OpenTurn:
    """The turn with its own words as they were said. A turn found again was begun with the same words: its key says so.

    An answered one stays as it is stored, and so do words that were rewritten since.
    """
    if turn.state is TurnState.FINISHED or len(turn.words) != len(said):
        return turn
    live: dict[str, Message] = {
        stored.id: replace(stored, parts=own.parts, metadata=own.metadata, extra=own.extra, tokens=own.tokens)
        for stored, screened, own in zip(turn.words, kept, said, strict=True)
        if stored.parts == screened.parts
    }
    words = tuple(live.values())
    return replace(turn, words=_replaced(turn.words, words), window=_replaced(turn.window, words))
