"""A bot on Lark or Feishu: events in, replies out. The channel itself stands in `channel.py`, which needs httpx."""

from __future__ import annotations

from tenuto.channels.lark.app import LarkApp

__all__ = ["LarkApp"]
