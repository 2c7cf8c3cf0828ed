"""Models of the caller, and which provider the address and the key of the settings are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Final, TypeAlias

from tenuto.errors import InvalidSetting
from tenuto.llm import OFFLINE, GivenModel, provider_of
from tenuto.settings import Settings

ModelChoice: TypeAlias = "str | GivenModel | Sequence[str | GivenModel]"
_NOTHING_GIVEN: Final[Mapping[str, GivenModel]] = MappingProxyType({})


def home_provider(settings: Settings, given: Mapping[str, GivenModel] = _NOTHING_GIVEN) -> str:
    """The first provider that the settings name: of the main model or, where that needs none, of the small one."""
    main = provider_of(settings.model, given)
    if main != OFFLINE or settings.summarizer_model is None:
        return main
    return provider_of(settings.summarizer_model, given)


def register_model(setting: str, choice: ModelChoice, models_by_name: dict[str, GivenModel]) -> str:
    """The name of a model, or of a chain, for the settings; given models are added to `models_by_name`.

    Raises:
        InvalidSetting: the choice is no model.
    """
    if isinstance(choice, str):
        return choice
    if isinstance(choice, Sequence):
        return ", ".join(register_model(setting, each, models_by_name) for each in choice)
    own = getattr(choice, "name", None) or getattr(choice, "model_id", None)
    if not isinstance(own, str):
        kind = type(choice).__name__
        raise InvalidSetting(setting, f"must be a name, a ChatModel, a Pydantic AI model or a list of them, not {kind}")
    # Commas separate the names of a chain, and a provider may have a model of the same name.
    given = (f"{own.replace(',', '')} (given {number})" for number in count(1))
    name = next(name for name in given if models_by_name.get(name, choice) is choice)
    models_by_name[name] = choice
    return name
