"""The port of sessions, of the traces of their turns, and of the work that follows a turn."""

from __future__ import annotations

import logging
from asyncio import Task
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tenuto.errors import TenutoError
from tenuto.model import (
    AppendBatch,
    AppendResult,
    Attachment,
    BeginTurn,
    Changes,
    Content,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    SearchPage,
    SearchQuery,
    Session,
    SessionPage,
    SessionQuery,
    Truncation,
    TurnState,
)
from tenuto.model.generation import TurnSnapshot
from tenuto.model.policy import SessionPolicy
from tenuto.model.turn import RunningTurn, Trace

_log = logging.getLogger(__name__)


class SessionStore(Protocol):
    """Stores sessions and their messages.

    Outside `scope` a session does not exist: methods raise `SessionNotFound` for absent, foreign, expired, deleted
    and corrupt alike. Each method is one atomic step: all of it is stored when it returns, or nothing. Messages
    come back oldest first. The cost of an append does not depend on the length of the log.

    A record that cannot be decoded is quarantined, not deleted, and the call that met it raises `SessionCorrupt`, also
    if it might create a session; for the next call the id is free.

    An attachment is stored once a session, in the step that stores the first message that shows it, and removed in the
    step that removes the last one; a part that names one that is neither stored nor brought is `UnknownAttachment`.
    Messages, windows and listings never hold its bytes.

    Safety never depends on clocks: a lease that another turn took over is refused by its id. Clocks decide only when a
    lease or a session expires, and a session's `updated_at` never goes backwards.
    """

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        """Find or create the session, append the user messages, take the lease, load the window.

        A repeated `idempotency_key` returns its finished turn, or resumes the unfinished one without storing the
        messages again.

        Raises:
            SessionBusy: another turn, which it names, holds the lease; nothing was stored.
            IdempotencyKeyReused: the key was used with another fingerprint.
            SequenceGap: the producer skipped numbers.
        """
        ...

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        """Append the reply, add the usage, apply the changes, release the lease.

        Finishing the same turn again stores nothing and returns `duplicate`. An expired lease is valid until another
        turn takes it.

        Raises:
            TurnLost: another turn has begun, or the session was reset, truncated or deleted.
        """
        ...

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        """Extend the lease by its original duration.

        Raises:
            TurnLost: as in `finish_turn`.
        """
        ...

    async def running_turn(self, scope: Scope, session_id: str) -> RunningTurn | None:
        """The turn that holds the session, also one whose lease ran out and that no other has replaced."""
        ...

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        """Append messages outside a turn, whether or not a turn is running."""
        ...

    async def get(self, scope: Scope, session_id: str) -> Session:
        """The session's head; extends its deadline if its retention counts reads."""
        ...

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        """A page of the log; extends the deadline if the retention counts reads and the page has `touch`."""
        ...

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        """The sessions the scope owns (all of the site's, for the tenant itself), latest change first."""
        ...

    async def search(self, scope: Scope, query: SearchQuery) -> SearchPage:
        """The sessions the scope owns that have all terms of a text, in title and messages, latest change first.

        Terms are those of `recall.lexical`; of one text the first 8,000 characters count. What was stored when the
        search began is found, what was removed is not; `unsearched` counts what could not be looked into.

        Raises:
            SearchOff: the search is off.
        """
        ...

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        """Change the head.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        ...

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        """Remove messages, context, metadata and idempotency keys; a running turn is lost.

        Title, attributes, totals, producers' sequence numbers and the metadata named in `keep_metadata` stay. Sequence
        numbers of messages continue.
        """
        ...

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        """Copy the session, up to a message, under a new id; the owner stays, totals start at zero.

        Raises:
            SessionExists: the new id is taken.
        """
        ...

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        """Remove the messages after a sequence number, for an edit or a regeneration; a running turn is lost.

        Messages numbered in `keep_seqs` stay; their idempotency keys are removed all the same. Every append makes a new
        version, so `if_version` protects messages that other clients appended. A turn that truncates before its own
        reply names itself as `within_turn`: the turn and its key stay.

        Raises:
            VersionConflict: `if_version` is not the stored version; nothing was removed.
            TurnLost: the turn in `within_turn` has lost the session; nothing was removed.
        """
        ...

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        """Replace the text of stored messages and traces, as when private data is redacted later.

        Messages are found by sequence number and id, traces by turn number and id; missing ones are skipped. Numbers,
        totals, deadline, a running turn and idempotency keys stay; the version grows if anything was replaced.
        An empty request removes messages beyond a cap that are still stored, and counts as a replacement then.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        ...

    async def delete(self, scope: Scope, session_id: str) -> None:
        """Remove the session with its messages, attachments and traces."""
        ...

    async def attachments(self, scope: Scope, session_id: str) -> tuple[Attachment, ...]:
        """The session's attachments in the order in which they came; extends no deadline."""
        ...

    async def attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Content:
        """One attachment with its bytes; extends no deadline.

        Raises:
            AttachmentNotFound: the session has none of this id.
        """
        ...

    async def remove_attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Session:
        """Remove an attachment from the session; the parts that showed it are marked as `removed`.

        Raises:
            AttachmentNotFound: the session has none of this id.
        """
        ...


async def release_lease(finish: Callable[[OpenTurn, FinishTurn], Awaitable[AppendResult]], turn: OpenTurn) -> None:
    """Abandon a turn through `finish`; if that fails, the lease expires on its own."""
    if turn.state is TurnState.FINISHED:
        return
    try:
        await finish(turn, FinishTurn(abandoned=True))
    except TenutoError as error:
        _log.info("could not release the lease of a turn: %s", error.code)


class TraceStore(Protocol):
    """Reads the traces that `finish_turn` stored, by turn number.

    The trace of turn n replaces those up to n - 100. A trace is removed with its session, by a reset, and by a
    truncation that removes a message of its turn; a fork starts without any. Reading one extends no deadline.
    """

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        """The trace of one turn, `None` if there is none."""
        ...

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        """Traces, newest turn first; with `before`, those of turns before that number."""
        ...


class TurnFollowUp(Protocol):
    """Work after a turn: titles, summaries, memories, and the release of a lease after an outage of the store."""

    def hear(self, turn: TurnSnapshot) -> Task[None] | None:
        """Note what the user has said in a turn that has begun, whether or not it will be answered.

        Returns what stores that it is yet to be remembered, if the store does not say so already, and forgets what an
        edit has removed; it raises nothing.
        """
        ...

    async def note_stale(self, turn: TurnSnapshot) -> None:
        """Note, before the answer, what became stale with a turn; it raises nothing that would hinder the turn."""
        ...

    def follow(self, turn: TurnSnapshot) -> None:
        """Start what is due, and return at once."""
        ...

    async def secure(self, turn: TurnSnapshot, *, through: int, adding: int) -> None:
        """Wait until so many messages can be stored without evicting any that no summary covers."""
        ...

    def release(self, turn: OpenTurn, request: FinishTurn, policy: SessionPolicy) -> None:
        """Abandon a turn as soon as the store is back, and return at once."""
        ...
