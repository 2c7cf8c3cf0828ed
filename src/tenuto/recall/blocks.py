"""Blocks of memories, ready to be searched: with their terms counted and their vectors as the index holds them.

An index is filled from blocks many times faster than memory by memory. They are made of memories once, and are stored.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tenuto.model.memory import Memory
from tenuto.recall.dates import date_terms, text_terms
from tenuto.recall.lexical import terms

Vector: TypeAlias = Sequence[float] | NDArray[np.float32] | NDArray[np.int8]

MAX_COUNT: Final = 63
"""Occurrences of a term in one memory; more count as so many."""


class IndexBlock(msgspec.Struct, frozen=True, array_like=True):
    """Memories as an index takes them in.

    `terms` are places in `vocabulary` (4 bytes each), whose terms stand between spaces: for each memory its different
    terms, of which there are `sizes`, those of its text first, of which there are `said`; `counts` (a byte each) is how
    often each occurs, up to a bound, and `lengths` how many there are in all. `vectors` has a byte for each number of
    the `embedded` memories' vectors.
    """

    memories: list[Memory]
    vocabulary: str
    sizes: bytes
    said: bytes
    lengths: bytes
    terms: bytes
    counts: bytes
    dimension: int
    embedded: bytes
    vectors: bytes

    def check(self) -> bool:
        """Whether the parts belong together, which damage may have changed."""
        many, sizes = len(self.memories), np.frombuffer(self.sizes, np.uint32)
        numbers, total = np.frombuffer(self.terms, np.uint32), int(sizes.sum())
        counted = len(sizes) == len(self.lengths) // 4 == len(self.said) // 4 == len(self.embedded) == many
        embedded = int(np.count_nonzero(np.frombuffer(self.embedded, np.bool_)))
        fitting = len(numbers) == len(self.counts) == total and len(self.vectors) == embedded * self.dimension
        return counted and fitting and (not total or int(numbers.max()) <= self.vocabulary.count(" "))

    def embedded_ids(self) -> list[str]:
        """The ids of the memories that have a vector."""
        marks = np.frombuffer(self.embedded, np.bool_).tolist()
        return [memory.id for memory, embedded in zip(self.memories, marks, strict=True) if embedded]

    def without(self, memory_ids: Container[str]) -> IndexBlock:
        """The block without some of its memories."""
        chosen = np.array([memory.id not in memory_ids for memory in self.memories], np.bool_)
        if chosen.all():
            return self
        sizes, embedded = np.frombuffer(self.sizes, np.uint32), np.frombuffer(self.embedded, np.bool_)
        of_terms = np.repeat(chosen, sizes)
        vectors = np.frombuffer(self.vectors, np.int8).reshape(int(np.count_nonzero(embedded)), self.dimension)
        return IndexBlock(
            memories=[memory for memory, stays in zip(self.memories, chosen.tolist(), strict=True) if stays],
            vocabulary=self.vocabulary,
            sizes=sizes[chosen].tobytes(),
            said=np.frombuffer(self.said, np.int32)[chosen].tobytes(),
            lengths=np.frombuffer(self.lengths, np.float32)[chosen].tobytes(),
            terms=np.frombuffer(self.terms, np.uint32)[of_terms].tobytes(),
            counts=np.frombuffer(self.counts, np.uint8)[of_terms].tobytes(),
            dimension=self.dimension,
            embedded=embedded[chosen].tobytes(),
            vectors=vectors[chosen[embedded]].tobytes(),
        )


class MemoryTerms(msgspec.Struct, frozen=True):
    """The terms of a memory: how often each occurs, those of its text first, of which `said` are different."""

    counts: Counter[str]
    said: int


def memory_terms(memory: Memory) -> MemoryTerms:
    """The terms under which a memory is found."""
    own_terms = text_terms(memory.text)
    return MemoryTerms(Counter(own_terms + terms(memory.speaker) + date_terms(memory.said_at)), len(set(own_terms)))


class BlockWriter:
    """Puts a block together, memory by memory."""

    def __init__(self) -> None:
        self._memories: list[Memory] = []
        self._vocabulary: dict[str, int] = {}
        self._numbers: list[int] = []
        self._rows: list[tuple[int, int, float]] = []
        self._counts = bytearray()
        self._embedded: list[bool] = []
        self._vectors: list[NDArray[np.int8]] = []

    def add(
        self, memory: Memory, its_terms: Iterable[str], counts: bytes, said: int, length: float, vector: Vector | None
    ) -> None:
        """Add a memory with its different terms and how often each occurs."""
        numbers = self._vocabulary
        self._numbers += [numbers.setdefault(term, len(numbers)) for term in its_terms]
        self._counts += counts
        self._rows.append((len(counts), said, length))
        self._memories.append(memory)
        steps = None if vector is None else quantize(vector)
        self._embedded.append(steps is not None)
        if steps is not None:
            self._vectors.append(steps)

    def finish(self) -> IndexBlock:
        """The block."""
        sizes, said, lengths = np.array(self._rows, np.float64).reshape(-1, 3).T
        return IndexBlock(
            memories=self._memories,
            vocabulary=" ".join(self._vocabulary),
            sizes=sizes.astype(np.uint32).tobytes(),
            said=said.astype(np.int32).tobytes(),
            lengths=lengths.astype(np.float32).tobytes(),
            terms=np.array(self._numbers, np.uint32).tobytes(),
            counts=bytes(self._counts),
            dimension=len(self._vectors[0]) if self._vectors else 0,
            embedded=np.array(self._embedded, np.bool_).tobytes(),
            vectors=b"".join([steps.tobytes() for steps in self._vectors]),
        )


def make_block(memories: Iterable[Memory], vectors: Mapping[str, Vector]) -> IndexBlock:
    """A block of memories, whose vectors have one length."""
    writer = BlockWriter()
    for memory in memories:
        found = memory_terms(memory)
        counts = bytes([min(count, MAX_COUNT) for count in found.counts.values()])
        writer.add(memory, found.counts, counts, found.said, found.counts.total(), vectors.get(memory.id))
    return writer.finish()


def quantize(vector: Vector) -> NDArray[np.int8] | None:
    """A vector as a byte for each number; its direction is what counts. `None` if it has none."""
    numbers = np.asarray(vector, np.float32)
    length = float(np.linalg.norm(numbers))
    if numbers.ndim != 1 or not 0 < length < np.inf:
        return None
    unit = numbers / np.float32(length)
    steps: NDArray[np.int8] = np.rint(unit / (float(np.abs(unit).max()) / 127)).astype(np.int8)
    return steps


def encode_block(block: IndexBlock) -> str:
    """A block as text, for a store of JSON."""
    return b64encode(_ENCODER.encode(block)).decode()


def decode_block(text: str) -> IndexBlock | None:
    """A block of such a text; `None` if it is damaged."""
    try:
        block = _DECODER.decode(b64decode(text, validate=True))
        return block if block.check() else None
    except (Error, ValueError, msgspec.MsgspecError):
        return None


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(IndexBlock)
