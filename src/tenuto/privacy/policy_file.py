"""Privacy policies from a TOML file: one for everybody, and what tenants have otherwise.

A tenant's section replaces modes and adds to the lists of what is looked for and what is allowed.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec
from msgspec.structs import replace

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import PrivacyPolicy
from tenuto.model.scope import outside_tenant
from tenuto.model.values import JsonObject

_SETTING: Final = "privacy_file"
_LISTS: Final = frozenset({"also", "never", "allow", "patterns"})


def read_policies(path: Path, base: PrivacyPolicy) -> tuple[PrivacyPolicy, dict[str, PrivacyPolicy]]:
    """The general policy and those of tenants; what the file does not say is as in `base`.

    Raises:
        InvalidSetting: the file is not there, not TOML, or says something that does not fit.
    """
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InvalidSetting(_SETTING, f"cannot be read: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidSetting(_SETTING, f"is not TOML: {exc}") from None
    tenants = said.pop("tenants", {})
    if not isinstance(tenants, dict) or not all(isinstance(each, dict) for each in tenants.values()):
        raise InvalidSetting(_SETTING, "tenants are sections: [tenants.acme]")
    general = _changed(base, said, "")
    return general, {outside_tenant(name): _changed(general, own, f"tenants.{name}: ") for name, own in tenants.items()}


def _changed(base: PrivacyPolicy, said: JsonObject, where: str) -> PrivacyPolicy:
    known = {name: getattr(base, name) for name in PrivacyPolicy.__struct_fields__}
    unknown = sorted(set(said) - set(known))
    if unknown:
        raise InvalidSetting(_SETTING, f"{where}there is no {unknown[0]!r}; there are {', '.join(known)}")
    kinds = get_type_hints(PrivacyPolicy)
    values: dict[str, Any] = {}
    for name, value in said.items():
        try:
            read = msgspec.convert(value, kinds[name])
        except msgspec.ValidationError as exc:
            raise InvalidSetting(_SETTING, f"{where}{name}: {exc}") from None
        values[name] = (*known[name], *read) if name in _LISTS else read
    try:
        return replace(base, **values)
    except InvalidSetting as unfit:
        raise InvalidSetting(_SETTING, f"{where}{unfit}") from None
