"""What became stale: it is cleared, and captured once with the answers, whatever fails or ends in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import ModelFailed, StoreUnavailable
from tenuto.llm import Hang, ScriptedModel
from tenuto.llm.scripted import Fail
from tenuto.model import Changes, NewSession, Scope
from tenuto.model.memory import STALE_STRETCHES, Memory, MemoryKind, MemorySource
from tenuto.model.scope import owner_scope
from tenuto.upkeep.memory_sweep import MemorySweep
from tenuto.upkeep.stale_capture import StaleCapture
from tests.clock import FakeClock
from tests.samples import ANN, BOB

pytestmark = pytest.mark.requirement("D9", "D10", "D11", "D12", "D13", "T15")

ROOF = "The roof of the barn leaks near the chimney."
ROOFER = "The roofer comes on 3 March at nine."
HELLO = "Hello!"
GROUP = Scope(tenant="acme", user="ann", channel="lark", chat="team")
SETTINGS: dict[str, Any] = {"embedder": "none", "on_missing": "adopt", "stale_after": timedelta(hours=48)}


@pytest.fixture(autouse=True)
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that a new process begins by itself would capture in its own time."""

    async def rest(_: MemorySweep) -> None:
        pass

    monkeypatch.setattr(MemorySweep, "sweep_if_due", rest)


async def episodes(app: Tenuto, scope: Scope = ANN) -> list[Memory]:
    await app.upkeep.drain()
    return list(await (await app.memories()).list(scope, kinds=[MemoryKind.EPISODE]))


async def due(app: Tenuto, scope: Scope = ANN) -> int:
    return len(await app.store.state.state_keys(owner_scope(scope), STALE_STRETCHES))


@asynccontextmanager
async def gone_stale(scope: Scope = ANN, store: str = "memory://", **settings: Any) -> AsyncIterator[Tenuto]:
    """A session of two turns that nobody touched for three days."""
    clock = FakeClock()
    async with tenuto.open(store, **{"clock": clock, **SETTINGS, **settings}) as app:
        await app.sessions.create(scope, NewSession(title="Barn"), session_id="s")
        await app.ask(scope, ROOF, session_id="s")
        await app.ask(scope, ROOFER, session_id="s")
        await app.upkeep.drain()
        clock.advance(timedelta(days=3))
        yield app


async def test_a_stale_session_is_captured_once_by_concurrent_requests() -> None:
    async with gone_stale() as app:
        await asyncio.gather(*(app.ask(ANN, f"Good morning {n} to you", session_id="s") for n in range(4)))
        (episode,) = await episodes(app)
        left = await due(app)

    assert "roofer comes on 3 March" in episode.text
    assert (episode.source, episode.session_id, episode.seqs) == (MemorySource.STALE, "s", (1, 4))
    assert (episode.mentions, episode.speaker) == (1, "")
    assert episode.expires_at is not None
    assert left == 0


async def test_the_answers_are_in_the_episode_and_no_fact_of_the_user() -> None:
    main = ScriptedModel("I know that roofer: his name is Bert Miller.")
    async with gone_stale(models={"main": main}, model="main", summarizer_model="offline") as app:
        await app.ask(ANN, HELLO, session_id="s")
        (episode,) = await episodes(app)
        others = await (await app.memories()).list(ANN, kinds=[MemoryKind.FACT, MemoryKind.PREFERENCE])

    assert "Assistant: I know that roofer: his name is Bert Miller." in episode.text
    assert "User: The roofer comes on 3 March at nine." in episode.text
    assert not [one for one in others if "Bert" in one.text]


async def test_the_last_ten_messages_are_remembered() -> None:
    clock, main = FakeClock(), ScriptedModel("Very well.")
    async with tenuto.open("memory://", clock=clock, models={"main": main}, model="main", **SETTINGS) as app:
        for number in range(1, 8):
            await app.ask(ANN, f"Chapter {number} is about dragon number {number}.", session_id="s")
        clock.advance(timedelta(days=3))
        await app.ask(ANN, HELLO, session_id="s")
        (episode,) = await episodes(app)

    assert episode.seqs == (5, 14)
    assert [number for number in range(1, 8) if f"dragon number {number}" in episode.text] == [3, 4, 5, 6, 7]


