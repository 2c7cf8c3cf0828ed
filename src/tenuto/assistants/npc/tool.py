"""The tool that looks up evidence: it runs before any model for every factual question, and decides how to answer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from tenuto.assistants.npc.characters import PLAIN, Character
from tenuto.assistants.npc.corpus import Corpus, Evidence, Hit
from tenuto.assistants.npc.counting import subject_of_rules
from tenuto.assistants.npc.facts import Asked, asked, holds, speaks_to
from tenuto.assistants.npc.focus import MOST_EVIDENCE, Focus, focus_of, kept
from tenuto.assistants.npc.personal import beside_work
from tenuto.assistants.npc.pointing import of_somebody, own_words
from tenuto.assistants.npc.reading import (
    Wanted,
    Wish,
    asks_for_a_story,
    beside_meaning,
    beside_rules,
    greets,
    parts,
    understand,
)
from tenuto.assistants.npc.telling import asked_back, farewell, greeted, introduced, no_such_rule, refusal, told
from tenuto.assistants.npc.words import terms
from tenuto.errors import Invalid
from tenuto.model.prompt import Piece
from tenuto.model.talk import ToolContext, ToolOutput, ToolSpec
from tenuto.model.values import Json, JsonObject, Value

NAME: Final = "retrieve_evidence"
# Of the question's weight: from here on the evidence is about it, and from here on it says something at least.
_SURE: Final = 0.6
_SOMETHING: Final = 0.3
# Whether something is so, only a piece that knows nearly all of it tells.
_SURE_OF_IT: Final = 0.8
# A piece that is about something else must know this much of it: one that mentions a word in passing tells nothing.
_IN_PASSING: Final = 0.65
_BY_ONE_WORD: Final = 0.45
# A piece that holds the fact asked for goes before one that knows a little more of the words.
_NEAR: Final = 0.7
_LOOKED_AT: Final = 20
# What is wanted of the talk before, the question itself tells and no model.
_OF_THE_TALK: Final = (Wish.BACK, Wish.ANOTHER, Wish.UNCLEAR)
_SHOWN: Final = 4
# A model may weigh more pieces than a visitor wants to hear.
_TOLD: Final = 2


class PolicyMode(StrEnum):
    """How far the evidence carries an answer (C1)."""

    NORMAL = "normal"
    CONSERVATIVE = "conservative"
    REFUSE = "refuse"


Answer: TypeAlias = tuple[tuple[Evidence, ...], PolicyMode]
"""What a question is answered with, and how far that carries."""


class Shown(Value, frozen=True, kw_only=True):
    """A piece of evidence, in the question's language."""

    id: str
    kind: str
    title: str
    text: str


class Found(Value, frozen=True, kw_only=True):
    """What the tool answers."""

    policy_mode: PolicyMode
    wish: Wish
    evidence: tuple[Shown, ...] = ()


