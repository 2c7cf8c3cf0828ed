"""What `tenuto.open` and `tenuto.connect` have in common, for code that works with either.

Values and errors are the same types. What only one side can do is not here: a state store, privacy reports and an
engine with agents of this process have no routes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol

from tenuto.model import (
    AppendResult,
    Attachment,
    Changes,
    Content,
    Draft,
    FinishTurn,
    Message,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Role,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    SessionStats,
    Truncation,
)
from tenuto.model.values import Json

if TYPE_CHECKING:
    from tenuto.chat import ChatRequest, Reply
    from tenuto.model.generation import ToolSpec
    from tenuto.model.memory import Memory, MemoryKind, MemoryQuery
    from tenuto.model.values import JsonObject
    from tenuto.recall.prepared_search import RecallResult
    from tenuto.sessions import AppendRequest, TurnRequest
    from tenuto.sessions.transfer import ExportedSession


class SessionsApi(Protocol):
    """Sessions, here or on a server. Outside the scope a session does not exist: `SessionNotFound`."""

    async def create(
        self,
        scope: Scope,
        new: NewSession | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Session, bool]:
        """Create a session, or return the caller's own of that id; the flag says whether it is new."""
        ...

    async def get(self, scope: Scope, session_id: str) -> Session:
        """The session's head."""
        ...

    async def list(self, scope: Scope, query: SessionQuery | None = None) -> SessionPage:
        """The caller's sessions, latest change first."""
        ...

    async def messages(self, scope: Scope, session_id: str, query: Page | None = None) -> MessagePage:
        """A page of its messages, oldest first; by default the newest page."""
        ...

    def iter_pages(self, scope: Scope, session: Session, size: int = 200) -> AsyncIterator[tuple[Message, ...]]:
        """All messages up to the head's `last_seq`, page by page."""
        ...

    async def append(self, scope: Scope, session_id: str, request: AppendRequest) -> AppendResult:
        """Append messages to a session that exists, by the caller's key or producer number at most once."""
        ...

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        """Change title, status, context, attributes or metadata."""
        ...

    async def set_attribute(self, scope: Scope, session_id: str, name: str, value: Json) -> bool:
        """Set one attribute; returns False if there is no such session."""
        ...

    async def get_attribute(self, scope: Scope, session_id: str, name: str) -> Json:
        """One attribute, `None` when it or its session is absent."""
        ...

    async def reset(self, scope: Scope, session_id: str) -> Session:
        """Remove the messages and keep the session."""
        ...

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        """Remove what follows a message."""
        ...

    async def fork(
        self, scope: Scope, session_id: str, at: int | None = None, new_id: str | None = None, title: str | None = None
    ) -> Session:
        """Copy a session up to a message into a new one."""
        ...

    async def delete(self, scope: Scope, session_id: str) -> None:
        """Remove the session and everything of it."""
        ...

    async def attachments(self, scope: Scope, session_id: str) -> tuple[Attachment, ...]:
        """What is known of the session's attachments, in the order in which they came."""
        ...

    async def attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Content:
        """One attachment with its bytes."""
        ...

    async def remove_attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Session:
        """Remove an attachment; the messages that showed it stay."""
        ...

    async def restore(self, scope: Scope, saved: ExportedSession) -> Session:
        """Import an exported session under a fresh id."""
        ...

    async def stats(self, scope: Scope) -> SessionStats:
        """Totals of the caller's sessions."""
        ...

    async def finish(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        """Store the reply of a turn and release the session."""
        ...

    async def renew(self, turn: OpenTurn) -> OpenTurn:
        """Extend the lease of a long turn."""
        ...


class MemoriesApi(Protocol):
    """What is remembered of users and chats beyond their sessions."""

    async def search(self, scope: Scope, query: MemoryQuery) -> RecallResult:
        """Search by words and by meaning, best first."""
        ...

    async def get(self, scope: Scope, memory_id: str) -> Memory:
        """One memory."""
        ...

    async def list(
        self,
        scope: Scope,
        *,
        kinds: Sequence[MemoryKind] = (),
        session_id: str = "",
        superseded: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Memory, ...]:
        """Memories, those that were said last first."""
        ...

    async def preferences(self, scope: Scope) -> tuple[Memory, ...]:
        """The preferences that hold, the oldest first."""
        ...

    async def edit(
        self, scope: Scope, memory_id: str, *, text: str | None = None, kind: MemoryKind | None = None
    ) -> Memory:
        """Change the text or the kind of a memory."""
        ...

    async def set_preferences(self, scope: Scope, texts: Sequence[str]) -> tuple[Memory, ...]:
        """Have exactly these preferences."""
        ...

    async def forget(
        self,
        scope: Scope,
        memory_ids: Sequence[str] = (),
        *,
        session_id: str = "",
        everything: bool = False,
        dry_run: bool = False,
    ) -> int:
        """Remove memories by their ids, of a session, or all of the owner; returns how many there were."""
        ...


class TenutoApi(Protocol):
    """An installation, in this process or behind a server."""

    @property
    def sessions(self) -> SessionsApi:
        """Its sessions."""
        ...

    async def memories(self) -> MemoriesApi:
        """Its memories."""
        ...

    def scope(
        self,
        *,
        tenant: str = ...,
        site: str = ...,
        user: str | None = None,
        channel: str | None = None,
        chat: str | None = None,
        thread: str | None = None,
        persona: str | None = None,
        visitor: bool = False,
    ) -> Scope:
        """The scope of a caller, by default in the installation's own tenant and site."""
        ...

    def draft(self, text: str, *, role: Role = Role.ASSISTANT, speaker: str | None = None) -> Draft:
        """A message of plain text."""
        ...

    async def begin(
        self,
        scope: Scope,
        text: str,
        *,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        window: int | None = None,
    ) -> OpenTurn:
        """Store the user message, take the lease, and load the conversation for the model: `summary` and `window`."""
        ...

    async def begin_turn(self, scope: Scope, request: TurnRequest, window: int | None = None) -> OpenTurn:
        """As `begin`, with messages of any kind."""
        ...

    async def finish(
        self, turn: OpenTurn, reply: str | Sequence[Draft] = (), *, tokens: int = 0, cost_nanos: int = 0
    ) -> Session:
        """Store the reply, add its usage, and release the lease."""
        ...

    async def abandon(self, turn: OpenTurn) -> Session:
        """Release the lease without a reply; the user message stays stored, and the same key resumes."""
        ...

    async def ask(
        self,
        scope: Scope,
        text: str | ChatRequest,
        *,
        session_id: str | None = None,
        assistant: str | None = None,
        persona: str | None = None,
        language: str | None = None,
        idempotency_key: str | None = None,
        profile: JsonObject | None = None,
        edit: int | None = None,
        attachments: Sequence[Content] = (),
        messages: tuple[Draft, ...] = (),
        tools: tuple[ToolSpec, ...] = (),
        tool_choice: str | None = None,
    ) -> Reply:
        """Send a message to an assistant and get its reply; a `ChatRequest` may be given in place of the text."""
        ...
