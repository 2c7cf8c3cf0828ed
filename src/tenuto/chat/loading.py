"""Load: what a turn that has begun knows of the conversation and of its user.

The history and its summary come with the turn's window, older messages where no summary covers them, and memories from
a search that runs beside the store's part of the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.assistants import in_language
from tenuto.chat.deps import ChatDeps
from tenuto.chat.request import last_question
from tenuto.chat.toolbox import load_tool_state
from tenuto.chat.turn_values import ActiveAssistant, Beginning, Choice, TurnContext
from tenuto.context import (
    chat_context,
    has_relevant_history,
    inputs_from_turn,
    language_of,
    last_input,
    last_words,
    near_enough,
    parts_of_question,
    points_back,
    profile_text,
    speaker_names,
    spoken_texts,
)
from tenuto.context.compression import LogTail, of_persona
from tenuto.context.wording import WORDING, quote_text
from tenuto.model import Content, Draft, Message, OpenTurn, Page, TurnState
from tenuto.model.generation import Summary, ToolContext
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery, MemorySource
from tenuto.model.message import readable_messages
from tenuto.model.policy import MOST_LOADED
from tenuto.model.prompt import Language, Piece, PromptInputs
from tenuto.model.scope import speaker_tag
from tenuto.model.session import PROFILE
from tenuto.model.turn import trace_id
from tenuto.model.values import Value
from tenuto.recall.dates import date_terms, read_query
from tenuto.recall.lexical import terms
from tenuto.recall.prepared_search import PreparedSearch, RecallResult
from tenuto.recall.service import Memories
from tenuto.sessions import fresh_id
from tenuto.sessions.lease import release_on_error

EMBEDDER: Final = "embedder"
RECALL: Final = "recall"
HISTORY: Final = "history"
"""What `TurnContext.degraded` calls them."""
# Messages that a question is compared with.
_MESSAGES_COMPARED: Final = 12
# Memories in a prompt, and how many are looked at: those that the window shows anyway are left out.
_MEMORIES_IN_PROMPT: Final = 5
_MEMORIES_LOOKED_AT: Final = 10
# A memory that shares less than this with a question is not about it: of its terms' weight or number, or by meaning.
_LEAST_COVERAGE: Final = 0.2
_LEAST_TERMS: Final = 0.34
_LEAST_SIMILARITY: Final = 0.4
# Messages before the question that a follow-up is understood by.
_MESSAGES_BEFORE: Final = 3
_PREFERENCES: Final = 20
# How long a turn waits for its memories, which is far longer than they take.
_TIMEOUT_SECONDS: Final = 2.0
_LANGUAGES: Final = {language.value: language for language in Language}

_log = logging.getLogger(__name__)


async def load(deps: ChatDeps, beginning: Beginning, recalling: asyncio.Task[PreparedSearch] | None) -> TurnContext:
    """The context of the turn; if it cannot be loaded, the lease is released."""
    turn = beginning.turn
    if turn is None:
        return _unstored_context(deps, beginning)
    if turn.state is TurnState.FINISHED:
        return _stored_context(deps, beginning, turn, LogTail(turn.window), None)
    return await release_on_error(deps.sessions.finish, turn, _load_stored(deps, beginning, turn, recalling))


async def _load_stored(
    deps: ChatDeps, beginning: Beginning, turn: OpenTurn, recalling: asyncio.Task[PreparedSearch] | None
) -> TurnContext:
    if turn.state is TurnState.RESUMED:
        beginning, turn = _with_addressed_persona(beginning, turn)
    turn, log, summary = await _load_log(deps, beginning.choice, turn)
    context = _stored_context(deps, beginning, turn, log, summary)
    if len(turn.user_messages) > turn.session.messages:
        context = replace(context, degraded=(*context.degraded, HISTORY))
    if deps.embedder is not None and context.assistant.relevance > 0:
        context = await _compare_by_meaning(deps, context)
    if recalling is not None:
        context = await _add_memories(deps, context, turn, recalling, beginning.choice.request.edited_from)
    return await _restore_private_values(deps, context)


def _with_addressed_persona(beginning: Beginning, turn: OpenTurn) -> tuple[Beginning, OpenTurn]:
    """A resumed turn is answered by the persona that its message was addressed to."""
    assistant = beginning.choice.assistant
    addressed = turn.user_messages[0].persona if turn.user_messages else None
    if addressed is None or addressed == turn.scope.persona or addressed not in assistant.personas:
        return beginning, turn
    scope = replace(turn.scope, persona=addressed)
    choice = replace(beginning.choice, scope=scope, persona=assistant.persona(addressed))
    return replace(beginning, choice=choice), replace(turn, scope=scope)


async def _load_log(deps: ChatDeps, choice: Choice, turn: OpenTurn) -> tuple[OpenTurn, LogTail, Summary | None]:
    """The messages the prompt may use: those of the turn's window, and older ones that no summary covers."""
    assistant = choice.assistant
    start, window = turn.context_start, turn.window
    persona = turn.scope.persona if assistant.isolated else None
    log = LogTail(window, persona)
    summary = log.summary(start)
    first = max(summary.through + 1 if summary is not None else 1, start)
    has_older = bool(window) and turn.session.messages > len(window) and not turn.journaled
    if has_older and window[0].seq > first and _has_room(of_persona(window, persona), choice):
        turn = await with_older_messages(deps, turn)
        log = LogTail(turn.window, persona)
        summary = log.summary(start)
    if len(turn.window) > assistant.policies.context.loaded_messages:
        uncovered = sum([message.seq >= first for message in turn.window])
        deps.reach.note(turn.scope, turn.session.id, uncovered)
    return turn, log, summary


