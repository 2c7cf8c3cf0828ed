"""Tasks on the page: followed without a reload, answered, cancelled and run again by the caller alone."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Route, expect

from tenuto.tasks.agents import AgentContext
from tests.journeys.http_service import HttpService, http_service
from tests.journeys.page.page_checks import NAMELESS
from tests.journeys.page.visit import PHONE, Visit, listening, offline, visiting
from tests.journeys.terminal import Shell, await_log_line, running_command
from tests.timeouts import wait_until

pytest.importorskip("dbos")
pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = "<img src=x onerror=alert(1)> & <script>alert(2)</script>"


class Office:
    """Agents: one reads, one fails until it is mended, one waits for the test."""

    def __init__(self) -> None:
        self.mended = False
        self.gate = asyncio.Event()

    async def read(self, ctx: AgentContext) -> dict[str, str]:
        return {"clause": EVIL}

    async def send(self, ctx: AgentContext) -> str:
        if not self.mended:
            raise ValueError("the printer is on fire")
        await ctx.board.write("approval", "seen")
        return "sent"

    async def wait(self, ctx: AgentContext) -> str:
        await self.gate.wait()
        return "waited"


@asynccontextmanager
async def office(browser: Browser, **wishes: Any) -> AsyncIterator[tuple[Visit, HttpService, Office]]:
    async with offline(browser, **wishes) as (visit, service):
        agents = Office()
        for name, function in (("reader", agents.read), ("sender", agents.send), ("waiter", agents.wait)):
            service.tenuto.agents.register(name, function)
        yield visit, service, agents


async def submit(service: HttpService, *steps: dict[str, Any], goal: str = "Answer the letter", **who: str) -> str:
    """The page's address of a new task."""
    body = {"type": "letter", "goal": goal, "plan": {"steps": list(steps)}}
    response = await service.http.post("/v1/tasks", json=body, headers=who)
    assert response.status_code == 202, response.text
    return f"/#/tasks/{response.json()['id']}"


READ = {"id": "read", "agent": "reader", "output_key": "clauses"}
COUNT = {"id": "count", "agent": "reader", "required": False}
ASK = {"id": "approval", "human_input": f"Send this? {EVIL}", "after": ["read", "count"]}
SEND = {"id": "send", "agent": "sender", "after": ["approval"], "retries": 1, "backoff": 0}
WAIT = {"id": "wait", "agent": "waiter"}


def step(visit: Visit, name: str) -> Locator:
    return visit.page.locator(f".step[data-step={name}]")


async def expect_steps(visit: Visit, **statuses: str) -> None:
    for name, status in statuses.items():
        await expect(step(visit, name)).to_have_attribute("data-status", status)


