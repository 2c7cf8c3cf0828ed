"""Prompt layouts: roles and tools as chat models take them, or one text under headings.

Layouts do not count messages. They write a `PromptPage`, which counts the tokens of the layout itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.context.tokens import MESSAGE_TOKENS, REPLY_TOKENS, TokenCounter, truncate_text
from tenuto.context.window import VerbatimHistory, WindowEntry
from tenuto.context.wording import WORDING, Wording, language_of, quote_text
from tenuto.model.message import Message, Role, text_part
from tenuto.model.prompt import Kind, Language, LayoutName, Piece, Prompt, PromptMessage, RecallPosition
from tenuto.model.provider_items import ITEM_TYPES
from tenuto.model.reasoning import REASONING
from tenuto.model.values import Json, JsonObject, Value, to_text

_QUOTE: Final = "> "
# What a model may take for the end of a line.
_LINE_END: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Shared values have their writer and time beside them under such names, which do not belong into a prompt.
_META: Final = ".__"
STYLE_KEY: Final = "response_style"
# The tokens of one value of a board in a prompt.
_VALUE_TOKENS: Final = 500
_BEGINNING: Final = (Kind.SYSTEM, Kind.PREFERENCES, Kind.SUMMARY)
_USER: Final = Role.USER
_TOOL: Final = Role.TOOL
_SYSTEM: Final = Role.SYSTEM
_GAP: Final = text_part("\n\n")


class PromptParts(Value, frozen=True, kw_only=True):
    """The parts of a prompt; empty ones get no heading. Where there are `question_parts`, they are the question."""

    system: str = ""
    preferences: str = ""
    summary: str = ""
    memories: tuple[Piece, ...] = ()
    evidence: tuple[Piece, ...] = ()
    chat_context: tuple[Piece, ...] = ()
    window: tuple[WindowEntry, ...] | VerbatimHistory = ()
    question: str = ""
    question_parts: tuple[JsonObject, ...] = ()
    speaker: str | None = None


@dataclass(slots=True)
class PromptPage:
    """A prompt being written; `frame` sums up the tokens that belong to the layout and not to what it shows.

    The next turn's prompt begins with the same `cacheable_messages`, which show what is of `cacheable_kinds` in
    `cacheable_frame` tokens of the layout.
    """

    _counter: TokenCounter
    frame: int = REPLY_TOKENS
    cacheable_messages: int = 0
    cacheable_kinds: tuple[Kind, ...] = ()
    cacheable_frame: int = 0
    _messages: list[PromptMessage] = field(default_factory=list)
    _role: Role | None = None
    _parts: list[JsonObject] = field(default_factory=list)

    def message(self, role: Role) -> None:
        """Begin a message of the layout."""
        self._close_message()
        self._role = role
        self.frame += MESSAGE_TOKENS

    def mark_cacheable(self, *kinds: Kind) -> None:
        """What has been written so far, which is of these kinds, begins the next turn's prompt, too."""
        self.cacheable_messages = len(self)
        self.cacheable_kinds, self.cacheable_frame = kinds, self.frame - REPLY_TOKENS

    def as_is(self, messages: Sequence[Message]) -> None:
        """Add stored messages unchanged."""
        self._close_message()
        self._messages += [PromptMessage(role=one.role, parts=one.parts, message_id=one.id) for one in messages]

    def add_entries(self, window: Sequence[WindowEntry], label: Callable[[Message], str] | None) -> None:
        """Add messages that may have been cut, each with its label if there are labels."""
        self._close_message()
        if label is None:
            self._messages += [
                PromptMessage(role=one.message.role, parts=one.parts, message_id=one.message.id) for one in window
            ]
            return
        for one in window:
            prefix = label(one.message)
            parts = (text_part(prefix), *one.parts) if prefix else one.parts
            self._messages.append(PromptMessage(role=one.message.role, parts=parts, message_id=one.message.id))

    def add_frame(self, text: str) -> None:
        """Add text of the layout itself."""
        if text:
            self.add_text(text)
            self.frame += self._counter.count_fixed(text)

    def add_text(self, text: str) -> None:
        """Add text, or a label that counts with it, to the last message."""
        if text:
            self._parts.append(text_part(text))

    def add_question(self, parts: PromptParts) -> None:
        """Add the question, with what it shows."""
        if parts.question_parts:
            self._parts += [part for part in parts.question_parts if part.get("text") != ""]
        else:
            self.add_text(parts.question)

    def __len__(self) -> int:
        """How many messages there are so far."""
        return len(self._messages) + (self._role is not None)

    def messages(self) -> tuple[PromptMessage, ...]:
        """The finished page."""
        self._close_message()
        return tuple(self._messages)

    def _close_message(self) -> None:
        if self._role is not None:
            self._messages.append(PromptMessage(role=self._role, parts=tuple(self._parts)))
            self._role, self._parts = None, []


