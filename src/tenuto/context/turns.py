"""A history read backwards in whole turns, each message as a prompt would show it and with what it would cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from tenuto.context.tokens import MOST_CHARACTERS_A_TOKEN, MOST_TOKENS_A_CHARACTER, TOOL_TOKENS, TokenCounter
from tenuto.context.truncation import truncate_characters, truncate_parts
from tenuto.model.message import Message, Role
from tenuto.model.prompt import Disposition, Reason
from tenuto.model.values import JsonObject

_TOOLS: Final = ("tool_call", "tool_result")
# Looked up once: in a loop over a history, finding an enumeration's member takes longer than the rest.
_ITEM: Final = Role.ITEM


class LayoutMetrics(Protocol):
    """What reading a history must know of the layout it is for."""

    @property
    def shows_tools(self) -> bool:
        """Whether messages have roles, so that tools appear and no words can pass for another's."""
        ...

    @property
    def around_all(self) -> int | None:
        """The tokens every message takes beside its words, `None` where that depends on who speaks."""
        ...

    def around(self, message: Message) -> int:
        """The tokens a message takes beside its words: label, line end, role."""
        ...

    def escape_lines(self, text: str) -> str:
        """The words, kept from passing for the layout's own lines."""
        ...


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A message as the prompt shows it. `tokens` are its words', `around` its label's; `whole` is its uncut cost.

    `uncut` are its parts before anything was cut, so that a second cut leaves one mark and not two.
    """

    message: Message
    uncut: tuple[JsonObject, ...]
    parts: tuple[JsonObject, ...]
    tokens: int
    around: int
    whole: int
    fate: Disposition = Disposition.KEPT
    reason: Reason = Reason.FITS

    @property
    def cost(self) -> int:
        """What it takes in the prompt."""
        return self.tokens + self.around

    @property
    def characters(self) -> int:
        """How much talk it is."""
        return sum(len(part["text"]) for part in self.parts if part["type"] == "text")


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A turn's messages, `history[start:end]`: those that can be shown, and those that cannot, with the reason.

    `cost` is what it takes in the prompt.
    """

    number: int
    start: int
    end: int
    shown: tuple[Shown, ...]
    hidden: tuple[tuple[Message, Reason], ...]
    cost: int

    def showing(self, shown: tuple[Shown, ...], hidden: tuple[tuple[Message, Reason], ...] = ()) -> Turn:
        """The turn with other messages in it, and more of them hidden."""
        return Turn(self.number, self.start, self.end, shown, (*self.hidden, *hidden), _total_cost(shown))

    @property
    def characters(self) -> int:
        """How much talk it is."""
        return sum(shown.characters for shown in self.shown)


class VerbatimHistory(NamedTuple):
    """A history that is shown as it is, each message with as many tokens around it; `cost` is what all of it takes."""

    messages: Sequence[Message]
    around: int
    cost: int


def _total_cost(shown: Sequence[Shown]) -> int:
    return sum([one.tokens + one.around for one in shown])


def _plain_turn(messages: Sequence[Message], start: int, plain: tuple[Shown, ...]) -> Turn:
    return Turn(messages[0].turn, start, start + len(messages), plain, (), sum([one.whole for one in plain]))


