"""Plans over HTTP: submitted, followed, answered after a restart, cancelled and run again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tenuto.access import KeyRole
from tenuto.extras import install_line
from tenuto.model.plan import TaskProgress
from tenuto.tasks.agents import AgentContext
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, code, http_service
from tests.samples import ANN as ANN_SCOPE
from tests.timeouts import LONG, wait_until

pytest.importorskip("dbos")

from tests.engines import wait_for_end, wait_for_step

pytestmark = pytest.mark.requirement("E3", "E14", "E15", "E16", "E17", "E22")


ENGINE = "tenuto.tasks.engines.dbos_engine"
MAIL = "ann.lee@example.com"
SAID = "what a user said"


class Office:
    """Agents whose doings a test controls and counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.seen: dict[str, Any] = {}
        self.gate = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def read(self, ctx: AgentContext) -> list[int]:
        self.calls.append(ctx.step)
        await ctx.board.write("handover", {"step_key": ctx.step_key, "to": MAIL})
        return [7, 12]

    async def write(self, ctx: AgentContext) -> str:
        self.calls.append(ctx.step)
        await ctx.board.append("letters", ctx.step, idempotency_key=ctx.step_key)
        self.seen = await ctx.board.values()
        return f"clauses {await ctx.board.get('clauses', list)}"

    async def wait(self, ctx: AgentContext) -> None:
        self.calls.append(ctx.step)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def break_down(self, ctx: AgentContext) -> None:
        raise ValueError(f"{SAID} by {MAIL}")

    async def shout(self, ctx: AgentContext) -> str:
        return "x" * 100_000

    async def meddle(self, ctx: AgentContext) -> None:
        await ctx.board.increment("protected.sum")


@asynccontextmanager
async def office_at(
    store: str = "memory://", office: Office | None = None, *, locked: bool = False
) -> AsyncIterator[tuple[HttpService, Office]]:
    """A server whose agents are those of an office."""
    at = office or Office()
    functions = {
        "reader": at.read,
        "writer": at.write,
        "waiter": at.wait,
        "broken": at.break_down,
        "loud": at.shout,
        "meddler": at.meddle,
    }
    async with http_service(store=store, locked=locked) as service:
        for name, function in functions.items():
            service.tenuto.agents.register(name, function)
        yield service, at


async def submitted(
    service: HttpService, *steps: dict[str, Any], who: dict[str, str] = ANN, **body: Any
) -> httpx.Response:
    plan = {"steps": list(steps)}
    return await service.http.post("/v1/tasks", headers=who, json={"type": "review", "plan": plan, **body})


async def running(service: HttpService, *steps: dict[str, Any], **body: Any) -> tuple[str, str]:
    """A task that was submitted: its id, and its address."""
    answered = await submitted(service, *steps, **body)
    assert answered.status_code == 202, answered.text
    return answered.json()["id"], answered.headers["location"]


async def ended(service: HttpService, task_id: str) -> TaskProgress:
    return await wait_for_end(service.tenuto.tasks, ANN_SCOPE, task_id)


def events_of(stream: httpx.Response) -> list[dict[str, str]]:
    """The events of a stream as a client reads them; comments are passed over."""
    blocks = [block.splitlines() for block in stream.text.split("\n\n") if block.strip()]
    return [dict(line.split(": ", 1) for line in block if not line.startswith(":")) for block in blocks]


READ = {"id": "read", "agent": "reader", "output_key": "clauses"}
WRITE = {"id": "write", "agent": "writer", "after": ["read"]}


