"""Compaction after an erasure: when it runs, how often, and what the receipt says."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import MasterKeyMissing, Unavailable
from tenuto.model import AppendBatch, CompactionResult, MessagePage, NewSession, Page, Scope
from tenuto.model.scope import SYSTEM, session_key
from tenuto.model.stored import Part, RecordChange
from tenuto.ports import utc_now
from tenuto.privacy.compliance.compaction import CompactionStatus, Compactor
from tenuto.privacy.compliance.receipts import verify_receipt
from tenuto.privacy.compliance.service import PrivacyService
from tenuto.stores.engine import Engine
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore
from tests.internals import end_after_one_round
from tests.redactors import MASTER_KEY, redactor_over
from tests.samples import ACME, ANN, BOB, batch, fresh, says

PRIVATE = NewSession(title="Mail to ann@example.com")


class Files(FlatMemoryStore):
    """A memory store whose compaction takes as long, and ends, as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.compactions = 0
        self.outcome: CompactionResult | Unavailable = CompactionResult(cleared=True)
        self.begun = asyncio.Event()
        self.free = asyncio.Event()
        self.free.set()

    async def compact(self) -> CompactionResult:
        self.compactions += 1
        self.begun.set()
        await self.free.wait()
        if isinstance(self.outcome, Unavailable):
            raise self.outcome
        return self.outcome


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def compactor(files: Files, fake_clock: FakeClock) -> Compactor:
    return Compactor(state=files.state, upkeep=files.upkeep, clock=fake_clock)


@pytest.fixture
def office(files: Files, compactor: Compactor) -> PrivacyService:
    redactor = redactor_over(files)
    return PrivacyService(store=files, redactor=redactor, erase=files.erase, clock=utc_now, compactor=compactor)


async def test_erasing_again_and_again_compacts_once(files: Files, office: PrivacyService) -> None:
    """Users who erase themselves must not be able to keep the store busy."""
    await files.append(ANN, "s", batch("hello"))

    receipts = [await office.erase(ANN, by="themselves") for _ in range(5)]

    assert [receipt.compaction for receipt in receipts] == [CompactionStatus.DONE, *[CompactionStatus.NOTHING] * 4]
    assert files.compactions == 1


async def test_who_comes_within_a_minute_is_left_to_upkeep(
    files: Files, office: PrivacyService, compactor: Compactor, fake_clock: FakeClock
) -> None:
    told = []
    for number in range(5):
        await files.append(ANN, f"s{number}", batch("hello"))
        told.append((await office.erase(ANN, by="themselves")).compaction)
    await compactor.catch_up()
    too_soon = files.compactions

    fake_clock.advance(timedelta(minutes=2))
    await Compactor(state=files.state, upkeep=files.upkeep, clock=fake_clock).catch_up()
    await compactor.catch_up()

    assert told == [CompactionStatus.DONE, *[CompactionStatus.LATER] * 4]
    assert (too_soon, files.compactions) == (1, 2), "another process did it, and once is enough"


async def test_at_most_one_compaction_runs_at_a_time(
    files: Files, office: PrivacyService, compactor: Compactor, fake_clock: FakeClock
) -> None:
    """A running compaction may still write what is erased meanwhile: it is done again later."""
    await files.append(ANN, "s", batch("hello"))
    await files.append(BOB, "t", batch("hello"))
    files.free.clear()
    first = asyncio.create_task(office.erase(ANN, by="operator"))
    await files.begun.wait()
    fake_clock.advance(timedelta(minutes=5))

    second = await office.erase(BOB, by="operator")
    files.free.set()

    assert ((await first).compaction, second.compaction, files.compactions) == (
        CompactionStatus.DONE,
        CompactionStatus.LATER,
        1,
    )
    fake_clock.advance(timedelta(minutes=5))
    await compactor.catch_up()
    assert files.compactions == 2


async def test_a_request_that_is_cancelled_leaves_its_note_and_its_bytes_to_upkeep(
    files: Files, office: PrivacyService, compactor: Compactor, fake_clock: FakeClock
) -> None:
    await files.append(ANN, "s", batch("hello"))
    files.free.clear()
    request = asyncio.create_task(office.erase(ANN, by="themselves"))
    await files.begun.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    files.free.set()

    (note,) = await office.audit.notes(ACME)
    fake_clock.advance(timedelta(minutes=2))
    await compactor.catch_up()

    assert (note.act, note.about["counts"]["sessions"]) == ("erased", 1)
    assert files.compactions == 2


async def test_a_receipt_says_what_the_store_would_not_do(files: Files, office: PrivacyService) -> None:
    await files.append(ANN, "s", batch("hello"))
    files.outcome = CompactionResult(cleared=False, remaining_reason="a server refuses to rewrite its files (NOPERM)")

    receipt = await office.erase(ANN, by="operator")

    assert (receipt.compaction, receipt.remaining_reason) == (CompactionStatus.PARTLY, files.outcome.remaining_reason)
    assert verify_receipt(receipt, await office.signer.public_key())


async def test_a_store_that_was_busy_is_asked_again(
    files: Files, office: PrivacyService, compactor: Compactor, fake_clock: FakeClock
) -> None:
    await files.append(ANN, "s", batch("hello"))
    files.outcome = Unavailable("session store", "is in use elsewhere")

    receipt = await office.erase(ANN, by="operator")
    files.outcome = CompactionResult(cleared=True)
    fake_clock.advance(timedelta(minutes=2))
    await compactor.catch_up()
    await compactor.catch_up()

    assert (receipt.compaction, files.compactions) == (CompactionStatus.LATER, 2)


