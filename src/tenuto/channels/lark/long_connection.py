"""Receives events through a connection that the platform's SDK opens and keeps open.

The SDK holds its event loop in a global of its module and starts with a blocking call, so each app has a thread with a
loop and a copy of that module of its own. Only this module imports the SDK, in that thread: it takes seconds and more
than a hundred megabytes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tenuto.channels.lark.app import LarkApp
from tenuto.logs import describe_exception

_log = logging.getLogger(__name__)
# The platform waits three seconds for an acknowledgement.
_ANSWER_SECONDS: Final = 3.0
_STOP_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 30.0

Receive = Callable[[bytes], Awaitable[None]]
"""Takes the payload of an event. The platform is told once it returns; if it raises, the event comes again."""


class LongConnection:
    """One app's connection, between `start` and `stop`. The SDK connects again by itself where it was lost."""

    def __init__(self, app: LarkApp, receive: Receive) -> None:
        self._app = app
        self._receive = receive
        self._stopping = threading.Event()
        self._own: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to connect; events go to the loop that is running now."""
        arguments = (asyncio.get_running_loop(),)
        self._thread = threading.Thread(target=self._run, args=arguments, name="lark-connection", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Close the connection. A thread that waits for the platform is left to end with the process."""
        self._stopping.set()
        if self._thread is None:
            self._own.close()
            return
        self._own.call_soon_threadsafe(_cancel_all, self._own)
        await asyncio.to_thread(self._thread.join, _STOP_SECONDS)
        if self._thread.is_alive():
            _log.warning("the long connection of app %s did not end in time", self._app.app_id)

    def _run(self, server: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(self._own)
        self._own.set_exception_handler(self._end_attempt)
        while not self._stopping.is_set():
            try:
                self._hold(_load_sdk(), server)
            except (Exception, asyncio.CancelledError) as error:
                if not self._stopping.is_set():
                    _log.error("long connection of app %s failed: %s", self._app.app_id, describe_exception(error))
                    self._stopping.wait(_PAUSE_SECONDS)
        self._own.close()

    def _hold(self, sdk: Any, server: asyncio.AbstractEventLoop) -> None:
        """Hold a connection until `stop`, or until the SDK gives up."""
        client = sdk.Client(
            self._app.app_id,
            self._app.app_secret,
            # Below, the SDK logs payloads, and addresses that hold a ticket.
            log_level=sdk.LogLevel.WARNING,
            event_handler=_Handler(self._receive, server),
            domain=self._app.domain,
        )
        try:
            client.start()
        finally:
            self._own.run_until_complete(asyncio.wait_for(client._disconnect(), _ANSWER_SECONDS))
            for _ in range(3):  # A task of the SDK catches the first cancellation and goes on.
                _cancel_all(self._own)
                self._own.run_until_complete(asyncio.sleep(0))

    def _end_attempt(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task of the SDK failed, as when the platform refuses to let it connect again: begin anew."""
        error = context.get("exception")
        _log.warning("a task of the long connection failed: %s", describe_exception(error) or context.get("message"))
        _cancel_all(loop)


class _Handler:
    """What the SDK calls with each event, in its thread; other events wait meanwhile."""

    def __init__(self, receive: Receive, server: asyncio.AbstractEventLoop) -> None:
        self._receive = receive
        self._server = server

    def _do_without_validation(self, payload: bytes) -> None:
        waiting = asyncio.run_coroutine_threadsafe(self._take(payload), self._server)
        try:
            waiting.result(_ANSWER_SECONDS)
        except Exception as error:
            waiting.cancel()
            _log.warning("an event was not accepted: %s", describe_exception(error))
            # The SDK logs the text of what is raised.
            raise RuntimeError("the event was not accepted") from None

    async def _take(self, payload: bytes) -> None:
        await self._receive(payload)


def _load_sdk() -> Any:
    """The SDK's module once more: it takes the event loop that the thread has now."""
    spec = importlib.util.find_spec("lark_oapi.ws.client")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # It prints to stdout; its lines go where ours go.
    logging.getLogger("Lark").handlers.clear()
    return module


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
