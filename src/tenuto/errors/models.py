"""Why a model gave no answer, and who may do something about it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import ClassVar

from tenuto.errors.families import Invalid, NotFound, Unavailable


class FailureReason(StrEnum):
    """Why a model gave no answer, by what can be done about it. Decided once, where the provider's error is met.

    `unreachable`: no connection, or it broke off. `refused`: the key, a permission, the model's name, or the request as
    it is. `limit`: the provider's rate limit or quota. `too_slow`: the time limit passed. `content_filter`: the
    provider declined to answer. `other`: anything else, such as an error of the provider or an empty answer.
    """

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    LIMIT = "limit"
    TOO_SLOW = "too_slow"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


def failure_reason(ended: BaseException) -> FailureReason | None:
    """Why the model gave no answer, where that is what ended a turn."""
    reason = getattr(ended, "reason", None)
    return reason if isinstance(reason, FailureReason) else None


class ModelUnknown(NotFound):
    """No assistant, no alias and no model that the caller may use has this name, or its provider has none of it; only
    then there is a `reason`."""

    code: ClassVar[str] = "model_unknown"
    message: ClassVar[str] = "there is no such model for this caller; GET /v1/models lists those that there are"
    reason: FailureReason | None = None


class ModelFailed(Unavailable):
    """The model returned no usable answer; the user message stays stored.

    `provider_message` is what the provider said itself, where that is about access and not about the prompt. It is for
    operators: no answer of the server has it. `may_pass` says that the same request may be answered soon, or after the
    `wait` that the provider asks for.
    """

    code: ClassVar[str] = "model_failed"
    reason: FailureReason = FailureReason.OTHER
    wait: timedelta | None = None
    provider_message: str = ""
    may_pass: bool = False

    def __init__(self, model: str, why: str = "does not answer", reason: FailureReason | None = None) -> None:
        super().__init__(f"model {model}", why)
        self.model = model
        if reason is not None:
            self.reason = reason


class NoTypedAnswer(ModelFailed):
    """The model answers, but not in the form that was asked for, or a chain ended at the offline model."""


class AnswerInvalid(ModelFailed):
    """The model's answer has not the form that the request demands, also after it was asked once more."""

    code: ClassVar[str] = "answer_invalid"
    retry_after: ClassVar[None] = None

    def __init__(self, model: str) -> None:
        super().__init__(model, "gave no answer of the form that was asked for")


class ModelBusy(ModelFailed):
    """Turns needed the model, so a background request gave way. No other model is asked for it."""

    def __init__(self, model: str) -> None:
        super().__init__(model, "was needed for turns")


class ModelRefused(ModelFailed):
    """The provider refused the request as it is, so the same request fails again."""

    code: ClassVar[str] = "model_refused"
    reason: FailureReason = FailureReason.REFUSED
    retry_after: ClassVar[None] = None


class RequestRefused(ModelRefused):
    """The provider finds a fault in what the caller asks for; `parameter` names it, where the provider does."""

    code: ClassVar[str] = "request_refused"
    parameter: str | None = None


class ModelLimited(ModelFailed):
    """The provider's limit of requests or tokens is reached."""

    code: ClassVar[str] = "model_limited"
    reason: FailureReason = FailureReason.LIMIT

    @property
    def retry_after(self) -> timedelta | None:
        """The wait that the provider asks for."""
        return self.wait


class ModelKeyRefused(ModelRefused):
    """The provider does not accept our key."""

    code: ClassVar[str] = "model_key_refused"


class ModelNotFound(ModelRefused):
    """The provider has no model of that name."""

    code: ClassVar[str] = "model_not_found"


class PromptTooLong(ModelRefused):
    """The prompt is longer than the model takes: its budget is set too high."""

    code: ClassVar[str] = "prompt_too_long"


class ModelTimeout(ModelFailed):
    """The model took longer than its time limit."""

    code: ClassVar[str] = "model_timeout"
    reason: FailureReason = FailureReason.TOO_SLOW

    def __init__(self, model: str) -> None:
        super().__init__(model, "took too long")


class ToolError(Invalid):
    """Raised by a tool: its message is for the model, which can call again or explain; it is not logged."""

    code: ClassVar[str] = "tool_error"
