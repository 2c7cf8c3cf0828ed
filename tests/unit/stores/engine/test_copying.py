"""What a copy refuses, leaves and removes, and what a comparison names."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.errors import Invalid
from tenuto.model import Changes, NewSession, Retention
from tenuto.model.privacy import KEYS_ENTRY, KEYS_NAMESPACE
from tenuto.model.scope import SYSTEM, Scope
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.copy_reports import CopyReport
from tenuto.stores.engine import Engine
from tests.backends import RING, SQLITE, Place
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ACME, ANN, BOB, batch, listed, talk, value_of
from tests.store_copies import compare_stores, copy_store


@pytest.fixture
def source(clock: FakeClock) -> Engine:
    return MemoryStore(clock=clock)


@pytest.fixture
def target(clock: FakeClock) -> Engine:
    return MemoryStore(clock=clock)


@pytest.mark.requirement("T19")
async def test_a_second_run_copies_what_has_changed_since(source: Engine, target: Engine, clock: FakeClock) -> None:
    """It resumes a copy that was interrupted as well, and leaves out expired sessions."""
    for name in ("a", "b"):
        await talk(source, ANN, name, "q", "a")
    await talk(source, ANN, "over", "q", "a", create=NewSession(retention=Retention(idle=timedelta(seconds=1))))
    await source.state.write_state(ANN, "prefs", "tone", "kind")
    await source.state.write_state(ANN, "tasks", "t", {"status": "running"})
    clock.advance(timedelta(minutes=1))

    tried = await copy_store(source, target, clock, dry_run=True)
    untouched = await compare_stores(source, target, clock)
    first = await copy_store(source, target, clock)
    await talk(source, ANN, "b", "more", "a")
    await source.sessions.delete(ANN, "a")
    await source.state.write_state(ANN, "prefs", "tone", "brief")
    second = await copy_store(source, target, clock)
    told = (await compare_stores(source, target, clock)).named
    third = await copy_store(source, target, clock, delete=True)

    assert tried == first == CopyReport(sessions=2, messages=4, state=2, unfinished_tasks=1)
    assert untouched.different == 4
    assert second == CopyReport(sessions=1, messages=4, state=1, unchanged=1, unfinished_tasks=1)
    assert told == ["session a of acme is in the target alone"]
    assert (third.deleted, third.sessions, await listed(target, ANN)) == (1, 0, ["b"])
    assert (await compare_stores(source, target, clock)).different == 0


@pytest.mark.requirement("T19")
async def test_other_data_of_a_target_is_safe(source: Engine, target: Engine, clock: FakeClock) -> None:
    """It is refused unless asked for, never deleted, and what a server has gone on with is not overwritten."""
    await talk(source, ANN, "both", "q", "a")
    await source.state.write_state(ACME, "prefs", "tone", "kind")
    await target.state.write_state(BOB, "prefs", "tone", "his")

    for policy in ({}, {"dry_run": True}, {"merge": True, "delete": True}):
        with pytest.raises(Invalid):
            await copy_store(source, target, clock, **policy)
    await copy_store(source, target, clock, merge=True)
    await talk(target, ANN, "both", "said here", "a")
    await target.state.write_state(ACME, "prefs", "tone", "changed here")
    with pytest.raises(Invalid):
        await copy_store(source, target, clock, delete=True)
    left = await copy_store(source, target, clock)
    told = (await compare_stores(source, target, clock)).named
    forced = await copy_store(source, target, clock, overwrite=True)

    assert (left.sessions, left.state, len(left.left)) == (0, 0, 2)
    (differing,) = (one for one in told if one.startswith("session both of acme differs in messages, "))
    assert {"version", "turns", "last_seq"} <= set(differing.split(", "))
    assert "state tone in prefs of user:bob of acme is in the target alone" in told
    assert (forced.sessions, forced.state, await value_of(target, ACME, "prefs", "tone")) == (1, 1, "kind")
    assert await value_of(target, BOB, "prefs", "tone") == "his"


@pytest.mark.requirement("T19")
async def test_a_rerun_leaves_what_the_new_servers_have_changed(
    source: Engine, target: Engine, clock: FakeClock
) -> None:
    """However far the source went on: revoked keys, messages, deletions and new sessions of the target stay; what it
    did not touch is taken over."""
    for name in ("both", "erased", "here"):
        await talk(source, ANN, name, "q", "a")
    await source.state.write_state(SYSTEM, "keys", "k", {"revoked": False})
    await copy_store(source, target, clock)

    for store, revoked, times in ((target, True, 1), (source, False, 3)):
        for _ in range(times):
            await store.state.write_state(SYSTEM, "keys", "k", {"revoked": revoked})
            await talk(store, ANN, "both", "more", "a")
    await target.sessions.delete(ANN, "erased")
    await talk(target, ANN, "new", "q", "a")
    await talk(source, ANN, "here", "more", "a")
    report = await copy_store(source, target, clock, delete=True)

    assert (report.sessions, report.state, report.deleted, len(report.left)) == (1, 0, 0, 4)
    assert await value_of(target, SYSTEM, "keys", "k") == {"revoked": True}
    assert sorted(await listed(target, ANN)) == ["both", "here", "new"]
    assert (await target.sessions.get(ANN, "both")).messages == 4
    assert (await copy_store(source, target, clock, delete=True, overwrite=True)).left == []
    assert (await compare_stores(source, target, clock)).different == 0


@pytest.mark.requirement("T19")
async def test_a_merge_never_takes_keys_away(source: Engine, target: Engine, clock: FakeClock) -> None:
    """Differing data keys of a tenant refuse it before anything is written, other values of the target stay; keys that
    were copied follow those of the source."""
    ciphers = [TenantCiphers(store=store.state, ring=RING, clock=clock) for store in (source, target)]
    for number, own in enumerate(ciphers):
        await own.cipher_for_sealing(ACME)
        await (source, target)[number].state.write_state(SYSTEM, "privacy.signing", "key", number)
    before = (await compare_stores(target, MemoryStore(clock=clock), clock)).sites

    for policy in ({}, {"overwrite": True}):
        with pytest.raises(Invalid, match="tenant acme has other data keys"):
            await copy_store(source, target, clock, merge=True, **policy)
    assert (await compare_stores(target, MemoryStore(clock=clock), clock)).sites == before
    await ciphers[1].destroy(ACME)
    await target.state.delete_state(Scope(tenant=ACME.tenant), KEYS_NAMESPACE, KEYS_ENTRY)
    merged = await copy_store(source, target, clock, merge=True)
    await ciphers[0].renew(ACME)
    again = await copy_store(source, target, clock)

    assert (len(merged.left), again.state, len(again.left)) == (1, 1, 1)
    assert await value_of(target, SYSTEM, "privacy.signing", "key") == 1


@pytest.mark.requirement("T19")
async def test_a_source_that_was_emptied_takes_nothing_along(source: Engine, target: Engine, clock: FakeClock) -> None:
    """`--delete` is refused when most records are gone, also after a run without it, unless that is meant."""
    for name in "abcde":
        await talk(source, ANN, name, "q", "a")
    await copy_store(source, target, clock)
    for name in "abcde":
        await source.sessions.delete(ANN, name)
        if name in "ce":
            await copy_store(source, target, clock)
            with pytest.raises(Invalid, match="--delete removes nothing"):
                await copy_store(source, target, clock, delete=True)
    kept = await listed(target, ANN)

    assert (len(kept), (await copy_store(source, target, clock, delete=True, shrunk=True)).deleted) == (5, 5)


@pytest.mark.requirement("T19")
async def test_damaged_records_stay_behind_and_are_counted(target: Engine, clock: FakeClock, tmp_path: Path) -> None:
    """The others are copied, and nothing is removed from the target on that ground."""
    assert SQLITE.damage is not None
    async with SQLITE.open(Place(clock=clock, folder=tmp_path, server=str)) as source:
        assert isinstance(source, Engine)
        for name in ("good", "bad"):
            await source.sessions.append(ANN, name, batch("q", "a"))
        await copy_store(source, target, clock)
        await SQLITE.damage(source, ANN, "bad")
        await source.sessions.patch(ANN, "good", Changes(title="New"))

        report = await copy_store(source, target, clock)
        compared = await compare_stores(source, target, clock)
        with pytest.raises(Invalid):
            await copy_store(source, target, clock, delete=True)

    assert (report.sessions, report.unreadable, compared.unreadable) == (1, 1, 1)
    assert sorted(await listed(target, ANN)) == ["bad", "good"]
