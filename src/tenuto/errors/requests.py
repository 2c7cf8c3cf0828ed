"""What a request says or brings along that is not accepted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from tenuto.errors.families import Conflict, Invalid, LimitReached, NotFound


class InvalidText(Invalid):
    """A text contains what no store accepts: a NUL character or half of a surrogate pair."""

    code: ClassVar[str] = "invalid_text"


class InvalidJson(Invalid):
    """A value is not JSON that every store accepts: too deep, not a number, or of another type."""

    code: ClassVar[str] = "invalid_json"


class InvalidCursor(Invalid):
    """A paging cursor of another listing."""

    code: ClassVar[str] = "invalid_cursor"
    message: ClassVar[str] = "the cursor does not belong to this listing"


class SearchOff(Invalid):
    """Sessions are not searched by what was said in them."""

    code: ClassVar[str] = "search_off"
    message: ClassVar[str] = "the search over sessions is switched off here (session_search); titles can be searched"


class UnknownToolCall(Invalid):
    """A tool's output names no call that waits for one."""

    code: ClassVar[str] = "unknown_tool_call"
    message: ClassVar[str] = "the tool output matches no pending tool call of this session"


class UnknownAttachment(Invalid):
    """A message names an attachment that its session does not have, and brings no content for it."""

    code: ClassVar[str] = "unknown_attachment"
    message: ClassVar[str] = (
        "a part's attachment is none of this session, and its content did not come with the message"
    )


class UnsupportedAttachment(Invalid):
    """The model does not take a picture, a sound or a file, and the request requires that it is sent."""

    code: ClassVar[str] = "unsupported_attachment"

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        super().__init__(f"attachments: {what} {why}")


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


class LinkCodeRefused(NotFound):
    """A code that links two identities is wrong, used, too old, of the same user or of another tenant's site."""

    code: ClassVar[str] = "link_code_refused"
    message: ClassVar[str] = "this code links nothing: let a new one be shown at the other door"


class TooManyLinkCodes(LimitReached):
    """A user has tried too many codes."""

    code: ClassVar[str] = "too_many_link_codes"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("too many codes were tried; try again later")
        self.retry_after = retry_after


class IdentityNotFound(NotFound):
    """The user is not linked with this one."""

    code: ClassVar[str] = "identity_not_found"
    message: ClassVar[str] = "the user is not linked with this one"


class PersonFull(LimitReached):
    """A person would have more identities than one may have."""

    code: ClassVar[str] = "person_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"a person has at most {limit} identities")
        self.limit = limit
