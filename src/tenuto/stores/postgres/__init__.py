"""Records in Postgres."""

from tenuto.stores.postgres.records import PostgresRecords

__all__ = ["PostgresRecords"]
