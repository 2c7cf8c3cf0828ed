"""Stretches of sessions that became stale and are not captured yet, as state of their owner."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from tenuto.model import Scope
from tenuto.model.memory import STALE_STRETCHES
from tenuto.model.prompt import Language
from tenuto.model.scope import owner_scope
from tenuto.model.values import Value
from tenuto.ports import StateStore

_MOST: Final = 100


class StaleStretch(Value, frozen=True, kw_only=True):
    """The messages of a session from `begins` to before `ends`, which were context until it became stale.

    With a `persona` they are its own and the shared ones. `private_types` are kept out of its memory besides those of
    the session, `language` is the one of the turn that found it stale.
    """

    session_id: str
    incarnation: str
    begins: int
    ends: int
    persona: str | None = None
    private_types: tuple[str, ...] = ()
    language: Language = Language.ENGLISH

    @property
    def key(self) -> str:
        """The same for each process that finds it stale."""
        facts = f"{self.incarnation}\0{self.ends}\0{self.persona or ''}"
        return blake2b(facts.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class StaleStretches:
    """Keeps them until they are settled; each is noted once."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    async def note(self, scope: Scope, stretch: StaleStretch) -> None:
        """Keep a stretch as due."""
        await self._state.write_state(owner_scope(scope), STALE_STRETCHES, stretch.key, msgspec.to_builtins(stretch))

    async def due(self, scope: Scope) -> list[StaleStretch]:
        """Those of an owner, at most a hundred."""
        owner = owner_scope(scope)
        stretches: list[StaleStretch] = []
        for entry in await self._state.list_state(owner, STALE_STRETCHES, "", _MOST):
            try:
                stretches.append(msgspec.convert(entry.value, StaleStretch))
            except msgspec.ValidationError:
                await self._state.delete_state(owner, STALE_STRETCHES, entry.key)
        return stretches

    async def settle(self, scope: Scope, stretch: StaleStretch) -> None:
        """Drop a stretch that is captured, or gone."""
        await self._state.delete_state(owner_scope(scope), STALE_STRETCHES, stretch.key)
