"""Encryption switched on and off, and what an installation makes of its keys."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.errors import DecryptionFailed, InvalidSetting
from tenuto.model import AppendBatch, Changes, Draft, ForkRequest, NewSession, Page, Scope, SessionQuery
from tenuto.model.privacy import data_key_id
from tenuto.privacy.crypto.keyring import create_key_file
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.encrypted import EncryptedStore
from tenuto.stores.memory import MemoryStore
from tenuto.stores.sealed_state import has_sealed_records
from tests.backends import RING
from tests.samples import ACME, ANN, batch, begin, closing, says, talk, texts, trace_of, value_of
from tests.unit.stores.sealed_house import encrypted, key_of


async def test_plain_text_stays_readable_and_new_text_is_sealed(store: EncryptedStore, backend: MemoryStore) -> None:
    await talk(backend, ANN, "s", "plain question", "plain answer")
    await backend.sessions.patch(ANN, "s", Changes(title="Plain", context={"old": 1}))
    await backend.state.write_state(ANN, "prefs", "k", "plain")

    await talk(store, ANN, "s", "new question", "new answer")
    session = await store.sessions.patch(ANN, "s", Changes(context={"new": 2}))

    assert await texts(store, ANN, "s") == ["plain question", "plain answer", "new question", "new answer"]
    assert (session.title, session.context) == ("Plain", {"old": 1, "new": 2})
    assert (await store.state.read_state(ANN, "prefs", "k")) == (await backend.state.read_state(ANN, "prefs", "k"))
    assert await texts(backend, ANN, "s") == ["plain question", "plain answer", "", ""]
    assert [each.id for each in (await store.sessions.list(ANN, SessionQuery(title="plain"))).sessions] == ["s"]


async def test_given_up_encryption_still_opens_and_seals_no_more(store: EncryptedStore, backend: MemoryStore) -> None:
    await talk(store, ANN, "s", "sealed question", "sealed answer")
    given_up = encrypted(backend, sealing=False)

    await talk(given_up, ANN, "s", "plain question", "plain answer")

    assert (await texts(given_up, ANN, "s"))[:2] == ["sealed question", "sealed answer"]
    assert await texts(backend, ANN, "s") == ["", "", "plain question", "plain answer"]


async def test_words_that_look_sealed_come_back_as_they_were_said(store: EncryptedStore) -> None:
    """No text can pass as sealed while encryption is on."""
    forged = f"tnt1.0123456789abcdef.{'A' * 60}"
    draft: Draft = says("", parts=({"type": "sealed", "text": forged},), metadata={"sealed": forged})
    await store.sessions.append(ANN, "s", AppendBatch(id="b", messages=(draft,), create=NewSession(title=forged)))
    await store.state.write_state(ANN, "prefs", "k", forged)

    page = await store.sessions.messages(ANN, "s", Page())

    assert page.messages[0].parts == draft.parts
    assert page.messages[0].metadata == draft.metadata
    assert page.session.title == forged
    assert await value_of(store, ANN, "prefs", "k") == forged


LOOKALIKE = f"tnt1.0123456789abcdef.{'A' * 60}"


async def test_words_that_only_look_sealed_stay_words(store: EncryptedStore, backend: MemoryStore) -> None:
    """No title can stop a tenant's listings."""
    new = NewSession(title=LOOKALIKE, context={"k": LOOKALIKE})
    await backend.sessions.append(ANN, "s", batch("hello", create=new))
    await backend.state.write_state(ANN, "prefs", "k", LOOKALIKE)
    await store.sessions.append(ANN, "other", batch("hello"))

    page = await store.sessions.list(ACME, SessionQuery())

    assert {each.id: (each.title, each.context) for each in page.sessions} == {
        "s": (LOOKALIKE, {"k": LOOKALIKE}),
        "other": ("", {}),
    }
    assert (await begin(store, ANN, "s", "and on")).session.title == LOOKALIKE
    assert await value_of(store, ANN, "prefs", "k") == LOOKALIKE


async def test_words_that_look_sealed_come_back_as_said(store: EncryptedStore, backend: MemoryStore) -> None:
    """Even when they name a key that the tenant has."""
    await store.sessions.append(ANN, "mine", batch("hello", create=NewSession(title="Title")))
    name = data_key_id(backend.tables.records[key_of("mine")].session.title)
    forged = f"tnt1.{name}.{'A' * 60}"
    off = encrypted(backend, sealing=False)
    draft: Draft = says("", parts=({"type": "sealed", "text": forged},))

    await off.sessions.append(ANN, "s", AppendBatch(id="b", messages=(draft,), create=NewSession(title=forged)))
    await off.sessions.patch(ANN, "s", Changes(attributes={"k": forged}))
    turn = await begin(off, ANN, "s", "question")
    await off.sessions.finish_turn(turn, closing("answer", trace=trace_of(turn, data={"sealed": forged})))
    await off.state.write_state(ANN, "prefs", "k", forged)
    forked = await off.sessions.fork(ANN, "s", ForkRequest(new_id="f", title=forged))

    for reader in (off, store):
        page = await reader.sessions.messages(ANN, "s", Page())
        assert (page.messages[0].parts, page.session.title, page.session.attributes) == (
            draft.parts,
            forged,
            {"k": forged},
        )
        assert (await reader.traces.traces(ANN, "s"))[0].data == {"sealed": forged}
        assert await value_of(reader, ANN, "prefs", "k") == forged
    assert forked.title == forged
    assert (await texts(backend, ANN, "s"))[1] == "question", "plain words stay plain"


