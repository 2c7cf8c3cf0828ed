"""Models that callers choose by name, each opened when it is first asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tenuto.errors import ExtraMissing, InvalidSetting, ModelFailed, ModelUnknown, PackageMissing
from tenuto.model.model_names import ModelNames
from tenuto.ports import ChatModel

_log = logging.getLogger(__name__)
# A caller who may use any model of a provider could have one opened for each name there is.
_MOST_OPEN: Final = 100


class ModelChoice:
    """Opens the models that callers name, each at its first use, as long as the installation is open.

    `opened` are those that are open already; `open_model` opens one more.
    """

    def __init__(
        self, names: ModelNames, opened: dict[str | None, ChatModel], open_model: Callable[[str], Awaitable[ChatModel]]
    ) -> None:
        self.names = names
        self._opened = opened
        self._open_model = open_model
        self._lock = asyncio.Lock()

    async def admit(self, tenant: str, name: str) -> str:
        """The name of an open model that callers of the tenant may use.

        Raises:
            ModelUnknown: there is no such model for them.
            ExtraMissing: its package is not installed.
            ModelFailed: it cannot be opened; the log says why.
        """
        own = self.names.resolve(name)
        if not self.names.admits(tenant, own):
            raise ModelUnknown
        if own not in self._opened:
            async with self._lock:
                if own not in self._opened:
                    self._opened[own] = await self._open(own)
        return own

    async def _open(self, name: str) -> ChatModel:
        if len(self._opened) >= _MOST_OPEN:
            raise ModelFailed(name, f"is one more than the {_MOST_OPEN} models that can be open")
        try:
            return await self._open_model(name)
        except PackageMissing as error:
            raise ExtraMissing(f"model {name}", install=error.install) from None
        except InvalidSetting as error:
            _log.error("a model that a request names cannot be opened: %s", error)
            raise ModelFailed(name, "cannot be opened; its operator finds the cause in the log") from None
