"""A bot on Lark, as its users meet it: through the platform's callbacks and messages, whatever goes wrong between."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tenuto.llm import Echo, Hang, Say, ScriptedModel
from tenuto.model.message import Role
from tests.clock import FakeClock
from tests.journeys.conftest import GROUNDS
from tests.journeys.http_service import HttpService
from tests.journeys.lark_bot import ALICE, BOB, bot
from tests.lark_platform import Forgery, LarkPlatform, start_lark_platform

RESET = "已清空对话历史，下次对话将从零开始。"
SECRET = "pelican-7431"

on_sqlite_and_redis = pytest.mark.parametrize(
    "ground", [one for one in GROUNDS if one.name in ("sqlite", "redis")], indirect=True, ids=lambda one: one.name
)


@pytest.fixture
async def platform() -> AsyncIterator[LarkPlatform]:
    async with start_lark_platform() as platform:
        yield platform


def history(model: ScriptedModel) -> list[str]:
    """The talk in the newest prompt, its question last."""
    asked = [request for request in model.requests if request.tool_context is not None]
    return [message.text for message in asked[-1].messages if message.role is not Role.SYSTEM]


@pytest.mark.requirement("D1", "D3", "D16", "D21", "D23", "D8")
@on_sqlite_and_redis
async def test_a_private_chat_is_remembered_over_restarts(platform: LarkPlatform, store_url: str) -> None:
    """One session for each chat; without the platform's list."""
    mine, other = platform.p2p(ALICE), platform.p2p(BOB)
    async with bot(platform, ScriptedModel("Hello, Lin."), store=store_url) as first:
        assert await first.answer(mine, ALICE, "My name is Lin.") == "Hello, Lin."

    model = ScriptedModel("You are Lin.", "I do not know.")
    async with bot(platform, model, store=store_url) as second:
        assert await second.answer(mine, ALICE, "What is my name?") == "You are Lin."
        assert history(model) == ["My name is Lin.", "Hello, Lin.", "What is my name?"]
        await second.answer(other, BOB, "What is my name?")

    assert history(model) == ["What is my name?"]
    assert platform.requests["list"] == 0


@pytest.mark.requirement("D2", "D8", "D16", "D18", "D27")
@on_sqlite_and_redis
async def test_a_group_is_answered_when_it_mentions_the_bot(platform: LarkPlatform, store_url: str) -> None:
    """A shared session, other people's words from the platform, and who asks from the event."""
    group, model = platform.group(ALICE, BOB), ScriptedModel("At one.", "With the team.")
    async with bot(platform, model, store=store_url) as tenuto:
        silent = platform.say(group, BOB, "Lunch is at one, with the team.")
        aside = platform.say(group, BOB, "Are you coming?", mentions=[ALICE])
        await tenuto.hear(silent, aside)
        assert await tenuto.answer(group, ALICE, "When is lunch?", mention_bot=True) == "At one."
        assert "Lunch is at one, with the team." in str(model.requests[0].messages)
        assert await tenuto.answer(group, BOB, "And with whom?", mention_bot=True, kind="post") == "With the team."

    question, reply, last = history(model)[-3:]
    assert [question.endswith("When is lunch?"), reply, last.endswith("And with whom?")] == [True, "At one.", True]
    assert "@_user" not in str(model.requests)
    assert [platform.replies(event) for event in (silent, aside)] == [[], []]
    assert [context.scope.user for context in (one.tool_context for one in model.requests) if context] == [ALICE, BOB]


@pytest.mark.requirement("D20", "S9", "T14")
@on_sqlite_and_redis
async def test_a_reset_wins_over_a_running_turn(platform: LarkPlatform, store_url: str) -> None:
    """`@bot /reset` answers at once, and what a running turn would store later is not stored."""
    group, hang = platform.group(ALICE, BOB), Hang()
    model = ScriptedModel("好的。", [hang, Say("太晚了。")], "你好。")
    async with bot(platform, model, store=store_url) as tenuto:
        await tenuto.answer(group, ALICE, "我叫小林。", mention_bot=True)
        running = platform.say(group, ALICE, "我叫什么名字？", mention_bot=True)
        await tenuto.hear(running)
        await hang.reached.wait()

        assert await tenuto.answer(group, BOB, " /reset ", mention_bot=True) == RESET
        hang.release.set()
        for expected in (["新的开始。"], ["新的开始。", "你好。", "再说一次。"]):
            assert await tenuto.answer(group, BOB, expected[-1], mention_bot=True) == "你好。"
            assert all(said.endswith(text) for said, text in zip(history(model), expected, strict=True))

    assert len(platform.replies(running)) <= 1


@pytest.mark.requirement("T14", "D23")
@on_sqlite_and_redis
async def test_an_event_is_answered_once_however_often_it_comes(store_url: str) -> None:
    """At once, over the platform's whole schedule, as another event of the message, after a restart."""
    clock, model = FakeClock(), ScriptedModel(Echo())
    async with start_lark_platform(clock=clock) as platform:
        chat = platform.p2p(ALICE)
        event = platform.say(chat, ALICE, "once")
        async with bot(platform, model, store=store_url, clock=clock) as first:
            await asyncio.gather(*(first.hear(event) for _ in range(3)))
            await platform.reply_to(event)
            again = await platform.redeliver(event, first.address, advance=clock.advance)
            await first.hear(platform.second_event(event))
            assert {delivered.status for delivered in again} == {200}
        async with bot(platform, model, store=store_url, clock=clock) as second:
            await second.hear(event)
            # The messages of a chat are answered in order: what was to come of the others has come.
            await second.answer(chat, ALICE, "next")

        assert [text for _, text in platform.chat_log(chat)] == ["once", "once", "next", "next"]
    assert len(model.requests) == 2


