"""What clients send, as types: the same ones read the bodies and describe them in the OpenAPI."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from tenuto.access import KeyRole
from tenuto.errors import Invalid
from tenuto.model import Changes, NewSession, Producer, Status, Usage
from tenuto.model.analytics import USAGE_DAYS
from tenuto.model.memory import MAX_HITS, MAX_MEMORY, MAX_SUBJECT, MemoryKind
from tenuto.model.parameters import NO_PARAMETERS, AnswerSchema, ModelParameters
from tenuto.model.prompt import Language
from tenuto.model.session import cost_nanos
from tenuto.model.turn import MAX_WINDOW, TraceOutcome
from tenuto.model.values import MAX_ID_BYTES, JsonObject
from tenuto.privacy.compliance.audit import MOST_MARKS
from tenuto.recall.service import MAX_PAGE
from tenuto.server.json_io import QueryParameters, RequestBody
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
    Decimal, Meta(extra_json_schema={"pattern": r"^[0-9]{1,6}(\.[0-9]{1,9})?$", "minimum": 0, "maximum": 999_999})
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
MAX_SEARCH = 10_000
"""Characters of a query for memories: what is longer is a document, and no question."""
MemoryText = Annotated[str, Meta(min_length=1, max_length=MAX_MEMORY, extra_json_schema={"pattern": SAID})]
MessageBody = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/NewMessage"})]


def resolve_version(if_match: int | None, if_version: int | None) -> int | None:
    """The version a change is for: the header and the body may both name it, if they agree."""
    if None not in (if_match, if_version) and if_match != if_version:
        raise Invalid("If-Match and if_version name different versions")
    return if_version if if_match is None else if_match


class SessionListQuery(QueryParameters, kw_only=True, frozen=True):
    """Which sessions to list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: Annotated[str, Meta(description="Continues a listing: the `cursor` of its last page.")] | None = None
    q: Annotated[str, Meta(description="Words to search for; a page has at most 100 sessions.")] | None = None
    title: Annotated[str, Meta(description="Part of the title, in any case.")] | None = None
    status: Status | None = None


class MessageListQuery(QueryParameters, kw_only=True, frozen=True):
    """Which messages to bring: the newest, or those next before or after a sequence number.

    Summaries lie in the log as well; they come only where they are asked for. Turns that were stored late, after an
    outage, come where they are stored, or, within a page, `in_place`. With `head`, the session comes along.
    """

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    before: Count | None = None
    after: Count | None = None
    summaries: bool = False
    in_place: bool = False
    head: bool = False


class ExportQuery(QueryParameters, kw_only=True, frozen=True):
    """How to write an export."""

    format: ExportFormat = ExportFormat.JSON


class UsageBody(RequestBody, frozen=True, kw_only=True, rename={"cost": "cost_usd"}):
    """What something cost. `cost_usd` is exact to a billionth; as a string it stays exact in transit."""

    tokens: Count = 0
    cost: Cost = Decimal(0)

    def value(self) -> Usage:
        """As the store counts it."""
        return Usage(tokens=self.tokens, cost_nanos=cost_nanos(self.cost))


class ProducerBody(RequestBody, frozen=True, kw_only=True):
    """A writer that numbers what it sends per session: 1, 2, 3 ..."""

    id: Name
    seq: Annotated[int, Meta(ge=1, le=_MOST)]

    def value(self) -> Producer:
        """As the store knows it."""
        return Producer(id=self.id, seq=self.seq)


class CreateSession(RequestBody, frozen=True, kw_only=True):
    """A session to create. If the caller has a session of that `id`, it is returned."""

    EXAMPLE = {"title": "Holiday plans", "context": {"language": "en"}, "attributes": {"vip": True}}

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


class TurnChanges(RequestBody, frozen=True, kw_only=True):
    """Changes to a session's head at the end of a turn; fields that are left out keep their values."""

    title: Title | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    window_start: Annotated[int, Meta(ge=1, le=_MOST)] | UnsetType = UNSET
    context: Values = {}
    attributes: Values = {}
    metadata: Values = {}

    def value(self, if_version: int | None = None) -> Changes:
        """As the store takes it."""
        return Changes(**{**asdict(self), "if_version": if_version})


class ChangeSession(TurnChanges, frozen=True, kw_only=True):
    """Changes to a session's head; fields that are left out keep their values."""

    EXAMPLE = {"title": "Two weeks in Lisbon", "context": {"language": None}}

    if_version: Count | None = None


class AttributeValue(RequestBody, frozen=True, kw_only=True):
    """One attribute's value; null removes it."""

    EXAMPLE = {"value": "gold"}

    value: Any


