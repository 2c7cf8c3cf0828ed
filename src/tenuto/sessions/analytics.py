"""Analytics of a tenant's site: usage by day and assistant, and hot topics (C14)."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from msgspec.structs import replace

from tenuto.errors import Invalid
from tenuto.model import Scope, Session, SessionQuery
from tenuto.model.analytics import USAGE_DAYS, TopicReport, UsageReport
from tenuto.model.values import check_int
from tenuto.ports import Clock, SessionStore
from tenuto.sessions.topics import count_topics
from tenuto.sessions.usage import UsageLedger

MOST_TOPICS: Final = 100
MOST_SESSIONS: Final = 2000
"""How many sessions are read for topics: on SQLite a tenth of a second of processor time."""
_PAGE: Final = 500


class Analytics:
    """Reads what a site used and what its sessions are about. For the tenant itself, not for its users."""

    def __init__(self, *, ledger: UsageLedger, sessions: SessionStore, clock: Clock) -> None:
        self._ledger = ledger
        self._sessions = sessions
        self._clock = clock

    async def usage(self, scope: Scope, *, days: int = 30) -> UsageReport:
        """Turns, tokens and cost of assistants on the last `days` days (UTC), today included.

        Raises:
            Invalid: the scope names a user or chat, or there are not that many days.
        """
        first, last = self._period(scope, days)
        rows = await self._ledger.usage(scope, first, last)
        return UsageReport(first_day=first, last_day=last, rows=tuple(rows))

    async def topics(self, scope: Scope, *, days: int = 7, limit: int = 20) -> TopicReport:
        """What the titles of sessions that changed on the last `days` days share, if enough users raised it.

        Raises:
            Invalid: the scope names a user or chat, or a number is out of range.
        """
        check_int(limit, 1, MOST_TOPICS, "limit")
        first, last = self._period(scope, days)
        sessions, truncated = await self._load_sessions(scope, datetime.combine(first, time(), UTC))
        # Thousands of titles take a while, and turns need not wait.
        topics = await asyncio.to_thread(count_topics, sessions, limit)
        return TopicReport(first_day=first, last_day=last, topics=topics, sessions=len(sessions), truncated=truncated)

    def _period(self, scope: Scope, days: int) -> tuple[date, date]:
        if scope.owner:
            raise Invalid("analytics are of a tenant's site: the scope may name no user, visitor or chat")
        check_int(days, 1, USAGE_DAYS, "days")
        today = self._clock().date()
        return today - timedelta(days=days - 1), today

    async def _load_sessions(self, scope: Scope, since: datetime) -> tuple[list[Session], bool]:
        """The sessions that changed since then, latest first, and whether there are more."""
        found: list[Session] = []
        query = SessionQuery(limit=_PAGE)
        while True:
            page = await self._sessions.list(scope, query)
            recent = [session for session in page.sessions if session.updated_at >= since]
            found += recent
            if len(recent) < len(page.sessions) or page.cursor is None:
                return found[:MOST_SESSIONS], len(found) > MOST_SESSIONS
            if len(found) > MOST_SESSIONS:
                return found[:MOST_SESSIONS], True
            query = replace(query, cursor=page.cursor)
