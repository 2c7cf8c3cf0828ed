"""The OpenAI SDK, unmodified, on conversations, items, models and embeddings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tenuto.sessions import Sessions
from tests.journeys.http_service import bearer
from tests.journeys.openai_clients import OpenAIService, openai_served

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is my order?"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be short."}]},
    {"type": "reasoning", "id": "rs_mine", "summary": [], "encrypted_content": "xyz"},
    {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": "{}", "id": "fc_mine"},
    {"type": "function_call_output", "call_id": "call_1", "output": "on its way"},
    {"role": "assistant", "content": "It is on its way.", "phase": "final_answer"},
    {"type": "of_tomorrow", "id": "x_1", "deep": {"er": [1, 2.5, None]}},
]

BROKEN = [("user", "tool_call"), ("tool", "tool_result")]


@pytest.fixture
async def openai_service() -> AsyncIterator[OpenAIService]:
    async with openai_served(embedder="local") as opened:
        yield opened


@pytest.mark.requirement("T19")
async def test_items_come_back_whole_and_can_be_sent_again(openai_service: OpenAIService) -> None:
    """Unknown types and fields are kept; what is read back is accepted as input."""
    ann = openai_service.ann
    conversation = await ann.conversations.create(items=[], metadata={"topic": "order"})
    stored = await ann.conversations.items.create(conversation.id, items=ITEMS)  # type: ignore[arg-type]

    raw = [item.to_dict() for item in stored.data]
    assert [item["type"] for item in raw] == ["message" if "role" in item else item["type"] for item in ITEMS]
    assert raw[0] | {"id": ""} == {
        "id": "",
        "type": "message",
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_text", "text": "Where is my order?"}],
    }
    assert raw[5]["content"] == [
        {"type": "output_text", "text": "It is on its way.", "annotations": [], "logprobs": []}
    ]
    for sent, got in zip(ITEMS, raw, strict=True):
        assert (
            got.items() >= {**sent, "content": got.get("content")}.items()
            if "role" in sent
            else sent == {name: got[name] for name in sent}
        )
    again = await ann.conversations.create(items=raw)  # type: ignore[arg-type]
    listed = [item async for item in ann.conversations.items.list(again.id, order="asc", limit=2)]
    assert [item.to_dict() for item in listed] == raw
    newest = [item.id async for item in ann.conversations.items.list(again.id, limit=3)]
    assert newest == [item["id"] for item in reversed(raw)]


async def test_every_item_has_an_id_of_its_own(openai_service: OpenAIService) -> None:
    """Also where a client sends one twice, or one that is none: pages go on behind an id."""
    ann = openai_service.ann
    said = [{"role": "user", "content": f"{n}", "type": "message", "id": name} for n, name in enumerate(["m", "m", ""])]
    conversation = (await ann.conversations.create(items=said)).id  # type: ignore[arg-type]
    await ann.conversations.items.create(conversation, items=said)  # type: ignore[arg-type]
    first = await ann.responses.create(input=said[:1], conversation=conversation)  # type: ignore[arg-type]
    await ann.responses.create(input=said[:1], previous_response_id=first.id)  # type: ignore[arg-type]
    for talk in await _conversations(openai_service):
        ids = [item.id async for item in ann.conversations.items.list(talk, limit=1, order="asc")]
        assert len(ids) == len(set(ids)) >= 8
        assert all(ids)
        assert "m" in ids


async def test_a_conversation_is_changed_listed_and_removed(openai_service: OpenAIService) -> None:
    ann, http = openai_service.ann, openai_service.service.http
    made = [await ann.conversations.create(metadata={"n": str(n), "old": "x"}) for n in range(3)]
    first = made[0].id
    changed = await ann.conversations.update(first, metadata={"n": "0", "new": "y"})
    assert changed.metadata == {"n": "0", "new": "y"}
    assert (await ann.conversations.retrieve(first)).metadata == {"n": "0", "new": "y"}
    page = (await http.get("/v1/conversations?limit=2", headers=bearer(openai_service.key))).json()
    rest = (await http.get(f"/v1/conversations?after={page['last_id']}", headers=bearer(openai_service.key))).json()
    assert {one["id"] for one in (*page["data"], *rest["data"])} == {one.id for one in made}
    assert (page["has_more"], rest["has_more"]) == (True, False)

    await ann.conversations.items.create(first, items=ITEMS)  # type: ignore[arg-type]
    answered = await ann.conversations.items.delete("fc_mine", conversation_id=first)
    assert (answered.id, answered.object) == (first, "conversation")
    left = [item.id async for item in ann.conversations.items.list(first, order="asc")]
    assert len(left) == len(ITEMS) - 1
    assert "fc_mine" not in left
    assert (await ann.conversations.items.retrieve("rs_mine", conversation_id=first)).type == "reasoning"
    with pytest.raises(openai.NotFoundError):
        await ann.conversations.items.retrieve("fc_mine", conversation_id=first)

    assert (await ann.conversations.delete(first)).deleted
    with pytest.raises(openai.NotFoundError):
        await ann.conversations.retrieve(first)


async def test_two_removals_from_one_message_do_not_undo_each_other(
    openai_service: OpenAIService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client removes its item between the read and the write of the first one; ids of the rest stay."""
    ann, http = openai_service.ann, openai_service.service.http
    made = (await ann.conversations.create()).id
    calls = [{"type": "tool_call", "id": f"c{n}", "name": "find", "arguments": {}} for n in range(4)]
    said = {"messages": [{"role": "assistant", "parts": calls}]}
    await http.post(f"/v1/sessions/{made}/messages", json=said, headers=bearer(openai_service.key))
    ids = [str(item.id) async for item in ann.conversations.items.list(made, order="asc")]
    rewrite = Sessions.rewrite

    async def overtaken(*asked: Any) -> Any:
        monkeypatch.undo()
        await ann.conversations.items.delete(ids[1], conversation_id=made)
        return await rewrite(*asked)

    monkeypatch.setattr(Sessions, "rewrite", overtaken)
    await ann.conversations.items.delete(ids[0], conversation_id=made)

    left = [item async for item in ann.conversations.items.list(made, order="asc")]
    assert [(item.id, getattr(item, "call_id", "")) for item in left] == [(ids[2], "c2"), (ids[3], "c3")]


