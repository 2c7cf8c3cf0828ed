"""The fields of `Settings`, what of them contradicts each other, and the policies that they make."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from tenuto.channels.lark.app import FEISHU, LarkApp
from tenuto.errors import InvalidSetting
from tenuto.model.channel import ChannelPolicy
from tenuto.model.memory import MemoryPolicy
from tenuto.model.model_names import AllowedModel, ModelNames, read_model_names
from tenuto.model.policy import ContextPolicy, OnMissing, OnStoreDown, Preset, SessionPolicy, TaskPolicy, preset
from tenuto.model.privacy import ATTACHMENT_SINKS, AttachmentMode, Mode, PrivacyPolicy, Sink
from tenuto.model.prompt import MAX_PROMPT_TOKENS, PromptPolicy
from tenuto.model.session import NANOS_PER_USD, Budgets, Touch
from tenuto.model.signature import read_signing_key
from tenuto.model.urls import check_url
from tenuto.model.values import Value

_ENGINE_DATABASES: Final = ("sqlite", "postgresql", "postgres")
_HOST: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]", re.ASCII)
_ORIGIN: Final = re.compile(
    r"(?P<scheme>https?)://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_PROVIDED: Final = re.compile(r"[^:\s]+:\S+")
# Settings that hold for the sessions of every assistant.
_SESSION_LIMITS: Final = (
    *("max_message_bytes", "max_head_bytes", "lease", "busy_wait", "inactive_after", "archive_after"),
    *("title_characters", "fallback_title_characters"),
    *("max_attachment_bytes", "max_attachments", "attachment_types", "strip_attachment_metadata"),
)
_LARK: Final = (
    *("lark_app_id", "lark_app_secret", "lark_encrypt_key", "lark_verification_token"),
    *("lark_assistant", "lark_long_connection"),
)
# Its folder, below the working folder, is made where it is missing.
DEFAULT_STORE: Final = "sqlite:///data/tenuto.db"


class Settings(Value, frozen=True, kw_only=True):
    """An installation. What is `None` follows the preset."""

    store: str = DEFAULT_STORE
    sqlite_synchronous: str = "full"
    preset: str = "platform"

    retention: timedelta | None = None
    touch: Touch | None = None
    stale_after: timedelta | None = None
    max_messages: int | None = None
    max_turns: int | None = None
    max_sessions: int | None = None
    on_missing: OnMissing | None = None
    on_store_down: OnStoreDown | None = None
    lease: timedelta = timedelta(minutes=2)
    busy_wait: timedelta = timedelta(seconds=10)
    inactive_after: timedelta = timedelta(minutes=30)
    archive_after: timedelta = timedelta(0)
    sweep_every: timedelta = timedelta(minutes=5)
    compress_at: float | None = None
    compress_over: int | None = None
    keep_verbatim: int | None = None
    summary_tokens: int | None = None
    summary_characters: int | None = None
    title_characters: int = 60
    fallback_title_characters: int = 40
    # How many calls in a row a server leaves unanswered before it is left alone; 0: it is always asked.
    breaker_failures: int = 5
    breaker_reset: timedelta = timedelta(seconds=30)
    # None: a folder of the user's own, for each store another one.
    journal: str | None = None

    task_retention: timedelta | None = None
    agent_retention: timedelta | None = None
    task_owners: str | None = None
    agents: str | None = None
    # None: beside the store, which several machines share on Postgres only.
    tasks_database: str | None = None
    # Events of tasks are posted to it, signed with the secret.
    task_webhook: str | None = None
    task_webhook_secret: str | None = None
    max_board_keys: int = 1000
    max_board_value_bytes: int = 64 * 1024

    # Off: sessions are found by their titles alone, and no index of words is kept.
    session_search: bool = True

    l1: bool = True
    l1_sessions: int = 10_000
    l1_bytes: int = 256 * 1024 * 1024

    host: str = "127.0.0.1"
    port: int = 8765
    max_body_bytes: int = 32 * 1024 * 1024
    # Server processes on one port; and how long they take to stop.
    workers: int = 1
    shutdown_timeout: timedelta = timedelta(seconds=15)
    max_message_bytes: int = 1024 * 1024
    max_head_bytes: int = 256 * 1024
    max_attachment_bytes: int = 10 * 1024 * 1024
    max_attachments: int = 1000
    user_attachment_bytes: int | None = None
    attachment_types: str | None = None
    strip_attachment_metadata: bool = True
    # None: 6,000 for each credential, and no limit where none is needed.
    requests_per_minute: int | None = None
    embedding_tokens_per_minute: int = 100_000
    # Opens /metrics without the store, which may be what is to be looked at.
    metrics_token: str | None = None
    wrong_credentials_per_minute: int = 60
    cors_origins: str | None = None
    # Names under which a proxy of this machine passes requests to an open server.
    allowed_hosts: str | None = None

    jwt_secret: str | None = None
    jwt_key_file: str | None = None
    jwt_jwks_file: str | None = None
    jwt_algorithm: str | None = None
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_tenant_claim: str = "tenant_id"
    jwt_site_claim: str = "site_id"
    jwt_user_claim: str = "sub"
    jwt_role_claim: str = "role"
    jwt_agent_claim: str = "agent"
    # None: no claim says which users are one person.
    jwt_person_claim: str | None = None
    link_code_life: timedelta = timedelta(minutes=10)

    privacy_message: Mode = Mode.KEEP
    privacy_past: Mode = Mode.KEEP
    privacy_summary: Mode = Mode.REDACT
    privacy_memory: Mode = Mode.REDACT
    privacy_board: Mode = Mode.KEEP
    privacy_title: Mode = Mode.REDACT
    privacy_trace: Mode = Mode.REDACT
    privacy_log: Mode = Mode.REDACT
    privacy_export: Mode = Mode.REDACT
    privacy_model: Mode = Mode.KEEP
    privacy_answer: Mode = Mode.KEEP
    privacy_attachments_message: AttachmentMode = AttachmentMode.KEEP
    privacy_attachments_model: AttachmentMode = AttachmentMode.KEEP
    privacy_attachments_memory: AttachmentMode = AttachmentMode.KEEP
    privacy_attachments_export: AttachmentMode = AttachmentMode.KEEP
    privacy_file: str | None = None
    # None: only when it is asked for.
    privacy_scan_every: timedelta | None = None
    privacy_detector: str | None = None
    privacy_detector_timeout: timedelta = timedelta(seconds=1)
    privacy_detector_languages: str = "en"
    privacy_key: str | None = None
    privacy_key_file: str | None = None
    encryption: bool = False

    assistant: str = "general"
    assistants: str | None = None
    npc_corpus: str | None = None
    model: str = "offline"
    # Models that callers may name beside the assistants, and other names for assistants and models.
    allowed_models: str | None = None
    model_aliases: str | None = None
    # What becomes of names that are none of these: refuse, or default for the default assistant.
    unknown_models: str = "refuse"
    # Apps whose requests name sessions and users in their own way, and other places where such ids stand.
    apps: str | None = None
    session_from: str | None = None
    user_from: str | None = None
    # None: obeyed, but for apps whose preset says otherwise.
    store_false: str | None = None
    # How long a chat that no request names is found by its history; 0: it is not.
    sessions_by_history: timedelta = timedelta(0)
    model_base_url: str | None = None
    model_api_key: str | None = None
    # None: of a model on this machine none, two minutes and one of others. 0: the first token has no limit.
    model_timeout: timedelta | None = None
    first_token_timeout: timedelta | None = None
    # How many requests a provider answers at once. None: 1 on this machine, and 0, no limit, elsewhere.
    model_slots: int | None = None
    # None: the same as `model`; none at all where that is the offline one.
    summarizer_model: str | None = None
    # auto: the local one where it is installed, and words otherwise.
    embedder: str = "auto"
    # Whether readers see what a model thought; it is stored and goes back to its provider either way.
    show_reasoning: bool = True
    tool_timeout: timedelta = timedelta(seconds=30)
    # None: as much as the model's context window, up to `max_prompt_tokens`; 8,192 where it is not known.
    prompt_tokens: int | None = None
    max_prompt_tokens: int = MAX_PROMPT_TOKENS
    # `openai:gpt-x=128000, ollama:qwen3=16384`: where they are not known, or to be kept smaller.
    model_context_windows: str | None = None
    reply_tokens: int = 1024
    # None: the model's own limit.
    max_reply_tokens: int | None = None
    session_budget_tokens: int | None = None
    session_budget_usd: float | None = None
    tenant_daily_tokens: int | None = None
    tenant_daily_usd: float | None = None

    lark_app_id: str | None = None
    lark_app_secret: str | None = None
    lark_encrypt_key: str | None = None
    lark_verification_token: str | None = None
    lark_domain: str = FEISHU
    lark_assistant: str | None = None
    # Events come through a connection that the server opens, instead of callbacks.
    lark_long_connection: bool = False
    # A TOML file with several apps on chat platforms.
    channels: str | None = None

    log_level: str = "info"
    telemetry: bool = False

    memories: bool = True
    # None: where the server needs no credential, and in the terminal.
    memories_without_user: bool | None = None
    memories_in_groups: bool = False
    capture_group_memory: bool = True
    max_memories: int = 20_000
    memories_cache_bytes: int = 256 * 1024 * 1024
    episode_retention: timedelta = timedelta(days=180)
    fact_retention: timedelta = timedelta(0)
    preference_retention: timedelta = timedelta(0)

    memory_enabled: bool = True
    memory_max_messages: int | None = None
    memory_max_chars: int | None = None
    memory_ttl_seconds: int | None = None

    def __post_init__(self) -> None:
        _check_range("port", self.port, 0, 65_535)
        for what in ("l1_sessions", "l1_bytes", "memories_cache_bytes", "max_body_bytes"):
            _check_range(what, getattr(self, what), 1, 2**53)
        _check_range("workers", self.workers, 1, 64)
        if self.shutdown_timeout < timedelta(seconds=2):
            raise InvalidSetting("shutdown_timeout", "must be at least two seconds")
        _check_range("requests_per_minute", self.requests_per_minute or 0, 0, 2**31)
        _check_range("embedding_tokens_per_minute", self.embedding_tokens_per_minute, 0, 2**31)
        _check_range("wrong_credentials_per_minute", self.wrong_credentials_per_minute, 0, 2**31)
        _check_choice("sqlite_synchronous", self.sqlite_synchronous, ("full", "normal"))
        _check_choice("unknown_models", self.unknown_models, ("refuse", "default"))
        if self.sessions_by_history < timedelta(0):
            raise InvalidSetting("sessions_by_history", "must not be negative; 0 means off")
        _check_choice("store_false", self.store_false or "obey", ("obey", "ignore"))
        self.model_names()
        _check_choice("log_level", self.log_level, ("debug", "info", "warning", "error"))
        if self.max_body_bytes < self.max_message_bytes:
            raise InvalidSetting("max_body_bytes", "is smaller than max_message_bytes: no such message could arrive")
        if self.sweep_every < timedelta(seconds=1):
            raise InvalidSetting("sweep_every", "must be at least one second")
        if self.privacy_scan_every and self.privacy_scan_every < timedelta(minutes=1):
            raise InvalidSetting("privacy_scan_every", "must be at least one minute, or off")
        _check_range("breaker_failures", self.breaker_failures, 0, 2**31)
        _check_range("model_slots", self.model_slots or 0, 0, 2**31)
        for what in ("model_timeout", "tool_timeout", "privacy_detector_timeout", "breaker_reset"):
            if (limit := getattr(self, what)) is not None and limit < timedelta(milliseconds=1):
                raise InvalidSetting(what, "must be greater than zero")
        if self.embedder not in ("auto", "none", "local") and not _PROVIDED.fullmatch(self.embedder):
            raise InvalidSetting("embedder", f"{self.embedder!r} is not one of auto, none, local, or a provider:model")
        if not timedelta(minutes=1) <= self.link_code_life <= timedelta(days=1):
            raise InvalidSetting("link_code_life", "must lie between a minute and a day")
        self._check_jwt()
        self._check_keys()
        self._check_tasks()
        self.allowed_origins()
        self.proxied_hosts()
        self.privacy()
        self.prompt()
        self.context_windows()
        self.budgets()
        self.policies()
        self.npc_policies()
        self.memory_policy()
        if self.lark_app() is not None or self.channels is not None:
            self.channel_policies()

    def allowed_origins(self) -> tuple[str, ...]:
        """The origins whose pages may call the server from a browser.

        Raises:
            InvalidSetting: one of them is no origin as browsers send it.
        """
        origins = tuple(origin.strip() for origin in (self.cors_origins or "").split(",") if origin.strip())
        for origin in origins:
            match = _ORIGIN.fullmatch(origin)
            if match is None or match["port"] == _DEFAULT_PORTS[match["scheme"]]:
                raise InvalidSetting(
                    "cors_origins",
                    f"{origin!r} is not an exact origin, which is scheme, host and any port but the scheme's own, in "
                    "lower case and without a path: https://app.example, http://localhost:5173",
                )
        return origins

    def proxied_hosts(self) -> frozenset[str]:
        """The hosts that an open server answers for beside this machine's own names.

        Raises:
            InvalidSetting: one of them is no host alone.
        """
        hosts = frozenset(host.strip().lower() for host in (self.allowed_hosts or "").split(",") if host.strip())
        for host in hosts:
            if _HOST.fullmatch(host) is None:
                why = f"{host!r} is not a host without scheme, port, path or wildcard: chat.example"
                raise InvalidSetting("allowed_hosts", why)
        return hosts

    def _check_jwt(self) -> None:
        ways = [name for name in ("jwt_secret", "jwt_key_file", "jwt_jwks_file") if getattr(self, name)]
        if len(ways) > 1:
            raise InvalidSetting(ways[1], f"contradicts {ways[0]}: set only one way to verify tokens")
        if self.jwt_secret is not None and len(self.jwt_secret.encode()) < 32:
            raise InvalidSetting("jwt_secret", "is shorter than 32 bytes and can be guessed")
        checks = [name for name in ("jwt_algorithm", "jwt_issuer", "jwt_audience") if getattr(self, name)]
        if checks and not ways:
            raise InvalidSetting(checks[0], "checks tokens, but none of jwt_secret, jwt_key_file, jwt_jwks_file is set")
        for name in ("jwt_key_file", "jwt_jwks_file"):
            path = getattr(self, name)
            if path is not None and not Path(path).is_file():
                raise InvalidSetting(name, "there is no such file")

    def _check_keys(self) -> None:
        if self.privacy_key and self.privacy_key_file:
            raise InvalidSetting("privacy_key_file", "conflicts with privacy_key: set only one of them")
        if self.encryption and not (self.privacy_key or self.privacy_key_file):
            raise InvalidSetting("encryption", "needs a master key: set privacy_key or privacy_key_file")

    def _check_tasks(self) -> None:
        """What the engine of tasks would find out too late: it is opened beside a server, or by the first plan."""
        if self.tasks_database is not None and urlsplit(self.tasks_database).scheme not in _ENGINE_DATABASES:
            raise InvalidSetting("tasks_database", "must be sqlite:///… or postgresql://…")
        if self.task_webhook is not None:
            check_url(self.task_webhook, "task_webhook", plain_http=True)
            if not self.task_webhook_secret:
                raise InvalidSetting("task_webhook", "needs task_webhook_secret, which signs the events")
            read_signing_key(self.task_webhook_secret, "task_webhook_secret")

    def policies(self) -> Preset:
        """The preset with what was set on top of it.

        Raises:
            InvalidSetting: the result contradicts itself.
        """
        return _apply_session_settings(preset(self.preset), self)

    def channel_policies(self) -> Preset:
        """The `channel` preset with what was set on top of it (D9).

        Raises:
            InvalidSetting: the result contradicts itself.
        """
        return _apply_session_settings(preset("channel"), self)

    def prompt(self) -> PromptPolicy:
        """How much a prompt may hold.

        Raises:
            InvalidSetting: nothing is left beside the reply.
        """
        setting = "prompt_tokens" if self.prompt_tokens else "max_prompt_tokens"
        most = self.prompt_tokens or self.max_prompt_tokens
        if most <= self.reply_tokens:
            why = f"{most} leave no room for the prompt beside reply_tokens ({self.reply_tokens})"
            raise InvalidSetting(setting, why)
        _check_range("reply_tokens", self.reply_tokens, 1, 2**31)
        _check_range("max_reply_tokens", self.max_reply_tokens or 1, 1, 2**31)
        return PromptPolicy(
            budget=self.prompt_tokens or None,
            reply_tokens=self.reply_tokens,
            max_reply_tokens=self.max_reply_tokens or None,
            raised_by=setting,
        )

    def own_prompt(self) -> PromptPolicy:
        """The same for a program that calls its own model, which the setting `model` may name.

        Raises:
            InvalidSetting: nothing is left beside the reply.
        """
        return self.prompt().fit_model(self.context_windows().get(self.model), self.max_prompt_tokens)

    def context_windows(self) -> Mapping[str, int]:
        """The context windows of models that `model_context_windows` names.

        Raises:
            InvalidSetting: it is not a list of models and tokens.
        """
        pairs = [pair.rpartition("=") for pair in (self.model_context_windows or "").split(",") if pair.strip()]
        windows = {name.strip(): int(tokens) for name, _, tokens in pairs if tokens.strip().isdecimal()}
        if len(windows) < len(pairs) or not all(name and tokens for name, tokens in windows.items()):
            why = "is not a list of models and tokens; write for example ollama:qwen3=16384, openai:gpt-x=128000"
            raise InvalidSetting("model_context_windows", why)
        return windows

    def privacy(self) -> PrivacyPolicy:
        """What becomes of private data, where no file says otherwise.

        Raises:
            InvalidSetting: a sink cannot have that mode.
        """
        modes = {sink.value: getattr(self, f"privacy_{sink.value}") for sink in Sink}
        attachments = {
            name: getattr(self, f"privacy_{name}") for name in map("attachments_{}".format, ATTACHMENT_SINKS)
        }
        return PrivacyPolicy(**modes, **attachments)

    def model_names(self) -> ModelNames:
        """The names of models that callers may give; the main model's own is among them.

        Raises:
            InvalidSetting: an entry cannot be read.
        """
        names = read_model_names(self.allowed_models, self.model_aliases)
        if ":" not in self.model or "," in self.model:
            return names
        return replace(names, allowed=(AllowedModel(pattern=self.model), *names.allowed))

    def budgets(self) -> Budgets:
        """What sessions and tenants may spend."""
        return Budgets(
            session_tokens=_token_budget("session_budget_tokens", self.session_budget_tokens),
            session_cost_nanos=_usd_budget("session_budget_usd", self.session_budget_usd),
            tenant_tokens_per_day=_token_budget("tenant_daily_tokens", self.tenant_daily_tokens),
            tenant_cost_nanos_per_day=_usd_budget("tenant_daily_usd", self.tenant_daily_usd),
        )

    def memory_policy(self) -> MemoryPolicy:
        """What is remembered, and for how long.

        Raises:
            InvalidSetting: a value is out of range.
        """
        _check_range("max_memories", self.max_memories, 1, 1_000_000)
        for what in ("episode_retention", "fact_retention", "preference_retention"):
            if getattr(self, what) < timedelta(0):
                raise InvalidSetting(what, "must not be negative; 0 means forever")
        return MemoryPolicy(
            enabled=self.memories,
            in_groups=self.memories_in_groups,
            stale_groups=self.capture_group_memory,
            without_user=bool(self.memories_without_user),
            max_memories=self.max_memories,
            cache_bytes=self.memories_cache_bytes,
            episode_life=self.episode_retention or None,
            fact_life=self.fact_retention or None,
            preference_life=self.preference_retention or None,
        )

    def lark_app(self) -> LarkApp | None:
        """The app of the settings, beside those of the file `channels`.

        Raises:
            InvalidSetting: a part of it is missing or does not fit.
        """
        given = [name for name in _LARK if getattr(self, name)]
        if not given:
            return None
        for name in ("lark_app_id", "lark_app_secret"):
            if name not in given:
                raise InvalidSetting(name, f"is missing, but {given[0]} is set")
        fields: dict[str, Any] = {name.removeprefix("lark_"): getattr(self, name) for name in _LARK}
        policy = ChannelPolicy(prefix="lark", assistant=fields.pop("assistant"))
        return LarkApp(**fields, domain=self.lark_domain, policy=policy)

    def journals(self) -> Path:
        """The folder that holds the journals of all stores: the one that was set, or one of the user's own."""
        if self.journal is not None:
            return Path(self.journal)
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(state) / "tenuto" / "journal"

    def apply_limits(self, base: Preset) -> Preset:
        """Policies under the limits that hold for every session here, but for those that an assistant set itself."""
        own, unset = base.sessions, SessionPolicy()
        limits = {name: getattr(self, name) for name in _SESSION_LIMITS if getattr(own, name) == getattr(unset, name)}
        return replace(base, sessions=replace(own, **limits))

    def goods_policies(self) -> Preset:
        """The `goods_qa` preset; a number of sessions that is set for the whole site holds instead of its own."""
        base = self.apply_limits(preset("goods_qa"))
        most = _resolve_cap(self.max_sessions, base.sessions.max_sessions)
        return replace(base, sessions=replace(base.sessions, max_sessions=most))

    def legal_policies(self) -> Preset:
        """The `multi_agent` preset, under the limits of this installation."""
        return self.apply_limits(preset("multi_agent"))

    def npc_policies(self) -> Preset:
        """The `npc` preset with the MEMORY_ settings on top of it (C12)."""
        base = preset("npc")
        messages = _resolve_cap(self.memory_max_messages, base.context.window_messages)
        # A stored turn has four messages or more, two of which a person would count.
        retention = replace(base.sessions.retention, max_messages=messages and messages * 5)
        if self.memory_ttl_seconds is not None:
            retention = replace(retention, idle=timedelta(seconds=self.memory_ttl_seconds))
        return replace(
            base,
            sessions=replace(self.apply_limits(base).sessions, retention=retention),
            context=replace(
                base.context,
                window_messages=messages,
                window_characters=_resolve_cap(self.memory_max_chars, base.context.window_characters),
            ),
        )


