"""An operator's day at the terminal, on a SQLite file."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.model import Changes, Draft, Role, text_part, tool_call
from tenuto.ports import utc_now
from tests.journeys.terminal import Shell

EVIL = "\x1b]0;owned\x07\x9b31m \u202etxt"


@pytest.fixture
async def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session of Ann's with a tool call, a hostile text, and a title that would like to own the desk."""
    monkeypatch.chdir(tmp_path)
    async with tenuto.open() as app:
        ann = app.scope(user="ann")
        turn = await app.begin(ann, f"Where is the <!-- tenuto --> museum? {EVIL}")
        parts = (text_part("Let me see.\nOne moment, 你好"), tool_call("c1", "map", {"q": "museum", "n": 1.0}))
        reply = Draft(
            id="reply-1", role=Role.ASSISTANT, sent_at=utc_now(), parts=parts, extra={"x-model": [None, 2**60]}
        )
        await app.finish(turn, [reply], tokens=21, cost_nanos=1_250)
        changes = Changes(title=f"Museum {EVIL}", attributes={"language": "en"}, context={"city": "Ulm"})
        await app.sessions.patch(ann, turn.session.id, changes)
        return turn.session.id


def substance(shell: Shell, session_id: str) -> Any:
    """What an export must bring back: everything but ids, owner, bookkeeping of the head, and missing counts."""
    shown = shell.ask("sessions", "show", session_id)
    head = {name: shown["session"][name] for name in ("title", "attributes", "context", "tokens", "cost_usd", "turns")}
    return head, [{**message, "tokens": 0} for message in shown["messages"]]


@pytest.mark.requirement("T18")
def test_looking_around(shell: Shell, talk: str) -> None:
    """What users wrote is shown and steers nothing."""
    listed = shell.run_process("sessions", "list")
    shown = shell.run("sessions", "show", talk)

    assert listed.returncode == shown.returncode == 0
    assert talk in listed.stdout
    assert "Let me see.\nOne moment, 你好" in shown.stdout
    assert '[tool_call] {"type":"tool_call"' in shown.stdout
    for output in (listed.stdout, shown.stdout, shell.run("sessions", "list", "--json").stdout):
        assert not set(output) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert shell.ask("sessions", "list", "--user", "ann")["sessions"][0]["title"] == f"Museum {EVIL}"


@pytest.mark.parametrize("written_as", ["json", "jsonl", "markdown"])
def test_an_export_comes_back_equal(shell: Shell, talk: str, written_as: str) -> None:
    exported = shell.run("sessions", "export", talk, "--format", written_as)
    (shell.folder / "saved").write_text(exported.stdout)

    from_stdin = shell.run("sessions", "import", "-", "--user", "ann", "--json", words=exported.stdout.encode())
    from_file = shell.ask("sessions", "import", "saved", "--user", "ann")

    again = json.loads(from_stdin.stdout)["imported"][0]["session"]["id"]
    assert len({again, from_file["imported"][0]["session"]["id"], talk}) == 3
    assert substance(shell, again) == substance(shell, talk)


def test_reset_then_delete(shell: Shell, talk: str) -> None:
    reset = shell.run("sessions", "reset", talk)
    emptied = shell.ask("sessions", "show", talk)
    unasked = shell.run("sessions", "delete", talk)
    deleted = shell.run("sessions", "delete", talk, "--yes")
    gone = shell.run("sessions", "show", talk)

    assert reset.returncode == 0
    assert (emptied["messages"], emptied["session"]["tokens"]) == ([], 21)
    assert unasked.returncode == 2
    assert deleted.stdout == f"Deleted {talk}.\n"
    assert (gone.returncode, gone.stdout, gone.stderr) == (1, "", "session_not_found: session not found\n")


