"""A session's head, the changes to it, what it costs, and the budgets of sessions and tenants (A6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from tenuto.errors import BudgetExhausted, Invalid, InvalidSetting
from tenuto.model.scope import Scope
from tenuto.model.values import Json, JsonObject, Value, check_id, check_int, check_json, check_text

NANOS_PER_USD = 10**9
MAX_TITLE_CHARACTERS = 512
# How many sessions a page of a search has at most: their messages are read.
LARGEST_SEARCH = 100
# Keys of a session's context: the profile of its user, and what the user wants now in a word of the assistant's.
PROFILE = "profile"
INTENT = "intent"
# The keys of a session's metadata for its active assistant, its persona, and the last persona of each other assistant.
ASSISTANT, PERSONA, PERSONAS = PARTNER = ("assistant", "persona", "personas")
# The key for the types of private data that some assistant of the session keeps out of its records.
PRIVACY_ALSO = "privacy_also"
# The key for the time of the last reset of a chat's session: what others wrote in the chat before is no context.
CONTEXT_SINCE = "context_since"
MAX_RETENTION = timedelta(days=36_500)
MAX_CAP = 10**9
MAX_SEQ = 2**53 - 1


class Status(StrEnum):
    """The status of a conversation."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    ARCHIVED = "archived"


class Touch(StrEnum):
    """What extends a session's deadline: any access, a change, or nothing (it then counts from creation)."""

    READ = "read"
    WRITE = "write"
    NEVER = "never"


class Retention(Value, frozen=True, kw_only=True):
    """How long a session is kept after it was last touched, and how much of its log.

    `idle` is retention: when it is over, the session is gone. `max_messages` and `max_turns` bound what is
    stored, oldest first out; what a prompt shows is another matter (`ContextPolicy`).
    """

    idle: timedelta | None = timedelta(days=30)
    touch: Touch = Touch.WRITE
    max_messages: int | None = 500
    max_turns: int | None = None

    def __post_init__(self) -> None:
        if self.idle is not None and not timedelta(seconds=1) <= self.idle <= MAX_RETENTION:
            raise InvalidSetting("retention", f"must be between one second and {MAX_RETENTION.days} days")
        for what, bound in (("max_messages", self.max_messages), ("max_turns", self.max_turns)):
            if bound is not None and not 1 <= bound <= MAX_CAP:
                raise InvalidSetting(what, f"must be between 1 and {MAX_CAP}, or off")

    def deadline(self, created_at: datetime, now: datetime) -> datetime | None:
        """When a session that is touched now expires."""
        if self.idle is None:
            return None
        return (created_at if self.touch is Touch.NEVER else now) + self.idle

    def deadline_after_read(self, expires_at: datetime | None, now: datetime) -> datetime | None:
        """The deadline of a session after a read; `None` if it stays.

        A read extends it only by a hundredth of the retention or more, so that most reads write nothing.
        """
        if self.idle is None or expires_at is None or self.touch is not Touch.READ:
            return None
        moved = now + self.idle
        return moved if moved - expires_at >= self.idle / 100 else None


class ForkPoint(Value, frozen=True, kw_only=True):
    """The message at which a session was forked."""

    session_id: str
    seq: int


class Usage(Value, frozen=True, kw_only=True):
    """What a turn cost. Money is counted in whole billionths of a US dollar, so that sums are exact."""

    tokens: int = 0
    cost_nanos: int = 0

    def __post_init__(self) -> None:
        for amount in (self.tokens, self.cost_nanos):
            if type(amount) is not int or not 0 <= amount < 2**53:
                raise Invalid("usage is not a whole number from 0 on, or is too large")


