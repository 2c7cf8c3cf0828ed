"""Reasoning: what a model thought before it spoke or called, as parts of its message.

A part has the `text`, and what its provider demands back: the `signature` of that text, or the thought itself
`encrypted`, with the `id` and `details` that belong to it. `provider` and `model` name who made it: no other is sent
it. `redacted` says that the privacy policy changed the text, which the signature therefore no longer fits, and
`withheld` that readers are not shown it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tenuto.model.values import JsonObject

REASONING: Final = "reasoning"
"""The type of the part."""
REDACTED: Final = "redacted"
WITHHELD: Final = "withheld"
PROOFS: Final = ("signature", "encrypted", "details")
"""What only the provider reads."""
# What readers are shown of a thought.
_SHOWN: Final = ("type", "text", "provider", "model", REDACTED)


def is_reasoning(part: JsonObject) -> bool:
    """Whether a part is a thought in our form; parts and entries of other APIs may have the same type."""
    return part["type"] == REASONING and isinstance(part.get("text"), str) and isinstance(part.get("provider"), str)


def may_return(part: JsonObject) -> bool:
    """Whether a thought may go back to the provider that made it: it is as it came, and says who made it and by what
    the provider knows it."""
    if not is_reasoning(part) or part.get(REDACTED):
        return False
    return bool(part["provider"]) and (is_proven(part) or bool(part.get("id")))


def is_proven(part: JsonObject) -> bool:
    """Whether the provider can tell that the thought is its own."""
    return any(part.get(name) for name in PROOFS)


def shown_text(part: JsonObject) -> str:
    """The text of a thought that readers see; empty if it is withheld, or readable by its provider alone."""
    text: str = "" if part.get(WITHHELD) else part["text"]
    return text


def shown_reasoning(parts: Iterable[JsonObject]) -> str:
    """The thoughts of an answer as one text, as readers see them."""
    return "\n\n".join([text for part in parts if is_reasoning(part) and (text := shown_text(part))])


def shown_parts(parts: Iterable[JsonObject]) -> tuple[JsonObject, ...]:
    """A message's parts as readers see them: of thoughts the text, without what only the provider reads."""
    shown = []
    for part in parts:
        if not is_reasoning(part):
            shown.append(part)
        elif shown_text(part):
            shown.append({name: part[name] for name in _SHOWN if name in part})
    return tuple(shown)
