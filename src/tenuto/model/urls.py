"""Addresses of other servers, as an operator configures them."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from tenuto.errors import InvalidSetting


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether an address or host name is that of this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")


def check_url(url: str, setting: str, *, plain_http: bool = False) -> None:
    """Check an address that texts are sent to; without `plain_http` only this machine is reached without TLS.

    Raises:
        InvalidSetting: it is no address, or one without TLS.
    """
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError:
        raise InvalidSetting(setting, "is not an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or any(map(str.isspace, url)):
        raise InvalidSetting(setting, "must be an address that begins with https:// or http://")
    if parts.scheme == "http" and not plain_http and not is_loopback(parts.hostname):
        raise InvalidSetting(setting, "must begin with https://; plain http is for loopback alone")
