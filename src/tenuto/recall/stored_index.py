"""The index of an owner as it is stored: a process that starts needs neither read each memory nor find its terms.

Blocks of memories with their terms and vectors, and a head that names them and the state of the log that they reflect.
They repeat what the rows of memories say: what changed since is read from the rows, and a block that is missing or
damaged costs a look at all rows and nothing else. What is removed or edited leaves its blocks before its row changes.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from tenuto.compare_and_set import write_if_unchanged
from tenuto.errors import DecryptionFailed, MasterKeyMissing, StateCorrupt
from tenuto.model import Scope, StateChange, StateEntry
from tenuto.model.memory import MEMORY_INDEX
from tenuto.ports import StateStore
from tenuto.recall.dates import text_terms

if TYPE_CHECKING:
    from tenuto.recall.blocks import IndexBlock

BLOCK: Final = 256
"""Memories of a block: it is written as a whole when one of them is removed."""
_FORMAT: Final = 2
# A release that finds other terms in a text finds others in this one: an index with the terms of another is made again.
_SAMPLE: Final = (
    "Ann's cakes were priced at 8.50 on 8 May 2023; running, tried, buses. 5月8日我在昆明喝了普洱茶, Ｗｉｄｅ Straße"
)
_HEAD: Final = "head"
# Blocks that are read at once: a megabyte.
_TOGETHER: Final = 4
_MOST_KEYS: Final = 10_000


class SavedBlocks:
    """Which memories of an owner are stored in which block, as far as this process knows.

    `version` is that of the head. A memory that is `unsaved` has changed, or is in no block; of one that is in several
    blocks the last says how it is. `gone` are removed ones that a block may still hold.
    """

    def __init__(self) -> None:
        self.blocks: dict[str, set[str]] = {}
        self.version = 0
        self.unsaved: set[str] = set()
        self.gone: set[str] = set()
        self.save_at = BLOCK

    def remove(self, memory_id: str) -> None:
        """Note that a memory is not there any more, or that its text is another one."""
        self.unsaved.discard(memory_id)
        if self.blocks:
            self.gone.add(memory_id)

    def reset(self, memory_ids: Iterable[str]) -> None:
        """No block is known."""
        self.blocks.clear()
        self.gone.clear()
        self.unsaved = set(memory_ids)

    def retire(self) -> list[str]:
        """The blocks of which too little is current; what is current there has to be saved again."""
        newest = {memory_id: name for name, held in self.blocks.items() for memory_id in held}
        retired: list[str] = []
        for name, held in self.blocks.items():
            current = {one for one in held if newest[one] == name and one not in self.unsaved and one not in self.gone}
            if not self.gone.isdisjoint(held) or len(current) < BLOCK // 2:
                self.unsaved |= current
                retired.append(name)
        return retired


class LoadedIndex(NamedTuple):
    """The stored blocks, in each memory once, the log that they reflect, and whether all of them could be read."""

    blocks: list[IndexBlock]
    saved: SavedBlocks
    epoch: str
    log_version: int
    whole: bool


class StoredIndex:
    """Reads and writes the stored index of owners; `embedder` is the name of the vectors' embedder."""

    def __init__(self, state: StateStore, embedder: str, new_id: Callable[[], str]) -> None:
        self._state = state
        self._new_id = new_id
        sample = " ".join(text_terms(_SAMPLE)).encode()
        self._made_by = f"{_FORMAT} {blake2b(sample, digest_size=8).hexdigest()} {embedder}"

    async def load(self, scope: Scope) -> LoadedIndex | None:
        """What is stored; `None` if there is nothing that can be used."""
        head = await self._read_head(scope)
        if head is None or not (names := self._names(head)):
            return None
        await self._remove(scope, set(await self._keys(scope)) - {_HEAD, *names})
        reader = _BlockReader()
        # Backwards: the last block that has a memory says how it is.
        for end in range(len(names), 0, -_TOGETHER):
            entries = await self._read(scope, names[max(0, end - _TOGETHER) : end])
            await to_thread(reader.read, entries[::-1])
        saved, (epoch, version) = reader.finish(), head.value["log"]
        saved.version = head.version
        return LoadedIndex(reader.blocks[::-1], saved, str(epoch), version, len(saved.blocks) == len(names))

    async def begin(self, scope: Scope, saved: SavedBlocks, log_version: int, memory_ids: Iterable[str]) -> bool:
        """Whether to save now; not if another process keeps the stored index."""
        head = await self._read_head(scope)
        version = 0 if head is None else head.version
        if version == saved.version:
            return True
        if head is not None and self._names(head) and log_version - head.value["log"][1] < 2 * BLOCK:
            saved.gone.clear()
            return False
        # It is of another process or release, or was dropped: all of it is made again.
        await self._remove(scope, set(await self._keys(scope)) - {_HEAD})
        saved.reset(memory_ids)
        saved.version = version
        return True

    async def write(self, scope: Scope, block: IndexBlock, name: str = "") -> str:
        """Store a block; returns its name."""
        from tenuto.recall.blocks import encode_block

        name = name or self._new_id()
        await self._state.write_state(scope, MEMORY_INDEX, name, await to_thread(encode_block, block))
        return name

    async def finish(self, scope: Scope, saved: SavedBlocks, names: Sequence[str], log: tuple[str, int]) -> bool:
        """Have these blocks be the index as of this log; `False` if another process has saved meanwhile."""
        value = {"made_by": self._made_by, "log": list(log), "blocks": list(names)}
        entry = await write_if_unchanged(self._state.write_state(scope, MEMORY_INDEX, _HEAD, value, saved.version))
        if entry is None:
            await self._remove(scope, saved.blocks.keys())
            return False
        saved.version = entry.version
        await self._remove(scope, saved.blocks.keys() - names)
        return True

    async def drop_unknown(self, scope: Scope, saved: SavedBlocks, memory_ids: Iterable[str]) -> None:
        """Remove blocks of which this process does not know what they hold: all, if another process has saved since."""
        keys, head = await self._keys(scope), await self._read_head(scope)
        if (0 if head is None else head.version) != saved.version:
            await self._remove(scope, keys)
            saved.reset(memory_ids)
            saved.version = 0
        else:
            await self._remove(scope, set(keys) - {_HEAD, *saved.blocks})

    async def drop(self, scope: Scope) -> None:
        """Remove what is stored."""
        await self._remove(scope, await self._keys(scope))

    async def _keys(self, scope: Scope) -> tuple[str, ...]:
        return await self._state.state_keys(scope, MEMORY_INDEX, limit=_MOST_KEYS)

    async def _remove(self, scope: Scope, names: Collection[str]) -> None:
        if names:
            removals = [StateChange(key=name, removes=True) for name in names]
            await self._state.change_states(scope, MEMORY_INDEX, removals)

    async def _read_head(self, scope: Scope) -> StateEntry | None:
        return (await self._read(scope, (_HEAD,)))[0]

    async def _read(self, scope: Scope, names: Sequence[str]) -> Sequence[StateEntry | None]:
        """Values of the namespace; one that does not decode or decrypt is removed: it is made again."""
        try:
            return await self._state.read_states(scope, MEMORY_INDEX, names)
        except MasterKeyMissing:
            raise
        except (StateCorrupt, DecryptionFailed):
            if len(names) > 1:
                return [one for name in names for one in await self._read(scope, (name,))]
            await self._remove(scope, names)
            return (None,)

    def _names(self, head: StateEntry) -> list[str]:
        """The blocks that a head names; none if it is of another release or embedder, or damaged."""
        value = head.value
        if not isinstance(value, Mapping) or value.get("made_by") != self._made_by:
            return []
        names, log = value.get("blocks"), value.get("log")
        fits = isinstance(log, Sequence) and len(log) == 2 and isinstance(log[1], int)
        return [str(name) for name in names] if fits and isinstance(names, Sequence) else []


class _BlockReader:
    """Decodes blocks, the last one first; those that are damaged are left out, and so is what a later one has."""

    def __init__(self) -> None:
        self.blocks: list[IndexBlock] = []
        self._held: dict[str, set[str]] = {}
        self._known: set[str] = set()
        self._dimension = 0

    def read(self, entries: Iterable[StateEntry | None]) -> None:
        """Decode stored blocks."""
        from tenuto.recall.blocks import decode_block

        for entry in entries:
            block = decode_block(entry.value) if entry is not None and isinstance(entry.value, str) else None
            if entry is None or block is None or (self._dimension and block.dimension not in (0, self._dimension)):
                continue
            self._dimension = self._dimension or block.dimension
            held = {memory.id for memory in block.memories}
            self._held[entry.key] = held
            self.blocks.append(block if self._known.isdisjoint(held) else block.without(self._known))
            self._known |= held

    def finish(self) -> SavedBlocks:
        """Which memories were in which block, in the order of the blocks."""
        saved = SavedBlocks()
        saved.blocks.update(reversed(self._held.items()))
        return saved
