"""When captures run: together at a pause, and before a search; what a process had not read is found by others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import DecryptionFailed, TenutoError, Unavailable
from tenuto.llm import Hang, ScriptedModel
from tenuto.llm.scripted import Fail, Say
from tenuto.model import MessagePage, NewSession, Page, Scope, Truncation
from tenuto.model.memory import MemoryQuery
from tenuto.model.prompt import Kind
from tenuto.model.scope import owner_key
from tenuto.recall.embedding import CachedEmbedder
from tenuto.recall.service import Memories
from tenuto.sessions import Sessions
from tenuto.upkeep import capture
from tenuto.upkeep.capture_queue import WITH_MODEL, WITHOUT_MODEL, Pace
from tests.clock import FakeClock
from tests.letter_memories import LetterEmbedder
from tests.samples import ANN, BOB

pytestmark = pytest.mark.requirement("D13", "T15")

BOLOGNA = "I live in Bologna with my two cats."
BOATS = [f"I keep {number} boats in harbour {number}." for number in range(12)]


@asynccontextmanager
async def opened(store: str = "memory://", **settings: Any) -> AsyncIterator[tuple[Tenuto, Memories]]:
    async with tenuto.open(store, **{"embedder": "none", "on_missing": "adopt", **settings}) as app:
        yield app, await app.memories()


@asynccontextmanager
async def killed(store: str, **settings: Any) -> AsyncIterator[Tenuto]:
    """A process that never comes to its end, as far as the next one can see."""
    async with AsyncExitStack() as stack:
        app, memories = await stack.enter_async_context(opened(store, **settings))
        yield app
        # What it would do at its end, it does not.
        app.upkeep.after_turn._capturer = None
        memories.captures = memories._open_captures = None


def embedding(memories: Memories) -> LetterEmbedder:
    """Memories with an embedder, which counts what it is asked."""
    letters = LetterEmbedder(remote=False)
    memories.vectors.embedder = CachedEmbedder(letters, clock=FakeClock(), time_limit=timedelta(minutes=1))
    memories.vectors.embedder.ready = True
    return letters


def storing(memories: Memories, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Tells when captured memories have been stored, or could not be."""
    stored, remember = asyncio.Event(), memories.remember

    async def note(*given: Any) -> Any:
        try:
            return await remember(*given)
        finally:
            stored.set()

    monkeypatch.setattr(memories, "remember", note)
    return stored


