"""Running the server: uvicorn on a socket of ours, until a signal says stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator
from types import FrameType
from typing import Final

import uvicorn

from tenuto.access import ApiKeys
from tenuto.app import Tenuto, open_app
from tenuto.errors import InvalidSetting
from tenuto.model.urls import is_loopback
from tenuto.ports import utc_now
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.server.app import create_app
from tenuto.server.http_protocol import LimitedHttpProtocol
from tenuto.server.logs import configure_logging
from tenuto.server.workers import WorkerPlace, log_address
from tenuto.settings import Settings
from tenuto.wiring.privacy import open_policies

_log = logging.getLogger(__name__)
# Of `shutdown_timeout`: what requests may take, and then turns that no client reads. The rest is for what follows turns
# and for closing.
_REQUESTS: Final = 0.6
_TURNS: Final = 0.25
# Of the seconds for requests, or half a second of them: for turns that are ended, so that their readers are told.
_TELLING: Final = 0.1
# Longer than clients and proxies keep an idle connection (aiohttp 15 s, nginx 60 s): one that the server closes in the
# moment it is used again fails, and a client does not repeat a POST by itself.
_KEEP_ALIVE_SECONDS = 75


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are answered, then the store is closed.

    Raises:
        InvalidSetting: the port is taken, the host is reachable from outside and needs no credential, or a model,
            an assistant or a budget cannot be had.
    """
    place = WorkerPlace.take()
    worker = place.number if place is not None else None
    configure_logging(settings.log_level, LogRedactor(lambda: open_policies(settings)), worker)
    if place is None and settings.workers > 1:
        if settings.store.startswith("memory:"):
            raise InvalidSetting("workers", "a store in memory belongs to one process: use 1 worker, or another store")
        # With it come subprocesses, which one process does without.
        from tenuto.server.supervisor import supervise

        with contextlib.ExitStack() as stack:
            supervise(settings, [stack.enter_context(each) for each in _listen_for_workers(settings)])
        return
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, place))
    # The interpreter would look through all objects once more at its end, which takes a second with a model's package.
    gc.freeze()


async def _serve(settings: Settings, place: WorkerPlace | None) -> None:
    listening = place.listening if place is not None else _listen(settings.host, settings.port)
    run_upkeep = place is None or place.does_upkeep
    with listening:
        async with open_app(settings, run_upkeep=run_upkeep) as tenuto:
            await _serve_on(listening, tenuto, place)


async def _serve_on(listening: socket.socket, tenuto: Tenuto, place: WorkerPlace | None) -> None:
    settings = tenuto.settings
    if not is_loopback(settings.host):
        await _check_credential_needed(settings, ApiKeys(store=tenuto.store.state, clock=utc_now))
    # Opened before uvicorn starts, which would print where a start failed under the sentence of what to mend.
    await tenuto.chat()
    loop, seconds = asyncio.get_running_loop(), settings.shutdown_timeout.total_seconds()
    app = create_app(settings, opened=tenuto, place=place, turns_grace=seconds * _TURNS)
    config = uvicorn.Config(
        app,
        http=LimitedHttpProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Who asks is the peer itself: no header may say otherwise, least of all where the server is open.
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(seconds * _REQUESTS)),
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    server = _Server(config, place=place, on_stop=lambda: tenuto.finish_by(loop.time() + seconds))
    await server.serve(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn, except for signals and the words at the start.

    uvicorn raises a signal again once it has shut down, which would end the process before the store is closed.
    """

    def __init__(self, config: uvicorn.Config, *, place: WorkerPlace | None, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._place = place
        self._on_stop = on_stop

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        signals = [signal.SIGINT, signal.SIGTERM]
        # A terminal that is closed, or a reload, for which a supervisor is needed; below `nohup` it is ignored.
        if self._place is None and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signals.append(signal.SIGHUP)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            _log.info("stopping: requests and turns have up to %d s", self.config.timeout_graceful_shutdown or 0)
            self._on_stop()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers that take too long are ended before their connections are cut, so that their readers are told."""
        service = getattr(self.config.app.state, "service", None)  # type: ignore[union-attr]
        seconds = self.config.timeout_graceful_shutdown or 0
        within = seconds - max(0.5, _TELLING * seconds)
        leaving = asyncio.get_running_loop().call_later(max(0, within), service.live.leave) if service else None
        try:
            await super().shutdown(sockets)
        finally:
            if leaving is not None:
                leaving.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._place is not None:
            self._place.report_ready(lambda: self.handle_exit(signal.SIGTERM, None))
            return
        for listening in sockets or ():
            log_address(listening)


async def _check_credential_needed(settings: Settings, keys: ApiKeys) -> None:
    tokens = settings.jwt_secret or settings.jwt_key_file or settings.jwt_jwks_file
    if tokens is None and not await keys.any_exist():
        raise InvalidSetting(
            "host",
            f"{settings.host} can be reached from other machines, and would answer without a credential: "
            "make an API key first (tenuto keys create), configure JWT, or listen on 127.0.0.1",
        )


def _listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=2048, reuse_port=shared)
    except OSError as error:
        raise InvalidSetting("port", f"cannot listen on {host}:{port}: {error.strerror}") from error


def _listen_for_workers(settings: Settings) -> list[socket.socket]:
    """A socket for each worker, on one port; where the kernel does not spread connections, one for all."""
    with _listen(settings.host, settings.port) as first:
        # A port that is taken is refused here: a shared one would be shared with any other server that does so.
        port = first.getsockname()[1]
        if sys.platform != "linux":
            return [first.dup() for _ in range(settings.workers)]
    return [_listen(settings.host, port, shared=True) for _ in range(settings.workers)]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
