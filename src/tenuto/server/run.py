"""Running the server: uvicorn on a socket of ours, until a signal says stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn

from tenuto.access import ApiKeys
from tenuto.app import open_app
from tenuto.errors import InvalidSetting
from tenuto.model.urls import is_loopback
from tenuto.ports import utc_now
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.server.app import create_app
from tenuto.server.http_protocol import LimitedHttpProtocol
from tenuto.server.logs import configure_logging
from tenuto.settings import Settings
from tenuto.wiring.privacy import open_policies

_log = logging.getLogger(__name__)
_GRACE_SECONDS = 10
# Longer than clients and proxies keep an idle connection (aiohttp 15 s, nginx 60 s): one that the server closes in the
# moment it is used again fails, and a client does not repeat a POST by itself.
_KEEP_ALIVE_SECONDS = 75


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are answered, then the store is closed.

    Raises:
        InvalidSetting: the port is taken, the host is reachable from outside and needs no credential, or a model,
            an assistant or a budget cannot be had.
    """
    configure_logging(settings.log_level, LogRedactor(lambda: open_policies(settings)))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    listening = _listen(settings.host, settings.port)
    with listening:
        async with open_app(settings) as tenuto:
            if not is_loopback(settings.host):
                await _check_credential_needed(settings, ApiKeys(store=tenuto.store.state, clock=utc_now))
            # Opened before uvicorn starts, which would print where a start failed under the sentence of what to mend.
            await tenuto.chat()
            config = uvicorn.Config(
                create_app(settings, opened=tenuto),
                http=LimitedHttpProtocol,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                # Who asks is the peer itself: no header may say otherwise, least of all where the server is open.
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
            await _Server(config).serve(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn, except for signals and the words at the start.

    uvicorn raises a signal again once it has shut down, which would end the process before the store is closed.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            host, port = listening.getsockname()[:2]
            _log.info("listening on http://%s:%s", f"[{host}]" if ":" in host else host, port)


async def _check_credential_needed(settings: Settings, keys: ApiKeys) -> None:
    tokens = settings.jwt_secret or settings.jwt_key_file or settings.jwt_jwks_file
    if tokens is None and not await keys.any_exist():
        raise InvalidSetting(
            "host",
            f"{settings.host} can be reached from other machines, and would answer without a credential: "
            "make an API key first (tenuto keys create), configure JWT, or listen on 127.0.0.1",
        )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise InvalidSetting("port", f"cannot listen on {host}:{port}: {error.strerror}") from error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
