"""How a character answers out of the evidence itself, and how an answer of a model is held to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tenuto.assistants.assistant import in_language
from tenuto.assistants.npc.characters import PLAIN, Character
from tenuto.assistants.npc.corpus import ID
from tenuto.model.prompt import Language
from tenuto.model.talk import ToolContext, ToolResult
from tenuto.model.values import JsonObject

_CITED: Final = re.compile(rf"(?<![ \t])[ \t]*[\[【(（]({ID.pattern}(?:\s*[,，、;；]\s*{ID.pattern})*)[\]】)）]")
_SPLIT: Final = re.compile(r"\s*[,，、;；]\s*")
_LISTED: Final = {
    Language.ENGLISH: "The family has {count} rules:",
    Language.CHINESE: "家训共有{count}则：",
}
_NO_SUCH_RULE: Final = {
    Language.ENGLISH: "The records hold {count} rules, and no rule {rule}. ",
    Language.CHINESE: "家训共有{count}则，没有第{rule}则。",
}
_WHICH: Final = {
    Language.ENGLISH: "I cannot tell which one you mean. Please name it, and I will look it up.",
    Language.CHINESE: "不知道指的是哪一个，请说出名称，再来查考。",
}
_HELLO: Final = {Language.ENGLISH: "Hello!", Language.CHINESE: "您好！"}
_GOODBYE: Final = {Language.ENGLISH: "Goodbye, and thank you for your visit.", Language.CHINESE: "再见，感谢您的到访。"}
_I_AM: Final = {Language.ENGLISH: "I am {name}.", Language.CHINESE: "我是{name}。"}
_BASED_ON: Final = {Language.ENGLISH: " (Evidence: {ids})", Language.CHINESE: "（依据：{ids}）"}


def told(
    lines: Sequence[tuple[str, str, str, str]],
    character: Character,
    language: Language,
    careful: bool,
    listing: bool,
) -> str:
    """Pieces as (id, kind, title, text), in the character's voice, each with its id."""
    voice = character.careful if careful else character.opening
    opening = in_language(voice, language)
    gap = "" if language is Language.CHINESE or not opening else " "
    if listing:
        heading = _LISTED[language].format(count=len(lines))
        rows = [f"{place}. {title} [{name}]" for place, (name, _, title, _) in enumerate(lines, 1)]
        return f"{opening}{gap}{heading}\n" + "\n".join(rows)
    colon = "：" if language is Language.CHINESE else ": "
    # A meaning names the rule that it explains.
    explained = any(kind == "meaning" for _, kind, _, _ in lines)
    shown = [line for line in lines if line[1] != "rule" or not explained]
    rows = [
        f"{'' if kind == 'rule' or (len(lines) == 1 and kind != 'story') else title + colon}{text} [{name}]"
        for name, kind, title, text in shown
    ]
    return f"{opening}{gap}" + "\n".join(rows)


def farewell(character: Character, language: Language) -> str:
    """Parting words in the character's voice, which promise nothing."""
    return in_language(character.farewell, language) or _GOODBYE[language]


def greeted(character: Character, language: Language) -> str:
    """A greeting in the character's voice, with who it is."""
    own, hello = introduced((), character, language), _HELLO[language]
    if own.startswith(hello[:2]):
        return own
    return hello + ("" if language is Language.CHINESE else " ") + own


def introduced(about: Sequence[tuple[str, str]], character: Character, language: Language) -> str:
    """Who a character is: in its own words, then what the records tell of it, as (id, text)."""
    name = in_language(character.name, language)
    called = name[:1].lower() + name[1:] if name.startswith("The ") else name
    own = in_language(character.introduction, language) or _I_AM[language].format(name=called)
    return ("" if language is Language.CHINESE else " ").join([own, *(f"{text} [{piece}]" for piece, text in about)])


def no_such_rule(rule: int, count: int, language: Language) -> str:
    """That a rule is not there; nothing, where the site has no rules at all."""
    if not count:
        return ""
    # A place before the first, such as the one before rule 1, has no number that could be named.
    return _NO_SUCH_RULE[language].format(count=count, rule=rule) if rule > 0 else ""


def asked_back(language: Language) -> str:
    """What anybody says to a question that points at nothing."""
    return _WHICH[language]


def refusal(character: Character, language: Language) -> str:
    """What a character says when the records hold nothing."""
    return in_language(character.refusal, language) or in_language(PLAIN.refusal, language)


def held_to_evidence(answer: str, results: tuple[ToolResult, ...], turn: ToolContext) -> str:
    """The answer with citations that are true: invented ids go, and where none is left the evidence is named (C1)."""
    given = _given(results)
    text = _CITED.sub(lambda match: _kept(match, given), answer)
    if not given or any(name in text for name in given):
        return text
    named = ", ".join(f"[{name}]" for name in given[:3])
    return text.rstrip() + _BASED_ON[turn.language].format(ids=named)


def cited(answer: str, evidence: Sequence[JsonObject]) -> list[JsonObject]:
    """Of the evidence that was looked up, as its ids and titles, that which the answer names."""
    named = set(ID.findall(answer))
    return [piece for piece in evidence if piece["id"] in named]


def _given(results: tuple[ToolResult, ...]) -> list[str]:
    """The ids the model was given in this turn."""
    found: list[str] = []
    for result in results:
        evidence = result.output.get("evidence") if isinstance(result.output, dict) else None
        if isinstance(evidence, (list, tuple)):
            found += [piece["id"] for piece in evidence if isinstance(piece, dict) and isinstance(piece.get("id"), str)]
    return found


def _kept(match: re.Match[str], given: list[str]) -> str:
    true = [name for name in _SPLIT.split(match[1]) if name in given]
    return match[0].replace(match[1], ", ".join(true)) if true else ""
