"""Prompt and answer: tools that run before the model, the prompt within its budget, and the model's answer.

No lock or transaction is held during a model request: the turn's lease covers that time, is renewed meanwhile, and
expires if this process dies.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from tenuto.assistants import Assistant
from tenuto.background import run_in_background
from tenuto.chat.agent_loop import AgentLoop, Completion, StepTimer
from tenuto.chat.deps import ChatDeps
from tenuto.chat.loading import number_messages
from tenuto.chat.request import ChatRequest, EventSink
from tenuto.chat.shown_media import ATTACHMENTS, load_contents
from tenuto.chat.toolbox import Toolbox, plan_arguments
from tenuto.chat.turn_values import Choice, TurnContext
from tenuto.context import TokenCounter, assemble, counter_for, language_of
from tenuto.context.layout import join_unanswered
from tenuto.errors import (
    Invalid,
    InvalidSetting,
    ModelNotFound,
    ModelUnknown,
    TenutoError,
    TurnLost,
    TurnStopped,
    Unavailable,
)
from tenuto.model import Content, FinishTurn, OpenTurn, Role
from tenuto.model.attachment import MediaInputs
from tenuto.model.generation import AUTO, NONE, REQUIRED, ModelRequest, StepChanged, ToolCall, ToolSpec, answer_tool
from tenuto.model.parameters import NO_PARAMETERS, AnswerSchema, ModelParameters
from tenuto.model.privacy import Sink
from tenuto.model.prompt import (
    Disposition,
    Kind,
    LayoutName,
    ManifestEntry,
    Piece,
    Prompt,
    PromptInputs,
    PromptPolicy,
    Reason,
    digest_text,
)
from tenuto.model.session import record_types
from tenuto.model.values import to_text
from tenuto.ports import ChatModel, OfflineTool, Tool, facts_of
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.sessions import Sessions, fresh_id

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Answering:
    """A turn that is being answered, and what it has made so far: its trace tells that also if the turn fails.

    `record_types` are types that are private in titles and traces as well: those that were private once stay so.
    `degraded` is a set in order of arrival, `digest_key` the name of the key of the prompt's digests. `unfinished` is
    how the turn must end once the answer that it replaces is removed.
    """

    context: TurnContext
    model: ChatModel
    counter: TokenCounter
    record_types: frozenset[str]
    records: TurnRedaction
    steps: StepTimer
    sink: EventSink
    toolbox: Toolbox
    degraded: dict[str, None]
    parameters: ModelParameters = NO_PARAMETERS
    completion: Completion = field(default_factory=Completion)
    prompt: Prompt | None = None
    digest_key: str = ""
    unfinished: FinishTurn | None = None

    @classmethod
    def of(cls, deps: ChatDeps, context: TurnContext, steps: StepTimer, sink: EventSink) -> Answering:
        """Nothing is made yet."""
        assistant, turn = context.assistant, context.turn
        noted = record_types(turn.session.metadata) if turn is not None else ()
        types = frozenset([*noted, *assistant.policies.privacy_also])
        model = deps.models(assistant.model)
        # An assistant without memory does without the store by choice.
        missing = ["store"] if turn is None and assistant.remembers else []
        journaled = ["journal"] if turn is not None and turn.journaled else []
        return cls(
            context=context,
            model=model,
            counter=counter_for(model.name),
            record_types=types,
            records=deps.redaction.for_records(types),
            steps=steps,
            sink=sink,
            toolbox=Toolbox(
                tools=assistant.tools,
                turn=context.tool_context,
                timeout=deps.limits.tool_timeout,
                emit=sink.emit_event,
                telemetry=deps.telemetry,
                began=steps.began,
            ),
            degraded=dict.fromkeys([*missing, *context.degraded, *journaled]),
            parameters=context.request.parameters.over(assistant.parameters),
        )

    def mark_degraded(self, names: Iterable[str]) -> None:
        """Note what was not available."""
        self.degraded.update(dict.fromkeys(names))


async def answer(deps: ChatDeps, work: Answering) -> None:
    """Make the whole answer; if the turn is stopped meanwhile, what has been said is the answer.

    Raises:
        TurnStopped: nothing has been said, or a whole answer would be replaced by a part of one.
        ModelUnknown: the provider has no model of the name that the request has.
        ModelFailed: the model failed.
    """
    completion = work.completion
    try:
        async with work.sink.until_stopped():
            await _run_tools_before_model(work)
            if work.toolbox.reply is not None:
                completion.text, completion.model = work.toolbox.reply, "none"
            else:
                await _ask_model(deps, work)
    except TurnStopped:
        if work.context.replaced_answer or not completion.text.strip():
            raise
        completion.stopped, completion.model = True, completion.model or work.model.name
    except ModelNotFound as error:
        if work.context.request.model is None:
            raise
        # Its caller chose the name, as any other one that is not there.
        unknown = ModelUnknown()
        unknown.reason = error.reason
        raise unknown from error


async def _run_tools_before_model(work: Answering) -> None:
    """Run the assistant's tools that run first, and its own code, which may answer in place of the model."""
    assistant, tool_context = work.context.assistant, work.context.tool_context
    if not tool_context.question:
        return
    for tool in assistant.tools if assistant.run_first else ():
        if tool.spec.name in assistant.run_first and isinstance(tool, OfflineTool):
            with work.steps.step("tools"):
                arguments = plan_arguments(tool, tool_context)
                if arguments is not None:
                    await _run_first(work, ToolCall(id=fresh_id(), name=tool.spec.name, arguments=arguments))
    if assistant.respond is not None:
        with work.steps.step("respond"):
            async with aclosing(assistant.respond(tool_context)) as events:
                async for event in events:
                    if isinstance(event, StepChanged):
                        await work.sink.emit_event(event)
                    else:
                        work.toolbox.collect(event)
                        work.mark_degraded(event.degraded)


