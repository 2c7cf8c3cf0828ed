"""Errors in five families, which HTTP and CLI map once each.

An error has a stable `code` for clients and its facts as attributes. Messages name ids, settings and limits, never user
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from tenuto.extras import install_line


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


class TenutoError(Exception):
    """Anything tenuto refuses or fails to do. `ids` names the session and the trace of the turn that it ended.

    `message` is what an error without arguments says.
    """

    code: ClassVar[str] = "error"
    message: ClassVar[str] = ""
    ids: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or (self.message,)))


class Invalid(TenutoError):
    """The request is invalid; a retry fails again."""

    code: ClassVar[str] = "invalid"


class NotFound(TenutoError):
    """Within the caller's scope there is no such thing."""

    code: ClassVar[str] = "not_found"


class Conflict(TenutoError):
    """The request contradicts stored data or a running operation."""

    code: ClassVar[str] = "conflict"


class LimitReached(TenutoError):
    """A limit of size, rate or budget is reached."""

    code: ClassVar[str] = "limit_reached"


class Unavailable(TenutoError):
    """A dependency does not answer; the same request may succeed later."""

    code: ClassVar[str] = "unavailable"

    def __init__(self, what: str, why: str = "does not answer") -> None:
        super().__init__(f"the {what} {why}")
        self.what = what


class StateCorrupt(Unavailable):
    """A stored value cannot be decoded; others beside it can."""

    code: ClassVar[str] = "state_corrupt"
    retry_after: ClassVar[None] = None


class InvalidText(Invalid):
    """A text contains what no store accepts: a NUL character or half of a surrogate pair."""

    code: ClassVar[str] = "invalid_text"


class UnknownToolCall(Invalid):
    """A tool's output names no call that waits for one."""

    code: ClassVar[str] = "unknown_tool_call"
    message: ClassVar[str] = "the tool output matches no pending tool call of this session"


class UnsupportedAttachment(Invalid):
    """The model does not take a picture, a sound or a file, and the request requires that it is sent."""

    code: ClassVar[str] = "unsupported_attachment"

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        super().__init__(f"attachments: {what} {why}")


class UnknownAttachment(Invalid):
    """A message names an attachment that its session does not have, and brings no content for it."""

    code: ClassVar[str] = "unknown_attachment"
    message: ClassVar[str] = (
        "a part's attachment is none of this session, and its content did not come with the message"
    )


class InvalidJson(Invalid):
    """A value is not JSON that every store accepts: too deep, not a number, or of another type."""

    code: ClassVar[str] = "invalid_json"


class ToolError(Invalid):
    """Raised by a tool: its message is for the model, which can call again or explain; it is not logged."""

    code: ClassVar[str] = "tool_error"


class UnsupportedParameter(Invalid):
    """The model does not take a parameter of the request, or takes it from its assistant alone."""

    code: ClassVar[str] = "unsupported_parameter"

    def __init__(self, parameter: str, why: str) -> None:
        super().__init__(f"{parameter}: {why}")
        self.parameter = parameter


class InstructionsTooLong(Invalid):
    """A request's instructions or system messages do not fit into the prompt, which never holds a part of them."""

    code: ClassVar[str] = "instructions_too_long"

    def __init__(self, field: str, tokens: int, limit: int, setting: str) -> None:
        super().__init__(
            f"{field}: {tokens:,} tokens of instructions, which are never cut, and the prompt has room for {limit:,}; "
            f"{setting} raises it"
        )
        self.tokens = tokens
        self.limit = limit


class InvalidSetting(Invalid):
    """A setting is unknown, out of range or contradicts another one."""

    code: ClassVar[str] = "invalid_setting"

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"{setting}: {why}")
        self.setting = setting


class ForeignStore(InvalidSetting):
    """The store's address leads to data of another program, or to a file that is no database."""


class NewerStore(InvalidSetting):
    """The store was written by a newer release."""


class PackageMissing(InvalidSetting):
    """A setting needs a package that is not installed; `install` is the command that brings it."""

    def __init__(self, setting: str, what: str, *, extra: str = "", install: str = "") -> None:
        self.install = install or install_line(extra)
        super().__init__(setting, f"{what} needs a package that is not installed: {self.install}")


