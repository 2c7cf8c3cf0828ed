"""A session as the rules see it: a frozen record, and what one step makes of it.

A record is never changed in place: rules return another one. What changes with every turn stands in `Head` (about a
hundred bytes when stored), what seldom changes in `Profile`. Of the log a record holds the newest messages, its
`tail`; a rule that needs others raises `MessagesMissing`, and is run again on a record that has them.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime
from operator import attrgetter
from typing import Final, Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.errors import Invalid
from tenuto.model import Content, ForkPoint, Message, Retention, Scope, Session, Status
from tenuto.model.scope import KEY_BYTES
from tenuto.model.stored import Totals
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject, Value
from tenuto.stores.encoding import Undecodable

Answer = TypeVar("Answer")
_Decoded = TypeVar("_Decoded")
Span = tuple[int, int]
"""A range of sequence numbers, both ends included; empty if the last is below the first."""

EMPTY: Final[Span] = (0, -1)
TAIL: Final = 64
"""How many messages a record holds unless a caller asks for more."""
WIDEST_TAIL: Final = 1000
_seq: Final = attrgetter("seq")


class Lease(Value, frozen=True, kw_only=True, array_like=True):
    """The turn that holds the session, until when, its number, and the digest of the idempotency key it came with.

    Where the turn may be `journaled`, so may its end. A journaled turn can be stored under another number than its
    caller was told.
    """

    turn_id: str
    until: datetime
    number: int
    key: bytes | None = None
    journaled: bool = False


def decode(decoder: msgspec.msgpack.Decoder[_Decoded], plain: bytes, what: str) -> _Decoded:
    """What stored MessagePack says.

    Raises:
        Undecodable: it is corrupt.
    """
    try:
        return decoder.decode(plain)
    except (ValueError, TypeError, RecursionError, Invalid) as exc:
        raise Undecodable(what) from exc


class KeyedWrite(Value, frozen=True, kw_only=True, array_like=True):
    """A write that came with an idempotency key: what it stored, and whether it is complete.

    `key` and `fingerprint` are digests; `input_span` and `reply_span` are the spans of its messages.
    """

    key: bytes
    fingerprint: bytes
    turn_id: str
    number: int
    input_span: Span
    reply_span: Span = EMPTY
    finished: bool = False


class KeyPage(Value, frozen=True, kw_only=True):
    """Keyed writes that left the head, packed: a record in use holds up to a thousand, and few are looked at.

    A page has a number of its own, so that no two are stored in one place. `keys` are those of its writes in a row.
    """

    number: int
    keys: bytes
    packed: bytes

    @classmethod
    def of(cls, number: int, writes: tuple[KeyedWrite, ...]) -> Self:
        """The page of these writes."""
        return cls(number=number, keys=b"".join([write.key for write in writes]), packed=_pack(writes))

    @property
    def writes(self) -> tuple[KeyedWrite, ...]:
        """Its writes, oldest first.

        Raises:
            Undecodable: the record is corrupt.
        """
        return decode(_writes, self.packed, "keys")

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.keys) // KEY_BYTES


_pack: Final = msgspec.msgpack.Encoder().encode
_writes: Final = msgspec.msgpack.Decoder(tuple[KeyedWrite, ...])


class Head(Value, frozen=True, kw_only=True, array_like=True):
    """What changes with a turn.

    `stored_spans` are the spans of stored sequence numbers: a truncation or a reset leaves a gap, since numbers are
    never used twice. `stored_from` is the first message that may still lie in the store: evicted ones are removed in
    batches. `expires_at` is also a column, which a touch moves alone: that of the column counts. `turn_starts` pairs
    each kept turn that is higher than those before it with its first message; `None` where no cap of turns needs it.
    `keys` are the newest keyed writes; pages numbered from `first_page` to before `next_page` hold older ones, and the
    oldest `forgotten` writes of the first page count no more. `edition` grows when stored messages or pages change
    other than by appending: only then does what another process holds of them become wrong. `writers` are the processes
    that committed last, each with the number of its last commit, so that a commit whose answer was lost can be found.
    `indexed` is the span of messages by whose words, and those of the title, the session is found; `None` where it is
    found by none and has the mark of those to be indexed, `EMPTY` where it has no mark either.
    """

    version: int
    updated_at: datetime
    expires_at: datetime | None
    turns: int = 0
    last_seq: int = 0
    window_start: int = 1
    tokens: int = 0
    cost_nanos: int = 0
    stored_spans: tuple[Span, ...] = ()
    stored_from: int = 1
    turn_starts: tuple[tuple[int, int], ...] | None = None
    lease: Lease | None = None
    closed: str | None = None
    keys: tuple[KeyedWrite, ...] = ()
    first_page: int = 0
    next_page: int = 0
    forgotten: int = 0
    edition: int = 0
    listed_at: datetime | None = None
    writers: tuple[tuple[int, int], ...] = ()
    indexed: Span | None = None

    @property
    def is_indexed(self) -> bool:
        """Whether the session is found by all of its words."""
        return self.indexed is not None and self.indexed[1] == self.last_seq


class StoredAttachment(Value, frozen=True, kw_only=True, array_like=True):
    """An attachment beside the messages: the number of its entry, and the messages that show it, in order."""

    id: str
    number: int
    media_type: str
    size: int
    seqs: tuple[int, ...]
    name: str = ""


class Profile(Value, frozen=True, kw_only=True):
    """What seldom changes. `origins` are the sessions a fork has messages from, nearest first, each up to a number of a
    message; its ancestors of which it has none are not among them.

    `attachments` are those that messages show, in the order in which they came.
    """

    id: str
    scope: Scope
    incarnation: str
    created_at: datetime
    retention: Retention
    title: str = ""
    status: Status = Status.ACTIVE
    context: JsonObject = {}
    attributes: JsonObject = {}
    metadata: JsonObject = {}
    forked_from: ForkPoint | None = None
    origins: tuple[tuple[str, int], ...] = ()
    attachments: tuple[StoredAttachment, ...] = ()


class Fetched(Value, frozen=True, kw_only=True):
    """What was read for one step beside the tail: all messages stored in some spans, and traces by their numbers."""

    spans: tuple[tuple[Span, tuple[Message, ...]], ...] = ()
    trace_numbers: frozenset[int] = frozenset()
    traces: tuple[Trace, ...] = ()


class MessagesMissing(Exception):
    """The rule needs the messages of a span that the record does not hold."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"messages {first} to {last}")
        self.span = (first, last)


