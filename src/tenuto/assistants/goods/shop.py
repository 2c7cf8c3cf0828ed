"""The catalogue, the orders and the complaint cases in the store.

A tenant's site has one catalogue, in its own state: a head that names the edition, and the items in a few big chunks.
The first question to a site without one stores the shipped catalogue; an operator replaces it as a whole. Orders and
cases are state of their user, so that the scope checks of the store keep them apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import date
from hashlib import blake2b
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from tenuto.assistants.goods.catalogue import Catalogue
from tenuto.assistants.goods.item import EDITION, Case, CaseStatus, Item, Order, shipped_items, shipped_orders
from tenuto.compare_and_set import retry_on_conflict, update_state, write_if_unchanged
from tenuto.errors import Invalid, StateCorrupt, Unavailable, VersionConflict
from tenuto.lru_cache import LruCache
from tenuto.model.privacy import SHOP
from tenuto.model.scope import Scope, user_scope
from tenuto.model.session import StateEntry
from tenuto.model.values import Json, Value
from tenuto.ports import StateStore

_T = TypeVar("_T")

NAMESPACE: Final = SHOP
MAX_ITEMS: Final = 20_000
MAX_ORDERS: Final = 500

_HEAD: Final = "catalogue"
_ORDERS: Final = "orders"
_CASES: Final = "cases"
_CHUNK_ITEMS: Final = 200
_MAX_CATALOGUES: Final = 64
_ATTEMPTS: Final = 5


class CatalogueHead(Value, frozen=True, kw_only=True):
    """Which catalogue there is. `shipped` is the edition that came with the package, 0 for an operator's own."""

    name: str
    chunks: int
    items: int
    shipped: int = 0
    format: int = 1


class OrderBook(Value, frozen=True, kw_only=True):
    """The orders of one user; `demo` marks those of the shipped catalogue, which mean nothing without it."""

    orders: tuple[Order, ...]
    demo: bool = False
    format: int = 1


class CaseBook(Value, frozen=True, kw_only=True):
    """The complaint cases of one user, oldest first."""

    cases: tuple[Case, ...] = ()
    format: int = 1


