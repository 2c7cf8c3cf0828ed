"""The conversation of a turn for a program that calls its own model: raw messages, cut only where they do not fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from tenuto.context.assembly import LEAST_CUT, LEAST_QUESTION, last_words
from tenuto.context.compression import LogTail
from tenuto.context.layout import layout_for
from tenuto.context.tokens import (
    MESSAGE_TOKENS,
    MOST_CHARACTERS_A_TOKEN,
    MOST_TOKENS_A_CHARACTER,
    TokenCounter,
    level,
    prompt_token_limit,
    truncate_parts,
    truncate_text,
)
from tenuto.context.window import (
    LEAST_WORDS,
    TurnReader,
    WindowEntry,
    WindowFiller,
    begins_turn,
    drop_unpaired_tools,
    roundness,
    spans,
)
from tenuto.errors import InstructionsTooLong
from tenuto.model.message import Draft, Message, Role
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import Disposition, Language, LayoutName, PromptPolicy
from tenuto.model.turn import OpenTurn

# Looked up once: in a loop over a log, finding an enumeration's member takes longer than the rest.
_ITEM: Final = Role.ITEM
_SYSTEM: Final = Role.SYSTEM
_OPENERS: Final = (Role.USER, _SYSTEM)
# More than the heading of a summary and the opening of the reply take.
MARGIN: Final = 64


def fit_window(
    turn: OpenTurn, policy: PromptPolicy, context: ContextPolicy, counter: TokenCounter, most: int
) -> OpenTurn:
    """The turn with its summary, and a window without what that covers, what is stale and what the limits cut.

    The window has at most so many messages and begins with a turn's first one, if that is loaded. `cut` names the
    messages of which it holds a part.
    """
    log = LogTail(turn.window)
    talk, summary = log.talk, log.summary(turn.context_start)
    begins = max(summary.through + 1 if summary is not None else 1, turn.context_start)
    turn_messages = (turn.user_messages or last_words(talk))[-most:]
    history = talk[bisect_left(talk, begins, key=attrgetter("seq")) :]
    history = _newest_turns(_without(history, turn_messages), most - len(turn_messages), begins)
    text = summary.text if summary is not None else ""
    turn = replace(turn, summarized_through=summary.through if summary is not None else 0)
    limit = max(LEAST_QUESTION, prompt_token_limit(policy, counter) - MARGIN)
    cap = policy.message_tokens or max(LEAST_WORDS, limit // 4)
    if (context.window_messages, context.window_turns, context.window_characters) == (None, None, None):
        talk_limit = limit - counter.count_recurring(text) if text else limit
        start = _plain_start(history, turn_messages, talk_limit, cap, counter, policy.trim_share)
        if start is not None:
            return replace(turn, window=_join(history[start:], turn_messages), summary=text)
    turn_messages, left = _fit_input(turn_messages, limit, counter)
    layout = layout_for(LayoutName.CHAT, Language.ENGLISH, counter, {}, policy.recall_position)
    filler = WindowFiller(history, context, TurnReader(layout, counter, cap, raw=True), False)
    text = _fit_summary(text, left - filler.newest(left), counter)
    turns = filler.older(left - counter.count_recurring(text), policy.trim_share).turns
    window = _join([_message_of(one) for each in turns for one in each.entries], turn_messages)
    window, stored_parts = (
        _drop_unpaired(window, turn_messages),
        {message.seq: message.parts for message in turn.window},
    )
    cut = tuple([message.id for message in window if message.parts != stored_parts.get(message.seq)])
    return replace(turn, window=window, summary=text, cut=cut)


def check_system_messages(messages: Sequence[Draft], policy: PromptPolicy, counter: TokenCounter) -> None:
    """Refuse system messages that no window has room for: they are never cut.

    Raises:
        InstructionsTooLong: they do not fit.
    """
    system = [message for message in messages if message.role is _SYSTEM]
    limit = max(LEAST_QUESTION, prompt_token_limit(policy, counter) - MARGIN) - LEAST_QUESTION
    tokens = sum([counter.count_message(message) + MESSAGE_TOKENS for message in system])
    if tokens > limit:
        raise InstructionsTooLong("messages", tokens, limit, policy.raised_by)


def _join(history: Sequence[Message], turn_messages: Sequence[Message]) -> tuple[Message, ...]:
    if not history or not turn_messages or history[-1].seq < turn_messages[0].seq:
        return (*history, *turn_messages)
    return tuple(sorted((*history, *turn_messages), key=attrgetter("seq")))


def _without(talk: tuple[Message, ...], turn_messages: Sequence[Message]) -> tuple[Message, ...]:
    before = len(talk) - len(turn_messages)
    if turn_messages and before >= 0 and talk[before].seq == turn_messages[0].seq:
        return talk[:before]
    # Other messages were appended meanwhile.
    own = {message.seq for message in turn_messages}
    return tuple(message for message in talk if message.seq not in own)


def _newest_turns(history: tuple[Message, ...], most: int, begins: int) -> tuple[Message, ...]:
    """The newest messages in whole turns; of a newest turn that is longer, how it begins and how it ends."""
    first = max(0, len(history) - most)
    if not first and (not history or history[0].seq == begins or history[0].role in _OPENERS):
        return history
    for place in range(max(1, first), len(history)):
        if begins_turn(history, place):
            return history[place:]
    newest = history[next(spans(history))[0] :]
    return (newest[0], *newest[1:][1 - most :]) if most > 1 else ()


def _plain_start(
    history: Sequence[Message],
    turn_messages: Sequence[Message],
    limit: int,
    cap: int,
    counter: TokenCounter,
    trim_share: float,
) -> int | None:
    """Where the newest whole turns begin that fit beside the words asked, if all these are plain talk without cuts, as
    in most turns; else `None`, also if the newest turn does not fit.

    Of the starts that leave enough, the roundest is taken: it stays the same for many turns, and so does the prompt.
    Messages are read from the newest to the first that does not fit.
    """
    messages, turn_start = (*history, *turn_messages), len(history)
    used, left, starts = 0, limit, list[tuple[int, int]]()
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        parts, tokens = message.parts, message.tokens
        if len(parts) != 1 or (part := parts[0])["type"] != "text" or message.role is _ITEM:
            return None
        # As in `TokenCounter.count_message`, written out: every message of every turn passes here.
        length = len(part["text"])
        if length > tokens * MOST_CHARACTERS_A_TOKEN or tokens > length * MOST_TOKENS_A_CHARACTER:
            tokens = counter.count_recurring(part["text"])
        if not length or (tokens > cap and message.role is not _SYSTEM):
            return None
        used += tokens + MESSAGE_TOKENS
        if used > left:
            break
        if place >= turn_start:
            if place == turn_start:
                used, left = 0, left - used
        elif not place or messages[place - 1].turn != message.turn:
            starts.append((used, place))
    else:
        return 0 if messages else None
    enough = [place for used, place in starts if used >= (1 - trim_share) * left] or [place for _, place in starts[-1:]]
    return max(enough, key=lambda place: roundness(history[place].turn), default=None)


def _fit_input(turn_messages: Sequence[Message], limit: int, counter: TokenCounter) -> tuple[tuple[Message, ...], int]:
    """The turn's own messages, the longest cut first, and the tokens they leave. Of very many the newest stay.

    System messages are not cut: `begin` refuses those that do not fit.
    """
    sizes = [counter.count_message(message) for message in turn_messages]
    left = limit - sum(sizes) - MESSAGE_TOKENS * len(turn_messages)
    if left >= 0:
        return tuple(turn_messages), left
    count = limit // (LEAST_WORDS + MESSAGE_TOKENS)
    turn_messages, sizes = turn_messages[-count:], sizes[-count:]
    fixed = sum([size for message, size in zip(turn_messages, sizes, strict=True) if message.role is _SYSTEM])
    cuttable = [size for message, size in zip(turn_messages, sizes, strict=True) if message.role is not _SYSTEM]
    height = level(cuttable, limit - fixed - MESSAGE_TOKENS * len(turn_messages))
    cut = [
        message
        if size <= height or message.role is _SYSTEM
        else counter.with_count(replace(message, parts=truncate_parts(message.parts, height, counter), tokens=0))
        for message, size in zip(turn_messages, sizes, strict=True)
    ]
    return tuple(cut), 0


def _fit_summary(text: str, left: int, counter: TokenCounter) -> str:
    tokens = counter.count_recurring(text)
    return "" if tokens > left < LEAST_CUT else truncate_text(text, left, counter.count, tokens)


def _message_of(entry: WindowEntry) -> Message:
    if entry.disposition is Disposition.KEPT:
        return entry.message
    return replace(entry.message, parts=entry.parts, tokens=entry.tokens)


def _drop_unpaired(window: Sequence[Message], turn_messages: Sequence[Message]) -> tuple[Message, ...]:
    """The window without tool calls and results whose partner it does not hold, except for the turn's own."""
    own = {message.seq for message in turn_messages}
    return tuple(
        message if message.seq in own or len(parts) == len(message.parts) else replace(message, parts=parts)
        for message, parts in zip(window, drop_unpaired_tools(window, adjacent=False), strict=True)
        if message.seq in own or parts
    )
