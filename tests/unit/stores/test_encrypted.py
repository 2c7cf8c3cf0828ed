"""Encryption at rest, beyond the contract: without the key, and within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import tenuto
from tenuto.errors import DecryptionFailed, IdempotencyKeyReused, SessionNotFound, Unavailable
from tenuto.model import (
    AppendBatch,
    Changes,
    ForkRequest,
    Message,
    NewSession,
    Page,
    Rewrite,
    Scope,
    SessionQuery,
    text_part,
)
from tenuto.model.privacy import KEYS_NAMESPACE
from tenuto.model.scope import SYSTEM
from tenuto.model.session import MAX_TITLE_CHARACTERS
from tenuto.ports import Store
from tenuto.privacy.crypto.keyring import KeyRing, MasterKeys, create_key_file
from tenuto.privacy.crypto.tenant_ciphers import TenantCipher, TenantCiphers
from tenuto.stores.encrypted import EncryptedStore
from tenuto.stores.memory import MemoryStore
from tests.backends import RING
from tests.clock import FakeClock
from tests.peek import keep_keys_in
from tests.samples import ACME, ANN, batch, begin, closing, once, talk, texts, trace_of, value_of
from tests.unit.stores.sealed_house import OTHER_RING, damaged, encrypted, key_of


async def test_what_the_ciphers_and_the_door_need_is_not_sealed(store: EncryptedStore, backend: MemoryStore) -> None:
    """API keys are kept as hashes, and must be told right from wrong also when the master key is missing."""
    await store.state.write_state(SYSTEM, "api-keys", "id", {"hash": "abc"})
    await store.state.write_state(ACME, KEYS_NAMESPACE, "other", "x")

    for scope, namespace, key, value in (
        (SYSTEM, "api-keys", "id", {"hash": "abc"}),
        (ACME, KEYS_NAMESPACE, "other", "x"),
    ):
        assert await value_of(backend, scope, namespace, key) == value


async def test_ciphers_may_keep_their_keys_in_the_store_they_seal(backend: MemoryStore) -> None:
    ciphers = TenantCiphers(store=backend.state, ring=RING)
    store = EncryptedStore(store=backend, ciphers=ciphers)
    keep_keys_in(ciphers, store.state)

    await store.sessions.append(ANN, "s", batch("hello"))

    assert await texts(store, ANN, "s") == ["hello"]


async def test_the_fingerprint_of_a_body_cannot_be_guessed_at(store: EncryptedStore, backend: MemoryStore) -> None:
    """A plain digest of "my PIN is 1234" tells the PIN to an attacker who tries ten thousand of them."""
    first = await store.sessions.append(ANN, "s", batch("hello", idempotency_key=once("k", "digest of the body")))
    again = await store.sessions.append(ANN, "s", batch("hello", idempotency_key=once("k", "digest of the body")))

    assert again.duplicate
    assert again.messages == first.messages
    with pytest.raises(IdempotencyKeyReused):
        await store.sessions.append(ANN, "s", batch("other", idempotency_key=once("k", "digest of another")))
    assert backend.tables.records[key_of("s")].keyed["k"].fingerprint != "digest of the body"


# Without the right key


async def test_a_sealed_session_without_its_key_is_an_error_and_is_not_set_aside(backend: MemoryStore) -> None:
    there = encrypted(backend)
    turn = await begin(there, ANN, "s", "question")
    end = closing("answer", changes=Changes(title="Title"), trace=trace_of(turn, request="q"))
    await there.sessions.finish_turn(turn, end)
    await there.state.write_state(ANN, "prefs", "k", "warm")
    wrong = encrypted(backend, OTHER_RING)

    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: wrong.sessions.get(ANN, "s"),
        lambda: wrong.sessions.messages(ANN, "s", Page()),
        lambda: wrong.sessions.list(ANN, SessionQuery(title="x")),
        lambda: wrong.traces.trace(ANN, "s", 1),
        lambda: wrong.state.read_state(ANN, "prefs", "k"),
        lambda: wrong.sessions.append(ANN, "s", batch("more")),
        lambda: begin(wrong, ANN, "s", "more"),
        lambda: wrong.sessions.patch(ANN, "s", Changes(title="x")),
        lambda: wrong.state.write_state(ANN, "prefs", "k", 1),
    ]
    for call in calls:
        with pytest.raises(DecryptionFailed, match="needs a master key"):
            await call()

    assert await texts(there, ANN, "s") == ["question", "answer"]


async def test_an_unknown_session_is_still_not_found(backend: MemoryStore) -> None:
    await encrypted(backend).sessions.append(ANN, "s", batch("hello"))

    with pytest.raises(SessionNotFound):
        await encrypted(backend, OTHER_RING).sessions.get(ANN, "other")


async def test_a_turn_with_an_unreadable_window_releases_its_lease(store: EncryptedStore, backend: MemoryStore) -> None:
    """The session is not busy for two minutes because of it."""
    await store.sessions.append(ANN, "s", batch("hello"))
    await TenantCiphers(store=backend.state, ring=RING).destroy(ANN)
    shredded = encrypted(backend)

    for _ in range(2):
        with pytest.raises(DecryptionFailed):
            await begin(shredded, ANN, "s", "again")


async def test_retries_store_no_words_where_an_older_master_key_is_missing(backend: MemoryStore) -> None:
    """Words that would be stored and refused in one are not stored at all."""
    await talk(encrypted(backend), ANN, "s", "hello", "hi")
    both = KeyRing(keys=MasterKeys(current=OTHER_RING.current("acme"), others=(RING.current("acme"),)))
    await TenantCiphers(store=backend.state, ring=both).renew(ANN)
    without_the_older = encrypted(backend, OTHER_RING)

    for _ in range(3):
        with pytest.raises(DecryptionFailed, match="needs a master key"):
            await begin(without_the_older, ANN, "s", "again")
        with pytest.raises(DecryptionFailed, match="needs a master key"):
            await without_the_older.sessions.append(ANN, "s", batch("more"))

    assert await texts(encrypted(backend, both), ANN, "s") == ["hello", "hi"]
    assert (await begin(without_the_older, ANN, "new", "question")).created


async def test_a_tampered_session_takes_no_second_copy_of_words(store: EncryptedStore, backend: MemoryStore) -> None:
    await talk(store, ANN, "s", "hello", "hi")
    record = backend.tables.records[key_of("s")]
    whole = record.log[0]
    record.log[0] = replace(whole, parts=record.log[1].parts)

    for _ in range(3):
        with pytest.raises(DecryptionFailed):
            await begin(store, ANN, "s", "again")
    record.log[0] = whole

    assert await texts(store, ANN, "s") == ["hello", "hi", "again"]
    assert [message.text for message in (await begin(store, ANN, "s", "and again")).user_messages] == ["and again"]


class _Fails(TenantCiphers):
    """Ciphers that cannot be asked for a while."""

    def __init__(self, store: MemoryStore, failure: BaseException) -> None:
        super().__init__(store=store.state, ring=RING)
        self.failure = failure
        self.left = 1_000

    async def cipher_for_opening(self, scope: Scope, *, refresh: bool = False) -> TenantCipher:
        self.left -= 1
        if self.left < 0:
            raise self.failure
        return await super().cipher_for_opening(scope, refresh=refresh)


@pytest.mark.parametrize("failure", [Unavailable("session store"), asyncio.CancelledError(), ValueError("a bug")])
async def test_a_turn_that_cannot_be_returned_releases_its_lease(backend: MemoryStore, failure: BaseException) -> None:
    """And the same key takes the turn up again."""
    ciphers = _Fails(backend, failure)
    store = EncryptedStore(store=backend, ciphers=ciphers)
    await talk(store, ANN, "s", "hello", "hi")
    ciphers.left = 1
    with pytest.raises(type(failure)):
        await begin(store, ANN, "s", "question", idempotency_key=once("k"))
    ciphers.left = 1_000

    await talk(store, ANN, "s", "question", "answer", idempotency_key=once("k"))

    assert await texts(store, ANN, "s") == ["hello", "hi", "question", "answer"]


# Limits and listings


async def test_a_tampered_head_is_listed_as_such_and_hides_no_other(
    store: EncryptedStore, backend: MemoryStore
) -> None:
    """One record must not take a tenant its listings."""
    for name in ("a", "b"):
        await store.sessions.append(ANN, name, batch("hello", create=NewSession(title=name, context={"k": name})))
    damaged(backend, "b", context=backend.tables.records[key_of("a")].session.context)

    listed = (await store.sessions.list(ACME, SessionQuery())).sessions
    named = (await store.sessions.list(ACME, SessionQuery(title="a"))).sessions

    assert {each.id: (each.title, each.context) for each in listed} == {"a": ("a", {"k": "a"}), "b": ("[SEALED]", {})}
    assert [each.id for each in named] == ["a"]
    with pytest.raises(DecryptionFailed):
        await store.sessions.get(ANN, "b")


async def test_the_longest_title_and_odd_text_fit(store: EncryptedStore) -> None:
    """Limits count what people said; what is sealed is longer, and passes."""
    title = "长" * MAX_TITLE_CHARACTERS
    await store.sessions.append(ANN, "s", batch("hello", create=NewSession(title=title)))
    forked = await store.sessions.fork(ANN, "s", ForkRequest(new_id="f", title=title))
    patched = await store.sessions.patch(ANN, "s", Changes(title=title[::-1]))

    assert forked.title == patched.title == title


async def test_a_message_and_a_head_of_the_allowed_size_are_taken(tmp_path: Path) -> None:
    create_key_file(tmp_path / "keys.toml")
    async with tenuto.open(
        f"sqlite:///{tmp_path}/s.db",
        encryption=True,
        privacy_key_file=str(tmp_path / "keys.toml"),
        max_message_bytes=4096,
        max_head_bytes=4096,
    ) as app:
        ann = app.scope(user="ann")
        turn = await app.begin(ann, "x" * 3800)
        await app.finish(turn, "y" * 3800)
        await app.sessions.patch(ann, turn.session.id, Changes(attributes={"k": "z" * 3900}))

        session = await app.sessions.get(ann, turn.session.id)

    assert session.attributes == {"k": "z" * 3900}


async def test_a_search_by_title_pages_as_the_plain_store_does() -> None:
    clock = FakeClock()
    plain = MemoryStore(clock=clock)
    sealed = encrypted(MemoryStore(clock=clock))
    for number in range(450):
        title = "Wombat talk" if number % 3 == 0 else "Other"
        for store in (plain, sealed):
            await store.sessions.append(ANN, f"s{number}", AppendBatch(id="b", create=NewSession(title=title)))

    async def pages(store: Store) -> list[list[str]]:
        found, cursor = [], None
        while True:
            page = await store.sessions.list(ANN, SessionQuery(title="wOMBAT", limit=40, cursor=cursor))
            found.append([session.id for session in page.sessions])
            cursor = page.cursor
            if cursor is None:
                return found

    assert await pages(sealed) == await pages(plain)
    assert [len(page) for page in await pages(sealed)] == [40, 40, 40, 30]


async def test_rewritten_words_are_sealed(store: EncryptedStore, backend: MemoryStore) -> None:
    await store.sessions.append(ANN, "s", batch("call 555-0100"))
    message: Message = (await store.sessions.messages(ANN, "s", Page())).messages[0]

    await store.sessions.rewrite(ANN, "s", Rewrite(messages=(replace(message, parts=(text_part("call [PHONE_1]"),)),)))

    assert await texts(store, ANN, "s") == ["call [PHONE_1]"]
    assert "[PHONE_1]" not in str(backend.tables.records[key_of("s")].log)
