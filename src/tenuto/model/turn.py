"""A turn from begin to finish: its values, its trace, and the marks of superseded idempotency keys."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from tenuto.errors import AssistantFailed, FailureReason, Invalid, TraceNotFound
from tenuto.model.message import Draft, Message, Role, check_drafts
from tenuto.model.parameters import FinishReason
from tenuto.model.prompt import Manifest
from tenuto.model.scope import Scope
from tenuto.model.session import MAX_SEQ, Changes, NewSession, Retention, Session, Usage
from tenuto.model.values import Json, JsonObject, Value, check_id, check_int, check_json, to_text

# A session keeps the traces of its newest turns. A deletion, a reset or a truncation removes
# them; messages that are evicted under the stored cap leave their trace until a hundred turns have passed.
TRACES_KEPT: Final = 100


class ToolRun(Value, frozen=True, kw_only=True):
    """One call of a tool. `error` says what kind of failure it was, `None` when it answered; `exception` what it
    raised, for those who read traces: the model is told only that it failed.

    `start` is in milliseconds since the turn began; older traces have none. Of an output that the prompt had no room
    for, the model saw `tokens` of `uncut_tokens`; both are 0 where nothing was cut.
    """

    name: str
    arguments: JsonObject = {}
    output: Json = None
    milliseconds: float = 0.0
    error: str | None = None
    start: float | None = None
    exception: str = ""
    tokens: int = 0
    uncut_tokens: int = 0


class TraceSpan(Value, frozen=True, kw_only=True):
    """One run of a step. `start` is in milliseconds since the turn began; tokens and cost are those of a model call."""

    name: str
    start: float
    milliseconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0


class TraceOutcome(StrEnum):
    """How a turn ended: with an answer, with one that had to do without something, stopped by a user, or failed."""

    ANSWERED = "answered"
    DEGRADED = "degraded"
    STOPPED = "stopped"
    FAILED = "failed"


class Trace(Value, frozen=True, kw_only=True):
    """The record of one turn, for diagnosis.

    `speaker` is the user. `steps` are milliseconds by name, in order; `spans` are their single runs, of which older
    traces have none. `degraded` names what was not available. `error` is the code of the error that ended the turn,
    `None` if it was answered; `error_message` says it in words, and `reason` why the model failed where it did. Of a
    turn that a fallback model answered both tell of the first model. `parameters` are those that its model got, and
    `finish` says why the answer ended. `dropped_reasoning` counts the thoughts in its prompt that its model was not
    sent, since another provider made them, `dropped_items` the same of what tools of a provider did. `stopped` says
    that a user ended it, with a part of an answer or without. `data` is the structured part of the answer. `redacted`
    counts values redacted from its texts before it was stored, by type. `digest_key` names the key of the digests in
    its manifest, from which this trace's is derived: a machine's, or empty for a master key. Neither is in the store,
    so that no reader of it can confirm a guess; no answer contains the digests. `app` is the app that asked, as far as
    its preset knows it, `app_task` what it asked for beside the talk; `store_overridden` says that the turn is stored
    although the app asked that it is not.
    """

    id: str
    session_id: str
    turn_id: str
    number: int
    began_at: datetime
    assistant: str
    persona: str | None = None
    speaker: str | None = None
    request: str = ""
    answer: str = ""
    model: str = ""
    offline: bool = False
    manifest: Manifest | None = None
    tools: tuple[ToolRun, ...] = ()
    steps: dict[str, float] = {}
    spans: tuple[TraceSpan, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    dropped_reasoning: int = 0
    dropped_items: int = 0
    cost_nanos: int = 0
    finish: FinishReason = FinishReason.STOP
    parameters: JsonObject = {}
    degraded: tuple[str, ...] = ()
    error: str | None = None
    error_message: str = ""
    reason: FailureReason | None = None
    stopped: bool = False
    data: JsonObject = {}
    redacted: dict[str, int] = {}
    digest_key: str = ""
    app: str = ""
    app_task: str = ""
    store_overridden: bool = False

    def __post_init__(self) -> None:
        check_json(self.data, "a trace's data")
        for run in self.tools:
            check_json(run.arguments, "a tool's arguments")
            check_json(run.output, "a tool's output")

    @property
    def outcome(self) -> TraceOutcome:
        """How the turn ended. One that a user stopped has not failed."""
        if self.stopped:
            return TraceOutcome.STOPPED
        if self.error is not None:
            return TraceOutcome.FAILED
        return TraceOutcome.DEGRADED if self.degraded else TraceOutcome.ANSWERED

    def without_exceptions(self) -> Self:
        """The trace without what code of others raised, and without why a model fell back: both speak of the operator's
        machines, not of the talk."""
        foreign = self.error in (None, AssistantFailed.code)
        tools = tuple(replace(run, exception="") if run.exception else run for run in self.tools)
        hidden = replace(self, error_message="") if foreign else self
        return replace(hidden, tools=tools, reason=None if self.error is None else self.reason)

    def evidence_text(self, piece: str | None) -> str | None:
        """The text of a piece of evidence in the outputs of the tools."""
        found = next((text for run in self.tools for text in _pieces_in(run.output, piece)), None)
        if found is None:
            # A tool that ran before the model and named no pieces is one itself.
            found = next((to_text(run.output) for run in self.tools if run.name == piece), None)
        return found


def _pieces_in(output: Json, piece: str | None) -> Iterator[str]:
    """The texts of a piece of evidence of that id in what a tool answered."""
    inside: list[Json] = [output]
    while inside:
        value = inside.pop()
        if isinstance(value, Mapping):
            if value.get("id") == piece and isinstance(text := value.get("text"), str):
                yield f"{title}: {text}" if isinstance(title := value.get("title"), str) else text
            inside += value.values()
        elif isinstance(value, list | tuple):
            inside += value


class _TraceAddress(msgspec.Struct, array_like=True):
    session_id: str
    number: int
    turn_id: str


TRACE_ID_START: Final = "Wy"
"""The encoded `["` that every trace id begins with."""


def trace_id(session_id: str, number: int, turn_id: str) -> str:
    """A trace id contains its location, so that no index is needed; it carries no authority."""
    return urlsafe_b64encode(msgspec.json.encode(_TraceAddress(session_id, number, turn_id))).rstrip(b"=").decode()


def is_trace_id(text: str) -> bool:
    """Whether a text is nothing but a trace id."""
    try:
        address = _decode_address(text)
    except (ValueError, RecursionError):
        return False
    return text == trace_id(address.session_id, address.number, address.turn_id)


def place_of(asked: str) -> tuple[str, int]:
    """The session and the turn's number in a trace id.

    Raises:
        TraceNotFound: it is no trace id.
    """
    try:
        address = _decode_address(asked)
        check_id(address.session_id, "the session id")
    except (ValueError, RecursionError, Invalid):
        raise TraceNotFound from None
    if not 1 <= address.number < 2**53:
        raise TraceNotFound
    return address.session_id, address.number


def turn_id_of(trace: str) -> str:
    """The id of the turn in a trace id that `place_of` has accepted."""
    return _decode_address(trace).turn_id


def _decode_address(text: str) -> _TraceAddress:
    raw = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
    return msgspec.json.decode(raw, type=_TraceAddress)


MAX_WINDOW = 10_000
MAX_LEASE = timedelta(days=7)
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Producer(Value, frozen=True, kw_only=True):
    """A writer that numbers what it sends, such as an offline journal: 1, 2, 3 ... per session."""

    id: str
    seq: int

    def __post_init__(self) -> None:
        check_id(self.id, "the producer id")
        if not 1 <= self.seq < 2**53:
            raise Invalid("a producer's sequence number is below 1 or too large")


class IdempotencyKey(Value, frozen=True, kw_only=True):
    """The client's key for a write that must happen once, and a fingerprint of the body.

    A session remembers the keys of its last 1,000 keyed writes.
    """

    key: str
    fingerprint: str

    def __post_init__(self) -> None:
        check_id(self.key, "the idempotency key")
        check_id(self.fingerprint, "the fingerprint")


KEYS_REMEMBERED = 1000


class BeginTurn(Value, frozen=True, kw_only=True):
    """How a turn begins.

    With `create` an absent session is made; without, it is `SessionNotFound`. `window` is how many of the newest
    messages come back, those of the user included. `user_messages` may be empty, as when an answer is made anew. A
    `producer` number that came before leaves the messages out, since they are stored. Where it is
    `journaled`, a local journal may acknowledge the turn while the store does not answer; a session that is created
    then needs a `new_id`, one that was made for this request and that no other caller can know.
    """

    session_id: str
    turn_id: str
    user_messages: tuple[Draft, ...] = ()
    create: NewSession | None = None
    lease: timedelta = timedelta(minutes=2)
    window: int = 20
    idempotency_key: IdempotencyKey | None = None
    producer: Producer | None = None
    journaled: bool = False
    new_id: bool = False

    def __post_init__(self) -> None:
        check_id(self.session_id, "the session id")
        check_id(self.turn_id, "the turn id")
        check_drafts(self.user_messages)
        if not timedelta(0) < self.lease <= MAX_LEASE:
            raise Invalid(f"a lease is longer than zero and no longer than {MAX_LEASE.days} days")
        check_int(self.window, 0, MAX_WINDOW, "the window")


class TurnState(StrEnum):
    """The state of a turn when it was requested: begun now, begun before and unfinished, or finished before."""

    OPENED = "opened"
    RESUMED = "resumed"
    FINISHED = "finished"


class RunningTurn(Value, frozen=True, kw_only=True):
    """The turn that holds a session: its id, its number and that session's incarnation, and until when, unless it
    renews that. A process that is gone leaves its turn behind."""

    id: str
    number: int
    incarnation: str
    until: datetime


class OpenTurn(Value, frozen=True, kw_only=True):
    """A turn that has begun, and the inputs of its prompt.

    `number` is the turn's place in its session; `session.version`, which only grows, is a fencing token for outside
    effects. If `state` is `finished`, this idempotency key was answered before: `reply` is the answer and there is
    nothing to finish. `last_active_at` is the last change of the session before this turn, `None` for a new one.
    `expired` says that an expired session of this id was replaced, `journaled` that the store is unavailable and a
    journal holds the turn. `stale_before` is the first message that is context if what precedes it is stale, else 0;
    `finish` stores it. `summary` stands in for messages before the window that a summary covers, up to
    `summarized_through`. `cut` are the ids of messages that the window holds in part, `live_ids` those of messages that
    are stored redacted and stand here as they were sent.
    """

    id: str
    number: int
    scope: Scope
    session: Session
    state: TurnState
    user_messages: tuple[Message, ...]
    window: tuple[Message, ...]
    reply: tuple[Message, ...] = ()
    lease: timedelta = timedelta(minutes=2)
    lease_until: datetime | None = None
    created: bool = False
    expired: bool = False
    last_active_at: datetime | None = None
    journaled: bool = False
    stale_before: int = 0
    summary: str = ""
    summarized_through: int = 0
    cut: tuple[str, ...] = ()
    live_ids: tuple[str, ...] = ()

    @property
    def context_start(self) -> int:
        """The first message that is context."""
        return max(self.session.window_start, self.stale_before)

    @classmethod
    def named(
        cls,
        scope: Scope,
        session_id: str,
        incarnation: str,
        turn_id: str,
        number: int = 1,
        lease: timedelta = timedelta(minutes=2),
    ) -> Self:
        """An open turn of which only the ids are known; to renew and finish it, no store asks for more."""
        session = Session(
            id=session_id,
            scope=scope,
            incarnation=incarnation,
            created_at=_NEVER,
            updated_at=_NEVER,
            expires_at=None,
            retention=Retention(),
            version=0,
        )
        return cls(
            id=turn_id,
            number=number,
            scope=scope,
            session=session,
            state=TurnState.OPENED,
            user_messages=(),
            window=(),
            lease=lease,
        )


class FinishTurn(Value, frozen=True, kw_only=True):
    """The end of a turn. `abandoned` releases the lease without an answer; a retry then resumes the turn.

    The `trace` is stored under the turn's number; a later one of the same turn replaces it.
    """

    reply: tuple[Draft, ...] = ()
    usage: Usage = Usage()
    changes: Changes | None = None
    trace: Trace | None = None
    producer: Producer | None = None
    abandoned: bool = False

    def __post_init__(self) -> None:
        check_drafts(self.reply)
        if self.abandoned and self.reply:
            raise Invalid("an abandoned turn has no reply")
        if self.changes is not None and self.changes.if_version is not None:
            raise Invalid("a turn's changes take no if_version: the lease guards them")


class AppendBatch(Value, frozen=True, kw_only=True):
    """Messages to append outside a turn. Without `usage` their tokens count.

    A user message after a message of another role begins a new turn (`turn_offsets`). Where it is `journaled`, a local
    journal may acknowledge it while the store does not answer.
    """

    id: str
    messages: tuple[Draft, ...] = ()
    usage: Usage | None = None
    create: NewSession | None = None
    idempotency_key: IdempotencyKey | None = None
    producer: Producer | None = None
    journaled: bool = False

    def __post_init__(self) -> None:
        check_id(self.id, "the batch id")
        check_drafts(self.messages)
        if self.idempotency_key is not None and self.producer is not None:
            raise Invalid("a batch is guarded by a key or by a producer's number, not by both")
        # Refuse an overflow here: a store would fail in the middle of its write.
        _ = self.total_usage

    @property
    def total_usage(self) -> Usage:
        """What is added to the session's totals."""
        return self.usage or Usage(tokens=sum(message.tokens for message in self.messages))


