"""The apps on chat platforms: those of the settings and of the file `channels`."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenuto.channels.lark.app import LarkApp
from tenuto.errors import InvalidSetting
from tenuto.model.channel import ChannelPolicy
from tenuto.ports import Clock, utc_now
from tenuto.settings import Settings, parse_duration

if TYPE_CHECKING:
    from tenuto.channels.lark.channel import LarkChannel

_SETTING: Final = "channels"
_SECRETS: Final = ("app_secret", "encrypt_key", "verification_token")
_POLICY: Final = ChannelPolicy.__struct_fields__
_KNOWN: Final = (
    *(name for name in LarkApp.__struct_fields__ if name != "policy"),
    *(f"{name}_env" for name in _SECRETS),
    *_POLICY,
)


def lark_apps(settings: Settings) -> tuple[LarkApp, ...]:
    """Every configured app, each once.

    Raises:
        InvalidSetting: one of them cannot work, or two have the same id.
    """
    own = settings.lark_app()
    apps = ([own] if own is not None else []) + (_read_file(Path(settings.channels)) if settings.channels else [])
    ids = [app.app_id for app in apps]
    for app_id in ids:
        if ids.count(app_id) > 1:
            raise InvalidSetting(_SETTING, f"the app {app_id} is configured twice")
    return tuple(apps)


def open_lark_channel(app: LarkApp, clock: Clock = utc_now) -> LarkChannel:
    """The channel of an app, which the caller closes.

    Raises:
        InvalidSetting: a package is missing.
    """
    try:
        from tenuto.channels.lark.channel import LarkChannel
    except ModuleNotFoundError:
        raise InvalidSetting("lark_app_id", "needs the package httpx: install tenuto[lark]") from None
    if app.long_connection and find_spec("lark_oapi") is None:
        raise InvalidSetting("lark_long_connection", "needs the package lark-oapi: install tenuto[lark]")
    return LarkChannel(app, clock=clock)


def _read_file(path: Path) -> list[LarkApp]:
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise InvalidSetting(_SETTING, f"{path} cannot be read") from None
    except tomllib.TOMLDecodeError as broken:
        raise InvalidSetting(_SETTING, f"{path} is not TOML: {broken}") from None
    _check_known(path, given, ("lark",))
    tables = given.get("lark", [])
    if not isinstance(tables, list):
        raise InvalidSetting(_SETTING, f"{path}: write [[lark]] with two brackets, once for each app")
    return [_read_app(path, table) for table in tables]


def _read_app(path: Path, table: Mapping[str, Any]) -> LarkApp:
    _check_known(path, table, _KNOWN)
    try:
        given = _resolve_secrets(table)
        policy = {"prefix": "lark"} | {name: given.pop(name) for name in _POLICY if name in given}
        if "remember_events" in policy:
            policy["remember_events"] = parse_duration("remember_events", str(policy["remember_events"]))
        return msgspec.convert({**given, "policy": policy}, LarkApp, strict=False)
    except (msgspec.ValidationError, InvalidSetting) as unfit:
        named = table.get("app_id", "without app_id")
        raise InvalidSetting(_SETTING, f"{path}, app {named}: {unfit}") from None


def _resolve_secrets(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table, with the values of the variables that `…_env` name."""
    given = dict(table)
    for name in _SECRETS:
        variable = given.pop(f"{name}_env", None)
        if variable is None:
            continue
        if name in given:
            raise InvalidSetting(f"{name}_env", f"contradicts {name}: give one of them")
        if not os.environ.get(str(variable)):
            raise InvalidSetting(f"{name}_env", f"the variable {variable} is not set")
        given[name] = os.environ[str(variable)]
    return given


def _check_known(path: Path, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            raise InvalidSetting(_SETTING, f"{path}: {name} is unknown{hint}")
