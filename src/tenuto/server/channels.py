"""Deliveries of chat platforms: verified, stored, acknowledged. The answer follows on the platform's own way.

The platform's signature is the credential. The routes exist only where an app is configured.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenuto import wiring
from tenuto.app import Tenuto
from tenuto.errors import DeliveryRefused, QueueFull, Unavailable
from tenuto.gateway.service import Gateway
from tenuto.model.channel import Delivery
from tenuto.ports import Clock
from tenuto.server.auth import service
from tenuto.server.json_io import read_body
from tenuto.server.problems import problem_response
from tenuto.settings import Settings
from tenuto.wiring.channels import channel_apps, lark_apps, webhook_apps

_log = logging.getLogger(__name__)


def channel_routes(settings: Settings) -> list[Route]:
    """The routes of the configured channels."""
    routes = [Route("/lark/events", receive_lark_event, methods=["POST"])] if lark_apps(settings) else []
    if webhook_apps(settings):
        routes.append(Route("/webhook/{name}/messages", receive_webhook_message, methods=["POST"]))
    return routes


@asynccontextmanager
async def serving_channels(tenuto: Tenuto, clock: Clock) -> AsyncIterator[tuple[Gateway, ...]]:
    """Meanwhile, messages of the configured channels are answered; those of long connections are received as well."""
    apps = channel_apps(tenuto.settings)
    if not apps:
        yield ()
        return
    async with wiring.open_gateways(apps, tenuto.gateway, clock) as gateways:
        yield gateways


async def receive_lark_event(request: Request) -> Response:
    """A callback of Lark or Feishu."""
    return await _receive(request, [one for one in request.app.state.gateways if one.channel.name == "lark"])


async def receive_webhook_message(request: Request) -> Response:
    """A message of a platform behind a webhook."""
    address = ("webhook", request.path_params["name"])
    gateways = request.app.state.gateways
    return await _receive(request, [one for one in gateways if (one.channel.name, one.channel.app) == address])


async def _receive(request: Request, gateways: Sequence[Gateway]) -> Response:
    body = await read_body(request, service(request).settings.max_body_bytes)
    delivery = Delivery(body=body, headers=dict(request.headers))
    try:
        gateway = _addressed(gateways, delivery)
        answer = await gateway.receive(delivery)
    except (QueueFull, Unavailable) as error:
        _log.warning("a delivery must be sent again: %s", error)
        raise
    except DeliveryRefused as error:
        _log.warning("a delivery is refused: %s", error)
        return problem_response(401 if error.forged else 400, error.code, str(error))
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _addressed(gateways: Sequence[Gateway], delivery: Delivery) -> Gateway:
    """The gateway of the app that a delivery is for: the one that can verify it.

    Raises:
        DeliveryRefused: none can.
    """
    refusals: list[DeliveryRefused] = []
    for gateway in gateways:
        try:
            gateway.channel.verify(delivery)
        except DeliveryRefused as error:
            _log.warning("a delivery is not for app %s: %s", gateway.channel.app, error)
            refusals.append(error)
        else:
            return gateway
    raise refusals[0] if len(refusals) == 1 else DeliveryRefused("no app here can verify it", forged=True)