async def test_a_plan_is_submitted_and_followed_to_its_end() -> None:
    async with office_at() as (service, _):
        session = (await service.http.post("/v1/sessions", headers=ANN, json={})).json()["id"]
        answered = await submitted(service, READ, WRITE, goal="Find the notice period", session_id=session)
        task = answered.headers["location"]

        followed = await asyncio.wait_for(service.http.get(f"{task}/events", headers=ANN), LONG)

        detail = (await service.http.get(task, headers=ANN)).json()
        timeline = (await service.http.get(f"{task}/timeline", headers=ANN)).json()["events"]
        events = events_of(followed)
        rest = await service.http.get(f"{task}/events", headers={**ANN, "Last-Event-ID": events[-3]["id"]})
        over = await service.http.get(f"{task}/events", headers={**ANN, "Last-Event-ID": events[-1]["id"]})

    assert (answered.status_code, answered.json()["goal"]) == (202, "Find the notice period")
    assert (detail["status"], detail["result"], detail["error"], detail["runs"]) == (
        "completed", {"write": "clauses [7, 12]"}, None, 1,
    )  # fmt: skip
    assert detail["deadline_at"] > detail["started_at"]
    assert [(step["id"], step["status"], step["attempts"], step["error"]) for step in detail["steps"]] == [
        ("read", "completed", 1, None),
        ("write", "completed", 1, None),
    ]
    assert [(step["agent"], step["output_key"], step["after"], step["required"]) for step in detail["steps"]] == [
        ("reader", "clauses", [], True),
        ("writer", "write", ["read"], True),
    ]
    assert followed.headers["content-type"].startswith("text/event-stream")
    assert [(event["id"], event["event"]) for event in events] == [(each["id"], each["type"]) for each in timeline]
    assert [msgspec.json.decode(event["data"]) for event in events] == timeline
    assert [event["event"] for event in events][:3] == ["task.opened", "task.started", "step.started"]
    assert sorted(event["event"] for event in events[3:]) == sorted(
        ["step.started", *["step.finished"] * 2, *["board.changed"] * 4, "task.finished"]
    )
    assert [event["id"] for event in events_of(rest)] == [event["id"] for event in events[-2:]]
    assert (over.status_code, over.content) == (204, b"")


@pytest.mark.requirement("E3")
async def test_a_plan_can_be_read_back() -> None:
    """Conditions, repetitions and limits of time, as they were submitted or by default."""
    when = {"key": "clauses", "operator": "exists", "value": None}
    steps = ({**READ, "timeout": 90, "retries": 2, "backoff": 0.5}, {**WRITE, "when": when})
    async with office_at() as (service, _):
        task_id, task = await running(service, *steps)
        await ended(service, task_id)
        detail = (await service.http.get(task, headers=ANN)).json()

    shown = [[step[name] for name in ("when", "timeout", "retries", "backoff")] for step in detail["steps"]]
    assert shown == [[[], 90.0, 2, 0.5], [[when], None, 0, 1.0]]
    assert detail["timeout"] is None


@pytest.mark.requirement("E23")
async def test_an_agent_elsewhere_ends_its_step() -> None:
    """By its credential; what it gave is on the board in its name, and the next agent has it."""
    far = {"id": "read", "agent": "far-reader", "remote": True, "output_key": "clauses", "retries": 1}
    async with office_at(locked=True) as (service, _):
        ann, reader = await service.key(user="ann"), await service.key(user="ann", agent="far-reader")
        others = [await service.key(user="ann", agent="writer"), await service.key(user="bob", agent="far-reader")]
        plan = {"type": "review", "plan": {"steps": [far, WRITE]}}
        task_id = (await service.http.post("/v1/tasks", headers=ann, json=plan)).json()["id"]
        step, output = f"/v1/tasks/{task_id}/steps/read", {"output": [7, 12]}
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "read", "waiting")
        refused = [
            await service.http.post(f"{step}/complete", headers=who, json=output)
            for who in (ann, {**ann, "Tenuto-Agent": "far-reader"}, *others)
        ]
        as_person = await service.http.post(f"/v1/tasks/{task_id}/input/read", headers=ann, json={"value": 1})
        report = {"code": "no_paper", "attempt": 1}
        ahead = await service.http.post(f"{step}/fail", headers=reader, json={**report, "attempt": 2})
        failed, again = [await service.http.post(f"{step}/fail", headers=reader, json=report) for _ in range(2)]
        done = [await service.http.post(f"{step}/complete", headers=reader, json=output) for _ in range(2)]
        progress = await ended(service, task_id)
        late = await service.http.post(f"{step}/fail", headers=reader, json={})
        entry = (await service.http.get(f"/v1/tasks/{task_id}/board/clauses", headers=ann)).json()

    assert [code(each) for each in refused] == [
        (403, "forbidden"), (403, "forbidden"), (409, "step_not_waiting"), (404, "task_not_found"),
    ]  # fmt: skip
    assert code(as_person) == (409, "step_not_waiting")
    assert code(ahead) == (409, "step_not_waiting")
    for waiting in (failed.json()["steps"][0], again.json()["steps"][0]):
        assert (waiting["status"], waiting["attempts"], waiting["error"]["code"]) == ("waiting", 2, "no_paper")
    assert [each.status_code for each in done] == [200, 200]
    assert progress.task.result == {"write": "clauses [7, 12]"}
    assert (entry["writer"], entry["version"]) == ("far-reader", 1)
    assert code(late) == (409, "task_finished")


