"""A chat whose client names nothing is found by its own history, and by no other's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.app import Tenuto, open_app
from tenuto.chat.sent_history import Unit, units_of_sent
from tenuto.model import Draft, Role, Scope, text_part
from tenuto.server.apps.by_history import Ending, SessionsByHistory, compare_ends
from tenuto.sessions import AppendRequest
from tenuto.sessions.ids import fresh_id
from tenuto.settings import Settings
from tests.clock import START, FakeClock

ANN = Scope(tenant="acme", user="ann")
BOB = Scope(tenant="acme", user="bob")
EVE = Scope(tenant="evil", user="ann")


@dataclass
class Chats:
    """Sessions whose chats are told by their texts."""

    tenuto: Tenuto
    clock: FakeClock
    index: SessionsByHistory

    async def store(self, scope: Scope, session_id: str, *texts: str) -> None:
        """A session with these texts, noted as a request for its last answer does."""
        drafts = tuple(map(draft, texts))
        await self.tenuto.sessions.create(scope, session_id=session_id)
        await self.tenuto.sessions.append(scope, session_id, AppendRequest(messages=drafts))
        await self.index.note(scope, items(*texts), session_id)

    async def find(self, scope: Scope, *texts: str) -> str | None:
        async def read(first: int) -> Sequence[Draft]:
            return [draft(text) for text in texts[first:]]

        return await self.index.find(scope, items(*texts), read)


def draft(text: str) -> Draft:
    """A message; that of the assistant begins with a minus."""
    role = Role.ASSISTANT if text.startswith("-") else Role.USER
    return Draft(id=fresh_id(), role=role, sent_at=START, parts=(text_part(text),))


def units(*texts: str) -> list[Unit]:
    return units_of_sent([draft(text) for text in texts])


def items(*texts: str) -> list[dict[str, Any]]:
    roles = {True: "assistant", False: "user"}
    return [{"role": roles[text.startswith("-")], "content": text} for text in texts]


@asynccontextmanager
async def opened() -> AsyncIterator[Chats]:
    clock = FakeClock()
    async with open_app(Settings(store="memory://"), clock=clock, run_upkeep=False) as tenuto:
        index = SessionsByHistory(
            state=tenuto.store.state,
            sessions=tenuto.sessions,
            redaction=(await tenuto.chat()).redaction,
            clock=clock,
            kept_for=timedelta(days=1),
        )
        yield Chats(tenuto, clock, index)


async def test_a_chat_goes_on_and_its_last_answer_is_asked_for_again() -> None:
    async with opened() as chats:
        await chats.store(ANN, "s", "one", "-a", "two", "-b")

        assert await chats.find(ANN, "one", "-a", "two", "-b", "three") == "s"
        assert await chats.find(ANN, "one", "-a", "two") == "s"
        assert await chats.find(ANN, "one", "-a", "two", "-b") == "s"


async def test_a_history_that_is_not_all_that_is_stored_is_another_chat() -> None:
    async with opened() as chats:
        await chats.store(ANN, "s", "one", "-a", "two", "-b")

        assert await chats.find(ANN, "one") is None
        assert await chats.find(ANN, "one", "-a", "zwei") is None
        assert await chats.find(ANN, "one", "-A", "two", "-b", "three") is None
        assert await chats.find(ANN, "one", "-a", "two", "-b", "three", "-c", "four") is None
        assert await chats.find(ANN, "two", "-b", "three") is None


async def test_of_chats_that_begin_alike_each_goes_on_with_its_own() -> None:
    async with opened() as chats:
        await chats.store(ANN, "s", "hello", "-hi")
        await chats.store(ANN, "t", "hello", "-hi", "two", "-b")
        await chats.store(ANN, "u", "hello", "-hey")

        assert await chats.find(ANN, "hello", "-hi", "x") == "s"
        assert await chats.find(ANN, "hello", "-hi", "two", "-b", "x") == "t"
        assert await chats.find(ANN, "hello", "-hey", "x") == "u"


async def test_a_chat_whose_answer_is_not_stored_yet_goes_on_unless_another_fits_better() -> None:
    """A client that stops an answer may ask on before the part that it has is stored."""
    async with opened() as chats:
        await chats.store(ANN, "s", "one", "-a", "two")
        assert await chats.find(ANN, "one", "-a", "two", "-par", "three") == "s"
        assert await chats.find(ANN, "one", "-b", "two", "-par", "three") is None

        await chats.store(ANN, "t", "one", "-a", "two", "-par")
        await chats.store(ANN, "u", "one", "-a", "two")

        assert await chats.find(ANN, "one", "-a", "two", "-par", "three") == "t"


async def test_the_chat_of_another_user_or_tenant_is_not_found() -> None:
    async with opened() as chats:
        await chats.store(ANN, "s", "one", "-a")

        assert await chats.find(BOB, "one", "-a", "two") is None
        assert await chats.find(EVE, "one", "-a", "two") is None
        assert await chats.find(Scope(tenant="acme"), "one", "-a", "two") is None


async def test_a_chat_is_found_for_as_long_as_it_is_used() -> None:
    async with opened() as chats:
        await chats.store(ANN, "s", "one", "-a")
        for _ in range(4):
            chats.clock.advance(timedelta(hours=20))
            assert await chats.find(ANN, "one", "-a", "two") == "s"
            await chats.index.note(ANN, items("one", "-a", "two"), "s")

        chats.clock.advance(timedelta(hours=25))

        assert await chats.find(ANN, "one", "-a", "two") is None


async def test_an_id_that_looks_like_private_data_is_noted_as_it_is() -> None:
    async with opened() as chats:
        await chats.store(ANN, "4111 1111 1111 1111", "one", "-a")

        assert await chats.find(ANN, "one", "-a", "two") == "4111 1111 1111 1111"


async def test_the_notes_of_a_user_go_with_the_user() -> None:
    async with opened() as chats:
        await chats.store(ANN, "s", "one", "-a")

        await chats.tenuto.privacy.erase(ANN, by="admin")

        assert await chats.tenuto.store.state.list_state_locations(Scope(tenant="acme")) == ()


async def test_a_session_that_is_gone_is_not_found() -> None:
    async with opened() as chats:
        await chats.store(ANN, "s", "one", "-a")
        await chats.tenuto.sessions.delete(ANN, "s")

        assert await chats.find(ANN, "one", "-a", "two") is None


async def test_notes_are_few_and_tell_nothing_of_the_chat() -> None:
    async with opened() as chats:
        for number in range(40):
            await chats.store(ANN, f"s{number}", "one", f"-{number}")

        [location] = await chats.tenuto.store.state.list_state_locations(Scope(tenant="acme"))
        entry = await chats.tenuto.store.state.read_state(ANN, location.namespace, location.key)

        assert entry is not None
        assert len(location.key) == 3
        assert [name for name, _ in entry.value] == [f"s{number}" for number in range(39, 23, -1)]


async def test_a_long_chat_is_known_by_its_end_and_reads_no_more_of_it() -> None:
    async with opened() as chats:
        texts = [f"{'-' * (place % 2)}{place}" for place in range(300)]
        await chats.store(ANN, "s", *texts)
        reads = []

        async def read(first: int) -> Sequence[Draft]:
            reads.append(first)
            return [draft(text) for text in [*texts, "new"][first:]]

        assert await chats.index.find(ANN, items(*texts, "new"), read) == "s"
        assert reads == [301 - 32]
        assert await chats.find(ANN, *texts[:100], "new") is None
        assert await chats.find(ANN, *texts[:-3], "new") is None


@given(st.lists(st.sampled_from("ab"), max_size=6), st.lists(st.sampled_from("ab"), max_size=6), st.booleans())
def test_whole_histories_end_alike_only_if_one_extends_the_other(
    stored: list[str], sent: list[str], asks: bool
) -> None:
    """Turns by their letters: whatever is compared, no stored turn is missing from the history, but the last answer."""

    def talk(turns: list[str]) -> list[Unit]:
        return units(*[text for turn in turns for text in (turn, f"-{turn}")])

    history = talk(sent) + units("new") * asks
    known = talk(stored)

    ending = compare_ends(known, history, stored_whole=True, sent_whole=True)

    assert (ending is Ending.SAME) is (bool(sent) and stored == sent)
    assert ending is not Ending.UNANSWERED


@pytest.mark.parametrize(
    ("stored", "sent", "alike"),
    [
        # A question that was not answered is stored, and asked again or followed by another.
        (["one", "-a", "two"], ["one", "-a", "two"], True),
        (["one", "-a", "two"], ["one", "-a", "two", "three"], True),
        (["one", "-a", "two"], ["one", "-a", "three"], False),
        # An answer that the client began.
        (["one", "-a"], ["one", "-a"], True),
        # The last answer is asked for again.
        (["one", "-a", "two", "-b"], ["one", "-a", "two"], True),
        (["one", "-a"], ["one"], False),
        ([], ["one", "-a", "two"], False),
    ],
)
def test_what_follows_the_last_answer_may_be_stored(stored: list[str], sent: list[str], alike: bool) -> None:
    ending = compare_ends(units(*stored), units(*sent), stored_whole=True, sent_whole=True)

    assert (ending is Ending.SAME) is alike


def test_a_session_that_lost_its_oldest_messages_goes_on() -> None:
    stored, sent = units("two", "-b"), units("one", "-a", "two", "-b", "three")

    assert compare_ends(stored, sent, stored_whole=False, sent_whole=True) is Ending.SAME
    assert compare_ends(stored, sent, stored_whole=True, sent_whole=True) is Ending.OTHER
