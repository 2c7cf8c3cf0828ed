"""Records in one SQLite file: the default, with nothing to install and nothing to start."""

from tenuto.stores.sqlite._file import can_be_written, read_pragma
from tenuto.stores.sqlite._threads import wait_for_lock
from tenuto.stores.sqlite.records import SqliteRecords

__all__ = ["SqliteRecords", "can_be_written", "read_pragma", "wait_for_lock"]