class Shop:
    """Loads a tenant's catalogue and a user's orders and cases.

    The most recently used catalogues stay in this process. Each call reads the head, one small entry, and uses the
    cached catalogue only when it is of that edition. While the store is away, the catalogue that was read last serves.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._catalogues = LruCache[tuple[str, str], tuple[str, Catalogue]](_MAX_CATALOGUES)
        # An entry lives as long as a task waits for it: there are as many locks as catalogues being loaded.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def catalogue(self, scope: Scope) -> Catalogue:
        """The catalogue of the scope's tenant and site.

        Raises:
            Unavailable: it cannot be read, and was not read before; or it is damaged.
        """
        owner = _owner(scope)
        try:
            cached = self._cached(owner, await self._head(owner))
            if cached is not None:
                return cached
            async with self._lock(owner):
                return await self._load(owner)
        except StateCorrupt:
            raise
        except Unavailable:
            _, last = self._catalogues.get((owner.tenant, owner.site)) or ("", None)
            if last is None:
                raise
            return last

    async def orders(self, scope: Scope) -> tuple[Order, ...]:
        """The orders of the scope's user, latest first; orders of other users cannot be reached from here."""
        if scope.user is None:
            return ()
        head = await self._head(_owner(scope))
        entry = await self._store.read_state(user_scope(scope), NAMESPACE, _ORDERS)
        book = OrderBook(orders=()) if entry is None else _decode(entry.value, OrderBook, "orders")
        if book.demo and not head.shipped:
            return ()
        return tuple(sorted(book.orders, key=lambda order: (order.ordered_on, order.id), reverse=True))

    async def cases(self, scope: Scope) -> tuple[Case, ...]:
        """The complaint cases of the scope's user, oldest first."""
        if scope.user is None:
            return ()
        return _case_book(await self._store.read_state(user_scope(scope), NAMESPACE, _CASES)).cases

    async def open_case(self, scope: Scope, order: str | None, today: date) -> Case:
        """The open case about the order, or any open one where no order is named; a new one when there is none.

        Raises:
            Invalid: the scope names no user.
        """

        def open_one(book: CaseBook) -> CaseBook | None:
            if _find_open(book, order) is not None:
                return None
            case = Case(id=f"C{len(book.cases) + 1}", opened_on=today, order=order)
            return CaseBook(cases=(*book.cases, case))

        made = await update_state(self._store, user_scope(scope), NAMESPACE, _CASES, _case_book, open_one)
        return _find_open(made.after, order) or made.after.cases[-1]

    async def _head(self, owner: Scope) -> CatalogueHead:
        _, head = await self._read_head(owner)
        if head is not None:
            return head
        # One at a time: a hundred first questions to this process store one catalogue.
        async with self._lock(owner):
            return await self._ensure_head(owner)

    def _lock(self, owner: Scope) -> asyncio.Lock:
        """The lock of one site: no site waits for the catalogue of another."""
        return self._locks.setdefault((owner.tenant, owner.site), asyncio.Lock())

    async def _read_head(self, owner: Scope) -> tuple[StateEntry | None, CatalogueHead | None]:
        """The stored entry, and the head in it unless the package brings a newer edition."""
        entry = await self._store.read_state(owner, NAMESPACE, _HEAD)
        head = None if entry is None else _decode(entry.value, CatalogueHead, "catalogue")
        return entry, None if head is None or 0 < head.shipped < EDITION else head

    async def _ensure_head(self, owner: Scope) -> CatalogueHead:
        """The head; stores the shipped catalogue and its orders first where there is none. The head is written last."""

        async def attempt() -> CatalogueHead:
            before, head = await self._read_head(owner)
            if head is not None:
                return head
            for user, orders in shipped_orders().items():
                book = _encode(OrderBook(orders=orders, demo=True))
                buyer = Scope(tenant=owner.tenant, site=owner.site, user=user)
                # Nothing, where it was written before, or the user has orders of their own.
                await write_if_unchanged(self._store.write_state(buyer, NAMESPACE, _ORDERS, book, if_version=0))
            return await _write_catalogue(self._store, owner, shipped_items(), before, EDITION)

        return await retry_on_conflict(attempt)

    def _cached(self, owner: Scope, head: CatalogueHead) -> Catalogue | None:
        name, catalogue = self._catalogues.get((owner.tenant, owner.site)) or ("", None)
        return catalogue if name == head.name else None

    async def _load(self, owner: Scope) -> Catalogue:
        for _ in range(_ATTEMPTS):
            head = await self._ensure_head(owner)
            if (cached := self._cached(owner, head)) is not None:
                return cached
            chunks = await self._store.list_state(owner, NAMESPACE, f"items/{head.name}/", limit=head.chunks or 1)
            # Indexing thousands of items takes a while, and other turns go on meanwhile.
            catalogue = await asyncio.to_thread(_build_catalogue, head, chunks[: head.chunks])
            if catalogue is not None:
                self._catalogues.put((owner.tenant, owner.site), (head.name, catalogue))
                return catalogue
        raise Unavailable("goods catalogue", "is not complete")


async def replace_catalogue(store: StateStore, scope: Scope, items: Iterable[Item]) -> None:
    """Make these the goods of the scope's tenant and site, for every process from its next question on.

    Readers see the previous catalogue or this one, never a mixture. Demonstration orders vanish with the shipped goods.

    Raises:
        Invalid: two items have one id, or there are too many.
    """
    goods = tuple(items)
    if len({item.id for item in goods}) < len(goods):
        raise Invalid("two items of the catalogue have the same id")
    if len(goods) > MAX_ITEMS:
        raise Invalid(f"a catalogue holds at most {MAX_ITEMS} items")
    owner = _owner(scope)

    async def attempt() -> None:
        await _write_catalogue(store, owner, goods, await store.read_state(owner, NAMESPACE, _HEAD))

    await retry_on_conflict(attempt)


