"""Privacy policies from a TOML file: a general one, and what differs for single tenants.

A tenant's section replaces modes and adds to the lists of what is looked for and what is allowed.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tenuto.errors import Invalid, InvalidSetting
from tenuto.model.privacy import AttachmentMode, CustomPattern, Mode, PrivacyPolicy
from tenuto.model.scope import check_tenant_id
from tenuto.model.values import Json, JsonObject
from tenuto.privacy.detection.finder import PiiFinder

_SETTING: Final = "privacy_file"
_ADDED: Final = frozenset({"also", "never", "allow", "patterns"})
_LISTS: Final = _ADDED | {"unvaulted"}
_ATTACHMENTS: Final = "attachments_"
_PATTERN: Final = tuple(CustomPattern.__struct_fields__)


def load_policy_file(path: Path, base: PrivacyPolicy) -> tuple[PrivacyPolicy, dict[str, PrivacyPolicy]]:
    """The general policy and those of tenants; what the file leaves out is taken from `base`.

    Raises:
        InvalidSetting: the file is missing, not TOML, or has an invalid entry.
    """
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InvalidSetting(_SETTING, f"{path} cannot be read: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSetting(_SETTING, f"{path} is not text in UTF-8") from None
    except tomllib.TOMLDecodeError as exc:
        raise InvalidSetting(_SETTING, f"{path} is not TOML: {exc}") from None
    tenants = said.pop("tenants", {})
    if not isinstance(tenants, dict) or not all(isinstance(each, dict) for each in tenants.values()):
        raise InvalidSetting(_SETTING, "tenants are sections: [tenants.acme]")
    general = _apply_section(base, said, "")
    return general, {
        _check_tenant(name): _apply_section(general, own, f"tenants.{name}: ") for name, own in tenants.items()
    }


def _check_tenant(name: str) -> str:
    try:
        return check_tenant_id(name)
    except Invalid as error:
        raise InvalidSetting(_SETTING, f"tenants.{name[:32]!a}: {error}") from None


def _apply_section(base: PrivacyPolicy, said: JsonObject, where: str) -> PrivacyPolicy:
    values: dict[str, Any] = {}
    for name, value in said.items():
        read = _parse_value(name, value, where)
        values[name] = (*getattr(base, name), *read) if name in _ADDED else read
    try:
        policy = replace(base, **values)
        # Built to validate it: an invalid policy fails here, and not with the first message.
        PiiFinder(policy)
    except InvalidSetting as error:
        raise InvalidSetting(_SETTING, where + str(error).removeprefix("privacy_")) from None
    return policy


def _parse_value(name: str, value: Json, where: str) -> Any:
    known = PrivacyPolicy.__struct_fields__
    if name not in known:
        near = difflib.get_close_matches(name.removeprefix("privacy_"), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; available: {', '.join(known)}"
        raise InvalidSetting(_SETTING, f"{where}there is no {name[:32]!a}{hint}")
    if name == "patterns":
        return _parse_patterns(value, where)
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InvalidSetting(_SETTING, f'{where}{name}: is a list of texts: {name} = ["...", "..."]')
        return tuple(value)
    modes: type[Mode | AttachmentMode] = AttachmentMode if name.startswith(_ATTACHMENTS) else Mode
    if not isinstance(value, str) or value not in tuple(modes):
        shown = ascii(value[:32]) if isinstance(value, str) else "the value"
        raise InvalidSetting(_SETTING, f"{where}{name}: {shown} is not a mode; expected one of {', '.join(modes)}")
    return modes(value)


def _parse_patterns(value: Json, where: str) -> tuple[CustomPattern, ...]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        prefix = where.removesuffix(": ") + "." if where else ""  # `tenants.acme.` in the section of a tenant
        section = f"[[{prefix}patterns]]"
        raise InvalidSetting(_SETTING, f"{where}patterns: are sections of their own: {section}")
    read: list[CustomPattern] = []
    for place, one in enumerate(value, 1):
        odd = next((name for name in one if name not in _PATTERN), None)
        if odd is not None:
            raise InvalidSetting(
                _SETTING, f"{where}patterns: number {place} has {odd[:32]!a}; available: {', '.join(_PATTERN)}"
            )
        try:
            read.append(msgspec.convert(one, CustomPattern))
        except msgspec.ValidationError:
            raise InvalidSetting(
                _SETTING,
                f"{where}patterns: number {place} needs name and pattern as texts, ignore_case as true or false",
            ) from None
    return tuple(read)
