"""The presets carry the documents' numbers, and what contradicts itself is refused by name."""

from __future__ import annotations

from datetime import timedelta
from enum import EnumType
from itertools import count
from typing import get_args, get_type_hints

import pytest

from tenuto.errors import InvalidSetting
from tenuto.model import Retention, Touch
from tenuto.model.policy import (
    PRESETS,
    ContextPolicy,
    OnMissing,
    OnStoreDown,
    Preset,
    SessionPolicy,
    TaskPolicy,
    preset,
)
from tenuto.settings import Settings, convert_setting, parse_duration, read_settings

pytestmark = pytest.mark.requirement("T20")


@pytest.mark.requirement("A9", "B2", "D14", "E6")
def test_the_presets_carry_the_numbers_of_the_documents() -> None:
    def row(name: str) -> tuple[object, ...]:
        sessions, context = PRESETS[name].sessions, PRESETS[name].context
        keeping = sessions.retention
        return (
            keeping.idle, keeping.touch, sessions.stale_after, keeping.max_messages, keeping.max_turns,
            sessions.max_sessions, context.compress_at, sessions.on_missing, sessions.on_store_down,
        )  # fmt: skip

    days, hours, minutes = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
    journal, stateless, refuse = OnStoreDown.JOURNAL, OnStoreDown.STATELESS, OnStoreDown.RAISE
    assert row("platform") == (30 * days, Touch.WRITE, None, 500, None, None, 0.75, OnMissing.ERROR, journal)
    assert row("goods_qa") == (30 * minutes, Touch.READ, None, None, 10, 1000, None, OnMissing.NEW_ID, journal)
    assert row("npc") == (24 * hours, Touch.WRITE, None, 50, None, None, None, OnMissing.ADOPT, stateless)
    assert row("channel") == (
        30 * days, Touch.WRITE, 48 * hours, 500, None, None, 0.70, OnMissing.ADOPT, stateless
    )  # fmt: skip
    assert row("multi_agent") == (7 * days, Touch.READ, None, 500, None, None, 0.70, OnMissing.ADOPT, refuse)


def test_windows_and_compression_carry_theirs() -> None:
    goods, npc, agents = (PRESETS[name].context for name in ("goods_qa", "npc", "multi_agent"))

    assert goods.window_turns == 10
    assert (npc.window_messages, npc.window_characters) == (10, 4000)
    assert (agents.compress_over, agents.keep_verbatim, agents.summary_characters) == (30, 20, 200)
    assert PRESETS["multi_agent"].tasks == TaskPolicy(
        task_retention=timedelta(hours=24), agent_retention=timedelta(hours=1)
    )


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidSetting, match=r"preset: there is no 'shop'; available: platform"):
        preset("shop")


@pytest.mark.parametrize(
    ("setting", "make"),
    [
        ("stale_after", lambda: SessionPolicy(stale_after=timedelta(days=31))),
        ("stale_after", lambda: SessionPolicy(stale_after=timedelta(seconds=-1))),
        ("max_sessions", lambda: SessionPolicy(max_sessions=0)),
        ("lease", lambda: SessionPolicy(lease=timedelta(milliseconds=1))),
        ("busy_wait", lambda: SessionPolicy(busy_wait=timedelta(seconds=-1))),
        ("max_message_bytes", lambda: SessionPolicy(max_message_bytes=1)),
        ("max_head_bytes", lambda: SessionPolicy(max_head_bytes=1)),
        ("max_attachment_bytes", lambda: SessionPolicy(max_attachment_bytes=-1)),
        ("max_attachments", lambda: SessionPolicy(max_attachments=-1)),
        ("user_attachment_bytes", lambda: SessionPolicy(user_attachment_bytes=0)),
        ("attachment_types", lambda: SessionPolicy(attachment_types="image/png, pictures")),
        ("compress_at", lambda: ContextPolicy(compress_at=1.5)),
        ("keep_verbatim", lambda: ContextPolicy(compress_over=20, keep_verbatim=20)),
        ("window_messages", lambda: ContextPolicy(window_messages=0)),
        ("agent_retention", lambda: TaskPolicy(agent_retention=timedelta(days=2))),
        (
            "window_messages",
            lambda: Preset(
                sessions=SessionPolicy(retention=Retention(max_messages=10)), context=ContextPolicy(window_messages=11)
            ),
        ),
    ],
    ids=count(),
)
def test_a_contradiction_is_refused_and_named(setting: str, make: object) -> None:
    assert callable(make)
    with pytest.raises(InvalidSetting) as excinfo:
        make()

    assert excinfo.value.setting == setting
    assert str(excinfo.value).startswith(f"{setting}: ")


