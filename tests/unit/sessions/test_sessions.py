"""Sessions: who gets which session, what a caller gets instead, and what is announced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count

import pytest

from tenuto.errors import (
    IdempotencyKeyReused,
    Invalid,
    InvalidText,
    SessionBusy,
    SessionCorrupt,
    SessionExists,
    SessionNotFound,
    TooLarge,
)
from tenuto.model import (
    AppendBatch,
    BeginTurn,
    Changes,
    Draft,
    IdempotencyKey,
    NewSession,
    OpenTurn,
    Page,
    Producer,
    Scope,
    SessionQuery,
    TurnState,
)
from tenuto.model.policy import OnMissing, preset
from tenuto.model.session import Status
from tenuto.sessions import AppendRequest, EventKind, Sessions, TurnRequest, derived_id, fresh_id
from tenuto.sessions.transfer import ExportedSession
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore
from tests.samples import ACME, ANN, BOB, EVE, closing, says, texts
from tests.unit.sessions.memory_sessions import MemorySessions, turn_request, whole_turn


async def test_without_an_id_a_new_session_begins(harness: MemorySessions) -> None:
    turn = await whole_turn(harness.sessions(), ANN, turn_request("hello"))

    assert turn.created
    assert len(turn.session.id) == 36
    assert harness.kinds() == [EventKind.CREATED, EventKind.UPDATED]


@pytest.mark.requirement("A7")
async def test_on_missing_error_refuses_absent_and_foreign_alike(harness: MemorySessions) -> None:
    """What a caller may not have and what never was are told in the same words."""
    sessions = harness.sessions(on_missing=OnMissing.ERROR)
    theirs = (await whole_turn(sessions, ANN, turn_request("hello"))).session.id

    with pytest.raises(SessionNotFound) as excinfo:
        await sessions.begin(BOB, turn_request("hi", theirs))
    with pytest.raises(SessionNotFound) as absent:
        await sessions.begin(BOB, turn_request("hi", "never was"))

    assert str(excinfo.value) == str(absent.value)


@pytest.mark.requirement("A7")
async def test_not_found_takes_an_even_time(harness: MemorySessions) -> None:
    """It is longer than any store needs, so that it does not tell whether the session exists."""
    sessions, now = harness.sessions(), asyncio.get_running_loop().time
    await sessions.create(ANN, None, "s")
    for session_id in ("s", "never was"):
        for call in (sessions.get, sessions.messages, sessions.delete):
            began = now()
            with pytest.raises(SessionNotFound):
                await call(BOB, session_id)
            assert now() - began >= 0.004


@pytest.mark.requirement("B6", "B12")
async def test_on_missing_new_id_starts_elsewhere(harness: MemorySessions) -> None:
    """An unknown or expired id gives a new session, new id, no history, never an error."""
    sessions = harness.sessions(on_missing=OnMissing.NEW_ID)
    old = await whole_turn(sessions, ANN, turn_request("hello"))
    harness.clock.advance(timedelta(days=31))

    unknown = await whole_turn(sessions, ANN, turn_request("hi", "unknown"))
    expired = await whole_turn(sessions, ANN, turn_request("hi", old.session.id))

    assert unknown.created
    assert unknown.session.id != "unknown"
    assert expired.created
    assert expired.session.id != old.session.id
    assert [message.text for message in expired.window] == ["hi"]


async def test_on_missing_adopt_takes_the_callers_id(harness: MemorySessions) -> None:
    sessions = harness.sessions(on_missing=OnMissing.ADOPT)

    turn = await whole_turn(sessions, ANN, turn_request("hello", "my own id"))

    assert turn.created
    assert turn.session.id == "my own id"


@pytest.mark.requirement("A8", "T2")
@pytest.mark.parametrize("rule", [OnMissing.NEW_ID, OnMissing.ADOPT])
async def test_a_hijack_gets_a_new_id_and_a_warning_names_both(
    harness: MemorySessions, rule: OnMissing, caplog: pytest.LogCaptureFixture
) -> None:
    """Owner and caller are in the warning; what was stored stays as it was."""
    sessions = harness.sessions(on_missing=rule)
    owned = (await whole_turn(sessions, ANN, turn_request("secret"))).session
    before = await harness.store.sessions.messages(ANN, owned.id, Page())

    turn = await whole_turn(sessions, BOB, turn_request("mine now", owned.id))

    assert turn.session.id != owned.id
    assert turn.session.scope == BOB
    assert [message.text for message in turn.window] == ["mine now"]
    again = await whole_turn(sessions, BOB, turn_request("and again", owned.id))
    assert (again.session.id == turn.session.id) is (rule is OnMissing.ADOPT)
    refused = next(event for event in harness.heard if event.kind is EventKind.HIJACK_REFUSED)
    assert (refused.session_id, refused.owner, refused.scope.user) == (owned.id, "user:ann", "bob")
    warning = next(record for record in caplog.records if record.levelname == "WARNING")
    assert "user:ann" in warning.getMessage()
    assert "user:bob" in warning.getMessage()
    assert "mine now" not in caplog.text
    assert await harness.store.sessions.messages(ANN, owned.id, Page()) == before


@pytest.mark.requirement("A8")
async def test_creating_with_an_id(sessions: Sessions) -> None:
    """Absent is made, the caller's own comes back, another user's leads to a new id, which is one for each user."""
    made, new = await sessions.create(ANN, NewSession(title="T"), "chosen")
    same, again = await sessions.create(ANN, None, "chosen")
    other, replaced = await sessions.create(BOB, None, "chosen")
    others, twice = await sessions.create(BOB, None, "chosen", "a key")

    assert (made.id, made.title, new) == ("chosen", "T", True)
    assert (same.id, same.title, again) == ("chosen", "T", False)
    assert replaced
    assert other.id != "chosen"
    assert (others.id, twice) == (other.id, False)
    assert (await sessions.get(ANN, "chosen")).title == "T"


async def test_the_same_id_of_another_tenant_is_no_conflict(harness: MemorySessions, sessions: Sessions) -> None:
    await sessions.create(ANN, None, "chosen")

    theirs, new = await sessions.create(EVE, None, "chosen")

    assert (theirs.id, new) == ("chosen", True)
    assert EventKind.HIJACK_REFUSED not in harness.kinds()


async def test_a_retried_first_turn_finds_its_session_by_the_key(harness: MemorySessions, sessions: Sessions) -> None:
    """A turn without an id, sent twice under one key, is one session with one question."""
    first = await whole_turn(sessions, ANN, turn_request("hello", idempotency_key="k"))

    again = await whole_turn(sessions, ANN, turn_request("hello", idempotency_key="k"))

    assert again.session.id == first.session.id
    assert again.state is TurnState.FINISHED
    assert await texts(harness.store, ANN, first.session.id) == ["hello", "answer"]
    assert len((await sessions.list(ANN)).sessions) == 1


async def test_a_retry_that_must_move_to_a_new_id_moves_to_the_same(harness: MemorySessions) -> None:
    sessions = harness.sessions(on_missing=OnMissing.NEW_ID)

    first = await whole_turn(sessions, ANN, turn_request("hello", "unknown", idempotency_key="k"))
    again = await whole_turn(sessions, ANN, turn_request("hello", "unknown", idempotency_key="k"))

    assert again.session.id == first.session.id
    assert again.state is TurnState.FINISHED


async def test_keys_of_different_callers_lead_to_different_sessions(sessions: Sessions) -> None:
    ids = {
        (await sessions.begin(scope, turn_request("hi", idempotency_key="k"))).session.id
        for scope in (ANN, BOB, EVE, ACME)
    }

    assert len(ids) == 4


async def test_a_key_with_other_words_is_refused(sessions: Sessions) -> None:
    await whole_turn(sessions, ANN, turn_request("hello", idempotency_key="k"))

    with pytest.raises(IdempotencyKeyReused):
        await sessions.begin(ANN, turn_request("something else", idempotency_key="k"))


@pytest.mark.requirement("D17")
async def test_a_busy_session_is_waited_for(harness: MemorySessions) -> None:
    sessions = harness.sessions(busy_wait=timedelta(seconds=20))
    first = await sessions.begin(ANN, turn_request("one"))

    second = asyncio.create_task(sessions.begin(ANN, turn_request("two", first.session.id)))
    await asyncio.sleep(0.02)
    assert not second.done()
    await sessions.finish(first, closing("answer one"))

    assert [message.text for message in (await second).window] == ["one", "answer one", "two"]


async def test_waiting_for_a_busy_session_ends(harness: MemorySessions) -> None:
    sessions = harness.sessions(busy_wait=timedelta(milliseconds=30))
    first = await sessions.begin(ANN, turn_request("one"))

    with pytest.raises(SessionBusy):
        await sessions.begin(ANN, turn_request("two", first.session.id))


class Damaged(FlatMemoryStore):
    """Meets one damaged record, sets it aside and tells, as the port demands."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.damaged = {"s"}

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        self._tell(request.session_id)
        return await super().begin_turn(scope, request)

    def _tell(self, session_id: str) -> None:
        if session_id in self.damaged:
            self.damaged.remove(session_id)
            raise SessionCorrupt(session_id)


