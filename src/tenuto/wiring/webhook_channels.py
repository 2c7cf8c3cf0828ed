"""The wiring of webhook channels: those of the file, each with its gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tenuto.channels.webhook import WebhookApp
from tenuto.channels.webhook.channel import WebhookChannel
from tenuto.errors import InvalidSetting
from tenuto.gateway.service import Gateway
from tenuto.model.channel import ChannelPolicy
from tenuto.ports import Channel
from tenuto.wiring.channel_file import read_apps


def webhook_apps(path: Path, environ: Mapping[str, str] | None = None) -> tuple[WebhookApp, ...]:
    """The apps in the `[[webhook]]` tables of a file.

    Raises:
        InvalidSetting: the file or a table cannot be read, or two apps have one name.
    """
    apps = read_apps(path, "webhook", WebhookApp, environ)
    names = [app.name for app in apps]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidSetting("channels", f"two [[webhook]] tables have the name {twice}")
    return apps


@asynccontextmanager
async def open_webhooks(
    apps: Sequence[WebhookApp], make_gateway: Callable[[Channel, ChannelPolicy], Awaitable[Gateway]]
) -> AsyncIterator[tuple[Gateway, ...]]:
    """Meanwhile, the messages of these apps are answered; `Gateway.channel.app` is the name in the route.

    Raises:
        AssistantNotFound: there is no such assistant as a policy names.
    """
    async with AsyncExitStack() as stack:
        gateways: list[Gateway] = []
        for app in apps:
            channel = WebhookChannel(app)
            stack.push_async_callback(channel.close)
            gateways.append(await make_gateway(channel, app.policy))
            await stack.enter_async_context(gateways[-1].running())
        yield tuple(gateways)
