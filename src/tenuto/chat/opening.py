"""How a turn begins: whose assistant it is, what was said before, and what becomes of it when the store is away."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from tenuto.assistants import Assistant, in_language
from tenuto.chat.means import Means
from tenuto.chat.request import ChatRequest
from tenuto.context import Counter, has_relevant_history, language_of, materials_of, profile_text
from tenuto.context.summaries import summary_in, talk_in
from tenuto.errors import MessageNotFound, NothingToAnswer, SessionNotFound, TenutoError, Unavailable
from tenuto.model import (
    Closing,
    Draft,
    Message,
    NewSession,
    OpenTurn,
    Page,
    Role,
    Scope,
    Session,
    TurnState,
    text_part,
)
from tenuto.model.policy import ContextPolicy, OnMissing, OnStoreDown, Preset
from tenuto.model.prompt import Language, Materials
from tenuto.model.talk import Persona, ToolTurn, TurnEnded
from tenuto.model.trace import trace_id
from tenuto.model.values import JsonObject
from tenuto.sessions import TurnRequest, fresh_id
from tenuto.sessions.desk import refuse_unsound
from tenuto.sessions.titles import named
from tenuto.sessions.waiting import uncut

# Brought along with the turn: what a compressed session shows, and some more. Older talk is fetched where it is needed.
_WINDOW: Final = 40
_MOST: Final = 500
_PROFILE: Final = "profile"
_Done = TypeVar("_Done")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A turn that has begun. `turn` is `None` while the store is away and the assistant answers without memory."""

    request: ChatRequest
    scope: Scope
    assistant: Assistant
    turn: OpenTurn | None
    session_id: str
    number: int
    trace_id: str
    materials: Materials
    asked: ToolTurn

    @property
    def created(self) -> bool:
        """Whether the session is new."""
        return self.turn is not None and self.turn.created

    @property
    def speaker(self) -> str:
        """Who answers."""
        return self.scope.persona or self.assistant.name

    def ended(
        self, session: Session, answer: str = "", titles: bool = False, loaded: tuple[Message, ...] = (), taken: int = 0
    ) -> TurnEnded:
        """What upkeep is told when the turn is stored."""
        return TurnEnded(
            scope=self.scope,
            session=session,
            assistant=self.assistant.name,
            language=self.asked.language,
            policies=_compressing(self.assistant),
            prompt=self.assistant.prompt,
            question=self.asked.question,
            answer=answer,
            titles=titles,
            loaded=loaded,
            taken=taken,
        )