@pytest.mark.parametrize("stream", [True, False], ids=["events", "no events"])
async def test_a_task_is_followed_answered_and_resumed_without_a_reload(chromium: Browser, stream: bool) -> None:
    """Also where no event comes through, as behind some proxies."""
    async with office(chromium) as (visit, service, agents):
        if not stream:
            visit.allow("ERR_FAILED")
            await visit.page.route("**/v1/tasks/*/events", lambda route: route.abort())
        await visit.page.get_by_role("link", name="Tasks").click()
        await expect(visit.page.get_by_role("heading", name="No tasks yet")).to_be_visible()
        await submit(service, READ, COUNT, ASK, SEND)
        await visit.look_again()
        await expect(visit.page.locator(".task-list .status")).to_have_text("waiting for input")
        await visit.page.get_by_role("link", name="Answer the letter").click()

        await expect_steps(visit, read="completed", count="completed", approval="waiting", send="pending")
        await expect(visit.page.locator(".lane").first.locator(".step")).to_have_count(2)
        how = "live" if stream else "checked every two seconds"
        await expect(visit.page.locator(".task-bar .hint")).to_have_text(how)
        answer = step(visit, "approval").get_by_role("textbox", name="Answer to approval")
        await answer.fill('{"approved": true}')
        await answer.press("Enter")
        await expect_steps(visit, approval="completed", send="failed")
        await expect(step(visit, "approval")).to_be_focused()
        await expect(step(visit, "send")).to_contain_text("2 attempts")
        await expect(step(visit, "send")).to_contain_text("agent_failed")
        bars = visit.page.get_by_role("group", name="Steps over time").get_by_role("button")
        names = [await bar.get_attribute("aria-label") for bar in await bars.all()]
        assert re.fullmatch(r"approval: completed, a person, .* m?s, after read, count", names[2] or "")
        assert re.fullmatch(r"send: failed, sender, .* m?s, after approval", names[3] or "")
        await expect(visit.page.locator(".graph text[data-step=send]")).to_contain_text("✕ sendfailed · ")
        await bars.first.focus()
        for key in ("End", "ArrowUp", "Enter"):
            await visit.page.keyboard.press(key)
        await expect(step(visit, "approval")).to_be_focused()
        agents.mended = True
        await visit.page.get_by_role("button", name="Resume", exact=True).click()

        await expect_steps(visit, read="completed", send="completed")
        await expect(visit.page.locator(".result pre")).to_have_text(re.compile(r'"send": "sent"'))
        entries = visit.page.locator(".board li")
        await expect(entries.locator(".key")).to_have_text(["approval", "clauses", "count", "send"])
        await expect(entries.first).to_contain_text("sender" + "version 2 · previously human")
        await expect(entries.nth(1).locator("pre")).to_have_text(f'{{ "clause": "{EVIL}" }}')
        await expect(step(visit, "approval")).to_contain_text(EVIL)
        await expect(visit.page.locator(".timeline li").last).to_contain_text("Task: completed")
        assert await visit.page.locator("main img, main script").count() == 0
        assert await visit.page.evaluate(NAMELESS) == []


async def test_an_empty_list_shows_a_command_that_starts_a_task(chromium: Browser) -> None:
    async with office(chromium) as (visit, _, _):
        await visit.page.evaluate("sessionStorage.setItem('tenuto.user', 'o\\'neill')")
        await visit.open("/#/tasks")
        await visit.page.reload()
        shown = await visit.page.locator(".first-task pre").last.inner_text()
        curl = await asyncio.create_subprocess_shell(f"{shown} -fsS", stdout=asyncio.subprocess.DEVNULL)
        assert await curl.wait() == 0

        await visit.look_again()
        await visit.page.locator(".task-list a").click()
        await expect_steps(visit, draft="completed", approval="waiting")


async def test_a_plan_is_run_on_the_page_and_what_is_wrong_is_shown_in_it(chromium: Browser) -> None:
    async with office(chromium) as (visit, _, _):
        visit.allow("400")
        page = visit.page
        await visit.open("/#/tasks")
        await page.get_by_role("button", name="Run a plan").click()
        plan, wrong = page.get_by_label("Plan, as JSON"), page.locator("#plan-wrong")
        chosen = "(field) => field.value.slice(field.selectionStart, field.selectionEnd)"
        await expect(plan).to_be_focused()

        await plan.fill('{"steps": [{"id": "read" "agent": "reader"}]}')
        await page.get_by_role("button", name="Run", exact=True).click()
        await expect(wrong).to_contain_text("This is not valid JSON")
        assert '"' in await plan.evaluate(chosen)
        for steps, why in {
            '{"id": "read", "agent": "reader"}, {"id": "send", "agent": "lost"}': "agent lost",
            '{"id": "read", "agent": "reader"}, {"id": "send", "agent": "sender", "after": 3}': "Expected `array`",
        }.items():
            await plan.fill(f'{{"steps": [{steps}]}}')
            await page.get_by_role("button", name="Run", exact=True).click()
            await expect(wrong).to_contain_text(why)
            assert await plan.evaluate(chosen) == '"id": "send"'

        file = {
            "type": "letter",
            "goal": "Read it",
            "plan": {"steps": [READ, {**READ, "id": "again", "after": ["read"]}]},
        }
        content = {"name": "plan.json", "mimeType": "application/json", "buffer": json.dumps(file).encode()}
        await page.get_by_label("Open a file …").set_input_files(content)  # type: ignore[arg-type]
        await expect(page.get_by_label("Goal")).to_have_value("Read it")
        await page.get_by_role("button", name="Run", exact=True).click()
        await expect_steps(visit, read="completed", again="completed")
        await expect(page.get_by_role("heading", name="Read it")).to_be_visible()
        await page.get_by_role("link", name="All tasks").click()
        await expect(page.get_by_role("button", name="Run a plan")).to_be_visible()


