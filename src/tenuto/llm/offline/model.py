"""The model without a language model: the assistant's offline tools, and quotes from the conversation.

It states nothing of its own. Where no sentence covers enough of the question, it says that it is no language model, and
quotes the nearest.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from heapq import nlargest
from itertools import chain
from typing import Final, NamedTuple

import regex

from tenuto.llm.offline.callers_tools import plan_callers_calls, quote_outputs
from tenuto.llm.offline.phrases import (
    PHRASES,
    Intent,
    Phrases,
    Speaker,
    is_question,
    is_request,
    match_intent,
    strip_asking,
)
from tenuto.model.generation import (
    NONE,
    ModelDone,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolCall,
    ToolCallRequested,
    ToolContext,
    ToolResult,
)
from tenuto.model.graphemes import boundary_before
from tenuto.model.memory import MemorySource
from tenuto.model.message import Role, offline_only_turns
from tenuto.model.parameters import PARAMETERS, ModelFacts, ModelParameters
from tenuto.model.prompt import Language
from tenuto.model.values import JsonObject, Value, make_storable
from tenuto.ports import OfflineTool, Tool
from tenuto.recall import LexicalIndex, split_sentences, terms

_log = logging.getLogger(__name__)

_GRAPHEME: Final = regex.compile(r"\X")
# A streamed piece is a word, or so many characters where words have no blanks between them.
_PIECE: Final = 3
_LONGEST: Final = 24
# Behind a space, an ASCII character begins a grapheme; most words of most texts need no further look.
_WORD_START: Final = re.compile(r"(?<=[^\S\r])(?=[\x00-\x7f])")
# How many characters are read: of the conversation its newest, of one message its first.
_CONVERSATION: Final = 40_000
_MESSAGE: Final = 8_000
_QUOTE: Final = 600
# How much of a question's weight a sentence must hold to be quoted as its answer, and not as the nearest there is.
_COVERAGE: Final = 0.5
_QUOTES: Final = 3
_SUMMARY_SENTENCES: Final = 5
_LABEL: Final = re.compile(r"^(?:user|assistant|a member|用户|助手|一位成员)[:：]\s*", re.IGNORECASE)

# What it cannot do: it has no probabilities, and does not stop in the middle of a quotation.
_NOT_OFFLINE: Final = frozenset({"logprobs", "top_logprobs", "logit_bias", "stop", "extra"})


class OfflineModel:
    """Answers without a language model, and says so.

    It calls the tools whose `plan` asks for it, renders what they return, and else quotes the conversation. The same
    request always gets the same answer. A `stand_in` answers because the real model cannot.
    """

    name = "offline"
    facts = ModelFacts(provider="tenuto", parameters=frozenset(PARAMETERS) - _NOT_OFFLINE)
    """It chooses no words, so there is nothing to sample: most parameters hold by themselves."""

    def __init__(self, *, stand_in: bool = False) -> None:
        self._stand_in = stand_in

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        """The names of those that it does not take."""
        refused = [name for name in parameters.given if name in _NOT_OFFLINE]
        return tuple(refused) if not parameters.extra else (*refused[:-1], *parameters.extra)

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Ask for tools, or answer with text."""
        calls = [] if request.tool_choice == NONE else _plan_calls(request, tools) or plan_callers_calls(request, tools)
        for call in calls:
            yield ToolCallRequested(call=call)
        if not calls:
            for piece in pieces(make_storable(self._text(request, tools))):
                yield TextDelta(text=piece)
        yield ModelDone(model=self.name, offline=True)

    def _text(self, request: ModelRequest, tools: Sequence[Tool]) -> str:
        if request.tool_context is not None and request.tool_results:
            if rendered := [
                text for result in request.tool_results if (text := _render(result, request.tool_context, tools))
            ]:
                return "\n\n".join(rendered)
            if failed := [result.call.name for result in request.tool_results if result.error is not None]:
                return PHRASES[request.tool_context.language].tools_failed.format(
                    tools=", ".join(dict.fromkeys(failed))
                )
        conversation = load_conversation(request)
        answer = quote_outputs(request) or compose_answer(conversation)
        if not self._stand_in:
            return answer
        phrases = PHRASES[conversation.language]
        # A model is connected, and its failure is no reason to set another one up.
        return f"{phrases.stand_in}\n{answer.removesuffix(phrases.connect).rstrip()}"


