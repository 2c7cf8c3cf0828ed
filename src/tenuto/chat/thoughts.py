"""What the model thought, and what tools of its provider did, in one request: collected as it comes, and put back
among text and calls in their order.

There are two of each thought. The one that the provider made goes back to it unchanged, while this turn runs. The one
that readers see has passed the privacy policy, and is stored: where the two differ, it never goes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tenuto.model import text_part, tool_call
from tenuto.model.generation import ProviderItem, ReasoningDelta, ReasoningDone, ToolCall
from tenuto.model.provider_items import mark_without_thought
from tenuto.model.reasoning import REASONING, REDACTED, WITHHELD, is_proven
from tenuto.model.values import JsonObject


@dataclass(slots=True)
class Thought:
    """One thought: how many characters of text and how many calls are before it, what is shown, and the whole part,
    which a thought that was broken off does not have."""

    text_before: int
    calls_before: int = 0
    shown: list[str] = field(default_factory=list)
    made: JsonObject | None = None
    withheld: bool = False
    # Whether readers have heard of its end.
    ended: bool = False

    @property
    def text(self) -> str:
        """As readers see it."""
        return "".join(self.shown)

    def part(self, *, stored: bool, pending: bool = False) -> JsonObject:
        """The part as it is `stored`, or as it goes back to the provider.

        One that its provider cannot verify goes back only behind `pending` calls: elsewhere it loses its id.
        """
        text = self.text
        made = dict(self.made or {"type": REASONING, "text": text, "provider": ""})
        if not stored:
            return made
        if not pending and not is_proven(made):
            made.pop("id", None)
        if text != made["text"] and not _is_raw(text, made):
            made |= {"text": text, REDACTED: True}
            made.pop("details", None)
        return {**made, WITHHELD: True} if self.withheld else made


def _is_raw(text: str, made: JsonObject) -> bool:
    """Whether the shown text is in the part's details, for thoughts that have no summary."""
    return not made["text"] and text == "\n\n".join(made.get("details", {}).get("raw_content", ()))


@dataclass(frozen=True, slots=True)
class _Item:
    """What a tool of the provider did: how many characters of text are before it, and the index of the thought."""

    text_before: int
    behind: int
    made: JsonObject
    calls_before: ClassVar[int] = 0

    def part(self, *, stored: bool, pending: bool = False) -> JsonObject:
        """The part, which goes back as it is stored."""
        return self.made


@dataclass(slots=True)
class Thoughts:
    """The thoughts of one request, in their order, and what tools of the provider did."""

    withheld: bool = False
    # The index of the newest thought, where no reader has heard of it yet.
    unseen: int | None = None
    _by_index: dict[int, Thought] = field(default_factory=dict)
    items: list[_Item] = field(default_factory=list)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_index) + len(self.items)

    @property
    def texts(self) -> list[str]:
        """What readers are shown of them."""
        return [thought.text for thought in self._by_index.values() if thought.text and not self.withheld]

    def hear(
        self, event: ReasoningDelta | ReasoningDone | ProviderItem, texts: Sequence[str], calls_before: int
    ) -> Iterator[ReasoningDelta | ProviderItem]:
        """Add what came behind these texts and calls; gives what readers are told of it."""
        if isinstance(event, ProviderItem):
            yield from self.reveal()
            if event.done:
                self.items.append(_Item(sum(map(len, texts)), max(self._by_index, default=-1), event.part))
            yield event
            return
        if self.unseen not in (None, event.index):
            yield from self.reveal()
        if isinstance(event, ReasoningDone):
            thought = self._end(event, texts, calls_before)
            yield from self.reveal()
            if not thought.ended:
                thought.ended = True
                yield ReasoningDelta(text="", index=event.index, part=thought.part(stored=True, pending=True))
            return
        if event.index not in self._by_index:
            self._by_index[event.index] = Thought(sum(map(len, texts)), withheld=self.withheld)
            self.unseen = event.index
        if event.text:
            self._by_index[event.index].shown.append(event.text)
            if not self.withheld:
                self.unseen = None
                yield event

    def reveal(self) -> Iterator[ReasoningDelta]:
        """That there is a thought whose text is not shown, before what follows it."""
        if self.unseen is not None:
            yield ReasoningDelta(text="", index=self.unseen)
            self.unseen = None

    def _end(self, done: ReasoningDone, texts: Sequence[str], calls_before: int) -> Thought:
        """Add what the provider made of a thought. It comes once more when the answer is whole: only then is it known
        behind which call it is."""
        thought = self._by_index.pop(done.index, None)
        if thought is None:
            self.unseen = done.index
            thought = Thought(sum(map(len, texts)), withheld=self.withheld)
        thought.made, thought.calls_before = done.part, calls_before
        self._by_index[done.index] = thought
        return thought

    def parts(
        self, text: str, calls: Sequence[ToolCall], *, stored: bool, pending: bool = False
    ) -> tuple[JsonObject, ...]:
        """Thoughts, items, text and calls in the order in which they came; the results of `pending` calls come in a
        later turn."""
        if not self:
            said = (text_part(text),) if text or not calls else ()
            return (*said, *[tool_call(call.id, call.name, call.arguments) for call in calls])
        parts: list[JsonObject] = []
        last, thoughts = max(len(calls) - 1, 0), self._in_order()
        said_until = 0
        for thought in thoughts:
            if not min(thought.calls_before, last):
                parts += _text_parts(text[said_until : thought.text_before])
                said_until = max(said_until, thought.text_before)
                parts.append(thought.part(stored=stored, pending=pending))
        parts += _text_parts(text[said_until:]) if text or calls else [text_part("")]
        for number, call in enumerate(calls):
            if number:
                behind = [one for one in thoughts if min(one.calls_before, last) == number]
                parts += [one.part(stored=stored, pending=pending) for one in behind]
            parts.append(tool_call(call.id, call.name, call.arguments))
        return mark_without_thought(parts) if self.items else tuple(parts)

    def _in_order(self) -> list[Thought | _Item]:
        places: list[tuple[int, bool, Thought | _Item]] = [
            *[(index, False, thought) for index, thought in self._by_index.items()],
            *[(item.behind, True, item) for item in self.items],
        ]
        return [one for *_, one in sorted(places, key=lambda place: place[:2])]


def _text_parts(text: str) -> list[JsonObject]:
    return [text_part(text)] if text else []
