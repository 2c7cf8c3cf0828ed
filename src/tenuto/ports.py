"""The ports: every protocol between the rooms and the outside."""

from __future__ import annotations

import logging
from asyncio import Future
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
    StateChange,
    StateEntry,
    StateLocation,
    Truncation,
    TurnState,
)
from tenuto.model.channel import ChatLine, Delivery, Incoming, IncomingMessage
from tenuto.model.generation import ModelEvent, ModelRequest, ToolContext, ToolOutput, ToolSpec, TurnEnded
from tenuto.model.plan import Plan, TaskProgress
from tenuto.model.policy import SessionPolicy
from tenuto.model.privacy import PiiMatch
from tenuto.model.store_reports import DurabilityFinding
from tenuto.model.stored import (
    AsideRecords,
    EntryPage,
    FoundRecord,
    IndexColumns,
    IndexQuery,
    Known,
    Part,
    RecordChange,
    Refused,
    StoredRecord,
    Totals,
)
from tenuto.model.task import NewTask, Task, TaskPage, TaskQuery
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
    """Stores sessions and their messages.

    Outside `scope` a session does not exist: methods raise `SessionNotFound` for absent, foreign, expired, deleted
    and corrupt alike. Each method is one atomic step: all of it is stored when it returns, or nothing. Messages
    come back oldest first. The cost of an append does not depend on the length of the log.

    A record that cannot be decoded is quarantined, not deleted, and the call that met it raises `SessionCorrupt`, also
    if it might create a session; for the next call the id is free.

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
        """Remove the session with its messages and traces."""
        ...


async def release_lease(finish: Callable[[OpenTurn, FinishTurn], Awaitable[AppendResult]], turn: OpenTurn) -> None:
    """Abandon a turn through `finish`; if that fails, the lease expires on its own."""
    if turn.state is TurnState.FINISHED:
        return
    try:
        await finish(turn, FinishTurn(abandoned=True))
    except TenutoError as failed:
        _log.info("could not release the lease of a turn: %s", failed.code)


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


class StateStore(Protocol):
    """Stores small JSON values by scope, namespace and key: API keys, preferences, state of other frameworks.

    A tenant's own state is not its users' state. Keys are ordered by code points.
    """

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        """One value, `None` if there is none."""
        ...

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        """Set a value; versions count from 1, and `if_version=0` requires that there is none yet.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        ...

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        """Remove a value; returns whether there was one.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        ...

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        """The values of these keys at one moment and in their order, `None` for each that is absent."""
        ...

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        """Set and remove values in one atomic step, all or none.

        Returns for each change in order the version of the new value; for a removal 1 if there was a value, else 0.

        Raises:
            VersionConflict: an `if_version` is not the stored version.
            Invalid: two changes are of the same key.
        """
        ...

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        """Values in order of their keys, after the key `after`."""
        ...

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        """The keys alone, in the same order; also those of values that cannot be decoded."""
        ...

    async def list_state_locations(
        self, scope: Scope, after: StateLocation | None = None, limit: int = 100
    ) -> tuple[StateLocation, ...]:
        """Locations of values of users and chats that the scope reaches, in any namespace and in a stable order.

        Without the tenant's own state and names that cannot be decoded. A page that is not full is the last one.
        """
        ...


class StoreUpkeep(Protocol):
    """Maintenance of a store, off the request path."""

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        """Remove up to `limit` expired sessions of all tenants and return them."""
        ...

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        """Remove the site's least recently changed sessions beyond `keep`, of all owners.

        The session `keep_session` stays, even if a wrong clock makes it look old.
        """
        ...

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        """Remove data of the scope's user on that site: up to `limit` sessions, then all of the user's state.

        Also quarantined records whose owner is known. Call again until `EraseResult.more` is false.

        Raises:
            Invalid: the scope names no user.
        """
        ...

    async def list_sites(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        """The tenants' sites that hold sessions, or state of users or chats, in order of `site_key` after `after`.

        Across all tenants: for maintenance, never for a request. A page that is not full is the last one. A site whose
        sessions have all expired may be among them until it is swept.
        """
        ...

    async def compact(self) -> CompactionResult:
        """Remove deleted bytes from the files of the backend, and report what could not be removed.

        Raises:
            Unavailable: the store is busy or unavailable; a retry may succeed.
        """
        ...

    async def stats(self, scope: Scope) -> SessionStats:
        """Totals of the sessions that the scope reaches: its owner's, or all of the site for the tenant itself."""
        ...

    async def ping(self) -> None:
        """Return if the store answers.

        Raises:
            Unavailable: it does not.
        """
        ...


