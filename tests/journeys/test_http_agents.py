"""An agent in another process: its context in one call, a credential bound to its name, and nothing of other agents."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import httpx
import jwt
import pytest

import tenuto
from tenuto.access import KeyRole
from tenuto.app import Tenuto
from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.model.plan import parse_plan
from tenuto.model.task import NewTask
from tenuto.server.routing import ApiRoute
from tenuto.tasks.runs import RunRecorder
from tests.journeys.cli_runs import run_command, run_json
from tests.journeys.http_service import ANN, BOB, HttpService, bearer, code, http_service

pytestmark = pytest.mark.requirement("E4", "E16", "E23")


SECRET = "a secret that is long enough for HS256, at least"
PRIVATE = "private thoughts of the reader"
PLAN = parse_plan({"steps": [{"id": "read", "agent": "reader"}, {"id": "spy", "agent": "spy"}]})
OWNER = Scope(tenant="acme", user="ann")


async def worked_on(app: Tenuto, scope: Scope, session_id: str | None = None) -> str:
    """A task whose agent `reader` has a note, a message, a tool call and a value on the board; `spy` has nothing."""
    task = await app.tasks.open(scope, NewTask(type="review", goal="Read it", session_id=session_id))
    await app.tasks.add_plan(scope, task.id, PLAN)
    await app.tasks.start_run(scope, task.id, run=1, timeout=None)
    for step in PLAN.steps:
        await app.tasks.steps(scope, task.id).begin(step)
    made = RunRecorder()
    made.add_message("assistant", PRIVATE)
    made.add_tool_call("search", seconds=0.5, arguments={"query": PRIVATE})
    made.add_usage(input_tokens=100, output_tokens=20, cost_nanos=36_000)
    await app.tasks.record_run(scope, task.id, "read", made)
    await app.tasks.notes(scope, task.id, "reader").write("doubt", PRIVATE)
    await app.tasks.board(scope, task.id).write("clause", 7, agent="reader")
    return task.id


class Office(NamedTuple):
    """A server with the task, and what the two agents show to it: a key or a token."""

    service: HttpService
    task: str
    reader: dict[str, str]
    spy: dict[str, str]


def token(agent: str) -> dict[str, str]:
    claims = {"tenant_id": "acme", "sub": "ann", "exp": datetime.now(UTC) + timedelta(minutes=5), "agent": agent}
    return bearer(jwt.encode(claims, SECRET, "HS256"))


@pytest.fixture(params=["key", "token"])
async def office(request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    async with http_service(locked=True, jwt_secret=SECRET) as service:
        task = f"/v1/tasks/{await worked_on(service.tenuto, OWNER)}"
        if request.param == "token":
            yield Office(service, task, token("reader"), token("spy"))
        else:
            keys = [await service.key(user="ann", agent=name) for name in ("reader", "spy")]
            yield Office(service, task, *keys)


@pytest.mark.requirement("E11", "E23")
async def test_one_call_gives_an_agent_its_whole_context(store_url: str) -> None:
    """On every kind of store."""
    async with http_service(store=store_url) as service:
        turn = await service.tenuto.begin(OWNER, "How long is my notice period?")
        task = f"/v1/tasks/{await worked_on(service.tenuto, OWNER, turn.session.id)}"
        await service.tenuto.tasks.board(OWNER, task.rpartition("/")[2]).write("months", 6, agent="lawyer")

        seen = await service.http.get(
            f"{task}/context", headers={**ANN, "Tenuto-Agent": "reader"}, params={"role": "a lawyer"}
        )
        runs = await service.http.get(f"{task}/runs", headers=ANN)
        nameless = await service.http.get(f"{task}/context", headers=ANN)
        foreign = [await service.http.get(f"{task}/{what}", headers=BOB) for what in ("context", "runs")]
        foreign += [await service.http.get(f"{task}/context", headers={**BOB, "Tenuto-Agent": "reader"})]

    context = seen.json()
    assert (context["goal"], context["agent"], context["session_id"]) == ("Read it", "reader", turn.session.id)
    assert [message["text"] for message in context["history"]] == ["How long is my notice period?"]
    assert {entry["key"]: entry["value"] for entry in context["board"]["entries"]} == {"clause": 7, "months": 6}
    assert [note["value"] for note in context["notes"]] == [PRIVATE]
    assert context["messages"] == [{"role": "assistant", "text": PRIVATE}]
    assert context["prompt"].startswith("You are a lawyer.")
    assert "- months: 6" in context["prompt"]
    assert "clause" not in context["prompt"]
    first = runs.json()["runs"][0]
    assert (first["agent"], first["status"], first["input_tokens"], first["cost_usd"]) == (
        "reader", "running", 100, "0.000036",
    )  # fmt: skip
    assert first["tool_calls"] == [{"name": "search", "ok": True, "seconds": 0.5, "arguments": None}]
    assert code(nameless) == (400, "invalid")
    assert [code(answer)[1] for answer in foreign] == ["invalid", "task_not_found", "task_not_found"]


READER = {"Tenuto-Agent": "reader"}
# What an agent may not do: in another name, or as a person would.
REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "notes": ("GET", "/agents/reader/notes", {}),
    "a note": ("GET", "/agents/reader/notes/doubt", {}),
    "write a note": ("PUT", "/agents/reader/notes/doubt", {"json": {"value": 1}}),
    "delete a note": ("DELETE", "/agents/reader/notes/doubt", {}),
    "notes in another name": ("GET", "/agents/reader/notes", {"headers": READER}),
    "context in another name": ("GET", "/context", {"headers": READER}),
    "runs in another name": ("GET", "/runs", {"headers": READER}),
    "write by header": ("PUT", "/board/months", {"headers": READER, "json": {"value": 1}}),
    "write by body": ("PUT", "/board/months", {"json": {"value": 1, "agent": "reader"}}),
    "write as a person": ("PUT", "/board/months", {"json": {"value": 1, "agent": "human"}}),
    "delete an entry": ("DELETE", "/board/clause", {"headers": READER}),
    "lock": ("POST", "/locks/clause", {"json": {"agent": "reader"}}),
    "unlock": ("DELETE", "/locks/clause", {"headers": READER, "params": {"token": 1}}),
    "end the task": ("PATCH", "", {"json": {"status": "completed"}}),
    "delete the task": ("DELETE", "", {}),
}


@pytest.mark.parametrize(("method", "path", "sent"), REFUSED.values(), ids=REFUSED)
async def test_a_credential_acts_as_its_agent_alone(
    office: Office, method: str, path: str, sent: dict[str, Any]
) -> None:
    headers = {**office.spy, **sent.get("headers", {})}

    response = await office.service.http.request(method, office.task + path, **{**sent, "headers": headers})

    assert response.status_code == 403
    assert code(response)[1] in ("forbidden", "scope_mismatch")
    assert PRIVATE not in response.text


async def test_a_credential_of_an_agent_writes_in_its_name_without_naming_it(office: Office) -> None:
    service, task = office.service, office.task
    written = await service.http.put(f"{task}/board/clause", headers=office.spy, json={"value": 8})
    noted = await service.http.put(f"{task}/agents/spy/notes/mine", headers=office.spy, json={"value": 1})
    locked = await service.http.post(f"{task}/locks/other", headers=office.spy, json={})
    protected = await service.http.put(f"{task}/board/final_decision", headers=office.spy, json={"value": "sign"})

    assert (written.json()["writer"], written.json()["previous_writer"]) == ("spy", "reader")
    assert (noted.status_code, locked.json()["holder"]) == (200, "spy")
    assert code(protected) == (409, "key_protected")


async def test_every_route_that_is_not_for_agents_refuses_their_credentials(office: Office) -> None:
    """A new route is closed to agents unless it is about a task; their clients ask for whom they act."""
    open_to_agents: list[str] = []
    for route in office.service.app.routes:
        if not isinstance(route, ApiRoute) or route.operation is None or "security" in route.operation.content:
            continue
        path = re.sub(r"\{.+?\}", "x", route.path)
        for method in route.methods or ():
            response = await office.service.http.request(method, path, headers=office.spy)
            if response.status_code != 403:
                open_to_agents.append(f"{method} {route.path}")

    assert open_to_agents
    assert not [each for each in open_to_agents if not each.partition(" ")[2].startswith(("/v1/tasks", "/v1/scope"))]
    assert {"POST /v1/tasks", "PATCH /v1/tasks/{task_id}", "DELETE /v1/tasks/{task_id}"}.isdisjoint(open_to_agents)


@pytest.mark.requirement("E16")
async def test_what_one_agent_may_read_holds_nothing_private_of_another(office: Office) -> None:
    """Each door that an agent may open, and the same door for the agent whose data it is."""
    for path, own in (
        ("/context", True),
        ("/runs", True),
        ("", False),
        ("/board", False),
        ("/agents/spy/notes", False),
    ):
        answers = [
            await office.service.http.get(office.task + path, headers=headers)
            for headers in (office.spy, office.reader)
        ]
        assert answers[0].status_code == 200
        assert PRIVATE not in answers[0].text
        assert (PRIVATE in answers[1].text) is own


DECISION = {"Tenuto-Agent": "decision-agent"}
PRIVATE_PATHS = ("/agents/reader/notes", "/agents/reader/notes/doubt", "/runs", "/context")


@pytest.mark.requirement("E16", "T17")
@pytest.mark.parametrize("named", [{}, READER], ids=["no header", "header"])
async def test_a_header_is_no_credential_of_an_agent(office: Office, named: dict[str, str]) -> None:
    """For the owner of the task and the tenant's backend, notes are as absent as those of an idle agent."""
    service, idle = office.service, {"Tenuto-Agent": "idle"} if named else {}
    for owner in (await service.key(user="ann"), {**await service.key(), "X-User-ID": "ann"}):
        for path in PRIVATE_PATHS:
            seen = await service.http.get(office.task + path, headers={**owner, **named})
            response = await service.http.get(office.task + path.replace("reader", "idle"), headers={**owner, **idle})
            assert PRIVATE not in seen.text
            assert seen.status_code == response.status_code
            if path.startswith("/agents"):
                assert seen.content == response.content
        for method in ("PUT", "DELETE"):
            body: dict[str, Any] = {"json": {"value": "forged"}} if method == "PUT" else {}
            written = await service.http.request(
                method, office.task + PRIVATE_PATHS[1], headers={**owner, **named}, **body
            )
            assert code(written) == (403, "forbidden")
    own = await service.http.get(office.task + PRIVATE_PATHS[1], headers=office.reader)
    assert own.json()["value"] == PRIVATE


