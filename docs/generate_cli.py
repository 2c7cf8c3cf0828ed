"""Writes the list of commands in `reference/cli.md` out of the program, below a mark; above it people write.

Run it after a change of the command line: `python docs/generate_cli.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from tenuto.cli import program

PAGE: Final = Path(__file__).parent / "reference" / "cli.md"
_MARK: Final = "<!-- Written by docs/generate_cli.py from here on; do not edit. -->\n"
# This command has the options that many share, and no others. They stand in a table of their own.
_SHARING: Final = "stats"


def render_page(page: str) -> str:
    """The page with the commands of the program."""
    root: Any = get_command(program)
    context = _context(root, "tenuto")
    shared = _records(root.get_command(context, _SHARING), _SHARING)
    listed = "".join(_sections(root, "tenuto", shared))
    return f"{page.split(_MARK)[0]}{_MARK}\n{_table(shared)}{listed}"


# What typer makes of functions has no public type.
def _context(command: Any, name: str) -> Any:
    return command.make_context(name, [], resilient_parsing=True)


def _sections(command: Any, name: str, shared: dict[str, str]) -> Iterator[str]:
    """A command, or all that a group has."""
    if not hasattr(command, "commands"):
        yield _section(command, name, shared)
        return
    context = _context(command, name)
    for each in command.list_commands(context):
        yield from _sections(command.get_command(context, each), f"{name} {each}", shared)


def _section(command: Any, name: str, shared: dict[str, str]) -> str:
    pieces = [piece for piece in command.collect_usage_pieces(_context(command, name)) if piece != "[OPTIONS]"]
    usage = " ".join([name, *pieces]).translate({ord("{"): None, ord("}"): None})
    records = _records(command, name)
    own = {option: told for option, told in records.items() if shared.get(option) != told}
    also = [f"`{option.split()[0]}`" for option in records if option not in own]
    said = re.sub(r"(?<!\n)\n(?!\n)", " ", cleandoc(command.help))
    parts = [f"### `{usage}`", said]
    parts += [_table(own).strip()] if own else []
    parts += [f"Also {', '.join(also)}."] if also else []
    return "\n" + "\n\n".join(parts) + "\n"


def _records(command: Any, name: str) -> dict[str, str]:
    """Arguments and options with their help, as `--help` shows them; without `--help` itself."""
    context = _context(command, name)
    records = [param.get_help_record(context) for param in command.get_params(context)]
    return {shown: told for shown, told in filter(None, records) if shown != "--help"}


def _table(records: dict[str, str]) -> str:
    rows = [f"| `{_cell(name)}` | {_cell(told)} |" for name, told in records.items()]
    return "\n".join(["| option | meaning |", "|---|---|", *rows, ""])


def _cell(text: str) -> str:
    # `ID <str>` says less than `ID`; a list of choices stays.
    text = re.sub(r" <(str|path|file|list\[str\])>", "", text)
    return re.sub(r" +\[(.*)\]$", r" (\1)", text).replace("|", "\\|").strip()


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text()))