class RetrieveEvidence:
    """Finds the pieces of evidence a question is about."""

    def __init__(self, corpus: Corpus, characters: dict[str, Character]) -> None:
        self._corpus = corpus
        self._characters = characters
        self.spec = ToolSpec(
            name=NAME,
            description=(
                "Look up facts in the evidence store of the site. The only source of facts about rules, people, "
                "places, stories and visits."
            ),
            parameters={
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What to look up, in full words."},
                    "rule": {"type": "integer", "minimum": 1, "description": "The number of a family rule."},
                    "also": {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 1},
                        "description": "Further rules, where several are asked about.",
                    },
                    "wish": {"type": "string", "enum": [wish.value for wish in Wish if wish not in _OF_THE_TALK]},
                },
                "required": ["query"],
            },
        )

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """Wanted by every question but small talk and what only the conversation knows."""
        wanted = understand(turn, self._corpus)
        if wanted is None:
            return None
        arguments: JsonObject = {"query": wanted.query, "wish": wanted.wish.value}
        if wanted.rule is not None:
            arguments["rule"] = wanted.rule
        if wanted.also:
            arguments["also"] = list(wanted.also)
        return arguments

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Look it up."""
        wanted = _wanted(arguments)
        pieces, mode = self._found(wanted, turn)
        found = Found(policy_mode=mode, wish=wanted.wish, evidence=tuple(_shown(piece, turn) for piece in pieces))
        focus = _focus(wanted, pieces, focus_of(turn))
        named = [{"id": piece.id, "title": piece.title} for piece in found.evidence]
        return ToolOutput(
            output={
                "policy_mode": mode.value,
                "wish": found.wish.value,
                "evidence": msgspec.to_builtins(found.evidence),
            },
            pieces=tuple(Piece(id=piece.id, text=f"{piece.title}: {piece.text}") for piece in found.evidence),
            data={"policy_mode": mode.value, "evidence": named},
            state=kept(turn, focus),
            reply=self._declined(wanted, turn) if mode is PolicyMode.REFUSE else None,
        )

    def render(self, output: Json, turn: ToolContext) -> str:
        """The evidence itself, in the character's voice."""
        try:
            found = msgspec.convert(output, Found)
        except msgspec.ValidationError:
            return refusal(self.character(turn), turn.language)
        if found.wish is Wish.ABOUT:
            return introduced([(piece.id, piece.text) for piece in found.evidence], self.character(turn), turn.language)
        careful = found.policy_mode is PolicyMode.CONSERVATIVE
        lines = [(piece.id, piece.kind, piece.title, piece.text) for piece in found.evidence]
        if found.wish is Wish.SEARCH:
            lines = lines[:_TOLD]
        return told(lines, self.character(turn), turn.language, careful, listing=found.wish is Wish.LIST)

    def greet(self, turn: ToolContext) -> str | None:
        """A greeting back, and who is speaking; or parting words."""
        if parts(turn.question):
            return farewell(self.character(turn), turn.language)
        return greeted(self.character(turn), turn.language) if greets(turn.question) else None

    def character(self, turn: ToolContext) -> Character:
        """Who is asked."""
        return self._characters.get(turn.persona or "", PLAIN)

    def _found(self, wanted: Wanted, turn: ToolContext) -> Answer:
        if wanted.wish is Wish.UNCLEAR or self._no_rule(wanted, turn) is not None:
            return (), PolicyMode.REFUSE
        exact = self._exact(wanted, turn)
        # Who they are, characters know by themselves: without evidence, and citing none.
        if wanted.wish in (Wish.ABOUT, Wish.LIST):
            return exact, PolicyMode.NORMAL
        if wanted.wish is Wish.ITSELF:
            return self._of_itself(exact, wanted.query, turn)
        if not exact:
            return self._searched(wanted.query, turn)
        if wanted.wish is Wish.BACK:
            return self._told_again(exact, wanted.query, turn)
        return self._checked(exact, wanted, turn)

    def _checked(self, exact: Sequence[Evidence], wanted: Wanted, turn: ToolContext) -> Answer:
        """What the question names outright; or of its rules, whatever tells the fact that is asked for."""
        question = asked(wanted.query)
        subject = subject_of_rules(wanted.query)
        if wanted.wish is Wish.MEANING and not subject and not self._knows(exact, beside_rules(wanted.query)):
            return self._of_the_site(wanted.query, turn) or (tuple(exact), PolicyMode.CONSERVATIVE)
        if wanted.rule is not None:
            # Its number says what the question is about; no sentence repeats that.
            question = question._replace(about="")
        stories = (piece for rule in wanted.rules() for piece in self._corpus.of("story", rule, turn.persona))
        told_beside = question.facts and wanted.wish is not Wish.ORIGIN
        beside = [piece for piece in stories if told_beside and piece not in exact]
        telling = tuple(piece for piece in (*exact, *beside) if holds(piece, question, turn.language))
        if not telling or not self._knows(exact, subject):
            return tuple(exact), PolicyMode.CONSERVATIVE
        return telling, PolicyMode.NORMAL

    def _knows(self, pieces: Sequence[Evidence], words: str) -> bool:
        """Whether any of the pieces knows something of the words; all do, where they say nothing."""
        return max(self._corpus.cover(words, piece) for piece in pieces) >= _SOMETHING

    def _of_the_site(self, query: str, turn: ToolContext) -> Answer | None:
        """What pieces that belong to no rule tell on a question that names one: "why is the seventh rule damaged?"."""
        found, mode = self._searched(query, turn)
        return (found, mode) if found and all(piece.rule is None for piece in found) else None

    def _of_itself(self, own: tuple[Evidence, ...], query: str, turn: ToolContext) -> Answer:
        """What the piece about the character tells of its life, and no other; often that is nothing."""
        words = beside_work(query)
        known = min((self._corpus.cover(words, piece) for piece in own), default=0.0)
        if known < _SOMETHING:
            return (), PolicyMode.REFUSE
        question = asked(query)._replace(about=words)
        telling = question.facts and all(holds(piece, question, turn.language) for piece in own)
        sure = telling and known >= _SURE
        return own, PolicyMode.NORMAL if sure else PolicyMode.CONSERVATIVE

    def _told_again(self, last: Sequence[Evidence], query: str, turn: ToolContext) -> Answer:
        """What was told last, sure if it knows what else the question says and tells the fact that is asked for."""
        words = own_words(query)
        question = asked(query)._replace(about=words)
        # One word that is mentioned says nothing of whether something is so.
        sure = [
            piece
            for piece in last
            if self._corpus.cover(words, piece) >= _needed_to_be_sure(question)
            and holds(piece, question, turn.language)
            and not (question.whether and not question.facts and len(terms(words)) == 1)
        ]
        if sure:
            return tuple(sure), PolicyMode.NORMAL
        known = [piece for piece in last if words.strip() and self._corpus.cover(words, piece) >= _SOMETHING]
        return tuple(known or last[:_TOLD]), PolicyMode.CONSERVATIVE

    def _searched(self, query: str, turn: ToolContext) -> Answer:
        question = asked(query)
        looked_at = self._corpus.search(query, turn.persona, _LOOKED_AT, beside_meaning(question.about))
        hits = [hit for hit in looked_at if hit.cover >= _needed(hit) and speaks_to(hit.piece, question, turn.language)]
        if not hits:
            return (), PolicyMode.REFUSE
        telling = [hit for hit in hits if holds(hit.piece, question, turn.language, hit.cover)]
        told = bool(telling) and telling[0].cover >= _NEAR * hits[0].cover
        hits = _facts_first(telling, question)[:_SHOWN] if told else hits[:_SHOWN]
        best = hits[0].cover
        # One word that is only mentioned may mean anything.
        sure = told and best >= _needed_to_be_sure(question) and (hits[0].about or hits[0].shared > 1)
        shown = _shown_of(hits)
        shown = self._stories(shown, turn) if asks_for_a_story(query) else _beside_stories(shown)
        return shown, PolicyMode.NORMAL if sure else PolicyMode.CONSERVATIVE

    def _stories(self, found: tuple[Evidence, ...], turn: ToolContext) -> tuple[Evidence, ...]:
        """What was found as stories: those among it, or of the rules it belongs to; itself, where there are none."""
        rules = dict.fromkeys(piece.rule for piece in found if piece.rule is not None)
        told = tuple(piece for piece in found if piece.kind == "story")
        return told or tuple(piece for rule in rules for piece in self._corpus.of("story", rule, turn.persona)) or found

    def _no_rule(self, wanted: Wanted, turn: ToolContext) -> int | None:
        """A rule that is asked for and not there; no search may answer with another one's text."""
        if wanted.wish is Wish.LIST:
            return None
        return next((rule for rule in wanted.rules() if not self._corpus.of("rule", rule, turn.persona)), None)

    def _declined(self, wanted: Wanted, turn: ToolContext) -> str:
        if wanted.wish is Wish.UNCLEAR:
            return asked_back(turn.language)
        words = refusal(self.character(turn), turn.language)
        rule = self._no_rule(wanted, turn)
        if rule is None:
            return words
        count = len(self._corpus.of("rule", persona=turn.persona))
        return no_such_rule(rule, count, turn.language) + words

    def _exact(self, wanted: Wanted, turn: ToolContext) -> tuple[Evidence, ...]:
        """What a question names outright: the list, a rule's meaning, its story, the character itself."""
        corpus, persona = self._corpus, turn.persona
        match wanted.wish:
            case Wish.LIST:
                return corpus.of("rule", persona=persona)
            case Wish.STORY:
                return tuple(piece for rule in wanted.rules() for piece in corpus.of("story", rule, persona)[:2])
            case Wish.MEANING:
                both = ("rule", "meaning")
                return tuple(
                    piece for rule in wanted.rules() for kind in both for piece in corpus.of(kind, rule, persona)
                )
            case Wish.ORIGIN:
                return corpus.of("origin", persona=persona)
            case Wish.ABOUT | Wish.ITSELF:
                about = corpus.by_id.get(self.character(turn).introduces or "")
                return (about,) if about is not None else ()
            case Wish.BACK:
                last = corpus.named(focus_of(turn).evidence[:_TOLD], persona)
                return (*last, *self._people_in(last, turn)) if of_somebody(wanted.query) else last
            case Wish.ANOTHER:
                return self._another(turn)
            case Wish.SEARCH | Wish.UNCLEAR:
                return ()

    def _people_in(self, told: Sequence[Evidence], turn: ToolContext) -> tuple[Evidence, ...]:
        """The pieces on people whom others name."""
        said = "\n".join(piece.said(turn.language) for piece in told)
        people = self._corpus.of("person", persona=turn.persona)
        named = (person for person in people if (name := person.titled(turn.language)) and name in said)
        return tuple(person for person in named if person not in told)

    def _another(self, turn: ToolContext) -> tuple[Evidence, ...]:
        """The piece of the same kind that follows what was told last; behind the last comes the first."""
        told = self._corpus.named(focus_of(turn).evidence[:_TOLD], turn.persona)
        alike = self._corpus.of(told[-1].kind, persona=turn.persona) if told else ()
        place = alike.index(told[-1]) + 1 if told else 0
        return tuple(piece for piece in (*alike[place:], *alike[:place]) if piece not in told)[:1]