async def with_older_messages(deps: ChatDeps, turn: OpenTurn) -> OpenTurn:
    """The turn with older messages in its window, if there are any."""
    window = turn.window
    if turn.session.messages <= len(window):
        return turn
    # The newest ones, since these are cached: the next turn may be begun in an outage, and asks for as many.
    page = await deps.sessions.messages(turn.scope, turn.session.id, Page(limit=MOST_LOADED))
    return replace(turn, window=(*(one for one in page.messages if one.seq < window[0].seq), *window))


def _has_room(window: tuple[Message, ...], choice: Choice) -> bool:
    """Whether the prompt has room for messages before this window."""
    context = choice.assistant.policies.context
    if context.window_messages is not None and context.window_messages <= sum([bool(one.text) for one in window]):
        return False
    if context.window_turns is not None and context.window_turns < len({message.turn for message in window}):
        return False
    return sum(message.tokens for message in window) < choice.prompt.budget_tokens


def _stored_context(
    deps: ChatDeps, beginning: Beginning, turn: OpenTurn, log: LogTail, summary: Summary | None
) -> TurnContext:
    """A turn of a stored session, with the history and the summary that it begins with."""
    choice, session, scope = beginning.choice, turn.session, turn.scope
    request, assistant, persona = choice.request, choice.assistant, choice.persona
    inputs = _prompt_inputs(choice, turn, log, summary)
    question = inputs.question or last_question(turn.user_messages or last_input(log.talk))
    # Digits and punctuation alone have no language.
    has_letters = any(map(str.isalpha, question))
    language = request.language or (language_of(question) if has_letters else inputs.language)
    # The message and the turn: a regeneration answers the same message in another turn.
    message_id = turn.user_messages[0].id if turn.user_messages else ""
    tool_context = ToolContext(
        scope=scope,
        session=session,
        question=question,
        language=language,
        now=deps.clock(),
        state=load_tool_state(turn.window, assistant.name) if assistant.tools or assistant.respond else {},
        history=of_persona(inputs.history, scope.persona if assistant.isolated else None),
        persona=scope.persona,
        persona_name=in_language(persona.names, language) if persona is not None else None,
        speaker_names=inputs.speaker_names,
        turn_key=f"{session.incarnation}:{turn.number}:{message_id}",
    )
    return TurnContext(
        request=request,
        scope=scope,
        assistant=assistant,
        prompt=choice.prompt,
        turn=turn,
        session_id=session.id,
        number=turn.number,
        trace_id=trace_id(session.id, turn.number, turn.id),
        prompt_inputs=inputs,
        tool_context=tool_context,
        active_assistant=ActiveAssistant.of(session).switch_to(assistant.name, scope.persona),
        replaced_answer=beginning.replaced_answer,
        contents=_contents_of(beginning.messages),
    )


