"""Attachments before they are stored: what is taken out of them and noted of them, and the limits of their owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from tenuto.errors import AttachmentLimit, Invalid, SessionNotFound, Unavailable
from tenuto.model import Content, Draft, Scope
from tenuto.model.attachment import ATTACHMENT, Attachment, iter_media_parts, map_media
from tenuto.model.policy import SessionPolicy
from tenuto.model.values import JsonObject
from tenuto.ports import SessionStore, StoreUpkeep
from tenuto.sessions.media_parts import shown_type
from tenuto.sessions.pictures import pdf_pages, picture_size, without_metadata

_log = logging.getLogger(__name__)
_Draft = TypeVar("_Draft", bound=Draft)
# What is noted of an attachment in the part that shows it: by these its tokens are counted.
NOTED: Final = frozenset({"width", "height", "pages"})
# Above this a turn of another session would notice the time it takes.
_IN_THREAD_BYTES: Final = 256 * 1024


def named_alone(parts: Iterable[JsonObject]) -> bool:
    """Whether a part names an attachment by its id and says nothing else of it."""
    return any(_is_bare(part) for part in iter_media_parts(parts))


def complete_parts(parts: Iterable[JsonObject], stored: Mapping[str, Attachment | Content]) -> tuple[JsonObject, ...]:
    """The parts with what is known of attachments that they name by their ids alone; without it no model gets them."""

    def complete(part: JsonObject) -> JsonObject:
        known = stored.get(part[ATTACHMENT]) if _is_bare(part) else None
        if known is None:
            return part
        size = known.size if isinstance(known, Attachment) else len(known.data)
        name = {"name": known.name} if known.name and "name" not in part else {}
        return {**part, "type": shown_type(known.media_type), "media_type": known.media_type, "size": size, **name}

    return map_media(parts, complete)


def _is_bare(part: JsonObject) -> bool:
    return isinstance(part.get(ATTACHMENT), str) and not part.get("media_type")


async def prepare_contents(scope: Scope, drafts: Sequence[_Draft], policy: SessionPolicy) -> tuple[_Draft, ...]:
    """The messages with contents as they are stored: pictures by default without metadata, and with their width and
    height in the parts that show them; documents with their number of pages."""
    contents = {content.id: content for draft in drafts for content in draft.contents}
    if not contents:
        return tuple(drafts)
    strips = policy.strip_attachment_metadata
    if sum([len(content.data) for content in contents.values()]) > _IN_THREAD_BYTES:
        noted = await asyncio.to_thread(_prepare_all, scope, list(contents.values()), strips)
    else:
        noted = _prepare_all(scope, list(contents.values()), strips)
    return tuple([_with_prepared(draft, noted) for draft in drafts])


def _prepare_all(scope: Scope, contents: Sequence[Content], strips: bool) -> dict[str, tuple[Content, JsonObject]]:
    return {content.id: _prepare(scope, content, strips) for content in contents}


def _prepare(scope: Scope, content: Content, strips: bool) -> tuple[Content, JsonObject]:
    data = without_metadata(content.data) if strips else content.data
    if data is not content.data:
        content = Content.of(scope, data, content.media_type, content.name)
    notes: JsonObject = {}
    if (size := picture_size(data)) is not None:
        notes = {"width": size[0], "height": size[1]}
    elif (pages := pdf_pages(data)) is not None:
        notes = {"pages": pages}
    return content, notes


def _with_prepared(draft: _Draft, prepared: dict[str, tuple[Content, JsonObject]]) -> _Draft:
    def change(part: JsonObject) -> JsonObject:
        if part.get(ATTACHMENT) not in prepared:
            return part
        content, notes = prepared[part[ATTACHMENT]]
        [part] = complete_parts((part,), {part[ATTACHMENT]: content})
        own = {name: value for name, value in part.items() if name not in NOTED}
        return {**own, ATTACHMENT: content.id, "size": len(content.data), **notes}

    parts = map_media(draft.parts, change)
    if not draft.contents and parts == draft.parts:
        return draft
    contents = {prepared[content.id][0].id: prepared[content.id][0] for content in draft.contents}
    return replace(draft, parts=parts, contents=tuple(contents.values()))


class AttachmentLimits:
    """Looks at the contents that come with messages, before these are stored."""

    def __init__(self, *, store: SessionStore, upkeep: StoreUpkeep) -> None:
        self._store = store
        self._upkeep = upkeep

    async def prepare(
        self, scope: Scope, session_id: str, drafts: tuple[_Draft, ...], policy: SessionPolicy
    ) -> tuple[_Draft, ...]:
        """The messages as they are stored; the same ones if they have no contents and name no attachments.

        Raises:
            Invalid, AttachmentLimit: as `check` says.
        """
        drafts = await self._complete(scope, session_id, drafts)
        if any(draft.contents for draft in drafts):
            drafts = await prepare_contents(scope, drafts, policy)
            await self.check(scope, session_id, drafts, policy)
        return drafts

    async def _complete(self, scope: Scope, session_id: str, drafts: tuple[_Draft, ...]) -> tuple[_Draft, ...]:
        """The messages with what the session knows of attachments that they name by their ids alone."""
        if not any(named_alone(draft.parts) for draft in drafts):
            return drafts
        stored = await self.known(scope, session_id)
        return tuple([replace(draft, parts=complete_parts(draft.parts, stored)) for draft in drafts])

    async def known(self, scope: Scope, session_id: str) -> dict[str, Attachment]:
        """The session's attachments by their ids; none where it is not there, which other steps say."""
        try:
            return {one.id: one for one in await self._store.attachments(scope, session_id)}
        except (SessionNotFound, Unavailable):
            return {}

    async def check(self, scope: Scope, session_id: str, drafts: Sequence[Draft], policy: SessionPolicy) -> None:
        """Refuse contents of a type that is not taken, or beyond the limits of their session and its owner.

        What arrives at the same time is not counted: with it a limit can be exceeded once. While the store is away,
        types alone are looked at.

        Raises:
            Invalid: a type is not taken.
            AttachmentLimit: there would be too many, or too many bytes.
        """
        contents = {content.id: content for draft in drafts for content in draft.contents}
        if not all(policy.takes(content.media_type) for content in contents.values()):
            raise Invalid("the media_type of an attachment is not among the attachment_types that are taken here")
        if not contents:
            return
        try:
            stored = await self._stored_ids(scope, session_id)
            new = [content for content in contents.values() if content.id not in stored]
            if new and len(stored) + len(new) > policy.max_attachments:
                raise AttachmentLimit("max_attachments", policy.max_attachments)
            if new and policy.user_attachment_bytes is not None:
                added = sum([len(content.data) for content in new])
                await self._check_bytes(scope, session_id, added, policy.user_attachment_bytes)
        except Unavailable as error:
            _log.warning("the number and bytes of attachments were not checked: %s", error.code)

    async def _stored_ids(self, scope: Scope, session_id: str) -> frozenset[str]:
        try:
            return frozenset([one.id for one in await self._store.attachments(scope, session_id)])
        except SessionNotFound:
            return frozenset()  # The store decides what this means for the call.

    async def _check_bytes(self, scope: Scope, session_id: str, added: int, most: int) -> None:
        try:
            owner = (await self._store.get(scope, session_id)).scope
        except SessionNotFound:
            owner = scope
        if (await self._upkeep.stats(owner)).attachment_bytes + added > most:
            raise AttachmentLimit("user_attachment_bytes", most)
