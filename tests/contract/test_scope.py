"""Outside its scope a session does not exist, whatever is asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import product

import pytest

from tenuto.errors import Invalid, SessionCorrupt, SessionExists, SessionForeign, SessionNotFound, TurnLost
from tenuto.model import Changes, ForkRequest, Page, Scope, Truncation
from tenuto.ports import Store
from tests.backends import Backend
from tests.clock import FakeClock
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, batch, begin, closing, listed, talk, texts

Act = Callable[[Store, Scope, str], Awaitable[object]]

ACTS: dict[str, Act] = {
    "get": lambda store, scope, id_: store.sessions.get(scope, id_),
    "messages": lambda store, scope, id_: store.sessions.messages(scope, id_, Page()),
    "begin_turn": lambda store, scope, id_: begin(store, scope, id_, "hi", create=None),
    "append": lambda store, scope, id_: store.sessions.append(scope, id_, batch("hi", create=None)),
    "patch": lambda store, scope, id_: store.sessions.patch(scope, id_, Changes(title="mine")),
    "reset": lambda store, scope, id_: store.sessions.reset(scope, id_),
    "fork": lambda store, scope, id_: store.sessions.fork(scope, id_, ForkRequest(new_id=f"copy of {id_}")),
    "truncate": lambda store, scope, id_: store.sessions.truncate(scope, id_, Truncation(after=0)),
    "delete": lambda store, scope, id_: store.sessions.delete(scope, id_),
}
STRANGERS = {"user": BOB, "tenant": EVE, "site": ANN_ELSEWHERE}


@pytest.mark.requirement("A7", "A25", "T1")
async def test_a_session_is_invisible_outside_its_scope(store: Store, subtests: pytest.Subtests) -> None:
    """Hot or cold, the stranger gets the answer of a session that never was."""
    for (kind, stranger), (name, act) in product(STRANGERS.items(), ACTS.items()):
        session_id = f"{name} by another {kind}"
        with subtests.test(session_id):
            await talk(store, ANN, session_id, "secret", "kept")
            before = await store.sessions.messages(ANN, session_id, Page())

            with pytest.raises(SessionNotFound) as excinfo:
                await act(store, stranger, session_id)
            with pytest.raises(SessionNotFound) as absent:
                await act(store, Scope(tenant="nobody", user="x"), session_id)

            assert str(excinfo.value) == str(absent.value)
            assert excinfo.value.code == absent.value.code
            assert await store.sessions.messages(ANN, session_id, Page()) == before


@pytest.mark.requirement("T1", "A7")
async def test_reads_at_the_same_time_are_not_shared_between_scopes(store: Store, subtests: pytest.Subtests) -> None:
    """A stranger who asks while the owner's read is under way, or before it, gets nothing of it."""
    asked = [(name, scope) for name in ("messages", "get") for scope in (ANN, *STRANGERS.values(), ANN)]
    for order in (asked, asked[::-1]):
        with subtests.test(f"{order[0]} first"):
            await talk(store, ANN, "s", "secret", "kept")
            # Nothing of it is cached after a change of its messages, so that the first read takes a while.
            await store.sessions.truncate(ANN, "s", Truncation(after=1))

            answers = await asyncio.gather(
                *(ACTS[name](store, scope, "s") for name, scope in order), return_exceptions=True
            )

            for (_, scope), answer in zip(order, answers, strict=True):
                assert isinstance(answer, SessionNotFound) is (scope != ANN), scope
                assert scope != ANN or not isinstance(answer, BaseException)


async def test_a_deleted_or_expired_session_is_not_found(
    store: Store, clock: FakeClock, subtests: pytest.Subtests
) -> None:
    for (name, act), end in product(ACTS.items(), ("deleted", "expired")):
        with subtests.test(f"{name} {end}"):
            await talk(store, ANN, name, "secret", "kept")
            if end == "deleted":
                await store.sessions.delete(ANN, name)
            else:
                clock.advance(timedelta(days=30))

            with pytest.raises(SessionNotFound):
                await act(store, ANN, name)


