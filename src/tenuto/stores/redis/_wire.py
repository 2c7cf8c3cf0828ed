"""What goes over the wire: how a call is packed, and what a reply may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import hiredis

from tenuto.stores.redis._faults import Refused

Part = str | bytes | int | float
"""One word of a call."""

Reply = Any
"""What a server may answer: bytes, int, None, a nested list of these, or a `hiredis.ReplyError`."""

# hiredis types its argument as a tuple of exactly one part
pack = cast(Callable[[tuple[Part, ...]], bytes], hiredis.pack_command)


def check(reply: Reply) -> Reply:
    """Hand the reply on, or raise `Refused` for an error reply."""
    if isinstance(reply, hiredis.ReplyError):
        raise Refused(error_code(reply))
    return reply


def error_code(reply: hiredis.ReplyError) -> str:
    """The first word of an error reply, which names the kind of error."""
    return str(reply).partition(" ")[0]