def test_a_reader_that_goes_away_is_no_failure_to_talk_about(shell: Shell, talk: str) -> None:
    """`tenuto sessions export ... | head -c 10`, where the export is larger than a pipe holds."""
    words = json.dumps({"role": "user", "text": "long " * 40_000})
    head = '{"format": "tenuto.session", "version": 1, "session": {}}'
    made = shell.run("sessions", "import", "-", "--json", words=f"{head}\n{words}\n".encode())
    session_id = json.loads(made.stdout)["imported"][0]["session"]["id"]

    with shell.start("sessions", "export", session_id) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == b'{"format":'
        process.stdout.close()
        complaint = process.stderr.read()

    assert complaint == b""


def test_an_export_onto_a_terminal_steers_nothing(shell: Shell, talk: str) -> None:
    """Markdown is read on terminals, so no escape sequence is in it, wherever it goes; JSON keeps every byte."""
    screen, its_end = os.openpty()

    with shell.start("sessions", "export", talk, "--format", "markdown", stdout=its_end):
        os.close(its_end)
        # A terminal hands on what was written piece by piece, and an error once the other end is closed.
        pieces: list[bytes] = []
        with suppress(OSError):
            pieces += iter(lambda: os.read(screen, 65536), b"")
    shown = b"".join(pieces).decode()
    os.close(screen)

    assert "Let me see." in shown
    piped = shell.run("sessions", "export", talk, "--format", "markdown").stdout
    assert not set(shown + piped) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert EVIL in json.loads(shell.run("sessions", "export", talk).stdout)["messages"][0]["text"]


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 1), (b"y\n", 0, 0)])
def test_deleting_asks_whoever_is_there(shell: Shell, talk: str, answer: bytes, code: int, left: int) -> None:
    keyboard, its_end = os.openpty()
    os.write(keyboard, answer)

    with shell.start("sessions", "delete", talk, stdin=its_end) as process:
        _, err = process.communicate(timeout=120)
    os.close(its_end)
    os.close(keyboard)

    assert process.returncode == code
    assert f"Delete {talk} permanently?" in err.decode()
    assert len(shell.ask("sessions", "list")["sessions"]) == left


def test_ctrl_c_ends_without_words(shell: Shell) -> None:
    fifo = shell.folder / "slow.json"
    os.mkfifo(fifo)

    # Opening the other end waits until the command reads.
    with shell.start("sessions", "import", "slow.json") as process, fifo.open("wb"):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)

    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("sessions", "list"), 1, "invalid_setting: store: there is no file "),
        (("sessions", "list", "--store", "file:///x"), 1, "invalid_setting: store: no backend is called 'file'"),
        (("sessions", "import", "absent.json"), 1, "invalid: absent.json: cannot read it: No such file"),
        (("sessions", "import", "-"), 1, "invalid_json: -: this is neither a JSON, a JSON Lines nor a Markdown"),
        (("sessions", "show"), 2, "Usage: tenuto sessions show"),
    ],
)
def test_bad_input_ends_with_a_sentence(shell: Shell, args: tuple[str, ...], code: int, says: str) -> None:
    done = shell.run(*args)

    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(says)


def test_the_search_is_switched_off_and_on(shell: Shell, talk: str) -> None:
    def search() -> list[str]:
        return [one["id"] for one in shell.ask("sessions", "search", "museum", "--user", "ann")["sessions"]]

    off = {"TENUTO_SESSION_SEARCH": "off"}
    assert search() == [talk]

    refused = shell.run("sessions", "search", "museum", "--user", "ann", env=off)
    assert (refused.returncode, refused.stderr.startswith("search_off: ")) == (1, True)
    listed = shell.run("sessions", "list", "--search", "museum", "--user", "ann", "--json", env=off)
    assert json.loads(listed.stdout)["sessions"][0]["id"] == talk
    emptied = shell.run("index", env=off)
    assert emptied.stdout == "1 session without words in the index, since session_search is off.\n"
    assert shell.ask("index") == {"session_search": True, "sessions": 1, "left": 0}
    assert search() == [talk]