@pytest.mark.requirement("X6", "E8", "B12")
@pytest.mark.parametrize("rule", [OnMissing.NEW_ID, OnMissing.ADOPT])
async def test_a_damaged_session_is_announced_and_starts_afresh(
    rule: OnMissing, caplog: pytest.LogCaptureFixture
) -> None:
    """The words are stored once, in a fresh session."""
    clock = FakeClock()
    harness = MemorySessions(Damaged(clock))

    turn = await whole_turn(harness.sessions(on_missing=rule), ANN, turn_request("hello", "s"))

    assert turn.created
    assert harness.kinds() == [EventKind.QUARANTINED, EventKind.CREATED, EventKind.UPDATED]
    assert [(record.levelname, record.args) for record in caplog.records] == [("ERROR", ("s", "quarantined", "acme"))]
    assert await texts(harness.store, ANN, turn.session.id) == ["hello", "answer"]


@pytest.mark.requirement("B14")
async def test_attributes_of_an_absent_session_are_nothing(sessions: Sessions) -> None:
    """Setting does nothing, getting gives nothing."""
    await sessions.create(ANN, None, "s")

    assert await sessions.set_attribute(ANN, "s", "colour", "red")
    assert not await sessions.set_attribute(ANN, "absent", "colour", "red")
    assert await sessions.get_attribute(ANN, "s", "colour") == "red"
    assert await sessions.get_attribute(ANN, "s", "size") is None
    assert await sessions.get_attribute(ANN, "absent", "colour") is None