async def test_a_remote_step_that_fails_ends_its_task() -> None:
    async with office_at() as (service, office):
        task_id, task = await running(service, {"id": "read", "agent": "far", "remote": True}, WRITE)
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "read", "waiting")
        fail = partial(service.http.post, f"{task}/steps/read/fail", headers={**ANN, "Tenuto-Agent": "far"})
        await fail(json={"attempt": 1})
        progress = await ended(service, task_id)
        repeated = [code(await fail(json=body)) for body in ({"attempt": 1, "code": "no_paper"}, {})]
        assert (await fail(json={"attempt": 1})).json()["steps"][0]["attempts"] == 1

    assert repeated == [(409, "task_finished")] * 2
    assert (progress.task.status, progress.task.error and progress.task.error.code) == ("failed", "agent_failed")
    assert office.calls == []


@pytest.mark.requirement("E17", "E22", "E14")
async def test_a_person_answers_after_the_server_was_restarted(tmp_path: Path) -> None:
    """What had ended before is not done again; the next agent has what was written, unchanged."""
    store, office = f"sqlite:///{tmp_path / 'sessions.db'}", Office()
    steps = (READ, {"id": "ask", "human_input": "Send this?", "after": ["read"]}, {**WRITE, "after": ["ask"]})
    async with office_at(store, office) as (service, _):
        task_id, task = await running(service, *steps)
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "ask", "waiting")

    async with office_at(store, office) as (service, _):
        waiting = (await service.http.get(task, headers=ANN)).json()["steps"][1]
        foreign = [await service.http.post(f"{task}/input/ask", headers=who, json={"value": 1}) for who in (BOB, EVE)]
        response = await service.http.post(f"{task}/input/none", headers=ANN, json={"value": 1})
        early = await service.http.post(f"{task}/input/write", headers=ANN, json={"value": 1})
        given = {"value": {"to": MAIL}}
        first = await service.http.post(f"{task}/input/ask", headers=ANN, json=given)
        progress = await ended(service, task_id)
        again = await service.http.post(f"{task}/input/ask", headers=ANN, json=given)
        other = await service.http.post(f"{task}/input/ask", headers=ANN, json={"value": "no"})
        entry = (await service.http.get(f"{task}/board/ask", headers=ANN)).json()

    assert (waiting["status"], waiting["human_input"], waiting["agent"]) == ("waiting", "Send this?", None)
    assert {code(answer) for answer in foreign} == {(404, "task_not_found")}
    assert (code(response), code(early)) == ((404, "step_not_found"), (409, "step_not_waiting"))
    assert first.json()["steps"][1]["status"] == "completed"
    assert (again.status_code, again.json()["status"]) == (200, "completed")
    assert code(other) == (409, "task_finished")
    assert progress.task.result == {"write": "clauses [7, 12]"}
    assert office.calls == ["read", "write"]
    assert (entry["value"], entry["writer"], entry["version"]) == ({"to": MAIL}, "human", 1)
    assert office.seen["handover"] == {"step_key": f"{task_id}:read", "to": MAIL}
    assert office.seen["ask"] == {"to": MAIL}