def _prompt_inputs(choice: Choice, turn: OpenTurn, log: LogTail, summary: Summary | None) -> PromptInputs:
    """The inputs of the turn, completed from assistant and session."""
    request, assistant = choice.request, choice.assistant
    session_context, tenant, in_chat = turn.session.context, turn.scope.tenant, turn.scope.chat is not None
    # A count is trusted if this very turn has made it.
    counted = turn.state is TurnState.OPENED and bool(turn.user_messages) and turn.user_messages[0].text == request.text
    talk = readable_messages(log.talk)
    inputs = inputs_from_turn(
        turn, "", talk=talk, question_tokens=turn.user_messages[0].tokens if counted else 0, summary=summary
    )
    # Headings and labels are in the session's first language, so that the prompt prefix is stable.
    first = session_context.get("language")
    language = _LANGUAGES.get(first) if isinstance(first, str) else None
    language = language or request.language or language_of(inputs.question)
    stored = session_context.get(PROFILE) if not in_chat else None
    profile = {**(stored if isinstance(stored, dict) else {}), **request.profile}
    names = {each.id: in_language(each.names, language) for each in assistant.personas.values()}
    personas = [name for each in assistant.personas.values() for name in each.names.values()]
    speakers = speaker_names(talk, tenant, language, in_chat=in_chat, personas=personas)
    return replace(
        inputs,
        system=assistant.system_prompt(choice.persona, language),
        instructions=request.instructions or "",
        preferences=profile_text(profile, language) if profile else "",
        chat_context=chat_context(request.chat_context, tenant, language, speakers=speakers, personas=personas)
        if request.chat_context
        else (),
        history_relevant=has_relevant_history(inputs.question, inputs.history, threshold=assistant.relevance)
        or (summary is not None and assistant.relevance <= 0)
        or not inputs.question,
        isolated=assistant.isolated,
        language=language,
        display_names={persona: name for persona, name in names.items() if name},
        speaker_names=speakers,
    )


async def _compare_by_meaning(deps: ChatDeps, context: TurnContext) -> TurnContext:
    """Whether the history is relevant by embeddings, after the lexical decision (B10).

    That one stays for a question that points back or has nothing before it, and where the embedder does not answer.
    """
    assert deps.embedder is not None
    tool_context, inputs = context.tool_context, context.prompt_inputs
    history = [one for one in tool_context.history if one.seq >= inputs.window_start and spoken_texts((one,))]
    talk = PromptInputs(question=inputs.question, summary=inputs.summary, history=tuple(history[-_MESSAGES_COMPARED:]))
    if points_back(talk.question) or not (talk.history or talk.summary):
        return context
    if deps.embedder.remote:
        talk = await deps.redaction.redact_prompt_inputs(context.scope, tool_context.session, talk) or talk
    texts = [talk.question, *spoken_texts(talk.history), *([talk.summary] if talk.summary else [])]
    vectors = await deps.embedder.embed(context.scope, texts)
    if vectors is None:
        return replace(context, degraded=(*context.degraded, EMBEDDER))
    relevant = near_enough(vectors[0], vectors[1:], context.assistant.relevance)
    return replace(context, prompt_inputs=replace(inputs, history_relevant=relevant))


async def _add_memories(
    deps: ChatDeps, context: TurnContext, turn: OpenTurn, recalling: asyncio.Task[PreparedSearch], edited_from: int
) -> TurnContext:
    """Add what is remembered of the user; without it the turn goes on."""
    assert deps.memories is not None
    tool_context, inputs = context.tool_context, context.prompt_inputs
    recalled = await finish_recall(
        deps.memories, recalling, turn, tool_context.question, inputs, context.isolated_persona, edited_from
    )
    names = tagged_names(context.scope.tenant, inputs.speaker_names)
    preferences = "\n".join(filter(None, (inputs.preferences, recalled.preferences)))
    return replace(
        context,
        prompt_inputs=replace(inputs, memories=recalled.pieces(inputs.language, names), preferences=preferences),
        tool_context=replace(tool_context, memories=tuple([hit.memory for hit in recalled.hits])),
        degraded=(*context.degraded, RECALL) if recalled.degraded else context.degraded,
    )


