"""Chains, the scripted model, one-shot calls, and what importing the room costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tenuto.errors import FailureReason, ModelFailed, ModelTimeout, RequestRefused
from tenuto.llm import Call, Echo, Fail, FallbackChain, Hang, OfflineModel, Say, ScriptedModel, Stop, complete
from tenuto.model import Content, Role, text_part
from tenuto.model.attachment import MediaInputs, attachment_part
from tenuto.model.generation import ModelDone, ModelRequest, TextDelta, ToolCall, ToolCallRequested, ToolResult
from tenuto.model.parameters import FinishReason, ModelFacts
from tenuto.model.prompt import PromptMessage
from tests.chats import events_of, events_until_failure
from tests.samples import ANN

ASKING = ModelRequest(messages=(PromptMessage(role=Role.USER, parts=(text_part("hi"),)),))
FELL_BACK = ModelDone(
    model="c", used_fallback=True, fallback_reason=FailureReason.OTHER, fallback_message="the model a does not answer"
)
SOON = timedelta(seconds=30)
answer = partial(events_of, asking=ASKING)


async def test_the_next_model_answers_when_one_fails_before_its_first_word() -> None:
    broken, slow = ScriptedModel(Fail(), name="a"), ScriptedModel(Fail(ModelTimeout("b")), name="b")
    spare = ScriptedModel("hello", name="c")

    said = await answer(FallbackChain([broken, slow, spare]))

    assert said == [TextDelta(text="hello"), FELL_BACK]
    assert [len(model.requests) for model in (broken, slow, spare)] == [1, 1, 1]


async def test_the_first_model_that_answers_is_the_only_one_asked() -> None:
    spare = ScriptedModel("no")

    assert await answer(FallbackChain([ScriptedModel("yes", name="a"), spare])) == [
        TextDelta(text="yes"),
        ModelDone(model="a"),
    ]
    assert spare.requests == []


async def test_a_fallback_without_eyes_gets_a_placeholder_and_says_so() -> None:
    content = Content.of(ANN, b"a picture", "image/png", "cat.png")
    asking = replace(
        ASKING,
        messages=(PromptMessage(role=Role.USER, parts=(text_part("What is it? "), attachment_part(content))),),
        contents={content.id: content},
    )
    seer = ScriptedModel(Fail(), name="a", facts=ModelFacts(media=MediaInputs(content=frozenset({"image/*"}))))
    blind = ScriptedModel("A cat?", name="c")

    events = await events_of(FallbackChain([seer, blind]), asking)

    assert seer.requests == [asking]
    assert blind.requests[0].messages[0].text == "What is it? [picture: cat.png, image/png, 9 B; not shown]"
    assert events[-1] == replace(FELL_BACK, media_left_out=1)


async def test_no_fallback_without_eyes_answers_what_requires_them() -> None:
    content = Content.of(ANN, b"a picture", "image/png", "cat.png")
    asking = replace(
        ASKING,
        messages=(PromptMessage(role=Role.USER, parts=(attachment_part(content),)),),
        contents={content.id: content},
        require_attachments=True,
    )
    eyes = ModelFacts(media=MediaInputs(content=frozenset({"image/*"})))
    seer, blind = ScriptedModel(Fail(), name="a", facts=eyes), ScriptedModel("A cat?", name="b")

    events = await events_of(FallbackChain([seer, blind, ScriptedModel("A cat.", name="c", facts=eyes)]), asking)
    with pytest.raises(ModelFailed, match="a does not answer"):
        await events_of(FallbackChain([seer, blind]), asking)

    assert events == [TextDelta(text="A cat."), FELL_BACK]
    assert blind.requests == []


async def test_what_a_fallback_alone_refuses_of_a_request_is_no_fault_of_it() -> None:
    refusing = ScriptedModel(Fail(RequestRefused("b")), name="b")

    with pytest.raises(ModelTimeout):
        await answer(FallbackChain([ScriptedModel(Fail(ModelTimeout("a")), name="a"), refusing]))
    with pytest.raises(RequestRefused):
        await answer(FallbackChain([ScriptedModel(Fail(RequestRefused("a")), name="a"), refusing]))


@pytest.mark.parametrize("begun", [Say("Once "), Call("look")], ids=["a word", "a call"])
async def test_after_the_first_word_or_call_a_failure_is_a_failure(begun: Say | Call) -> None:
    spare = ScriptedModel("no")

    heard, why = await events_until_failure(FallbackChain([ScriptedModel([begun, Fail()], name="a"), spare]), ASKING)

    assert len(heard) == 1
    assert why == "the model a does not answer"
    assert spare.requests == []


async def test_the_last_failure_is_the_chains() -> None:
    with pytest.raises(ModelTimeout):
        await answer(FallbackChain([ScriptedModel(Fail(), name="a"), ScriptedModel(Fail(ModelTimeout("b")), name="b")]))


async def test_a_fault_of_ours_is_not_papered_over() -> None:
    with pytest.raises(KeyError):
        await answer(FallbackChain([ScriptedModel(Fail(KeyError("a bug"))), ScriptedModel("no")]))


async def test_the_offline_model_stands_in() -> None:
    said = await answer(FallbackChain([ScriptedModel(Fail()), OfflineModel(stand_in=True)]))

    assert said[-1] == replace(
        FELL_BACK, model="offline", offline=True, fallback_message="the model scripted does not answer"
    )


async def test_closing_a_chain_cancels_the_model_that_speaks() -> None:
    talker = ScriptedModel(Say("a", "b", "c"))

    async with aclosing(cast(Any, FallbackChain([talker, ScriptedModel("no")]).stream_answer(ASKING, ()))) as events:
        await anext(events)

    assert talker.cancelled == 1


async def test_a_script_is_played_answer_by_answer_and_its_end_again() -> None:
    model = ScriptedModel(
        [Say("look", "ing"), Call("look", {"q": 1})], Echo(), ended=ModelDone(model="x", cost_nanos=3)
    )
    result = ToolResult(call=ToolCall(id="1", name="look"), output=[1])

    first = await answer(model)
    second = await answer(model, asking=ModelRequest(messages=ASKING.messages, tool_results=(result,)))

    assert first == [
        TextDelta(text="look"),
        TextDelta(text="ing"),
        ToolCallRequested(call=ToolCall(id="call_0_1", name="look", arguments={"q": 1})),
        ModelDone(model="x", cost_nanos=3),
    ]
    assert second[0] == TextDelta(text="hi\nlook: [1]")
    assert (await answer(model))[0] == TextDelta(text="hi")
    assert model.requests[1].tool_results == (result,)


async def test_a_script_waits_until_it_is_let_go_on() -> None:
    hang = Hang()
    model = ScriptedModel([Say("a"), hang, Say("b")])

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(answer(model))
        await hang.reached.wait()
        assert not task.done()
        hang.release.set()

    assert [event.text for event in task.result() if isinstance(event, TextDelta)] == ["a", "b"]


async def test_a_cancelled_script_counts_as_cut_short() -> None:
    hang = Hang()
    model = ScriptedModel(hang)
    task = asyncio.create_task(answer(model))
    await hang.reached.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.cancelled == 1


async def test_a_one_shot_call_that_takes_too_long_is_a_timeout() -> None:
    with pytest.raises(ModelTimeout):
        await complete(ScriptedModel(Hang()), "system", "text", 10, timedelta(milliseconds=20))


@pytest.mark.parametrize("script", [[], [Stop()], [Say(" ")], [Say("half"), Stop()], [Call("look")]])
async def test_a_one_shot_call_without_words_or_end_is_a_failure(script: list[Any]) -> None:
    with pytest.raises(ModelFailed):
        await complete(ScriptedModel(script), "system", "text", 10, SOON)


async def test_a_one_shot_call_takes_no_words_of_the_offline_model() -> None:
    with pytest.raises(ModelFailed, match="offline"):
        await complete(
            FallbackChain([ScriptedModel(Fail()), OfflineModel(stand_in=True)]), "Give a title.", "Kyoto", 10, SOON
        )


def test_importing_the_room_does_not_import_a_providers_library() -> None:
    probe = "import sys, tenuto.llm; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=True)

    assert not {"pydantic_ai", "pydantic", "openai", "anthropic", "httpx"} & set(done.stdout.split())


async def test_what_a_model_cost_that_declined_counts_with_the_answer_of_the_next() -> None:
    declined = ModelDone(
        model="a",
        finish=FinishReason.CONTENT_FILTER,
        input_tokens=1000,
        output_tokens=5,
        cached_tokens=400,
        cost_nanos=7,
    )
    first, second = (ScriptedModel(Say(), name=name, ended=replace(declined, model=name)) for name in "ab")
    last = ScriptedModel("hello", name="c", ended=ModelDone(model="c", input_tokens=100, output_tokens=2, cost_nanos=1))

    done = (await answer(FallbackChain([first, second, last])))[-1]

    assert isinstance(done, ModelDone)
    assert (done.input_tokens, done.output_tokens, done.cached_tokens, done.cost_nanos) == (2100, 12, 800, 15)
