"""In whose shape an address answers an error that no route of it has answered: a problem of ours, or another API's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tenuto.server.anthropic.errors import is_anthropic_request
from tenuto.server.anthropic.errors import problem_as_error as anthropic_error
from tenuto.server.openai.errors import is_openai_address
from tenuto.server.openai.errors import problem_as_error as openai_error
from tenuto.server.problems import Problem, handle_error
from tenuto.server.routing import ApiRoute

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_BELOW: Final = "/v1/"
_PROTOCOLS: Final = ("openai", "anthropic")


def own_addresses(routes: Iterable[BaseRoute]) -> frozenset[str]:
    """The first segments below `/v1` that lead to routes of ours."""
    paths = [route.path for route in routes if isinstance(route, ApiRoute) and route.tag not in _PROTOCOLS]
    return frozenset(path.split("/")[2] for path in paths if path.startswith(_BELOW))


def in_shape_of(
    path: str, problem: Response, headers: Mapping[str, str] = _NO_HEADERS, own: frozenset[str] | None = None
) -> Response:
    """A problem as the clients of this address read it. All addresses below `/v1` but our `own` are those of other
    APIs; where it is not known which are ours, those that OpenAI and Anthropic have are."""
    segment = path.removeprefix(_BELOW).split("/")[0]
    foreign = f"{path}/".startswith(_BELOW) and own is not None and segment not in own
    is_openai = foreign or is_openai_address(path)
    is_anthropic = is_anthropic_request(path, headers) and (is_openai or is_anthropic_request(path, _NO_HEADERS))
    if not (is_openai or is_anthropic):
        return problem
    fields = msgspec.json.decode(bytes(problem.body), type=Problem)
    kept = {name: value for name, value in problem.headers.items() if not name.startswith("content-")}
    return (anthropic_error if is_anthropic else openai_error)(fields, kept)


async def handle_http_error(request: Request, error: Exception) -> Response:
    """The answer where no route fits."""
    own: frozenset[str] = request.app.state.own_addresses
    return in_shape_of(request.scope["path"], await handle_error(request, error), request.headers, own)
