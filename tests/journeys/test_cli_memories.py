"""A person looks at what is remembered of them, changes and forgets it in the terminal; an operator audits it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

import tenuto
from tenuto import Tenuto
from tenuto.app import open_app
from tenuto.cli import conversation, running
from tenuto.model.memory import Memory, MemoryKind, MemorySource
from tenuto.recall.embedding import CachedEmbedder
from tenuto.settings import Settings
from tenuto.upkeep import standing_instructions
from tests.journeys.cli_runs import run_command, run_json
from tests.journeys.terminal import Screen, Shell

pytestmark = [pytest.mark.requirement("C13"), pytest.mark.usefixtures("own_environment")]

EVIL = "\x1b]0;owned\x07 \u202etxt"
HOME = "I live in Bologna with my two cats."
SAID = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEVER = datetime(2999, 1, 1, tzinfo=UTC)


def memory(number: int, text: str, **fields: object) -> Memory:
    given = {"kind": MemoryKind.FACT, "source": MemorySource.QUOTE, "said_at": SAID + timedelta(days=number), **fields}
    return Memory(id=f"m{number}", text=text, **given)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def words_alone(own_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedder's weights take longer to load than these commands."""
    monkeypatch.setenv("TENUTO_EMBEDDER", "none")


@pytest.fixture
def remembered(words_alone: None) -> None:
    """What Ann said in a session, and a preference."""

    async def remember() -> None:
        async with tenuto.open(embedder="none") as app:
            memories, ann = await app.memories(), app.scope(user="ann")
            await memories.remember(
                ann,
                (
                    memory(1, HOME, session_id="talk", seqs=(1,)),
                    memory(2, f"My dog is called {EVIL} Rex.", session_id="talk", seqs=(3,)),
                    memory(3, "Answer in Italian.", kind=MemoryKind.PREFERENCE, source=MemorySource.WRITTEN),
                ),
            )

    asyncio.run(remember())


@pytest.mark.usefixtures("remembered")
def test_memories_are_listed_newest_first() -> None:
    table = run_command("memories", "list", "--user", "ann").stdout
    answer = run_json("memories", "list", "--user", "ann")

    lines = table.splitlines()
    assert lines[0].split() == ["ID", "KIND", "SAID", "MENTIONS", "TEXT"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["m3", "preference", "2026-03-04", "1"], ["m2", "fact", "2026-03-03", "1"], ["m1", "fact", "2026-03-02", "1"],
    ]  # fmt: skip
    assert [one["id"] for one in answer["memories"]] == ["m3", "m2", "m1"]
    assert answer["cursor"] is None
    assert not {"\x1b", "\x07", "\u202e"} & set(table)
    assert [one["id"] for one in run_json("memories", "list", "--user", "ann", "--kind", "fact")["memories"]] == [
        "m2", "m1",
    ]  # fmt: skip
    assert run_command("memories", "list", "--user", "bob").stdout == "No memories.\n"


@pytest.mark.usefixtures("remembered")
def test_a_long_listing_tells_how_to_go_on() -> None:
    first = run_json("memories", "list", "--user", "ann", "--limit", "2")
    page = run_command("memories", "list", "--user", "ann", "--limit", "2").stdout
    rest = run_json("memories", "list", "--user", "ann", "--cursor", first["cursor"])

    assert page.splitlines()[-1] == f"2 memories shown, and there may be more: --cursor {first['cursor']}"
    assert [one["id"] for one in rest["memories"]] == ["m1"]


@pytest.mark.usefixtures("remembered")
def test_a_search_shows_why_each_was_found() -> None:
    page = run_command("memories", "search", "live in Bologna", "--user", "ann", "--limit", "1").stdout
    (hit,) = run_json("memories", "search", "live in Bologna", "--user", "ann", "--limit", "1", "--mmr-lambda", "1")[
        "hits"
    ]
    empty = run_command("memories", "search", "Bologna", "--user", "bob")

    text, where, why = page.splitlines()
    assert text == f"1. {HOME}"
    assert where.split(" · ") == ["   fact", "said 2026-03-02", "session talk", "id m1"]
    assert why.split()[:4] == ["score", f"{hit['score']:.2f}", "=", "words"]
    assert f"{hit['scores']['lexical']:.2f}" in why
    assert "meaning 0.00 + session 0.08  shared: live, Bologna" in why
    assert (hit["memory"]["id"], hit["memory"]["seqs"]) == ("m1", [1])
    assert (empty.stdout, empty.exit_code) == ("Nothing was found.\n", 0)


