"""Sessions in one SQLite file: the default, with nothing to install and nothing to start."""

from tenuto.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
