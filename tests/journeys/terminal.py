"""The command `tenuto`: as a process behind a pseudo-terminal or through pipes, and typed in this process."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from typer.testing import CliRunner

from tenuto.cli import program
from tests.warm_start import open_program

# A session leader makes the terminal its own, so that Ctrl-C becomes a signal as at a real one.
_BEHIND_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from tenuto.cli import main
main()
"""
CTRL_C, CTRL_D, CTRL_P, ENTER = "\x03", "\x04", "\x10", "\r"
# Longer than a machine stands still: a second Ctrl-C while the first is being answered ends more than it should.
_AGAIN_SECONDS = 12.0
_TIMEOUT_SECONDS = 60


class Screen:
    """What a person at the terminal types and sees."""

    def __init__(self, folder: Path, *args: str, env: Mapping[str, str]) -> None:
        self._keyboard, its_end = os.openpty()
        self.process = open_program(
            "-c",
            _BEHIND_A_TERMINAL,
            *args,
            cwd=folder,
            env={**env, "TERM": "dumb"},
            stdin=its_end,
            stdout=its_end,
            stderr=its_end,
            start_new_session=True,
        )
        os.close(its_end)
        # A read may end in the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._unread = ""
        self.seen = ""

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._keyboard, keys.encode())

    def say(self, line: str, *answers: str) -> None:
        """Type a line at the prompt, and wait for these texts, one after the other."""
        self.see("> ")
        self.press(line + ENTER)
        for text in answers:
            self.see(text)

    def interrupt(self) -> None:
        """Press Ctrl-C until a new prompt is there.

        Python's line editor does not notice a signal in the moment before it begins to wait for keys (the flag is set,
        the wait goes on); people then press again, and so do we.
        """
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while "> " not in self._unread and time.monotonic() < deadline:
            self.press(CTRL_C)
            again = time.monotonic() + _AGAIN_SECONDS
            while "> " not in self._unread and time.monotonic() < again:
                self._unread += self._read(again - time.monotonic())
        self.see("> ")

    def leave(self) -> int:
        """Press Ctrl-D until the program ends, and tell the exit code: a Ctrl-C that came late takes keys with it."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                self.press(CTRL_D)
            self._read(_AGAIN_SECONDS)
        return self.end()

    def see(self, text: str) -> str:
        """Wait until the text is there, and tell what came before it since the last look."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while text not in self._unread:
            more = self._read(deadline - time.monotonic())
            assert more, f"{text!r} did not come; what did: {self.seen[-2000:]!r}"
            self._unread += more
        before, _, self._unread = self._unread.partition(text)
        return before

    def end(self) -> int:
        """Read to the end, and tell the exit code."""
        while self._read(_TIMEOUT_SECONDS):
            pass
        return self.process.wait(_TIMEOUT_SECONDS)

    def _read(self, seconds: float) -> str:
        """What comes within so many seconds; nothing when the other end is closed."""
        deadline, text = time.monotonic() + seconds, ""
        while not text:
            ready, _, _ = select.select([self._keyboard], [], [], max(deadline - time.monotonic(), 0))
            try:
                raw = os.read(self._keyboard, 65536) if ready else b""
            except OSError:
                # How Linux says that the other end is closed.
                raw = b""
            if not raw:
                break
            # Of a character that has only half come, nothing is told yet.
            text = self._decoder.decode(raw)
        self.seen += text
        return text

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._keyboard)


def own_settings(**given: str) -> dict[str, str]:
    """An environment for a process of ours, with these settings and none of this process.

    Unless asked, without the local embedder: its weights cost two seconds of each process, and few journeys search by
    meaning.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TENUTO_", "MEMORY_"))}
    # The last two are those of a worker of xdist, which are no terminal of ours.
    for name in ("PORT", "REDIS_URL", "OPENAI_API_KEY", "NO_COLOR", "COLUMNS", "LINES"):
        kept.pop(name, None)
    return {**kept, "TENUTO_EMBEDDER": "none", **given}


class Shell:
    """A folder with nothing in it, and `tenuto` to type, of whose settings none come from this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = own_settings(COLUMNS="150", LINES="50")

    def sit_down(self, *args: str) -> Screen:
        """`tenuto chat`, with a keyboard."""
        return Screen(self.folder, "chat", *args, env=self.env)

    def start(self, *args: str, **given: Any) -> subprocess.Popen[bytes]:
        """Type a command and do not wait."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return open_program("-m", "tenuto", *args, **{"cwd": self.folder, "env": self.env, **pipes, **given})

    def run(
        self, *args: str, words: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Type a command with pipes around it, in this process, which has loaded what a new one would load first."""
        given: dict[str, str | None] = {**dict.fromkeys(os.environ), **self.env, **(env or {})}
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(program, args, input=words, env=given, catch_exceptions=False)
        return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)

    def run_process(self, *args: str, words: bytes = b"") -> subprocess.CompletedProcess[str]:
        """The same as a process of its own; a traceback is never an answer."""
        with self.start(*args, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(words, timeout=120)
        assert b"Traceback" not in err, err.decode()
        return subprocess.CompletedProcess(args, process.returncode, out.decode(), err.decode())

    def ask(self, *args: str) -> Any:
        """What a command answers as JSON."""
        done = self.run(*args, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def texts(self) -> list[str]:
        """What is stored of the only session."""
        (session,) = self.ask("sessions", "list")["sessions"]
        return [message["text"] for message in self.ask("sessions", "show", session["id"])["messages"]]


@contextmanager
def running_command(shell: Shell, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end, if it still runs."""
    with shell.start(*args) as process:
        try:
            yield process
        finally:
            process.kill()


def await_log_line(process: subprocess.Popen[bytes], pattern: str) -> str:
    """The first line of a process's log that fits."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line.decode())
        if re.search(pattern, seen[-1]):
            return seen[-1]
    raise AssertionError("".join(seen))
