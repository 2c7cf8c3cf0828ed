"""Encryption at rest, beyond the contract: without the key, in the wrong place, switched on and off."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tenuto
from tenuto.errors import InvalidSetting, KeyReused, Sealed, SessionNotFound, TurnLost, Unavailable
from tenuto.model import (
    Batch,
    Changes,
    Closing,
    Draft,
    Forking,
    Message,
    NewSession,
    OpenTurn,
    Page,
    Rewriting,
    Scope,
    SessionQuery,
    text_part,
)
from tenuto.model.scope import SYSTEM, session_key
from tenuto.model.seal import KEYS_NAMESPACE, data_key_of
from tenuto.model.session import MAX_TITLE_CHARACTERS
from tenuto.model.trace import Trace
from tenuto.ports import Store
from tenuto.privacy.sealed.keyring import KeyRing, MasterKey, MasterKeys, new_key_file
from tenuto.privacy.sealed.sealing import TenantCipher, TenantCiphers
from tenuto.stores.encrypted import Encrypted, holds_sealed
from tenuto.stores.memory import MemoryStore
from tests.backends import RING
from tests.clock import START, FakeClock
from tests.samples import ACME, ANN, batch, begin, closing, once, says, talk, texts

OTHER_RING = KeyRing(keys=MasterKeys(current=MasterKey(name="other", secret=bytes(range(64, 96)))))


def encrypted(store: Store, ring: KeyRing = RING, *, sealing: bool = True) -> Encrypted:
    return Encrypted(store=store, ciphers=TenantCiphers(store=store, ring=ring), sealing=sealing)


@pytest.fixture
def backend() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(backend: MemoryStore) -> Encrypted:
    return encrypted(backend)


async def test_what_the_ciphers_and_the_door_need_is_not_sealed(store: Encrypted, backend: MemoryStore) -> None:
    """API keys are kept as hashes, and must be told right from wrong also when the master key is missing."""
    await store.write_state(SYSTEM, "api-keys", "id", {"hash": "abc"})
    await store.write_state(ACME, KEYS_NAMESPACE, "other", "x")

    for scope, namespace, key, value in (
        (SYSTEM, "api-keys", "id", {"hash": "abc"}),
        (ACME, KEYS_NAMESPACE, "other", "x"),
    ):
        entry = await backend.read_state(scope, namespace, key)
        assert entry is not None
        assert entry.value == value


async def test_ciphers_may_keep_their_keys_in_the_store_they_seal(backend: MemoryStore) -> None:
    ciphers = TenantCiphers(store=backend, ring=RING)
    store = Encrypted(store=backend, ciphers=ciphers)
    ciphers._store = store  # wired the wrong way round

    await store.append(ANN, "s", batch("hello"))

    assert await texts(store, ANN, "s") == ["hello"]


async def test_the_fingerprint_of_a_body_cannot_be_guessed_at(store: Encrypted, backend: MemoryStore) -> None:
    """A plain digest of "my PIN is 1234" tells the PIN to whoever tries ten thousand of them."""
    first = await store.append(ANN, "s", batch("hello", once=once("k", "digest of the body")))
    again = await store.append(ANN, "s", batch("hello", once=once("k", "digest of the body")))

    assert again.duplicate
    assert again.messages == first.messages
    with pytest.raises(KeyReused):
        await store.append(ANN, "s", batch("other", once=once("k", "digest of another")))
    assert backend._records[_key("s")].keyed["k"].fingerprint != "digest of the body"


# Without the right key


async def test_a_sealed_session_without_its_key_is_an_error_and_is_not_set_aside(backend: MemoryStore) -> None:
    there = encrypted(backend)
    turn = await begin(there, ANN, "s", "question")
    await there.finish_turn(turn, closing("answer", changes=Changes(title="Title"), trace=_trace(turn)))
    await there.write_state(ANN, "prefs", "k", "warm")
    wrong = encrypted(backend, OTHER_RING)

    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: wrong.get(ANN, "s"),
        lambda: wrong.messages(ANN, "s", Page()),
        lambda: wrong.list(ANN, SessionQuery(title="x")),
        lambda: wrong.trace(ANN, "s", 1),
        lambda: wrong.read_state(ANN, "prefs", "k"),
        lambda: wrong.append(ANN, "s", batch("more")),
        lambda: begin(wrong, ANN, "s", "more"),
        lambda: wrong.patch(ANN, "s", Changes(title="x")),
        lambda: wrong.write_state(ANN, "prefs", "k", 1),
    ]
    for call in calls:
        with pytest.raises(Sealed, match="needs a master key"):
            await call()

    assert await texts(there, ANN, "s") == ["question", "answer"]


def _trace(turn: OpenTurn) -> Trace:
    return Trace(
        id="t", session_id="s", turn_id=turn.id, number=turn.number, began_at=START, assistant="general", request="q"
    )


async def test_an_unknown_session_is_still_not_found(backend: MemoryStore) -> None:
    await encrypted(backend).append(ANN, "s", batch("hello"))

    with pytest.raises(SessionNotFound):
        await encrypted(backend, OTHER_RING).get(ANN, "other")


async def test_a_turn_whose_window_does_not_open_gives_its_lease_back(store: Encrypted, backend: MemoryStore) -> None:
    """The session is not busy for two minutes because of it."""
    await store.append(ANN, "s", batch("hello"))
    await TenantCiphers(store=backend, ring=RING).destroy(ANN)
    shredded = encrypted(backend)

    for _ in range(2):
        with pytest.raises(Sealed):
            await begin(shredded, ANN, "s", "again")


def _damaged(backend: MemoryStore, session_id: str, **values: Any) -> None:
    """Somebody who writes to the backend changes a head; what stays looks sealed."""
    record = backend._records[_key(session_id)]
    record.session = replace(record.session, **values)


async def test_retries_store_no_words_where_an_older_master_key_is_missing(backend: MemoryStore) -> None:
    """Words that would be stored and refused in one are not stored at all."""
    await talk(encrypted(backend), ANN, "s", "hello", "hi")
    both = KeyRing(keys=MasterKeys(current=OTHER_RING.current("acme"), others=(RING.current("acme"),)))
    await TenantCiphers(store=backend, ring=both).renew(ANN)
    without_the_older = encrypted(backend, OTHER_RING)

    for _ in range(3):
        with pytest.raises(Sealed, match="needs a master key"):
            await begin(without_the_older, ANN, "s", "again")
        with pytest.raises(Sealed, match="needs a master key"):
            await without_the_older.append(ANN, "s", batch("more"))

    assert await texts(encrypted(backend, both), ANN, "s") == ["hello", "hi"]
    assert (await begin(without_the_older, ANN, "new", "question")).created


async def test_a_session_that_was_tampered_with_takes_no_second_copy_of_the_words(
    store: Encrypted, backend: MemoryStore
) -> None:
    await talk(store, ANN, "s", "hello", "hi")
    record = backend._records[_key("s")]
    whole = record.log[0]
    record.log[0] = replace(whole, parts=record.log[1].parts)

    for _ in range(3):
        with pytest.raises(Sealed):
            await begin(store, ANN, "s", "again")
    record.log[0] = whole

    assert await texts(store, ANN, "s") == ["hello", "hi", "again"]
    assert [message.text for message in (await begin(store, ANN, "s", "and again")).words] == ["and again"]


class _Fails(TenantCiphers):
    """Ciphers that cannot be asked for a while."""

    def __init__(self, store: MemoryStore, failure: BaseException) -> None:
        super().__init__(store=store, ring=RING)
        self.failure = failure
        self.left = 1_000

    async def to_open(self, scope: Scope, *, anew: bool = False) -> TenantCipher:
        self.left -= 1
        if self.left < 0:
            raise self.failure
        return await super().to_open(scope, anew=anew)


@pytest.mark.parametrize("failure", [Unavailable("session store"), asyncio.CancelledError(), ValueError("a bug")])
async def test_whatever_keeps_a_turn_from_its_caller_gives_its_lease_back(
    backend: MemoryStore, failure: BaseException
) -> None:
    """And the same key takes the turn up again."""
    ciphers = _Fails(backend, failure)
    store = Encrypted(store=backend, ciphers=ciphers)
    await talk(store, ANN, "s", "hello", "hi")
    ciphers.left = 1
    with pytest.raises(type(failure)):
        await begin(store, ANN, "s", "question", once=once("k"))
    ciphers.left = 1_000

    turn = await begin(store, ANN, "s", "question", once=once("k"))
    await store.finish_turn(turn, closing("answer"))

    assert await texts(store, ANN, "s") == ["hello", "hi", "question", "answer"]


# Moved and copied


async def _moved(backend: MemoryStore, source: str, target: str) -> None:
    """Somebody who writes to the backend puts a session's first message in the place of another's."""
    message = (await backend.messages(ANN, source, Page())).messages[0]
    there = (await backend.messages(ANN, target, Page())).messages[0]
    record = backend._records[_key(target)]
    record.log[0] = replace(there, id=message.id, parts=message.parts)


def _key(session_id: str) -> bytes:
    return session_key(ANN, session_id)


async def test_a_message_moved_into_another_session_does_not_open(store: Encrypted, backend: MemoryStore) -> None:
    await store.append(ANN, "a", batch("for a"))
    await store.append(ANN, "b", batch("for b"))
    await _moved(backend, "a", "b")

    with pytest.raises(Sealed, match="written in another session"):
        await store.messages(ANN, "b", Page())


async def test_a_message_moved_into_a_fork_behind_its_branch_does_not_open(
    store: Encrypted, backend: MemoryStore
) -> None:
    await store.append(ANN, "a", batch("for a"))
    await store.append(ANN, "b", batch("for b"))
    await store.fork(ANN, "b", Forking(new_id="f", at=0))
    await store.append(ANN, "f", batch("for f"))
    await _moved(backend, "a", "f")

    with pytest.raises(Sealed):
        await store.messages(ANN, "f", Page())


async def test_messages_that_swapped_their_words_do_not_open(store: Encrypted, backend: MemoryStore) -> None:
    await store.append(ANN, "a", batch("one", "two"))
    record = backend._records[_key("a")]
    record.log[0], record.log[1] = (
        replace(record.log[0], parts=record.log[1].parts),
        replace(record.log[1], parts=record.log[0].parts),
    )

    with pytest.raises(Sealed):
        await store.messages(ANN, "a", Page())


async def test_a_fork_holds_nothing_of_a_session_that_it_did_not_branch_off_from(
    store: Encrypted, backend: MemoryStore
) -> None:
    await store.append(ANN, "a", batch("for a", create=NewSession(context={"k": "a's"})))
    await store.append(ANN, "b", batch("for b", create=NewSession(context={"k": "b's"})))
    fork = await store.fork(ANN, "b", Forking(new_id="f"))
    assert (fork.context, await texts(store, ANN, "f")) == ({"k": "b's"}, ["for b"])
    copied = backend._records[_key("f")].session

    _damaged(backend, "f", context=backend._records[_key("a")].session.context)
    with pytest.raises(Sealed, match="written in another session"):
        await store.get(ANN, "f")
    _damaged(backend, "f", context=copied.context)
    await _moved(backend, "a", "f")
    with pytest.raises(Sealed, match="written in another session"):
        await store.messages(ANN, "f", Page())


async def test_a_fork_that_does_not_open_is_not_left_behind(store: Encrypted, backend: MemoryStore) -> None:
    for name in ("a", "b"):
        await store.append(ANN, name, batch("hello", create=NewSession(context={"k": name})))
    _damaged(backend, "b", context=backend._records[_key("a")].session.context)

    with pytest.raises(Sealed):
        await store.fork(ANN, "b", Forking(new_id="f"))

    with pytest.raises(SessionNotFound):
        await backend.get(ANN, "f")


@pytest.mark.parametrize("what", ["context", "title"])
async def test_a_value_moved_between_heads_does_not_open(store: Encrypted, backend: MemoryStore, what: str) -> None:
    for name in ("a", "b"):
        await store.append(ANN, name, batch("hello"))
        await store.patch(ANN, name, Changes(title=f"{name}'s", context={"k": name}))
    stolen = getattr(backend._records[_key("a")].session, what)
    record = backend._records[_key("b")]
    record.session = replace(record.session, **{what: stolen})

    with pytest.raises(Sealed):
        await store.get(ANN, "b")


async def test_a_fork_of_a_fork_reads_what_its_first_ancestor_was_told(store: Encrypted) -> None:
    await talk(store, ANN, "a", "q1", "a1")
    await store.patch(ANN, "a", Changes(title="First", context={"c": 1}))
    await store.fork(ANN, "a", Forking(new_id="b"))
    await talk(store, ANN, "b", "q2", "a2")
    fork = await store.fork(ANN, "b", Forking(new_id="c", title="Third"))
    await store.delete(ANN, "a")
    await store.delete(ANN, "b")

    assert (fork.title, fork.context) == ("Third", {"c": 1})
    assert await texts(store, ANN, "c") == ["q1", "a1", "q2", "a2"]


async def test_forks_of_forks_take_their_titles_and_words_along_for_generations(store: Encrypted) -> None:
    await talk(store, ANN, "s0", "q0", "a0")
    await store.patch(ANN, "s0", Changes(title="First", attributes={"c": 1}))
    for number in range(5):
        await store.fork(ANN, f"s{number}", Forking(new_id=f"s{number + 1}"))
        await talk(store, ANN, f"s{number + 1}", f"q{number + 1}", f"a{number + 1}")
        await store.delete(ANN, f"s{number}")

    session = await store.get(ANN, "s5")

    assert (session.title, session.attributes) == ("First", {"c": 1})
    assert await texts(store, ANN, "s5") == [f"{who}{n}" for n in range(6) for who in "qa"]


# Limits and listings


async def test_a_head_that_was_tampered_with_is_listed_as_such_and_hides_no_other(
    store: Encrypted, backend: MemoryStore
) -> None:
    """One record must not take a tenant its listings."""
    for name in ("a", "b"):
        await store.append(ANN, name, batch("hello", create=NewSession(title=name, context={"k": name})))
    _damaged(backend, "b", context=backend._records[_key("a")].session.context)

    listed = (await store.list(ACME, SessionQuery())).sessions
    named = (await store.list(ACME, SessionQuery(title="a"))).sessions

    assert {each.id: (each.title, each.context) for each in listed} == {"a": ("a", {"k": "a"}), "b": ("[SEALED]", {})}
    assert [each.id for each in named] == ["a"]
    with pytest.raises(Sealed):
        await store.get(ANN, "b")


async def test_the_longest_title_and_odd_text_fit(store: Encrypted) -> None:
    """Limits count what people said; what is sealed is longer, and passes."""
    title = "长" * MAX_TITLE_CHARACTERS
    await store.append(ANN, "s", batch("hello", create=NewSession(title=title)))
    forked = await store.fork(ANN, "s", Forking(new_id="f", title=title))
    patched = await store.patch(ANN, "s", Changes(title=title[::-1]))

    assert forked.title == patched.title == title


async def test_a_message_and_a_head_of_the_allowed_size_are_taken(tmp_path: Path) -> None:
    new_key_file(tmp_path / "keys.toml")
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
            await store.append(ANN, f"s{number}", Batch(id="b", create=NewSession(title=title)))

    async def pages(store: Store) -> list[list[str]]:
        found, cursor = [], None
        while True:
            page = await store.list(ANN, SessionQuery(title="wOMBAT", limit=40, cursor=cursor))
            found.append([session.id for session in page.sessions])
            cursor = page.cursor
            if cursor is None:
                return found

    assert await pages(sealed) == await pages(plain)
    assert [len(page) for page in await pages(sealed)] == [40, 40, 40, 30]


async def test_rewritten_words_are_sealed(store: Encrypted, backend: MemoryStore) -> None:
    await store.append(ANN, "s", batch("call 555-0100"))
    message: Message = (await store.messages(ANN, "s", Page())).messages[0]

    await store.rewrite(ANN, "s", Rewriting(messages=(replace(message, parts=(text_part("call [PHONE_1]"),)),)))

    assert await texts(store, ANN, "s") == ["call [PHONE_1]"]
    assert "PHONE" not in str(backend._records[_key("s")].log)


# Switching it on and off


async def test_what_was_stored_plain_stays_readable_and_new_words_are_sealed(
    store: Encrypted, backend: MemoryStore
) -> None:
    await talk(backend, ANN, "s", "plain question", "plain answer")
    await backend.patch(ANN, "s", Changes(title="Plain", context={"old": 1}))
    await backend.write_state(ANN, "prefs", "k", "plain")

    await talk(store, ANN, "s", "new question", "new answer")
    session = await store.patch(ANN, "s", Changes(context={"new": 2}))

    assert await texts(store, ANN, "s") == ["plain question", "plain answer", "new question", "new answer"]
    assert (session.title, session.context) == ("Plain", {"old": 1, "new": 2})
    assert (await store.read_state(ANN, "prefs", "k")) == (await backend.read_state(ANN, "prefs", "k"))
    assert await texts(backend, ANN, "s") == ["plain question", "plain answer", "", ""]
    assert [each.id for each in (await store.list(ANN, SessionQuery(title="plain"))).sessions] == ["s"]


async def test_given_up_encryption_still_opens_and_seals_no_more(store: Encrypted, backend: MemoryStore) -> None:
    await talk(store, ANN, "s", "sealed question", "sealed answer")
    given_up = encrypted(backend, sealing=False)

    await talk(given_up, ANN, "s", "plain question", "plain answer")

    assert (await texts(given_up, ANN, "s"))[:2] == ["sealed question", "sealed answer"]
    assert await texts(backend, ANN, "s") == ["", "", "plain question", "plain answer"]


async def test_words_that_look_sealed_come_back_as_they_were_said(store: Encrypted) -> None:
    """Nobody can pass a text off as sealed while encryption is on."""
    forged = f"tnt1.0123456789abcdef.{'A' * 60}"
    draft: Draft = says("", parts=({"type": "sealed", "text": forged},), metadata={"sealed": forged})
    await store.append(ANN, "s", Batch(id="b", messages=(draft,), create=NewSession(title=forged)))
    await store.write_state(ANN, "prefs", "k", forged)

    page = await store.messages(ANN, "s", Page())

    assert page.messages[0].parts == draft.parts
    assert page.messages[0].metadata == draft.metadata
    assert page.session.title == forged
    entry = await store.read_state(ANN, "prefs", "k")
    assert entry is not None
    assert entry.value == forged


LOOKALIKE = f"tnt1.0123456789abcdef.{'A' * 60}"


async def test_words_that_look_sealed_and_were_stored_before_encryption_stay_words(
    store: Encrypted, backend: MemoryStore
) -> None:
    """Nobody can stop a tenant's listings by what a title is called."""
    new = NewSession(title=LOOKALIKE, context={"k": LOOKALIKE})
    await backend.append(ANN, "s", batch("hello", create=new))
    await backend.write_state(ANN, "prefs", "k", LOOKALIKE)
    await store.append(ANN, "other", batch("hello"))

    page = await store.list(ACME, SessionQuery())

    assert {each.id: (each.title, each.context) for each in page.sessions} == {
        "s": (LOOKALIKE, {"k": LOOKALIKE}),
        "other": ("", {}),
    }
    assert (await begin(store, ANN, "s", "and on")).session.title == LOOKALIKE
    entry = await store.read_state(ANN, "prefs", "k")
    assert entry is not None
    assert entry.value == LOOKALIKE


