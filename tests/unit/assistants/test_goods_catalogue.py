"""The catalogue in the store: laid once, replaced as a whole, kept in this process, the same on every backend."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from datetime import date
from pathlib import Path

import pytest

from tenuto.assistants.goods import Item, Order, OrderStatus, Shop, replace_catalogue, replace_orders
from tenuto.assistants.goods.catalogue import Catalogue
from tenuto.assistants.goods.item import shipped_items, shipped_orders
from tenuto.assistants.goods.shop import NAMESPACE
from tenuto.assistants.goods.words import CATEGORIES
from tenuto.errors import Invalid, StateCorrupt, Unavailable
from tenuto.model import Scope, StateEntry
from tenuto.model.values import Json
from tenuto.ports import StateStore
from tests.backends import POSTGRES, REDIS, SQLITE, Backend, Place
from tests.clock import FakeClock
from tests.doubles import MemoryStore

SHOP = Scope(tenant="acme")
ANN = Scope(tenant="acme", user="1001")
LUTE = Item(id="L1", name="Lute", category="instruments", price=900, stock=2)


def harps(count: int) -> list[Item]:
    return [
        Item(id=f"H{number}", name=f"Harp {number}", category="instruments", price=number) for number in range(count)
    ]


def ids(catalogue: Catalogue) -> set[str]:
    return set(catalogue.by_id)


class Watched:
    """A store that counts what is asked of it, and fails at one write, or is away, when told to."""

    away = False

    def __init__(self, store: StateStore, fail_at_write: int | None = None) -> None:
        self.store = store
        self.list_state_locations = store.list_state_locations
        self.read_states, self.change_states = store.read_states, store.change_states
        self.calls: Counter[str] = Counter()
        self.fail_at_write = fail_at_write

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        self.calls["read"] += 1
        if self.away:
            raise Unavailable("session store")
        return await self.store.read_state(scope, namespace, key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        if self.calls["write"] == self.fail_at_write:
            raise Unavailable("session store")
        self.calls["write"] += 1
        return await self.store.write_state(scope, namespace, key, value, if_version)

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        self.calls["delete"] += 1
        return await self.store.delete_state(scope, namespace, key, if_version)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        self.calls["list"] += 1
        return await self.store.list_state(scope, namespace, after, limit)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return await self.store.state_keys(scope, namespace, after, limit)


@pytest.fixture(params=[SQLITE, POSTGRES, REDIS, None], ids=lambda backend: backend.name if backend else "memory")
async def store(request: pytest.FixtureRequest, fake_clock: FakeClock, tmp_path: Path) -> AsyncIterator[StateStore]:
    backend: Backend | None = request.param
    if backend is None:
        yield MemoryStore(clock=fake_clock).state
        return
    async with backend.open(Place(clock=fake_clock, folder=tmp_path, server=request.getfixturevalue)) as opened:
        yield opened.state


@pytest.fixture
def memory() -> StateStore:
    return MemoryStore().state


async def test_the_first_question_lays_the_shipped_catalogue(store: StateStore) -> None:
    catalogue = await Shop(store).catalogue(ANN)

    assert ids(catalogue) == {item.id for item in shipped_items()}
    assert catalogue.items == shipped_items()
    keys = [entry.key for entry in await store.list_state(SHOP, NAMESPACE)]
    assert len(keys) == 3  # the head and two chunks


async def test_a_hundred_first_questions_at_once_lay_one_catalogue(store: StateStore) -> None:
    """Ten processes, ten questions each."""
    shops = [Shop(store) for _ in range(10)]

    catalogues = await asyncio.gather(*(shop.catalogue(ANN) for shop in shops for _ in range(10)))

    assert all(len(catalogue.items) == len(shipped_items()) for catalogue in catalogues)
    entries = await store.list_state(SHOP, NAMESPACE)
    assert len(entries) == 3
    assert next(entry for entry in entries if entry.key == "catalogue").version == 1


async def test_a_replaced_catalogue_is_seen_at_the_next_question(store: StateStore) -> None:
    here, there = Shop(store), Shop(store)
    await here.catalogue(ANN)
    await there.catalogue(ANN)

    await replace_catalogue(store, ANN, [LUTE])

    assert ids(await here.catalogue(ANN)) == {"L1"}
    assert ids(await there.catalogue(ANN)) == {"L1"}
    assert len(await store.list_state(SHOP, NAMESPACE)) == 2


async def test_catalogues_that_race_leave_one_whole_one(store: StateStore) -> None:
    shop = Shop(store)
    sizes = [1, 150, 250, 450]

    results = await asyncio.gather(
        *(replace_catalogue(store, SHOP, harps(size)) for size in sizes),
        *(Shop(store).catalogue(SHOP) for _ in range(4)),
        return_exceptions=True,
    )

    catalogue = await shop.catalogue(SHOP)
    assert not [result for result in results if isinstance(result, Exception) and not isinstance(result, Unavailable)]
    assert len(catalogue.items) in sizes
    chunks = -(-len(catalogue.items) // 200)
    assert len(await store.list_state(SHOP, NAMESPACE)) == 1 + chunks


async def test_tenants_and_sites_have_their_own_catalogues(store: StateStore) -> None:
    shop = Shop(store)
    await replace_catalogue(store, SHOP, [LUTE])

    for scope in (Scope(tenant="other"), Scope(tenant="acme", site="museum")):
        assert "L1" not in (await shop.catalogue(scope)).by_id
    assert ids(await shop.catalogue(ANN)) == {"L1"}


@pytest.mark.requirement("A30")
async def test_orders_live_with_their_buyer(store: StateStore) -> None:
    """An order is in its buyer's state alone."""
    shop = Shop(store)
    order = Order(id="X-1", item="L1", name="Lute", status=OrderStatus.SHIPPED, ordered_on=date(2026, 11, 1))
    await replace_orders(store, ANN, [order])

    assert await shop.orders(ANN) == (order,)
    assert await shop.orders(Scope(tenant="acme", user="zoe")) == ()
    assert await shop.orders(SHOP) == ()
    assert all(entry.key != "orders" for entry in await store.list_state(SHOP, NAMESPACE))


