"""Turns of an assistant while the store is away, under the policy that journals them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenuto.chat import ChatRequest
from tenuto.errors import StoreUnavailable, Superseded
from tenuto.llm import Fail, Hang, Say
from tenuto.model import Page
from tenuto.model.policy import OnStoreDown
from tenuto.model.privacy import Mode, PrivacyPolicy
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.stores.engine import Engine
from tests.chats import Talk, ask, helper, patient, talk, under_way
from tests.machine import Machine, be_quick
from tests.redactors import redactor_over
from tests.samples import ANN, texts


class Harness:
    """A machine with one process, and talks over its store."""

    def __init__(self, machine: Machine, store: Engine) -> None:
        self.machine = machine
        self.store = store

    def talk(self, *scripts: object, store: object = None, **given: object) -> Talk:
        return talk(*scripts, store=store or self.store, clock=self.machine.clock, **given)  # type: ignore[arg-type]

    def goes_away(self) -> None:
        self.machine.is_away = True

    @property
    def waiting(self) -> int:
        return self.machine.waiting

    async def log(self, session_id: str = "s") -> list[str]:
        """What the store holds, once nothing waits for it."""
        await self.machine.until_stored(self.store)
        return await texts(self.machine.elsewhere(), ANN, session_id)


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    be_quick(monkeypatch)
    machine = Machine(tmp_path / "journal")
    yield Harness(machine, await machine.start("a"))
    await machine.close()


@pytest.mark.requirement("A22", "X5")
async def test_a_reply_says_that_a_journal_keeps_it(here: Harness) -> None:
    """In the reply, in its trace, and in what is stored of it; older talk is in the prompt."""
    t = here.talk("First.", "Second.", "Third.")
    before = await t.chat.take_turn(ANN, ask("one", "s"))
    here.goes_away()

    reply = await t.chat.take_turn(ANN, ask("two", "s", idempotency_key="k"))
    again = await t.chat.take_turn(ANN, ask("two", "s", idempotency_key="k"))
    await here.log()
    after = await t.chat.take_turn(ANN, ask("three", "s"))

    assert [each.degraded for each in (before, reply, after)] == [(), ("journal",), ()]
    assert (again.text, again.turn) == ("Second.", 2)
    assert "First." in str(t.model.requests[1].messages)
    stored = here.machine.elsewhere()
    trace = await stored.traces.trace(ANN, "s", 2)
    assert trace is not None
    assert (trace.id, trace.degraded) == (reply.trace_id, ("journal",))
    page = await stored.sessions.messages(ANN, "s", Page())
    assert [message.text for message in page.messages if "degraded" in message.metadata] == ["Second."]


@pytest.mark.parametrize("edit", [None, 1], ids=["said", "said differently"])
async def test_a_store_that_dies_under_the_answer_loses_nothing(here: Harness, edit: int | None) -> None:
    t = here.talk("First.", [hang := Hang(), Say("Late.")])
    await t.chat.take_turn(ANN, ask("one", "s"))
    turn = await under_way(t, hang, ask("two", "s", edit=edit))
    here.goes_away()
    hang.release.set()

    reply = await turn

    assert (reply.text, reply.degraded) == ("Late.", ("journal",))
    assert await here.log() == ([] if edit else ["one", "First."]) + ["two", "Late."]


async def test_a_model_that_fails_meanwhile_leaves_the_words_and_the_key_resumes(here: Harness) -> None:
    t = here.talk("First.", [Fail()], "Now.")
    await t.chat.take_turn(ANN, ask("one", "s"))
    here.goes_away()
    with pytest.raises(Exception, match="model"):
        await t.chat.take_turn(ANN, ask("Hello", "s", idempotency_key="k"))

    reply = await t.chat.take_turn(ANN, ask("Hello", "s", idempotency_key="k"))

    assert (reply.text, reply.degraded) == ("Now.", ("journal",))
    assert await here.log() == ["one", "First.", "Hello", "Now."]


@pytest.mark.requirement("X5")
async def test_other_policies_do_what_they_did(here: Harness) -> None:
    stateless = helper(policies=patient(on_store_down=OnStoreDown.STATELESS))
    strict = helper(name="strict", policies=patient(on_store_down=OnStoreDown.RAISE))
    t = here.talk("Here I am.", assistants=[stateless, strict])
    here.goes_away()

    reply = await t.chat.take_turn(ANN, ask("Are you there?", "s"))
    with pytest.raises(StoreUnavailable):
        await t.chat.take_turn(ANN, ask("Are you there?", "s", assistant="strict"))

    assert reply.degraded == ("store",)
    assert here.waiting == 0


@pytest.mark.parametrize(
    "request_", [ChatRequest(session_id="s", regenerate=True), ask("rather", "s", edit=3)], ids=["anew", "edit"]
)
async def test_what_replaces_stored_words_is_refused_before_the_model_is_asked(
    here: Harness, request_: ChatRequest
) -> None:
    """The number under which a message is shown here may be another one's in the store."""
    t = here.talk("First.", "Second.")
    await t.chat.take_turn(ANN, ask("one", "s"))
    here.goes_away()
    await t.chat.take_turn(ANN, ask("two", "s"))

    with pytest.raises(StoreUnavailable):
        await t.chat.take_turn(ANN, request_)

    assert (here.waiting, len(t.model.requests)) == (1, 2)
    assert await here.log() == ["one", "First.", "two", "Second."]


