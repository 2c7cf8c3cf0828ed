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
    thread: str | None = None
    if message.group and policy.group_scope is GroupScope.MEMBER:
        # Not the user's own scope: what a person said in private is not recalled before others.
        thread = derived_id("member-", message.sender)
    elif message.group and policy.group_scope is GroupScope.THREAD:
        thread = message.thread
    if thread is not None:
        parts += ["thread", thread]
    prefix = f"{policy.prefix}-"
    queue = derived_id(prefix, *parts)
    fresh = policy.session_mode is SessionMode.FRESH
    return Address(
        scope=Scope(
            tenant=message.tenant,
            user=message.sender,
            channel=channel.name,
            chat=message.chat if message.group else None,
            thread=thread,
        ),
        session_id=derived_id(prefix, *parts, "message", message.id) if fresh else queue,
        queue=queue,
    )


def turn_key(channel: Channel, message: IncomingMessage) -> str:
    """The idempotency key of a message's turn: a process that takes it after a crash finishes the same turn."""
    return derived_id(f"{channel.name}-", channel.app, message.id)
