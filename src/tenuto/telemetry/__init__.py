"""OpenTelemetry: spans and metrics of turns, by its conventions for generative AI.

They go where the OTEL_ variables say. A program that has set up OpenTelemetry itself gets them among its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tenuto.errors import PackageMissing

if TYPE_CHECKING:
    from tenuto.telemetry.spans import OpenTelemetry


@asynccontextmanager
async def open_telemetry(*, metrics: bool = True) -> AsyncIterator[OpenTelemetry]:
    """Telemetry, sent off as long as this is open; what is left is sent when it closes. Without `metrics`, spans alone.

    Raises:
        InvalidSetting: a package is missing, or an exporter is not known.
    """
    try:
        # Optional, and slow to import.
        from tenuto.telemetry import providers
    except ImportError:
        raise PackageMissing("telemetry", "it", extra="telemetry") from None
    async with providers.open_providers(metrics=metrics) as telemetry:
        yield telemetry
