"""Scanning all stored data: every tenant's sites, each by its own policy, reported one by one and in total."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenuto.model import Page, Scope
from tenuto.model.privacy import Mode, PrivacyPolicy, Sink
from tenuto.ports import utc_now
from tenuto.privacy.compliance.audit import Act
from tenuto.privacy.compliance.scan import ScanSummary
from tenuto.privacy.compliance.service import PrivacyService
from tenuto.privacy.compliance.views import summary_json
from tests.doubles import MemoryStore
from tests.redactors import redactor_over
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, batch

MAIL = "write to ann@example.com"
MUSEUM, EVIL = Scope(tenant="acme", site="museum"), Scope(tenant="evil")
STRICT = PrivacyPolicy(message=Mode.REDACT)


async def filled() -> MemoryStore:
    """Four sessions in three places; all but one of them hold a mail address."""
    store = MemoryStore()
    for scope, text in ((ANN, MAIL), (BOB, "hello"), (ANN_ELSEWHERE, MAIL), (EVE, MAIL)):
        await store.sessions.append(scope, f"of {scope.user}", batch(text))
    return store


def office_of(store: MemoryStore, **tenants: PrivacyPolicy) -> PrivacyService:
    return PrivacyService(
        store=store, redactor=redactor_over(store, **tenants), erase=store.upkeep.erase, clock=utc_now
    )


async def scan_all(of: PrivacyService, *, fix: bool = False) -> ScanSummary:
    return [summary async for summary in of.scan_all(fix=fix, by="otto")][-1]


async def test_every_site_has_its_report_and_the_total_is_their_sum() -> None:
    summary = await scan_all(office_of(await filled()))

    assert {space: report.sessions for space, report in summary.reports.items()} == {ACME: 2, MUSEUM: 1, EVIL: 1}
    assert {space: report.total for space, report in summary.reports.items()} == {ACME: 1, MUSEUM: 1, EVIL: 1}
    assert summary.matches_by_sink() == {Sink.MESSAGE: {"EMAIL": 3}}
    assert (summary.sessions, summary.violations, summary.fixed) == (4, 0, 0)
    assert summary.texts == sum(report.texts for report in summary.reports.values())


async def test_each_tenant_is_judged_by_its_own_policy() -> None:
    summary = await scan_all(office_of(await filled(), evil=STRICT))

    assert summary.matches_by_sink() == {Sink.MESSAGE: {"EMAIL": 3}}
    assert summary.matches_by_sink(violations_only=True) == {Sink.MESSAGE: {"EMAIL": 1}}
    assert {space: report.violations for space, report in summary.reports.items()} == {ACME: 0, MUSEUM: 0, EVIL: 1}
    assert summary.violations == 1


async def test_mending_everything_leaves_what_a_tenant_allows_and_is_noted_with_each_site() -> None:
    store = await filled()
    of = office_of(store, evil=STRICT)

    mended = await scan_all(of, fix=True)
    again = await scan_all(of)

    assert mended.fixed == 1
    assert again.violations == 0
    assert (await store.sessions.messages(EVE, "of ann", Page())).messages[0].text == "write to [REDACTED_EMAIL]"
    assert (await store.sessions.messages(ANN, "of ann", Page())).messages[0].text == MAIL
    for space in (ACME, MUSEUM, EVIL):
        assert [(note.act, note.by) for note in await of.audit.notes(space)] == [(Act.FIXED, "otto")]


async def test_the_survey_grows_session_by_session() -> None:
    of = office_of(await filled())

    seen = [summary.sessions async for summary in of.scan_all()]

    assert seen == sorted(seen)
    assert set(seen) >= {1, 2, 3, 4}


async def test_more_sites_than_a_page_are_all_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.privacy.compliance.service._SPACES", 2)
    store = MemoryStore()
    sites = {replace(ACME, site=f"s{n}") for n in range(7)}
    for site in sites:
        await store.sessions.append(site, "s", batch(MAIL))

    summary = await scan_all(office_of(store))

    assert set(summary.reports) == sites
    assert summary.sessions == 7


async def test_the_survey_as_json_names_sites_and_counts_but_no_words() -> None:
    told = summary_json(await scan_all(office_of(await filled(), evil=STRICT)))

    assert told["matches"] == {"message": {"EMAIL": 3}}
    assert told["violations"] == 1
    assert [(site["tenant"], site["site"], site["violations"]) for site in told["sites"]] == [
        ("acme", "", 0),
        ("acme", "museum", 0),
        ("evil", "", 1),
    ]
    assert "example.com" not in repr(told)
