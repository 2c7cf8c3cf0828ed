"""`begin` and `POST /v1/turns` hand over what an assistant's prompt would show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

import tenuto
from tenuto.app import Tenuto
from tenuto.context import TokenCounter
from tenuto.context.compression import summaries_in, summary_draft
from tenuto.errors import ModelFailed
from tenuto.llm import ScriptedModel
from tenuto.model import Draft, MessagePage, OpenTurn, Page, Role, Scope, Truncation, text_part
from tenuto.model.generation import ModelEvent, ModelRequest, Summary
from tenuto.model.message import is_summary, tool_call, tool_result
from tenuto.model.policy import OnMissing
from tenuto.model.values import JsonObject
from tenuto.ports import Tool
from tenuto.sessions import AppendRequest, TurnRequest, fresh_id
from tests.clock import FakeClock
from tests.journeys.http_service import ANN, at, code, http_service, says
from tests.samples import SENT_AT

pytestmark = pytest.mark.requirement("A34", "D9")


def draft(*parts: JsonObject, role: Role = Role.USER) -> Draft:
    return Draft(id=fresh_id(), role=role, sent_at=SENT_AT, parts=parts)


def texts(turn: OpenTurn) -> list[str]:
    return [message.text for message in turn.window]


async def exchange(t: Tenuto, ann: Scope, session_id: str, said: str, answer: str = "A.") -> OpenTurn:
    turn = await t.begin(ann, said, session_id=session_id)
    await t.finish(turn, answer)
    return turn


async def summarised(t: Tenuto, ann: Scope, session_id: str, text: str, covered: int) -> None:
    """Append a summary of the first messages."""
    log = (await t.sessions.messages(ann, session_id, Page(limit=100))).messages
    last = log[covered - 1]
    summary = Summary(text=text, through=last.seq, through_id=last.id, messages=covered)
    draft = summary_draft(summary, message_id="sum", sent_at=SENT_AT, seen=log[-1].seq, since=1)
    await t.sessions.append(ann, session_id, AppendRequest(messages=(draft,)))


async def test_stale_words_do_not_come_back_with_a_turn() -> None:
    clock = FakeClock()
    async with tenuto.open("memory://", preset="channel", clock=clock) as t:
        ann = t.scope(user="ann")
        await exchange(t, ann, "s", "Old")
        clock.advance(timedelta(hours=49))

        new = await t.begin(ann, "New", session_id="s")
        await t.abandon(new)
        newer = await t.begin(ann, "Newer", session_id="s")

        assert (texts(new), texts(newer)) == (["New"], ["New", "Newer"])
        assert newer.session.messages == 4


async def test_stale_words_do_not_come_back_over_http() -> None:
    clock = FakeClock()
    async with http_service(clock=clock, preset="channel") as service:

        async def turn(text: str) -> list[str]:
            begun = (await service.http.post(at("s", "turns"), headers=ANN, json={"message": says(text)})).json()
            renewed = (await service.http.post(f"/v1/turns/{begun['turn_id']}/renew", headers=ANN)).json()
            body: Any = {"message": says("A.", "assistant"), "changes": {"title": text}}
            await service.http.post(f"/v1/turns/{renewed['turn_id']}/finish", headers=ANN, json=body)
            return [message["text"] for message in begun["window"]]

        assert await turn("Old") == ["Old"]
        clock.advance(timedelta(hours=49))

        assert await turn("New") == ["New"]
        assert await turn("Newer") == ["New", "A.", "Newer"]


async def test_a_clients_clock_makes_nothing_stale() -> None:
    async with http_service(preset="channel") as service:
        old = (await service.http.post(at("s", "turns"), headers=ANN, json={"message": says("Old")})).json()
        await service.http.post(f"/v1/turns/{old['turn_id']}/finish", headers=ANN, json={})

        new: Any = {**says("New"), "sent_at": "2099-01-01T00:00:00Z"}
        turn = (await service.http.post(at("s", "turns"), headers=ANN, json={"message": new})).json()

        assert [message["text"] for message in turn["window"]] == ["Old", "New"]


async def test_a_summary_stands_in_for_what_it_covers_as_in_an_assistants_prompt() -> None:
    model = ScriptedModel("Yes.")
    async with tenuto.open("memory://", on_missing="adopt", model=model) as t:
        ann = t.scope(user="ann")
        for number in range(5):
            await exchange(t, ann, "s", f"Question {number}")
        await summarised(t, ann, "s", "Ann asked thrice.", covered=6)

        turn = await t.begin(ann, "And now?", session_id="s")
        await t.abandon(turn)
        await t.sessions.fork(ann, "s", at=turn.user_messages[0].seq - 1, new_id="f")
        await t.ask(ann, "And now?", session_id="f")

        prompt = [message.text for message in model.requests[-1].messages]
        assert turn.summary == "Ann asked thrice."
        assert texts(turn) == ["Question 3", "A.", "Question 4", "A.", "And now?"] == prompt[-5:]
        assert turn.summary in prompt[-6]


async def test_the_window_of_a_turn_keeps_to_the_token_budget() -> None:
    counter = TokenCounter()
    async with tenuto.open("memory://", on_missing="adopt", prompt_tokens=600, reply_tokens=100) as t:
        ann = t.scope(user="ann")
        for number in range(12):
            await exchange(t, ann, "s", f"{number} is what I say" + " and more" * 40)

        turn = await t.begin(ann, "word " * 60, session_id="s")
        await t.abandon(turn)
        long = await t.begin(ann, "word " * 3000, session_id="s")

        assert len(turn.window) < 20
        assert (turn.window[-1].text, turn.cut) == ("word " * 60, ())
        assert sum(counter.count(text) for text in texts(turn)) <= 500
        assert sum(counter.count(text) for text in texts(long)) <= 500
        assert long.user_messages[0].text == "word " * 3000
        assert long.cut == (long.window[-1].id,)


@pytest.mark.requirement("A34")
@pytest.mark.parametrize("reply_tokens", [1024, 400])
async def test_every_message_is_raw_or_covered_however_long_begin_and_finish_go_on(
    store_url: str, reply_tokens: int
) -> None:
    """Summaries follow these turns, too; none is waited for here."""
    async with tenuto.open(store_url, on_missing="adopt", prompt_tokens=1200, reply_tokens=reply_tokens) as t:
        ann = t.scope(user="ann")
        for number in range(60):
            turn = await exchange(t, ann, "s", f"Question {number}: when was garden {number} planted?", "In May.")
            log = (await t.sessions.messages(ann, "s", Page(limit=500))).messages
            raw = {message.seq for message in turn.window}
            said = [one for one in log if not is_summary(one) and one.seq <= turn.user_messages[-1].seq]
            assert not [one.seq for one in said if one.seq > turn.summarized_through and one.seq not in raw]
        last = await t.begin(ann, "And now?", session_id="s")

    assert last.summary
    assert last.summarized_through > 60


async def test_many_short_messages_come_raw_with_a_turn_and_the_cap_evicts_none_uncovered() -> None:
    """More of them than a turn loads at first, and more than the cap stores."""
    async with tenuto.open("memory://", on_missing="adopt", max_messages=60) as t:
        ann = t.scope(user="ann")
        for number in range(70):
            turn = await exchange(t, ann, "s", f"Q{number}")
            first = turn.window[0].seq
            assert turn.summarized_through >= first - 1
            if number == 22:
                assert (len(turn.window), turn.summary) == (45, "")
        last = await t.begin(ann, "And now?", session_id="s")

    assert last.summary


async def test_summaries_of_these_turns_are_the_models_where_there_is_one() -> None:
    model = ScriptedModel(*["The user asks when garden 1 was planted, in May."] * 20)
    settings: dict[str, Any] = {"prompt_tokens": 1200, "reply_tokens": 400, "compress_over": 8, "keep_verbatim": 2}
    async with tenuto.open("memory://", on_missing="adopt", model=model, **settings) as t:
        ann = t.scope(user="ann")
        for _ in range(6):
            await exchange(t, ann, "s", "When was garden 1 planted?", "In May.")
            await t.upkeep.drain()
        turn = await t.begin(ann, "And now?", session_id="s")

    assert turn.summary == "The user asks when garden 1 was planted, in May."
    assert model.requests


async def test_a_summary_under_way_is_the_models_when_the_program_closes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The model stays open until the summaries that need it are stored."""
    asked, closed = asyncio.Event(), asyncio.Event()

    class Closing(ScriptedModel):
        async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
            asked.set()
            for _ in range(20):
                await asyncio.sleep(0)
            if closed.is_set():
                raise ModelFailed("closing", "is closed")
            async for event in super().stream_answer(request, tools):
                yield event

    @asynccontextmanager
    async def opened(*_: object, **__: object) -> AsyncIterator[ScriptedModel]:
        yield Closing(*["The user asks when garden 1 was planted, in May."] * 20)
        closed.set()

    monkeypatch.setattr("tenuto.wiring.chat.open_model", opened)
    settings: dict[str, Any] = {"prompt_tokens": 1200, "reply_tokens": 400, "compress_over": 8, "keep_verbatim": 2}
    url = f"sqlite:///{tmp_path}/chat.db"
    async with tenuto.open(url, on_missing="adopt", model="scripted", **settings) as t:
        ann = t.scope(user="ann")
        for _ in range(6):
            await exchange(t, ann, "s", "When was garden 1 planted?", "In May.")
        async with asyncio.timeout(10):
            await asked.wait()
    async with tenuto.open(url) as t:
        log = (await t.sessions.messages(ann, "s", Page(limit=100))).messages

    assert [summary.made_by for summary in summaries_in(log)] == ["model"]


