"""Sealed records in the wrong place: moved, swapped, copied, forked."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, SessionNotFound
from tenuto.model import Changes, ForkRequest, NewSession, Page
from tenuto.stores.encrypted import EncryptedStore
from tenuto.stores.memory import MemoryStore
from tests.samples import ANN, batch, talk, texts
from tests.unit.stores.sealed_house import damaged, key_of


async def _moved(backend: MemoryStore, source: str, target: str) -> None:
    """An attacker who can write to the backend puts a session's first message in the place of another's."""
    message = (await backend.sessions.messages(ANN, source, Page())).messages[0]
    there = (await backend.sessions.messages(ANN, target, Page())).messages[0]
    record = backend.tables.records[key_of(target)]
    record.log[0] = replace(there, id=message.id, parts=message.parts)


async def test_a_message_moved_into_another_session_does_not_open(store: EncryptedStore, backend: MemoryStore) -> None:
    await store.sessions.append(ANN, "a", batch("for a"))
    await store.sessions.append(ANN, "b", batch("for b"))
    await _moved(backend, "a", "b")

    with pytest.raises(DecryptionFailed, match="written in another session"):
        await store.sessions.messages(ANN, "b", Page())


async def test_a_message_moved_behind_the_branch_does_not_open(store: EncryptedStore, backend: MemoryStore) -> None:
    await store.sessions.append(ANN, "a", batch("for a"))
    await store.sessions.append(ANN, "b", batch("for b"))
    await store.sessions.fork(ANN, "b", ForkRequest(new_id="f", at=0))
    await store.sessions.append(ANN, "f", batch("for f"))
    await _moved(backend, "a", "f")

    with pytest.raises(DecryptionFailed):
        await store.sessions.messages(ANN, "f", Page())


async def test_messages_that_swapped_their_words_do_not_open(store: EncryptedStore, backend: MemoryStore) -> None:
    await store.sessions.append(ANN, "a", batch("one", "two"))
    record = backend.tables.records[key_of("a")]
    record.log[0], record.log[1] = (
        replace(record.log[0], parts=record.log[1].parts),
        replace(record.log[1], parts=record.log[0].parts),
    )

    with pytest.raises(DecryptionFailed):
        await store.sessions.messages(ANN, "a", Page())


async def test_a_fork_holds_nothing_of_a_session_other_than_its_source(
    store: EncryptedStore, backend: MemoryStore
) -> None:
    await store.sessions.append(ANN, "a", batch("for a", create=NewSession(context={"k": "a's"})))
    await store.sessions.append(ANN, "b", batch("for b", create=NewSession(context={"k": "b's"})))
    fork = await store.sessions.fork(ANN, "b", ForkRequest(new_id="f"))
    assert (fork.context, await texts(store, ANN, "f")) == ({"k": "b's"}, ["for b"])
    copied = backend.tables.records[key_of("f")].session

    damaged(backend, "f", context=backend.tables.records[key_of("a")].session.context)
    with pytest.raises(DecryptionFailed, match="written in another session"):
        await store.sessions.get(ANN, "f")
    damaged(backend, "f", context=copied.context)
    await _moved(backend, "a", "f")
    with pytest.raises(DecryptionFailed, match="written in another session"):
        await store.sessions.messages(ANN, "f", Page())


async def test_a_fork_that_does_not_open_is_not_left_behind(store: EncryptedStore, backend: MemoryStore) -> None:
    for name in ("a", "b"):
        await store.sessions.append(ANN, name, batch("hello", create=NewSession(context={"k": name})))
    damaged(backend, "b", context=backend.tables.records[key_of("a")].session.context)

    with pytest.raises(DecryptionFailed):
        await store.sessions.fork(ANN, "b", ForkRequest(new_id="f"))

    with pytest.raises(SessionNotFound):
        await backend.sessions.get(ANN, "f")


@pytest.mark.parametrize("what", ["context", "title"])
async def test_a_value_moved_between_heads_does_not_open(
    store: EncryptedStore, backend: MemoryStore, what: str
) -> None:
    for name in ("a", "b"):
        await store.sessions.append(ANN, name, batch("hello"))
        await store.sessions.patch(ANN, name, Changes(title=f"{name}'s", context={"k": name}))
    stolen = getattr(backend.tables.records[key_of("a")].session, what)
    record = backend.tables.records[key_of("b")]
    record.session = replace(record.session, **{what: stolen})

    with pytest.raises(DecryptionFailed):
        await store.sessions.get(ANN, "b")


async def test_forks_of_forks_take_their_titles_and_words_along_for_generations(store: EncryptedStore) -> None:
    await talk(store, ANN, "s0", "q0", "a0")
    await store.sessions.patch(ANN, "s0", Changes(title="First", attributes={"c": 1}, context={"d": 2}))
    for number in range(5):
        await store.sessions.fork(ANN, f"s{number}", ForkRequest(new_id=f"s{number + 1}"))
        await talk(store, ANN, f"s{number + 1}", f"q{number + 1}", f"a{number + 1}")
        await store.sessions.delete(ANN, f"s{number}")

    session = await store.sessions.get(ANN, "s5")

    assert (session.title, session.attributes, session.context) == ("First", {"c": 1}, {"d": 2})
    assert await texts(store, ANN, "s5") == [f"{who}{n}" for n in range(6) for who in "qa"]