def test_a_memory_is_added_changed_and_superseded() -> None:
    added = run_json("memories", "add", "I work at Ducati.", "--subject", "employer", "--user", "ann")
    stdout = run_command("memories", "add", "I work at Ducati.", "--subject", "employer", "--user", "ann").stdout
    edited = run_json("memories", "edit", added["id"], "--text", "I work at Ferrari.", "--user", "ann")
    later = run_json("memories", "add", "I work at Lamborghini.", "--subject", "employer", "--user", "ann")
    table = run_command("memories", "list", "--superseded", "--user", "ann").stdout

    assert stdout == f"Remembered as fact {added['id']}, 2 times: I work at Ducati.\n"
    assert (edited["text"], edited["id"]) == ("I work at Ferrari.", added["id"])
    assert table.split()[:6] == ["ID", "KIND", "SAID", "UNTIL", "MENTIONS", "TEXT"]
    assert [line.split()[0] for line in table.splitlines()[1:]] == [later["id"], added["id"]]


@pytest.mark.usefixtures("remembered")
def test_preferences_are_shown_and_set() -> None:
    stdout = run_command("memories", "preferences", "--user", "ann").stdout
    held = run_json(
        "memories", "preferences", "--set", "Answer in Italian.", "--set", "Be brief, please.", "--user", "ann"
    )

    assert "Answer in Italian." in stdout
    assert [(one["text"], one["kind"]) for one in held["preferences"]] == [
        ("Answer in Italian.", "preference"), ("Be brief, please.", "preference"),
    ]  # fmt: skip
    assert run_command("memories", "preferences", "--user", "bob").stdout == "No preferences.\n"


@pytest.mark.usefixtures("remembered")
def test_many_are_forgotten_only_when_it_is_confirmed() -> None:
    unasked = run_command("memories", "forget", "--session", "talk", "--user", "ann")
    blind = run_command("memories", "forget", "--search", "dog", "--yes", "--user", "ann")
    unclear = run_command("memories", "forget", "m1", "--all", "--user", "ann")
    foreign = run_command("memories", "forget", "m1", "--user", "bob")
    one = run_command("memories", "forget", "m3", "--user", "ann")
    output = run_json("memories", "list", "--user", "ann")
    many = run_json("memories", "forget", "--session", "talk", "--yes", "--user", "ann")

    assert (unasked.exit_code, blind.exit_code, unclear.exit_code) == (2, 2, 2)
    assert (foreign.exit_code, foreign.stderr) == (1, "memory_not_found: memory not found\n")
    assert one.stdout == "1 memory forgotten.\n"
    assert [each["id"] for each in output["memories"]] == ["m2", "m1"]
    assert many == {"forgotten": 2}
    assert run_json("memories", "list", "--user", "ann")["memories"] == []


@pytest.mark.usefixtures("remembered")
def test_what_a_search_finds_is_seen_before_it_is_forgotten(shell: Shell) -> None:
    command = ("memories", "forget", "--search", "Bologna", "--limit", "1", "--user", "ann")
    with Screen(shell.folder, *command, env=shell.env) as screen:
        screen.see(HOME)
        screen.see("Forget 1 memory permanently?")
        screen.press("y\r")
        screen.see("1 memory forgotten.")
        assert screen.end() == 0

    assert [one["id"] for one in run_json("memories", "list", "--user", "ann")["memories"]] == ["m3", "m2"]


@pytest.mark.usefixtures("remembered")
def test_an_export_holds_everything_and_nothing_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_PRIVACY_MEMORY", "keep")
    run_command("memories", "add", "Write to me at ann@example.com.", "--user", "ann")
    printed = json.loads(run_command("memories", "export", "--user", "ann").stdout)
    result = run_command("memories", "export", "--user", "ann", "--output", str(tmp_path / "ann.json"))

    assert (printed["format"], printed["version"], len(printed["memories"])) == ("tenuto.memories", 1, 4)
    assert "Write to me at [REDACTED_EMAIL]." in [one["text"] for one in printed["memories"]]
    assert json.loads((tmp_path / "ann.json").read_text()) == printed
    assert result.stdout == f"4 memories written to {tmp_path / 'ann.json'}.\n"