async def test_words_that_look_sealed_come_back_as_they_were_said_also_while_encryption_is_off(
    store: Encrypted, backend: MemoryStore
) -> None:
    """Even when they name a key that the tenant has."""
    await store.append(ANN, "mine", batch("hello", create=NewSession(title="Title")))
    name = data_key_of(backend._records[_key("mine")].session.title)
    forged = f"tnt1.{name}.{'A' * 60}"
    off = encrypted(backend, sealing=False)
    draft: Draft = says("", parts=({"type": "sealed", "text": forged},))

    await off.append(ANN, "s", Batch(id="b", messages=(draft,), create=NewSession(title=forged)))
    await off.patch(ANN, "s", Changes(attributes={"k": forged}))
    turn = await begin(off, ANN, "s", "question")
    await off.finish_turn(turn, closing("answer", trace=replace(_trace(turn), request="", data={"sealed": forged})))
    await off.write_state(ANN, "prefs", "k", forged)
    forked = await off.fork(ANN, "s", Forking(new_id="f", title=forged))

    for reader in (off, store):
        page = await reader.messages(ANN, "s", Page())
        assert (page.messages[0].parts, page.session.title, page.session.attributes) == (
            draft.parts,
            forged,
            {"k": forged},
        )
        assert (await reader.traces(ANN, "s"))[0].data == {"sealed": forged}
        entry = await reader.read_state(ANN, "prefs", "k")
        assert entry is not None
        assert entry.value == forged
    assert forked.title == forged
    assert (await texts(backend, ANN, "s"))[1] == "question", "plain words stay plain"