class TextHeadings(Value, frozen=True, kw_only=True):
    """The headings of a one-text layout."""

    history: str
    history_end: str
    question: str
    question_end: str = ""


class Layout(msgspec.Struct, frozen=True):
    """A prompt format for one language and one set of names. Without a `sheet` messages have roles.

    `names` are of personas. `speakers` are of users, where several of them speak.
    """

    name: LayoutName
    language: Language
    wording: Wording
    counter: TokenCounter
    sheet: TextHeadings | None
    names: Mapping[str, str] = {}
    recall_position: RecallPosition = RecallPosition.BEFORE_QUESTION
    speakers: Mapping[str, str] = {}

    @property
    def shows_tools(self) -> bool:
        """Tools are shown where messages have roles."""
        return self.sheet is None

    @property
    def around_all(self) -> int | None:
        """With roles and without names the overhead of every message is the same."""
        return MESSAGE_TOKENS if self.sheet is None and not self.speakers else None

    def around(self, message: Message) -> int:
        """A message's label, line end and role."""
        end = MESSAGE_TOKENS if self.sheet is None else self.counter.count_fixed("\n")
        label = self.label(message)
        return end + self.counter.count_fixed(label) if label else end

    def snippet_overhead(self, piece: Piece, evidence: bool) -> int:
        """The tokens of a memory or a piece of evidence besides its text."""
        label = self.counter.count(_citation(piece)) if evidence else self.counter.count_fixed("- ")
        return label + self.counter.count_fixed("\n")

    def label(self, message: Message) -> str:
        """The speaker's label at the beginning of the line."""
        match message.role:
            case Role.USER:
                return self.speaker_label(message.speaker) or (self.wording.user if self.sheet is not None else "")
            case _ if self.sheet is None:
                return ""
            case Role.ASSISTANT:
                name = self.names.get(message.persona) if message.persona is not None else None
                return f"{name}: " if name else self.wording.assistant
            case _:
                return self.wording.system

    def speaker_label(self, who: str | None) -> str:
        """The label with the speaker's name; empty where only one user speaks."""
        name = self.speakers.get(who) if who is not None else None
        return f"{name}: " if name else self.wording.user if self.speakers else ""

    def escape_user_lines(self, text: str) -> str:
        """A user's text; where several speak each further line is quoted, so that none begins with another's label."""
        return _LINE_END.sub(rf"\g<0>{_QUOTE}", text) if self.speakers else text

    def escape_lines(self, text: str, role: Role | None = None) -> str:
        """The text, escaped so that no line can imitate a heading or another speaker."""
        if role is Role.USER and self.speakers:
            return self.escape_user_lines(text)
        if self.sheet is None or "\n" not in text:
            return text
        first, *lines = text.split("\n")
        return "\n".join(
            [first, *(_QUOTE + line if line.startswith(self._reserved_prefixes()) else line for line in lines)]
        )

    def _reserved_prefixes(self) -> tuple[str, ...]:
        wording, names = self.wording, tuple(f"{name}:" for name in (*self.names.values(), *self.speakers.values()))
        return (
            "===",
            "【",
            "[",
            wording.plain_history.strip(),
            wording.plain_question.strip(),
            wording.user.strip(),
            wording.assistant.strip(),
            wording.system.strip(),
            *names,
        )

    def reserve(self, speaker: str | None = None) -> int:
        """The maximum of tokens that the layout itself takes."""
        label = self.speaker_label(speaker)
        tokens = _reserved_tokens(self.name, self.language, self.counter.encoding, self.recall_position)
        return tokens + self.counter.count_fixed(label) if label else tokens

    def write(self, page: PromptPage, parts: PromptParts) -> None:
        """Fill the page."""
        if self.sheet is not None:
            self._render_text(page, parts, self.sheet)
            return
        for heading, text in (
            ("", parts.system),
            (self.wording.preferences, parts.preferences),
            (self.wording.summary, parts.summary),
        ):
            if text:
                page.message(Role.SYSTEM)
                page.add_frame(heading)
                page.add_text(text)
        early = self.recall_position is RecallPosition.BEFORE_WINDOW
        recalls = bool(parts.memories or parts.evidence or parts.chat_context)
        page.mark_cacheable(*_BEGINNING)
        if early and recalls:
            page.message(Role.SYSTEM)
            self._render_snippets(page, parts)
        if isinstance(parts.window, VerbatimHistory):
            page.as_is(parts.window.messages)
        else:
            page.add_entries(parts.window, self.label if self.speakers else None)
        if not early:
            page.mark_cacheable(*_BEGINNING, Kind.MESSAGE)
        if not (parts.question or parts.question_parts or (recalls and not early)):
            # The outputs of tools are answered, which are the last of the window.
            return
        page.message(Role.USER)
        if recalls and not early:
            self._render_snippets(page, parts)
        page.add_frame(self.speaker_label(parts.speaker))
        page.add_question(parts)

    def _render_text(self, page: PromptPage, parts: PromptParts, sheet: TextHeadings) -> None:
        if parts.system or parts.preferences or parts.summary:
            page.message(Role.SYSTEM)
        for heading, text in (
            ("", parts.system),
            (self.wording.preferences, parts.preferences),
            (self.wording.summary, parts.summary),
        ):
            if text:
                page.add_frame(heading)
                page.add_text(text)
                page.add_frame("\n\n")
        page.mark_cacheable(*_BEGINNING)
        page.message(Role.USER)
        if self.recall_position is RecallPosition.BEFORE_WINDOW:
            self._render_snippets(page, parts)
        self._render_history(page, parts.window, sheet)
        if self.recall_position is RecallPosition.BEFORE_QUESTION:
            self._render_snippets(page, parts)
        label = self.speaker_label(parts.speaker)
        page.add_frame(sheet.question.removesuffix(self.wording.user) if label else sheet.question)
        page.add_frame(label)
        page.add_question(parts)
        page.add_frame(sheet.question_end)

    def _render_history(
        self, page: PromptPage, window: tuple[WindowEntry, ...] | VerbatimHistory, sheet: TextHeadings
    ) -> None:
        assert not isinstance(window, VerbatimHistory), "a sheet has labels"
        if not window:
            return
        page.add_frame(sheet.history)
        for shown in window:
            page.add_text(self.label(shown.message))
            for part in shown.parts:
                page.add_text(part["text"])
            page.add_text("\n")
        page.add_frame(sheet.history_end)

    def _render_snippets(self, page: PromptPage, parts: PromptParts) -> None:
        wording = self.wording
        for heading, pieces, end in (
            (wording.memories, [("- ", piece) for piece in parts.memories], wording.memories_end),
            (wording.evidence, [(_citation(piece), piece) for piece in parts.evidence], wording.evidence_end),
            (wording.chat_context, [("- ", piece) for piece in parts.chat_context], wording.chat_context_end),
        ):
            if pieces:
                page.add_frame(heading)
                for label, piece in pieces:
                    page.add_text(label)
                    page.add_text(piece.text)
                    page.add_text("\n")
                page.add_frame(end + "\n")


