"""`retrieve_evidence`: it runs before any model for every factual question, and decides how far an answer may go.

The topic, which is the evidence of the last answer, is kept in the tool's state for each character. "The first one",
"what does it mean?" and "any story?" are resolved against it; it is never a source of facts (C1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from tenuto.assistants.assistant import in_language
from tenuto.assistants.function_tools import make_tool, offline
from tenuto.assistants.npc.characters import PLAIN, Character
from tenuto.assistants.npc.corpus import ID, Corpus, Evidence, Match
from tenuto.assistants.npc.questions import (
    MAX_CHARACTERS,
    Kind,
    needs_evidence,
    own_words,
    rule_number,
    search_words,
    wanted_kind,
)
from tenuto.model.generation import ToolContext, ToolOutput, ToolResult
from tenuto.model.prompt import Language, Piece
from tenuto.model.values import Json, JsonObject, Value
from tenuto.ports import Tool

NAME: Final = "retrieve_evidence"
# Both are thresholds on `Match.confidence`, chosen on 557 labelled questions, a fifth of which stand in
# tests/data/npc/questions.txt. Of 286 that the shipped evidence answers, 74 are `normal`, 73 of them with the right
# piece, and 39 refused; of 271 that it does not answer, though it has their words, 7 are `normal`; at 0.75 16 would be.
_NORMAL: Final = 0.85
_CONSERVATIVE: Final = 0.2
# Matches that come near the best one are evidence, too; without a model fewer are quoted.
_NEAR: Final = 0.8
_MAX_PIECES: Final = 4
_MAX_QUOTED: Final = 2
_MAX_TOPIC: Final = 12
# An id without brackets, or several in a row, as a model writes them: in any case, with any hyphen, set off by marks.
_LOOSE_ID: Final = r"(?<![\w-])[A-Z][A-Z0-9]*(?:[-\u2010-\u2013][A-Z0-9]+)+(?![A-Z0-9_-])"
_BARE_IDS: Final = re.compile(
    rf"(?<![ \t])[ \t]*[*_`\"“‘']*({_LOOSE_ID}(?:\s*[,，、;；]\s*{_LOOSE_ID})*)[*_`\"”’']*", re.ASCII | re.IGNORECASE
)
_HYPHEN: Final = re.compile("[\u2010-\u2013]")
_EMPTY_LABEL: Final = re.compile(r"[^\n。.!?！？:：]{0,40}[:：]\s*")
_CITATION: Final = re.compile(rf"(?<![ \t])[ \t]*[\[【(（]({ID.pattern}(?:\s*[,，、;；]\s*{ID.pattern})*)[\]】)）]")

_LIST: Final = {Language.ENGLISH: "The family has {count} rules:", Language.CHINESE: "家训共有{count}则："}
_NO_SUCH_RULE: Final = {
    Language.ENGLISH: "The records hold {count} rules, and no rule {rule}. ",
    Language.CHINESE: "家训共有{count}则，没有第{rule}则。",
}


class PolicyMode(StrEnum):
    """How far the evidence carries an answer (C1)."""

    NORMAL = "normal"
    CONSERVATIVE = "conservative"
    REFUSE = "refuse"


Finding: TypeAlias = tuple[tuple[Evidence, ...], PolicyMode]
"""The evidence for a question, and how far it carries an answer."""
_NOTHING: Final[Finding] = ((), PolicyMode.REFUSE)


class _ShownPiece(Value, frozen=True, kw_only=True):
    """A piece of evidence in the language of the question."""

    id: str
    kind: str
    title: str
    text: str
    rule: int | None = None


class _Output(Value, frozen=True, kw_only=True):
    policy_mode: PolicyMode
    evidence: tuple[_ShownPiece, ...] = ()


def evidence_tool(corpus: Corpus, characters: dict[str, Character]) -> Tool:
    """The tool over a site's evidence, in the voices of its characters."""
    retriever = _Retriever(corpus, characters)

    @offline(plan=retriever.plan, render=retriever.render)
    async def retrieve_evidence(
        query: str, turn: ToolContext, rule: int | None = None, kind: Kind | None = None
    ) -> ToolOutput:
        """Look up facts in the evidence store of the site: the only source of facts about rules, people, places,
        stories and visits. `query` says in full words what to look up, `rule` is the number of a family rule, `kind`
        asks for its meaning or its story."""
        return retriever.retrieve(query[:MAX_CHARACTERS], rule, kind, turn)

    return make_tool(retrieve_evidence)


