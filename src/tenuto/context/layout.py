"""How a prompt is written down: roles and tools as chat models take them, or one text under headings.

Layouts count nothing of what users said. They write a `Page`, which keeps the tokens of the layout's own words apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

from tenuto.context.cutting import cut
from tenuto.context.tokens import MESSAGE_TOKENS, REPLY_TOKENS, Counter, as_text
from tenuto.context.turns import AsIs, Shown
from tenuto.context.wording import Wording, wording
from tenuto.model.message import Message, Role, text_part
from tenuto.model.prompt import Language, LayoutName, Piece, PromptMessage, RecallPlace
from tenuto.model.values import Json, JsonObject, Value

_QUOTE: Final = "> "
# Shared values have their writer and time beside them under such names, which do not belong into a prompt.
_META: Final = ".__"
STYLE_KEY: Final = "response_style"


class Chosen(Value, frozen=True, kw_only=True):
    """What goes onto the page; empty parts leave no heading behind."""

    system: str = ""
    preferences: str = ""
    summary: str = ""
    memories: tuple[Piece, ...] = ()
    evidence: tuple[Piece, ...] = ()
    window: tuple[Shown, ...] | AsIs = ()
    question: str = ""
    speaker: str | None = None


class Page:
    """A prompt being written; `frame` sums up the tokens that belong to the layout and not to what it shows."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._done: list[PromptMessage] = []
        self._role: Role | None = None
        self._parts: list[JsonObject] = []
        self.frame = REPLY_TOKENS

    def message(self, role: Role) -> None:
        """Begin a message of the layout."""
        self._end()
        self._role = role
        self.frame += MESSAGE_TOKENS

    def as_is(self, messages: Sequence[Message]) -> None:
        """Stored messages as messages of their own."""
        self._end()
        self._done += [PromptMessage(role=one.role, parts=one.parts, source=one.id) for one in messages]

    def shown(self, window: Sequence[Shown], label: Callable[[Message], str] | None) -> None:
        """The same of messages that may have been cut, where there are labels each under its own."""
        self._end()
        if label is None:
            self._done += [
                PromptMessage(role=one.message.role, parts=one.parts, source=one.message.id) for one in window
            ]
            return
        for one in window:
            said = label(one.message)
            parts = (text_part(said), *one.parts) if said else one.parts
            self._done.append(PromptMessage(role=one.message.role, parts=parts, source=one.message.id))

    def fixed(self, text: str) -> None:
        """Words of the layout."""
        if text:
            self.words(text)
            self.frame += self._counter.fixed(text)

    def words(self, text: str) -> None:
        """Words that are shown, or a label that counts with them; they go to the message that was begun last."""
        if text:
            self._parts.append(text_part(text))

    def __len__(self) -> int:
        """How many messages there are so far."""
        return len(self._done) + (self._role is not None)

    def messages(self) -> tuple[PromptMessage, ...]:
        """The finished page."""
        self._end()
        return tuple(self._done)

    def _end(self) -> None:
        if self._role is not None:
            self._done.append(PromptMessage(role=self._role, parts=tuple(self._parts)))
            self._role, self._parts = None, []


class Sheet(Value, frozen=True, kw_only=True):
    """The headings of a one-text layout."""

    history: str
    history_end: str
    question: str
    closing: str = ""


