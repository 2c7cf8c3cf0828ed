"""The spans and metrics of model calls: turns, titles, summaries and memories alike."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final, cast

from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, SpanKind, Tracer, use_span
from opentelemetry.util.types import AttributeValue

from tenuto.model.generation import ModelDone, ModelEvent, ModelRequest
from tenuto.model.parameters import ModelParameters
from tenuto.ports import ChatModel, Tool, facts_of, refused_parameters
from tenuto.telemetry import conventions as names

# The boundaries that the conventions advise.
_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = tuple(4**power for power in range(14))


class ModelMetrics:
    """How long calls take, when their answers begin, and how many tokens they read and write."""

    def __init__(self, meter: Meter) -> None:
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of a call of a model.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="Time from a request to the beginning of its answer.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens that a call reads and writes.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )

    def record(self, call: ModelCall, attributes: dict[str, AttributeValue]) -> None:
        """Add a call that has ended. Tokens that the provider does not report are not guessed."""
        if call.done is not None and call.done.response_model:
            attributes[names.RESPONSE_MODEL] = call.done.response_model
        duration = time.perf_counter() - call.began
        self._duration.record(duration, attributes | ({names.ERROR: call.error} if call.error else {}))
        if call.first_chunk is not None:
            self._first_chunk.record(call.first_chunk, attributes)
        if call.done is not None:
            for kind, tokens in (("input", call.done.input_tokens), ("output", call.done.output_tokens)):
                if tokens:
                    self._tokens.record(tokens, attributes | {names.KIND_OF_TOKENS: kind})


class ModelCall:
    """A call under way: its instant, the seconds until it began to answer, its end, the code of its error."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.first_chunk: float | None = None
        self.done: ModelDone | None = None
        self.error = ""

    def note(self, event: ModelEvent) -> None:
        """Note an event of the answer."""
        if self.first_chunk is None:
            self.first_chunk = time.perf_counter() - self.began
        if isinstance(event, ModelDone):
            self.done = event


class ObservedModel:
    """The `ChatModel` port of one model: each call is a span and counts in the metrics, its retries included."""

    def __init__(self, model: ChatModel, tracer: Tracer, metrics: ModelMetrics) -> None:
        self._model = model
        self._tracer = tracer
        self._metrics = metrics
        self.name = model.name
        self.chain_length: int = getattr(model, "chain_length", 0)
        """How many models it may ask in turn."""
        self.unlimited: bool = getattr(model, "unlimited", False)
        """Whether it may take as long as it needs."""
        self.facts = facts_of(model)
        """What is known of it."""
        self._operation: dict[str, AttributeValue] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.provider_name(self.facts),
            names.REQUEST_MODEL: self.facts.model or model.name,
        }

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        """The names of those that it does not take."""
        return refused_parameters(self._model, parameters)

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """As the port says."""
        # The port promises an iterator; those of models are generators, which must be closed at once.
        events = cast(AsyncGenerator[ModelEvent, None], self._model.stream_answer(request, tools))
        with self._observe(request) as (span, call):
            async with aclosing(events):
                while True:
                    # Only while the model works: between two events the caller's own span is the open one.
                    with use_span(span, record_exception=False, set_status_on_exception=False):
                        event = await anext(events, None)
                    if event is None:
                        return
                    call.note(event)
                    yield event

    @contextmanager
    def _observe(self, request: ModelRequest) -> Iterator[tuple[Span, ModelCall]]:
        call = ModelCall()
        span = self._tracer.start_span(
            f"{names.CHAT} {self._operation[names.REQUEST_MODEL]}",
            kind=SpanKind.CLIENT,
            attributes=self._operation | names.known_attributes(_request_attributes(request)),
        )
        try:
            yield span, call
        except BaseException as error:
            call.error = names.record_exception(span, error)
            raise
        finally:
            span.set_attributes(names.known_attributes(_response_attributes(call)))
            span.end()
            self._metrics.record(call, dict(self._operation))


def _request_attributes(request: ModelRequest) -> dict[str, AttributeValue | None]:
    session = request.tool_context.session if request.tool_context is not None else None
    session_id = session.id if session is not None else None
    form = request.schema is not None
    parameters = {
        attribute: getattr(request.parameters, name)
        for name, attribute in names.PARAMETERS.items()
        if getattr(request.parameters, name) is not None
    }
    return {
        names.CONVERSATION: session_id,
        names.SESSION: session_id,
        names.STREAM: True,
        names.MAX_TOKENS: request.reply_tokens,
        names.OUTPUT_TYPE: "json" if form else "text",
        **parameters,
    }


def _response_attributes(call: ModelCall) -> dict[str, AttributeValue | None]:
    done = call.done
    if done is None:
        return {names.FIRST_CHUNK: call.first_chunk}
    return {
        names.FIRST_CHUNK: call.first_chunk,
        names.RESPONSE_MODEL: done.response_model or None,
        names.RESPONSE_ID: done.response_id or None,
        names.FINISH_REASONS: (names.finish_reason(done.finish),),
        names.INPUT_TOKENS: done.input_tokens,
        names.OUTPUT_TOKENS: done.output_tokens,
        names.CACHE_READ_TOKENS: done.cached_tokens or None,
        names.CACHE_WRITE_TOKENS: done.cache_write_tokens or None,
        names.REASONING_TOKENS: done.reasoning_tokens or None,
        "tenuto.cost_nanos": done.cost_nanos or None,
    }
