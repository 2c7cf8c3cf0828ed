"""What the routes work with: the open installation, the gate, the meters."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from tenuto.app import Tenuto
from tenuto.chat import Chat
from tenuto.ports import Clock
from tenuto.server.auth import Gate
from tenuto.sessions import Sessions
from tenuto.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """An installation that is open and being served."""

    settings: Settings
    tenuto: Tenuto
    chat: Chat
    gate: Gate
    clock: Clock

    @property
    def sessions(self) -> Sessions:
        """Its sessions."""
        return self.tenuto.sessions


def service(request: Request) -> ServerContext:
    """The service that this request reached."""
    found: ServerContext = request.app.state.service
    return found


def sessions(request: Request) -> Sessions:
    """The sessions that this request is about."""
    return service(request).sessions
