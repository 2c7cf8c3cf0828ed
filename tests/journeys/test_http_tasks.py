"""Agents share a task over HTTP: its board, its locks, their notes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tenuto.model.privacy import Mode
from tests.clock import FakeClock
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, code, http_service

pytestmark = pytest.mark.requirement("E3", "E4", "E5", "E9", "E10", "E16", "E21", "T17")


def agent(name: str, who: dict[str, str] = ANN) -> dict[str, str]:
    """An agent."""
    return {**who, "Tenuto-Agent": name}


async def opened(service: HttpService, who: dict[str, str] = ANN, **body: Any) -> str:
    """The address of a new task."""
    response = await service.http.post("/v1/tasks", headers=who, json={"type": "contract_review", **body})
    assert response.status_code == 201, response.text
    address: str = response.headers["location"]
    return address


@pytest.fixture
async def task(service: HttpService) -> str:
    return await opened(service)


async def put(service: HttpService, address: str, name: str, value: Any, **body: Any) -> httpx.Response:
    return await service.http.put(address, headers=agent(name), json={"value": value, **body})


@pytest.mark.requirement("E2")
async def test_three_agents_review_a_contract(store_url: str) -> None:
    """On every kind of store, from the talk it came out of to the result. The session lists it meanwhile."""
    async with http_service(store=store_url) as service:
        session = (await service.http.post("/v1/sessions", headers=ANN, json={})).json()["id"]
        task = await opened(service, goal="Find what limits later employment", session_id=session)
        response = await service.http.patch(task, headers=ANN, json={"status": "running"})
        await put(service, f"{task}/board/clauses", "reader", [{"number": 7}])
        await put(service, f"{task}/agents/lawyer/notes/doubt", "lawyer", "ask for annex B")
        await put(service, f"{task}/board/months", "reader", 6)
        over = await put(service, f"{task}/board/months", "lawyer", 12, if_version=1)
        refused = await put(service, f"{task}/board/final_decision", "lawyer", "sign")
        decided = await put(service, f"{task}/board/final_decision", "decision-agent", "do not sign")
        during = (await service.http.get(f"/v1/sessions/{session}", headers=ANN)).json()["active_tasks"]
        ended = await service.http.patch(task, headers=ANN, json={"status": "completed", "result": {"months": 12}})
        after = (await service.http.get(f"/v1/sessions/{session}", headers=ANN)).json()["active_tasks"]
        board = (await service.http.get(f"{task}/board", headers=ANN)).json()
        notes = (await service.http.get(f"{task}/agents/lawyer/notes", headers=ANN)).json()
        listed = (await service.http.get("/v1/tasks", params={"session_id": session}, headers=ANN)).json()

        assert response.json()["status"] == "running"
        assert (during, after) == ([{"id": response.json()["id"], "status": "running"}], [])
        assert (over.json()["previous_writer"], over.json()["version"], over.headers["etag"]) == ("reader", 2, '"2"')
        assert code(refused) == (409, "key_protected")
        assert decided.status_code == 200
        assert (ended.json()["status"], ended.json()["result"]) == ("completed", {"months": 12})
        assert [(entry["key"], entry["writer"]) for entry in board["entries"]] == [
            ("clauses", "reader"), ("final_decision", "decision-agent"), ("months", "lawyer"),
        ]  # fmt: skip
        assert notes == {"notes": []}
        assert listed == {"tasks": [ended.json()], "cursor": None}


async def test_a_lock_keeps_others_out_until_it_is_given_back_or_runs_out() -> None:
    clock = FakeClock()
    async with http_service(clock=clock) as service:
        task = await opened(service)
        entry, lock = f"{task}/board/draft", f"{task}/locks/draft"
        mine = (await service.http.post(lock, headers=ANN, json={"agent": "writer", "seconds": 30})).json()
        out = await put(service, entry, "editor", "other")
        inside = await put(service, entry, "writer", "words", token=mine["token"])
        seen = (await service.http.get(f"{task}/board", headers=ANN)).json()["locks"]
        clock.advance(timedelta(seconds=31))
        theirs = (await service.http.post(lock, headers=agent("editor"), json={})).json()
        late = await put(service, entry, "writer", "late", token=mine["token"])
        given_back = await service.http.delete(lock, headers=agent("editor"), params={"token": theirs["token"]})
        again = await service.http.delete(lock, headers=agent("editor"), params={"token": theirs["token"]})

        assert code(out) == (409, "key_locked")
        assert (out.headers["retry-after"], out.json()["retry_after"]) == ("30", 30.0)
        assert inside.json()["value"] == "words"
        assert seen == [{"key": "draft", "holder": "writer", "expires_at": mine["expires_at"]}]
        assert theirs["token"] > mine["token"]
        assert code(late) == (409, "lock_lost")
        assert (given_back.status_code, code(again)) == (204, (409, "lock_lost"))
        assert (await service.http.get(entry, headers=ANN)).json()["value"] == "words"


async def test_versions_guard_tasks_entries_and_notes(service: HttpService, task: str) -> None:
    entry, note = f"{task}/board/a", f"{task}/agents/x/notes/a"
    stale = {**agent("x"), "If-Match": '"7"'}
    for address in (entry, note):
        await put(service, address, "x", 1)
        assert code(await service.http.put(address, headers=stale, json={"value": 2})) == (409, "version_conflict")
        assert code(await service.http.delete(address, headers=stale)) == (409, "version_conflict")
        first = {**agent("x"), "If-Match": (await service.http.get(address, headers=agent("x"))).headers["etag"]}
        assert (await service.http.put(address, headers=first, json={"value": 2})).json()["value"] == 2
    assert code(await service.http.patch(task, headers=stale, json={"status": "running"})) == (409, "version_conflict")
    both = {"status": "running", "if_version": 1}
    assert code(await service.http.patch(task, headers=stale, json=both)) == (400, "invalid")


async def test_conditions_of_a_request_are_kept_or_refused(service: HttpService, task: str) -> None:
    """None is passed over: what must not be written over is not."""
    first, anything = {"If-None-Match": "*"}, {"If-Match": "*"}
    for address in (f"{task}/board/a", f"{task}/agents/x/notes/a"):

        async def written(headers: dict[str, str], address: str = address, **body: Any) -> httpx.Response:
            return await service.http.put(address, headers={**agent("x"), **headers}, json={"value": 1, **body})

        assert (await written(first)).status_code == 200
        assert code(await written(first)) == (409, "version_conflict")
        for odd in ({"If-None-Match": '"1"'}, {**first, "If-Match": '"1"'}):
            assert code(await written(odd)) == (400, "invalid")
        assert code(await written(first, if_version=1)) == (400, "invalid")
        response = await service.http.put(f"{address}b", headers={**agent("x"), **anything}, json={"value": 1})
        assert code(response) == (404, "entry_not_found")
        assert (await service.http.get(address, headers=agent("x"))).json()["version"] == 1
        assert (await written(anything)).json()["version"] == 2
    stale = await service.http.delete(task, headers={**ANN, "If-Match": '"999"'})
    named = await service.http.delete(f"{task}/board/a", headers=ANN)

    assert code(stale) == (409, "version_conflict")
    assert "body" not in named.json()["detail"]
    assert (await service.http.delete(task, headers={**ANN, "If-Match": '"1"'})).status_code == 204


async def test_a_task_asked_for_twice_is_opened_once(service: HttpService) -> None:
    key = {**ANN, "Idempotency-Key": "k1"}
    first, again = [await service.http.post("/v1/tasks", headers=key, json={"type": "a"}) for _ in range(2)]
    other = await service.http.post("/v1/tasks", headers=key, json={"type": "b"})

    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    assert code(other) == (409, "idempotency_key_reused")
    assert len((await service.http.get("/v1/tasks", headers=ANN)).json()["tasks"]) == 1


@pytest.mark.requirement("T17")
async def test_an_agents_notes_are_its_own(service: HttpService, task: str) -> None:
    """A client whose runtime names its agent reads no other's."""
    await put(service, f"{task}/agents/x/notes/plan", "x", "mine")

    for method in ("GET", "DELETE"):
        foreign = await service.http.request(method, f"{task}/agents/x/notes/plan", headers=agent("y"))
        assert code(foreign) == (403, "forbidden")
    assert code(await put(service, f"{task}/agents/x/notes/plan", "y", 1)) == (403, "forbidden")
    assert code(await service.http.get(f"{task}/agents/x/notes", headers=agent("y"))) == (403, "forbidden")
    assert code(await service.http.get(f"{task}/agents/y/notes/plan", headers=agent("y"))) == (404, "entry_not_found")
    assert (await service.http.get(f"{task}/agents/x/notes/plan", headers=agent("x"))).json()["value"] == "mine"
    assert (await service.http.delete(f"{task}/agents/x/notes/plan", headers=agent("x"))).status_code == 204


