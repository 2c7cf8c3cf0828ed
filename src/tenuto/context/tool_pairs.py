"""Tool calls and their results: providers refuse a prompt that has one without the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from tenuto.model.message import TOOL_PARTS, Message, Role, readable_part
from tenuto.model.values import JsonObject

_ASSISTANT: Final = Role.ASSISTANT
# A part's message and its number in it.
_Place = tuple[int, int]


def drop_unpaired_tools(messages: Sequence[Message], adjacent: bool = True) -> list[tuple[JsonObject, ...]]:
    """The parts of each message, without tool calls that have no result and results that have no call.

    An `adjacent` result follows its call before the assistant says anything else, as providers demand.
    """
    if not any(part["type"] in TOOL_PARTS for message in messages for part in message.parts):
        return [message.parts for message in messages]
    sound = set(chain.from_iterable(pair_tools(messages, adjacent)))
    return [_paired_parts(place, message, sound) for place, message in enumerate(messages)]


def pair_tools(messages: Sequence[Message], adjacent: bool = True) -> list[tuple[_Place, _Place]]:
    """Where calls and their results stand. Calls that are made at once may be messages of their own.

    Of several results of a call the last one counts: an output may be sent again after a turn that failed.
    """
    pairs: dict[_Place, _Place] = {}
    waiting: dict[str, _Place] = {}
    calling = False
    for place, message in enumerate(messages):
        calls: dict[str, _Place] = {}
        spoke = answers = False
        for number, part in enumerate(map(readable_part, message.parts)):
            match part["type"]:
                case "tool_result":
                    answers = True
                    call = waiting.get(str(part.get("call_id")))
                    if call is not None and "output" in part:
                        pairs[call] = place, number
                case "tool_call" if {"id", "name", "arguments"} <= part.keys():
                    calls[str(part.get("id"))] = (place, number)
                case "text":
                    spoke = spoke or (bool(part["text"]) and message.role is _ASSISTANT)
        if not adjacent or (calls and calling):
            waiting |= calls
        elif spoke or calls:
            waiting = calls
        calling = bool(calls) or (calling and not spoke and not answers)
    return list(pairs.items())


def _paired_parts(place: int, message: Message, sound: set[_Place]) -> tuple[JsonObject, ...]:
    return tuple(
        part for number, part in enumerate(message.parts) if part["type"] not in TOOL_PARTS or (place, number) in sound
    )