class TracesMissing(Exception):
    """The rule needs traces."""

    def __init__(self, numbers: frozenset[int]) -> None:
        super().__init__("traces")
        self.numbers = numbers


class Record(Value, frozen=True, kw_only=True):
    """A session at one revision. `tail` holds every stored message from `tail_from` on; `reach` is how many it shall.

    `revision` counts every commit and is compared by the store; the public `version` counts what callers may see. One
    that `keeps_deadline` is read where nothing can be written. `contents` are the bytes of new attachments, until they
    are stored.
    """

    head: Head
    profile: Profile
    revision: int = 0
    tail: tuple[Message, ...] = ()
    tail_from: int = 1
    reach: int = TAIL
    pages: tuple[KeyPage, ...] = ()
    producers: tuple[tuple[bytes, int], ...] = ()
    fetched: Fetched = Fetched()
    keeps_deadline: bool = False
    contents: tuple[Content, ...] = ()

    @property
    def messages(self) -> int:
        """How many messages are stored."""
        return count(self.head.stored_spans)

    @property
    def first_seq(self) -> int:
        """The oldest stored message, or the next one's number if there is none."""
        return self.head.stored_spans[0][0] if self.head.stored_spans else self.head.last_seq + 1

    @property
    def totals(self) -> Totals:
        """What it adds to the sums of its owner and site."""
        head, attachments = self.head, self.profile.attachments
        totals = Totals(sessions=1, messages=count(head.stored_spans), tokens=head.tokens, cost_nanos=head.cost_nanos)
        if attachments:
            size = sum([one.size for one in attachments])
            totals = replace(totals, attachments=len(attachments), attachment_bytes=size)
        return totals

    @property
    def session(self) -> Session:
        """The public value."""
        head, profile = self.head, self.profile
        return Session(
            id=profile.id,
            scope=profile.scope,
            incarnation=profile.incarnation,
            created_at=profile.created_at,
            updated_at=head.updated_at,
            expires_at=head.expires_at,
            retention=profile.retention,
            version=head.version,
            title=profile.title,
            status=profile.status,
            context=profile.context,
            attributes=profile.attributes,
            metadata=profile.metadata,
            turns=head.turns,
            messages=count(head.stored_spans),
            last_seq=head.last_seq,
            window_start=head.window_start,
            tokens=head.tokens,
            cost_nanos=head.cost_nanos,
            forked_from=profile.forked_from,
        )

    def expired(self, now: datetime) -> bool:
        """Whether its retention is over."""
        expires_at = self.head.expires_at
        return expires_at is not None and expires_at <= now

    def is_same_session(self, other: Record) -> bool:
        """Whether the other is this session at another revision, and not another session of this id."""
        profile, others = self.profile, other.profile
        return profile.incarnation == others.incarnation and profile.created_at == others.created_at

    def between(self, span: Span) -> tuple[Message, ...]:
        """The stored messages of a span.

        Raises:
            MessagesMissing: the record does not hold them.
        """
        first, last = max(span[0], self.first_seq), min(span[1], self.head.last_seq)
        if last < first or not overlaps(self.head.stored_spans, first, last):
            return ()
        if first >= self.tail_from:
            return slice_messages(self.tail, first, last)
        older = min(last, self.tail_from - 1)
        return self._older(first, older) + slice_messages(self.tail, first, last)

    def _older(self, first: int, last: int) -> tuple[Message, ...]:
        for span, messages in self.fetched.spans:
            if span[0] <= first and last <= span[1]:
                return slice_messages(messages, first, last)
        if overlaps(self.head.stored_spans, first, last):
            raise MessagesMissing(first, last)
        return ()

    def trace(self, number: int) -> Trace | None:
        """A stored trace.

        Raises:
            TracesMissing: it was not read.
        """
        if number not in self.fetched.trace_numbers:
            raise TracesMissing(frozenset((number,)))
        return next((trace for trace in self.fetched.traces if trace.number == number), None)


