"""The system prompt of one agent among several: its role, the task's goal, what others found, the user's style."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tenuto.context.cutting import cut
from tenuto.context.tokens import Counter, as_text
from tenuto.context.wording import wording
from tenuto.model.prompt import Language
from tenuto.model.values import Json

# Who wrote a value and when stand beside it under such names; they are nobody's business in a prompt.
_META: Final = ".__"
STYLE_KEY: Final = "response_style"


def agent_system(
    role: str,
    goal: str,
    shared: Mapping[str, Json],
    counter: Counter,
    style: str | None = None,
    value_tokens: int = 500,
    language: Language = Language.CHINESE,
) -> str:
    """The system prompt of an agent; values of the shared board longer than `value_tokens` are cut visibly."""
    words = wording(language)
    lines = [words.role.format(role=role), words.goal.format(goal=goal)]
    entries = [(key, value) for key, value in shared.items() if _META not in key]
    if entries:
        lines.append(words.shared)
        lines += [f"- {key}: {cut(as_text(value), value_tokens, counter.count)}\n" for key, value in entries]
        lines.append("\n")
    if style:
        lines.append(f"{words.style}{style}\n")
    return "".join(lines)


def profile_text(profile: Mapping[str, Json], language: Language) -> str:
    """A user's profile as the prompt's preferences: one line each, in a fixed order, the response style last."""
    words = wording(language)
    known = {key: as_text(value) for key, value in profile.items() if value not in (None, "", [], {})}
    style = known.pop(STYLE_KEY, None)
    lines = [f"- {key}: {known[key]}" for key in sorted(known)]
    return "\n".join([*lines, f"{words.style}{style}"] if style else lines)
