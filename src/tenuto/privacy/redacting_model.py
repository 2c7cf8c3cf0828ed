"""A chat model whose prompts are redacted by policy, and whose answers come back with the values restored.

Where the model may see everything, pseudonyms of earlier turns become values again in its prompt. Where it may not,
the prompt holds placeholders or redactions, and the session's own placeholders are restored in the answer and in the
arguments of tool calls. The offline model runs in this process and reads the turn itself, not the prompt.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tenuto.model import Role
from tenuto.model.generation import (
    ModelDone,
    ModelEvent,
    ModelRequest,
    ProviderItem,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    ToolCall,
    ToolCallRequested,
    ToolContext,
)
from tenuto.model.parameters import ModelParameters
from tenuto.model.privacy import Mode, Sink
from tenuto.model.prompt import PromptMessage
from tenuto.model.provider_items import is_provider_item
from tenuto.model.reasoning import is_reasoning
from tenuto.model.values import JsonObject
from tenuto.ports import ChatModel, ModelChain, Tool, facts_of, refused_parameters
from tenuto.privacy.json_texts import Replace, Slot, neutralizing, replace_part_texts, replace_texts
from tenuto.privacy.placeholders import RestoringStream, restore_text
from tenuto.privacy.redactor import AT_ONCE, Redactor
from tenuto.privacy.tenant_policies import ScopePolicy

if TYPE_CHECKING:
    from tenuto.privacy.detection.finder import PolicyRedactionStream


# Parameters that may hold what a user said or is called.
_WORDS: Final = frozenset({"prediction", "extra", "provider_metadata", "user", "safety_identifier", "stop"})


class RedactingModel:
    """The `ChatModel` port behind the privacy policy."""

    def __init__(self, *, model: ChatModel, redactor: Redactor) -> None:
        self._model = model
        self._redactor = redactor
        self.name = model.name
        self.chain_length = model.chain_length if isinstance(model, ModelChain) else 0
        """How many models it may try in turn."""
        self.unlimited: bool = getattr(model, "unlimited", False)
        """Whether it may take as long as it needs."""
        self.facts = facts_of(model)
        """What is known of it."""

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        """The names of those that it does not take."""
        return refused_parameters(self._model, parameters)

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """As the port says."""
        values: Mapping[str, str] = {}
        redacting: PolicyRedactionStream | None = None
        turn = request.tool_context
        if turn is not None:  # Requests for titles and summaries are redacted by their callers.
            policy = self._redactor.policy(turn.scope)
            values = await self._redactor.values(turn.session)
            request = await self._redact_request(turn, policy, values, request)
            if policy.modes[Sink.MODEL] is Mode.PSEUDONYM:
                # Redacting the prompt may have added placeholders.
                values = await self._redactor.values(turn.session)
            if policy.modes[Sink.ANSWER] is Mode.REDACT:
                redacting = self._redactor.stream(turn.scope)
        async with aclosing(self._model.stream_answer(request, tools)) as events:  # type: ignore[type-var]
            changed: AsyncIterator[ModelEvent] = events
            if values or redacting:
                outlet = _AnswerStream(values, redacting)
                changed = _restore_events(events, outlet, lambda: self._thoughts(turn, values), request.answer_tool)
            async for event in changed:
                if not isinstance(event, TextDelta) or event.text:
                    yield event

    def _thoughts(self, turn: ToolContext | None, values: Mapping[str, str]) -> _AnswerStream:
        """What changes a thought, as it does the answer."""
        redacts = turn is not None and self._redactor.policy(turn.scope).modes[Sink.ANSWER] is Mode.REDACT
        return _AnswerStream(values, self._redactor.stream(turn.scope) if turn is not None and redacts else None)

    async def _redact_request(
        self, turn: ToolContext, policy: ScopePolicy, values: Mapping[str, str], request: ModelRequest
    ) -> ModelRequest:
        mode = policy.modes[Sink.MODEL]
        if mode is Mode.KEEP and not values:
            return request
        before, messages = request.messages[: request.redacted_messages], request.messages[request.redacted_messages :]

        def walk(new_text: Replace) -> list[PromptMessage]:
            # Only the system message holds placeholders of ours.
            typed = neutralizing(new_text) if policy.has_typed_placeholders else new_text
            return [_replace_texts(one, new_text if one.role is Role.SYSTEM else typed) for one in messages]

        if mode is Mode.KEEP:
            shown = walk(lambda slot: restore_text(slot.text, values))
        else:
            shown, _ = await self._redactor.redact_walk(Sink.MODEL, turn.scope, turn.session, walk)
        parameters = await self._redact_parameters(turn, policy, request.parameters)
        return replace(request, messages=(*before, *shown), parameters=parameters)

    async def _redact_parameters(
        self, turn: ToolContext, policy: ScopePolicy, parameters: ModelParameters
    ) -> ModelParameters:
        """The parameters with their texts redacted: a provider reads them as it does the prompt."""
        texts = {name: value for name, value in parameters.given.items() if name in _WORDS}
        if policy.modes[Sink.MODEL] is Mode.KEEP or not texts:
            return parameters
        walk = partial(replace_texts, texts)
        changed, redacted = await self._redactor.redact_walk(Sink.MODEL, turn.scope, turn.session, walk)
        if not redacted:
            return parameters
        stop = {"stop": tuple(changed["stop"])} if "stop" in changed else {}
        return replace(parameters, **{**changed, **stop})


def _replace_texts(message: PromptMessage, new_text: Replace) -> PromptMessage:
    """The message with its texts replaced. What the provider thought and did in this turn goes back as it came, and
    only to itself."""
    parts = [
        part if is_reasoning(part) or is_provider_item(part) else replace_part_texts((part,), new_text)[0]
        for part in message.parts
    ]
    return replace(message, parts=tuple(parts))


class _AnswerStream:
    """The text of an answer: placeholders become values, and the result is redacted if the policy says so."""

    def __init__(self, values: Mapping[str, str], redacting: PolicyRedactionStream | None) -> None:
        self.values = values
        self._restoring = RestoringStream(values)
        self._redacting = redacting
        self.refuses = False
        """Whether the text says why the model declines to answer."""
        self._given: list[str] = []
        self._made: list[str] = []

    @property
    def redacted(self) -> dict[str, int]:
        return dict(self._redacting.redacted) if self._redacting is not None else {}

    @property
    def changed(self) -> bool:
        """Whether the text is not what the model said."""
        return "".join(self._given) != "".join(self._made)

    def ends_before(self, event: ModelEvent) -> bool:
        """Whether an event is no more of the same text."""
        return not isinstance(event, TextDelta) or event.refusal is not self.refuses

    def flush_delta(self) -> TextDelta:
        """The rest of the text, as an event."""
        return TextDelta(text=self.flush(), refusal=self.refuses)

    def feed(self, text: str) -> str:
        self._given.append(text)
        text = self._restoring.feed(text)
        self._made.append(self._redacting.feed(text) if self._redacting is not None else text)
        return self._made[-1]

    def flush(self) -> str:
        rest = self._restoring.flush()
        self._made.append(self._redacting.feed(rest) + self._redacting.flush() if self._redacting is not None else rest)
        return self._made[-1]


async def _restore_events(
    events: AsyncIterator[ModelEvent],
    outlet: _AnswerStream,
    new_thought: Callable[[], _AnswerStream],
    answer_tool: str | None,
) -> AsyncIterator[ModelEvent]:
    """The model's events with restored and redacted texts; some may be empty.

    A tool gets the values that its arguments speak of; a call that is the answer is redacted as one.
    """
    thought: tuple[int, _AnswerStream] | None = None
    redacted: Counter[str] = Counter()
    async for event in events:
        if thought is not None and not (isinstance(event, ReasoningDelta) and event.index == thought[0]):
            yield ReasoningDelta(text=thought[1].flush(), index=thought[0])
            redacted.update(thought[1].redacted)
            thought = None
        if isinstance(event, ReasoningDelta):
            thought = thought or (event.index, new_thought())
            yield replace(event, text=await _fed(thought[1], event.text))
            continue
        if not isinstance(event, ReasoningDone | ProviderItem) and outlet.ends_before(event):
            yield outlet.flush_delta()
        if isinstance(event, TextDelta):
            outlet.refuses = event.refusal
            yield replace(event, text=await _fed(outlet, event.text))
        if isinstance(event, ProviderItem):
            [part], counts = await asyncio.to_thread(_new_texts, (event.part,), new_thought)
            redacted.update(counts)
            yield replace(event, part=part)
        elif isinstance(event, ToolCallRequested):
            call, counts = await _new_call(event.call, outlet, new_thought if event.call.name == answer_tool else None)
            redacted.update(counts)
            yield ToolCallRequested(call=call)
        elif isinstance(event, ModelDone):
            if event.annotations:
                # Places in a text that is another one now would be wrong.
                cited = () if outlet.changed else _new_texts(event.annotations, new_thought)[0]
                event = replace(event, annotations=cited)
            taken = dict(redacted + Counter(outlet.redacted))
            yield replace(event, redacted=taken) if taken else event
        elif isinstance(event, ReasoningDone):
            yield event
    # A stream may break off without a `ModelDone`.
    if thought is not None:
        yield ReasoningDelta(text=thought[1].flush(), index=thought[0])
    yield outlet.flush_delta()


def _new_texts(
    values: Sequence[JsonObject], new_outlet: Callable[[], _AnswerStream]
) -> tuple[tuple[JsonObject, ...], Counter[str]]:
    """What came beside the text, with its own texts restored and redacted, and counts of what was redacted."""
    redacted: Counter[str] = Counter()
    return replace_part_texts(values, lambda slot: _new_text(slot, new_outlet, redacted)), redacted


def _new_text(slot: Slot, new_outlet: Callable[[], _AnswerStream], redacted: Counter[str]) -> str:
    outlet = new_outlet()
    text = outlet.feed(slot.text) + outlet.flush()
    redacted.update(outlet.redacted)
    return text


async def _new_call(
    call: ToolCall, outlet: _AnswerStream, new_answer: Callable[[], _AnswerStream] | None
) -> tuple[ToolCall, Counter[str]]:
    """A call with its values restored, which its tool needs; one that is the answer is redacted as an answer."""
    redacted: Counter[str] = Counter()
    if new_answer is None:
        arguments = replace_texts(call.arguments, lambda slot: restore_text(slot.text, outlet.values))
    else:
        new_text = partial(_new_text, new_outlet=new_answer, redacted=redacted)
        arguments = await asyncio.to_thread(replace_texts, call.arguments, new_text)
    return replace(call, arguments=arguments), redacted


async def _fed(outlet: _AnswerStream, text: str) -> str:
    return await asyncio.to_thread(outlet.feed, text) if len(text) > AT_ONCE else outlet.feed(text)
