"""The documents' dialogues over HTTP with the offline model, in both languages, with a restart between the turns."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tenuto.llm import Call, ScriptedModel
from tenuto.llm.offline.phrases import PHRASES
from tenuto.model import NewSession, SessionQuery
from tenuto.model.privacy import Mode
from tenuto.model.prompt import Language
from tests.journeys.http_service import HttpService, code, http_service

NPC = {"tenant_id": "yantian", "site_id": "yantian-main", "npc_id": "ancestor_yan"}
SITE = {"X-Tenant-ID": "yantian", "X-Site-ID": "yantian-main"}


async def ask_npc(service: HttpService, query: str, session_id: str | None = None, **body: Any) -> dict[str, Any]:
    asked = {**NPC, "query": query, **body}
    answer = await service.http.post(
        "/api/v1/npc/chat", json=asked | ({"session_id": session_id} if session_id else {})
    )
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def ask_shop(service: HttpService, question: str, session_id: str | None = None, **body: Any) -> dict[str, Any]:
    answer = await service.http.post("/goods/qa", json={"question": question, "sessionId": session_id, **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.mark.requirement("C10", "C6")
@pytest.mark.parametrize(
    ("questions", "words"),
    [
        (("请问严氏家训有哪些？", "第一条是什么意思？", "有没有具体的故事？"), ("孝悌为本", "孝顺父母", "严承孝")),
        (
            ("What are the family rules?", "What does the first one mean?", "Any concrete story?"),
            ("Honour parents", "care for one's parents", "Chengxiao"),
        ),
    ],
    ids=["zh", "en"],
)
async def test_three_turns_with_a_character_and_a_restart_after_each(
    tmp_path: Path, questions: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """One session id throughout, each answer with its evidence."""
    session: str | None = None
    for question, word in zip(questions, words, strict=True):
        async with http_service(store=f"sqlite:///{tmp_path}/t.db") as service:
            told = await ask_npc(service, question, session)
        assert session in (None, told["session_id"])
        session = told["session_id"]
        assert word in told["answer_text"]
        assert told["policy_mode"] == "normal"
        assert told["evidence"]
        assert all(piece["id"] in told["answer_text"] for piece in told["evidence"])
        assert told["offline"]


@pytest.mark.requirement("C9")
async def test_a_trace_of_a_character_s_answer_shows_question_tools_and_talk(service: HttpService) -> None:
    told = await ask_npc(service, "家训有哪些？", "session-1")
    address = f"/api/v1/npc/traces/{told['trace_id']}"
    trace = (await service.http.get(f"{address}?include_session=true", headers=SITE)).json()
    bare = (await service.http.get(address, headers=SITE)).json()
    elsewhere = await service.http.get(address, headers={**SITE, "X-Site-ID": "other"})

    assert trace["request_input"]["query"] == "家训有哪些？"
    assert [call["name"] for call in trace["tool_calls"]] == ["retrieve_evidence"]
    assert trace["session_summary"]["message_count"] == 2
    assert [line["role"] for line in trace["session_summary"]["recent_messages"]] == ["user", "assistant"]
    assert "session_summary" not in bare
    assert code(elsewhere) == (404, "trace_not_found")


@pytest.mark.requirement("C7", "C8")
async def test_sessions_of_characters_can_be_seen_and_cleared(service: HttpService) -> None:
    """On a talk that the chat made."""
    await ask_npc(service, "家训有哪些？", "session-1")
    seen = (await service.http.get("/api/v1/npc/sessions/session-1", headers=SITE)).json()
    cleared = (await service.http.delete("/api/v1/npc/sessions/session-1", headers=SITE)).json()
    response = await service.http.get("/api/v1/npc/sessions/session-1", headers=SITE)

    assert seen["message_count"] == 2
    assert seen["recent_messages"][0]["content"] == "家训有哪些？"
    assert cleared == {"success": True, "session_id": "session-1"}
    assert response.status_code == 404


@pytest.mark.requirement("C1", "C13")
async def test_a_question_without_evidence_is_declined_and_characters_keep_apart(service: HttpService) -> None:
    declined = await ask_npc(service, "谁发明了电灯？", "s")
    await ask_npc(service, "第一条家训是什么意思？", "s")
    other = await ask_npc(service, "有没有具体的故事？", "s", npc_id="craftsman_fu")
    unknown = await service.http.post("/v1/npc/chat", json={**NPC, "npc_id": "nobody", "query": "你好"})

    assert (declined["policy_mode"], declined["evidence"], declined["offline"]) == ("refuse", [], False)
    assert "E-STORY-01" not in other["answer_text"]
    assert code(unknown) == (404, "assistant_not_found")


@pytest.mark.requirement("C12")
async def test_without_memory_a_character_still_answers_and_nothing_is_kept() -> None:
    """MEMORY_ENABLED=false, which the operator has chosen, so that no answer complains of it."""
    async with http_service(memory_enabled=False) as service:
        told = await ask_npc(service, "家训有哪些？", "session-1")
        seen = await service.http.get("/v1/npc/sessions/session-1", headers=SITE)

    assert "孝悌为本" in told["answer_text"]
    assert (told["degraded"], told["trace_id"]) == ([], None)
    assert seen.status_code == 404


@pytest.mark.requirement("C3", "C12")
async def test_the_stored_cap_of_characters_follows_the_memory_settings() -> None:
    async with http_service(memory_max_messages=4) as service:
        for _ in range(4):
            await ask_npc(service, "家训有哪些？", "s")
        seen = (await service.http.get("/v1/npc/sessions/s", headers=SITE)).json()

    assert seen["message_count"] == 4


@pytest.mark.requirement("C1", "C9")
@pytest.mark.parametrize("question", ["第十一条是什么意思？", "What does the eleventh rule mean?"])
async def test_a_refusal_asks_no_model_and_its_trace_says_so(service: HttpService, question: str) -> None:
    """A rule that there is not is declined as such, by no model."""
    body = {"message": question, "assistant": "npc", "persona": "guide_lin"}
    told = (await service.http.post("/v1/chat", json=body)).json()
    trace = (await service.http.get(f"/v1/traces/{told['trace_id']}")).json()

    assert told["data"] == {"policy_mode": "refuse", "evidence": []}
    assert "11" in told["answer"]
    assert (told["model"], told["offline"], told["context"]) == ("none", False, None)
    assert (trace["model"], trace["context"]) == ("none", None)
    assert [run["name"] for run in trace["tools"]] == ["retrieve_evidence"]


@pytest.mark.requirement("B16", "A30")
@pytest.mark.parametrize("questions", [("my orders", "the second one"), ("我的订单", "第二个")], ids=["en", "zh"])
async def test_orders_are_followed_up_also_after_a_restart(tmp_path: Path, questions: tuple[str, ...]) -> None:
    told: dict[str, Any] = {"sessionId": None}
    for question in questions:
        async with http_service(store=f"sqlite:///{tmp_path}/t.db") as service:
            told = await ask_shop(service, question, told["sessionId"], userId=1001)
    assert told["answer"].count("GD2026") == 1
    assert "GD202611114122" in told["answer"]
    assert told["goods"] == []


@pytest.mark.requirement("A30", "A35")
@pytest.mark.parametrize(
    ("questions", "state"),
    [
        (("I complain about order 4122", "what about my complaint?"), "open"),
        (("我要投诉订单4122", "我的投诉怎么样了？"), "处理中"),
    ],
    ids=["en", "zh"],
)
async def test_a_complaint_is_found_again_by_its_user_after_a_restart(
    tmp_path: Path, questions: tuple[str, str], state: str
) -> None:
    """In another session too, and by no other user."""
    async with http_service(store=f"sqlite:///{tmp_path}/t.db") as service:
        opened = await ask_shop(service, questions[0], None, userId=1001)
    async with http_service(store=f"sqlite:///{tmp_path}/t.db") as service:
        later = await ask_shop(service, questions[1], None, userId=1001)
        other = await ask_shop(service, "my orders", None, userId=1002)

    assert opened["answer"] == later["answer"]
    assert "GD202611114122" in later["answer"]
    assert state in later["answer"]
    assert "C1" not in other["answer"]


@pytest.mark.requirement("A30", "B5", "B6", "B16")
@pytest.mark.parametrize(
    "questions",
    [
        ("cheap phones?", "the best value among them", "the second one"),
        ("有什么便宜的手机？", "推荐其中性价比最高的", "第二个怎么样"),
    ],
    ids=["en", "zh"],
)
async def test_shopping_goes_on_from_what_was_shown_after_a_restart(tmp_path: Path, questions: tuple[str, ...]) -> None:
    session: str | None = None
    shown: list[list[str]] = []
    for question in questions:
        async with http_service(store=f"sqlite:///{tmp_path}/t.db") as service:
            told = await ask_shop(service, question, session)
        assert (told["code"], told["message"]) == (200, "success")
        assert session in (None, told["sessionId"])
        session = told["sessionId"]
        shown.append([item["id"] for item in told["goods"]])
    assert len(shown[0]) >= 3
    assert set(shown[1]) <= set(shown[0])
    assert len(shown[2]) == 1


@pytest.mark.requirement("B16", "A30")
@pytest.mark.parametrize("question", ["has 4122 shipped?", "order #4122", "尾号4122的那单发货了吗"])
async def test_an_order_is_named_by_the_end_of_its_number_by_its_buyer_alone(
    service: HttpService, question: str
) -> None:
    own = await ask_shop(service, question, None, userId=1001)
    others = await ask_shop(service, question, None, userId=1002)

    assert "GD202611114122" in own["answer"]
    assert "GD2026" not in others["answer"]


@pytest.mark.requirement("B6")
async def test_an_unknown_shop_session_becomes_a_new_one(service: HttpService) -> None:
    """Never an error."""
    told = await ask_shop(service, "cheap phones?", "long-gone")

    assert told["sessionId"] != "long-gone"
    assert told["goods"]


@pytest.mark.requirement("B16", "A30")
async def test_orders_are_shown_to_their_owner_alone(service: HttpService) -> None:
    mine = await ask_shop(service, "What is my order status?", userId=1001)
    stranger = await ask_shop(service, "What is my order status?", userId=987654)
    nobody = await ask_shop(service, "What is my order status?")
    mismatch = await service.http.post(
        "/goods/qa", json={"question": "my orders", "userId": 1001}, headers={"X-User-ID": "1002"}
    )

    assert mine["answer"] != stranger["answer"]
    assert "sign in" in nobody["answer"].lower()
    assert code(mismatch) == (403, "scope_mismatch")


@pytest.mark.requirement("A30", "B6")
@pytest.mark.parametrize("question", ["what did you say?", "summarise", "你刚才说了什么？", "my orders"])
async def test_without_a_user_the_session_of_one_is_as_unknown_as_any(service: HttpService, question: str) -> None:
    """A session id kept after logging out, or found, shows nothing of the session."""
    mine = await ask_shop(service, "my orders", userId=1001)
    kept = await ask_shop(service, question, mine["sessionId"])
    never_was = await ask_shop(service, question, "never-was")
    empty = await ask_shop(service, question, mine["sessionId"], userId="")
    other = await ask_shop(service, question, mine["sessionId"], userId=1002)
    again = await ask_shop(service, "the first one", mine["sessionId"], userId=1001)

    assert "GD2026" in mine["answer"]
    assert len({told["sessionId"] for told in (mine, kept, never_was, empty, other)}) == 5
    assert kept["answer"] == empty["answer"] == never_was["answer"]
    assert "GD2026" not in kept["answer"]
    assert "GD20261114" not in other["answer"]
    assert again["sessionId"] == mine["sessionId"]
    assert "GD202611144192" in again["answer"]


@pytest.mark.requirement("B6", "A30")
async def test_a_visitor_goes_on_in_the_own_session_and_signing_in_begins_another(service: HttpService) -> None:
    """A visitor's session does not become a user's."""
    first = await ask_shop(service, "cheap phones?")
    second = await ask_shop(service, "the second one", first["sessionId"])
    signed_in = await ask_shop(service, "my orders", first["sessionId"], userId=1001)
    back = await ask_shop(service, "my orders", first["sessionId"])
    tenant = await service.http.get(f"/v1/sessions/{signed_in['sessionId']}/messages")
    visitors = await service.http.get(f"/v1/sessions/{first['sessionId']}/messages")

    assert first["sessionId"] == second["sessionId"] == back["sessionId"] != signed_in["sessionId"]
    assert [good["id"] for good in second["goods"]] == [first["goods"][1]["id"]]
    assert "GD2026" in signed_in["answer"]
    assert "sign in" in back["answer"]
    assert tenant.status_code == visitors.status_code == 200


@pytest.mark.requirement("A30")
async def test_a_key_of_the_tenant_asks_the_shop_for_visitors_and_other_routes_for_the_tenant(
    locked: HttpService,
) -> None:
    """The shop's route alone is one of the public; elsewhere no user is the tenant itself."""
    key = await locked.key(tenant="acme")
    ask = {"question": "my orders", "userId": 1001}
    mine = (await locked.http.post("/goods/qa", json=ask, headers=key)).json()
    again = {"question": "what did you say?", "sessionId": mine["sessionId"]}
    visitor = (await locked.http.post("/goods/qa", json=again, headers=key)).json()
    named = (await locked.http.post("/goods/qa", json=again, headers={**key, "X-User-ID": "1001"})).json()
    message = {"message": "what did you say?", "session_id": mine["sessionId"]}
    tenant = (await locked.http.post("/v1/chat", json=message, headers=key)).json()

    assert "GD2026" not in visitor["answer"]
    assert named["sessionId"] == tenant["session_id"] == mine["sessionId"]
    assert "GD2026" in tenant["answer"]