def _citation(piece: Piece) -> str:
    return f"[{piece.id}] "


def layout_for(
    name: LayoutName,
    language: Language,
    counter: TokenCounter,
    names: Mapping[str, str],
    recall_position: RecallPosition,
    speakers: Mapping[str, str] = MappingProxyType({}),
) -> Layout:
    """The layout of that name in that language."""
    headings = _headings_for(name, language)
    return Layout(name, language, WORDING[language], counter, headings, names, recall_position, speakers)


@cache
def _reserved_tokens(name: LayoutName, language: Language, encoding: str, position: RecallPosition) -> int:
    """The tokens of a layout with all its parts, without the speaker's name."""
    counter = TokenCounter(encoding)
    layout = layout_for(name, language, counter, {}, position)
    page = PromptPage(counter)
    one = (Piece(id="", text=""),)
    text = "-"
    parts = PromptParts(
        system=text, preferences=text, summary=text, memories=one, evidence=one, chat_context=one, question=text
    )
    layout.write(page, parts)
    if layout.sheet is not None:
        page.add_frame(layout.sheet.history)
        page.add_frame(layout.sheet.history_end)
    return page.frame


@cache
def _headings_for(name: LayoutName, language: Language) -> TextHeadings | None:
    wording = WORDING[language]
    match name:
        case LayoutName.CHAT:
            return None
        case LayoutName.GOODS:
            return TextHeadings(
                history=wording.goods_history,
                history_end="\n",
                question=wording.goods_question + wording.user,
                question_end="\n" + wording.goods_closing,
            )
        case LayoutName.QUESTION:
            return TextHeadings(history=wording.plain_history, history_end="", question=wording.plain_question)
        case LayoutName.MARKED:
            return TextHeadings(history=wording.marked_history, history_end=wording.marked_end, question=wording.user)


