"""Code of the operator that fails: its file cannot be loaded, or it raises in a turn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tenuto.access import KeyRole
from tenuto.errors import FailureReason, ModelFailed, ModelKeyRefused
from tenuto.llm import Fail, FallbackChain, OfflineModel, ScriptedModel
from tests.journeys.http_service import HttpService, http_service, playing
from tests.journeys.page.visit import Visit, listening, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

BROKEN = "def assistant():\n    return Assistent()\n"
RESPONDS = """
from tenuto.assistants import Assistant

async def respond(turn):
    import no_such_graph
    yield None

def assistant():
    return Assistant(name="resp", respond=respond)
"""
TOOL = """
from tenuto.assistants.function_tools import offline

@offline(plan=lambda turn: {"city": "Ulm"}, render=lambda found, turn: found)
def weather(city: str) -> str:
    \"\"\"The weather.\"\"\"
    return undefined_name
"""
RAISED = "ModuleNotFoundError: No module named 'no_such_graph' (resp.py:5 in respond"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "resp.py").write_text(RESPONDS)
    (tmp_path / "sky.py").write_text(TOOL)
    (tmp_path / "sky.toml").write_text('system.en = "x"\ntools = ["weather"]\n')
    return str(tmp_path)


async def _choose(visit: Visit, name: str) -> None:
    await visit.page.get_by_role("radio", name=name).check()


async def test_a_broken_file_has_its_cause_on_its_card_and_in_health(chromium: Browser, folder: str) -> None:
    async with http_service(folder=folder) as service, listening(service) as base, visiting(chromium, base) as visit:
        page = visit.page
        await visit.open()
        await _choose(visit, "broken")

        cause = "broken.py: assistant() raises NameError at line 2: name 'Assistent' is not defined"
        await expect(page.locator(".assistants label", has_text="broken")).to_contain_text("cannot be loaded")
        await expect(page.locator(".needed")).to_contain_text(f"{cause} correct the file, then start again.")
        await visit.open("/#/health")
        finding = page.locator(".findings [data-code=assistant_file]")
        await expect(finding).to_contain_text("The assistant broken takes no turns: its file cannot be loaded.")
        await expect(finding).to_contain_text(cause)


async def test_what_respond_raised_is_named_below_the_answer_and_in_its_trace(chromium: Browser, folder: str) -> None:
    async with http_service(folder=folder) as service, listening(service) as base, visiting(chromium, base) as visit:
        visit.allow("500")
        page = visit.page
        await visit.open()
        await _choose(visit, "resp")
        await visit.say("Hello")

        answer = visit.answers.first
        await expect(answer).to_have_attribute("data-status", "failed")
        await expect(answer.get_by_role("alert")).to_contain_text("This assistant failed. Its operator finds the cause")
        await expect(answer.locator(".causes")).to_contain_text(RAISED)
        await expect(page.locator(".frame > [role=status].unseen")).to_have_text("")
        await answer.get_by_role("link", name="Open the trace").click()
        facts = page.locator(".trace-facts")
        await expect(facts).to_contain_text("assistant failed")
        await expect(facts).to_contain_text(RAISED)
        await page.get_by_role("button", name="What the model saw").click()
        await expect(page.locator(".page .insight")).to_contain_text("No model was called: the turn ended before it.")
        await visit.open("/#/traces")
        await expect(page.locator(".trace-table td.outcome")).to_have_text("assistant failed")
        await visit.open("/#/health")
        await expect(page.locator(".level")).to_have_text("Something needs attention")
        await expect(page.locator(".findings")).to_contain_text("The assistant resp failed in the last minutes.")


async def test_what_a_tool_raised_is_named_below_the_answer_and_in_its_trace(chromium: Browser, folder: str) -> None:
    raised = "NameError: name 'undefined_name' is not defined (sky.py:7 in weather"
    async with http_service(folder=folder) as service, listening(service) as base, visiting(chromium, base) as visit:
        page = visit.page
        await visit.open()
        await _choose(visit, "sky")
        await visit.say("What is the weather?")

        answer = await visit.hear()
        await expect(answer.locator(".prose")).to_have_text(
            "That lookup failed (weather). The operator of this assistant finds the cause in the trace."
        )
        await expect(answer.locator(".causes")).to_contain_text(f"weather: {raised}")
        await answer.get_by_role("link", name="Open the trace").click()
        await expect(page.locator(".raised")).to_contain_text(raised)


async def test_a_visitor_is_told_no_more_than_that_it_failed(chromium: Browser, folder: str) -> None:
    async with http_service(folder=folder, locked=True) as service, listening(service) as base:
        secret = await _secret(service)
        async with visiting(chromium, base) as visit:
            visit.allow("401", "500")
            await visit.page.add_init_script(f"sessionStorage.setItem('tenuto.key', {secret!r})")
            await visit.open()
            await _choose(visit, "broken")
            await expect(visit.page.locator(".needed")).to_have_text(
                "This assistant cannot be loaded. Its operator finds the cause in Health."
            )
            await _choose(visit, "resp")
            await visit.say("Hello")
            await expect(visit.answers.first).to_have_attribute("data-status", "failed")
            await expect(visit.page.locator("[role=log]")).to_have_attribute("aria-busy", "false")
            await expect(visit.page.locator("body")).not_to_contain_text("no_such_graph")
            await expect(visit.page.locator("body")).not_to_contain_text("NameError")


async def _secret(service: HttpService) -> str:
    _, secret = await service.keys.create(tenant="acme", user="ann", role=KeyRole.MEMBER)
    return secret


async def test_why_the_fallback_answers_and_where_to_look(chromium: Browser) -> None:
    """A refused key is no model that cannot be reached; a model that fails leads to Health."""
    refused = ModelKeyRefused("m", "refuses our key or its permissions (401)")
    away = ModelFailed("m", "cannot be reached, or broke off", FailureReason.UNREACHABLE)
    chain = FallbackChain([ScriptedModel([Fail(refused)], [Fail(away)]), OfflineModel(stand_in=True)])
    given = {**playing(ScriptedModel()), "models": {"scripted": chain}}
    async with http_service(**given) as service, listening(service) as base, visiting(chromium, base) as visit:
        await visit.open()
        await visit.say("Hello")
        answer = await visit.hear()
        await expect(answer.locator(".prose")).to_contain_text("The language model did not answer")
        await expect(answer.locator(".causes")).to_contain_text(str(refused))
    async with (
        http_service(**playing(ScriptedModel([Fail(refused)]))) as service,
        listening(service) as base,
        visiting(chromium, base) as visit,
    ):
        visit.allow("502")
        await visit.open()
        await visit.say("Hello")
        await visit.answers.first.get_by_role("link", name="Health").click()
        await expect(visit.page.locator(".findings")).to_contain_text("refuses the key")


async def test_health_names_the_address_of_a_model_that_is_away(
    chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://ann:secret@127.0.0.1:1/v1")
    async with (
        http_service(model="ollama:own", summarizer_model="offline") as service,
        listening(service) as base,
        visiting(chromium, base) as visit,
    ):
        visit.allow("503")
        await visit.open()
        await visit.say("Hello")
        await visit.answers.first.get_by_role("link", name="Health").click()

        advice = "Start its server at http://127.0.0.1:1/v1, or set OLLAMA_BASE_URL to its address."
        await expect(visit.page.locator(".findings")).to_contain_text(advice)
        await expect(visit.page.locator("[data-card=model]")).to_contain_text("http://127.0.0.1:1/v1")
        await expect(visit.page.locator("body")).not_to_contain_text("secret")


async def test_the_page_of_tasks_says_first_that_no_plan_can_run(
    chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)
    async with http_service() as service, listening(service) as base, visiting(chromium, base) as visit:
        await visit.open("/#/tasks")
        first = visit.page.locator(".page .column > *").first
        await expect(first).to_contain_text("This server cannot run plans: the extra “tasks” is not installed.")
        await first.get_by_role("link", name="Health").click()
        await expect(visit.page.locator(".findings")).to_contain_text("tasks]'")
