"""Giving up a connection for good: what was sent on it and not delivered yet shall not arrive later.

While a network is cut, a system goes on for minutes to deliver what a closed connection has left. A call that its
caller has given up, and has had carried out in another way since, would then be carried out after all.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from asyncio import BaseTransport
from typing import Final

_AT_ONCE: Final = struct.pack("ii", 1, 0)


def reset_on_close(transport: BaseTransport | None) -> None:
    """Have the system drop, when the connection is closed, what the other side has not got yet.

    It never raises: whoever gives a connection up has a reason to tell, and one that is closed already says no in as
    many ways as there are event loops.
    """
    if transport is None:
        return
    with contextlib.suppress(Exception):
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
