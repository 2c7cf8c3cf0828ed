"""A provider's model, through Pydantic AI. Importing this takes a second or two, so only `open_model` does."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import urlsplit

from msgspec.structs import replace
from pydantic_ai import exceptions as failures
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model, infer_model_profile
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings, OpenAIResponsesModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from tenuto.errors import (
    FailureReason,
    InvalidSetting,
    ModelFailed,
    ModelKeyRefused,
    ModelLimited,
    ModelNotFound,
    ModelRefused,
    ModelTimeout,
    PackageMissing,
    PromptTooLong,
    RequestRefused,
)
from tenuto.llm.calls import ModelCallLog, ModelCalls
from tenuto.llm.factory import TIMEOUT, ModelConnection
from tenuto.llm.failure_details import (
    MESSAGE_CHARACTERS,
    misses_model,
    names_things_of_provider,
    provider_message,
    refused_field,
    retry_after,
    status_before_retry,
)
from tenuto.llm.openai_models import VerbatimChatModel, as_verbatim
from tenuto.llm.prompt_caching import cache_key, changing_instructions, mark_stable_prefix
from tenuto.llm.provider_parameters import Dialect, any_object, parameters_taken, refused_parameters, to_settings
from tenuto.llm.pydantic_ai_items import ItemCollector, add_provider_tools, returning_items, runs_tools, with_items
from tenuto.llm.pydantic_ai_media import media_of
from tenuto.llm.pydantic_ai_messages import past_tools, to_messages, to_tools
from tenuto.llm.pydantic_ai_reasoning import Thinker, ThoughtEnds, lacks_first_thought, thinking_budget
from tenuto.llm.reach import LOCAL
from tenuto.model.generation import AUTO, NONE, REQUIRED, ModelDone, ModelEvent, ModelRequest, TextDelta, marks_place
from tenuto.model.message import Role
from tenuto.model.parameters import AnswerSchema, FinishReason, ModelFacts, ModelParameters
from tenuto.model.prompt import PromptMessage
from tenuto.model.urls import is_loopback
from tenuto.model.values import JsonObject, make_storable
from tenuto.pauses import Backoff, until_silence
from tenuto.ports import Tool

_log = logging.getLogger(__name__)

# Models that think before they speak spend output tokens on it, which must not eat up a title or a summary.
_THINKING_TOKENS: Final = 8_192
# Seconds between two attempts.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 8.0
_NO_LIMIT_SECONDS: Final = 86_400.0
_T = TypeVar("_T")
_DECLINED: Final = "declined to answer (content filter)"
# Why a request failed, most special first: in words, as a type, and the error it is.
_WHY: Final[tuple[tuple[type[Exception], str, FailureReason, type[ModelFailed]], ...]] = (
    (failures.ModelRateLimitError, "is asked more often than its provider allows", FailureReason.LIMIT, ModelLimited),
    (failures.ModelQuotaExceededError, "has no quota left", FailureReason.LIMIT, ModelRefused),
    (failures.ModelAuthenticationError, "refuses our key or its permissions", FailureReason.REFUSED, ModelKeyRefused),
    (failures.ModelNotFoundError, "is not known to its provider", FailureReason.REFUSED, ModelNotFound),
    (failures.ModelContextWindowExceededError, "cannot take a prompt this long", FailureReason.REFUSED, PromptTooLong),
    (failures.ContentFilterError, _DECLINED, FailureReason.CONTENT_FILTER, RequestRefused),
    # Pydantic AI knows of a model that it cannot do what is asked, and sends nothing.
    (failures.UserError, "cannot do what the request asks", FailureReason.REFUSED, RequestRefused),
    (failures.ModelRequestRejectedError, "refused the request", FailureReason.REFUSED, RequestRefused),
    (failures.ModelConnectionError, "cannot be reached, or broke off", FailureReason.UNREACHABLE, ModelFailed),
    (failures.ModelAPIError, "failed at its provider", FailureReason.OTHER, ModelFailed),
)
_UNKNOWN: Final = (Exception, "answered with something that cannot be used", FailureReason.OTHER, ModelFailed)
# Of these the operator reads the provider's own message in the log; messages about other failures may quote the prompt.
_ABOUT_ACCESS: Final = (
    failures.ModelRateLimitError,
    failures.ModelQuotaExceededError,
    failures.ModelAuthenticationError,
    failures.ModelNotFoundError,
    failures.ModelContextWindowExceededError,
)
_TOO_MANY: Final = 429
_SERVER_FAILED: Final = 500
# A code or type of a provider's error; anything else in these fields may be a text.
_CODE: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)
# What Pydantic AI says of models that think.
_THINKS: Final = ("supports_thinking", "thinking_always_enabled", "thinking_enabled_by_default")
_CHOICES: Final[dict[str, Literal["none", "required"]]] = {NONE: "none", REQUIRED: "required"}
_FINISHES: Final = {
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "tool_call": FinishReason.TOOL_CALLS,
}
_LLAMA_CPP_TOO_LONG: Final = "exceed_context_size_error"
# Models of other providers whose streams say how an answer ended; by name, as their classes need further packages.
_MARKS_END: Final = frozenset({"GoogleModel", "GroqModel", "MistralModel", "BedrockConverseModel"})
# What providers call it that answer with an error instead of an end of that reason.
_CONTENT_FILTER: Final = frozenset({"content_filter", "content_policy_violation"})


class PydanticAIModel:
    """Any model that Pydantic AI knows how to talk to."""

    def __init__(self, name: str, model: Model, access: ModelConnection, calls: ModelCalls | None = None) -> None:
        self._name = name
        self._model = model = with_items(as_verbatim(model))
        self._access = access
        self._calls = ModelCalls(name) if calls is None else calls
        self._unpriced = False
        self.address = urlsplit(model.base_url or "").netloc.rpartition("@")[2] or name
        self.local = is_loopback(urlsplit(model.base_url or "").hostname or "")
        """Whether it is on this machine, where it may be slow."""
        self._limit = access.limit(local=self.local)
        self.unlimited = self._limit is None
        """Whether it may take as long as it needs."""
        self._dialect = _dialect_of(model)
        self._marks_end = self._dialect is not Dialect.OTHER or type(model).__name__ in _MARKS_END
        # Other servers that speak OpenAI's protocol may refuse a field that they do not know.
        is_openais = model.system == "openai" or _OPENAIS_OWN.match(model.model_name) is not None
        self._takes_cache_key = is_openais and self._dialect in (Dialect.OPENAI_CHAT, Dialect.OPENAI_RESPONSES)
        self._thinker = Thinker.of(model, self._dialect)
        self.facts = _facts_of(name, model, self._dialect, access.context_window)
        """What is known of it."""

    @property
    def name(self) -> str:
        """The model string."""
        return self._name

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Ask the provider, and pass on what it says as it comes; tool calls come whole, at the end.

        A request that fails before the answer begins is sent again if that may help and time is left: after a limit of
        the provider only if it takes the next request in a few seconds.
        """
        backoff, began = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), time.perf_counter()
        while True:
            has_begun = False
            try:
                with self._calls.call(self._limit) as declined:
                    async with aclosing(self._stream_once(request)) as events:
                        async for event in events:
                            if (
                                isinstance(event, ModelDone)
                                and event.finish is FinishReason.CONTENT_FILTER
                                and not has_begun
                            ):
                                declined.append(ModelFailed(self._name, _DECLINED, FailureReason.CONTENT_FILTER))
                            has_begun = has_begun or not marks_place(event)
                            yield event
                return
            except ModelFailed as error:
                pause = backoff.next_pause()
                if error.wait is not None:
                    pause = error.wait.total_seconds()
                left = math.inf
                if self._limit is not None:
                    left = self._limit.total_seconds() - (time.perf_counter() - began)
                may_pass = error.may_pass and not has_begun and backoff.failures <= self._access.retries
                if not may_pass or pause > min(_LONGEST_PAUSE, left):
                    raise
            await asyncio.sleep(pause)

    async def _stream_once(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            shown, dropped_items = returning_items(self._model, request.messages)
            prompt, dropped_reasoning = self._thinker.prompt(shown)
            parameters = self._request_parameters(request)
            messages = self._model.prepare_messages(self._messages(request, prompt), parameters)
            settings, dropped = self._settings(request, prompt)
            items = add_provider_tools(settings, request) if request.provider_tools.tools else ItemCollector()
            ends = ThoughtEnds(self._thinker)
            async with model_request_stream(
                self._model,
                messages,
                model_settings=settings,
                model_request_parameters=parameters,
                instrument=False if self._access.observed else None,
            ) as stream:
                async for event in stream if self._limit is not None else until_silence(stream, TIMEOUT):
                    for item in items.take():
                        yield item
                    ends.hear(event)
                    text, thought = _event_text(event), self._thinker.delta(event)
                    for end in ends.take() if text or (thought is not None and thought.text) else ():
                        yield end
                    if text:
                        yield TextDelta(text=text)
                    elif thought is not None:
                        yield thought
                response = self._check_response(stream, items)
        except ModelFailed:
            raise
        except Exception as exc:
            raise self._failure(exc, request) from None
        for thought_or_call in (*items.take(), *ends.take(), *self._thinker.ended(response, ends.indexes)):
            yield thought_or_call
        details = response.provider_details or {}
        if refusal := details.get("refusal"):
            yield TextDelta(text=make_storable(str(refusal)), refusal=True)
        ended = self._done_event(response, details)
        yield replace(
            ended,
            annotations=tuple(items.annotations),
            dropped_reasoning=dropped_reasoning,
            dropped_items=dropped_items,
            dropped_parameters=dropped,
        )

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        """The names of those that it does not take."""
        return refused_parameters(self._dialect, parameters, self.facts.parameters)

    def _messages(self, request: ModelRequest, prompt: Sequence[PromptMessage]) -> list[ModelMessage]:
        instructions, system = self._changing_instructions(request), self._model.system
        messages = to_messages((*prompt[:1], *prompt[1 + len(instructions) :]), request.contents, system)
        if not self._caches(request):
            return messages
        answers = [message for message in prompt[: request.cacheable_messages] if message.role is Role.ASSISTANT]
        return mark_stable_prefix(messages, len(to_messages(answers)))

    def _changing_instructions(self, request: ModelRequest) -> list[InstructionPart]:
        return changing_instructions(request.messages) if self._dialect is Dialect.ANTHROPIC else []

    def _caches(self, request: ModelRequest) -> bool:
        """Whether the provider wants to be told what to cache."""
        return bool(request.cacheable_messages and self._model.profile.get("supports_cache"))

    def _request_parameters(self, request: ModelRequest) -> ModelRequestParameters:
        tools, schema = to_tools(request.tools), request.schema
        if not tools and self._dialect is Dialect.ANTHROPIC:
            tools = to_tools(past_tools(request.messages))
        parts = self._changing_instructions(request) or None
        if schema is None or schema.schema is None or self._dialect is Dialect.OPENAI_CHAT:
            return ModelRequestParameters(function_tools=tools, instruction_parts=parts)
        # Anthropic's own means are always strict; what they do not know of a schema, the answer is checked for.
        strict = schema.strict or None if self._dialect is Dialect.ANTHROPIC else schema.strict
        form = OutputObjectDefinition(
            json_schema=schema.schema, name=schema.name, description=schema.description or None, strict=strict
        )
        return ModelRequestParameters(
            function_tools=tools, output_mode="native", output_object=form, instruction_parts=parts
        )

    def _settings(
        self, request: ModelRequest, prompt: Sequence[PromptMessage]
    ) -> tuple[ModelSettings, tuple[str, ...]]:
        """The settings of a request, and the names of the parameters that it goes without."""
        given, dropped = self._given_settings(request), tuple[str, ...]()
        if self._needs_thoughts and given.get("thinking") and lacks_first_thought(prompt):
            # Another provider made these calls: this one only thinks behind calls that it thought about itself.
            del given["thinking"]
            dropped = ("reasoning_effort",)
        settings = ModelSettings()
        if request.reply_tokens is not None:
            settings["max_tokens"] = request.reply_tokens + self._thinking_tokens(given, background=request.background)
        if self._limit is not None:
            settings["request_timeout"] = self._limit.total_seconds()
        if (first := self._access.first_token_limit(local=self.local)) is not None:
            settings["first_event_timeout"] = first.total_seconds()
        if self._limit is None or first is None:
            # The client's own is ten minutes between two pieces.
            settings["timeout"] = _NO_LIMIT_SECONDS
        if "max_retries" not in self._model.unsupported_settings:
            settings["max_retries"] = 0
        if request.tool_choice != AUTO and request.tools:
            settings["tool_choice"] = _CHOICES.get(request.tool_choice) or [request.tool_choice]
        elif not request.tools and self._dialect is Dialect.ANTHROPIC and past_tools(prompt):
            settings["tool_choice"] = "none"
        settings.update(cast(ModelSettings, given))
        if self._caches(request):
            settings["cache"] = True
        own_key = request.parameters.prompt_cache_key is not None
        if self._takes_cache_key and not own_key and (key := cache_key(request.tool_context)) is not None:
            cast(OpenAIChatModelSettings, settings)["openai_prompt_cache_key"] = key
        return settings, dropped

    def _given_settings(self, request: ModelRequest) -> dict[str, Any]:
        """What the request says of how to answer."""
        given = to_settings(self._dialect, request.parameters, self.facts.parameters)
        if not request.tools:
            given.pop("parallel_tool_calls", None)
        if request.schema is not None and self._dialect is Dialect.OPENAI_CHAT:
            given["extra_body"] = {**given.get("extra_body", {}), "response_format": _response_format(request.schema)}
        elif request.schema is not None and request.schema.schema is None:
            given |= any_object(self._dialect, given)
        return given

    @property
    def _needs_thoughts(self) -> bool:
        """Whether it thinks within a budget of tokens, which it refuses to do behind calls without thoughts."""
        return self._dialect is Dialect.ANTHROPIC and not self._model.profile.get(
            "anthropic_supports_adaptive_thinking"
        )

    def _thinking_tokens(self, given: Mapping[str, Any], *, background: bool) -> int:
        """What is added to a limit for thinking: nothing to a caller's, which covers it, where a provider takes that.

        Limits of our own titles and summaries are those of their text.
        """
        profile = self._model.profile
        wanted = given.get("thinking") or given.get("openai_reasoning_effort", NONE) != NONE
        if wanted and self._needs_thoughts:
            return max(_THINKING_TOKENS, thinking_budget(given["thinking"]))
        always = profile.get("thinking_always_enabled") or profile.get("thinking_enabled_by_default")
        return _THINKING_TOKENS if background and (wanted or always) else 0

    def _check_response(self, stream: StreamedResponse, items: ItemCollector) -> ModelResponse:
        """The whole answer, if it is whole and says anything."""
        response = stream.get()
        declined = stream.finish_reason == "content_filter"
        told_end = declined or bool((stream.provider_details or {}).get("finish_reason"))
        if self._marks_end and not told_end:
            # A connection that just ends looks like an answer's end; the protocol marks the real one.
            raise ModelFailed(self._name, "broke off", FailureReason.UNREACHABLE)
        if stream.finish_reason == "error":
            raise ModelFailed(self._name, "failed at its provider", FailureReason.OTHER)
        ended = declined or stream.finish_reason == "length"
        if not (ended or items.made or any(_has_content(part) for part in response.parts)):
            raise ModelFailed(self._name, "gave an empty answer")
        return response

    def _done_event(self, response: ModelResponse, details: JsonObject) -> ModelDone:
        usage = response.usage
        finish = _FINISHES.get(response.finish_reason or "", FinishReason.STOP)
        logprobs = details.get("logprobs") or _part_logprobs(response)
        return ModelDone(
            model=self._name,
            finish=FinishReason.REFUSAL if details.get("refusal") else finish,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            reasoning_tokens=usage.output_reasoning_tokens or usage.details.get("reasoning_tokens", 0),
            cost_nanos=self._cost(response),
            logprobs=tuple(logprobs) if logprobs else None,
            response_model=make_storable(response.model_name or ""),
            response_id=make_storable(response.provider_response_id or ""),
        )

    def _cost(self, response: ModelResponse) -> int:
        """The price in billionths of a dollar; 0 if it is not known, as with self-hosted models."""
        try:
            return int(response.cost().total_price * 1_000_000_000)
        except (LookupError, ValueError, AssertionError):
            if not self._unpriced:
                _log.info("the price of %s is not known; its cost counts as 0", self._name)
            self._unpriced = True
            return 0

    def _failure(self, exc: Exception, request: ModelRequest) -> ModelFailed:
        status = getattr(exc, "status_code", None)
        values = [str(getattr(exc, f"provider_error_{field}", None) or "") for field in ("code", "type")]
        raised: type[Exception] = type(exc)
        if _LLAMA_CPP_TOO_LONG in values:
            raised = failures.ModelContextWindowExceededError
        elif not _CONTENT_FILTER.isdisjoint(values):
            raised = failures.ContentFilterError
        elif issubclass(raised, failures.ModelNotFoundError) and names_things_of_provider(request):
            raised = raised if misses_model(exc, self._model.model_name) else failures.ModelRequestRejectedError
        if is_late := isinstance(exc, failures.ModelRequestTimeout | failures.ModelTimeoutError | TimeoutError):
            status = status_before_retry(exc)
            raised = failures.ModelRateLimitError if status == _TOO_MANY else failures.ModelAPIError
        _log.warning(
            "model %s at %s failed: %s %s %s %s",
            self._name,
            _host(self._model.base_url),
            (type(exc) if is_late else raised).__name__.lstrip("_"),
            status or "",
            " ".join(filter(_CODE.fullmatch, values)),
            str(exc)[:MESSAGE_CHARACTERS] if issubclass(raised, _ABOUT_ACCESS) else "",
        )
        if is_late and status is None:
            return ModelTimeout(self._name)
        _, why, reason, kind = next((row for row in _WHY if issubclass(raised, row[0])), _UNKNOWN)
        error = kind(self._name, f"{why} ({status})" if status else why, reason)
        error.wait = retry_after(exc)
        if isinstance(error, RequestRefused):
            error.parameter = refused_field(exc)
        limited = isinstance(error, ModelLimited) and error.wait is not None
        error.may_pass = limited or reason is FailureReason.UNREACHABLE or (status or 0) >= _SERVER_FAILED
        if issubclass(raised, _ABOUT_ACCESS):
            error.provider_message = provider_message(exc)
        return error


def _dialect_of(model: Model) -> Dialect:
    if isinstance(model, OpenAIChatModel):
        return Dialect.OPENAI_CHAT
    if isinstance(model, OpenAIResponsesModel):
        return Dialect.OPENAI_RESPONSES
    # By its name: the class needs a package that may be missing.
    return Dialect.ANTHROPIC if type(model).__name__ == "AnthropicModel" else Dialect.OTHER


def _context_window(model: Model) -> int | None:
    """The model's context window; OpenAI's own models have theirs behind a proxy as well."""
    window: int | None = model.profile.get("context_window")
    if window is None and (own := _OPENAIS_OWN.match(model.model_name)):
        window = infer_model_profile(f"openai:{model.model_name[own.start('model') :]}").get("context_window")
    return window


def _facts_of(name: str, model: Model, dialect: Dialect, context_window: int | None) -> ModelFacts:
    # Other people's servers that speak the chat completions protocol know pictures, and no documents.
    documents = dialect is not Dialect.OPENAI_CHAT or bool(_OPENAIS_OWN.match(model.model_name))
    ignored = set(model.unsupported_settings) if dialect is not Dialect.OPENAI_CHAT else set()
    if model.profile.get("anthropic_disallows_sampling_settings"):
        ignored |= {"temperature", "top_p", "top_k"}
    return ModelFacts(
        provider=model.system,
        model=model.model_name,
        context_window=context_window or _context_window(model),
        parameters=parameters_taken(dialect, frozenset(ignored)),
        schemas=bool(model.profile.get("supports_json_schema_output")),
        media=media_of(name, model, dialect, reads_documents=documents),
        provider_tools=runs_tools(model),
        stores_answers=dialect is Dialect.OPENAI_RESPONSES,
        thinks=any(model.profile.get(name) for name in _THINKS),
    )


def _response_format(schema: AnswerSchema) -> JsonObject:
    if schema.schema is None:
        return {"type": "json_object"}
    form: JsonObject = {"name": schema.name, "schema": schema.schema}
    if schema.description:
        form["description"] = schema.description
    if schema.strict is not None:
        form["strict"] = schema.strict
    return {"type": "json_schema", "json_schema": form}


def _part_logprobs(response: ModelResponse) -> list[JsonObject]:
    parts = [part.provider_details or {} for part in response.parts if isinstance(part, TextPart)]
    return [one for details in parts for one in details.get("logprobs") or ()]


def _host(url: str | None) -> str:
    """Where a provider listens, without credentials and path."""
    parts = urlsplit(url or "")
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "its provider"


def _event_text(event: object) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return make_storable(text)
        case _:
            return ""


def _has_content(part: object) -> bool:
    return isinstance(part, ToolCallPart) or (isinstance(part, TextPart) and bool(part.content.strip()))


@asynccontextmanager
async def open_pydantic_ai_model(
    name: str, access: ModelConnection, log: ModelCallLog | None = None
) -> AsyncIterator[PydanticAIModel]:
    """A model by its string, as long as its connections are open.

    Raises:
        InvalidSetting: its provider is not known, lacks a package or a key, or takes no such address.
    """
    try:
        model = _model(name, access)
    except ImportError as exc:
        raise missing_package("model", name, str(exc)) from None
    except InvalidSetting:
        raise
    except Exception as exc:
        # Pydantic AI's own complaint, or that of a provider's client: of a variable that is set to nothing, say.
        raise InvalidSetting("model", missing(name, str(exc), access)) from None
    async with model:
        yield PydanticAIModel(name, model, access, log.of(name) if log is not None else None)


def wrap_pydantic_ai_model(model: object, access: ModelConnection, log: ModelCallLog) -> PydanticAIModel | None:
    """A model that a program made itself, and closes itself; `None` if it is none."""
    if not isinstance(model, Model):
        return None
    if access.observed and isinstance(model, InstrumentedModel):
        model = model.wrapped
    return PydanticAIModel(model.model_id, model, access, log.of(model.model_id))


def _model(name: str, access: ModelConnection) -> Model:
    provider, _, model = name.rpartition(":") if ":" not in name else name.partition(":")
    if access.base_url is not None and provider in ("", "openai", "openai-chat"):
        # Other people's servers speak the chat completions protocol; only OpenAI's own speaks more.
        # OpenAI's own models, also behind a proxy, want the new name for the answer's limit; all others know the old.
        profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=_OPENAIS_OWN.match(model) is not None)
        server = OpenAICompatibleProvider(
            "openai-compatible", base_url=access.base_url, api_key=access.api_key, profile=profile
        )
        return VerbatimChatModel(model, provider=server)
    if not provider:
        raise InvalidSetting(
            "model", f"{name!r} names no provider; write it as openai:{name}, ollama:{name} or the like"
        )
    return infer_model(name, provider_factory=lambda kind: provider_by_name(kind, access))


