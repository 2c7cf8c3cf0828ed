"""Which provider the address and the key of the settings are for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenuto.llm import OFFLINE, GivenModel, provider_of
from tenuto.settings import Settings

_NOTHING_GIVEN: Final[Mapping[str, GivenModel]] = MappingProxyType({})


def home_provider(settings: Settings, given: Mapping[str, GivenModel] = _NOTHING_GIVEN) -> str:
    """The first provider that the settings name: of the main model or, where that needs none, of the small one."""
    main = provider_of(settings.model, given)
    if main != OFFLINE or settings.summarizer_model is None:
        return main
    return provider_of(settings.summarizer_model, given)