class AppendMessages(RequestBody, frozen=True, kw_only=True):
    """Messages to append, oldest first. Without `usage` the tokens that the messages name are what was spent."""

    EXAMPLE = {
        "messages": [{"role": "user", "text": "Hello!"}, {"role": "assistant", "text": "Hello Ann.", "tokens": 4}],
        "usage": {"tokens": 12, "cost_usd": "0.000036"},
    }

    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    usage: UsageBody | None = None
    producer: ProducerBody | None = None


class ForkSession(RequestBody, frozen=True, kw_only=True):
    """Where to fork: everything up to and including message `at` is copied, or everything."""

    EXAMPLE = {"at": 4, "title": "What if"}

    at: Count | None = None
    id: Name | None = None
    title: Title | None = None


class TruncateSession(RequestBody, frozen=True, kw_only=True):
    """Delete the messages after this sequence number, except those of `keep_seqs`; with `if_version`, if nothing has
    changed since."""

    EXAMPLE = {"after": 4}

    after: Count
    if_version: Count | None = None
    keep_seqs: tuple[Count, ...] = ()


class _MessagesBody(RequestBody, frozen=True, kw_only=True):
    """One message, several, or none."""

    message: MessageBody | None = None
    messages: list[MessageBody] = []

    def all(self) -> list[JsonObject]:
        """Every message it brings."""
        return [*([self.message] if self.message is not None else []), *self.messages]

    @property
    def places(self) -> list[str]:
        """Where each of them stands in the body."""
        return [*(["message."] if self.message is not None else []), *_numbered("messages", len(self.messages))]


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}[{number}]." for number in range(count)]


class BeginTurnBody(_MessagesBody, frozen=True, kw_only=True):
    """Begins a turn: the text (none, to answer again) and the maximum number of messages to return."""

    EXAMPLE = {"message": {"role": "user", "text": "Which museums are open on Monday?"}, "window": 20}

    window: Annotated[int, Meta(ge=0, le=MAX_WINDOW)] | None = None


class BeginAnyTurnBody(BeginTurnBody, frozen=True, kw_only=True):
    """Begins a turn in the session that it names; without one, in a new session."""

    session_id: Name | None = None
    tenant_id: Tenant | None = None
    site_id: Text | None = None


class FinishTurnBody(_MessagesBody, frozen=True, kw_only=True):
    """A turn's end: the reply, tool calls and results included, what it cost, and what changes with it."""

    EXAMPLE = {
        "message": {"role": "assistant", "text": "The tile museum is closed, the others are open."},
        "usage": {"tokens": 420, "cost_usd": "0.00126"},
    }

    usage: UsageBody = UsageBody()
    changes: TurnChanges | None = None


