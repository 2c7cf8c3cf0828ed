"""Sessions and messages as JSON: the same over HTTP, in the CLI and in exports, and messages as clients send them.

A message's fields that we do not know stand beside ours, as the sender wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from itertools import starmap
from typing import Annotated, Final, Self, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict, replace

from tenuto.errors import Invalid, InvalidJson
from tenuto.model import Attachment, Draft, Message, MessagePage, Role, Session, SessionStats, Status, text_part
from tenuto.model.analytics import UsageCounts, UsageReport
from tenuto.model.message import STATE, check_part
from tenuto.model.reasoning import is_reasoning, shown_parts
from tenuto.model.session import ForkPoint, SearchPage, SessionPage, usd
from tenuto.model.task import Task, TaskStatus
from tenuto.model.values import Json, JsonObject, View


class SessionBrief(View, frozen=True, kw_only=True, rename={"messages": "message_count"}):
    """What a model can use of a session's head."""

    id: str
    title: str
    status: Status
    turns: int
    messages: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, session: Session) -> Self:
        """The view of a session."""
        return cls.derive(session)


class SessionView(SessionBrief, frozen=True, kw_only=True):
    """A session's head."""

    tenant: str
    site: str
    user: str | None
    channel: str | None
    chat: str | None
    thread: str | None
    context: JsonObject
    attributes: JsonObject
    metadata: JsonObject
    expires_at: datetime | None
    version: int
    last_seq: int
    window_start: int
    tokens: int
    cost_usd: str
    forked_from: ForkPoint | None

    @classmethod
    def of(cls, session: Session) -> Self:
        """The view of a session."""
        scope = session.scope
        # Spelled out, as in `MessageView`: a page has hundreds of them, and `derive` takes four times as long.
        return cls(
            id=session.id,
            tenant=scope.tenant,
            site=scope.site,
            user=scope.user,
            channel=scope.channel,
            chat=scope.chat,
            thread=scope.thread,
            title=session.title,
            status=session.status,
            context=session.context,
            attributes=session.attributes,
            metadata=session.metadata,
            created_at=session.created_at,
            updated_at=session.updated_at,
            expires_at=session.expires_at,
            version=session.version,
            turns=session.turns,
            messages=session.messages,
            last_seq=session.last_seq,
            window_start=session.window_start,
            tokens=session.tokens,
            cost_usd=usd(session.cost_nanos),
            forked_from=session.forked_from,
        )


class ActiveTask(View, frozen=True, kw_only=True):
    """A task that has not ended."""

    id: str
    status: TaskStatus


class SessionDetail(SessionView, frozen=True, kw_only=True):
    """A session's head and its unfinished tasks, newest first, at most 20; null while the store does not answer."""

    active_tasks: list[ActiveTask] | None

    @classmethod
    def with_tasks(cls, session: Session, tasks: Sequence[Task] | None) -> Self:
        """The view of a session and its unfinished tasks."""
        active = None if tasks is None else list(map(ActiveTask.of, tasks))
        return cls(**asdict(SessionView.of(session)), active_tasks=active)


class MatchView(View, frozen=True, kw_only=True):
    """A message that a search found: its place in the session, the part of it around the words, and the words as they
    are written there."""

    seq: int
    role: Role
    sent_at: datetime
    excerpt: str
    words: list[str]


class SessionList(View, frozen=True, kw_only=True):
    """Part of a listing; `cursor` continues it, null ends it.

    A search adds `matches`: for each session by its id the best messages, the best one first; none where only the title
    was found. `unsearched` is how many sessions with new messages the search did not look into; ask again for those.
    """

    sessions: list[SessionView]
    cursor: str | None
    matches: dict[str, list[MatchView]] | UnsetType = UNSET
    unsearched: int | UnsetType = UNSET

    @classmethod
    def of(cls, page: SessionPage) -> Self:
        """The view of a page of sessions."""
        return cls(sessions=list(map(SessionView.of, page.sessions)), cursor=page.cursor)

    @classmethod
    def of_search(cls, page: SearchPage) -> Self:
        """The view of what a search found."""
        return cls(
            sessions=[SessionView.of(one.session) for one in page.found],
            cursor=page.cursor,
            matches={one.session.id: list(map(MatchView.of, one.matches)) for one in page.found},
            unsearched=page.unsearched,
        )


class MessageBrief(View, frozen=True, kw_only=True):
    """What a model can use of a stored message; `parts` holds what is not plain text, such as calls of tools."""

    id: str
    seq: int
    role: Role
    text: str
    parts: tuple[JsonObject, ...]
    speaker: str | None
    sent_at: datetime

    @classmethod
    def of(cls, message: Message) -> Self:
        """The view of a stored message."""
        parts = tuple(part for part in message.parts if part.get("type") != "text")
        return cls.derive(message, parts=shown_parts(parts))


