"""Copies of whole stores between any two backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path
from typing import cast

import pytest

from tenuto.ports import Backend, Clock
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.encrypted import EncryptedStore
from tests.backends import MEMORY, POSTGRES, REDIS, REDIS_CLUSTER, RING, SQLITE, Place
from tests.clock import FakeClock
from tests.copies import check_goes_on, compare_stores, copy_store, fill

OPENED = (MEMORY, SQLITE, REDIS, POSTGRES, REDIS_CLUSTER)


def sealed(backend: Backend, clock: Clock) -> EncryptedStore:
    """The same store as its servers see it, with the key of all tests."""
    return EncryptedStore(store=backend, ciphers=TenantCiphers(store=backend.state, ring=RING, clock=clock))


@pytest.fixture
async def opened(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[dict[str, Backend]]:
    """An empty store of each backend, and a second file."""
    async with AsyncExitStack() as stack:
        stores: dict[str, Backend] = {}
        for number, backend in enumerate((*OPENED, SQLITE)):
            folder = tmp_path / str(number)
            folder.mkdir()
            place = Place(clock=clock, folder=folder, server=request.getfixturevalue)
            store = await stack.enter_async_context(backend.open(place))
            stores[backend.name if backend.name not in stores else "another file"] = cast(Backend, store)
        yield stores


async def copy(source: Backend, target: Backend, clock: FakeClock) -> int:
    """Copy, and return how many records differ."""
    await copy_store(source, target, clock)
    compared = await compare_stores(source, target, clock)
    assert [compared.named, *(here for here, there in compared.sites.values() if here != there)] == [[]]
    return compared.different


async def empty(store: Backend) -> None:
    async for heads in store.bulk.iter_heads():
        await store.bulk.delete_sessions(heads)
    async for records in store.bulk.iter_state():
        await store.bulk.delete_state(records)


async def test_a_copy_between_any_two_backends_differs_in_its_address_alone(
    opened: dict[str, Backend], clock: FakeClock
) -> None:
    """Sealed records, leases, keys, producers and versions arrive as they are, and the next store goes on with them
    (T19)."""
    await fill(sealed(opened["memory"], clock), clock)
    last = opened["memory"]
    for target in ("sqlite", "redis", "postgres", "redis cluster", "another file"):
        await copy(last, opened[target], clock)
        last = opened[target]
    for source, target in permutations(opened, 2):
        await empty(opened[target])
        assert await copy(opened[source], opened[target], clock) == 0, f"{source} to {target}"

    for name, backend in opened.items():
        await check_goes_on(sealed(backend, clock), name)
