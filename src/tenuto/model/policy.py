"""Policies and the five presets that carry the numbers of each kind of assistant.

Retention (when a session is deleted) is not staleness (when its messages stop being context), and the stored cap is not
the prompt's window. Every limit names its unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import CustomPattern
from tenuto.model.session import MAX_CAP, Retention, Touch
from tenuto.model.turn import MAX_LEASE
from tenuto.model.values import Value

# A shorter summary is useless.
_LEAST_SUMMARY: Final = 16
_LEAST_TITLE: Final = 10
_MOST_TITLE: Final = 400
_TYPE_PATTERN: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/(?:\*|[a-z0-9!#$&^_.+-]+)")


class OnMissing(StrEnum):
    """A turn for a session that does not exist is refused, gets a new session id, or creates the given one.

    For a session of another user it is refused or gets another id: with `adopt` always the same, derived from owner and
    given id.
    """

    ERROR = "error"
    NEW_ID = "new_id"
    ADOPT = "adopt"


class OnStoreDown(StrEnum):
    """While the store is unavailable a turn goes to a local journal, is answered without memory, or is refused."""

    JOURNAL = "journal"
    STATELESS = "stateless"
    RAISE = "raise"


class SessionPolicy(Value, frozen=True, kw_only=True):
    """Retention and limits of sessions.

    An attachment has at most `max_attachment_bytes`, a session `max_attachments`, and its owner
    `user_attachment_bytes` in all sessions together. `attachment_types` are the media types that are taken, such as
    `image/*, application/pdf`; without any, all are. With `strip_attachment_metadata`, pictures are stored without what
    cameras and programs write beside the pixels (EXIF, XMP, comments), the orientation excepted.

    A model's title has at most `title_characters`, the first line of a question that stands in for one
    `fallback_title_characters`. A conversation that did not change for `inactive_after` is inactive, and one that
    was inactive for `archive_after` is archived; with 0, none is.
    """

    retention: Retention = Retention()
    stale_after: timedelta | None = None
    on_missing: OnMissing = OnMissing.ERROR
    on_store_down: OnStoreDown = OnStoreDown.JOURNAL
    max_sessions: int | None = None
    max_message_bytes: int = 1024 * 1024
    max_head_bytes: int = 256 * 1024
    max_attachment_bytes: int = 10 * 1024 * 1024
    max_attachments: int = 1000
    user_attachment_bytes: int | None = None
    attachment_types: str | None = None
    strip_attachment_metadata: bool = True
    lease: timedelta = timedelta(minutes=2)
    busy_wait: timedelta = timedelta(seconds=10)
    title_characters: int = 60
    fallback_title_characters: int = 40
    inactive_after: timedelta = timedelta(minutes=30)
    archive_after: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        idle = self.retention.idle
        if self.stale_after is not None and self.stale_after <= timedelta(0):
            raise InvalidSetting("stale_after", "must be greater than zero; leave it out to switch it off")
        if self.stale_after is not None and idle is not None and self.stale_after >= idle:
            raise InvalidSetting("stale_after", f"{self.stale_after} is not shorter than the retention of {idle}")
        if self.max_sessions is not None and not 1 <= self.max_sessions <= MAX_CAP:
            raise InvalidSetting("max_sessions", f"must be between 1 and {MAX_CAP}, or off")
        if self.max_message_bytes < 1024:
            raise InvalidSetting("max_message_bytes", "must be at least 1024")
        if self.max_head_bytes < 1024:
            raise InvalidSetting("max_head_bytes", "must be at least 1024")
        self._check_attachments()
        if not timedelta(seconds=1) <= self.lease <= MAX_LEASE:
            raise InvalidSetting("lease", f"must be between one second and {MAX_LEASE.days} days")
        for what in ("busy_wait", "inactive_after", "archive_after"):
            if getattr(self, what) < timedelta(0):
                raise InvalidSetting(what, "must not be negative")
        if self.archive_after and not self.inactive_after:
            raise InvalidSetting("archive_after", "counts the time of inactivity, and inactive_after is off")
        for what in ("title_characters", "fallback_title_characters"):
            if not _LEAST_TITLE <= getattr(self, what) <= _MOST_TITLE:
                raise InvalidSetting(what, f"must be between {_LEAST_TITLE} and {_MOST_TITLE}")

    def _check_attachments(self) -> None:
        if self.max_attachment_bytes < 0:
            raise InvalidSetting("max_attachment_bytes", "must not be negative; 0 takes none")
        if not 0 <= self.max_attachments <= MAX_CAP:
            raise InvalidSetting("max_attachments", f"must be between 0 and {MAX_CAP}")
        if self.user_attachment_bytes is not None and self.user_attachment_bytes < 1:
            raise InvalidSetting("user_attachment_bytes", "must be above nothing, or off")
        for pattern in self._patterns():
            if not _TYPE_PATTERN.fullmatch(pattern):
                raise InvalidSetting(
                    "attachment_types", f"{pattern!r} is not a media type such as image/png or image/*"
                )

    def takes(self, media_type: str) -> bool:
        """Whether attachments of this media type are taken."""
        essence = media_type.partition(";")[0].strip()
        patterns = self._patterns()
        return not patterns or essence in patterns or essence.partition("/")[0] + "/*" in patterns

    def _patterns(self) -> list[str]:
        return [pattern.strip() for pattern in (self.attachment_types or "").lower().split(",") if pattern.strip()]


# Messages loaded with a turn: enough for a compressed session.
_LOADED: Final = 40
MOST_LOADED: Final = 500
"""Messages that a turn loads at most: what no summary covers stays below, however short the messages are."""


class ContextPolicy(Value, frozen=True, kw_only=True):
    """How many messages, turns and characters of a session a prompt contains, and when to compress.

    Tool calls and their results do not count as messages of the window.

    Compression starts when the prompt passes `compress_at` of its token budget or the log passes `compress_over`
    messages, whichever comes first, and leaves `keep_verbatim` messages as they are. The summary takes at most
    `summary_tokens`, and `summary_characters` where they are set.
    """

    window_messages: int | None = None
    window_turns: int | None = None
    window_characters: int | None = None
    compress_at: float | None = 0.70
    compress_over: int | None = None
    keep_verbatim: int = 20
    summary_characters: int | None = None
    summary_tokens: int = 500

    @property
    def loaded_messages(self) -> int:
        """How many messages are loaded with a turn, its own included; a turn with a tool has four."""
        if self.window_turns is not None:
            return min(MOST_LOADED, max(_LOADED, self.window_turns * 4 + 4))
        if self.compress_at is None and self.window_messages is not None:
            return min(MOST_LOADED, max(_LOADED, self.window_messages * 2 + 8))
        return _LOADED

    def __post_init__(self) -> None:
        least_of = {"summary_characters": _LEAST_SUMMARY, "keep_verbatim": 0}
        for what in ("window_messages", "window_turns", "window_characters", "compress_over", *least_of):
            value, least = getattr(self, what), least_of.get(what, 1)
            if value is not None and value < least:
                raise InvalidSetting(what, f"must be at least {least}")
        if self.summary_tokens < 16:
            raise InvalidSetting("summary_tokens", "must be at least 16")
        if self.compress_at is not None and not 0 < self.compress_at < 1:
            raise InvalidSetting("compress_at", "must lie between 0 and 1")
        if self.compress_over is not None and self.keep_verbatim >= self.compress_over:
            raise InvalidSetting(
                "keep_verbatim", f"{self.keep_verbatim} is not below compress_over ({self.compress_over})"
            )


class TaskPolicy(Value, frozen=True, kw_only=True):
    """Retention of tasks and agent runs (E6), and what agents may write (E16).

    Only one agent may write the `protected` keys (with a star, all with that prefix): that in `owners` for the task's
    type, else `owner`; `legal` is shipped with an owner of its own. A board has at most `max_board_keys`, and so have
    the notes of each agent.
    """

    task_retention: timedelta = timedelta(hours=24)
    agent_retention: timedelta = timedelta(hours=1)
    lock_lease: timedelta = timedelta(minutes=1)
    protected: tuple[str, ...] = ("protected.*", "final_decision")
    owners: Mapping[str, str] = MappingProxyType({"legal_consultation": "legal-decision"})
    owner: str = "decision-agent"
    max_board_keys: int = 1000
    max_board_value_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        if self.task_retention <= timedelta(0):
            raise InvalidSetting("task_retention", "must be greater than zero")
        if self.agent_retention > self.task_retention:
            raise InvalidSetting("agent_retention", "is longer than the retention of its task")
        if self.agent_retention <= timedelta(0):
            raise InvalidSetting("agent_retention", "must be greater than zero")
        if not timedelta(0) < self.lock_lease <= self.task_retention:
            raise InvalidSetting("lock_lease", "must be greater than zero, and no longer than a task lives")
        for what in ("max_board_keys", "max_board_value_bytes"):
            if getattr(self, what) < 1:
                raise InvalidSetting(what, "must be at least 1")

    def owner_of(self, task_type: str) -> str:
        """The agent that may write the protected keys of such a task."""
        return self.owners.get(task_type, self.owner)

    def protects(self, key: str) -> bool:
        """Whether only that agent may write a key."""
        return any(_matches_pattern(name, key) for name in self.protected)


class RunPolicy(Value, frozen=True, kw_only=True):
    """How plans are run.

    `task_timeout` and `step_timeout` hold where a plan names none; a plan with human input has no limit then. A worker
    runs `agents_at_once`, and takes at most `tasks_at_once`, those that wait for a person aside; by default half as
    many tasks as agents, so that others share the queue and few tasks wait while their time runs. One that was silent
    for `lease` counts as dead, and its steps are given to others, each step at most `takeovers` times, so that an agent
    that kills its workers does not go on for ever. What an engine knows of ended runs is removed after `run_retention`.
    """

    task_timeout: timedelta = timedelta(minutes=10)
    step_timeout: timedelta = timedelta(minutes=5)
    history_messages: int = 20
    agents_at_once: int = 16
    tasks_at_once: int | None = None
    heartbeat: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=5)
    takeovers: int = 5
    run_retention: timedelta = timedelta(days=1)

    @property
    def busy_tasks(self) -> int:
        """The number of tasks that a worker runs at once."""
        return self.tasks_at_once or max(self.agents_at_once // 2, 1)

    def __post_init__(self) -> None:
        for what in ("task_timeout", "step_timeout", "heartbeat"):
            if getattr(self, what) <= timedelta(0):
                raise InvalidSetting(what, "must be greater than zero")
        if self.lease < 3 * self.heartbeat:
            raise InvalidSetting("lease", "must be at least three heartbeats")


def _matches_pattern(protected: str, key: str) -> bool:
    return key.startswith(protected[:-1]) if protected.endswith("*") else key == protected


class Preset(Value, frozen=True, kw_only=True):
    """The policies of one kind of assistant.

    `privacy_also` are types of private data (ADDRESS, ORDER_ID, PERSON) that its titles, traces, exports and memories
    do not show, besides those of the tenant's policy. The conversation itself needs them. `privacy_patterns` are forms
    of such a type, found without a label; their name is the type.
    """

    sessions: SessionPolicy
    context: ContextPolicy
    tasks: TaskPolicy = TaskPolicy()
    privacy_also: tuple[str, ...] = ()
    privacy_patterns: tuple[CustomPattern, ...] = ()

    def __post_init__(self) -> None:
        _check_window_within("window_messages", self.context.window_messages, self.sessions.retention.max_messages)
        _check_window_within("window_turns", self.context.window_turns, self.sessions.retention.max_turns)
        idle = self.sessions.retention.idle
        if idle is not None and self.tasks.task_retention > max(idle, timedelta(days=1)):
            raise InvalidSetting("task_retention", "is longer than the retention of its conversation")


def _check_window_within(setting: str, window: int | None, stored: int | None) -> None:
    if window is not None and stored is not None and window > stored:
        raise InvalidSetting(setting, f"the window of {window} is wider than the stored cap of {stored}")


# Of visitors and of agents, whose documents count messages; elsewhere tokens decide alone.
_COMPRESS_OVER: Final = 30

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "platform": Preset(
            sessions=SessionPolicy(
                retention=Retention(idle=timedelta(days=30), touch=Touch.WRITE, max_messages=500),
                on_missing=OnMissing.ERROR,
                on_store_down=OnStoreDown.JOURNAL,
            ),
            context=ContextPolicy(compress_at=0.75),
        ),
        "goods_qa": Preset(
            sessions=SessionPolicy(
                retention=Retention(idle=timedelta(minutes=30), touch=Touch.READ, max_messages=None, max_turns=10),
                on_missing=OnMissing.NEW_ID,
                on_store_down=OnStoreDown.JOURNAL,
                max_sessions=1000,
            ),
            context=ContextPolicy(window_turns=10, compress_at=None),
            privacy_also=("ADDRESS", "ORDER_ID"),
            privacy_patterns=(CustomPattern(name="ORDER_ID", pattern=r"\bGD[0-9]{12}\b", ignore_case=True),),
        ),
        "npc": Preset(
            sessions=SessionPolicy(
                retention=Retention(idle=timedelta(hours=24), touch=Touch.WRITE, max_messages=50),
                on_missing=OnMissing.ADOPT,
                on_store_down=OnStoreDown.STATELESS,
            ),
            context=ContextPolicy(
                window_messages=10, window_characters=4000, compress_at=None, compress_over=_COMPRESS_OVER
            ),
        ),
        "channel": Preset(
            sessions=SessionPolicy(
                retention=Retention(idle=timedelta(days=30), touch=Touch.WRITE, max_messages=500),
                stale_after=timedelta(hours=48),
                on_missing=OnMissing.ADOPT,
                on_store_down=OnStoreDown.STATELESS,
            ),
            context=ContextPolicy(compress_at=0.70),
        ),
        "multi_agent": Preset(
            sessions=SessionPolicy(
                retention=Retention(idle=timedelta(days=7), touch=Touch.READ, max_messages=500),
                on_missing=OnMissing.ADOPT,
                on_store_down=OnStoreDown.RAISE,
            ),
            context=ContextPolicy(
                compress_at=0.70,
                compress_over=_COMPRESS_OVER,
                keep_verbatim=20,
                summary_characters=200,
                window_messages=500,
            ),
        ),
    }
)


def preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        InvalidSetting: there is none.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise InvalidSetting("preset", f"there is no {name!r}; available: {', '.join(PRESETS)}") from None