class PrivateData(Invalid):
    """The text contains private data that a policy blocks. It names the types, never the values."""

    code: ClassVar[str] = "private_data"

    def __init__(self, types: Sequence[str]) -> None:
        super().__init__(f"the message contains private data that the policy blocks here: {', '.join(types)}")
        self.types = tuple(types)


class TooManyPrivateValues(Invalid):
    """The text holds so many values that look private that it is not searched to its end, and not kept."""

    code: ClassVar[str] = "too_many_private_values"
    message: ClassVar[str] = (
        "the text contains too many values that look private to redact in one request: send it in smaller parts"
    )


class DeliveryRefused(Invalid):
    """A delivery of a chat platform that is not genuine or cannot be read; `forged` if its origin is not proved."""

    code: ClassVar[str] = "delivery_refused"

    def __init__(self, why: str, *, forged: bool = False) -> None:
        super().__init__(why)
        self.forged = forged


class ReplyRefused(Invalid):
    """A chat platform refuses a reply for good, as to a recalled message; `reason` is the platform's code."""

    code: ClassVar[str] = "reply_refused"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the platform refuses the reply: {reason}")
        self.reason = reason


class InvalidCursor(Invalid):
    """A paging cursor of another listing."""

    code: ClassVar[str] = "invalid_cursor"
    message: ClassVar[str] = "the cursor does not belong to this listing"


class SessionNotFound(NotFound):
    """Absent, foreign, expired, deleted or corrupt: the caller cannot tell which."""

    code: ClassVar[str] = "session_not_found"

    def __init__(self, session_id: str) -> None:
        super().__init__("session not found")
        self.session_id = session_id


class SessionForeign(SessionNotFound):
    """The session belongs to another owner of the same tenant.

    For the hijack check only: callers see a plain `SessionNotFound`.
    """

    def __init__(self, session_id: str, owner: str) -> None:
        super().__init__(session_id)
        self.owner = owner


class SessionCorrupt(SessionNotFound):
    """The stored record could not be decoded and was quarantined; callers see a plain `SessionNotFound`."""


class SessionExpired(SessionNotFound):
    """The session's retention is over; callers see a plain `SessionNotFound`."""


class TraceNotFound(NotFound):
    """No turn visible to the caller has this trace; its session may be deleted, or the trace too old."""

    code: ClassVar[str] = "trace_not_found"
    message: ClassVar[str] = "trace not found"


class ModelUnknown(NotFound):
    """No assistant, no alias and no model that the caller may use has this name."""

    code: ClassVar[str] = "model_unknown"
    message: ClassVar[str] = "there is no such model for this caller; GET /v1/models lists those that there are"


class AttachmentNotFound(NotFound):
    """The session has no attachment of this id: it never had, or it was removed."""

    code: ClassVar[str] = "attachment_not_found"
    message: ClassVar[str] = "attachment not found"


class MemoryNotFound(NotFound):
    """The owner has no memory of this id."""

    code: ClassVar[str] = "memory_not_found"
    message: ClassVar[str] = "memory not found"


class MessageNotFound(NotFound):
    """No message of the user has this sequence number in the session."""

    code: ClassVar[str] = "message_not_found"

    def __init__(self, seq: int) -> None:
        super().__init__(f"no message of the user has the sequence number {seq}")
        self.seq = seq


class PlaceholderNotFound(NotFound):
    """The session has no such placeholder, or its messages were superseded."""

    code: ClassVar[str] = "placeholder_not_found"
    message: ClassVar[str] = (
        "the session has no such placeholder; write it as it appears in a message, such as [EMAIL_1]"
    )


class AssistantNotFound(NotFound):
    """No assistant has this name, or no character of it this one."""

    code: ClassVar[str] = "assistant_not_found"

    def __init__(self, what: str, known: str) -> None:
        super().__init__(f"there is no such {what}; available: {known}")


class ApiKeyNotFound(NotFound):
    """No API key has this id."""

    code: ClassVar[str] = "api_key_not_found"
    message: ClassVar[str] = "there is no API key with this id"


class SessionExists(Conflict):
    """A session of this id exists already within the caller's reach."""

    code: ClassVar[str] = "session_exists"

    def __init__(self, session_id: str) -> None:
        super().__init__("a session with this id already exists")
        self.session_id = session_id


