"""Compression: summaries in a session's log, when one is due, and which messages it covers.

A summary covers whole turns from the beginning of the log; the newest turns stay verbatim.

An entry covers the log up to one message and is valid as long as that part of the log is the session's own. It is
trusted if the last message it covers stands before it in the log. If that message was not loaded, or was evicted under
the stored cap, a witness is required: the first loaded message lies behind the covered one and already existed when the
log was read for the summary. Sequence numbers are never reused, and a truncation or a reset that removes the covered
message removes everything after it; so a witness that still exists proves that nothing was removed while the summary
was made. Other summaries are no witnesses: a truncation spares those that cover nothing behind it (`outliving`). An
entry with neither is ignored, and the raw messages are used.

The entry of an isolated persona covers its own turns only and is read for that persona only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from operator import itemgetter
from typing import Final

import msgspec

from tenuto.context.media import MEDIA_SHARE
from tenuto.context.tokens import MESSAGE_TOKENS, TokenCounter, prompt_token_limit
from tenuto.context.tool_pairs import pair_tools
from tenuto.model.generation import Summary
from tenuto.model.message import SUMMARY, Draft, Message, Role, is_summary
from tenuto.model.policy import MOST_LOADED, ContextPolicy
from tenuto.model.prompt import PromptPolicy
from tenuto.model.session import Session
from tenuto.model.values import JsonObject, Value

# Looked up once: in a loop over a log, finding an enumeration's member takes longer than the rest.
_ITEM: Final = Role.ITEM
_SYSTEM: Final = Role.SYSTEM


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
    instructions: tuple[str, ...] = ()


class LogTail:
    """The end of a session's log, read once: its messages, and the summary of what precedes them.

    With a `persona`, which is isolated, the summary is the persona's own.
    """

    def __init__(self, messages: Sequence[Message], persona: str | None = None) -> None:
        self._messages = messages
        self._persona = persona
        # Few entries are no messages; the role excludes most of them.
        self._items = [(place, message) for place, message in enumerate(messages) if message.role is _ITEM]

    @property
    def talk(self) -> tuple[Message, ...]:
        """The log without summaries; one may lie between a question and its answer."""
        talk: list[Message] = []
        begins = 0
        for place, message in self._items:
            if is_summary(message):
                talk += self._messages[begins:place]
                begins = place + 1
        return (*talk, *self._messages[begins:]) if begins else tuple(self._messages)

    def summary(self, window_start: int = 1) -> Summary | None:
        """The trusted summary that covers most.

        Its `through` reaches up to the message that follows the covered ones, so that nothing lies between the two.
        Messages before `window_start`, and summaries of them, are no context.
        """
        candidates = [
            (reach, place, part)
            for place, message in self._items
            if message.persona == self._persona
            for reach, part in _summary_parts(message)
        ]
        for _, place, part in sorted(candidates, key=itemgetter(0, 1), reverse=True):
            entry = _parse_summary(part)
            if entry is None:
                continue
            through = _covered_through(entry, place, self._messages)
            if through is not None and min(through, entry.through) >= window_start and entry.since >= window_start:
                return _summary_from(entry, through)
        return None


def summaries_in(messages: Sequence[Message], persona: str | None = None) -> list[Summary]:
    """All summaries in a log, trusted or not, oldest first; with a `persona`, which is isolated, its own."""
    items = [message for message in messages if message.role is _ITEM and message.persona == persona]
    parts = [_parse_summary(part) for message in items for _, part in _summary_parts(message)]
    return [_summary_from(part, part.through) for part in parts if part is not None]


def conversation_in(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages in this end of a log, without summaries."""
    return LogTail(messages).talk


def of_persona(messages: Sequence[Message], persona: str | None) -> tuple[Message, ...]:
    """The messages that an isolated persona may see; without one, all."""
    if persona is None:
        return tuple(messages)
    return tuple(message for message in messages if message.persona in (None, persona))


def find_summary(messages: Sequence[Message], window_start: int = 1, persona: str | None = None) -> Summary | None:
    """The summary in this end of a log that covers most."""
    return LogTail(messages, persona).summary(window_start)


