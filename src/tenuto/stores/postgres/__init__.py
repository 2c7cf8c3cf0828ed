"""Sessions in Postgres."""

from tenuto.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
