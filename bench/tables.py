"""Tables that can be shown in a terminal and written as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import rich.table
from rich import box
from rich.console import Console


@dataclass(slots=True)
class Table:
    """Rows of text under a title; the first column names what the row is about."""

    title: str
    headers: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    note: str = ""

    def add(self, *cells: str) -> None:
        """Append a row."""
        self.rows.append(cells)

    def show(self, console: Console) -> None:
        """Print it."""
        table = rich.table.Table(
            title=self.title, caption=self.note or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold"
        )
        for place, header in enumerate(self.headers):
            table.add_column(header, justify="right" if place else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [f"### {self.title}", "", _line(self.headers)]
        lines.append(_line(["---", *("---:" for _ in self.headers[1:])]))
        lines += [_line(row) for row in self.rows]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def per_second(rate: float) -> str:
    """A rate, to three places that mean something."""
    if math.isnan(rate):
        return "–"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def milliseconds(seconds: float) -> str:
    """A short time."""
    if math.isnan(seconds):
        return "–"
    return f"{seconds * 1e3:,.0f}" if seconds >= 1 else f"{seconds * 1e3:.3g}"


def times(ratio: float) -> str:
    """How many times as much."""
    if math.isnan(ratio):
        return "–"
    return f"{ratio:,.0f} x" if ratio >= 100 else f"{ratio:.1f} x" if ratio >= 10 else f"{ratio:.2f} x"


def exponent(value: float) -> str:
    """A growth exponent."""
    return "–" if math.isnan(value) else f"{value:+.2f}"
