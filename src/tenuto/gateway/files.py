"""What a message of a chat shows: its files are downloaded and become parts of the turn's message."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from tenuto.errors import ChannelUnavailable, Invalid, TooLarge
from tenuto.gateway.wording import ChatWording
from tenuto.model import Content, Scope
from tenuto.model.attachment import REMOVED, attachment_part
from tenuto.model.channel import ChatFile, IncomingMessage
from tenuto.model.media_types import check_content_type, media_type_of
from tenuto.model.values import JsonObject
from tenuto.ports import Channel, FileChannel
from tenuto.sessions.media_parts import shown_type

_MEGABYTE: Final = 1024 * 1024
# What a message may bring, as a body over HTTP.
_MOST_BYTES: Final = 32 * _MEGABYTE
_MOST_FILES: Final = 20
# Seconds before a download that failed is tried again.
_AGAIN: Final = (1.0, 4.0)
_log = logging.getLogger(__name__)


class LoadedFiles(NamedTuple):
    """The parts of a message that show its files, with marks in place of those that are not there, and their contents.

    `too_large` and `missing` count the marks.
    """

    parts: tuple[JsonObject, ...] = ()
    contents: tuple[Content, ...] = ()
    too_large: int = 0
    missing: int = 0

    def notes(self, wording: ChatWording, limit: int) -> list[str]:
        """What the chat is told of files that were not read; one may have so many bytes."""
        notes = []
        if self.too_large:
            notes.append(wording.file_too_large.format(count=self.too_large, limit=limit // _MEGABYTE))
        if self.missing:
            notes.append(wording.file_missing.format(count=self.missing))
        return notes


async def load_files(channel: Channel, scope: Scope, message: IncomingMessage, limit: int) -> LoadedFiles:
    """The files of a message, each of at most so many bytes. What cannot be had is counted and left out."""
    if not message.files:
        return LoadedFiles()
    parts: list[JsonObject] = []
    contents: dict[str, Content] = {}
    left, too_large, missing = _MOST_BYTES, 0, 0
    for number, file in enumerate(message.files):
        try:
            if number >= _MOST_FILES:
                raise TooLarge("number of files", _MOST_FILES)
            content = await _load(channel, scope, message, file, min(limit, left))
        except (TooLarge, Invalid, ChannelUnavailable) as error:
            _log.warning("a file of a message was not read: %s", error.code)
            too_large, missing = too_large + isinstance(error, TooLarge), missing + (not isinstance(error, TooLarge))
            name = {"name": file.name} if file.name else {}
            parts.append({"type": file.type, REMOVED: True, **name})
        else:
            left -= len(content.data)
            contents[content.id] = content
            parts.append(attachment_part(content, shown_type(content.media_type)))
    return LoadedFiles(tuple(parts), tuple(contents.values()), too_large, missing)


async def _load(channel: Channel, scope: Scope, message: IncomingMessage, file: ChatFile, limit: int) -> Content:
    if not isinstance(channel, FileChannel):
        raise Invalid("the platform gives no files")
    for pause in _AGAIN:
        try:
            data = await channel.download(message, file, limit)
            break
        except ChannelUnavailable:
            await asyncio.sleep(pause)
    else:
        data = await channel.download(message, file, limit)
    return Content.of(scope, data, check_content_type(data, media_type_of(data, file.name)), file.name)
