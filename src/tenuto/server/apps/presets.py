"""The rules by which requests of apps are read: presets by the app's name, and what the settings add to them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, Self

import msgspec
from starlette.datastructures import Headers

from tenuto.errors import InvalidSetting, InvalidText
from tenuto.model.values import JsonObject, Value
from tenuto.settings import Settings

IGNORE: Final = "ignore"
_SOURCE: Final = re.compile(
    r"(?:header:(?P<header>[A-Za-z0-9!$%&'*+.^_`|~-]+)|metadata\.(?P<key>[^#=\s]+)|(?P<field>prompt_cache_key|user))"
    r"(?:#(?P<path>[\w.-]+))?(?:=(?P<start>\S+))?"
)
# Fields of a preset and of its rules that name sources.
_SOURCES: Final = ("marks", "session", "user", "without", "source")
_SYSTEM: Final = ("system", "developer")
_GRAMMAR: Final = "is not one of header:<name>, prompt_cache_key, metadata.<key>, user, each with #<path> into its JSON"
# What apps send where they have no value: templates that nothing has filled in, and words for nothing.
_UNFILLED: Final = re.compile(r"\{\{.*\}\}|\$\{.*\}|null|none|undefined", re.IGNORECASE | re.DOTALL)


class Source(Value, frozen=True, kw_only=True):
    """A place in a request where an app writes an id: a header, a field of the body or a key of its metadata.

    With a `path`, the id is a field inside the JSON that stands there. With a `start`, only such values count.
    """

    header: str = ""
    field: str = ""
    key: str = ""
    path: str = ""
    start: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The source of that name; `None` if it is none."""
        match = _SOURCE.fullmatch(text)
        return cls(**{name: part or "" for name, part in match.groupdict().items()}) if match is not None else None

    def value(self, headers: Headers, body: Mapping[str, Any]) -> str:
        """What stands there, empty where there is nothing or nothing was filled in.

        Raises:
            InvalidText: a header is not UTF-8.
        """
        text = self._text(headers, body)
        if self.path:
            text = _inside(text, self.path)
        text = text.strip()
        fits = text.lower().startswith(self.start.lower()) and not _UNFILLED.fullmatch(text)
        return text if fits else ""

    def _text(self, headers: Headers, body: Mapping[str, Any]) -> str:
        if self.header:
            try:
                # HTTP hands over bytes; ids are text of any language.
                return (headers.get(self.header) or "").encode("latin-1").decode()
            except UnicodeDecodeError:
                raise InvalidText(f"the header {self.header} is not UTF-8") from None
        metadata = body.get("metadata")
        value = body.get(self.field) if self.field else metadata.get(self.key) if isinstance(metadata, Mapping) else ""
        return value if isinstance(value, str) else ""


def _inside(text: str, path: str) -> str:
    """The text at a path inside JSON, empty if there is none."""
    if not text:
        return ""
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ""
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


class TaskRule(Value, frozen=True, kw_only=True):
    """How a request of an app shows that it is no turn; every condition that is given must hold."""

    task: str = ""
    source: Source | None = None
    names: dict[str, str] = {}
    without: tuple[Source, ...] = ()
    fields: tuple[str, ...] = ()
    tools: Literal["none", "empty"] | None = None
    streams: bool | None = None
    begins: str = ""
    unless: str = ""
    system: str = ""

    def task_of(self, headers: Headers, body: Mapping[str, Any]) -> str:
        """The task that a request is for, empty where the rule does not fit."""
        if self.streams is not None and bool(body.get("stream")) is not self.streams:
            return ""
        tools = body.get("tools")
        if self.tools is not None and (tools or (self.tools == "empty" and tools is None)):
            return ""
        if any(body.get(field) is None for field in self.fields):
            return ""
        if any(source.value(headers, body) for source in self.without):
            return ""
        if self.begins and not any(_begins(text, self.begins) for text in last_texts_of_user(body)):
            return ""
        if self.unless and any(_begins(text, self.unless) for text in last_texts_of_user(body)):
            return ""
        if self.system and not _begins(first_text_of_system(body), self.system):
            return ""
        if self.source is None:
            return self.task
        value = self.source.value(headers, body)
        return self.names.get(value, self.task) if value else ""


