"""The dictionaries behind the ports of a store in memory."""

from __future__ import annotations

from collections.abc import Iterator

from tenuto.errors import SessionExpired, SessionForeign, SessionNotFound
from tenuto.model import Scope, StateEntry
from tenuto.model.scope import session_key
from tenuto.ports import Clock
from tenuto.stores.codec import to_micros
from tenuto.stores.memory.record import SessionRecord, owner_of


class MemoryTables:
    """Sessions by `session_key`, state by `state_key`, and each owner's namespaces by `owner_key`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.records: dict[bytes, SessionRecord] = {}
        self.state: dict[bytes, dict[str, StateEntry]] = {}
        # Each owner's drawers, with the scope and namespace they were opened by.
        self.drawers: dict[bytes, dict[bytes, tuple[Scope, str]]] = {}

    def reach(self, scope: Scope, session_id: str) -> SessionRecord:
        """A session that the scope reaches, as every port finds it."""
        record = self.records.get(session_key(scope, session_id))
        if record is None:
            raise SessionNotFound(session_id)
        if record.session.expired(self.clock()):
            raise SessionExpired(session_id)
        if not scope.reaches(record.session.scope):
            raise SessionForeign(session_id, owner_of(record.session))
        return record

    def visible(self, scope: Scope) -> Iterator[tuple[int, bytes]]:
        """When the sessions that the scope reaches last changed, and their keys."""
        now = self.clock()
        for key, record in self.records.items():
            if scope.reaches(record.session.scope) and not record.session.expired(now):
                yield to_micros(record.session.updated_at), key
