"""Talks with characters, exactly as their document shows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tenuto.llm import ScriptedModel
from tests.clock import FakeClock
from tests.journeys.http_service import HttpService, code, http_service, says

MUSEUM = {"X-Tenant-ID": "yantian", "X-Site-ID": "yantian-main"}
PATH = "/api/v1/npc/sessions/session-def456"


@pytest.fixture
async def service(fake_clock: FakeClock, store_url: str) -> AsyncIterator[HttpService]:
    async with http_service(clock=fake_clock, preset="npc", store=store_url) as service:
        await service.http.post("/v1/sessions", headers=MUSEUM, json={"id": "session-def456"})
        yield service


async def _say(service: HttpService, clock: FakeClock, *texts: str) -> None:
    for place, text in enumerate(texts):
        role = "assistant" if place % 2 else "user"
        await service.http.post("/v1/sessions/session-def456/messages", headers=MUSEUM, json=says(text, role))
        clock.advance(timedelta(seconds=1))


@pytest.mark.requirement("C7")
async def test_a_talk_is_told_in_short(service: HttpService, fake_clock: FakeClock) -> None:
    """These fields and no others."""
    await _say(service, fake_clock, "请问严氏家训有哪些？", "后生问得好...")

    response = await service.http.get(PATH, headers=MUSEUM)

    assert response.json() == {
        "session_id": "session-def456",
        "message_count": 2,
        "recent_messages": [
            {"role": "user", "content": "请问严氏家训有哪些？", "timestamp": "2026-01-15T09:00:00Z"},
            {"role": "assistant", "content": "后生问得好...", "timestamp": "2026-01-15T09:00:01Z"},
        ],
        "first_message_at": "2026-01-15T09:00:00Z",
        "last_message_at": "2026-01-15T09:00:01Z",
    }


@pytest.mark.requirement("C3")
async def test_only_the_last_ten_messages_are_kept(service: HttpService, fake_clock: FakeClock) -> None:
    await _say(service, fake_clock, *(f"line {number}" for number in range(12)))

    body = (await service.http.get(PATH, headers=MUSEUM)).json()

    assert body["message_count"] == 10
    assert [message["content"] for message in body["recent_messages"]] == [f"line {n}" for n in range(2, 12)]
    assert body["first_message_at"] == "2026-01-15T09:00:02Z"


@pytest.mark.requirement("C3")
async def test_a_tool_call_does_not_count_as_a_message(service: HttpService) -> None:
    """A model's own lookup adds a call and its result to the log."""
    for number in range(6):
        call = {"type": "tool_call", "id": "c", "name": "retrieve_evidence", "arguments": {}}
        turn = [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "parts": [call]},
            {"role": "tool", "parts": [{"type": "tool_result", "call_id": "c", "output": {}}]},
            {"role": "assistant", "content": f"answer {number}"},
        ]
        response = await service.http.post(
            "/v1/sessions/session-def456/messages", headers=MUSEUM, json={"messages": turn}
        )
        assert response.status_code == 201, response.text

    body = (await service.http.get(PATH, headers=MUSEUM)).json()

    assert body["message_count"] == 10
    assert [one["content"] for one in body["recent_messages"]][::2] == [f"question {n}" for n in range(1, 6)]


@pytest.mark.requirement("C4")
async def test_recent_means_at_most_four_thousand_characters(service: HttpService, fake_clock: FakeClock) -> None:
    """The oldest go first, and the newest stays however long it is."""
    await _say(service, fake_clock, "a" * 3000, "b" * 3000, "c" * 500)
    body = (await service.http.get(PATH, headers=MUSEUM)).json()
    await _say(service, fake_clock, "d" * 5000)
    after = (await service.http.get(PATH, headers=MUSEUM)).json()

    assert [message["content"][0] for message in body["recent_messages"]] == ["b", "c"]
    assert body["message_count"] == 3
    assert body["first_message_at"] == "2026-01-15T09:00:00Z"
    assert [message["content"][0] for message in after["recent_messages"]] == ["d"]


async def test_a_talk_without_words_has_no_times(service: HttpService) -> None:
    body = (await service.http.get(PATH, headers=MUSEUM)).json()

    assert (body["message_count"], body["recent_messages"]) == (0, [])
    assert (body["first_message_at"], body["last_message_at"]) == (None, None)


@pytest.mark.requirement("C8")
async def test_a_talk_is_cleared(service: HttpService) -> None:
    cleared = await service.http.delete(PATH, headers=MUSEUM)

    assert (cleared.status_code, cleared.json()) == (200, {"success": True, "session_id": "session-def456"})
    assert code(await service.http.get(PATH, headers=MUSEUM)) == (404, "session_not_found")
    assert code(await service.http.delete(PATH, headers=MUSEUM)) == (404, "session_not_found")


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("stranger", [{"X-Tenant-ID": "yantian"}, {**MUSEUM, "X-Tenant-ID": "other"}, {}])
async def test_another_site_or_tenant_has_no_such_talk(service: HttpService, stranger: dict[str, str]) -> None:
    assert code(await service.http.get(PATH, headers=stranger)) == (404, "session_not_found")


@pytest.mark.requirement("C5")
async def test_a_days_silence_ends_a_talk(service: HttpService, fake_clock: FakeClock) -> None:
    fake_clock.advance(timedelta(hours=24))

    assert code(await service.http.get(PATH, headers=MUSEUM)) == (404, "session_not_found")


@pytest.mark.requirement("C11", "C14")
async def test_a_character_gets_its_own_talk_alone_and_in_a_marked_block() -> None:
    """History is marked as no evidence, and what was said to another character is not in it."""
    model = ScriptedModel("后生问得好。")
    async with http_service(models={"scripted": model}, model="scripted", summarizer_model="offline") as service:
        for persona, text in (
            ("guide_lin", "盐怎么晒？"),
            ("ancestor_yan", "家训有哪些？"),
            ("ancestor_yan", "第一条呢？"),
        ):
            body = {"message": text, "session_id": "s", "assistant": "npc", "persona": persona}
            assert (await service.http.post("/v1/chat", headers=MUSEUM, json=body)).is_success

    shown = "\n".join(message.text for message in model.requests[-1].messages)
    block = shown.partition("【对话历史 - 仅供上下文参考，不作为事实依据】\n")[2].partition("\n【对话历史结束】")[0]
    assert "用户: 家训有哪些？" in block
    assert "盐怎么晒" not in shown
