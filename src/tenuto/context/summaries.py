"""Summaries as entries of a session's log: what they look like there, and which of them may be believed.

An entry speaks for the talk up to one message, and stays true for as long as that talk is the session's own. It is
believed if the last message it covers stands before it in the log. Where that message was not loaded, or has made room
under the stored cap, there must be a witness: the first message that was loaded lies behind the covered one and was
there already when the summary's maker read the log. Sequence numbers are never given twice, and a truncation or a reset
that takes the covered message takes all that was said after it; so a witness that still stands proves that the words
were not taken back while their summary was being made. Other summaries are no witnesses: those that speak of nothing
behind a cut are spared by it (`outliving`). An entry with neither is passed over, and the raw messages speak for
themselves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Final

import msgspec

from tenuto.model.generation import Summary
from tenuto.model.message import SUMMARY, Draft, Message, Role, is_summary
from tenuto.model.values import JsonObject

# Looked up once: in a loop over a log, finding an enumeration's member takes longer than the rest.
_ITEM: Final = Role.ITEM


class _SummaryPart(msgspec.Struct, frozen=True):
    """What the log holds: besides the summary, how long the log was when it was read, and where context began then."""

    text: str
    through: int
    through_id: str
    seen: int = 0
    since: int = 1
    tokens: int = 0
    made_by: str = ""
    messages: int = 0


class LogTail:
    """The end of a session's log, read once: what was said in it, and what tells in short of the talk before."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        # Few entries are no talk: the role alone tells most of them.
        self._items = [(place, message) for place, message in enumerate(messages) if message.role is _ITEM]

    @property
    def talk(self) -> tuple[Message, ...]:
        """The log without summaries: one written while a turn ran stands between its question and its answer."""
        talk: list[Message] = []
        begins = 0
        for place, message in self._items:
            if is_summary(message):
                talk += self._messages[begins:place]
                begins = place + 1
        return (*talk, *self._messages[begins:]) if begins else tuple(self._messages)

    def summary(self, window_start: int = 1) -> Summary | None:
        """The summary that covers most, of those that may be believed.

        Its `through` reaches up to the message that follows the covered ones, so that nothing lies between the two.
        What lies before `window_start` is no context any more, and neither is a summary of it.
        """
        found = [(reach, place, part) for place, message in self._items for reach, part in _summary_parts(message)]
        for _, place, part in sorted(found, key=itemgetter(0, 1), reverse=True):
            entry = _parse_summary(part)
            if entry is None:
                continue
            through = _covered_through(entry, place, self._messages)
            if through is not None and min(through, entry.through) >= window_start and entry.since >= window_start:
                return Summary(
                    text=entry.text,
                    through=through,
                    through_id=entry.through_id,
                    since=entry.since,
                    messages=entry.messages,
                    tokens=entry.tokens,
                    made_by=entry.made_by,
                )
        return None


def conversation_in(messages: Sequence[Message]) -> tuple[Message, ...]:
    """What was said in this end of a log."""
    return LogTail(messages).talk


def find_summary(messages: Sequence[Message], window_start: int = 1) -> Summary | None:
    """The summary in this end of a log that covers most."""
    return LogTail(messages).summary(window_start)


def outliving(messages: Sequence[Message], after: int) -> tuple[int, ...]:
    """The numbers of summaries that stand behind a message of this log and speak of nothing that was said after it.

    They stay true when what follows that message is taken back, and may be all that a small stored cap has left of
    older talk.
    """
    stays = bisect_right(messages, after, key=lambda message: message.seq)
    kept = messages[:stays]
    return tuple(message.seq for message in messages[stays:] if _would_be_trusted(kept, message))


def summary_draft(summary: Summary, *, message_id: str, sent_at: datetime, seen: int, since: int) -> Draft:
    """The summary on its way into the log; `seen` is the newest number when that was read, `since` context's first."""
    part = {
        "type": SUMMARY,
        "text": summary.text,
        "through": summary.through,
        "through_id": summary.through_id,
        "seen": seen,
        "since": since,
        "tokens": summary.tokens,
        "made_by": summary.made_by,
        "messages": summary.messages,
    }
    return Draft(id=message_id, role=Role.ITEM, sent_at=sent_at, parts=(part,))


def _would_be_trusted(kept: Sequence[Message], message: Message) -> bool:
    """Whether this entry would be believed right behind these messages."""
    if message.role is not _ITEM:
        return False
    entries = [_parse_summary(part) for _, part in _summary_parts(message)]
    log = (*kept, message)
    return any(entry is not None and _covered_through(entry, len(kept), log) is not None for entry in entries)


def _summary_parts(message: Message) -> list[tuple[float, JsonObject]]:
    """What may be summaries in an entry, each with the number up to which it says it reaches."""
    parts = [part for part in message.parts if part["type"] == SUMMARY]
    return [(part["through"], part) for part in parts if isinstance(part.get("through"), int | float)]


def _parse_summary(part: JsonObject) -> _SummaryPart | None:
    try:
        entry = msgspec.convert(part, _SummaryPart)
    except msgspec.ValidationError:
        # Anybody may write items into a log; what is not of our form is not ours.
        return None
    return entry if entry.text.strip() and entry.through >= 1 else None


def _covered_through(entry: _SummaryPart, place: int, messages: Sequence[Message]) -> int | None:
    """Up to which number the entry at that place covers the log; `None` if it is not to be believed."""
    last = _index_of_last_covered(entry, messages, place)
    if last is not None:
        following = next((message for message in messages[last + 1 :] if not is_summary(message)), None)
        return following.seq - 1 if following is not None else messages[-1].seq
    witness = next((message.seq for message in messages if not is_summary(message)), 0)
    return entry.through if place > 0 and entry.through < witness <= entry.seen else None


def _index_of_last_covered(entry: _SummaryPart, messages: Sequence[Message], before: int) -> int | None:
    """Where the last covered message stands, by its id: an import gives other numbers."""
    near = bisect_left(messages, entry.through, key=lambda message: message.seq)
    if near < before and messages[near].id == entry.through_id:
        return near
    return next((place for place in range(before - 1, -1, -1) if messages[place].id == entry.through_id), None)