@pytest.mark.requirement("B5", "B16")
async def test_a_shopper_is_named_by_a_number_or_by_any_text(service: HttpService) -> None:
    number = await ask_shop(service, "What is my order status?", userId=1001)
    text = await ask_shop(service, "What is my order status?", userId="1001")
    named = await ask_shop(service, "What is my order status?", userId="ann")
    nobody = await ask_shop(service, "What is my order status?", userId="")

    assert number["answer"] == text["answer"]
    assert named["answer"] == "You have no orders here yet."
    assert "sign in" in nobody["answer"]


@pytest.mark.requirement("A30")
async def test_a_bound_key_cannot_ask_for_another_user_s_orders(locked: HttpService) -> None:
    """The identity comes from the credential."""
    key = await locked.key(tenant="acme", user="1002")
    response = await locked.http.post("/goods/qa", json={"question": "my orders", "userId": 1001}, headers=key)

    assert response.status_code == 403


async def test_a_general_talk_remembers_after_a_restart_and_gets_a_title(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    async with http_service(store=store) as service:
        first = (await service.http.post("/v1/chat", json={"message": "Hello, my name is Ann and I like tea."})).json()
    async with http_service(store=store) as service:
        again = (
            await service.http.post("/v1/chat", json={"message": "What is my name?", "session_id": first["session_id"]})
        ).json()
        session = (await service.http.get(f"/v1/sessions/{first['session_id']}")).json()

    assert "Ann" in again["answer"]
    assert again["offline"]
    assert session["title"]


async def test_each_example_of_the_page_works_in_an_empty_conversation(subtests: pytest.Subtests) -> None:
    """The examples are read from the page's own words; each character is asked."""
    pytest.importorskip("dbos")
    empty = {phrase for words in PHRASES.values() for phrase in (words.nothing_found, words.nothing_said)}
    async with http_service() as service:
        personas = {
            one["name"]: [None, *(persona["id"] for persona in one["personas"])]
            for one in (await service.http.get("/v1/assistants")).json()["assistants"]
        }
        for language in Language:
            book = (await service.http.get(f"/console/words/{language}.js")).text
            examples = dict(re.findall(r'"try\.(\w+)": "(.+)"', book))
            assert set(examples) == {"general", "goods", "npc", "legal"}
            clicks = [
                (name, text, who) for name in examples for text in examples[name].split(" | ") for who in personas[name]
            ]
            for name, text, who in clicks:
                with subtests.test(text, persona=who):
                    asked = {"message": text, "assistant": name, "persona": who}
                    body = (await service.http.post("/v1/chat", json=asked)).json()
                    assert body["answer"] not in empty
                    assert name != "goods" or body["data"]["goods"]
                    assert name != "npc" or body["data"]["policy_mode"] != "refuse"
                    assert name != "legal" or body["data"]["sources"]


async def test_the_shop_tells_what_an_answer_had_to_do_without(service: HttpService) -> None:
    async with http_service(privacy_detector="http://127.0.0.1:9/analyze", privacy_message=Mode.REDACT) as lacking:
        without = await ask_shop(lacking, "cheap phones?")
    whole = await ask_shop(service, "cheap phones?")

    assert (without["degraded"], whole["degraded"]) == (["detector"], [])
    assert without["answer"] == whole["answer"]


async def test_an_answer_that_no_tool_of_the_shop_supports_says_so() -> None:
    """A language model may invent goods instead of looking for them; the offline model invents nothing."""
    model = ScriptedModel("We have the Zorbo 9 for 12 euros.", [Call("search_goods", {"category": "phones"})], "These.")
    async with http_service(models={"scripted": model}, model="scripted", summarizer_model="offline") as service:
        invented, found = [await ask_shop(service, "cheap phones?") for _ in range(2)]
    async with http_service() as service:
        greeted = await ask_shop(service, "hello")

    assert (invented["degraded"], found["degraded"], greeted["degraded"]) == (["lookup"], [], [])


@pytest.mark.requirement("B13")
async def test_the_shop_keeps_its_number_of_sessions_in_the_background(store_url: str) -> None:
    """Of visitors and users alike; sessions of other assistants stay."""
    async with http_service(store=store_url) as service:
        sessions, upkeep = service.tenuto.sessions, service.tenuto.upkeep
        await service.http.post("/v1/chat", json={"message": "hello"})
        scope = (await service.tenuto.store.upkeep.list_sites())[0]
        old = NewSession(metadata={"assistant": "goods"})
        await asyncio.gather(*(sessions.create(scope, old, f"old{number}") for number in range(1015)))

        told = [await ask_shop(service, "hello", userId=user) for user in (None, 1001) for _ in range(3)]
        await upkeep.drain()

        pages = [await sessions.list(scope, SessionQuery(limit=1000))]
        pages.append(await sessions.list(scope, SessionQuery(limit=1000, cursor=pages[0].cursor)))
        left = [session for page in pages for session in page.sessions]
        assert Counter(session.metadata["assistant"] == "goods" for session in left) == {True: 1000, False: 1}
        assert {one["sessionId"] for one in told} <= {session.id for session in left}