async def test_what_was_sealed_with_a_destroyed_key_is_never_taken_for_words(
    store: Encrypted, backend: MemoryStore
) -> None:
    await store.append(ANN, "s", batch("hello", create=NewSession(title="Title")))
    await store.write_state(ANN, "prefs", "k", "warm")
    await TenantCiphers(store=backend, ring=RING).destroy(ANN)
    after = encrypted(backend)
    await after.append(ANN, "new", batch("life goes on"))

    with pytest.raises(Sealed):
        await after.get(ANN, "s")
    with pytest.raises(Sealed):
        await after.read_state(ANN, "prefs", "k")
    listed = (await after.list(ACME, SessionQuery())).sessions
    assert {each.id: each.title for each in listed} == {"s": "[SEALED]", "new": ""}


# The installation


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    new_key_file(tmp_path / "keys.toml")
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

    with pytest.raises(InvalidSetting, match="privacy_key: is needed: the store holds sealed records"):
        async with tenuto.open(settings["store"]):
            pass
    async with tenuto.open(**settings) as app:
        page = await app.sessions.messages(ann, turn.session.id, Page())

    assert page.messages[0].text == "The quokka smiles."


async def test_an_installation_that_never_sealed_is_not_wrapped(tmp_path: Path) -> None:
    async with tenuto.open(f"sqlite:///{tmp_path}/s.db") as app:
        assert not await holds_sealed(app.store)


