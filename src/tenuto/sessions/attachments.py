"""Limits of attachments: which types a session takes, how many, and how many bytes an owner may keep."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tenuto.errors import AttachmentLimit, Invalid, SessionNotFound, Unavailable
from tenuto.model import Draft, Scope
from tenuto.model.policy import SessionPolicy
from tenuto.ports import SessionStore, StoreUpkeep

_log = logging.getLogger(__name__)


class AttachmentLimits:
    """Looks at the contents that come with messages, before these are stored."""

    def __init__(self, *, store: SessionStore, upkeep: StoreUpkeep) -> None:
        self._store = store
        self._upkeep = upkeep

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
