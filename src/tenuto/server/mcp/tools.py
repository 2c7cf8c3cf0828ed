"""The tools and resources of the MCP server. They translate and decide nothing: the library does the work.

Every call acts in the scope of its own caller. What is not there for that scope is a tool error, the same for absent
and foreign ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from mcp.server.mcpserver import Context
from msgspec.structs import replace
from pydantic import Field

from tenuto.app import Tenuto
from tenuto.context import counter_for
from tenuto.context.conversation import fit_window
from tenuto.errors import Invalid
from tenuto.model import NewSession, OpenTurn, Page, Role, Scope, SearchQuery, SessionQuery, TurnState
from tenuto.model.memory import MAX_HITS, MemoryKind, MemoryQuery
from tenuto.model.message import Message, is_summary
from tenuto.model.policy import TaskPolicy
from tenuto.model.task import NewTask
from tenuto.model.turn import MAX_WINDOW
from tenuto.recall.service import Memories
from tenuto.recall.views import MemoryBrief
from tenuto.server.mcp.attachments import AttachmentAnswer, answer_of, read_blocks
from tenuto.server.mcp.views import (
    AppendedView,
    AssembledContext,
    BoardEntries,
    ForgottenView,
    FoundBrief,
    FoundPageBrief,
    HistoryView,
    MemoryHitBrief,
    MemoryHitsBrief,
    SessionPageBrief,
)
from tenuto.sessions import AppendRequest
from tenuto.sessions.limits import check_message_sizes
from tenuto.sessions.views import MatchView, MessageBrief, SessionBrief
from tenuto.task_errors import EntryNotFound
from tenuto.tasks.views import BoardEntryView, TaskBrief

ScopeOf = Callable[[Context[Any, Any]], Scope]
"""Whom a call acts for."""
CheckWriter = Callable[[Context[Any, Any], TaskPolicy, str], None]
"""Raises `KeyProtected` for a caller that may not write a key in an agent's name."""
RESOURCE_MESSAGES: Final = 200
"""How many messages a resource has at most: it is read as a whole."""

SessionId = Annotated[str, Field(description="The session's id, as you chose it or as list_sessions gave it.")]
TaskId = Annotated[str, Field(description="The task's id, as open_task gave it.")]
Limit = Annotated[int, Field(ge=1, le=1000, description="Maximum number of results.")]