class AttachmentBody(RequestBody, frozen=True, kw_only=True):
    """A picture, a sound or a file: by its content, as base64 in `data`; by a link in `url`, which is not fetched; by
    the `file_id` of a provider's file; or by the id of an `attachment` that the session has."""

    data: Text | None = None
    url: Text | None = None
    file_id: Name | None = None
    attachment: Name | None = None
    media_type: Text | None = None
    name: Text | None = None
    type: Literal["image", "audio", "file"] | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None
    provider: Name | None = None

    def part(self) -> JsonObject:
        """The part of a message that it says."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class ChatBody(RequestBody, frozen=True, kw_only=True):
    """A message to an assistant, with `attachments` if it shows pictures, sounds or files.

    With `regenerate`, the last user message is answered again; it needs a `session_id` and no `message`. With `edit`,
    `message` replaces the user message of that sequence number, and later messages are deleted. Neither removes a
    message behind `after_seq`. `model` answers in place of the assistant's, if this installation allows it.
    `parameters` are for the model, and refused where it does not take them; with a `schema`, the answer has that form.
    """

    EXAMPLE = {"message": "Which phones are cheap?", "assistant": "goods"}

    message: Text = ""
    attachments: list[AttachmentBody] = []
    require_attachments: bool = False
    session_id: Name | None = None
    assistant: Name | None = None
    persona: Name | None = None
    model: Name | None = None
    stream: bool = False
    regenerate: bool = False
    edit: Annotated[int, Meta(ge=1, le=_MOST)] | None = None
    after_seq: Annotated[int, Meta(ge=0, le=_MOST)] | None = None
    language: Language | None = None
    profile: Values = {}
    parameters: ModelParameters = NO_PARAMETERS
    schema: AnswerSchema | None = None
    reply_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class StreamQuery(QueryParameters, kw_only=True, frozen=True):
    """From where to join a running turn."""

    after: (
        Annotated[str, Meta(max_length=32, description="The `id` of the last event seen, as in `Last-Event-ID`.")]
        | None
    ) = None


class TraceListQuery(QueryParameters, kw_only=True, frozen=True):
    """Which traces to bring."""

    session_id: Name | None = None
    assistant: Annotated[str, Meta(description="Only turns of this assistant.")] | None = None
    user: (
        Annotated[
            str,
            Meta(
                min_length=1, description="Only turns of this user; without a session, in sessions of the user's own."
            ),
        ]
        | None
    ) = None
    model: Annotated[str, Meta(description="Only turns that this model answered.")] | None = None
    outcome: Annotated[TraceOutcome, Meta(description="Only turns with this outcome.")] | None = None
    since: Annotated[datetime, Meta(tz=True, description="Only turns that began then or later.")] | None = None
    until: Annotated[datetime, Meta(tz=True, description="Only turns that began before.")] | None = None
    brief: Annotated[bool, Meta(description="Without tools, spans, data and context.")] = False
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    before: Annotated[int, Meta(ge=1, le=_MOST, description="Only turns before this number.")] | None = None


class SessionEventsQuery(QueryParameters, kw_only=True, frozen=True):
    """Which events to follow."""

    session_id: Annotated[Name, Meta(description="Report what other processes change in this session, too.")] | None = (
        None
    )


class TraceQuery(QueryParameters, kw_only=True, frozen=True):
    """What to bring of a trace."""

    text: Annotated[bool, Meta(description="With the text of each part of the prompt.")] = False


class RevealBody(RequestBody, frozen=True, kw_only=True):
    """The placeholders whose values are asked for."""

    EXAMPLE = {"placeholders": ["[EMAIL_1]"]}

    placeholders: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(min_length=1, max_length=MOST_MARKS)
    ]


class AuditQuery(QueryParameters, kw_only=True, frozen=True):
    """Which notes of the audit to bring, oldest first."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, Meta(description="Continues a listing: the `cursor` of its last page.")] | None = None


class ScanBody(RequestBody, frozen=True, kw_only=True):
    """What a scan does beside counting: redact what the policy does not allow, and stream its progress."""

    EXAMPLE = {"fix": False, "stream": False}

    fix: bool = False
    stream: bool = False


class VerifyReceipt(RequestBody, frozen=True, kw_only=True):
    """A receipt of an erasure as it was issued; with `user_id`, it must be about this user, too."""

    EXAMPLE = {
        "receipt": {
            "id": "7a1c9affea8339fe4854ccc989c16542",
            "tenant": "acme",
            "sites": [""],
            "user_digest": "161759ec153ea6b498e24136d68231cfb48dca956bc239ab408513bdb62b93c7",
            "erased_at": "2026-11-18T05:27:12.040099Z",
            "counts": {"sessions": 4, "messages": 37},
            "compaction": "done",
            "remaining_reason": "",
            "limits": "files of replicas, archives and backups are not covered",
            "public_key": "KYaFgJlGJf/ssUwEb58ZWmAabdm6g3GdFSD5TIEujGM=",
            "signature": "RqBst2QhuJwV0WnHVpMgg+HhQ2Qicn8Hf2bIhM+TA2GqqBGuE6Xdl8nFs6u5WX1v6VnlTXF7qZF+/p/rzkMHBQ==",
        },
        "user_id": "ann",
    }

    receipt: Annotated[dict[str, Any], Meta(extra_json_schema={"type": "object"})]
    user_id: Name | None = None


class KeyListQuery(QueryParameters, kw_only=True, frozen=True):
    """Which API keys to list, newest first."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, Meta(description="Continues a listing: the `cursor` of its last page.")] | None = None


class CreateKey(RequestBody, frozen=True, kw_only=True):
    """An API key to create. `user_id`, `site_id` and `agent` bind it; an agent's key has the role `member`."""

    EXAMPLE = {"name": "the backend of the shop", "role": "member", "site_id": "shop"}

    name: Annotated[str, Meta(max_length=200, extra_json_schema={"pattern": "^[^\\u0000]*$"})] = ""
    role: KeyRole = KeyRole.MEMBER
    tenant_id: Tenant | None = None
    site_id: Text | None = None
    user_id: Name | None = None
    agent: Name | None = None


class LinkIdentity(RequestBody, frozen=True, kw_only=True):
    """The user who is the same person as the caller's."""

    EXAMPLE = {"user_id": "ou_84aad35d084aa403a838cf73ee18467"}

    user_id: Name


