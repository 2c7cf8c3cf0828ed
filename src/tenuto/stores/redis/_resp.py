"""What goes over the wire: how a call is packed, and what a reply may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import hiredis

from tenuto.stores.redis._errors import ResponseError

Part = str | bytes | int | float
"""One word of a call."""

Reply = Any
"""What a server may answer: bytes, int, None, a nested list of these, or a `hiredis.ReplyError`."""

_NO_ROOM: Final = ("No space left on device", "Disk quota exceeded", "Quota exceeded")
"""What C libraries call it; a server passes it on."""

# hiredis types its argument as a tuple of exactly one part
pack = cast(Callable[[tuple[Part, ...]], bytes], hiredis.pack_command)


def check(reply: Reply) -> Reply:
    """Hand the reply on, or raise `Refused` for an error reply."""
    if isinstance(reply, hiredis.ReplyError):
        raise response_error(reply)
    return reply


def response_error(reply: hiredis.ReplyError) -> ResponseError:
    """The error to raise for an error reply."""
    code = reply_error_code(reply)
    # Servers write snapshots and logs by themselves, and refuse writes once they cannot: that sentence quotes nobody.
    return ResponseError(code, full=code == "MISCONF" and any(told in str(reply) for told in _NO_ROOM))


def reply_error_code(reply: hiredis.ReplyError) -> str:
    """The first word of an error reply, which names the kind of error."""
    return str(reply).partition(" ")[0]