class Tools:
    """The tools. Their names, docstrings and signatures are what clients and their models see."""

    def __init__(self, tenuto: Tenuto, scope_of: ScopeOf, check_writer: CheckWriter) -> None:
        self._tenuto = tenuto
        self._scope_of = scope_of
        self._check_writer = check_writer

    # Sessions

    async def create_session(
        self,
        ctx: Context[Any, Any],
        id: Annotated[str | None, Field(description="An id of your own; by default a new one.")] = None,  # noqa: A002
        title: Annotated[str, Field(description="By default made from the first messages.")] = "",
    ) -> SessionBrief:
        """Create a session, which holds one conversation. Your own session of that id is returned as it is."""
        scope, new = self._scope_of(ctx), NewSession(title=title)
        session_id = await self._tenuto.sessions.find_named(scope, id) if id else None
        session, _ = await self._tenuto.sessions.create(scope, new, session_id)
        return SessionBrief.of(session)

    async def list_sessions(
        self,
        ctx: Context[Any, Any],
        title: Annotated[str, Field(description="Only sessions whose title contains this text.")] = "",
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        cursor: Annotated[str | None, Field(description="Continues an earlier listing.")] = None,
    ) -> SessionPageBrief:
        """List the sessions, the one that changed last first."""
        query = SessionQuery(limit=limit, cursor=cursor, title=title)
        page = await self._tenuto.sessions.list(self._scope_of(ctx), query)
        return SessionPageBrief(sessions=list(map(SessionBrief.of, page.sessions)), cursor=page.cursor)

    async def search_sessions(
        self,
        ctx: Context[Any, Any],
        query: Annotated[str, Field(description="Words to search for; a session is found if it has all of them.")],
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
        cursor: Annotated[str | None, Field(description="Continues an earlier search.")] = None,
    ) -> FoundPageBrief:
        """Search what was said in your sessions, and their titles, by words: everything that is stored there by now, by
        whichever door it came, word by word. For what is known about the user in other words, use search_memory. Each
        match has its number in the session: get_history with `before` one more shows it with what was said before."""
        page = await self._tenuto.sessions.search(
            self._scope_of(ctx), SearchQuery(text=query, limit=limit, cursor=cursor)
        )
        found = [
            FoundBrief(session=SessionBrief.of(one.session), matches=list(map(MatchView.of, one.matches)))
            for one in page.found
        ]
        return FoundPageBrief(found=found, cursor=page.cursor, unsearched=page.unsearched)

    async def append_message(
        self,
        ctx: Context[Any, Any],
        session_id: SessionId,
        text: Annotated[str, Field(description="Text of the message.")] = "",
        content: Annotated[str, Field(description="Another name for text; give one of them.")] = "",
        attachments: Annotated[
            list[dict[str, Any]],
            Field(
                description="What the message shows beside its text, as content blocks: image and audio with data and "
                "mimeType, resource with blob or text, resource_link with a web address as its uri."
            ),
        ] = [],  # noqa: B006
        role: Annotated[Literal["user", "assistant", "system"], Field(description="Role of the speaker.")] = "user",
        idempotency_key: Annotated[
            str | None, Field(description="With a key the message is stored once, however often the call is repeated.")
        ] = None,
    ) -> AppendedView:
        """Store a message at the end of a session, with what it shows. Private data is redacted as the server's policy
        says. Nothing is remembered from it: search_memory does not find it; use `remember` for what later sessions
        should know."""
        if (text and content) or not (text or content or attachments):
            raise Invalid("text: give the message as text or as content, one of them and not empty")
        scope, text, policy = self._scope_of(ctx), text or content, self._tenuto.sessions.policy
        speaker = scope.user if role == "user" else None
        draft = self._tenuto.draft(text, role=Role(role), speaker=speaker)
        if attachments:
            shown, contents = await asyncio.to_thread(read_blocks, scope, attachments, policy)
            draft = replace(draft, parts=(*(draft.parts if text else ()), *shown), contents=contents)
        check_message_sizes((draft,), policy)
        counted = await asyncio.to_thread(counter_for(self._tenuto.settings.model).with_count, draft)
        request = AppendRequest(messages=(counted,), idempotency_key=idempotency_key)
        named = await self._tenuto.sessions.find_named(scope, session_id)
        done = await self._tenuto.sessions.append(scope, named, request)
        return AppendedView(message=MessageBrief.of(done.messages[-1]), duplicate=done.duplicate)

    async def get_history(
        self,
        ctx: Context[Any, Any],
        session_id: SessionId,
        limit: Limit = 50,
        before: Annotated[int | None, Field(description="Messages next before this sequence number.")] = None,
        after: Annotated[int | None, Field(description="Messages next after this sequence number.")] = None,
    ) -> HistoryView:
        """Get messages of a session as they are stored, oldest first: the newest, or those beside a number. Parts name
        attachments by their ids, for get_attachment."""
        return await self._history(self._scope_of(ctx), session_id, Page(limit=limit, before=before, after=after))

    async def get_attachment(
        self,
        ctx: Context[Any, Any],
        session_id: SessionId,
        id: Annotated[str, Field(description="The attachment's id, as a part of a message has it.")],  # noqa: A002
    ) -> AttachmentAnswer:
        """Get a picture, a sound or a file that a message of the session shows."""
        scope = self._scope_of(ctx)
        named = await self._tenuto.sessions.find_named(scope, session_id)
        return answer_of(named, await self._tenuto.sessions.attachment(scope, named, id))

    async def read_session(self, ctx: Context[Any, Any], id: str) -> str:  # noqa: A002
        """A session with its newest messages."""
        page = Page(limit=RESOURCE_MESSAGES)
        return msgspec.json.encode(await self._history(self._scope_of(ctx), id, page)).decode()

    async def _history(self, scope: Scope, session_id: str, asked: Page) -> HistoryView:
        named = await self._tenuto.sessions.find_named(scope, session_id)
        page = await self._tenuto.sessions.messages(scope, named, asked)
        return HistoryView(
            session=SessionBrief.of(page.session),
            messages=[MessageBrief.of(message) for message in page.messages if not is_summary(message)],
            more_before=page.more_before,
            more_after=page.more_after,
        )

    async def assemble_context(
        self,
        ctx: Context[Any, Any],
        session_id: SessionId,
        question: Annotated[
            str, Field(description="What the user asks now; without it memories go by their last message.")
        ] = "",
        max_tokens: Annotated[
            int | None, Field(ge=64, description="What summary and messages may take; by default the server's budget.")
        ] = None,
        memories: Annotated[int, Field(ge=0, le=MAX_HITS, description="Maximum number of memories.")] = 5,
    ) -> AssembledContext:
        """Get what a model should see of a session now: a summary of older talk, the newest whole turns that fit the
        token budget, and the memories of the user that fit the question: what was remembered, not messages of other
        sessions. Nothing is stored."""
        scope = self._scope_of(ctx)
        named = await self._tenuto.sessions.find_named(scope, session_id)
        page = await self._tenuto.sessions.messages(
            scope, named, Page(limit=self._tenuto.policies.context.loaded_messages)
        )
        turn = OpenTurn(
            id="",
            number=page.session.turns,
            scope=scope,
            session=page.session,
            state=TurnState.OPENED,
            user_messages=(),
            window=page.messages,
        )
        fitted = await asyncio.to_thread(self._fit, turn, max_tokens)
        return AssembledContext(
            summary=fitted.summary,
            messages=list(map(MessageBrief.of, fitted.window)),
            memories=await self._recall(scope, question or _last_words(page.messages), memories),
            omitted=max(0, page.session.messages - len(fitted.window)),
            cut=list(fitted.cut),
        )

    def _fit(self, turn: OpenTurn, max_tokens: int | None) -> OpenTurn:
        policy, counter = self._tenuto.settings.own_prompt(), counter_for(self._tenuto.settings.model)
        if max_tokens is not None:
            policy = replace(policy, budget=max_tokens, reply_tokens=0)
        return fit_window(turn, policy, self._tenuto.policies.context, counter, MAX_WINDOW)

    async def _recall(self, scope: Scope, question: str, limit: int) -> list[MemoryBrief]:
        remembered = await self._tenuto.memories()
        if not limit or not question.strip() or not remembered.policy.covers(scope):
            return []
        found = await remembered.search(scope, MemoryQuery(text=question, limit=limit, any_persona=True))
        return [MemoryBrief.of(hit.memory) for hit in found.hits]

    # Memories

    async def search_memory(
        self,
        ctx: Context[Any, Any],
        query: Annotated[str, Field(min_length=1, description="A question or some words.")],
        limit: Annotated[int, Field(ge=1, le=MAX_HITS)] = 5,
        kinds: Annotated[list[MemoryKind], Field(description="Only these kinds; by default all.")] = [],  # noqa: B006
        mmr_lambda: Annotated[
            float, Field(ge=0, le=1, description="1 ranks by relevance alone; lower values also favour variety.")
        ] = 0.7,
    ) -> MemoryHitsBrief:
        """Search what is remembered of the user beyond single sessions, by words and by meaning, best first. It covers
        what `remember` stored and what was captured from conversations with an assistant. It does not cover messages:
        what `append_message` stored is found by get_history of its session alone."""
        remembered, scope = await self._memories(ctx)
        asked = MemoryQuery(text=query, limit=limit, kinds=tuple(kinds), any_persona=True, mmr_lambda=mmr_lambda)
        found = await remembered.search(scope, asked)
        hits = list(map(MemoryHitBrief.of, found.hits))
        return MemoryHitsBrief(hits=hits, degraded=found.degraded, unread=found.unread)

    async def remember(
        self,
        ctx: Context[Any, Any],
        text: Annotated[str, Field(min_length=1, description="One fact or preference, as a sentence.")],
        kind: MemoryKind = MemoryKind.FACT,
        subject: Annotated[
            str,
            Field(
                description="What it is about, such as 'home town'; a later memory of the subject replaces this one."
            ),
        ] = "",
    ) -> MemoryBrief:
        """Remember something of the user for later sessions, where search_memory and assemble_context find it. What is
        remembered already counts one more mention."""
        remembered, scope = await self._memories(ctx)
        return MemoryBrief.of(await remembered.add(scope, text, kind=kind, subject=subject))

    async def forget(
        self,
        ctx: Context[Any, Any],
        ids: Annotated[list[str], Field(min_length=1, description="Ids of memories, as search_memory gave them.")],
    ) -> ForgottenView:
        """Forget memories for good. Search first, so that the user sees what goes."""
        remembered, scope = await self._memories(ctx)
        return ForgottenView(forgotten=await remembered.forget(scope, ids))

    async def _memories(self, ctx: Context[Any, Any]) -> tuple[Memories, Scope]:
        scope, remembered = self._scope_of(ctx), await self._tenuto.memories()
        remembered.check_owner(scope)
        return remembered, scope

    # Boards

    async def open_task(
        self,
        ctx: Context[Any, Any],
        type: Annotated[str, Field(description="What kind of work it is.")],  # noqa: A002
        goal: str = "",
        session_id: Annotated[str | None, Field(description="The session it came out of.")] = None,
    ) -> TaskBrief:
        """Open a task that several agents work on. They share its board."""
        scope = self._scope_of(ctx)
        named = await self._tenuto.sessions.find_named(scope, session_id) if session_id else session_id
        new = NewTask(type=type, goal=goal, session_id=named)
        return TaskBrief.of(await self._tenuto.tasks.open(scope, new))

    async def read_board(
        self,
        ctx: Context[Any, Any],
        task_id: TaskId,
        key: Annotated[str | None, Field(description="Only this key; by default all of the board.")] = None,
    ) -> BoardEntries:
        """Read what agents have written on the board of a task, with the version of each key."""
        board = self._tenuto.tasks.board(self._scope_of(ctx), task_id)
        entries: Sequence[Any] = (await board.view()).entries if key is None else (await board.read_entry(key),)
        if None in entries:
            raise EntryNotFound(task_id, key or "")
        return BoardEntries(entries=list(map(BoardEntryView.of, entries)))

    async def write_board(
        self,
        ctx: Context[Any, Any],
        task_id: TaskId,
        key: str,
        value: Annotated[Any, Field(description="Any JSON value.")],
        agent: Annotated[str, Field(description="The name of the agent that writes.")],
        if_version: Annotated[
            int | None,
            Field(ge=0, description="Write only if the key has this version; 0: only if it has no value yet."),
        ] = None,
    ) -> BoardEntryView:
        """Write a key of a task's board. With if_version, another agent's write in between is a version_conflict
        instead of being lost: read the key again and decide."""
        self._check_writer(ctx, self._tenuto.tasks.policy, key)
        board = self._tenuto.tasks.board(self._scope_of(ctx), task_id)
        return BoardEntryView.of(await board.write(key, value, agent=agent, if_version=if_version))


def _last_words(messages: Sequence[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.role is Role.USER), "")
