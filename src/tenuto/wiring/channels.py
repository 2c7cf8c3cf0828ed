"""The apps on chat platforms: those of the settings and of the file `channels`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tenuto.channels.lark.app import LarkApp
from tenuto.channels.webhook.app import WebhookApp
from tenuto.errors import InvalidSetting, PackageMissing
from tenuto.ports import Clock, utc_now
from tenuto.settings import Settings
from tenuto.wiring.channel_file import read_apps

if TYPE_CHECKING:
    from tenuto.channels.lark.channel import LarkChannel
    from tenuto.channels.webhook.channel import WebhookChannel

_SETTING: Final = "channels"


def lark_apps(settings: Settings) -> tuple[LarkApp, ...]:
    """Every configured app on Lark or Feishu, each once.

    Raises:
        InvalidSetting: one of them cannot work, or two have the same id.
    """
    own = settings.lark_app()
    listed = read_apps(Path(settings.channels), "lark", LarkApp) if settings.channels else ()
    apps = listed if own is None else (own, *listed)
    _refuse_duplicates([app.app_id for app in apps])
    return apps


def webhook_apps(settings: Settings) -> tuple[WebhookApp, ...]:
    """Every configured platform behind a webhook, each once.

    Raises:
        InvalidSetting: one of them cannot work, or two have the same name.
    """
    apps = read_apps(Path(settings.channels), "webhook", WebhookApp) if settings.channels else ()
    _refuse_duplicates([app.name for app in apps])
    return apps


def channel_apps(settings: Settings) -> tuple[LarkApp | WebhookApp, ...]:
    """Every configured app of any platform.

    Raises:
        InvalidSetting: one of them cannot work, or is configured twice.
    """
    return (*lark_apps(settings), *webhook_apps(settings))


def open_channel(app: LarkApp | WebhookApp, clock: Clock) -> LarkChannel | WebhookChannel:
    """The channel of an app, which the caller closes.

    Raises:
        InvalidSetting: a package is missing.
    """
    if isinstance(app, LarkApp):
        return open_lark_channel(app, clock)
    try:
        from tenuto.channels.webhook.channel import WebhookChannel
    except ModuleNotFoundError:
        raise PackageMissing(_SETTING, "a webhook", extra="webhook") from None
    return WebhookChannel(app, clock=clock)


def open_lark_channel(app: LarkApp, clock: Clock = utc_now) -> LarkChannel:
    """The channel of an app, which the caller closes.

    Raises:
        InvalidSetting: a package is missing.
    """
    try:
        from tenuto.channels.lark.channel import LarkChannel
    except ModuleNotFoundError:
        raise PackageMissing("lark_app_id", "Lark", extra="lark") from None
    if app.long_connection and find_spec("lark_oapi") is None:
        raise PackageMissing("lark_long_connection", "Lark", extra="lark")
    return LarkChannel(app, clock=clock)


def _refuse_duplicates(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidSetting(_SETTING, f"the app {name} is configured twice")