def cost_nanos(usd: Decimal) -> int:
    """A cost in US dollars, in whole billionths.

    Raises:
        Invalid: it is negative or absurdly large. Looked at first: 1e500000 as a whole number takes a minute.
    """
    if not (usd.is_finite() and 0 <= usd < 2**53 // NANOS_PER_USD):
        raise Invalid("the cost is negative or too large")
    return int(usd * NANOS_PER_USD)


def usd(nanos: int) -> str:
    """Billionths of a US dollar in dollars: exact, and never in exponents."""
    return f"{Decimal(nanos) / NANOS_PER_USD:f}"


class Session(Value, frozen=True, kw_only=True):
    """The head of a stored conversation.

    `version` grows with every change; `incarnation` distinguishes a session from an earlier one of the same id.
    Messages before `window_start` are stored but no context.
    """

    id: str
    scope: Scope
    incarnation: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    retention: Retention
    version: int
    title: str = ""
    status: Status = Status.ACTIVE
    context: JsonObject = {}
    attributes: JsonObject = {}
    metadata: JsonObject = {}
    turns: int = 0
    messages: int = 0
    last_seq: int = 0
    window_start: int = 1
    tokens: int = 0
    cost_nanos: int = 0
    forked_from: ForkPoint | None = None

    @property
    def cost_usd(self) -> Decimal:
        """The total cost in US dollars, exactly."""
        return Decimal(self.cost_nanos) / NANOS_PER_USD

    def expired(self, now: datetime) -> bool:
        """Whether its retention is over."""
        return self.expires_at is not None and self.expires_at <= now


class NewSession(Value, frozen=True, kw_only=True):
    """The initial values of a session."""

    retention: Retention = Retention()
    title: str = ""
    context: JsonObject = {}
    attributes: JsonObject = {}
    metadata: JsonObject = {}

    def __post_init__(self) -> None:
        check_title(self.title)
        for what in ("context", "attributes", "metadata"):
            check_json(getattr(self, what), f"the session's {what}")


class Changes(Value, frozen=True, kw_only=True):
    """A patch to a session's head: only what is named changes.

    `context`, `attributes` and `metadata` merge by key, and a key set to `None` is removed, so two patches of
    different keys never undo each other. With `if_version` the patch applies to that version alone.
    """

    title: str | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    window_start: int | UnsetType = UNSET
    context: JsonObject = {}
    attributes: JsonObject = {}
    metadata: JsonObject = {}
    if_version: int | None = None

    def __post_init__(self) -> None:
        if self.title is not UNSET:
            check_title(self.title)
        if self.window_start is not UNSET and not 1 <= self.window_start < 2**53:
            raise Invalid("window_start is below 1 or too large")
        for what in ("context", "attributes", "metadata"):
            check_json(getattr(self, what), f"the session's {what}")

    @property
    def fields(self) -> tuple[str, ...]:
        """What it changes."""
        named = {"title": self.title, "status": self.status, "window_start": self.window_start}
        parts = {"context": self.context, "attributes": self.attributes, "metadata": self.metadata}
        return (
            *[name for name, value in named.items() if value is not UNSET],
            *[name for name in parts if parts[name]],
        )

    @property
    def sets_values(self) -> bool:
        """Whether it may enlarge context, attributes or metadata."""
        parts = (self.context, self.attributes, self.metadata)
        return any(value is not None for part in parts for value in part.values())


def merge_patch(old: JsonObject, patch: JsonObject) -> JsonObject:
    """Apply a patch by key: `None` removes."""
    if not patch:
        return old
    result = {**old, **patch}
    return {name: value for name, value in result.items() if value is not None}


def head_bytes(head: Session | NewSession, changes: Changes | None = None) -> int:
    """The size of context, attributes and metadata together, as the size limit counts it, with changes applied."""
    values = [
        merge_patch(getattr(head, what), getattr(changes, what) if changes else {})
        for what in ("context", "attributes", "metadata")
    ]
    return len(msgspec.json.encode(values))


def record_types(metadata: JsonObject) -> list[str]:
    """The types of private data that this metadata keeps out of records; clients may write it."""
    noted = metadata.get(PRIVACY_ALSO)
    return [name for name in noted if isinstance(name, str)] if isinstance(noted, list | tuple) else []


def drop_nulls(values: JsonObject) -> JsonObject:
    """A new session's values, under the rule that `None` means absent."""
    return merge_patch({}, values)


def check_title(title: str) -> str:
    """Return a title that is one line of sound text, at most 512 characters."""
    check_text(title, "the title")
    if len(title.splitlines()) > 1:
        raise Invalid("the title has more than one line")
    if len(title) > MAX_TITLE_CHARACTERS:
        raise Invalid(f"the title is longer than {MAX_TITLE_CHARACTERS} characters")
    return title


def check_attribute_name(name: str) -> str:
    """Return an attribute's name."""
    return check_id(name, "the attribute's name")


class SessionQuery(Value, frozen=True, kw_only=True):
    """Which sessions to list, newest change first; `title` finds a part of the title, ignoring case."""

    limit: int = 50
    cursor: str | None = None
    title: str | None = None
    status: Status | None = None

    def __post_init__(self) -> None:
        check_int(self.limit, 1, 1000, "limit")
        if self.title is not None:
            check_text(self.title, "the search text")


class SessionPage(Value, frozen=True, kw_only=True):
    """Part of a listing; `cursor` continues it, `None` ends it."""

    sessions: tuple[Session, ...]
    cursor: str | None = None


class SearchQuery(Value, frozen=True, kw_only=True):
    """Which sessions to find: those that have all words of a text, in their titles or in what was said in them."""

    text: str
    limit: int = 20
    cursor: str | None = None
    status: Status | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "the search text")
        check_int(self.limit, 1, LARGEST_SEARCH, "limit")


class MessageMatch(Value, frozen=True, kw_only=True):
    """A message that has words of a search: the part around the first, and the words as they stand there."""

    seq: int
    role: str
    sent_at: datetime
    excerpt: str
    words: tuple[str, ...]


