"""Outside its scope a session does not exist, and no id, however odd, reaches out of its own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tenuto.model import Scope
from tests.clock import FakeClock
from tests.journeys.conftest import GROUNDS, Ground
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, at, code, http_service, says, user
from tests.journeys.session_requests import SESSION_REQUESTS
from tests.samples import odd_texts

# With an L1 and with records that can be damaged, so that hot and cold, whole and damaged can be told apart, if at all.
pytestmark = pytest.mark.parametrize(
    "ground", [ground for ground in GROUNDS if ground.backend], ids=lambda ground: ground.name, indirect=True
)


@pytest.fixture
async def service(fake_clock: FakeClock, store_url: str) -> AsyncIterator[HttpService]:
    async with http_service(clock=fake_clock, store=store_url) as service:
        yield service


async def _secrets(
    service: HttpService, ground: Ground, fake_clock: FakeClock, wanted: str
) -> list[tuple[str, dict[str, str]]]:
    """Sessions that are there in one way or another, each for one kind of question, and who asks for them in vain."""
    absent, expired, deleted, corrupt, hot, cold = (
        f"{state} to {wanted}" for state in ("absent", "expired", "deleted", "corrupt", "hot", "cold")
    )
    for name in (expired, deleted, corrupt, hot, cold):
        await service.http.post("/v1/sessions", headers=ANN, json={"id": name, "title": "secret"})
        if name == expired:
            fake_clock.advance(timedelta(days=31))
    await service.http.delete(at(deleted), headers=ANN)
    await service.http.get(at(hot), headers=ANN)
    assert ground.backend is not None
    assert ground.backend.damage is not None
    await ground.backend.damage(service.tenuto.stores.unredacted, Scope(tenant="acme", user="ann"), corrupt)
    return [
        (absent, ANN),
        (expired, ANN),
        (deleted, ANN),
        (corrupt, ANN),
        (hot, BOB),
        (cold, BOB),
        (hot, EVE),
        (cold, EVE),
        (hot, {**ANN, "X-Site-ID": "elsewhere"}),
    ]


@pytest.mark.requirement("A7", "T1")
async def test_absent_foreign_expired_deleted_and_corrupt_are_one_answer(
    service: HttpService, ground: Ground, fake_clock: FakeClock, subtests: pytest.Subtests
) -> None:
    """Byte for byte."""
    for wanted, ask in SESSION_REQUESTS.items():
        with subtests.test(wanted):
            in_vain = await _secrets(service, ground, fake_clock, wanted)

            answers = [await ask(service.http, at(name), who) for name, who in in_vain]

            assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
            headers = [{**answer.headers, "x-request-id": ""} for answer in answers]
            assert all(header == headers[0] for header in headers)
            assert b"secret" not in answers[0].content


async def test_a_foreign_session_is_in_no_list(service: HttpService) -> None:
    await service.http.post("/v1/sessions", headers=ANN, json={"title": "secret"})

    for stranger in (BOB, EVE, user("ann", tenant="local")):
        assert (await service.http.get("/v1/sessions", headers=stranger)).json()["sessions"] == []
        assert (await service.http.get("/v1/stats", headers=stranger)).json()["sessions"] == 0


@pytest.mark.requirement("A8", "T2")
async def test_creating_on_a_foreign_id_gives_another_and_warns(
    service: HttpService, caplog: pytest.LogCaptureFixture
) -> None:
    """The owner's session stays as it is."""
    owners = await service.http.post("/v1/sessions", headers=ANN, json={"id": "wanted", "title": "Ann's"})

    with caplog.at_level(logging.WARNING):
        bobs = await service.http.post("/v1/sessions", headers=BOB, json={"id": "wanted", "title": "Bob's"})

    assert bobs.status_code == 201
    assert bobs.json()["id"] != "wanted"
    assert (await service.http.get(at("wanted"), headers=ANN)).json().items() >= owners.json().items()
    assert "wanted" in caplog.text
    assert "user:ann" in caplog.text
    assert "user:bob" in caplog.text


@pytest.mark.requirement("A1")
async def test_the_same_id_in_two_tenants_is_two_sessions(service: HttpService) -> None:
    for who, title in ((ANN, "acme's"), (EVE, "evil's")):
        response = await service.http.post("/v1/sessions", headers=who, json={"id": "s", "title": title})
        assert response.status_code == 201

    assert (await service.http.get(at("s"), headers=ANN)).json()["title"] == "acme's"
    assert (await service.http.get(at("s"), headers=EVE)).json()["title"] == "evil's"


@pytest.mark.requirement("T18")
async def test_an_odd_id_is_an_id_like_any_other(service: HttpService, subtests: pytest.Subtests) -> None:
    """Through the path, in all its routes, in the Location of a new session and in nobody else's way."""
    plain = await service.http.post("/v1/sessions", headers=ANN, json={"id": "a", "title": "plain"})
    for session_id in [*odd_texts("hostile session ids"), "x" * 10_000]:
        with subtests.test(session_id=session_id):
            response = await service.http.post("/v1/sessions", headers=ANN, json={"id": session_id, "title": "odd"})
            sent = await service.http.post(at(session_id, "messages"), headers=ANN, json=says("hello"))

            found = await service.http.get(response.headers["location"], headers=ANN)

            assert (response.status_code, sent.status_code, found.status_code) == (201, 201, 200)
            assert found.json()["id"] == session_id
            assert found.json()["message_count"] == 1
            assert (await service.http.get(plain.headers["location"], headers=ANN)).json()["message_count"] == 0
            assert code(await service.http.get(at(session_id), headers=BOB)) == (404, "session_not_found")
            assert (await service.http.delete(at(session_id), headers=ANN)).status_code == 204


async def test_an_odd_tenant_keeps_to_itself(service: HttpService, subtests: pytest.Subtests) -> None:
    for tenant in ("a:b", "../x", "*", "你好", "a b", "x" * 5000):
        with subtests.test(tenant=tenant):
            who = {b"X-Tenant-ID": tenant.encode(), b"X-User-ID": b"ann"}

            response = await service.http.post("/v1/sessions", headers=who, json={"id": "s"})

            assert response.json()["tenant"] == tenant
            assert code(await service.http.get(at("s"), headers=ANN)) == (404, "session_not_found")


@pytest.mark.requirement("D16", "D18")
async def test_a_chat_belongs_to_all_in_it(service: HttpService) -> None:
    """Who speaks is said by the request, whose session it is by the chat."""
    room = {"X-Channel": "lark", "X-Chat-ID": "oc_1"}
    response = await service.http.post("/v1/sessions", headers={**ANN, **room}, json={"id": "group"})

    assert response.status_code == 201
    assert (await service.http.get(at("group"), headers={**BOB, **room})).status_code == 200
    assert (await service.http.get(at("group"), headers=BOB)).status_code == 404
    assert code(await service.http.get("/v1/sessions", headers={**ANN, "X-Thread-ID": "t"})) == (400, "invalid")