class Layout(msgspec.Struct, frozen=True):
    """One way of writing prompts, for one language and one cast of names. Without a `sheet` messages have roles."""

    name: LayoutName
    language: Language
    words: Wording
    counter: Counter
    sheet: Sheet | None
    names: Mapping[str, str] = {}
    recalled: RecallPlace = RecallPlace.BEFORE_QUESTION

    @property
    def shows_tools(self) -> bool:
        """Tools are shown where messages have roles."""
        return self.sheet is None

    @property
    def around_all(self) -> int | None:
        """Where messages have roles and nobody has a name, each takes the same."""
        return MESSAGE_TOKENS if self.sheet is None and not self.names else None

    def around(self, message: Message) -> int:
        """A message's label, line end and role."""
        end = MESSAGE_TOKENS if self.sheet is None else self.counter.fixed("\n")
        label = self.label(message)
        return end + self.counter.fixed(label) if label else end

    def around_piece(self, piece: Piece, evidence: bool) -> int:
        """What a memory or a piece of evidence takes beside its text."""
        label = self.counter.count(_cited(piece)) if evidence else self.counter.fixed("- ")
        return label + self.counter.fixed("\n")

    def label(self, message: Message) -> str:
        """Who speaks, as the line begins."""
        if self.sheet is None:
            return self.named(message.speaker, "") if self.names and message.role is Role.USER else ""
        match message.role:
            case Role.USER:
                return self.named(message.speaker, self.words.user)
            case Role.ASSISTANT:
                return self.named(message.persona, self.words.assistant)
            case _:
                return self.words.system

    def named(self, who: str | None, otherwise: str) -> str:
        """A label from somebody's name, if it is known."""
        name = self.names.get(who) if who is not None else None
        return f"{name}: " if name else otherwise

    def quoted(self, text: str) -> str:
        """Words whose further lines cannot pass for headings or for another speaker's line."""
        if self.sheet is None or "\n" not in text:
            return text
        first, *lines = text.split("\n")
        return "\n".join([first, *(_QUOTE + line if line.startswith(self._signs()) else line for line in lines)])

    def _signs(self) -> tuple[str, ...]:
        words, names = self.words, tuple(f"{name}:" for name in self.names.values())
        return ("===", "【", "[", words.plain_history.strip(), words.plain_question.strip(), *self._speakers(), *names)

    def _speakers(self) -> tuple[str, ...]:
        return (self.words.user.strip(), self.words.assistant.strip(), self.words.system.strip())

    def reserve(self, speaker: str | None = None) -> int:
        """The most the layout itself can take."""
        label = self.named(speaker, "") if self.sheet is None else ""
        reserved = _reserved(self.name, self.language, self.counter.encoding, self.recalled)
        return reserved + self.counter.fixed(label) if label else reserved

    def write(self, page: Page, chosen: Chosen) -> int:
        """Fill the page; returns how many of its messages open the next turn's prompt as well."""
        if self.sheet is None:
            return self._write_chat(page, chosen)
        return self._write_text(page, chosen, self.sheet)

    def _write_chat(self, page: Page, chosen: Chosen) -> int:
        for heading, text in (
            ("", chosen.system),
            (self.words.preferences, chosen.preferences),
            (self.words.summary, chosen.summary),
        ):
            if text:
                page.message(Role.SYSTEM)
                page.fixed(heading)
                page.words(text)
        early, recalls = self.recalled is RecallPlace.BEFORE_WINDOW, bool(chosen.memories or chosen.evidence)
        stable = len(page)
        if early and recalls:
            page.message(Role.SYSTEM)
            self._write_recalled(page, chosen)
        if isinstance(chosen.window, AsIs):
            page.as_is(chosen.window.messages)
        else:
            page.shown(chosen.window, self.label if self.names else None)
        stable = stable if early else len(page)
        page.message(Role.USER)
        if recalls and not early:
            self._write_recalled(page, chosen)
        page.fixed(self.named(chosen.speaker, ""))
        page.words(chosen.question)
        return stable

    def _write_text(self, page: Page, chosen: Chosen, sheet: Sheet) -> int:
        if chosen.system or chosen.preferences or chosen.summary:
            page.message(Role.SYSTEM)
        for heading, text in (
            ("", chosen.system),
            (self.words.preferences, chosen.preferences),
            (self.words.summary, chosen.summary),
        ):
            if text:
                page.fixed(heading)
                page.words(text)
                page.fixed("\n\n")
        stable = len(page)
        page.message(Role.USER)
        if self.recalled is RecallPlace.BEFORE_WINDOW:
            self._write_recalled(page, chosen)
        self._write_history(page, chosen.window, sheet)
        if self.recalled is RecallPlace.BEFORE_QUESTION:
            self._write_recalled(page, chosen)
        page.fixed(sheet.question)
        page.words(chosen.question)
        page.fixed(sheet.closing)
        return stable

    def _write_history(self, page: Page, window: tuple[Shown, ...] | AsIs, sheet: Sheet) -> None:
        assert not isinstance(window, AsIs), "a sheet has labels"
        if not window:
            return
        page.fixed(sheet.history)
        for shown in window:
            page.words(self.label(shown.message))
            for part in shown.parts:
                page.words(part["text"])
            page.words("\n")
        page.fixed(sheet.history_end)

    def _write_recalled(self, page: Page, chosen: Chosen) -> None:
        words = self.words
        for heading, pieces, end in (
            (words.memories, [("- ", piece) for piece in chosen.memories], words.memories_end),
            (words.evidence, [(_cited(piece), piece) for piece in chosen.evidence], words.evidence_end),
        ):
            if pieces:
                page.fixed(heading)
                for label, piece in pieces:
                    page.words(label)
                    page.words(piece.text)
                    page.words("\n")
                page.fixed(end + "\n")