@pytest.mark.requirement("D17", "D23", "D26", "T14")
@on_sqlite_and_redis
async def test_waiting_messages_are_answered_in_order_also_after_a_restart(
    platform: LarkPlatform, store_url: str
) -> None:
    """Acknowledged while a turn runs; other chats are answered meanwhile; nothing is lost."""
    slow, quick, hangs = platform.p2p(ALICE), platform.p2p(BOB), (Hang(), Hang())
    said = [f"message {number}" for number in range(10)]
    events = [platform.say(slow, ALICE, text) for text in said]
    model = ScriptedModel([hangs[0], Echo()], Echo(), [hangs[1], Echo()])
    async with bot(platform, model, store=store_url) as first:
        await first.hear(*events)
        await hangs[0].reached.wait()
        assert await first.answer(quick, BOB, "quick") == "quick"
        assert not any(map(platform.replies, events))
        hangs[0].release.set()
        await hangs[1].reached.wait()

    async with bot(platform, ScriptedModel(Echo()), store=store_url):
        await platform.reply_to(events[-1])

    answers = [message.text for message in slow.messages if message.by_bot]
    assert answers == said


@pytest.mark.requirement("T14")
async def test_forged_events_are_refused_and_odd_ones_acknowledged(
    platform: LarkPlatform, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but a genuine message reaches the model, and no log line quotes what was said."""
    caplog.set_level(logging.INFO)
    chat, model = platform.p2p(ALICE), ScriptedModel("ok.")
    async with bot(platform, model) as tenuto:
        event = platform.say(chat, ALICE, SECRET)
        forged = {how: (await platform.deliver(platform.forge(event, how), tenuto.address)).status for how in Forgery}
        assert all(400 <= status < 500 for status in forged.values()), forged
        await tenuto.hear(platform.other_event("im.chat.disbanded_v1"), platform.other_event("of.a.later_year_v9"))
        challenged = await platform.deliver(platform.challenge("c1"), tenuto.address)
        assert json.loads(challenged.body) == {"challenge": "c1"}

        pictures = [await tenuto.answer(chat, ALICE, "", kind=kind) for kind in ("image", "file", "audio", "sticker")]
        large = await tenuto.answer(chat, ALICE, f"{SECRET} " * (2**20 // len(SECRET)))
        assert all([*pictures, large])
        assert model.requests == []

        await tenuto.hear(event)
        assert (await platform.reply_to(event)).text == "ok."
    assert SECRET not in caplog.text
    assert len(model.requests) == 1


@pytest.mark.requirement("T14")
async def test_a_reply_waits_until_the_platform_takes_it(platform: LarkPlatform) -> None:
    """Without tokens, behind a limit, after a fault: the answer comes once, from one turn."""
    chat, model = platform.p2p(ALICE), ScriptedModel(Echo())
    async with bot(platform, model) as tenuto:
        platform.api.token_down = True
        events = [platform.say(chat, ALICE, text) for text in ("one", "two", "three")]
        await tenuto.hear(*events)
        await platform.until_requested("token", 1)
        platform.recover()
        platform.rate_limit(times=1, about=events[1])
        platform.fail(times=1, about=events[2])
        await platform.reply_to(events[0])
        platform.api.expire_tokens()
        await platform.reply_to(events[-1])

    assert [message.text for message in chat.messages if message.by_bot] == ["one", "two", "three"]
    assert len(model.requests) == 3
    assert [fault.times for fault in platform.api.faults] == [0, 0]


@pytest.mark.requirement("T14")
async def test_a_refused_reply_is_given_up_and_the_chat_goes_on(
    platform: LarkPlatform, caplog: pytest.LogCaptureFixture
) -> None:
    """A message recalled during its turn, and a group that the bot has left."""
    hangs, chat, group = (Hang(), Hang()), platform.p2p(ALICE), platform.group(BOB)
    model = ScriptedModel([hangs[0], Say("late")], [hangs[1], Say("late")], "ok.")
    async with bot(platform, model) as tenuto:
        recalled = platform.say(chat, ALICE, SECRET)
        left = platform.say(group, BOB, SECRET, mention_bot=True)
        for event, hang in zip((recalled, left), hangs, strict=True):
            await tenuto.hear(event)
            await hang.reached.wait()
        platform.recall(recalled)
        group.bot_inside = False
        for hang in hangs:
            hang.release.set()
        assert await tenuto.answer(chat, ALICE, "still there?") == "ok."
        await platform.until_requested("reply", 3)

    assert platform.requests["reply"] == 3
    assert (platform.replies(recalled), platform.replies(left)) == ([], [])
    assert [code for code in ("230011", "230002") if code in caplog.text] == ["230011", "230002"]
    assert SECRET not in caplog.text


@pytest.mark.requirement("D9", "D21")
@on_sqlite_and_redis
@pytest.mark.parametrize(("hours", "remembered"), [(47, True), (49, False)])
async def test_a_chat_begins_anew_after_two_days(hours: int, remembered: bool, store_url: str) -> None:
    """48 hours without a message, by default."""
    clock, model = FakeClock(), ScriptedModel("ok.")
    async with (
        start_lark_platform(clock=clock) as platform,
        bot(platform, model, store=store_url, clock=clock) as tenuto,
    ):
        chat = platform.p2p(ALICE)
        await tenuto.answer(chat, ALICE, "The code is green.")
        clock.advance(timedelta(hours=hours))
        await tenuto.answer(chat, ALICE, "Which code?")

    assert history(model) == (["The code is green.", "ok."] if remembered else []) + ["Which code?"]


async def test_without_an_app_there_is_no_route(service: HttpService) -> None:
    assert (await service.http.post("/lark/events", content=b"{}")).status_code == 404