OF_A_TASK = [
    *[("GET", path, None) for path in ("", "/board", "/board/a", "/board/a/history", "/timeline", "/events")],
    *[("GET", path, None) for path in ("/agents/x/notes", "/agents/x/notes/a")],
    ("PATCH", "", {"status": "completed"}),
    ("DELETE", "", None),
    ("PUT", "/board/a", {"value": 1}),
    ("DELETE", "/board/a", None),
    ("POST", "/board/a/append", {"item": 1}),
    ("POST", "/board/a/increment", {}),
    ("POST", "/locks/a", {}),
    ("DELETE", "/locks/a?token=1", None),
    ("PUT", "/agents/x/notes/a", {"value": 1}),
    ("DELETE", "/agents/x/notes/a", None),
    ("POST", "/cancel", None),
    ("POST", "/resume", {}),
    ("POST", "/input/ask", {"value": 1}),
]


@pytest.mark.requirement("A7")
async def test_a_task_is_nobody_elses() -> None:
    """Another user's, an expired one and one that never was give the same bytes."""
    clock = FakeClock()
    async with http_service(clock=clock) as service:
        task = await opened(service)

        async def ask_all(address: str, who: dict[str, str]) -> list[httpx.Response]:
            return [
                await service.http.request(method, address + path, headers=agent("x", who), json=body)
                for method, path, body in OF_A_TASK
            ]

        absent = await ask_all("/v1/tasks/none", ANN)
        foreign = [answer for who in (BOB, EVE) for answer in await ask_all(task, who)]
        untouched = (await service.http.get(task, headers=ANN)).json()
        clock.advance(timedelta(days=1))
        expired = await ask_all(task, ANN)

        assert {code(answer) for answer in (*absent, *foreign, *expired)} == {(404, "task_not_found")}
        assert len({answer.text for answer in (*absent, *foreign, *expired)}) == 1
        assert (untouched["status"], untouched["version"]) == ("pending", 1)
        assert code(await service.http.delete(task, headers=ANN)) == (404, "task_not_found")
        assert (await service.http.get("/v1/tasks", headers=ANN)).json() == {"tasks": [], "cursor": None}


