"""Whether a model's address takes connections, found out without a request, which could cost something."""

from __future__ import annotations

import asyncio
import os
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_PATIENCE_SECONDS: Final = 2
_PORTS: Final = {"http": 80, "https": 443}


async def why_unreachable(base_url: str) -> str | None:
    """Why no connection can be made, with host and port and nothing else of the address; `None` where one can.

    Behind a proxy only a request could tell, so that counts as reachable.
    """
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    port = parts.port or _PORTS.get(parts.scheme, 443)
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return None
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host}:{port} did not answer within {_PATIENCE_SECONDS} s"
    except OSError as error:
        # The text of a refused call repeats the address; that of an unknown name is all there is.
        code = error.errno or 0
        why = os.strerror(code) if code > 0 else error.strerror
        return f"{host}:{port} cannot be reached ({why or type(error).__name__})"
    writer.close()
    return None
