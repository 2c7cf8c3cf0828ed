"""Export and import over HTTP: what leaves comes back whole, in every format."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.journeys.door import ANN, BOB, Door, at, code, says, served

TRICKY = "a --> b <!-- tenuto {} --> \u2028 end\n\n# not a heading"


@pytest.fixture
async def door(store_url: str) -> AsyncIterator[Door]:
    async with served(store=store_url) as door:
        await door.http.post(
            "/v1/sessions", headers=ANN, json={"id": "s", "title": "Lisbon -- 你好", "attributes": {"n": 1.0}}
        )
        yield door


async def _talk(door: Door, messages: int) -> None:
    body = {
        "messages": [says(f"{TRICKY} {number}", extra_field=number / 2) for number in range(messages)],
        "usage": {"tokens": 9, "cost_usd": "0.25"},
    }
    await door.http.post(at("s", "messages"), headers=ANN, json=body)


@pytest.mark.parametrize(
    ("written", "media", "name"),
    [
        ("json", "application/json", "session.json"),
        ("jsonl", "application/x-ndjson", "session.jsonl"),
        ("markdown", "text/markdown; charset=utf-8", "session.md"),
    ],
)
async def test_what_is_exported_can_be_imported(door: Door, written: str, media: str, name: str) -> None:
    """More messages than one page, so that the export is pieced together."""
    await _talk(door, 450)

    paper = await door.http.get(at("s", "export"), params={"format": written}, headers=ANN)
    made = await door.http.post("/v1/sessions/import", headers=BOB, content=paper.content)
    copy = await door.http.get(f"{made.headers['location']}/messages?limit=1000", headers=BOB)
    original = await door.http.get(at("s", "messages") + "?limit=1000", headers=ANN)

    assert (paper.status_code, made.status_code) == (200, 201)
    assert paper.headers["content-type"] == media
    assert paper.headers["content-disposition"] == f'attachment; filename="{name}"'
    kept = ("title", "attributes", "tokens", "cost_usd", "message_count")
    source = (await door.http.get(at("s"), headers=ANN)).json()
    assert {field: made.json()[field] for field in kept} == {field: source[field] for field in kept}
    assert (made.json()["user"], made.json()["id"] != "s") == ("bob", True)
    assert [_without_place(message) for message in copy.json()["messages"]] == [
        _without_place(message) for message in original.json()["messages"]
    ]


def _without_place(message: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in message.items() if name not in ("seq", "turn")}


async def test_json_is_the_default_and_is_json(door: Door) -> None:
    await _talk(door, 3)

    paper = msgspec.json.decode((await door.http.get(at("s", "export"), headers=ANN)).content)

    assert (paper["format"], paper["version"], len(paper["messages"])) == ("tenuto.session", 1, 3)


async def test_an_empty_session_is_exported_too(door: Door) -> None:
    for written in ("json", "jsonl", "markdown"):
        paper = await door.http.get(at("s", "export"), params={"format": written}, headers=ANN)
        made = await door.http.post("/v1/sessions/import", headers=ANN, content=paper.content)
        assert (made.status_code, made.json()["message_count"]) == (201, 0)


async def test_a_groups_session_does_not_become_one_members_own(door: Door) -> None:
    room = {"X-Tenant-ID": "acme", "X-Channel": "lark", "X-Chat-ID": "c1"}
    await door.http.post("/v1/sessions", headers={**room, **ANN}, json={"id": "room"})
    saved = (await door.http.get(at("room", "export"), headers={**room, **ANN})).content

    refused = await door.http.post("/v1/sessions/import", headers=ANN, content=saved)
    by_chat = await door.http.post("/v1/sessions/import", headers={**room, **BOB}, content=saved)
    by_tenant = await door.http.post("/v1/sessions/import", headers={"X-Tenant-ID": "acme"}, content=saved)

    assert code(refused) == (400, "invalid")
    for imported in (by_chat, by_tenant):
        assert (imported.status_code, imported.json()["chat"]) == (201, "c1")
        assert (await door.http.get(at(imported.json()["id"]), headers={**room, **BOB})).status_code == 200
        assert (await door.http.get(at(imported.json()["id"]), headers=ANN)).status_code == 404
