"""The TOML file of apps on chat platforms: a table for each app, with its own fields and those of its policy.

A field that holds a secret may be given as the name of an environment variable: `secret_env = "SHOP_SECRET"`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from msgspec.structs import fields, replace

from tenuto.errors import Invalid, InvalidSetting
from tenuto.model.channel import ChannelPolicy
from tenuto.model.values import JsonObject, Value
from tenuto.settings import convert_setting, setting_name

_SETTING: Final = "channels"
_PLATFORMS: Final = ("lark", "webhook")
_POLICY: Final = "policy"
_ENV: Final = "_env"
_App = TypeVar("_App", bound=Value)


def read_apps(path: Path, platform: str, app: type[_App]) -> tuple[_App, ...]:
    """The apps in the tables of a platform; `app` has a field `policy` with the platform's own defaults.

    Raises:
        InvalidSetting: the file or a table cannot be read.
    """
    tables_by_platform = _load(path)
    unknown = next((name for name in tables_by_platform if name not in _PLATFORMS), None)
    if unknown is not None:
        raise InvalidSetting(_SETTING, f"{path}: {unknown} is unknown; expected one of {', '.join(_PLATFORMS)}")
    tables = tables_by_platform.get(platform, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidSetting(_SETTING, f"{path}: write [[{platform}]] with two brackets, once for each app")
    apps: list[_App] = []
    for number, table in enumerate(tables, 1):
        try:
            apps.append(_read_app(table, app))
        except Invalid as error:
            raise InvalidSetting(_SETTING, f"{path}, [[{platform}]] number {number}: {error}") from None
    return tuple(apps)


def _load(path: Path) -> JsonObject:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSetting(_SETTING, f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSetting(_SETTING, f"{path} is not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(_SETTING, f"{path} is not TOML: {error}") from None


def _read_app(table: JsonObject, app: type[_App]) -> _App:
    kinds = {**get_type_hints(ChannelPolicy), **get_type_hints(app)}
    del kinds[_POLICY]
    values: dict[str, Any] = {}
    for name, value in _resolve_secrets(table, kinds):
        field_name = setting_name(name, kinds, prefix="")
        values[field_name] = convert_setting(name, value, kinds[field_name])
    own: dict[str, Any] = {}
    for field in fields(app):
        if field.name in values:
            own[field.name] = values.pop(field.name)
        elif field.required:
            raise InvalidSetting(field.name, "is missing")
        elif field.name == _POLICY:
            own[_POLICY] = field.default
    own[_POLICY] = replace(own[_POLICY], **values)
    return app(**own)


def _resolve_secrets(table: JsonObject, kinds: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        field = name.removesuffix(_ENV)
        if name in kinds or field == name or field not in kinds:
            yield name, value
        elif field in table:
            raise InvalidSetting(name, f"contradicts {field}: give one of them")
        elif not os.environ.get(str(value)):
            raise InvalidSetting(name, f"the variable {value} is not set")
        else:
            yield field, os.environ[str(value)]
