"""What a model thought: stored, sent back to its provider as it came, shown, and never taken for what was said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenuto.model.privacy import Mode
from tests.chats import Adder
from tests.journeys.http_service import ANN, HttpService, at
from tests.journeys.scripted_providers import provided, thoughts_sent
from tests.providers import Answer, Reasoning, ScriptedProvider, Text, ToolCall

THINKERS = ("claude", "haiku", "bound", "gpt")
SUM = ToolCall("add", {"a": 1, "b": 2})


async def ask(service: HttpService, message: str, **fields: Any) -> dict[str, Any]:
    response = await service.http.post("/v1/chat", headers=ANN, json={"message": message, **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


async def streamed(service: HttpService, message: str, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a turn."""
    response = await service.http.post("/v1/chat", headers=ANN, json={"message": message, "stream": True, **fields})
    lines = [line for line in response.text.splitlines() if line.startswith(("event: ", "data: "))]
    names, data = lines[::2], lines[1::2]
    return [(name[7:], json.loads(each[6:])) for name, each in zip(names, data, strict=True)]


@pytest.mark.parametrize("assistant", THINKERS)
async def test_thoughts_go_back_between_calls_and_in_later_turns(provider: ScriptedProvider, assistant: str) -> None:
    """The provider refuses a request that drops, changes or reorders them."""
    provider.plays(
        Answer(Reasoning("I should", " add."), Text("Let me see. "), SUM),
        Answer(Reasoning("It is three."), Text("Three.")),
        Answer(Text("Bye.")),
    )
    async with provided(provider, Adder()) as service:
        first = await ask(service, "1 + 2?", assistant=assistant)
        second = await ask(service, "Thanks.", session_id=first["session_id"], assistant=assistant)
        trace = (await service.http.get(f"/v1/traces/{second['trace_id']}", headers=ANN)).json()

    assert (first["answer"], first["reasoning"]) == ("Three.", "It is three.")
    assert second["reasoning"] == ""
    assert trace["dropped_reasoning"] == 0
    assert thoughts_sent(provider) == ["I should add.", "It is three."]


@pytest.mark.parametrize("assistant", ["claude", "gpt"])
async def test_thoughts_survive_a_restart_and_go_along_with_a_fork(
    provider: ScriptedProvider, assistant: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    provider.plays(Answer(Reasoning("A thought."), Text("Hello.")), Answer(Text("Bye.")))
    async with provided(provider, store=store) as service:
        session = (await ask(service, "Hi", assistant=assistant))["session_id"]
    async with provided(provider, store=store) as service:
        fork = (await service.http.post(at(session, "fork"), headers=ANN, json={})).json()["id"]
        for each in (fork, session):
            await ask(service, "Bye", session_id=each, assistant=assistant)

            assert thoughts_sent(provider) == ["A thought."]


async def test_another_provider_is_not_sent_thoughts_and_the_trace_says_so(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Reasoning("A thought."), Text("Hello.")), Answer(Reasoning("Mine."), Text("Bye.")))
    async with provided(provider) as service:
        session = (await ask(service, "Hi", assistant="claude"))["session_id"]
        dropped = []
        for assistant in ("gpt", "haiku", "gpt", "chat"):
            reply = await ask(service, "Bye", session_id=session, assistant=assistant)
            trace = (await service.http.get(f"/v1/traces/{reply['trace_id']}", headers=ANN)).json()
            dropped.append((trace["dropped_reasoning"], "A thought." in str(provider.last.body)))

    assert dropped == [(1, False), (1, True), (2, False), (4, False)]


async def test_a_budget_of_thinking_pauses_behind_calls_of_another_provider(provider: ScriptedProvider) -> None:
    """Anthropic refuses to think behind calls that have no thoughts of its own."""
    tool = {"type": "function", "function": {"name": "add", "parameters": Adder.spec.parameters}}
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    talk = [
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]
    provider.plays(Answer(Reasoning("No."), Text("Three.")))
    async with provided(provider) as service:
        body = {"model": "haiku", "messages": talk, "tools": [tool]}
        response = await service.http.post("/v1/chat/completions", headers=ANN, json=body)

    assert response.json()["choices"][0]["message"]["content"] == "Three."
    assert "thinking" not in provider.last.body


