"""Routes for turns: begin, and later finish, renew or abandon.

A turn is named by an opaque token. It carries no authority: the caller's credential gives the scope anew at each call,
and the store checks the lease's id and the session's incarnation, so a forged token would have to guess both.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import ClassVar, Final, Self

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import Invalid, NotFound
from tenuto.model import FinishTurn, OpenTurn, Scope, TurnState
from tenuto.model.values import Value, View, check_id
from tenuto.server.auth import asking, authenticate_request, service, sessions
from tenuto.server.json_io import answer, body_of, drafts_of, idempotency_key, message_fingerprint, path_parameter
from tenuto.server.messages import AppendResultView
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import BeginAnyTurnBody, BeginTurnBody, FinishTurnBody
from tenuto.sessions import TurnRequest
from tenuto.sessions.views import MessageView, SessionView

routes = Router("turns", prefix="/v1")

_KEYED: Final = ("Idempotency-Key",)


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


@routes.post("/sessions/{session_id}/turns", describe(TurnView, 201, 200, body=BeginTurnBody, headers=_KEYED))
async def begin_turn(request: Request) -> Response:
    """Begin a turn in a session.

    Stores the user message, takes the session's lease, and returns what the model should see. With an
    Idempotency-Key, a repeated request returns the same turn.
    """
    scope = await asking(request)
    return await _begin_turn(request, scope, path_parameter(request), await body_of(request, BeginTurnBody))


@routes.post("/turns", describe(TurnView, 201, 200, body=BeginAnyTurnBody, headers=_KEYED))
async def begin_any_turn(request: Request) -> Response:
    """Begin a turn in the session that the body names. Without one, a new session is created."""
    admission = await authenticate_request(request)
    body = await body_of(request, BeginAnyTurnBody)
    return await _begin_turn(request, admission.scope(body.tenant_id, body.site_id), body.session_id, body)


@routes.post("/turns/{turn_id}/finish", describe(AppendResultView, body=FinishTurnBody, problems=(409,)))
async def finish_turn(request: Request) -> Response:
    """Finish a turn. Stores the reply and the usage, applies the changes and releases the session. Idempotent."""
    turn = _turn_from_path(request, await asking(request))
    body = await body_of(request, FinishTurnBody)
    closing = FinishTurn(
        reply=await drafts_of(request, turn.scope, body.all()),
        usage=body.usage.value(),
        changes=body.changes.value() if body.changes is not None else None,
    )
    return answer(AppendResultView.of(await service(request).tenuto.finish_turn(turn, closing)))


@routes.post("/turns/{turn_id}/renew", describe(LeaseView, problems=(409,)))
async def renew_turn(request: Request) -> Response:
    """Renew the lease of a turn. A long turn needs it to keep its session."""
    turn = await sessions(request).renew(_turn_from_path(request, await asking(request)))
    return answer(LeaseView(turn_id=_encode_turn_token(turn), lease_until=turn.lease_until))


@routes.post("/turns/{turn_id}/abandon", describe(AppendResultView, problems=(409,)))
async def abandon_turn(request: Request) -> Response:
    """Abandon a turn.

    Releases the session without a reply. The user message stays, and the same Idempotency-Key resumes the turn.
    """
    turn = _turn_from_path(request, await asking(request))
    return answer(AppendResultView.of(await sessions(request).finish(turn, FinishTurn(abandoned=True))))


async def _begin_turn(request: Request, scope: Scope, session_id: str | None, body: BeginTurnBody) -> Response:
    wish = TurnRequest(
        user_messages=await drafts_of(request, scope, body.all()),
        session_id=session_id,
        idempotency_key=idempotency_key(request),
        fingerprint=message_fingerprint(body.all()),
    )
    turn = await service(request).tenuto.begin_turn(scope, wish, body.window)
    return answer(TurnView.of(turn), 201 if turn.state is TurnState.OPENED else 200)


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


def _turn_from_path(request: Request, scope: Scope) -> OpenTurn:
    """The turn that the path names, in the caller's own scope."""
    ticket = _decode_turn_token(path_parameter(request, "turn_id"))
    lease = sessions(request).policy.lease
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
