"""What clients send, as types: the same ones read the bodies and describe them in the OpenAPI."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tenuto.errors import Invalid
from tenuto.model import Changes, NewSession, Producer, Status, Usage
from tenuto.model.prompt import Language
from tenuto.model.session import cost_nanos
from tenuto.model.task import TaskStatus
from tenuto.model.turn import MAX_WINDOW
from tenuto.model.values import MAX_ID_BYTES, JsonObject
from tenuto.privacy.duties.audit import MOST_MARKS
from tenuto.sessions.transfer import ExportFormat

_MOST = 2**53 - 1
Count = Annotated[int, Meta(ge=0, le=_MOST)]
Token = Annotated[int, Meta(ge=1, le=_MOST)]
Text = Annotated[str, Meta(extra_json_schema={"pattern": "^[^\\u0000]*$"})]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES, extra_json_schema={"pattern": "^[^\\u0000]+$"})]
Tenant = Annotated[
    str, Meta(min_length=1, max_length=MAX_ID_BYTES, extra_json_schema={"pattern": "^[^~\\u0000][^\\u0000]*$"})
]
Cost = Annotated[
    Decimal,
    Meta(
        extra_json_schema={
            "pattern": r"^[0-9]{1,6}(\.[0-9]{1,9})?$",
            "minimum": 0,
            "maximum": 999_999,
        }
    ),
]
# Something said: at least one character that is no blank.
SAID = "^[^\\u0000]*[^\\s\\u0000\\u001c-\\u001f\\u0085][^\\u0000]*$"
Words = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": SAID})]
Title = Annotated[
    str,
    Meta(
        max_length=512,
        description="One line, at most 512 characters.",
        # The ends of a line, as Unicode has them.
        extra_json_schema={"pattern": "^[^\\u0000\\n\\r\\u000b\\u000c\\u001c-\\u001e\\u0085\\u2028\\u2029]*$"},
    ),
]
Values = Annotated[
    dict[str, Any],
    Meta(description="Any JSON; patches merge by key, and null removes one.", extra_json_schema={"type": "object"}),
]
MessageBody = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/NewMessage"})]


def one_version(if_match: int | None, if_version: int | None) -> int | None:
    """The version a change is for: the header and the body may both name it, if they agree."""
    if None not in (if_match, if_version) and if_match != if_version:
        raise Invalid("If-Match and if_version name different versions")
    return if_version if if_match is None else if_match


class _Sent(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Something a client sends: a field we do not know is a mistake worth telling."""


class Listing(msgspec.Struct, kw_only=True, frozen=True):
    """Which sessions to list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: Annotated[str, Meta(description="Continues a listing: the `cursor` of its last page.")] | None = None
    q: Annotated[str, Meta(description="Part of the title, in any case.")] | None = None
    status: Status | None = None


class Paging(msgspec.Struct, kw_only=True, frozen=True):
    """Which messages to bring: the newest, or those next before or after a sequence number."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    before: Count | None = None
    after: Count | None = None


class Exporting(msgspec.Struct, kw_only=True, frozen=True):
    """How to write an export."""

    format: ExportFormat = ExportFormat.JSON


class UsageBody(_Sent, frozen=True, kw_only=True, rename={"cost": "cost_usd"}):
    """What something cost. `cost_usd` is exact to a billionth; as a string it stays exact on the way."""

    tokens: Count = 0
    cost: Cost = Decimal(0)

    def value(self) -> Usage:
        """As the store counts it."""
        return Usage(tokens=self.tokens, cost_nanos=cost_nanos(self.cost))


class ProducerBody(_Sent, frozen=True, kw_only=True):
    """A writer that numbers what it sends per session: 1, 2, 3 ..."""

    id: Name
    seq: Annotated[int, Meta(ge=1, le=_MOST)]

    def value(self) -> Producer:
        """As the store knows it."""
        return Producer(id=self.id, seq=self.seq)


class CreateSession(_Sent, frozen=True, kw_only=True):
    """A session to make. An `id` of one's own that exists already brings that session back."""

    id: Name | None = None
    title: Title = ""
    context: Values = {}
    attributes: Values = {}
    metadata: Values = {}
    tenant_id: Tenant | None = None
    site_id: Text | None = None

    def new(self) -> NewSession:
        """What it starts with."""
        return NewSession(title=self.title, context=self.context, attributes=self.attributes, metadata=self.metadata)


class ChangeSession(_Sent, frozen=True, kw_only=True):
    """Changes to a session's head: only what is named changes."""

    title: Title | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    window_start: Annotated[int, Meta(ge=1, le=_MOST)] | UnsetType = UNSET
    context: Values = {}
    attributes: Values = {}
    metadata: Values = {}
    if_version: Count | None = None

    def value(self, if_match: int | None = None) -> Changes:
        """As the store takes it."""
        return Changes(
            title=self.title,
            status=self.status,
            window_start=self.window_start,
            context=self.context,
            attributes=self.attributes,
            metadata=self.metadata,
            if_version=one_version(if_match, self.if_version),
        )


class TurnChanges(_Sent, frozen=True, kw_only=True):
    """Changes to a session's head that come with a turn's end."""

    title: Title | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    window_start: Annotated[int, Meta(ge=1, le=_MOST)] | UnsetType = UNSET
    context: Values = {}
    attributes: Values = {}
    metadata: Values = {}

    def value(self) -> Changes:
        """As the store takes it."""
        return Changes(
            title=self.title,
            status=self.status,
            window_start=self.window_start,
            context=self.context,
            attributes=self.attributes,
            metadata=self.metadata,
        )


class AttributeValue(_Sent, frozen=True, kw_only=True):
    """One attribute's value; null removes it."""

    value: Any


