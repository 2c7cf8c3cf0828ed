"""Every socket to the outside, on one page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, runtime_checkable

from tenuto.model import (
    Appended,
    Batch,
    Changes,
    Closing,
    Forking,
    Gone,
    MessagePage,
    Opening,
    OpenTurn,
    Page,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    StateEntry,
    Stats,
)
from tenuto.model.assurance import Assurance
from tenuto.model.talk import Asking, ModelEvent, ToolOutcome, ToolSpec, ToolTurn
from tenuto.model.trace import Trace
from tenuto.model.values import Json, JsonObject

Clock: TypeAlias = Callable[[], datetime]


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class SessionStore(Protocol):
    """Keeps sessions and their messages.

    Outside `scope` a session does not exist: methods raise `SessionNotFound` for absent, foreign, expired, deleted
    and corrupt alike. Each method is one atomic step: all of it is stored when it returns, or nothing. Messages
    come back oldest first. Appending costs the same at any length of history, loading what is asked for.

    A record that cannot be read is set aside whole, out of reach but not destroyed, and the call that met it raises
    `SessionCorrupt`, also where it might create; the next call finds the id free.

    Safety never depends on clocks: a lease that another turn took over is refused by its id. Clocks decide only
    when a lease or a session counts as run out, and a session's `updated_at` never goes backwards.
    """

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        """Find or create the session, append the user's words, take the lease, bring the window.

        With `once`, a key that came before returns its finished turn, or resumes the unfinished one without
        storing the words again.

        Raises:
            SessionBusy: another turn holds the lease; nothing was stored.
            KeyReused: the key came before with another fingerprint.
            SequenceGap: the producer skipped numbers.
        """
        ...

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        """Append the reply, add the usage, apply the changes, give the lease back.

        Finishing the same turn again stores nothing more and answers `duplicate`. A lease that ran out is good
        until another turn takes it.

        Raises:
            TurnLost: another turn has begun, or the session was reset, truncated or deleted.
        """
        ...

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        """Hold the lease for as long again as the opening asked for.

        Raises:
            TurnLost: as in `finish_turn`.
        """
        ...

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        """Append messages outside a turn, whether or not a turn is running."""
        ...

    async def get(self, scope: Scope, session_id: str) -> Session:
        """The session's head; moves its deadline where reads touch."""
        ...

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        """A page of the log; moves the deadline where reads touch."""
        ...

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        """The sessions the scope owns (all of the site's, for the tenant itself), latest change first."""
        ...

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        """Change the head.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        ...

    async def reset(self, scope: Scope, session_id: str) -> Session:
        """Forget messages, context, metadata and idempotency keys; a running turn is lost.

        Title, attributes, totals and producers' marks stay, and sequence numbers go on.
        """
        ...

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        """Copy the session, up to a message, under a new id; the owner stays, totals start at zero.

        Raises:
            SessionExists: the new id is taken.
        """
        ...

    async def truncate(self, scope: Scope, session_id: str, after: int) -> Session:
        """Forget the messages after a sequence number, to answer or ask anew; a running turn is lost."""
        ...

    async def delete(self, scope: Scope, session_id: str) -> None:
        """Remove the session and everything of it."""
        ...


class TraceStore(Protocol):
    """Keeps what `finish_turn` was handed as trace: those of a session's newest turns, by turn number.

    Writing the trace of turn n lets those up to n - 100 go.

    Traces are written with the turn's end or not at all. They go with the session, with a reset, and with a
    truncation that takes a message of their turn; a fork begins without any. Reading one moves no deadline.
    """

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        """The trace of one turn, `None` when there is none.

        Raises:
            SessionNotFound: as everywhere.
        """
        ...

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        """Traces, newest turn first; those of turns before the number `before`, where it is given."""
        ...


class StateStore(Protocol):
    """Keeps small JSON values by scope, namespace and key: keys, preferences, other frameworks' state.

    Owners are separate here: a tenant's own state is not its users' state. Keys come in order of their code points.
    """

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        """One value, `None` when there is none."""
        ...

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        """Set a value; versions count from 1, and `if_version=0` demands that there is none yet.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        ...

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        """Remove a value; tells whether there was one."""
        ...

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        """Values in order of their keys, from behind `after` on."""
        ...


