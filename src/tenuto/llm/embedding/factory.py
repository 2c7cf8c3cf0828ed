"""Embedders by their names: `auto`, `none`, `local`, or any `provider:model`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Final, cast

from tenuto.errors import PackageMissing
from tenuto.llm.embedding.local import PACKAGE, LocalEmbedder
from tenuto.llm.factory import ModelConnection
from tenuto.ports import Embedder

AUTO: Final = "auto"
NONE: Final = "none"
LOCAL: Final = "local"


@asynccontextmanager
async def open_embedder(name: str, access: ModelConnection) -> AsyncIterator[Embedder | None]:
    """The embedder of that name, as long as it is needed; `None` where words shall do.

    `auto` is the local one where its package is installed. Nothing is loaded or called before the first text.

    Raises:
        InvalidSetting: it cannot be opened, and what to install or to set.
    """
    if name == NONE or (name == AUTO and not _local_installed()):
        yield None
    elif name in (AUTO, LOCAL):
        if not _local_installed():
            raise PackageMissing("embedder", LOCAL, extra="meaning")
        local = LocalEmbedder()
        try:
            yield local
        finally:
            local.close()
    else:
        async with _open_provider_embedder(name, access) as embedder:
            yield embedder


def _local_installed() -> bool:
    return find_spec(PACKAGE) is not None


def _open_provider_embedder(name: str, access: ModelConnection) -> AbstractAsyncContextManager[Embedder]:
    try:
        opening = import_module("tenuto.llm.embedding.pydantic_ai").open_pydantic_ai_embedder
    except ImportError:
        raise PackageMissing("embedder", name, extra="models") from None
    return cast(AbstractAsyncContextManager[Embedder], opening(name, access))