def join_unanswered(prompt: Prompt) -> tuple[tuple[PromptMessage, ...], int]:
    """The messages as a model takes them, and how many of them are cacheable.

    Words without an answer are joined with those that follow, since strict chat templates want roles to alternate. The
    gap takes fewer tokens than the message that it saves, so the budget holds. Calls that were made at once are one
    message with the thoughts before them, and their outputs follow it.
    """
    roles = [message.role for message in prompt.messages]
    repeated = [role for role, following in pairwise(roles) if role is following and role is not _SYSTEM]
    if not repeated and _TOOL not in roles:  # Nearly every prompt.
        return prompt.messages, min(prompt.cacheable_messages, len(roles))
    messages: list[PromptMessage] = []
    cacheable = 0
    for place, one in enumerate(prompt.messages):
        if one.role is _TOOL:
            messages.insert(_behind_assistant(messages), one)
        elif (
            messages
            and one.role is messages[-1].role is Role.ASSISTANT
            and (_has_calls(one) or _leads_on(messages[-1]))
        ):
            messages[-1] = replace(messages[-1], parts=(*messages[-1].parts, *one.parts))
        elif messages and one.role is messages[-1].role is _USER:
            messages[-1] = PromptMessage(role=_USER, parts=(*messages[-1].parts, _GAP, *one.parts))
        else:
            messages.append(one)
        if place < prompt.cacheable_messages:
            cacheable = len(messages)
        elif place == prompt.cacheable_messages:
            # What the question was joined with ends with it, and is not shared.
            cacheable = min(cacheable, len(messages) - 1)
    return tuple(messages), cacheable


def _has_calls(message: PromptMessage) -> bool:
    return any(part["type"] == "tool_call" for part in message.parts)


def _leads_on(message: PromptMessage) -> bool:
    """Whether an assistant's message goes on in the next one: it called, or does not end with text."""
    last = message.parts[-1]["type"] if message.parts else None
    return last == REASONING or last in ITEM_TYPES or _has_calls(message)


def _behind_assistant(messages: Sequence[PromptMessage]) -> int:
    """Where words that stand between the last calls and an output begin."""
    place = len(messages)
    while place and messages[place - 1].role not in (_TOOL, Role.ASSISTANT):
        place -= 1
    return place or len(messages)


# The system prompt of one agent among several


def agent_system(
    role: str,
    goal: str,
    board: Mapping[str, Json],
    counter: TokenCounter,
    style: str | None = None,
    value_tokens: int = _VALUE_TOKENS,
    language: Language = Language.CHINESE,
) -> str:
    """The system prompt of an agent; values of the shared board longer than `value_tokens` are cut visibly.

    Further lines of goal and values are quoted, so that none passes for a line of the prompt itself.
    """
    wording = WORDING[language]
    lines = [wording.role.format(role=role), wording.goal.format(goal=_quote_lines(goal))]
    lines.append(_shared_lines(board, counter, value_tokens, wording))
    if style:
        lines.append(f"{wording.style}{' '.join(style.split())}\n")
    return "".join(lines)


def _shared_lines(board: Mapping[str, Json], counter: TokenCounter, value_tokens: int, wording: Wording) -> str:
    entries = [(_quote_lines(key), to_text(value)) for key, value in board.items() if _META not in key]
    if not entries:
        return ""
    lines = [(key, truncate_text(text, value_tokens, counter.count)) for key, text in entries]
    return "".join([wording.shared, *(f"- {key}: {_quote_lines(text)}\n" for key, text in lines), wording.shared_end])


def agent_prompt(role: str, goal: str, board: Mapping[str, Json], profile: JsonObject) -> str:
    """The system prompt of an agent in the language of its goal, with the response style of the user's profile."""
    style = profile.get(STYLE_KEY)
    language = language_of(goal or role)
    return agent_system(role, goal, board, TokenCounter(), to_text(style) if style else None, language=language)


def agent_question(goal: str, board: Mapping[str, Json]) -> str:
    """The goal as a question to an assistant, which has a system prompt of its own, and what other agents wrote."""
    lines = _shared_lines(board, TokenCounter(), _VALUE_TOKENS, WORDING[language_of(goal)])
    return f"{goal}\n\n{lines.rstrip()}" if lines else goal


def _quote_lines(text: str) -> str:
    return _LINE_END.sub(rf"\n{_QUOTE}", text)


def profile_text(profile: Mapping[str, Json], language: Language) -> str:
    """A user's profile as the prompt's preferences: one line each, in a fixed order, the response style last.

    A caller wrote names and values, so both are quoted.
    """
    wording = WORDING[language]
    values = {key: quote_text(to_text(value)) for key, value in profile.items() if value not in (None, "", [], {})}
    style = values.pop(STYLE_KEY, None)
    lines = [f"- {quote_text(key)}: {values[key]}" for key in sorted(values)]
    return "\n".join([*lines, f"{wording.style}{style}"] if style else lines)