async def test_a_malformed_part_harms_no_listing(openai_service: OpenAIService) -> None:
    """However it was stored, every reader still shows the conversation; the routes of OpenAI refuse it."""
    ann, http, key = openai_service.ann, openai_service.service.http, bearer(openai_service.key)
    broken: Any = [{"role": role, "content": [{"type": kind}]} for role, kind in BROKEN]
    with pytest.raises(openai.BadRequestError, match=r"items\[0\]\.content\[0\]\.type"):
        await ann.conversations.create(items=broken)
    made = await ann.conversations.create()
    parts = [{"role": role, "parts": [{"type": kind}]} for role, kind in BROKEN]
    stored = await http.post(f"/v1/sessions/{made.id}/messages", json={"messages": parts}, headers=key)
    run = {"threadId": made.id, "runId": "r", "messages": []}
    shown = [
        await http.get(f"/v1/ai-sdk/chat/{made.id}", headers=key),
        await http.post("/v1/ag-ui/general", json=run, headers=key),
    ]

    assert stored.is_success, stored.text
    assert len([item async for item in ann.conversations.items.list(made.id)]) == 2
    assert [one.status_code for one in shown] == [200, 200]
    assert "RUN_ERROR" not in shown[1].text


async def test_a_lost_answer_sent_again_with_its_key_stores_once(openai_service: OpenAIService) -> None:
    ann, key = openai_service.ann, {"Idempotency-Key": "k-1"}
    item: Any = {"role": "user", "content": "once"}
    made = [await ann.conversations.create(items=[item], extra_headers=key) for _ in range(2)]
    stored = [await ann.conversations.items.create(made[0].id, items=[item], extra_headers=key) for _ in range(2)]

    assert made[0] == made[1]
    assert stored[0].data == stored[1].data
    assert len([each async for each in ann.conversations.items.list(made[0].id)]) == 2
    with pytest.raises(openai.ConflictError) as excinfo:
        await ann.conversations.items.create(made[0].id, items=[item, item], extra_headers=key)
    assert excinfo.value.response.headers["x-should-retry"] == "false"


