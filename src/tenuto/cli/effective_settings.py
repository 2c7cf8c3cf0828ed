"""The settings as they hold and where each comes from, with presets filled in and secrets left out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tenuto.model.policy import Preset
from tenuto.settings import Settings

_HIDDEN: Final = "(hidden)"
_ADDRESSES: Final = ("store", "tasks_database", "task_webhook", "model_base_url", "privacy_detector")
_SECRET_WORDS: Final = ("pass", "secret", "token", "auth", "key")
_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


class InForce(NamedTuple):
    """A setting as it holds, and where its value comes from."""

    value: str
    source: str


def effective(settings: Settings) -> dict[str, InForce]:
    """Every setting and its value; what was not set shows what holds instead, mostly by the preset.

    Assistants with a preset of their own are named where theirs differs.
    """
    unset = Settings()
    by_preset, otherwise = _preset_values(settings.policies()), _default_values(settings)
    rows = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        source = "default" if value == getattr(unset, name) else "set"
        if name in by_preset:
            source = f"preset {settings.preset}" if value is None else source
            value = by_preset[name]
            source = "; ".join((source, *_differences(settings, name, value)))
        elif value is None and name in otherwise:
            rows[name] = otherwise[name]
            continue
        rows[name] = InForce(_display_value(name, value), source)
    return rows


def _differences(settings: Settings, name: str, value: object) -> Iterator[str]:
    """What holds for assistants that have another preset, where it is not the same."""
    assistants = {
        "goods": settings.goods_policies(),
        "npc": settings.npc_policies(),
        "legal": settings.legal_policies(),
    }
    if settings.lark_app() is not None or settings.channels is not None:
        assistants["channels"] = settings.channel_policies()
    for assistant, policies in assistants.items():
        own = _preset_values(policies)[name]
        if own != value:
            yield f"{assistant}: {_display_value(name, own)}"


def _preset_values(policies: Preset) -> dict[str, object]:
    sessions, context, tasks = policies.sessions, policies.context, policies.tasks
    return {
        "retention": sessions.retention.idle,
        "touch": sessions.retention.touch,
        "max_messages": sessions.retention.max_messages,
        "max_turns": sessions.retention.max_turns,
        "stale_after": sessions.stale_after,
        "max_sessions": sessions.max_sessions,
        "on_missing": sessions.on_missing,
        "on_store_down": sessions.on_store_down,
        "compress_at": context.compress_at,
        "compress_over": context.compress_over,
        "keep_verbatim": context.keep_verbatim,
        "summary_tokens": context.summary_tokens,
        "summary_characters": context.summary_characters,
        "task_retention": tasks.task_retention,
        "agent_retention": tasks.agent_retention,
    }


def _default_values(settings: Settings) -> dict[str, InForce]:
    """What holds where nothing is set, and no preset of the installation says it."""
    npc = settings.npc_policies()
    idle, context = npc.sessions.retention.idle, npc.context
    memory = {
        "memory_max_messages": context.window_messages,
        "memory_max_chars": context.window_characters,
        "memory_ttl_seconds": int(idle.total_seconds()) if idle else None,
    }
    without_user = _display_value("memories_without_user", settings.memory_policy().without_user)
    return {
        "journal": InForce(str(settings.journals()), "default"),
        "requests_per_minute": InForce("6000 per credential", "default"),
        "summarizer_model": InForce(settings.model, "as model"),
        "tasks_database": InForce("next to the store", "default"),
        "memories_without_user": InForce(
            without_user, "default; commands for one person at a terminal decide by themselves"
        ),
        **{name: InForce(_display_value(name, value), "preset npc") for name, value in memory.items()},
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
        user, has_password = parts.username or "", parts.password is not None
    except ValueError:
        return f"{url.split(':', 1)[0]}://{_HIDDEN}"
    place = parts.netloc.rpartition("@")[2]
    netloc = f"{user}:***@{place}" if has_password else parts.netloc
    query = [
        (name, "***" if any(word in name.lower() for word in _SECRET_WORDS) else value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    # urlunsplit would shorten sqlite:///file to sqlite:/file.
    masked = urlunsplit(("", "", parts.path, urlencode(query, safe="*,/"), ""))
    return f"{parts.scheme}://{netloc}{masked}"
