"""Logs: one line per event, fields as key=value, with the id of the request they belong to.

A line never carries more than its writer put into it: of an exception it tells the kind and the places it went
through, not its text, which may quote what a user said. Of other libraries' lines, which may hold whole requests and
values, only warnings are written, and of those the beginning. What is left passes the privacy policy for logs.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, TypeAlias

import msgspec

from tenuto.logs import about, describe_exception

request_id: ContextVar[str] = ContextVar("request_id", default="")

_Raised: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
_OURS: Final = "tenuto"
# Where others begin to show values: asyncio writes "Executing <Task finished result='…'>", and more on further lines.
_QUOTING: Final = re.compile(r"[<\n{(\['\"]")
# Printable ASCII without space, quote and equals sign.
_PLAIN: Final = re.compile(r"[!#-<>-~]+")


class KeyValueFormatter(logging.Formatter):
    """`time=… level=… logger=… request=… msg="…"`, and the fields a record brings as `extra={"fields": …}`.

    The message and those fields pass `clean`; our own ids and times stay as they are, so that a line can be followed.
    """

    def __init__(self, clean: Callable[[str], str] = str, worker: int | None = None) -> None:
        super().__init__()
        self._clean = clean
        self._process = {} if worker is None else {"worker": worker}
        # Most lines are of the same second as the one before.
        self._second, self._time = -1, ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second, self._time = second, datetime.fromtimestamp(second, UTC).isoformat()[:-6]
        head = f"time={self._time}.{int(record.created % 1 * 1000):03d}+00:00 level={record.levelname.lower()}"
        fields: dict[str, object] = {"logger": record.name, **self._process}
        if request_id.get():
            fields["request"] = request_id.get()
        fields |= about()
        message = record.getMessage()
        if not record.name.startswith(_OURS):
            message = _QUOTING.split(message, maxsplit=1)[0].rstrip(" :")
        fields["msg"] = self._clean(message)
        for name, value in getattr(record, "fields", {}).items():
            fields[name] = self._clean(value) if isinstance(value, str) else value
        if record.exc_info:
            fields["raised"] = self.formatException(record.exc_info)
        return f"{head} {' '.join([f'{name}={_format_value(value)}' for name, value in fields.items()])}"

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 - the name logging calls
        return describe_exception(ei[1])


def _format_value(value: object) -> str:
    text = str(value)
    if value.__class__ is int or value.__class__ is float:
        return text
    if _PLAIN.fullmatch(text):
        return text
    # As a JSON string: quotes, line breaks and control characters cannot pass for another line or field.
    return msgspec.json.encode(text.encode(errors="replace").decode(errors="replace")).decode()


def configure_logging(level: str, clean: Callable[[str], str] = str, worker: int | None = None) -> None:
    """Send everything of ours from `level` on to standard error, one line each; of others, warnings at most.

    `clean` takes out what may not stand in a log. Each line of one of several workers has its number.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(KeyValueFormatter(clean, worker))
    wanted = logging.getLevelNamesMapping()[level.upper()]
    # Anthropic's client, for one, writes whole prompts at level debug.
    logging.basicConfig(level=max(wanted, logging.WARNING), handlers=[lines], force=True)
    logging.getLogger(_OURS).setLevel(wanted)
    # No line names a process, a thread or a task, so no record need find them out.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Python 3.12 has this one as well.
    vars(logging)["logAsyncioTasks"] = False
    # Our own line per request says more, and without addresses or queries.
    logging.getLogger("uvicorn.access").disabled = True
