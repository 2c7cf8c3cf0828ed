"""What the errors of a provider say beside their status: how long to wait, which field is refused, and why."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from pydantic_ai.exceptions import UserError

from tenuto.model.generation import ModelRequest
from tenuto.model.values import make_storable

_NO_MODEL: Final = "model_not_found"
MESSAGE_CHARACTERS: Final = 300
"""How much is kept of a provider's message."""
# The name of a request's field, with its place: `messages[2].content`.
_FIELD: Final = re.compile(r"[\w.\[\]-]{1,64}", re.ASCII)
# Where OpenAI's chat completions name a field that they do not know.
_UNRECOGNIZED: Final = re.compile(r"Unrecognized request arguments? supplied: ([\w.\[\]-]{1,64})", re.ASCII)
# Where Pydantic AI names a setting that a model does not take.
_SETTING: Final = re.compile(r"`?(tool_choice)\b")


def retry_after(error: BaseException) -> timedelta | None:
    """How long the provider wants the next request to wait, where it says so."""
    cause: BaseException | None = error
    while cause is not None:
        if (seconds := getattr(cause, "retry_after", None)) is not None:
            return timedelta(seconds=float(seconds))
        cause = cause.__cause__ or cause.__context__
    return None


def refused_field(error: Exception) -> str | None:
    """The field of the request that a provider's error names, or Pydantic AI's own."""
    if isinstance(error, UserError):
        setting = _SETTING.match(str(error))
        return setting[1] if setting else None
    body = _error_of(error)
    field, message = body.get("param"), body.get("message")
    if field is None and isinstance(message, str):
        unrecognized = _UNRECOGNIZED.match(message)
        # Anthropic's messages begin with the name of the field.
        field = unrecognized[1] if unrecognized else message.partition(": ")[0].strip("`")
    return field if isinstance(field, str) and _FIELD.fullmatch(field) else None


def names_things_of_provider(request: ModelRequest) -> bool:
    """Whether a request names something that its provider keeps: files, indexes of its tools, or fields of its own."""
    shown = [part for message in request.messages for part in message.parts]
    outputs = [one for part in shown if isinstance(part.get("output"), list) for one in part["output"]]
    return bool(request.parameters.extra or request.provider_tools.tools) or any(
        isinstance(part, dict) and "file_id" in part for part in (*shown, *outputs)
    )


def misses_model(error: Exception, model: str) -> bool:
    """Whether what a provider does not find is the model, as far as its error tells: that of a file names the file."""
    body = _error_of(error)
    message = body.get("message")
    return not isinstance(message, str) or body.get("code") == _NO_MODEL or model in message


def _error_of(error: Exception) -> dict[str, object]:
    body: object = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    return body if isinstance(body, dict) else {}


def status_before_retry(error: BaseException) -> int | None:
    """The status that the provider sent before a client waited, to try again, until its time was over."""
    cause: BaseException | None = error
    while cause is not None:
        if (status := getattr(getattr(cause, "response", None), "status_code", None)) is not None:
            return int(status)
        cause = cause.__cause__ or cause.__context__
    return None


def provider_message(error: Exception) -> str:
    """The message in the body of a provider's error, in one line."""
    body: object = getattr(error, "body", None)
    for name in ("error", "message"):
        if isinstance(body, dict) and name in body:
            body = body[name]
    return make_storable(" ".join(body.split()))[:MESSAGE_CHARACTERS] if isinstance(body, str) else ""
