"""Lines from the keyboard, with editing and recall where the terminal can."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer


class Keyboard:
    """Reads lines. What was typed is kept in memory alone: the words themselves are in the store."""

    def __init__(self, prompt: str, commands: Sequence[str]) -> None:
        self._prompt = prompt
        self._commands = tuple(commands)
        # Where standard output goes elsewhere, the prompt must not go along.
        self._on_stderr = not sys.stdout.isatty()
        try:
            import readline
        except ImportError:
            # Some builds of Python come without; lines can be read all the same.
            self._readline = None
            return
        self._readline = readline
        readline.clear_history()
        readline.set_completer(self._complete)
        readline.set_completer_delims("")
        # GNU's readline and the one of macOS say it differently.
        readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")

    def line(self) -> str | None:
        """The next line that says something; `None` when there will be no more. Ctrl-C empties the line."""
        while True:
            try:
                line = self._read_input().strip()
            except KeyboardInterrupt:
                typer.echo(err=self._on_stderr)
                continue
            except EOFError:
                typer.echo(err=self._on_stderr)
                return None
            if line:
                return line

    def remember(self, line: str) -> None:
        """Let these be recalled as if they had been typed."""
        if self._readline is not None:
            self._readline.add_history(line)

    def _read_input(self) -> str:
        if not self._on_stderr:
            return input(self._prompt)
        typer.echo(self._prompt, nl=False, err=True)
        return input()

    def _complete(self, prefix: str, number: int) -> str | None:
        matches = [command for command in self._commands if prefix.startswith("/") and command.startswith(prefix)]
        return matches[number] if number < len(matches) else None