async def test_a_task_is_cancelled_and_run_again_from_a_step_by_keyboard(chromium: Browser) -> None:
    async with office(chromium) as (visit, service, agents):
        await visit.open(await submit(service, READ, {**WAIT, "after": ["read"]}))
        await expect_steps(visit, read="completed", wait="running")
        for answer, status in (("Cancel", "running"), ("Cancel task", "cancelled")):
            await visit.page.get_by_role("main").get_by_role("button", name="Cancel task").press("Enter")
            await visit.page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).press("Enter")
            await expect(visit.page.locator(".task-bar .status")).to_have_attribute("data-status", status)
        await expect_steps(visit, read="completed", wait="cancelled")

        agents.gate.set()
        await visit.page.get_by_role("button", name="Run again from here: read").press("Enter")

        await expect_steps(visit, read="completed", wait="completed")
        changes = visit.page.locator(".timeline li[data-type='board.changed']")
        await expect(changes.filter(has_text="clauses")).to_have_count(2)


async def test_what_a_task_refuses_is_said_and_the_task_stays_on_screen(chromium: Browser) -> None:
    async with office(chromium) as (visit, service, _):
        address = await submit(service, {"id": "approval", "human_input": "Send this?"})
        await visit.page.route("**/v1/tasks/*/events", lambda route: route.abort())
        await visit.open(address)
        visit.allow("409", "404", "ERR_FAILED")
        answer = step(visit, "approval").get_by_role("textbox")
        await answer.fill("maybe")
        api = address.replace("/#", "/v1")
        # The page looks at the task now and then; it must not see the end before the answer is sent.
        seen = (await service.http.get(api)).text
        await visit.page.route("**" + api, lambda route: route.fulfill(body=seen, content_type="application/json"))
        await service.http.post(f"{api}/cancel")
        await answer.press("Enter")
        await expect(visit.page.get_by_role("alert")).to_contain_text("This task has already ended")
        await expect(answer).to_have_value("maybe")

        await visit.page.unroute("**" + api)
        await service.http.delete(api)
        await visit.look_again()
        await expect(visit.page.get_by_role("alert")).to_contain_text("This task does not exist.")
        await expect(step(visit, "approval")).to_be_hidden()


