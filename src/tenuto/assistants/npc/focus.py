"""What a character and its visitor are talking about, as the session keeps it between two questions."""

from __future__ import annotations

from typing import Final

from tenuto.model.talk import ToolContext
from tenuto.model.values import JsonObject, Value

MOST_EVIDENCE: Final = 12
"""So many pieces are kept of what was told."""


class Focus(Value, frozen=True, kw_only=True):
    """What a character and its visitor were talking about."""

    rule: int | None = None
    listed: bool = False
    evidence: tuple[str, ...] = ()


def focus_of(turn: ToolContext) -> Focus:
    """What this character and its visitor were talking about; anybody may have written the state, so it is checked."""
    kept = turn.state.get(turn.persona or "")
    if not isinstance(kept, dict):
        return Focus()
    rule, listed, evidence = kept.get("rule"), kept.get("listed"), kept.get("evidence")
    return Focus(
        rule=rule if type(rule) is int else None,
        listed=listed is True,
        evidence=tuple(map(str, evidence[:MOST_EVIDENCE])) if isinstance(evidence, list) else (),
    )


def kept(turn: ToolContext, focus: Focus) -> JsonObject:
    """The focus as the session keeps it, apart for each character."""
    return {turn.persona or "": {"rule": focus.rule, "listed": focus.listed, "evidence": list(focus.evidence)}}
