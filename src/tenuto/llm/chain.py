"""Models in a row: the next one answers when the one before it cannot."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final, cast

from msgspec.structs import replace

from tenuto.errors import FailureReason, ModelBusy, ModelFailed, RequestRefused
from tenuto.llm.offline import OfflineModel
from tenuto.model.generation import ModelDone, ModelEvent, ModelRequest, marks_place
from tenuto.model.media import keep_media, shows_media
from tenuto.model.parameters import FinishReason, ModelFacts, ModelParameters
from tenuto.model.prompt import Language
from tenuto.model.provider_items import NO_PROVIDER_TOOLS
from tenuto.ports import ChatModel, Tool, facts_of, refused_parameters

_log = logging.getLogger(__name__)
_USAGE: Final = (
    *("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens"),
    "cost_nanos",
)


class FallbackChain:
    """Requests its models in order until one begins to answer.

    Once there is a thought, text or a call, a failure is final: another model would repeat it all. `ModelDone` names
    the model that answered, and whether it was not the first. A background request that gave way to turns ends.
    """

    def __init__(self, models: Sequence[ChatModel]) -> None:
        assert models
        self._models = tuple(models)

    @property
    def name(self) -> str:
        """All names, in order."""
        return ", ".join(model.name for model in self._models)

    @property
    def chain_length(self) -> int:
        """How many may be asked, one after the other."""
        return len(self._models)

    @property
    def unlimited(self) -> bool:
        """Whether one of them may take as long as it needs."""
        return any(getattr(model, "unlimited", False) for model in self._models)

    @property
    def facts(self) -> ModelFacts:
        """What is known of the first, and the smallest context window; not known, if that of one model is not. Answers
        are stored if one of the providers does.

        The offline model reads no prompts.
        """
        windows = [facts_of(model).context_window for model in self._models if model.name != OfflineModel.name]
        known = [window for window in windows if window is not None]
        smallest = min(known) if known and len(known) == len(windows) else None
        stores = any(facts_of(model).stores_answers for model in self._models)
        return replace(facts_of(self._models[0]), context_window=smallest, stores_answers=stores)

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        """The names of those that its first model does not take; another one is asked without those it does not."""
        return refused_parameters(self._models[0], parameters)

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """The answer of the first model that has one."""
        first_failure: ModelFailed | None = None
        declined: list[ModelDone] = []
        models = self._that_may_answer(request)
        last = models[-1]
        for model in models:
            has_begun = False
            dropped = refused_parameters(model, request.parameters)
            shown, left_out = _with_placeholders(request, model)
            shown, tools_left_out = _without_provider_tools(shown, model)
            # The port promises an iterator; those of models are generators, which must be closed at once.
            events = cast(AsyncGenerator[ModelEvent, None], model.stream_answer(_without(shown, dropped), tools))
            async with aclosing(events):
                try:
                    async for event in events:
                        if isinstance(event, ModelDone):
                            if not has_begun and event.finish is FinishReason.CONTENT_FILTER and model is not last:
                                declined.append(event)
                                raise ModelFailed(model.name, "declined to answer", FailureReason.CONTENT_FILTER)
                            if first_failure is not None:
                                event = _after_failure(event, first_failure, (*dropped, *tools_left_out))
                                event = _with_usage_of(replace(event, media_left_out=left_out), declined)
                        has_begun = has_begun or not marks_place(event)
                        yield event
                    return
                except ModelBusy:
                    # A title is worth neither the price of the next model nor sending the talk to its provider.
                    raise
                except ModelFailed as error:
                    if has_begun:
                        raise
                    if first_failure is not None and _is_fault_of_request(error):
                        # The caller asked for the first model, which found none.
                        error = first_failure
                    if model is last:
                        raise error
                    first_failure = first_failure or error
                    _log.warning("model %s could not answer, trying the next: %s", model.name, error.code)

    def _that_may_answer(self, request: ModelRequest) -> tuple[ChatModel, ...]:
        """Of a request that requires its attachments, the models behind the first that take all of them."""
        first, *others = self._models
        if not request.require_attachments:
            return self._models
        return (first, *[model for model in others if not _with_placeholders(request, model)[1]])


def _is_fault_of_request(error: ModelFailed) -> bool:
    return isinstance(error, RequestRefused) and error.reason is FailureReason.REFUSED


def _with_placeholders(request: ModelRequest, model: ChatModel) -> tuple[ModelRequest, int]:
    """The request with placeholders for the pictures, sounds and files that a model does not take."""
    if not (request.contents or shows_media(request.messages)):
        return request, 0
    language = request.tool_context.language if request.tool_context is not None else Language.ENGLISH
    messages, left_out = keep_media(request.messages, facts_of(model).media.takes, language)
    return (replace(request, messages=messages), left_out) if left_out else (request, 0)


def _without_provider_tools(request: ModelRequest, model: ChatModel) -> tuple[ModelRequest, tuple[str, ...]]:
    """The request without tools that the provider of this model does not run, and what it goes without."""
    if not request.provider_tools.tools or facts_of(model).provider_tools:
        return request, ()
    return replace(request, provider_tools=NO_PROVIDER_TOOLS), ("tools",)


def _without(request: ModelRequest, names: Sequence[str]) -> ModelRequest:
    if not names:
        return request
    return replace(request, parameters=replace(request.parameters, **dict.fromkeys(names)))


def _with_usage_of(done: ModelDone, declined: Sequence[ModelDone]) -> ModelDone:
    """The end of an answer, with what models read and cost that declined before it."""
    if not declined:
        return done
    return replace(done, **{name: sum([getattr(each, name) for each in (done, *declined)]) for name in _USAGE})


def _after_failure(done: ModelDone, failed: ModelFailed, dropped: tuple[str, ...]) -> ModelDone:
    return replace(
        done,
        used_fallback=True,
        fallback_reason=failed.reason,
        fallback_message=str(failed),
        dropped_parameters=(*done.dropped_parameters, *dropped),
    )
