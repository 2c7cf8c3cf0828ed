"""Numbers as bars: what a prompt's budget went to, when a turn's steps took place, and columns of tables."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import typer

from tenuto.model.prompt import Kind, Manifest
from tenuto.model.values import Value

_NARROWEST: Final = 20
_WIDEST: Final = 100
_FREE: Final = "free"
_REPLY: Final = "reply"
# Each part's colour, and the letter that stands for it where there are no colours.
_LOOKS: Final[Mapping[str, tuple[str, str]]] = {
    Kind.SYSTEM: ("blue", "s"),
    Kind.PREFERENCES: ("cyan", "p"),
    Kind.SUMMARY: ("magenta", "u"),
    Kind.MEMORY: ("bright_magenta", "m"),
    Kind.EVIDENCE: ("yellow", "e"),
    Kind.CHAT_CONTEXT: ("bright_yellow", "c"),
    Kind.MESSAGE: ("green", "t"),
    Kind.QUESTION: ("bright_green", "q"),
    Kind.TOOLS: ("bright_blue", "o"),
    Kind.FRAME: ("white", "f"),
    _FREE: ("", "."),
    _REPLY: ("bright_black", "r"),
}


class Stretch(Value, frozen=True, kw_only=True):
    """A part of a bar: what it is called, and how much of the whole it is."""

    name: str
    amount: float


def cells(amounts: Sequence[float], width: int) -> list[int]:
    """How many cells of a bar each amount gets: together `width`, and at least one for what is more than nothing.

    Where the amounts above zero are more than the cells, the first ones get one each.
    """
    some = [place for place, amount in enumerate(amounts) if amount > 0]
    widths = [0] * len(amounts)
    if not some or width <= 0:
        return widths
    for place in some[:width]:
        widths[place] = 1
    left, total = width - min(len(some), width), sum(amounts[place] for place in some)
    shares = {place: amounts[place] / total * width - 1 for place in some}
    # What each would get beyond its first cell, scaled to what is left, then the largest remainders.
    wanting = sum(share for share in shares.values() if share > 0)
    exact = {place: max(share, 0) / wanting * left if wanting > 0 else 0.0 for place, share in shares.items()}
    for place, share in exact.items():
        widths[place] += int(share)
    rest = max(width - sum(widths), 0)
    for place in sorted(exact, key=lambda place: exact[place] % 1, reverse=True)[:rest]:
        widths[place] += 1
    return widths


def stretches(manifest: Manifest) -> list[Stretch]:
    """The budget's parts, in the prompt's order: what each kind took, what is free, what the reply may take.

    Counts of a tokenizer we do not have are taken with their margin, as the budget takes them.
    """
    tokens_by_kind: dict[str, float] = {}
    for entry in manifest.entries:
        tokens_by_kind[entry.kind] = tokens_by_kind.get(entry.kind, 0) + entry.tokens * manifest.margin
    free = max(manifest.budget - manifest.reply_tokens - sum(tokens_by_kind.values()), 0)
    parts = {**tokens_by_kind, _FREE: free, _REPLY: manifest.reply_tokens}
    return [Stretch(name=name, amount=amount) for name, amount in parts.items() if amount > 0]


def budget_bar(manifest: Manifest, *, width: int, coloured: bool) -> str:
    """The budget as one line, and below it what its colours or letters mean."""
    parts = stretches(manifest)
    shares = cells([part.amount for part in parts], width)
    line = "".join(_paint(part.name, share, coloured) for part, share in zip(parts, shares, strict=True))
    legend = "  ".join(f"{_paint(part.name, 1, coloured)} {part.name} {round(part.amount):,}" for part in parts)
    return f"[{line}]\n{legend}"


def _paint(name: str, count: int, coloured: bool) -> str:
    colour, letter = _LOOKS[name]
    if not coloured:
        return letter * count
    return typer.style(" " * count, bg=colour) if colour else typer.style("·" * count, dim=True)


def timeline(steps: Mapping[str, float], *, width: int) -> list[str]:
    """Steps below each other, each bar beginning where the one before it ended."""
    shares = cells(list(steps.values()), width)
    longest = max((len(name) for name in steps), default=0)
    lines, offset = [], 0
    for (name, milliseconds), share in zip(steps.items(), shares, strict=True):
        bar = " " * offset + "█" * share
        lines.append(f"{name:<{longest}}  {bar:<{width}}  {milliseconds:>10,.1f} ms")
        offset += share
    return lines


def bars(amounts: Sequence[float], *, width: int) -> list[str]:
    """A bar for each amount, the greatest `width` long; what is more than nothing has one cell at least."""
    most = max(amounts, default=0)
    return ["█" * max(round(amount / most * width), 1) if amount > 0 else "" for amount in amounts]


def bar_width(beside: int = 2) -> int:
    """How many cells the terminal has for a bar with so much beside it."""
    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size((80, 24)).columns - beside))


def has_colours() -> bool:
    """Whether the reader of standard output sees colours, and wants to (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
