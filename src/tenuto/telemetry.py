"""OpenTelemetry spans: one for each turn, with its ids, and below it one for each step.

They go where the OTEL_ variables say. A program that has set up OpenTelemetry itself gets them among its own spans.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from tenuto.errors import InvalidSetting, PackageMissing, reply_error_code
from tenuto.extras import install_line

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

_SCOPE: Final = "tenuto"
_EXTRA: Final = "telemetry"
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
# Clients may send ids of any length; spans keep this much of one.
_LONGEST: Final = 200


class Spans:
    """Opens spans. An error is recorded by its code alone, since its text may quote a user."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def __call__(self, name: str) -> Iterator[SpanAttributes]:
        """A span around what happens inside, below the one that is open already."""
        with self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span:
            try:
                yield SpanAttributes(span)
            except BaseException as error:
                _record_error(span, error)
                raise


class SpanAttributes:
    """The attributes of a span."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def set_attributes(self, **attributes: str | int | None) -> None:
        """Add ids and counts, never text; `session` becomes `tenuto.session`."""
        for name, value in attributes.items():
            if value is not None:
                self._span.set_attribute(f"tenuto.{name}", value[:_LONGEST] if isinstance(value, str) else value)


def _record_error(span: Span, ended: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    code = reply_error_code(ended)
    span.set_attribute("error.type", code)
    # A cancelled turn is no error: its client left on purpose.
    if not isinstance(ended, asyncio.CancelledError):
        span.set_status(StatusCode.ERROR, code)


@asynccontextmanager
async def open_spans() -> AsyncIterator[Spans]:
    """Spans, sent off as long as this is open; what is left is sent when it closes.

    Raises:
        InvalidSetting: a package is missing, or an exporter is not known.
    """
    try:
        # Optional, and slow to import.
        from opentelemetry import trace
    except ImportError:
        raise PackageMissing("telemetry", "it", extra=_EXTRA) from None
    given = trace.get_tracer_provider()
    if not isinstance(given, trace.ProxyTracerProvider):
        # The provider is the program's own, and the program shuts it down.
        yield Spans(given.get_tracer(_SCOPE))
        return
    provider = _make_provider()
    try:
        yield Spans(provider.get_tracer(_SCOPE))
    finally:
        await asyncio.to_thread(provider.shutdown)


def _make_provider() -> TracerProvider:
    """A provider of our own, which nothing else in the process sees."""
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise PackageMissing("telemetry", "it", extra=_EXTRA) from None
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: _SCOPE}))
    provider = TracerProvider(resource=resource)
    for exporter in _exporters():
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporters() -> Iterator[SpanExporter]:
    """Those of OTEL_TRACES_EXPORTER, `otlp` unless set. The SDK reads all other OTEL_ variables itself."""
    for wanted in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        name = wanted.strip()
        if name in ("", "none"):
            continue
        if name == "console":
            yield _console_exporter()
            continue
        # Here, since it takes long to import and few ask for spans.
        from importlib.metadata import entry_points

        found = next(iter(entry_points(group="opentelemetry_traces_exporter", name=_entry_point_name(name))), None)
        if found is None:
            hint = f": {install_line(_EXTRA)}" if name == "otlp" else ""
            raise InvalidSetting("telemetry", f"no package brings the exporter {name!r} of OTEL_TRACES_EXPORTER{hint}")
        try:
            exporter: SpanExporter = found.load()()
        except Exception as error:
            kind = type(error).__name__
            raise InvalidSetting("telemetry", f"the exporter {name!r} cannot be opened ({kind})") from None
        yield exporter


def _console_exporter() -> SpanExporter:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    # Standard output belongs to answers.
    return ConsoleSpanExporter(out=sys.stderr)


def _entry_point_name(name: str) -> str:
    """The name an exporter's package registers it under."""
    if name != "otlp":
        return name
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
    return _PROTOCOLS.get(protocol, protocol)
