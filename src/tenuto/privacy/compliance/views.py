"""Policies, reports, receipts and audit notes as JSON: the same over HTTP and in the CLI."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tenuto.model import Scope
from tenuto.model.privacy import ATTACHMENT_SINKS, AttachmentMode, Mode, Sink
from tenuto.model.values import JsonObject, View
from tenuto.privacy.compliance.audit import Act
from tenuto.privacy.compliance.compaction import CompactionStatus
from tenuto.privacy.compliance.scan import Report, ScanSummary
from tenuto.privacy.tenant_policies import TenantPolicies


class PolicyView(View, frozen=True, kw_only=True):
    """The policy of a tenant. Custom patterns by name only: an expression may reveal what it hides."""

    modes: dict[Sink, Mode]
    attachments: dict[Sink, AttachmentMode]
    types: list[str]
    patterns: list[str]
    unvaulted: list[str]


def policy_view(policies: TenantPolicies, scope: Scope) -> PolicyView:
    """The policy of a tenant."""
    policy = policies.of(scope)
    return PolicyView(
        modes={sink: policy.mode(sink) for sink in Sink},
        attachments={sink: policy.attachment_mode(sink) for sink in ATTACHMENT_SINKS},
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
    """What was removed. `user_digest` is a digest of tenant and user, `identity_digests` are those of the other users
    who were linked as the same person; the signature covers every other field.

    `compaction` says whether deleted bytes were cleared from the store's files: `done`, `later` (upkeep will clear
    them), `partly` (`remaining_reason` says what is left), or `nothing` if nothing was removed. `limits` says what no
    erasure covers.
    """

    id: str
    tenant: str
    sites: tuple[str, ...]
    user_digest: str
    identity_digests: tuple[str, ...]
    erased_at: datetime
    counts: dict[str, int]
    compaction: CompactionStatus
    remaining_reason: str
    limits: str
    public_key: str
    signature: str


class ReportView(View, frozen=True, kw_only=True):
    """What a scan of a site found: private values by sink and type as counts, never the values.

    Sinks in `allowed_sinks` may hold them; `violations` counts those elsewhere. `unreadable` counts sessions and
    memories that do not decrypt or are damaged, `fixed` the records that were redacted. `compaction` is null without
    `fix`; else it says whether the deleted bytes were cleared, as in a receipt.
    """

    sessions: int
    memories: int
    texts: int
    matches: dict[Sink, dict[str, int]]
    allowed_sinks: list[Sink]
    violations: int
    fixed: int
    orphaned_vaults: int
    unreadable: int
    compaction: CompactionStatus | None
    remaining_reason: str


def report_view(report: Report) -> ReportView:
    """The result of a scan: counts by sink and type, and whether deleted bytes were cleared."""
    return ReportView.derive(
        report,
        matches={sink: dict(sorted(names.items())) for sink, names in report.matches.items()},
        allowed_sinks=sorted(report.allowed_sinks),
    )


def summary_json(summary: ScanSummary) -> JsonObject:
    """The result of a scan of everything: in total, and site by site."""
    return {
        "sessions": summary.sessions,
        "memories": summary.memories,
        "texts": summary.texts,
        "matches": _counts_json(summary.matches_by_sink()),
        "violations": summary.violations,
        "fixed": summary.fixed,
        "unreadable": summary.unreadable,
        "locked_sites": [
            {"tenant": space.tenant, "site": space.site, "code": why.code, "error": str(why)}
            for space, why in summary.locked_sites.items()
        ],
        "compaction": summary.compaction,
        "remaining_reason": summary.remaining_reason,
        "sites": [
            {"tenant": space.tenant, "site": space.site, **_matches_json(report)}
            for space, report in sorted(summary.reports.items(), key=lambda item: (item[0].tenant, item[0].site))
        ],
    }


def _matches_json(report: Report) -> JsonObject:
    return {
        "sessions": report.sessions,
        "memories": report.memories,
        "texts": report.texts,
        "matches": _counts_json(report.matches),
        "allowed_sinks": sorted(sink.value for sink in report.allowed_sinks),
        "violations": report.violations,
        "fixed": report.fixed,
        "orphaned_vaults": report.orphaned_vaults,
        "unreadable": report.unreadable,
    }


def _counts_json(found: Mapping[Sink, Mapping[str, int]]) -> JsonObject:
    return {sink.value: dict(sorted(names.items())) for sink, names in found.items()}