def _apply_session_settings(base: Preset, settings: Settings) -> Preset:
    retention = base.sessions.retention
    retention = replace(
        retention,
        idle=None if settings.retention == timedelta(0) else settings.retention or retention.idle,
        touch=settings.touch or retention.touch,
        max_messages=_resolve_cap(settings.max_messages, retention.max_messages),
        max_turns=_resolve_cap(settings.max_turns, retention.max_turns),
    )
    stale = base.sessions.stale_after if settings.stale_after is None else settings.stale_after
    sessions: SessionPolicy = replace(
        base.sessions,
        retention=retention,
        stale_after=stale or None,
        on_missing=settings.on_missing or base.sessions.on_missing,
        on_store_down=settings.on_store_down or base.sessions.on_store_down,
        max_sessions=_resolve_cap(settings.max_sessions, base.sessions.max_sessions),
        user_attachment_bytes=settings.user_attachment_bytes or None,
        **{name: getattr(settings, name) for name in _SESSION_LIMITS},
    )
    context = _apply_context_settings(base.context, settings)
    return replace(base, sessions=sessions, context=context, tasks=_apply_task_settings(base.tasks, settings))


def _apply_context_settings(base: ContextPolicy, settings: Settings) -> ContextPolicy:
    at, verbatim, tokens = settings.compress_at, settings.keep_verbatim, settings.summary_tokens
    return replace(
        base,
        compress_at=base.compress_at if at is None else at or None,
        compress_over=_resolve_cap(settings.compress_over, base.compress_over),
        keep_verbatim=base.keep_verbatim if verbatim is None else verbatim,
        summary_tokens=base.summary_tokens if tokens is None else tokens,
        summary_characters=_resolve_cap(settings.summary_characters, base.summary_characters),
    )


