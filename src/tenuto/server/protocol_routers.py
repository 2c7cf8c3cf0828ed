"""Routes of other protocols, which answer errors in their own shape."""

from __future__ import annotations

import functools
import logging
from abc import abstractmethod

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tenuto.errors import TenutoError
from tenuto.server.openapi import Router
from tenuto.server.problems import AccessDenied
from tenuto.server.routing import Endpoint

_log = logging.getLogger(__name__)


class ProtocolRouter(Router):
    """Routes whose errors `failure` and `internal_failure` answer."""

    @abstractmethod
    def failure(self, request: Request, error: TenutoError | AccessDenied) -> Response:
        """The response to an error that a caller is told of."""

    @abstractmethod
    def internal_failure(self, request: Request) -> Response:
        """The response to an error that was not expected; it is logged already."""

    def _wrap(self, endpoint: Endpoint) -> Endpoint:
        @functools.wraps(endpoint)
        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except (TenutoError, AccessDenied) as error:
                return self.failure(request, error)
            except ClientDisconnect:
                raise
            except Exception:
                _log.exception("a request failed")
                return self.internal_failure(request)

        return answer