@pytest.mark.requirement("E19")
async def test_agents_collect_and_count_in_one_step_and_each_write_is_told(service: HttpService, task: str) -> None:
    """A request that is sent again under its key adds nothing, and another one under it is refused."""
    key = {"Idempotency-Key": "k1"}
    for name, headers in (("x", key), ("x", key), ("y", {})):
        who = {**agent(name), **headers}
        await service.http.post(f"{task}/board/names/append", headers=who, json={"item": name})
        await service.http.post(f"{task}/board/sum/increment", headers=who, json={"by": 2.5})
    reused = [
        await service.http.post(f"{task}/board/names/{how}", headers={**agent(name), **key}, json=body)
        for name, how, body in (("x", "append", {"item": "z"}), ("y", "append", {"item": "x"}), ("x", "increment", {}))
    ]
    appended, added = [await service.http.get(f"{task}/board/{key}", headers=ANN) for key in ("names", "sum")]
    await service.http.delete(f"{task}/board/sum", headers=agent("x"))
    mixed = [
        await service.http.post(f"{task}/board/names/increment", headers=agent("x")),
        await service.http.post(f"{task}/board/other/append", headers=ANN, json={"item": 1}),
    ]
    history = (await service.http.get(f"{task}/board/sum/history", headers=ANN)).json()["changes"]

    assert [code(answer) for answer in reused] == [(409, "idempotency_key_reused")] * 3
    assert (appended.json()["value"], appended.headers["etag"][:3]) == (["x", "y"], '"2-')
    assert (added.json()["value"], added.json()["previous_writer"]) == (5.0, "x")
    assert [code(answer) for answer in mixed] == [(409, "value_mismatch"), (400, "invalid")]
    assert [(each["version"], each["writer"], each["deleted"]) for each in history] == [
        (1, "x", False), (2, "y", False), (3, "x", True),
    ]  # fmt: skip


