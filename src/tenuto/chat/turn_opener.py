"""How a turn begins: choose the assistant, store the message, load the history; or go on stateless in an outage."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Final

from msgspec.structs import replace

from tenuto.assistants import Assistant
from tenuto.chat.active_assistant import ActiveAssistant, active_assistant_of, resolve_assistant
from tenuto.chat.deps import ChatDeps
from tenuto.chat.recall import DEGRADED as RECALL_DEGRADED
from tenuto.chat.recall import TurnRecall, cancel_recall, tagged_names
from tenuto.chat.relevance_gate import DEGRADED, Gate
from tenuto.chat.request import ChatRequest
from tenuto.chat.revision import Revision, check_not_superseded, undo_user_message
from tenuto.chat.turn_context import TurnContext, stateless_context, stored_context
from tenuto.chat.turn_input import has_unknown_output, input_messages
from tenuto.chat.turn_prompt import check_room
from tenuto.context import TokenCounter, counter_for, language_of, profile_text
from tenuto.context.compression import LogTail, conversation_in, of_persona
from tenuto.errors import (
    DecryptionFailed,
    NothingToAnswer,
    SessionNotFound,
    StateCorrupt,
    Superseded,
    TenutoError,
    Unavailable,
    UnknownToolCall,
    VersionConflict,
)
from tenuto.model import Draft, Message, NewSession, OpenTurn, Page, Role, Scope, Session, TurnState
from tenuto.model.generation import Persona
from tenuto.model.message import is_input, is_summary
from tenuto.model.policy import MOST_LOADED, OnMissing, OnStoreDown, Preset, SessionPolicy
from tenuto.model.prompt import PromptInputs
from tenuto.model.session import ASSISTANT, PERSONA, PRIVACY_ALSO, PROFILE
from tenuto.model.turn import MAX_WINDOW
from tenuto.model.values import JsonObject
from tenuto.recall.service import PreparedSearch
from tenuto.sessions import TurnRequest
from tenuto.sessions.cancellation import release_on_error
from tenuto.sessions.limits import check_message_sizes, check_messages, check_metadata_size, check_text_size
from tenuto.sessions.reach import PromptReach
from tenuto.sessions.titles import with_fallback_title

# The part of its budget that a prompt may fill before it is compressed, whatever a request says.
_MOST_FULL: Final = 0.95
_log = logging.getLogger(__name__)


class TurnOpener:
    """Begins turns."""

    def __init__(self, means: ChatDeps) -> None:
        self._sessions = means.sessions
        self._assistants = means.assistants
        self._spending = means.spending
        self._clock = means.clock
        self._redaction = means.redaction
        self._back = Revision(means.sessions)
        self._embedder = means.embedder
        self._gate = Gate(means.embedder, means.redaction) if means.embedder is not None else None
        self._recall = TurnRecall(means.memories) if means.memories is not None else None
        self._counter = TokenCounter()
        self._reach = PromptReach()
        self._profiles = means.profiles
        self._models = means.models

    def clear_caches(self) -> None:
        """Drop cached values that were computed from user text."""
        if self._embedder is not None:
            self._embedder.clear_cache()

    async def open_turn(self, scope: Scope, request: ChatRequest) -> TurnContext:
        """Find assistant and session, store the user message, load the history.

        A running conversation reads its assistant from the session cache. If another process changes it between that
        read and the begin of the turn, the turn goes to the assistant that was read.
        """
        named = self._names_assistant(request)
        last = active_assistant_of(None if named else await self._load_session(scope, request.session_id))
        assistant, persona = resolve_assistant(self._assistants, request.assistant, request.persona, last)
        assistant.check_installed()
        if request.policy is not None or request.compress_above is not None:
            assistant = dataclasses.replace(assistant, policies=_policies_for(request, assistant))
        await self._admit(scope, request, assistant)
        scope = scope if persona is None else replace(scope, persona=persona.id)
        if not assistant.remembers:
            await self._spending.check_tenant(scope)
            return self._stateless_context(scope, request, assistant, persona)
        if request.tools or request.instructions:
            await self._check_room(scope, request, assistant, persona)
        # It runs beside the store's part of the turn, and does not outlive it.
        recalls = self._recall is not None and assistant.recalls
        recalling = self._recall.start(scope, request.question) if self._recall is not None and recalls else None
        try:
            return await self._open_stored(scope, request, assistant, persona, recalling)
        finally:
            if recalling is not None:
                await cancel_recall(recalling)

    async def open_unstored(self, scope: Scope, request: ChatRequest, history: tuple[Message, ...]) -> TurnContext:
        """A turn after these messages that stores nothing; the request names the assistant."""
        assistant, persona = resolve_assistant(
            self._assistants, request.assistant, request.persona, ActiveAssistant(None, None)
        )
        assistant.check_installed()
        await self._admit(scope, request, assistant)
        scope = scope if persona is None else replace(scope, persona=persona.id)
        await self._spending.check_tenant(scope)
        begun = self._stateless_context(scope, request, assistant, persona, LogTail(history).talk)
        known = profile_text(request.profile, begun.prompt_inputs.language) if request.profile else ""
        return replace(begun, prompt_inputs=replace(begun.prompt_inputs, preferences=known)) if known else begun

    async def _admit(self, scope: Scope, request: ChatRequest, assistant: Assistant) -> None:
        """Refuse what may not be stored, before texts of megabytes are counted or scanned for private values."""
        check_text_size(request.text, assistant.policies.sessions)
        if request.messages:
            check_message_sizes(request.messages, assistant.policies.sessions)
        if request.reply_metadata:
            check_metadata_size(request.reply_metadata, assistant.policies.sessions)
        await self._redaction.admit(scope, request.text, request.messages)

    async def _check_room(
        self, scope: Scope, request: ChatRequest, assistant: Assistant, persona: Persona | None
    ) -> None:
        """Refuse tools and instructions that the prompt has no room for; in a thread, since both can be long."""
        language = request.language or language_of(request.question)
        empty = PromptInputs(
            question="",
            system=assistant.system_prompt(persona, language),
            instructions=request.instructions or "",
            speaker=scope.user,
            language=language,
        )
        counter = counter_for(self._models(assistant.model).name)
        await asyncio.to_thread(check_room, request, assistant, empty, counter)

    async def _open_stored(
        self,
        scope: Scope,
        request: ChatRequest,
        assistant: Assistant,
        persona: Persona | None,
        recalling: asyncio.Task[PreparedSearch] | None,
    ) -> TurnContext:
        try:
            turn, replaced = await self._begin_in_store(scope, request, assistant)
        except DecryptionFailed:
            raise
        except Unavailable:
            if assistant.policies.sessions.on_store_down is not OnStoreDown.STATELESS:
                raise
            _log.warning("the store is unavailable: answering without memory")
            return self._stateless_context(scope, request, assistant, persona)
        begun = await self._context_of(turn, request, assistant, persona, recalling)
        return replace(begun, replaced_answer=replaced) if replaced else begun

    async def _context_of(
        self,
        turn: OpenTurn,
        request: ChatRequest,
        assistant: Assistant,
        persona: Persona | None,
        recalling: asyncio.Task[PreparedSearch] | None,
    ) -> TurnContext:
        """The context of a stored turn; if it cannot be loaded, the lease is released."""
        if turn.state is TurnState.FINISHED:
            return stored_context(request, assistant, persona, turn, LogTail(turn.window), None, self._clock())
        if turn.state is TurnState.RESUMED:
            turn, persona = _restore_persona(turn, assistant, persona)
        loading = self._load_context(request, assistant, persona, turn, recalling)
        return await release_on_error(self._sessions.finish, turn, loading)

    async def _load_context(
        self,
        request: ChatRequest,
        assistant: Assistant,
        persona: Persona | None,
        turn: OpenTurn,
        recalling: asyncio.Task[PreparedSearch] | None,
    ) -> TurnContext:
        """Load the messages the prompt may use: those of the turn's window, and older ones that no summary covers."""
        start, window = turn.context_start, turn.window
        alone = turn.scope.persona if assistant.isolated else None
        log = LogTail(window, alone)
        summary = log.summary(start)
        begins = max(summary.through + 1 if summary is not None else 1, start)
        more = bool(window) and turn.session.messages > len(window) and not turn.journaled
        if more and window[0].seq > begins and _needs_older(of_persona(window, alone), assistant):
            turn = await self._with_older(turn)
            log = LogTail(turn.window, alone)
            summary = log.summary(start)
        if len(turn.window) > assistant.policies.context.loaded_messages:
            uncovered = sum(message.seq >= begins for message in turn.window)
            self._reach.note(turn.scope, turn.session.id, uncovered)
        begun = stored_context(request, assistant, persona, turn, log, summary, self._clock())
        if self._gate is not None and assistant.relevance > 0:
            begun = await self._apply_relevance_gate(begun, self._gate)
        if self._recall is not None and recalling is not None:
            begun = await self._add_memories(begun, self._recall, recalling)
        if begun.tool_context.state or begun.prompt_inputs.preferences or begun.prompt_inputs.instructions:
            begun = await self._restore_private_values(begun)
        return begun

    async def _with_older(self, turn: OpenTurn) -> OpenTurn:
        """The turn with older messages in its window, if there are any."""
        window = turn.window
        if turn.session.messages <= len(window):
            return turn
        # The newest ones, since these are cached: the next turn may be begun in an outage, and asks for as many.
        page = await self._sessions.messages(turn.scope, turn.session.id, Page(limit=MOST_LOADED))
        return replace(turn, window=(*(one for one in page.messages if one.seq < window[0].seq), *window))

    async def _add_memories(
        self, begun: TurnContext, recall: TurnRecall, recalling: asyncio.Task[PreparedSearch]
    ) -> TurnContext:
        """Add what is remembered of the user; without it the turn goes on."""
        asked, inputs, turn = begun.tool_context, begun.prompt_inputs, begun.turn
        assert turn is not None
        alone = begun.scope.persona if begun.assistant.isolated else None
        found = await recall.finish(recalling, turn, asked.question, inputs, alone)
        names = tagged_names(begun.scope.tenant, inputs.speaker_names)
        liked = "\n".join(filter(None, (inputs.preferences, found.preference_lines)))
        return replace(
            begun,
            prompt_inputs=replace(inputs, memories=found.pieces(inputs.language, names), preferences=liked),
            tool_context=replace(asked, memories=tuple([hit.memory for hit in found.hits])),
            degraded=(*begun.degraded, RECALL_DEGRADED) if found.degraded else begun.degraded,
        )

    async def _apply_relevance_gate(self, begun: TurnContext, gate: Gate) -> TurnContext:
        """Decide by embeddings whether the history is relevant; without an embedder the lexical decision stays."""
        relevant = await gate.opens(begun.tool_context, begun.prompt_inputs, begun.assistant.relevance)
        if relevant is None:
            return replace(begun, degraded=(*begun.degraded, DEGRADED))
        return replace(begun, prompt_inputs=replace(begun.prompt_inputs, history_relevant=relevant))

    async def _restore_private_values(self, begun: TurnContext) -> TurnContext:
        """Restore placeholders in the state that tools read, and neutralise placeholders that a user typed."""
        asked, materials = begun.tool_context, begun.prompt_inputs
        if asked.state and asked.session is not None:
            asked = replace(asked, state=await self._redaction.restore(asked.session, asked.state))
        if materials.preferences:
            preferences = self._redaction.own_words(begun.scope, materials.preferences)
            materials = replace(materials, preferences=preferences)
        if materials.instructions:
            instructions = self._redaction.own_words(begun.scope, materials.instructions)
            materials = replace(materials, instructions=instructions)
        return replace(begun, tool_context=asked, prompt_inputs=materials)

    def _names_assistant(self, request: ChatRequest) -> bool:
        """Whether the request itself determines assistant and persona."""
        if request.assistant is None:
            return False
        return request.persona is not None or len(self._assistants.find(request.assistant).personas) < 2

    async def _load_session(self, scope: Scope, session_id: str | None) -> Session | None:
        if session_id is None:
            return None
        try:
            return await self._sessions.get(scope, session_id)
        except DecryptionFailed:
            raise
        except (SessionNotFound, Unavailable):
            # The begin of the turn decides what that means, by the assistant's policy.
            return None

    async def _begin_in_store(
        self, scope: Scope, request: ChatRequest, assistant: Assistant
    ) -> tuple[OpenTurn, tuple[Message, ...]]:
        """The stored turn, and the answer that it replaces."""
        words, policy = self._user_messages(scope, request), assistant.policies.sessions
        goes_back = request.regenerate or request.edit is not None
        may_be_new = request.session_id is None or policy.on_missing is not OnMissing.ERROR
        if goes_back or may_be_new:
            # Before anything is undone for them, or a session is titled by them; otherwise `begin` checks them.
            check_messages(words, policy)
        if self._spending.active and request.idempotency_key is None:
            # With a key the reply may be stored already, and a replay costs nothing.
            await self._spending.check(scope, lambda: self._load_session(scope, request.session_id))
        loaded = max(assistant.policies.context.loaded_messages, self._reach.guess(scope, request.session_id))
        wish = TurnRequest(
            user_messages=words,
            session_id=request.session_id,
            idempotency_key=request.idempotency_key,
            fingerprint=request.fingerprint,
            # A request may bring a whole conversation, and its outputs belong to calls before it.
            window=min(loaded + max(0, len(words) - 1), MAX_WINDOW),
            new_session=await self._new_session(scope, request, assistant)
            if may_be_new and not request.regenerate
            else None,
            policy=_without_journal(policy) if request.regenerate else policy,
            renews=True,
        )
        if request.edit is not None:
            wish_to_edit = replace(wish, policy=_without_journal(policy))
            await self._back.rewind_for_edit(scope, request, wish_to_edit, self._check_budgets)
        turn = await self._sessions.begin(scope, wish)
        await self._store_profile(scope, request.profile)
        if turn.state is TurnState.FINISHED:
            return turn, ()
        return await release_on_error(self._sessions.finish, turn, self._check_open_turn(turn, request, wish.window))

    async def _new_session(self, scope: Scope, request: ChatRequest, assistant: Assistant) -> NewSession:
        # Members of a chat read its session, and their prompts would show the profile of the member that began it.
        profile = {**await self._stored_profile(scope, request), **request.profile} if scope.chat is None else {}
        context: JsonObject = {PROFILE: profile} if profile else {}
        metadata = {ASSISTANT: assistant.name, **({PERSONA: scope.persona} if scope.persona is not None else {})}
        also = assistant.policies.privacy_also
        new = NewSession(metadata={**metadata, PRIVACY_ALSO: list(also)} if also else metadata, context=context)
        texts = [message.text for message in request.messages if message.role is Role.USER]
        first = next(filter(str.strip, texts), request.text)
        if not first:
            # The first turn with words of the user gives the title.
            return new
        said = await self._redaction.for_records(also).for_title(scope, first)
        language, limit = request.language, assistant.policies.sessions.fallback_title_characters
        return with_fallback_title(new, said, language or language_of(first), limit)

    async def _stored_profile(self, scope: Scope, request: ChatRequest) -> JsonObject:
        """What is known of the user beyond this session, for a new one; without the store the turn goes on."""
        if self._profiles is None or (
            request.session_id is not None and await self._load_session(scope, request.session_id) is not None
        ):
            return {}
        try:
            return await self._profiles.read(scope)
        except (StateCorrupt, Unavailable) as failed:
            _log.warning("the stored profile cannot be read: %s", failed.code)
            return {}

    async def _store_profile(self, scope: Scope, profile: JsonObject) -> None:
        """Store what the request says of the user beyond this session; without the store the turn goes on."""
        if self._profiles is None or not profile:
            return
        try:
            await self._profiles.update(scope, profile)
        except TenutoError as failed:
            _log.warning("a profile was not stored: %s", failed.code)

    async def _check_open_turn(
        self, turn: OpenTurn, request: ChatRequest, window: int
    ) -> tuple[OpenTurn, tuple[Message, ...]]:
        """Checks that need the stored session; a concurrent turn may have spent the rest of a budget."""
        replaced: tuple[Message, ...] = ()
        if request.regenerate:
            turn, replaced = await self._back.hide_old_answer(turn, window)
        if request.idempotency_key is not None:
            try:
                check_not_superseded(turn.session, request.idempotency_key)
            except Superseded:
                await undo_user_message(self._sessions, turn)
                raise
        if request.follows is not None and turn.state is TurnState.OPENED:
            await self._check_follows(turn, request.follows)
        await self._check_budgets(turn.session)
        if not turn.user_messages:
            # Another turn may have answered the last message while the old answer was undone.
            talk = conversation_in(turn.window)
            if not talk or not is_input(talk[-1]):
                raise NothingToAnswer
        if has_unknown_output(turn):
            # More calls than one window holds may wait for their outputs.
            turn = await self._with_older(turn)
        if has_unknown_output(turn):
            await undo_user_message(self._sessions, turn)
            raise UnknownToolCall
        return turn, replaced

    async def _check_follows(self, turn: OpenTurn, number: int) -> None:
        """Refuse a turn after another than that, and undo what it stored.

        By the messages before it: numbers of turns that were undone are not used again.
        """
        before = (one for one in reversed(turn.window) if one.turn != turn.number and not is_summary(one))
        last = next(before, None)
        if last is None or last.turn != number:
            await undo_user_message(self._sessions, turn)
            raise VersionConflict(number, last.turn if last is not None else 0)

    async def _check_budgets(self, session: Session) -> None:
        if self._spending.active:
            self._spending.budgets.check_session(session)
            await self._spending.check_tenant(session.scope)

    def _user_messages(self, scope: Scope, request: ChatRequest) -> tuple[Draft, ...]:
        return input_messages(scope, request, self._clock, self._counter)

    def _stateless_context(
        self,
        scope: Scope,
        request: ChatRequest,
        assistant: Assistant,
        persona: Persona | None,
        talk: tuple[Message, ...] = (),
    ) -> TurnContext:
        """A turn after this talk that stores nothing."""
        if request.regenerate:
            raise NothingToAnswer
        drafts = self._user_messages(scope, request)
        return stateless_context(scope, request, assistant, persona, drafts, talk, self._clock())