def _cited(piece: Piece) -> str:
    return f"[{piece.id}] "


def layout_for(
    name: LayoutName, language: Language, counter: Counter, names: Mapping[str, str], recalled: RecallPlace
) -> Layout:
    """The layout of that name in that language."""
    return Layout(name, language, wording(language), counter, _sheet(name, language), names, recalled)


@cache
def _reserved(name: LayoutName, language: Language, encoding: str, recalled: RecallPlace) -> int:
    """What a layout takes when all its parts are there, but for the speaker's name."""
    counter = Counter(encoding)
    layout = layout_for(name, language, counter, {}, recalled)
    page = Page(counter)
    one = (Piece(id="", text=""),)
    layout.write(page, Chosen(system="-", preferences="-", summary="-", memories=one, evidence=one))
    if layout.sheet is not None:
        page.fixed(layout.sheet.history)
        page.fixed(layout.sheet.history_end)
    return page.frame


@cache
def _sheet(name: LayoutName, language: Language) -> Sheet | None:
    words = wording(language)
    match name:
        case LayoutName.CHAT:
            return None
        case LayoutName.GOODS:
            return Sheet(
                history=words.goods_history,
                history_end="\n",
                question=words.goods_question + words.user,
                closing="\n" + words.goods_closing,
            )
        case LayoutName.QUESTION:
            return Sheet(history=words.plain_history, history_end="", question=words.plain_question)
        case LayoutName.MARKED:
            return Sheet(history=words.marked_history, history_end=words.marked_end, question=words.user)


# The system prompt of one agent among several


def agent_system(
    role: str,
    goal: str,
    shared: Mapping[str, Json],
    counter: Counter,
    style: str | None = None,
    value_tokens: int = 500,
    language: Language = Language.CHINESE,
) -> str:
    """The system prompt of an agent; values of the shared board longer than `value_tokens` are cut visibly."""
    words = wording(language)
    lines = [words.role.format(role=role), words.goal.format(goal=goal)]
    entries = [(key, value) for key, value in shared.items() if _META not in key]
    if entries:
        lines.append(words.shared)
        lines += [f"- {key}: {cut(as_text(value), value_tokens, counter.count)}\n" for key, value in entries]
        lines.append("\n")
    if style:
        lines.append(f"{words.style}{style}\n")
    return "".join(lines)


def profile_text(profile: Mapping[str, Json], language: Language) -> str:
    """A user's profile as the prompt's preferences: one line each, in a fixed order, the response style last."""
    words = wording(language)
    known = {key: as_text(value) for key, value in profile.items() if value not in (None, "", [], {})}
    style = known.pop(STYLE_KEY, None)
    lines = [f"- {key}: {known[key]}" for key in sorted(known)]
    return "\n".join([*lines, f"{words.style}{style}"] if style else lines)
