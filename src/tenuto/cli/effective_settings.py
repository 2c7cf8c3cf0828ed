"""The settings as they hold, with presets filled in and secrets left out."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tenuto.settings import Settings

_HIDDEN: Final = "(hidden)"
_ADDRESSES: Final = ("store", "tasks_database", "task_webhook", "model_base_url", "privacy_detector")
_SECRET_WORDS: Final = ("pass", "secret", "token", "auth", "key")
_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def effective(settings: Settings) -> dict[str, str]:
    """Every setting and its value; what was not set shows what holds instead, mostly by the preset."""
    by_default = _preset_values(settings)
    shown = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        follows = name in by_default and (value is None or name != "requests_per_minute")
        shown[name] = _display_value(name, by_default[name] if follows else value)
    return shown


def _preset_values(settings: Settings) -> dict[str, object]:
    policies = settings.policies()
    sessions, tasks = policies.sessions, policies.tasks
    npc = settings.npc_policies()
    return {
        "retention": sessions.retention.idle,
        "touch": sessions.retention.touch,
        "max_messages": sessions.retention.max_messages,
        "max_turns": sessions.retention.max_turns,
        "stale_after": sessions.stale_after,
        "max_sessions": sessions.max_sessions,
        "on_missing": sessions.on_missing,
        "on_store_down": sessions.on_store_down,
        "journal": settings.journals(),
        "task_retention": tasks.task_retention,
        "agent_retention": tasks.agent_retention,
        "requests_per_minute": "6000 for each credential",
        "memory_max_messages": npc.context.window_messages,
        "memory_max_chars": npc.context.window_characters,
        "memory_ttl_seconds": int(npc.sessions.retention.idle.total_seconds()) if npc.sessions.retention.idle else None,
    }


def _display_value(name: str, value: object) -> str:
    if name in _ADDRESSES and value is not None:
        return mask_password(str(value))
    if ("secret" in name or name.endswith(("_key", "_token"))) and value is not None:
        return _HIDDEN
    if isinstance(value, timedelta):
        return duration(value)
    if name == "breaker_failures" and not value:
        return "off"
    return "off" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def duration(span: timedelta) -> str:
    """`30d`, `48h`, `90s`: the way settings write it."""
    seconds = span.total_seconds()
    for unit, size in _UNITS:
        if seconds and seconds % size == 0 and seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:g}s" if seconds else "off"


def mask_password(url: str) -> str:
    """An address that may be shown."""
    try:
        parts = urlsplit(url)
        user, hidden = parts.username or "", parts.password is not None
    except ValueError:
        return f"{url.split(':', 1)[0]}://{_HIDDEN}"
    place = parts.netloc.rpartition("@")[2]
    netloc = f"{user}:***@{place}" if hidden else parts.netloc
    query = [
        (name, "***" if any(word in name.lower() for word in _SECRET_WORDS) else value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    # urlunsplit would shorten sqlite:///file to sqlite:/file.
    shown = urlunsplit(("", "", parts.path, urlencode(query, safe="*,/"), ""))
    return f"{parts.scheme}://{netloc}{shown}"
