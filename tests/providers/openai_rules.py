"""What OpenAI's two dialects share: the shape of errors, tools, pictures, and limits of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta

from tests.providers.dialect import Ledger, Prompt
from tests.providers.media import IMAGE_TYPES, image_type, read_data_url
from tests.providers.models import OPENAI_MODELS, OpenAIModel
from tests.providers.prompts import tokens
from tests.providers.refusals import Complaint, Problem, Refused, Shape, ShapeError
from tests.providers.script import Failure
from tests.providers.strict_schemas import openai_strict_fault

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]

_FAILURES: Final = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "Not supported."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    413: ("invalid_request_error", "request_too_large", "The request body is too large."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
}
_LEAST_CACHED: Final = 1024
_CACHE_STEP: Final = 128


class PromptCacheBreakpoint(Shape, kw_only=True):
    mode: str
    ttl: str | None = None


class FunctionSpec(Shape, kw_only=True):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


@dataclass(frozen=True)
class OpenAIDialect:
    """The half of a dialect that both of OpenAI's have in common."""

    ledger: Ledger

    def check_key(self, headers: Mapping[str, str], key: str) -> None:
        """Compare the bearer key."""
        if headers.get("authorization") != f"Bearer {key}":
            raise self.fail(Failure(401))

    def error(self, refused: Refused) -> dict[str, Any]:
        """The body of an error."""
        return {
            "error": {"message": refused.message, "type": refused.kind, "param": refused.param, "code": refused.code}
        }

    def fail(self, failure: Failure) -> Refused:
        """A failure in OpenAI's words."""
        kind, code, message = _FAILURES.get(failure.status, _FAILURES[500])
        return Refused(
            failure.message or message, code=failure.code or code, status=failure.status, kind=kind, param=None
        )

    def headers(self) -> dict[str, str]:
        """What every answer carries."""
        return {"x-request-id": self.ledger.next_id("req_"), "openai-version": "2020-10-01"}

    def cached_tokens(self, prompt: Prompt, equal: int, written: Mapping[str, int]) -> tuple[int, int]:
        """Beginnings of at least 1,024 tokens, in steps of 128, without being asked; nothing is billed as written."""
        alike = tokens(equal) // _CACHE_STEP * _CACHE_STEP
        return (alike if alike >= _LEAST_CACHED else 0), 0


def refuse_shape(error: ShapeError) -> Refused:
    """A wrong shape in OpenAI's words."""
    problem, path, detail, groups = error.complaint
    match problem:
        case Problem.UNKNOWN:
            return Refused(f"Unknown parameter: '{path}'.", param=path, code="unknown_parameter")
        case Problem.MISSING:
            return Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
        case Problem.VALUE:
            return Refused(
                f"Invalid value: {groups[0]}. Supported values are: {detail}.", param=path, code="invalid_value"
            )
        case Problem.RANGE | Problem.LENGTH:
            return _refuse_limit(error.complaint)
        case Problem.PATTERN:
            message = f"Invalid '{path}': string does not match pattern. {detail}."
            return Refused(message, param=path, code="invalid_value")
        case Problem.TYPE:
            message = f"Invalid type for '{path}': expected {groups[0]}, but got {groups[1]} instead."
            return Refused(message, param=path, code="invalid_type")


def _refuse_limit(complaint: Complaint) -> Refused:
    kind, comparison, _ = complaint.groups
    above = comparison.startswith("<")
    if complaint.problem is Problem.RANGE:
        noun = "integer" if kind == "int" else "decimal"
        code = f"{noun}_{'above_max' if above else 'below_min'}_value"
    else:
        noun = {"str": "string"}.get(kind, kind)
        code = f"{noun}_above_max_length" if above else "empty_array" if kind == "array" else f"{noun}_below_min_length"
    return Refused(f"Invalid '{complaint.path}': {complaint.detail}.", param=complaint.path, code=code)


def openai_model(name: str) -> OpenAIModel:
    """A model by its name.

    Raises:
        Refused: there is none.
    """
    if name not in OPENAI_MODELS:
        message = f"The model `{name}` does not exist or you do not have access to it."
        raise Refused(message, code="model_not_found", status=404)
    return OPENAI_MODELS[name]


def check_metadata(metadata: Mapping[str, str] | None) -> None:
    """Sixteen pairs, names of 64 and values of 512 characters."""
    if metadata is None:
        return
    if len(metadata) > 16:
        message = f"Invalid 'metadata': too many properties. Expected at most 16, but got {len(metadata)} instead."
        raise Refused(message, param="metadata", code="object_above_max_properties")
    for name, value in metadata.items():
        if len(name) > 64 or len(value) > 512:
            path = f"metadata.{name[:64]}"
            raise Refused(f"Invalid '{path}': string too long.", param=path, code="string_above_max_length")


def check_function(spec: FunctionSpec, at: str) -> None:
    """A strict function's schema must be one that can be kept."""
    if spec.strict and (fault := openai_strict_fault(spec.parameters or {"type": "object"})):
        message = f"Invalid schema for function '{spec.name}': {fault}"
        raise Refused(message, param=f"{at}.parameters", code="invalid_function_parameters")


def check_image_url(url: str, at: str, ledger: Ledger) -> None:
    """A web address is fetched by the provider; content must be a picture of a known kind."""
    if url.startswith(("https://", "http://")):
        if url in ledger.unreachable:
            raise Refused(f"Error while downloading {url}.", param=at, code="invalid_image_url")
        return
    data = read_data_url(url)
    if data is None:
        raise Refused(f"Invalid '{at}'. Expected a valid URL.", param=at, code="invalid_value")
    expected = f"Invalid '{at}'. Expected a base64-encoded data URL with an image MIME type"
    if data.media_type not in IMAGE_TYPES:
        message = f"{expected}, but got unsupported MIME type '{data.media_type}'."
        raise Refused(message, param=at, code="invalid_value")
    if not data.is_base64:
        message = f"{expected}, but got a value without the ';base64' separator."
        raise Refused(message, param=at, code="invalid_value")
    if data.content is None:
        message = f"{expected}, but got an invalid base64-encoded value."
        raise Refused(message, param=at, code="invalid_value")
    if image_type(data.content) is None:
        message = "You uploaded an unsupported image. Please make sure your image is valid."
        raise Refused(message, code="invalid_image_format")


def check_file_id(file_id: str, at: str, ledger: Ledger) -> tuple[str, bytes]:
    """A file must have been uploaded."""
    if file_id not in ledger.files:
        raise Refused(f"No such File object: {file_id}", param=at, status=404)
    return ledger.files[file_id]