@pytest.mark.requirement("D14")
def test_settings_come_from_the_environment() -> None:
    settings = read_settings(
        {
            "TENUTO_STORE": "redis://localhost/0",
            "TENUTO_PRESET": "channel",
            "TENUTO_RETENTION": "14d",
            "TENUTO_STALE_AFTER": "off",
            "TENUTO_MAX_MESSAGES": "200",
            "TENUTO_L1": "false",
            "TENUTO_ON_MISSING": "new_id",
            "PATH": "/usr/bin",
        }
    )
    policy = settings.policies().sessions

    assert settings.store == "redis://localhost/0"
    assert settings.l1 is False
    assert (policy.retention.idle, policy.stale_after) == (timedelta(days=14), None)
    assert (policy.retention.max_messages, policy.on_missing) == (200, OnMissing.NEW_ID)


def test_a_cap_can_be_switched_off() -> None:
    for off in ("off", "0"):
        policy = read_settings({"TENUTO_MAX_MESSAGES": off, "TENUTO_RETENTION": off}).policies().sessions

        assert (policy.retention.max_messages, policy.retention.idle) == (None, None)
    assert read_settings({}).policies().sessions.retention.max_messages == 500


@pytest.mark.parametrize(
    ("given", "idle"), [("1h", timedelta(hours=1)), (90, timedelta(seconds=90)), (timedelta(days=2), timedelta(days=2))]
)
def test_a_program_gives_settings_as_text_or_as_values(given: object, idle: timedelta) -> None:
    assert read_settings({}, retention=given).policies().sessions.retention.idle == idle


def test_what_is_given_by_name_goes_first() -> None:
    settings = read_settings({"TENUTO_PORT": "9000", "TENUTO_HOST": "::1"}, port=9001)

    assert (settings.port, settings.host) == (9001, "::1")


@pytest.mark.requirement("C12")
def test_the_variables_of_the_npc_document_are_honoured() -> None:
    settings = read_settings(
        {
            "MEMORY_ENABLED": "false",
            "MEMORY_MAX_MESSAGES": "6",
            "MEMORY_MAX_CHARS": "900",
            "MEMORY_TTL_SECONDS": "3600",
            "REDIS_URL": "redis://localhost:6379/0",
        }
    )
    npc = settings.npc_policies()

    assert settings.memory_enabled is False
    assert settings.store == "redis://localhost:6379/0"
    assert (npc.sessions.retention.max_messages, npc.sessions.retention.idle) == (30, timedelta(hours=1))
    assert (npc.context.window_messages, npc.context.window_characters) == (6, 900)
    assert read_settings({"REDIS_URL": "redis://a", "TENUTO_STORE": "sqlite:///x.db"}).store == "sqlite:///x.db"