async def test_each_stale_stretch_is_captured_by_itself() -> None:
    """Without those before it, and without what its user put aside."""
    clock = FakeClock()
    async with tenuto.open("memory://", clock=clock, **SETTINGS) as app:
        for text in ("The roof of the barn leaks.", "The harvest begins in June."):
            await app.ask(ANN, text, session_id="s")
            clock.advance(timedelta(days=3))
        await app.ask(ANN, "The secret party is in the cellar.", session_id="s")
        aside = await app.sessions.get(ANN, "s")
        await app.sessions.patch(ANN, "s", Changes(window_start=aside.last_seq + 1))
        await app.ask(ANN, "The fence needs new paint.", session_id="s")
        clock.advance(timedelta(days=3))
        await app.ask(ANN, HELLO, session_id="s")
        found = await episodes(app)

    named = [[word for word in ("roof", "harvest", "party", "fence") if word in one.text] for one in found]
    assert named == [["fence"], ["harvest"], ["roof"]]


# What fails


@pytest.mark.requirement("D19")
async def test_a_failed_capture_still_clears_the_context_warns_and_stays_due(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with gone_stale() as app:
        memories = await app.memories()

        async def fail(*_: object) -> None:
            raise RuntimeError("full")

        with monkeypatch.context() as patch:
            patch.setattr(memories, "remember", fail)
            await app.ask(ANN, HELLO, session_id="s")
            await app.upkeep.drain()
            again = await app.ask(ANN, "When does the roofer come?", session_id="s")
            nothing = await episodes(app)
        await app.ask(ANN, HELLO, session_id="another")
        found, left = await episodes(app), await due(app)

    assert "3 March" not in again.text
    assert "a stale capture was postponed: RuntimeError" in caplog.text
    assert nothing == []
    assert [(one.session_id, one.mentions) for one in found] == [("s", 1)]
    assert left == 0


async def test_without_its_model_a_summary_is_extracted() -> None:
    small = ScriptedModel(Fail())
    models = {"main": ScriptedModel("Fine."), "small": small}
    async with gone_stale(models=models, model="main", summarizer_model="small") as app:
        await app.ask(ANN, HELLO, session_id="s")
        (episode,) = await episodes(app)

    assert small.requests
    assert "roofer comes on 3 March" in episode.text


async def test_a_turn_that_fails_clears_what_was_stale_and_leaves_it_due() -> None:
    models = {"main": ScriptedModel("Fine.", "Fine.", Fail(), "Fine.")}
    async with gone_stale(models=models, model="main", summarizer_model="offline") as app:
        with pytest.raises(ModelFailed):
            await app.ask(ANN, HELLO, session_id="s")
        cleared = await app.sessions.get(ANN, "s")
        await app.ask(ANN, HELLO, session_id="another")
        found = await episodes(app)

    assert cleared.window_start == 5
    assert [one.session_id for one in found] == ["s"]


async def test_a_stretch_that_could_not_be_noted_is_captured_by_the_process_that_found_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with gone_stale() as app:
        memories = await app.memories()

        async def fail(*_: object) -> None:
            raise StoreUnavailable

        with monkeypatch.context() as patch:
            patch.setattr(memories.stale, "note", fail)
            await app.ask(ANN, HELLO, session_id="s")
            nothing = await episodes(app)
        await app.ask(ANN, HELLO, session_id="another")
        found = await episodes(app)

    assert "a stale stretch is noted by this process alone" in caplog.text
    assert nothing == []
    assert [one.mentions for one in found] == [1]


@pytest.mark.parametrize("swept", [False, True])
async def test_what_a_process_left_is_captured_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swept: bool
) -> None:
    """After a turn in any session of its owner, or in the daily sweep, and once; the context stays cleared."""
    store = f"sqlite:///{tmp_path}/chat.db"

    async def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(StaleCapture, "capture_due", die)
        async with gone_stale(store=store) as app:
            await app.ask(ANN, HELLO, session_id="s")
            nothing, left = await episodes(app), await due(app)
    async with tenuto.open(store, clock=FakeClock(), **SETTINGS) as app:
        if swept:
            chat = await app.chat()
            assert chat is not None
            sweep = app.upkeep._memory_sweep
            assert isinstance(sweep, MemorySweep)
            assert [one.owners async for one in sweep.sweep()] == [1]
        else:
            await app.ask(ANN, HELLO, session_id="another")
        found = await episodes(app)
        again = await app.ask(ANN, "When does the roofer come?", session_id="s")

    assert (nothing, left) == ([], 1)
    assert [(one.session_id, one.mentions) for one in found] == [("s", 1)]
    assert "3 March" not in again.text