class Store(Protocol):
    """Four ports over the same records: a backend, or a wrapper, which replaces only the ports it changes."""

    @property
    def sessions(self) -> SessionStore:
        """Sessions and their messages."""
        ...

    @property
    def traces(self) -> TraceStore:
        """Traces of turns."""
        ...

    @property
    def state(self) -> StateStore:
        """Small JSON values."""
        ...

    @property
    def upkeep(self) -> StoreUpkeep:
        """Expiry, erasure, statistics."""
        ...


class ElsewhereFeed(Protocol):
    """Tells which sessions other processes have changed, by `session_key`; `None` means that any may have changed."""

    def watch(self, on_change: Callable[[bytes | None], None]) -> AbstractAsyncContextManager[None]:
        """While open, call `on_change` with each session; a change of this process may be told as well."""
        ...

    def look(self) -> None:
        """Tell, without waiting, what has arrived: some backends tell only when they are asked."""
        ...


class CacheCounts(Protocol):
    """What the session cache tells: sessions (`len`), approximate bytes, reads that it answered and passed on."""

    hits: int
    misses: int

    @property
    def held_bytes(self) -> int: ...

    def __len__(self) -> int: ...


class RecordStore(Protocol):
    """Stores records: bytes, a revision to compare, and index columns. Everything else is decided above.

    A load is of one moment. A commit is made as a whole or not at all, and after that every load and list shows it.
    Each call ends within the deadline of the backend. A call that raises `Unavailable` may be carried out later, except
    for `CircuitOpen`, `StoreRejected`, `StoreFull` and `StoreReadOnly`. Calls that return a future are sent before they
    return, and cancelling the future changes nothing.
    """

    @property
    def feed(self) -> RecordFeed | None:
        """Reports changes by other processes; `None` if no other process can access the records."""
        ...

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        """A record with its newest messages, at most `tail`; with `known` without those the caller holds."""
        ...

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        """Make all changes, or none if a record is at another revision than expected.

        All are of one site, and their keys begin with the same `KEY_GROUP` bytes.
        """
        ...

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> Future[EntryPage]:
        """Entries numbered `first` to `last` in order; with a negative `limit` the last ones, still in order.

        They are of one moment, that of the revision in the answer.
        """
        ...

    def touch(self, key: bytes, deadline: int) -> Future[None]:
        """Move a record's deadline to this one if that is later. The revision stays, and no feed reports it."""
        ...

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        """Records without messages; those whose keys begin with the same `KEY_GROUP` bytes at one moment."""
        ...

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        """Records by their index columns; one that is changed meanwhile may be missing."""
        ...

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        """The sums over the sessions of a site, or of one owner there, that have not expired."""
        ...

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        """Owners' scopes, one for each site that holds sessions or named values, in order of `space`."""
        ...

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        """All records of all tenants in order of their keys, to copy a store; never for a request."""
        ...

    async def list_aside(self) -> tuple[IndexColumns, ...]:
        """The columns of all records of all tenants that were set aside as unreadable; never for a request."""
        ...

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        """Remove the records of an owner that were set aside as unreadable, and count them."""
        ...

    async def compact(self) -> CompactionResult:
        """Remove deleted bytes from the files of the backend, and report what could not be removed."""
        ...

    async def ping(self) -> None:
        """Return if the store answers.

        Raises:
            Unavailable: it does not.
        """
        ...

    async def close(self) -> None:
        """Release files and connections."""
        ...