@pytest.mark.requirement("E8", "X6")
async def test_a_corrupt_session_is_not_found_and_set_aside(
    store: Store, backend: Backend, subtests: pytest.Subtests
) -> None:
    """The damaged record is kept apart; under its id a fresh session can start."""
    if backend.damage is None:
        return
    for name, act in ACTS.items():
        with subtests.test(name):
            await talk(store, ANN, name, "secret", "kept")
            await backend.damage(store, ANN, name)

            with pytest.raises(SessionNotFound) as excinfo:
                await act(store, ANN, name)
            with pytest.raises(SessionNotFound) as absent:
                await store.sessions.get(ANN, "never was")
            turn = await begin(store, ANN, name, "fresh start")

            assert str(excinfo.value) == str(absent.value)
            assert turn.created
            assert await texts(store, ANN, name) == ["fresh start"]


async def test_a_corrupt_session_is_told_once_then_starts_fresh(store: Store, backend: Backend) -> None:
    """Even a call that may create tells first, so that the caller can announce what was set aside."""
    if backend.damage is None:
        return
    await talk(store, ANN, "s", "secret", "kept")
    await backend.damage(store, ANN, "s")

    with pytest.raises(SessionCorrupt):
        await begin(store, ANN, "s", "hello again")
    turn = await talk(store, ANN, "s", "hello again", "hello")

    assert turn.created
    assert await texts(store, ANN, "s") == ["hello again", "hello"]


@pytest.mark.requirement("T2", "A8")
async def test_creating_on_a_foreign_id_of_the_tenant_touches_nothing(store: Store) -> None:
    """The hijack guard learns the owner; the stored session stays as it was."""
    await talk(store, ANN, "s", "secret", "kept")
    before = await store.sessions.messages(ANN, "s", Page())

    with pytest.raises(SessionForeign) as excinfo:
        await begin(store, BOB, "s", "mine now")
    with pytest.raises(SessionForeign):
        await store.sessions.append(BOB, "s", batch("mine now"))

    assert excinfo.value.owner == "user:ann"
    assert await store.sessions.messages(ANN, "s", Page()) == before


async def test_the_same_id_in_two_tenants_is_two_sessions(store: Store) -> None:
    await talk(store, ANN, "s", "acme's", "yes")

    turn = await begin(store, EVE, "s", "evil's")

    assert turn.created
    assert await texts(store, ANN, "s") == ["acme's", "yes"]
    assert await texts(store, EVE, "s") == ["evil's"]


async def test_the_tenant_itself_reaches_its_users_sessions(store: Store) -> None:
    await talk(store, ANN, "s", "question", "answer")

    session = await store.sessions.get(ACME, "s")

    assert session.scope == ANN


async def test_what_the_tenant_made_itself_is_no_users(store: Store) -> None:
    await begin(store, ACME, "s", "hello")

    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")


@pytest.mark.requirement("A30", "B3")
async def test_a_visitor_reaches_what_visitors_opened_and_nothing_else(store: Store, subtests: pytest.Subtests) -> None:
    """A visitor is neither a user, nor a chat, nor the tenant itself."""
    visitor, chat = Scope(tenant="acme", visitor=True), Scope(tenant="acme", channel="lark", chat="oc_1")
    for whose, owner in {"ann's": ANN, "a chat's": chat, "the tenant's": ACME}.items():
        with subtests.test(whose):
            await talk(store, owner, whose, "secret", "kept")
            with pytest.raises(SessionNotFound):
                await begin(store, visitor, whose, "what did you say?")
    await talk(store, visitor, "a visitor's", "question", "answer")

    follow_up = await begin(store, Scope(tenant="acme", visitor=True), "a visitor's", "and then?")

    assert [message.text for message in follow_up.window] == ["question", "answer", "and then?"]
    assert (await store.sessions.get(ACME, "a visitor's")).scope == visitor
    for outside in (ANN, chat, Scope(tenant="evil", visitor=True)):
        with pytest.raises(SessionNotFound):
            await store.sessions.get(outside, "a visitor's")