class Opener:
    """Begins turns."""

    def __init__(self, means: Means) -> None:
        self._sessions = means.sessions
        self._assistants = means.assistants
        self._spending = means.spending
        self._clock = means.clock
        self._counter = Counter()

    async def begin(self, scope: Scope, request: ChatRequest) -> Begun:
        """Find assistant and session, store the words, bring what was said before."""
        assistant = await self._assistant(scope, request)
        persona = assistant.persona(request.persona)
        if persona is not None:
            scope = replace(scope, persona=persona.id)
        if not assistant.remembers:
            await self._spending.check_tenant(scope)
            return self._without_memory(scope, request, assistant, persona)
        try:
            turn = await self._opened(scope, request, assistant)
        except Unavailable:
            if assistant.policies.sessions.on_store_down is not OnStoreDown.STATELESS:
                raise
            _log.warning("the store is away: answering without memory")
            return self._without_memory(scope, request, assistant, persona)
        if turn.state is TurnState.FINISHED:
            return self._begun(request, assistant, persona, turn)
        return await self._guarded(turn, self._loaded(request, assistant, persona, turn))

    async def _loaded(
        self, request: ChatRequest, assistant: Assistant, persona: Persona | None, turn: OpenTurn
    ) -> Begun:
        history = await self._history(turn, assistant)
        return self._begun(request, assistant, persona, replace(turn, window=history))

    async def _guarded(self, turn: OpenTurn, work: Coroutine[Any, Any, _Done]) -> _Done:
        """Do what belongs to a begun turn; when it fails the session is given free."""
        try:
            return await work
        except BaseException:
            await uncut(self._let_go(turn))
            raise

    async def _let_go(self, turn: OpenTurn) -> None:
        try:
            await self._sessions.finish(turn, Closing(abandoned=True))
        except TenutoError as failed:
            _log.info("a turn could not be given up: %s", failed.code)

    async def _assistant(self, scope: Scope, request: ChatRequest) -> Assistant:
        """The one asked for; else the one the session talks to; else the default."""
        if request.assistant is not None or request.session_id is None:
            return self._assistants.find(request.assistant)
        session = await self._head(scope, request.session_id)
        known = session.metadata.get("assistant") if session is not None else None
        return self._assistants.find(known if known in self._assistants.names else None)

    async def _head(self, scope: Scope, session_id: str | None) -> Session | None:
        if session_id is None:
            return None
        try:
            return await self._sessions.get(scope, session_id)
        except (SessionNotFound, Unavailable):
            # What that means is for the turn's beginning to say, by the assistant's policy.
            return None

    async def _opened(self, scope: Scope, request: ChatRequest, assistant: Assistant) -> OpenTurn:
        words = self._words(scope, request)
        refuse_unsound(words, assistant.policies.sessions)
        if request.key is None:
            # With a key the reply may be there already, and costs nothing to bring.
            await self._spending.check(scope, lambda: self._head(scope, request.session_id))
        wish = TurnRequest(
            words=words,
            session_id=request.session_id,
            key=request.key,
            fingerprint=request.fingerprint,
            window=_loaded_with(assistant.policies.context),
            new=_new(request, assistant) if _may_be_new(request, assistant) else None,
            policy=assistant.policies.sessions,
        )
        if request.regenerate or request.edit is not None:
            answered = await self._rewound(scope, request, wish)
            if answered is not None:
                return answered
        turn = await self._sessions.begin(scope, wish)
        if turn.state is not TurnState.FINISHED:
            await self._guarded(turn, self._check_again(turn))
        return turn

    async def _check_again(self, turn: OpenTurn) -> None:
        """What could only be seen with the session in hand; a turn that ran meanwhile may have spent the rest."""
        self._spending.budgets.check_session(turn.session)
        await self._spending.check_tenant(turn.scope)
        if not turn.words and not any(message.role is Role.USER for message in turn.window):
            raise NothingToAnswer

    def _words(self, scope: Scope, request: ChatRequest) -> tuple[Draft, ...]:
        if request.regenerate:
            return ()
        draft = Draft(
            id=fresh_id(),
            role=Role.USER,
            sent_at=self._clock(),
            parts=(text_part(request.text),),
            speaker=scope.user,
            persona=scope.persona,
            metadata={"key": request.key} if request.key is not None and request.edit is not None else {},
        )
        return (self._counter.counted(draft),)

    async def _rewound(self, scope: Scope, request: ChatRequest, wish: TurnRequest) -> OpenTurn | None:
        """Take back what the new answer, or the new words, shall replace.

        First the session is taken, so that a running turn is waited for and not cut off; taking words back then gives
        it free again. A key that was answered before brings its turn, and nothing is taken back again.
        """
        assert request.session_id is not None
        held = await self._sessions.begin(scope, _without_words(wish, request))
        if held.state is TurnState.FINISHED:
            return held
        cut = await self._guarded(held, self._cut(scope, request))
        if cut is None:
            await self._let_go(held)
        else:
            await self._guarded(held, self._sessions.truncate(scope, request.session_id, cut))
        return None

    async def _cut(self, scope: Scope, request: ChatRequest) -> int | None:
        """After which message to cut; `None` when this key has done so before."""
        assert request.session_id is not None
        page = await self._sessions.messages(scope, request.session_id, Page(limit=_MOST))
        if request.edit is None:
            last = next((message.seq for message in reversed(page.messages) if message.role is Role.USER), None)
            if last is None:
                raise NothingToAnswer
            return last
        if request.key is not None and any(m.metadata.get("key") == request.key for m in page.messages):
            return None
        return await self._editable(scope, page.session, request.edit)

    async def _editable(self, scope: Scope, session: Session, seq: int) -> int:
        if not 1 <= seq <= session.last_seq:
            raise MessageNotFound(seq)
        page = await self._sessions.messages(scope, session.id, Page(limit=1, after=seq - 1))
        found = page.messages[0] if page.messages else None
        if found is None:
            # Taken back before, by a request that went no further.
            return seq - 1
        theirs = None not in (scope.user, found.speaker) and found.speaker != scope.user
        if found.seq != seq or found.role is not Role.USER or theirs:
            raise MessageNotFound(seq)
        return seq - 1

    async def _history(self, turn: OpenTurn, assistant: Assistant) -> tuple[Message, ...]:
        """The talk the prompt may show: what came with the turn, and more where the summary begins further back."""
        window = turn.window
        if not window or turn.session.messages <= len(window):
            return window
        start = _window_start(turn, assistant)
        summary = summary_in(window, start)
        begins = max(summary.through + 1 if summary is not None else 1, start)
        if window[0].seq <= begins or not _wants_more(window, assistant):
            return window
        page = await self._sessions.messages(turn.scope, turn.session.id, Page(limit=_MOST, before=window[0].seq))
        return (*page.messages, *window)

    def _begun(self, request: ChatRequest, assistant: Assistant, persona: Persona | None, turn: OpenTurn) -> Begun:
        session = turn.session
        talk = replace(turn, window=talk_in(turn.window))
        materials = replace(materials_of(talk, ""), window_start=_window_start(turn, assistant))
        language = _language(request, session, materials.question)
        materials = _completed(materials, assistant, persona, session, turn.window, language, request.profile)
        asked = ToolTurn(
            scope=turn.scope,
            session=session,
            question=materials.question,
            language=request.language or _spoken(materials.question, language),
            now=self._clock(),
            state=_state(session, assistant),
            history=_own(materials.history, assistant, turn.scope.persona),
            persona=turn.scope.persona,
        )
        return Begun(
            request=request,
            scope=turn.scope,
            assistant=assistant,
            turn=turn,
            session_id=session.id,
            number=turn.number,
            trace_id=trace_id(session.id, turn.number, turn.id),
            materials=materials,
            asked=asked,
        )

    def _without_memory(
        self, scope: Scope, request: ChatRequest, assistant: Assistant, persona: Persona | None
    ) -> Begun:
        """A turn that leaves nothing behind."""
        if not request.text.strip():
            raise NothingToAnswer
        session_id = request.session_id or fresh_id()
        language = request.language or language_of(request.text)
        materials = Materials(
            question=request.text,
            system=assistant.system_for(persona, language),
            persona=scope.persona,
            speaker=scope.user,
            language=language,
        )
        asked = ToolTurn(
            scope=scope,
            session=None,
            question=request.text,
            language=language,
            now=self._clock(),
            persona=scope.persona,
        )
        return Begun(
            request=request,
            scope=scope,
            assistant=assistant,
            turn=None,
            session_id=session_id,
            number=1,
            trace_id="",
            materials=materials,
            asked=asked,
        )


