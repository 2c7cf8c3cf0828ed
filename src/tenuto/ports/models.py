"""The ports of models: those that answer, and those that compute vectors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

from tenuto.model.generation import ModelEvent, ModelRequest
from tenuto.model.parameters import NOTHING_KNOWN, ModelFacts, ModelParameters
from tenuto.ports.tools import Tool


class ChatModel(Protocol):
    """Answers prompts as a stream of events: text, tool calls, and one `ModelDone` at the end.

    After tool calls the caller runs them and requests again, with their results in `messages` and `tool_results`.
    Closing the iterator cancels the answer.
    """

    @property
    def name(self) -> str:
        """Its name in settings and traces."""
        ...

    def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Answer; `tools` are those of `request.tools`, for models that work with them directly.

        Raises:
            ModelTimeout: it took longer than its time limit.
            ModelFailed: it returned no usable answer.
        """
        ...


@runtime_checkable
class ModelChain(Protocol):
    """A model with fallbacks: each may use its whole timeout before the next one is requested."""

    @property
    def chain_length(self) -> int:
        """The number of models."""
        ...


@runtime_checkable
class ParameterChecker(Protocol):
    """A model that says which parameters it does not take; any other one gets all of them."""

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        """The names of those that it does not take."""
        ...


def facts_of(model: ChatModel) -> ModelFacts:
    """What is known of a model; nothing of most that a program makes itself."""
    facts = getattr(model, "facts", None)
    return facts if isinstance(facts, ModelFacts) else NOTHING_KNOWN


def time_limit(model: ChatModel, timeout: timedelta) -> float | None:
    """Seconds for a whole answer: `timeout` for each link of a chain; `None` for a model on loopback without a limit.

    Such a model ends its answer by itself, when it falls silent.
    """
    # By attribute: `isinstance` with a protocol takes longer than the rest of a round.
    if getattr(model, "unlimited", False):
        return None
    links: int = getattr(model, "chain_length", 0) or 1
    return timeout.total_seconds() * links


def refused_parameters(model: ChatModel, parameters: ModelParameters) -> tuple[str, ...]:
    """The names of parameters that a model does not take."""
    return model.refused_parameters(parameters) if isinstance(model, ParameterChecker) else ()


class Embedder(Protocol):
    """Computes vectors that are close if texts are similar in meaning; those of one embedder can be compared.

    Texts are neither stored nor logged.
    """

    @property
    def name(self) -> str:
        """Its name in settings and in the doctor."""
        ...

    @property
    def remote(self) -> bool:
        """Whether texts leave this machine: then they are redacted as for a model."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, in order, all of one length. It may be cancelled while it waits.

        Raises:
            Unavailable: it does not answer, or not usably.
        """
        ...