async def test_what_is_said_in_a_row_is_embedded_and_stored_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is embedded for turns whose conversation shows all that is remembered."""
    async with opened() as (app, memories):
        letters = embedding(memories)
        calls = list[int]()
        embed = letters.embed

        async def count(texts: Any) -> Any:
            calls.append(len(texts))
            return await embed(texts)

        monkeypatch.setattr(letters, "embed", count)
        for text in BOATS:
            await app.ask(ANN, text, session_id="s")
        await app.upkeep.drain()
        found = await memories.list(ANN)

    assert len(found) == len(BOATS)
    # Eight, those that came while they were read, and the rest.
    assert len(calls) <= 4
    assert sum(calls) == len(BOATS)


async def test_a_pause_lets_a_capture_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "WITHOUT_MODEL", WITHOUT_MODEL._replace(pause=0.0))
    async with opened() as (app, memories):
        stored = storing(memories, monkeypatch)
        await app.ask(ANN, BOLOGNA)
        await stored.wait()


async def test_a_model_is_asked_about_a_stretch_of_talk_and_not_at_each_pause() -> None:
    """What it notes may cost; whoever searches does not wait for a pause."""
    noted = json.dumps({"messages": [{"message": number, "notes": []} for number in range(1, WITH_MODEL.enough + 1)]})
    small = ScriptedModel([Say(noted)] * 4)
    async with opened(
        models={"main": ScriptedModel("Fine."), "small": small}, model="main", summarizer_model="small"
    ) as (app, memories):
        await app.sessions.create(ANN, NewSession(title="Harbours"), session_id="s")
        for text in BOATS[: WITH_MODEL.enough]:
            assert not small.requests
            await app.ask(ANN, text, session_id="s")
        await memories.drain()

    assert len(small.requests) == 1
    assert all(text in small.requests[0].messages[-1].text for text in BOATS[: WITH_MODEL.enough])


@pytest.mark.parametrize(
    ("pace", "time_comes"), [(Pace(3_600, 3_600, 2), False), (Pace(3_600, 0, 99), True)], ids=["enough", "longest"]
)
async def test_who_never_pauses_is_read_when_enough_is_said_or_the_longest_wait_is_over(
    pace: Pace, time_comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as (app, memories):
        stored = storing(memories, monkeypatch)
        await app.chat()
        capturer = app.upkeep.after_turn._capturer
        assert capturer is not None
        monkeypatch.setattr(capturer.queue, "_pace", pace)
        for text in BOATS[:2]:
            await app.ask(ANN, text, session_id="s")
        if time_comes:
            capturer.queue._on_time(owner_key(ANN))
        async with asyncio.timeout(30):
            await stored.wait()


async def test_what_is_said_has_the_encoder_loaded_before_it_is_asked_for() -> None:
    """Its weights take longer than a search waits."""
    async with opened() as (app, memories):
        letters = embedding(memories)
        assert memories.embedder is not None
        memories.embedder.ready = False
        await app.ask(ANN, BOLOGNA)
        await memories.drain()

        assert letters.asked == ["."]
        assert memories.embedder.ready


@pytest.mark.parametrize("way", ["turn", "search", "list"])
async def test_what_was_said_is_found_in_the_next_session_at_once(way: str) -> None:
    async with opened() as (app, memories):
        await app.ask(ANN, BOLOGNA)
        if way == "turn":
            reply = await app.ask(ANN, "Where do I live?")
            found = [reply.text]
            assert not reply.degraded
        elif way == "search":
            found = [hit.memory.text for hit in (await memories.search(ANN, MemoryQuery(text="live"))).hits]
        else:
            found = [one.text for one in await memories.list(ANN)]

    assert any(BOLOGNA in text for text in found)


async def test_what_was_said_at_one_door_is_found_at_another_at_once() -> None:
    """Of one person, whose users are linked; it stays with the user that said it."""
    async with opened() as (app, memories):
        await app.people.link(ANN, "ann@lark", by="otto")
        await app.ask(ANN, BOLOGNA)
        reply = await app.ask(Scope(tenant=ANN.tenant, user="ann@lark"), "Where do I live?")
        stored = [one.memory.text async for one in memories.stored(ANN)]

    assert BOLOGNA in reply.text
    assert stored == [BOLOGNA]


async def test_what_is_forgotten_does_not_come_back_with_what_was_said_before() -> None:
    async with opened() as (app, memories):
        await app.ask(ANN, BOLOGNA)
        await memories.forget(ANN, everything=True)
        await app.upkeep.drain()

        assert await memories.list(ANN) == ()


async def test_what_is_being_read_by_a_model_is_not_said_to_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would come back: the caller is told, and nothing is removed until it is there."""
    monkeypatch.setattr("tenuto.recall.service._FORGETTING_SECONDS", 0.01)
    hang = Hang()
    models = {"main": ScriptedModel("Fine."), "small": ScriptedModel([hang, Say("no JSON")], "no JSON")}
    async with opened(models=models, model="main", summarizer_model="small") as (app, memories):
        await app.sessions.create(ANN, NewSession(title="Home"), session_id="s")
        await memories.add(ANN, BOATS[0])
        await app.ask(ANN, BOLOGNA, session_id="s")
        capturing = asyncio.create_task(app.upkeep.drain())
        await hang.reached.wait()
        for what in ({"everything": True}, {"session_id": "s"}):
            with pytest.raises(Unavailable, match="forget again"):
                await memories.forget(ANN, **what)
        kept = [one.text for one in await memories.list(ANN)]
        hang.release.set()
        await capturing
        count = await memories.forget(ANN, everything=True)
        left = await memories.list(ANN)

    assert (kept, count, left) == ([BOATS[0]], 2, ())


