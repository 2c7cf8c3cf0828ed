"""Command lines of `tenuto` that stand in files and pages: parsed as the program parses them, and not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.main import get_command

from tenuto.cli.program import program


def check_command(words: Sequence[str]) -> None:
    """Parse the words after `tenuto`.

    Raises:
        Exception: typer's own, where there is no such command or option, or an argument is missing.
    """
    command: Any = get_command(program)
    name, rest, parent = "tenuto", list(words), None
    while hasattr(command, "resolve_command"):
        parent = command.make_context(name, [], parent=parent, resilient_parsing=True)
        if rest and rest[0].startswith("-"):
            known = {option for parameter in command.get_params(parent) for option in parameter.opts}
            assert rest[0] in known, f"{name} has no option {rest[0]}"
            return
        name, command, rest = command.resolve_command(parent, rest)
    command.make_context(name, rest, parent=parent)
