"""What the errors of a provider say beside their status: how long to wait, which field is refused, and why."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from tenuto.model.values import make_storable

MESSAGE_CHARACTERS: Final = 300
"""How much is kept of a provider's message."""
# The name of a request's field, with its place: `messages[2].content`.
_FIELD: Final = re.compile(r"[\w.\[\]-]{1,64}", re.ASCII)


def retry_after(error: BaseException) -> timedelta | None:
    """How long the provider wants the next request to wait, where it says so."""
    cause: BaseException | None = error
    while cause is not None:
        if (seconds := getattr(cause, "retry_after", None)) is not None:
            return timedelta(seconds=float(seconds))
        cause = cause.__cause__ or cause.__context__
    return None


def refused_field(error: Exception) -> str | None:
    """The field of the request that a provider's error names."""
    body: object = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    field = body.get("param") if isinstance(body, dict) else None
    if field is None and isinstance(body, dict) and isinstance(body.get("message"), str):
        # Anthropic's messages begin with the name of the field.
        field = body["message"].partition(": ")[0].strip("`")
    return field if isinstance(field, str) and _FIELD.fullmatch(field) else None


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
