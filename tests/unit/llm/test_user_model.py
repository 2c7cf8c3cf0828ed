"""Models that a program hands over: alone, by a name, or in a chain with names of providers' models."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

import tenuto
from tenuto.app import Tenuto
from tenuto.chat import ChatRequest
from tenuto.errors import InvalidSetting, ModelFailed, UnsupportedParameter
from tenuto.llm import Fail, Hang, ScriptedModel
from tenuto.model.generation import ModelDone, ModelEvent, ModelRequest, TextDelta
from tenuto.model.parameters import ModelParameters
from tenuto.ports import Tool
from tests.chats import helper
from tests.samples import ANN
from tests.servers.openai_server import ModelServer, refusal, start_model_server, words

SECRET = "my password is hunter2"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may use keys from the environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with start_model_server() as running:
        yield running


class Stumbling:
    """A user's model, with errors of its own."""

    name = "stumbling"

    def __init__(self, fault: Exception, *said: str) -> None:
        self._fault = fault
        self._said = said

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        for text in self._said:
            yield TextDelta(text=text)
        raise self._fault


class Iterating:
    """A model whose answers are iterators, which is all that the port asks for."""

    name = "iterating"

    def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        return _Events([TextDelta(text="Step by step."), ModelDone(model="iterating")])


class _Events:
    def __init__(self, events: list[ModelEvent]) -> None:
        self._left = iter(events)

    def __aiter__(self) -> AsyncIterator[ModelEvent]:
        return self

    async def __anext__(self) -> ModelEvent:
        for event in self._left:
            return event
        raise StopAsyncIteration


async def say(t: Tenuto, **fields: Any) -> tuple[str, str, tuple[str, ...]]:
    reply = await (await t.chat()).take_turn(ANN, ChatRequest(text="Hello", **fields))
    return reply.text, reply.model, reply.degraded


@pytest.mark.parametrize("model", [TestModel(custom_output_text="Hi."), [TestModel(custom_output_text="Hi.")]])
async def test_a_model_of_pydantic_ai_answers(model: Any) -> None:
    async with tenuto.open("memory://", model=model) as t:
        assert await say(t) == ("Hi.", "test:test", ())


async def test_one_that_has_a_name_is_found_by_it() -> None:
    async with tenuto.open("memory://", model="mine", models={"mine": TestModel(custom_output_text="Hi.")}) as t:
        assert await say(t) == ("Hi.", "test:test", ())


async def test_a_chain_is_made_of_objects_and_names(server: ModelServer) -> None:
    server.answers(refusal(500, SECRET))
    mine = ScriptedModel([Fail()], name="mine")
    chain: list[Any] = [mine, "openai:x", TestModel(custom_output_text="Third."), "offline"]

    async with tenuto.open("memory://", model=chain, summarizer_model="offline", model_base_url=server.url) as t:
        assert await say(t) == ("Third.", "test:test", ("fallback_model",))

    assert [asked["model"] for asked in server.asked] == ["x"]
    assert len(mine.requests) == 1


async def test_a_chain_of_names_may_name_what_was_handed_over(server: ModelServer) -> None:
    server.answers(words("From the server."))
    mine = ScriptedModel([Fail()], name="mine")

    async with tenuto.open("memory://", model="mine, openai:x", models={"mine": mine}, model_base_url=server.url) as t:
        assert await say(t) == ("From the server.", "openai:x", ("fallback_model",))


async def test_two_of_one_name_are_two_models() -> None:
    chain = [ScriptedModel([Fail()]), ScriptedModel("Second.")]

    async with tenuto.open("memory://", model=chain) as t:
        assert (await say(t))[0] == "Second."


@pytest.mark.parametrize("main", ["mine, openai:x", "offline"])
async def test_the_main_address_is_for_whoever_names_its_provider(server: ModelServer, main: str) -> None:
    """An assistant's openai:y goes where the main chain's openai:x goes, and nowhere if the chain has no such."""
    server.answers(words("From the server."))
    other = helper(name="other", model="mine, openai:y")
    opening = tenuto.open(
        "memory://",
        model=main,
        models={"mine": ScriptedModel([Fail()], name="mine")},
        model_base_url=server.url,
        model_api_key="k",
        assistants=[other],
    )

    async with opening as t:
        if main == "offline":
            with pytest.raises(InvalidSetting, match="openai:y needs OPENAI_API_KEY"):
                await t.chat()
        else:
            assert (await say(t, assistant="other"))[1] == "openai:y"


