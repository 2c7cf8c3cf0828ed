"""What an assistant's tools leave for the next question: it stands in the answer's metadata, and goes where that goes.

Taken back, cut off, forked or exported, an answer takes along what was left with it; so what is found is always of the
talk that stands. Only the end of a log is loaded with a turn, hence every answer hands on what it found.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from tenuto.model import Draft, Message, Role
from tenuto.model.message import STATE, metadata_bytes
from tenuto.model.values import JsonObject

_log = logging.getLogger(__name__)


def load_tool_state(messages: Sequence[Message], assistant: str) -> JsonObject:
    """What the tools of an assistant left with its newest answer; anybody may have written it."""
    for message in reversed(messages):
        left = message.metadata.get(STATE) if message.role is Role.ASSISTANT else None
        state = left.get(assistant) if isinstance(left, dict) else None
        if isinstance(state, dict):
            return state
    return {}


def bearing(answer: Draft, assistant: str, state: JsonObject, most: int) -> Draft:
    """An answer with what the tools leave; as nothing, where that makes it larger than a message may be.

    What an earlier answer left shall not be taken for it.
    """
    if not state:
        return answer
    for kept in (state, {}):
        with_state = replace(answer, metadata={**answer.metadata, STATE: {assistant: kept}})
        if metadata_bytes(with_state) <= most:
            return with_state
        _log.warning("what the tools of %s left is too large to be kept with the answer", assistant)
    return answer