async def test_a_cancelled_task_is_run_again_from_where_it_is_told() -> None:
    async with office_at() as (service, office):
        task_id, task = await running(service, READ, {"id": "wait", "agent": "waiter", "after": ["read"]})
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "wait", "running")
        early = await service.http.post(f"{task}/resume", headers=ANN)
        cancelled = await service.http.post(f"{task}/cancel", headers=ANN)
        again = await service.http.post(f"{task}/cancel", headers=ANN)
        await asyncio.wait_for(office.cancelled.wait(), LONG)
        office.gate.set()
        response = await service.http.post(f"{task}/resume", headers=ANN, json={"from_step": "none"})
        resumed = await service.http.post(f"{task}/resume", headers=ANN)
        await ended(service, task_id)
        calls = list(office.calls)
        over = [await service.http.post(f"{task}/{what}", headers=ANN) for what in ("resume", "cancel")]
        whole = await service.http.post(f"{task}/resume", headers=ANN, json={"from_step": "read"})
        progress = await ended(service, task_id)

    assert code(early) == (409, "task_running")
    assert (cancelled.json()["status"], cancelled.json()["error"]["code"]) == ("failed", "task_cancelled")
    assert [step["status"] for step in cancelled.json()["steps"]] == ["completed", "failed"]
    assert again.json() == cancelled.json()
    assert code(response) == (404, "step_not_found")
    assert (resumed.status_code, resumed.json()["status"], resumed.json()["error"]) == (202, "running", None)
    assert calls == ["read", "wait", "wait"]
    assert {code(answer) for answer in over} == {(409, "task_finished")}
    assert (whole.status_code, whole.json()["runs"]) == (202, 3)
    assert office.calls[3:] == ["read", "wait"]
    assert progress.task.status == "completed"


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_the_agents_of_a_task_that_is_ended_or_removed_are_cancelled(method: str) -> None:
    async with office_at() as (service, office):
        ask = {"id": "ask", "human_input": "Which one?"}
        task_id, task = await running(service, {"id": "wait", "agent": "waiter"}, ask, {**READ, "after": ["wait"]})
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "wait", "running")
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "ask", "waiting")

        body = {"status": "completed", "result": "done"} if method == "PATCH" else None
        response = await service.http.request(method, task, headers=ANN, json=body)
        await asyncio.wait_for(office.cancelled.wait(), LONG)
        left = await service.http.get(task, headers=ANN)

    assert response.is_success
    assert office.calls == ["wait"]
    if method == "PATCH":
        assert (left.json()["status"], left.json()["result"]) == ("completed", "done")
        assert [step["status"] for step in left.json()["steps"]] == ["skipped", "skipped", "pending"]
    else:
        assert code(left) == (404, "task_not_found")


BAD_PLANS: dict[str, tuple[Any, str]] = {
    "no object": ([], "plan_invalid"),
    "no step": ({"steps": []}, "plan_invalid"),
    "unknown field": ({"steps": [{**READ, "agnet": "x"}]}, "plan_invalid"),
    "odd field": ({"steps": [{**READ, SAID: 1}]}, "plan_invalid"),
    "odd operator": ({"steps": [{**READ, "when": {"key": "a", "operator": SAID}}]}, "plan_invalid"),
    "cycle": ({"steps": [{**READ, "after": ["write"]}, WRITE]}, "plan_invalid"),
    "one key for two": ({"steps": [READ, {**WRITE, "after": [], "output_key": "clauses"}]}, "plan_invalid"),
    "one id for two": ({"steps": [READ, READ]}, "plan_invalid"),
    "protected key": ({"steps": [{**READ, "output_key": "final_decision"}]}, "plan_invalid"),
    "protected answer": ({"steps": [{"id": "a", "human_input": "?", "output_key": "protected.a"}]}, "plan_invalid"),
    "unknown agent": ({"steps": [READ, {"id": "b", "agent": "absent"}]}, "agent_not_found"),
    "odd agent": ({"steps": [{"id": "b", "agent": SAID}]}, "agent_not_found"),
    "unknown assistant": ({"steps": [READ, {"id": "b", "agent": "assistant:absent"}]}, "agent_not_found"),
}


@pytest.mark.requirement("E15", "E16")
async def test_a_plan_that_cannot_run_is_refused_and_opens_no_task(subtests: pytest.Subtests) -> None:
    async with office_at() as (service, _):
        for name, (plan, answered) in BAD_PLANS.items():
            with subtests.test(name):
                response = await service.http.post("/v1/tasks", headers=ANN, json={"type": "review", "plan": plan})

                assert code(response) == (400, answered)
                assert SAID not in response.text
        assert (await service.http.get("/v1/tasks", headers=ANN)).json()["tasks"] == []


FAILING: dict[str, dict[str, Any]] = {
    "agent_failed": {"agent": "broken"},
    "too_large": {"agent": "loud"},
    "key_protected": {"agent": "meddler"},
    "step_timeout": {"agent": "waiter", "timeout": 0.1},
}