async def test_what_is_edited_while_a_model_reads_it_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.recall.service._CATCH_UP_SECONDS", 0)
    hang = Hang()
    models = {"main": ScriptedModel("Fine."), "small": ScriptedModel([hang, Say("no JSON")], "no JSON")}
    async with opened(models=models, model="main", summarizer_model="small") as (app, memories):
        await app.sessions.create(ANN, NewSession(title="Home"), session_id="s")
        await app.ask(ANN, BOLOGNA, session_id="s")
        capturing = asyncio.create_task(app.upkeep.drain())
        await hang.reached.wait()
        await app.ask(ANN, BOATS[0], session_id="s", edit=1)
        # More than enough for the job that takes back what was captured, if it did not wait.
        for _ in range(200):
            await asyncio.sleep(0)
        hang.release.set()
        await capturing
        await app.upkeep.drain()
        found = [one.text for one in await memories.list(ANN)]

    assert found == [BOATS[0]]


async def test_the_next_session_finds_what_a_dead_process_was_told(tmp_path: Path) -> None:
    """In any session of its user, and nobody else's; nothing is left to be read then."""
    store = f"sqlite:///{tmp_path}/chat.db"
    async with killed(store) as app:
        for session, text in (("s", BOLOGNA), ("t", BOATS[0])):
            await app.ask(ANN, text, session_id=session)

    async with opened(store) as (app, memories):
        other = await app.ask(BOB, "Where do I live?", session_id="bobs")
        reply = await app.ask(ANN, "Where do I live?", session_id="u")
        await app.upkeep.drain()
        marks = memories.last_marks(ANN)
        found = {one.text: one.mentions for one in await memories.list(ANN)}

    assert BOLOGNA in reply.text
    assert BOLOGNA not in other.text
    assert found == {BOLOGNA: 1, BOATS[0]: 1}
    assert marks == {}


async def test_what_was_said_days_before_a_process_died_is_read_when_its_session_goes_on(tmp_path: Path) -> None:
    store, clock = f"sqlite:///{tmp_path}/chat.db", FakeClock()
    async with killed(store, clock=clock) as app:
        await app.ask(ANN, BOLOGNA, session_id="s")
    clock.advance(timedelta(days=3))

    async with opened(store, clock=clock) as (app, memories):
        await app.ask(ANN, BOATS[0], session_id="s")
        await app.upkeep.drain()
        found = {one.text for one in await memories.list(ANN)}

    assert found == {BOLOGNA, BOATS[0]}


async def test_what_a_dead_process_was_told_is_captured_by_the_sweep(tmp_path: Path) -> None:
    """Though its user never comes back: the session may expire."""
    store = f"sqlite:///{tmp_path}/chat.db"
    async with killed(store) as app:
        await app.ask(ANN, BOLOGNA, session_id="s")

    async with opened(store) as (app, memories):
        await app.chat()
        sweep = app.upkeep._memory_sweep
        assert sweep is not None
        async for _ in sweep.sweep():
            pass
        await app.sessions.delete(ANN, "s")
        found = [one.text for one in await memories.list(ANN)]

    assert found == [BOLOGNA]