class SessionBusy(Conflict):
    """Another turn holds the session's lease; `retry_after` is the lease's rest, unless the turn renews or ends it.

    `turn_id` and `incarnation` name that turn; they are for the server alone, since they are all it takes to end it.
    """

    code: ClassVar[str] = "session_busy"

    def __init__(self, session_id: str, retry_after: timedelta, turn_id: str = "", incarnation: str = "") -> None:
        super().__init__("another turn is running on this session")
        self.session_id = session_id
        self.retry_after = retry_after
        self.turn_id = turn_id
        self.incarnation = incarnation


class TurnLost(Conflict):
    """The turn's lease passed to another turn, or the session was reset, truncated or deleted meanwhile."""

    code: ClassVar[str] = "turn_lost"

    def __init__(self, session_id: str, turn_id: str) -> None:
        super().__init__("the turn lost its lease; the user message stays stored")
        self.session_id = session_id
        self.turn_id = turn_id


class TurnStopped(Conflict):
    """A user stopped the turn before any of its answer was made, or while it made another answer to replace one."""

    code: ClassVar[str] = "turn_stopped"
    message: ClassVar[str] = (
        "the turn was stopped without a new answer; the user message and its old answer stay stored"
    )


class NothingToAnswer(Conflict):
    """The session has no user message to answer again."""

    code: ClassVar[str] = "nothing_to_answer"
    message: ClassVar[str] = "there is no user message to answer again"


class VersionConflict(Conflict):
    """The record changed since the caller read it."""

    code: ClassVar[str] = "version_conflict"

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"expected version {expected}, found {actual}")
        self.expected = expected
        self.actual = actual


class IdempotencyKeyReused(Conflict):
    """The idempotency key was used with another body."""

    code: ClassVar[str] = "idempotency_key_reused"
    message: ClassVar[str] = "this idempotency key was used before with another body"


class Superseded(Conflict):
    """The request of this idempotency key was carried out, and its result was replaced later."""

    code: ClassVar[str] = "superseded"
    message: ClassVar[str] = (
        "the result of this idempotency key was replaced by an edit or a regeneration; to send it again, use a new key"
    )


class SequenceGap(Conflict):
    """A producer skipped sequence numbers; it must resend from `expected`."""

    code: ClassVar[str] = "sequence_gap"

    def __init__(self, producer: str, expected: int) -> None:
        super().__init__(f"producer {producer}: expected sequence number {expected}")
        self.producer = producer
        self.expected = expected


class TooLarge(LimitReached):
    """A message or a request is larger than the setting allows."""

    code: ClassVar[str] = "too_large"

    def __init__(self, what: str, limit_bytes: int, field: str = "") -> None:
        super().__init__(f"{field}{': ' * bool(field)}the {what} is larger than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class AttachmentLimit(LimitReached):
    """A session or its owner has as many attachments, or bytes of them, as the setting allows."""

    code: ClassVar[str] = "attachment_limit"

    def __init__(self, setting: str, limit: int) -> None:
        whose = "session has" if setting == "max_attachments" else "owner of the session has"
        super().__init__(f"with this message the {whose} more attachments than {setting} allows: {limit}")
        self.setting = setting


class QueueFull(LimitReached):
    """As many messages of a chat wait for their turn as may; the platform delivers this one again later."""

    code: ClassVar[str] = "queue_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} messages of this chat are already waiting")


class BudgetExhausted(LimitReached):
    """The session or its tenant has spent its budget."""

    code: ClassVar[str] = "budget_exhausted"

    def __init__(self, whose: str, limit: str) -> None:
        super().__init__(f"the {whose} has used up its budget of {limit}")
        self.subject = whose


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


class ChannelUnavailable(Unavailable):
    """A chat platform does not answer, or asks to slow down; `retry_after` is when it wants the next request."""

    code: ClassVar[str] = "channel_unavailable"

    def __init__(self, channel: str, why: str = "does not answer", retry_after: timedelta | None = None) -> None:
        super().__init__(f"platform of {channel}", why)
        self.retry_after = retry_after


class ExtraMissing(Unavailable):
    """A package that this needs is not installed; `install` is the command that brings it."""

    code: ClassVar[str] = "extra_missing"
    retry_after: ClassVar[None] = None

    def __init__(self, what: str, extra: str = "", *, install: str = "") -> None:
        self.install = install or install_line(extra)
        super().__init__(what, f"needs a package that is not installed: {self.install}")


