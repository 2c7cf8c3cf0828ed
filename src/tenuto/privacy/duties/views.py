"""How policies, reports, receipts and audit notes look outside, as JSON: the same over HTTP and in the CLI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tenuto.model import Scope
from tenuto.model.privacy import Sink
from tenuto.model.values import JsonObject
from tenuto.privacy.duties.audit import Note
from tenuto.privacy.duties.scanning import Report, Survey
from tenuto.privacy.screening import Policies

if TYPE_CHECKING:
    from tenuto.privacy.duties.receipts import Receipt


def policy_json(policies: Policies, scope: Scope) -> JsonObject:
    """What holds for a tenant. Of its own patterns only the names: an expression may tell what is being hidden."""
    policy = policies.of(scope)
    return {
        "modes": {sink.value: policy.mode(sink) for sink in Sink},
        "types": sorted(map(str, policies.finder(scope).types)),
        "patterns": sorted(pattern.name for pattern in policy.patterns),
        "unvaulted": sorted(policy.unvaulted),
    }


def note_json(note: Note) -> JsonObject:
    """One line of the audit."""
    return {"id": note.id, "at": _instant(note), "act": note.act, "by": note.by, "about": note.about}


def receipt_json(receipt: Receipt) -> JsonObject:
    """A receipt with all its fields; it reads back as what was signed."""
    shown: JsonObject = msgspec.to_builtins(receipt)
    return {name: shown.get(name, getattr(receipt, name)) for name in receipt.__struct_fields__}


def survey_json(survey: Survey) -> JsonObject:
    """What a scan of everything found: in total, and site by site."""
    return {
        "sessions": survey.sessions,
        "remembered": survey.remembered,
        "texts": survey.texts,
        "found": _counts(survey.found()),
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
            {"tenant": space.tenant, "site": space.site, **_found_json(report)}
            for space, report in sorted(survey.reports.items(), key=lambda item: (item[0].tenant, item[0].site))
        ],
    }


def report_json(report: Report) -> JsonObject:
    """What a scan found: counts by sink and type; and what became of the bytes of what was taken out."""
    return {**_found_json(report), "compacted": report.compacted, "remains": report.remains}


def _found_json(report: Report) -> JsonObject:
    return {
        "sessions": report.sessions,
        "remembered": report.remembered,
        "texts": report.texts,
        "found": _counts(report.found),
        "allowed": sorted(sink.value for sink in report.allowed),
        "against": report.against,
        "mended": report.mended,
        "orphans": report.orphans,
        "unopened": report.unopened,
    }


def _counts(found: Mapping[Sink, Mapping[str, int]]) -> JsonObject:
    return {sink.value: dict(sorted(names.items())) for sink, names in found.items()}


def _instant(note: Note) -> str:
    return str(msgspec.to_builtins(note.at)).replace("+00:00", "Z")
