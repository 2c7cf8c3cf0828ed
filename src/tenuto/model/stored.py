"""What a `RecordStore` stores, compares and finds: bytes, numbers and index columns, all decided above it.

A record is a head, a profile that changes seldom, and numbered entries in a few parts beside them. A backend never
looks into the bytes, so that a new field of a session is no matter of any backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple, Self

from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from tenuto.model.scope import Scope
from tenuto.model.session import Status
from tenuto.model.values import Value


class Part(StrEnum):
    """A numbered list of entries beside a record's head.

    Attachments are numbered by the profile, which maps their keyed digests to numbers. One is part of the format and
    not written yet: older heads that a kept turn needs (by the turn's number). Events are those of a running turn, by
    the number of the first one in each entry.
    """

    MESSAGES = "m"
    TRACES = "t"
    KEYS = "k"
    PRODUCERS = "p"
    ATTACHMENTS = "b"
    VERSIONS = "v"
    EVENTS = "e"


KEY_GROUP: Final = 4
"""Keys that begin with the same bytes, so many, may be changed in one commit and loaded at one moment."""
UNKNOWN_REVISION: Final = 2**63 - 1
"""What a feed reports where it does not know to which revision a change led: beyond every revision."""
BESIDE = (Part.KEYS, Part.PRODUCERS)
"""Parts that are loaded whole with a record."""


class Entry(Value, frozen=True, kw_only=True):
    """One entry of a part. A message is numbered by its sequence number, a trace by its turn."""

    part: Part
    number: int
    body: bytes


class Drop(Value, frozen=True, kw_only=True):
    """The removal of the entries numbered `first` to `last`, but for those in `keep`."""

    part: Part
    first: int = 0
    last: int = 2**63 - 1
    keep: tuple[int, ...] = ()


class EntryPage(Value, frozen=True, kw_only=True):
    """Entries of a part in order, and the revision of the record they were read at; 0 if there is none."""

    revision: int
    entries: tuple[Entry, ...] = ()


class Known(Value, frozen=True, kw_only=True):
    """What the caller holds already: messages and pages of keys up to these numbers need not be returned."""

    message: int = 0
    page: int = -1


class Kind(StrEnum):
    """The kinds of records: a session, or a value of the state."""

    SESSION = "session"
    VALUE = "value"


class IndexColumns(Value, frozen=True, kw_only=True):
    """The plain columns by which records are found and counted.

    `space` and `owner` are keys of the site and the owner; `scope` names the owner, for erasures and walks over all
    sites, and is `None` for the tenant's own values. `name` is the id of a session or the name of a value in its
    `drawer`. `listed_at` may lag behind the last change, so that most commits leave it alone: who lists by it reads on
    by the lag and sorts by the heads. Of one that `is_damaged`, or of a newer release, `kind`, `scope` or `status` may
    be `None`.
    """

    space: bytes
    owner: bytes
    kind: Kind | None = Kind.SESSION
    scope: Scope | None = None
    listed_at: int = 0
    status: Status | None = Status.ACTIVE
    title: str = ""
    drawer: bytes = b""
    namespace: str = ""
    name: str = ""
    is_damaged: bool = False


class Totals(Value, frozen=True, kw_only=True):
    """What a record adds to the sums of its owner and site. Backends keep the numbers in the order of the fields."""

    sessions: int = 0
    messages: int = 0
    tokens: int = 0
    cost_nanos: int = 0
    attachments: int = 0
    attachment_bytes: int = 0

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Self:
        """Totals from their numbers."""
        return cls(**dict(zip(cls.__struct_fields__, numbers, strict=True)))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in order."""
        return astuple(self)


class StoredRecord(Value, frozen=True, kw_only=True):
    """A record at one moment: its head, profile, the parts of `BESIDE`, and the newest messages, oldest first.

    `deadline` is when it expires, in microseconds; a touch moves it without a new revision.
    """

    key: bytes
    revision: int
    head: bytes
    profile: bytes = b""
    deadline: int | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Entry, ...] = ()