def turn_offsets(drafts: Sequence[Draft]) -> list[int]:
    """The turn of each message of a batch, from 0: a turn begins with the next user message after another role."""
    offsets: list[int] = []
    turn = 0
    before: Role | None = None
    for draft in drafts:
        if draft.role is Role.USER and before is not None and before is not Role.USER:
            turn += 1
        offsets.append(turn)
        before = draft.role
    return offsets


def history_length(drafts: Sequence[Draft]) -> int:
    """How many messages of a request are history: those up to the last answer that something follows.

    An answer at the end, begun by the caller, belongs to what is to be answered.
    """
    end = max((place + 1 for place, draft in enumerate(drafts) if draft.role is not Role.ASSISTANT), default=0)
    return max((place + 1 for place, draft in enumerate(drafts[:end]) if draft.role is Role.ASSISTANT), default=0)


def offsets_of_input(drafts: Sequence[Draft]) -> list[int]:
    """The turn of each message of a request, from 0: its history has turns of its own, and the rest is the last."""
    before = history_length(drafts)
    if not before:
        return [0] * len(drafts)
    offsets = turn_offsets(drafts[:before])
    return [*offsets, *[offsets[-1] + 1] * (len(drafts) - before)]


class AppendResult(Value, frozen=True, kw_only=True):
    """The result of an append, or of a turn's reply.

    A `duplicate` stored nothing: its key or number was used before. `messages` are then those of the first time, if
    the key is still remembered. `trace` is the turn's as stored, if a policy redacted it. `journaled` says that a
    journal holds them until the store is back.
    """

    session: Session
    messages: tuple[Message, ...] = ()
    trace: Trace | None = None
    duplicate: bool = False
    created: bool = False
    expired: bool = False
    journaled: bool = False


