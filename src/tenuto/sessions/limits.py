"""Size limits of messages and heads, checked before anything is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.errors import TooLarge
from tenuto.model import Changes, Draft, NewSession, Session
from tenuto.model.message import check_drafts, content_bytes, metadata_bytes
from tenuto.model.policy import SessionPolicy
from tenuto.model.session import head_bytes
from tenuto.model.values import JsonObject

# Bytes of a reply's metadata that are its own.
_REPLY_NOTES: Final = 512
_HEAD: Final = "session's head (context, attributes and metadata together)"


def check_messages(drafts: Sequence[Draft], policy: SessionPolicy) -> None:
    """Refuse messages that cannot be stored, before anything is done for them.

    Raises:
        TooLarge: the content of a message, or its metadata, is above the size limit.
    """
    check_drafts(drafts)
    check_message_sizes(drafts, policy)


def check_text_size(text: str, policy: SessionPolicy) -> None:
    """Raise `TooLarge` for a text above the size limit of messages, before it becomes one."""
    most = policy.max_message_bytes
    # A character takes four bytes at most.
    if len(text) * 4 > most and (len(text) > most or len(text.encode()) > most):
        raise TooLarge("message", most)


def check_message_sizes(drafts: Sequence[Draft], policy: SessionPolicy) -> None:
    """Raise `TooLarge` for a message or an attachment above its size limit; what it holds was checked before."""
    for draft in drafts:
        if content_bytes(draft) > policy.max_message_bytes:
            raise TooLarge("message", policy.max_message_bytes)
        if metadata_bytes(draft) > policy.max_message_bytes:
            raise TooLarge("message's metadata and further fields together", policy.max_message_bytes)
        for content in draft.contents:
            if len(content.data) > policy.max_attachment_bytes:
                raise TooLarge("attachment", policy.max_attachment_bytes)


def check_metadata_size(metadata: JsonObject, policy: SessionPolicy) -> None:
    """Raise `TooLarge` for metadata of a reply that is not made yet, and gets some more: its trace, model and key."""
    most = policy.max_message_bytes - _REPLY_NOTES
    if len(msgspec.json.encode(metadata)) > most:
        raise TooLarge("reply's metadata", most)


def check_head_size(head: Session, changes: Changes, policy: SessionPolicy) -> None:
    """Refuse changes that make a head larger than the limit. A head above the limit may shrink."""
    size = head_bytes(head, changes)
    if size > policy.max_head_bytes and size > head_bytes(head):
        raise TooLarge(_HEAD, policy.max_head_bytes)


def with_retention(new: NewSession | None, policy: SessionPolicy) -> NewSession:
    """The initial values of a session, with the retention of the policy."""
    if new is not None and head_bytes(new) > policy.max_head_bytes:
        raise TooLarge(_HEAD, policy.max_head_bytes)
    return replace(new or NewSession(), retention=policy.retention)