@pytest.mark.parametrize("died", [True, False])
async def test_a_session_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, died: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays due, and is captured when it can be read again."""
    caplog.set_level("INFO", "tenuto")
    monkeypatch.setattr("tenuto.recall.service._CATCH_UP_SECONDS", 60)
    store, messages = f"sqlite:///{tmp_path}/chat.db", Sessions.messages

    async def refuse_one(sessions: Sessions, scope: Scope, session_id: str, page: Page) -> MessagePage:
        if session_id == "damaged":
            raise DecryptionFailed("was changed")
        return await messages(sessions, scope, session_id, page)

    async def say_both(app: Tenuto) -> None:
        await app.ask(ANN, BOATS[0], session_id="damaged")
        monkeypatch.setattr(Sessions, "messages", refuse_one)
        await app.ask(ANN, BOLOGNA, session_id="s")

    if died:
        async with killed(store) as dying:
            await say_both(dying)
    async with opened(store) as (app, memories):
        if not died:
            await say_both(app)
        found = [{one.text for one in await memories.list(ANN)}]
        reply = await app.ask(ANN, "Where do I live?", session_id="t")
        due = set(memories.last_marks(ANN))
        forgotten = await memories.forget(ANN, session_id="s")
        monkeypatch.setattr(Sessions, "messages", messages)
        found.append({one.text for one in await memories.list(ANN)})

    assert found == [{BOLOGNA}, {BOATS[0]}]
    assert (reply.degraded, due, forgotten) == (("recall",), {"damaged"}, 1)
    assert "what was said last was not captured yet: DecryptionFailed" in caplog.text
    assert "boats" not in caplog.text


async def test_an_erased_member_takes_nothing_along_that_another_said(tmp_path: Path) -> None:
    """What a process had not read of it when it died stays due."""
    store, bob = f"sqlite:///{tmp_path}/chat.db", Scope(tenant="acme", user="bob", channel="lark", chat="team")
    async with killed(store, memories_in_groups=True) as app:
        await app.ask(replace(bob, user="ann"), BOLOGNA, session_id="s")
        await app.upkeep.drain()
        await app.ask(bob, BOATS[0], session_id="t")
    async with opened(store, memories_in_groups=True) as (app, memories):
        await app.privacy.erase(ANN, by="otto")
        await app.ask(bob, "Thanks a lot!", session_id="u")
        found = [one.text for one in await memories.list(bob)]

    assert found == [BOATS[0]]


async def test_another_process_reads_what_waits_for_a_pause_here(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/chat.db"
    async with opened(store) as (here, _), opened(store) as (there, _):
        await here.ask(ANN, BOLOGNA, session_id="s")
        reply = await there.ask(ANN, "Where do I live?", session_id="t")
        # The session goes on while it is marked by the other process, and then without a mark.
        for text in BOATS[:2]:
            await here.ask(ANN, text, session_id="s")
        boats = await there.ask(ANN, "How many boats do I keep in harbour 1?", session_id="t")
        await here.upkeep.drain()
        found = {one.text: one.mentions for one in await (await there.memories()).list(ANN)}

    assert BOLOGNA in reply.text
    assert BOATS[1] in boats.text
    assert found == dict.fromkeys((BOLOGNA, *BOATS[:2]), 1)


async def test_what_was_said_in_a_turn_that_failed_is_found_in_the_next_session(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/chat.db"
    async with killed(store, models={"main": ScriptedModel(Fail())}, model="main") as app:
        with pytest.raises(TenutoError):
            await app.ask(ANN, BOLOGNA, session_id="s")

    async with opened(store) as (app, _):
        reply = await app.ask(ANN, "Where do I live?", session_id="t")

    assert BOLOGNA in reply.text


@pytest.mark.parametrize("removed", ["reset", "truncated", "deleted"])
async def test_what_was_removed_before_it_was_read_is_not_due_any_more(removed: str) -> None:
    async with opened() as (app, memories):
        await app.ask(ANN, BOLOGNA, session_id="s")
        if removed == "reset":
            await app.sessions.reset(ANN, "s")
        elif removed == "truncated":
            await app.sessions.truncate(ANN, "s", Truncation(after=0))
        else:
            await app.sessions.delete(ANN, "s")
        found = await memories.list(ANN)
        backlog, marks = app.upkeep.backlog, memories.last_marks(ANN)

    assert found == ()
    assert backlog.statements == 0
    assert marks == {}


@pytest.mark.parametrize("model", [None, "small"])
async def test_what_was_due_of_an_erased_user_leaves_nothing(tmp_path: Path, model: str | None) -> None:
    """Also where another process has it due, and a copy of what was remembered; with a model it claims the session."""
    store = f"sqlite:///{tmp_path}/chat.db"
    settings = {"summarizer_model": model, "models": {"small": ScriptedModel("no JSON")}} if model else {}
    async with opened(store, **settings) as (here, memories), opened(store) as (there, _):
        await memories.add(ANN, "I have a wooden boat.")
        await here.ask(ANN, BOLOGNA, session_id="s")
        await there.privacy.erase(ANN, by="otto")
        await here.upkeep.drain()
        found = await memories.list(ANN, superseded=True)
        left = await here.store.state.list_state_locations(ANN)

    assert found == ()
    assert left == ()


async def test_a_mark_of_a_session_that_is_gone_is_removed(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/chat.db"
    async with killed(store) as app:
        await app.ask(ANN, BOLOGNA, session_id="s")
        await app.sessions.delete(ANN, "s")

    async with opened(store) as (app, memories):
        reply = await app.ask(ANN, "Where do I live?", session_id="t")
        marks = memories.last_marks(ANN)

    assert BOLOGNA not in reply.text
    assert not reply.degraded
    assert marks == {}


async def test_a_capture_that_takes_long_is_waited_for_once_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn recalls what is there, and says that something is missing."""
    monkeypatch.setattr("tenuto.recall.service._CATCH_UP_SECONDS", 0.01)
    hang = Hang()
    note = json.dumps({"messages": [{"message": number, "notes": []} for number in (1, 2, 3)]})
    models = {"main": ScriptedModel("Fine."), "small": ScriptedModel([hang, Say(note)])}
    async with opened(models=models, model="main", summarizer_model="small") as (app, memories):
        for name in "stu":
            await app.sessions.create(ANN, NewSession(title="Home"), session_id=name)
        await memories.add(ANN, "I have a wooden boat.")
        await app.ask(ANN, BOLOGNA, session_id="s")
        slow = [await app.ask(ANN, "Which boat do I have?", session_id=name) for name in "tu"]
        hang.release.set()
        await app.upkeep.drain()
        later = await app.ask(ANN, "Which boat do I have?", session_id="t")

    assert [reply.degraded for reply in slow] == [("recall",), ("recall",)]
    shown = [[one for one in reply.manifest.entries if one.kind is Kind.MEMORY] for reply in slow if reply.manifest]
    assert [len(memories) for memories in shown] == [1, 1]
    assert later.degraded == ()