async def test_what_a_closing_process_gives_up_is_captured_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, hang = f"sqlite:///{tmp_path}/chat.db", Hang()
    monkeypatch.setattr("tenuto.wiring.chat.LAST_WORK", timedelta(0))
    hang.release.set()
    small = ScriptedModel([hang, Fail()])
    models = {"main": ScriptedModel("Fine."), "small": small}
    async with gone_stale(store=store, models=models, model="main", summarizer_model="small") as app:
        hang.release.clear()
        hang.reached.clear()
        await app.ask(ANN, HELLO, session_id="s")
        await hang.reached.wait()
    async with tenuto.open(store, clock=FakeClock(), **SETTINGS) as app:
        await app.ask(ANN, HELLO, session_id="another")
        found = await episodes(app)

    assert small.cancelled == 1
    assert [(one.session_id, one.mentions) for one in found] == [("s", 1)]


async def test_a_capture_that_was_stored_and_not_settled_is_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gone_stale() as app:
        memories = await app.memories()
        settle = memories.stale.settle

        async def fail(*_: object) -> None:
            raise StoreUnavailable

        monkeypatch.setattr(memories.stale, "settle", fail)
        await app.ask(ANN, HELLO, session_id="s")
        before = await episodes(app)
        monkeypatch.setattr(memories.stale, "settle", settle)
        await app.ask(ANN, HELLO, session_id="another")
        after, left = await episodes(app), await due(app)

    assert before == after
    assert [one.mentions for one in after] == [1]
    assert left == 0


@pytest.mark.parametrize("anew", [False, True])
async def test_a_session_that_is_gone_leaves_no_episode(anew: bool) -> None:
    hang = Hang()
    hang.release.set()
    models = {"main": ScriptedModel("Fine."), "small": ScriptedModel([hang, Fail()])}
    async with gone_stale(models=models, model="main", summarizer_model="small") as app:
        hang.release.clear()
        hang.reached.clear()
        await app.ask(ANN, HELLO, session_id="s")
        await hang.reached.wait()
        await app.sessions.delete(ANN, "s")
        if anew:
            await app.sessions.create(ANN, NewSession(title="Anew"), session_id="s")
        hang.release.set()
        found, left = await episodes(app), await due(app)

    assert (found, left) == ([], 0)


# Groups


@pytest.mark.parametrize("captured", [None, True, False])
async def test_a_stale_group_is_one_episode_of_the_chat_unless_it_is_switched_off(captured: bool | None) -> None:
    """For the chat alone, and not its members; what they say of themselves is another setting."""
    given: dict[str, Any] = {} if captured is None else {"capture_group_memory": captured}
    async with gone_stale(GROUP, **given) as app:
        await app.ask(replace(GROUP, user="bob"), HELLO, session_id="s")
        found = await episodes(app, GROUP)
        facts = await (await app.memories()).list(GROUP, kinds=[MemoryKind.FACT])
        of_members = [await episodes(app, ANN), await episodes(app, BOB)]
        session = await app.sessions.get(GROUP, "s")

    assert ["roofer comes on 3 March" in one.text for one in found] == ([] if captured is False else [True])
    assert of_members == [[], []]
    assert facts == ()
    assert session.window_start == 5


async def test_the_erasure_of_a_member_takes_the_episodes_of_their_chats_along() -> None:
    async with gone_stale(GROUP) as app:
        bob = replace(GROUP, user="bob")
        await app.ask(bob, "The fence needs new paint.", session_id="t")
        await app.ask(bob, HELLO, session_id="s")
        before = await episodes(app, GROUP)
        await app.privacy.erase(BOB, by="otto")
        others = await episodes(app, GROUP)
        receipt = await app.privacy.erase(ANN, by="otto")
        after = await episodes(app, GROUP)

    assert len(before) == len(others) == 1
    assert after == []
    assert receipt.counts["chat_memories"] == 1


@pytest.mark.requirement("D14")
async def test_staleness_of_zero_is_off() -> None:
    async with gone_stale(stale_after=timedelta(0)) as app:
        reply = await app.ask(ANN, "When does the roofer come?", session_id="s")
        found = await episodes(app)

    assert "3 March" in reply.text
    assert found == []
