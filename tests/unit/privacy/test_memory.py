"""State of users: redacted by the sink `memory`, found by a scan, erased with its user."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.access import ApiKeys
from tenuto.assistants.goods import Order, OrderStatus, Shop, replace_orders
from tenuto.errors import Invalid, StateCorrupt, Unavailable
from tenuto.model import Scope, StateEntry
from tenuto.model.memory import MEMORIES, MEMORY_INDEX
from tenuto.model.privacy import Mode, PrivacyPolicy, Sink
from tenuto.model.stored import RecordChange
from tenuto.model.values import Json
from tenuto.ports import Store, utc_now
from tenuto.privacy.compliance.scan import Report, Scanner
from tenuto.privacy.redactor import WITHHELD
from tenuto.stores.engine.state import record_key
from tenuto.stores.memory import InMemoryRecords
from tests.backends import engine_over
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.redactors import MASTER_KEY, redacting_store, redactor_over
from tests.samples import ACME, ANN, BOB, CARD

pytestmark = pytest.mark.requirement("T10")


MAIL = "ann.lee@example.com"
TEAM = Scope(tenant="acme", user="ann", channel="lark", chat="team")
ORDER = Order(
    id="13812345678",
    item="i1",
    name="Phone 13912345678 edition",
    status=OrderStatus.SHIPPED,
    ordered_on=date(2026, 3, 1),
    tracking="13712345678",
)


async def value_of(store: Store, scope: Scope, namespace: str, key: str) -> Json:
    entry = await store.state.read_state(scope, namespace, key)
    assert entry is not None
    return entry.value


async def scanned(scanner: Scanner, scope: Scope = ACME, *, fix: bool = False) -> Report:
    return [report async for report in scanner.scan(scope, fix=fix)][-1]


@pytest.mark.parametrize(
    ("mode", "stored"), [(Mode.KEEP, MAIL), (Mode.REDACT, "[REDACTED_EMAIL]"), (Mode.BLOCK, WITHHELD)]
)
async def test_each_mode_does_to_memories_what_it_says(mode: Mode, stored: str) -> None:
    inner, store = redacting_store(PrivacyPolicy(memory=mode))

    entry = await store.state.write_state(ANN, "facts", "mail", MAIL)

    assert entry == StateEntry(key="mail", value=stored, version=1)
    assert await inner.state.read_state(ANN, "facts", "mail") == entry


async def test_texts_numbers_and_names_inside_a_value_are_looked_at_and_the_rest_stays() -> None:
    _, store = redacting_store()
    told: Json = [{"text": f"card {CARD}"}, 7, None, True, 1.5]
    value = {"told": told, "password": "Maple77!", "phone": 13812345678, MAIL: 1}

    entry = await store.state.write_state(ANN, "facts", "all", value)

    assert entry.value == {
        "told": [{"text": "card [REDACTED_CC]"}, 7, None, True, 1.5],
        "password": "[REDACTED_SECRET]",
        "phone": "[REDACTED_PHONE]",
        "[REDACTED_EMAIL]": 1,
    }


async def test_a_value_is_read_with_its_key() -> None:
    """As with any name: the key says that the value is a password, and stays unchanged."""
    _, store = redacting_store()

    secret = await store.state.write_state(ANN, "facts", "password", "Maple77!")
    plain = await store.state.write_state(ANN, "facts", "street", "Maple77!")

    assert (secret.key, secret.value) == ("password", "[REDACTED_SECRET]")
    assert plain.value == "Maple77!"


async def test_each_tenant_has_its_own_policy_and_chats_have_it_as_users_do() -> None:
    _, store = redacting_store(PrivacyPolicy(memory=Mode.KEEP), acme=PrivacyPolicy())

    kept = await store.state.write_state(Scope(tenant="other", user="ann"), "facts", "mail", MAIL)
    of_chat = await store.state.write_state(TEAM, "facts", "mail", MAIL)

    assert (kept.value, of_chat.value) == (MAIL, "[REDACTED_EMAIL]")


async def test_what_no_store_keeps_is_refused_before_anybody_looks_into_it() -> None:
    inner, store = redacting_store()
    deep: Json = MAIL
    for _ in range(5000):
        deep = [deep]

    for value in (deep, "\ud800", float("nan")):
        with pytest.raises(Invalid):
            await store.state.write_state(ANN, "facts", "odd", value)
    assert await inner.state.list_state_locations(ACME) == ()


async def test_the_tenants_own_state_and_the_houses_goes_through_as_it_is() -> None:
    """API keys of a user whose id is a mail address, and state of the tenant."""
    _, store = redacting_store()
    keys = ApiKeys(store=store.state, clock=utc_now)

    _, secret = await keys.create(tenant="acme", user=MAIL)
    own = await store.state.write_state(ACME, "contact", "mail", MAIL)

    assert [key.user for key in await keys.list("acme")] == [MAIL]
    assert await keys.verify(secret) is not None
    assert own.value == MAIL


@pytest.mark.requirement("A30")
async def test_a_shops_orders_keep_their_numbers_through_writing_and_mending() -> None:
    """An order number may look like a phone, and is useless once redacted."""
    inner, store = redacting_store(PrivacyPolicy(memory=Mode.BLOCK))
    await replace_orders(store.state, ANN, [ORDER])
    await store.state.write_state(ANN, "facts", "phone", "my phone is 13812345678")

    report = await scanned(Scanner(store=store, redactor=store.redactor), fix=True)

    assert await Shop(store.state).orders(ANN) == (ORDER,)
    assert (report.memories, report.fixed) == (1, 0)
    assert await value_of(inner, ANN, "facts", "phone") == WITHHELD


class Meddling(FlatMemoryStore):
    """A store with a concurrent writer: the first guarded write conflicts, or finds the value deleted."""

    def __init__(self, value: Json | None) -> None:
        super().__init__()
        self.value = value
        self.met = 0

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        if if_version is not None and scope == ANN:
            self.met += 1
            if self.met == 1 and self.value is None:
                await self.delete_state(scope, namespace, key)
            elif self.met == 1:
                await super().write_state(scope, namespace, key, self.value)
        return await super().write_state(scope, namespace, key, value, if_version)


@pytest.mark.parametrize(
    ("meanwhile", "left", "tries"),
    [(f"now {CARD}", "now [REDACTED_CC]", 2), ("nothing private", "nothing private", 1), (None, None, 1)],
)
async def test_what_somebody_writes_meanwhile_is_not_overwritten_and_is_mended_too(
    meanwhile: str | None, left: str | None, tries: int
) -> None:
    store = Meddling(meanwhile)
    await store.write_state(ANN, "facts", "mail", MAIL)
    await store.write_state(BOB, "facts", "mail", MAIL)

    report = await scanned(Scanner(store=store, redactor=redactor_over(store)), fix=True)

    entry = await store.read_state(ANN, "facts", "mail")
    assert (entry.value if entry else None) == left
    assert (report.memories, report.fixed) == (2, tries)
    assert store.met == tries
    assert await value_of(store, BOB, "facts", "mail") == "[REDACTED_EMAIL]"


async def test_with_a_memory_that_is_mended_goes_the_index_of_its_text() -> None:
    store = MemoryStore()
    await store.state.write_state(ANN, MEMORIES, "one", {"id": "one", "text": MAIL})
    for key in ("head", "block"):
        await store.state.write_state(ANN, MEMORY_INDEX, key, MAIL)

    report = await scanned(Scanner(store=store, redactor=redactor_over(store)), fix=True)

    assert (report.memories, report.fixed) == (1, 1)
    assert await store.state.state_keys(ANN, MEMORY_INDEX) == ()


async def test_a_memory_that_does_not_open_is_counted_and_hides_no_other() -> None:
    """A sealed value was moved to another user's state."""
    records = InMemoryRecords()
    async with engine_over(records, seals=True) as store:
        for scope in (ANN, BOB):
            await store.state.write_state(scope, "facts", "mail", MAIL)
        anns, bobs = await records.load_all([record_key(scope, "facts", "mail") for scope in (ANN, BOB)])
        assert anns is not None
        assert bobs is not None
        moved = RecordChange(key=anns.key, if_revision=anns.revision, revision=anns.revision + 1, head=bobs.head)
        assert await records.commit([moved]) is None

        report = await scanned(Scanner(store=store, redactor=redactor_over(store)), fix=True)

        assert (report.memories, report.unreadable, report.fixed) == (1, 1, 1)
        assert await value_of(store, BOB, "facts", "mail") == "[REDACTED_EMAIL]"


