"""What is said of a Python file of the operator's own that cannot be loaded."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from tenuto.errors import InvalidSetting, PackageMissing

_MESSAGE_CHARACTERS: Final = 300


def loading_error(setting: str, path: Path, failed: BaseException, *, when: str = "", what: str = "") -> InvalidSetting:
    """The error of a setting whose file raised: the exception, its line in that file, and its message.

    `what` in the file raised, if not the file itself, and `when`. A module that is not there is to be installed: under
    which name is for the operator to know, since a package may be called otherwise than its module.
    """
    if isinstance(failed, ModuleNotFoundError):
        install = f"install the package that has the module {failed.name}, or correct the import"
        return PackageMissing(setting, f"{path.name} ({_message(failed)}{_line(failed, path)})", install=install)
    kind = f"{type(failed).__name__}{_line(failed, path)}"
    raised = " ".join(part for part in (what, "raises", kind, when) if part)
    return InvalidSetting(setting, f"{path.name}: {raised}{_after_colon(failed)}")


def describe_import_error(failed: BaseException) -> str:
    """What an import raised, with the innermost file and line; for a module that is not there its message alone."""
    if isinstance(failed, ModuleNotFoundError):
        return _message(failed)
    frames = [each for each in traceback.extract_tb(failed.__traceback__) if not each.filename.startswith("<")]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(failed).__name__}{where}{_after_colon(failed)}"


def _after_colon(failed: BaseException) -> str:
    message = _message(failed)
    return f": {message}" if message else ""


def _message(failed: BaseException) -> str:
    text = failed.msg if isinstance(failed, SyntaxError | ImportError) else str(failed)
    return " ".join(str(text).split())[:_MESSAGE_CHARACTERS]


def _line(failed: BaseException, path: Path) -> str:
    """Where in the file; the place of a syntax error in any file."""
    # Python names a file by its whole path, whatever path it was given.
    path = path.absolute()
    if isinstance(failed, SyntaxError):
        where = Path(failed.filename or "")
        return f" at {'' if where == path else where.name + ' '}line {failed.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(failed.__traceback__) if frame.filename == str(path)]
    return f" at line {lines[-1]}" if lines else ""
