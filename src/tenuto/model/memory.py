"""`Memory`: what is remembered of a user or a chat beyond one session, and how it is searched."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tenuto.errors import Invalid
from tenuto.model.scope import Scope
from tenuto.model.values import Value, check_instant, check_int, check_text

MEMORIES: Final = "memory"
VECTORS: Final = "memory.vectors"
MEMORY_CHANGES: Final = "memory.changes"
MEMORY_LOG: Final = "log"
STALE_STRETCHES: Final = "memory.stale"
MEMORY_LOG_TAIL: Final = "tail"
MEMORY_INDEX: Final = "memory.index"
"""The namespaces of an owner's state: memories, their vectors, the log of changes under its two keys, the stale
stretches of sessions that are not captured yet, and the stored index, which repeats memories and goes with them."""

MAX_MEMORY: Final = 4_000
"""Characters of a memory's text."""
MAX_SUBJECT: Final = 80
MAX_HITS: Final = 100


class MemoryKind(StrEnum):
    """A fact about the user, a preference that shapes answers, or an episode: what a conversation was about."""

    FACT = "fact"
    PREFERENCE = "preference"
    EPISODE = "episode"


class MemorySource(StrEnum):
    """How a memory came about: quoted from a turn, extracted by a model, of a stale session, or written by hand."""

    QUOTE = "quote"
    MODEL = "model"
    STALE = "stale"
    WRITTEN = "written"


class Memory(Value, frozen=True, kw_only=True):
    """One thing that is remembered.

    `said_at` is when it was said last, in `session_id` and `seqs`, by `speaker`: in a chat the tag of a user, of an
    episode the tags of all who spoke, else empty. One that `replaces` takes the place of earlier ones with the same
    `subject` ("employer"): these have `valid_until` and `superseded_by`. `mentions` counts how often it was said. After
    `expires_at` it does not exist. Of a person with several users, `identity` is the one who said it: listings and
    searches tell it, and it is not stored.
    """

    id: str
    kind: MemoryKind
    text: str
    said_at: datetime
    source: MemorySource = MemorySource.WRITTEN
    speaker: str = ""
    session_id: str = ""
    seqs: tuple[int, ...] = ()
    persona: str | None = None
    subject: str = ""
    replaces: bool = False
    mentions: int = 1
    valid_until: datetime | None = None
    superseded_by: str = ""
    expires_at: datetime | None = None
    identity: str = ""

    def __post_init__(self) -> None:
        check_text(self.text, "the memory")
        if not self.text.strip():
            raise Invalid("a memory needs a text")
        if len(self.text) > MAX_MEMORY:
            raise Invalid(f"a memory has at most {MAX_MEMORY} characters, not {len(self.text)}")


class MemoryQuery(Value, frozen=True, kw_only=True):
    """A search in the memories of one owner.

    `since` and `until` bound when a memory was said. What was said to a persona that keeps to itself is found with that
    `persona` alone, or with `any_persona`; with `superseded`, what no longer holds is found as well. `talk` is the
    conversation before the question, oldest first: a follow-up ("and there?") is understood by it. `mmr_lambda`
    weighs relevance against likeness to the hits above: 1 ranks by relevance alone, 0.3 prefers what is different.
    """

    text: str
    limit: int = 5
    kinds: tuple[MemoryKind, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    session_id: str = ""
    persona: str | None = None
    any_persona: bool = False
    superseded: bool = False
    talk: tuple[str, ...] = ()
    mmr_lambda: float = 0.7

    def __post_init__(self) -> None:
        check_text(self.text, "the query")
        check_int(self.limit, 1, MAX_HITS, "limit")
        for what in ("since", "until"):
            if getattr(self, what) is not None:
                check_instant(getattr(self, what), what)
        if not 0 <= self.mmr_lambda <= 1:
            raise Invalid("mmr_lambda must lie between 0 and 1")


class MemoryScores(Value, frozen=True, kw_only=True):
    """Why a memory was found. The score is the sum of the first five.

    `lexical` is what the search by words gives, `vector` the one by meaning, `session` the rest of its session,
    `period` and `speaker` that the query names when, or by whom, it was said. `cosine` is its similarity to the query,
    `coverage` the share of the query's weight that the shared `terms` hold; both can be compared between queries.
    `similarity` is the greatest similarity to a memory ranked above it.
    """

    lexical: float = 0.0
    vector: float = 0.0
    session: float = 0.0
    period: float = 0.0
    speaker: float = 0.0
    cosine: float = 0.0
    coverage: float = 0.0
    similarity: float = 0.0
    terms: tuple[str, ...] = ()


class MemoryHit(Value, frozen=True, kw_only=True):
    """A memory that was found, its `score`, and what the score is made of. MMR may rank it below a lower score."""

    memory: Memory
    score: float
    scores: MemoryScores


class MemoryPolicy(Value, frozen=True, kw_only=True):
    """What is remembered, and for how long.

    An owner has at most `max_memories`; the oldest leave first, preferences never. `in_groups` captures what is said in
    a chat of several people for that chat, `stale_groups` what such a chat was about when it has become stale (D12).
    `without_user` gives callers that name no user one memory in each tenant's site: right where one person uses an
    installation, and wrong where several do. `cache_bytes` is what the indexes of all owners in one process take at
    most; the least recently used leave it first.
    """

    enabled: bool = True
    in_groups: bool = False
    stale_groups: bool = True
    without_user: bool = False
    max_memories: int = 20_000
    cache_bytes: int = 256 * 1024 * 1024
    episode_life: timedelta | None = timedelta(days=180)
    fact_life: timedelta | None = None
    preference_life: timedelta | None = None

    def __post_init__(self) -> None:
        check_int(self.max_memories, 1, 1_000_000, "max_memories")

    def life_of(self, kind: MemoryKind) -> timedelta | None:
        """How long a memory of that kind lives after it was said; `None` is for ever."""
        life: timedelta | None = getattr(self, f"{kind.value}_life")
        return life

    def covers(self, scope: Scope) -> bool:
        """Whether anything is remembered for this scope at all."""
        if not self.enabled or scope.visitor:
            return False
        return bool(scope.owner) or self.without_user
