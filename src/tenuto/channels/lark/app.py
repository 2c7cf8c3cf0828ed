"""An app of the platform as it is configured here."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from tenuto.errors import InvalidSetting
from tenuto.model.channel import ChannelPolicy
from tenuto.model.urls import is_loopback
from tenuto.model.values import Value

FEISHU: Final = "https://open.feishu.cn"


class LarkApp(Value, frozen=True, kw_only=True):
    """A self-built app with a bot. With `cards` an answer is shown in a card while it grows.

    Events come as callbacks, or through a `long_connection` that this process opens. Callbacks need an `encrypt_key`,
    which signs them, or at least a `verification_token`: without both, any request could be forged.
    """

    app_id: str
    app_secret: str
    encrypt_key: str | None = None
    verification_token: str | None = None
    domain: str = FEISHU
    long_connection: bool = False
    cards: bool = True
    policy: ChannelPolicy = ChannelPolicy(prefix="lark")

    def __post_init__(self) -> None:
        for name in ("app_id", "app_secret"):
            value: str = getattr(self, name)
            if not value or not value.isascii() or not value.isprintable():
                raise InvalidSetting(f"lark_{name}", "is empty or contains characters that no such value has")
        if not (self.encrypt_key or self.verification_token or self.long_connection):
            why = "is missing, and so is lark_verification_token: without one of them any request could be forged"
            raise InvalidSetting("lark_encrypt_key", why)
        _check_domain(self.domain)

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"LarkApp(app_id={self.app_id!r})"


def _check_domain(domain: str) -> None:
    try:
        url = urlsplit(domain)
        host, path, _ = url.hostname or "", url.path.rstrip("/"), url.port
    except ValueError:
        raise InvalidSetting("lark_domain", "is not an address; write for example https://open.larksuite.com") from None
    if not host or path or url.query or url.fragment or url.username is not None:
        raise InvalidSetting("lark_domain", "wants scheme and host alone, for example https://open.larksuite.com")
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(host)):
        raise InvalidSetting("lark_domain", "must begin with https://; plain http is for loopback alone")