async def test_models_are_assistants_and_embeddings_have_both_forms(openai_service: OpenAIService) -> None:
    """With the synchronous client, as most programs begin."""

    def use() -> None:
        with OpenAI(base_url=openai_service.base_url, api_key=openai_service.key, max_retries=0) as client:
            assert "general" in {model.id for model in client.models.list()}
            assert client.models.retrieve("general").object == "model"
            with pytest.raises(openai.NotFoundError) as excinfo:
                client.models.retrieve("gpt-9")
            assert excinfo.value.code == "model_not_found"
            texts = ["one", "two " * 400]
            packed = client.embeddings.create(model="any", input=texts).data
            plain = client.embeddings.create(model="any", input=texts, encoding_format="float").data
            assert [len(one.embedding) for one in packed] == [512, 512]
            assert [one.embedding for one in packed] == [one.embedding for one in plain]
            with pytest.raises(openai.BadRequestError) as tokens:
                client.embeddings.create(model="any", input=[[1, 2]])
            assert tokens.value.param == "input"

    await asyncio.to_thread(use)


@pytest.mark.requirement("A7", "T1")
async def test_a_foreign_conversation_is_not_found_on_any_route(
    openai_service: OpenAIService, subtests: pytest.Subtests
) -> None:
    """The same answer as for one that does not exist."""
    made = await openai_service.ann.conversations.create(items=[ITEMS[2]])  # type: ignore[list-item]
    asking: dict[str, Callable[[AsyncOpenAI, str], Awaitable[object]]] = {
        "retrieve": lambda client, name: client.conversations.retrieve(name),
        "update": lambda client, name: client.conversations.update(name, metadata={"a": "b"}),
        "items": lambda client, name: client.conversations.items.create(name, items=[ITEMS[0]]),  # type: ignore[list-item]
        "list": _list_items,
        "item": lambda client, name: client.conversations.items.retrieve("rs_mine", conversation_id=name),
        "delete item": lambda client, name: client.conversations.items.delete("rs_mine", conversation_id=name),
        "delete": lambda client, name: client.conversations.delete(name),
    }
    for wanted, ask in asking.items():
        with subtests.test(wanted):
            bodies = []
            for name in (made.id, "conv_absent"):
                with pytest.raises(openai.NotFoundError) as excinfo:
                    await ask(openai_service.eve, name)
                bodies.append(excinfo.value.response.content)
            assert bodies[0] == bodies[1]
    assert len([item async for item in openai_service.ann.conversations.items.list(made.id)]) == 1


async def test_errors_have_openais_shape(openai_service: OpenAIService) -> None:
    http, known = openai_service.service.http, bearer(openai_service.key)
    wrong = await http.post("/v1/conversations", headers=known, json={"metadata": {"k": "v" * 513}})
    assert wrong.status_code == 400
    assert wrong.json()["error"] | {"message": ""} == {
        "message": "",
        "type": "invalid_request_error",
        "param": "metadata",
        "code": "invalid",
    }
    large = await http.post("/v1/conversations", headers=known, json={"items": [{**ITEMS[0], "content": "x" * 2**21}]})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")
    assert await _conversations(openai_service) == []
    for method, path, kind in (
        ("GET", "/v1/responses/a/b", "not_found"),
        ("PUT", "/v1/chat/completions", "method_not_allowed"),
    ):
        assert (await http.request(method, path, headers=known)).json()["error"]["code"] == kind
    unknown = await http.get("/v1/models", headers=bearer("nonsense"))
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (401, "invalid_api_key")
    assert unknown.headers["www-authenticate"] == "Bearer"
    assert unknown.headers["x-request-id"]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "narrator", "content": "Rain."}, "messages[0].role"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "tool", "tool_call_id": "call_1", "content": "12"}, "messages[0].tool_call_id"),
    ],
)
async def test_a_completion_refuses_messages_that_no_prompt_would_show(
    openai_service: OpenAIService, message: dict[str, object], field: str
) -> None:
    sent = {"model": "general", "messages": [message, {"role": "user", "content": "Hi"}]}
    response = await openai_service.service.http.post(
        "/v1/chat/completions", headers=bearer(openai_service.key), json=sent
    )

    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(f"{field}: ")


async def _conversations(opened: OpenAIService) -> list[str]:
    page = (await opened.service.http.get("/v1/conversations", headers=bearer(opened.key))).json()
    return [one["id"] for one in page["data"]]


async def _list_items(client: AsyncOpenAI, name: str) -> object:
    return [item async for item in client.conversations.items.list(name)]
