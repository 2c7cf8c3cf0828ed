"""The official MCP client on both of our transports, in both eras of the protocol."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import tenuto
from tenuto.context import TokenCounter
from tenuto.model import Draft
from tests.attachments import PDF, PNG, WAV, base64
from tests.journeys.http_service import ANN, BASE, EVE, HttpService, code, http_service
from tests.journeys.terminal import own_settings

ERAS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


@asynccontextmanager
async def client(service: HttpService, headers: dict[str, str], mode: str = "auto") -> AsyncIterator[Client]:
    """A client of the server behind the door."""
    transport = httpx2.ASGITransport(app=service.app)
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers) as http,
        Client(streamable_http_client(f"{BASE}/mcp", http_client=http), mode=mode) as opened,
    ):
        yield opened


async def call(opened: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers."""
    result = await opened.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refusal(opened: Client, tool: str, **arguments: Any) -> str:
    """What a tool says that refuses."""
    result = await opened.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)  # type: ignore[union-attr]


async def _live_a_day(ann: Client) -> str:
    """Use every tool once; returns the session."""
    session = (await call(ann, "create_session", title="Lisbon"))["id"]
    asked = {"session_id": session, "text": "Where do I live?", "idempotency_key": "1"}
    assert [(await call(ann, "append_message", **asked))["duplicate"] for _ in range(2)] == [False, True]
    await call(ann, "append_message", session_id=session, content="In Bologna.", role="assistant")
    for wrong in ({}, {"text": "", "content": ""}, {"text": "one", "content": "other"}):
        assert (await refusal(ann, "append_message", session_id=session, **wrong)).startswith("invalid: ")
    history = await call(ann, "get_history", session_id=session, limit=1)
    assert [one["text"] for one in history["messages"]] == ["In Bologna."]
    assert history["more_before"]
    (found,) = (await call(ann, "search_sessions", query="Bologna"))["found"]
    assert (found["session"]["id"], found["matches"][0]["excerpt"]) == (session, "In Bologna.")
    await call(ann, "remember", text="I live in Bologna with my two cats.", subject="home town")
    context = await call(ann, "assemble_context", session_id=session)
    assert [one["text"] for one in context["messages"]] == ["Where do I live?", "In Bologna."]
    assert [one["text"] for one in context["memories"]] == ["I live in Bologna with my two cats."]
    assert context["cut"] == []
    hits = (await call(ann, "search_memory", query="cats", mmr_lambda=1))["hits"]
    assert hits[0]["score"] == pytest.approx(sum(hits[0]["scores"].values()))
    # What was appended is no memory, and the tools say so.
    assert (await call(ann, "search_memory", query="Where do I live?", kinds=["episode"]))["hits"] == []
    texts = {tool.name: tool.description or "" for tool in (await ann.list_tools()).tools}
    assert all("append_message" in texts[name] for name in ("search_memory",))
    assert "search_memory" in texts["append_message"]
    assert (await call(ann, "forget", ids=[hits[0]["memory"]["id"]]))["forgotten"] == 1
    assert (await call(ann, "list_sessions", limit=1))["sessions"][0]["id"] == session
    task = (await call(ann, "open_task", type="trip", session_id=session))["id"]
    entry = {"task_id": task, "key": "hotel", "agent": "booker"}
    await call(ann, "write_board", **entry, value={"stars": [4, 5]}, if_version=0)
    assert (await refusal(ann, "write_board", **entry, value=1, if_version=0)).startswith("version_conflict: ")
    assert (await call(ann, "read_board", task_id=task))["entries"][0]["value"] == {"stars": [4, 5]}
    assert (await refusal(ann, "read_board", task_id=task, key="flight")).startswith("entry_not_found: ")
    listed = (await ann.list_resources()).resources
    assert [(one.uri, one.title) for one in listed] == [(f"session://{session}", "Lisbon")]
    templates = (await ann.list_resource_templates()).resource_templates
    assert [one.uri_template for one in templates] == ["session://{id}"]
    assert "In Bologna." in (await ann.read_resource(f"session://{session}")).contents[0].text  # type: ignore[union-attr]
    return str(session)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_of_either_era_keeps_a_conversation(mode: str) -> None:
    async with http_service() as service, client(service, ANN, mode) as ann:
        assert ann.protocol_version == ERAS[mode]
        await _live_a_day(ann)
        listed = (await ann.list_tools()).tools

    schemas = {tool.name: tool.output_schema for tool in listed if tool.description and tool.output_schema}
    assert schemas.keys() == {tool.name for tool in listed}
    fields = [part for schema in schemas.values() for part in schema["properties"].values()]
    assert all(part["description"] for part in fields), fields


