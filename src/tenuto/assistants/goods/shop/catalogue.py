"""The catalogue and the orders in the store.

A tenant's site has one catalogue, in its own state: a head that names the edition, and the items in a few big chunks.
Whoever asks first finds none and lays the shipped one; an operator replaces it as a whole. Orders are their buyer's
state, so that the store's own walls keep them apart.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from tenuto.assistants.goods.shop.item import Item, Order
from tenuto.assistants.goods.shop.shelf import Shelf
from tenuto.assistants.goods.shop.shipped import EDITION, shipped_items, shipped_orders
from tenuto.errors import Invalid, Unavailable, VersionConflict
from tenuto.model.privacy import SHOP
from tenuto.model.scope import Scope
from tenuto.model.session import StateEntry
from tenuto.model.values import Json, Value
from tenuto.ports import StateStore

_T = TypeVar("_T")

NAMESPACE: Final = SHOP
MAX_ITEMS: Final = 20_000
MAX_ORDERS: Final = 500

_HEAD: Final = "catalogue"
_ORDERS: Final = "orders"
_CHUNK: Final = 200
_SHELVES: Final = 64
_TRIES: Final = 5


class Head(Value, frozen=True, kw_only=True):
    """Which catalogue there is. `shipped` is the edition that came with the package, 0 for an operator's own."""

    name: str
    chunks: int
    items: int
    shipped: int = 0
    format: int = 1


class OrderBook(Value, frozen=True, kw_only=True):
    """Somebody's orders; `demo` marks those that were laid with the shipped catalogue and mean nothing without it."""

    orders: tuple[Order, ...]
    demo: bool = False
    format: int = 1


class Catalogue:
    """Brings a tenant's shelf and a user's orders.

    Shelves are kept in this process, the most recently used ones. Each call asks for the head, one small read, and
    takes the kept shelf only when it is of that very edition.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._shelves: OrderedDict[tuple[str, str], tuple[str, Shelf]] = OrderedDict()
        # Dropped when nobody waits for it, so that there are as many as are being loaded.
        self._loading: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def shelf(self, scope: Scope) -> Shelf:
        """The catalogue of the scope's tenant and site.

        Raises:
            Unavailable: it cannot be read.
        """
        owner = _owner(scope)
        kept = self._kept(owner, await self._head(owner))
        if kept is not None:
            return kept
        async with self._lock(owner):
            return await self._load(owner)

    async def orders(self, scope: Scope) -> tuple[Order, ...]:
        """The orders of the scope's user, latest first; nobody else's can be reached from here."""
        if scope.user is None:
            return ()
        head = await self._head(_owner(scope))
        entry = await self._store.read_state(_buyer(scope, scope.user), NAMESPACE, _ORDERS)
        if entry is None:
            return ()
        book = _decoded(entry.value, OrderBook, "orders")
        if book.demo and not head.shipped:
            return ()
        return tuple(sorted(book.orders, key=lambda order: (order.ordered_on, order.id), reverse=True))

    async def _head(self, owner: Scope) -> Head:
        _, head = await self._read_head(owner)
        if head is not None:
            return head
        # One at a time: a hundred first questions to this process lay a catalogue once.
        async with self._lock(owner):
            return await self._laid_head(owner)

    def _lock(self, owner: Scope) -> asyncio.Lock:
        """The lock of one shop: no shop waits for another's catalogue."""
        return self._loading.setdefault((owner.tenant, owner.site), asyncio.Lock())

    async def _read_head(self, owner: Scope) -> tuple[StateEntry | None, Head | None]:
        """The stored entry, and the head in it if that is no older than what the package brings."""
        entry = await self._store.read_state(owner, NAMESPACE, _HEAD)
        head = None if entry is None else _decoded(entry.value, Head, "catalogue")
        return entry, None if head is None or 0 < head.shipped < EDITION else head

    async def _laid_head(self, owner: Scope) -> Head:
        """The head; where there is none, after laying the shipped catalogue and its orders.

        The head is written last: until it is there, nothing has happened.
        """
        for _ in range(_TRIES):
            before, head = await self._read_head(owner)
            if head is not None:
                return head
            for user, orders in shipped_orders().items():
                await _lay_demo_orders(self._store, _buyer(owner, user), orders)
            try:
                return await _lay(self._store, owner, shipped_items(), before, EDITION)
            except VersionConflict:
                pass  # another process was faster
        raise Unavailable("goods catalogue", "is being replaced by others all the time")

    def _kept(self, owner: Scope, head: Head) -> Shelf | None:
        place = (owner.tenant, owner.site)
        name, shelf = self._shelves.get(place, ("", None))
        if shelf is None or name != head.name:
            return None
        self._shelves.move_to_end(place)
        return shelf

    async def _load(self, owner: Scope) -> Shelf:
        for _ in range(_TRIES):
            head = await self._laid_head(owner)
            if (kept := self._kept(owner, head)) is not None:
                return kept
            chunks = await self._store.list_state(owner, NAMESPACE, _chunk(head.name), limit=head.chunks or 1)
            # Thousands of items take a while to read, and other turns go on meanwhile.
            shelf = await asyncio.to_thread(_shelved, head, chunks[: head.chunks])
            if shelf is not None:
                self._shelves[owner.tenant, owner.site] = (head.name, shelf)
                while len(self._shelves) > _SHELVES:
                    self._shelves.popitem(last=False)
                return shelf
        raise Unavailable("goods catalogue", "is not complete")


