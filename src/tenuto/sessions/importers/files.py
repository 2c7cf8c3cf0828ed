"""Files of other stores: JSON read item by item, and SQLite databases that are opened to be read."""

from __future__ import annotations

import codecs
import json
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Final

from tenuto.errors import Invalid, InvalidJson
from tenuto.model.values import Json

_CHUNK: Final = 1 << 20
# One item of a file that is read item by item, or a whole file that is one object.
_LARGEST_ITEM: Final = 256 << 20
_SPACES: Final = re.compile(r"[ \t\r\n]*")


def iter_items(file: IO[bytes]) -> Iterator[Json]:
    """The items of a JSON array one by one; a file that is no array is its only item.

    Raises:
        InvalidJson: it is not JSON, or an item is too large.
    """
    source = _JsonSource(file)
    if source.peek() != "[":
        yield source.read_value()
        return
    source.skip()
    while source.peek() != "]":
        yield source.read_value()
        if source.peek() == ",":
            source.skip()


class _JsonSource:
    """Text of which only the item that is read is in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._bytes = codecs.getincrementaldecoder("utf-8-sig")()
        self._parse = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._ended = False

    def peek(self) -> str:
        """The next character that is no space; nothing at the end."""
        while True:
            found = _SPACES.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_more()

    def skip(self) -> None:
        """Go past the character that was peeked."""
        self._at += 1

    def read_value(self) -> Json:
        """The value that begins here."""
        self.peek()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except (ValueError, RecursionError):
                if self._ended or len(self._text) - self._at > _LARGEST_ITEM:
                    raise InvalidJson("the file is not valid JSON, or is cut off") from None
            else:
                # A number at the end of what was read may go on.
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            self._read_more()

    def _read_more(self) -> None:
        rest = self._text[self._at :]
        with _refusing_damage():
            raw = self._file.read(max(_CHUNK, len(rest)))
        self._ended = not raw
        try:
            self._text, self._at = rest + self._bytes.decode(raw, final=self._ended), 0
        except UnicodeDecodeError:
            raise InvalidJson("the file is not UTF-8") from None


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """A file to read.

    Raises:
        Invalid: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error


def iter_json_files(path: Path, wanted: re.Pattern[str]) -> Iterator[IO[bytes]]:
    """The file itself, or those of this name in a ZIP archive.

    Raises:
        Invalid: it cannot be read, or the archive is damaged, encrypted or without such a file.
    """
    with open_bytes(path) as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            yield file
            return
        with _open_archive(file) as archive:
            names = sorted(name for name in archive.namelist() if wanted.search(name))
            if not names:
                raise Invalid("the archive does not contain the expected file")
            for name in names:
                with _open_member(archive, name) as member:
                    yield member


def _open_archive(file: IO[bytes]) -> zipfile.ZipFile:
    with _refusing_damage():
        return zipfile.ZipFile(file)


def _open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    with _refusing_damage():
        return archive.open(name)


@contextmanager
def _refusing_damage() -> Iterator[None]:
    """RuntimeError is for archives with a password, or packed in a way that Python does not know."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise Invalid("the archive is damaged or cannot be unpacked") from error


@contextmanager
def open_sqlite(path: Path, table: str) -> Iterator[sqlite3.Connection]:
    """A SQLite database that has this table, opened to be read alone.

    Raises:
        Invalid: it is no such database.
    """
    if not path.is_file():
        raise Invalid(f"there is no file {path}")
    try:
        # A reader is called from several threads, one after the other.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)) as db:
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is None:
                raise Invalid(f"the database has no table {table}")
            yield db
    except sqlite3.Error as error:
        raise Invalid(f"cannot read the database: {error.sqlite_errorname}") from error
