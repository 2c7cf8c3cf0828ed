"""The answer to one message: a command's, a turn's, or a sentence that says why there is none."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import datetime
from typing import Final, TypeAlias

from tenuto.chat import Chat, ChatRequest, ReplyFinished, ToolStarted
from tenuto.chat.revision import digest_of_key
from tenuto.chat.shown_media import ATTACHMENTS
from tenuto.errors import (
    AssistantFailed,
    BudgetExhausted,
    ModelFailed,
    ModelRefused,
    PrivateData,
    ReplyRefused,
    SessionBusy,
    SessionNotFound,
    TenutoError,
    TooLarge,
    TooManyPrivateValues,
    TurnLost,
    Unavailable,
)
from tenuto.gateway.addresses import Address, address_of, turn_key
from tenuto.gateway.commands import Commands, parse_command
from tenuto.gateway.files import LoadedFiles, load_files
from tenuto.gateway.wording import WORDING
from tenuto.model.channel import ChannelPolicy, ChatLine, IncomingMessage, MessageKind
from tenuto.model.generation import TextDelta
from tenuto.model.policy import SessionPolicy
from tenuto.model.turn import ONCE
from tenuto.ports import Channel

Progress: TypeAlias = Callable[[str], Awaitable[None]]
"""Shows the answer as far as it is."""

# A text that has been growing for so long is shown, and then at most so often.
_SHOWN_AFTER: Final = 2.0
_SHOWN_EVERY: Final = 1.5
_CONTEXT_TIMEOUT: Final = 3.0
# The messages among which that of a lost turn would be.
_LOOKED_AT: Final = 100
# Seconds before a turn that failed is tried again; then the chat is told.
_AGAIN: Final = (1.0, 4.0, 15.0)
_log = logging.getLogger(__name__)


class Responder:
    """Answers the messages of one app."""

    def __init__(
        self, *, channel: Channel, policy: ChannelPolicy, chat: Chat, commands: Commands, sessions: SessionPolicy
    ) -> None:
        self._channel = channel
        self._policy = policy
        self._chat = chat
        self._commands = commands
        self._sessions = sessions

    async def answer(
        self, message: IncomingMessage, progress: Progress, context_since: datetime | None = None
    ) -> str | None:
        """The answer to a message, whatever fails, but for the store: that is waited for.

        What others wrote in a group before `context_since` is left out. `None` if the session was reset or deleted
        through another door while the turn ran: the turn is lost.
        """
        address = address_of(self._channel, message, self._policy)
        text = await self._answer(address, message, progress, context_since)
        news = await self._commands.news(address, message) if text is not None else ""
        return f"{text}\n\n{news}" if news else text

    async def _answer(
        self, address: Address, message: IncomingMessage, progress: Progress, context_since: datetime | None
    ) -> str | None:
        command = parse_command(message.text) if message.kind is MessageKind.TEXT else None
        if command is not None:
            return await self._commands.run(command, address, message)
        if message.files or (message.kind is MessageKind.TEXT and message.text.strip()):
            return await self._take_turn(address, message, progress, context_since)
        wording = WORDING[await self._commands.language(address, message)]
        if message.kind is MessageKind.TEXT:
            return wording.help
        if message.kind is MessageKind.OVERSIZED:
            return wording.too_long.format(limit=self._sessions.max_message_bytes // 1024)
        return wording.private if message.kind is MessageKind.WITHHELD else wording.unreadable

    async def explain_failure(self, message: IncomingMessage) -> str:
        """What the chat is told when there is no answer."""
        address = address_of(self._channel, message, self._policy)
        return WORDING[await self._commands.language(address, message)].failed

    async def _take_turn(
        self, address: Address, message: IncomingMessage, progress: Progress, since: datetime | None
    ) -> str | None:
        files, limit = LoadedFiles(), self._sessions.max_attachment_bytes
        if message.files:
            files = await load_files(self._channel, address.scope, message, limit)
            if not (message.text.strip() or files.contents):
                return "\n".join(files.notes(WORDING[await self._commands.language(address, message)], limit))
        failures = 0
        while True:
            try:
                return await self._stream_turn(address, message, files, progress, since)
            except SessionBusy as error:
                # Another door has a turn in this session.
                await asyncio.sleep(min(error.retry_after.total_seconds(), _AGAIN[0]))
            except ModelRefused as error:
                return await self._explain(address, message, error)
            except TurnLost:
                if not await self._is_stored(address, message):
                    return None
                await asyncio.sleep(_AGAIN[0])
            except ModelFailed as error:
                if failures == len(_AGAIN):
                    return await self._explain(address, message, error)
                await asyncio.sleep(_AGAIN[failures])
                failures += 1
            except (Unavailable, AssistantFailed):
                raise
            except TenutoError as error:
                return await self._explain(address, message, error)

    async def _is_stored(self, address: Address, message: IncomingMessage) -> bool:
        """Whether the session still has the message of a turn that lost its lease."""
        mark = digest_of_key(turn_key(self._channel, message))
        try:
            page = await self._commands.newest(address, _LOOKED_AT)
        except SessionNotFound:
            return False
        return any(one.metadata.get(ONCE) == mark for one in page)

    async def _explain(self, address: Address, message: IncomingMessage, error: TenutoError) -> str:
        """What the chat is told instead of an answer."""
        _log.warning("a message in session %s was not answered: %s", address.session_id, error.code)
        wording = WORDING[await self._commands.language(address, message)]
        match error:
            case TooLarge():
                return wording.too_long.format(limit=self._sessions.max_message_bytes // 1024)
            case PrivateData() | TooManyPrivateValues():
                return wording.private
            case BudgetExhausted():
                return wording.spent
            case _:
                return wording.failed

    async def _stream_turn(
        self, address: Address, message: IncomingMessage, files: LoadedFiles, progress: Progress, since: datetime | None
    ) -> str:
        request = ChatRequest(
            text=message.text,
            parts=files.parts,
            contents=files.contents,
            session_id=address.session_id,
            assistant=self._policy.assistant,
            idempotency_key=turn_key(self._channel, message),
            # The same after a crash, when only what the privacy policy let into the store is left of the text.
            fingerprint=message.id,
            profile={"name": message.sender_name} if message.group and message.sender_name else {},
            chat_context=await self._chat_context(address, message, since),
            policy=self._sessions,
        )
        pieces: list[str] = []
        began = last_progress = 0.0
        async with aclosing(self._chat.stream(address.scope, request)) as events:  # type: ignore[type-var]
            async for event in events:
                match event:
                    case ReplyFinished(reply=reply):
                        text = reply.text or await self.explain_failure(message)
                        if not message.files:
                            return text
                        unseen = ATTACHMENTS in reply.degraded
                        return "\n\n".join([text, *await self._notes(address, message, files, unseen=unseen)])
                    case ToolStarted():
                        pieces.clear()
                    case TextDelta(text=text):
                        pieces.append(text)
                        now = time.monotonic()
                        began = began or now
                        if now - began >= _SHOWN_AFTER and now - last_progress >= _SHOWN_EVERY:
                            await progress("".join(pieces))
                            last_progress = time.monotonic()
        raise AssertionError("a stream ends with its reply")

    async def _notes(
        self, address: Address, message: IncomingMessage, files: LoadedFiles, *, unseen: bool
    ) -> list[str]:
        """What the chat is told of files that the answer had to do without."""
        wording = WORDING[await self._commands.language(address, message)]
        notes = files.notes(wording, self._sessions.max_attachment_bytes)
        return notes or ([wording.unseen] if unseen else [])

    async def _chat_context(
        self, address: Address, message: IncomingMessage, since: datetime | None
    ) -> tuple[ChatLine, ...]:
        """What others wrote in the group before, after the last reset; without it the turn goes on (D8)."""
        if not (message.group and self._policy.chat_context):
            return ()
        try:
            async with asyncio.timeout(_CONTEXT_TIMEOUT):
                resets = [time for time in (since, await self._commands.context_since(address)) if time is not None]
                lines = await self._channel.chat_context(message, self._policy.chat_context)
        except (Unavailable, ReplyRefused, TimeoutError) as error:
            _log.warning("answering without the messages of the group: %s", getattr(error, "code", "timeout"))
            return ()
        return tuple(line for line in lines if not resets or line.sent_at > max(resets))