async def replace_orders(store: StateStore, scope: Scope, orders: Iterable[Order]) -> None:
    """Make these the orders of the scope's user.

    Raises:
        Invalid: the scope names no user, or there are too many orders.
    """
    book = OrderBook(orders=tuple(orders))
    if len(book.orders) > MAX_ORDERS:
        raise Invalid(f"an order book holds at most {MAX_ORDERS} orders")
    await store.write_state(user_scope(scope), NAMESPACE, _ORDERS, _encode(book))


async def replace_cases(store: StateStore, scope: Scope, cases: Iterable[Case]) -> None:
    """Make these the complaint cases of the scope's user, such as the same ones closed.

    Raises:
        Invalid: the scope names no user.
    """
    await store.write_state(user_scope(scope), NAMESPACE, _CASES, _encode(CaseBook(cases=tuple(cases))))


async def _write_catalogue(
    store: StateStore, owner: Scope, items: Sequence[Item], before: StateEntry | None, shipped: int = 0
) -> CatalogueHead:
    """Write a catalogue beside the previous one, point the head at it, and delete the previous one.

    The name holds the version that it follows and a digest of the content: writers of the same catalogue write the
    same keys, writers of different ones different keys.

    Raises:
        VersionConflict: the head is no longer `before`.
    """
    version = 0 if before is None else before.version
    replaced = None if before is None else _readable_head(before)
    parts = [_encode(items[at : at + _CHUNK_ITEMS]) for at in range(0, len(items), _CHUNK_ITEMS)]
    digest = blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()
    head = CatalogueHead(name=f"{version + 1:08d}-{digest}", chunks=len(parts), items=len(items), shipped=shipped)
    for number, part in enumerate(parts):
        await store.write_state(owner, NAMESPACE, _chunk_key(head, number), part)
    try:
        await store.write_state(owner, NAMESPACE, _HEAD, _encode(head), if_version=version)
    except VersionConflict:
        entry = await store.read_state(owner, NAMESPACE, _HEAD)
        used = None if entry is None else _readable_head(entry)
        if used is None or used.name != head.name:
            await _delete_chunks(store, owner, head)
        raise
    if replaced is not None:
        await _delete_chunks(store, owner, replaced)
    return head


def _case_book(entry: StateEntry | None) -> CaseBook:
    return CaseBook() if entry is None else _decode(entry.value, CaseBook, "cases")


def _find_open(book: CaseBook, order: str | None) -> Case | None:
    """The open case about an order, or any open one where no order is named."""
    cases = (case for case in book.cases if case.status is CaseStatus.OPEN and order in (None, case.order))
    return next(cases, None)


def _readable_head(entry: StateEntry) -> CatalogueHead | None:
    """The head; `None` for a damaged one, whose chunks cannot be named and stay behind."""
    try:
        return _decode(entry.value, CatalogueHead, "catalogue")
    except StateCorrupt:
        return None


async def _delete_chunks(store: StateStore, owner: Scope, head: CatalogueHead) -> None:
    for number in range(head.chunks):
        await store.delete_state(owner, NAMESPACE, _chunk_key(head, number))


def _build_catalogue(head: CatalogueHead, chunks: Sequence[StateEntry]) -> Catalogue | None:
    """`None` when chunks are missing, because the catalogue was replaced meanwhile."""
    if [entry.key for entry in chunks] != [_chunk_key(head, number) for number in range(head.chunks)]:
        return None
    return Catalogue(item for entry in chunks for item in _decode(entry.value, list[Item], "catalogue"))


def _chunk_key(head: CatalogueHead, number: int) -> str:
    return f"items/{head.name}/{number:04d}"


def _owner(scope: Scope) -> Scope:
    return Scope(tenant=scope.tenant, site=scope.site)


def _encode(value: object) -> Json:
    return msgspec.json.decode(msgspec.json.encode(value))


def _decode(value: Json, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, Invalid):
        # The reason would quote what is stored.
        raise StateCorrupt(f"goods {what}", "cannot be read") from None
