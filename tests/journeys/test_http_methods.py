"""HTTP as its clients expect it: HEAD, Allow, unchanged answers, compressed ones, parameters that nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tenuto.server.openapi import document
from tests.journeys.door import ANN, BASE, BOB, Door, at, code, says, served

PLAIN = {**ANN, "Accept-Encoding": "identity"}
GZIP = {**ANN, "Accept-Encoding": "br, gzip;q=0.8"}


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with served() as door:
        await door.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        yield door


async def _fill(door: Door, count: int) -> None:
    said = [says(f"I said {n} things about the red boat.") for n in range(count)]
    (await door.http.post(at("s", "messages"), headers=ANN, json={"messages": said})).raise_for_status()


async def test_head_answers_like_get_without_the_body(door: Door) -> None:
    for address in (
        "/",
        "/docs",
        "/openapi.json",
        "/healthz",
        "/v1/sessions",
        at("s"),
        at("s", "messages"),
        "/v1/models",
    ):
        got = await door.http.get(address, headers=PLAIN)
        head = await door.http.head(address, headers=PLAIN)
        differing = {"x-request-id", "date"}
        assert (head.status_code, head.content) == (got.status_code, b""), address
        assert {**head.headers, **dict.fromkeys(differing)} == {**got.headers, **dict.fromkeys(differing)}, address
    assert (await door.http.head(at("none"), headers=ANN)).status_code == 404
    assert (await door.http.head(at("s"), headers=BOB)).status_code == 404


async def test_head_of_a_stream_ends_at_once(door: Door) -> None:
    async with asyncio.timeout(5):
        head = await door.http.head("/v1/events", headers=ANN)

    assert head.status_code == 200
    assert head.headers["content-type"].startswith("text/event-stream")
    assert not door.app.state.session_events._streams


async def test_every_get_answers_head_and_allow_names_all_methods(door: Door) -> None:
    for path, operations in document(door.app)["paths"].items():
        methods = {method.upper() for method in operations} | ({"HEAD"} if "get" in operations else set())
        refused = await door.http.request("TRACE", path.translate({ord("{"): None, ord("}"): None}), headers=ANN)
        assert refused.status_code == 405
        # A fixed address may fit a pattern beside it as well.
        assert methods <= set(refused.headers["allow"].split(", ")), path


@pytest.mark.parametrize("address", ["/v1/sessions", at("s"), at("s", "messages"), "/v1/stats", "/v1/tasks"])
async def test_an_unchanged_answer_is_not_sent_again(door: Door, address: str) -> None:
    first = await door.http.get(address, headers=ANN)
    tag = first.headers["etag"]

    same = await door.http.get(address, headers={**ANN, "If-None-Match": f'"other", {tag}'})
    any_ = await door.http.get(address, headers={**ANN, "If-None-Match": "*"})
    other = await door.http.get(address, headers={**ANN, "If-None-Match": '"other"'})

    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert "content-length" not in same.headers or same.headers["content-length"] == "0"
    assert (any_.status_code, other.status_code) == (304, 200)


async def test_what_stands_beside_a_session_changes_its_tag_and_not_its_version(door: Door) -> None:
    before = await door.http.get(at("s"), headers=ANN)
    await door.http.post("/v1/tasks", headers=ANN, json={"type": "t", "session_id": "s"})

    again = await door.http.get(at("s"), headers={**ANN, "If-None-Match": before.headers["etag"]})
    patched = await door.http.patch(at("s"), headers={**ANN, "If-Match": again.headers["etag"]}, json={"title": "x"})
    stale = await door.http.patch(at("s"), headers={**ANN, "If-Match": again.headers["etag"]}, json={"title": "y"})

    assert again.status_code == 200
    assert len(again.json()["active_tasks"]) == 1
    assert again.json()["version"] == before.json()["version"]
    assert patched.status_code == 200
    assert code(stale) == (409, "version_conflict")


async def test_large_json_is_compressed_for_clients_that_can_read_it(door: Door) -> None:
    await _fill(door, 50)
    address = f"{BASE}{at('s', 'messages')}"

    plain = await door.http.get(address, headers=PLAIN)
    packed = await door.http.get(address, headers=GZIP)
    refused = await door.http.get(address, headers={**ANN, "Accept-Encoding": "gzip;q=0"})
    small = await door.http.get("/v1/stats", headers=GZIP)

    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) * 5 < int(plain.headers["content-length"])
    assert packed.headers["etag"] == plain.headers["etag"]
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in {**refused.headers, **small.headers}


async def test_streams_are_not_compressed(door: Door) -> None:
    async with door.http.stream("POST", "/v1/chat", headers=GZIP, json={"message": "Hi", "stream": True}) as events:
        assert "content-encoding" not in events.headers
        assert (await anext(events.aiter_lines())).startswith("id:")


async def test_unknown_parameters_are_refused_where_a_route_has_none(door: Door) -> None:
    known = await door.http.get("/v1/stats", headers=ANN, params={"tenant_id": "acme"})
    refusals: list[httpx.Response] = [
        await door.http.get("/v1/stats", headers=ANN, params={"colour": "red"}),
        await door.http.get(at("s"), headers=ANN, params={"limit": 3}),
        await door.http.post(at("s", "reset"), headers=ANN, params={"force": "yes"}),
    ]

    assert known.status_code == 200
    assert [code(refusal) for refusal in refusals] == [(400, "invalid")] * 3
    assert "colour" in refusals[0].json()["detail"]
    # Probes and caches add what they like.
    assert (await door.http.get("/healthz", params={"t": 1})).status_code == 200
