"""The gateway of an app: accepts its messages at once, and answers them in order, each chat on its own.

Nothing is lost when a process dies: a message leaves its queue only when its reply is sent. Whatever is done again is
recognised, the turn by its idempotency key and the reply by the platform.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from tenuto.errors import ChannelUnavailable, ReplyRefused, TenutoError, Unavailable
from tenuto.gateway.addresses import address_of
from tenuto.gateway.commands import Command, Commands, parse_command
from tenuto.gateway.inbox import HELD_FOR, Inbox, Queue, QueuePlace, Waiting
from tenuto.gateway.responder import Responder
from tenuto.gateway.wording import WORDING
from tenuto.logs import bind_log_context, describe_exception
from tenuto.model import Scope
from tenuto.model.channel import ChannelPolicy, Delivery, IncomingMessage, MessageKind
from tenuto.model.values import JsonObject
from tenuto.ports import Channel, Clock

_HOLD_AGAIN: Final = HELD_FOR.total_seconds() / 3
# How often the queues of processes that died are looked for, and old marks removed.
_LOOK_EVERY: Final = 3.0
_FORGET_EVERY: Final = 3600.0
# A platform that does not take a reply is asked again, at most so often and for so long.
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_GIVE_UP_AFTER: Final = timedelta(hours=24)
# The texts that are held beside the store.
_LIVE: Final = 10_000
# The characters of an oversized message by which its language is recognised.
_KEPT: Final = 200
_log = logging.getLogger(__name__)


class Gateway:
    """Answers the messages of one app, at most `concurrency` of them at once."""

    def __init__(
        self,
        *,
        channel: Channel,
        policy: ChannelPolicy,
        inbox: Inbox,
        responder: Responder,
        commands: Commands,
        redact: Callable[[Scope, str], Awaitable[str]],
        clock: Clock,
        worker: str,
        max_message_bytes: int,
        concurrency: int = 64,
    ) -> None:
        self.channel = channel
        self._policy = policy
        self._inbox = inbox
        self._responder = responder
        self._commands = commands
        self._redact = redact
        self._clock = clock
        self._worker = worker
        self._max_bytes = max_message_bytes
        self._slots = asyncio.Semaphore(concurrency)
        self._workers: dict[QueuePlace, asyncio.Task[None]] = {}
        self._news: dict[QueuePlace, asyncio.Event] = {}
        # What was said, where the store holds less of it by its privacy policy.
        self._live: dict[str, str] = {}

    async def receive(self, delivery: Delivery) -> JsonObject:
        """Store the message of a delivery that was verified; returns the body that acknowledges it.

        Raises:
            DeliveryRefused: it cannot be read.
            QueueFull: too many messages of this chat wait.
            Unavailable: the store or the platform does not answer; the delivery has to come again.
        """
        incoming = await self.channel.parse(delivery)
        if incoming.message is not None:
            await self.accept(incoming.message)
        elif incoming.ignored:
            _log.info("a delivery of %s needs no answer: %s", self.channel.name, incoming.ignored)
        return incoming.answer

    async def accept(self, message: IncomingMessage) -> bool:
        """Store a message that is to be answered; false if it need not be, or was accepted before.

        Raises:
            QueueFull: too many messages of this chat wait.
            Unavailable: the store does not answer.
        """
        if not message.addressed and self._policy.mentioned_only:
            return False
        address = address_of(self.channel, message, self._policy)
        if len(message.text.encode()) > self._max_bytes:
            message = replace(message, text=message.text[:_KEPT], kind=MessageKind.OVERSIZED)
        kept = await self._redact(address.scope, message.text)
        place = QueuePlace(tenant=message.tenant, key=address.queue)
        waiting = Waiting(message=replace(message, text=kept), received_at=self._clock())
        if kept != message.text:
            # Before it is put: a worker may take it at once.
            self._live[message.id] = message.text
            if len(self._live) > _LIVE:
                del self._live[next(iter(self._live))]
        if not await self._inbox.put(place, waiting):
            return False
        self._wake(place)
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Meanwhile, messages are answered, also those that a process left behind."""
        looking = [asyncio.create_task(self._look_for_queues()), asyncio.create_task(self._forget_marks())]
        try:
            yield
        finally:
            ending = [*looking, *self._workers.values()]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _look_for_queues(self) -> None:
        while True:
            try:
                for place in await self._inbox.busy():
                    if place not in self._workers:
                        self._wake(place)
            except Exception as failed:
                _log.warning("cannot look for waiting messages: %s", describe_exception(failed))
            await asyncio.sleep(_LOOK_EVERY)

    async def _forget_marks(self) -> None:
        while True:
            try:
                await self._inbox.forget_old_marks()
            except Exception as failed:
                _log.warning("marks of old messages stay for now: %s", describe_exception(failed))
            await asyncio.sleep(_FORGET_EVERY)

    def _wake(self, place: QueuePlace) -> None:
        """Work on a queue, or let its worker look at it again."""
        self._news.setdefault(place, asyncio.Event()).set()
        if place not in self._workers:
            self._workers[place] = asyncio.create_task(self._work(place), name="tenuto channel")

    async def _work(self, place: QueuePlace) -> None:
        try:
            while (news := self._news.get(place)) is not None and news.is_set():
                news.clear()
                await self._drain(place)
        except Exception as failed:
            # The queue is found again in seconds.
            _log.error("the work on a chat broke off: %s", describe_exception(failed))
        finally:
            del self._workers[place]
            self._news.pop(place, None)

    async def _drain(self, place: QueuePlace) -> None:
        """Answer what waits, until nothing does or another worker holds the queue."""
        wait = _FIRST_WAIT
        try:
            while (queue := await self._hold(place)) is not None:
                if await self._handle(place, queue, self._next(queue)):
                    wait = _FIRST_WAIT
                else:
                    await asyncio.sleep(wait)
                    wait = min(wait * 2, _HOLD_AGAIN)
        except asyncio.CancelledError:
            with contextlib.suppress(TenutoError):
                await self._inbox.release(place, self._worker)
            raise

    async def _hold(self, place: QueuePlace) -> Queue | None:
        """Hold a queue; while the store does not answer, wait."""
        while True:
            try:
                return await self._inbox.hold(place, self._worker)
            except Unavailable as down:
                _log.warning("the queue of a chat cannot be read: %s", down.code)
                await asyncio.sleep(_LOOK_EVERY)

    async def _handle(self, place: QueuePlace, queue: Queue, one: Waiting) -> bool:
        """Work on a message while the queue is held; a reset that arrives meanwhile interrupts it. False: it failed."""
        work = asyncio.create_task(self._finish(place, queue, one))
        try:
            while not work.done():
                news = asyncio.create_task(self._news[place].wait())
                await asyncio.wait((work, news), timeout=_HOLD_AGAIN, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                self._news[place].clear()
                if not work.done() and not self._goes_on(await self._hold(place), one):
                    break
        finally:
            work.cancel()
            (result,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(result, Exception):
            _log.warning("a message waits: %s", getattr(result, "code", type(result).__name__))
        return not isinstance(result, Exception)

    def _goes_on(self, queue: Queue | None, one: Waiting) -> bool:
        """Whether a message is still the one to work on."""
        return queue is not None and bool(queue.waiting) and self._next(queue).message.id == one.message.id

    def _next(self, queue: Queue) -> Waiting:
        """What is worked on: a reset first, so that it ends a turn that runs, then the oldest message."""
        return next((one for one in queue.waiting if self._resets(one.message)), queue.waiting[0])

    def _resets(self, message: IncomingMessage) -> bool:
        return parse_command(message.text) is Command.RESET and self._commands.may_run(Command.RESET, message)

    async def _finish(self, place: QueuePlace, queue: Queue, one: Waiting) -> None:
        """Answer a message, send the reply, and take the message out of its queue."""
        message = one.message
        if one.epoch is not None and one.epoch < queue.epoch:
            _log.info("a message lost its turn to a reset")
        else:
            epoch = queue.epoch + 1 if self._resets(message) else queue.epoch
            await self._inbox.change(place, lambda now: _begun(now, message.id, epoch))
            address = address_of(self.channel, message, self._policy)
            with bind_log_context(tenant=message.tenant, session=address.session_id):
                await self._answer(place, one)
        await self._inbox.remove(place, message)
        self._live.pop(message.id, None)

    async def _answer(self, place: QueuePlace, one: Waiting) -> None:
        shown = one.shown

        async def progress(text: str) -> None:
            nonlocal shown
            before = shown
            with contextlib.suppress(ChannelUnavailable, ReplyRefused):
                shown = await self.channel.show_progress(one.message, text, shown)
            if shown != before:
                await self._inbox.change(place, lambda now: _showing(now, one.message.id, shown))

        live = self._live.get(one.message.id)
        message = one.message if live is None else replace(one.message, text=live)
        async with self._slots:
            try:
                text = await self._responder.answer(message, progress)
            except TenutoError:
                raise
            except Exception as unexpected:
                # A message that breaks a turn each time would stop its chat for ever.
                _log.error("a message is not answered: %s", type(unexpected).__name__)
                text = WORDING[self._policy.language].failed
        await self._send(one, text, shown)

    async def _send(self, one: Waiting, text: str, shown: str | None) -> None:
        """Send a reply; a platform that does not take it now is asked again until it does."""
        wait = _FIRST_WAIT
        while True:
            try:
                await self.channel.reply(one.message, text, shown)
                return
            except ReplyRefused as refused:
                _log.warning("a reply is refused for good: %s", refused.reason)
                return
            except ChannelUnavailable as down:
                if self._clock() - one.received_at > _GIVE_UP_AFTER:
                    _log.error("a reply could not be sent for a day, and is given up")
                    return
                asked = down.retry_after.total_seconds() if down.retry_after is not None else 0.0
                _log.warning("a reply waits: %s", down)
                await asyncio.sleep(max(wait, asked))
                wait = min(wait * 2, _LONGEST_WAIT)
            except Exception as unexpected:
                _log.error("a reply is not sent: %s", type(unexpected).__name__)
                return


def _begun(queue: Queue, message_id: str, epoch: int) -> Queue:
    waiting = tuple([replace(one, epoch=epoch) if one.message.id == message_id else one for one in queue.waiting])
    return replace(queue, epoch=epoch, waiting=waiting)


def _showing(queue: Queue, message_id: str, shown: str | None) -> Queue:
    waiting = tuple([replace(one, shown=shown) if one.message.id == message_id else one for one in queue.waiting])
    return replace(queue, waiting=waiting)