class StoreUpkeep(Protocol):
    """What keeps a store in shape, off the request path."""

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        """Remove up to `limit` expired sessions of all tenants and tell which."""
        ...

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        """Remove the site's least recently changed sessions beyond `keep`, whoever owns them.

        The one called `sparing` stays, however old a wrong clock makes it look.
        """
        ...

    async def stats(self, scope: Scope) -> Stats:
        """What the scope reaches: its owner's sessions, or the whole site's for the tenant itself."""
        ...

    async def ping(self) -> None:
        """Return if the store answers.

        Raises:
            Unavailable: it does not.
        """
        ...


@runtime_checkable
class ChangeFeed(Protocol):
    """Tells a cache which sessions somebody else changed, by `session_key`.

    Changes made through this very object may be told as well.
    """

    def watch(self, drop: Callable[[Iterable[bytes] | None], None]) -> AbstractAsyncContextManager[None]:
        """While open, call `drop` with the keys of changed sessions; `None` means any of them may have changed."""
        ...

    def catch_up(self) -> bool:
        """Report, without waiting, all changes acknowledged anywhere up to now.

        False means that nothing can be vouched for at the moment: a cache must not answer.
        """
        ...


class Tool(Protocol):
    """Something an assistant can look up or do. It sees the turn, and whose it is; it acts in that scope alone.

    It raises `TenutoError` for what the model may be told (by its message) and anything else for a fault of its own;
    either way the turn goes on, and the failure is in the trace.
    """

    @property
    def spec(self) -> ToolSpec:
        """How models are told of it."""
        ...

    async def run(self, arguments: JsonObject, turn: ToolTurn) -> ToolOutcome:
        """Carry it out; the arguments may be anything a model makes up.

        Raises:
            Invalid: the arguments do not fit.
        """
        ...


@runtime_checkable
class SelfServing(Protocol):
    """A tool that needs no language model: it sees from the question whether it is wanted, and can say what it found.

    It is what the offline model answers with, and how an assistant runs a tool before any model is asked.
    """

    def guess(self, turn: ToolTurn) -> JsonObject | None:
        """The arguments this question calls for; `None` when the tool has nothing to do with it. Pure."""
        ...

    def tell(self, output: Json, turn: ToolTurn) -> str:
        """An answer in the question's language, out of what `run` brought. Pure."""
        ...


class ChatModel(Protocol):
    """Answers prompts, piece by piece.

    Events come as they happen: words, tool calls, and one `Ended` at the end. After tool calls the caller runs them
    and asks again, with their results in `messages` and `results`. Closing the iterator cancels the answer.
    """

    @property
    def name(self) -> str:
        """What settings and traces call it."""
        ...

    def answer(self, asking: Asking, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Answer; `tools` are those of `asking.tools`, for models that work with them directly.

        Raises:
            ModelTimeout: it took longer than it may.
            ModelFailed: it did not answer, or not usably.
        """
        ...


@runtime_checkable
class Assuring(Protocol):
    """A store on a server whose own settings decide how safe is what it acknowledged."""

    async def assurances(self) -> tuple[Assurance, ...]:
        """What those settings mean, as far as the server lets us ask.

        Raises:
            Unavailable: the server does not answer.
        """
        ...


@runtime_checkable
class Chained(Protocol):
    """A model that is several: each may take its time before the next one is asked."""

    @property
    def links(self) -> int:
        """How many they are."""
        ...


class Store(SessionStore, TraceStore, StateStore, StoreUpkeep, Protocol):
    """Everything a backend keeps, in one place."""

    async def close(self) -> None:
        """Let go of files and connections."""
        ...
