"""Closing a connection so that nothing sent on it arrives later.

While a network is down, the system tries for minutes to deliver the rest of a closed connection. A call that timed out
and was done in another way since would then be carried out, too.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from asyncio import BaseTransport
from typing import Final

_AT_ONCE: Final = struct.pack("ii", 1, 0)


def reset_on_close(transport: BaseTransport | None) -> None:
    """Have the system drop undelivered data when the connection is closed.

    Never raises: callers have an error to report already, and a closed transport fails differently in each event loop.
    """
    if transport is None:
        return
    with contextlib.suppress(Exception):
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