class Page(Value, frozen=True, kw_only=True):
    """Which messages: the newest, or those next `before` or `after` a sequence number.

    Without `touch` the read is not a use of the session: its deadline stays.
    """

    limit: int = 50
    before: int | None = None
    after: int | None = None
    touch: bool = True

    def __post_init__(self) -> None:
        check_int(self.limit, 1, MAX_WINDOW, "limit")
        if self.before is not None and self.after is not None:
            raise Invalid("a page lies before or after a message, not both")
        for seq in (self.before, self.after):
            if seq is not None:
                check_int(seq, 0, MAX_SEQ, "a sequence number")


class MessagePage(Value, frozen=True, kw_only=True):
    """Messages, oldest first, and whether there are more on either side."""

    session: Session
    messages: tuple[Message, ...]
    more_before: bool
    more_after: bool


class Truncation(Value, frozen=True, kw_only=True):
    """A truncation: removes the messages after a sequence number, except those numbered in `keep_seqs`.

    With `if_version` it applies to that version of the session only. `within_turn` is the turn that truncates before
    its own reply.
    """

    after: int
    if_version: int | None = None
    keep_seqs: tuple[int, ...] = ()
    within_turn: OpenTurn | None = None

    def __post_init__(self) -> None:
        check_int(self.after, 0, MAX_SEQ, "a sequence number")
        for seq in self.keep_seqs:
            check_int(seq, 0, 2**63 - 1, "a sequence number")
        if self.if_version is not None:
            check_int(self.if_version, 0, MAX_SEQ, "a version")


