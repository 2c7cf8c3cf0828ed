"""An application on a real loopback port, served in the loop of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from tests.servers.process import LOOPBACK


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the test run."""
        yield


@asynccontextmanager
async def serving(app: ASGIApp, *, websockets: bool = False) -> AsyncIterator[str]:
    """The address of the application, until the block ends; its lifespan is the caller's."""
    with socket.create_server((LOOPBACK, 0)) as port:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="websockets-sansio" if websockets else "none",
            timeout_graceful_shutdown=30,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[port]))
        try:
            yield f"http://{LOOPBACK}:{port.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
