"""Sealed text: opens only in its place, survives rotation, and is lost with its keys."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import DecryptionFailed, Unavailable
from tenuto.model import Scope
from tenuto.model.privacy import KEYS_NAMESPACE, data_key_id, is_sealed
from tenuto.ports import Cipher, Store
from tenuto.privacy.crypto.keyring import KeyRing, MasterKey, MasterKeys
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.engine import Engine
from tests.backends import sqlite_engine
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.internals import hot_ciphertexts, look_up_key
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE

OLD = MasterKey(name="old", secret=bytes(range(32)))
NEW = MasterKey(name="new", secret=bytes(range(32, 64)))
OWN = MasterKey(name="own", secret=bytes(range(64, 96)))
PLACE = ("message", "m1")


def ring(current: MasterKey, *others: MasterKey, **tenants: MasterKeys) -> KeyRing:
    return KeyRing(keys=MasterKeys(current=current, others=others), tenants=tenants)


def ciphers(store: Store, keys: KeyRing, clock: FakeClock | None = None) -> TenantCiphers:
    return TenantCiphers(store=store.state, ring=keys, clock=clock or FakeClock())


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def keys(store: MemoryStore) -> TenantCiphers:
    return ciphers(store, ring(OLD))


@pytest.fixture
async def cipher(keys: TenantCiphers) -> Cipher:
    return await keys.cipher_for_sealing(ANN)


def cipher_at_once() -> Cipher:
    """For property tests, which are not async."""
    return asyncio.run(ciphers(MemoryStore(), ring(OLD)).cipher_for_sealing(ANN))


CIPHER = cipher_at_once()
PLACES = st.lists(st.text(max_size=5), max_size=3).map(tuple)


@given(plain=st.binary(max_size=200), place=PLACES)
def test_what_was_sealed_opens_in_its_place(plain: bytes, place: tuple[str, ...]) -> None:
    sealed = CIPHER.seal(plain, place)

    assert is_sealed(sealed)
    assert CIPHER.open(sealed, place) == plain


@given(plain=st.binary(max_size=50), place=PLACES, other=PLACES)
def test_in_any_other_place_it_does_not(plain: bytes, place: tuple[str, ...], other: tuple[str, ...]) -> None:
    sealed = CIPHER.seal(plain, place)

    if other != place:
        with pytest.raises(DecryptionFailed):
            CIPHER.open(sealed, other)


@given(plain=st.binary(max_size=50), data=st.data())
def test_a_changed_text_does_not_open(plain: bytes, data: st.DataObject) -> None:
    sealed = CIPHER.seal(plain, PLACE)
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = sealed[:at] + data.draw(st.characters()) + sealed[at + 1 :]

    if _means(changed) != _means(sealed):
        with pytest.raises(DecryptionFailed):
            CIPHER.open(changed, PLACE)


def _means(sealed: str) -> tuple[str, str]:
    """A sealed text without the bits of its last character that base64 does not use."""
    return sealed[:-1], "same" if (len(sealed) - 22) * 6 % 8 else sealed[-1]


@given(plain=st.binary(max_size=50), place=PLACES, other=PLACES, at=st.integers(0, 100), mask=st.integers(1, 255))
def test_bytes_open_unchanged_and_in_their_place(
    plain: bytes, place: tuple[str, ...], other: tuple[str, ...], at: int, mask: int
) -> None:
    sealed = CIPHER.seal_bytes(plain, place)
    at %= len(sealed)
    changed = sealed[:at] + bytes([sealed[at] ^ mask]) + sealed[at + 1 :]

    assert (CIPHER.open_bytes(sealed, place), CIPHER.is_current(sealed)) == (plain, True)
    for body, where in ((changed, place), (sealed[:at], place), *[(sealed, other)] * (other != place)):
        with pytest.raises(DecryptionFailed):
            CIPHER.open_bytes(body, where)


@given(value=st.binary(max_size=20), other=st.binary(max_size=20), place=PLACES, elsewhere=PLACES)
def test_a_digest_is_equal_for_equal_values_in_one_place_alone(
    value: bytes, other: bytes, place: tuple[str, ...], elsewhere: tuple[str, ...]
) -> None:
    same = (value, place) == (other, elsewhere)

    assert (CIPHER.digest(value, place) == CIPHER.digest(other, elsewhere)) is same


async def test_twice_the_same_is_sealed_to_different_texts(cipher: Cipher) -> None:
    assert cipher.seal(b"ann", PLACE) != cipher.seal(b"ann", PLACE)


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("scope", [EVE, ANN_ELSEWHERE])
async def test_another_tenant_or_site_opens_nothing(keys: TenantCiphers, scope: Scope) -> None:
    """Tenants are isolated for ciphertext and digests, too."""
    mine, other = await keys.cipher_for_sealing(ANN), await keys.cipher_for_sealing(scope)

    with pytest.raises(DecryptionFailed):
        other.open(mine.seal(b"ann", PLACE), PLACE)
    with pytest.raises(DecryptionFailed):
        other.open_bytes(mine.seal_bytes(b"ann", PLACE), PLACE)
    assert mine.digest(b"ann", PLACE) != other.digest(b"ann", PLACE)


async def test_users_of_a_site_share_its_keys(keys: TenantCiphers) -> None:
    sealed = (await keys.cipher_for_sealing(ANN)).seal(b"hello", PLACE)

    assert (await keys.cipher_for_opening(BOB)).open(sealed, PLACE) == b"hello"


@pytest.mark.parametrize("text", ["", "plain", "tnt1.", "tnt1.0123456789abcdef.", "tnt1." + "x" * 80])
async def test_what_is_no_sealed_text_is_not_opened(cipher: Cipher, text: str) -> None:
    with pytest.raises(DecryptionFailed):
        cipher.open(text, PLACE)


async def test_what_is_kept_hot_is_bounded(keys: TenantCiphers) -> None:
    cipher = await keys.cipher_for_sealing(ANN)

    first = cipher.seal(b"first", PLACE)
    for _ in range(300):
        cipher.seal(bytes(100_000), PLACE)

    size, kept = hot_ciphertexts(keys)
    assert 0 < size <= 32 * 1024 * 1024
    assert first not in kept
    assert cipher.open(first, PLACE) == b"first"


# Keys


async def test_the_store_holds_no_key_in_the_clear(store: MemoryStore, keys: TenantCiphers) -> None:
    await keys.cipher_for_sealing(ANN)

    entry = await store.state.read_state(ACME, KEYS_NAMESPACE, "data")

    assert entry is not None
    assert OLD.fingerprint in str(entry.value)
    look_up = look_up_key(keys, "acme")
    assert look_up is not None
    wrapped = base64.urlsafe_b64decode(entry.value["look_up"]["text"] + "==")
    assert len(wrapped) == 12 + 32 + 16
    assert look_up not in wrapped


async def test_another_process_with_the_same_master_key_opens(store: MemoryStore) -> None:
    sealed = (await ciphers(store, ring(OLD)).cipher_for_sealing(ANN)).seal(b"hello", PLACE)

    assert (await ciphers(store, ring(OLD)).cipher_for_opening(ANN)).open(sealed, PLACE) == b"hello"


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Engine]:
    async with sqlite_engine(tmp_path / "keys.db") as store:
        yield store


async def test_of_many_that_make_the_first_key_at_once_one_wins(shared: Engine) -> None:
    every = [ciphers(shared, ring(OLD)) for _ in range(8)]

    sealed = [
        each.seal(b"hello", PLACE) for each in await asyncio.gather(*(keys.cipher_for_sealing(ANN) for keys in every))
    ]

    assert len({data_key_id(text) for text in sealed}) == 1
    assert {(await keys.cipher_for_opening(ANN)).open(text, PLACE) for keys in every for text in sealed} == {b"hello"}


async def test_of_many_that_renew_at_once_no_key_is_lost(shared: Engine) -> None:
    every = [ciphers(shared, ring(OLD)) for _ in range(5)]
    first = (await every[0].cipher_for_sealing(ANN)).seal(b"first", PLACE)

    names = await asyncio.gather(*(keys.renew(ANN) for keys in every))
    reader = await ciphers(shared, ring(OLD)).cipher_for_opening(ANN)

    assert len(set(names)) == 5
    assert reader.open(first, PLACE) == b"first"
    entry = await shared.state.read_state(ACME, KEYS_NAMESPACE, "data")
    assert entry is not None
    assert set(entry.value["data"]) == {*names, data_key_id(first)}


async def test_reading_makes_no_key(store: MemoryStore, keys: TenantCiphers) -> None:
    with pytest.raises(DecryptionFailed):
        (await keys.cipher_for_opening(ANN)).open(
            (await ciphers(MemoryStore(), ring(OLD)).cipher_for_sealing(ANN)).seal(b"x", PLACE), PLACE
        )

    assert await store.state.read_state(ACME, KEYS_NAMESPACE, "data") is None


async def test_a_wrong_master_key_is_named_and_nothing_is_replaced(store: MemoryStore) -> None:
    sealed = (await ciphers(store, ring(OLD)).cipher_for_sealing(ANN)).seal(b"hello", PLACE)
    wrong = ciphers(store, ring(NEW))

    with pytest.raises(DecryptionFailed, match=f"fingerprint {OLD.fingerprint}"):
        await wrong.cipher_for_sealing(ANN)
    with pytest.raises(DecryptionFailed, match=f"fingerprint {OLD.fingerprint}") as excinfo:
        (await wrong.cipher_for_opening(ANN)).open(sealed, PLACE)
    with pytest.raises(DecryptionFailed):
        await wrong.rewrap(ANN)

    assert isinstance(excinfo.value, Unavailable)
    assert excinfo.value.code == "decryption_failed"
    assert (await ciphers(store, ring(OLD)).cipher_for_opening(ANN)).open(sealed, PLACE) == b"hello"


async def test_damaged_data_keys_are_an_error_and_are_not_made_anew(store: MemoryStore) -> None:
    await store.state.write_state(ACME, KEYS_NAMESPACE, "data", {"current": 7})

    with pytest.raises(DecryptionFailed, match="data keys were changed in the store"):
        await ciphers(store, ring(OLD)).cipher_for_sealing(ANN)

    entry = await store.state.read_state(ACME, KEYS_NAMESPACE, "data")
    assert entry is not None
    assert entry.value == {"current": 7}


async def test_data_keys_of_another_tenant_do_not_unwrap(store: MemoryStore) -> None:
    await ciphers(store, ring(OLD)).cipher_for_sealing(ANN)
    stolen = await store.state.read_state(ACME, KEYS_NAMESPACE, "data")
    assert stolen is not None
    await store.state.write_state(Scope(tenant="evil"), KEYS_NAMESPACE, "data", stolen.value)

    with pytest.raises(DecryptionFailed, match="or are another tenant's"):
        await ciphers(store, ring(OLD)).cipher_for_opening(EVE)


# Rotation


async def test_after_rewrapping_the_old_master_key_is_not_needed(store: MemoryStore) -> None:
    before = await ciphers(store, ring(OLD)).cipher_for_sealing(ANN)
    sealed, digest = before.seal(b"hello", PLACE), before.digest(b"hello", PLACE)

    count = await ciphers(store, ring(NEW, OLD)).rewrap(ANN)
    after = await ciphers(store, ring(NEW)).cipher_for_sealing(ANN)

    assert count == 2  # the data key, and the one for digests
    assert after.open(sealed, PLACE) == b"hello"
    assert after.digest(b"hello", PLACE) == digest
    assert await ciphers(store, ring(NEW, OLD)).rewrap(ANN) == 0


async def test_a_tenant_moves_to_a_key_of_its_own(store: MemoryStore) -> None:
    sealed = (await ciphers(store, ring(OLD)).cipher_for_sealing(ANN)).seal(b"hello", PLACE)
    own = ring(OLD, acme=MasterKeys(current=OWN))

    await ciphers(store, own).rewrap(ANN)

    assert (await ciphers(store, own).cipher_for_opening(ANN)).open(sealed, PLACE) == b"hello"
    with pytest.raises(DecryptionFailed, match=OWN.fingerprint):
        await ciphers(store, ring(OLD)).cipher_for_sealing(ANN)
    await ciphers(store, ring(OLD)).cipher_for_sealing(EVE)


async def test_rewrapping_meets_every_tenant_that_has_keys(keys: TenantCiphers) -> None:
    for scope in (ANN, BOB, EVE, ANN_ELSEWHERE):
        await keys.cipher_for_sealing(scope)

    assert [tenant async for tenant in keys.tenants()] == ["acme", "evil"]


async def test_a_renewed_data_key_seals_and_the_old_one_still_opens(keys: TenantCiphers) -> None:
    before = await keys.cipher_for_sealing(ANN)
    sealed, digest = before.seal(b"old", PLACE), before.digest(b"x", PLACE)

    name = await keys.renew(ANN)
    after = await keys.cipher_for_sealing(ANN)

    assert data_key_id(after.seal(b"new", PLACE)) == name != data_key_id(sealed)
    assert after.open(sealed, PLACE) == b"old"
    assert after.digest(b"x", PLACE) == digest


async def test_a_key_that_another_process_made_is_found_by_asking_anew(store: MemoryStore) -> None:
    here, elsewhere = ciphers(store, ring(OLD)), ciphers(store, ring(OLD))
    await here.cipher_for_sealing(ANN)
    await elsewhere.renew(ANN)
    sealed = (await elsewhere.cipher_for_sealing(ANN)).seal(b"hello", PLACE)

    with pytest.raises(DecryptionFailed):
        (await here.cipher_for_opening(ANN)).open(sealed, PLACE)

    assert (await here.cipher_for_opening(ANN, refresh=True)).open(sealed, PLACE) == b"hello"


async def test_other_processes_follow_a_renewal_within_a_minute(store: MemoryStore, fake_clock: FakeClock) -> None:
    here, elsewhere = ciphers(store, ring(OLD), fake_clock), ciphers(store, ring(OLD), fake_clock)
    await here.cipher_for_sealing(ANN)
    name = await elsewhere.renew(ANN)

    fake_clock.advance(timedelta(minutes=1))

    assert data_key_id((await here.cipher_for_sealing(ANN)).seal(b"", PLACE)) == name


async def test_destroyed_keys_open_nothing_any_more(store: MemoryStore, fake_clock: FakeClock) -> None:
    """Crypto-shredding: this process at once, others within a minute; new keys open nothing old."""
    here, elsewhere = ciphers(store, ring(OLD), fake_clock), ciphers(store, ring(OLD), fake_clock)
    sealed = (await here.cipher_for_sealing(ANN)).seal(b"hello", PLACE)
    await elsewhere.cipher_for_opening(ANN)

    assert await here.destroy(ANN)
    await here.cipher_for_sealing(ANN)
    fake_clock.advance(timedelta(minutes=1))

    for keys in (here, elsewhere):
        with pytest.raises(DecryptionFailed, match="not among the tenant's keys"):
            (await keys.cipher_for_opening(ANN)).open(sealed, PLACE)
    assert await here.destroy(ANN)
    assert not await here.destroy(ANN)
    assert [tenant async for tenant in here.tenants()] == []