class RecordFeed(Protocol):
    """Reports changes of records, with the revision that a change led to; 0 for a removal.

    `UNKNOWN_REVISION` is reported for either where the feed does not know it. Several changes of a record may be told
    as one, own ones as well, and late; a removal is always told. A cache drops a record only if it knows an older
    revision, so it need not know whose a change was.
    """

    def caught_up(self) -> bool:
        """Report, without waiting, all changes acknowledged anywhere up to now; false if some may be missing."""
        ...

    def watch(self, on_change: Callable[[bytes | None, int], None]) -> AbstractAsyncContextManager[None]:
        """While open, call `on_change` with each key and revision; `None` means that anything may have changed."""
        ...


class TaskEngine(Protocol):
    """Runs the plans of tasks, on any number of workers.

    Outside `scope` a task does not exist (`TaskNotFound`). Each step's end is stored once: a step that has ended is not
    run again, whatever dies. A step that was running when its worker died is run again by another one, so what an
    agent does elsewhere must carry the step's key as idempotency key. What became of a task can be read without the
    engine.
    """

    async def submit(self, scope: Scope, new: NewTask, plan: Plan, *, idempotency_key: str | None = None) -> Task:
        """Open a task and begin its plan; it goes on without the caller. A repeated key returns the same task.

        Raises:
            PlanInvalid: the plan cannot run.
            AgentNotFound: it names an unknown agent.
        """
        ...

    async def cancel(self, scope: Scope, task_id: str) -> Task:
        """End a task as failed, with the code `task_cancelled`; running agents are cancelled within seconds.

        Raises:
            TaskFinished: it has ended in another way before.
        """
        ...

    async def stop(self, scope: Scope, task_id: str) -> None:
        """Cancel the agents that work on a task whose end or removal is stored already."""
        ...

    async def resume(self, scope: Scope, task_id: str, *, from_step: str | None = None) -> Task:
        """Run a failed task again from its failed steps on, or any ended one from a step on with all that follow it.

        Raises:
            TaskRunning: the task has not ended.
            StepNotFound: its plan has no such step.
        """
        ...

    async def answer(self, scope: Scope, task_id: str, step_id: str, value: Json) -> TaskProgress:
        """Answer a human-input step; the task goes on. The same answer again has no effect.

        Raises:
            StepNotWaiting: the step does not wait for a person.
        """
        ...

    async def complete_step(
        self, scope: Scope, task_id: str, step_id: str, *, agent: str, output: Json
    ) -> TaskProgress:
        """End a remote step with its output, in the name of its agent; the task goes on. The same output again has no
        effect.

        Raises:
            StepNotWaiting: the step is no remote one of this agent, has not begun or has ended.
            TooLarge: the output is above the limit.
        """
        ...

    async def fail_step(
        self, scope: Scope, task_id: str, step_id: str, *, agent: str, code: str, attempt: int | None = None
    ) -> TaskProgress:
        """Report a failure of a remote step; it waits on while it has retries. With the number of the `attempt`, the
        same report again has no effect; without it, each report counts.

        Raises:
            StepNotWaiting: as in `complete_step`, or the attempt has not begun.
        """
        ...

    async def status(self, scope: Scope, task_id: str) -> TaskProgress:
        """A task with its plan and what became of its steps."""
        ...

    async def list(self, scope: Scope, query: TaskQuery) -> TaskPage:
        """The tasks of the scope's owner, with and without a plan."""
        ...

    async def erase(self, scope: Scope) -> int:
        """Remove all that the engine knows of an owner's tasks; returns the number of runs."""
        ...

    async def agents(self) -> frozenset[str]:
        """The names of the agents of all workers that run, here or elsewhere."""
        ...

    async def recover(self) -> int:
        """Give the tasks of dead workers to living ones now; returns their number. Workers do so by themselves."""
        ...