async def test_a_search_that_is_switched_off_is_no_tool() -> None:
    async with http_service(session_search=False) as service, client(service, ANN, "auto") as ann:
        listed = {tool.name for tool in (await ann.list_tools()).tools}
        refused = await refusal(ann, "search_sessions", query="Bologna")

    assert ("search_sessions" in listed, "list_sessions" in listed) == (False, True)
    assert refused.startswith("not_found: ")


@pytest.mark.requirement("T1")
async def test_another_tenant_and_wrong_arguments_get_the_same_answers_as_nothing() -> None:
    """What is another tenant's looks absent to every tool; requests without a credential get nowhere."""
    async with http_service(locked=True) as service:
        ours, theirs = await service.key("acme", user="ann"), await service.key("evil", user="ann")
        async with client(service, ours) as ann, client(service, theirs) as eve:
            session = (await call(ann, "create_session"))["id"]
            memory = (await call(ann, "remember", text="I live in Bologna."))["id"]
            task = (await call(ann, "open_task", type="trip"))["id"]
            for name, there in {
                "append_message": {"session_id": session, "text": "hi"},
                "get_history": {"session_id": session},
                "assemble_context": {"session_id": session},
                "open_task": {"type": "trip", "session_id": session},
                "read_board": {"task_id": task},
                "write_board": {"task_id": task, "key": "k", "value": 1, "agent": "a"},
            }.items():
                absent = {key: f"no-{value}" if key.endswith("_id") else value for key, value in there.items()}
                assert await refusal(eve, name, **there) == await refusal(eve, name, **absent)
            assert (await call(eve, "forget", ids=[memory]))["forgotten"] == 0
            assert (await call(eve, "search_memory", query="Bologna"))["hits"] == []
            assert (await call(eve, "list_sessions"))["sessions"] == []
            assert (await eve.list_resources()).resources == []
            with pytest.raises(MCPError, match="invalid_cursor"):
                await eve.list_resources(cursor="none of ours")
            odd = (await call(eve, "create_session", id="a/b c?é#"))["id"]
            (listed,) = (await eve.list_resources()).resources
            assert odd in (await eve.read_resource(listed.uri)).contents[0].text  # type: ignore[union-attr]
            for uri in (f"session://{session}", "session://no-such"):
                with pytest.raises(MCPError, match=r"^session_not_found: session not found$"):
                    await eve.read_resource(uri)
            wrong = await refusal(eve, "get_history", session_id=session, limit="many")
            assert re.fullmatch(r"invalid: limit: Input should be a valid integer[^:]*", wrong)
            assert (await refusal(eve, "get_history")).startswith("invalid: session_id: ")
            assert (await refusal(eve, "no_such_tool")).startswith("not_found: ")

        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accept = {"Accept": "application/json, text/event-stream"}
        assert code(await service.http.post("/mcp", json=ping, headers=accept)) == (401, "invalid_credential")
        assert code(await service.http.get("/mcp", headers=ours)) == (405, "method_not_allowed")
        for body in (b"", b"{", b"[]", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 100_000):
            response = await service.http.post(
                "/mcp", content=body, headers={**ours, **accept, "Content-Type": "application/json"}
            )
            assert response.status_code == 400


async def test_a_message_is_counted_beside_the_loop_and_only_if_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    count, counted = TokenCounter.with_count, list[bool]()

    def watch(counter: TokenCounter, draft: Draft) -> Draft:
        counted.append(threading.current_thread() is threading.main_thread())
        return count(counter, draft)

    monkeypatch.setattr(TokenCounter, "with_count", watch)
    async with http_service(max_message_bytes=1024) as service, client(service, ANN) as ann:
        session = (await call(ann, "create_session"))["id"]
        refused = await refusal(ann, "append_message", session_id=session, text="x" * 1025)
        assert counted == []
        await call(ann, "append_message", session_id=session, text="x")

    assert "too_large" in refused
    assert counted == [False]