async def test_a_key_in_the_setting_will_do(tmp_path: Path) -> None:
    key = base64.b64encode(bytes(range(32))).decode()
    async with tenuto.open(f"sqlite:///{tmp_path}/s.db", encryption=True, privacy_key=key) as app:
        turn = await app.begin(app.scope(user="ann"), "hello")
        finished = await app.finish(turn, "hello Ann")

    assert finished.messages == 2


async def test_finishing_a_lost_turn_is_refused_as_ever(store: Encrypted) -> None:
    turn = await begin(store, ANN, "s", "one")
    await store.reset(ANN, "s")

    with pytest.raises(TurnLost):
        await store.finish_turn(turn, Closing())


async def test_tenants_have_keys_of_their_own(store: Encrypted, backend: MemoryStore) -> None:
    """Crypto-shredding one tenant leaves the others as they are."""
    eve = Scope(tenant="evil", user="eve")
    await store.append(ANN, "s", batch("ann's"))
    await store.append(eve, "s", batch("eve's"))
    await TenantCiphers(store=backend, ring=RING).destroy(eve)
    reader = encrypted(backend)

    with pytest.raises(Sealed):
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
        with pytest.raises(InvalidSetting, match="sealed with another master key"):
            async with tenuto.open(url, encryption=encryption, privacy_key=wrong):
                pass

    async with tenuto.open(url, encryption=True, privacy_key=right) as app:
        assert (await app.privacy.erase(app.scope(user="ann"), by="operator")).counts["sessions"] == 1
