"""The tools that a turn offers its model: the assistant's own, and those that the caller runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.chat.request import AUTO, NONE, REQUIRED, ChatRequest
from tenuto.model.generation import ToolSpec
from tenuto.ports import Tool


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The assistant's `own` tools, and the caller's, of which one may be `required` to be called."""

    own: Sequence[Tool]
    callers: tuple[ToolSpec, ...] = ()
    required: bool = False

    @classmethod
    def of(cls, request: ChatRequest, own: Sequence[Tool]) -> OfferedTools:
        """The tools that a request leaves to choose from."""
        if not request.tools or request.tool_choice == NONE:
            return cls(own)
        if request.tool_choice == AUTO:
            names = {spec.name for spec in request.tools}
            return cls([tool for tool in own if tool.spec.name not in names], request.tools)
        chosen = [spec for spec in request.tools if request.tool_choice in (REQUIRED, spec.name)]
        return cls((), tuple(chosen), required=True)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as they are described to the model."""
        return (*[tool.spec for tool in self.own], *self.callers)

    @property
    def callers_names(self) -> frozenset[str]:
        """The names of the caller's tools."""
        return frozenset([spec.name for spec in self.callers])
