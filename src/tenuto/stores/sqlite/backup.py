"""Backup of a SQLite file while it is in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final

from tenuto.errors import Invalid, InvalidSetting, StoreDamaged
from tenuto.stores.sqlite._errors import store_error
from tenuto.stores.sqlite._file import open_to_read

_OWNER_ONLY: Final = 0o600
_TIMEOUT: Final = timedelta(seconds=30)


def back_up(file: Path, copy: Path, *, is_store: bool = True) -> int:
    """Write the file's state of one moment to `copy`, check it, and return its size in bytes.

    Readers and writers go on meanwhile: it is one read transaction, which includes what is in the -wal file. Deleted
    data is in no page of the copy. The copy has its name once it is whole and on disk, and its owner alone may read it.

    Raises:
        Invalid, InvalidSetting: as `check_backup` does.
        StoreDamaged: the copy does not pass SQLite's integrity check, so the file itself is damaged.
    """
    check_backup(file, copy, is_store=is_store)
    part = copy.with_name(copy.name + ".part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY))
    try:
        _vacuum_into(file, part)
        _sync(part)
        part.rename(copy)
    finally:
        part.unlink(missing_ok=True)
    return copy.stat().st_size


def check_backup(file: Path, copy: Path, *, is_store: bool = True) -> None:
    """Refuse what cannot be backed up, before anything is written.

    Raises:
        Invalid: there is a file of that name already.
        InvalidSetting: there is no such file; or it `is_store`, and it is another program's or a newer release's.
        Unavailable: it cannot be read now.
    """
    if not file.is_file():
        raise InvalidSetting("store", f"there is no file {file.absolute()}")
    if copy.exists():
        raise Invalid(f"{copy} already exists")
    open_to_read(file.absolute(), _TIMEOUT, is_store=is_store).close()


def _vacuum_into(file: Path, part: Path) -> None:
    try:
        with closing(open_to_read(file.absolute(), _TIMEOUT, is_store=False)) as db:
            db.execute("VACUUM INTO ?", (str(part),))
        with closing(sqlite3.connect(part)) as db:
            found = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except sqlite3.Error as exc:
        raise store_error(exc) from exc
    if found != "ok":
        raise StoreDamaged


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
