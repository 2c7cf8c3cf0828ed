"""A Lark app talks to its platform: replies, progress, group context, and what the platform refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tenuto.channels.lark import LarkApp
from tenuto.channels.lark.channel import LarkChannel
from tenuto.errors import ChannelUnavailable, ReplyRefused
from tenuto.model.channel import Delivery, IncomingMessage
from tests.clock import FakeClock
from tests.lark_platform import Event, LarkPlatform, start_lark_platform


@asynccontextmanager
async def connect(platform: LarkPlatform, clock: FakeClock, **fields: str) -> AsyncIterator[LarkChannel]:
    known = {name: getattr(platform.app, name) for name in ("app_id", "app_secret", "encrypt_key")}
    channel = LarkChannel(LarkApp(**{**known, "domain": platform.url, **fields}), clock=clock)
    try:
        yield channel
    finally:
        await channel.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def platform(clock: FakeClock) -> AsyncIterator[LarkPlatform]:
    async with start_lark_platform(clock=clock) as platform:
        yield platform


@pytest.fixture
async def channel(platform: LarkPlatform, clock: FakeClock) -> AsyncIterator[LarkChannel]:
    async with connect(platform, clock) as channel:
        yield channel


async def received(channel: LarkChannel, platform: LarkPlatform, event: Event) -> IncomingMessage:
    incoming = await channel.parse(Delivery(body=platform.callback(event).body))
    assert incoming.message is not None
    return incoming.message


@pytest.mark.requirement("T14")
async def test_a_message_is_answered_once_in_its_thread(platform: LarkPlatform, channel: LarkChannel) -> None:
    """A reply that is repeated has no effect, and many at once ask for one token; a thread keeps its answers."""
    group = platform.group("ou_ann", "ou_ben")
    asked = [platform.say(group, "ou_ann", f"question {place}", thread="omt_1") for place in range(5)]
    messages = [await received(channel, platform, event) for event in asked]

    await asyncio.gather(*(channel.reply(message, "an answer") for message in [*messages, *messages]))

    replies = [platform.replies(event) for event in asked]
    assert [[(one.text, one.thread) for one in each] for each in replies] == [[("an answer", "omt_1")]] * 5
    assert platform.requests["token"] == 1


@pytest.mark.requirement("T14")
@pytest.mark.parametrize("thread", [None, "omt_1"])
async def test_a_reply_is_found_when_its_uuid_is_forgotten(
    thread: str | None, platform: LarkPlatform, channel: LarkChannel, clock: FakeClock
) -> None:
    """Also behind a page of other messages; no reply of a person counts, and none to another message.

    A card that a process left half written is completed.
    """
    group = platform.group("ou_ann", "ou_ben")
    asked = [platform.say(group, "ou_ann", text, mention_bot=True, thread=thread) for text in ("one", "two")]
    first, second = [await received(channel, platform, event) for event in asked]
    for place in range(120):
        if place == 60:
            assert not await channel.has_reply(second)
            await channel.reply(second, "an answer")
        platform.say(group, "ou_ben", "talk", thread=thread)
    clock.advance(timedelta(hours=2))

    assert (await channel.has_reply(first), await channel.has_reply(second)) == (False, True)
    await channel.show_progress(first, "the beginning", None)
    clock.advance(timedelta(hours=2))
    assert not await channel.has_reply(first)
    await channel.reply(first, "all of it")
    assert [one.text for one in platform.replies(asked[0])] == ["all of it"]
    platform.fail("list")
    with pytest.raises(ChannelUnavailable):
        await channel.has_reply(second)
    platform.recover()
    group.bot_inside = False
    assert not await channel.has_reply(second)


@pytest.mark.requirement("T14")
async def test_a_token_is_renewed_early_and_when_it_was_revoked(
    platform: LarkPlatform, channel: LarkChannel, clock: FakeClock
) -> None:
    """No reply is lost to a token that ran out."""
    event = platform.say(platform.p2p("ou_ann"), "ou_ann", "hello")
    message = await received(channel, platform, event)
    await channel.reply(message, "one")
    platform.api.expire_tokens()
    await channel.reply(message, "one")
    clock.advance(timedelta(hours=1, minutes=54))
    await channel.reply(message, "one")
    assert platform.requests["token"] == 2

    clock.advance(timedelta(minutes=2))
    await channel.reply(message, "one")

    assert platform.requests["token"] == 3


REFUSED: list[tuple[str, Callable[[LarkPlatform, Event], object]]] = [
    ("230011", lambda platform, event: platform.recall(event)),
    ("230027", lambda platform, event: platform.refuse_replies(230027)),
    ("230002", lambda platform, event: setattr(event.message and event.message.chat, "bot_inside", False)),
]
LATER: list[tuple[timedelta | None, Callable[[LarkPlatform, Event], object]]] = [
    (timedelta(seconds=7), lambda platform, event: platform.rate_limit(reset=7)),
    (None, lambda platform, event: platform.refuse_replies(230020)),
    (None, lambda platform, event: platform.fail()),
    (None, lambda platform, event: setattr(platform.api, "token_down", True)),
]


@pytest.mark.requirement("T14")
async def test_what_the_platform_refuses_is_told_apart(platform: LarkPlatform, channel: LarkChannel) -> None:
    """What is refused for good is not tried again; the rest is, when the platform wants it."""
    chat = platform.p2p("ou_ann")
    for wait, break_it in LATER:
        event = platform.say(chat, "ou_ann", "hello")
        message = await received(channel, platform, event)
        break_it(platform, event)
        channel.client._token = None
        with pytest.raises(ChannelUnavailable) as excinfo:
            await channel.reply(message, "my secret words")
        assert excinfo.value.retry_after == wait
        platform.recover()
        await channel.reply(message, "at last")
        assert [one.text for one in platform.replies(event)] == ["at last"]
    for code, break_it in REFUSED:
        event = platform.say(chat, "ou_ann", "hello")
        message = await received(channel, platform, event)
        break_it(platform, event)
        with pytest.raises(ReplyRefused) as refused:
            await channel.reply(message, "my secret words")
        assert refused.value.reason == code
        assert "secret" not in str(refused.value)
        platform.recover()


@pytest.mark.requirement("T14")
async def test_a_wrong_secret_or_address_loses_no_answer(platform: LarkPlatform, clock: FakeClock) -> None:
    """A configuration can be corrected, so the answer is kept; the secret is not told."""
    event = platform.say(platform.p2p("ou_ann"), "ou_ann", "hello")
    for wrong in ({"app_secret": "another-secret"}, {"domain": "http://127.0.0.1:1"}):
        async with connect(platform, clock, **wrong) as channel:
            message = await received(channel, platform, event)
            with pytest.raises(ChannelUnavailable) as excinfo:
                await channel.reply(message, "my words")
            assert "another" not in str(excinfo.value)


@pytest.mark.requirement("D22")
async def test_progress_is_shown_in_a_card_that_becomes_the_answer(
    platform: LarkPlatform, channel: LarkChannel, clock: FakeClock
) -> None:
    """One card per answer, updated at most once a second, found again by a process that did not show it."""
    event = platform.say(platform.p2p("ou_ann"), "ou_ann", "hello")
    message = await received(channel, platform, event)
    shown = await channel.show_progress(message, "one", None)
    assert await channel.show_progress(message, "one two", shown) == shown
    assert [one.text for one in platform.replies(event)] == ["one"]
    clock.advance(timedelta(seconds=1))
    await channel.show_progress(message, "one two", shown)
    assert [one.text for one in platform.replies(event)] == ["one two"]

    clock.advance(timedelta(seconds=1))
    platform.rate_limit(times=1, reset=9)
    assert await channel.show_progress(message, "one two three", shown) == shown
    clock.advance(timedelta(seconds=8))
    assert await channel.show_progress(message, "one two three", shown) == shown
    await channel.reply(message, "one two three four", shown)
    assert platform.requests["patch"] == 3
    async with connect(platform, clock) as another:
        await another.reply(message, "all of it")

    assert [(one.kind, one.text) for one in platform.replies(event)] == [("interactive", "all of it")]
    plain = LarkChannel(LarkApp(app_id="cli_1", app_secret="s", encrypt_key="k", cards=False), clock=clock)
    assert await plain.show_progress(message, "one", None) is None
    await plain.close()


@pytest.mark.requirement("D8", "D27")
async def test_the_context_of_a_group_is_what_others_wrote_before(
    platform: LarkPlatform, channel: LarkChannel, clock: FakeClock
) -> None:
    """Oldest first, with names where they are known, without the bot and without what was said to it."""
    group = platform.group("ou_ann", "ou_ben", "ou_cat")
    say = platform.say
    say(group, "ou_ann", "too early")
    say(group, "ou_ann", "the red one", mentions=["ou_ben"])
    say(group, "ou_ben", kind="image")
    deep = say(group, "ou_ben", kind="post").message
    assert deep is not None
    deep.content = '{"content": ' + "[" * 100_000 + "]" * 100_000 + "}"
    earlier = say(group, "ou_ben", "and before?", mention_bot=True)
    await channel.reply(await received(channel, platform, earlier), "the bot's answer")
    platform.recall(say(group, "ou_cat", "taken back"))
    say(group, "ou_ben", "no, the blue one", kind="post")
    clock.advance(timedelta(seconds=1))
    asked = say(group, "ou_ann", "which one?", mention_bot=True, mentions=["ou_ben"])
    clock.advance(timedelta(seconds=1))
    say(group, "ou_cat", "later")
    message = await received(channel, platform, asked)

    lines = await channel.chat_context(message, 2)
    again = await channel.chat_context(message, 2)

    told = [(line.sender, line.sender_name, line.text) for line in lines]
    assert told == [("ou_ann", "", "@Ben the red one"), ("ou_ben", "Ben", "no, the blue one")]
    assert (again, platform.requests["list"], platform.requests["bot"]) == (lines, 1, 1)
    say(group, "ou_ben", "the green one")
    next_one = await received(channel, platform, say(group, "ou_ann", "and now?", mention_bot=True))
    assert (await channel.chat_context(next_one, 1))[0].text == "the green one"
    clock.advance(timedelta(seconds=15))
    platform.fail("list", times=1)
    with pytest.raises(ChannelUnavailable):
        await channel.chat_context(message, 2)
    platform.recover()
    assert not channel._lists._held, "what is no longer used is not kept"
    private = say(platform.p2p("ou_ann"), "ou_ann", "hi")
    assert await channel.chat_context(await received(channel, platform, private), 5) == []


@pytest.mark.requirement("D8")
async def test_a_mention_waits_for_the_bots_identity(platform: LarkPlatform, channel: LarkChannel) -> None:
    """Where the platform does not tell who the bot is, the event is to be delivered again."""
    event = platform.say(platform.group("ou_ann"), "ou_ann", "hi", mention_bot=True)
    platform.fail("bot", times=1)
    with pytest.raises(ChannelUnavailable):
        await received(channel, platform, event)

    message = await received(channel, platform, event)

    assert (message.addressed, message.text) == (True, "hi")
