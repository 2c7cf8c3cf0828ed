"""What an assistant's tools leave for the next question belongs to the answer it came with, and goes where it goes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

import tenuto
from tenuto.app import Tenuto
from tenuto.chat import ChatRequest
from tenuto.llm import Call
from tenuto.llm.scripted import Script
from tenuto.model import Draft, Message, Page, Role, Scope, Session, Truncation
from tenuto.model.generation import ToolContext, ToolOutput
from tenuto.model.policy import ContextPolicy, preset
from tenuto.model.values import JsonObject
from tenuto.sessions import AppendRequest
from tenuto.sessions.transfer import ExportFormat, iter_export, parse_export
from tenuto.sessions.views import MessageView
from tests.chats import Adder, Talk, ask, helper, patient, talk
from tests.clock import START
from tests.samples import ANN, answers, fresh, says

ANEW = ChatRequest(session_id="s", regenerate=True)


def sums(*totals: int, **policy: Any) -> tuple[Talk, Adder]:
    """A helper who adds in every turn, and so remembers these sums one after the other."""
    adder = Adder()
    scripts: list[Script] = []
    for total in totals:
        scripts += [[Call("add", {"a": total, "b": 0})], f"It is {total}."]
    return talk(*scripts, assistants=[helper(tools=(adder,), policies=patient(**policy))]), adder


async def newest(t: Talk, session_id: str = "s") -> Message:
    return (await t.sessions.messages(ANN, session_id)).messages[-1]


async def first_end(t: Talk) -> int:
    """Where the first turn ends."""
    return next(m.seq for m in (await t.sessions.messages(ANN, "s")).messages if m.text.startswith("It is"))


async def test_the_next_turn_finds_what_the_last_answer_left() -> None:
    t, adder = sums(1, 2)

    for question in ("One?", "Two?"):
        await t.chat.take_turn(ANN, ask(question, "s"))

    assert [turn.state for turn in adder.calls] == [{}, {"last": 1}]
    assert (await newest(t)).metadata["state"] == {"helper": {"last": 2}}


async def test_an_answer_made_anew_knows_nothing_of_the_one_it_replaces() -> None:
    t, adder = sums(1, 2, 3, 4)
    for question in ("One?", "Two?"):
        await t.chat.take_turn(ANN, ask(question, "s"))

    for _ in range(2):
        await t.chat.take_turn(ANN, ANEW)

    assert [turn.state for turn in adder.calls] == [{}, {"last": 1}, {"last": 1}, {"last": 1}]


async def test_words_said_differently_know_nothing_of_what_they_replace() -> None:
    t, adder = sums(1, 2, 3)
    for question in ("One?", "Two?"):
        await t.chat.take_turn(ANN, ask(question, "s"))

    await t.chat.take_turn(ANN, ask("Three?", "s", edit=await first_end(t) + 1))

    assert adder.calls[-1].state == {"last": 1}


@pytest.mark.parametrize("how", ["truncated", "forked", "reset"])
async def test_a_talk_that_was_cut_goes_on_from_what_is_left(how: str) -> None:
    t, adder = sums(1, 2, 3)
    for question in ("One?", "Two?"):
        await t.chat.take_turn(ANN, ask(question, "s"))
    there = "s"
    match how:
        case "truncated":
            await t.sessions.truncate(ANN, "s", Truncation(after=await first_end(t)))
        case "forked":
            there = (await t.sessions.fork(ANN, "s", at=await first_end(t))).id
        case _:
            await t.sessions.reset(ANN, "s")

    await t.chat.take_turn(ANN, ask("Three?", there))

    assert adder.calls[-1].state == ({} if how == "reset" else {"last": 1})


@pytest.mark.parametrize("written", list(ExportFormat))
async def test_a_talk_that_was_exported_goes_on_where_it_is_imported(written: ExportFormat) -> None:
    t, adder = sums(1, 2)
    await t.chat.take_turn(ANN, ask("One?", "s"))
    session = await t.sessions.get(ANN, "s")
    pages, read = t.sessions.iter_pages(ANN, session), partial(t.sessions.attachment, ANN, "s")
    paper = b"".join([piece async for piece in iter_export(session, pages, written, read)])

    saved = parse_export(paper, now=START, new_id=lambda: fresh("m"))
    there = await t.sessions.restore(ANN, saved)
    await t.chat.take_turn(ANN, ask("Two?", there.id))

    assert adder.calls[-1].state == {"last": 1}


async def test_small_talk_hands_on_what_was_left_however_long_it_is() -> None:
    """Only the end of a long log is loaded; the newest answer is always in it."""
    policies = replace(patient(), context=ContextPolicy(window_turns=2))
    t = talk([Call("add", {"a": 7, "b": 0})], "Hm.", assistants=[helper(tools=(Adder(),), policies=policies)])
    await t.chat.take_turn(ANN, ask("Seven?", "s"))

    for number in range(30):
        await t.chat.take_turn(ANN, ask(f"And then, {number}?", "s"))

    last = t.model.requests[-1].tool_context
    assert last is not None
    assert len(last.history) < 40
    assert last.state == {"last": 7}


@pytest.mark.requirement("C13")
async def test_a_stored_cap_leaves_the_state_with_the_newest_answer() -> None:
    """Older messages go, and a question still finds what it points at."""
    t = talk([Call("add", {"a": 7, "b": 0})], "Hm.", assistants=[helper(tools=(Adder(),), policies=preset("npc"))])
    for number in range(30):
        await t.chat.take_turn(ANN, ask(f"And then, {number}?", "s"))

    assert (await t.sessions.get(ANN, "s")).messages == 50
    last = t.model.requests[-1].tool_context
    assert last is not None
    assert last.state == {"last": 7}


async def test_each_assistant_finds_its_own() -> None:
    mine, theirs = Adder(), Adder()
    scripts: list[Script] = [[Call("add", {"a": 1, "b": 0})], "One.", [Call("add", {"a": 2, "b": 0})], "Two.", "Hm."]
    t = talk(*scripts, assistants=[helper(tools=(mine,)), helper(name="other", tools=(theirs,))])

    for name in ("helper", "other", "helper", "other"):
        await t.chat.take_turn(ANN, ask("And?", "s", assistant=name))

    states = [asking.tool_context.state for asking in t.model.requests if asking.tool_context is not None]
    assert states[-2:] == [{"last": 1}, {"last": 2}]


@pytest.mark.parametrize("limit", [1024, 4096])
async def test_what_is_too_large_to_be_kept_with_an_answer_costs_nobody_the_answer(limit: int) -> None:
    """And nothing older passes for it."""

    class Hoarder(Adder):
        async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
            outcome = await super().run(arguments, turn)
            return replace(outcome, state={"hoard": "x" * int(arguments["a"])})

    adder = Hoarder()
    sizes = (300, limit, 300)
    scripts = [step for size in sizes for step in ([Call("add", {"a": size, "b": 0})], "Done.")]
    t = talk(*scripts, assistants=[helper(tools=(adder,), policies=patient(max_message_bytes=limit))])

    replies = [await t.chat.take_turn(ANN, ask("More", "s")) for _ in sizes]

    assert [reply.text for reply in replies] == ["Done."] * 3
    assert [len(turn.state.get("hoard", "")) for turn in adder.calls] == [0, 300, 0]
    assert len((await newest(t)).metadata["state"]["helper"]["hoard"]) == 300


ODD: list[Any] = [7, "x", [1], {"else": {}}]


@pytest.mark.parametrize(
    "message",
    [
        *(answers("Ha!", metadata={"state": odd}) for odd in ODD),
        *(answers("Ha!", metadata={"state": {"helper": odd}}) for odd in (7, None)),
        says("Only an answer brings state.", metadata={"state": {"helper": {"last": 9}}}),
    ],
    ids=lambda message: f"{message.role} {message.metadata['state']}",
)
async def test_what_others_write_where_state_is_kept_does_no_harm(message: Draft) -> None:
    t, adder = sums(1, 2)
    await t.chat.take_turn(ANN, ask("One?", "s"))
    await t.sessions.append(ANN, "s", AppendRequest(messages=(message,)))

    await t.chat.take_turn(ANN, ask("Two?", "s"))

    assert adder.calls[-1].state == {"last": 1}


async def test_doors_show_an_answer_without_what_tools_keep_with_it() -> None:
    t, _ = sums(1)
    await t.chat.take_turn(ANN, ask("One?", "s"))
    message = await newest(t)

    shown, saved = to_builtins(MessageView.of(message)), to_builtins(MessageView.complete(message))

    assert "state" not in shown["metadata"]
    assert saved == {**shown, "metadata": {**shown["metadata"], "state": {"helper": {"last": 1}}}}


# As people ask: without a language model, with the goods and characters that come along


class Person:
    """A user who talks to one assistant, offline."""

    def __init__(self, app: Tenuto, assistant: str) -> None:
        self.app, self.assistant = app, assistant
        self.scope: Scope = app.scope(user="ann")
        self.session: str | None = None

    async def say(self, text: str = "", **rest: Any) -> str:
        chat = await self.app.chat()
        request = ChatRequest(text=text, session_id=self.session, assistant=self.assistant, **rest)
        reply = await chat.take_turn(self.scope, request)
        self.session = reply.session_id
        return reply.text

    async def last_words(self) -> int:
        assert self.session is not None
        page = await self.app.sessions.messages(self.scope, self.session, Page(limit=100))
        return [message.seq for message in page.messages if message.role is Role.USER][-1]


async def test_a_wish_that_was_taken_back_is_not_what_the_second_one_points_at() -> None:
    async with tenuto.open("memory://") as app:
        ann = Person(app, "goods")
        await ann.say("cheap phones?")
        meant = await ann.say("the second one")
        await ann.say("cheap laptops", edit=await ann.last_words())

        assert await ann.say("the second one", edit=await ann.last_words()) == meant


async def cut_off(app: Tenuto, person: Person, how: str, after: int) -> Session:
    assert person.session is not None
    if how == "fork":
        return await app.sessions.fork(person.scope, person.session, after)
    return await app.sessions.truncate(person.scope, person.session, Truncation(after=after))


@pytest.mark.parametrize("how", ["fork", "truncate"])
async def test_a_talk_cut_behind_the_phones_is_about_phones(how: str) -> None:
    async with tenuto.open("memory://") as app:
        ann = Person(app, "goods")
        await ann.say("cheap phones?")
        await ann.say("cheap laptops")
        cut = await ann.last_words() - 1
        ann.session = (await cut_off(app, ann, how, cut)).id

        assert "Phone" in await ann.say("the first one")


async def test_a_comparison_made_anew_compares_with_the_same_thing() -> None:
    async with tenuto.open("memory://") as app:
        ann = Person(app, "goods")
        await ann.say("best rated laptops")
        once = await ann.say("cheaper")

        assert [await ann.say(regenerate=True) for _ in range(2)] == [once, once]


async def test_a_rule_that_was_edited_away_is_not_the_topic() -> None:
    async with tenuto.open("memory://") as app:
        ann = Person(app, "npc")
        await ann.say("第三条")
        await ann.say("第五条")
        story = await ann.say("有什么故事吗", edit=await ann.last_words())

        assert "E-STORY-03" in story
        assert [await ann.say(regenerate=True) for _ in range(2)] == [story, story]
