"""The agents of a legal question. With a model they are typed; without one they retrieve and quote, and never invent.

An agent that lacks something asks: its question is the answer of the turn, and the next message goes back to it. Who
asked is read from the conversation, where the answer carries it as the assistant's state.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.assistants.legal import wording
from tenuto.assistants.legal.library import EarlierTurn, Library
from tenuto.assistants.legal.plan import ASIDE, EXPERTS, NO_FIELD, ROUTE, ROUTER, ROUTING, LegalField
from tenuto.assistants.npc.corpus import Evidence
from tenuto.errors import NoTypedAnswer
from tenuto.model import Message, Role, Scope
from tenuto.model.media import shows_media
from tenuto.model.message import STATE
from tenuto.model.prompt import Language
from tenuto.model.values import Json, JsonObject, Value

_log = logging.getLogger(__name__)
NAME: Final = "legal"
ASKED: Final = "asked"
"""The key of the assistant's state that names the agent, or its field, that asked."""
FIELD: Final = "field"
"""The key of the assistant's state that names the field whose expert leads the conversation."""
QUOTED: Final = "quoted"
"""The key of the board that tells that a model gave no typed answer."""
DEGRADED: Final = "degraded"
"""The key of the board for what the models did not get of the conversation."""
# How many turns of the user before the question decide on its field.
_EARLIER: Final = 3
_CITATION: Final = re.compile(r"[ \t]*[\[【]((?:LAB|CON)-\d+)[\]】]")
_Answer = TypeVar("_Answer", bound=Value)


class Routing(Value, frozen=True, kw_only=True):
    """Which expert answers. `aside` asks the other one, too; `question` is the question in full; where neither
    expert fits, `field` is none, and `ask` is what to ask the user."""

    field: Literal["labour", "contract", "none"]
    aside: bool = False
    question: str = ""
    ask: str = ""


class Opinion(Value, frozen=True, kw_only=True):
    """An answer with the ids of its sources, or in `ask` a question to the user that must be answered first."""

    text: str = ""
    sources: tuple[str, ...] = ()
    ask: str = ""


class Decision(Value, frozen=True, kw_only=True):
    """What the user is told, in which language; `asked` names the agent that asks the user something, `field` is that
    of the expert who leads, `quoted` tells that a model gave no typed answer and texts were quoted instead, `degraded`
    names what the models did not get of the conversation."""

    text: str
    language: Language
    sources: tuple[str, ...] = ()
    asked: str | None = None
    field: str | None = None
    quoted: bool = False
    degraded: tuple[str, ...] = ()


class AgentPrompt(NamedTuple):
    """What a model is told beside the conversation."""

    role: str
    task: str
    language: Language
    talk: tuple[Message, ...]


class StepBoard(Protocol):
    """The board of a step."""

    async def read(self, key: str) -> Json: ...
    async def values(self) -> JsonObject: ...
    async def write(self, key: str, value: Json) -> object: ...


class StepContext(Protocol):
    """What the agents use of the context of their step."""

    @property
    def scope(self) -> Scope: ...
    @property
    def goal(self) -> str: ...
    @property
    def session_id(self) -> str | None: ...
    @property
    def history(self) -> tuple[Message, ...]: ...
    @property
    def profile(self) -> JsonObject: ...
    @property
    def language(self) -> Language | None: ...
    @property
    def board(self) -> StepBoard: ...


class AskModel(Protocol):
    """Asks a language model for a typed answer; `None` if there is none."""

    async def __call__(self, context: StepContext, prompt: AgentPrompt, kind: type[_Answer], /) -> _Answer | None: ...