@pytest.mark.requirement("E16", "T17")
async def test_a_users_key_decides_nothing_in_an_agents_name(office: Office) -> None:
    """Protected keys, by every door; other keys of the board as before."""
    service, user, decided = office.service, await office.service.key(user="ann"), f"{office.task}/board/final_decision"
    named = {**user, **DECISION}
    body: dict[str, Any] = {"json": {"value": "forged"}}
    refused = [
        await service.http.put(decided, headers=named, **body),
        await service.http.put(decided, headers=user, json={"value": "forged", "agent": "decision-agent"}),
        await service.http.post(f"{decided}/append", headers=named, json={"item": 1}),
        await service.http.post(f"{decided}/increment", headers=named, json={"by": 1}),
        await service.http.post(f"{office.task}/locks/final_decision", headers=named, json={}),
        await service.http.delete(decided, headers=named),
    ]
    arguments = {
        "task_id": office.task.rpartition("/")[2],
        "key": "final_decision",
        "value": 1,
        "agent": "decision-agent",
    }
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "write_board", "arguments": arguments},
    }
    response = await service.http.post(
        "/mcp", headers={**user, "Accept": "application/json, text/event-stream"}, json=call
    )
    plain = await service.http.put(f"{office.task}/board/clause", headers=named, **body)
    backend = await service.http.put(decided, headers={**await service.key(), "X-User-ID": "ann", **DECISION}, **body)
    agents = await service.key(user="ann", agent="decision-agent")
    own = await service.http.put(decided, headers=agents, **body)

    assert [code(answer) for answer in refused] == [(409, "key_protected")] * len(refused)
    assert "key_protected" in response.text
    assert [plain.status_code, backend.status_code, own.status_code] == [200, 200, 200]


