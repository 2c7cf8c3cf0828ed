"""The gateway of an app: accepts its messages at once, and answers them in order, each chat on its own.

Nothing is lost when a process dies: a message leaves its queue only when its reply is sent. Whatever is done again is
recognised, the turn by its idempotency key and the reply by the platform.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from tenuto.background import run_in_background, running
from tenuto.errors import ChannelUnavailable, ReplyRefused, TenutoError, Unavailable
from tenuto.gateway.addresses import Address, address_of
from tenuto.gateway.commands import ChatCommand, Commands, parse_command
from tenuto.gateway.inbox import HELD_FOR, Inbox, Queue, QueuePlace, Waiting
from tenuto.gateway.responder import Responder
from tenuto.gateway.wording import WORDING
from tenuto.logs import bind_log_context, describe_exception
from tenuto.lru_cache import LruCache
from tenuto.model import Scope
from tenuto.model.attachment import MAX_NAME_CHARACTERS
from tenuto.model.channel import ChannelPolicy, ChatFile, Delivery, IncomingMessage, MessageKind
from tenuto.model.values import JsonObject
from tenuto.pauses import Backoff
from tenuto.ports import Channel, Clock

_HOLD_AGAIN: Final = HELD_FOR.total_seconds() / 3
# How often the queues of processes that died are looked for, and old marks removed.
_LOOK_EVERY: Final = 3.0
_FORGET_EVERY: Final = 3600.0
# A platform that does not take a reply is asked again, at most so often and for so long.
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_GIVE_UP_AFTER: Final = timedelta(hours=24)
# Platforms recognise a repeated reply for an hour.
_RECOGNISED_FOR: Final = timedelta(minutes=50)
_PROGRESS_SECONDS: Final = 3.0
# The texts that are held beside the store.
_LIVE: Final = 10_000
# The characters of an oversized message by which its language is recognised.
_LANGUAGE_SAMPLE: Final = 200
_log = logging.getLogger(__name__)


class Gateway:
    """Answers the messages of one app, at most `concurrency` of them at once.

    `redact` gives a text as the store may hold it while it waits, `None` if it may not.
    """

    def __init__(
        self,
        *,
        channel: Channel,
        policy: ChannelPolicy,
        inbox: Inbox,
        responder: Responder,
        commands: Commands,
        redact: Callable[[Scope, str], Awaitable[str | None]],
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
        self._live = LruCache[tuple[QueuePlace, str], str](_LIVE)

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
        place = QueuePlace(tenant=message.tenant, key=address.queue)
        resets = self._resets(message)
        if len(message.text.encode()) > self._max_bytes:
            message, resets = replace(message, text=message.text[:_LANGUAGE_SAMPLE], kind=MessageKind.OVERSIZED), False
        text = await self._redact(address.scope, message.text)
        withheld = replace(message, text="", files=(), kind=MessageKind.WITHHELD)
        redacted = (
            withheld
            if text is None
            else replace(message, text=text, files=await self._redact_names(address, message.files))
        )
        # Before it is put: a worker may take it at once.
        has_live_text = text is not None and self._remember_live(place, message, text)
        accepted = False
        try:
            accepted = await self._inbox.put(place, redacted, resets=resets)
        finally:
            if has_live_text and not accepted:
                self._live.pop((place, message.id))
        if accepted:
            self._wake(place)
        return accepted

    async def _redact_names(self, address: Address, files: Sequence[ChatFile]) -> tuple[ChatFile, ...]:
        """The files with their names as the store may hold them."""
        names = [(await self._redact(address.scope, file.name)) or "" if file.name else "" for file in files]
        return tuple([replace(file, name=name[:MAX_NAME_CHARACTERS]) for file, name in zip(files, names, strict=True)])

    def _resets(self, message: IncomingMessage) -> bool:
        is_reset = message.kind is MessageKind.TEXT and parse_command(message.text) is ChatCommand.RESET
        return is_reset and self._commands.clears_context(message)

    def _remember_live(self, place: QueuePlace, message: IncomingMessage, redacted: str) -> bool:
        """Remember what was said, where the store holds less of it by its privacy policy, and it is not known yet."""
        if redacted == message.text or (place, message.id) in self._live:
            return False
        self._live.put((place, message.id), message.text)
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Meanwhile, messages are answered, also those that a process left behind."""
        try:
            async with running(self._look_for_queues(), "channel queues"), running(self._forget_marks(), "old marks"):
                yield
        finally:
            for task in (ending := [*self._workers.values()]):
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _look_for_queues(self) -> None:
        while True:
            try:
                for place in await self._inbox.busy():
                    if place not in self._workers:
                        self._wake(place)
            except Exception as error:
                _log.warning("cannot look for waiting messages: %s", describe_exception(error))
            await asyncio.sleep(_LOOK_EVERY)

    async def _forget_marks(self) -> None:
        while True:
            try:
                await self._inbox.forget_old_marks()
            except Exception as error:
                _log.warning("ids of old messages were not removed yet: %s", describe_exception(error))
            await asyncio.sleep(_FORGET_EVERY)

    def _wake(self, place: QueuePlace) -> None:
        """Work on a queue, or let its worker look at it again."""
        self._news.setdefault(place, asyncio.Event()).set()
        if place not in self._workers:
            self._workers[place] = run_in_background(self._work(place), "channel")

    async def _work(self, place: QueuePlace) -> None:
        try:
            while (news := self._news.get(place)) is not None and news.is_set():
                news.clear()
                await self._drain(place)
        except Exception as error:
            # The queue is found again in seconds.
            _log.error("the work on a chat failed: %s", describe_exception(error))
        finally:
            del self._workers[place]
            self._news.pop(place, None)

    async def _drain(self, place: QueuePlace) -> None:
        """Answer what waits, until nothing does or another worker holds the queue."""
        backoff = Backoff(_FIRST_WAIT, _HOLD_AGAIN)
        try:
            while (queue := await self._hold(place)) is not None:
                entry = queue.next()
                if entry is None or await self._handle(place, queue, entry):
                    backoff.reset()
                else:
                    await backoff.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(TenutoError):
                await self._inbox.release(place, self._worker)
            raise

    async def _hold(self, place: QueuePlace) -> Queue | None:
        """Hold a queue; while the store does not answer, wait."""
        while True:
            try:
                return await self._inbox.hold(place, self._worker)
            except Unavailable as error:
                _log.warning("the queue of a chat cannot be read: %s", error.code)
                await asyncio.sleep(_LOOK_EVERY)

    async def _handle(self, place: QueuePlace, queue: Queue, entry: Waiting) -> bool:
        """Work on a message while the queue is held; a reset that arrives meanwhile interrupts it. False: it failed."""
        work = asyncio.create_task(self._finish(place, queue, entry))
        news = self._news[place]
        try:
            while not work.done():
                wake_up = asyncio.create_task(news.wait())
                try:
                    await asyncio.wait((work, wake_up), timeout=_HOLD_AGAIN, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    wake_up.cancel()
                news.clear()
                if not work.done() and not _is_next(await self._hold(place), entry):
                    break
        finally:
            work.cancel()
            (result,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(result, Exception):
            _log.warning("a message is waiting: %s", getattr(result, "code", describe_exception(result)))
        return not isinstance(result, Exception)

    async def _finish(self, place: QueuePlace, queue: Queue, entry: Waiting) -> None:
        """Answer a message, send the reply, and take the message out of its queue."""
        message = await self._inbox.read(place, entry)
        if message is not None:
            address = address_of(self.channel, message, self._policy)
            with bind_log_context(tenant=message.tenant, session=address.session_id):
                if entry.begun_at is not None and entry.begun_in < queue.epoch:
                    await self._give_up(entry, message)
                elif message.files or (message.kind is MessageKind.TEXT and parse_command(message.text) is None):
                    async with self._slots:
                        await self._answer(place, queue, entry, message)
                else:
                    await self._answer(place, queue, entry, message)
        await self._inbox.remove(place, entry)
        self._live.pop((place, entry.id))

    async def _give_up(self, entry: Waiting, message: IncomingMessage) -> None:
        """A reset has ended the turn of this message: there is no answer, and its progress says so."""
        _log.info("a message lost its turn to a reset")
        if entry.card_id is not None:
            await self._send(entry, message, WORDING[self._policy.language].stopped, entry.card_id)

    async def _answer(self, place: QueuePlace, queue: Queue, entry: Waiting, message: IncomingMessage) -> None:
        epoch = queue.epoch + 1 if entry.resets else queue.epoch
        begun_at = entry.begun_at or self._clock()
        since = message.sent_at if self._commands.clears_context(message) else None

        def begin(now: Queue) -> Queue:
            current = now.with_entry(entry.id, begun_in=epoch, begun_at=begun_at)
            return replace(current, epoch=max(epoch, now.epoch), context_since=since or now.context_since)

        current = await self._inbox.change(place, begin)
        progress = _Progress(self.channel, self._inbox, place, entry, message)
        live = self._live.get((place, entry.id))
        question = message if live is None else replace(message, text=live)
        try:
            text = await self._responder.answer(question, progress.show, current.context_since)
        except Unavailable:
            if self._clock() - entry.received_at < _GIVE_UP_AFTER:
                raise
            text = await self._responder.explain_failure(question)
        except TenutoError:
            raise
        except Exception as error:
            # A message that breaks a turn each time would stop its chat for ever.
            _log.error("a message was not answered: %s", describe_exception(error))
            text = await self._responder.explain_failure(question)
        if text is not None:
            await self._send(replace(entry, begun_at=begun_at), message, text, progress.card_id)
        if entry.epoch < queue.epoch:
            # It was sent before a reset, and waited: the chat begins without it.
            await self._commands.reset(address_of(self.channel, message, self._policy), current.context_since)

    async def _send(self, entry: Waiting, message: IncomingMessage, text: str, card_id: str | None) -> None:
        """Send a reply; a platform that does not take it now is asked again until it does."""
        backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        while True:
            try:
                is_old = entry.begun_at is not None and self._clock() - entry.begun_at > _RECOGNISED_FOR
                if not (is_old and card_id is None and await self.channel.has_reply(message)):
                    await self.channel.reply(message, text, card_id)
                return
            except ReplyRefused as error:
                _log.warning("a reply was refused and is dropped: %s", error.reason)
                return
            except ChannelUnavailable as error:
                if self._clock() - entry.received_at > _GIVE_UP_AFTER:
                    _log.error("a reply could not be sent for a day and is dropped")
                    return
                requested_pause = error.retry_after.total_seconds() if error.retry_after is not None else 0.0
                _log.warning("a reply is waiting: %s", error)
                await asyncio.sleep(max(backoff.next_pause(), requested_pause))
            except Exception as error:
                _log.error("a reply is not sent: %s", describe_exception(error))
                return


class _Progress:
    """Shows an answer as far as it is; a platform that is slow or refuses is left alone for the rest of the turn."""

    def __init__(
        self, channel: Channel, inbox: Inbox, place: QueuePlace, entry: Waiting, message: IncomingMessage
    ) -> None:
        self.card_id = entry.card_id
        self._channel = channel
        self._inbox = inbox
        self._place = place
        self._message = message
        self._on = True

    async def show(self, text: str) -> None:
        """Show the text so far, and note under which id."""
        if not self._on:
            return
        before = self.card_id
        try:
            async with asyncio.timeout(_PROGRESS_SECONDS):
                self.card_id = await self._channel.show_progress(self._message, text, self.card_id)
        except (ChannelUnavailable, ReplyRefused, TimeoutError):
            self._on = False
        if self.card_id != before:
            card_id = self.card_id
            await self._inbox.change(self._place, lambda now: now.with_entry(self._message.id, card_id=card_id))


def _is_next(queue: Queue | None, entry: Waiting) -> bool:
    """Whether a message is still the one to work on."""
    upcoming = queue.next() if queue is not None else None
    return upcoming is not None and upcoming.id == entry.id