class LegalAgents:
    """Router, experts and decision agent."""

    def __init__(self, *, library: Library, think: AskModel, language_of: Callable[[str], Language]) -> None:
        self._library = library
        self._think = think
        self._language_of = language_of

    def functions(self, decision_agent: str) -> dict[str, Callable[[Any], Any]]:
        """The agents by their names."""

        def advising(field: LegalField) -> Callable[[Any], Any]:
            async def advise(context: StepContext) -> JsonObject:
                return await self.advise(field, context)

            return advise

        experts = {name: advising(field) for field, name in EXPERTS.items()}
        return {ROUTER: self.route, **experts, decision_agent: self.decide}

    async def route(self, context: StepContext) -> str:
        """The field that leads; details are on the board."""
        talk = _Talk(context, self._language_of)
        routing = await self._route(context, talk)
        lead = None if routing.field == NO_FIELD else LegalField(routing.field)
        await context.board.write(ROUTING, msgspec.to_builtins(routing))
        await context.board.write(ASIDE, lead.other.value if lead is not None and routing.aside else NO_FIELD)
        return routing.field

    async def _ask(self, context: StepContext, prompt: AgentPrompt, kind: type[_Answer]) -> _Answer | None:
        """The typed answer of a model; `None` where texts are quoted instead, which the board tells."""
        try:
            return await self._think(context, prompt, kind)
        except NoTypedAnswer as error:
            _log.warning("a legal agent quotes its texts: %s", error)
            await context.board.write(QUOTED, True)
            return None

    async def _route(self, context: StepContext, talk: _Talk) -> Routing:
        if talk.asked in tuple(LegalField):
            # An answer to a question of this expert.
            return Routing(field=LegalField(talk.asked).value)
        language = talk.language
        prompt = talk.prompt(wording.ROUTER_ROLE, wording.ROUTER_TASK[language])
        if routing := await self._ask(context, prompt, Routing):
            return routing
        ranking = self._library.rank(context.goal, talk.earlier)
        if ranking is not None and (talk.asked or not ranking.close):
            return Routing(field=ranking.lead.value, aside=ranking.aside)
        if ranking is not None:
            return Routing(field="none", ask=wording.ROUTER_UNSURE[language])
        return Routing(field="none", ask="" if talk.asked else wording.ROUTER_ASKS[language])

    async def advise(self, field: LegalField, context: StepContext) -> JsonObject:
        """The opinion of one expert."""
        talk = _Talk(context, self._language_of)
        language = talk.language
        question = await self._full_question(context, talk)
        texts = self._library.find(field, question, held=any(turn.lead is field for turn in talk.earlier))
        leads = await context.board.read(ROUTE) == field
        task = wording.EXPERT_TASK[language] + "\n".join(f"[{text.id}] {_quote(text, language)}" for text in texts)
        opinion = await self._ask(context, talk.prompt(wording.EXPERT_ROLE[field], task), Opinion)
        if opinion is None:
            opinion = self._quote_texts(texts, language)
            if not texts and leads and talk.asked is None:
                name = wording.FIELD_NAME[field][language]
                opinion = Opinion(ask=wording.EXPERT_ASKS[language].format(field=name))
        return _to_json(_keep_sources(opinion, {text.id for text in texts}))

    async def _full_question(self, context: StepContext, talk: _Talk) -> str:
        """The question as the router restated it, or together with the one that it completes."""
        routing = await _read(context, ROUTING, Routing)
        if routing is not None and routing.question:
            return routing.question
        return f"{talk.earlier[0].text}\n{context.goal}" if talk.asked and talk.earlier else context.goal

    async def decide(self, context: StepContext) -> JsonObject:
        """What the user is told."""
        decision = await self._decide(context)
        quoted, missing = await context.board.read(QUOTED) is True, tuple(sorted(await _degraded(context)))
        return _to_json(replace(decision, quoted=quoted, degraded=missing))

    async def _decide(self, context: StepContext) -> Decision:
        talk, route = _Talk(context, self._language_of), await context.board.read(ROUTE)
        language = talk.language
        if route == NO_FIELD:
            routing = await _read(context, ROUTING, Routing)
            ask = routing.ask if routing is not None else ""
            text = ask or wording.NOTHING_FOUND[language]
            return Decision(text=text, language=language, asked=ROUTER if ask else None)
        lead = LegalField(route)
        opinion = await _read(context, lead, Opinion)
        if opinion is not None and opinion.ask:
            return Decision(text=opinion.ask, language=language, asked=lead.value, field=lead.value)
        opinions = {lead: opinion}
        if await context.board.read(ASIDE) == lead.other:
            opinions[lead.other] = await _read(context, lead.other, Opinion)
        return replace(await self._join_opinions(context, talk, opinions), field=lead.value)

    async def _join_opinions(
        self, context: StepContext, talk: _Talk, opinions: dict[LegalField, Opinion | None]
    ) -> Decision:
        language = talk.language
        given = {field: opinion for field, opinion in opinions.items() if opinion is not None and opinion.text}
        sources = tuple(dict.fromkeys(name for opinion in given.values() for name in opinion.sources))
        text = _join(given, language)
        if len(given) > 1:
            prompt = talk.prompt(wording.DECISION_ROLE, wording.DECISION_TASK[language] + text)
            if merged := await self._ask(context, prompt, Opinion):
                merged = _keep_sources(merged, set(sources))
                text, sources = merged.text or text, merged.sources or sources
        failed = [
            wording.NOT_ANSWERED[language].format(field=wording.FIELD_NAME[field][language])
            for field, opinion in opinions.items()
            if opinion is None
        ]
        text = "\n\n".join([text or wording.NOTHING_FOUND[language], *failed])
        return Decision(text=text, language=language, sources=sources)

    def _quote_texts(self, texts: Sequence[Evidence], language: Language) -> Opinion:
        quotes = "\n".join(f"{_quote(text, language)} [{text.id}]" for text in texts)
        return Opinion(text=quotes, sources=tuple(text.id for text in texts))


