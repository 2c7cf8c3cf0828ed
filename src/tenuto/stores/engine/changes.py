"""What a commit writes: the difference between two records, and the entries that the steps between them made.

It is computed from the whole difference and not command by command, so that commands merged into one commit are stored
as if they had come one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from tenuto.model.scope import owner_key, owner_scope, site_key
from tenuto.model.stored import (
    WORD_BYTES,
    Action,
    Drop,
    Entry,
    IndexColumns,
    Known,
    LogCopy,
    Part,
    RecordChange,
    WordChange,
)
from tenuto.model.turn import Trace
from tenuto.stores.encoding import to_micros
from tenuto.stores.engine.codec import Codec
from tenuto.stores.engine.record import EMPTY, TAIL, Record, Span, Step

LISTING_LAG: Final = timedelta(seconds=30)
"""How far `listed_at` may lie behind the last change, so that turns in a row write no index."""
EVICTION_BATCH: Final = 32
"""How many evicted messages may still lie in the store: they are removed together."""
_CACHED_MARKS: Final = 4096
WRITERS: Final = 4
"""How many writers a head names."""


def build_change(
    key: bytes, before: Record | None, after: Record | None, steps: Sequence[Step[Any]], codec: Codec,
    *, revision: int, writer: tuple[int, int], source: tuple[bytes, int] | None = None, tail: int = TAIL,
    searchable: bool = True,
) -> tuple[Record | None, RecordChange]:  # fmt: skip
    """The record as it will stand, and the change that stores it. `writer` is this process and its commit's number,
    `source` the key and revision of the record whose messages a fork copies. A refusal brings up to `tail` messages.
    Only what is `searchable` has words and marks."""
    if_revision = 0 if before is None else before.revision
    if after is None:
        remove = RecordChange(key=key, if_revision=if_revision, action=Action.REMOVE, tail=tail, known=known_of(before))
        return None, remove
    created = any(step.created for step in steps)
    base = None if created else before
    first, totals = after.first_seq, after.totals
    after = _with_bookkeeping(base, after, first, revision, writer)
    after, words = _with_words(base, after, steps, codec) if searchable else _without_words(base, after)
    change = RecordChange(
        key=key,
        if_revision=if_revision,
        revision=revision,
        head=codec.encode_head(after.head, after.profile.id),
        profile=_profile(base, after, codec),
        deadline=_deadline(base, after),
        index=_index(base, after, codec, changes_words=words is not None),
        words=words,
        totals=totals,
        replaces=created and before is not None,
        drops=_drops(base, after, steps),
        copies=None if source is None else _copy_log(after, *source),
        puts=_puts(base, after, first, steps, codec),
        tail=tail,
        known=known_of(before),
    )
    return replace(after, contents=()) if after.contents else after, change


def _copy_log(fork: Record, source: bytes, revision: int) -> LogCopy:
    """The live messages of a fork, and what they show; what the source has evicted may still be stored there."""
    attachments = tuple([one.number for one in fork.profile.attachments])
    return LogCopy(
        source=source, revision=revision, first=fork.first_seq, through=fork.head.last_seq, attachments=attachments
    )


def known_of(record: Record | None) -> Known:
    """What of a record a load need not return."""
    return Known() if record is None else Known(message=record.head.last_seq, page=record.head.next_page - 1)


def _with_bookkeeping(base: Record | None, after: Record, first: int, revision: int, writer: tuple[int, int]) -> Record:
    """The record with what storing it adds to its head."""
    head = after.head
    listed_at, stored_from = head.listed_at, head.stored_from
    if base is None or listed_at is None or head.updated_at - listed_at >= LISTING_LAG:
        listed_at = head.updated_at
    if base is None or first - stored_from >= EVICTION_BATCH or head.edition != base.head.edition:
        stored_from = first
    head = replace(head, listed_at=listed_at, stored_from=stored_from, writers=_add_writer(head.writers, writer))
    return replace(after, revision=revision, head=head)


def _add_writer(writers: tuple[tuple[int, int], ...], writer: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    if len(writers) == 1 and writers[0][0] == writer[0]:
        return (writer,)  # Nearly always.
    others = [other for other in writers if other[0] != writer[0]]
    return (writer, *others[: WRITERS - 1])


def _profile(base: Record | None, after: Record, codec: Codec) -> bytes | None:
    if base is not None and (base.profile is after.profile or base.profile == after.profile):
        return None
    return codec.encode_profile(after.profile)


def _deadline(base: Record | None, after: Record) -> Any:
    expires_at = after.head.expires_at
    if base is not None and (base.head.expires_at is expires_at or base.head.expires_at == expires_at):
        return UNSET
    return None if expires_at is None else to_micros(expires_at)


def _with_words(
    base: Record | None, after: Record, steps: Sequence[Step[Any]], codec: Codec
) -> tuple[Record, WordChange | None]:
    """The record with how far its words are indexed, and by which it is found besides or no more.

    A record has the mark of those that are to be indexed until that is done; so most commits change no words.
    """
    if base is not None and base.head.indexed is None and steps[0].indexed is None:
        return after, None  # Nearly always: it has the mark.
    head, space = after.head, site_key(after.profile.scope)
    mark = unindexed_mark(space)
    if base is None:
        return after, WordChange(added=(mark,))
    indexed = steps[0].indexed  # Such a step shares no commit.
    if indexed is not None:
        added = codec.digest_terms(sorted(indexed.terms), space)
        if head.is_indexed:
            return after, WordChange(added=added, removed=() if indexed.anew else (mark,), forgets=indexed.anew)
        return after, WordChange(added=(*added, mark) if indexed.anew else added, forgets=indexed.anew)
    if base.head.indexed == EMPTY:
        return replace(after, head=replace(head, indexed=None)), WordChange(added=(mark,))
    if base.head.indexed is not None and _loses_words(base, after, steps, base.head.indexed):
        after = replace(after, head=replace(head, indexed=None))
        return after, WordChange(added=(mark,), forgets=True)
    if base.head.is_indexed and head.last_seq > base.head.last_seq:
        return after, WordChange(added=(mark,))
    return after, None


def _without_words(base: Record | None, after: Record) -> tuple[Record, WordChange | None]:
    """The record while the search is off: its first change removes the words and the mark that it has."""
    if base is not None and base.head.indexed == EMPTY:
        return after, None  # Nearly always.
    after = replace(after, head=replace(after.head, indexed=EMPTY))
    return after, None if base is None else WordChange(forgets=True)


def _loses_words(base: Record, after: Record, steps: Sequence[Step[Any]], indexed: Span) -> bool:
    """Whether an indexed message was removed or rewritten, or the title changed. The words of what a cap evicts go when
    the session is indexed next, or with other messages."""
    first, through = indexed
    if base.profile is not after.profile and base.profile.title != after.profile.title:
        return True
    if base.head.edition != after.head.edition and first < after.first_seq:
        return True
    for step in steps:
        if step.truncated is not None and step.truncated < through:
            return True
        if step.rewritten and min([message.seq for message in step.rewritten]) <= through:
            return True
    return False


@lru_cache(maxsize=_CACHED_MARKS)
def unindexed_mark(space: bytes) -> bytes:
    """The mark of sessions with messages whose words are not indexed."""
    return blake2b(b"unindexed", digest_size=WORD_BYTES, key=space, person=b"tenuto mark").digest()


@lru_cache(maxsize=_CACHED_MARKS)
def anew_mark(space: bytes) -> bytes:
    """The mark of sessions that are to be indexed anew, whatever their heads say."""
    return blake2b(b"anew", digest_size=WORD_BYTES, key=space, person=b"tenuto mark").digest()


def _index(base: Record | None, after: Record, codec: Codec, *, changes_words: bool) -> IndexColumns | None:
    profile, listed_at = after.profile, after.head.listed_at
    assert listed_at is not None
    if base is not None and base.head.listed_at == listed_at and not changes_words:
        old = base.profile
        if old is profile or (old.status, old.title) == (profile.status, profile.title):
            return None
    return IndexColumns(
        space=site_key(profile.scope),
        owner=owner_key(profile.scope),
        scope=owner_scope(profile.scope),
        name=profile.id,
        listed_at=to_micros(listed_at),
        status=profile.status,
        title="" if codec.sealed else profile.title.casefold(),
    )


def _drops(base: Record | None, after: Record, steps: Sequence[Step[Any]]) -> tuple[Drop, ...]:
    if base is None:
        return ()
    drops = list[Drop]()
    if after.head.stored_from > base.head.stored_from:
        drops.append(Drop(part=Part.MESSAGES, last=after.head.stored_from - 1))
    for step in steps:
        if step.truncated is not None:
            drops.append(Drop(part=Part.MESSAGES, first=step.truncated + 1, keep=step.spared))
        if step.traces_through is not None and step.traces_through > 0:
            drops.append(Drop(part=Part.TRACES, last=step.traces_through))
        if step.traces_from is not None:
            drops.append(Drop(part=Part.TRACES, first=step.traces_from))
    if base.profile.attachments is not after.profile.attachments:
        numbers = _attachment_numbers(after)
        gone = [one for one in base.profile.attachments if numbers.get(one.id) != one.number]
        drops += [Drop(part=Part.ATTACHMENTS, first=one.number, last=one.number) for one in gone]
    if base.pages is not after.pages:
        kept = {page.number for page in after.pages}
        drops += [
            Drop(part=Part.KEYS, first=page.number, last=page.number) for page in base.pages if page.number not in kept
        ]
    return tuple(drops)


def _attachment_numbers(record: Record | None) -> dict[str, int]:
    return {} if record is None else {one.id: one.number for one in record.profile.attachments}


def _contents(base: Record | None, after: Record, codec: Codec) -> list[Entry]:
    """The entries of new attachments that are still shown after all steps."""
    contents, before = {content.id: content for content in after.contents}, _attachment_numbers(base)
    new = [one for one in after.profile.attachments if one.id in contents and before.get(one.id) != one.number]
    return [codec.encode_content(one.number, contents[one.id]) for one in new]


def _puts(
    base: Record | None, after: Record, first: int, steps: Sequence[Step[Any]], codec: Codec
) -> tuple[Entry, ...]:
    session_id, puts, traces = after.profile.id, list[Entry](), dict[int, Trace]()
    for step in steps:
        for message in step.rewritten or step.added:
            if message.seq >= first:
                puts.append(codec.encode_message(message, session_id))
        if step.traces:
            traces.update(step.traces)
    for number, trace in traces.items():
        puts.append(codec.encode_trace(number, trace, session_id))
    if after.pages and (base is None or base.pages is not after.pages):
        old = {} if base is None else {page.number: page for page in base.pages}
        puts += [codec.encode_page(page, session_id) for page in after.pages if old.get(page.number) is not page]
    if after.producers and (base is None or base.producers != after.producers):
        puts.append(codec.encode_producers(after.producers, session_id))
    if after.contents:
        puts += _contents(base, after, codec)
    return tuple(puts)