class MessageView(MessageBrief, frozen=True, kw_only=True):
    """A stored message; unknown fields of its sender are at the same level. Those with the name of a field of tenuto
    are in `extra_fields`. `redacted` in its metadata counts the private values that placeholders replace, by type;
    `redacted_at` is there if they were removed after the message was stored.
    """

    turn: int
    persona: str | None
    parent: str | None
    tokens: int
    metadata: JsonObject

    @classmethod
    def of(cls, message: Message) -> Self:
        """The view of a stored message, without the state that an assistant's tools store in it and without what of its
        thoughts only their provider reads."""
        if STATE in message.metadata:
            metadata = {name: value for name, value in message.metadata.items() if name != STATE}
            message = replace(message, metadata=metadata)
        if any(map(is_reasoning, message.parts)):
            message = replace(message, parts=shown_parts(message.parts))
        return cls.complete(message)

    @classmethod
    def complete(cls, message: Message) -> Self:
        """All of a stored message, as exports have it."""
        view = cls(
            id=message.id,
            seq=message.seq,
            turn=message.turn,
            role=message.role,
            text=message.text,
            parts=message.parts,
            speaker=message.speaker,
            persona=message.persona,
            parent=message.parent,
            tokens=message.tokens,
            sent_at=message.sent_at,
            metadata=message.metadata,
        )
        # A struct has no room for fields of other names. msgspec encodes a dict like the struct, and our fields come
        # last, so that none of the sender's hides one of ours.
        if not message.extra:
            return view
        hidden = {name: value for name, value in message.extra.items() if name in OWN_FIELDS}
        return cast("Self", {**message.extra, **asdict(view), **({EXTRA_FIELDS: hidden} if hidden else {})})


class MessageList(View, frozen=True, kw_only=True):
    """Messages, oldest first, whether there are more on either side, and the session's head where it is asked for."""

    messages: list[MessageView]
    more_before: bool
    more_after: bool
    session: SessionView | UnsetType = UNSET

    @classmethod
    def of(cls, page: MessagePage, *, head: bool = False) -> Self:
        """The view of a page of messages."""
        session = SessionView.of(page.session) if head else UNSET
        return cls.derive(page, messages=list(map(MessageView.of, page.messages)), session=session)


class AttachmentView(View, frozen=True, kw_only=True):
    """What is known of an attachment; `seqs` are the messages that show it."""

    id: str
    media_type: str
    size: int
    name: str
    seqs: tuple[int, ...]

    @classmethod
    def of(cls, attachment: Attachment) -> Self:
        """The view of an attachment."""
        return cls.derive(attachment)


class AttachmentList(View, frozen=True, kw_only=True):
    """The attachments of a session, in the order in which they came."""

    attachments: list[AttachmentView]

    @classmethod
    def of(cls, attachments: Sequence[Attachment]) -> Self:
        """The view of a session's attachments."""
        return cls(attachments=list(map(AttachmentView.of, attachments)))


class StatsView(View, frozen=True, kw_only=True):
    """How much the caller has."""

    sessions: int
    messages: int
    tokens: int
    cost_usd: str

    @classmethod
    def of(cls, stats: SessionStats) -> Self:
        """The view of what a tenant's site holds."""
        return cls.derive(stats, cost_usd=usd(stats.cost_nanos))


class UsageTotalsView(View, frozen=True, kw_only=True):
    """Answered turns, and what models read, wrote and cost."""

    turns: int
    input_tokens: int
    output_tokens: int
    cost_usd: str

    @classmethod
    def of(cls, counts: UsageCounts) -> Self:
        """The view of some usage."""
        return cls.derive(counts, cost_usd=usd(counts.cost_nanos))


class AssistantUsageView(UsageTotalsView, frozen=True, kw_only=True):
    """The usage of an assistant; null is for titles and summaries."""

    assistant: str | None

    @classmethod
    def named(cls, assistant: str | None, counts: UsageCounts) -> Self:
        """The view of what an assistant used."""
        return cls.derive(UsageTotalsView.of(counts), assistant=assistant)


class DayUsageView(UsageTotalsView, frozen=True, kw_only=True):
    """The usage of a day, in all and by assistant."""

    day: date
    assistants: list[AssistantUsageView]


