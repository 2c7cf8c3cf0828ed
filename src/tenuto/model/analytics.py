"""What a tenant's site used, by day and assistant, and what its sessions were about (C14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date

from tenuto.model.values import Value

USAGE_DAYS = 400
"""How long usage is kept: a year can be compared with the one before, month by month."""


class UsageCounts(Value, frozen=True, kw_only=True):
    """Answered turns, and what models read, wrote and cost. Money is in whole billionths of a US dollar."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0

    @property
    def tokens(self) -> int:
        """What models read and wrote."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: UsageCounts) -> UsageCounts:
        return UsageCounts(
            turns=self.turns + other.turns,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_nanos=self.cost_nanos + other.cost_nanos,
        )


class UsageRow(Value, frozen=True, kw_only=True):
    """What one assistant used on one day (UTC); `None` stands for titles and summaries."""

    day: date
    assistant: str | None
    counts: UsageCounts


class UsageReport(Value, frozen=True, kw_only=True):
    """The usage of a site from `first_day` to `last_day`, both included; newest day first, then by assistant."""

    first_day: date
    last_day: date
    rows: tuple[UsageRow, ...]

    @property
    def total(self) -> UsageCounts:
        """All of it."""
        return sum_counts(row.counts for row in self.rows)

    @property
    def by_day(self) -> dict[date, UsageCounts]:
        """Totals of the days on which there was any."""
        days = dict.fromkeys(row.day for row in self.rows)
        return {day: sum_counts(row.counts for row in self.rows if row.day == day) for day in days}

    @property
    def by_assistant(self) -> dict[str | None, UsageCounts]:
        """Totals of the assistants, the busiest first."""
        names = dict.fromkeys(row.assistant for row in self.rows)
        totals = {name: sum_counts(row.counts for row in self.rows if row.assistant == name) for name in names}
        return dict(sorted(totals.items(), key=lambda total: (-total[1].turns, -total[1].tokens, total[0] or "")))


class Topic(Value, frozen=True, kw_only=True):
    """A word in the titles of sessions: in how many, of how many users, and how many last changed on which day."""

    name: str
    sessions: int
    users: int
    days: Mapping[date, int]


class TopicReport(Value, frozen=True, kw_only=True):
    """Topics of the sessions that changed since `first_day`, the most frequent first.

    `sessions` were read; `truncated` says that the period has more of them, older than those.
    """

    first_day: date
    last_day: date
    topics: tuple[Topic, ...]
    sessions: int
    truncated: bool


def sum_counts(counts: Iterable[UsageCounts]) -> UsageCounts:
    """The sum."""
    return sum(counts, UsageCounts())
