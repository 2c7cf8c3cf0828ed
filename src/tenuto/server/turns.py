"""Routes for turns: begin, and later finish, renew or abandon.

A turn is named by an opaque token. It carries no authority: the caller's credential gives the scope anew at each call,
and the store checks the lease's id and the session's incarnation, so a forged token would have to guess both.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import ClassVar, Self

import msgspec
from msgspec.structs import replace

from tenuto.errors import Invalid, NotFound
from tenuto.model import FinishTurn, OpenTurn, Scope, TurnState
from tenuto.model.values import Value, View, check_id
from tenuto.server.auth import AuthContext, ServerContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import drafts_of, key_fingerprint, without_ids_and_times
from tenuto.server.messages import AppendResultView
from tenuto.server.openapi import Router
from tenuto.server.requests import BeginAnyTurnBody, BeginTurnBody, FinishTurnBody
from tenuto.sessions import Sessions, TurnRequest
from tenuto.sessions.views import MessageView, SessionView

routes = Router("turns", prefix="/v1")


class TurnNotFound(NotFound):
    """What stands in the path is no turn that ever began here."""

    code: ClassVar[str] = "turn_not_found"
    message: ClassVar[str] = "this turn_id comes from no answer that began a turn"


class LeaseView(View, frozen=True, kw_only=True):
    """A renewed lease."""

    turn_id: str
    lease_until: datetime | None


class TurnView(LeaseView, frozen=True, kw_only=True):
    """A turn that has begun. In state `finished` this key was answered before, and `reply` is the answer.

    `cut` are the ids of messages of which the window holds a part, because they are too long for it.
    """

    number: int
    state: TurnState
    created: bool
    session: SessionView
    user_messages: list[MessageView]
    summary: str
    window: list[MessageView]
    cut: list[str]
    reply: list[MessageView]

    @classmethod
    def of(cls, turn: OpenTurn) -> Self:
        """The view of a turn that has begun."""
        messages = {
            name: list(map(MessageView.of, getattr(turn, name))) for name in ("user_messages", "window", "reply")
        }
        return cls.derive(
            turn, turn_id=_encode_turn_token(turn), session=SessionView.of(turn.session), cut=list(turn.cut), **messages
        )


class _TurnToken(Value, frozen=True, kw_only=True, array_like=True):
    """What a token holds: where the turn stands, so that the server need not remember it."""

    session_id: str
    incarnation: str
    turn_id: str
    number: int
    stale_before: int = 0
    summarized_through: int = 0


@routes.post("/sessions/{session_id}/turns", 201, 200)
async def begin_turn(
    scope: Scope, context: ServerContext, session_id: str, idempotency_key: str | None, body: BeginTurnBody
) -> Answer[TurnView]:
    """Begin a turn in a session.

    Stores the user message, takes the session's lease, and returns what the model should see. With an
    Idempotency-Key, a repeated request returns the same turn.
    """
    return await _begin_turn(context, scope, session_id, idempotency_key, body)


@routes.post("/turns", 201, 200)
async def begin_any_turn(
    admission: AuthContext, context: ServerContext, idempotency_key: str | None, body: BeginAnyTurnBody
) -> Answer[TurnView]:
    """Begin a turn in the session that the body names. Without one, a new session is created."""
    scope = admission.scope(body.tenant_id, body.site_id)
    return await _begin_turn(context, scope, body.session_id, idempotency_key, body)


@routes.post("/turns/{turn_id}/finish", problems=(409,))
async def finish_turn(scope: Scope, context: ServerContext, turn_id: str, body: FinishTurnBody) -> AppendResultView:
    """Finish a turn. Stores the reply and the usage, applies the changes and releases the session. Idempotent."""
    turn = _named_turn(context.sessions, scope, turn_id)
    request = FinishTurn(
        reply=await drafts_of(context, turn.scope, body.all(), body.places),
        usage=body.usage.value(),
        changes=body.changes.value() if body.changes is not None else None,
    )
    return AppendResultView.of(await context.tenuto.finish_turn(turn, request))


@routes.post("/turns/{turn_id}/renew", problems=(409,))
async def renew_turn(scope: Scope, sessions: Sessions, turn_id: str) -> LeaseView:
    """Renew the lease of a turn. A long turn needs it to keep its session."""
    turn = await sessions.renew(_named_turn(sessions, scope, turn_id))
    return LeaseView(turn_id=_encode_turn_token(turn), lease_until=turn.lease_until)


@routes.post("/turns/{turn_id}/abandon", problems=(409,))
async def abandon_turn(scope: Scope, sessions: Sessions, turn_id: str) -> AppendResultView:
    """Abandon a turn.

    Releases the session without a reply. The user message stays, and the same Idempotency-Key resumes the turn.
    """
    turn = _named_turn(sessions, scope, turn_id)
    return AppendResultView.of(await sessions.finish(turn, FinishTurn(abandoned=True)))


async def _begin_turn(
    context: ServerContext, scope: Scope, session_id: str | None, idempotency_key: str | None, body: BeginTurnBody
) -> Answer[TurnView]:
    request = TurnRequest(
        user_messages=await drafts_of(context, scope, body.all(), body.places),
        session_id=session_id,
        idempotency_key=idempotency_key,
        fingerprint=await key_fingerprint(idempotency_key, without_ids_and_times(body.all())),
    )
    turn = await context.tenuto.begin_turn(scope, request, body.window)
    return Answer(TurnView.of(turn), 201 if turn.state is TurnState.OPENED else 200)


def _encode_turn_token(turn: OpenTurn) -> str:
    ticket = _TurnToken(
        session_id=turn.session.id,
        incarnation=turn.session.incarnation,
        turn_id=turn.id,
        number=turn.number,
        stale_before=turn.stale_before,
        summarized_through=turn.summarized_through,
    )
    return urlsafe_b64encode(msgspec.json.encode(ticket)).rstrip(b"=").decode()


def _named_turn(sessions: Sessions, scope: Scope, token: str) -> OpenTurn:
    """The turn that a token names, in the caller's own scope."""
    ticket, lease = _decode_turn_token(token), sessions.policy.lease
    turn = OpenTurn.named(scope, ticket.session_id, ticket.incarnation, ticket.turn_id, ticket.number, lease)
    return replace(turn, stale_before=ticket.stale_before, summarized_through=ticket.summarized_through)


def _decode_turn_token(token: str) -> _TurnToken:
    try:
        raw = urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4))
        ticket = msgspec.json.decode(raw, type=_TurnToken)
        for part in (ticket.session_id, ticket.incarnation, ticket.turn_id):
            check_id(part, "a part of the turn_id")
    except (ValueError, RecursionError, Invalid):
        raise TurnNotFound from None
    places = (ticket.stale_before, ticket.summarized_through)
    if not 1 <= ticket.number < 2**53 or not all(0 <= place < 2**53 for place in places):
        raise TurnNotFound
    return ticket
