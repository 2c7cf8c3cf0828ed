"""The shop's route, in the shape its clients know (B5)."""

from __future__ import annotations

import time

from starlette.requests import Request

from tenuto.chat import ChatRequest
from tenuto.chat.toolbox import milliseconds_since
from tenuto.model.values import JsonObject, View
from tenuto.server.auth import AuthContext, ServerContext, visiting, with_user
from tenuto.server.json_io import fingerprint
from tenuto.server.openapi import Router
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


@routes.post("/goods/qa", problems=(502,))
async def goods_qa(
    request: Request, admission: AuthContext, context: ServerContext, idempotency_key: str | None, body: GoodsQuestion
) -> GoodsAnswer:
    """Ask about goods or about the user's own orders.

    An unknown or expired session becomes a new one. A request without a user is from a visitor, who sees no user's
    sessions.
    """
    began = time.perf_counter()
    named = with_user(admission, None if body.userId in (None, "") else str(body.userId))
    scope = visiting(named.scope())
    chat_request = ChatRequest(
        text=body.question,
        session_id=body.sessionId or None,
        assistant="goods",
        idempotency_key=idempotency_key,
        fingerprint=fingerprint([body.question, body.sessionId, body.userId]),
    )
    reply = await cancel_on_disconnect(request, context.live.take_turn(scope, chat_request))
    return GoodsAnswer(
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
