"""Every socket to the outside, on one page."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, runtime_checkable

from tenuto.errors import TenutoError
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    CompactionResult,
    EraseResult,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    RemovedSession,
    Rewrite,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    SessionStats,
    StateEntry,
    StateLocation,
    Truncation,
    TurnState,
)
from tenuto.model.generation import ModelEvent, ModelRequest, ToolContext, ToolOutput, ToolSpec, TurnEnded
from tenuto.model.policy import SessionPolicy
from tenuto.model.privacy import PiiMatch
from tenuto.model.store_reports import DurabilityFinding, Invalidation
from tenuto.model.turn import Trace
from tenuto.model.values import Json, JsonObject

_log = logging.getLogger(__name__)

Clock: TypeAlias = Callable[[], datetime]
Place: TypeAlias = tuple[str, ...]
"""Where a sealed text stands: what it is, of which record, under which name."""


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

    async def begin_turn(self, scope: Scope, opening: BeginTurn) -> OpenTurn:
        """Find or create the session, append the user's words, take the lease, bring the window.

        With `once`, a key that came before returns its finished turn, or resumes the unfinished one without
        storing the words again.

        Raises:
            SessionBusy: another turn holds the lease; nothing was stored.
            KeyReused: the key came before with another fingerprint.
            SequenceGap: the producer skipped numbers.
        """
        ...

    async def finish_turn(self, turn: OpenTurn, closing: FinishTurn) -> AppendResult:
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

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
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

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        """Forget messages, context, metadata and idempotency keys; a running turn is lost.

        Title, attributes, totals and producers' marks stay, and sequence numbers go on. Metadata of the names in
        `sparing` stays as well.
        """
        ...

    async def fork(self, scope: Scope, session_id: str, forking: ForkRequest) -> Session:
        """Copy the session, up to a message, under a new id; the owner stays, totals start at zero.

        Raises:
            SessionExists: the new id is taken.
        """
        ...

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncation) -> Session:
        """Forget the messages after a sequence number, to answer or ask anew; a running turn is lost.

        Those numbered in `sparing` stay, as a summary may that speaks of nothing after the cut; the idempotency keys
        they came under go all the same. Every append makes a new version, so `if_version` keeps what another client
        said since that version was read. A turn that makes room for its own reply names itself: `within` it goes on,
        and so does the key it came under.

        Raises:
            VersionConflict: `if_version` is not the stored version; nothing was forgotten.
            TurnLost: the turn it shall happen `within` has lost the session; nothing was forgotten.
        """
        ...

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewrite) -> Session:
        """Put other words in the place of stored ones, as when private data is taken out of them afterwards.

        Messages are found by sequence number and id, traces by turn number and id; those that are gone by now are
        passed over. Numbers, totals, the deadline, a running turn and the idempotency keys stay as they are; the
        session's version grows if anything was replaced.
        """
        ...

    async def delete(self, scope: Scope, session_id: str) -> None:
        """Remove the session and everything of it."""
        ...


async def release_lease(finish: Callable[[OpenTurn, FinishTurn], Awaitable[AppendResult]], turn: OpenTurn) -> None:
    """Give up a turn by whatever finishes it; where that fails, the lease expires on its own."""
    if turn.state is TurnState.FINISHED:
        return
    try:
        await finish(turn, FinishTurn(abandoned=True))
    except TenutoError as failed:
        _log.info("could not release the lease of a turn: %s", failed.code)


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

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        """The keys alone, in the same order; also those of values that cannot be read."""
        ...

    async def state_names(
        self, scope: Scope, after: StateLocation | None = None, limit: int = 100
    ) -> tuple[StateLocation, ...]:
        """Where users and chats that the scope reaches keep values, in whatever drawer; in an order that stays.

        A tenant's own state is not among them, nor what has a name that cannot be read. A page that is not full is the
        last one.
        """
        ...


class StoreUpkeep(Protocol):
    """What keeps a store in shape, off the request path."""

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        """Remove up to `limit` expired sessions of all tenants and tell which."""
        ...

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[RemovedSession, ...]:
        """Remove the site's least recently changed sessions beyond `keep`, of all owners.

        The one called `sparing` stays, however old a wrong clock makes it look.
        """
        ...

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        """Remove what the scope's user owns on that site: up to `limit` sessions, then all of the user's state.

        Also what was set aside as unreadable under that owner, as far as the owner is known. Call again until
        nothing is left (`EraseResult.more`). The scope must name a user.

        Raises:
            Invalid: the scope names no user.
        """
        ...

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        """Which tenants' sites hold sessions, or state of users or chats.

        Bare scopes, in order of `site_key`, from behind `after` on. It looks across all walls: for an operator's
        upkeep, never for a request. A page that is not full is the last one. A site whose sessions have all expired may
        be among them until it is swept.
        """
        ...

    async def compact(self) -> CompactionResult:
        """Let no deleted byte stay behind in the backend's own files, and tell what could not be done about it.

        Raises:
            Unavailable: the store is busy or away; asked again, it may do it.
        """
        ...

    async def stats(self, scope: Scope) -> SessionStats:
        """What the scope reaches: its owner's sessions, or the whole site's for the tenant itself."""
        ...

    async def ping(self) -> None:
        """Return if the store answers.

        Raises:
            Unavailable: it does not.
        """
        ...


class Store(Protocol):
    """Four ports over the same records: a backend, or a wrapper that stands before one.

    A wrapper replaces the ports it changes and hands on the others as they are.
    """

    @property
    def sessions(self) -> SessionStore:
        """Sessions and their messages."""
        ...

    @property
    def traces(self) -> TraceStore:
        """What `sessions.finish_turn` was handed as trace."""
        ...

    @property
    def state(self) -> StateStore:
        """Small JSON values."""
        ...

    @property
    def upkeep(self) -> StoreUpkeep:
        """Expiry, erasure, statistics."""
        ...


class Backend(Store, Protocol):
    """A store that holds the records itself, and the files or connections to them."""

    @property
    def feed(self) -> ChangeFeed | None:
        """What tells of changes by other processes; `None` where no other process can reach the records."""
        ...

    async def close(self) -> None:
        """Release files and connections."""
        ...


class ChangeFeed(Protocol):
    """Reports to a cache which sessions another process changed, by `session_key`.

    Changes made through this very object may be reported as well. Several changes may come as one report; but a removal
    is always reported as such.
    """

    @property
    def listening(self) -> bool:
        """Whether changes are heard at the moment. Those of the last moment may still be on their way."""
        ...

    def watch(self, told: Callable[[Invalidation | None], None]) -> AbstractAsyncContextManager[None]:
        """While open, call `told` with what changed; `None` means that anything may have."""
        ...

    def catch_up(self) -> bool:
        """Report, without waiting, all changes acknowledged anywhere up to now.

        False means that nothing can be vouched for at the moment: a cache must not answer.
        """
        ...


class Cipher(Protocol):
    """Seals what is stored of one tenant's site. It holds the keys it needs: no method waits.

    A sealed text opens for the tenant and site it was sealed for, at the place it was sealed for, and nowhere else.
    """

    @property
    def fresh(self) -> bool:
        """Whether the store was just asked for the keys: a text that names none of them names none at all."""
        ...

    @property
    def whole(self) -> bool:
        """Whether every data key is at hand that the tenant ever had."""
        ...

    def knows(self, sealed: str) -> bool:
        """Whether a text of the sealed form names a data key that the tenant has or had, at hand or not."""
        ...

    def seal(self, plain: bytes, place: Place) -> str:
        """The bytes as text that tells nothing but their length; twice the same are sealed to different texts.

        Raises:
            Sealed: this cipher has no key to write with.
        """
        ...

    def open(self, sealed: str, place: Place) -> bytes:
        """The bytes back.

        Raises:
            MasterKeyMissing: its key waits for a master key that is not there.
            Sealed: its key is gone or unknown, or the text was changed or moved.
        """
        ...

    def digest(self, value: bytes, place: Place) -> str:
        """A name for the value, to find it again without storing it: equal for equal values at one place.

        Raises:
            Sealed: this cipher has no key to look up with.
        """
        ...


class Ciphers(Protocol):
    """Every tenant's cipher: each has data keys of its own, which a master key outside the store protects."""

    async def to_seal(self, scope: Scope) -> Cipher:
        """The cipher to write with, and to look up with; a tenant's first data key is made here.

        Raises:
            Sealed: the tenant has data keys, but not the master key that opens them.
        """
        ...

    async def to_open(self, scope: Scope, *, anew: bool = False) -> Cipher:
        """The cipher to read with. `anew` asks the store again: a text may name a key that another process just made.

        Makes no key; where the tenant has none, nothing opens.
        """
        ...


