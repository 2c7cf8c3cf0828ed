"""API keys over HTTP: the first one closes the server, admins make and revoke those of their tenant, and no others."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tenuto.access import KeyRole
from tenuto.model import EraseResult, Scope
from tests.clock import FakeClock
from tests.journeys.http_service import HttpService, bearer, code, http_service

KEYS = "/v1/keys"


async def create(service: HttpService, who: dict[str, str], **body: Any) -> httpx.Response:
    return await service.http.post(KEYS, headers=who, json=body)


async def ids(service: HttpService, who: dict[str, str], **query: Any) -> list[str]:
    listed = await service.http.get(KEYS, headers=who, params=query)
    assert listed.status_code == 200, listed.text
    return [key["id"] for key in listed.json()["keys"]]


async def test_the_first_key_closes_the_server_at_once_and_is_shown_once(
    fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What was made before belongs to the same tenant; no log line and no later answer has the secret."""
    caplog.set_level(logging.DEBUG, "tenuto")
    async with http_service(clock=fake_clock) as service:
        await service.http.post("/v1/sessions", json={"id": "before"})
        other_site = await create(
            service, {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, role="admin"
        )
        none = await ids(service, {})
        made = await create(service, {}, role="admin", name="laptop")
        without = await service.http.get(KEYS)
        key, admin = made.json()["key"], bearer(made.json()["secret"])
        before = await service.http.get("/v1/sessions/before", headers=admin)
        listed = await service.http.get(KEYS, headers=admin)
        fake_clock.advance(timedelta(hours=2))
        service.ticks.now += 2
        again = await service.http.get(KEYS, headers=admin)

    assert (code(other_site), none) == ((403, "host_not_allowed"), [])
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    assert (key["tenant"], key["role"], key["last_used_at"]) == ("local", "admin", None)
    assert code(without) == (401, "invalid_credential")
    assert before.status_code == 200
    used = [answer.json()["keys"][0]["last_used_at"] for answer in (listed, again)]
    assert used == [key["created_at"], fake_clock().isoformat().replace("+00:00", "Z")]
    assert made.json()["secret"].split("_", 2)[2] not in caplog.text + listed.text + again.text


async def test_an_admin_makes_and_revokes_the_keys_of_the_tenant(locked: HttpService) -> None:
    """A revoked key is refused with the next request; pages of the list join without a gap."""
    admin = await locked.key("acme", role=KeyRole.ADMIN)
    made = [
        (await create(locked, admin, **body)).json()
        for body in ({"user_id": "ann"}, {"agent": "reader"}, {"site_id": "museum", "role": "admin"})
    ]
    ann = bearer(made[0]["secret"])
    worked = await locked.http.get("/v1/sessions", headers=ann)
    revoked = await locked.http.delete(f"{KEYS}/{made[0]['key']['id']}", headers=admin)
    again = await locked.http.delete(f"{KEYS}/{made[0]['key']['id']}", headers=admin)
    response = await locked.http.get("/v1/sessions", headers=ann)
    first = (await locked.http.get(KEYS, headers=admin, params={"limit": 3})).json()
    rest = await ids(locked, admin, cursor=first["cursor"])

    assert [key["key"][name] for key, name in zip(made, ("user", "agent", "site"), strict=True)] == [
        *("ann", "reader", "museum")
    ]
    assert (worked.status_code, revoked.status_code, code(response)) == (200, 200, (401, "invalid_credential"))
    assert revoked.json()["revoked_at"] is not None
    assert again.json() == revoked.json()
    newest = [key["id"] for key in first["keys"]]
    assert newest + rest == await ids(locked, admin)
    assert {key["key"]["id"] for key in made} < {*newest, *rest}
    unknown = await locked.http.get(KEYS, headers=admin, params={"cursor": "0" * 16})
    assert code(unknown) == (400, "invalid_cursor")


@pytest.mark.requirement("A7", "T1")
async def test_keys_are_out_of_reach_for_all_but_admins_of_their_tenant_and_site(locked: HttpService) -> None:
    """Nor does an admin give a right that the admin lacks."""
    admin, museum = [await locked.key("acme", role=KeyRole.ADMIN, site=site) for site in (None, "museum")]
    key, _ = await locked.keys.create(tenant="acme", user="ann")
    others = [
        await locked.key("acme"),
        await locked.key("acme", user="ann"),
        await locked.key("acme", role=KeyRole.REVEAL),
        await locked.key("acme", agent="reader"),
    ]
    strangers = [await locked.key("evil", role=KeyRole.ADMIN), museum]

    for who in others:
        tries = [
            await locked.http.get(KEYS, headers=who),
            await create(locked, who, role="admin"),
            await locked.http.delete(f"{KEYS}/{key.id}", headers=who),
        ]
        assert {code(answer) for answer in tries} == {(403, "forbidden")}
    for who in strangers:
        assert key.id not in await ids(locked, who)
        response = await locked.http.delete(f"{KEYS}/{'0' * 16}", headers=who)
        foreign = await locked.http.delete(f"{KEYS}/{key.id}", headers=who)
        assert (code(foreign), foreign.content) == ((404, "api_key_not_found"), response.content)
    assert code(await create(locked, admin, tenant_id="evil")) == (403, "scope_mismatch")
    assert code(await create(locked, museum, site_id="shop")) == (403, "scope_mismatch")
    assert (await create(locked, museum)).json()["key"]["site"] == "museum"
    assert code(await create(locked, admin, role="privacy.reveal")) == (403, "forbidden")
    assert code(await create(locked, admin, role="admin", agent="reader")) == (400, "invalid")


@pytest.mark.requirement("A7")
@pytest.mark.parametrize(
    ("eraser", "ended"),
    [
        ({}, {"member", "site"}),
        ({"role": KeyRole.REVEAL}, {"member", "site"}),
        ({"site": "museum"}, {"site"}),
        ({"user": "root"}, {"member", "site"}),
        ({"site": "museum", "role": KeyRole.ADMIN}, {"site", "site admin"}),
        ({"role": KeyRole.ADMIN}, {"member", "site", "admin", "site admin", "elsewhere"}),
    ],
    ids=str,
)
async def test_erasing_a_user_ends_the_keys_within_reach_of_the_credential(
    locked: HttpService, eraser: dict[str, Any], ended: set[str]
) -> None:
    """The data goes in any case; an admin's key ends by an admin's, and the receipt counts what still holds."""
    keys = {
        "member": await locked.key(user="root"),
        "site": await locked.key(user="root", site="museum"),
        "elsewhere": await locked.key(user="root", site="shop", role=KeyRole.OPERATOR),
        "admin": await locked.key(user="root", role=KeyRole.ADMIN),
        "site admin": await locked.key(user="root", site="museum", role=KeyRole.ADMIN),
        "other user": await locked.key(user="ann"),
        "other tenant": await locked.key("evil", user="root"),
    }
    credential = await locked.key(**eraser)
    for key in keys.values():  # So that each is known to the door.
        await locked.http.get("/v1/scope", headers=key)

    erased = await locked.http.delete("/v1/users/root", headers=credential)

    answers = {name: await locked.http.get("/v1/scope", headers=key) for name, key in keys.items()}
    assert {name for name, answer in answers.items() if answer.status_code == 401} == ended
    counts = erased.json()["counts"]
    there = {"member", "site", "admin", "site admin"} | (set() if "site" in eraser else {"elsewhere"})
    own = eraser == {"user": "root"}  # The credential itself is one of the user's, and ends.
    assert (counts["api_keys"], counts.get("api_keys_left", 0)) == (len(ended) + own, len(there - ended))


@pytest.mark.requirement("A7")
async def test_the_keys_of_a_user_end_before_their_data_is_removed(
    locked: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that still writes leaves nothing behind the receipt; the caller can repeat a call that failed."""
    own, client = await locked.key(user="root"), await locked.key(user="root", site="museum")
    for key in (own, client):  # So that each is known to the door.
        await locked.http.get("/v1/scope", headers=key)
    sessions, during = locked.tenuto.sessions, []
    remove = sessions.erase

    async def look_and_erase(scope: Scope, limit: int) -> EraseResult:
        during.append([(await locked.http.get("/v1/scope", headers=key)).status_code for key in (own, client)])
        return await remove(scope, limit)

    monkeypatch.setattr(sessions, "erase", look_and_erase)

    erased = await locked.http.delete("/v1/users/root", headers=own)

    assert during[0] == [200, 401]
    assert (await locked.http.get("/v1/scope", headers=own)).status_code == 401
    counts = erased.json()["counts"]
    assert (counts["api_keys"], counts.get("api_keys_left")) == (2, None)
