"""The port of an assistant's tools."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tenuto.model.generation import ToolContext, ToolOutput, ToolSpec
from tenuto.model.values import Json, JsonObject


class Tool(Protocol):
    """A tool of an assistant. It receives the turn and acts only in the turn's scope.

    The model sees the message of a `ToolError` (and of any `TenutoError`), and of other exceptions only that the tool
    failed; either way the turn goes on, and the failure is in the trace.
    """

    @property
    def spec(self) -> ToolSpec:
        """Its description for models."""
        ...

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Run it; the arguments come from a model and may be anything.

        Raises:
            Invalid: the arguments do not fit.
        """
        ...


@runtime_checkable
class OfflineTool(Protocol):
    """A tool that needs no language model: it derives its arguments from the question and renders its output.

    The offline model answers with such tools, and an assistant can run them before any model request.
    """

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """The arguments for this question; `None` if the tool does not apply. Pure."""
        ...

    def render(self, output: Json, turn: ToolContext) -> str:
        """An answer in the question's language from the output of `run`. Pure."""
        ...
