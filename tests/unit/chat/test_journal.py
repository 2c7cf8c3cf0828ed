"""Turns of an assistant while the store is away, under the policy that journals them."""

from __future__ import annotations

import pytest

from tenuto.chat import ChatRequest
from tenuto.errors import StoreUnavailable, Superseded
from tenuto.llm import Fail, Hang, Say
from tenuto.model import Page
from tenuto.model.policy import OnStoreDown
from tenuto.model.privacy import Mode, PrivacyPolicy
from tenuto.privacy.redacting_store import RedactingStore
from tests.outages import Process
from tests.samples import ANN
from tests.screens import screen_over
from tests.talking import ask, helper, patient, talk, under_way


async def test_a_reply_says_that_a_journal_keeps_it(here: Process) -> None:
    """Promise 8, X5: in the reply, in its trace, and in what is stored of it; older talk is in the prompt."""
    t = talk("First.", "Second.", "Second again.", "Third.", store=here.store, clock=here.clock)
    before = await t.chat.take_turn(ANN, ask("one", "s"))
    here.goes_away()

    reply = await t.chat.take_turn(ANN, ask("two", "s", idempotency_key="k"))
    again = await t.chat.take_turn(ANN, ask("two", "s", idempotency_key="k"))
    await here.catch_up()
    after = await t.chat.take_turn(ANN, ask("three", "s"))

    assert [each.degraded for each in (before, reply, after)] == [(), ("journal",), ()]
    assert (again.text, again.turn) == ("Second.", 2)
    assert "First." in str(t.model.requests[1].messages)
    trace = await here.memory.traces.trace(ANN, "s", 2)
    assert trace is not None
    assert (trace.id, trace.degraded) == (reply.trace_id, ("journal",))
    page = await here.memory.sessions.messages(ANN, "s", Page())
    assert [message.text for message in page.messages if "degraded" in message.metadata] == ["Second."]


async def test_a_store_that_dies_under_the_answer_loses_nothing(here: Process) -> None:
    t = talk([hang := Hang(), Say("Late.")], store=here.store, clock=here.clock)
    turn = await under_way(t, hang, ask("Hello", "s"))
    here.goes_away()
    hang.release.set()

    reply = await turn
    await here.catch_up()

    assert (reply.text, reply.degraded) == ("Late.", ("journal",))
    assert await here.log(ANN, "s") == ["Hello", "Late."]


async def test_a_model_that_fails_meanwhile_leaves_the_words_and_the_key_resumes(here: Process) -> None:
    t = talk([Fail()], "Now.", store=here.store, clock=here.clock)
    here.goes_away()
    with pytest.raises(Exception, match="model"):
        await t.chat.take_turn(ANN, ask("Hello", "s", idempotency_key="k"))

    reply = await t.chat.take_turn(ANN, ask("Hello", "s", idempotency_key="k"))
    await here.catch_up()

    assert (reply.text, reply.degraded) == ("Now.", ("journal",))
    assert await here.log(ANN, "s") == ["Hello", "Now."]


async def test_other_policies_do_what_they_did(here: Process) -> None:
    """X5."""
    stateless = helper(policies=patient(on_store_down=OnStoreDown.STATELESS))
    strict = helper(name="strict", policies=patient(on_store_down=OnStoreDown.RAISE))
    t = talk("Here I am.", store=here.store, clock=here.clock, assistants=[stateless, strict])
    here.goes_away()

    reply = await t.chat.take_turn(ANN, ask("Are you there?", "s"))
    with pytest.raises(StoreUnavailable):
        await t.chat.take_turn(ANN, ask("Are you there?", "s", assistant="strict"))

    assert reply.degraded == ("store",)
    assert here.store.status.waiting == 0


async def test_an_answer_made_anew_is_refused_before_the_model_is_asked(here: Process) -> None:
    """X5, promise 8: what it replaces is in the store, and nothing of the attempt is left in the journal."""
    t = talk("First.", "Second.", store=here.store, clock=here.clock)
    await t.chat.take_turn(ANN, ask("one", "s"))
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await t.chat.take_turn(ANN, ChatRequest(session_id="s", regenerate=True))
    waiting = here.store.status.waiting
    here.comes_back()
    again = await t.chat.take_turn(ANN, ChatRequest(session_id="s", regenerate=True))

    assert (waiting, len(t.model.requests), again.text) == (0, 2, "Second.")
    assert await here.log(ANN, "s") == ["one", "Second."]