def _wanted(arguments: JsonObject) -> Wanted:
    """The arguments, whoever made them up."""
    try:
        return msgspec.convert({"wish": Wish.SEARCH.value, **arguments}, Wanted)
    except msgspec.ValidationError as unfit:
        raise Invalid(str(unfit)) from None


def _shown(piece: Evidence, turn: ToolContext) -> Shown:
    return Shown(id=piece.id, kind=piece.kind, title=piece.titled(turn.language), text=piece.said(turn.language))


def _needed(hit: Hit) -> float:
    """How much of a question a piece must know to tell something on it."""
    if not hit.about:
        return _IN_PASSING
    return _SOMETHING if hit.shared > 1 else _BY_ONE_WORD


def _needed_to_be_sure(question: Asked) -> float:
    """A visitor's age, day or hour is a fact like any other; what else is asked to be so must be known."""
    return _SURE_OF_IT if question.whether and not (question.visitor and question.facts) else _SURE


def _facts_first(telling: list[Hit], question: Asked) -> list[Hit]:
    """A fact is told by what is no story, where that knows as much."""
    if not question.facts or telling[0].piece.kind != "story":
        return telling
    facts = [hit for hit in telling if hit.piece.kind != "story" and hit.cover >= telling[0].cover]
    return facts or telling


