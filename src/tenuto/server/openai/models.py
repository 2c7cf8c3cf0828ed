"""Routes of models, which are our assistants, and of embeddings."""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.context import TokenCounter
from tenuto.errors import Invalid
from tenuto.model.values import Json, JsonObject
from tenuto.server.auth import asking, service
from tenuto.server.json_io import body_of, path_parameter
from tenuto.server.openai.conversations import json_response
from tenuto.server.openai.errors import ModelUnknown, OpenAIRouter

routes = OpenAIRouter(prefix="/v1")

# As OpenAI has it.
_TEXTS: Final = 2048
_counter: Final = TokenCounter()


class _EmbeddingsBody(msgspec.Struct, frozen=True, kw_only=True):
    input: str | list[Any]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


@routes.get("/models")
async def list_models(request: Request) -> Response:
    """The assistants."""
    await asking(request)
    known = service(request).chat.assistants
    return json_response({"object": "list", "data": [_model_view(assistant.name) for assistant in known]})


@routes.get("/models/{model}")
async def get_model(request: Request) -> Response:
    """One assistant."""
    await asking(request)
    name = path_parameter(request, "model")
    if name not in service(request).chat.assistants.names:
        raise ModelUnknown
    return json_response(_model_view(name))


@routes.post("/embeddings")
async def create_embeddings(request: Request) -> Response:
    """Vectors of texts, by the embedder of the settings."""
    scope = await asking(request)
    body = await body_of(request, _EmbeddingsBody)
    texts = _texts_of(body.input)
    memories = await service(request).tenuto.memories()
    vectors = await memories.embed_texts(scope, texts)
    if body.dimensions not in (None, len(vectors[0])):
        raise Invalid(f"dimensions: this embedder has {len(vectors[0])}")
    tokens = sum(map(_counter.count, texts))
    encode = _as_base64 if body.encoding_format == "base64" else list
    data = [
        {"object": "embedding", "index": place, "embedding": encode(vector)} for place, vector in enumerate(vectors)
    ]
    name = memories.embedder.name if memories.embedder is not None else ""
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": body.model or name, "usage": usage})


def _texts_of(given: str | list[Any]) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not texts or len(texts) > _TEXTS:
        raise Invalid(f"input: from 1 to {_TEXTS} texts")
    if not all(isinstance(text, str) and text for text in texts):
        raise Invalid("input: expected texts that are not empty; lists of tokens are not taken")
    return texts


def _as_base64(vector: Sequence[float]) -> Json:
    """The numbers as 32-bit floats, in the order of bytes of the machines that clients run on."""
    return b64encode(array("f", vector).tobytes()).decode()


def _model_view(name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": 0, "owned_by": "tenuto"}
