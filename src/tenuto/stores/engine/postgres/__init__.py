"""Records in Postgres."""

from tenuto.stores.engine.postgres.records import PostgresRecords

__all__ = ["PostgresRecords"]