async def test_one_process_asks_the_model_about_a_session(tmp_path: Path) -> None:
    """Whoever claims it first; the other finds what it has stored."""
    store = f"sqlite:///{tmp_path}/chat.db"
    note = json.dumps({"messages": [{"message": number, "notes": []} for number in (1, 2, 3)]})
    small = [ScriptedModel(note) for _ in range(2)]
    given = [{"models": {"main": ScriptedModel("Fine."), "small": one}, "model": "main"} for one in small]
    async with (
        opened(store, **given[0], summarizer_model="small") as (here, _),
        opened(store, **given[1], summarizer_model="small") as (there, _),
    ):
        await here.sessions.create(ANN, NewSession(title="Work"), session_id="s")
        for text in BOATS[:3]:
            await here.ask(ANN, text, session_id="s")
            await there.ask(ANN, "Thanks a lot!", session_id="s")
        await asyncio.gather(here.upkeep.drain(), there.upkeep.drain())
        await there.ask(ANN, "Thanks a lot!", session_id="s")
        await there.upkeep.drain()

    asked = "\n".join(request.messages[-1].text for one in small for request in one.requests)
    assert [asked.count(text) for text in BOATS[:3]] == [1, 1, 1]


async def test_small_talk_reads_nothing_and_writes_nothing_for_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither old messages nor the log are touched while there is nothing to capture."""
    async with opened() as (app, memories):
        await app.ask(ANN, "Thanks a lot!", session_id="s")
        await app.upkeep.drain()
        pages = list[Page]()
        messages = app.sessions.messages

        async def count(scope: Any, session_id: str, page: Page) -> Any:
            # Of what was said since.
            if page.after is not None:
                pages.append(page)
            return await messages(scope, session_id, page)

        monkeypatch.setattr(app.sessions, "messages", count)
        for _ in range(20):
            await app.ask(ANN, "Thanks a lot!", session_id="s")
        await app.upkeep.drain()
        log = await memories.last_log(ANN)

    assert pages == []
    assert log.version == 0