class AppendMessages(_Sent, frozen=True, kw_only=True):
    """Messages to append, oldest first. Without `usage` the tokens that the messages name are what was spent."""

    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    usage: UsageBody | None = None
    producer: ProducerBody | None = None


class ForkSession(_Sent, frozen=True, kw_only=True):
    """Where to branch off: with everything up to and including message `at`, or all of it."""

    at: Count | None = None
    id: Name | None = None
    title: Title | None = None


class TruncateSession(_Sent, frozen=True, kw_only=True):
    """Forget the messages after this sequence number; with `if_version`, if nothing has changed since."""

    after: Count
    if_version: Count | None = None


class BeginTurn(_Sent, frozen=True, kw_only=True):
    """A turn's beginning: the words (none, to answer anew) and how many of the newest messages to bring."""

    message: MessageBody | None = None
    messages: list[MessageBody] = []
    window: Annotated[int, Meta(ge=0, le=MAX_WINDOW)] = 20

    def words(self) -> list[JsonObject]:
        """All messages it brings."""
        return [*([self.message] if self.message is not None else []), *self.messages]


class BeginAnyTurn(BeginTurn, frozen=True, kw_only=True):
    """A turn's beginning that says itself for which session; without one, a new session begins."""

    session_id: Name | None = None
    tenant_id: Tenant | None = None
    site_id: Text | None = None


class FinishTurn(_Sent, frozen=True, kw_only=True):
    """A turn's end: the reply, tool calls and results included, what it cost, and what changes with it."""

    message: MessageBody | None = None
    messages: list[MessageBody] = []
    usage: UsageBody = UsageBody()
    changes: TurnChanges | None = None

    def reply(self) -> list[JsonObject]:
        """All messages it brings."""
        return [*([self.message] if self.message is not None else []), *self.messages]


class ChatBody(_Sent, frozen=True, kw_only=True):
    """Something to say to an assistant.

    Without a session a new one begins; without an assistant the session's own goes on, or the default one begins, and
    without a persona the character that the session last talked to.
    `regenerate` answers the last words anew; `edit` says `message` instead of the message of that sequence number, and
    forgets what came after it. `profile` is what is known of the user.
    """

    message: Text = ""
    session_id: Name | None = None
    assistant: Name | None = None
    persona: Name | None = None
    stream: bool = False
    regenerate: bool = False
    edit: Annotated[int, Meta(ge=1, le=_MOST)] | None = None
    language: Language | None = None
    profile: Values = {}

    def meaning(self) -> list[Any]:
        """What an idempotency key stands for: everything but the way the answer travels."""
        return [getattr(self, name) for name in self.__struct_fields__ if name != "stream"]


class Traces(msgspec.Struct, kw_only=True, frozen=True):
    """Which traces to bring."""

    session_id: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    before: Annotated[int, Meta(ge=1, le=_MOST, description="Only turns before this number.")] | None = None


class RevealMarks(_Sent, frozen=True, kw_only=True):
    """Which marks to look behind."""

    marks: Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(min_length=1, max_length=MOST_MARKS)]


class Auditing(msgspec.Struct, kw_only=True, frozen=True):
    """Which notes of the audit to bring, oldest first."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, Meta(description="Continues a listing: the `cursor` of its last page.")] | None = None


class OpenTask(_Sent, frozen=True, kw_only=True):
    """A task to open; `session_id` names the talk it came out of."""

    type: Name
    goal: Text = ""
    session_id: Name | None = None
    tenant_id: Tenant | None = None
    site_id: Text | None = None


class ChangeTask(_Sent, frozen=True, kw_only=True):
    """How far a task is; its end may have a result. With `if_version`, of that version only."""

    status: Literal["running", "completed", "failed"]
    result: Any = None
    if_version: Count | None = None


class TaskListing(msgspec.Struct, kw_only=True, frozen=True):
    """Which tasks to list, oldest first."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: Annotated[str, Meta(description="Continues a listing: the `cursor` of its last page.")] | None = None
    session_id: Name | None = None
    status: TaskStatus | None = None


class WriteEntry(_Sent, frozen=True, kw_only=True):
    """What shall stand under a key of a board. `agent` may be named by the header Tenuto-Agent instead; `token` is that
    of the agent's lock, and an `if_version` of 0 demands that nothing stands there."""

    value: Any
    agent: Name | None = None
    token: Token | None = None
    if_version: Count | None = None


class LockKey(_Sent, frozen=True, kw_only=True):
    """For how many seconds to have a key, a minute where nothing is said; with its `token` a lock is held on."""

    seconds: Annotated[float, Meta(ge=0.001, le=3600)] | None = None
    agent: Name | None = None
    token: Token | None = None


class Holding(msgspec.Struct, kw_only=True, frozen=True):
    """The lock under which something is done."""

    token: Token | None = None


class Unlocking(msgspec.Struct, kw_only=True, frozen=True):
    """The lock to give back."""

    token: Token


class WriteNote(_Sent, frozen=True, kw_only=True):
    """What an agent notes for itself; an `if_version` of 0 demands that there is no such note."""

    value: Any
    if_version: Count | None = None


class NpcQuestion(_Sent, frozen=True, kw_only=True):
    """Something to ask a character."""

    query: Words
    npc_id: Name | None = None
    session_id: Name | None = None
    tenant_id: Tenant | None = None
    site_id: Text | None = None


class NpcTrace(msgspec.Struct, kw_only=True, frozen=True):
    """How much of a trace to bring."""

    include_session: bool = False


class GoodsQuestion(_Sent, frozen=True, kw_only=True):
    """A shopper's question; a session and a user may be named. The names are those of the shop's clients."""

    question: Words
    sessionId: Text | None = None  # noqa: N815
    userId: Annotated[int, Meta(ge=0, le=_MOST)] | Text | None = None  # noqa: N815
