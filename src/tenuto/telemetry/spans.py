"""The spans of a turn, an agent and a tool. Usage stands at the spans of model calls alone: a sum counts it once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, Tracer
from opentelemetry.util.types import AttributeValue

from tenuto.ports import ChatModel, facts_of
from tenuto.telemetry import conventions as names
from tenuto.telemetry.model_calls import ModelMetrics, ObservedModel


class OpenTelemetry:
    """The `Telemetry` port: spans of a tracer, and metrics of a meter."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._metrics = ModelMetrics(meter)

    def span(self, name: str) -> AbstractContextManager[SpanAttributes]:
        """As the port says."""
        return self._open(f"tenuto.{name}", {})

    def agent(
        self, name: str, *, session_id: str | None, model: ChatModel | None = None
    ) -> AbstractContextManager[SpanAttributes]:
        """As the port says."""
        facts = facts_of(model) if model is not None else None
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT: name,
            names.CONVERSATION: session_id,
            names.SESSION: session_id,
            names.PROVIDER: names.provider_name(facts) if facts is not None else None,
        }
        return self._open(f"{names.INVOKE_AGENT} {name}", attributes)

    def tool(self, name: str, *, call_id: str) -> AbstractContextManager[SpanAttributes]:
        """As the port says."""
        attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL: name or None,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL: call_id,
        }
        return self._open(f"{names.EXECUTE_TOOL} {name}".rstrip(), attributes)

    def observe(self, model: ChatModel) -> ChatModel:
        """As the port says."""
        return ObservedModel(model, self._tracer, self._metrics)

    @contextmanager
    def _open(self, name: str, attributes: Mapping[str, AttributeValue | None]) -> Iterator[SpanAttributes]:
        with self._tracer.start_as_current_span(
            name, attributes=names.known_attributes(attributes), record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield SpanAttributes(span)
            except BaseException as error:
                names.record_exception(span, error)
                raise


class SpanAttributes:
    """The attributes of a span."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def set_attributes(self, **attributes: str | int | None) -> None:
        """Add ids and counts, never text; `task` becomes `tenuto.task`."""
        own = {f"tenuto.{name}": value for name, value in attributes.items()}
        self._span.set_attributes(names.known_attributes(own))

    def set_session(self, session_id: str) -> None:
        """Say which conversation it belongs to."""
        ids = {names.CONVERSATION: session_id, names.SESSION: session_id}
        self._span.set_attributes(names.known_attributes(ids))

    def set_error(self, code: str) -> None:
        """Say that what happened inside failed, though it raised nothing."""
        names.record_error(self._span, code)