class _Talk:
    """The conversation up to the question: its messages, the user's turns before it (newest first), its language, and
    the agent whose question it answers."""

    def __init__(self, context: StepContext, language_of: Callable[[str], Language]) -> None:
        said = [
            message
            for message in context.history
            if message.role in (Role.USER, Role.ASSISTANT) and (message.text or shows_media((message,)))
        ]
        # A task may go on after further messages, and a regenerated answer follows its question.
        places = [place for place, message in enumerate(said) if message.role is Role.USER]
        mine = [place for place in places if said[place].text.startswith(context.goal)]
        end = (mine or places or [len(said)])[-1]
        self.messages = tuple(said[: end + 1])
        before = [message for message in said[:end] if message.text]
        self.earlier = _earlier_turns(before)[:_EARLIER]
        answer = before[-1] if before and before[-1].role is Role.ASSISTANT else None
        self.asked = _asked(answer) if answer is not None else None
        # A turn knows its language; a task of another origin may not.
        self.language = context.language or language_of(context.goal)

    def prompt(self, role: wording.Words, task: str) -> AgentPrompt:
        return AgentPrompt(role=role[self.language], task=task, language=self.language, talk=self.messages)


def _earlier_turns(before: Sequence[Message]) -> list[EarlierTurn]:
    """What the user said before, newest first, with the field whose expert answered."""
    turns: list[EarlierTurn] = []
    lead: LegalField | None = None
    for message in reversed(before):
        if message.role is Role.ASSISTANT:
            field = _state_of(message, FIELD)
            lead = LegalField(field) if field in tuple(LegalField) else None
        else:
            turns.append(EarlierTurn(message.text, lead))
            lead = None
    return turns


def _asked(answer: Message) -> str | None:
    """The agent that asked in an answer."""
    asked = _state_of(answer, ASKED)
    return asked if asked in (ROUTER, *LegalField) else None


def _state_of(answer: Message, key: str) -> Any:
    """A value of the assistant's state in an answer. Clients may have written the state: callers check it."""
    state = answer.metadata.get(STATE)
    mine = state.get(NAME) if isinstance(state, dict) else None
    return mine.get(key) if isinstance(mine, dict) else None


async def note_degraded(context: StepContext, names: Sequence[str]) -> None:
    """Note on the board what a model did not get, for the answer."""
    noted = await _degraded(context)
    if not noted.issuperset(names):
        await context.board.write(DEGRADED, sorted(noted.union(names)))


async def _degraded(context: StepContext) -> set[str]:
    noted = await context.board.read(DEGRADED)
    return {name for name in noted if isinstance(name, str)} if isinstance(noted, list) else set()


async def _read(context: StepContext, key: str, kind: type[_Answer]) -> _Answer | None:
    found = await context.board.read(key)
    return None if found is None else msgspec.convert(found, kind)


def _to_json(value: Value) -> JsonObject:
    built: JsonObject = msgspec.to_builtins(value)
    return built


def _quote(text: Evidence, language: Language) -> str:
    return (
        f"{text.title[language]}: {text.text[language]}"
        if language is Language.ENGLISH
        else (f"{text.title[language]}：{text.text[language]}")
    )


def _join(opinions: dict[LegalField, Opinion], language: Language) -> str:
    if len(opinions) < 2:
        return "".join(opinion.text for opinion in opinions.values())
    return "\n\n".join(f"{wording.FIELD_NAME[field][language]}\n{opinion.text}" for field, opinion in opinions.items())


def _keep_sources(opinion: Opinion, known: set[str]) -> Opinion:
    """The opinion without ids of texts that the expert did not have."""
    text = _CITATION.sub(lambda cited: cited[0] if cited[1] in known else "", opinion.text)
    cited = dict.fromkeys([*opinion.sources, *(match[1] for match in _CITATION.finditer(text))])
    return Opinion(text=text, sources=tuple(name for name in cited if name in known), ask=opinion.ask)