async def test_an_edit_is_refused_while_turns_wait(here: Process) -> None:
    """Promise 1: the number that a message is shown under here may be another one's in the store."""
    t = talk("First.", "Second.", store=here.store, clock=here.clock)
    await t.chat.take_turn(ANN, ask("one", "s"))
    here.goes_away()
    await t.chat.take_turn(ANN, ask("two", "s"))

    with pytest.raises(StoreUnavailable):
        await t.chat.take_turn(ANN, ask("two, rather", "s", edit=3))
    waiting = here.store.status.waiting
    await here.catch_up()

    assert (waiting, len(t.model.requests)) == (1, 2)
    assert await here.log(ANN, "s") == ["one", "First.", "two", "Second."]


async def test_words_that_are_said_differently_are_journaled_once_the_old_ones_are_gone(here: Process) -> None:
    t = talk("First.", [hang := Hang(), Say("Second.")], store=here.store, clock=here.clock)
    await t.chat.take_turn(ANN, ask("one", "s"))
    turn = await under_way(t, hang, ask("one, rather", "s", edit=1))
    here.goes_away()
    hang.release.set()

    reply = await turn
    await here.catch_up()

    assert reply.degraded == ("journal",)
    assert await here.log(ANN, "s") == ["one, rather", "Second."]


@pytest.mark.parametrize("policy", [PrivacyPolicy(message=Mode.PSEUDONYM), PrivacyPolicy(model=Mode.PSEUDONYM)])
@pytest.mark.parametrize("session_id", ["s", "new"])
async def test_a_turn_that_needs_a_vault_leaves_nothing_in_the_journal(
    here: Process, policy: PrivacyPolicy, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 1, T10: the vault is in the store. Sent once more without a key, the words stand there once."""
    store = RedactingStore(store=here.store, screen=screen_over(here.store, policy))
    words = "write to ann@example.com"
    t = talk("First.", "Second.", store=store, clock=here.clock)
    await t.chat.take_turn(ANN, ask("one", "s"))

    async def last_call(*_: object) -> None:
        here.goes_away()
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(here.memory.sessions, "begin_turn", last_call)
        with pytest.raises(StoreUnavailable):
            await t.chat.take_turn(ANN, ask(words, session_id))
    waiting = here.store.status.waiting
    await here.catch_up()
    await t.chat.take_turn(ANN, ask(words, session_id))

    assert waiting == 0
    assert len(await here.log(ANN, session_id)) == (4 if session_id == "s" else 2)


async def test_words_that_were_taken_back_are_not_said_again_by_their_old_key(here: Process) -> None:
    """Promise 1: refused while the store is away as it is otherwise, and nothing of it waits."""
    t = talk("First.", "Second.", store=here.store, clock=here.clock)
    await t.chat.take_turn(ANN, ask("one", "s", idempotency_key="old"))
    await t.chat.take_turn(ANN, ask("one, rather", "s", edit=1, idempotency_key="new"))
    here.goes_away()

    with pytest.raises(Superseded):
        await t.chat.take_turn(ANN, ask("one", "s", idempotency_key="old"))

    assert here.store.status.waiting == 0


async def test_words_that_were_taken_back_elsewhere_meanwhile_are_set_aside(here: Process) -> None:
    """Promise 1: the same request reached the store by another process, where its words were said differently."""
    t = talk("First.", "Second.", "Third.", store=here.store, clock=here.clock)
    there = talk("Two.", "Two anew.", store=here.memory, clock=here.clock)
    await t.chat.take_turn(ANN, ask("one", "s"))
    here.goes_away()
    await t.chat.take_turn(ANN, ask("and", "s"))
    await t.chat.take_turn(ANN, ask("two", "s", idempotency_key="old"))
    await there.chat.take_turn(ANN, ask("two", "s", idempotency_key="old"))
    await there.chat.take_turn(ANN, ask("two, rather", "s", edit=3, idempotency_key="new"))
    await here.catch_up()

    assert await here.log(ANN, "s") == ["one", "First.", "two, rather", "Two anew."]
    # The turn before it was sent to the store, and might have been cut off there.
    assert (here.store.status.waiting, here.store.status.quarantined) == (0, 2)