async def test_demonstration_orders_vanish_with_the_shipped_goods(memory: StateStore) -> None:
    shop = Shop(memory)
    shipped = await shop.orders(ANN)

    await replace_catalogue(memory, SHOP, [LUTE])

    assert sorted(order.id for order in shipped) == sorted(order.id for order in shipped_orders()["1001"])
    assert await shop.orders(ANN) == ()


async def test_orders_that_are_there_are_not_overwritten_by_demonstration(memory: StateStore) -> None:
    order = Order(id="X-1", item="L1", name="Lute", status=OrderStatus.PAID, ordered_on=date(2026, 11, 1))
    await replace_orders(memory, ANN, [order])

    await Shop(memory).catalogue(ANN)

    assert await Shop(memory).orders(ANN) == (order,)


async def test_a_warm_catalogue_costs_one_small_read() -> None:
    store = Watched(MemoryStore().state)
    shop = Shop(store)
    first = await shop.catalogue(ANN)
    store.calls.clear()

    again = await shop.catalogue(ANN)

    assert again is first
    assert store.calls == {"read": 1}


async def test_laying_takes_few_big_writes() -> None:
    store = Watched(MemoryStore().state)

    await Shop(store).catalogue(ANN)

    assert store.calls["write"] == 3 + len(shipped_orders())
    assert store.calls["list"] == 1


@pytest.mark.parametrize("fail_at", range(3 + len(shipped_orders())))
async def test_laying_that_broke_off_anywhere_is_made_good(fail_at: int) -> None:
    inner = MemoryStore()
    with pytest.raises(Unavailable):
        await Shop(Watched(inner.state, fail_at_write=fail_at)).catalogue(ANN)

    catalogue = await Shop(inner.state).catalogue(ANN)

    assert len(catalogue.items) == len(shipped_items())
    assert len(await Shop(inner.state).orders(ANN)) == len(shipped_orders()["1001"])
    assert len(await inner.state.list_state(SHOP, NAMESPACE)) == 3