async def test_a_session_used_through_both_doors_is_summarised_once_at_a_time() -> None:
    at_once, most = 0, 0

    class Slow(ScriptedModel):
        async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            for _ in range(200):
                await asyncio.sleep(0)
            at_once -= 1
            async for event in super().stream_answer(request, tools):
                yield event

    small = Slow(*["The user asks when garden 1 was planted, in May."] * 40, name="small")
    settings: dict[str, Any] = {"compress_over": 8, "keep_verbatim": 2, "on_missing": "adopt"}
    async with tenuto.open("memory://", model=ScriptedModel(), summarizer_model=small, **settings) as t:
        ann = t.scope(user="ann")
        await t.ask(ann, "When was garden 1 planted?", session_id="s")
        await t.upkeep.drain()
        for _ in range(6):
            await exchange(t, ann, "s", "When was garden 1 planted?", "In May.")
            await t.ask(ann, "When was garden 1 planted?", session_id="s")
        await t.upkeep.drain()

    assert most == 1


async def test_a_turn_after_which_nothing_is_due_reads_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin and finish are one call of the store each."""
    async with tenuto.open("memory://", on_missing="adopt") as t:
        ann, reads, load = t.scope(user="ann"), list[Page](), t.sessions.messages

        async def counting(scope: Scope, session_id: str, query: Page) -> MessagePage:
            reads.append(query)
            return await load(scope, session_id, query)

        monkeypatch.setattr(t.sessions, "messages", counting)
        for number in range(60):
            await exchange(t, ann, "s", f"Q{number}")
            await t.upkeep.drain()

    assert reads == []


@pytest.mark.requirement("A34")
async def test_a_huge_output_in_a_first_turn_is_cut_and_the_caller_is_told() -> None:
    """Calls and results count like words, in the first turn as in later ones."""
    rows = [{"id": number, "name": f"row {number}", "price": 3 * number} for number in range(4000)]
    parts: list[JsonObject] = [
        {"role": "user", "text": "Which is the cheapest?"},
        {"role": "assistant", "parts": [tool_call("c1", "rows", {})]},
        {"role": "tool", "parts": [tool_result("c1", rows)]},
    ]
    async with http_service(prompt_tokens=1200, reply_tokens=200) as service:
        turn = (await service.http.post("/v1/turns", headers=ANN, json={"messages": parts})).json()

    shown = [tuple(message["parts"]) for message in turn["window"]]
    assert sum(map(TokenCounter().count_parts, shown)) <= 1000
    assert [len(each) for each in shown] == [1, 1, 1]
    assert "left out" in shown[2][0]["output"]
    assert turn["cut"] == [turn["window"][2]["id"]]
    assert turn["user_messages"][2]["parts"][0]["output"] == rows


@pytest.mark.requirement("A6")
async def test_a_spent_budget_refuses_a_turn_of_the_callers_model_like_a_chat() -> None:
    """What such turns report counts, for session and tenant; a retry of an answered one is free."""
    budgets: tuple[dict[str, Any], ...] = ({"tenant_daily_tokens": 100}, {"session_budget_tokens": 100})
    for budget in budgets:
        async with http_service(on_missing=OnMissing.ADOPT, **budget) as service:

            async def begin(key: str, **body: object) -> httpx.Response:
                headers = {**ANN, "Idempotency-Key": key}
                return await service.http.post("/v1/turns", headers=headers, json={"message": says("Hi"), **body})

            first = await begin("1", session_id="s")
            done: Any = {"message": says("A.", "assistant"), "usage": {"tokens": 120}}
            for _ in range(2):
                await service.http.post(f"/v1/turns/{first.json()['turn_id']}/finish", headers=ANN, json=done)
            keyed, again = await begin("2", session_id="s"), await begin("1", session_id="s")
            plain = await service.http.post(at("s", "turns"), headers=ANN, json={"message": says("Hi")})
            chat = await service.http.post("/v1/chat", headers=ANN, json={"message": "Hi", "session_id": "s"})

        assert [code(each) for each in (keyed, plain, chat)] == [(429, "budget_exhausted")] * 3
        assert (again.status_code, again.json()["state"]) == (200, "finished")


async def test_a_window_begins_with_a_question() -> None:
    async with tenuto.open("memory://", on_missing="adopt") as t:
        ann = t.scope(user="ann")
        for number in range(30):
            await exchange(t, ann, "s", f"Question {number}")
        seen: dict[int | None, list[str]] = {}
        for most in (None, 4, 3, 2, 1, 0):
            turn = await t.begin(ann, "And now?", session_id="s", window=most)
            seen[most] = texts(turn)
            await t.sessions.truncate(ann, "s", Truncation(after=turn.session.last_seq - 1))

        newest = ["Question 29", "A.", "And now?"]
        assert (len(seen[None]), seen[None][0], seen[None][-3:]) == (61, "Question 0", newest)
        assert [seen[most] for most in (4, 3, 2, 1, 0)] == [newest, newest, newest[-1:], newest[-1:], []]


async def test_a_small_window_comes_with_the_summary() -> None:
    async with tenuto.open("memory://", on_missing="adopt") as t:
        ann = t.scope(user="ann")
        for number in range(3):
            await exchange(t, ann, "s", f"Question {number}")
        await summarised(t, ann, "s", "Ann asked.", covered=2)
        await exchange(t, ann, "s", "Question 3")

        turn = await t.begin(ann, "And now?", session_id="s", window=2)

        assert (texts(turn), turn.summary) == (["And now?"], "Ann asked.")


async def test_a_tool_call_comes_back_with_the_result_of_the_next_turn() -> None:
    """A person may have to agree first."""
    asked, done = tool_call("c1", "rm", {}), tool_result("c1", "ok")
    async with tenuto.open("memory://", on_missing="adopt") as t:
        ann = t.scope(user="ann")
        for parts in ((tool_call("c0", "rm", {}),), (asked, text_part("May I?"))):
            turn = await t.begin(ann, "Delete it", session_id="s")
            await t.finish(turn, [draft(*parts, role=Role.ASSISTANT)])

        turn = await t.begin_turn(ann, TurnRequest(session_id="s", user_messages=(draft(done, role=Role.TOOL),)))
        await t.finish(turn, "Deleted.")
        later = await t.begin(ann, "Thanks", session_id="s")

        found = [[part for part in message.parts if part["type"] != "text"] for message in later.window]
        assert found == [[], [], [asked], [done], [], []]
        assert [message.parts for message in turn.window] == [message.parts for message in later.window[:4]]


async def test_messages_of_the_same_id_keep_their_texts() -> None:
    async with tenuto.open("memory://", on_missing="adopt") as t:
        ann = t.scope(user="ann")
        await exchange(t, ann, "s", "Hello")
        said = [replace(draft(text_part(text), text_part(".")), id="same") for text in ("One", "Two")]
        await t.sessions.append(ann, "s", AppendRequest(messages=tuple(said)))

        assert texts(await t.begin(ann, "And?", session_id="s")) == ["Hello", "A.", "One.", "Two.", "And?"]


async def test_only_texts_are_cut_each_in_its_own_message() -> None:
    picture = {"type": "image", "url": "https://example.org/a.png"}
    async with tenuto.open("memory://", on_missing="adopt", prompt_tokens=5000, reply_tokens=500) as t:
        ann = t.scope(user="ann")
        system = draft(text_part("You are kind."), role=Role.SYSTEM)
        long = draft(text_part("word " * 9000), picture)
        turn = await t.begin_turn(ann, TurnRequest(session_id="s", user_messages=(system, long)))
        await t.finish(turn, "Nice.")
        later = await t.begin(ann, "And?", session_id="s", window=4)

        for first, second in (turn.window, later.window[:2]):
            assert (first.text, second.parts[1:]) == ("You are kind.", (picture,))
            assert 1000 < len(second.text) < 5 * 4500


async def test_what_only_the_callers_model_can_read_stays_in_the_window() -> None:
    picture = {"type": "image", "url": "https://example.org/a.png"}
    async with http_service(preset="channel") as service:
        parts = [{"type": "text", "text": "Look."}, picture]
        for message in ({"role": "user", "parts": parts}, {"role": "item", "parts": [picture]}):
            response = await service.http.post(at("s", "turns"), headers=ANN, json={"message": message})
            await service.http.post(f"/v1/turns/{response.json()['turn_id']}/finish", headers=ANN, json={})

        turn = (await service.http.post(at("s", "turns"), headers=ANN, json={"message": says("Well?")})).json()

        assert [message["parts"] for message in turn["window"][:2]] == [parts, [picture]]