class UseLinkCode(RequestBody, frozen=True, kw_only=True):
    """A code that was shown at another door. Case, spaces and hyphens do not matter."""

    EXAMPLE = {"code": "7K3QD-M2XVA"}

    code: Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema={"pattern": "^[^\\u0000]+$"})]


class UsageQuery(QueryParameters, kw_only=True, frozen=True):
    """Of which days to tell the usage."""

    days: Annotated[int, Meta(ge=1, le=USAGE_DAYS, description="How many days, today (UTC) included.")] = 30


class TopicQuery(QueryParameters, kw_only=True, frozen=True):
    """Of which days to tell the topics, and how many."""

    days: Annotated[int, Meta(ge=1, le=USAGE_DAYS, description="How many days, today (UTC) included.")] = 7
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class MemoryListQuery(QueryParameters, kw_only=True, frozen=True):
    """Which memories to list, those that were said last first; with `superseded`, also those that hold no longer."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50
    cursor: Annotated[str, Meta(description="Continues a listing: the `cursor` of its last page.")] | None = None
    kind: MemoryKind | None = None
    session_id: Name | None = None
    superseded: bool = False


class ForgetQuery(QueryParameters, kw_only=True, frozen=True):
    """Which memories to forget: by `ids`, as a search brought them, of one session, or `all`; one of the three.

    With `dry_run` they are counted and stay.
    """

    ids: Annotated[str, Meta(min_length=1, description="Ids with commas between them.")] | None = None
    session_id: Name | None = None
    all: bool = False
    dry_run: bool = False


class AddMemory(RequestBody, frozen=True, kw_only=True):
    """A memory to add. A later memory with the same `subject` replaces an earlier one."""

    EXAMPLE = {"text": "I live in Bologna with my two cats.", "kind": "fact", "subject": "home town"}

    text: MemoryText
    kind: MemoryKind = MemoryKind.FACT
    subject: Annotated[str, Meta(max_length=MAX_SUBJECT, extra_json_schema={"pattern": "^[^\\u0000]*$"})] = ""


class ChangeMemory(RequestBody, frozen=True, kw_only=True):
    """Changes to a memory; fields that are left out keep their values."""

    EXAMPLE = {"text": "I live in Ferrara with my two cats."}

    text: MemoryText | None = None
    kind: MemoryKind | None = None


class SetPreferences(RequestBody, frozen=True, kw_only=True):
    """The complete set of preferences: others are forgotten."""

    EXAMPLE = {"preferences": ["Answer in Italian.", "Keep answers short."]}

    preferences: Annotated[list[MemoryText], Meta(max_length=100)]


class SearchMemories(RequestBody, frozen=True, kw_only=True):
    """What to look for. `since` and `until` bound when a memory was said; with `persona`, memories of other personas
    are left out; with `superseded`, what no longer holds is found as well. `mmr_lambda` weighs relevance against
    likeness to the hits above: 1 ranks by relevance alone, 0.3 prefers what is different."""

    EXAMPLE = {"query": "Where do I live?", "limit": 5, "kinds": ["fact"], "since": "2026-01-01T00:00:00Z"}

    query: Annotated[str, Meta(min_length=1, max_length=MAX_SEARCH, extra_json_schema={"pattern": SAID})]
    limit: Annotated[int, Meta(ge=1, le=MAX_HITS)] = 5
    kinds: list[MemoryKind] = []
    since: Annotated[datetime, Meta(tz=True)] | None = None
    until: Annotated[datetime, Meta(tz=True)] | None = None
    session_id: Name | None = None
    persona: Name | None = None
    superseded: bool = False
    mmr_lambda: Annotated[float, Meta(ge=0, le=1)] = 0.7


class NpcQuestion(RequestBody, frozen=True, kw_only=True):
    """A question to a character."""

    EXAMPLE = {"tenant_id": "yantian", "site_id": "yantian-main", "npc_id": "ancestor_yan", "query": "严氏家训有哪些?"}

    query: Words
    npc_id: Name | None = None
    session_id: Name | None = None
    tenant_id: Tenant | None = None
    site_id: Text | None = None


class NpcTraceQuery(QueryParameters, kw_only=True, frozen=True):
    """How much of a trace to bring."""

    include_session: bool = False


class GoodsQuestion(RequestBody, frozen=True, kw_only=True):
    """A shopper's question; a session and a user may be named. The names are those of the shop's clients."""

    EXAMPLE = {"question": "有什么便宜的手机?"}

    question: Words
    sessionId: Text | None = None  # noqa: N815
    userId: Annotated[int, Meta(ge=0, le=_MOST)] | Text | None = None  # noqa: N815