async def test_an_older_shipped_edition_gives_way_an_own_catalogue_does_not(
    memory: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Scope(tenant="own")
    await Shop(memory).catalogue(SHOP)
    await replace_catalogue(memory, own, [LUTE])
    monkeypatch.setattr("tenuto.assistants.goods.shop.EDITION", 2)
    monkeypatch.setattr("tenuto.assistants.goods.shop.shipped_items", lambda: tuple(harps(3)))

    assert len((await Shop(memory).catalogue(SHOP)).items) == 3
    assert ids(await Shop(memory).catalogue(own)) == {"L1"}
    assert len(await memory.list_state(SHOP, NAMESPACE)) == 2


async def test_an_empty_catalogue_is_a_catalogue(memory: StateStore) -> None:
    await replace_catalogue(memory, SHOP, [])

    assert (await Shop(memory).catalogue(SHOP)).items == ()


async def test_a_catalogue_that_cannot_be_read_says_so_and_quotes_nothing(memory: StateStore) -> None:
    await memory.write_state(SHOP, NAMESPACE, "catalogue", {"name": "secret", "chunks": "many"})

    with pytest.raises(Unavailable) as excinfo:
        await Shop(memory).catalogue(SHOP)

    assert "secret" not in str(excinfo.value)
    assert excinfo.value.__cause__ is None


async def test_a_catalogue_that_was_read_serves_while_the_store_is_away_but_not_once_damaged() -> None:
    """Orders are no catalogue: whose they are, the store alone knows."""
    inner = MemoryStore().state
    store = Watched(inner)
    shop = Shop(store)
    await replace_catalogue(inner, SHOP, [LUTE])
    await shop.catalogue(SHOP)

    store.away = True
    served = await shop.catalogue(ANN)
    with pytest.raises(Unavailable):
        await shop.orders(ANN)
    with pytest.raises(Unavailable):
        await shop.catalogue(Scope(tenant="own"))
    store.away = False
    await inner.write_state(SHOP, NAMESPACE, "catalogue", {"name": "old", "chunks": "many"})

    assert ids(served) == {"L1"}
    with pytest.raises(StateCorrupt):
        await shop.catalogue(SHOP)


async def test_a_damaged_catalogue_is_replaced_like_any_other(memory: StateStore) -> None:
    await memory.write_state(SHOP, NAMESPACE, "catalogue", {"name": "old", "chunks": "many"})

    await replace_catalogue(memory, SHOP, [LUTE])

    assert ids(await Shop(memory).catalogue(SHOP)) == {"L1"}


async def test_no_shop_waits_for_the_catalogue_of_another() -> None:
    class Stalling(Watched):
        """A store whose first listing waits until it is told to go on."""

        def __init__(self, store: StateStore) -> None:
            super().__init__(store)
            self.listed, self.released = asyncio.Event(), asyncio.Event()

        async def list_state(
            self, scope: Scope, namespace: str, after: str = "", limit: int = 100
        ) -> tuple[StateEntry, ...]:
            if not self.listed.is_set():
                self.listed.set()
                await self.released.wait()
            return await super().list_state(scope, namespace, after, limit)

    store = Stalling(MemoryStore().state)
    shop = Shop(store)

    async with asyncio.TaskGroup() as group:
        slow = group.create_task(shop.catalogue(SHOP))
        await store.listed.wait()
        for other in (Scope(tenant="other"), Scope(tenant="acme", site="museum")):
            assert len((await shop.catalogue(other)).items) == len(shipped_items())
        assert not slow.done()
        store.released.set()

    assert len(slow.result().items) == len(shipped_items())


async def test_a_big_catalogue_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    built_in: list[int] = []

    class Noted(Catalogue):
        def __init__(self, items: Iterable[Item]) -> None:
            built_in.append(threading.get_ident())
            super().__init__(items)

    monkeypatch.setattr("tenuto.assistants.goods.shop.Catalogue", Noted)

    catalogues = await asyncio.gather(*[Shop(MemoryStore().state).catalogue(ANN) for _ in range(2)])

    assert [len(catalogue.items) for catalogue in catalogues] == [len(shipped_items())] * 2
    assert threading.get_ident() not in built_in


async def test_a_catalogue_with_two_items_of_one_id_is_refused(memory: StateStore) -> None:
    with pytest.raises(Invalid):
        await replace_catalogue(memory, SHOP, [LUTE, LUTE])
    with pytest.raises(Invalid):
        await replace_orders(memory, SHOP, [])

    assert await memory.list_state(SHOP, NAMESPACE) == ()


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_an_item_has_a_price_that_is_one(price: float) -> None:
    with pytest.raises(Invalid):
        Item(id="A", name="A", category="b", price=price)


def test_the_shipped_goods_are_complete_in_both_languages() -> None:
    items = shipped_items()

    assert len(items) >= 300
    assert len({item.id for item in items}) == len(items)
    assert {item.category for item in items} == set(CATEGORIES)
    for item in items:
        assert item.name.isascii()
        assert not item.name_zh.isascii()
        assert item.brand.isascii()
        assert not item.brand_zh.isascii()
        assert item.price > 0
        assert 3 <= item.rating <= 5


def test_the_shipped_orders_name_shipped_goods() -> None:
    known = {item.id for item in shipped_items()}
    orders = [order for own in shipped_orders().values() for order in own]

    assert {"1001", "1002", "12345"} <= shipped_orders().keys()
    assert len({order.id for order in orders}) == len(orders)
    assert all(order.item in known for order in orders)
