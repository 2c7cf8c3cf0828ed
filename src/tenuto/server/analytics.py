"""Routes for a tenant's analytics: usage by day and assistant, and hot topics."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tenuto.model import Scope
from tenuto.model.scope import site_scope
from tenuto.model.values import JsonObject
from tenuto.server.auth import authenticate_request, service
from tenuto.server.json_io import answer, parse_query
from tenuto.server.openapi import Router, describe
from tenuto.server.problems import Forbidden
from tenuto.server.requests import TopicQuery, UsageQuery
from tenuto.sessions.views import TopicReportView, UsageReportView

routes = Router("analytics", prefix="/v1/analytics")

_COUNTS: Final[JsonObject] = {"turns": 12, "input_tokens": 5230, "output_tokens": 1480, "cost_usd": "0.0043"}
_BY_ASSISTANT: Final[list[JsonObject]] = [{**_COUNTS, "assistant": "general"}]
_USAGE: Final[JsonObject] = {
    "first_day": "2026-10-19",
    "last_day": "2026-11-17",
    "total": _COUNTS,
    "assistants": _BY_ASSISTANT,
    "days": [{**_COUNTS, "day": "2026-11-17", "assistants": _BY_ASSISTANT}],
}
_TOPICS: Final[JsonObject] = {
    "first_day": "2026-11-11",
    "last_day": "2026-11-17",
    "topics": [
        {"name": "refund", "sessions": 14, "users": 9, "days": {"2026-11-16": 5, "2026-11-17": 9}},
        {"name": "博物馆", "sessions": 8, "users": 6, "days": {"2026-11-17": 8}},
    ],
    "sessions": 211,
    "truncated": False,
}


@routes.get("/usage", describe(UsageReportView, query=UsageQuery, example=_USAGE))
async def get_usage(request: Request) -> Response:
    """Get usage by day and assistant.

    Turns, tokens and cost of the site, in days of UTC. For the tenant's own backend and for admins.
    """
    scope = await _asking_site(request)
    report = await service(request).tenuto.analytics.usage(scope, days=parse_query(request, UsageQuery).days)
    return answer(UsageReportView.of(report))


@routes.get("/topics", describe(TopicReportView, query=TopicQuery, example=_TOPICS))
async def get_topics(request: Request) -> Response:
    """Get the topics of a site's sessions.

    A topic is a word that titles of sessions of at least three users share. For the tenant's own backend and for
    admins.
    """
    scope = await _asking_site(request)
    asked = parse_query(request, TopicQuery)
    report = await service(request).tenuto.analytics.topics(scope, days=asked.days, limit=asked.limit)
    return answer(TopicReportView.of(report))


async def _asking_site(request: Request) -> Scope:
    """The site of the request, whichever of its users is named."""
    admission = await authenticate_request(request)
    if admission.caller is not None and not admission.caller.can_act_for_users:
        raise Forbidden("analytics are for the tenant's own credential, or one with the role admin")
    return site_scope(admission.scope())
