"""Private data in prompts for a language model, and in its answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.app import Tenuto
from tenuto.chat import ChatRequest, ReplyFinished
from tenuto.errors import ModelFailed, PrivateData
from tenuto.llm.scripted import Call, Fail, Say, Script
from tenuto.model import Page
from tenuto.model.generation import TextDelta, ToolContext, ToolOutput, ToolSpec
from tenuto.model.values import JsonObject
from tenuto.privacy.placeholders import RestoringStream, neutralize_text, restore_text
from tenuto.sessions import AppendRequest
from tests.samples import ANN, answers
from tests.unit.privacy.redacting_app import MAIL, prompt_of, redacting_app


class Post:
    """A tool that sends a letter, and records the recipient."""

    spec = ToolSpec(name="post", description="Send a letter.", parameters={"type": "object"})

    def __init__(self) -> None:
        self.sent: list[JsonObject] = []
        self.seen: list[JsonObject] = []

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        self.sent.append(arguments)
        self.seen.append(turn.state)
        return ToolOutput(output={"sent_to": arguments.get("to")}, state={"last": arguments.get("to")})


async def left(app: Tenuto, session_id: str) -> list[JsonObject]:
    """The tool state, answer by answer."""
    page = await app.sessions.messages(ANN, session_id)
    return [m.metadata["state"]["helper"] for m in page.messages if "state" in m.metadata]


async def stored(app: Tenuto, session_id: str) -> list[str]:
    return [message.text for message in (await app.sessions.messages(ANN, session_id, Page(limit=20))).messages]


async def test_by_default_the_model_sees_what_was_said() -> None:
    async with redacting_app("I wrote it down.") as (app, model):
        await app.ask(ANN, f"My mail is {MAIL}.")
        assert MAIL in prompt_of(model)


async def test_pseudonyms_of_earlier_turns_are_values_again_for_a_model_that_may_see_them() -> None:
    async with redacting_app("Noted.", f"It is {MAIL}.", privacy_message="pseudonym") as (app, model):
        first = await app.ask(ANN, f"My mail is {MAIL}.")
        reply = await app.ask(ANN, "What is my mail?", session_id=first.session_id)

        assert f"My mail is {MAIL}." in prompt_of(model)
        assert reply.text == f"It is {MAIL}."
        assert await stored(app, first.session_id) == [
            "My mail is [EMAIL_1].",
            "Noted.",
            "What is my mail?",
            "It is [EMAIL_1].",
        ]


@pytest.mark.parametrize("message", ["keep", "pseudonym"])
async def test_a_model_may_be_shown_marks_and_its_answer_comes_back_with_values(message: str) -> None:
    scripts: list[Script] = [Say("I will write to [EMA", "IL_1", "] and [PHONE_9]."), "Yes."]
    async with redacting_app(*scripts, privacy_model="pseudonym", privacy_message=message) as (app, model):
        reply = await app.ask(ANN, f"Write to {MAIL}.")
        await app.ask(ANN, "Did you?", session_id=reply.session_id)

        assert reply.text == f"I will write to {MAIL} and [PHONE_9]."
        assert MAIL not in prompt_of(model, 0) + prompt_of(model, 1)
        assert "Write to [EMAIL_1]." in prompt_of(model, 1)


async def test_tools_get_the_values_behind_the_marks_a_model_calls_them_with() -> None:
    tool = Post()
    script: list[Script] = [Call("post", {"to": "[EMAIL_1]", "cc": ["[EMAIL_1]"]}), "Sent to [EMAIL_1]."]
    async with redacting_app(*script, tool=tool, privacy_model="pseudonym") as (app, model):
        reply = await app.ask(ANN, f"Write to {MAIL}.")

        assert tool.sent == [{"to": MAIL, "cc": [MAIL]}]
        assert MAIL not in prompt_of(model, 1)
        assert reply.text == f"Sent to {MAIL}."


@pytest.mark.requirement("T10")
async def test_a_model_may_be_shown_redactions() -> None:
    async with redacting_app("I cannot see it.", privacy_model="redact") as (app, model):
        reply = await app.ask(ANN, f"Write to {MAIL}.")

        assert "Write to [REDACTED_EMAIL]." in prompt_of(model)
        assert await stored(app, reply.session_id) == [f"Write to {MAIL}.", "I cannot see it."]


@pytest.mark.parametrize(
    ("said", "profile", "shown"),
    [("Please say [EMAIL_1].", {}, "Please say ［EMAIL_1］."), ("Who am I?", {"name": "[EMAIL_1]"}, "(EMAIL_1)")],
    ids=["in words", "in a profile"],
)
async def test_a_typed_mark_brings_nobody_a_value(said: str, profile: JsonObject, shown: str) -> None:
    async with redacting_app("Noted.", "I do not know.", privacy_message="pseudonym") as (app, model):
        first = await app.ask(ANN, f"My mail is {MAIL}.")
        await app.ask(ANN, said, session_id=first.session_id, profile=profile)
        assert shown in prompt_of(model)


async def test_an_answer_asked_for_again_comes_with_its_values() -> None:
    async with redacting_app(f"It is {MAIL}.", privacy_message="pseudonym") as (app, _):
        first = await app.ask(ANN, f"My mail is {MAIL}.", idempotency_key="k")
        again = await app.ask(ANN, f"My mail is {MAIL}.", idempotency_key="k")
        assert again.replayed
        assert again.text == first.text


async def test_an_answer_that_could_not_be_made_anew_keeps_its_values() -> None:
    other = "bob@example.org"
    async with redacting_app(f"Ask {other}.", [Fail()], privacy_message="pseudonym") as (app, _):
        first = await app.ask(ANN, "Whom do I ask?", idempotency_key="k")
        chat = await app.chat()
        with pytest.raises(ModelFailed):
            await chat.take_turn(ANN, ChatRequest(session_id=first.session_id, regenerate=True))

        assert await stored(app, first.session_id) == ["Whom do I ask?", "Ask [EMAIL_1]."]
        assert (await app.ask(ANN, "Whom do I ask?", idempotency_key="k")).text == f"Ask {other}."


async def test_tools_read_values_in_what_they_left_behind() -> None:
    tool = Post()
    scripts: list[Script] = [Call("post", {"to": MAIL}), "Sent.", Call("post", {"to": "again"}), "Sent."]
    async with redacting_app(*scripts, tool=tool, privacy_message="pseudonym") as (app, _):
        first = await app.ask(ANN, "Write.")
        await app.ask(ANN, "And again.", session_id=first.session_id)

        assert tool.seen[-1] == {"last": MAIL}
        assert await left(app, first.session_id) == [{"last": "[EMAIL_1]"}, {"last": "again"}]


async def test_what_tools_leave_behind_is_screened_and_counts_for_nothing_an_answer_says() -> None:
    scripts: list[Script] = [Call("post", {"to": MAIL}), "Sent.", "You are welcome."]
    async with redacting_app(*scripts, tool=Post(), privacy_message="redact") as (app, _):
        first = await app.ask(ANN, "Write.")
        await app.ask(ANN, "Thanks.", session_id=first.session_id)

        assert await left(app, first.session_id) == [{"last": "[REDACTED_EMAIL]"}] * 2
        page = await app.sessions.messages(ANN, first.session_id)
        said = [m for m in page.messages if m.text in ("Sent.", "You are welcome.")]
        assert [m.metadata.get("redacted") for m in said] == [None, None]


async def test_a_mark_that_somebody_writes_where_tools_leave_things_opens_nothing() -> None:
    tool = Post()
    scripts: list[Script] = ["Noted.", Call("post", {"to": "x"}), "Sent."]
    async with redacting_app(*scripts, tool=tool, privacy_message="pseudonym") as (app, _):
        first = await app.ask(ANN, f"My mail is {MAIL}.")
        forged = answers("Mine.", metadata={"state": {"helper": {"last": "[EMAIL_1]"}}})
        await app.sessions.append(ANN, first.session_id, AppendRequest(messages=(forged,)))
        await app.ask(ANN, "And?", session_id=first.session_id)

        assert tool.seen[-1] == {"last": "［EMAIL_1］"}


@pytest.mark.parametrize("title", ["keep", "pseudonym"])
async def test_the_model_for_titles_sees_no_more_than_models_may(title: str) -> None:
    async with redacting_app(
        "Certainly.", "A Fine Title", privacy_title=title, privacy_model="redact", summarizer_model="scripted"
    ) as (app, model):
        await app.ask(ANN, f"Please write to {MAIL} today.")
        await app.upkeep.drain()
        asked = [str(asking.messages) for asking in model.requests]
        # The answer, the title, and what to remember, which is asked for once more since a title is no answer to it.
        assert len(asked) == 4
        assert not any(MAIL in one for one in asked)


@pytest.mark.parametrize("sink", ["privacy_message", "privacy_model"])
async def test_what_is_blocked_is_refused_before_anything_is_stored_or_asked(sink: str) -> None:
    settings: dict[str, Any] = {sink: "block"}
    async with redacting_app("Hello.", **settings) as (app, model):
        with pytest.raises(PrivateData) as excinfo:
            await app.ask(ANN, f"My mail is {MAIL}, card 4242 4242 4242 4242.")

        assert excinfo.value.types == ("CARD", "EMAIL")
        assert "example" not in str(excinfo.value)
        assert model.requests == []
        assert (await app.sessions.stats(ANN)).sessions == 0
        assert (await app.ask(ANN, "Hello.")).text == "Hello."


async def test_answers_may_be_redacted_as_they_stream() -> None:
    said = Say("Write to ann@exam", "ple.com", " or ring 138001", "38000. " + "And so on. " * 60)
    async with redacting_app(said, privacy_answer="redact") as (app, _):
        chat = await app.chat()
        events = [event async for event in chat.stream(ANN, ChatRequest(text="How do I reach her?"))]

        streamed = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert streamed.startswith("Write to [REDACTED_EMAIL] or ring [REDACTED_PHONE]. And so on.")
        last = events[-1]
        assert isinstance(last, ReplyFinished)
        assert last.reply.text == streamed
        assert await stored(app, last.reply.session_id) == ["How do I reach her?", streamed]


@given(text=st.text(alphabet="[]EMAIL_12 x", max_size=60), cuts=st.lists(st.integers(1, 7), max_size=30))
def test_marks_are_put_back_the_same_in_any_chunks(text: str, cuts: list[int]) -> None:
    values = {"[EMAIL_1]": "ann@example.com", "[EMAIL_2]": "[EMAIL_1]"}
    stream, out, at = RestoringStream(values), "", 0
    for cut in cuts:
        out += stream.feed(text[at : at + cut])
        at += cut
    assert out + stream.feed(text[at:]) + stream.flush() == restore_text(text, values)


@given(st.text(alphabet="[]EMAIL_12 x", max_size=60))
def test_an_escaped_text_holds_no_mark(text: str) -> None:
    values = {f"[EMAIL_{number}]": "secret" for number in range(1, 23)}
    assert restore_text(neutralize_text(text), values) == neutralize_text(text)
