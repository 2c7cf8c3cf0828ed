"""Finds the turn of a response, and the session in which the next one takes place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from tenuto.chat import ChatRequest
from tenuto.errors import SessionBusy, SessionExists, SessionNotFound, VersionConflict
from tenuto.model import Message, Page, Scope, Session
from tenuto.model.message import is_summary
from tenuto.model.policy import OnMissing, SessionPolicy
from tenuto.model.values import JsonObject
from tenuto.server.openai.conversations import new_conversation_id
from tenuto.server.openai.errors import ResponseNotFound
from tenuto.server.openai.items import ECHO
from tenuto.server.openai.response_objects import place_of_response
from tenuto.sessions import Sessions
from tenuto.sessions.ids import derived_id

_Result = TypeVar("_Result")
_READ: Final = 50
DELETED: Final = "deleted"


class StoredTurn(NamedTuple):
    """The turn of a response as it is stored; `reply` is `None` if it has none, and nothing follows the `last` one."""

    trace: str
    number: int
    session: Session
    messages: tuple[Message, ...]
    reply: Message | None
    last: bool

    @property
    def echo(self) -> JsonObject:
        """What the request said, where a reply is stored."""
        noted = self.reply.metadata.get(ECHO) if self.reply is not None else None
        return noted if isinstance(noted, dict) else {}


async def find_turn(sessions: Sessions, scope: Scope, response_id: str) -> StoredTurn:
    """The turn that a response id names.

    Raises:
        ResponseNotFound: there is none for this caller.
    """
    trace, session_id, number = place_of_response(response_id)
    found: list[Message] = []
    before: int | None = None
    last = True
    while True:
        try:
            page = await sessions.messages(scope, session_id, Page(limit=_READ, before=before))
        except SessionNotFound:
            raise ResponseNotFound from None
        said = [one for one in page.messages if not is_summary(one)]
        found[:0] = [one for one in said if one.turn == number]
        last = last and not any(one.turn > number for one in said)
        if not page.more_before or page.messages[0].turn < number:
            break
        before = page.messages[0].seq
    reply = next((one for one in reversed(found) if one.metadata.get("trace") == trace), None)
    turn = StoredTurn(trace, number, page.session, tuple(found), reply, last)
    if turn.echo.get(DELETED):
        raise ResponseNotFound
    return turn


async def follow_response(
    sessions: Sessions,
    scope: Scope,
    response_id: str,
    asked: ChatRequest,
    attempt: Callable[[ChatRequest], Awaitable[_Result]],
) -> _Result:
    """Take the turn after a response: in its session if it is the last there, else in a fork that ends with it.

    Of two requests that follow the same response at once, one goes on and the other forks. A conversation that the
    response named is changed by requests that name it, so there the next turn is always in a fork.

    Raises:
        SessionBusy: with a key; the turn that runs may be the one that this request asked for before.
        ResponseNotFound: there is no such response, or none that was answered.
    """
    turn = await find_turn(sessions, scope, response_id)
    if turn.reply is None:
        raise ResponseNotFound
    policy, key = asked.policy or sessions.policy, asked.idempotency_key
    if "conversation" not in turn.echo and (key is not None or turn.last):
        # A retry by its key may find its turn in either session, so it waits for one that runs.
        waiting = policy if key is not None else replace(policy, busy_wait=timedelta(0))
        try:
            return await attempt(
                replace(asked, session_id=turn.session.id, follows=turn.number, policy=existing(waiting))
            )
        except SessionBusy:
            if key is not None:
                raise
        except VersionConflict:
            pass
    named = new_conversation_id() if key is None else derived_id("conv_", response_id, key)
    try:
        fork_id = (await sessions.fork(scope, turn.session.id, at=turn.reply.seq, new_id=named)).id
    except SessionExists:
        fork_id = named
    return await attempt(replace(asked, session_id=fork_id, policy=existing(policy)))


def existing(policy: SessionPolicy) -> SessionPolicy:
    """The policy under which a session must exist: one that is named in vain is never made."""
    return policy if policy.on_missing is OnMissing.ERROR else replace(policy, on_missing=OnMissing.ERROR)
