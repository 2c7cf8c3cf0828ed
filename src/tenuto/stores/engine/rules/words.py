"""The words of a session: which terms it is to be found by, some messages at a time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tenuto.lazy_imports import lazy_module
from tenuto.model import Message, Role
from tenuto.stores.engine.record import EMPTY, Indexed, Record, Step, numbers

if TYPE_CHECKING:
    from tenuto.recall import lexical
else:
    lexical = lazy_module("tenuto.recall.lexical")

_AT_ONCE: Final = 100
_CHARACTERS_AT_ONCE: Final = 50_000
"""So many messages, or about so many characters, take some milliseconds; other calls of the process wait that long."""
_SPOKEN: Final = frozenset({Role.USER, Role.ASSISTANT})


def index_words(record: Record | None, now: datetime, *, anew: bool = False) -> Step[bool]:
    """Find the session by the words of its next messages; of all from the first on if it is to be indexed `anew`, or
    some of those are gone. The answer is whether none are left."""
    if record is None or record.expired(now):
        return Step(record=record, answer=True, changed=False)
    head, span = record.head, record.head.indexed
    if span is None or span[0] < record.first_seq:
        anew = True
    elif head.is_indexed and not anew:
        return Step(record=record, answer=True, changed=False)
    first = record.first_seq if anew or span is None else span[1] + 1
    # By the last ones: how long a message is, is known once it is loaded.
    lengths = [len(message.text) for message in record.tail[-_AT_ONCE:]]
    at_once = min(_AT_ONCE, max(1, _CHARACTERS_AT_ONCE * len(lengths) // max(1, sum(lengths)))) if lengths else _AT_ONCE
    some = numbers(head.stored_spans, first, head.last_seq)[: at_once + 1]
    last = some[at_once - 1] if len(some) > at_once else head.last_seq
    found = set[str]()
    for message in record.between((first, last)):
        found.update(lexical.terms(spoken_text(message), singles=True))
    if anew:
        found.update(lexical.terms(record.profile.title, singles=True))
    start = first if anew or span is None else span[0]
    record = replace(record, head=replace(head, indexed=(start, last)))
    return Step(record=record, answer=record.head.is_indexed, indexed=Indexed(terms=frozenset(found), anew=anew))


def forget_words(record: Record | None, now: datetime) -> Step[None]:
    """Find the session by no words any more. The commit removes them: it is made while the search is off."""
    is_done = record is None or record.expired(now) or record.head.indexed == EMPTY
    return Step(record=record, answer=None, changed=not is_done)


def spoken_text(message: Message) -> str:
    """What a search reads of a message: what a person or an assistant has said, not what tools put out."""
    return message.text if message.role in _SPOKEN else ""
