"""Which workers live: each counts up a row of the engine's database, and the others watch whether it does.

A worker of this machine that was killed is known at once by its process. Another one is dead when its row has not
changed for a lease by the watcher's own clock, so that clocks of machines are never compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
import sqlalchemy as sa

from tenuto.process_identity import is_holder_gone


class Workers:
    """The rows of all workers, and what this process has seen of them."""

    def __init__(
        self, *, engine: sa.Engine, schema: str | None, lease: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._schema = schema
        self._lease = lease
        self._now = now
        self._sightings: dict[str, tuple[int, float]] = {}
        self._rows = sa.Table(
            "tenuto_workers",
            sa.MetaData(schema=schema),
            sa.Column("id", sa.String, primary_key=True),
            sa.Column("beats", sa.BigInteger, nullable=False),
            sa.Column("agents", sa.String, nullable=False),
        )

    def create(self) -> None:
        """Create the table if it does not exist."""
        with self._engine.begin() as connection:
            if self._schema is not None:
                connection.execute(sa.schema.CreateSchema(self._schema, if_not_exists=True))
            connection.execute(sa.schema.CreateTable(self._rows, if_not_exists=True))

    def beat(self, worker: str, agents: Collection[str] = ()) -> None:
        """Count up the row of a worker, which tells the names of its agents."""
        rows, names = self._rows, msgspec.json.encode(sorted(agents)).decode()
        with self._engine.begin() as connection:
            row = connection.execute(
                sa.update(rows).where(rows.c.id == worker).values(beats=rows.c.beats + 1, agents=names)
            )
            if row.rowcount == 0:
                connection.execute(sa.insert(rows).values(id=worker, beats=1, agents=names))

    def remove(self, workers: Iterable[str]) -> None:
        """Remove the rows of workers that are gone, and of one that goes."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(self._rows).where(self._rows.c.id.in_(list(workers))))

    def dead(self, rows: Mapping[str, int]) -> set[str]:
        """The workers among these rows that are dead."""
        now, silent = self._now(), set[str]()
        for worker, beats in rows.items():
            before, since = self._sightings.get(worker, (-1, now))
            if before != beats:
                self._sightings[worker] = (beats, now)
            elif now - since >= self._lease:
                silent.add(worker)
        self._sightings = {worker: sighting for worker, sighting in self._sightings.items() if worker in rows}
        return silent | {worker for worker in rows if is_holder_gone(worker)}

    def read(self) -> dict[str, int]:
        """All rows."""
        with self._engine.connect() as connection:
            return {row.id: row.beats for row in connection.execute(sa.select(self._rows))}

    def agents(self) -> frozenset[str]:
        """The names of the agents of all workers that are not known to be gone."""
        with self._engine.connect() as connection:
            rows = [row for row in connection.execute(sa.select(self._rows)) if not is_holder_gone(row.id)]
        return frozenset(name for row in rows for name in msgspec.json.decode(row.agents, type=list[str]))

    def forget(self) -> None:
        """Watch anew: while the database did not answer, no worker could count."""
        self._sightings.clear()