class Indexed(Value, frozen=True, kw_only=True):
    """Terms by which a session is found from now on: besides others, or (`anew`) in place of all."""

    terms: frozenset[str]
    anew: bool


class Step(Value, Generic[Answer], frozen=True, kw_only=True):
    """What a rule decided: the answer, and the record afterwards; `None` if it is gone.

    Without `changed` nothing is to be stored. A `created` record takes the place of all that its key had. `added` are
    appended messages in order, `rewritten` are stored ones with other words. `truncated` is a number after which
    messages are removed, but for those in `spared`. `traces` are stored under their turns' numbers; all up to
    `traces_through` and from `traces_from` on are removed. A read that `touched` the session moved its deadline, which
    is no change. `indexed` are terms of stored messages, to find the session by.
    """

    record: Record | None
    answer: Answer
    changed: bool = True
    created: bool = False
    added: tuple[Message, ...] = ()
    rewritten: tuple[Message, ...] = ()
    truncated: int | None = None
    spared: tuple[int, ...] = ()
    traces: tuple[tuple[int, Trace], ...] = ()
    traces_through: int | None = None
    traces_from: int | None = None
    touched: bool = False
    indexed: Indexed | None = None


def first_index(messages: tuple[Message, ...], seq: int) -> int:
    """The index of a sequence number, or where it would be."""
    return bisect_left(messages, seq, key=_seq)


def slice_messages(messages: tuple[Message, ...], first: int, last: int) -> tuple[Message, ...]:
    """The messages numbered `first` to `last`."""
    return messages[first_index(messages, first) : first_index(messages, last + 1)]


def with_tail(record: Record, tail: tuple[Message, ...], tail_from: int, head: Head | None = None) -> Record:
    """The record with another tail, no longer than its `reach`, and perhaps another head."""
    if len(tail) > record.reach:
        tail = tail[-record.reach :]
        tail_from = tail[0].seq
    return replace(record, tail=tail, tail_from=tail_from, head=head or record.head)


# Spans of stored sequence numbers


def count(spans: tuple[Span, ...]) -> int:
    """How many numbers are stored."""
    if len(spans) == 1:
        return spans[0][1] - spans[0][0] + 1
    return sum([last - first + 1 for first, last in spans])


def rank(spans: tuple[Span, ...], seq: int) -> int:
    """How many stored numbers lie below one."""
    return sum([min(last, seq - 1) - first + 1 for first, last in spans if first < seq])


def numbers(spans: tuple[Span, ...], first: int, last: int) -> list[int]:
    """The stored numbers from `first` to `last`, in order."""
    return [seq for span in spans for seq in range(max(span[0], first), min(span[1], last) + 1)]


def overlaps(spans: tuple[Span, ...], first: int, last: int) -> bool:
    """Whether any number of a span is stored."""
    return any(span[0] <= last and first <= span[1] for span in spans)


def add_span(spans: tuple[Span, ...], first: int, last: int) -> tuple[Span, ...]:
    """The spans with the newest numbers added."""
    if last < first:
        return spans
    if spans and spans[-1][1] + 1 == first:
        return (*spans[:-1], (spans[-1][0], last))
    return (*spans, (first, last))


def drop_before(spans: tuple[Span, ...], seq: int) -> tuple[Span, ...]:
    """The spans from a number on."""
    return tuple([(max(first, seq), last) for first, last in spans if last >= seq])


def nth(spans: tuple[Span, ...], n: int) -> int:
    """The stored number that `n` others precede."""
    for first, last in spans:
        if n <= last - first:
            return first + n
        n -= last - first + 1
    raise IndexError(n)


def last_of(spans: tuple[Span, ...], n: int) -> list[int]:
    """The newest `n` stored numbers, in order."""
    newest = list[int]()
    for first, last in reversed(spans):
        if len(newest) >= n:
            break
        newest[:0] = range(max(first, last - (n - len(newest)) + 1), last + 1)
    return newest


def cut_after(spans: tuple[Span, ...], after: int, spared: tuple[int, ...]) -> tuple[Span, ...]:
    """The spans without the numbers after one, but for those spared."""
    left = tuple([(first, min(last, after)) for first, last in spans if first <= after])
    for seq in sorted(spared):
        if seq > after and overlaps(spans, seq, seq) and not (left and left[-1][1] >= seq):
            left = add_span(left, seq, seq)
    return left