async def _run_first(work: Answering, call: ToolCall) -> None:
    """Run a tool before the model, which sees the output as evidence where the tool names no pieces itself."""
    before = work.toolbox.pieces
    result = await work.toolbox.run(call)
    if work.toolbox.pieces is before:
        work.toolbox.pieces = (*(before or ()), Piece(id=call.name, text=to_text(result.output)))


async def _ask_model(deps: ChatDeps, work: Answering) -> None:
    context, request = work.context, work.context.request
    offers = OfferedTools.of(request, context.assistant.tools, work.model)
    policy = prompt_policy(request, context.prompt, offers, context.prompt_inputs.question, work.model)
    with work.steps.step("assemble"):
        media = facts_of(work.model).media if deps.redaction.shows_media_to_model(context.scope) else None
        prompt, is_redacted = await _make_prompt(deps, work, offers, policy, media)
    work.prompt = prompt
    messages, cacheable = join_unanswered(prompt)
    contents: Mapping[str, Content] = {}
    missing = prompt.media_left_out
    if prompt.media:
        messages, contents, unread = await load_contents(deps, context, messages)
        missing += unread
    if missing:
        work.mark_degraded([ATTACHMENTS])
    loop = AgentLoop(
        model=work.model,
        tools=offers.own,
        callers_tools=frozenset([spec.name for spec in offers.callers]),
        answer_tool=offers.answer,
        schema=request.schema,
        shows_reasoning=deps.shows_reasoning,
        takes_media=None if media is None else media.takes,
        toolbox=work.toolbox,
        counter=work.counter,
        steps=work.steps,
        emit=work.sink.emit_event if work.sink.listens else None,
        waits=work.sink.waits,
        rounds=deps.limits.tool_rounds,
        timeout=deps.limits.model_timeout,
        # A result is sent to the model, and stored.
        before_cut=lambda text: deps.redaction.before_cut(context.scope, text, (Sink.MODEL, Sink.MESSAGE)),
        prompt_tokens=prompt.manifest.total,
        room=prompt.manifest.prompt_limit - prompt.manifest.total,
        completion=work.completion,
    )
    await loop.run(
        ModelRequest(
            messages=messages,
            tools=(*[tool.spec for tool in offers.own], *offers.callers),
            tool_choice=offers.choice,
            provider_tools=request.provider_tools,
            parameters=work.parameters,
            schema=request.schema if offers.answer is None else None,
            answer_tool=offers.answer,
            contents=contents,
            require_attachments=request.require_attachments,
            reply_tokens=reply_limit(request, policy),
            cacheable_messages=cacheable,
            redacted_messages=len(messages) if is_redacted else 0,
            tool_results=tuple(work.toolbox.results),
            tool_context=context.tool_context,
        )
    )