async def test_what_was_removed_is_gone_and_again_is_harmless_for_a_key(service: HttpService, task: str) -> None:
    await put(service, f"{task}/board/a", "x", 1)

    for _ in range(2):
        assert (await service.http.delete(f"{task}/board/a", headers=agent("x"))).status_code == 204
    assert code(await service.http.get(f"{task}/board/a", headers=ANN)) == (404, "entry_not_found")
    assert (await service.http.delete(task, headers=ANN)).status_code == 204
    assert code(await service.http.get(task, headers=ANN)) == (404, "task_not_found")


async def test_tasks_are_listed_page_by_page(service: HttpService) -> None:
    made = [await opened(service, goal=str(n)) for n in range(5)]
    await service.http.patch(made[0], headers=ANN, json={"status": "failed"})

    pages, cursor = [], None
    while True:
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await service.http.get("/v1/tasks", headers=ANN, params=params)).json()
        pages.append(sorted(task["goal"] for task in page["tasks"]))
        cursor = page["cursor"]
        if cursor is None:
            break
    failed = (await service.http.get("/v1/tasks", headers=ANN, params={"status": "failed"})).json()["tasks"]

    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted(goal for page in pages for goal in page) == ["0", "1", "2", "3", "4"]
    assert [task["goal"] for task in failed] == ["0"]


@pytest.mark.requirement("T18")
@pytest.mark.parametrize("name", ["a/b", "..", "a:b*", "käse 🦊", "100%", "x" * 10_000])
async def test_odd_keys_and_agents_stay_inside(service: HttpService, name: str) -> None:
    task = await opened(service, type=name)
    part = name.replace(".", "%2E") if name == ".." else quote(name, safe="")
    entry, note = f"{task}/board/{part}", f"{task}/agents/{part}/notes/{part}"

    written = await service.http.put(entry, headers=ANN, json={"agent": name, "value": 1})
    noted = await service.http.put(note, headers=ANN, json={"value": 2})
    locked = await service.http.post(f"{task}/locks/{part}", headers=ANN, json={"agent": name})
    board = (await service.http.get(f"{task}/board", headers=ANN)).json()

    assert (written.json()["key"], written.json()["writer"]) == (name, name)
    assert (noted.json()["key"], locked.json()["holder"]) == (name, name)
    assert [each["key"] for each in board["entries"]] == [name]
    named: dict[bytes, bytes] = {k.encode(): v.encode() for k, v in agent(name).items()}
    assert (await service.http.get(note, headers=named)).json()["value"] == 2
    assert code(await service.http.get(f"/v1/tasks/{part}", headers=ANN)) == (404, "task_not_found")