class Action(StrEnum):
    """What a change does with its record: write it, remove it, or set it aside as unreadable."""

    WRITE = "write"
    REMOVE = "remove"
    SET_ASIDE = "set aside"


class LogCopy(Value, frozen=True, kw_only=True):
    """Copies the source's messages from one number to another, if the source is still at this revision.

    `attachments` are the numbers of the attachments to copy, too.
    """

    source: bytes
    revision: int
    first: int
    through: int
    attachments: tuple[int, ...] = ()


WORD_BYTES: Final = 6
"""The length of the digest of a word: short, since a session has hundreds. Of the owner a place has a few bytes."""
OWNER_BYTES: Final = 4


class WordChange(Value, frozen=True, kw_only=True):
    """By which words a session is found besides: digests that are added and removed; `forgets` removes all first."""

    added: tuple[bytes, ...] = ()
    removed: tuple[bytes, ...] = ()
    forgets: bool = False


class RecordChange(Value, frozen=True, kw_only=True):
    """One record's part of a commit, made only if the record is at `if_revision`; 0 requires that there is none.

    The record is at `revision` afterwards: one more, or for a new record a number that none of its key had before.
    `profile` and `index` are `None` where they stay, and so does the deadline where it is unset; a change of `words`
    comes with the index. `replaces` removes all entries and words first: another record of the same key ends here.
    Order: remove, drop, copy, put. If the comparison fails, the answer brings at most `tail` messages of what stands
    instead, without those that are `known`.
    """

    key: bytes
    if_revision: int
    revision: int = 0
    action: Action = Action.WRITE
    head: bytes = b""
    profile: bytes | None = None
    deadline: int | UnsetType | None = UNSET
    index: IndexColumns | None = None
    words: WordChange | None = None
    totals: Totals = Totals()
    replaces: bool = False
    drops: tuple[Drop, ...] = ()
    copies: LogCopy | None = None
    puts: tuple[Entry, ...] = ()
    tail: int = 0
    known: Known = Known()


class Refused(Value, frozen=True, kw_only=True):
    """Why a commit was not made: what stands at each change's key, and whether the source of a copy has changed.

    `has_turn` if the backend keeps others from changing the record for a moment: commit again at once.
    """

    standing: tuple[StoredRecord | None, ...]
    source_changed: bool = False
    has_turn: bool = False


class IndexOrder(StrEnum):
    """How found records are ordered: by (`listed_at`, key) from either end, by deadline, or by place of a value."""

    NEWEST = "newest"
    OLDEST = "oldest"
    DEADLINE = "deadline"
    PLACE = "place"


class ValuePlace(NamedTuple):
    """Where a value of the state is; names are ordered by code points."""

    owner: bytes
    drawer: bytes
    name: str


class IndexQuery(Value, frozen=True, kw_only=True):
    """Which records to find: those of a site, of an owner, of a drawer, or of all (for upkeep), in one order.

    Listing begins behind `behind` in the order: (`listed_at` or deadline, key), or the place of a value, by which those
    of one `space` are listed. `due` are those with a deadline up to it. `named` are values of users and chats. `title`
    is part of the title, casefolded. With `words` they are sessions that have one word of each group; the work is that
    of the sessions that have them.
    Without a `kind` it is the records of none that is known, for upkeep.
    """

    order: IndexOrder
    kind: Kind | None = Kind.SESSION
    space: bytes | None = None
    owner: bytes | None = None
    drawer: bytes | None = None
    status: Status | None = None
    title: str | None = None
    words: tuple[tuple[bytes, ...], ...] = ()
    named: bool = False
    due: int | None = None
    behind: tuple[int, bytes] | ValuePlace | None = None
    limit: int = 100


class AsideRecords(Value, frozen=True, kw_only=True):
    """How many records that were set aside an owner had, and what was in them."""

    records: int = 0
    messages: int = 0
    traces: int = 0
    attachments: int = 0


class FoundRecord(Value, frozen=True, kw_only=True):
    """A record that a query found, without its entries."""

    record: StoredRecord
    index: IndexColumns
    totals: Totals
