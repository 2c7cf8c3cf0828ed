"""Routes for a tenant's analytics: usage by day and assistant, and hot topics."""

from __future__ import annotations

from typing import Final

from tenuto.app import Tenuto
from tenuto.model import Scope
from tenuto.model.scope import site_scope
from tenuto.model.values import JsonObject
from tenuto.server.auth import AuthContext
from tenuto.server.openapi import Router
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


@routes.get("/usage", example=_USAGE)
async def get_usage(admission: AuthContext, tenuto: Tenuto, query: UsageQuery) -> UsageReportView:
    """Get usage by day and assistant.

    Turns, tokens and cost of the site, in days of UTC. For the tenant's own backend and for admins.
    """
    report = await tenuto.analytics.usage(_site_of(admission), days=query.days)
    return UsageReportView.of(report)


@routes.get("/topics", example=_TOPICS)
async def get_topics(admission: AuthContext, tenuto: Tenuto, query: TopicQuery) -> TopicReportView:
    """Get the topics of a site's sessions.

    A topic is a word that titles of sessions of at least three users share. For the tenant's own backend and for
    admins.
    """
    report = await tenuto.analytics.topics(_site_of(admission), days=query.days, limit=query.limit)
    return TopicReportView.of(report)


def _site_of(admission: AuthContext) -> Scope:
    """The site of the request, whichever of its users is named."""
    if admission.caller is not None and not admission.caller.can_act_for_users:
        raise Forbidden("analytics are for the tenant's own credential, or one with the role admin")
    return site_scope(admission.scope())
