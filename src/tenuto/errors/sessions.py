"""Sessions, their turns and what is kept of them: absent, busy, changed meanwhile or at a limit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from tenuto.errors.families import Conflict, LimitReached, NotFound, Unavailable


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


class MessageNotFound(NotFound):
    """No message of the user has this sequence number in the session."""

    code: ClassVar[str] = "message_not_found"

    def __init__(self, seq: int) -> None:
        super().__init__(f"no message of the user has the sequence number {seq}")
        self.seq = seq


class AttachmentNotFound(NotFound):
    """The session has no attachment of this id: it never had, or it was removed."""

    code: ClassVar[str] = "attachment_not_found"
    message: ClassVar[str] = "attachment not found"


class MemoryNotFound(NotFound):
    """The owner has no memory of this id."""

    code: ClassVar[str] = "memory_not_found"
    message: ClassVar[str] = "memory not found"


class PlaceholderNotFound(NotFound):
    """The session has no such placeholder, or its messages were superseded."""

    code: ClassVar[str] = "placeholder_not_found"
    message: ClassVar[str] = (
        "the session has no such placeholder; write it as it appears in a message, such as [EMAIL_1]"
    )


class SessionExists(Conflict):
    """A session of this id exists already within the caller's reach."""

    code: ClassVar[str] = "session_exists"

    def __init__(self, session_id: str) -> None:
        super().__init__("a session with this id already exists")
        self.session_id = session_id


class SessionBusy(Conflict):
    """Another turn holds the session's lease; `retry_after` is the lease's rest, unless the turn renews or ends it.

    `turn_id` and `incarnation` name that turn; they are for the server alone, since they are all it takes to end it.
    `same_key` says that the refused request has the key of that turn, `until` when the lease ends.
    """

    code: ClassVar[str] = "session_busy"

    def __init__(
        self,
        session_id: str,
        retry_after: timedelta,
        turn_id: str = "",
        incarnation: str = "",
        *,
        until: datetime | None = None,
        same_key: bool = False,
    ) -> None:
        super().__init__("another turn is running on this session")
        self.until = until
        self.same_key = same_key
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


class TurnInterrupted(Unavailable):
    """The process that made the answer has ended before it was whole, or lost the session."""

    code: ClassVar[str] = "turn_interrupted"

    def __init__(self) -> None:
        super().__init__(
            "process that made this answer", "has ended; the same request with its Idempotency-Key answers it anew"
        )


class ServerStopping(TurnInterrupted):
    """This process ends; a turn of another one that was followed here goes on there."""

    code: ClassVar[str] = "server_stopping"

    def __init__(self) -> None:
        Unavailable.__init__(self, "server", "is stopping; connect again to go on")


class TurnUnreachable(Unavailable):
    """A turn runs in another process, which tells nothing of it."""

    code: ClassVar[str] = "turn_unreachable"

    def __init__(self) -> None:
        super().__init__("process that makes this answer")


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


class AttachmentLimit(LimitReached):
    """A session or its owner has as many attachments, or bytes of them, as the setting allows."""

    code: ClassVar[str] = "attachment_limit"

    def __init__(self, setting: str, limit: int) -> None:
        whose = "session has" if setting == "max_attachments" else "owner of the session has"
        super().__init__(f"with this message the {whose} more attachments than {setting} allows: {limit}")
        self.setting = setting


class BudgetExhausted(LimitReached):
    """The session or its tenant has spent its budget."""

    code: ClassVar[str] = "budget_exhausted"

    def __init__(self, whose: str, limit: str) -> None:
        super().__init__(f"the {whose} has used up its budget of {limit}")
        self.subject = whose
