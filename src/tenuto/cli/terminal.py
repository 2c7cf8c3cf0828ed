"""What reaches the terminal: tables, JSON documents and lines, all without characters that could steer it.

Titles and messages come from strangers. An escape sequence among them could recolour, rewrite or retitle the reader's
terminal, and a direction mark could make one id look like another, so such characters are shown by their number.
"""

from __future__ import annotations

import getpass
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypeVar

import msgspec
import typer

from tenuto.errors import AssistantMissing, ModelFailed, TenutoError
from tenuto.extras import with_folder
from tenuto.model.values import Json

# Controls of ASCII and Latin-1, line and paragraph separators, marks of direction, halves of surrogate pairs.
_STEERING: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ANYWHERE: Final = re.compile(f"[{_STEERING}]")
_WITHIN_LINES: Final = re.compile(f"(?![\n\t])[{_STEERING}]")
_WIDTH_OF_A_PIPE: Final = 160
_GAP: Final = 2
# Room for our ids and for most others; a longer one is cut here and whole in JSON.
_WIDEST_COLUMN: Final = 64
_NARROWEST_COLUMN: Final = 6
# What a flexible column should keep before ids are shown by their ends.
_READABLE_COLUMN: Final = 24
_HEX: Final = "[0-9a-f]"
MADE_ID: Final = re.compile(
    rf"(?:[a-z]+[-_])?(?:{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}|{_HEX}{{16}}|{_HEX}{{24}}|{_HEX}{{32}})"
)
"""An id as tenuto makes them: a UUID, or a hash behind a prefix; callers choose others."""

_Item = TypeVar("_Item")


def visible(text: str, *, lines: bool = False) -> str:
    """Text with every steering character shown as `\\x1b` or `\\u202e`; `lines` keeps line breaks and tabs."""
    return (_WITHIN_LINES if lines else _ANYWHERE).sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def describe_error(error: TenutoError) -> str:
    """The code of an error and its cause, with what a model's provider said itself, as far as it is about access."""
    if isinstance(error, AssistantMissing):
        return visible(f"{error.code}: {error.what} cannot be loaded: {error.cause}")
    note = error.provider_message if isinstance(error, ModelFailed) else ""
    return visible(f"{error.code}: {with_folder(str(error))}" + (f"; the provider says: {note}" if note else ""))


def safe_json(text: str) -> str:
    """The same JSON with steering characters as escapes; layout stays."""
    return _WITHIN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def show_json(document: Json) -> None:
    """Print one JSON document."""
    typer.echo(safe_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()))


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    flexible: str | tuple[str, ...],
    numbers: Sequence[str] = (),
    ids: str = "",
) -> None:
    """Print rows under their headings, `numbers` to the right. `flexible` columns give way where room is short.

    At a terminal that is too narrow for that, the column `ids` shows the ends of ids that tenuto made.
    """
    # rich takes a tenth of a second to import, which JSON output and help need not pay.
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=shutil.get_terminal_size((_WIDTH_OF_A_PIPE, 50)).columns)
    cells = [[visible(cell) for cell in row] for row in rows]
    flexible = (flexible,) if isinstance(flexible, str) else flexible
    if ids and sys.stdout.isatty() and console.width < _wanted_width(columns, cells, flexible):
        place = columns.index(ids)
        for row in cells:
            row[place] = f"…{row[place][-8:]}" if MADE_ID.fullmatch(row[place]) else row[place]
    widths = [
        min(max(cell_len(cell) for cell in column), _WIDEST_COLUMN) for column in zip(columns, *cells, strict=True)
    ]
    gaps = _GAP * (len(columns) - 1)
    places = [columns.index(name) for name in flexible]
    for _ in range(sum(widths) + gaps - console.width):
        widest = max(places, key=widths.__getitem__)
        widths[widest] = max(widths[widest] - 1, min(widths[widest], _NARROWEST_COLUMN))
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", width=sum(widths) + gaps)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, justify="right" if column in numbers else "left", width=width, no_wrap=True)
    for row in cells:
        table.add_row(*map(Text, row))
    with console.capture() as capture:
        console.print(table, crop=False)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _wanted_width(columns: Sequence[str], cells: Sequence[Sequence[str]], flexible: Sequence[str]) -> int:
    """The width at which every flexible column can be read."""
    from rich.cells import cell_len

    return (
        sum(
            min(max(map(cell_len, column)), _READABLE_COLUMN if column[0] in flexible else _WIDEST_COLUMN) + _GAP
            for column in zip(columns, *cells, strict=True)
        )
        - _GAP
    )


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one per line."""
    pairs = list(facts)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        typer.echo(f"{name:<{width}}  {visible(value)}")


@contextmanager
def progress(items: Sequence[_Item], doing: str, *, quiet: bool) -> Iterator[Iterable[_Item]]:
    """The items, with a bar on stderr on an interactive terminal, if there are several."""
    with advancing(len(items), doing, quiet=quiet or len(items) < 2) as advance:
        yield _count(items, advance)


def _count(items: Iterable[_Item], advance: Callable[[int], None]) -> Iterator[_Item]:
    for number, item in enumerate(items, start=1):
        yield item
        advance(number)


def is_watched(quiet: bool) -> bool:
    """Whether to draw a progress bar."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def advancing(total: int | None, doing: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A callback that takes the count so far and draws a bar on stderr of an interactive terminal."""
    if not is_watched(quiet):
        yield lambda _: None
        return
    # See show_table.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda count: bar.update(task, completed=count)


def moment(at: datetime | None) -> str:
    """A time for the reader, in UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ") if at else "never"


def age(at: datetime, now: datetime) -> str:
    """How long ago: `5s`, `12m`, `3h`, `40d`."""
    seconds = max(int((now - at).total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def pluralize(number: int, word: str) -> str:
    """`1 message`, `2 messages`, `12,000 messages`, `2 memories`, `2 keys`."""
    many = f"{word[:-1]}ies" if word.endswith("y") and word[-2] not in "aeiou" else f"{word}s"
    return f"{number:,} {word if number == 1 else many}"


def tally(counts: Mapping[str, int]) -> str:
    """`2 EMAIL, 1 PHONE`."""
    return ", ".join(f"{many:,} {name}" for name, many in sorted(counts.items()))


@contextmanager
def without_warnings(*names: str) -> Iterator[None]:
    """Keep warnings of these loggers off the terminal: what the command shows says what failed, and why."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def operator_name() -> str:
    """Who sits at this terminal, as the machine knows them."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        # A container's user may have a number and no name.
        return f"cli:{os.getuid()}"