def outliving(messages: Sequence[Message], after: int) -> tuple[int, ...]:
    """The numbers of summaries that follow a message of this log and cover nothing after it.

    They stay valid when the messages after it are removed, and may be all that is left of evicted messages.
    """
    stays = bisect_right(messages, after, key=lambda message: message.seq)
    remaining = messages[:stays]
    return tuple(message.seq for message in messages[stays:] if _would_be_trusted(remaining, message))


def summary_draft(
    summary: Summary, *, message_id: str, sent_at: datetime, seen: int, since: int, persona: str | None = None
) -> Draft:
    """The summary on its way into the log; `seen` is the newest number when that was read, `since` context's first."""
    part: JsonObject = {
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
    if summary.instructions:
        part["instructions"] = list(summary.instructions)
    return Draft(id=message_id, role=Role.ITEM, sent_at=sent_at, parts=(part,), persona=persona)


def covered_instructions(previous: Summary | None, covered: Sequence[Message]) -> tuple[str, ...]:
    """The system messages that a summary covers, each text once, where it was said last."""
    texts = [message.text for message in covered if message.role is Role.SYSTEM and message.text]
    said = [*(previous.instructions if previous is not None else ()), *texts]
    return tuple(dict.fromkeys(reversed(said)))[::-1]


def _would_be_trusted(messages: Sequence[Message], message: Message) -> bool:
    """Whether this entry would be trusted right behind these messages."""
    if message.role is not _ITEM:
        return False
    entries = [_parse_summary(part) for _, part in _summary_parts(message)]
    log = (*messages, message)
    return any(entry is not None and _covered_through(entry, len(messages), log) is not None for entry in entries)


def _summary_parts(message: Message) -> list[tuple[float, JsonObject]]:
    """The summary parts of an entry, each with the number it claims to cover through."""
    parts = [part for part in message.parts if part["type"] == SUMMARY]
    return [(part["through"], part) for part in parts if isinstance(part.get("through"), int | float)]


def _parse_summary(part: JsonObject) -> _SummaryPart | None:
    try:
        entry = msgspec.convert(part, _SummaryPart)
    except msgspec.ValidationError:
        # Clients may write items into a log; other forms are not summaries.
        return None
    return entry if entry.text.strip() and entry.through >= 1 else None


def _summary_from(part: _SummaryPart, through: int) -> Summary:
    return Summary(
        text=part.text,
        through=through,
        through_id=part.through_id,
        since=part.since,
        messages=part.messages,
        tokens=part.tokens,
        made_by=part.made_by,
        instructions=part.instructions,
    )


def _covered_through(entry: _SummaryPart, place: int, messages: Sequence[Message]) -> int | None:
    """Up to which number the entry at that place covers the log; `None` if it is not trusted."""
    last = _last_covered_place(entry, messages, place)
    if last is not None:
        following = next((message for message in messages[last + 1 :] if not is_summary(message)), None)
        return following.seq - 1 if following is not None else messages[-1].seq
    witness = next((message.seq for message in messages if not is_summary(message)), 0)
    return entry.through if place > 0 and entry.through < witness <= entry.seen else None


def _last_covered_place(entry: _SummaryPart, messages: Sequence[Message], before: int) -> int | None:
    """Where the last covered message stands, by its id: an import gives other numbers."""
    near = bisect_left(messages, entry.through, key=lambda message: message.seq)
    if near < before and messages[near].id == entry.through_id:
        return near
    return next((place for place in range(before - 1, -1, -1) if messages[place].id == entry.through_id), None)


# A compression leaves room to grow: the next one is due when the prompt has doubled, not with the next turn.
_AFTER: Final = 0.7
# The conversation keeps at least a third of what system prompt and preferences leave.
_LEAST_SHARE: Final = 1 / 3
# Uncovered messages must not come near the stored cap, where messages are evicted, or the most that a turn loads.
_NEAR_CAP: Final = 0.8
# A summary takes no more of the prompt than this.
_SUMMARY_SHARE: Final = 6


class SummaryLimits(Value, frozen=True, kw_only=True):
    """How long a summary may be."""

    tokens: int
    characters: int | None = None


class DueCompression(Value, frozen=True, kw_only=True):
    """A compression to be made: `cover` goes into the summary, together with the `previous` one.

    `last_seq` is the newest number there was, `since` the first that is context.
    """

    cover: tuple[Message, ...]
    previous: Summary | None
    last_seq: int
    since: int


def compresses(context: ContextPolicy) -> bool:
    """Whether sessions under this policy are compressed at all."""
    return context.compress_at is not None or context.compress_over is not None


def summary_limits(prompt: PromptPolicy, context: ContextPolicy, counter: TokenCounter) -> SummaryLimits:
    """How long summaries are for prompts of that size."""
    tokens = _summary_tokens(context, prompt_token_limit(prompt, counter))
    return SummaryLimits(tokens=tokens, characters=context.summary_characters)


def _summary_tokens(context: ContextPolicy, prompt_limit: int) -> int:
    return min(context.summary_tokens, max(16, prompt_limit // _SUMMARY_SHARE))


def would_evict_uncovered(session: Session, through: int, adding: int) -> bool:
    """Whether storing so many more entries could push out messages that no summary covers yet."""
    cap = session.retention.max_messages
    open_from = max(through + 1, session.window_start)
    return cap is not None and session.last_seq - open_from + 1 + adding > cap


def compression_due(
    session: Session,
    messages: Sequence[Message],
    counter: TokenCounter,
    prompt: PromptPolicy,
    context: ContextPolicy,
    *,
    persona: str | None = None,
    previous: Summary | None = None,
    overhead: int = 0,
    adding: int = 0,
    more: bool = False,
) -> DueCompression | None:
    """What to cover now, `None` when nothing is to be done.

    `messages` are the end of the session's log, from the first uncovered message on or from further back; `more`
    tells that newer ones were not loaded, and `previous` is the summary where it may not be among them. `overhead` are
    the prompt's tokens that talk cannot have (system prompt, preferences, the share of recall), `adding` the entries
    about to be stored. Tool calls and results count like words. For an isolated `persona`, only its own turns are
    covered.
    """
    if not compresses(context):
        return None
    previous = previous or LogTail(messages, persona).summary(session.window_start)
    begins = max(previous.through + 1 if previous is not None else 1, session.window_start)
    log = [message for message in messages if message.seq >= begins]
    everyone = LogTail(log).talk
    talk = of_persona(everyone, persona)
    if not talk:
        return None
    if persona is not None:
        log = [message for message in log if message.seq >= talk[0].seq]
    size = _measure_conversation(talk, counter, prompt, context, overhead, previous)
    # What a turn does not load is in no prompt, so it must be covered like what is evicted.
    most = min(session.retention.max_messages or MOST_LOADED, MOST_LOADED)
    counts = ((len(log) + adding, most), (session.turns - talk[0].turn + 1, session.retention.max_turns))
    is_near_cap = any(cap is not None and count >= _NEAR_CAP * cap for count, cap in counts)
    if not (more or is_near_cap or size.over()):
        return None
    between = _find_cut_points(talk)
    if more:
        cut = (between.turns or between.runs or between.pairs or [0])[-1]
    else:
        cap = most if is_near_cap else None
        # Under the stored cap at most half of it stays uncovered, or what the new entries leave.
        stays = len(everyone) if cap is None else max(1, min(cap // 2, cap - adding))
        least = bisect_left(talk, everyone[-stays].seq, key=lambda message: message.seq) if stays < len(everyone) else 0
        cut = _choose_cut(between, size, least)
    if not cut:
        return None
    return DueCompression(cover=talk[:cut], previous=previous, last_seq=session.last_seq, since=session.window_start)


@dataclass(frozen=True, slots=True)
class _ConversationSize:
    """Uncovered messages against their limits: `tokens[p]` and `messages[p]` are what `p` covered messages leave."""

    tokens: list[int]
    messages: list[int]
    most_tokens: float | None
    most_messages: int | None
    keep_tokens: float | None
    keep_messages: int

    def over(self) -> bool:
        """Whether one of the limits is exceeded."""
        by_tokens = self.most_tokens is not None and self.tokens[0] > self.most_tokens
        return by_tokens or (self.most_messages is not None and self.messages[0] > self.most_messages)

    def leaves_headroom(self, cut: int) -> bool:
        """Whether what a cut leaves has room to grow."""
        by_tokens = self.keep_tokens is None or self.tokens[cut] <= self.keep_tokens
        return by_tokens and self.messages[cut] <= self.keep_messages


def _measure_conversation(
    talk: Sequence[Message],
    counter: TokenCounter,
    prompt: PromptPolicy,
    context: ContextPolicy,
    overhead: int,
    previous: Summary | None,
) -> _ConversationSize:
    prompt_limit = prompt_token_limit(prompt, counter)
    cap = prompt.message_tokens or max(16, prompt_limit // 4)
    counted = [int(message.role is not Role.ITEM) for message in talk]
    costs = _costs(talk, counter, cap, int(MEDIA_SHARE * prompt_limit))
    ratio = context.compress_at
    most = None if ratio is None else max(ratio * prompt_limit - overhead, _LEAST_SHARE * (prompt_limit - overhead))
    summary_tokens = counter.count_recurring(previous.text) if previous is not None else 0
    return _ConversationSize(
        tokens=[*accumulate(reversed(costs), initial=summary_tokens)][::-1],
        messages=[*accumulate(reversed(counted), initial=0)][::-1],
        most_tokens=most,
        most_messages=context.compress_over,
        # The next summary may be as long as its limit, whatever the previous one takes.
        keep_tokens=None if most is None else _AFTER * most - _summary_tokens(context, prompt_limit) + summary_tokens,
        keep_messages=context.keep_verbatim,
    )


def _costs(talk: Sequence[Message], counter: TokenCounter, cap: int, media_limit: int) -> list[int]:
    """What each message takes in a prompt: its words at most the cap, and what it shows, of which the newest stay."""
    if plain := counter.count_plain(talk):
        return [
            (tokens if tokens < cap or message.role is _SYSTEM else cap) + MESSAGE_TOKENS
            for message, tokens in zip(talk, plain, strict=True)
        ]
    costs: list[int] = []
    for message in reversed(talk):
        if message.role is _ITEM:
            costs.append(0)
            continue
        tokens, parts = counter.count_message(message), message.parts
        # Nearly every message is one text.
        media = 0 if len(parts) == 1 and parts[0]["type"] == "text" else counter.count_media(parts)
        shown = min(media, media_limit)
        media_limit -= shown
        words = tokens - media
        costs.append((words if words < cap or message.role is _SYSTEM else cap) + shown + MESSAGE_TOKENS)
    return costs[::-1]


def _choose_cut(between: _CutPoints, size: _ConversationSize, least: int) -> int:
    """How many messages to cover: as few as leave a small enough rest, between whole turns if that is possible.

    The newest turn stays whole however long it is, unless the stored cap would take it apart: `least` must go.
    """
    for cuts in (between.turns, between.runs):
        fitting = next((cut for cut in cuts if cut >= least and size.leaves_headroom(cut)), None)
        if fitting is not None:
            return fitting
    newest = between.runs[-1] if between.runs else 0
    if newest >= least:
        return newest
    return next((cut for cut in between.pairs if cut >= least), (between.pairs or [0])[-1])


@dataclass(frozen=True, slots=True)
class _CutPoints:
    """Places where talk can be cut, from strict to lax.

    At `turns` no turn is on both sides. At `runs` the turn changes, though an earlier one may come back later: the
    answer of a turn that was resumed. At `pairs` only tool calls keep their results.
    """

    turns: list[int]
    runs: list[int]
    pairs: list[int]


def _find_cut_points(talk: Sequence[Message]) -> _CutPoints:
    last = {message.turn: place for place, message in enumerate(talk)}
    answer_places = _answers(talk)
    pairs = [cut for cut, reach in _cut_reaches(talk, lambda place: answer_places.get(place, place)) if reach < cut]
    runs = [cut for cut in pairs if talk[cut - 1].turn != talk[cut].turn]
    between_turns = {cut for cut, reach in _cut_reaches(talk, lambda place: last[talk[place].turn]) if reach < cut}
    return _CutPoints(turns=[cut for cut in runs if cut in between_turns], runs=runs, pairs=pairs)


def _cut_reaches(talk: Sequence[Message], ends: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """For each cut, how far something that begins before it reaches."""
    furthest = 0
    for place in range(len(talk) - 1):
        furthest = max(furthest, ends(place))
        yield place + 1, furthest


def _answers(talk: Sequence[Message]) -> dict[int, int]:
    """Where the last result of each message's tool calls stands. It follows before anything else is said."""
    return dict(sorted((call, result) for (call, _), (result, _) in pair_tools(talk)))