async def _restore_private_values(deps: ChatDeps, context: TurnContext) -> TurnContext:
    """Restore placeholders in the state that tools read, and neutralise placeholders that a user typed."""
    tool_context, inputs, scope = context.tool_context, context.prompt_inputs, context.scope
    if tool_context.state and tool_context.session is not None:
        state = await deps.redaction.restore(tool_context.session, tool_context.state)
        context = replace(context, tool_context=replace(tool_context, state=state))
    if inputs.preferences or inputs.instructions:
        preferences = deps.redaction.own_words(scope, inputs.preferences)
        instructions = deps.redaction.own_words(scope, inputs.instructions)
        context = replace(context, prompt_inputs=replace(inputs, preferences=preferences, instructions=instructions))
    return context


def _unstored_context(deps: ChatDeps, beginning: Beginning) -> TurnContext:
    """A turn that stores nothing."""
    choice = beginning.choice
    request, scope, assistant, persona = choice.request, choice.scope, choice.assistant, choice.persona
    question = request.question
    language = request.language or language_of(question)
    history = LogTail(beginning.history or ()).talk
    messages = number_messages(beginning.messages, history)
    words = last_words(messages)
    before = messages[: len(messages) - len(words)]
    history = readable_messages((*history, *before))
    inputs = PromptInputs(
        question="\n".join([message.text for message in words]),
        question_parts=parts_of_question(readable_messages(words)),
        input_start=before[0].seq if before else 0,
        history=history,
        system=assistant.system_prompt(persona, language),
        instructions=request.instructions or "",
        preferences=profile_text(request.profile, language)
        if request.profile and beginning.history is not None
        else "",
        persona=scope.persona,
        speaker=scope.user,
        language=language,
    )
    tool_context = ToolContext(
        scope=scope,
        session=None,
        question=question,
        history=history,
        language=language,
        now=deps.clock(),
        persona=scope.persona,
        persona_name=in_language(persona.names, language) if persona is not None else None,
    )
    return TurnContext(
        request=request,
        scope=scope,
        assistant=assistant,
        prompt=choice.prompt,
        turn=None,
        session_id=request.session_id or fresh_id(),
        number=1,
        trace_id="",
        prompt_inputs=inputs,
        tool_context=tool_context,
        active_assistant=ActiveAssistant(assistant.name, scope.persona),
        contents=_contents_of((*(beginning.history or ()), *beginning.messages)),
    )


def _contents_of(messages: Sequence[Draft]) -> tuple[Content, ...]:
    return tuple([content for message in messages for content in message.contents])


def number_messages(drafts: Sequence[Draft], history: Sequence[Message] = ()) -> tuple[Message, ...]:
    """Messages that are not stored, as the turn after this history."""
    seq, turn = (history[-1].seq, history[-1].turn) if history else (0, 0)
    fields = [msgspec.structs.asdict(draft) for draft in drafts]
    return tuple([Message(**each, seq=place, turn=turn + 1) for place, each in enumerate(fields, seq + 1)])


# Memories


class Recalled(Value, frozen=True, kw_only=True, gc=True):
    """What a turn knows of earlier conversations; `degraded` if memories could not be searched as usual."""

    hits: tuple[MemoryHit, ...] = ()
    preferences: str = ""
    degraded: bool = False

    def pieces(self, language: Language, names: Mapping[str, str]) -> tuple[Piece, ...]:
        """The memories for the prompt: each on one line, with its date, as a quotation. `names` are of speakers."""
        return tuple(
            Piece(id=hit.memory.id, text=quote_memory(hit.memory, language, names), score=round(hit.score, 4))
            for hit in self.hits
        )


def start_recall(memories: Memories | None, choice: Choice) -> asyncio.Task[PreparedSearch] | None:
    """Begin to load memories and to embed the question, beside the store's part of the turn.

    `None` if nothing is remembered for this caller, or by this assistant.
    """
    if memories is None or not (choice.assistant.remembers and choice.assistant.recalls):
        return None
    if not memories.policy.covers(choice.scope):
        return None
    preparing = memories.prepare(choice.scope, choice.request.question, choice.request.session_id)
    return asyncio.create_task(preparing, name="tenuto recall")