def _plan_calls(request: ModelRequest, tools: Sequence[Tool]) -> list[ToolCall]:
    """Calls of the tools that the question needs and that have not run yet; each runs once in a turn."""
    turn = request.tool_context
    if turn is None or not turn.question:
        return []
    ran = {result.call.name for result in request.tool_results}
    planned = [(tool.spec.name, _plan(tool, turn)) for tool in tools if tool.spec.name not in ran]
    stamp = f"{int(turn.now.timestamp() * 1000):x}"
    return [
        ToolCall(id=f"call_{stamp}_{len(ran) + number}", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(planned)
        if arguments is not None
    ]


def _plan(tool: Tool, turn: ToolContext) -> JsonObject | None:
    if not isinstance(tool, OfflineTool):
        return None
    try:
        return tool.plan(turn)
    except Exception as exc:
        # A tool is user code: one that fails here is not called.
        _log.warning("tool %s failed to plan a call: %s", tool.spec.name, type(exc).__name__)
        return None


def _render(result: ToolResult, turn: ToolContext, tools: Sequence[Tool]) -> str:
    if result.error is not None:
        return ""
    tool = next((one for one in tools if one.spec.name == result.call.name and isinstance(one, OfflineTool)), None)
    if not isinstance(tool, OfflineTool):
        return result.output if isinstance(result.output, str) else ""
    try:
        return tool.render(result.output, turn).strip()
    except Exception as exc:
        _log.warning("tool %s failed to render its output: %s", result.call.name, type(exc).__name__)
        return ""


def pieces(text: str) -> Iterator[str]:
    """A text in the small pieces it is streamed in; none of them splits a grapheme."""
    for word in _WORD_START.split(text) if text else ():
        if word.isascii() and len(word) <= _LONGEST:
            yield word
            continue
        piece: list[str] = []
        for grapheme in _GRAPHEME.findall(word):
            piece.append(grapheme)
            wide = not grapheme.isascii() and len(piece) >= _PIECE
            if grapheme.isspace() or wide or len(piece) >= _LONGEST:
                yield "".join(piece)
                piece.clear()
        if piece:
            yield "".join(piece)


class Utterance(NamedTuple):
    """A text, its speaker, and another user's display name, or when a memory was said."""

    speaker: Speaker
    text: str
    name: str = ""


class Conversation(Value, frozen=True, kw_only=True, gc=True):
    """A question and what was said before it, oldest first; what the offline model said by itself is left out."""

    question: str
    language: Language
    persona_name: str | None = None
    utterances: tuple[Utterance, ...] = ()


def load_conversation(request: ModelRequest) -> Conversation:
    """The conversation behind a request: the turn's own history where there is one, else the prompt's messages."""
    notes = [message for message in request.messages if message.role is Role.SYSTEM][1:]
    earlier = [Utterance(Speaker.NOTES, message.text) for message in notes]
    if (turn := request.tool_context) is not None:
        return Conversation(
            question=turn.question[:_MESSAGE],
            language=turn.language,
            persona_name=turn.persona_name,
            utterances=_newest([*earlier, *_memories(turn), *_history(turn)]),
        )
    said = [one for one in request.messages if one.role in (Role.USER, Role.ASSISTANT)]
    question = said.pop().text[:_MESSAGE] if said and said[-1].role is Role.USER else ""
    chinese = any("\u3400" <= character <= "\u9fff" for character in question)
    speakers = {Role.USER: Speaker.USER, Role.ASSISTANT: Speaker.MODEL}
    return Conversation(
        question=question,
        language=Language.CHINESE if chinese else Language.ENGLISH,
        utterances=_newest([*earlier, *(Utterance(speakers[one.role], one.text) for one in said)]),
    )


def compose_answer(conversation: Conversation) -> str:
    """An answer in the conversation's language; never empty."""
    phrases, question = PHRASES[conversation.language], conversation.question
    if not any(map(str.isalnum, question)):
        return phrases.no_words
    if (intent := match_intent(question)) is not None:
        return _answer_intent(intent, conversation, phrases)
    asked = [sentence for sentence in split_sentences(question) if is_question(sentence) or is_request(sentence)]
    if not asked:
        return phrases.noted
    found, coverage = _find_sentences(conversation, strip_asking(" ".join(asked)))
    if not found:
        # Memories are here because they fit the question by its date or its meaning.
        found = [one for one in conversation.utterances if one.speaker in (Speaker.MEMORY, Speaker.NOTED)][-_QUOTES:]
    if not found:
        return phrases.nothing_found
    return "\n".join([*([phrases.nearest] if coverage < _COVERAGE else []), *(_quote(one, phrases) for one in found)])


def _answer_intent(intent: Intent, conversation: Conversation, phrases: Phrases) -> str:
    own = [one.text for one in conversation.utterances if one.speaker is Speaker.USER]
    match intent:
        case Intent.GREETING if conversation.persona_name:
            return phrases.persona_greeting.format(name=conversation.persona_name)
        case Intent.GREETING | Intent.THANKS | Intent.FAREWELL | Intent.HELP:
            answer: str = getattr(phrases, intent)
            return answer
        case Intent.FIRST if own:
            return phrases.first.format(text=_cut(own[0]))
        case Intent.LAST if own:
            return phrases.last.format(text=_cut(own[-1]))
        case Intent.REPEAT if answers := [one for one in conversation.utterances if one.speaker is Speaker.MODEL]:
            return _quote(answers[-1], phrases)
        case Intent.SUMMARY if rows := [f"- {_quote(one, phrases)}" for one in _key_sentences(conversation)]:
            return "\n".join([phrases.summary, *rows])
        case _:
            return phrases.nothing_said


def _find_sentences(conversation: Conversation, query: str) -> tuple[list[Utterance], float]:
    """The sentences that cover the query best, in the order they were said, and how much of its weight they hold.

    The newest of them is always among them: a later sentence may correct an earlier one.
    """
    sentences = _sentences(conversation)
    hits = LexicalIndex(one.text for one in sentences).search(query)
    if not hits:
        return [], 0.0
    covered = max(hit.coverage for hit in hits)
    best = [hit.position for hit in hits if hit.coverage > covered - 1e-9]
    return [sentences[position] for position in sorted(list(dict.fromkeys([max(best), *best]))[:_QUOTES])], covered


def _key_sentences(conversation: Conversation) -> list[Utterance]:
    """The sentences that share most of their terms with others, in the order they were said."""
    sentences = _sentences(conversation)
    held = [set(terms(one.text)) for one in sentences]
    spread = Counter(chain.from_iterable(held))
    scores = [
        (sum(spread[term] - 1 for term in one) / math.sqrt(len(one) + 1), place) for place, one in enumerate(held)
    ]
    return [sentences[place] for place in sorted(place for _, place in nlargest(_SUMMARY_SENTENCES, scores))]


def _sentences(conversation: Conversation) -> list[Utterance]:
    """All that can be quoted, each sentence once and where it was said last; no question, heading or greeting."""
    sentences: dict[str, Utterance] = {}
    split = [(one, sentence) for one in conversation.utterances for sentence in split_sentences(one.text)]
    for one, sentence in split:
        if not (is_question(sentence) or sentence.endswith((":", "：")) or match_intent(sentence)):
            plain = _LABEL.sub("", sentence) if one.speaker is Speaker.NOTES else sentence
            sentences.pop(plain, None)
            sentences[plain] = one._replace(text=sentence)
    return list(sentences.values())


def _history(turn: ToolContext) -> Iterator[Utterance]:
    chatter = offline_only_turns(turn.history)
    for message in turn.history:
        if message.role is Role.USER:
            own = message.speaker == turn.scope.user or (message.speaker is None and turn.scope.chat is None)
            name = turn.speaker_names.get(message.speaker or "", "")
            yield Utterance(Speaker.USER if own else Speaker.OTHER, message.text, name)
        elif message.role is Role.ASSISTANT and message.turn not in chatter:
            yield Utterance(Speaker.MODEL, message.text)


def _memories(turn: ToolContext) -> Iterator[Utterance]:
    """What was remembered for the question; the oldest first, and no summaries of conversations."""
    days = PHRASES[turn.language].days
    for memory in sorted(turn.memories, key=lambda one: one.said_at):
        if memory.source is MemorySource.WRITTEN:
            yield Utterance(Speaker.NOTED, memory.text)
        elif memory.source in (MemorySource.MODEL, MemorySource.QUOTE):
            ago = (turn.now.date() - memory.said_at.date()).days
            when = days[0 if ago <= 0 else 1 if ago == 1 else 2 if 7 <= ago < 14 else 3]
            speaker = Speaker.OTHER if memory.speaker else Speaker.MEMORY
            name = "" if memory.speaker else when.format(date=memory.said_at.date().isoformat())
            yield Utterance(speaker, memory.text, name)


def _newest(utterances: Sequence[Utterance]) -> tuple[Utterance, ...]:
    room, kept = _CONVERSATION, list[Utterance]()
    for one in reversed(utterances):
        if room <= 0:
            break
        if one.text.strip():
            kept.append(one._replace(text=one.text[: min(_MESSAGE, room)]))
            room -= len(kept[-1].text)
    return tuple(reversed(kept))


def _quote(one: Utterance, phrases: Phrases) -> str:
    return phrases.quotes[one.speaker].format(text=_cut(one.text), name=one.name or phrases.another_user)


def _cut(text: str) -> str:
    """A text on one line, cut where it is too long to quote."""
    line = " ".join(text.split())
    return line if len(line) <= _QUOTE else line[: boundary_before(line, _QUOTE)] + "…"
