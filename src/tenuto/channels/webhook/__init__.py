"""Signed JSON in and out, for any platform without a channel of its own. `channel.py` needs httpx."""

from __future__ import annotations

from tenuto.channels.webhook.app import WebhookApp

__all__ = ["WebhookApp"]