async def test_who_erases_step_by_step_waits_and_has_bytes_cleared(files: Files, office: PrivacyService) -> None:
    """At the terminal: once more is how to make up for a store that was busy."""
    for _ in range(2):
        receipts = [receipt async for receipt in office.erasing(ANN, by="operator")]
        assert receipts[-1].compaction is CompactionStatus.DONE

    assert files.compactions == 2


async def test_what_a_scan_removes_is_cleared_whoever_clears_meanwhile(files: Files, office: PrivacyService) -> None:
    for number in range(3):
        await files.append(ANN, f"s{number}", batch("hello", create=PRIVATE))
    cleared = []

    async for report in office.scan(ACME, fix=True, by="operator"):
        if report.compaction is None:
            cleared.append(await office.compactor.due())
            await Compactor(state=files.state, upkeep=files.upkeep, clock=utc_now).catch_up()

    assert cleared == [True, True, True, False], "owed with each session that was mended, not with the first alone"
    assert (report.fixed, report.compaction) == (3, CompactionStatus.NOTHING)


async def test_what_a_scan_took_out_last_is_cleared_before_it_ends(files: Files, office: PrivacyService) -> None:
    for number in range(2):
        await files.append(ANN, f"s{number}", batch("hello", create=PRIVATE))

    async for report in office.scan(ACME, fix=True, by="operator"):
        if report.sessions == 1:
            await Compactor(state=files.state, upkeep=files.upkeep, clock=utc_now).catch_up()

    assert (report.compaction, files.compactions) == (CompactionStatus.DONE, 2)


async def test_what_was_mended_before_a_key_was_missing_is_noted_and_cleared(
    files: Files, office: PrivacyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rotation some of a tenant's records decrypt, and others need a missing master key."""
    await files.append(ANN, "s", batch("hello", create=PRIVATE))
    messages = files.messages

    async def closed(scope: Scope, session_id: str, page: Page) -> MessagePage:
        raise MasterKeyMissing("0" * 16)

    monkeypatch.setattr(files, "messages", closed)
    *_, summary = [summary async for summary in office.scan_all(fix=True, by="operator")]
    monkeypatch.setattr(files, "messages", messages)

    (note,) = await office.audit.notes(ACME)
    assert (note.act, note.about) == ("fixed", {"sessions": 0, "memories": 0, "fixed": 1})
    assert (list(summary.locked_sites), summary.fixed, summary.compaction) == ([ACME], 1, CompactionStatus.DONE)


async def test_the_rounds_of_upkeep_do_what_was_put_off(fake_clock: FakeClock) -> None:
    async with tenuto.open("memory://", clock=fake_clock) as app:
        told = []
        for scope in (ANN, BOB):
            turn = await app.begin(scope, "hello")
            await app.finish(turn, "hi")
            told.append((await app.privacy.erase(scope, by="operator")).compaction)
        assert told == [CompactionStatus.DONE, CompactionStatus.LATER]
        fake_clock.advance(timedelta(minutes=5))

        due = await app.store.state.read_state(SYSTEM, "privacy.compaction", "due")

        end_after_one_round(app.upkeep)
        with pytest.raises(asyncio.CancelledError):
            await app.upkeep.run()

        done = await app.store.state.read_state(SYSTEM, "privacy.compaction", "due")
        assert due is not None
        assert done is not None
        assert (due.value, done.value) == (True, False)


async def _tampered(app: Tenuto, group: Scope) -> None:
    """Two sessions of a group; the second message of one was put in the place of the first of the other."""
    for name in ("one", "two"):
        words = (says(f"ann in {name}", speaker="ann"), says("me too", speaker="bob"))
        await app.store.sessions.append(group, name, AppendBatch(id=fresh("b"), messages=words, create=NewSession()))
    records = app.stores.backend
    assert isinstance(app.stores.unredacted, Engine)
    one, two = (session_key(group, name) for name in ("one", "two"))
    foreign = (await records.page(one, Part.MESSAGES, 2, 2, 1)).entries[0]
    found = next(found for found in await records.scan(b"", 1000) if found.record.key == two)
    change = RecordChange(
        key=two,
        if_revision=found.record.revision,
        revision=found.record.revision + 1,
        head=found.record.head,
        totals=found.totals,
        puts=(msgspec.structs.replace(foreign, number=1),),
    )
    assert await records.commit((change,)) is None
    app.stores.unredacted.cache.clear()  # Nobody else can change a store in memory, so it is not looked at again.


async def test_a_talk_that_does_not_open_keeps_nobody_from_being_erased_and_is_counted() -> None:
    group = Scope(tenant="acme", channel="lark", chat="oc_1")
    async with tenuto.open("memory://", encryption=True, privacy_key=MASTER_KEY, l1=False) as app:
        await _tampered(app, group)

        receipt = await app.privacy.erase(ANN, by="operator")
        *_, report = [report async for report in app.privacy.scan(ACME)]

        assert (receipt.counts["shared_messages"], receipt.counts["unreadable"]) == (1, 1)
        assert (report.sessions, report.unreadable) == (1, 1)
