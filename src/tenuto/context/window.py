"""The window: the history read backwards in whole turns, each with its cost, and the choice of turns that fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from tenuto.context.tokens import (
    MOST_CHARACTERS_A_TOKEN,
    MOST_TOKENS_A_CHARACTER,
    TOOL_TOKENS,
    TokenCounter,
    level,
    truncate_characters,
    truncate_parts,
)
from tenuto.context.tool_pairs import drop_unpaired_tools
from tenuto.model.attachment import MEDIA_PARTS
from tenuto.model.media import LEFT_OUT, count_left_out
from tenuto.model.message import TOOL_PARTS, Message, Role
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import Disposition, Reason
from tenuto.model.provider_items import is_provider_item
from tenuto.model.reasoning import may_return
from tenuto.model.values import JsonObject

if TYPE_CHECKING:
    from tenuto.context.layout import Layout

# Parts beside texts that have a place where messages have roles.
_OF_ROLES: Final = frozenset({"tool_call", "tool_result", *MEDIA_PARTS})
# Looked up once: in a loop over a history, finding an enumeration's member takes longer than the rest.
_ITEM: Final = Role.ITEM
_TOOL: Final = Role.TOOL
_ASSISTANT: Final = Role.ASSISTANT
_SYSTEM: Final = Role.SYSTEM


class WindowEntry(msgspec.Struct, frozen=True, gc=False):
    """A message as the prompt shows it. `tokens` are of its text, `around` of its label; `uncut_tokens` is its uncut
    cost.

    `original_parts` are its parts before anything was cut, so that a second cut leaves one mark and not two.
    """

    message: Message
    original_parts: tuple[JsonObject, ...]
    parts: tuple[JsonObject, ...]
    tokens: int
    around: int
    uncut_tokens: int
    disposition: Disposition = Disposition.KEPT
    reason: Reason = Reason.FITS

    @property
    def cost(self) -> int:
        """Its tokens in the prompt."""
        return self.tokens + self.around

    @property
    def uncuttable(self) -> bool:
        """Whether it is in the prompt as it is, or not at all: half an instruction is another one."""
        return self.message.role is _SYSTEM

    @property
    def characters(self) -> int:
        """The length of its text."""
        return sum(len(part["text"]) for part in self.parts if part["type"] == "text")


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A turn's messages, `history[start:end]`: those that can be shown, and those that cannot, with the reason.

    `cost` is what it takes in the prompt.
    """

    number: int
    start: int
    end: int
    entries: tuple[WindowEntry, ...]
    hidden: tuple[tuple[Message, Reason], ...]
    cost: int

    def with_entries(self, entries: tuple[WindowEntry, ...], left_out: tuple[tuple[Message, Reason], ...] = ()) -> Turn:
        """The turn with other messages in it, and more of them hidden."""
        return Turn(self.number, self.start, self.end, entries, (*self.hidden, *left_out), _total_cost(entries))

    @property
    def characters(self) -> int:
        """The length of its text."""
        return sum(entry.characters for entry in self.entries)

    @property
    def text_messages(self) -> int:
        """How many of its messages a person would count: those with text, not tool calls and their results."""
        return sum(any(part["type"] == "text" for part in entry.parts) for entry in self.entries)


class VerbatimHistory(NamedTuple):
    """A history that is shown unchanged, with the same overhead `around` each message; `cost` is the total."""

    messages: Sequence[Message]
    around: int
    cost: int


def _total_cost(entries: Sequence[WindowEntry]) -> int:
    return sum([one.tokens + one.around for one in entries])


def _plain_turn(messages: Sequence[Message], start: int, plain: tuple[WindowEntry, ...]) -> Turn:
    return Turn(messages[0].turn, start, start + len(messages), plain, (), sum([one.uncut_tokens for one in plain]))


