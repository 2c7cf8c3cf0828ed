"""What models think, between Pydantic AI's parts and ours, and which of it goes back to whom."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, cast

from msgspec.structs import replace
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model
from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP
from pydantic_ai.settings import ThinkingLevel

from tenuto.llm.provider_parameters import Dialect
from tenuto.llm.pydantic_ai_messages import OVER_CHAT, SIGNATURE, to_call
from tenuto.model.generation import ModelEvent, ReasoningDelta, ReasoningDone, ToolCallRequested
from tenuto.model.message import Role
from tenuto.model.prompt import PromptMessage
from tenuto.model.reasoning import REASONING, is_proven, may_return
from tenuto.model.values import JsonObject, make_storable

# The fields in which servers of the chat completions protocol give what a model thinks, unsigned.
_CHAT_FIELDS: Final = ("reasoning", "reasoning_content")
# What Pydantic AI calls thoughts that stood between tags in the text; no provider wants them back.
_IN_TAGS: Final = "content"
_REDACTED: Final = "redacted_thinking"
_RAW: Final = "raw_content"


class Thinker(NamedTuple):
    """Who thinks: the provider, its protocol, and the model. Protocols of one provider do not take each other's."""

    system: str
    dialect: Dialect
    model: str

    @classmethod
    def of(cls, model: Model, dialect: Dialect) -> Thinker:
        """The provider and the protocol of a model."""
        return cls(model.system, dialect, model.model_name)

    @property
    def provider(self) -> str:
        """The name of the provider in our parts."""
        return self.system + (OVER_CHAT if self.dialect is Dialect.OPENAI_CHAT else "")

    def delta(self, event: object) -> ReasoningDelta | None:
        """The piece of a thought in an event of a stream; an empty one marks where it begins."""
        match event:
            case PartStartEvent(index=index, part=ThinkingPart(content=text)):
                return ReasoningDelta(text=make_storable(text), index=index)
            case PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=str(text))) if text:
                return ReasoningDelta(text=make_storable(text), index=index)
            case _:
                return None

    def ended(self, response: ModelResponse, earlier: Collection[int] = ()) -> Iterator[ModelEvent]:
        """The whole thoughts and the calls of an answer, in its order; those of `earlier` indexes come again."""
        for index, part in enumerate(response.parts):
            if isinstance(part, ToolCallPart):
                call = to_call(part)
                if signature := _call_signature(part):
                    made: JsonObject = {"type": REASONING, "text": "", "signature": signature, "call_id": call.id}
                    yield ReasoningDone(part={**made, **self._maker}, index=index)
                yield ToolCallRequested(call=call)
            elif isinstance(part, ThinkingPart):
                whole = list(self.whole(part, index))
                yield from whole[-1:] if index in earlier else whole

    def whole(self, part: ThinkingPart, index: int) -> Iterator[ReasoningDelta | ReasoningDone]:
        """A thought that is whole, behind its raw text, if that was not streamed."""
        thought = self._part(part)
        if raw := "" if part.content else "\n\n".join(thought.get("details", {}).get(_RAW, ())):
            yield ReasoningDelta(text=raw, index=index)
        yield ReasoningDone(part=thought, index=index)

    def _part(self, part: ThinkingPart) -> JsonObject:
        made: JsonObject = {"type": REASONING, "text": make_storable(part.content)}
        if part.id and part.id != _IN_TAGS:
            made["id"] = part.id
        if part.signature:
            sealed = self.dialect is Dialect.OPENAI_RESPONSES or part.id == _REDACTED
            made["encrypted" if sealed else "signature"] = part.signature
        if raw := (part.provider_details or {}).get(_RAW):
            made["details"] = {_RAW: [make_storable(str(text)) for text in raw]}
        return {**made, **self._maker}

    @property
    def _maker(self) -> JsonObject:
        return {"provider": self.provider, "model": self.model}

    def prompt(self, messages: Sequence[PromptMessage]) -> tuple[Sequence[PromptMessage], int]:
        """The prompt with the thoughts that go back, and how many others it goes without.

        Those that the provider can verify go back always. Unsigned ones are demanded between calls alone; of earlier
        ones no provider asks, and they are not counted.
        """
        if not any(part["type"] == REASONING for message in messages for part in message.parts):
            return messages, 0
        loop = max((place for place, one in enumerate(messages) if one.role is Role.USER), default=0)
        kept: list[PromptMessage] = []
        foreign = 0
        for place, message in enumerate(messages):
            foreign += sum(part["type"] == REASONING and not self._is_own(part) for part in message.parts)
            parts = [
                part
                for part in message.parts
                if part["type"] != REASONING or self._goes_back(part, in_loop=place > loop)
            ]
            while parts and parts[-1]["type"] == REASONING:
                # What it led to is not in the prompt, and providers refuse a thought that leads to nothing.
                parts.pop()
            kept.append(message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts)))
        return kept, foreign

    def _is_own(self, part: JsonObject) -> bool:
        return may_return(part) and part["provider"] == self.provider

    def _goes_back(self, part: JsonObject, *, in_loop: bool) -> bool:
        if not self._is_own(part):
            return False
        return is_proven(part) or (in_loop and self.dialect is Dialect.OPENAI_CHAT and part.get("id") in _CHAT_FIELDS)


class ThoughtEnds:
    """Thoughts of a stream that are whole, until something follows that is shown: before that, another model may answer
    in place of this one."""

    def __init__(self, thinker: Thinker) -> None:
        self.indexes: set[int] = set()
        self._thinker = thinker
        self._waiting: list[ReasoningDelta | ReasoningDone] = []

    def hear(self, event: object) -> None:
        """Keep the thought that this event ends, if it ends one."""
        if isinstance(event, PartEndEvent) and isinstance(event.part, ThinkingPart):
            self.indexes.add(event.index)
            self._waiting += self._thinker.whole(event.part, event.index)

    def take(self) -> list[ReasoningDelta | ReasoningDone]:
        """Those that wait."""
        waiting, self._waiting = self._waiting, []
        return waiting


def _call_signature(part: ToolCallPart) -> str:
    """The signature that Gemini gives a call itself, natively or over the chat completions protocol."""
    details = part.provider_details or {}
    extra = details.get("extra_content")
    given = extra.get("google") if isinstance(extra, dict) else None
    signature = details.get(SIGNATURE) or (given.get(SIGNATURE) if isinstance(given, dict) else None)
    return signature if isinstance(signature, str) else ""


def lacks_first_thought(messages: Sequence[PromptMessage]) -> bool:
    """Whether the prompt goes on behind calls that were made without thinking, or by another provider."""
    for message in reversed(messages):
        if message.role is Role.USER:
            return False
        if message.role is Role.ASSISTANT:
            return bool(message.parts) and message.parts[0]["type"] != REASONING
    return False


def thinking_budget(effort: str | bool) -> int:
    """The tokens that Anthropic's models may think at an effort, where they do so within a budget."""
    return ANTHROPIC_THINKING_BUDGET_MAP[cast(ThinkingLevel, effort)]
