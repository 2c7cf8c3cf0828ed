"""What is kept of users and chats meets the policy on every backend: as it is written, and when all is scanned."""

from __future__ import annotations

import pytest

from tenuto.errors import VersionConflict
from tenuto.model import Scope
from tenuto.model.privacy import Mode, PrivacyPolicy, Sink
from tenuto.ports import Store, utc_now
from tenuto.privacy.compliance.scan import Report
from tenuto.privacy.compliance.service import PrivacyService
from tenuto.privacy.redacting_store import RedactingStore
from tests.redactors import redactor_over
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, value_of

MUSEUM = Scope(tenant="acme", site="museum")
TEAM = Scope(tenant="acme", user="ann", channel="lark", chat="team")
MAIL = "ann.lee@example.com"


def unscreened(store: Store) -> Store:
    """The store as it was before there was a policy."""
    return store.inner if isinstance(store, RedactingStore) else store


def office_over(store: Store, policy: PrivacyPolicy | None = None) -> PrivacyService:
    screened = RedactingStore(store=store, redactor=redactor_over(store, policy))
    return PrivacyService(store=screened, redactor=screened.redactor, erase=screened.upkeep.erase, clock=utc_now)


async def scanned(office: PrivacyService, scope: Scope = ACME, *, fix: bool = False) -> Report:
    return [report async for report in office.scan(scope, fix=fix, by="otto")][-1]


@pytest.mark.requirement("A11", "A13")
async def test_what_is_remembered_is_stored_without_private_data(store: Store) -> None:
    """By default, on whatever store; reading, versions and compare-and-set are the store's own."""
    screened = RedactingStore(store=store, redactor=redactor_over(store))

    first = await screened.state.write_state(ANN, "facts", "mail", {"said": [f"write to {MAIL}"], "n": 3}, if_version=0)
    second = await screened.state.write_state(ANN, "facts", "mail", f"or {MAIL}", if_version=first.version)
    try:
        await screened.state.write_state(ANN, "facts", "mail", MAIL, if_version=first.version)
        conflict = None
    except VersionConflict as error:
        conflict = error

    assert first.value == {"said": ["write to [REDACTED_EMAIL]"], "n": 3}
    assert (first.version, second.version) == (1, 2)
    assert await store.state.read_state(ANN, "facts", "mail") == second
    assert second.value == "or [REDACTED_EMAIL]"
    assert conflict is not None


async def test_a_scan_finds_what_is_remembered_and_a_fix_takes_it_out(store: Store) -> None:
    """Of every owner and in every drawer; on no other site; and the tenant's own state is none of it."""
    old = unscreened(store)
    for scope in (ANN, BOB, TEAM, ANN_ELSEWHERE, ACME):
        await old.state.write_state(scope, "facts", "mail", [f"write to {MAIL}"])
    await store.state.write_state(BOB, "prefs", "tone", "warm")
    office = office_over(store)

    before = await scanned(office)
    fixed = await scanned(office, fix=True)
    again = await scanned(office)

    assert (before.memories, before.violations, before.fixed) == (4, 3, 0)
    assert before.matches == {Sink.MEMORY: {"EMAIL": 3}}
    assert (fixed.memories, fixed.fixed, again.violations) == (4, 3, 0)
    for scope in (ANN, BOB, TEAM):
        assert await value_of(store, scope, "facts", "mail") == ["write to [REDACTED_EMAIL]"]
    for scope in (ANN_ELSEWHERE, ACME):
        assert await value_of(store, scope, "facts", "mail") == [f"write to {MAIL}"]
    assert await value_of(store, BOB, "prefs", "tone") == "warm"


async def test_a_scan_of_everything_reaches_sites_where_nothing_but_memories_is_left(store: Store) -> None:
    for scope in (ANN, ANN_ELSEWHERE):
        await unscreened(store).state.write_state(scope, "facts", "mail", MAIL)

    *_, summary = [summary async for summary in office_over(store).scan_all(fix=True, by="otto")]

    assert set(summary.reports) == {ACME, MUSEUM}
    assert (summary.sessions, summary.memories, summary.fixed) == (0, 2, 2)
    assert await value_of(store, ANN_ELSEWHERE, "facts", "mail") == "[REDACTED_EMAIL]"


async def test_more_memories_than_a_page_are_all_looked_through(store: Store) -> None:
    old = unscreened(store)
    for number in range(105):
        await old.state.write_state(Scope(tenant="acme", user=f"u{number % 3}"), "facts", f"k{number}", MAIL)
    office = office_over(store, PrivacyPolicy(memory=Mode.KEEP))

    report = await scanned(office)

    assert (report.memories, report.total, report.violations) == (105, 105, 0)
    assert await office.extent(ACME) == 105
