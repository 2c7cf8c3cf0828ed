"""The wiring of gateways: apps of chat platforms, the turns, and the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenuto.access import People
from tenuto.channels.lark import LarkApp
from tenuto.channels.webhook import WebhookApp
from tenuto.chat import Chat
from tenuto.errors import AssistantNotFound, InvalidSetting
from tenuto.gateway.commands import Commands
from tenuto.gateway.inbox import Inbox
from tenuto.gateway.responder import Responder
from tenuto.gateway.service import Gateway
from tenuto.lazy_imports import lazy_module
from tenuto.model import Scope
from tenuto.model.channel import ChannelPolicy, Delivery
from tenuto.model.policy import OnMissing
from tenuto.model.privacy import Sink
from tenuto.ports import Channel, Clock, StateStore
from tenuto.privacy.json_texts import Slot
from tenuto.privacy.redactor import WITHHELD, Redactor
from tenuto.process_identity import with_holder
from tenuto.sessions import Sessions, fresh_id
from tenuto.settings import Settings
from tenuto.wiring.channels import open_channel

if TYPE_CHECKING:
    from tenuto.channels.lark import long_connection
else:
    # The platform's SDK, which is large.
    long_connection = lazy_module("tenuto.channels.lark.long_connection")


def make_gateway(
    settings: Settings,
    channel: Channel,
    policy: ChannelPolicy,
    *,
    chat: Chat,
    sessions: Sessions,
    state: StateStore,
    redactor: Redactor,
    people: People,
    clock: Clock,
) -> Gateway:
    """The gateway of an app.

    Raises:
        InvalidSetting: there is no such assistant as the policy names.
    """
    try:
        chat.assistants.find(policy.assistant)
    except AssistantNotFound as error:
        raise InvalidSetting(f"assistant of {channel.name} app {channel.app}", str(error)) from None
    session_policy = replace(settings.channel_policies().sessions, on_missing=OnMissing.ADOPT)
    commands = Commands(sessions=sessions, people=people, policy=policy)

    async def redact(scope: Scope, text: str) -> str | None:
        (redacted,) = (await redactor.texts(Sink.MESSAGE, scope, None, [Slot(text)])).texts
        return None if redacted == WITHHELD else redacted

    return Gateway(
        channel=channel,
        policy=policy,
        inbox=Inbox(state=state, app=f"{channel.name}:{channel.app}", policy=policy, clock=clock),
        responder=Responder(channel=channel, policy=policy, chat=chat, commands=commands, sessions=session_policy),
        commands=commands,
        redact=redact,
        clock=clock,
        worker=with_holder(fresh_id()),
        max_message_bytes=session_policy.max_message_bytes,
    )


@asynccontextmanager
async def open_gateways(
    apps: Sequence[LarkApp | WebhookApp], make: Callable[[Channel, ChannelPolicy], Awaitable[Gateway]], clock: Clock
) -> AsyncIterator[tuple[Gateway, ...]]:
    """The gateways of apps, at work.

    Raises:
        InvalidSetting: a package that an app needs is missing.
    """
    async with AsyncExitStack() as stack:
        gateways: list[Gateway] = []
        for app in apps:
            channel = open_channel(app, clock)
            stack.push_async_callback(channel.close)
            gateway = await make(channel, app.policy)
            await stack.enter_async_context(gateway.running())
            if isinstance(app, LarkApp) and app.long_connection:
                await stack.enter_async_context(_open_connection(app, gateway))
            gateways.append(gateway)
        yield tuple(gateways)


@asynccontextmanager
async def _open_connection(app: LarkApp, gateway: Gateway) -> AsyncIterator[None]:
    """Meanwhile, events come through a connection of ours; the platform has authenticated it."""

    async def receive(payload: bytes) -> None:
        await gateway.receive(Delivery(body=payload))

    connection = long_connection.LongConnection(app, receive)
    connection.start()
    try:
        yield
    finally:
        await connection.stop()
