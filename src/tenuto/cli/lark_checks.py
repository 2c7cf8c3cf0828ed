"""What `tenuto doctor lark` says of each app: how events come, whether the platform knows it, and its bot."""

from __future__ import annotations

from typing import Final

from tenuto.channels.lark.app import LarkApp
from tenuto.channels.lark.client import LarkClient, LarkRefusal
from tenuto.cli.checks import Finding, fail, ok, warn
from tenuto.errors import ChannelUnavailable
from tenuto.settings import Settings
from tenuto.wiring.channels import lark_apps, open_lark_channel

# Bot.activate_status of a bot that people can talk to.
_ENABLED: Final = 2


async def findings(settings: Settings) -> list[Finding]:
    """Each app's findings; the first thing that is wrong with an app ends its own.

    Raises:
        InvalidSetting: an app cannot work as it is configured.
    """
    apps = lark_apps(settings)
    if not apps:
        return [fail("lark", "no app is configured", "set TENUTO_LARK_APP_ID and the other TENUTO_LARK_ settings")]
    return [finding for app in apps for finding in [*_event_findings(app), *await _platform_findings(app)]]


def _event_findings(app: LarkApp) -> list[Finding]:
    if app.long_connection:
        return [ok(f"{app.app_id} events", "come through a long connection; choose it in the developer console, too")]
    says = "come as callbacks to https://HOST/lark/events"
    if app.encrypt_key:
        return [ok(f"{app.app_id} events", f"{says}, encrypted and signed")]
    advice = "set an Encrypt Key in the developer console, and TENUTO_LARK_ENCRYPT_KEY here"
    return [warn(f"{app.app_id} events", f"{says}, verified by the token alone", advice)]


async def _platform_findings(app: LarkApp) -> list[Finding]:
    channel = open_lark_channel(app)
    try:
        credentials = await _check_credentials(app, channel.client)
        return [credentials] if credentials.advice else [credentials, await _check_bot(app, channel.client)]
    finally:
        await channel.close()


async def _check_credentials(app: LarkApp, client: LarkClient) -> Finding:
    name = f"{app.app_id} credentials"
    try:
        await client.token()
    except ChannelUnavailable as error:
        if isinstance(error.__cause__, LarkRefusal):
            advice = "copy App ID and App Secret again, and check that the app belongs to this platform"
            return fail(name, f"{app.domain} refuses them (code {error.__cause__.code})", advice)
        advice = "check the network, and TENUTO_LARK_DOMAIN: https://open.feishu.cn or https://open.larksuite.com"
        return fail(name, f"{app.domain}: {error}", advice)
    return ok(name, f"{app.domain} accepts them")


async def _check_bot(app: LarkApp, client: LarkClient) -> Finding:
    name, publish = f"{app.app_id} bot", "enable the bot ability in the developer console, and publish a version"
    try:
        bot = await client.bot()
    except LarkRefusal as error:
        return fail(name, f"the app has no bot (code {error.code})", publish)
    except ChannelUnavailable as error:
        return fail(name, str(error), "try again later")
    if bot.activate_status != _ENABLED:
        return fail(name, f"the bot is not enabled for this company (status {bot.activate_status})", publish)
    return ok(name, f"{bot.app_name}, open_id {bot.open_id}")
