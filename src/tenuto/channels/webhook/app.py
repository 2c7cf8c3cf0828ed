"""A platform behind a webhook, as it is configured here."""

from __future__ import annotations

import re
from typing import Final

from tenuto.errors import Invalid, InvalidSetting
from tenuto.model.channel import ChannelPolicy
from tenuto.model.scope import check_tenant_id
from tenuto.model.signature import read_signing_key
from tenuto.model.urls import check_url
from tenuto.model.values import Value

CHANNEL: Final = "webhook"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class WebhookApp(Value, frozen=True, kw_only=True):
    """A platform behind `POST /webhook/{name}/messages`; replies are posted to `reply_url`.

    One `secret` signs both directions. All its messages belong to the `tenant`, or to the tenant that each names if
    they may (`tenant_from_body`).
    """

    name: str
    secret: str
    reply_url: str
    tenant: str
    tenant_from_body: bool = False
    policy: ChannelPolicy = ChannelPolicy(prefix=CHANNEL)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting("name", "is part of an address: 1 to 64 letters, digits, - and _")
        read_signing_key(self.secret, "secret")
        check_url(self.reply_url, "reply_url")
        try:
            check_tenant_id(self.tenant)
        except Invalid as error:
            raise InvalidSetting("tenant", str(error)) from None

    def __repr__(self) -> str:
        """Without its secret."""
        return f"WebhookApp(name={self.name!r})"
