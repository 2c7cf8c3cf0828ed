"""Apps on chat platforms come from the settings and from a file, and what does not fit is named."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.cli.effective_settings import effective
from tenuto.errors import InvalidSetting
from tenuto.model.channel import ChannelPolicy, GroupScope, SessionMode
from tenuto.settings import read_settings
from tenuto.wiring.channels import lark_apps, open_lark_channel
from tests.clock import FakeClock

APP = {"TENUTO_LARK_APP_ID": "cli_1", "TENUTO_LARK_APP_SECRET": "s-1", "TENUTO_LARK_ENCRYPT_KEY": "k-1"}
FILE = """
[[lark]]
app_id = "cli_2"
app_secret_env = "SECOND_SECRET"
verification_token = "v-2"
domain = "https://open.larksuite.com"
cards = false
assistant = "goods"
session_mode = "fresh"
group_scope = "member"
chat_context = 0
resetters = ["ou_ann"]
remember_events = "48h"

[[lark]]
app_id = "cli_3"
app_secret = "s-3"
long_connection = true
"""


@pytest.mark.requirement("D7", "D16", "D22", "D26")
async def test_apps_come_from_settings_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each app has a policy of its own; no secret is shown among the settings."""
    monkeypatch.setenv("SECOND_SECRET", "s-2")
    file = tmp_path / "channels.toml"
    file.write_text(FILE)
    settings = read_settings({**APP, "TENUTO_LARK_ASSISTANT": "npc", "TENUTO_CHANNELS": str(file)})

    first, second, third = lark_apps(settings)

    assert lark_apps(read_settings({})) == ()
    assert (first.app_secret, first.encrypt_key, first.domain) == ("s-1", "k-1", "https://open.feishu.cn")
    assert first.policy == ChannelPolicy(prefix="lark", assistant="npc")
    assert (second.app_secret, second.verification_token, second.cards) == ("s-2", "v-2", False)
    assert second.policy == ChannelPolicy(
        prefix="lark",
        assistant="goods",
        session_mode=SessionMode.FRESH,
        group_scope=GroupScope.MEMBER,
        chat_context=0,
        resetters=("ou_ann",),
        remember_events=timedelta(hours=48),
    )
    assert (third.long_connection, third.policy) == (True, ChannelPolicy(prefix="lark"))
    hidden = {name for name, shown in effective(settings).items() if shown.value == "(hidden)"}
    assert hidden == {"lark_app_secret", "lark_encrypt_key"}
    channel = open_lark_channel(third, FakeClock())
    assert (channel.name, channel.app) == ("lark", "cli_3")
    await channel.close()


@pytest.mark.requirement("D22")
@pytest.mark.parametrize(
    ("environ", "setting"),
    [
        ({"TENUTO_LARK_APP_ID": "cli_1"}, "lark_app_secret"),
        ({"TENUTO_LARK_ENCRYPT_KEY": "k"}, "lark_app_id"),
        ({"TENUTO_LARK_ASSISTANT": "npc"}, "lark_app_id"),
        ({"TENUTO_LARK_APP_ID": "cli_1", "TENUTO_LARK_APP_SECRET": "s"}, "lark_encrypt_key"),
        ({**APP, "TENUTO_LARK_DOMAIN": "http://open.feishu.cn"}, "lark_domain"),
    ],
)
def test_half_a_configuration_stops_the_start(environ: dict[str, str], setting: str) -> None:
    """The sentence names the setting that is missing or wrong."""
    with pytest.raises(InvalidSetting) as excinfo:
        read_settings(environ)

    assert excinfo.value.setting == setting


@pytest.mark.requirement("D22")
@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('app_secret = "hush"', "app_id"),
        ('app_id = "cli_2"\napp_secret = "hush"', "could be forged"),
        ('app_id = "cli_2"\napp_secret_env = "NOT_THERE"', "the variable NOT_THERE is not set"),
        ('app_id = "cli_2"\napp_secret = "hush"\napp_secret_env = "PATH"', "contradicts app_secret"),
        ('app_id = "cli_2"\napp_secret = "hush"\nsesion_mode = "fresh"', "did you mean session_mode"),
        ('app_id = "cli_2"\napp_secret = "hush"\nencrypt_key = "k"\nsession_mode = "often"', "session_mode"),
        ('app_id = "cli_2"\napp_secret = "hush"\nencrypt_key = "k"\nremember_events = "1h"', "at least 8h"),
        ('app_id = "cli_1"\napp_secret = "hush"\nencrypt_key = "k"', "cli_1 is configured twice"),
        ("app_id = ", "is not TOML"),
        ("[[slack]]", "slack is unknown"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, table: str, why: str) -> None:
    """With a sentence, and without the secrets in it."""
    file = tmp_path / "channels.toml"
    file.write_text(f"[[lark]]\n{table}\n")

    with pytest.raises(InvalidSetting) as excinfo:
        lark_apps(read_settings({**APP, "TENUTO_CHANNELS": str(file)}))

    assert why in str(excinfo.value)
    assert "hush" not in str(excinfo.value)