async def test_a_small_model_can_be_handed_over_too() -> None:
    small = ScriptedModel("Hello Among Good Friends", name="small")

    async with tenuto.open("memory://", model=ScriptedModel("Hi."), summarizer_model=small) as t:
        reply = await t.ask(ANN, "Hello")
        await t.upkeep.drain()
        assert (await t.sessions.get(ANN, reply.session_id)).title == "Hello Among Good Friends"


@pytest.mark.parametrize("fault", [RuntimeError(SECRET), ValueError(SECRET), TimeoutError(SECRET)], ids=repr)
async def test_where_a_model_fails_the_next_one_answers(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with tenuto.open("memory://", model=[Stumbling(fault), ScriptedModel("Well.")]) as t:
            assert (await say(t))[0] == "Well."

    assert SECRET not in caplog.text


async def test_one_that_hangs_leaves_the_next_one_its_time(later: Callable[[float], None]) -> None:
    hang = Hang()
    hanging = ScriptedModel([hang], name="hanging")
    chain = [hanging, ScriptedModel("Well.")]

    async with tenuto.open(
        "memory://", model=chain, summarizer_model="offline", model_timeout=timedelta(seconds=30)
    ) as t:
        asking = asyncio.create_task(say(t))
        await hang.reached.wait()
        later(31)

        assert await asking == ("Well.", "scripted", ("fallback_model",))

    assert hanging.cancelled == 1


async def test_an_iterator_needs_no_way_to_be_closed() -> None:
    async with tenuto.open("memory://", model=Iterating()) as t:
        assert await say(t) == ("Step by step.", "iterating", ())


@pytest.mark.parametrize("said", [(), ("Half",)], ids=["at once", "half-way"])
async def test_without_a_next_one_it_is_a_model_that_failed(said: tuple[str, ...]) -> None:
    async with tenuto.open("memory://", model=Stumbling(RuntimeError(SECRET), *said)) as t:
        with pytest.raises(ModelFailed) as excinfo:
            await say(t)

    assert "RuntimeError" in str(excinfo.value)
    assert SECRET not in str(excinfo.value)


@pytest.mark.parametrize("wrong", [5, {}, [5], ["offline", None]], ids=repr)
async def test_what_is_no_model_is_said(wrong: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"^model: .*Pydantic AI model.*, not "):
        async with tenuto.open("memory://", model=wrong):
            pass


async def test_what_has_a_name_and_is_no_model_is_said() -> None:
    async with tenuto.open("memory://", model="mine", models={"mine": 5}) as t:  # type: ignore[dict-item]
        with pytest.raises(InvalidSetting, match="mine must be a ChatModel or a Pydantic AI model, not int"):
            await t.chat()


async def test_no_model_at_all_is_said() -> None:
    async with tenuto.open("memory://", model=[]) as t:
        with pytest.raises(InvalidSetting, match="names no model"):
            await t.chat()


async def test_a_wrong_main_model_is_blamed_on_no_assistant() -> None:
    others = [helper(name=f"other{number}", model=f"mine{number}") for number in range(5)]
    models = {f"mine{number}": ScriptedModel("Hi.") for number in range(5)}

    async with tenuto.open("memory://", model="offline, openai:x", models=models, assistants=others) as t:
        with pytest.raises(InvalidSetting, match=r"^model: names a model behind offline"):
            await t.chat()


class Choosy(ScriptedModel):
    """A user's model that says which parameters it does not take."""

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        return () if parameters.seed is None else ("seed",)


async def test_a_parameter_that_a_users_model_does_not_take_is_refused() -> None:
    asked = ChatRequest(text="Hi", parameters=ModelParameters(seed=7))
    async with tenuto.open("memory://", model="mine", models={"mine": Choosy("Hello.")}) as t:
        with pytest.raises(UnsupportedParameter, match="seed"):
            await t.ask(ANN, asked)