def test_an_audit_counts_junk_and_repetition_of_all_owners_of_a_site() -> None:
    async def remember() -> None:
        async with tenuto.open(embedder="none", memories_without_user=True) as app:
            memories = await app.memories()
            await memories.remember(app.scope(user="ann"), (memory(1, HOME), memory(2, "What is my name?")))
            await memories.remember(
                app.scope(user="bob"),
                (
                    memory(3, "I keep nine brown hens and a loud goose behind the old barn."),
                    memory(4, "I keep nine brown hens and one loud goose behind my old barn!"),
                    memory(5, "The weather is nice."),
                    memory(
                        6, "We talked about hens.", kind=MemoryKind.EPISODE, source=MemorySource.STALE, expires_at=NEVER
                    ),
                    memory(7, "Old news.", expires_at=SAID),
                ),
            )
            await memories.add(app.scope(), "I own this machine.")

    asyncio.run(remember())

    report = run_command("memories", "audit").stdout
    audit = run_json("memories", "audit")
    of_ann = run_json("memories", "audit", "--user", "ann")

    assert (audit["owners"], audit["quotes"], of_ann["owners"], of_ann["quotes"]) == (3, 5, 1, 2)
    assert audit["junk"] == {"question": 1, "not about the user": 1}
    assert (audit["junk_rate"], of_ann["junk_rate"]) == (0.4, 0.5)
    assert {name: audit["total"][name] for name in ("stored", "holding", "expired", "without_vector")} == {
        "stored": 8, "holding": 7, "expired": 1, "without_vector": 8,
    }  # fmt: skip
    assert audit["kinds"]["episode"]["stored"] == 1
    assert "Junk rate: 40.0% (2 of 5 quotations that are current)" in report
    assert run_command("memories", "audit", "--user", "eve").stdout == "No memories.\n"


def test_a_caller_without_a_user_has_memories_unless_the_setting_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole application is opened for one person, not its memories alone."""
    opened: list[bool | None] = []

    def opening(settings: Settings, **options: Any) -> AbstractAsyncContextManager[Tenuto]:
        opened.append(settings.memories_without_user)
        return open_app(settings, **options)

    monkeypatch.setattr(running, "open_app", opening)
    mine = run_json("memories", "add", HOME)
    talk = run_command("chat", "Where do I live?")
    monkeypatch.setenv("TENUTO_MEMORIES_WITHOUT_USER", "false")
    result = run_command("memories", "list")
    silent = run_command("chat", "Where do I live?")

    assert opened == [True, False]
    assert mine["text"] == HOME
    assert HOME in talk.stdout
    assert (result.exit_code, "--user" in result.stderr) == (1, True)
    assert HOME not in silent.stdout


@pytest.mark.parametrize(
    "command",
    [["search", " "], ["add", " "], ["search", "x", "--limit", "0"], ["list", "--kind", "guess"], ["edit", "m1"],
     ["list", "--channel", "lark"], ["forget"]],
    ids=lambda command: " ".join(command),
)  # fmt: skip
def test_bad_input_ends_with_a_sentence(command: list[str]) -> None:
    run_json("memories", "add", HOME, "--user", "ann")

    result = run_command("memories", *command, "--user", "ann")

    assert result.exit_code in (1, 2)
    assert result.stderr
    assert "Traceback" not in result.stderr


def test_what_a_chat_remembers_is_embedded_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process used to end before the embedder was loaded, and a search said that one of two things was wrong."""
    chat = [sys.executable, "-m", "tenuto", "chat", HOME]
    subprocess.run(chat, check=True, stdin=subprocess.DEVNULL, env={**os.environ, "TENUTO_EMBEDDER": "local"})
    assert run_command("chat", "My dog is called Rex and he is three years old.").exit_code == 0

    monkeypatch.setenv("TENUTO_EMBEDDER", "local")
    lacking = run_command("memories", "search", "dog").stderr

    # That of the second chat, which had no embedder.
    assert lacking.startswith("1 memory without a vector ranked by words alone: ")


def test_a_chat_says_which_memories_it_left_without_a_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "_EMBED_WITHIN", timedelta(0))
    # A capture that looks for standing instructions has waited for the encoder.
    monkeypatch.setattr(standing_instructions, "possible_instructions", lambda _: [])
    # Its weights take longer than the chat.
    monkeypatch.setattr(CachedEmbedder, "warm", AsyncMock())
    monkeypatch.setenv("TENUTO_EMBEDDER", "local")

    result = run_command("chat", HOME)

    assert "(1 memory without a vector: a running server adds them)" in result.stderr
