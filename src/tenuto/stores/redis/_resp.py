"""The wire format of calls and replies, and the errors of a call to a Redis or Valkey server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import hiredis

Part = str | bytes | int | float
"""One word of a call."""

Reply = Any
"""What a server may answer: bytes, int, None, a nested list of these, or a `hiredis.ReplyError`."""

_NO_ROOM: Final = ("No space left on device", "Disk quota exceeded", "Quota exceeded")
"""Messages of C libraries for a full disk, which servers quote."""

_DENIED_IN_SCRIPT: Final = "ERR ACL failure in script"

# hiredis declares its argument as a tuple of exactly one part.
pack = cast(Callable[[tuple[Part, ...]], bytes], hiredis.pack_command)


class CallFailed(Exception):
    """The server could not be asked, or did not answer in time."""


class RedisConnectionLost(CallFailed):
    """The connection went away: a call on its way may or may not have run."""


class Unsent(RedisConnectionLost):
    """There was no connection to send the call on: it certainly did not run."""


class CallTimeout(CallFailed):
    """No answer within the call's time; it may still run."""


class ResponseError(CallFailed):
    """The server answered with an error. `code` is the first word of that error; `full` means that its disk is full.

    The rest of the server's message is left out: it may quote arguments, which contain user text.
    """

    def __init__(self, code: str, *, full: bool = False) -> None:
        super().__init__(f"the server refused the call: {code}")
        self.code = code
        self.full = full


def check(reply: Reply) -> Reply:
    """Hand the reply on, or raise `ResponseError` for an error reply."""
    if isinstance(reply, hiredis.ReplyError):
        raise response_error(reply)
    return reply


def response_error(reply: hiredis.ReplyError) -> ResponseError:
    """The error to raise for an error reply."""
    code = reply_error_code(reply)
    # A server that cannot write its snapshot or log refuses writes; that message quotes no arguments.
    return ResponseError(code, full=code == "MISCONF" and any(text in str(reply) for text in _NO_ROOM))


def reply_error_code(reply: hiredis.ReplyError) -> str:
    """The first word of an error reply, which names the kind of error; for a command denied to a script, ours."""
    text = str(reply)
    return "NOPERM" if text.startswith(_DENIED_IN_SCRIPT) else text.partition(" ")[0]
