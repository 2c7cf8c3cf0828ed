"""API keys: shown once, kept as a hash, gone when revoked."""

from __future__ import annotations

import msgspec
import pytest

from tenuto.access import ApiKeys, Caller, KeyRole
from tenuto.errors import ApiKeyNotFound, Invalid
from tenuto.model.scope import SYSTEM
from tenuto.ports import Store
from tests.clock import FakeClock
from tests.doubles import MemoryStore


@pytest.fixture
def store() -> Store:
    return MemoryStore()


@pytest.fixture
def keys(store: Store, fake_clock: FakeClock) -> ApiKeys:
    return ApiKeys(store=store.state, clock=fake_clock)


async def test_a_secret_leads_to_its_key_and_no_other_does(keys: ApiKeys) -> None:
    key, secret = await keys.create(tenant="acme", site="museum", user="ann", role=KeyRole.ADMIN, name="laptop")
    other, _ = await keys.create(tenant="acme")

    assert await keys.verify(secret) == key
    assert secret.startswith(f"tnt_{key.id}_")
    assert Caller.from_key(key) == Caller(tenant="acme", site="museum", user="ann", role=KeyRole.ADMIN, key_id=key.id)
    near = [secret[:-1], secret + "x", secret.upper(), f" {secret}", secret.replace(key.id, other.id), f"tnt_{key.id}_"]
    odd = ["", "tnt", "tnt__", f"tnt_{key.id}", f"tnt_{'../' * 5}_x", "tnt_你_x", "x" * 100_000, "\ud800"]
    assert [await keys.verify(text) for text in near + odd] == [None] * 14


async def test_the_secret_is_nowhere_in_the_store(keys: ApiKeys, store: Store) -> None:
    _, secret = await keys.create(tenant="acme")

    stored = msgspec.json.encode(await store.state.list_state(SYSTEM, "api-keys")).decode()

    assert secret not in stored
    assert secret.split("_", 2)[2] not in stored


async def test_a_revoked_key_opens_nothing_and_stays_in_the_list(keys: ApiKeys, fake_clock: FakeClock) -> None:
    key, secret = await keys.create(tenant="acme")

    revoked = await keys.revoke(key.id)

    assert revoked.revoked_at == fake_clock()
    assert await keys.verify(secret) is None
    assert await keys.revoke(key.id) == revoked
    assert await keys.list() == (revoked,)


@pytest.mark.parametrize("key_id", ["", "0" * 16, "../x"])
async def test_revoking_what_is_not_there_is_told(keys: ApiKeys, key_id: str) -> None:
    with pytest.raises(ApiKeyNotFound):
        await keys.revoke(key_id)


async def test_keys_are_listed_by_tenant_however_many_there_are(keys: ApiKeys) -> None:
    made = [(await keys.create(tenant=f"tenant-{number % 2}"))[0] for number in range(250)]

    assert set(await keys.list()) == set(made)
    assert len(await keys.list("tenant-1")) == 125
    assert await keys.list("nobody") == ()


async def test_an_installation_that_ever_had_a_key_needs_one(keys: ApiKeys) -> None:
    assert not await keys.any_exist()

    key, _ = await keys.create(tenant="acme")
    assert await keys.any_exist()

    await keys.revoke(key.id)
    assert await keys.any_exist()


@pytest.mark.parametrize(
    "bound", [{"tenant": "~tenuto"}, {"tenant": ""}, {"tenant": "a", "user": ""}, {"tenant": "a\0"}], ids=str
)
async def test_a_key_is_bound_to_sound_ids(keys: ApiKeys, bound: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        await keys.create(**bound)  # type: ignore[arg-type]  # the fields of one call
    assert not await keys.any_exist()


async def test_a_damaged_record_opens_nothing_and_hides_no_other(keys: ApiKeys, store: Store) -> None:
    key, secret = await keys.create(tenant="acme")
    _, damaged = await keys.create(tenant="acme")
    await store.state.write_state(SYSTEM, "api-keys", damaged.split("_")[1], {"hash": 7})

    assert await keys.verify(damaged) is None
    assert await keys.verify(secret) == key
    assert [listed.id for listed in await keys.list()] == [key.id]
