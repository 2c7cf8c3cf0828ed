"""How much memory cached messages take: no more than is counted, in any script."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tenuto.model import AppendBatch, Draft, Message, NewSession, Role, text_part, tool_result
from tenuto.model.message import memory_bytes
from tenuto.model.scope import session_key
from tenuto.model.values import JsonObject
from tests.doubles import MemoryStore
from tests.samples import ANN, SENT_AT

ENGLISH, CHINESE, MIXED = (
    "a small word " * 50,
    "上次说的那个方案我又想了想" * 50,
    "one smile among many letters" * 50 + "😀",
)
SCRIPTS = pytest.mark.parametrize("text", [ENGLISH, CHINESE, MIXED], ids=["English", "Chinese", "emoji"])


async def _kept(part: JsonObject, **values: Any) -> Message:
    """A message as it lies in the cache of a process that has stored it."""
    store = MemoryStore()
    draft = Draft(id="m", role=Role.USER, sent_at=SENT_AT, parts=(part,), **values)
    await store.sessions.append(ANN, "s", AppendBatch(id="b", messages=(draft,), create=NewSession()))
    record = store.cache.get(session_key(ANN, "s"))
    assert record is not None
    return record.tail[0]


@SCRIPTS
async def test_a_cached_message_weighs_the_words_that_it_holds(text: str) -> None:
    message = await _kept(text_part(text))

    weight = memory_bytes(message)

    words = message.parts[0]["text"]
    assert words == text
    assert sys.getsizeof(words) < weight < sys.getsizeof(words) + 1500


@SCRIPTS
async def test_what_comes_along_is_weighed_as_it_is_held(text: str) -> None:
    message = await _kept(
        tool_result("call", {"found": [text]}), metadata={"shown": text}, extra={"more": {"of": text}}
    )

    weight = memory_bytes(message)

    held = [message.parts[0]["output"]["found"][0], message.metadata["shown"], message.extra["more"]["of"]]
    assert held == [text] * 3
    taken = sum(map(sys.getsizeof, held))
    assert taken < weight < taken + 3000