async def test_another_users_task_is_not_reachable(chromium: Browser) -> None:
    """Also where an answer for the user before comes late."""
    arrived, released = asyncio.Event(), asyncio.Event()

    async def answer_late(route: Route) -> None:
        if route.request.headers["x-user-id"] != "ann":
            return await route.continue_()
        answered = await route.fetch()
        arrived.set()
        await released.wait()
        return await route.fulfill(response=answered)

    async with office(chromium) as (visit, service, _):
        address = await submit(service, ASK | {"after": []}, goal="Ann's secret", **{"X-User-ID": "ann"})
        await visit.page.evaluate("sessionStorage.setItem('tenuto.user', 'ann')")
        await visit.open(address)
        await visit.page.reload()
        await expect_steps(visit, approval="waiting")
        visit.allow("404")
        await visit.page.route("**/v1/tasks/*/board", answer_late)
        await visit.look_again()
        await arrived.wait()

        await visit.page.get_by_role("main").get_by_role("button", name="ann").click()
        await visit.page.get_by_label("User", exact=True).fill("bob")
        await visit.page.get_by_role("dialog").get_by_role("button", name="Save").click()

        await expect(visit.page.get_by_text("This task does not exist.")).to_be_visible()
        async with visit.page.expect_response("**/board"):
            released.set()
        await visit.page.evaluate("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
        assert "secret" not in await visit.page.content() + await visit.page.title()
        await visit.page.get_by_role("link", name="All tasks").click()
        await expect(visit.page.get_by_role("heading", name="No tasks yet")).to_be_visible()


async def test_without_a_user_the_pages_say_that_one_has_to_be_named(chromium: Browser) -> None:
    """A session of another user is listed, its task is not; nothing that is said is remembered."""
    async with http_service() as service, listening(service) as base, visiting(chromium, base) as visit:
        visit.allow("404")
        body = {"message": "My landlord keeps the deposit", "assistant": "legal"}
        told = (await service.http.post("/v1/chat", json=body, headers={"X-User-ID": "ann"})).json()
        await visit.open()
        await expect(visit.page.get_by_title("Credentials")).to_have_text("no user")
        unnamed = visit.page.get_by_text("Nothing is remembered beyond this session")
        await expect(unnamed).to_be_visible()
        # Where it has no room beside the words it begins its line where they begin.
        await expect(unnamed.get_by_role("button")).to_have_css("margin-left", "0px")
        await visit.page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(visit.page.get_by_text("Only tasks that name no user are listed here")).to_be_visible()
        await expect(visit.page.get_by_role("heading", name="No tasks yet")).to_be_hidden()
        await visit.page.get_by_role("navigation").get_by_text("My landlord").click()
        await visit.page.get_by_role("link", name="The task behind this answer").click()
        await expect(visit.page.get_by_text("Name the user of this session")).to_be_visible()

        # The style of a task's page, which stays, is not for others.
        await visit.page.evaluate("trace => { location.hash = `#/traces/${trace}`; }", told["trace_id"])
        head = visit.page.get_by_role("columnheader", name="Step")
        assert await head.evaluate("one => getComputedStyle(one).borderRadius") == "0px"

        await visit.page.go_back()
        await visit.page.get_by_role("main").get_by_role("button", name="Name a user").click()
        dialog = visit.page.get_by_role("dialog", name="Name a user")
        await expect(dialog).to_contain_text("Sessions, memories, tasks and orders belong to a user.")
        await expect(dialog.get_by_label("API key or token (optional)")).to_be_visible()
        await dialog.get_by_label("User", exact=True).fill("ann")
        await visit.page.get_by_role("dialog").get_by_role("button", name="Save").click()

        await expect(step(visit, "decision")).to_be_visible()
        await visit.page.get_by_role("link", name="New session").click()
        await expect(visit.page.get_by_text("Nothing is remembered beyond this session")).to_be_hidden()


async def test_an_answer_of_several_agents_shows_its_steps_and_leads_to_its_task(chromium: Browser) -> None:
    gate = asyncio.Event()

    async def advise(ctx: AgentContext) -> dict[str, str]:
        await gate.wait()
        return {"text": "No."}

    async with offline(chromium) as (visit, service):
        service.tenuto.agents.register("labour-law-expert", advise)
        await visit.page.get_by_role("radio", name="Legal help desk").check()
        await visit.say("Can my employer change my working hours?")
        steps = visit.answers.locator(".work li")
        await expect(steps.last).to_have_text("Expert of labour law running")
        await expect(steps.first).to_have_attribute("data-state", "done")
        gate.set()
        await visit.hear()
        await expect(steps.last).to_contain_text("Decision")
        talk = visit.page.url
        await visit.page.reload()
        await visit.page.get_by_role("link", name="Task behind this answer").click()

        await expect(visit.page.locator(".task-bar .status")).to_have_text("completed")
        await expect(visit.page.locator(".board [data-key=final_decision] .writer")).to_have_text("legal-decision")
        await visit.page.get_by_role("link", name="from this session").click()
        await expect(visit.page).to_have_url(talk)


async def test_tasks_fit_a_narrow_screen_in_chinese(chromium: Browser) -> None:
    async with office(chromium, viewport=PHONE, locale="zh-CN", color_scheme="dark") as (visit, service, _):
        long = "x" * 64
        steps = {**READ, "id": long, "output_key": "k" * 100}, {"id": "ask", "human_input": "好" * 300, "after": [long]}
        await submit(service, READ, goal="first")
        address = await submit(service, *steps, goal="y" * 300)
        for path, seen in (("/#/tasks", ".task-list a"), (address, ".step form:visible")):
            await visit.open(path)
            await expect(visit.page.locator(seen).first).to_be_visible()
            for part in ("html", "main", ".page .scroll"):
                wide = await visit.page.locator(part).evaluate("one => [one.scrollWidth, one.clientWidth]")
                assert wide[0] <= wide[1], (path, part)
        await expect(visit.page.get_by_role("heading", name="时间线")).to_be_visible()
        assert await visit.page.evaluate(NAMELESS) == []
        await expect(visit.page.locator(".task-bar .status")).to_have_text("等待输入")
        await visit.page.get_by_role("link", name="全部任务").click()
        await expect(visit.page.locator(".task-list .status")).to_have_text(["等待输入", "已完成"])
        # What waits for a person does not fade.
        status = visit.page.locator(".task-list .status").first
        dot = await status.evaluate("(one) => ({ ...getComputedStyle(one, '::before') })")
        assert (dot["animationName"], dot["backgroundColor"]) == ("none", "rgb(227, 176, 98)")
        await expect(visit.page.locator(".task-list .goal")).to_have_text(["y" * 300, "first"])


AXIS = """
() => {
  const right = document.querySelector(".graph svg").getBoundingClientRect().right;
  const texts = [...document.querySelectorAll(".graph .axis text")];
  return [texts.map((one) => one.textContent), texts.every((one) => one.getBoundingClientRect().right <= right)];
}
"""


@pytest.mark.parametrize(
    ("locale", "seconds", "labels"),
    [
        ("en-GB", 90, ["0", "30 s", "60 s", "90 s"]),
        ("zh-CN", 150, ["0", "30秒", "60秒", "90秒", "120秒", "150秒"]),
        ("zh-CN", 300, ["0", "1分钟", "2分钟", "3分钟", "4分钟", "5分钟"]),
    ],
)
async def test_the_times_above_a_tasks_steps_are_exact_and_none_is_cut(
    chromium: Browser, locale: str, seconds: int, labels: list[str]
) -> None:
    async with office(chromium, locale=locale) as (visit, service, _):
        address = await submit(service, {"id": "ask", "human_input": "Well?"})
        task = address.rpartition("/")[2]
        await visit.open(address)
        await expect_steps(visit, ask="waiting")
        begun = (await service.http.get(f"/v1/tasks/{task}")).json()["steps"][0]["started_at"]
        await visit.page.clock.set_fixed_time(datetime.fromisoformat(begun) + timedelta(seconds=seconds))
        await visit.page.reload()
        await expect(visit.page.locator(".graph .axis text")).to_have_count(len(labels))
        assert await visit.page.evaluate(AXIS) == [labels, True]


WORKER = """
import asyncio, pathlib, tenuto

@tenuto.agent("reader")
async def read(ctx):
    pathlib.Path("begun").touch()
    while not pathlib.Path("gate").exists():
        await asyncio.sleep(0.05)
    return "read"
"""


@pytest.mark.requirement("E17")
async def test_a_task_of_a_killed_worker_goes_on_before_the_visitors_eyes(chromium: Browser, shell: Shell) -> None:
    """The next worker takes the step over; the page follows without a reload."""
    (shell.folder / "agents").mkdir()
    (shell.folder / "agents" / "readers.py").write_text(WORKER)
    store = f"sqlite:///{shell.folder}/chat.db"
    shell.env |= {"TENUTO_AGENTS": "agents", "TENUTO_STORE": store}
    async with http_service(store=store) as service, listening(service) as base, visiting(chromium, base) as visit:
        with running_command(shell, "worker") as worker:
            await asyncio.to_thread(await_log_line, worker, "working on tasks")
            await visit.open(await submit(service, {**READ, "id": "read"}))
            await expect_steps(visit, read="running")
            await wait_until((shell.folder / "begun").exists)
            worker.kill()
        (shell.folder / "gate").touch()
        with running_command(shell, "worker"):
            await expect_steps(visit, read="completed")

        await expect(step(visit, "read")).to_contain_text("2 attempts")
        await expect(visit.page.locator(".task-bar .status")).to_have_attribute("data-status", "completed")