@pytest.mark.requirement("T10")
@pytest.mark.parametrize("policy", [PrivacyPolicy(message=Mode.PSEUDONYM), PrivacyPolicy(model=Mode.PSEUDONYM)])
async def test_a_turn_that_needs_a_vault_leaves_nothing_in_the_journal(here: Harness, policy: PrivacyPolicy) -> None:
    """The vault is in the store. Sent once more without a key, the words stand there once."""
    t = here.talk(
        "First.", "Second.", store=RedactingStore(store=here.store, redactor=redactor_over(here.store, policy))
    )
    words = "write to ann@example.com"
    await t.chat.take_turn(ANN, ask("one", "s"))
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await t.chat.take_turn(ANN, ask(words, "s"))
    waiting = here.waiting
    await here.log()
    await t.chat.take_turn(ANN, ask(words, "s"))

    assert waiting == 0
    assert len(await here.log()) == 4


async def test_words_that_were_edited_away_are_refused_under_their_old_key(here: Harness) -> None:
    """While the store is away as otherwise, and nothing of it waits."""
    t = here.talk("First.", "Second.")
    await t.chat.take_turn(ANN, ask("one", "s", idempotency_key="old"))
    await t.chat.take_turn(ANN, ask("one, rather", "s", edit=1, idempotency_key="new"))
    here.goes_away()

    with pytest.raises(Superseded):
        await t.chat.take_turn(ANN, ask("one", "s", idempotency_key="old"))

    assert here.waiting == 0


async def test_words_that_were_edited_away_elsewhere_meanwhile_are_quarantined_with_their_answer(here: Harness) -> None:
    """The same request reached the store by another machine."""
    t = here.talk("First.", "Second.", "Third.")
    there = here.talk("Two.", "Two anew.", store=here.machine.elsewhere())
    await t.chat.take_turn(ANN, ask("one", "s"))
    here.machine.lose("a")
    await t.chat.take_turn(ANN, ask("two", "s", idempotency_key="old"))
    await there.chat.take_turn(ANN, ask("two", "s", idempotency_key="old"))
    await there.chat.take_turn(ANN, ask("two, rather", "s", edit=3, idempotency_key="new"))
    here.machine.lose("")

    assert await here.log() == ["one", "First.", "two, rather", "Two anew."]
    assert here.store.sessions.journal is not None
    assert here.store.sessions.journal.status.quarantined == 1
