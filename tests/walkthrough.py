"""Pages that are followed from the first line to the last: files are written and commands typed as a reader does it.

A fenced block with a title is a file of that name. A block `sh` is typed into one bash, which lives as long as the
page: variables, the folder and jobs in the background are those of the reader's terminal. A block `text` directly below
is what its commands print, and `…` in it is any text. No block has comments: an interactive zsh takes `#` for a word.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(
    r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?', re.DOTALL | re.MULTILINE
)
_DOCS: Final = Path(__file__).parents[1] / "docs"
# The pages that are followed; `test_walkthroughs.py` does it.
FOLLOWED: Final = tuple(
    _DOCS / page
    for page in (
        "start/tutorial.md",
        "how-to/fastapi.md",
        "how-to/from-mem0.md",
        "how-to/from-redis-lists.md",
        "how-to/local-models.md",
    )
)
# What makes the environment that the tests run in already.
SET_UP: Final = frozenset({".", "git", "make", "pip", "python3"})


@dataclass(frozen=True)
class File:
    """A file that the reader writes."""

    name: str
    text: str


@dataclass(frozen=True)
class Commands:
    """Commands that the reader types, and what they print together if the page says so."""

    texts: tuple[str, ...]
    output: str | None = None


def steps(page: str) -> Iterator[File | Commands]:
    """What a reader of the page does, in order."""
    for language, title, text, output in _BLOCK.findall(page):
        if title:
            yield File(title, text)
        elif language == "sh":
            yield Commands(tuple(_commands(text)), output.strip() or None)


def _commands(block: str) -> Iterator[str]:
    begun = ""
    for line in block.splitlines():
        begun = f"{begun}\n{line}" if begun else line.strip()
        if begun and _is_whole(begun):
            yield begun
            begun = ""
    assert not begun, f"the command does not end: {begun}"


def _is_whole(command: str) -> bool:
    """Whether a shell would run it, or wait for its next line."""
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    here = re.search(r"<<'?(\w+)'?", command)
    return not command.endswith("\\") and (here is None or command.endswith(f"\n{here[1]}")) and bool(words)


def walk(page: str, folder: Path, *, replacing: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Follow a page in an empty folder; `replacing` has this machine's addresses for those of the page.

    Raises:
        AssertionError: a command fails, or prints something else than the page says.
    """
    assert _DOCS / page in FOLLOWED
    text = (_DOCS / page).read_text()
    for shown, real in replacing.items():
        text = text.replace(shown, real)
    with _Terminal(folder, environ) as terminal:
        for step in steps(text):
            if isinstance(step, File):
                file = terminal.folder / step.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(step.text)
            else:
                terminal.follow(step)


class _Terminal:
    """One bash in a session of its own, which ends with all that was started in it."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder, self._out, self._err = folder, folder / ".out", folder / ".err"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder, env={**environ, "PATH": path, "HOME": str(folder)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> _Terminal:
        return self

    def __exit__(self, *raised: object) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()

    def follow(self, commands: Commands) -> None:
        """Type what is not set up yet, and compare what is printed."""
        texts = [text for text in commands.texts if shlex.split(text)[0] not in SET_UP]
        printed = "\n".join(filter(None, map(self._type, texts)))
        if commands.output is not None:
            expected = ".*".join(re.escape(part) for part in commands.output.split("…"))
            matches = re.fullmatch(expected, printed, re.DOTALL)
            assert matches, f"{texts}\nprinted\n{printed}\nand not\n{commands.output}"

    def _type(self, command: str) -> str:
        """Run a command to its end; what it prints."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        streams = f"</dev/null >{shlex.quote(str(self._out))} 2>{shlex.quote(str(self._err))}"
        self._bash.stdin.write(f"{{ {command}\n}} {streams}; echo $? $PWD\n")
        self._bash.stdin.flush()
        code, _, place = self._bash.stdout.readline().strip().partition(" ")
        self.folder, printed = Path(place), self._out.read_text().strip()
        assert code == "0", f"{command}\nended with {code}: {printed}\n{self._err.read_text()}"
        return printed