class Rewrite(Value, frozen=True, kw_only=True):
    """Replacements of stored messages and traces, found by their ids; with `if_version` on that version only."""

    messages: tuple[Message, ...] = ()
    traces: tuple[Trace, ...] = ()
    if_version: int | None = None

    def __post_init__(self) -> None:
        check_drafts(self.messages)


TAKEN_BACK: Final = "taken_back"
"""The key of a session's metadata that holds the digests of superseded idempotency keys."""

ONCE: Final = "once"
"""The key of a message's metadata that holds the digest of its idempotency key."""


JOURNALED_AFTER: Final = "journaled_after"
"""The key of a message's metadata that holds the last sequence number its process knew when it journaled the turn."""


def order_by_place(messages: Iterable[Message]) -> list[Message]:
    """Messages with journaled turns where they belong: another process may have gone on before they were stored."""
    messages = list(messages)
    places = {said.turn: said.metadata[JOURNALED_AFTER] for said in messages if JOURNALED_AFTER in said.metadata}

    def place(said: Message) -> tuple[int, bool, int]:
        after = places.get(said.turn)
        if not isinstance(after, int) or after >= said.seq:
            return said.seq, False, said.seq
        return after, True, said.seq

    return sorted(messages, key=place)


def superseded_digests(session_metadata: JsonObject) -> list[str]:
    """The digests of superseded keys in a session, oldest first."""
    noted = session_metadata.get(TAKEN_BACK)
    return [mark for mark in noted if isinstance(mark, str)] if isinstance(noted, list) else []


def is_superseded(session_metadata: JsonObject, messages: Iterable[Draft]) -> bool:
    """Whether these messages come under a superseded key."""
    digests = superseded_digests(session_metadata)
    return bool(digests) and any(message.metadata.get(ONCE) in digests for message in messages)