class Detector(Protocol):
    """Finds private data beside our own rules: a service, or a model that knows names and places."""

    async def find(self, scope: Scope, text: str, language: str) -> Sequence[PiiMatch]:
        """What it finds, in any order, overlapping or not; places count code points and lie inside the text.

        `language` is a code of two letters. What it was given it neither keeps nor logs.

        Raises:
            Unavailable: it does not answer, or not usably.
        """
        ...


class Tool(Protocol):
    """Something an assistant can look up or do. It sees the turn, and whose it is; it acts in that scope alone.

    It raises `TenutoError` for what the model may see (its message) and anything else for a fault of its own;
    either way the turn goes on, and the failure is in the trace.
    """

    @property
    def spec(self) -> ToolSpec:
        """Its description for models."""
        ...

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Carry it out; the arguments may be anything a model makes up.

        Raises:
            Invalid: the arguments do not fit.
        """
        ...


@runtime_checkable
class OfflineTool(Protocol):
    """A tool that needs no language model: it sees from the question whether it is wanted, and can say what it found.

    It is what the offline model answers with, and how an assistant runs a tool before any model is asked.
    """

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """The arguments this question calls for; `None` when the tool has nothing to do with it. Pure."""
        ...

    def render(self, output: Json, turn: ToolContext) -> str:
        """An answer in the question's language, out of what `run` brought. Pure."""
        ...


