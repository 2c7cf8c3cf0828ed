"""Keeping sessions over HTTP: make, find, change, branch, forget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tenuto.server.openapi import document
from tests.clock import FakeClock
from tests.journeys.http_service import ANN, BOB, HttpService, at, code, http_service, says


@pytest.fixture
async def service(fake_clock: FakeClock, store_url: str) -> AsyncIterator[HttpService]:
    async with http_service(clock=fake_clock, store=store_url) as service:
        yield service


@pytest.mark.requirement("A3", "B3", "E2")
async def test_a_session_is_made_and_found_again(service: HttpService) -> None:
    response = await service.http.post(
        "/v1/sessions",
        headers=ANN,
        json={"title": "Lisbon", "context": {"language": "pt"}, "attributes": {"vip": True}, "metadata": {"n": 1.0}},
    )

    found = await service.http.get(response.headers["location"], headers=ANN)

    assert response.status_code == 201
    assert found.status_code == 200
    assert found.json() == {**response.json(), "active_tasks": []}
    assert found.headers["etag"].startswith('"1-')
    assert found.json() | {"id": ""} == {
        "id": "",
        "tenant": "acme",
        "site": "",
        "user": "ann",
        "channel": None,
        "chat": None,
        "thread": None,
        "title": "Lisbon",
        "status": "active",
        "context": {"language": "pt"},
        "attributes": {"vip": True},
        "metadata": {"n": 1.0},
        "created_at": "2026-01-15T09:00:00Z",
        "updated_at": "2026-01-15T09:00:00Z",
        "expires_at": "2026-02-14T09:00:00Z",
        "version": 1,
        "turns": 0,
        "message_count": 0,
        "last_seq": 0,
        "window_start": 1,
        "tokens": 0,
        "cost_usd": "0",
        "forked_from": None,
        "active_tasks": [],
    }


@pytest.mark.requirement("A8")
async def test_an_id_of_ones_own_brings_the_same_session_back(service: HttpService) -> None:
    first = await service.http.post("/v1/sessions", headers=ANN, json={"id": "mine", "title": "first"})
    again = await service.http.post("/v1/sessions", headers=ANN, json={"id": "mine", "title": "second"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()


async def test_the_same_key_makes_one_session(service: HttpService) -> None:
    keyed = {**ANN, "Idempotency-Key": "k1"}

    first = await service.http.post("/v1/sessions", headers=keyed, json={"title": "once"})
    again = await service.http.post("/v1/sessions", headers=keyed, json={"title": "once"})
    other = await service.http.post("/v1/sessions", headers=keyed, json={"title": "twice"})
    bobs = await service.http.post("/v1/sessions", headers={**BOB, "Idempotency-Key": "k1"}, json={"title": "once"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert code(other) == (409, "idempotency_key_reused")
    assert bobs.status_code == 201
    assert bobs.json()["id"] != first.json()["id"]


async def test_sessions_are_listed_newest_first_page_by_page(service: HttpService, fake_clock: FakeClock) -> None:
    for title in ("Lisbon trip", "Tax return", "Porto trip"):
        await service.http.post("/v1/sessions", headers=ANN, json={"title": title})
        fake_clock.advance(timedelta(seconds=1))

    first = (await service.http.get("/v1/sessions?limit=2", headers=ANN)).json()
    rest = (await service.http.get("/v1/sessions", params={"limit": 2, "cursor": first["cursor"]}, headers=ANN)).json()
    trips = (await service.http.get("/v1/sessions?q=TRIP", headers=ANN)).json()
    archived = (await service.http.get("/v1/sessions?status=archived", headers=ANN)).json()

    assert [session["title"] for session in first["sessions"]] == ["Porto trip", "Tax return"]
    assert [session["title"] for session in rest["sessions"]] == ["Lisbon trip"]
    assert rest["cursor"] is None
    assert [session["title"] for session in trips["sessions"]] == ["Porto trip", "Lisbon trip"]
    assert archived == {"sessions": [], "cursor": None}


async def test_a_patch_changes_what_it_names_and_nothing_else(service: HttpService) -> None:
    await service.http.post("/v1/sessions", headers=ANN, json={"id": "s", "title": "old", "context": {"a": 1, "b": 2}})

    changed = await service.http.patch(
        at("s"), headers=ANN, json={"title": "new", "status": "archived", "context": {"a": None, "c": [1.0]}}
    )

    assert changed.status_code == 200
    assert changed.json()["title"] == "new"
    assert changed.json()["status"] == "archived"
    assert changed.json()["context"] == {"b": 2, "c": [1.0]}
    assert changed.headers["etag"] == '"2"'


@pytest.mark.parametrize("way", ["header", "body"])
async def test_a_patch_of_an_old_version_is_refused(service: HttpService, way: str) -> None:
    await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
    old: dict[str, Any] = {"headers": {**ANN, "If-Match": '"1"'}, "json": {"title": "x"}}
    if way == "body":
        old = {"headers": ANN, "json": {"title": "x", "if_version": 1}}

    right = await service.http.patch(at("s"), **old)
    wrong = await service.http.patch(at("s"), **old)

    assert right.status_code == 200
    assert code(wrong) == (409, "version_conflict")
    assert (wrong.json()["expected"], wrong.json()["actual"]) == (1, 2)


@pytest.mark.requirement("B3", "B14")
async def test_attributes_are_set_read_and_removed_one_by_one(service: HttpService) -> None:
    await service.http.post("/v1/sessions", headers=ANN, json={"id": "s", "attributes": {"kept": 1}})
    odd = at("s", "attributes", "a%2Fb%20%E4%BD%A0")

    was_set = await service.http.put(odd, headers=ANN, json={"value": {"deep": [1, None]}})
    read = await service.http.get(odd, headers=ANN)
    every = await service.http.get(at("s", "attributes"), headers=ANN)
    removed = await service.http.delete(odd, headers=ANN)
    response = await service.http.get(odd, headers=ANN)

    assert was_set.json() == read.json() == {"name": "a/b 你", "value": {"deep": [1, None]}}
    assert every.json() == {"attributes": {"kept": 1, "a/b 你": {"deep": [1, None]}}}
    assert removed.status_code == 204
    assert response.json() == {"name": "a/b 你", "value": None}


async def test_a_head_stays_within_its_limit_however_many_patch_it(fake_clock: FakeClock, store_url: str) -> None:
    """Twelve at once, of which eight fit: each of those is stored whole, and the others leave no trace."""
    async with http_service(clock=fake_clock, store=store_url, max_head_bytes=2048) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        bodies = [{("context", "attributes", "metadata")[n % 3]: {f"k{n}": "x" * 230}} for n in range(12)]

        answers = await asyncio.gather(*(service.http.patch(at("s"), headers=ANN, json=body) for body in bodies))
        one_more = await service.http.put(at("s", "attributes", "more"), headers=ANN, json={"value": "x" * 230})
        head = (await service.http.get(at("s"), headers=ANN)).json()

    stored = {name for what in ("context", "attributes", "metadata") for name in head[what]}
    assert stored == {f"k{n}" for n, answer in enumerate(answers) if answer.status_code == 200}
    assert len(stored) == 8
    assert {code(answer) for answer in answers if answer.status_code != 200} == {(413, "too_large")}
    assert code(one_more) == (413, "too_large")


async def test_a_reset_forgets_the_talk_and_keeps_the_session(service: HttpService) -> None:
    await service.http.post("/v1/sessions", headers=ANN, json={"id": "s", "title": "kept", "context": {"x": 1}})
    await service.http.post(at("s", "messages"), headers=ANN, json=says("hello"))

    reset = await service.http.post(at("s", "reset"), headers=ANN)
    after = await service.http.get(at("s", "messages"), headers=ANN)

    assert (reset.json()["title"], reset.json()["context"], reset.json()["message_count"]) == ("kept", {}, 0)
    assert after.json()["messages"] == []


async def test_a_fork_goes_its_own_way_and_truncating_takes_back(service: HttpService) -> None:
    await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
    for text in ("one", "two", "three"):
        await service.http.post(at("s", "messages"), headers=ANN, json=says(text))

    fork = await service.http.post(at("s", "fork"), headers=ANN, json={"at": 2, "id": "branch", "title": "What if"})
    response = await service.http.post(at("s", "fork"), headers=ANN, json={"id": "branch"})
    cut = await service.http.post(at("s", "truncate"), headers=ANN, json={"after": 1})
    branch = await service.http.get(at("branch", "messages"), headers=ANN)

    assert fork.status_code == 201
    assert fork.json()["forked_from"] == {"session_id": "s", "seq": 2}
    assert code(response) == (409, "session_exists")
    assert cut.json()["message_count"] == 1
    assert [message["text"] for message in branch.json()["messages"]] == ["one", "two"]


@pytest.mark.parametrize("way", ["header", "body"])
async def test_a_truncation_of_an_old_version_is_refused_and_keeps_what_was_said_since(
    service: HttpService, way: str
) -> None:
    await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
    await service.http.post(at("s", "messages"), headers=ANN, json={"messages": [says("one"), says("two")]})
    version = (await service.http.get(at("s"), headers=ANN)).json()["version"]
    guarded: dict[str, Any] = {"headers": {**ANN, "If-Match": f'"{version}"'}, "json": {"after": 1}}
    if way == "body":
        guarded = {"headers": ANN, "json": {"after": 1, "if_version": version}}
    await service.http.post(at("s", "messages"), headers=ANN, json=says("from elsewhere"))

    late = await service.http.post(at("s", "truncate"), **guarded)
    kept = (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"]
    guarded["headers"], guarded["json"] = ANN, {"after": 1, "if_version": version + 1}
    now = await service.http.post(at("s", "truncate"), **guarded)

    assert code(late) == (409, "version_conflict")
    assert (late.json()["expected"], late.json()["actual"]) == (version, version + 1)
    assert [message["text"] for message in kept] == ["one", "two", "from elsewhere"]
    assert (now.status_code, now.json()["message_count"]) == (200, 1)
    assert now.headers["etag"] == f'"{version + 2}"'


async def test_stats_count_what_the_caller_has(service: HttpService) -> None:
    for who in (ANN, BOB):
        response = await service.http.post("/v1/sessions", headers=who)
        body = {"messages": [says("hi", tokens=3)], "usage": {"tokens": 5, "cost_usd": "0.000000001"}}
        await service.http.post(f"{response.headers['location']}/messages", headers=who, json=body)

    mine = (await service.http.get("/v1/stats", headers=ANN)).json()
    all_of_acme = (await service.http.get("/v1/stats", headers={"X-Tenant-ID": "acme"})).json()

    assert mine == {"sessions": 1, "messages": 1, "tokens": 5, "cost_usd": "0.000000001"}
    assert all_of_acme["sessions"] == 2


@pytest.mark.requirement("X13")
async def test_the_same_routes_answer_under_api(service: HttpService) -> None:
    response = await service.http.post("/api/v1/sessions", headers=ANN, json={"id": "s"})

    assert response.status_code == 201
    assert (await service.http.get("/api/v1/sessions/s", headers=ANN)).json().items() >= response.json().items()
    assert not any(path.startswith("/api") for path in document(service.app)["paths"])


async def test_tenant_and_site_may_stand_in_query_and_body(service: HttpService) -> None:
    response = await service.http.post("/v1/sessions", json={"id": "s", "tenant_id": "acme", "site_id": "museum"})
    found = await service.http.get(at("s"), params={"tenant_id": "acme", "site_id": "museum"})
    elsewhere = await service.http.get(at("s"), params={"tenant_id": "acme"})
    torn = await service.http.post("/v1/sessions", headers=ANN, json={"tenant_id": "other"})

    assert (response.json()["tenant"], response.json()["site"]) == ("acme", "museum")
    assert found.json().items() >= response.json().items()
    assert code(elsewhere) == (404, "session_not_found")
    assert code(torn) == (403, "scope_mismatch")


async def test_sessions_are_searched_by_what_was_said_in_them() -> None:
    async with http_service() as service:
        http = service.http

        async def say(who: dict[str, str], *texts: str, title: str = "") -> str:
            made = (await http.post("/v1/sessions", headers=who, json={"title": title})).json()["id"]
            messages = [{"role": ("user", "assistant")[n % 2], "text": text} for n, text in enumerate(texts)]
            await http.post(f"/v1/sessions/{made}/messages", headers=who, json={"messages": messages})
            return str(made)

        async def search(who: dict[str, str], text: str, **asked: Any) -> dict[str, Any]:
            answer = await http.get("/v1/sessions", headers=who, params={"q": text, **asked})
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        trip = await say(ANN, "Where do we sleep?", "In two small hotels in Kyoto.", title="Autumn")
        zh = await say(ANN, "京都的酒店在车站旁边", title="旅行")
        await say(BOB, "A hotel in Kyoto")

        found = await search(ANN, "hotel kyoto")
        assert [one["id"] for one in found["sessions"]] == [trip]
        (match,) = found["matches"][trip]
        assert match | {"sent_at": None} == {
            "seq": 2,
            "role": "assistant",
            "sent_at": None,
            "excerpt": "In two small hotels in Kyoto.",
            "words": ["hotels", "Kyoto"],
        }
        assert (found["cursor"], found["unsearched"]) == (None, 0)
        assert [one["id"] for one in (await search(ANN, "京都酒店"))["sessions"]] == [zh]
        by_title = await search(ANN, "utum")
        assert ([one["id"] for one in by_title["sessions"]], by_title["matches"]) == ([trip], {trip: []})

        reply = await http.post("/v1/chat", headers=ANN, json={"message": "And a ryokan?", "session_id": trip})
        assert reply.status_code == 200
        assert [one["id"] for one in (await search(ANN, "ryokan"))["sessions"]] == [trip]
        await http.delete(f"/v1/sessions/{trip}", headers=ANN)
        assert (await search(ANN, "ryokan"))["sessions"] == []
        listed = (await http.get("/v1/sessions", headers=ANN, params={"title": "旅"})).json()
        assert ([one["id"] for one in listed["sessions"]], "matches" in listed) == ([zh], False)


async def test_a_search_that_is_switched_off_is_refused_and_titles_are_found() -> None:
    async with http_service(session_search=False) as service:
        made = (await service.http.post("/v1/sessions", headers=ANN, json={"title": "Autumn"})).json()["id"]
        refused = await service.http.get("/v1/sessions", headers=ANN, params={"q": "autumn"})
        listed = await service.http.get("/v1/sessions", headers=ANN, params={"title": "utum"})
        told = (await service.http.get("/healthz")).json()["session_search"]

    assert (code(refused), told) == ((400, "search_off"), False)
    assert [one["id"] for one in listed.json()["sessions"]] == [made]
