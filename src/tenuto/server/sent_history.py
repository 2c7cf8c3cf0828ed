"""What doors share that get the whole conversation with each request: talk and instructions apart, and an answer that
ends when its client leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from starlette.requests import ClientDisconnect, Request

from tenuto.chat import ChatEvent, LiveTurn, Reply
from tenuto.model.values import Json, JsonObject
from tenuto.server.streams import cancel_on_disconnect, until_lapsed

HISTORY: Final = "Tenuto-History"
"""The header of a response that says what the history of its request meant for the session."""
_TEXTS: Final = ("text", "input_text")
_SYSTEM: Final = ("system", "developer")


class Talk(NamedTuple):
    """The entries of a request that are talk, their places in it, and its instructions."""

    items: list[JsonObject]
    places: list[int]
    instructions: str | None


def split_talk(messages: Sequence[JsonObject], own_texts: Sequence[str] = ()) -> Talk:
    """Talk and instructions apart: messages of the system are instructions, wherever they stand, and so are the texts
    in a user's message that begin with one of an app's `own_texts`. What is said twice there is an instruction once."""
    items: list[JsonObject] = []
    places: list[int] = []
    instructions: dict[str, None] = {}
    marks = tuple(own_texts)
    for place, message in enumerate(messages):
        role = message.get("role")
        if role in _SYSTEM:
            instructions[_text_of(message.get("content"))] = None
            continue
        said: JsonObject | None = message
        if marks and role == "user":
            said = _without_own(message, marks, instructions)
        if said is not None:
            items.append(said)
            places.append(place)
    return Talk(items, places, "\n\n".join(filter(None, instructions)) or None)


def _without_own(message: JsonObject, marks: tuple[str, ...], instructions: dict[str, None]) -> JsonObject | None:
    """The message without the texts that the app put into it; `None` if there are no others."""
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        return message
    own = [part for part in parts if _is_own(part, marks)]
    if not own:
        return message
    instructions |= dict.fromkeys(part["text"] for part in own)
    rest = [part for part in parts if not _is_own(part, marks)]
    return {**message, "content": rest} if rest else None


def _is_own(part: Json, marks: tuple[str, ...]) -> bool:
    if not isinstance(part, dict) or part.get("type") not in _TEXTS or not isinstance(part.get("text"), str):
        return False
    return bool(part["text"].lstrip().startswith(marks))


def _text_of(content: Json) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        part["text"]
        for part in parts
        if isinstance(part, dict) and part.get("type") in _TEXTS and isinstance(part.get("text"), str)
    )


async def reply_while_here(request: Request, live: LiveTurn) -> Reply:
    """The whole answer. Where no key lets the client come back, one that leaves ends it: what was said is stored.

    Raises:
        ClientDisconnect: the client has left.
    """
    try:
        return await cancel_on_disconnect(request, live.reply())
    except ClientDisconnect:
        if live.key is None:
            live.stop_soon()
        raise


async def events_while_here(request: Request, live: LiveTurn) -> AsyncIterator[ChatEvent]:
    """The events of an answer, which ends as in `reply_while_here`."""
    try:
        async for _, event in until_lapsed(request, live.events()):
            yield event
    finally:
        if live.key is None:
            live.stop_soon()
