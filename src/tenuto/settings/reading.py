"""Settings from the environment, programs and files: which name is which field, and what a text means for its type."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, get_args, get_type_hints

import msgspec

from tenuto.errors import InvalidSetting
from tenuto.settings.fields import Settings

_PREFIX: Final = "TENUTO_"
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
# Settings whose values no message shows.
_SECRETS: Final = ("SECRET", "API_KEY", "PRIVACY_KEY", "ENCRYPT_KEY", "VERIFICATION_TOKEN")
_OFF: Final = frozenset({"0", "off", "never", "none", "false", "no"})
_ON: Final = frozenset({"1", "on", "true", "yes"})
# Numbers that no preset fills in, whose 0 switches something off.
_ZERO_IS_OFF: Final = ("breaker_failures", "wrong_credentials_per_minute", "embedding_tokens_per_minute")


def read_settings(environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings from the environment; what is given by name goes first.

    Raises:
        InvalidSetting: a name is unknown or a value does not fit.
    """
    environ = os.environ if environ is None else environ
    kinds = get_type_hints(Settings)
    values: dict[str, Any] = {}
    for name, text in environ.items():
        if name.startswith(_PREFIX):
            field = setting_name(name, kinds)
            if text or type(None) not in get_args(kinds[field]):  # An empty text where nothing may stand is nothing.
                values[field] = _parse_value(name, text, kinds[field])
        elif name.startswith("MEMORY_") and name.lower() in kinds:
            values[name.lower()] = _parse_value(name, text, kinds[name.lower()])
    if "store" not in values and environ.get("REDIS_URL"):
        values["store"] = environ["REDIS_URL"]
    if "port" not in values and environ.get("PORT"):
        # How hosting platforms name the port.
        values["port"] = _parse_value("PORT", environ["PORT"], int)
    for name, value in given.items():
        if value is not None:
            field = setting_name(name, kinds, prefix="")
            values[field] = convert_setting(name, value, kinds[field])
    return Settings(**values)


def convert_setting(name: str, value: Any, kind: Any) -> Any:
    """A setting that a program or a file gave: text is read as in the environment, a number of seconds is a duration.

    Raises:
        InvalidSetting: the value does not fit.
    """
    if isinstance(value, str):
        return _parse_value(name, value, kind)
    if timedelta in (kind, *get_args(kind)) and type(value) in (int, float):
        return _parse_value(name, str(value), kind)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        shown = _display_value(name, repr(value))
        raise InvalidSetting(name, f"{shown} is not valid; expected {_expected(kind)}") from None


def setting_name(name: str, kinds: Mapping[str, Any], prefix: str = _PREFIX) -> str:
    """The field of a setting.

    Raises:
        InvalidSetting: there is none.
    """
    field = name.removeprefix(prefix).lower() if prefix else name
    if field in kinds and not (prefix and field.startswith("memory_")):
        return field
    near = difflib.get_close_matches(field, kinds, n=1)
    hint = f"; did you mean {prefix + near[0].upper() if prefix else near[0]}?" if near else ""
    raise InvalidSetting(name, f"there is no such setting{hint}")


def _parse_value(name: str, text: str, kind: Any) -> Any:
    if timedelta in (kind, *get_args(kind)):
        return parse_duration(name, text)
    word, kinds = text.strip().lower(), {kind, *get_args(kind)}
    if bool in kinds and word in _ON | _OFF:
        return word in _ON
    optional = type(None) in kinds
    if word in _OFF and (optional or _field_name(name) in _ZERO_IS_OFF) and kinds & {int, float}:
        return 0
    # Other words may be a file, a name or a key.
    if word == "off" and optional and str in kinds:
        return None
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        raise InvalidSetting(name, f"{_display_value(name, text)} is not valid; expected {_expected(kind)}") from None


def _field_name(name: str) -> str:
    return name.removeprefix(_PREFIX).lower()


def parse_duration(name: str, text: str) -> timedelta:
    """`30d`, `48h`, `5m`, `90s`, `250ms`; a bare number counts seconds; `off` is nothing at all."""
    if text.strip().lower() in _OFF:
        return timedelta(0)
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(name, f"{text!r} is not a duration; write for example 30d, 48h, 5m or 90s")
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError:
        raise InvalidSetting(name, f"{text!r} is too long a duration") from None


def _display_value(name: str, text: str) -> str:
    return "the value" if any(word in name.upper() for word in _SECRETS) else repr(text)


def _expected(kind: Any) -> str:
    choices = next((part for part in (kind, *get_args(kind)) if hasattr(part, "__members__")), None)
    if choices is not None:
        return " or ".join(choices)
    kinds = (kind, *get_args(kind))
    for wanted, words in ((bool, "on or off"), (int, "a whole number"), (float, "a number"), (..., "a list")):
        if wanted in kinds:
            return words
    return "text"
