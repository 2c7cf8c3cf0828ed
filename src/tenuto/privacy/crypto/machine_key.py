"""A secret of this machine, for the digests in traces where no master key is set.

It lies beside the journals and in no store: a reader of the database, or of a copy of it, cannot confirm a guess.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)
_BYTES: Final = 32


class MachineKey:
    """The secret in a folder, made when it is first needed; without a folder, or if it cannot be written, one of this
    process alone."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @cached_property
    def name(self) -> str:
        """What traces call it. It tells nothing of the secret."""
        return blake2b(self._secret, digest_size=6, person=b"name").hexdigest()

    def derive(self, trace_id: str) -> bytes:
        """The key of the digests in a trace."""
        return blake2b(trace_id.encode(), key=self._secret, digest_size=_BYTES, person=b"trace").digest()

    @cached_property
    def _secret(self) -> bytes:
        made = secrets.token_bytes(_BYTES)
        if self._folder is None:
            return made
        path = self._folder / "trace.key"
        try:
            # First: the folder may be read-only.
            with suppress(FileNotFoundError):
                return _read(path)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            # Of processes that start at once, the first one's is kept, and it is there as a whole.
            try:
                with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(made)
                    file.flush()
                    os.fsync(file.fileno())
                _publish(part, path)
            finally:
                part.unlink(missing_ok=True)
            return _read(path)
        except OSError:
            _log.warning("the key of the digests in traces cannot be kept: after a restart, parts are unchecked")
            return made


def _publish(part: Path, path: Path) -> None:
    """Give a whole file its name, unless another has it.

    Raises:
        OSError: the file system has neither hard links nor locks.
    """
    try:
        os.link(part, path)
    except FileExistsError:
        return
    except OSError:
        # FAT and some shared folders have no hard links, and a plain rename would replace the file of a process that
        # reads it already.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if not path.exists():
                part.rename(path)
        finally:
            os.close(folder)


def _read(path: Path) -> bytes:
    """The secret in a file.

    Raises:
        OSError: it cannot be read, or is cut, as a crash or a full disk leaves a file.
    """
    secret = path.read_bytes()
    if len(secret) != _BYTES:
        # Digests under no key, or a short one, would confirm a guess.
        raise OSError("no key of a machine")
    return secret
