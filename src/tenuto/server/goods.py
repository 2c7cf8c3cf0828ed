"""The shop's route, in the shape its clients know (B5)."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatRequest
from tenuto.chat.agent_loop import milliseconds_since
from tenuto.model.values import JsonObject, View
from tenuto.server.auth import authenticate_request, service, visiting, with_user
from tenuto.server.json_io import answer, body_of, fingerprint, idempotency_key
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import GoodsQuestion
from tenuto.server.streams import cancel_on_disconnect

routes = Router("goods")


class GoodsAnswer(View, frozen=True, kw_only=True, rename="camel"):
    """The shop's answer; `queryTime` is in milliseconds, `traceId` null where nothing is kept.

    `degraded` names what was missing.
    """

    code: int
    message: str
    answer: str
    goods: list[JsonObject]
    session_id: str
    query_time: int
    trace_id: str | None
    offline: bool
    degraded: tuple[str, ...]


@routes.post("/goods/qa", describe(GoodsAnswer, body=GoodsQuestion, headers=("Idempotency-Key",), problems=(502,)))
async def goods_qa(request: Request) -> Response:
    """Ask about goods or about the user's own orders.

    An unknown or expired session becomes a new one. A request without a user is from a visitor, who sees no user's
    sessions.
    """
    began = time.perf_counter()
    admission = await authenticate_request(request)
    body = await body_of(request, GoodsQuestion)
    named = with_user(admission, None if body.userId in (None, "") else str(body.userId))
    scope = visiting(named.scope())
    asked = ChatRequest(
        text=body.question,
        session_id=body.sessionId or None,
        assistant="goods",
        idempotency_key=idempotency_key(request),
        fingerprint=fingerprint([body.question, body.sessionId, body.userId]),
    )
    reply = await cancel_on_disconnect(request, service(request).live.take_turn(scope, asked))
    return answer(
        GoodsAnswer(
            code=200,
            message="success",
            answer=reply.text,
            goods=reply.data.get("goods", []),
            session_id=reply.session_id,
            query_time=round(milliseconds_since(began)),
            trace_id=reply.trace_id or None,
            offline=reply.offline,
            degraded=reply.degraded,
        )
    )
