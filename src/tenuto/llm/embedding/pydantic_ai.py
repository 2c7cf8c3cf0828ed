"""A provider's embedder, through Pydantic AI. Importing this takes a second or two, so only `open_embedder` does."""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, get_args

from pydantic_ai.embeddings import EmbeddingModel, infer_embedding_model
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models import OpenAIChatCompatibleProvider, OpenAIResponsesCompatibleProvider
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from tenuto.errors import InvalidSetting, Unavailable
from tenuto.llm.factory import ModelConnection
from tenuto.llm.pydantic_ai import missing, missing_package, provider_by_name, provider_class

_log = logging.getLogger(__name__)

# As `infer_embedding_model` knows them; it opens the provider before it says that there is nothing to be had.
_EMBEDDING: Final = frozenset(
    (
        *("openai", "cohere", "bedrock", "google", "google-cloud", "sentence-transformers", "voyageai"),
        *get_args(OpenAIChatCompatibleProvider.__value__),
        *get_args(OpenAIResponsesCompatibleProvider.__value__),
    )
)
_OFFERED: Final = "openai, google, cohere, voyageai, bedrock, openrouter, ollama and vllm"


class PydanticAIEmbedder:
    """Any embedding model that Pydantic AI knows how to talk to."""

    remote = True

    def __init__(self, name: str, model: EmbeddingModel) -> None:
        self._name = name
        self._model = model

    @property
    def name(self) -> str:
        """The model string."""
        return self._name

    async def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """As the port says."""
        try:
            # A question and the talk before it are compared with each other, so all are of one kind.
            answered = await self._model.embed(list(texts), input_type="document")
            vectors = [array("f", vector) for vector in answered.embeddings]
        except Exception as error:
            # What a provider writes may quote the texts.
            status = getattr(error, "status_code", None)
            _log.warning("embedder %s failed: %s %s", self._name, type(error).__name__, status or "")
            raise Unavailable("embedder", "failed at its provider") from None
        if not _are_usable(vectors, len(texts)):
            _log.warning("embedder %s answered with something that cannot be used", self._name)
            raise Unavailable("embedder", "answered with something that cannot be used")
        return list(vectors)


def _are_usable(vectors: Sequence[Sequence[float]], wanted: int) -> bool:
    lengths = {len(vector) for vector in vectors}
    numbers = all(math.isfinite(number) for vector in vectors for number in vector)
    return len(vectors) == wanted and len(lengths) <= 1 and 0 not in lengths and numbers


@asynccontextmanager
async def open_pydantic_ai_embedder(name: str, access: ModelConnection) -> AsyncIterator[PydanticAIEmbedder]:
    """An embedder by its string, as long as its connections are open.

    Raises:
        InvalidSetting: its provider is not known, has none, lacks a package or a key, or takes no such address.
    """
    async with AsyncExitStack() as stack:
        opened: list[Provider[Any]] = []
        try:
            model = _model(name, access, opened)
        except ImportError as exc:
            raise missing_package("embedder", name, str(exc)) from None
        except InvalidSetting as error:
            if error.setting == "embedder":
                raise
            # Providers are opened for chat models as well, whose setting has another name.
            raise InvalidSetting("embedder", str(error).removeprefix("model: ")) from None
        except Exception as exc:
            raise InvalidSetting("embedder", missing(name, str(exc), access).partition(", or TENUTO_")[0]) from None
        for provider in opened:
            await stack.enter_async_context(provider)
        yield PydanticAIEmbedder(name, model)


def _model(name: str, access: ModelConnection, opened: list[Provider[Any]]) -> EmbeddingModel:
    """The model, and in `opened` the provider whose connections it uses."""
    kind, _, model = name.partition(":")
    if kind.removeprefix("gateway/") not in _EMBEDDING:
        with suppress(ImportError):
            provider_class(kind)
        raise InvalidSetting("embedder", f"{kind} has no embeddings; {_OFFERED} have")
    if access.base_url is not None and kind == "openai":
        server = OpenAICompatibleProvider("openai-compatible", base_url=access.base_url, api_key=access.api_key)
        opened.append(server)
        return OpenAIEmbeddingModel(model, provider=server)

    def provider_of(kind: str) -> Provider[Any]:
        opened.append(provider_by_name(kind, access))
        return opened[-1]

    return infer_embedding_model(name, provider_factory=provider_of)