@pytest.mark.requirement("E16")
async def test_an_admin_looks_at_an_agents_notes_and_the_audit_says_so(office: Office) -> None:
    """Each look at one agent, and none without a name or at an absent task."""
    service, admin = office.service, {**await office.service.key(role=KeyRole.ADMIN), "X-User-ID": "ann"}
    looks = [await service.http.get(office.task + path, headers={**admin, **READER}) for path in PRIVATE_PATHS]
    aside = [
        await service.http.get(path, headers=admin) for path in (f"{office.task}/runs", "/v1/tasks/none/agents/x/notes")
    ]
    written = await service.http.put(office.task + PRIVATE_PATHS[1], headers={**admin, **READER}, json={"value": 1})
    audit = (await service.http.get("/v1/privacy/audit", headers=admin)).json()["entries"]

    assert all(PRIVATE in look.text for look in looks)
    assert not any(PRIVATE in each.text for each in aside)
    assert code(written) == (403, "forbidden")
    about = {"task": office.task.rpartition("/")[2], "agent": "reader"}
    assert [(entry["act"], entry["about"]) for entry in audit] == [("viewed", about)] * len(PRIVATE_PATHS)
    assert all(entry["by"].startswith("key ") for entry in audit)


async def test_on_an_open_server_the_header_names_the_agent() -> None:
    async with http_service() as service:
        task = f"/v1/tasks/{await worked_on(service.tenuto, OWNER)}"
        nameless = [await service.http.get(task + path, headers=ANN) for path in PRIVATE_PATHS]
        named = [await service.http.get(task + path, headers={**ANN, **READER}) for path in PRIVATE_PATHS]

        assert not any(PRIVATE in each.text for each in nameless)
        assert all(PRIVATE in each.text for each in named)