async def test_web_pages_reach_no_open_server() -> None:
    async with http_service() as service:
        for header in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            response = await service.http.post("/mcp", json={}, headers={**EVE, **header})
            assert code(response) == (403, "host_not_allowed")


async def test_the_command_speaks_on_standard_output_and_keeps_what_was_said(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "tenuto", "mcp", "--user", "ann", "--store", store], env=own_settings()
    )
    async with Client(command) as ann:
        session = await _live_a_day(ann)

    async with tenuto.open(store) as app:
        kept = await app.sessions.messages(app.scope(user="ann"), session)
    assert [message.text for message in kept.messages] == ["Where do I live?", "In Bologna."]


async def test_memory_tools_refuse_a_caller_without_a_user_and_recall_nothing() -> None:
    async with http_service(embedder="none") as service, client(service, {}) as nobody:
        session = (await call(nobody, "create_session"))["id"]
        await call(nobody, "append_message", session_id=session, text="Where do I live?")
        asked: dict[str, dict[str, Any]] = {
            "remember": {"text": "I live in Bologna."},
            "search_memory": {"query": "Where do I live?"},
            "forget": {"ids": ["some"]},
        }
        refused = [await refusal(nobody, tool, **arguments) for tool, arguments in asked.items()]
        context = await call(nobody, "assemble_context", session_id=session)

    assert all(text.startswith("invalid: memories belong to a user") for text in refused)
    assert context["memories"] == []


async def test_attachments_are_stored_and_read_as_blocks_of_the_protocol() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "image", "data": base64(PNG), "mimeType": "image/png"},
        {"type": "audio", "data": base64(WAV), "mimeType": "audio/wav"},
        {
            "type": "resource",
            "resource": {"uri": "file:///home/a%20b.pdf", "mimeType": "application/pdf", "blob": base64(PDF)},
        },
        {"type": "resource", "resource": {"uri": "memo://today", "text": "Wörter"}},
        {"type": "resource_link", "uri": "https://example.com/tea.png", "name": "tea", "mimeType": "image/png"},
    ]
    async with http_service() as service, client(service, ANN) as ann, client(service, EVE) as eve:
        session = (await call(ann, "create_session"))["id"]
        sent = await call(ann, "append_message", session_id=session, text="look", attachments=blocks)
        alone = await call(ann, "append_message", session_id=session, attachments=blocks[:1])
        parts = sent["message"]["parts"]
        asked = [{"session_id": session, "id": part["attachment"]} for part in parts[:4]]
        read = [await ann.call_tool("get_attachment", one) for one in asked]
        foreign = await refusal(eve, "get_attachment", **asked[0])
        refused = [
            await refusal(ann, "append_message", session_id=session, text="x", attachments=[wrong])
            for wrong in (
                {"type": "text", "text": "x"},
                {"type": "resource"},
                {"type": "image", "data": "no base64!", "mimeType": "image/png"},
                {"type": "image", "data": base64(PDF), "mimeType": "image/png"},
                {"type": "image", "data": base64(PNG), "mimeType": "no type"},
                {"type": "resource_link", "uri": "file:///etc/passwd", "name": "x"},
                {"type": "resource", "resource": {"uri": "a://b", "blob": ""}},
            )
        ]

    assert [part["type"] for part in parts] == ["image", "audio", "file", "file", "image"]
    assert [part.get("name") for part in parts] == [None, None, "a b.pdf", None, "tea"]
    assert alone["message"]["parts"][0]["attachment"] == parts[0]["attachment"]
    assert [dumped(one)["type"] for one in read] == ["image", "audio", "resource", "resource"]
    held = [dumped(one).get("data") or dumped(one)["resource"]["blob"] for one in read]
    assert held == [base64(data) for data in (PNG, WAV, PDF, "Wörter".encode())]
    assert [(one.structured_content or {})["size"] for one in read] == [len(PNG), len(WAV), len(PDF), 7]
    assert foreign.startswith("session_not_found: ")
    fields = ("type", "resource", "data", "data", "mimeType", "uri", "resource.blob")
    assert [text.split(": ")[1] for text in refused] == [f"attachments[0].{field}" for field in fields]


def dumped(result: Any) -> dict[str, Any]:
    """The block of an attachment, as it is sent."""
    block: dict[str, Any] = result.content[1].model_dump(by_alias=True)
    return block