async def test_a_value_that_goes_while_others_are_looked_at_is_passed_over() -> None:
    store = MemoryStore()
    for scope in (ANN, BOB):
        await store.state.write_state(scope, "facts", "mail", MAIL)
    scan = Scanner(store=store, redactor=redactor_over(store)).scan(ACME)
    first = await anext(scan)
    for scope in (ANN, BOB):
        await store.state.delete_state(scope, "facts", "mail")

    rest = [report async for report in scan]

    assert rest[-1] is first
    assert (first.memories, first.matches) == (1, {Sink.MEMORY: {"EMAIL": 1}})


@pytest.mark.parametrize("encryption", [False, True], ids=["plain", "encrypted"])
async def test_a_program_keeps_finds_mends_and_erases_what_it_knows_of_a_user(tmp_path: Path, encryption: bool) -> None:
    """Through the library, over a file, with all store wrappers in between."""
    where = f"sqlite:///{tmp_path}/chat.db"
    sealing: dict[str, Any] = {"encryption": encryption, "privacy_key": MASTER_KEY}
    async with tenuto.open(where, privacy_memory="keep", **sealing) as app:
        ann = app.scope(user="ann")
        await app.store.state.write_state(ann, "facts", "mail", MAIL)
        assert await value_of(app.store, ann, "facts", "mail") == MAIL
    async with tenuto.open(where, **sealing) as app:
        await app.store.state.write_state(ann, "facts", "card", f"pays with {CARD}")
        told = [report async for report in app.privacy.scan(app.scope())][-1]
        fixed = [report async for report in app.privacy.scan(app.scope(), fix=True, by="otto")][-1]
        mended = [
            (one.key, await value_of(app.store, one.scope, one.namespace, one.key))
            for one in await app.store.state.list_state_locations(ann)
        ]
        receipt = await app.privacy.erase(ann, by="otto")
        left = await app.store.state.list_state_locations(app.scope())

    assert (told.memories, told.violations, dict(told.matches)) == (2, 1, {Sink.MEMORY: {"EMAIL": 1}})
    assert fixed.fixed == 1
    assert sorted(mended) == [("card", "pays with [REDACTED_CC]"), ("mail", "[REDACTED_EMAIL]")]
    assert receipt.counts["states"] == 2
    assert left == ()


class Damaged(FlatMemoryStore):
    """A store in which Ann's values cannot be decoded."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self._fault = fault

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        if scope == ANN:
            raise self._fault
        return await super().read_state(scope, namespace, key)


async def test_a_memory_that_is_damaged_is_counted_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store = Damaged(StateCorrupt("state value", "cannot be decoded"))
    for scope in (ANN, BOB):
        await store.write_state(scope, "facts", "mail", MAIL)

    report = await scanned(Scanner(store=store, redactor=redactor_over(store)), fix=True)

    assert (report.memories, report.unreadable, report.fixed) == (1, 1, 1)
    assert "a remembered value was not scanned: the state value cannot be decoded" in caplog.messages


async def test_a_store_that_is_away_ends_a_scan() -> None:
    store = Damaged(Unavailable("session store"))
    await store.write_state(ANN, "facts", "mail", MAIL)

    with pytest.raises(Unavailable):
        await scanned(Scanner(store=store, redactor=redactor_over(store)))