async def test_the_library_shows_no_agent_what_is_anothers() -> None:
    async with tenuto.open("memory://") as app:
        ann = app.scope(user="ann")
        task = await worked_on(app, ann)
        seen = [
            await app.tasks.notes(ann, task, "spy").list(),
            await app.tasks.notes(ann, task, "spy").read_entry("doubt"),
            await app.tasks.runs(ann, task),
            await app.tasks.runs(ann, task, agent="spy"),
            await app.agent_contexts.snapshot(ann, task, "spy"),
        ]

        assert PRIVATE not in repr(seen)
        assert PRIVATE in repr(await app.agent_contexts.snapshot(ann, task, "reader"))


@pytest.mark.usefixtures("own_environment")
def test_the_command_line_shows_nothing_private_and_makes_bound_keys() -> None:
    async def prepare() -> str:
        async with tenuto.open() as app:
            return await worked_on(app, app.scope(user="ann"))

    task = asyncio.run(prepare())
    shown = [
        run_command("tasks", "show", task, "--user", "ann").stdout,
        json.dumps(run_json("tasks", "show", task, "--user", "ann")),
    ]
    output = run_json("keys", "create", "--tenant", "acme", "--agent", "reader")
    result = run_command("keys", "create", "--tenant", "acme", "--agent", "reader", "--role", "admin")

    assert all(task in text for text in shown)
    assert PRIVATE not in "".join(shown)
    assert output["key"]["agent"] == "reader"
    assert "reader" in run_command("keys", "list").stdout
    assert result.exit_code != 0
    assert "cannot have the role admin" in result.stderr


@pytest.mark.parametrize("bound", [{"agent": "human"}, {"agent": ""}, {"agent": "reader", "role": "admin"}], ids=str)
async def test_no_credential_makes_an_agent_a_person(bound: dict[str, Any]) -> None:
    async with http_service(jwt_secret=SECRET) as service:
        with pytest.raises(Invalid):
            await service.keys.create(tenant="acme", **bound)
        claims = {"tenant_id": "acme", "sub": "ann", "exp": datetime.now(UTC) + timedelta(minutes=5), **bound}
        answered: httpx.Response = await service.http.get(
            "/v1/tasks", headers=bearer(jwt.encode(claims, SECRET, "HS256"))
        )
        assert code(answered) == (401, "invalid_credential")