def _shown_of(hits: Sequence[Hit]) -> tuple[Evidence, ...]:
    """The best piece and those that come near it."""
    enough = tuple(
        hit.piece
        for hit in hits
        # What is about the subject goes without what only mentions it.
        if hit.cover >= max(_SOMETHING, hits[0].cover * 0.8) and (hit.about or not hits[0].about)
    )
    # A search that leads to one thing is answered with that thing, not with its neighbours.
    return enough[:1] if len(enough) > 1 and hits[0].score > 1.6 * hits[1].score else enough


def _beside_stories(found: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """A fact goes without the stories that have a word in common with it; where a story comes first, all stay."""
    if found[0].kind == "story":
        return found
    return tuple(piece for piece in found if piece.kind != "story")


def _focus(wanted: Wanted, pieces: tuple[Evidence, ...], before: Focus) -> Focus:
    """What the talk is about now: a rule stays in focus until another one comes."""
    if not pieces:
        return before
    ids = tuple(piece.id for piece in pieces[:MOST_EVIDENCE])
    if wanted.wish is Wish.LIST:
        return Focus(rule=None, listed=True, evidence=ids)
    numbers = [piece.rule for piece in pieces if piece.rule is not None]
    rule = wanted.rule or (numbers[0] if numbers else before.rule)
    return Focus(rule=rule, listed=before.listed, evidence=ids)
