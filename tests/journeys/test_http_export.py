"""Export and import over HTTP: what leaves comes back whole, in every format."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.journeys.http_service import ANN, BOB, HttpService, at, code, http_service, says

TRICKY = "a --> b <!-- tenuto {} --> \u2028 end\n\n# not a heading"


@pytest.fixture
async def service(store_url: str) -> AsyncIterator[HttpService]:
    async with http_service(store=store_url) as service:
        await service.http.post(
            "/v1/sessions", headers=ANN, json={"id": "s", "title": "Lisbon -- 你好", "attributes": {"n": 1.0}}
        )
        yield service


async def _talk(service: HttpService, messages: int) -> None:
    body = {
        "messages": [says(f"{TRICKY} {number}", extra_field=number / 2) for number in range(messages)],
        "usage": {"tokens": 9, "cost_usd": "0.25"},
    }
    await service.http.post(at("s", "messages"), headers=ANN, json=body)


@pytest.mark.parametrize(
    ("written", "media", "name"),
    [
        ("json", "application/json", "session.json"),
        ("jsonl", "application/x-ndjson", "session.jsonl"),
        ("markdown", "text/markdown; charset=utf-8", "session.md"),
    ],
)
async def test_what_is_exported_can_be_imported(service: HttpService, written: str, media: str, name: str) -> None:
    """More messages than one page, so that the export is pieced together."""
    await _talk(service, 450)

    paper = await service.http.get(at("s", "export"), params={"format": written}, headers=ANN)
    response = await service.http.post("/v1/sessions/import", headers=BOB, content=paper.content)
    copy = await service.http.get(f"{response.headers['location']}/messages?limit=1000", headers=BOB)
    original = await service.http.get(at("s", "messages") + "?limit=1000", headers=ANN)

    assert (paper.status_code, response.status_code) == (200, 201)
    assert paper.headers["content-type"] == media
    assert paper.headers["content-disposition"] == f'attachment; filename="{name}"'
    kept = ("title", "attributes", "tokens", "cost_usd", "message_count")
    source = (await service.http.get(at("s"), headers=ANN)).json()
    assert {field: response.json()[field] for field in kept} == {field: source[field] for field in kept}
    assert (response.json()["user"], response.json()["id"] != "s") == ("bob", True)
    assert [_without_place(message) for message in copy.json()["messages"]] == [
        _without_place(message) for message in original.json()["messages"]
    ]


def _without_place(message: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in message.items() if name not in ("seq", "turn")}


async def test_json_is_the_default_and_is_json(service: HttpService) -> None:
    await _talk(service, 3)

    paper = msgspec.json.decode((await service.http.get(at("s", "export"), headers=ANN)).content)

    assert (paper["format"], paper["version"], len(paper["messages"])) == ("tenuto.session", 1, 3)


async def test_an_empty_session_is_exported_too(service: HttpService) -> None:
    for written in ("json", "jsonl", "markdown"):
        paper = await service.http.get(at("s", "export"), params={"format": written}, headers=ANN)
        response = await service.http.post("/v1/sessions/import", headers=ANN, content=paper.content)
        assert (response.status_code, response.json()["message_count"]) == (201, 0)


async def test_a_groups_session_does_not_become_one_members_own(service: HttpService) -> None:
    room = {"X-Tenant-ID": "acme", "X-Channel": "lark", "X-Chat-ID": "c1"}
    await service.http.post("/v1/sessions", headers={**room, **ANN}, json={"id": "room"})
    saved = (await service.http.get(at("room", "export"), headers={**room, **ANN})).content

    response = await service.http.post("/v1/sessions/import", headers=ANN, content=saved)
    by_chat = await service.http.post("/v1/sessions/import", headers={**room, **BOB}, content=saved)
    by_tenant = await service.http.post("/v1/sessions/import", headers={"X-Tenant-ID": "acme"}, content=saved)

    assert code(response) == (400, "invalid")
    for imported in (by_chat, by_tenant):
        assert (imported.status_code, imported.json()["chat"]) == (201, "c1")
        assert (await service.http.get(at(imported.json()["id"]), headers={**room, **BOB})).status_code == 200
        assert (await service.http.get(at(imported.json()["id"]), headers=ANN)).status_code == 404
