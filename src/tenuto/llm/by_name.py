"""Models by their names: `offline`, any `provider:model`, or several in a row."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib import import_module
from typing import Final, cast

from msgspec.structs import replace

from tenuto.errors import InvalidSetting
from tenuto.llm.access import FIRST_WORD, TIMEOUT, Access
from tenuto.llm.chain import Chain
from tenuto.llm.offline import OfflineModel
from tenuto.ports import ChatModel

OFFLINE: Final = "offline"


@asynccontextmanager
async def open_model(
    names: str = OFFLINE,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: timedelta = TIMEOUT,
    first_word: timedelta = FIRST_WORD,
) -> AsyncIterator[ChatModel]:
    """A model, or with commas a chain of them, as long as its connections are needed.

    Address and key are for the first provider that is named; others find theirs in the variables of their own.

    Raises:
        InvalidSetting: a name that cannot be opened, and what to install or to set. Nobody is asked for an answer,
            so a wrong key shows with the first question.
    """
    wanted = model_names(names)
    access = Access(base_url=base_url, api_key=api_key, timeout=timeout, first_word=min(first_word, timeout))
    async with AsyncExitStack() as stack:
        models: list[ChatModel] = []
        for place, name in enumerate(wanted):
            if name == OFFLINE:
                models.append(OfflineModel(stand_in=place > 0))
                continue
            own = access if _provider(name) == _provider(wanted[0]) else replace(access, base_url=None, api_key=None)
            # With another model behind it, trying the same one again only keeps the user waiting.
            last = place == len(wanted) - 1
            models.append(await stack.enter_async_context(_provided(name, own if last else replace(own, retries=0))))
        yield models[0] if len(models) == 1 else Chain(models)


def model_names(names: str) -> list[str]:
    """The names of a chain, in order.

    Raises:
        InvalidSetting: there is none, one twice, or one behind the offline model, which always answers.
    """
    wanted = [name.strip() for name in names.split(",")]
    if not all(wanted):
        raise InvalidSetting("model", "names no model; offline needs nothing, openai:… and the like need a key")
    if len(set(wanted)) < len(wanted):
        raise InvalidSetting("model", "names a model twice")
    if OFFLINE in wanted[:-1]:
        raise InvalidSetting("model", "names a model behind offline, which always answers")
    return wanted


def _provider(name: str) -> str:
    return name.split(":", 1)[0] if ":" in name else ""


def _provided(name: str, access: Access) -> AbstractAsyncContextManager[ChatModel]:
    try:
        opening = import_module("tenuto.llm.provided").open_provided
    except ImportError as missing:
        raise InvalidSetting(
            "model", f"{name} needs a package that is not installed; pip install 'tenuto[models]' brings it"
        ) from missing
    return cast(AbstractAsyncContextManager[ChatModel], opening(name, access))
