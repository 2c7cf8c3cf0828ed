"""The HTTP door."""

from tenuto.server.app import create_app
from tenuto.server.run import serve

__all__ = ["create_app", "serve"]