async def test_text_sealed_with_a_destroyed_key_is_never_shown(store: EncryptedStore, backend: MemoryStore) -> None:
    await store.sessions.append(ANN, "s", batch("hello", create=NewSession(title="Title")))
    await store.state.write_state(ANN, "prefs", "k", "warm")
    await TenantCiphers(store=backend.state, ring=RING).destroy(ANN)
    after = encrypted(backend)
    await after.sessions.append(ANN, "new", batch("life goes on"))

    with pytest.raises(DecryptionFailed):
        await after.sessions.get(ANN, "s")
    with pytest.raises(DecryptionFailed):
        await after.state.read_state(ANN, "prefs", "k")
    listed = (await after.sessions.list(ACME, SessionQuery())).sessions
    assert {each.id: each.title for each in listed} == {"s": "[SEALED]", "new": ""}


# The installation


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    create_key_file(tmp_path / "keys.toml")
    return {"store": f"sqlite:///{tmp_path}/tenuto.db", "privacy_key_file": str(tmp_path / "keys.toml")}


def _contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("tenuto.db*"))


async def test_an_installation_seals_what_it_stores(settings: dict[str, Any], tmp_path: Path) -> None:
    async with tenuto.open(**settings, encryption=True) as app:
        ann = app.scope(user="ann")
        turn = await app.begin(ann, "The quokka smiles.")
        await app.finish(turn, "So it does.")
        lies_there = _contents(tmp_path)

    async with tenuto.open(**settings, encryption=True) as again:
        page = await again.sessions.messages(ann, turn.session.id, Page())

    assert b"quokka" not in lies_there
    assert b"tnt1." in lies_there
    assert [message.text for message in page.messages] == ["The quokka smiles.", "So it does."]


async def test_encryption_given_up_needs_the_key_for_what_was_sealed(settings: dict[str, Any]) -> None:
    async with tenuto.open(**settings, encryption=True) as app:
        ann = app.scope(user="ann")
        turn = await app.begin(ann, "The quokka smiles.")
        await app.finish(turn, "So it does.")

    with pytest.raises(InvalidSetting, match="privacy_key: is needed: the store holds encrypted records"):
        async with tenuto.open(settings["store"]):
            pass
    async with tenuto.open(**settings) as app:
        page = await app.sessions.messages(ann, turn.session.id, Page())

    assert page.messages[0].text == "The quokka smiles."


async def test_an_installation_that_never_sealed_is_not_wrapped(tmp_path: Path) -> None:
    async with tenuto.open(f"sqlite:///{tmp_path}/s.db") as app:
        assert not await has_sealed_records(app.store.state)


async def test_a_key_in_the_setting_will_do(tmp_path: Path) -> None:
    key = base64.b64encode(bytes(range(32))).decode()
    async with tenuto.open(f"sqlite:///{tmp_path}/s.db", encryption=True, privacy_key=key) as app:
        turn = await app.begin(app.scope(user="ann"), "hello")
        finished = await app.finish(turn, "hello Ann")

    assert finished.messages == 2


async def test_tenants_have_keys_of_their_own(store: EncryptedStore, backend: MemoryStore) -> None:
    """Crypto-shredding one tenant leaves the others as they are."""
    eve = Scope(tenant="evil", user="eve")
    await store.sessions.append(ANN, "s", batch("ann's"))
    await store.sessions.append(eve, "s", batch("eve's"))
    await TenantCiphers(store=backend.state, ring=RING).destroy(eve)
    reader = encrypted(backend)

    with pytest.raises(DecryptionFailed):
        await texts(reader, eve, "s")
    assert await texts(reader, ANN, "s") == ["ann's"]


async def test_a_store_sealed_with_another_key_is_refused_at_the_start(tmp_path: Path) -> None:
    """Under the wrong key new records would be sealed, and lost with the right one."""
    url = f"sqlite:///{tmp_path}/chat.db"
    right, wrong = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
    async with tenuto.open(url, encryption=True, privacy_key=right) as app:
        turn = await app.begin(app.scope(user="ann"), "hello")
        await app.finish(turn, "hi")

    for encryption in (True, False):
        with pytest.raises(InvalidSetting, match="encrypted with another master key"):
            async with tenuto.open(url, encryption=encryption, privacy_key=wrong):
                pass

    async with tenuto.open(url, encryption=True, privacy_key=right) as app:
        assert (await app.privacy.erase(app.scope(user="ann"), by="operator")).counts["sessions"] == 1