class _Retriever:
    def __init__(self, corpus: Corpus, characters: dict[str, Character]) -> None:
        self._corpus = corpus
        self._characters = characters

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """Wanted by every question that needs evidence."""
        question = turn.question[:MAX_CHARACTERS].strip()
        if not needs_evidence(question):
            return None
        arguments: JsonObject = {"query": question}
        among_rules = any(piece.rule is not None for piece in self._topic(turn))
        rule = rule_number(question, among_rules=among_rules) if self._corpus.of("rule") else None
        if rule is not None:
            arguments["rule"] = rule
        if kind := wanted_kind(question):
            arguments["kind"] = kind
        return arguments

    def retrieve(self, query: str, rule: int | None, kind: Kind | None, turn: ToolContext) -> ToolOutput:
        """The evidence for the prompt and the reply, and the new topic; a refusal answers at once."""
        pieces, mode = self._find(query, rule, kind, turn)
        shown = tuple(_show(piece, turn.language) for piece in pieces)
        return ToolOutput(
            output={"policy_mode": mode.value, "evidence": [msgspec.to_builtins(piece) for piece in shown]},
            snippets=tuple(Piece(id=piece.id, text=f"{piece.title}: {piece.text}") for piece in shown),
            data={"policy_mode": mode.value, "evidence": [{"id": piece.id, "title": piece.title} for piece in shown]},
            state={turn.persona or "": [piece.id for piece in pieces[:_MAX_TOPIC]]} if pieces else {},
            final_answer=self._refusal(rule, turn) if mode is PolicyMode.REFUSE else None,
        )

    def render(self, output: Json, turn: ToolContext) -> str:
        """The evidence itself, in the character's voice, each piece with its id."""
        try:
            found = msgspec.convert(output, _Output)
        except msgspec.ValidationError:
            return self._refusal(None, turn)
        character = self._characters.get(turn.persona or "", PLAIN)
        careful = found.policy_mode is PolicyMode.CONSERVATIVE
        opening = in_language(character.careful if careful else character.opening, turn.language)
        rules = [piece.id for piece in self._corpus.of("rule", persona=turn.persona)]
        if len(rules) > 1 and [piece.id for piece in found.evidence] == rules:
            heading = _LIST[turn.language].format(count=len(found.evidence))
            rows = [heading, *(f"{piece.rule}. {piece.title} [{piece.id}]" for piece in found.evidence)]
        else:
            rows = [f"{piece.text} [{piece.id}]" for piece in found.evidence[:_MAX_QUOTED]]
        gap = "" if turn.language is Language.CHINESE or not opening else " "
        return f"{opening}{gap}" + "\n".join(rows)

    def _find(self, query: str, rule: int | None, kind: Kind | None, turn: ToolContext) -> Finding:
        if rule is None and not own_words(query):
            topic = self._topic(turn)
            rules = {piece.rule for piece in topic if piece.rule is not None}
            if kind and len(rules) == 1:
                rule = rules.pop()
            elif topic or kind != "story":
                return (topic[:_MAX_PIECES], PolicyMode.CONSERVATIVE) if topic else _NOTHING
        if rule is not None:
            return self._find_rule(query, rule, kind, turn.persona)
        matches = self._corpus.search(search_words(query), turn.persona)
        if listed := self._find_list(matches, turn.persona):
            return listed
        if not matches:
            return _NOTHING
        best = matches[0]
        if best.confidence < _CONSERVATIVE and best.coverage < _NORMAL:
            return _NOTHING
        near = tuple(match.piece for match in matches[:_MAX_PIECES] if match.score >= _NEAR * best.score)
        if kind and best.piece.kind != kind and best.piece.rule is not None:
            near = self._corpus.of(kind, best.piece.rule, turn.persona) or near
        return near, PolicyMode.NORMAL if best.confidence >= _NORMAL else PolicyMode.CONSERVATIVE

    def _find_rule(self, query: str, rule: int, kind: Kind | None, persona: str | None) -> Finding:
        """A rule with its meaning, or its stories; `normal` where they cover what else the question says."""
        rules = self._corpus.of("rule", rule, persona)
        if not rules:
            return _NOTHING
        found = self._corpus.of(kind or "meaning", rule, persona)
        pieces = found if kind == "story" and found else (*rules, *found)
        words = own_words(query)
        covered = not words or any(
            match.coverage >= _NORMAL for match in self._corpus.search(words, persona) if match.piece in pieces
        )
        return pieces, PolicyMode.NORMAL if covered and found else PolicyMode.CONSERVATIVE

    def _find_list(self, matches: list[Match], persona: str | None) -> Finding | None:
        """All the rules, where the question names them and tells none from the others."""
        rules = self._corpus.of("rule", persona=persona)
        coverages = [match.coverage for match in matches if match.piece.kind == "rule"]
        if len(rules) < 2 or len(coverages) < len(rules) or matches[0].piece.kind != "rule":
            return None
        alike = min(coverages) == max(coverages) >= _NORMAL
        return (rules, PolicyMode.NORMAL) if alike else None

    def _topic(self, turn: ToolContext) -> tuple[Evidence, ...]:
        """The evidence of this character's last answer. Other writers share the state, so it is checked."""
        ids = turn.state.get(turn.persona or "")
        return self._corpus.with_ids(map(str, ids[:_MAX_TOPIC]), turn.persona) if isinstance(ids, list) else ()

    def _refusal(self, rule: int | None, turn: ToolContext) -> str:
        character = self._characters.get(turn.persona or "", PLAIN)
        words = in_language(character.refusal, turn.language) or in_language(PLAIN.refusal, turn.language)
        rules = self._corpus.of("rule", persona=turn.persona)
        if not rule or not rules:
            return words
        return _NO_SUCH_RULE[turn.language].format(count=len(rules), rule=rule) + words