class SessionHit(Value, frozen=True, kw_only=True):
    """A session that a search found, and its best messages, best first; none if only its title has the words."""

    session: Session
    matches: tuple[MessageMatch, ...] = ()


class SearchPage(Value, frozen=True, kw_only=True):
    """Sessions that a search found, latest change first; `cursor` continues it, `None` ends it.

    `unsearched` is how many sessions with new messages were not looked into: a search reads a bounded number of them.
    """

    found: tuple[SessionHit, ...]
    cursor: str | None = None
    unsearched: int = 0


class ForkRequest(Value, frozen=True, kw_only=True):
    """Branch off a new session with everything up to and including `at` (default: all of it)."""

    new_id: str
    at: int | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        check_id(self.new_id, "the session id")
        if self.at is not None:
            check_int(self.at, 0, MAX_SEQ, "the fork point")
        if self.title is not None:
            check_title(self.title)


class RemovedSession(Value, frozen=True, kw_only=True):
    """A session that upkeep removed."""

    scope: Scope
    session_id: str


class EraseResult(Value, frozen=True, kw_only=True):
    """What one step of erasing a user removed; `more` says that another step is needed.

    `vault_values` counts vault entries, `journal` the turns in the local journal of this machine.
    """

    removed_sessions: tuple[RemovedSession, ...] = ()
    messages: int = 0
    traces: int = 0
    attachments: int = 0
    states: int = 0
    quarantined: int = 0
    vault_values: int = 0
    journal: int = 0
    more: bool = False


class CompactionResult(Value, frozen=True, kw_only=True):
    """Whether deleted bytes were removed; `remaining_reason` tells the operator why some remain."""

    cleared: bool
    remaining_reason: str = ""


class SessionStats(Value, frozen=True, kw_only=True):
    """Totals of a tenant's site, or of one owner there. `attachment_bytes` counts each attachment once a session."""

    sessions: int = 0
    messages: int = 0
    tokens: int = 0
    cost_nanos: int = 0
    attachments: int = 0
    attachment_bytes: int = 0


class StateEntry(Value, frozen=True, kw_only=True):
    """One value of a scope's key/value state, with its version."""

    key: str
    value: Json
    version: int


class StateChange(Value, frozen=True, kw_only=True):
    """A new value for a key, or the removal of its value; with `if_version` only if that is the stored version.

    The version of an absent value is 0.
    """

    key: str
    value: Json = None
    removes: bool = False
    if_version: int | None = None

    def __post_init__(self) -> None:
        if not self.removes:
            check_id(self.key, "the state key")
            check_json(self.value, "the state value")


def check_changes(changes: Sequence[StateChange]) -> None:
    """Refuse two changes of one key in one step.

    Raises:
        Invalid: a key occurs twice.
    """
    if len(changes) > 1 and len({change.key for change in changes}) < len(changes):
        raise Invalid("one step changes each state key only once")


class StateLocation(Value, frozen=True, kw_only=True):
    """The location of a state value: scope, namespace and key."""

    scope: Scope
    namespace: str
    key: str


class Budgets(Value, frozen=True, kw_only=True):
    """Limits on spending; `None` is no limit. Money is in whole billionths of a US dollar."""

    session_tokens: int | None = None
    session_cost_nanos: int | None = None
    tenant_tokens_per_day: int | None = None
    tenant_cost_nanos_per_day: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSetting(name, "must be above nothing, or off")

    @property
    def per_session(self) -> bool:
        """Whether a session's spending is bounded."""
        return self.session_tokens is not None or self.session_cost_nanos is not None

    @property
    def per_tenant(self) -> bool:
        """Whether a tenant's spending is bounded."""
        return self.tenant_tokens_per_day is not None or self.tenant_cost_nanos_per_day is not None

    def check_session(self, session: Session) -> None:
        """Refuse a session that has spent its budget.

        Raises:
            BudgetExhausted: it has.
        """
        if self.per_session:
            spent = Usage(tokens=session.tokens, cost_nanos=session.cost_nanos)
            _check_spent("session", spent, self.session_tokens, self.session_cost_nanos)

    def check_tenant(self, spent: Usage) -> None:
        """Refuse a tenant that has spent its budget of today.

        Raises:
            BudgetExhausted: it has.
        """
        _check_spent("tenant", spent, self.tenant_tokens_per_day, self.tenant_cost_nanos_per_day)


def _check_spent(whose: str, spent: Usage, tokens: int | None, cost_nanos: int | None) -> None:
    if tokens is not None and spent.tokens >= tokens:
        raise BudgetExhausted(whose, f"{tokens} tokens")
    if cost_nanos is not None and spent.cost_nanos >= cost_nanos:
        raise BudgetExhausted(whose, f"{(Decimal(cost_nanos) / NANOS_PER_USD).normalize():f} US dollars")