@pytest.mark.parametrize("somebody", [{"user": "ann"}, {"channel": "lark", "chat": "oc_1"}])
def test_a_visitor_is_nobody_else(somebody: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        Scope(tenant="acme", visitor=True, **somebody)


@pytest.mark.requirement("D16")
async def test_a_chat_is_shared_by_its_members_and_nobody_else(store: Store) -> None:
    """B may follow up on A's question in the group."""
    ann_in_group = Scope(tenant="acme", user="ann", channel="lark", chat="oc_1")
    bob_in_group = Scope(tenant="acme", user="bob", channel="lark", chat="oc_1")
    other_thread = Scope(tenant="acme", user="ann", channel="lark", chat="oc_1", thread="t")
    await talk(store, ann_in_group, "group", "question", "answer")

    follow_up = await begin(store, bob_in_group, "group", "and then?")

    assert [message.text for message in follow_up.window] == ["question", "answer", "and then?"]
    for outside in (ANN, other_thread, Scope(tenant="acme", user="ann", channel="lark", chat="oc_2")):
        with pytest.raises(SessionNotFound):
            await store.sessions.get(outside, "group")


@pytest.mark.requirement("T4")
async def test_a_turn_on_a_session_deleted_and_made_again_is_lost(store: Store) -> None:
    """The late reply of a deleted session does not land in its namesake."""
    old = await begin(store, ANN, "s", "old")
    await store.sessions.delete(ANN, "s")
    await begin(store, ANN, "s", "new")

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(old, closing("late"))

    assert await texts(store, ANN, "s") == ["new"]


@pytest.mark.requirement("T4")
async def test_a_turn_on_a_deleted_session_is_lost_and_revives_nothing(store: Store) -> None:
    """Deleted stays deleted."""
    turn = await begin(store, ANN, "s", "old")
    await store.sessions.delete(ANN, "s")

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(turn, closing("late"))
    with pytest.raises(SessionNotFound):
        await store.sessions.append(ANN, "s", batch("late", create=None))
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")


async def test_a_fork_onto_a_taken_id_is_refused(store: Store) -> None:
    await talk(store, ANN, "s", "q", "a")
    await talk(store, ANN, "mine", "q", "a")
    await talk(store, BOB, "his", "q", "a")

    with pytest.raises(SessionExists):
        await store.sessions.fork(ANN, "s", ForkRequest(new_id="mine"))
    with pytest.raises(SessionForeign):
        await store.sessions.fork(ANN, "s", ForkRequest(new_id="his"))

    assert await texts(store, BOB, "his") == ["q", "a"]


HOSTILE = ["*", "a:b", "a/b", "../../etc/passwd", "a b", "{tag}", "}{", "%", "_", "'; drop table session; --",
           "\n", "😀" * 20, "x" * 10_000, "s\u200b", "KEYS *", "\\", '"', "a\tb", "e\u0301", "\u00e9"]  # fmt: skip


@pytest.mark.requirement("T18")
async def test_hostile_ids_stay_in_their_scope(store: Store) -> None:
    """Whatever an id is made of, it names one session of one scope."""
    scopes = [Scope(tenant=odd, site=odd, user=odd) for odd in HOSTILE]
    for scope, odd in zip(scopes, HOSTILE, strict=True):
        await store.sessions.append(scope, odd, batch(f"of {HOSTILE.index(odd)}"))

    for place, (scope, odd) in enumerate(zip(scopes, HOSTILE, strict=True)):
        assert await texts(store, scope, odd) == [f"of {place}"]
        assert await listed(store, scope) == [odd]


@pytest.mark.requirement("T18")
async def test_parts_of_a_scope_do_not_run_into_each_other(store: Store) -> None:
    """("a", "b:c") is not ("a:b", "c")."""
    await store.sessions.append(Scope(tenant="a", site="b:c"), "s", batch("one"))

    with pytest.raises(SessionNotFound):
        await store.sessions.get(Scope(tenant="a:b", site="c"), "s")
    with pytest.raises(SessionNotFound):
        await store.sessions.get(Scope(tenant="a", site="b"), "c:s")