# Prompt


async def _make_prompt(
    deps: ChatDeps, work: Answering, offers: OfferedTools, policy: PromptPolicy, media: MediaInputs | None
) -> tuple[Prompt, bool]:
    """The prompt as the model may see it, and whether it was redacted for that."""
    context, inputs = work.context, work.context.prompt_inputs
    if work.toolbox.pieces is not None:
        inputs = replace(inputs, evidence=work.toolbox.pieces)
    if media is not None:
        inputs = replace(inputs, media=media)
    redacted = await deps.redaction.redact_prompt_inputs(context.scope, context.tool_context.session, inputs)
    key = b""
    if context.turn is not None:  # Without a turn no trace is stored.
        try:
            work.digest_key, key = await deps.redaction.digest_key(context.scope, context.trace_id, create=True)
        except Unavailable as error:
            _log.warning("a trace has no digests: %s", error.code)
    shown = inputs if redacted is None else redacted
    return assemble_with_tools(shown, policy, context.assistant, offers, work.counter, key), redacted is not None


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools that a turn offers its model: the assistant's `own`, and the caller's, and the choice between them.

    For a model that cannot give an answer in a demanded form by itself, a call of the tool `answer` gives it.
    """

    own: Sequence[Tool]
    callers: tuple[ToolSpec, ...] = ()
    choice: str = AUTO
    answer: str | None = None

    @classmethod
    def of(cls, request: ChatRequest, own: Sequence[Tool], model: ChatModel) -> OfferedTools:
        """The tools that a request leaves to choose from."""
        if request.schema is not None and not facts_of(model).schemas:
            return cls._with_answer(request, request.schema)
        if not request.tools or (request.tool_choice == NONE and own):
            return cls(own)
        if request.tool_choice == AUTO:
            names = {spec.name for spec in request.tools}
            return cls([tool for tool in own if tool.spec.name not in names], request.tools)
        return cls((), request.tools, request.tool_choice)

    @classmethod
    def _with_answer(cls, request: ChatRequest, schema: AnswerSchema) -> OfferedTools:
        callers = request.tools if request.tool_choice != NONE else ()
        answer = answer_tool(schema, [spec.name for spec in callers])
        choice = answer.name
        if callers:
            choice = REQUIRED if request.tool_choice == AUTO else request.tool_choice
        return cls((), (*callers, answer), choice, answer.name)


def reply_limit(request: ChatRequest, policy: PromptPolicy) -> int | None:
    """The most tokens of the answer, where the request or the assistant says it; the request only lowers it."""
    limits = [each for each in (request.reply_tokens, policy.max_reply_tokens) if each is not None]
    return min(limits, default=None)


def prompt_policy(
    request: ChatRequest, policy: PromptPolicy, offers: OfferedTools, question: str, model: ChatModel
) -> PromptPolicy:
    """The assistant's, as far as the request leaves it: only one of the layouts shows tools.

    Room is kept for no more than the answer may have; and for all of that, where a provider would refuse a prompt that
    leaves its model less.
    """
    limit = reply_limit(request, policy)
    if limit is not None:
        window = facts_of(model).context_window or math.inf
        lacking = min(policy.budget_tokens + limit - window, policy.budget_tokens // 2)
        reply_tokens = int(max(min(limit, policy.reply_tokens), lacking))
        policy = replace(policy, reply_tokens=reply_tokens)
    if policy.layout is not LayoutName.CHAT and (offers.callers or not question):
        policy = replace(policy, layout=LayoutName.CHAT)
    return policy


def check_prompt_room(deps: ChatDeps, choice: Choice) -> None:
    """Refuse tools and instructions that fill the prompt: with them, one without a question must fit.

    Raises:
        Invalid: beside the request's tools there is no room for a question.
        InstructionsTooLong: its instructions or system messages do not fit into the prompt.
    """
    request, assistant = choice.request, choice.assistant
    language = request.language or language_of(request.question)
    system_messages = [message for message in request.messages if message.role is Role.SYSTEM]
    empty = PromptInputs(
        question="",
        history=number_messages(system_messages),
        input_start=1 if system_messages else 0,
        system=assistant.system_prompt(choice.persona, language),
        instructions=request.instructions or "",
        speaker=choice.scope.user,
        language=language,
    )
    model = deps.models(assistant.model)
    offers = OfferedTools.of(request, assistant.tools, model)
    counter = counter_for(model.name)
    policy = prompt_policy(request, choice.prompt, offers, "", model)
    assemble_with_tools(empty, policy, assistant, offers, counter)


def assemble_with_tools(
    inputs: PromptInputs,
    policy: PromptPolicy,
    assistant: Assistant,
    offers: OfferedTools,
    counter: TokenCounter,
    digest_key: bytes = b"",
) -> Prompt:
    """The prompt; the specifications of the tools are part of the budget and of the manifest.

    Raises:
        Invalid: the request's tools leave no room for a question.
        InstructionsTooLong: its instructions or system messages do not fit into the prompt.
    """
    context = assistant.policies.context
    own = [msgspec.json.encode(tool.spec).decode() for tool in offers.own]
    callers = [msgspec.json.encode(spec).decode() for spec in offers.callers]
    tools = sum(map(counter.count_fixed, own)) + sum(map(counter.count_recurring, callers))
    if not tools:
        return assemble(inputs, policy, context, counter, digest_key)
    try:
        within = replace(policy, reply_tokens=policy.reply_tokens + math.ceil(tools * counter.margin))
        prompt = assemble(inputs, within, context, counter, digest_key)
    except InvalidSetting:
        if not offers.callers:
            raise
        limit = policy.budget_tokens - policy.reply_tokens
        why = f"{tools:,} tokens leave no room for a question in a prompt of {limit:,}; {policy.raised_by} raises it"
        raise Invalid(f"tools: {why}") from None
    manifest = prompt.manifest
    entry = ManifestEntry(
        kind=Kind.TOOLS,
        disposition=Disposition.KEPT,
        reason=Reason.ALWAYS,
        tokens=tools,
        uncut_tokens=tools,
        # The caller's are not stored: there is nothing to compare them with.
        digest="" if callers else digest_text("\n".join(own), digest_key),
    )
    manifest = replace(
        manifest,
        entries=(*manifest.entries, entry),
        total=manifest.total + tools,
        cacheable_tokens=manifest.cacheable_tokens + tools,
        prompt_limit=manifest.prompt_limit + tools,
        reply_tokens=policy.reply_tokens,
    )
    return replace(prompt, manifest=manifest)


# Lease


class LeaseRenewal:
    """Renews a turn's lease while it is open. Most turns end before the first renewal, and have no task for it."""

    def __init__(self, sessions: Sessions, turn: OpenTurn | None) -> None:
        self._sessions = sessions
        self._turn = turn
        self._alarm: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self._turn is not None:
            pause = self._turn.lease.total_seconds() / 3
            self._alarm = asyncio.get_running_loop().call_later(pause, self._start, self._turn, pause)

    def _start(self, turn: OpenTurn, pause: float) -> None:
        self._task = run_in_background(_renew(self._sessions, turn, pause), "lease")

    async def __aexit__(self, *_: object) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._task is not None:
            self._task.cancel()
            # `wait` and not `await`: a cancellation of the caller must pass.
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.result()


async def _renew(sessions: Sessions, turn: OpenTurn, pause: float) -> None:
    while True:
        try:
            await sessions.renew(turn)
        except TurnLost:
            return
        except TenutoError as error:
            _log.warning("a turn's lease was not renewed: %s", error.code)
        await asyncio.sleep(pause)