def spans(history: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Where each turn lies in the history, newest first; turns that bring outputs belong to the one that calls."""
    end = len(history)
    while end:
        start = end - 1
        while start and not begins_turn(history, start):
            start -= 1
        yield start, end
        end = start


def begins_turn(history: Sequence[Message], place: int) -> bool:
    """Whether a turn begins with this message that brings no output of a call in the turn before.

    A request may bring several turns of a conversation at once: there, too, a user's words after an answer begin one.
    """
    number, before = history[place].turn, history[place - 1]
    if before.turn == number and not (history[place].role is Role.USER and before.role is _ASSISTANT):
        return False
    while place < len(history) and history[place].turn == number and history[place].role is not _ASSISTANT:
        if history[place].role is _TOOL:
            return False
        place += 1
    return True


@dataclass(slots=True)
class TurnReader:
    """Reads turns for one layout, with a cap on each message's tokens.

    The cap is for what was said before: a turn's own input, which begins with the number `input_start`, is cut only
    where the prompt is full. For a caller that has its own model they are read `raw`: with everything that only this
    model can read.
    """

    _layout: Layout
    _counter: TokenCounter
    _cap: int
    raw: bool = False
    input_start: int = 0

    def turn(self, history: Sequence[Message], start: int, end: int) -> Turn:
        """The turn at that place."""
        messages = history[start:end]
        plain = self.plain(messages)
        if plain is not None:
            return _plain_turn(messages, start, plain)
        entries: list[WindowEntry] = []
        hidden: list[tuple[Message, Reason]] = []
        sound = [message.parts for message in messages] if self.raw else drop_unpaired_tools(messages)
        for message, parts in zip(messages, sound, strict=True):
            entry = self._read_message(message, parts)
            if isinstance(entry, WindowEntry):
                entries.append(entry)
            else:
                hidden.append((message, entry))
        return Turn(messages[0].turn, start, end, tuple(entries), tuple(hidden), _total_cost(entries))

    def plain(self, messages: Sequence[Message]) -> tuple[WindowEntry, ...] | None:
        """Messages as they are, if each is plain text with a stored count that fits: nearly every turn."""
        around_all = self._layout.around_all
        if not self._are_plain(messages, has_labels=around_all is None):
            return None
        entries: list[WindowEntry] = []
        for message in messages:
            parts, tokens = message.parts, message.tokens
            around = self._layout.around(message) if around_all is None else around_all
            entries.append(WindowEntry(message, parts, parts, tokens, around, tokens + around))
        return tuple(entries)

    def read_plain(self, history: Sequence[Message]) -> Turn | VerbatimHistory | None:
        """All of a plain history: as it is, or where there are labels its turns as if they were one."""
        around = self._layout.around_all
        if around is None:
            plain = self.plain(history)
            return None if plain is None else _plain_turn(history, 0, plain)
        if not self._are_plain(history, has_labels=False):
            return None
        return VerbatimHistory(history, around, sum([message.tokens for message in history]) + around * len(history))

    def _are_plain(self, messages: Sequence[Message], *, has_labels: bool) -> bool:
        layout, cap = self._layout, self._cap
        longest, densest = MOST_CHARACTERS_A_TOKEN, MOST_TOKENS_A_CHARACTER
        for message in messages:
            parts, tokens = message.parts, message.tokens
            if len(parts) != 1 or parts[0]["type"] != "text" or message.role is _ITEM:
                if has_labels or not self._is_shown_whole(message):
                    return False
                continue
            if LEFT_OUT in parts[0] or (tokens > cap and not self._is_uncapped(message)):
                return False
            text = parts[0]["text"]
            length = len(text)
            # As in `TokenCounter.message`, written out: every message of every turn passes here.
            if not length or length > tokens * longest or tokens > length * densest + TOOL_TOKENS:
                return False
            if has_labels and layout.escape_lines(text, message.role) != text:
                return False
        return True

    def _is_shown_whole(self, message: Message) -> bool:
        """Whether a user's message with pictures, sounds or files, which was counted for this prompt, needs no cut."""
        if self.raw or message.role is not Role.USER:
            return False
        kinds = [part["type"] for part in message.parts if part.get("text") != "" and LEFT_OUT not in part]
        if len(kinds) < len(message.parts) or not MEDIA_PARTS.issuperset(set(kinds) - {"text"}):
            return False
        media = self._counter.count_media(message.parts)
        return (
            0 < media <= message.tokens <= self._cap + media and self._counter.count_message(message) == message.tokens
        )

    def _read_message(self, message: Message, parts: tuple[JsonObject, ...]) -> WindowEntry | Reason:
        visible = tuple(filter(self._is_visible, parts))
        if not visible or (message.role is Role.ITEM and not self.raw):
            return _hidden_reason(message, parts)
        around = self._layout.around(message)
        escaped = self._escape_parts(visible, message.role)
        if len(visible) == len(message.parts) and escaped is visible:
            tokens = self._counter.count_message(message)
            entry = WindowEntry(message, visible, visible, tokens, around, tokens + around)
            if len(visible) > 1 or LEFT_OUT in visible[0]:
                entry = _with_left_out(entry)
        else:
            tokens = sum(map(self._counter.count_part, escaped))
            reason = _reduced_reason(message, parts, visible)
            disposition = Disposition.KEPT if reason is Reason.FITS else Disposition.CUT
            entry = WindowEntry(message, escaped, escaped, tokens, around, tokens + around, disposition, reason)
            entry = _with_left_out(entry)
        if tokens <= self._cap or self._is_uncapped(message):
            return entry
        # The cap is for words: of pictures, sounds and files there are as many as fit.
        cap = self._cap + self._counter.count_media(entry.parts)
        return self.truncate(entry, cap, Reason.MESSAGE_CAP) if tokens > cap else entry

    def _is_uncapped(self, message: Message) -> bool:
        return message.role is _SYSTEM or 0 < self.input_start <= message.seq

    def truncate(self, entry: WindowEntry, limit: int, reason: Reason) -> WindowEntry:
        """The message with its text truncated to so many tokens, as far as its tools' frames allow."""
        return self.with_parts(entry, truncate_parts(entry.original_parts, limit, self._counter), reason)

    def truncate_characters(self, entry: WindowEntry, limit: int, reason: Reason) -> WindowEntry:
        """The message with its text truncated to so many characters."""
        cut = self.with_parts(entry, truncate_characters(entry.original_parts, limit), reason)
        cap = self._cap + self._counter.count_media(cut.parts)
        return cut if cut.tokens <= cap else self.truncate(replace(cut, original_parts=cut.parts), cap, reason)

    def with_parts(self, entry: WindowEntry, parts: tuple[JsonObject, ...], reason: Reason) -> WindowEntry:
        """The message with less in it, and why."""
        parts = tuple(part for part in parts if self._is_visible(part))
        tokens = sum(map(self._counter.count_part, parts))
        return replace(entry, parts=parts, tokens=tokens, disposition=Disposition.CUT, reason=reason)

    def _is_visible(self, part: JsonObject) -> bool:
        kind = part["type"]
        if kind == "text":
            return bool(part["text"])
        return self.raw or (
            self._layout.shows_tools and (kind in _OF_ROLES or may_return(part) or is_provider_item(part))
        )

    def _escape_parts(self, parts: tuple[JsonObject, ...], role: Role) -> tuple[JsonObject, ...]:
        if self._layout.around_all is not None:
            return parts
        changed = False
        escaped: list[JsonObject] = []
        for part in parts:
            text = part["text"] if part["type"] == "text" else ""
            safe = self._layout.escape_lines(text, role)
            changed = changed or safe != text
            escaped.append(part if safe == text else {**part, "text": safe})
        return tuple(escaped) if changed else parts


def _with_left_out(entry: WindowEntry) -> WindowEntry:
    """The entry, which says so if a placeholder stands for what was shown."""
    if not count_left_out(entry.parts):
        return entry
    return replace(entry, disposition=Disposition.CUT, reason=Reason.NO_MEDIA)


def _hidden_reason(message: Message, sound: Sequence[JsonObject]) -> Reason:
    if message.role is not Role.ITEM and len(sound) < len(message.parts):
        return Reason.ORPHAN
    if message.role is Role.ITEM or any(part["type"] != "text" for part in message.parts):
        return Reason.NOT_SHOWN
    return Reason.EMPTY


def _reduced_reason(message: Message, sound: Sequence[JsonObject], visible: Sequence[JsonObject]) -> Reason:
    if len(sound) < len(message.parts):
        return Reason.ORPHAN
    return Reason.NOT_SHOWN if any(part not in visible and part["type"] != "text" for part in sound) else Reason.FITS


# Fewer tokens of a message are useless: its truncation mark alone takes more.
LEAST_WORDS: Final = 16


@dataclass(slots=True)
class Window:
    """Turns in the prompt, oldest first, and ranges of the history left out: `(start, end, reason)`.

    Mostly nothing is left out or cut: then the history is shown `verbatim`, and `turns` is empty.
    """

    turns: list[Turn] = field(default_factory=list)
    omitted: list[tuple[int, int, Reason]] = field(default_factory=list)
    verbatim: VerbatimHistory | None = None

    @property
    def entries(self) -> tuple[WindowEntry, ...] | VerbatimHistory:
        """The messages of the window, oldest first."""
        return self.verbatim or tuple(chain.from_iterable([turn.entries for turn in self.turns]))

    @property
    def cost(self) -> int:
        """The tokens of the window."""
        return self.verbatim.cost if self.verbatim is not None else sum([turn.cost for turn in self.turns])


@dataclass(slots=True)
class WindowFiller:
    """Fills a window from the newest turn backwards: first that turn at any cost, then older ones that fit.

    `history` begins at the first message that no summary covers; `slides` tells that there is older context which was
    not loaded, so that the history's own beginning moves on with each turn.
    """

    _history: Sequence[Message]
    _policy: ContextPolicy
    _reader: TurnReader
    _slides: bool
    _window: Window = field(default_factory=Window)
    _turns: Iterator[Turn] = field(default_factory=lambda: iter(()))

    def take_all(self, limit: int) -> Window | None:
        """All of the history if it is plain text that fits; `None` if something may have to be cut.

        A fast path with the same result as `newest` and `older`.
        """
        history, policy = self._history, self._policy
        if self._slides or policy.window_turns is not None or policy.window_characters is not None:
            return None
        if policy.window_messages is not None and len(history) > policy.window_messages:
            return None
        if not history:
            return self._window
        # Stored counts exclude most histories that are too long before they are read.
        if sum([message.tokens for message in history]) > limit:
            return None
        plain = self._reader.read_plain(history)
        if plain is None or plain.cost > limit:
            return None
        if isinstance(plain, VerbatimHistory):
            self._window.verbatim = plain
        else:
            self._window.turns.append(plain)
        return self._window

    def newest(self, limit: int, persona: str | None = None) -> int:
        """Take the newest turn, cut down to `limit` tokens where it must be; returns its cost.

        With a persona, turns of others are passed over.
        """
        self._turns = self._read_turns(persona)
        for turn in self._turns:
            fitting = self._fit_newest(turn, limit)
            if fitting is None:
                self._window.omitted.append((0, turn.end, Reason.OVER_BUDGET))
                self._turns = iter(())
                return 0
            self._window.turns.append(fitting)
            if fitting.entries:
                return fitting.cost
        return 0

    def older(self, limit: int, trim_share: float) -> Window:
        """Add older turns while the whole window stays within `limit` tokens."""
        window = self._window
        turns, used = list(window.turns), _WindowUsage(self._policy)
        for turn in turns:
            used.add(turn)
        exceeded: Reason | None = None
        for turn in self._turns:
            used.add(turn)
            exceeded = used.over(limit)
            if exceeded:
                window.omitted.append((0, turn.end, exceeded))
                break
            turns.append(turn)
        turns.reverse()
        if exceeded is Reason.OVER_BUDGET:
            turns = self._trim(turns, _latest_start(turns, (1 - trim_share) * limit))
        elif exceeded is None and self._slides:
            turns = self._trim(turns, int(trim_share * len(turns)))
        window.turns = turns
        return window

    def _read_turns(self, persona: str | None) -> Iterator[Turn]:
        history, left_out = self._history, self._window.omitted
        for start, end in spans(history):
            if persona is not None and _belongs_to_others(history[start:end], persona):
                left_out.append((start, end, Reason.OTHER_PERSONA))
            elif start == 0 and self._slides and history[0].role is not Role.USER and not _awaits_answer(history, end):
                left_out.append((start, end, Reason.PARTIAL))
            else:
                yield self._reader.turn(history, start, end)

    def _trim(self, turns: list[Turn], latest: int) -> list[Turn]:
        newest = max((place for place, turn in enumerate(turns) if turn.entries), default=0)
        starts = range(min(latest, newest) + 1) if turns else ()
        start = max(starts, key=lambda place: roundness(turns[place].number), default=0)
        self._window.omitted += [(first, end, Reason.TRIMMED) for first, end in _adjacent_ranges(turns[:start])]
        return turns[start:]

    def _fit_newest(self, turn: Turn, limit: int) -> Turn | None:
        fitting = self._limit_messages(turn)
        fitting = self._limit_characters(fitting)
        cut = self._limit_tokens(fitting, limit)
        if cut is None:
            cut = self._limit_tokens(
                _without_tools(fitting, len(fitting.entries), Reason.OVER_BUDGET, self._reader), limit
            )
        if cut is None:
            cut = _keep_messages(fitting, [one for one in fitting.entries if one.uncuttable], Reason.OVER_BUDGET)
            return cut if cut.entries and cut.cost <= limit else None
        return cut

    def _limit_messages(self, turn: Turn) -> Turn:
        most = self._policy.window_messages
        if most is None or turn.text_messages <= most:
            return turn
        return _without_tools(turn, most, Reason.WINDOW_MESSAGES, self._reader)

    def _limit_characters(self, turn: Turn) -> Turn:
        most = self._policy.window_characters
        if most is None or turn.characters <= most:
            return turn
        height = _height(turn.entries, [entry.characters for entry in turn.entries], most)
        entries = [
            one
            if one.uncuttable or one.characters <= height
            else self._reader.truncate_characters(one, height, Reason.WINDOW_CHARACTERS)
            for one in turn.entries
        ]
        return _keep_messages(turn, [one for one in entries if one.parts], Reason.WINDOW_CHARACTERS)

    def _limit_tokens(self, turn: Turn, limit: int) -> Turn | None:
        if turn.cost <= limit:
            return turn
        limit_of_text = limit - sum(entry.around for entry in turn.entries)
        height = _height(turn.entries, [entry.tokens for entry in turn.entries], limit_of_text)
        if height < LEAST_WORDS:
            return None
        entries = tuple(
            one if one.uncuttable or one.tokens <= height else self._reader.truncate(one, height, Reason.OVER_BUDGET)
            for one in turn.entries
        )
        fitting = turn.with_entries(entries)
        return fitting if fitting.cost <= limit else None


def _height(entries: Sequence[WindowEntry], sizes: Sequence[int], limit: int) -> int:
    """The height down to which messages are cut, so that they fit beside those that are not cut."""
    fixed = sum([size for entry, size in zip(entries, sizes, strict=True) if entry.uncuttable])
    return level([size for entry, size in zip(entries, sizes, strict=True) if not entry.uncuttable], limit - fixed)


class _WindowUsage:
    """What a growing window holds, and the first limit it breaks."""

    __slots__ = ("_characters", "_messages", "_most", "_tokens", "_turns")

    def __init__(self, policy: ContextPolicy) -> None:
        self._most = policy.window_turns, policy.window_messages, policy.window_characters
        self._turns = self._messages = self._characters = self._tokens = 0

    def add(self, turn: Turn) -> None:
        if turn.entries:
            self._turns += 1
            self._messages += turn.text_messages
            self._tokens += turn.cost
            if self._most[2] is not None:
                self._characters += turn.characters

    def over(self, limit: int) -> Reason | None:
        turns, messages, characters = self._most
        if turns is not None and self._turns > turns:
            return Reason.WINDOW_TURNS
        if messages is not None and self._messages > messages:
            return Reason.WINDOW_MESSAGES
        if characters is not None and self._characters > characters:
            return Reason.WINDOW_CHARACTERS
        return Reason.OVER_BUDGET if self._tokens > limit else None


def _belongs_to_others(messages: Sequence[Message], persona: str) -> bool:
    personas = {message.persona for message in messages} - {None}
    return bool(personas) and persona not in personas


def _without_tools(turn: Turn, most: int, reason: Reason, reader: TurnReader) -> Turn:
    """The turn without its tools, and of that the newest messages: what people said outweighs how it was found.

    System messages stay. Outputs that the turn ends with stay, with their calls: they are what is to be answered.
    """
    begins = _last_exchange(turn.entries)
    talk = [_text_only(entry, reason, reader) for entry in turn.entries[:begins]]
    spoken = [one for one in talk if one is not None]
    newest = {one.message.seq for one in [one for one in spoken if not one.uncuttable][-most:]}
    spoken = [one for one in spoken if one.uncuttable or one.message.seq in newest]
    return _keep_messages(turn, [*spoken, *turn.entries[begins:]], reason)


def _last_exchange(entries: Sequence[WindowEntry]) -> int:
    """Where the calls stand whose outputs are the last messages; the end if something else is."""
    place = len(entries)
    while place and entries[place - 1].message.role is not _ASSISTANT:
        place -= 1
    if not any(one.message.role is _TOOL for one in entries[place:]):
        return len(entries)
    while place and entries[place - 1].message.role is _ASSISTANT and _has_tools(entries[place - 1]):
        place -= 1
    return place


def _has_tools(entry: WindowEntry) -> bool:
    return any(part["type"] in TOOL_PARTS for part in entry.parts)


def _awaits_answer(history: Sequence[Message], end: int) -> bool:
    """Whether these messages are the newest, and bring an output after all that the assistant said."""
    newest = takewhile(lambda message: message.role is not _ASSISTANT, reversed(history))
    return end == len(history) and any(message.role is _TOOL for message in newest)


def _keep_messages(turn: Turn, entries: Sequence[WindowEntry], reason: Reason) -> Turn:
    """The turn with those messages only; the others are hidden, with that reason."""
    stays = {entry.message.seq for entry in entries}
    hidden = tuple((entry.message, reason) for entry in turn.entries if entry.message.seq not in stays)
    return turn.with_entries(tuple(entries), hidden)


def _text_only(entry: WindowEntry, reason: Reason, reader: TurnReader) -> WindowEntry | None:
    texts = tuple(part for part in entry.parts if part["type"] not in TOOL_PARTS)
    if not texts:
        return None
    if len(texts) == len(entry.parts):
        return entry
    uncut = tuple(part for part in entry.original_parts if part["type"] not in TOOL_PARTS)
    return reader.with_parts(replace(entry, original_parts=uncut), texts, reason)


def _latest_start(turns: Sequence[Turn], least: float) -> int:
    """The last turn the window may begin with and still hold at least so many tokens."""
    tokens = 0
    for place in range(len(turns) - 1, 0, -1):
        tokens += turns[place].cost
        if tokens >= least:
            return place
    return 0


def _adjacent_ranges(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Where these turns lie, neighbours together: between them may be turns of other personas."""
    stretches: list[tuple[int, int]] = []
    for turn in turns:
        if stretches and stretches[-1][1] == turn.start:
            stretches[-1] = (stretches[-1][0], turn.end)
        else:
            stretches.append((turn.start, turn.end))
    return stretches


def roundness(number: int) -> int:
    """How often two divides it: of any stretch of numbers exactly one is the roundest, and it stays so as it moves."""
    return (number & -number).bit_length() if number else 64