def spans(history: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Where each turn lies in the history, newest first."""
    end = len(history)
    while end:
        start = end - 1
        number = history[start].turn
        while start and history[start - 1].turn == number:
            start -= 1
        yield start, end
        end = start


class TurnReader:
    """Reads turns for one layout, with a cap on each message's tokens."""

    def __init__(self, face: LayoutMetrics, counter: TokenCounter, message_cap: int) -> None:
        self._face = face
        self._counter = counter
        self._cap = message_cap
        self._around_all = face.around_all
        self._shows_tools = face.shows_tools

    def turn(self, history: Sequence[Message], start: int, end: int) -> Turn:
        """The turn at that place."""
        messages = history[start:end]
        plain = self.plain(messages)
        if plain is not None:
            return _plain_turn(messages, start, plain)
        shown: list[Shown] = []
        hidden: list[tuple[Message, Reason]] = []
        for message, parts in zip(messages, drop_unpaired_tools(messages), strict=True):
            found = self._read_message(message, parts)
            if isinstance(found, Shown):
                shown.append(found)
            else:
                hidden.append((message, found))
        return Turn(messages[0].turn, start, end, tuple(shown), tuple(hidden), _total_cost(shown))

    def plain(self, messages: Sequence[Message]) -> tuple[Shown, ...] | None:
        """Messages as they are, where each is words alone that were counted and fit: nearly every turn of any talk."""
        if not self._are_plain(messages):
            return None
        shown: list[Shown] = []
        for message in messages:
            parts, tokens = message.parts, message.tokens
            around = self._face.around(message) if self._around_all is None else self._around_all
            shown.append(Shown(message, parts, parts, tokens, around, tokens + around))
        return tuple(shown)

    def whole(self, history: Sequence[Message]) -> Turn | VerbatimHistory | None:
        """All of a plain history: as it is, or where there are labels its turns as if they were one."""
        around = self._around_all
        if around is None:
            plain = self.plain(history)
            return None if plain is None else _plain_turn(history, 0, plain)
        if not self._are_plain(history):
            return None
        return VerbatimHistory(history, around, sum([message.tokens for message in history]) + around * len(history))

    def _are_plain(self, messages: Sequence[Message]) -> bool:
        face, shows_tools, cap = self._face, self._shows_tools, self._cap
        longest, densest = MOST_CHARACTERS_A_TOKEN, MOST_TOKENS_A_CHARACTER
        for message in messages:
            parts, tokens = message.parts, message.tokens
            if len(parts) != 1 or parts[0]["type"] != "text" or message.role is _ITEM or tokens > cap:
                return False
            text = parts[0]["text"]
            length = len(text)
            # As `believable` has it, written out: this is asked of every message of every turn.
            if not length or length > tokens * longest or tokens > length * densest + TOOL_TOKENS:
                return False
            if not shows_tools and face.escape_lines(text) != text:
                return False
        return True

    def _read_message(self, message: Message, parts: tuple[JsonObject, ...]) -> Shown | Reason:
        visible = tuple(filter(self._is_visible, parts))
        if message.role is Role.ITEM or not visible:
            return _hidden_reason(message, parts)
        around = self._face.around(message)
        quoted = self._escape_parts(visible)
        if len(visible) == len(message.parts) and quoted is visible:
            tokens = self._counter.message(message)
            shown = Shown(message, visible, visible, tokens, around, tokens + around)
        else:
            tokens = sum(map(self._counter.part, quoted))
            reason = _reduced_reason(message, parts, visible)
            fate = Disposition.KEPT if reason is Reason.FITS else Disposition.CUT
            shown = Shown(message, quoted, quoted, tokens, around, tokens + around, fate, reason)
        return self.truncate(shown, self._cap, Reason.MESSAGE_CAP) if tokens > self._cap else shown

    def truncate(self, shown: Shown, limit: int, reason: Reason) -> Shown:
        """The message with its words cut down to so many tokens, as far as its tools' frames allow."""
        return self.with_parts(shown, truncate_parts(shown.uncut, limit, self._counter), reason)

    def truncate_characters(self, shown: Shown, limit: int, reason: Reason) -> Shown:
        """The message with its words cut down to so many characters."""
        cut = self.with_parts(shown, truncate_characters(shown.uncut, limit), reason)
        return cut if cut.tokens <= self._cap else self.truncate(replace(cut, uncut=cut.parts), self._cap, reason)

    def with_parts(self, shown: Shown, parts: tuple[JsonObject, ...], reason: Reason) -> Shown:
        """The message with less in it, and why."""
        parts = tuple(part for part in parts if self._is_visible(part))
        tokens = sum(map(self._counter.part, parts))
        return replace(shown, parts=parts, tokens=tokens, fate=Disposition.CUT, reason=reason)

    def _is_visible(self, part: JsonObject) -> bool:
        kind = part["type"]
        return bool(part["text"]) if kind == "text" else kind in _TOOLS and self._shows_tools

    def _escape_parts(self, parts: tuple[JsonObject, ...]) -> tuple[JsonObject, ...]:
        if self._shows_tools:
            return parts
        changed = False
        quoted: list[JsonObject] = []
        for part in parts:
            text = part["text"] if part["type"] == "text" else ""
            safe = self._face.escape_lines(text)
            changed = changed or safe != text
            quoted.append(part if safe == text else {**part, "text": safe})
        return tuple(quoted) if changed else parts


def drop_unpaired_tools(messages: Sequence[Message]) -> list[tuple[JsonObject, ...]]:
    """The parts of each message, without tool calls that got no answer and answers nobody asked for.

    An answer counts if it follows its call before anything else is said, as providers demand.
    """
    if not any(part["type"] in _TOOLS for message in messages for part in message.parts):
        return [message.parts for message in messages]
    sound: set[tuple[int, int]] = set()
    waiting: dict[str, tuple[int, int]] = {}
    for place, message in enumerate(messages):
        asked: dict[str, tuple[int, int]] = {}
        spoke = False
        for number, part in enumerate(message.parts):
            match part["type"]:
                case "tool_result":
                    call = waiting.pop(str(part.get("call_id")), None)
                    if call is not None:
                        sound |= {call, (place, number)}
                case "tool_call":
                    asked[str(part.get("id"))] = (place, number)
                case "text":
                    spoke = spoke or bool(part["text"])
        if spoke or asked:
            waiting = asked
    return [_paired_parts(place, message, sound) for place, message in enumerate(messages)]


def _paired_parts(place: int, message: Message, sound: set[tuple[int, int]]) -> tuple[JsonObject, ...]:
    return tuple(
        part for number, part in enumerate(message.parts) if part["type"] not in _TOOLS or (place, number) in sound
    )


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