class AppPreset(Value, frozen=True, kw_only=True):
    """What the requests of one app say. `presets.toml` describes the fields."""

    name: str = ""
    marks: tuple[Source, ...] = ()
    session: tuple[Source, ...] = ()
    user: tuple[Source, ...] = ()
    temporary: tuple[str, ...] = ()
    store_false: Literal["obey", "ignore"] = "obey"
    own_texts: tuple[tuple[str, str], ...] = ()
    summaries: tuple[str, ...] = ()
    drop_tools: tuple[str, ...] = ()
    spare_tools: tuple[str, ...] = ()
    tasks: tuple[TaskRule, ...] = ()

    def fits(self, headers: Headers, body: Mapping[str, Any]) -> bool:
        """Whether the request is one of the app."""
        return any(mark.value(headers, body) for mark in self.marks)

    def is_temporary(self, value: str) -> bool:
        """Whether the app gives this value to conversations that it keeps no record of."""
        return any(fnmatchcase(value, pattern) for pattern in self.temporary)


NO_APP: Final = AppPreset()


class AppRules(Value, frozen=True, kw_only=True):
    """The presets that the settings switch on, in their order, and what they say of every request."""

    presets: tuple[AppPreset, ...] = ()
    session_from: tuple[Source, ...] = ()
    user_from: tuple[Source, ...] = ()
    store_false: Literal["obey", "ignore"] | None = None
    by_history: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The rules that the settings describe.

        Raises:
            InvalidSetting: there is no such preset, or no such source.
        """
        known = presets()
        names = _entries(settings.apps)
        for name in names:
            if name not in known:
                raise InvalidSetting("apps", f"{name!r} is not one of {', '.join(known)}")
        return cls(
            presets=tuple([known[name] for name in dict.fromkeys(names)]),
            session_from=_sources("session_from", settings.session_from),
            user_from=_sources("user_from", settings.user_from),
            store_false=msgspec.convert(settings.store_false, Literal["obey", "ignore"] | None),
            by_history=bool(settings.sessions_by_history),
        )

    def preset_of(self, headers: Headers, body: Mapping[str, Any]) -> AppPreset:
        """The first preset whose app makes such requests."""
        return next((preset for preset in self.presets if preset.fits(headers, body)), NO_APP)


@cache
def presets() -> Mapping[str, AppPreset]:
    """All presets by their names."""
    tables = tomllib.loads(files(__package__).joinpath("presets.toml").read_text("utf-8"))
    return {name: msgspec.convert({"name": name, **_with_sources(table)}, AppPreset) for name, table in tables.items()}


def _with_sources(table: Mapping[str, Any]) -> JsonObject:
    """A table with the names of its sources read, those of its rules included."""
    read: JsonObject = {}
    for name, value in table.items():
        if name in _SOURCES:
            read[name] = _parsed(value) if isinstance(value, str) else list(map(_parsed, value))
        else:
            read[name] = list(map(_with_sources, value)) if name == "tasks" else value
    return read


def _parsed(text: str) -> Source:
    source = Source.parse(text)
    assert source is not None, f"{text} is no source"
    return source


def last_texts_of_user(body: Mapping[str, Any]) -> list[str]:
    """The texts in the last message of a user, in a request of any door."""
    if isinstance(body.get("input"), str):
        return [body["input"]]
    for message in reversed(_messages_of(body)):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return texts_of(message.get("content"))
    return []


def first_text_of_system(body: Mapping[str, Any]) -> str:
    """The text by which a request of any door begins to instruct the model."""
    given = body.get("system") or body.get("instructions")
    for first in _messages_of(body)[:1]:
        if not given and isinstance(first, Mapping) and first.get("role") in _SYSTEM:
            given = first.get("content")
    return next(iter(texts_of(given)), "")


def _messages_of(body: Mapping[str, Any]) -> list[Any]:
    messages = body.get("messages", body.get("input"))
    return messages if isinstance(messages, list) else []


def texts_of(content: Any) -> list[str]:
    """The texts in the content of a message."""
    if isinstance(content, str):
        return [content]
    parts = [part.get("text") for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    return [text for text in parts if isinstance(text, str)]


def _begins(text: str, start: str | tuple[str, ...]) -> bool:
    return text.lstrip().startswith(start)


def _entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",") if entry.strip()]


def _sources(setting: str, text: str | None) -> tuple[Source, ...]:
    sources: list[Source] = []
    for entry in _entries(text):
        source = Source.parse(entry)
        if source is None or source.start:
            raise InvalidSetting(setting, f"{entry!r} {_GRAMMAR}")
        sources.append(source)
    return tuple(sources)
