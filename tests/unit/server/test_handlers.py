"""Handlers are functions of values, and their signatures say what a route takes and answers."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tenuto.model import Scope
from tenuto.model.values import View
from tenuto.server.handlers import Answer, HandlerTypes, bind
from tenuto.server.json_io import Precondition, QueryParameters
from tenuto.server.openapi import Router
from tenuto.server.requests import SessionListQuery
from tenuto.server.sessions import created_session, list_sessions
from tenuto.sessions import Sessions
from tenuto.sessions.views import SessionView
from tests.samples import ANN
from tests.unit.sessions.memory_sessions import MemorySessions


class Sum(View, frozen=True, kw_only=True):
    """A sum."""

    total: int


class Addends(QueryParameters, kw_only=True, frozen=True):
    """What to add."""

    second: int = 1


routes = Router()


@routes.get("/sums/{first}", 201, 200)
async def add(first: str, query: Addends, idempotency_key: str | None) -> Sum | Answer[Sum]:
    total = Sum(total=int(first) + query.second)
    return total if idempotency_key is None else Answer(total, headers={"Location": idempotency_key})


@routes.delete("/sums/{first}")
async def forget(first: str) -> None:
    assert first


async def test_a_handler_is_called_without_a_request() -> None:
    sessions: Sessions = MemorySessions().sessions()
    session, _ = await sessions.create(ANN, None, "trip/1")

    listed = await list_sessions(ANN, sessions, SessionListQuery(limit=1))

    assert [view.id for view in listed.sessions] == ["trip/1"]
    assert created_session(session).headers == {"Location": "/v1/sessions/trip%2F1"}


def test_path_query_and_headers_are_read_and_statuses_follow() -> None:
    with TestClient(Starlette(routes=routes.routes)) as client:
        plain = client.get("/sums/2", params={"second": 3})
        headed = client.get("/sums/2", headers={"Idempotency-Key": "k"})
        response = client.delete("/sums/2")

    assert (plain.status_code, plain.json()) == (201, {"total": 5})
    assert (headed.status_code, headed.json(), headed.headers["location"]) == (200, {"total": 3}, "k")
    assert (response.status_code, response.content) == (204, b"")


def test_a_signature_says_what_the_document_says() -> None:
    async def change(scope: Scope, session_id: str, precondition: Precondition, body: dict[str, str]) -> SessionView:
        pytest.fail("`bind` reads the signature, and calls nothing")

    assert bind(change, "/sessions/{session_id}", ())[1] == HandlerTypes(
        statuses=(200,), answer=SessionView, body=dict[str, str], query=None, headers=("If-Match", "If-None-Match")
    )


def test_a_parameter_that_is_nowhere_is_refused() -> None:
    async def odd(body: Sum, elsewhere: str) -> None:
        """Is bound, and never called."""

    with pytest.raises(AssertionError, match="elsewhere of odd"):
        bind(odd, "/", ())
