"""A scan over HTTP, and receipts that are verified there."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenuto.access import KeyRole
from tenuto.model import Scope
from tenuto.model.privacy import Mode
from tests.journeys.http_service import ANN, HttpService, at, code, http_service, says
from tests.samples import CARD

SCAN, VERIFY = "/v1/privacy/scan", "/v1/privacy/verify"
MAIL = "ann.lee@example.com"
SITE = {"X-Tenant-ID": "acme"}


async def fill(service: HttpService, store: str = "acme", many: int = 3) -> None:
    who = {"X-Tenant-ID": store, "X-User-ID": "ann"}
    for number in range(many):
        await service.http.post("/v1/sessions", headers=who, json={"id": f"s{number}"})
        await service.http.post(at(f"s{number}", "messages"), headers=who, json=says(f"Write to {MAIL}, card {CARD}."))


def events(text: str) -> list[tuple[str, Any]]:
    blocks = [block.split("\ndata: ", 1) for block in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), msgspec.json.decode(data)) for name, data in blocks]


@pytest.mark.requirement("A14")
async def test_a_scan_tells_its_progress_and_counts_and_a_fix_redacts(tmp_path: Path) -> None:
    """By sink and type, without a value; another tenant's sessions are not read; fixes are audited,
    also those of a scan that is broken off."""
    store = f"sqlite:///{tmp_path / 's.db'}"
    async with http_service(store=store, privacy_message=Mode.KEEP) as service:
        await fill(service)
        await fill(service, "evil", 1)
    async with http_service(store=store, privacy_message=Mode.REDACT) as service:
        streamed = await service.http.post(SCAN, headers=SITE, json={"stream": True})
        async with aclosing(service.tenuto.privacy.scan(Scope(tenant="acme"), fix=True, by="one who left")) as reports:
            await anext(reports)
        fixed = (await service.http.post(SCAN, headers=SITE, json={"fix": True})).json()
        again = (await service.http.post(SCAN, headers=SITE)).json()
        stored = (await service.http.get(at("s1", "messages"), headers=ANN)).text
        audit = (await service.http.get("/v1/privacy/audit", headers=SITE)).json()["entries"]
        evil = (await service.http.post(SCAN, headers={"X-Tenant-ID": "evil"})).json()

    told = events(streamed.text)
    assert told[:4] == [("progress", {"done": done, "total": 3}) for done in range(4)]
    [(name, report)] = told[4:]
    assert (name, report["sessions"], report["violations"]) == ("report", 3, 6)
    assert (report["matches"]["message"], report["compaction"]) == ({"CC": 3, "EMAIL": 3}, None)
    assert (fixed["fixed"], again["violations"], evil["violations"]) == (2, 0, 2)
    assert (MAIL not in stored, "REDACTED" in stored) == (True, True)
    assert [(note["act"], note["by"], note["about"]["fixed"]) for note in audit] == [
        ("fixed", "one who left", 1),
        ("fixed", "open server", 2),
    ]
    assert MAIL not in streamed.text
    assert CARD not in streamed.text


async def test_a_scan_is_for_those_who_answer_for_the_tenant(locked: HttpService) -> None:
    """A user and an agent are refused, the backend and an admin are not."""
    for bound in ({"user": "ann"}, {"agent": "reader"}):
        response = await locked.http.post(SCAN, headers=await locked.key(**bound))
        assert code(response) == (403, "forbidden")
    for bound in ({}, {"user": "ann", "role": KeyRole.ADMIN}):
        allowed = await locked.http.post(SCAN, headers=await locked.key(**bound))
        assert allowed.status_code == 200


async def test_a_receipt_is_verified_with_and_without_its_user(service: HttpService) -> None:
    """What was changed, or is about another user, is not valid; what is no receipt is refused."""
    await fill(service, many=1)
    early = await service.http.post(VERIFY, headers=ANN, json={"receipt": {}})
    receipt = (await service.http.delete("/v1/users/ann", headers=SITE)).json()

    checked = [
        (await service.http.post(VERIFY, headers=ANN, json=body)).json()
        for body in (
            {"receipt": receipt},
            {"receipt": receipt, "user_id": "ann"},
            {"receipt": receipt, "user_id": "bob"},
            {"receipt": {**receipt, "counts": {"sessions": 9}}},
            {"receipt": {**receipt, "public_key": "A" * 44}},
        )
    ]

    assert [check["valid"] for check in checked] == [True, True, False, False, False]
    assert [check["why"] for check in checked[2:]] == [
        "it is about another user",
        "it was changed since it was signed",
        "it was not signed by this installation",
    ]
    assert code(early) == (400, "invalid")
    assert code(await service.http.post(VERIFY, json={"receipt": {**receipt, "more": 1}})) == (400, "invalid")