class UsageReportView(View, frozen=True, kw_only=True):
    """The usage of a site from `first_day` to `last_day` (UTC): in all, by assistant, and of each day that had any."""

    first_day: date
    last_day: date
    total: UsageTotalsView
    assistants: list[AssistantUsageView]
    days: list[DayUsageView]

    @classmethod
    def of(cls, report: UsageReport) -> Self:
        """The view of a report."""
        return cls.derive(
            report,
            total=UsageTotalsView.of(report.total),
            assistants=list(starmap(AssistantUsageView.named, report.by_assistant.items())),
            days=[
                DayUsageView.derive(
                    UsageTotalsView.of(counts),
                    day=day,
                    assistants=[
                        AssistantUsageView.named(row.assistant, row.counts) for row in report.rows if row.day == day
                    ],
                )
                for day, counts in report.by_day.items()
            ],
        )


class TopicView(View, frozen=True, kw_only=True):
    """A word that titles share: in how many sessions, of how many users, and by the day (UTC) of their last change."""

    name: str
    sessions: int
    users: int
    days: dict[date, int]


class TopicReportView(View, frozen=True, kw_only=True):
    """Topics of the sessions that changed from `first_day` to `last_day` (UTC), the most frequent first. `sessions`
    were read; `truncated` says that there are more, older than those."""

    first_day: date
    last_day: date
    topics: list[TopicView]
    sessions: int
    truncated: bool


# No NUL, which some stores refuse.
_SOUND: Final = {"pattern": "^[^\\u0000]*$"}
_Words: TypeAlias = Annotated[str, Meta(extra_json_schema=_SOUND)]
_Id: TypeAlias = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 4096, **_SOUND})]
_Parts: TypeAlias = Annotated[list[Json], Meta(extra_json_schema={"items": {"$ref": "#/components/schemas/Part"}})]


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message: a role and its text, as `text`, `content` (text or parts) or `parts`.

    Unknown fields are kept and returned unchanged.
    """

    role: Role
    id: _Id | None = None
    text: _Words | None = None
    content: _Words | _Parts | None = None
    parts: _Parts | None = None
    speaker: _Id | None = None
    persona: _Id | None = None
    parent: _Id | None = None
    tokens: Annotated[
        int, Meta(ge=0, le=2**53 - 1, description="How many it has; stored is no less than tenuto counts itself.")
    ] = 0
    sent_at: Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})] | None = None
    metadata: Annotated[Json, Meta(extra_json_schema={"type": ["object", "null"]})] = None
    extra_fields: Annotated[
        dict[str, Json],
        Meta(description="Fields of the sender that have names of ours.", extra_json_schema={"type": "object"}),
    ] = {}


EXTRA_FIELDS: Final = "extra_fields"
OWN_FIELDS: Final = frozenset({*NewMessage.__struct_fields__, "seq", "turn"})
"""The names that no other field of a message can have in JSON."""
_WRONG: Final = {
    "role": f"is not one of {', '.join(Role)}",
    "tokens": "is not a whole number from 0 on",
    "sent_at": "is not an ISO 8601 instant",
    **dict.fromkeys(("text", "content", "parts"), "is of the wrong type"),
}
_FIELD: Final = re.compile(r"`(?:\$\.)?(\w+)`$")


def draft_from_json(body: Json, *, new_id: str, now: datetime) -> Draft:
    """A message as a client sends it; `parts` come before `content` and `text`, as in our own responses.

    Raises:
        Invalid: a field is missing or of the wrong type; the error names it.
    """
    if not isinstance(body, dict):
        raise InvalidJson("a message is not a JSON object")
    try:
        new = msgspec.convert(body, NewMessage)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        name = found[1] if found is not None else ""
        raise Invalid(f"a message's {name} {_WRONG.get(name, 'is not a string')}") from None
    if new.sent_at is not None and new.sent_at.tzinfo is None:
        raise Invalid("a message's sent_at has no time zone")
    if not isinstance(new.metadata or {}, dict):
        raise Invalid("a message's metadata is not an object")
    given = [words for words in (new.parts, new.content, new.text) if words is not None]
    if not given:
        raise Invalid("a message has neither text nor content nor parts")
    parts, *_ = [(text_part(words),) if isinstance(words, str) else tuple(map(check_part, words)) for words in given]
    return Draft(
        id=new.id or new_id,
        role=new.role,
        sent_at=new.sent_at or now,
        parts=parts,
        speaker=new.speaker,
        persona=new.persona,
        parent=new.parent,
        tokens=new.tokens,
        metadata=new.metadata or {},
        extra={**{name: value for name, value in body.items() if name not in OWN_FIELDS}, **new.extra_fields},
    )