class Channel(Protocol):
    """An app on a chat platform: it reads what the platform delivers, and sends replies."""

    @property
    def name(self) -> str:
        """The platform, as in `Scope.channel`."""
        ...

    @property
    def app(self) -> str:
        """The app's id on its platform."""
        ...

    def verify(self, delivery: Delivery) -> None:
        """Return if the platform sent this delivery to this app, not long ago.

        Raises:
            DeliveryRefused: it did not, or nothing proves it.
        """
        ...

    async def parse(self, delivery: Delivery) -> Incoming:
        """The message of a verified delivery, and the body that acknowledges it.

        Raises:
            DeliveryRefused: it cannot be read.
            ChannelUnavailable: the platform must be asked first, and does not answer.
        """
        ...

    async def chat_context(self, message: IncomingMessage, limit: int) -> Sequence[ChatLine]:
        """The newest messages before this one that other people wrote in its group, oldest first.

        Raises:
            ChannelUnavailable: the platform does not answer.
        """
        ...

    async def reply(self, message: IncomingMessage, text: str, shown: str | None = None) -> None:
        """Answer a message, once: the same reply again has no effect. It replaces the progress that was `shown`.

        Raises:
            ReplyRefused: the message can no longer be answered.
            ChannelUnavailable: a retry may succeed.
        """
        ...

    async def has_reply(self, message: IncomingMessage) -> bool:
        """Whether the platform shows a reply of this app to a message, for when it may not recognise one any more.

        Raises:
            ChannelUnavailable: the platform does not answer.
        """
        ...

    async def show_progress(self, message: IncomingMessage, text: str, shown: str | None) -> str | None:
        """Show the answer as far as it is, in place of what was `shown`; returns the id to show the next part with.

        `None` if the platform or the settings do without.

        Raises:
            ReplyRefused: the message can no longer be answered.
            ChannelUnavailable: a retry may succeed.
        """
        ...


class Cipher(Protocol):
    """Encrypts the stored data of one tenant's site. It holds the keys it needs: no method waits.

    A sealed text opens only for its tenant and site, and only at its place.
    """

    @property
    def fresh(self) -> bool:
        """Whether the keys were just loaded: a text that names none of them names no key at all."""
        ...

    @property
    def whole(self) -> bool:
        """Whether every data key that the tenant ever had is loaded."""
        ...

    @property
    def read_at(self) -> datetime:
        """When its keys were read: another process may have added or destroyed some since."""
        ...

    def knows(self, sealed: str) -> bool:
        """Whether a text of the sealed form names a data key that the tenant has or had, loaded or not."""
        ...

    def seal(self, plain: bytes, place: Place) -> str:
        """The bytes as text that reveals only their length; equal bytes become different texts.

        Raises:
            DecryptionFailed: this cipher has no key to write with.
        """
        ...

    def open(self, sealed: str, place: Place) -> bytes:
        """Decrypt.

        Raises:
            MasterKeyMissing: the master key of its data key is missing.
            DecryptionFailed: its key is gone or unknown, or the text was changed or moved.
        """
        ...

    def digest(self, value: bytes, place: Place) -> str:
        """A digest to find the value without storing it: equal for equal values at one place.

        Raises:
            DecryptionFailed: this cipher has no key to look up with.
        """
        ...

    @property
    def can_seal(self) -> bool:
        """Whether it has a key to write with."""
        ...

    def seal_bytes(self, plain: bytes, place: Place) -> bytes:
        """As `seal`, in bytes: for whole records, a third shorter."""
        ...

    def open_bytes(self, sealed: bytes, place: Place) -> bytes:
        """As `open`, of what `seal_bytes` returned."""
        ...

    def is_current(self, sealed: bytes) -> bool:
        """Whether `seal_bytes` returned this under the data key that is in use now."""
        ...


class Ciphers(Protocol):
    """The cipher of each tenant. A tenant has its own data keys, encrypted by a master key outside the store."""

    async def cipher_for_sealing(self, scope: Scope) -> Cipher:
        """The cipher to write and to look up with; creates the tenant's first data key.

        Raises:
            DecryptionFailed: the tenant has data keys, but not the master key that opens them.
        """
        ...

    async def cipher_for_opening(self, scope: Scope, *, refresh: bool = False) -> Cipher:
        """The cipher to read with; creates no key. `refresh` reloads the keys: another process may have created one."""
        ...


class Detector(Protocol):
    """Finds private data in addition to the rules: a service, or a model that knows names and places."""

    async def find(self, scope: Scope, text: str, language: str) -> Sequence[PiiMatch]:
        """Matches in any order, overlapping or not; positions count code points and lie inside the text.

        `language` is a code of two letters. The text is neither stored nor logged.

        Raises:
            Unavailable: it does not answer, or not usably.
        """
        ...


