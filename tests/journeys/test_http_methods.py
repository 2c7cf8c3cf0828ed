"""HTTP as its clients expect it: HEAD, Allow, unchanged answers, compressed ones, parameters that nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tenuto.server.openapi import document
from tests.journeys.http_service import ANN, BASE, BOB, HttpService, at, code, http_service, says

PLAIN = {**ANN, "Accept-Encoding": "identity"}
GZIP = {**ANN, "Accept-Encoding": "br, gzip;q=0.8"}


@pytest.fixture
async def service() -> AsyncIterator[HttpService]:
    async with http_service() as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        yield service


async def _fill(service: HttpService, count: int) -> None:
    said = [says(f"I said {n} things about the red boat.") for n in range(count)]
    (await service.http.post(at("s", "messages"), headers=ANN, json={"messages": said})).raise_for_status()


async def test_head_answers_like_get_without_the_body(service: HttpService) -> None:
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
        got = await service.http.get(address, headers=PLAIN)
        head = await service.http.head(address, headers=PLAIN)
        differing = {"x-request-id", "date"}
        assert (head.status_code, head.content) == (got.status_code, b""), address
        assert {**head.headers, **dict.fromkeys(differing)} == {**got.headers, **dict.fromkeys(differing)}, address
    assert (await service.http.head(at("none"), headers=ANN)).status_code == 404
    assert (await service.http.head(at("s"), headers=BOB)).status_code == 404


async def test_head_of_a_stream_ends_at_once(service: HttpService) -> None:
    async with asyncio.timeout(5):
        head = await service.http.head("/v1/events", headers=ANN)

    assert head.status_code == 200
    assert head.headers["content-type"].startswith("text/event-stream")
    assert not service.app.state.session_events._streams


async def test_every_get_answers_head_and_allow_names_all_methods(service: HttpService) -> None:
    for path, operations in document(service.app)["paths"].items():
        methods = {method.upper() for method in operations} | ({"HEAD"} if "get" in operations else set())
        response = await service.http.request("TRACE", path.translate({ord("{"): None, ord("}"): None}), headers=ANN)
        assert response.status_code == 405
        # A fixed address may fit a pattern beside it as well.
        assert methods <= set(response.headers["allow"].split(", ")), path


@pytest.mark.parametrize("address", ["/v1/sessions", at("s"), at("s", "messages"), "/v1/stats", "/v1/tasks"])
async def test_an_unchanged_answer_is_not_sent_again(service: HttpService, address: str) -> None:
    first = await service.http.get(address, headers=ANN)
    tag = first.headers["etag"]

    same = await service.http.get(address, headers={**ANN, "If-None-Match": f'"other", {tag}'})
    any_ = await service.http.get(address, headers={**ANN, "If-None-Match": "*"})
    other = await service.http.get(address, headers={**ANN, "If-None-Match": '"other"'})

    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert "content-length" not in same.headers or same.headers["content-length"] == "0"
    assert (any_.status_code, other.status_code) == (304, 200)


async def test_what_stands_beside_a_session_changes_its_tag_and_not_its_version(service: HttpService) -> None:
    before = await service.http.get(at("s"), headers=ANN)
    await service.http.post("/v1/tasks", headers=ANN, json={"type": "t", "session_id": "s"})

    again = await service.http.get(at("s"), headers={**ANN, "If-None-Match": before.headers["etag"]})
    patched = await service.http.patch(at("s"), headers={**ANN, "If-Match": again.headers["etag"]}, json={"title": "x"})
    stale = await service.http.patch(at("s"), headers={**ANN, "If-Match": again.headers["etag"]}, json={"title": "y"})

    assert again.status_code == 200
    assert len(again.json()["active_tasks"]) == 1
    assert again.json()["version"] == before.json()["version"]
    assert patched.status_code == 200
    assert code(stale) == (409, "version_conflict")


async def test_large_json_is_compressed_for_clients_that_can_read_it(service: HttpService) -> None:
    await _fill(service, 50)
    address = f"{BASE}{at('s', 'messages')}"

    plain = await service.http.get(address, headers=PLAIN)
    packed = await service.http.get(address, headers=GZIP)
    response = await service.http.get(address, headers={**ANN, "Accept-Encoding": "gzip;q=0"})
    small = await service.http.get("/v1/stats", headers=GZIP)

    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) * 5 < int(plain.headers["content-length"])
    assert packed.headers["etag"] == plain.headers["etag"]
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in {**response.headers, **small.headers}


async def test_streams_are_not_compressed(service: HttpService) -> None:
    async with service.http.stream("POST", "/v1/chat", headers=GZIP, json={"message": "Hi", "stream": True}) as events:
        assert "content-encoding" not in events.headers
        assert (await anext(events.aiter_lines())).startswith("id:")


async def test_unknown_parameters_are_refused_where_a_route_has_none(service: HttpService) -> None:
    response = await service.http.get("/v1/stats", headers=ANN, params={"tenant_id": "acme"})
    refusals: list[httpx.Response] = [
        await service.http.get("/v1/stats", headers=ANN, params={"colour": "red"}),
        await service.http.get(at("s"), headers=ANN, params={"limit": 3}),
        await service.http.post(at("s", "reset"), headers=ANN, params={"force": "yes"}),
    ]

    assert response.status_code == 200
    assert [code(refusal) for refusal in refusals] == [(400, "invalid")] * 3
    assert "colour" in refusals[0].json()["detail"]
    # Probes and caches add what they like.
    assert (await service.http.get("/healthz", params={"t": 1})).status_code == 200
