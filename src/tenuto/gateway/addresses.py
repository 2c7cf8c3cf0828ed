"""Where a message of a chat platform belongs: its session, its scope, and the queue that it waits in."""

from __future__ import annotations

from tenuto.model import Scope
from tenuto.model.channel import ChannelPolicy, GroupScope, IncomingMessage, SessionMode
from tenuto.model.values import Value
from tenuto.ports import Channel
from tenuto.sessions import derived_id


class Address(Value, frozen=True, kw_only=True):
    """The session of a message, the scope of its sender in it (D18), and the key of its queue."""

    scope: Scope
    session_id: str
    queue: str


def address_of(channel: Channel, message: IncomingMessage, policy: ChannelPolicy) -> Address:
    """The address of a message: one session for each chat, thread or member, or for each message (D7, D16)."""
    parts = [message.tenant, channel.name, channel.app, message.chat]
    shared = message.group and policy.group_scope is not GroupScope.MEMBER
    thread = message.thread if shared and policy.group_scope is GroupScope.THREAD else None
    if message.group and not shared:
        parts += ["member", message.sender]
    elif thread is not None:
        parts += ["thread", thread]
    prefix = f"{policy.prefix}-"
    queue = derived_id(prefix, *parts)
    fresh = policy.session_mode is SessionMode.FRESH
    return Address(
        scope=Scope(
            tenant=message.tenant,
            user=message.sender,
            channel=channel.name,
            chat=message.chat if shared else None,
            thread=thread,
        ),
        session_id=derived_id(prefix, *parts, "message", message.id) if fresh else queue,
        queue=queue,
    )


def turn_key(channel: Channel, message: IncomingMessage) -> str:
    """The idempotency key of a message's turn: whoever takes it after a crash finishes the same turn."""
    return derived_id(f"{channel.name}-", channel.app, message.id)