def _show(piece: Evidence, language: Language) -> _ShownPiece:
    return _ShownPiece(
        id=piece.id,
        kind=piece.kind,
        title=in_language(piece.title, language),
        text=in_language(piece.text, language),
        rule=piece.rule,
    )


def invented_id_filter(corpus: Corpus) -> Callable[[str, tuple[ToolResult, ...], ToolContext], str]:
    """What takes out of an answer the ids that no tool of this turn brought; no id is added (C1, C16).

    In square brackets every id is a citation; elsewhere what has the shape of the corpus's ids.
    """

    def remove_invented_ids(answer: str, results: tuple[ToolResult, ...], _: ToolContext) -> str:
        given: set[str] = set()
        for result in results:
            evidence = result.output.get("evidence") if isinstance(result.output, dict) else None
            if isinstance(evidence, (list, tuple)):
                ids = [piece.get("id") for piece in evidence if isinstance(piece, dict)]
                given |= {name for name in ids if isinstance(name, str)}

        def keep_given(match: re.Match[str]) -> str:
            plain = match[0].lstrip()[0] in "(（"
            ids = [name for name in ID.findall(match[1]) if name in given or (plain and not corpus.is_id(name))]
            return match[0].replace(match[1], ", ".join(ids)) if ids else ""

        def keep_bare(match: re.Match[str]) -> str:
            named = ID.findall(_HYPHEN.sub("-", match[1]).upper())
            kept = [name for name in named if name in given or not corpus.is_id(name)]
            if len(kept) == len(named):
                return match[0]
            return match[0].replace(match[1], ", ".join(kept)) if kept else ""

        def mend(line: str) -> str | None:
            mended = _BARE_IDS.sub(keep_bare, _CITATION.sub(keep_given, line))
            return None if mended != line and (not mended.strip() or _EMPTY_LABEL.fullmatch(mended)) else mended

        return "\n".join(line for line in map(mend, answer.split("\n")) if line is not None)

    return remove_invented_ids


def cited(answer: str, evidence: Sequence[JsonObject]) -> list[JsonObject]:
    """Of the evidence that was looked up, the pieces that the answer names."""
    named = set(ID.findall(answer))
    return [piece for piece in evidence if piece["id"] in named]