def _policies_for(request: ChatRequest, assistant: Assistant) -> Preset:
    """The assistant's policies with what the request has in place of them."""
    policies = assistant.policies
    if request.policy is not None:
        policies = replace(policies, sessions=request.policy)
    if request.compress_above is not None:
        share = min(request.compress_above / assistant.prompt.budget, _MOST_FULL)
        policies = replace(policies, context=replace(policies.context, compress_at=share))
    return policies


def _restore_persona(turn: OpenTurn, assistant: Assistant, persona: Persona | None) -> tuple[OpenTurn, Persona | None]:
    """A resumed turn is answered by the persona that its message was addressed to."""
    meant = turn.user_messages[0].persona if turn.user_messages else None
    if meant is None or meant == turn.scope.persona or meant not in assistant.personas:
        return turn, persona
    return replace(turn, scope=replace(turn.scope, persona=meant)), assistant.persona(meant)


def _without_journal(policy: SessionPolicy) -> SessionPolicy:
    """The policy of an edit or a regeneration: it removes stored messages, which a journal cannot do."""
    if policy.on_store_down is not OnStoreDown.JOURNAL:
        return policy
    return replace(policy, on_store_down=OnStoreDown.RAISE)


def _needs_older(window: tuple[Message, ...], assistant: Assistant) -> bool:
    """Whether the prompt has room for older messages."""
    context = assistant.policies.context
    spoken = sum(bool(message.text) for message in window)
    if context.window_messages is not None and context.window_messages <= spoken:
        return False
    if context.window_turns is not None and context.window_turns < len({message.turn for message in window}):
        return False
    return sum(message.tokens for message in window) < assistant.prompt.budget
