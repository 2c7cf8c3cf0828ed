"""Routes of models, among which are our assistants, and of embeddings."""

from __future__ import annotations

import asyncio
from array import array
from base64 import b64encode
from collections.abc import Hashable, Sequence
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.access import Caller
from tenuto.context import TokenCounter
from tenuto.errors import Invalid, ModelUnknown, TenutoError
from tenuto.model import Scope
from tenuto.model.values import Json, JsonObject
from tenuto.server.anthropic import errors as anthropic_errors
from tenuto.server.anthropic.models import model_info, model_page
from tenuto.server.auth import ServerContext
from tenuto.server.openai.errors import OpenAIRouter
from tenuto.server.problems import AccessDenied
from tenuto.server.streams import cancel_on_disconnect


class _ModelRouter(OpenAIRouter):
    """Routes at which clients of Anthropic ask as well, and are answered in the shape of theirs."""

    def failure(self, request: Request, error: TenutoError | AccessDenied) -> Response:
        return anthropic_errors.failure_response(error) if _is_anthropic(request) else super().failure(request, error)

    def internal_failure(self, request: Request) -> Response:
        return anthropic_errors.internal_failure() if _is_anthropic(request) else super().internal_failure(request)


def _is_anthropic(request: Request) -> bool:
    return anthropic_errors.is_anthropic_request(request.url.path, request.headers)


routes = _ModelRouter()

# As OpenAI has them: texts of a request, tokens of a text, and tokens of a request where no setting is below.
_TEXTS: Final = 2_048
_TEXT_TOKENS: Final = 8_192
_REQUEST_TOKENS: Final = 300_000
# More characters than these tokens have are refused without being counted.
_CHARACTERS_PER_TOKEN: Final = 8
_counter: Final = TokenCounter()


class _EmbeddingsBody(msgspec.Struct, frozen=True, kw_only=True):
    input: str | list[Any]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


@routes.get("/models")
async def list_models(request: Request, scope: Scope, context: ServerContext) -> JsonObject:
    """List the assistants, aliases and models that the caller may name. With `anthropic-version`, as Anthropic does."""
    names = context.chat.model_names(scope.tenant)
    if _is_anthropic(request):
        return model_page(names, request.query_params)
    return {"object": "list", "data": [_model_view(name) for name in names]}


@routes.get("/models/{model:path}")
async def get_model(request: Request, scope: Scope, context: ServerContext, model: str) -> JsonObject:
    """Get a model that the caller may name, also one that only a `*` allows."""
    if not context.chat.has_model(scope.tenant, model):
        raise ModelUnknown
    return model_info(model) if _is_anthropic(request) else _model_view(model)


@routes.post("/embeddings", body={"input": ["Where do I start?"]})
async def create_embeddings(
    request: Request, scope: Scope, context: ServerContext, body: _EmbeddingsBody
) -> JsonObject:
    """Create vectors of texts, by the server's embedder. Cancelled when the client disconnects."""
    texts = _texts_of(body.input)
    context = context
    per_minute = context.settings.embedding_tokens_per_minute
    tokens = await asyncio.to_thread(_count_tokens, texts, min(_REQUEST_TOKENS, per_minute or _REQUEST_TOKENS))
    await context.embedding_rates.acquire(_caller_key(request), tokens)
    memories = await context.tenuto.memories()
    vectors = await cancel_on_disconnect(request, memories.vectors.of_texts(scope, texts))
    if body.dimensions not in (None, len(vectors[0])):
        raise Invalid(f"dimensions: this embedder has {len(vectors[0])}")
    encode = _as_base64 if body.encoding_format == "base64" else list
    data = [
        {"object": "embedding", "index": place, "embedding": encode(vector)} for place, vector in enumerate(vectors)
    ]
    name = memories.embedder.name if memories.embedder is not None else ""
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.model or name, "usage": usage}


def _texts_of(given: str | list[Any]) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not texts or len(texts) > _TEXTS:
        raise Invalid(f"input: from 1 to {_TEXTS} texts")
    if not all(isinstance(text, str) and text for text in texts):
        raise Invalid("input: expected texts that are not empty; lists of tokens are not accepted")
    return texts


def _count_tokens(texts: Sequence[str], limit: int) -> int:
    """The tokens of all texts.

    Raises:
        Invalid: a text, or all of them together, have more than they may.
    """
    total = 0
    for text in texts:
        tokens = _counter.count(text) if len(text) <= _TEXT_TOKENS * _CHARACTERS_PER_TOKEN else len(text)
        if tokens > _TEXT_TOKENS:
            raise Invalid(f"input: a text has at most {_TEXT_TOKENS} tokens; embed parts of it")
        total += tokens
        if total > limit:
            raise Invalid(f"input: the texts of a request have at most {limit} tokens together; send fewer at a time")
    return total


def _caller_key(request: Request) -> Hashable:
    """Whose embeddings are counted: those of a key or a user; of an address where no credential is needed."""
    caller: Caller | None = request.state.caller
    if caller is None:
        return request.client.host if request.client else ""
    return caller.key_id or (caller.tenant, caller.user)


def _as_base64(vector: Sequence[float]) -> Json:
    """The numbers as 32-bit floats, in the order of bytes of the machines that clients run on."""
    return b64encode(array("f", vector).tobytes()).decode()


def _model_view(name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": 0, "owned_by": "tenuto"}
