"""The names of models that callers may give: aliases, and an allow-list for each tenant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tenuto.errors import InvalidSetting
from tenuto.model.values import Value

_ENTRY: Final = re.compile(r"(?:(?P<tenant>[^\s/:,]+)/)?(?P<pattern>[^\s/:,]+:[^\s,]+|offline)")
_ANY: Final = "*"


class AllowedModel(Value, frozen=True, kw_only=True):
    """A model that callers may name, or with `*` at its end all that begin so; for one tenant, or for all."""

    pattern: str
    tenant: str | None = None

    def admits(self, tenant: str, name: str) -> bool:
        """Whether callers of the tenant may use the model of this name."""
        if self.tenant not in (None, tenant):
            return False
        stem = self.pattern.removesuffix(_ANY)
        return name == self.pattern if stem == self.pattern else name.startswith(stem) and name != stem


class ModelNames(Value, frozen=True, kw_only=True):
    """The names that callers may give: `aliases` stand for assistants or models, `allowed` are models."""

    aliases: Mapping[str, str] = {}
    allowed: tuple[AllowedModel, ...] = ()

    def resolve(self, name: str) -> str:
        """What an alias stands for, or the name itself."""
        return self.aliases.get(name, name)

    def admits(self, tenant: str, name: str) -> bool:
        """Whether callers of the tenant may use this model."""
        return any(one.admits(tenant, name) for one in self.allowed)

    def listed(self, tenant: str, assistants: Iterable[str]) -> list[str]:
        """The names that callers of the tenant may use, as far as they can be listed: none that `*` stands for."""
        known = [*assistants]
        aliases = [name for name, meant in self.aliases.items() if meant in known or self.admits(tenant, meant)]
        models = [one.pattern for one in self.allowed if one.pattern[-1] != _ANY and one.admits(tenant, one.pattern)]
        return list(dict.fromkeys([*known, *aliases, *models]))


def read_model_names(models: str | None, aliases: str | None) -> ModelNames:
    """The names in the settings `allowed_models` and `model_aliases`.

    Raises:
        InvalidSetting: an entry cannot be read, or an alias is set twice.
    """
    allowed = [_read_allowed(entry) for entry in _entries(models)]
    meant: dict[str, str] = {}
    for entry in _entries(aliases):
        alias, separator, target = (part.strip() for part in entry.partition("="))
        if not (alias and separator and target):
            raise InvalidSetting("model_aliases", f"{entry!r} is not written as alias=provider:model")
        if alias in meant:
            raise InvalidSetting("model_aliases", f"sets {alias!r} twice")
        meant[alias] = target
    chained = next((alias for alias, target in meant.items() if target in meant), None)
    if chained is not None:
        raise InvalidSetting("model_aliases", f"{chained!r} stands for another alias")
    return ModelNames(aliases=meant, allowed=tuple(allowed))


def _entries(setting: str | None) -> list[str]:
    return [entry.strip() for entry in (setting or "").split(",") if entry.strip()]


def _read_allowed(entry: str) -> AllowedModel:
    match = _ENTRY.fullmatch(entry)
    if match is None or _ANY in match["pattern"].removesuffix(_ANY):
        why = "is not written as provider:model, provider:* or tenant/provider:model"
        raise InvalidSetting("allowed_models", f"{entry!r} {why}")
    return AllowedModel(pattern=match["pattern"], tenant=match["tenant"])