def _apply_task_settings(base: TaskPolicy, settings: Settings) -> TaskPolicy:
    life, notes = settings.task_retention, settings.agent_retention
    life = base.task_retention if life is None else life
    return replace(
        base,
        task_retention=life,
        agent_retention=min(base.agent_retention, life) if notes is None else notes,
        lock_lease=min(base.lock_lease, life),
        owners={**base.owners, **_owners(settings.task_owners)},
        max_board_keys=settings.max_board_keys,
        max_board_value_bytes=settings.max_board_value_bytes,
    )


def _owners(text: str | None) -> Mapping[str, str]:
    """`refund=approver, contract=counsel`: which agent decides, by the task's type."""
    pairs = [pair.partition("=") for pair in (text or "").split(",") if pair.strip()]
    owners = {task.strip(): agent.strip() for task, _, agent in pairs}
    if len(owners) < len(pairs) or not all(task and agent for task, agent in owners.items()):
        raise InvalidSetting("task_owners", "is not a list of types and agents; write for example refund=approver")
    return owners


def _resolve_cap(setting: int | None, preset_cap: int | None) -> int | None:
    """A cap: the preset's where nothing is set, none at all where it is switched off by 0."""
    return preset_cap if setting is None else setting or None


def _token_budget(setting: str, value: int | None) -> int | None:
    """A budget in tokens; 0 switches it off."""
    if value is not None and value < 0:
        raise InvalidSetting(setting, "must not be negative")
    return value or None


def _usd_budget(setting: str, usd: float | None) -> int | None:
    """A budget in US dollars, in whole billionths; 0 switches it off."""
    if usd is not None and not 0 <= usd < 10**6:
        raise InvalidSetting(setting, "must lie between 0 and a million")
    return round(usd * NANOS_PER_USD) or None if usd else None


def _check_range(setting: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidSetting(setting, f"{value} is not between {low} and {high}")


def _check_choice(setting: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidSetting(setting, f"{value!r} is not one of {', '.join(choices)}")