@pytest.mark.requirement("E15")
async def test_a_task_that_fails_says_why_and_its_conversation_stays_usable(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    async with office_at() as (service, _):
        session = (await service.http.post("/v1/sessions", headers=ANN, json={})).json()["id"]
        tasks = {
            reason: await running(service, {"id": "a", **step}, {**READ, "after": ["a"]}, session_id=session)
            for reason, step in FAILING.items()
        }
        for reason, (task_id, task) in tasks.items():
            with subtests.test(reason):
                await ended(service, task_id)
                detail = await service.http.get(task, headers=ANN)

                failed = detail.json()
                assert (failed["status"], failed["error"]["code"], failed["error"]["step"]) == ("failed", reason, "a")
                assert [each["status"] for each in failed["steps"]] == ["failed", "pending"]
                assert failed["steps"][0]["error"] == failed["error"]
                # What an agent raised is for those who see the task, under the policy of traces.
                if reason == "agent_failed":
                    assert failed["error"]["message"].startswith(
                        f"ValueError: {SAID} by [REDACTED_EMAIL] (test_http_task_runs"
                    )
                else:
                    assert SAID not in detail.text
        timelines = [(await service.http.get(f"{task}/timeline", headers=ANN)).text for _, task in tasks.values()]
        stranger = await service.http.get(tasks["agent_failed"][1], headers=BOB)
        chat = await service.http.post("/v1/chat", headers=ANN, json={"message": "Hello", "session_id": session})
        assert (chat.status_code, code(stranger)) == (200, (404, "task_not_found"))
        assert SAID not in "".join([*timelines, caplog.text])


@pytest.mark.requirement("B2")
async def test_what_an_agent_raised_is_shown_to_operators_and_users_get_the_code(subtests: pytest.Subtests) -> None:
    """By credential and door; whoever sees it, sees it under the privacy policy."""
    async with office_at(locked=True) as (service, _):
        user = await service.key(user="ann")
        task_id = (await submitted(service, {"id": "a", "agent": "broken"}, who=user)).json()["id"]
        await wait_for_end(service.tenuto.tasks, service.tenuto.scope(tenant="acme", user="ann"), task_id)
        credentials = {
            "user": (user, False),
            "agent of the user": (await service.key(user="ann", agent="broken"), False),
            "backend": ({**await service.key(), "X-User-ID": "ann"}, True),
            "agent of the backend": ({**await service.key(agent="broken"), "X-User-ID": "ann"}, True),
            "admin": (await service.key(user="ann", role=KeyRole.ADMIN), True),
        }
        for who, (key, sees) in credentials.items():
            for path, tells in {"": True, "/runs": True, "/timeline": False, "/events": False, None: True}.items():
                with subtests.test(who, path=path):
                    response = await service.http.get(
                        "/v1/tasks" if path is None else f"/v1/tasks/{task_id}{path}", headers=key
                    )
                    assert "agent_failed" in response.text
                    assert (SAID in response.text) == (sees and tells)
                    assert MAIL not in response.text


async def test_a_plan_submitted_twice_under_one_key_is_run_once() -> None:
    async with office_at() as (service, office):
        who = {**ANN, "Idempotency-Key": "k1"}
        first, again = [await submitted(service, READ, who=who) for _ in range(2)]
        other = await submitted(service, READ, WRITE, who=who)
        await ended(service, first.json()["id"])
        later = await submitted(service, READ, who=who)
        other_later = await submitted(service, READ, WRITE, who=who)

    assert first.json()["id"] == again.json()["id"] == later.json()["id"]
    assert [answer.status_code for answer in (first, again, later)] == [202] * 3
    assert later.json()["status"] == "completed"
    assert code(other) == code(other_later) == (409, "idempotency_key_reused")
    assert office.calls == ["read"]


@pytest.mark.requirement("E16", "T17")
async def test_a_protected_key_is_refused_at_every_door() -> None:
    """The board's routes, and an agent's context."""
    tried: list[str] = []

    async def meddle(ctx: AgentContext) -> list[str]:
        changes: list[Callable[[], Awaitable[object]]] = [
            lambda: ctx.board.write("final_decision", 1),
            lambda: ctx.board.append("final_decision", 1),
            lambda: ctx.board.increment("final_decision"),
        ]
        for change in changes:
            try:
                await change()
            except Exception as error:
                tried.append(getattr(error, "code", ""))
        return tried

    async with http_service() as service:
        service.tenuto.agents.register("meddler", meddle)
        task_id, task = await running(service, {"id": "a", "agent": "meddler"}, {"id": "ask", "human_input": "Well?"})
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "a", "completed")
        entry, agent = f"{task}/board/final_decision", {**ANN, "Tenuto-Agent": "meddler"}
        answers = [
            await service.http.put(entry, headers=agent, json={"value": 1}),
            await service.http.post(f"{entry}/append", headers=agent, json={"item": 1}),
            await service.http.post(f"{entry}/increment", headers=agent),
            await service.http.delete(entry, headers=agent),
            await service.http.post(f"{task}/locks/final_decision", headers=agent),
        ]
        left = await service.http.get(entry, headers=ANN)

    assert tried == ["key_protected"] * 3
    assert {code(answer) for answer in answers} == {(409, "key_protected")}
    assert code(left) == (404, "entry_not_found")