class Tool(Protocol):
    """A tool of an assistant. It receives the turn and acts only in the turn's scope.

    The model sees the message of a `ToolError` (and of any `TenutoError`), and of other exceptions only that the tool
    failed; either way the turn goes on, and the failure is in the trace.
    """

    @property
    def spec(self) -> ToolSpec:
        """Its description for models."""
        ...

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Run it; the arguments come from a model and may be anything.

        Raises:
            Invalid: the arguments do not fit.
        """
        ...


@runtime_checkable
class OfflineTool(Protocol):
    """A tool that needs no language model: it derives its arguments from the question and renders its output.

    The offline model answers with such tools, and an assistant can run them before any model request.
    """

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """The arguments for this question; `None` if the tool does not apply. Pure."""
        ...

    def render(self, output: Json, turn: ToolContext) -> str:
        """An answer in the question's language from the output of `run`. Pure."""
        ...


class ChatModel(Protocol):
    """Answers prompts as a stream of events: text, tool calls, and one `ModelDone` at the end.

    After tool calls the caller runs them and requests again, with their results in `messages` and `results`. Closing
    the iterator cancels the answer.
    """

    @property
    def name(self) -> str:
        """Its name in settings and traces."""
        ...

    def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Answer; `tools` are those of `asking.tools`, for models that work with them directly.

        Raises:
            ModelTimeout: it took longer than its time limit.
            ModelFailed: it returned no usable answer.
        """
        ...


class Afterwards(Protocol):
    """Work after a turn: titles, summaries, and the release of a lease after an outage of the store."""

    def follow(self, ended: TurnEnded) -> None:
        """Start what is due, and return at once."""
        ...

    async def secure(self, ended: TurnEnded, *, covered: int, adding: int) -> None:
        """Wait until so many messages can be stored without evicting any that no summary covers."""
        ...

    def release(self, turn: OpenTurn, closing: FinishTurn, policy: SessionPolicy) -> None:
        """Abandon a turn as soon as the store is back, and return at once."""
        ...


class Facts(Protocol):
    """The attributes of a span."""

    def set_attributes(self, **facts: str | int | None) -> None:
        """Add ids and counts, never text."""
        ...


Span: TypeAlias = Callable[[str], AbstractContextManager[Facts]]
"""Opens a span of that name around a step, where telemetry is configured."""


class Embedder(Protocol):
    """Computes vectors that are close if texts are similar in meaning; those of one embedder can be compared.

    Texts are neither stored nor logged.
    """

    @property
    def name(self) -> str:
        """Its name in settings and in the doctor."""
        ...

    @property
    def remote(self) -> bool:
        """Whether texts leave this machine: then they are redacted as for a model."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, in order, all of one length. It may be cancelled while it waits.

        Raises:
            Unavailable: it does not answer, or not usably.
        """
        ...


@runtime_checkable
class DurabilityReport(Protocol):
    """A store on a server whose settings decide how durable acknowledged writes are."""

    async def durability_findings(self) -> tuple[DurabilityFinding, ...]:
        """What those settings mean, as far as the server reports them.

        Raises:
            Unavailable: the server does not answer.
        """
        ...


@runtime_checkable
class Versioned(Protocol):
    """A store that knows the product behind it."""

    async def product_version(self) -> str:
        """Name and version, such as `PostgreSQL 17.2`; the name alone if the server does not tell.

        Raises:
            Unavailable: the server does not answer.
        """
        ...


@runtime_checkable
class Preparable(Protocol):
    """A store that can be opened before its server answers; other calls must wait for `prepare`."""

    async def prepare(self) -> None:
        """Check that the server answers with a schema this release can use, or migrate it.

        Raises:
            Unavailable: it does not.
        """
        ...


@runtime_checkable
class ModelChain(Protocol):
    """A model with fallbacks: each may use its whole timeout before the next one is requested."""

    @property
    def chain_length(self) -> int:
        """The number of models."""
        ...
