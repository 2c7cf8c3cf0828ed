"""Usage and hot topics over HTTP: counted from real turns, for the tenant's own backend and admins."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert

from tenuto.access import KeyRole
from tenuto.llm import ScriptedModel
from tenuto.model.generation import ModelDone
from tenuto.server.openapi import document
from tenuto.sessions.views import TopicReportView, UsageReportView
from tests.clock import FakeClock
from tests.journeys.http_service import ANN, HttpService, code, http_service, playing, user
from tests.samples import CARD

pytestmark = pytest.mark.requirement("C14")


ACME = {"X-Tenant-ID": "acme"}
DONE = ModelDone(model="scripted", input_tokens=100, output_tokens=20, cost_nanos=1_500_000)


async def say(service: HttpService, who: dict[str, str], text: str, **body: object) -> dict[str, Any]:
    response = await service.http.post("/v1/chat", headers=who, json={"message": text, **body})
    assert response.status_code == 200, response.text
    told: dict[str, Any] = response.json()
    return told


async def read(service: HttpService, path: str, who: dict[str, str] = ACME) -> dict[str, Any]:
    response = await service.http.get(f"/v1/analytics/{path}", headers=who)
    assert response.status_code == 200, response.text
    told: dict[str, Any] = response.json()
    return told


async def test_turns_are_counted_by_site_assistant_and_day_and_outlive_the_process(store_url: str) -> None:
    played = playing(ScriptedModel(*["An answer."] * 9, ended=DONE))
    museum = {**ANN, "X-Site-ID": "museum"}
    async with http_service(store=store_url, **played) as service:
        first = await say(service, ANN, "Where is my order?")
        await say(service, ANN, "And now?", session_id=first["session_id"])
        await say(service, user("bob"), "Any cheap phones?", assistant="goods")
        await say(service, museum, "When do you open?")
        await say(service, user("ann", "evil"), "Hello")
        here, there = await read(service, "usage?days=7"), await read(service, "usage", {**ACME, "X-Site-ID": "museum"})
    again = here
    if store_url != "memory://":
        # Stored by the end of the process.
        async with http_service(store=store_url, **playing(ScriptedModel())) as service:
            await service.http.delete("/v1/users/ann", headers=ACME)
            again = await read(service, "usage?days=7")

    helper, goods = here["assistants"]
    assert helper == {
        "assistant": "helper", "turns": 2, "input_tokens": 200, "output_tokens": 40, "cost_usd": "0.003"
    }  # fmt: skip
    assert (goods["assistant"], goods["turns"]) == ("goods", 1)
    assert here["total"]["turns"] == sum(day["turns"] for day in here["days"]) == 3
    assert [each["assistant"] for each in here["days"][0]["assistants"]] == ["goods", "helper"]
    assert (there["total"]["turns"], there["total"]["cost_usd"]) == (1, "0.0015")
    assert again == here, "neither a restart nor the erasure of a user changes what was used"


@pytest.mark.requirement("A6")
async def test_a_spent_budget_and_the_usage_are_the_same_numbers() -> None:
    """One book."""
    played = playing(ScriptedModel(*["An answer."] * 9, ended=DONE))
    async with http_service(tenant_daily_tokens=240, **played) as service:
        for _ in range(2):
            await say(service, ANN, "Hello there")
        response = await service.http.post("/v1/chat", headers=ANN, json={"message": "Once more"})
        used = await read(service, "usage?days=1")

    assert code(response) == (429, "budget_exhausted")
    assert (used["total"]["turns"], used["total"]["input_tokens"] + used["total"]["output_tokens"]) == (2, 240)


async def test_topics_are_told_once_three_users_raised_them(store_url: str) -> None:
    clock = FakeClock()
    today = clock().date().isoformat()
    async with http_service(store=store_url, clock=clock) as service:
        for name in ("ann", "bob"):
            await say(service, user(name), "How do refunds work?")
            await say(service, user(name), "怎么申请退款")
        await say(service, ANN, f"My card {CARD} was charged")
        few = await read(service, "topics")
        await say(service, user("cai"), "A refund, please")
        await say(service, user("cai"), "退款流程")
        many, one = await read(service, "topics?days=1"), await read(service, "topics?limit=1")

    assert (few["topics"], few["sessions"], few["truncated"]) == ([], 5, False)
    assert sorted(many["topics"], key=lambda topic: str(topic["name"])) == [
        {"name": "refunds", "sessions": 3, "users": 3, "days": {today: 3}},
        {"name": "退款", "sessions": 3, "users": 3, "days": {today: 3}},
    ]
    assert len(one["topics"]) == 1


async def test_a_users_own_key_reads_no_analytics() -> None:
    async with http_service(locked=True) as service:
        member, backend = await service.key(user="ann"), await service.key()
        admin = await service.key(user="ann", role=KeyRole.ADMIN)
        await say(service, member, "Hello there")
        refused = [await service.http.get(f"/v1/analytics/{what}", headers=member) for what in ("usage", "topics")]
        told = [await read(service, "usage", who) for who in (backend, admin, {**backend, "X-User-ID": "bob"})]
        elsewhere = await read(service, "usage", await service.key(tenant="evil"))

    assert [code(response) for response in refused] == [(403, "forbidden")] * 2
    assert [report["total"]["turns"] for report in told] == [1, 1, 1]
    assert elsewhere["total"]["turns"] == 0


@pytest.mark.parametrize(
    "query", ["usage?days=0", "usage?days=401", "usage?days=x", "topics?days=-1", "topics?limit=0"]
)
async def test_a_period_out_of_range_is_400(service: HttpService, query: str) -> None:
    assert code(await service.http.get(f"/v1/analytics/{query}")) == (400, "invalid")


async def test_the_examples_of_the_document_are_answers(service: HttpService) -> None:
    paths = document(service.app)["paths"]
    for path, kind in (("usage", UsageReportView), ("topics", TopicReportView)):
        content = paths[f"/v1/analytics/{path}"]["get"]["responses"]["200"]["content"]["application/json"]
        convert(content["example"], kind)
