"""The chat: turns between a caller and an assistant, whole or as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from tenuto.assistants import Assistant, AssistantRegistry
from tenuto.assistants.assistant import PLAIN
from tenuto.chat.deps import ChatDeps, Observer
from tenuto.chat.prompt_texts import load_prompt_texts
from tenuto.chat.recent_thoughts import RecentThoughts
from tenuto.chat.request import ChatEvent, ChatRequest, EventSink, Reply, ReplyFinished, StreamSink
from tenuto.chat.turn import answer_once, take_turn
from tenuto.chat.typed_answer import TypedAnswer, TypedRequest, ask_typed
from tenuto.errors import ModelUnknown
from tenuto.llm import ModelCallLog
from tenuto.model import Message, Scope
from tenuto.model.prompt import PartText, PromptPolicy
from tenuto.model.turn import Trace
from tenuto.model.values import Value
from tenuto.ports import ChatModel, facts_of
from tenuto.privacy.turn_redaction import TurnRedaction

_Answer = TypeVar("_Answer", bound=Value)


class Answerer(NamedTuple):
    """Who answers: an assistant, with its own model or this one."""

    assistant: str
    model: str | None = None


class Chat:
    """Takes turns between a caller and an assistant."""

    def __init__(self, deps: ChatDeps) -> None:
        self._deps = deps
        self._thoughts = RecentThoughts(deps.clock)

    @property
    def assistants(self) -> AssistantRegistry:
        """The assistants of this installation."""
        return self._deps.assistants

    @property
    def redaction(self) -> TurnRedaction:
        """The privacy policy for turns."""
        return self._deps.redaction

    @property
    def embedder(self) -> str | None:
        """The name of the embedder; `None` if relevance is lexical only."""
        return self._deps.embedder.name if self._deps.embedder is not None else None

    @property
    def model_calls(self) -> ModelCallLog:
        """What became of the calls of each model since the start."""
        return self._deps.calls

    def clear_caches(self) -> None:
        """Drop what is kept of attachments and thoughts, and what was computed from texts: a user was erased."""
        self._deps.contents.clear()
        self._thoughts.clear()
        if self._deps.embedder is not None:
            self._deps.embedder.clear_cache()

    def observe(self, observer: Observer) -> None:
        """Call this observer for every turn that ends, answered or not."""
        self._deps.observers.append(observer)

    def model_of(self, assistant: Assistant) -> ChatModel:
        """The model that answers for an assistant."""
        return self._deps.models(assistant.model)

    async def prompt_of(self, assistant: Assistant, tenant: str = "", model: str | None = None) -> PromptPolicy:
        """The assistant's policy of the prompt, with the budget that its model has room for, or one that is named.

        Raises:
            ModelUnknown: callers of the tenant have no such model.
        """
        name = assistant.model if model is None else await self._deps.model_choice.admit(tenant, model)
        return self._deps.prompt_for(assistant.prompt, self._deps.models(name))

    async def runs_provider_tools(self, tenant: str, answerer: Answerer) -> bool:
        """Whether the provider of the model that answers runs tools of its own.

        Raises:
            ModelUnknown: callers of the tenant have no such model.
        """
        return facts_of(await self.model_answering(tenant, answerer)).provider_tools

    async def model_answering(self, tenant: str, answerer: Answerer) -> ChatModel:
        """The model that answers for an assistant, or in its place.

        Raises:
            ModelUnknown: callers of the tenant have no such model.
        """
        if answerer.model is None:
            return self.model_of(self.assistants.find(answerer.assistant))
        return self._deps.models(await self._deps.model_choice.admit(tenant, answerer.model))

    def model_named(self, name: str) -> ChatModel:
        """The model that a setting or an assistant names."""
        return self._deps.models(name)

    def model_names(self, tenant: str) -> list[str]:
        """The names of assistants, aliases and models that callers of the tenant may give."""
        return self._deps.model_choice.names.listed(tenant, [each.name for each in self._deps.assistants])

    def answerer_of(self, tenant: str, name: str | None) -> Answerer:
        """Who answers where a caller names an assistant, an alias or a model: the default assistant without a name.

        A model that is no assistant answers as the assistant that adds no prompt of its own.

        Raises:
            ModelUnknown: callers of the tenant have none of that name.
        """
        assistants, names = self._deps.assistants, self._deps.model_choice.names
        meant = assistants.default if name is None else names.resolve(name)
        if meant in assistants.names:
            return Answerer(meant)
        if names.admits(tenant, meant):
            return Answerer(PLAIN, meant)
        if self._deps.unknown_models_get_default:
            return Answerer(assistants.default)
        raise ModelUnknown

    def has_model(self, tenant: str, name: str) -> bool:
        """Whether callers of the tenant may give this name."""
        names = self._deps.model_choice.names
        meant = names.resolve(name)
        return meant in self._deps.assistants.names or names.admits(tenant, meant)

    async def prompt_texts(self, scope: Scope, trace: Trace, *, show_assistant: bool) -> tuple[PartText, ...]:
        """The text of each part of a trace's prompt, from what is stored today and under the privacy policy.

        Without `show_assistant`, the assistant's prompt and tools are withheld, as for users.

        Raises:
            SessionNotFound: the session is gone, or not this caller's.
        """
        return await load_prompt_texts(self._deps, scope, trace, show_assistant=show_assistant)

    async def ask_typed(
        self, assistant: str, scope: Scope, request: TypedRequest, kind: type[_Answer]
    ) -> TypedAnswer[_Answer]:
        """Ask an assistant's model for a value; there is none where only the offline model answers.

        Raises:
            NoTypedAnswer: its answers are not of that type, or the models before the offline one failed.
            ModelFailed: the model failed.
            BudgetExhausted: the tenant has spent what it may.
        """
        return await ask_typed(self._deps, self.assistants.find(assistant), scope, request, kind)

    async def take_turn(self, scope: Scope, request: ChatRequest, sink: EventSink | None = None) -> Reply:
        """Answer, whole; a `sink` gets the events of the turn, except the last.

        Raises:
            AssistantNotFound: there is no such assistant or character.
            ModelUnknown: there is no such model for this caller.
            SessionNotFound: there is no such session, and its policy makes none.
            SessionBusy: another turn still ran when the wait was over.
            BudgetExhausted: session or tenant have spent what they may; no model was asked.
            ModelFailed: no model answered. The user message stays stored; the same key retries.
            Superseded: this key was answered, and an edit or a regeneration has replaced the result.
            VersionConflict: another message arrived before the undo; nothing was removed.
            TurnLost: the session was reset, truncated or deleted meanwhile, or another turn took over.
            TurnStopped: the sink stopped the turn before it said anything.
        """
        return await take_turn(self._deps, scope, request, sink or EventSink())

    async def stream(
        self, scope: Scope, request: ChatRequest, history: Sequence[Message] | None = None
    ) -> AsyncIterator[ChatEvent]:
        """Answer, event by event; the last is `ReplyFinished`. Closing the iterator cancels the turn.

        With a `history`, nothing is stored, as in `answer_once`.

        Raises:
            TenutoError: as in `take_turn`.
        """
        reader = StreamSink()

        async def work() -> None:
            try:
                if history is None:
                    reply = await self.take_turn(scope, request, reader)
                else:
                    reply = await self.answer_once(scope, request, history, reader)
                await reader.emit_event(ReplyFinished(reply=reply))
            finally:
                reader.close()

        task = asyncio.create_task(work(), name="tenuto turn")
        try:
            async for event in reader.events(task):
                yield event
            await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def answer_once(
        self, scope: Scope, request: ChatRequest, history: Sequence[Message], sink: EventSink
    ) -> Reply:
        """Answer after these messages without a session: nothing is stored but the usage.

        What the model thinks before it calls tools of the caller is held for the request with their outputs.

        Raises:
            AssistantNotFound: there is no such assistant or character.
            UnsupportedAttachment: the model does not take a picture, a sound or a file that the request requires.
            BudgetExhausted: the tenant has spent what it may.
            ModelFailed: no model answered.
        """
        thoughts = self._thoughts
        if request.messages:
            request = replace(request, messages=thoughts.give_back(scope, request.messages))
        reply = await answer_once(self._deps, scope, request, thoughts.give_back(scope, history), sink)
        thoughts.keep(scope, reply)
        return reply