async def finish_recall(
    memories: Memories,
    recalling: asyncio.Task[PreparedSearch],
    turn: OpenTurn,
    question: str,
    inputs: PromptInputs,
    persona: str | None,
    edited_from: int = 0,
) -> Recalled:
    """Search with the conversation known; a failure is logged, and nothing is recalled.

    Without a question there are preferences only. What was said in messages from `edited_from` on, which this turn
    replaces, is not recalled: its memories are removed after the turn.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            prepared = await asyncio.shield(recalling)
            # A memory of this talk that stands in its window is not shown again.
            searches = bool(question) and prepared.has_any(lambda one: not _is_in_window(one, turn))
            if searches:
                await prepared.embed()
        query = MemoryQuery(
            text=question,
            limit=_MEMORIES_LOOKED_AT,
            kinds=(MemoryKind.FACT, MemoryKind.EPISODE),
            persona=persona,
            talk=tuple([message.text for message in inputs.history[-_MESSAGES_BEFORE:] if message.text]),
        )
        result = await prepared.search(query) if searches else RecallResult((), degraded=False)
    except Exception as error:
        # Whatever fails here, the conversation goes on without memories.
        _log.warning("recall failed: %s", type(error).__name__)
        return Recalled(degraded=True)
    topic = _Question(question, memories.now())
    hits = [
        hit
        for hit in result.hits
        if topic.is_about(hit) and not (_is_in_window(hit.memory, turn) or _is_replaced(hit.memory, turn, edited_from))
    ]
    preferences = [one for one in prepared.preferences(persona) if not _is_replaced(one, turn, edited_from)]
    return Recalled(
        hits=tuple(hits[:_MEMORIES_IN_PROMPT]),
        preferences=quote_preferences(preferences),
        # Nothing is missing where the search would have found no vector to compare the question with.
        degraded=(result.degraded and prepared.has_vectors) or not prepared.complete,
    )


async def cancel_recall(recalling: asyncio.Task[PreparedSearch] | None) -> None:
    """End a search whose turn does not need it any more."""
    if recalling is None:
        return
    if not recalling.done():
        recalling.cancel()
        await asyncio.wait({recalling})
    if not recalling.cancelled():
        # The turn has ended, so its failure is not raised.
        recalling.exception()


def quote_memory(memory: Memory, language: Language, names: Mapping[str, str]) -> str:
    """A memory as a line of the prompt: when, who, and the words in quotation marks."""
    words = WORDING[language]
    if memory.kind is MemoryKind.EPISODE:
        who = words.earlier_talk
    elif memory.source is MemorySource.WRITTEN:
        who = words.noted
    elif memory.speaker:
        who = words.speaker_said.format(name=names.get(memory.speaker) or words.member.rstrip(": "))
    else:
        who = words.user_said
    return f"{_day(memory.said_at)}, {who}: {quote_text(memory.text)}"


def quote_preferences(preferences: Sequence[Memory]) -> str:
    """The newest preferences for the prompt, each quoted on a line: a user or a model wrote what it says."""
    return "\n".join(f"- {quote_text(one.text)}" for one in preferences[-_PREFERENCES:])


def tagged_names(tenant: str, names: Mapping[str, str]) -> dict[str, str]:
    """The names of speakers by the tags that memories have of them."""
    return {speaker_tag(tenant, user): name for user, name in names.items()}


class _Question:
    """What a question is about. The date of a memory counts only where the question names one."""

    def __init__(self, text: str, now: datetime) -> None:
        self._terms = set(terms(text))
        dated = read_query(text, now)
        self._only_period = dated.only
        self._dated = dated.period is not None or set(dated.terms) != self._terms

    def is_about(self, hit: MemoryHit) -> bool:
        scores = hit.scores
        if self._only_period or scores.cosine >= _LEAST_SIMILARITY:
            return True
        days = () if self._dated else date_terms(hit.memory.said_at)
        shared = [term for term in scores.terms if term not in days]
        enough = len(shared) >= max(1, len(self._terms) * _LEAST_TERMS)
        return bool(shared) and (scores.coverage >= _LEAST_COVERAGE or enough)


def _is_in_window(memory: Memory, turn: OpenTurn) -> bool:
    """Whether the memory stands in the loaded window of its own session."""
    if memory.session_id != turn.session.id or not memory.seqs or not turn.window:
        return False
    return memory.seqs[-1] >= max(turn.window[0].seq, turn.context_start)


def _is_replaced(memory: Memory, turn: OpenTurn, edited_from: int) -> bool:
    """Whether the memory comes from messages that this turn replaces: those are removed after it."""
    if not edited_from or memory.session_id != turn.session.id or not memory.seqs:
        return False
    return memory.seqs[-1] >= edited_from


def _day(moment: datetime) -> str:
    return moment.date().isoformat()
