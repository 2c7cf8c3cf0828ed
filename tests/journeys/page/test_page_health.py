"""The pages of operators: how the server is, in words and not by colour alone, and what was used as charts."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Locator, expect

from tenuto.errors import FailureReason, ModelFailed, ModelKeyRefused
from tenuto.llm import ScriptedModel
from tenuto.llm.scripted import Fail
from tenuto.model.generation import ModelDone
from tests.clock import FakeClock
from tests.journeys.http_service import HttpService, http_service, playing
from tests.journeys.page.visit import PHONE, Visit, listening, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

DONE = ModelDone(model="scripted", input_tokens=100, output_tokens=20, cost_nanos=1_500_000)


async def ask(service: HttpService, user: str, text: str) -> int:
    response = await service.http.post("/v1/chat", headers={"X-User-ID": user}, json={"message": text})
    return response.status_code


def fact(visit: Visit, card: str, name: str) -> Locator:
    return visit.page.locator(f"[data-card={card}] [data-fact={name}]")


@pytest.mark.requirement("C14")
async def test_an_operator_sees_health_and_usage_and_others_how_to_get_in(chromium: Browser) -> None:
    """And the console of operators: one visit, from well to failing, then the charts, then without the role."""
    asked_too_often = ModelFailed("scripted", "is asked too often (429)", FailureReason.LIMIT)
    model = ScriptedModel(*["An answer."] * 3, Fail(asked_too_often), ended=DONE)
    clock = FakeClock()
    async with (
        http_service(clock=clock, **playing(model)) as service,
        listening(service) as base,
        visiting(chromium, base, viewport=PHONE, color_scheme="dark") as visit,
    ):
        visit.allow("401", "403")
        await visit.open("/#/health")
        await expect(visit.page.locator(".level")).to_have_text("Nothing is wrong so far; no model was called yet")
        await expect(visit.page.locator("[data-card=model]")).to_have_attribute("data-level", "uncalled")
        await expect(fact(visit, "turns", "answered")).to_have_text("0")

        for user in ("ann", "bob", "cai"):
            assert await ask(service, user, "How do refunds work?") == 200
        await expect(visit.page.locator(".level")).to_have_text("All is well")
        for _ in range(5):
            assert await ask(service, "ann", "And now?") == 503
        # It is read again by itself.
        await expect(visit.page.locator(".level")).to_have_text("Something is wrong")
        await expect(visit.page.locator(".findings")).to_contain_text("scripted: the provider’s rate limit or quota")
        await expect(fact(visit, "model", "failed")).to_have_text("5 of 8")
        await expect(fact(visit, "model", "reason")).to_have_text("limit reached")
        await expect(fact(visit, "turns", "failed")).to_have_text("5")

        await visit.open("/#/usage")
        await expect(visit.page.locator("[data-total=turns]")).to_have_text("3")
        await expect(visit.page.locator("[data-total=tokens]")).to_have_text("360")
        await expect(visit.page.get_by_role("img", name="Tokens by day and assistant")).to_be_visible()
        await expect(visit.page.locator(".chart rect")).to_have_count(1)
        await visit.page.get_by_role("button", name="Cost").press("Enter")
        await expect(visit.page.locator(".chart .most")).to_have_text("$0.0045")
        topic = visit.page.get_by_role("row", name="refunds")
        await expect(topic.get_by_role("cell").first).to_have_text("3")
        await expect(topic.get_by_role("img")).to_have_attribute("aria-label", f"{clock().date()}: 3")
        for part in ("html", "main"):
            wide = await visit.page.locator(part).evaluate("one => [one.scrollWidth, one.clientWidth]")
            assert wide[0] <= wide[1], part

        _, secret = await service.keys.create(tenant="local", user="ann")
        service.ticks.now += 60
        await visit.page.evaluate("location.hash = '#/health'")
        await expect(visit.page.get_by_role("dialog")).to_contain_text("This server needs an API key")
        await visit.page.get_by_label("API key or token").fill(secret)
        await visit.page.keyboard.press("Enter")
        await expect(visit.page.locator(".health .notice")).to_contain_text(
            "tenuto keys create --tenant ID --role operator"
        )
        await expect(visit.page.locator(".level")).to_be_hidden()


async def test_a_refused_key_is_called_one_and_the_advice_shows_its_command_as_code(chromium: Browser) -> None:
    model = ScriptedModel(Fail(ModelKeyRefused("scripted", "refuses our key or its permissions (401)")))
    async with (
        http_service(**playing(model)) as service,
        listening(service) as base,
        visiting(chromium, base, locale="zh-CN") as visit,
    ):
        assert await ask(service, "ann", "Hello?") == 502
        await visit.open("/#/health")
        finding = visit.page.locator(".findings li")
        await expect(finding.locator("b")).to_have_text("scripted：模型服务商拒绝了密钥或其权限。")
        await expect(finding.locator("code")).to_have_text("tenuto doctor")
        await expect(finding).not_to_contain_text("`")
