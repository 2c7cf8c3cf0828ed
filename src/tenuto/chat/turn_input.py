"""The messages that a turn answers, as they are stored: a text, or messages of another API."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tenuto.chat.request import ChatRequest
from tenuto.chat.revision import mark_of
from tenuto.context import TokenCounter, display_name
from tenuto.context.window import pair_tools
from tenuto.model import Draft, Message, OpenTurn, Role, Scope, text_part
from tenuto.model.message import INPUT, NAME, readable_part
from tenuto.model.turn import ONCE
from tenuto.model.values import JsonObject
from tenuto.ports import Clock
from tenuto.sessions import fresh_id


def input_messages(scope: Scope, request: ChatRequest, clock: Clock, counter: TokenCounter) -> tuple[Draft, ...]:
    """The request's messages; none if it answers the last ones again."""
    if request.regenerate:
        return ()
    # In a chat the prompts of later turns need it.
    name = display_name(request.profile) if scope.chat is not None else ""
    once: JsonObject = {ONCE: mark_of(request.idempotency_key)} if request.idempotency_key is not None else {}
    if request.messages:
        return tuple([_input_message(scope, message, counter, name, once) for message in request.messages])
    draft = Draft(
        id=fresh_id(),
        role=Role.USER,
        sent_at=clock(),
        parts=(text_part(request.text),),
        speaker=scope.user,
        persona=scope.persona,
        tokens=counter.count(request.text),
        extra={NAME: name} if name else {},
        metadata=once,
    )
    return (draft,)


def _input_message(scope: Scope, message: Draft, counter: TokenCounter, name: str, once: JsonObject) -> Draft:
    users = message.role is Role.USER
    return replace(
        message,
        speaker=message.speaker if message.role is Role.ASSISTANT else scope.user,
        persona=scope.persona,
        tokens=counter.count_message(message),
        extra={NAME: name, **message.extra} if name and users else message.extra,
        metadata={**message.metadata, **once, **({} if users else {INPUT: True})},
    )


def number_messages(drafts: Sequence[Draft], talk: Sequence[Message]) -> tuple[Message, ...]:
    """Messages that are not stored, as the turn after this talk."""
    seq, turn = (talk[-1].seq, talk[-1].turn) if talk else (0, 0)
    fields = [msgspec.structs.asdict(draft) for draft in drafts]
    return tuple([Message(**each, seq=place, turn=turn + 1) for place, each in enumerate(fields, seq + 1)])


def has_unknown_output(turn: OpenTurn) -> bool:
    """Whether the turn brings the output of a call that does not wait for it: no model can be shown the two."""
    if turn.journaled or not any(message.role is Role.TOOL for message in turn.user_messages):
        return False
    paired = {place for _, place in pair_tools(turn.window)}
    own = {message.seq for message in turn.user_messages}
    return any(
        readable_part(part)["type"] == "tool_result" and (place, number) not in paired
        for place, message in enumerate(turn.window)
        if message.seq in own
        for number, part in enumerate(message.parts)
    )
