"""What the tools answer: the fields that a model can use. Pydantic, since the SDK derives its schemas from it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from tenuto.model import Message, Session
from tenuto.model.memory import SCORE_ARMS, Memory, MemoryHit
from tenuto.model.task import BoardEntry, Task


class SessionShape(BaseModel):
    """A session."""

    id: str
    title: str
    status: str
    messages: int = Field(description="How many messages it has.")
    turns: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, session: Session) -> Self:
        """The shape of a session."""
        return cls.model_validate(session, from_attributes=True)


class SessionPageShape(BaseModel):
    """Sessions, the latest change first."""

    sessions: list[SessionShape]
    cursor: str | None = Field(description="Continues the listing; null at its end.")


class MessageShape(BaseModel):
    """A message; `parts` holds what is not plain text, such as tool calls."""

    id: str
    seq: int = Field(description="Its place in the session.")
    role: str
    text: str
    speaker: str | None
    sent_at: datetime
    parts: list[dict[str, Any]]

    @classmethod
    def of(cls, message: Message) -> Self:
        """The shape of a stored message."""
        return cls(
            id=message.id,
            seq=message.seq,
            role=message.role,
            text=message.text,
            speaker=message.speaker,
            sent_at=message.sent_at,
            parts=[part for part in message.parts if part.get("type") != "text"],
        )


class HistoryShape(BaseModel):
    """Messages, oldest first."""

    session: SessionShape
    messages: list[MessageShape]
    more_before: bool
    more_after: bool


class AppendedShape(BaseModel):
    """A stored message; a `duplicate` of the same idempotency key stored nothing."""

    message: MessageShape
    duplicate: bool


class MemoryShape(BaseModel):
    """Something that is remembered of the user."""

    id: str
    kind: str
    text: str
    subject: str
    said_at: datetime
    session_id: str

    @classmethod
    def of(cls, memory: Memory) -> Self:
        """The shape of a memory."""
        return cls.model_validate(memory, from_attributes=True)


class HitShape(BaseModel):
    """A memory that was found. The score is the sum of what words (`lexical`), meaning (`vector`), `session`, `period`
    and `speaker` give."""

    memory: MemoryShape
    score: float
    scores: dict[str, float]

    @classmethod
    def of(cls, hit: MemoryHit) -> Self:
        """The shape of a hit."""
        arms = {arm: getattr(hit.scores, arm) for arm in SCORE_ARMS}
        return cls(memory=MemoryShape.of(hit.memory), score=hit.score, scores=arms)


class HitsShape(BaseModel):
    """Memories, best first; `degraded` where words alone decided about some: the embedder loads or does not answer."""

    hits: list[HitShape]
    degraded: bool


class ForgottenShape(BaseModel):
    """How many memories were forgotten."""

    forgotten: int


class ContextShape(BaseModel):
    """What a model should see of a session: the summary stands for messages before the window."""

    summary: str
    messages: list[MessageShape]
    memories: list[MemoryShape]
    omitted: int = Field(description="How many older messages the window does not hold.")


class TaskShape(BaseModel):
    """A task."""

    id: str
    type: str
    goal: str
    session_id: str | None
    status: str
    version: int

    @classmethod
    def of(cls, task: Task) -> Self:
        """The shape of a task."""
        return cls.model_validate(task, from_attributes=True)


class EntryShape(BaseModel):
    """The entry of a key of a task's board."""

    key: str
    value: Any
    writer: str
    version: int
    written_at: datetime

    @classmethod
    def of(cls, entry: BoardEntry) -> Self:
        """The shape of an entry."""
        return cls.model_validate(entry, from_attributes=True)


class BoardShape(BaseModel):
    """The board of a task, in order of its keys."""

    entries: list[EntryShape]
