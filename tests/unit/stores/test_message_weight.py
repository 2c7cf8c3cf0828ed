"""How much memory the messages take that stores know by heart: no more than is counted, in any script."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tenuto.model import Draft, Message, Role, text_part, tool_result
from tenuto.model.message import memory_bytes
from tenuto.model.values import JsonObject
from tenuto.stores.encoding import encode_draft, number_drafts
from tests.samples import SENT_AT

ENGLISH, CHINESE, MIXED = (
    "a small word " * 50,
    "上次说的那个方案我又想了想" * 50,
    "one smile among many letters" * 50 + "😀",
)
SCRIPTS = pytest.mark.parametrize("text", [ENGLISH, CHINESE, MIXED], ids=["English", "Chinese", "emoji"])


def _kept(part: JsonObject, **values: Any) -> Message:
    draft = Draft(id="m", role=Role.USER, sent_at=SENT_AT, parts=(part,), **values)
    encode_draft(draft)
    (message,) = number_drafts((draft,), 1, [1])
    return message


@SCRIPTS
def test_a_kept_message_holds_its_words_once_and_weighs_them(text: str) -> None:
    message = _kept(text_part(text))

    weight = memory_bytes(message)

    words = message.parts[0]["text"]
    assert words == text
    assert sys.getsizeof(words) == sys.getsizeof("".join(list(text)))
    assert sys.getsizeof(words) < weight < sys.getsizeof(words) + 1500


@SCRIPTS
def test_what_comes_along_is_weighed_as_it_is_held(text: str) -> None:
    message = _kept(tool_result("call", {"found": [text]}), metadata={"shown": text}, extra={"more": {"of": text}})

    weight = memory_bytes(message)

    held = [message.parts[0]["output"]["found"][0], message.metadata["shown"], message.extra["more"]["of"]]
    assert held == [text] * 3
    taken = sum(map(sys.getsizeof, held))
    assert taken == 3 * sys.getsizeof("".join(list(text)))
    assert taken < weight < taken + 3000