async def test_a_fork_onto_somebody_elses_id_gets_another(sessions: Sessions) -> None:
    await sessions.create(ANN, None, "mine")
    await sessions.create(BOB, None, "his")

    fork = await sessions.fork(ANN, "mine", new_id="his")

    assert fork.id not in {"his", "mine"}
    with pytest.raises(SessionExists):
        await sessions.fork(ANN, "mine", new_id=fork.id)
    with pytest.raises(SessionNotFound):
        await sessions.fork(ANN, "his")


async def test_an_import_under_another_id_is_found_again_when_the_id_is_free(sessions: Sessions) -> None:
    saved = ExportedSession(new=NewSession(), messages=(says("hi"),))
    await sessions.create(ANN, None, "s")

    assert (await sessions.restore(BOB, saved, "s")).id != "s"
    await sessions.delete(ANN, "s")
    with pytest.raises(SessionExists):
        await sessions.restore(BOB, saved, "s")


Bad = Callable[[Sessions], Awaitable[object]]


@pytest.mark.parametrize(
    ("error", "act"),
    [
        (TooLarge, lambda sessions: sessions.begin(ANN, turn_request("x" * 2_000_000))),
        (InvalidText, lambda sessions: sessions.begin(ANN, turn_request("a\0b"))),
        (InvalidText, lambda sessions: sessions.begin(ANN, turn_request("\ud800", idempotency_key="k"))),
        (Invalid, lambda sessions: sessions.begin(ANN, turn_request("x", session_id=""))),
        (Invalid, lambda sessions: sessions.begin(ANN, turn_request("x", window=-1))),
        (Invalid, lambda sessions: sessions.create(ANN, None, "x" * 20_000)),
        (Invalid, lambda sessions: sessions.append(ANN, "s", sent(nested(80)))),
        (Invalid, lambda sessions: sessions.append(ANN, "s", sent(says("x", tokens=-1)))),
        (Invalid, lambda sessions: sessions.append(ANN, "s", sent(says("x", metadata={"n": float("nan")})))),
        (Invalid, lambda sessions: sessions.append(ANN, "s", sent(says("x", parts=({"no": "type"},))))),
        (Invalid, lambda sessions: sessions.messages(ANN, "s", Page(limit=10**9))),
    ],
    ids=count(),
)  # fmt: skip
async def test_bad_input_is_refused_and_leaves_nothing(sessions: Sessions, error: type[Exception], act: Bad) -> None:
    with pytest.raises(error):
        await act(sessions)

    assert (await sessions.list(ACME)).sessions == ()


def sent(*drafts: Draft) -> AppendRequest:
    return AppendRequest(messages=drafts)


def nested(depth: int) -> Draft:
    value: object = "deep"
    for _ in range(depth):
        value = [value]
    return says("x", metadata={"deep": value})


async def test_an_append_is_stored_once_under_its_key(sessions: Sessions) -> None:
    await sessions.create(ANN, None, "s")
    request = AppendRequest(messages=(says("x"),), idempotency_key="k")

    first = await sessions.append(ANN, "s", request)
    again = await sessions.append(ANN, "s", AppendRequest(messages=(says("x"),), idempotency_key="k"))

    assert (first.duplicate, again.duplicate) == (False, True)
    with pytest.raises(IdempotencyKeyReused):
        await sessions.append(ANN, "s", AppendRequest(messages=(says("y"),), idempotency_key="k"))