class AssistantFailed(TenutoError):
    """Code of an assistant raised what is no `TenutoError`, which is the cause; the user message stays stored."""

    code: ClassVar[str] = "assistant_failed"

    def __init__(self, name: str) -> None:
        super().__init__(f"the assistant {name} failed; its operator finds the cause in the trace")


class AssistantMissing(Unavailable):
    """The file of an assistant cannot be loaded; `cause` names file, line and what to do, for operators alone."""

    code: ClassVar[str] = "assistant_missing"
    retry_after: ClassVar[None] = None
    cause: str = ""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"assistant {name}", "cannot be loaded; its operator finds the cause in Health")
        self.cause = cause


class StoreUnavailable(Unavailable):
    """The store's server does not answer; the call may have been carried out."""

    def __init__(self, what: str = "session store", why: str = "does not answer") -> None:
        super().__init__(what, why)


class SessionElsewhere(StoreUnavailable):
    """Another process may hold journaled turns of the session; nothing was carried out."""

    retry_after: ClassVar[timedelta] = timedelta(seconds=1)

    def __init__(self) -> None:
        super().__init__("session", "may have turns that another process has not stored yet")


class CircuitOpen(StoreUnavailable):
    """The circuit breaker rejects calls after several failures in a row; nothing was carried out."""

    code: ClassVar[str] = "circuit_open"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__(why="has stopped answering; calls are rejected for a while")
        self.retry_after = retry_after


class StoreRejected(Unavailable):
    """The store refused the request, as for a value out of range or a lock; nothing of it was stored."""


class StoreFull(Unavailable):
    """The store is full; nothing of the request was stored."""

    code: ClassVar[str] = "store_full"

    def __init__(self) -> None:
        super().__init__("session store", "has no space left")


class StoreReadOnly(Unavailable):
    """The store can be read but not written."""

    code: ClassVar[str] = "store_read_only"

    def __init__(self) -> None:
        super().__init__("session store", "is read-only")


class StoreDamaged(Unavailable):
    """The store's files are damaged; `tenuto doctor` says where, and a backup is needed."""

    code: ClassVar[str] = "store_damaged"
    retry_after: ClassVar[None] = None

    def __init__(self) -> None:
        super().__init__("session store", "is damaged; tenuto doctor says more")


class StoreReplaced(Unavailable):
    """The store's file was deleted, moved or replaced while it was open: what is written would be lost."""

    code: ClassVar[str] = "store_replaced"
    retry_after: ClassVar[None] = None

    def __init__(self) -> None:
        why = "was deleted or replaced while it was open; put its file back (a restart begins with what is there now)"
        super().__init__("session store", why)


class DecryptionFailed(Unavailable):
    """A record was encrypted with a key that is missing, or was changed or moved later; it stays stored."""

    code: ClassVar[str] = "decryption_failed"

    def __init__(self, why: str) -> None:
        super().__init__("encrypted record", why)


class MasterKeyMissing(DecryptionFailed):
    """The key ring lacks the master key of a record; with the key the record can be read again."""

    def __init__(self, fingerprint: str) -> None:
        super().__init__(f"needs a master key that the key ring does not have, with the fingerprint {fingerprint}")
        self.fingerprint = fingerprint


class DataKeysDamaged(DecryptionFailed):
    """The stored keys of a tenant were changed: only a backup of them opens the encrypted records."""

    def __init__(self, tenant: str) -> None:
        super().__init__("cannot be opened: the tenant's data keys were changed in the store, or are another tenant's")
        self.tenant = tenant


def failure_reason(ended: BaseException) -> FailureReason | None:
    """Why the model gave no answer, where that is what ended a turn."""
    reason = getattr(ended, "reason", None)
    return reason if isinstance(reason, FailureReason) else None


def reply_error_code(ended: BaseException) -> str:
    """A code that quotes no text: that of a `TenutoError`, or the type name of any other exception."""
    if isinstance(ended, TenutoError):
        return ended.code
    name = type(ended).__name__.lower()
    # By its name, since values and errors do without asyncio, whose import takes as long as theirs.
    return "cancelled" if name == "cancellederror" else name
