"""Where spans and metrics go: to the program's own providers, else to exporters of ours, as the OTEL_ variables say."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api

from tenuto.errors import InvalidSetting, PackageMissing
from tenuto.extras import install_line
from tenuto.telemetry.spans import OpenTelemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

_SCOPE: Final = "tenuto"
_EXTRA: Final = "telemetry"
_OTLP: Final = "otlp"
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


@asynccontextmanager
async def open_providers(*, metrics: bool) -> AsyncIterator[OpenTelemetry]:
    """Telemetry of the program's own providers, which it shuts down itself, or of ours.

    Raises:
        InvalidSetting: a package is missing, or an exporter is not known.
    """
    tracers, meters = trace_api.get_tracer_provider(), metrics_api.get_meter_provider()
    async with AsyncExitStack() as stack:
        if isinstance(tracers, trace_api.ProxyTracerProvider):
            tracers = own_tracers = _make_tracer_provider()
            stack.push_async_callback(asyncio.to_thread, own_tracers.shutdown)
            if metrics:
                meters = own_meters = _make_meter_provider()
                stack.push_async_callback(asyncio.to_thread, own_meters.shutdown)
        if not metrics:
            meters = metrics_api.NoOpMeterProvider()
        yield OpenTelemetry(tracers.get_tracer(_SCOPE), meters.get_meter(_SCOPE))


def _make_tracer_provider() -> TracerProvider:
    """A provider of our own, which nothing else in the process sees."""
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError:
        raise PackageMissing("telemetry", "it", extra=_EXTRA) from None
    provider = TracerProvider(resource=_make_resource())
    # Standard output belongs to answers.
    for exporter in _exporters("traces", _OTLP, lambda: ConsoleSpanExporter(out=sys.stderr)):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _make_meter_provider() -> MeterProvider:
    """The same for metrics. By default they go where spans go, if that is an OTLP collector."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader

    default = _OTLP if _OTLP in _exporter_names("traces", _OTLP) else ""
    readers = [
        exporter if isinstance(exporter, MetricReader) else PeriodicExportingMetricReader(exporter)
        for exporter in _exporters("metrics", default, lambda: ConsoleMetricExporter(out=sys.stderr))
    ]
    return MeterProvider(metric_readers=readers, resource=_make_resource())


def _make_resource() -> Resource:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: _SCOPE}))
    return resource


def _exporter_names(signal: str, default: str) -> list[str]:
    names = [name.strip() for name in os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", default).split(",")]
    return [name for name in names if name not in ("", "none")]


def _exporters(signal: str, default: str, make_console: Callable[[], Any]) -> Iterator[Any]:
    """Those of OTEL_…_EXPORTER. The SDK reads all other OTEL_ variables itself."""
    for name in _exporter_names(signal, default):
        if name == "console":
            yield make_console()
            continue
        # Here, since it takes long to import and few ask for telemetry.
        from importlib.metadata import entry_points

        group = f"opentelemetry_{signal}_exporter"
        entry_point = next(iter(entry_points(group=group, name=_entry_point_name(name, signal))), None)
        if entry_point is None:
            hint = f": {install_line(_EXTRA)}" if name == _OTLP else ""
            variable = f"OTEL_{signal.upper()}_EXPORTER"
            raise InvalidSetting("telemetry", f"no package brings the exporter {name!r} of {variable}{hint}")
        try:
            exporter = entry_point.load()()
        except Exception as error:
            kind = type(error).__name__
            raise InvalidSetting("telemetry", f"the exporter {name!r} cannot be opened ({kind})") from None
        yield exporter


def _entry_point_name(name: str, signal: str) -> str:
    """The name an exporter's package registers it under."""
    if name != _OTLP:
        return name
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", general)
    return _PROTOCOLS.get(protocol, protocol)
