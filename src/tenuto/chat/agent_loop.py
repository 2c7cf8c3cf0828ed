"""The agent loop: request the model, run the tools it calls, repeat until it answers; text is emitted as it arrives."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Counts
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from tenuto.chat.answer_form import find_faults
from tenuto.chat.request import CallRequested, ChatEvent
from tenuto.chat.thoughts import Thoughts
from tenuto.chat.toolbox import Emit, Toolbox
from tenuto.chat.written_calls import WrittenCalls
from tenuto.context import TokenCounter, truncate_text
from tenuto.context.tokens import TOOL_TOKENS
from tenuto.errors import AnswerInvalid, FailureReason, ModelFailed, ModelTimeout
from tenuto.model import Role, Usage, text_part, tool_result
from tenuto.model.attachment import ATTACHMENT
from tenuto.model.generation import (
    NONE,
    REPAIR,
    UNREADABLE,
    ModelDone,
    ModelEvent,
    ModelRequest,
    ProviderItem,
    ReasoningDelta,
    ReasoningDone,
    StepChanged,
    TextDelta,
    ToolCall,
    ToolCallRequested,
    ToolResult,
)
from tenuto.model.media import keep_media
from tenuto.model.parameters import AnswerSchema, FinishReason
from tenuto.model.privacy import REDACTED
from tenuto.model.prompt import Language, PromptMessage
from tenuto.model.provider_items import ITEM_TYPES, with_annotations
from tenuto.model.reasoning import REASONING
from tenuto.model.turn import TraceSpan
from tenuto.model.values import JsonObject, to_text
from tenuto.ports import ChatModel, Telemetry, Tool, time_limit

_NOTHING_SPENT: Final = (0, 0, 0)
_CALLS: Final = ("model", "tools")


@dataclass(slots=True)
class StepTimer:
    """Collects milliseconds by step; repeated steps add up.

    With telemetry each step is a span, except for calls of models and tools, which have spans of their own.

    `spans` has every run of a step by itself, from `began` on, with what the model read, wrote and cost meanwhile.
    """

    telemetry: Telemetry | None = None
    taken: dict[str, float] = field(default_factory=dict)
    spans: list[TraceSpan] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def step(self, name: str, completion: Completion | None = None) -> AbstractContextManager[None]:
        """The step that runs within it, and ends with it however it ends."""
        if self.telemetry is None or name in _CALLS:
            return _Step(self, name, completion)
        return self._spanned_step(self.telemetry, name, completion)

    @contextmanager
    def _spanned_step(self, telemetry: Telemetry, name: str, completion: Completion | None) -> Iterator[None]:
        with _Step(self, name, completion), telemetry.span(name):
            yield


class _Step:
    """One run of a step. A class, since every turn has several and a generator takes three times as long."""

    __slots__ = ("_before", "_began", "_completion", "_name", "_timer")

    def __init__(self, timer: StepTimer, name: str, completion: Completion | None) -> None:
        self._timer, self._name, self._completion = timer, name, completion

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        self._before = _NOTHING_SPENT if self._completion is None else self._completion.spent

    def __exit__(self, *_: object) -> None:
        timer, name, before = self._timer, self._name, self._before
        spent = before if self._completion is None else self._completion.spent
        taken = (time.perf_counter() - self._began) * 1000
        timer.taken[name] = round(timer.taken.get(name, 0.0) + taken, 3)
        timer.spans.append(
            TraceSpan(
                name=name,
                start=round((self._began - timer.began) * 1000, 3),
                milliseconds=round(taken, 3),
                input_tokens=spent[0] - before[0],
                output_tokens=spent[1] - before[1],
                cost_nanos=spent[2] - before[2],
            )
        )


BeforeCut: TypeAlias = Callable[[str], Awaitable[tuple[str, Mapping[str, int]]]]

# Tokens that a tool's output keeps when the prompt is full.
_LEAST_OUTPUT: Final = 16
_WHOLE: Final = (FinishReason.STOP, FinishReason.TOOL_CALLS)
_REPAIR: Final = "Answer again, with nothing but JSON that has the demanded form."
_REPAIRING: Final = {Language.ENGLISH: "Answering again in the demanded form", Language.CHINESE: "按要求的格式重新回答"}
# Answers that end so may have no words: all tokens were thought, or the provider withheld them.
_SILENT: Final = (FinishReason.LENGTH, FinishReason.CONTENT_FILTER)
# Characters of arguments that cannot be read which go back to the model.
_SHOWN_UNREADABLE: Final = 2_000
# Further calls of one round fail as too many.
_MOST_CALLS: Final = 16
# Models have their own timeout; this one is a little longer and covers those that fail to stop.
_GRACE: Final = timedelta(seconds=5)


@dataclass(slots=True)
class Completion:
    """What the model has returned so far."""

    # All of the rounds that have ended, however they did.
    text: str = ""
    # The answer as it is stored, once it is complete.
    parts: tuple[JsonObject, ...] = ()
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    finish: FinishReason = FinishReason.STOP
    logprobs: tuple[JsonObject, ...] | None = None
    # Parameters of the request that the model which answered does not take.
    dropped_parameters: tuple[str, ...] = ()
    # Thoughts of the prompt that did not go to the model, at most in one request.
    dropped_reasoning: int = 0
    # The same of what tools of a provider did.
    dropped_items: int = 0
    # What the text cites.
    annotations: tuple[JsonObject, ...] = ()
    # What was thought before the answer; that before calls of our own tools is stored with these.
    thoughts: Thoughts = field(default_factory=Thoughts)
    # Pictures, sounds and files that a fallback did not get, and those of our own tools that no model got.
    media_left_out: int = 0
    tool_media_left_out: int = 0
    # Our count of the answer as it is stored, which is the output where a model reports none.
    stored_tokens: int = 0
    offline: bool = False
    used_fallback: bool = False
    fallback_reason: FailureReason | None = None
    fallback_message: str = ""
    # Counts of redacted values in `text`, by type.
    redacted: dict[str, int] = field(default_factory=dict)
    # Calls of the caller's tools, which end the turn.
    calls: list[ToolCall] = field(default_factory=list)
    # Whether `text` is the arguments of a call, in a form that the caller demands.
    is_formed: bool = False
    # Whether the turn was stopped: `text` is what had been said until then.
    stopped: bool = False
    # Calls and results of the rounds before the answer, as they are stored: (role, parts, metadata).
    tool_messages: list[tuple[Role, tuple[JsonObject, ...], JsonObject]] = field(default_factory=list)

    def complete(self, counter: TokenCounter) -> None:
        """Make the answer as it is stored, and count it."""
        parts = self.thoughts.parts(self.text, self.calls, stored=True, pending=True)
        self.parts = with_annotations(parts, self.annotations) if self.annotations else parts
        self.stored_tokens = counter.count_parts(self.parts)
        self.output_tokens = self.output_tokens or self.stored_tokens

    @property
    def spent(self) -> tuple[int, int, int]:
        """Tokens read and written, and what they cost."""
        return self.input_tokens, self.output_tokens, self.cost_nanos

    @property
    def usage(self) -> Usage:
        return Usage(tokens=self.input_tokens + self.output_tokens, cost_nanos=self.cost_nanos)

    def take_from_call(self, name: str | None) -> None:
        """Take the arguments of the call of that tool, if there is one, for the text."""
        given = next((call for call in self.calls if call.name == name), None)
        if given is not None:
            self.text, self.is_formed = given.arguments_text, True
            self.calls = [call for call in self.calls if call.name != name]

    def add(self, ended: ModelDone) -> None:
        """Add the usage of a round; how the answer ended is told by the last one."""
        self.model = ended.model
        self.finish = ended.finish
        self.logprobs = ended.logprobs
        self.dropped_parameters = ended.dropped_parameters
        self.dropped_reasoning = max(self.dropped_reasoning, ended.dropped_reasoning)
        self.dropped_items = max(self.dropped_items, ended.dropped_items)
        self.annotations = ended.annotations
        self.media_left_out = ended.media_left_out
        self.cached_tokens += ended.cached_tokens
        self.cache_write_tokens += ended.cache_write_tokens
        self.reasoning_tokens += ended.reasoning_tokens
        self.input_tokens += ended.input_tokens
        self.output_tokens += ended.output_tokens
        self.cost_nanos += ended.cost_nanos
        self.offline = ended.offline
        if ended.used_fallback and not self.used_fallback:
            self.used_fallback = True
            self.fallback_reason, self.fallback_message = ended.fallback_reason, ended.fallback_message
        self.redacted = ended.redacted


@dataclass(slots=True, kw_only=True)
class AgentLoop:
    """One model and one answer.

    `prompt_tokens` are those of the prompt, `room` how many may be added: the hard budget includes calls and
    results. Without `emit` no deltas are emitted; one that `waits` for a slow reader does not spend the model's time.
    `before_cut` redacts a tool's output before it is truncated.
    `callers_tools` are the names of tools that the caller runs, of which a call of `answer_tool` is the answer. With a
    `schema` an answer that does not fit is asked for once more; it is emitted whole, once it fits. Of what tools show,
    the model gets what `takes_media` says; without it, nothing.
    """

    model: ChatModel
    tools: Sequence[Tool]
    toolbox: Toolbox
    counter: TokenCounter
    steps: StepTimer
    emit: Emit | None
    rounds: int
    timeout: timedelta
    before_cut: BeforeCut
    prompt_tokens: int = 0
    room: int = 0
    callers_tools: frozenset[str] = frozenset()
    answer_tool: str | None = None
    schema: AnswerSchema | None = None
    shows_reasoning: bool = True
    takes_media: Callable[[JsonObject], bool] | None = None
    waits: bool = True
    completion: Completion = field(default_factory=Completion)

    async def run(self, request: ModelRequest) -> Completion:
        """Request until there is an answer. `completion` holds what has arrived, also if this raises.

        Raises:
            ModelFailed: the model failed, returned nothing, or did not stop calling tools.
            AnswerInvalid: its answer has not the form that is demanded, also at the second attempt.
        """
        request = await self._answer(request)
        if faults := self._find_faults():
            await self._answer_again(self._repair(request, faults))
        if self.schema is not None and self.emit is not None and self.completion.text:
            await self.emit(TextDelta(text=self.completion.text))
        if self.emit is not None:
            for call in self.completion.calls:
                await self.emit(CallRequested(call=call))
        return self.completion

    async def _answer_again(self, request: ModelRequest) -> None:
        """A step of its own, so that its thoughts are not taken for those of the answer before."""
        began, emit = time.perf_counter(), self.emit
        if emit is not None:
            await emit(StepChanged(id=REPAIR, state="started", titles=_REPAIRING))
        await self._answer(request)
        is_valid = not self._find_faults()
        if emit is not None:
            taken = round((time.perf_counter() - began) * 1000, 3)
            error = None if is_valid else AnswerInvalid.code
            state: Literal["done", "failed"] = "done" if is_valid else "failed"
            await emit(StepChanged(id=REPAIR, state=state, titles=_REPAIRING, milliseconds=taken, error=error))
        if not is_valid:
            raise AnswerInvalid(self.model.name)

    async def _answer(self, request: ModelRequest) -> ModelRequest:
        """Request until there is an answer; returns the last request."""
        # Also in the last round, which offers none: a call that is written then is no answer either.
        names = frozenset([spec.name for spec in request.tools])
        for left in range(self.rounds, -1, -1):
            offered = request if left else replace(request, tool_choice=NONE)
            text, calls = await self._request_model(offered, names)
            self.completion.calls = [call for call in calls if call.name in self.callers_tools]
            own = [_shortened(call) for call in calls if call.name not in self.callers_tools]
            if not own:
                break
            if not left:
                raise ModelFailed(self.model.name, "calls for tools again and again")
            request = await self._run_tools(request, text, own)
            if self.completion.calls:
                break
        self.completion.take_from_call(self.answer_tool)
        made = self.completion.text.strip() or self.completion.calls or self.completion.thoughts.items
        if not made and self.completion.finish not in _SILENT:
            raise ModelFailed(self.model.name, "answered nothing")
        return request

    def _find_faults(self) -> str:
        """Why a whole answer has not the form that is demanded; empty if it has, or none is."""
        answer = self.completion
        if self.schema is None or answer.calls or answer.finish not in _WHOLE:
            return ""
        return find_faults(self.schema, answer.text)

    def _repair(self, request: ModelRequest, faults: str) -> ModelRequest:
        """The request with the answer that does not fit, and why."""
        said, self.completion.text = self.completion.text, ""
        why = f"{faults}\n{_REPAIR}"
        tokens = self.counter.count(said) + self.counter.count(why)
        if tokens > self.room:
            raise AnswerInvalid(self.model.name)
        self._spend_tokens(tokens)
        answer = self.completion.thoughts.parts(said, (), stored=False) if said else ()
        added = [
            PromptMessage(role=role, parts=parts)
            for role, parts in ((Role.ASSISTANT, answer), (Role.USER, (text_part(why),)))
            if parts
        ]
        return replace(request, messages=(*request.messages, *added))

    async def _request_model(self, request: ModelRequest, names: frozenset[str]) -> tuple[str, list[ToolCall]]:
        """One request: its text and its tool calls, those that it writes as text included."""
        written = WrittenCalls(names) if names else None
        texts: list[str] = []
        calls: list[ToolCall] = []
        thoughts = self.completion.thoughts = Thoughts(withheld=not self.shows_reasoning)
        before = self.completion.input_tokens
        with self.steps.step("model", self.completion):
            try:
                async with (
                    asyncio.timeout(self._time_limit()) as deadline,
                    aclosing(self.model.stream_answer(request, self.tools)) as events,  # type: ignore[type-var]
                ):
                    emit = self._emit_outside(deadline)
                    async for event in _storable_events(events, written):
                        deltas: Iterable[TextDelta | ReasoningDelta | ProviderItem] = ()
                        match event:
                            case TextDelta(text=text):
                                texts.append(text)
                                spoken = (event,) if self.schema is None else ()
                                deltas = spoken if thoughts.unseen is None else (*thoughts.reveal(), *spoken)
                            case ReasoningDelta() | ReasoningDone() | ProviderItem():
                                deltas = thoughts.hear(event, texts, len(calls))
                            case ToolCallRequested(call=call):
                                calls.append(call)
                            case ModelDone():
                                self.completion.add(event)
                        for delta in deltas:
                            if deadline.expired():
                                # The model ignores its cancellation.
                                raise TimeoutError
                            if emit is not None:
                                await emit(delta)
            except BaseException as error:
                if (texts or calls or thoughts) and self.completion.input_tokens == before:
                    # The round broke off after its first output: it is charged for, and its usage is not reported.
                    self.completion.input_tokens += self.prompt_tokens
                    self.completion.output_tokens += self.counter.count("".join((*thoughts.texts, *texts)))
                if isinstance(error, TimeoutError):
                    raise ModelTimeout(self.model.name) from None
                raise
            finally:
                self.completion.text += "".join(texts)
        return "".join(texts), [*calls, *written.calls] if written is not None else calls

    def _emit_outside(self, deadline: asyncio.Timeout) -> Emit | None:
        """What emits words and thoughts. Time spent on a slow reader does not count against the deadline."""
        emit = self.emit
        if emit is None or not self.waits or deadline.when() is None:
            return emit
        now = asyncio.get_running_loop().time

        async def emit_outside(event: ChatEvent) -> None:
            until = deadline.when()
            assert until is not None
            left = until - now()
            deadline.reschedule(None)
            await emit(event)
            deadline.reschedule(now() + left)

        return emit_outside

    def _time_limit(self) -> float | None:
        limit = time_limit(self.model, self.timeout)
        links: int = getattr(self.model, "chain_length", 0)
        return limit + _GRACE.total_seconds() if limit is not None and links else limit

    async def _run_tools(self, request: ModelRequest, text: str, calls: list[ToolCall]) -> ModelRequest:
        """Run the tools, and append calls and results to the prompt.

        Thoughts and items go back whole, whatever room there is: a provider refuses the results without them.
        """
        thoughts, self.completion.thoughts = self.completion.thoughts, Thoughts(withheld=not self.shows_reasoning)
        parts = thoughts.parts(text, calls, stored=False)
        spoken = [part for part in parts if part["type"] != REASONING and part["type"] not in ITEM_TYPES]
        self._spend_tokens(sum(map(self.counter.count_part, spoken)) + len(calls) * (TOOL_TOKENS + _LEAST_OUTPUT))
        with self.steps.step("tools"):
            results = [await self.toolbox.run(call) for call in calls[:_MOST_CALLS]]
            results += [ToolResult(call=call, error="too_many_calls") for call in calls[_MOST_CALLS:]]
            redacted: Counts[str] = Counts()
            outputs = tuple(
                [tool_result(result.call.id, await self._truncate_output(result, redacted)) for result in results]
            )
        self.completion.tool_messages += [
            (Role.ASSISTANT, thoughts.parts(text, calls, stored=True), redaction_metadata(self.completion.redacted)),
            (Role.TOOL, outputs, redaction_metadata(redacted)),
        ]
        if text:
            # Text before a call is stored with the call; the answer is the text after it.
            self.completion.text, self.completion.redacted = "", {}
        shown = self._without_unseen(PromptMessage(role=Role.TOOL, parts=outputs), request)
        added = (PromptMessage(role=Role.ASSISTANT, parts=parts), *shown)
        return replace(request, messages=(*request.messages, *added), tool_results=tuple(self.toolbox.results))

    def _without_unseen(self, outputs: PromptMessage, request: ModelRequest) -> tuple[PromptMessage, ...]:
        """The outputs with placeholders for the pictures, sounds and files that the model does not get."""
        takes, language = self.takes_media, self.toolbox.turn.language

        def keep(part: JsonObject) -> bool:
            return takes is not None and takes(part) and part.get(ATTACHMENT, "") in ("", *request.contents)

        shown, left_out = keep_media((outputs,), keep, language)
        self.completion.tool_media_left_out += left_out
        return shown

    def _spend_tokens(self, tokens: int) -> None:
        if tokens > self.room:
            raise ModelFailed(self.model.name, "calls for more than the prompt has room for")
        self.room -= tokens
        self.prompt_tokens += tokens

    async def _truncate_output(self, result: ToolResult, redacted: Counts[str]) -> object:
        """The tool's output, truncated if the prompt has no room for it; `_LEAST_OUTPUT` is already reserved."""
        output = "Too many calls at once." if result.error == "too_many_calls" else result.output
        text = to_text(output)
        tokens = self.counter.count(text)
        allowed = self.room + _LEAST_OUTPUT
        shown = output
        if tokens > allowed:
            text, counts = await self.before_cut(text)
            redacted.update(counts)
            shown = truncate_text(text, allowed, self.counter.count)
            self.toolbox.note_cut(result, self.counter.count(shown), tokens)
        used = max(0, (tokens if shown is output else self.counter.count(to_text(shown))) - _LEAST_OUTPUT)
        self.room -= used
        self.prompt_tokens += used
        return shown


def _shortened(call: ToolCall) -> ToolCall:
    """A call whose arguments cannot be read with as much of them as the model needs to see what it wrote."""
    if call.arguments.keys() != {UNREADABLE}:
        return call
    return replace(call, arguments={UNREADABLE: str(call.arguments[UNREADABLE])[:_SHOWN_UNREADABLE]})


async def _storable_events(
    events: AsyncIterator[ModelEvent], written: WrittenCalls | None
) -> AsyncIterator[ModelEvent]:
    """The model's events with texts that every store accepts, and without the calls that it writes as text."""
    refuses = False
    async for event in events:
        if not isinstance(event, TextDelta):
            yield event
            continue
        refuses = event.refusal
        text = event.text if written is None else written.feed(event.text)
        if not text.isascii() or "\0" in text:
            text = _make_storable(text)
        if text:
            yield event if text is event.text else replace(event, text=text)
    if written is not None and (rest := _make_storable(written.flush())):
        yield TextDelta(text=rest, refusal=refuses)


def _make_storable(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def redaction_metadata(redacted: Mapping[str, int]) -> JsonObject:
    """The metadata that counts the redacted values of a message."""
    return {REDACTED: dict(redacted)} if redacted else {}