def provider_by_name(kind: str, access: ModelConnection) -> Provider[Any]:
    """A provider, at the address and with the key of `access` where it says them.

    Raises:
        InvalidSetting: no provider has that name, or it takes no other address.
    """
    made: Any = provider_class(kind)
    takes = inspect.signature(made.__init__).parameters
    given = {"api_key": access.api_key, "base_url": access.base_url}
    if access.base_url is not None and "base_url" not in takes:
        raise InvalidSetting("model_base_url", f"{kind} has an address of its own; for another server write openai:…")
    known: dict[str, Any] = {key: value for key, value in given.items() if value is not None and key in takes}
    try:
        provider = made(**known)
    except failures.UserError:
        if kind not in LOCAL or "base_url" in known:
            raise
        provider = made(**known, base_url=LOCAL[kind])
    assert isinstance(provider, Provider)
    return provider


def provider_class(kind: str) -> type[Provider[Any]]:
    """What talks to a provider.

    Raises:
        InvalidSetting: no provider has that name.
    """
    try:
        return infer_provider_class(kind)
    except ValueError:
        raise InvalidSetting("model", f"no provider is called {kind!r}; well-known ones are {_WELL_KNOWN}") from None


_WELL_KNOWN: Final = "openai, anthropic, google, mistral, deepseek, openrouter, ollama and vllm"
_OPENAIS_OWN: Final = re.compile(r"(?:openai/)?(?P<model>gpt-(?!oss)|o\d)")
_VARIABLE: Final = re.compile(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`")
_GROUP: Final = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")


def missing(name: str, message: str, access: ModelConnection) -> str:
    """Which variable is to be set, in our own words."""
    variables = _VARIABLE.findall(message)
    if not variables:
        return f"{name} cannot be opened as it is set up"
    if not access.of_settings:
        return f"{name} needs {' or '.join(variables)}"
    own = "TENUTO_MODEL_API_KEY" if variables[0].endswith(("KEY", "TOKEN")) else "TENUTO_MODEL_BASE_URL"
    return f"{name} needs {' or '.join(variables)}, or {own}"


def missing_package(setting: str, name: str, message: str) -> PackageMissing:
    """Which package is to be installed, in our own words."""
    group = _GROUP.search(message)
    install = f"pip install 'pydantic-ai-slim[{group[1]}]'" if group else ""
    return PackageMissing(setting, name, extra="" if group else "models", install=install)
