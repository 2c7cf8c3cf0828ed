"""Policies, reports, receipts and audit notes as JSON: the same over HTTP and in the CLI."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tenuto.model import Scope
from tenuto.model.privacy import Mode, Sink
from tenuto.model.values import JsonObject, View
from tenuto.privacy.compliance.audit import Act
from tenuto.privacy.compliance.compaction import CompactionStatus
from tenuto.privacy.compliance.scan import Report, ScanSummary
from tenuto.privacy.redactor import TenantPolicies


class PolicyView(View, frozen=True, kw_only=True):
    """The policy of a tenant. Custom patterns by name only: an expression may reveal what it hides."""

    modes: dict[Sink, Mode]
    types: list[str]
    patterns: list[str]
    unvaulted: list[str]


def policy_view(policies: TenantPolicies, scope: Scope) -> PolicyView:
    """The policy of a tenant."""
    policy = policies.of(scope)
    return PolicyView(
        modes={sink: policy.mode(sink) for sink in Sink},
        types=sorted(map(str, policies.finder(scope).types)),
        patterns=sorted(pattern.name for pattern in policy.patterns),
        unvaulted=sorted(policy.unvaulted),
    )


class AuditEntryView(View, frozen=True, kw_only=True):
    """Who did what with private data; `about` holds ids and counts, never a value."""

    id: str
    at: datetime
    act: Act
    by: str
    about: JsonObject


class ReceiptView(View, frozen=True, kw_only=True):
    """What was removed. `person` is a digest of tenant and user; the signature covers every other field.

    `compacted` says whether deleted bytes were cleared from the store's files: `done`, `later` (upkeep will clear
    them), `partly` (`remains` says what is left), or `nothing` if nothing was removed.
    """

    id: str
    tenant: str
    site: str
    person: str
    erased_at: datetime
    counts: dict[str, int]
    compacted: CompactionStatus
    remains: str
    public_key: str
    signature: str


def summary_json(survey: ScanSummary) -> JsonObject:
    """The result of a scan of everything: in total, and site by site."""
    return {
        "sessions": survey.sessions,
        "remembered": survey.remembered,
        "texts": survey.texts,
        "found": _counts_json(survey.matches_by_sink()),
        "against": survey.against,
        "mended": survey.mended,
        "unopened": survey.unopened,
        "closed": [
            {"tenant": space.tenant, "site": space.site, "code": why.code, "error": str(why)}
            for space, why in survey.closed.items()
        ],
        "compacted": survey.compacted,
        "remains": survey.remains,
        "sites": [
            {"tenant": space.tenant, "site": space.site, **_matches_json(report)}
            for space, report in sorted(survey.reports.items(), key=lambda item: (item[0].tenant, item[0].site))
        ],
    }


def report_json(report: Report) -> JsonObject:
    """The result of a scan: counts by sink and type, and whether deleted bytes were cleared."""
    return {**_matches_json(report), "compacted": report.compacted, "remains": report.remains}


def _matches_json(report: Report) -> JsonObject:
    return {
        "sessions": report.sessions,
        "remembered": report.remembered,
        "texts": report.texts,
        "found": _counts_json(report.found),
        "allowed": sorted(sink.value for sink in report.allowed),
        "against": report.against,
        "mended": report.mended,
        "orphans": report.orphans,
        "unopened": report.unopened,
    }


def _counts_json(found: Mapping[Sink, Mapping[str, int]]) -> JsonObject:
    return {sink.value: dict(sorted(names.items())) for sink, names in found.items()}