async def test_thoughts_are_streamed_before_the_answer(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Reasoning("I ", "think."), Text("So ", "it is.")))
    async with provided(provider) as service:
        told = await streamed(service, "Why?", assistant="claude")

    assert [(name, data["text"]) for name, data in told if name in ("reasoning", "delta")] == [
        ("reasoning", "I "),
        ("reasoning", "think."),
        ("delta", "So "),
        ("delta", "it is."),
    ]


async def test_withheld_thoughts_are_shown_nowhere_and_go_back(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Reasoning("A secret plan."), Text("Hello.")), Answer(Text("Bye.")))
    async with provided(provider, show_reasoning=False) as service:
        told = await streamed(service, "Hi", assistant="claude")
        session = told[0][1]["session_id"]
        listed = (await service.http.get(at(session, "messages"), headers=ANN)).text
        await ask(service, "Bye", session_id=session, assistant="claude")

    assert "secret" not in f"{told}{listed}"
    assert thoughts_sent(provider) == ["A secret plan."]


async def test_thoughts_are_no_talk_for_titles_search_and_readers(provider: ScriptedProvider) -> None:
    """A reader sees the text of a thought as a part of its own, without what only the provider reads."""
    provider.plays(Answer(Reasoning("A zebra thought."), Text("Hello.")))
    async with provided(provider) as service:
        session = (await ask(service, "Hi there", assistant="claude"))["session_id"]
        messages = (await service.http.get(at(session, "messages"), headers=ANN)).json()["messages"]
        found = (await service.http.get("/v1/sessions?q=zebra", headers=ANN)).json()["sessions"]
        title = (await service.http.get(at(session), headers=ANN)).json()["title"]

    assert messages[-1]["text"] == "Hello."
    made = {"type": "reasoning", "provider": "anthropic", "model": "claude-sonnet-4-6"}
    assert messages[-1]["parts"] == [{**made, "text": "A zebra thought."}, {"type": "text", "text": "Hello."}]
    assert (found, "zebra" in title) == ([], False)


async def test_a_thought_that_the_policy_changes_is_not_sent_back(provider: ScriptedProvider) -> None:
    """Between the calls of its turn it goes back as it came; stored and later it has no private value."""
    mail = "ann@example.org"
    provider.plays(
        Answer(Reasoning(f"Write to {mail}."), SUM),
        Answer(Reasoning(f"To {mail}."), Text("Done.")),
        Answer(Text("Bye.")),
    )
    async with provided(provider, Adder(), privacy_message=Mode.REDACT) as service:
        first = await ask(service, "Hi", assistant="claude")
        between = thoughts_sent(provider)
        second = await ask(service, "Bye", session_id=first["session_id"], assistant="claude")
        trace = (await service.http.get(f"/v1/traces/{second['trace_id']}", headers=ANN)).json()
        stored = (await service.http.get(at(first["session_id"], "messages"), headers=ANN)).text

    assert between == [f"Write to {mail}."]
    assert thoughts_sent(provider) == []
    assert mail not in stored
    assert [one["reason"] for one in trace["context"]["entries"] if one["disposition"] == "cut"] == ["not_shown"] * 2


async def test_thoughts_go_along_with_an_export_and_its_import(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Reasoning("A thought."), Text("Hello.")), Answer(Text("Bye.")))
    async with provided(provider) as service:
        session = (await ask(service, "Hi", assistant="claude"))["session_id"]
        paper = (await service.http.get(at(session, "export"), headers=ANN)).content
        imported = (await service.http.post("/v1/sessions/import", headers=ANN, content=paper)).json()["id"]
        await ask(service, "Bye", session_id=imported, assistant="claude")

    assert thoughts_sent(provider) == ["A thought."]