class ChatModel(Protocol):
    """Answers prompts, piece by piece.

    Events come as they happen: words, tool calls, and one `ModelDone` at the end. After tool calls the caller runs them
    and asks again, with their results in `messages` and `results`. Closing the iterator cancels the answer.
    """

    @property
    def name(self) -> str:
        """What settings and traces call it."""
        ...

    def answer(self, asking: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Answer; `tools` are those of `asking.tools`, for models that work with them directly.

        Raises:
            ModelTimeout: it took longer than it may.
            ModelFailed: it did not answer, or not usably.
        """
        ...


class Afterwards(Protocol):
    """What follows a turn: titles and summaries, and the end of one that the store did not take."""

    def follow(self, ended: TurnEnded) -> None:
        """Start it, and return at once."""
        ...

    async def secure(self, ended: TurnEnded, *, covered: int, adding: int) -> None:
        """Wait until so many messages can be stored without pushing out any that no summary covers."""
        ...

    def release(self, turn: OpenTurn, closing: FinishTurn, policy: SessionPolicy) -> None:
        """Give a turn up as soon as the store lets us, and return at once."""
        ...


class Facts(Protocol):
    """What a span tells besides its time."""

    def set_attributes(self, **facts: str | int | None) -> None:
        """Add ids and counts, never text."""
        ...


Span: TypeAlias = Callable[[str], AbstractContextManager[Facts]]
"""Opens a span of that name around a step, where telemetry is configured."""


class Embedder(Protocol):
    """Turns texts into vectors that lie near each other where the texts mean alike, whatever their words.

    The vectors of one embedder can be compared with each other, and with no other's. What it was given it neither keeps
    nor logs.
    """

    @property
    def name(self) -> str:
        """What settings and the doctor call it."""
        ...

    @property
    def outside(self) -> bool:
        """Whether texts leave this machine: then they must be fit for a model."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, in order, all of one length. It may be cancelled while it waits.

        Raises:
            Unavailable: it does not answer, or not usably.
        """
        ...


@runtime_checkable
class DurabilityReport(Protocol):
    """A store on a server whose own settings decide how safe is what it acknowledged."""

    async def assurances(self) -> tuple[DurabilityFinding, ...]:
        """What those settings mean, as far as the server lets us ask.

        Raises:
            Unavailable: the server does not answer.
        """
        ...


@runtime_checkable
class Preparable(Protocol):
    """A store on a server that can be had before the server answers; nothing may be asked before it is prepared."""

    async def prepare(self) -> None:
        """Look whether the server answers and holds what this release can use, or make it so.

        Raises:
            Unavailable: it does not.
        """
        ...


@runtime_checkable
class Sharded(Protocol):
    """A store that may lie on several servers, of which one can be away while the others answer."""

    @property
    def sharded(self) -> bool:
        """Whether it does."""
        ...

    @property
    def shards(self) -> frozenset[str]:
        """Which servers those are, as far as is known now."""
        ...

    def shard_of(self, scope: Scope, session_id: str) -> str:
        """Which of them keeps the session, as far as is known now."""
        ...


@runtime_checkable
class ModelChain(Protocol):
    """A model that is several: each may take its time before the next one is asked."""

    @property
    def links(self) -> int:
        """How many they are."""
        ...
