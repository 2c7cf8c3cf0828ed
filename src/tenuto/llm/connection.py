"""How a provider's model is reached, and how long it is waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tenuto.errors import InvalidSetting
from tenuto.model.values import Value

TIMEOUT: Final = timedelta(minutes=2)
FIRST_WORD: Final = timedelta(minutes=1)


class ModelConnection(Value, frozen=True, kw_only=True):
    """Address and key, where the provider's own variables do not tell them; `timeout` covers a whole answer.

    `first_word` bounds the wait until the answer begins. A request that fails before is sent again `retries` times.
    """

    base_url: str | None = None
    api_key: str | None = None
    timeout: timedelta = TIMEOUT
    first_word: timedelta = FIRST_WORD
    retries: int = 2

    def __post_init__(self) -> None:
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise InvalidSetting("model_base_url", "is no address; it begins with http:// or https://")
        if self.timeout <= timedelta(0) or self.first_word <= timedelta(0):
            raise InvalidSetting("model_timeout", "must be longer than nothing")