async def replace_catalogue(store: StateStore, scope: Scope, items: Iterable[Item]) -> None:
    """Make these the goods of the scope's tenant and site, for every process from its next question on.

    Readers see the catalogue before or this one, never a mixture. Demonstration orders vanish with the shipped goods.

    Raises:
        Invalid: two items have one id, or there are too many.
    """
    goods = tuple(items)
    if len({item.id for item in goods}) < len(goods):
        raise Invalid("two items of the catalogue have the same id")
    if len(goods) > MAX_ITEMS:
        raise Invalid(f"a catalogue holds at most {MAX_ITEMS} items")
    owner = _owner(scope)
    for _ in range(_TRIES):
        before = await store.read_state(owner, NAMESPACE, _HEAD)
        try:
            await _lay(store, owner, goods, before)
        except VersionConflict:
            continue
        return
    raise Unavailable("goods catalogue", "is being replaced by others all the time")


async def replace_orders(store: StateStore, scope: Scope, orders: Iterable[Order]) -> None:
    """Make these the orders of the scope's user.

    Raises:
        Invalid: the scope names no user, or there are too many orders.
    """
    book = OrderBook(orders=tuple(orders))
    if scope.user is None:
        raise Invalid("orders belong to a user")
    if len(book.orders) > MAX_ORDERS:
        raise Invalid(f"an order book holds at most {MAX_ORDERS} orders")
    await store.write_state(_buyer(scope, scope.user), NAMESPACE, _ORDERS, _encoded(book))


async def _lay(
    store: StateStore, owner: Scope, items: Sequence[Item], before: StateEntry | None, shipped: int = 0
) -> Head:
    """Write a catalogue beside the one before, point the head at it, and clear the other away.

    The name tells both the version it follows and the content: who lays the same writes the same, and who lays another
    one writes elsewhere.

    Raises:
        VersionConflict: the head is no longer the one before.
    """
    version = 0 if before is None else before.version
    replaced = None if before is None else _readable_head(before)
    parts = [_encoded(items[at : at + _CHUNK]) for at in range(0, len(items), _CHUNK)]
    digest = blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()
    head = Head(name=f"{version + 1:08d}-{digest}", chunks=len(parts), items=len(items), shipped=shipped)
    for number, part in enumerate(parts):
        await store.write_state(owner, NAMESPACE, _chunk(head.name, number), part)
    try:
        await store.write_state(owner, NAMESPACE, _HEAD, _encoded(head), if_version=version)
    except VersionConflict:
        await _clear_unless_used(store, owner, head)
        raise
    if replaced is not None:
        await _clear(store, owner, replaced)
    return head


def _readable_head(entry: StateEntry) -> Head | None:
    """The head; `None` for a damaged one, which names nothing that could be cleared away."""
    try:
        return _decoded(entry.value, Head, "catalogue")
    except Unavailable:
        return None


async def _clear_unless_used(store: StateStore, owner: Scope, head: Head) -> None:
    entry = await store.read_state(owner, NAMESPACE, _HEAD)
    used = None if entry is None else _readable_head(entry)
    if used is None or used.name != head.name:
        await _clear(store, owner, head)


async def _clear(store: StateStore, owner: Scope, head: Head) -> None:
    for number in range(head.chunks):
        await store.delete_state(owner, NAMESPACE, _chunk(head.name, number))


async def _lay_demo_orders(store: StateStore, buyer: Scope, orders: tuple[Order, ...]) -> None:
    try:
        book = OrderBook(orders=orders, demo=True)
        await store.write_state(buyer, NAMESPACE, _ORDERS, _encoded(book), if_version=0)
    except VersionConflict:
        pass  # laid before, or the buyer has orders of their own


def _items(head: Head, chunks: Sequence[StateEntry]) -> list[Item] | None:
    """The items of the chunks; `None` when some are missing, because the catalogue was replaced meanwhile."""
    if [entry.key for entry in chunks] != [_chunk(head.name, number) for number in range(head.chunks)]:
        return None
    return [item for entry in chunks for item in _decoded(entry.value, list[Item], "catalogue")]


def _shelved(head: Head, chunks: Sequence[StateEntry]) -> Shelf | None:
    items = _items(head, chunks)
    return None if items is None else Shelf(items)


def _chunk(name: str, number: int | None = None) -> str:
    return f"items/{name}/" if number is None else f"items/{name}/{number:04d}"


def _owner(scope: Scope) -> Scope:
    return Scope(tenant=scope.tenant, site=scope.site)


def _buyer(scope: Scope, user: str) -> Scope:
    return Scope(tenant=scope.tenant, site=scope.site, user=user)


def _encoded(value: object) -> Json:
    return msgspec.json.decode(msgspec.json.encode(value))


def _decoded(value: Json, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, Invalid):
        # The reason would quote what is stored.
        raise Unavailable(f"goods {what}", "cannot be read") from None