def _without_words(wish: TurnRequest, request: ChatRequest) -> TurnRequest:
    """A turn that only takes the session; for another answer it is the turn itself, so its key counts."""
    return replace(wish, words=(), new=None, key=wish.key if request.regenerate else None)


def _completed(
    materials: Materials,
    assistant: Assistant,
    persona: Persona | None,
    session: Session,
    window: tuple[Message, ...],
    language: Language,
    profile: JsonObject,
) -> Materials:
    """The turn's own materials, and what assistant and session add to them."""
    # A summary tells of every character's turns, and one of them shall not know the others'.
    summary = summary_in(window, materials.window_start) if not assistant.isolated else None
    known = {**_profile(session), **profile}
    names = {each.id: in_language(each.names, language) for each in assistant.personas.values()}
    return replace(
        materials,
        system=assistant.system_for(persona, language),
        summary=summary.text if summary is not None else "",
        covered=summary.through if summary is not None else 0,
        preferences=profile_text(known, language) if known else "",
        relevant=has_relevant_history(materials.question, materials.history, threshold=assistant.relevance)
        or (summary is not None and assistant.relevance <= 0),
        isolated=assistant.isolated,
        language=language,
        names={name: shown for name, shown in names.items() if shown},
    )


def _window_start(turn: OpenTurn, assistant: Assistant) -> int:
    """Where context begins: at these words, when the talk before them has gone stale (D9)."""
    stale_after, last = assistant.policies.sessions.stale_after, turn.last_active_at
    if stale_after is None or last is None or not turn.words or turn.words[0].sent_at - last < stale_after:
        return turn.session.window_start
    return max(turn.session.window_start, turn.words[0].seq)