async def test_without_the_extra_plans_are_refused_plainly_and_the_rest_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    async with office_at(store) as (service, _):
        task_id, task = await running(service, {"id": "ask", "human_input": "Well?"})
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "ask", "waiting")
    monkeypatch.setitem(sys.modules, ENGINE, None)

    async with office_at(store) as (service, _):
        refused = [
            await submitted(service, READ),
            await service.http.post(f"{task}/cancel", headers=ANN),
            await service.http.post(f"{task}/resume", headers=ANN),
            await service.http.post(f"{task}/input/ask", headers=ANN, json={"value": 1}),
        ]
        seen = [await service.http.get(task + at, headers=ANN) for at in ("", "/timeline", "/board")]
        response = await service.http.patch(task, headers=ANN, json={"status": "failed"})
        listed = (await service.http.get("/v1/tasks", headers=ANN)).json()["tasks"]

    assert {code(answer) for answer in refused} == {(503, "engine_unavailable")}
    assert all(install_line("tasks") in answer.text and "retry-after" not in answer.headers for answer in refused)
    assert [answer.status_code for answer in seen] == [200] * 3
    assert (response.status_code, [each["id"] for each in listed]) == (200, [task_id])


async def test_reading_a_task_opens_no_engine_and_neither_does_a_stranger() -> None:
    async with office_at() as (service, _):
        task = (await service.http.post("/v1/tasks", headers=ANN, json={"type": "t"})).headers["location"]
        for at in ("", "/timeline", "/board", "/board/a/history"):
            assert (await service.http.get(task + at, headers=ANN)).status_code == 200
        for at in ("/cancel", "/resume"):
            assert code(await service.http.post(task + at, headers=BOB)) == (404, "task_not_found")
        cyclic = {"steps": [{**READ, "after": ["read"]}]}
        await service.http.post("/v1/tasks", headers=ANN, json={"type": "t", "plan": cyclic})
        assert (await service.http.patch(task, headers=ANN, json={"status": "failed"})).status_code == 200

        assert not service.tenuto.works_on_tasks


async def test_a_stream_of_a_quiet_task_begins_at_once() -> None:
    """A client that reconnects to a quiet task is not kept waiting for the answer's head."""
    async with office_at() as (service, _):
        task_id, task = await running(service, {"id": "ask", "human_input": "Well?"})
        await wait_for_step(service.tenuto.tasks, ANN_SCOPE, task_id, "ask", "waiting")
        last = (await service.http.get(f"{task}/timeline", headers=ANN)).json()["events"][-1]["id"]
        sent: list[dict[str, Any]] = []
        gone = asyncio.Event()
        requests = [{"type": "http.request", "body": b""}]

        async def receive() -> dict[str, Any]:
            if requests:
                return requests.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        request = service.http.build_request("GET", f"{task}/events", headers={**ANN, "Last-Event-ID": last})
        scope = {
            "type": "http",
            "method": "GET",
            "path": request.url.path,
            "raw_path": request.url.raw_path,
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8765),
            "scheme": "http",
            "http_version": "1.1",
        }
        answering = asyncio.create_task(service.app(scope, receive, send))
        await wait_until(lambda: bool(sent))
        gone.set()
        await asyncio.wait_for(answering, LONG)

    assert (sent[0]["type"], sent[0]["status"]) == ("http.response.start", 200)
