"""Which users are one person, on every backend that stores state: linked in one step, parted again, never half."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.access import LinkedBy, People, PersonNews
from tenuto.access.people import KNOWN_FOR, MOST_IDENTITIES, WRONG_CODES
from tenuto.errors import IdentityNotFound, Invalid, LinkCodeRefused, PersonFull, TooManyLinkCodes
from tenuto.model import Scope
from tenuto.model.values import JsonObject
from tenuto.ports import StateStore, Store
from tests.backends import KEEPING_STATE
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE

LIFE = timedelta(minutes=10)
PHONE = Scope(tenant="acme", user="ann.mobile")
WEB, LARK, TERMINAL = ANN, Scope(tenant="acme", user="ou_ann"), Scope(tenant="acme", user="ann@laptop")
on_every_backend = pytest.mark.parametrize("backend", KEEPING_STATE, ids=lambda backend: backend.name)


class Audited:
    """People, and what was noted of them."""

    def __init__(self, state: StateStore, clock: FakeClock) -> None:
        self.notes: list[tuple[Scope, PersonNews, str, JsonObject]] = []
        self.people = People(state=state, note=self._note, clock=clock, code_life=LIFE)

    async def _note(self, scope: Scope, news: PersonNews, by: str, about: JsonObject) -> None:
        self.notes.append((scope, news, by, about))


@pytest.fixture
def audited(store: Store, clock: FakeClock) -> Audited:
    return Audited(store.state, clock)


@pytest.fixture
def people(audited: Audited) -> People:
    return audited.people


async def users_of(people: People, scope: Scope) -> set[str]:
    return {one.user or "" for one in await people.scopes_of(scope)}


@on_every_backend
async def test_linked_users_are_one_person_and_nobody_elses(people: People) -> None:
    await people.link(WEB, "ou_ann", by="otto")
    person = await people.link(LARK, "ann@laptop", by="otto")

    assert set(person.users) == {"ann", "ou_ann", "ann@laptop"}
    for identity in (WEB, LARK, TERMINAL):
        assert await people.find(identity) == person
        assert (await people.scopes_of(identity))[0] == identity
    for stranger in (BOB, EVE, ANN_ELSEWHERE, ACME, Scope(tenant="acme", user="ann", channel="lark", chat="team")):
        assert await people.find(stranger) is None
        assert len(await people.scopes_of(stranger)) == 1


@on_every_backend
async def test_unlinking_parts_one_and_leaves_the_others_together(people: People) -> None:
    await people.link(WEB, "ou_ann", by="otto")
    await people.link(WEB, "ann@laptop", by="otto")

    left = await people.unlink(WEB, "ou_ann", by="themselves")
    last = await people.unlink(TERMINAL, by="themselves")

    assert left is not None
    assert (set(left.users), last) == ({"ann", "ann@laptop"}, None)
    assert [await people.find(one) for one in (WEB, LARK, TERMINAL)] == [None] * 3
    for other in (None, "ou_ann", "bob"):
        with pytest.raises(IdentityNotFound):
            await people.unlink(WEB, other, by="themselves")


@on_every_backend
async def test_people_that_are_linked_at_the_same_time_are_one_in_the_end(store: Store, clock: FakeClock) -> None:
    processes = [Audited(store.state, clock).people for _ in range(3)]
    pairs = [("a", "b"), ("c", "d"), ("b", "c"), ("d", "e"), ("a", "e")]

    await asyncio.gather(
        *(
            processes[place % 3].link(Scope(tenant="acme", user=one), other, by="otto")
            for place, (one, other) in enumerate(pairs)
        )
    )

    members = {await processes[0].members(Scope(tenant="acme", user=user)) for user in "abcde"}
    assert len(members) == 1
    assert set(*members) == set("abcde")


@on_every_backend
async def test_a_code_links_once_in_its_time_and_its_site(people: People, clock: FakeClock) -> None:
    used = (await people.show_code(WEB)).text
    linked = await people.use_code(LARK, f" {used.lower().replace('-', ' ')} ", by="themselves")
    replaced = (await people.show_code(WEB)).text
    late = await people.show_code(WEB)
    foreign = [(await people.show_code(one)).text for one in (EVE, ANN_ELSEWHERE)]
    clock.advance(LIFE)

    refusals = []
    for text in (used, replaced, late.text, *foreign, "0000000000"):
        with pytest.raises(LinkCodeRefused) as refused:
            await people.use_code(Scope(tenant="acme", user=f"tries {text}"), text, by="themselves")
        refusals.append((refused.value.code, str(refused.value)))

    assert {(one.user, one.how) for one in linked.identities} == {("ann", LinkedBy.CODE), ("ou_ann", LinkedBy.CODE)}
    assert late.expires_at == clock()
    assert len(set(refusals)) == 1


@on_every_backend
async def test_a_code_that_two_type_at_once_links_one_of_them(people: People) -> None:
    text = (await people.show_code(WEB)).text
    racers = [Scope(tenant="acme", user=f"racer {number}") for number in range(4)]

    results = await asyncio.gather(
        *(people.use_code(one, text, by="themselves") for one in racers), return_exceptions=True
    )

    assert sum(isinstance(one, LinkCodeRefused) for one in results) == 3
    assert len(await people.members(WEB)) == 2


@on_every_backend
async def test_an_own_code_links_nothing(people: People) -> None:
    with pytest.raises(LinkCodeRefused):
        await people.use_code(WEB, (await people.show_code(WEB)).text, by="themselves")


@on_every_backend
async def test_who_tries_too_many_codes_waits_even_with_the_right_one(people: People, clock: FakeClock) -> None:
    right = (await people.show_code(WEB)).text
    for _ in range(WRONG_CODES):
        with pytest.raises(LinkCodeRefused):
            await people.use_code(LARK, "wrong", by="themselves")
    with pytest.raises(TooManyLinkCodes) as refused:
        await people.use_code(LARK, right, by="themselves")
    clock.advance(refused.value.retry_after)

    await people.use_code(LARK, (await people.show_code(WEB)).text, by="themselves")

    assert refused.value.retry_after == LIFE
    assert await users_of(people, LARK) == {"ann", "ou_ann"}


@on_every_backend
async def test_a_claim_links_until_it_changes_or_someone_parts_them(people: People) -> None:
    for identity in (WEB, LARK, TERMINAL):
        await people.claim(identity, "employee 7")
        await people.claim(identity, "employee 7")
    await people.claim(EVE, "employee 7")
    together = await users_of(people, WEB)

    await people.unlink(WEB, by="otto")
    await people.claim(WEB, "employee 7")
    parted = await users_of(people, WEB)
    await people.claim(TERMINAL, "employee 8")
    await people.claim(BOB, "employee 8")
    await people.claim(PHONE, "employee 7")
    joined = await users_of(people, PHONE)
    await people.link(WEB, "ou_ann", by="otto")

    assert (together, parted) == ({"ann", "ou_ann", "ann@laptop"}, {"ann"})
    assert joined == {"ou_ann", "ann.mobile"}
    assert await users_of(people, TERMINAL) == {"ann@laptop", "bob"}
    assert await users_of(people, WEB) == {"ann", "ou_ann", "ann.mobile"}
    assert await people.find(EVE) is None


@on_every_backend
async def test_changes_are_noted_without_names_and_told_once_at_the_other_door(audited: Audited) -> None:
    people = audited.people
    await people.use_code(LARK, (await people.show_code(WEB)).text, by="themselves")
    told = [[await people.take_news(one) for one in (WEB, LARK)] for _ in range(2)]
    await people.unlink(LARK, by="themselves", informed="ou_ann")
    with pytest.raises(Invalid):
        await people.link(WEB, "ann", by="otto")
    with pytest.raises(LinkCodeRefused):
        await people.use_code(LARK, "wrong", by="themselves")

    assert told == [[PersonNews.LINKED, None], [None, None]]
    assert [await people.take_news(one) for one in (WEB, LARK)] == [PersonNews.UNLINKED, None]
    assert [(scope, news, by) for scope, news, by, _ in audited.notes] == [
        (ACME, PersonNews.LINKED, "themselves"), (ACME, PersonNews.UNLINKED, "themselves")
    ]  # fmt: skip
    assert "ann" not in str([about for *_, about in audited.notes])


@on_every_backend
async def test_a_person_has_a_bounded_number_of_identities(people: People) -> None:
    for number in range(MOST_IDENTITIES - 1):
        await people.link(WEB, f"u{number}", by="otto")
        await people.link(BOB, f"v{number}", by="otto")

    for other in ("bob", "one more"):
        with pytest.raises(PersonFull):
            await people.link(WEB, other, by="otto")
    assert len(await people.members(WEB)) == len(await people.members(BOB)) == MOST_IDENTITIES


@on_every_backend
async def test_another_process_notices_within_its_bound_and_an_own_change_at_once(
    store: Store, clock: FakeClock
) -> None:
    here, there = (Audited(store.state, clock).people for _ in range(2))
    assert [await process.find(WEB) for process in (here, there)] == [None, None]
    await here.link(WEB, "ou_ann", by="otto")
    at_once = await users_of(here, WEB)
    clock.advance(KNOWN_FOR)
    noticed = await users_of(there, WEB)
    await here.unlink(WEB, by="otto")
    clock.advance(KNOWN_FOR)

    assert at_once == noticed == {"ann", "ou_ann"}
    assert await users_of(there, WEB) == {"ann"}


@on_every_backend
async def test_an_erased_person_leaves_nothing(store: Store, people: People) -> None:
    before = await store.state.list_state(ACME, "people")
    for identity in (WEB, LARK):
        await people.claim(identity, "employee 7")
        await people.show_code(identity)
    await people.link(WEB, "ann@laptop", by="otto")
    await people.show_code(BOB)

    counts = [await people.erase(one) for one in (LARK, LARK, BOB)]
    await people.claim(TERMINAL, "employee 7")

    assert counts == [3, 0, 0]
    assert await people.find(TERMINAL) is None
    assert before == ()
    assert {key.partition(":")[0] for key in await store.state.state_keys(ACME, "people")} == {
        "changes", "claim", "user"
    }  # fmt: skip
    assert len(await store.state.state_keys(ACME, "people")) == 3


class CountingState:
    """A store of state that counts its reads."""

    def __init__(self, inner: StateStore) -> None:
        self._inner = inner
        self.reads = 0

    def __getattr__(self, name: str) -> object:
        self.reads += name.startswith(("read", "list"))
        return getattr(self._inner, name)


async def test_who_is_linked_with_nobody_costs_no_read_for_a_turn(clock: FakeClock) -> None:
    state = CountingState(MemoryStore().state)
    people = Audited(state, clock).people  # type: ignore[arg-type]

    for number in range(50):
        await people.find(Scope(tenant="acme", user=f"u{number}"))
    without_people = state.reads
    await people.link(WEB, "ou_ann", by="otto")
    state.reads = 0
    for _ in range(50):
        await people.find(BOB)

    assert without_people == 1
    assert state.reads == 2