@pytest.mark.requirement("T20")
def test_every_switch_and_every_optional_setting_takes_off() -> None:
    """What one setting understands, all do."""
    for name, kind in get_type_hints(Settings).items():
        kinds = {kind, *get_args(kind)}
        if bool in kinds:
            assert all(convert_setting(name, word, kind) is False for word in ("off", "No", "false", "0")), name
            assert all(convert_setting(name, word, kind) is True for word in ("on", "Yes", "TRUE", "1")), name
        elif type(None) in kinds and not any(isinstance(one, EnumType) for one in kinds):
            assert not convert_setting(name, "off", kind), name
    settings = read_settings(
        {"TENUTO_MEMORIES": "off", "MEMORY_ENABLED": "off", "TENUTO_AGENTS": "off", "TENUTO_BREAKER_FAILURES": "off"}
    )
    assert (settings.memories, settings.memory_enabled) == (False, False)
    assert (settings.agents, settings.breaker_failures) == (None, 0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"nope": 1}, "nope: there is no such setting"),
        ({"retenton": "1h"}, "retenton: there is no such setting; did you mean retention?"),
        ({"max_messages": True}, "max_messages: 'True' is not valid"),
        ({"retention": "soon"}, "retention: 'soon' is not a duration"),
        ({"retention": [1]}, "retention: '[1]' is not valid"),
        ({"lease": "999999999d"}, "lease"),
        ({"TENUTO_RETENTON": "3d"}, "TENUTO_RETENTON: there is no such setting; did you mean TENUTO_RETENTION?"),
        ({"TENUTO_PORT": "http"}, "TENUTO_PORT: 'http' is not valid; expected a whole number"),
        ({"TENUTO_PORT": "70000"}, "port: 70000 is not between 0 and 65535"),
        ({"TENUTO_TOUCH": "sometimes"}, "TENUTO_TOUCH: 'sometimes' is not valid; expected read or write or never"),
        ({"TENUTO_L1": "maybe"}, "TENUTO_L1: 'maybe' is not valid; expected on or off"),
        ({"TENUTO_RETENTION": "soon"}, "TENUTO_RETENTION: 'soon' is not a duration"),
        ({"TENUTO_STALE_AFTER": "40d", "TENUTO_PRESET": "channel"}, "stale_after: 40 days"),
        ({"TENUTO_RETENTION": "24h", "TENUTO_PRESET": "channel"}, "stale_after: 2 days"),
        ({"TENUTO_MAX_TURNS": "5", "TENUTO_PRESET": "goods_qa"}, "window_turns: the window of 10 is wider"),
        ({"TENUTO_PRESET": "shop"}, "preset: there is no 'shop'"),
        ({"TENUTO_MAX_BODY_BYTES": "2000", "TENUTO_MAX_MESSAGE_BYTES": "4000"}, "max_body_bytes: is smaller"),
        ({"TENUTO_JWT_SECRET": "short"}, "jwt_secret: is shorter than 32 bytes"),
        ({"TENUTO_JWT_KEY_FILE": "/does/not/exist.pem"}, "jwt_key_file: there is no such file"),
        ({"TENUTO_TASKS_DATABASE": "redis://h/1"}, "tasks_database: must be sqlite:///… or postgresql://…"),
        ({"TENUTO_TASK_WEBHOOK": "file:///etc/hosts"}, "task_webhook: must be an address that begins with https://"),
        ({"TENUTO_TASK_WEBHOOK": "https://h/x"}, "task_webhook: needs task_webhook_secret"),
        ({"TENUTO_ARCHIVE_AFTER": "1d", "TENUTO_INACTIVE_AFTER": "0"}, "archive_after: counts the time of inactivity"),
        ({"TENUTO_LOG_LEVEL": "loud"}, "log_level: 'loud' is not one of"),
        ({"TENUTO_MAX_MESSAGES": "-5"}, "max_messages: must be between 1 and"),
        ({"TENUTO_MAX_MESSAGES": "99999999999999999999"}, "max_messages: must be between 1 and"),
        ({"TENUTO_JWT_ISSUER": "https://issuer.example"}, "jwt_issuer: checks tokens, but none of"),
        ({"MEMORY_MAX_MESSAGES": "many"}, "MEMORY_MAX_MESSAGES: 'many' is not valid"),
    ],
    ids=count(),
)
def test_a_setting_that_does_not_fit_stops_the_start_by_name(given: dict[str, object], sentence: str) -> None:
    """In the environment by its variable, in a program by its name."""
    environment = {name: str(value) for name, value in given.items() if name.isupper()}
    with pytest.raises(InvalidSetting) as excinfo:
        read_settings(environment, **{name: value for name, value in given.items() if not name.isupper()})

    assert sentence in str(excinfo.value)


def test_a_secret_is_not_repeated_in_an_error() -> None:
    with pytest.raises(InvalidSetting) as excinfo:
        read_settings({"TENUTO_JWT_SECRET": "hunter2"})

    assert "hunter2" not in str(excinfo.value)


@pytest.mark.parametrize(
    ("text", "duration"),
    [("30d", timedelta(days=30)), ("1.5h", timedelta(minutes=90)), ("250ms", timedelta(milliseconds=250)),
     ("45", timedelta(seconds=45)), ("off", timedelta(0)), (" 5 m ", timedelta(minutes=5))],
)  # fmt: skip
def test_durations_are_written_as_people_do(text: str, duration: timedelta) -> None:
    assert parse_duration("x", text) == duration


def test_defaults_need_nothing() -> None:
    settings = Settings()

    assert settings.store == "sqlite:///data/tenuto.db"
    assert settings.sweep_every == timedelta(minutes=5)
    assert settings.l1_sessions == 10_000