@pytest.mark.requirement("A23")
def test_fresh_ids_sort_by_time_and_are_version_7() -> None:
    ids = [fresh_id() for _ in range(1000)]

    assert len(set(ids)) == 1000
    assert all(item[14] == "7" and item[19] in "89ab" for item in ids)
    assert [item[:13] for item in ids] == sorted(item[:13] for item in ids)


@pytest.mark.requirement("D6")
def test_derived_ids_are_stable_and_keep_facts_apart() -> None:
    """12 bytes of a hash over tenant, app and chat."""
    assert derived_id("lark-", "t", "app", "chat") == derived_id("lark-", "t", "app", "chat")
    assert derived_id("lark-", "t", "app", "chat") != derived_id("lark-", "t", "appchat", "")
    assert len(derived_id("lark-", "t")) == len("lark-") + 24


@pytest.mark.requirement("T20")
async def test_a_preset_brings_its_own_rules_to_a_turn(harness: MemorySessions) -> None:
    """Per-request overrides change behaviour."""
    sessions = harness.sessions(on_missing=OnMissing.ERROR)
    npc = preset("npc").sessions

    turn = await whole_turn(sessions, ANN, turn_request("hello", "visitor-1", policy=npc))

    assert turn.session.id == "visitor-1"
    assert turn.session.expires_at == harness.clock() + timedelta(hours=24)
    assert turn.session.retention.max_messages == 50


async def test_nothing_of_a_batch_is_stored_when_one_message_is_bad(
    harness: MemorySessions, sessions: Sessions
) -> None:
    await sessions.create(ANN, None, "s")

    with pytest.raises(Invalid):
        await sessions.append(ANN, "s", AppendRequest(messages=(says("good"), says("bad\0"))))

    assert await texts(harness.store, ANN, "s") == []


def test_a_batch_cannot_be_guarded_twice() -> None:
    with pytest.raises(Invalid):
        AppendBatch(id="b", idempotency_key=IdempotencyKey(key="k", fingerprint="f"), producer=Producer(id="p", seq=1))


@pytest.mark.requirement("E25")
async def test_a_conversation_is_inactive_after_a_while_and_active_with_its_next_turn() -> None:
    """By rule, in every listing, whatever page a session stands on; what is archived by hand stays so."""
    harness = MemorySessions()
    sessions = harness.sessions(inactive_after=timedelta(minutes=30))
    ids = [(await sessions.create(ANN, NewSession()))[0].id for _ in range(3)]
    await sessions.patch(ANN, ids[2], Changes(status=Status.ARCHIVED))
    harness.clock.advance(timedelta(minutes=29))
    assert (await sessions.get(ANN, ids[0])).status is Status.ACTIVE
    harness.clock.advance(timedelta(minutes=1))
    new = [(await sessions.create(ANN, NewSession()))[0].id for _ in range(2)]

    async def listed(status: Status) -> list[str]:
        found, cursor = list[str](), None
        while True:
            page = await sessions.list(ANN, SessionQuery(status=status, limit=1, cursor=cursor))
            assert all(session.status is status for session in page.sessions)
            found, cursor = found + [session.id for session in page.sessions], page.cursor
            if cursor is None:
                return sorted(found)

    assert (await sessions.get(ANN, ids[0])).status is Status.INACTIVE
    assert (await sessions.messages(ANN, ids[0])).session.status is Status.INACTIVE
    assert [await listed(status) for status in Status] == [sorted(new), sorted(ids[:2]), ids[2:]]

    await sessions.patch(ANN, ids[1], Changes(status=Status.INACTIVE))
    for session_id in ids[:2]:
        await sessions.finish(
            await sessions.begin(ANN, TurnRequest(user_messages=(says("hi"),), session_id=session_id)), closing("yes")
        )
    assert [await listed(status) for status in Status] == [sorted(new + ids[:2]), [], ids[2:]]
    assert (await harness.sessions(inactive_after=timedelta(0)).get(ANN, ids[2])).status is Status.ARCHIVED

    sessions = harness.sessions(inactive_after=timedelta(minutes=30), archive_after=timedelta(days=7))
    await sessions.patch(ANN, ids[1], Changes(status=Status.INACTIVE))
    harness.clock.advance(timedelta(days=7))
    assert [await listed(status) for status in Status] == [[], sorted([ids[0], *new]), sorted(ids[1:])]
    harness.clock.advance(timedelta(minutes=30))
    assert [await listed(status) for status in Status] == [[], [], sorted(ids + new)]
    turn = await sessions.begin(ANN, TurnRequest(user_messages=(says("hi"),), session_id=ids[0]))
    await sessions.finish(turn, closing("yes"))
    assert (await sessions.get(ANN, ids[0])).status is Status.ACTIVE