def _compressing(assistant: Assistant) -> Preset:
    """The assistant's policies, without compression where characters are kept apart."""
    policies = assistant.policies
    if not assistant.isolated:
        return policies
    return replace(policies, context=replace(policies.context, compress_at=None, compress_over=None))


def _profile(session: Session) -> JsonObject:
    known = session.context.get(_PROFILE)
    return known if isinstance(known, dict) else {}


def _state(session: Session, assistant: Assistant) -> JsonObject:
    state = session.context.get(assistant.name)
    return state if isinstance(state, dict) else {}


def _own(history: tuple[Message, ...], assistant: Assistant, persona: str | None) -> tuple[Message, ...]:
    """What the persona may know of: where characters are kept apart, its own turns."""
    if not assistant.isolated or persona is None:
        return history
    return tuple(message for message in history if message.persona in (None, persona))


def _language(request: ChatRequest, session: Session, question: str) -> Language:
    """The language of the prompt's own words: the conversation's first, so that the prompt's beginning stays."""
    known = session.context.get("language")
    if known in (Language.ENGLISH, Language.CHINESE):
        return Language(known)
    return request.language or language_of(question)


def _spoken(question: str, usual: Language) -> Language:
    """The language of this question; signs and numbers alone say nothing about it."""
    return language_of(question) if any(character.isalpha() for character in question) else usual


def _may_be_new(request: ChatRequest, assistant: Assistant) -> bool:
    return request.session_id is None or assistant.policies.sessions.on_missing is not OnMissing.ERROR


def _new(request: ChatRequest, assistant: Assistant) -> NewSession:
    context: JsonObject = {_PROFILE: request.profile} if request.profile else {}
    new = NewSession(metadata={"assistant": assistant.name}, context=context)
    return named(new, request.text, request.language or language_of(request.text))


def _loaded_with(context: ContextPolicy) -> int:
    """How many messages come with the turn, its words included; a turn with a tool has four."""
    if context.window_turns is not None:
        return min(_MOST, max(_WINDOW, context.window_turns * 4 + 4))
    if context.compress_at is None and context.window_messages is not None:
        return min(_MOST, max(_WINDOW, context.window_messages + 8))
    return _WINDOW


def _wants_more(window: tuple[Message, ...], assistant: Assistant) -> bool:
    """Whether older messages could still be shown beside these."""
    context = assistant.policies.context
    if context.window_messages is not None and context.window_messages <= len(window):
        return False
    if context.window_turns is not None and context.window_turns < len({message.turn for message in window}):
        return False
    return sum(message.tokens for message in window) < assistant.prompt.budget