@pytest.mark.parametrize(
    ("method", "path", "body", "answered"),
    [
        ("POST", "/v1/tasks", {}, (400, "invalid")),
        ("POST", "/v1/tasks", {"type": ""}, (400, "invalid")),
        ("POST", "/v1/tasks", {"type": "a\0b"}, (400, "invalid_text")),
        ("POST", "/v1/tasks", {"type": "t", "plan": []}, (400, "plan_invalid")),
        ("POST", "/v1/tasks", {"type": "t", "session_id": "none"}, (404, "session_not_found")),
        ("POST", "/v1/tasks", {"type": "t", "goal": "x" * 1_000_000}, (413, "too_large")),
        ("GET", "/v1/tasks?limit=0", None, (400, "invalid")),
        ("GET", "/v1/tasks?status=over", None, (400, "invalid")),
        ("GET", "/v1/tasks?cursor=%2F..%2F", None, (400, "invalid_cursor")),
        ("GET", "/v1/tasks?cursor=abc", None, (400, "invalid_cursor")),
        ("PATCH", "{task}", {}, (400, "invalid")),
        ("PATCH", "{task}", {"status": "pending"}, (400, "invalid")),
        ("PATCH", "{task}", {"status": "running", "result": 1}, (400, "invalid")),
        ("PATCH", "{task}", {"status": "completed", "result": "x" * 1_000_000}, (413, "too_large")),
        ("PUT", "{task}/board/a", {"value": 1}, (400, "invalid")),
        ("PUT", "{task}/board/a", {"value": 1, "agent": ""}, (400, "invalid")),
        ("PUT", "{task}/board/a", {"value": 1, "agent": "a\0b"}, (400, "invalid_text")),
        ("PUT", "{task}/board/a", {"agent": "x"}, (400, "invalid")),
        ("PUT", "{task}/board/a", {"agent": "x", "value": 2**70}, (400, "invalid_json")),
        ("PUT", "{task}/board/a", {"agent": "x", "value": "x" * 1_000_000}, (413, "too_large")),
        ("PUT", "{task}/board/a", {"agent": "x", "value": 1, "if_version": -1}, (400, "invalid")),
        ("PUT", "{task}/board/a", {"agent": "x", "value": 1, "if_version": 5}, (409, "version_conflict")),
        ("PUT", "{task}/board/a", {"agent": "x", "value": 1, "token": 5}, (409, "lock_lost")),
        ("PUT", "{task}/board/a", {"agent": "x", "value": 1, "token": 0}, (400, "invalid")),
        ("DELETE", "{task}/board/a", None, (400, "invalid")),
        ("POST", "{task}/board/a/append", {"agent": "x"}, (400, "invalid")),
        ("POST", "{task}/board/a/append", {"agent": "x", "item": "x" * 1_000_000}, (413, "too_large")),
        ("POST", "{task}/board/a/increment", {"agent": "x", "by": "1"}, (400, "invalid")),
        ("POST", "{task}/board/a/increment", {"agent": "x", "by": 2**64}, (400, "invalid_json")),
        ("POST", "{task}/input/ask", {}, (400, "invalid")),
        ("POST", "{task}/resume", {"from_step": ""}, (400, "invalid")),
        ("POST", "{task}/locks/a", {"agent": "x", "seconds": 0}, (400, "invalid")),
        ("POST", "{task}/locks/a", {"agent": "x", "seconds": 1e9}, (400, "invalid")),
        ("POST", "{task}/locks/a", {"agent": "x", "token": 1}, (409, "lock_lost")),
        ("DELETE", "{task}/locks/a", None, (400, "invalid")),
        ("PUT", "{task}/agents/x/notes/a", {"value": "x" * 1_000_000}, (413, "too_large")),
        ("PUT", "{task}/agents/x/notes/a", {}, (400, "invalid")),
        ("PUT", "{task}/agents/%00/notes/a", {"value": 1}, (400, "invalid_text")),
        ("GET", "{task}/board/%ff", None, (400, "invalid_text")),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
async def test_bad_input_is_refused_and_named(
    task: str, service: HttpService, method: str, path: str, body: dict[str, Any] | None, answered: tuple[int, str]
) -> None:
    answer = await service.http.request(method, path.format(task=task), headers=ANN, json=body)

    assert code(answer) == answered
    assert (await service.http.get(f"{task}/board", headers=ANN)).json()["entries"] == []


async def test_a_stream_goes_on_after_an_event_only(service: HttpService, task: str) -> None:
    response = await service.http.get(f"{task}/events", headers={**ANN, "Last-Event-ID": "7"})

    assert code(response) == (400, "invalid_cursor")


async def test_a_token_that_is_missing_is_missed_in_the_query(service: HttpService) -> None:
    """It is no field of a body, which such a request has not got."""
    response = await service.http.delete(f"{await opened(service)}/locks/a", headers=agent("x"))

    assert code(response) == (400, "invalid")
    assert response.json()["detail"] == "the query: it is missing required field token"


async def test_a_task_ended_twice_in_the_same_way_is_ended_once(service: HttpService, task: str) -> None:
    """A client whose answer was lost asks again; one that would have it end otherwise is told."""
    done = {"status": "completed", "result": {"mail": "ann.lee@example.com"}}

    first, again = [await service.http.patch(task, headers=ANN, json=done) for _ in range(2)]
    guarded = await service.http.patch(task, headers={**ANN, "If-Match": '"1"'}, json=done)
    otherwise = [
        await service.http.patch(task, headers=ANN, json={**done, **change})
        for change in ({"status": "failed"}, {"result": None}, {"status": "running", "result": None})
    ]
    stale = await service.http.patch(task, headers={**ANN, "If-Match": '"7"'}, json=done)

    assert (first.status_code, again.status_code, guarded.status_code) == (200, 200, 200)
    assert first.json() == again.json() == guarded.json()
    assert {code(answer) for answer in otherwise} == {(409, "task_finished")}
    assert code(stale) == (409, "version_conflict")


async def test_two_names_for_one_agent_are_refused(service: HttpService, task: str) -> None:
    assert code(await put(service, f"{task}/board/a", "x", 1, agent="y")) == (400, "invalid")
    assert (await put(service, f"{task}/board/a", "x", 1, agent="x")).json()["writer"] == "x"


@pytest.mark.requirement("T20")
async def test_settings_say_who_decides_how_long_tasks_live_and_what_fits() -> None:
    clock = FakeClock()
    async with http_service(
        clock=clock,
        task_owners="refund=approver, contract = counsel",
        max_board_keys=1,
        max_board_value_bytes=10,
        task_retention=timedelta(hours=2),
        agent_retention=timedelta(minutes=5),
    ) as service:
        task = await opened(service, type="refund")
        await put(service, f"{task}/agents/x/notes/a", "x", 1)

        assert code(await put(service, f"{task}/board/final_decision", "decision-agent", 1)) == (409, "key_protected")
        assert (await put(service, f"{task}/board/final_decision", "approver", 1)).status_code == 200
        assert code(await put(service, f"{task}/board/b", "x", 1)) == (429, "board_full")
        assert code(await put(service, f"{task}/board/final_decision", "approver", "x" * 9)) == (413, "too_large")
        clock.advance(timedelta(minutes=5))
        assert code(await service.http.get(f"{task}/agents/x/notes/a", headers=agent("x"))) == (404, "entry_not_found")
        clock.advance(timedelta(hours=2))
        assert code(await service.http.get(task, headers=ANN)) == (404, "task_not_found")


@pytest.mark.requirement("T10")
@pytest.mark.parametrize("mode", ["keep", "redact"])
async def test_a_board_holds_what_agents_work_with_unless_the_policy_says_otherwise(mode: str) -> None:
    """The sink `board` is that of goals, values and notes, whatever `memory` is; ids of ours are no secrets."""
    settings: dict[str, Any] = {} if mode == "keep" else {"privacy_board": Mode(mode)}
    async with http_service(**settings) as service:
        task = await opened(service, goal="Write to ann.lee@example.com")
        step_key = f"{task.rpartition('/')[2]}:read"
        await put(service, f"{task}/board/password", "x", "Tr0ub4dor&3")
        await put(service, f"{task}/board/handover", "x", {"step_key": step_key, "to": "ann.lee@example.com"})
        await put(service, f"{task}/agents/x/notes/mail", "x", "ann.lee@example.com")

        seen = [
            (await service.http.get(task + address, headers=agent("x"))).json()
            for address in ("", "/board/password", "/board/handover", "/agents/x/notes/mail")
        ]
        scan = (await service.http.post("/v1/privacy/scan", headers={"X-Tenant-ID": "acme"}, json={})).json()

    mail, password = "ann.lee@example.com", "Tr0ub4dor&3"
    if mode == "redact":
        mail, password = "[REDACTED_EMAIL]", "[REDACTED_SECRET]"
    assert seen[0]["goal"] == f"Write to {mail}"
    assert [each["value"] for each in seen[1:]] == [password, {"step_key": step_key, "to": mail}, mail]
    assert scan["matches"] == ({"board": {"EMAIL": 3, "SECRET": 1}} if mode == "keep" else {})
    assert scan["violations"] == 0
