"""Erasing over HTTP: what goes with a user, who may ask for it, and what the receipt says."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.access import KeyRole
from tenuto.model import Scope
from tenuto.model.privacy import VAULT
from tenuto.privacy.compliance.receipts import parse_receipt, verify_receipt
from tests.journeys.http_service import HttpService, at, code, http_service, says
from tests.journeys.json_web_tokens import JWT_SECRET, jwt_header
from tests.journeys.private_chat import MAIL, PSEUDONYMS, ask, messages_of, reveal


@pytest.mark.requirement("S3")
async def test_a_user_who_is_erased_is_gone_from_everywhere(store_url: str) -> None:
    """Sessions, traces, vault, keys; of what they said in a group the words; others keep theirs."""
    async with http_service(store=store_url, locked=True, **PSEUDONYMS) as service:
        backend, own = await service.key(role=KeyRole.REVEAL), await service.key(user="ann")
        reply = await ask(service, own)
        session, trace = reply["session_id"], reply["trace_id"]
        bobs = (await ask(service, {**backend, "X-User-ID": "bob"}))["session_id"]
        group = {**backend, "X-User-ID": "ann", "X-Channel": "lark", "X-Chat-ID": "team"}
        shared = (await ask(service, group))["session_id"]

        done = await service.http.delete("/v1/users/ann", headers=backend)
        service.ticks.now += 5
        gone = await service.http.get(at(session), headers={**backend, "X-User-ID": "ann"})
        untraced = await service.http.get(f"/v1/traces/{trace}", headers={**backend, "X-User-ID": "ann"})
        shut = await service.http.get("/v1/sessions", headers=own)
        unrevealed = await reveal(service, backend, session, "[EMAIL_1]")
        kept = await reveal(service, backend, bobs, "[EMAIL_1]")
        words = await messages_of(service, backend, shared)
        vaults = await service.tenuto.store.state.list_state(Scope(tenant="acme"), VAULT)
        key = (await service.http.get("/v1/privacy", headers=backend)).json()["receipt_key"]

    assert done.status_code == 200
    assert done.json()["counts"]["sessions"] == 1
    assert done.json()["counts"]["shared_messages"] == 1
    assert done.json()["counts"]["api_keys"] == 1
    assert "ann" not in done.text.replace(done.json()["signature"], "").replace(done.json()["public_key"], "")
    assert verify_receipt(parse_receipt(done.content), key)
    assert [code(response) for response in (gone, unrevealed)] == [(404, "session_not_found")] * 2
    assert code(untraced) == (404, "trace_not_found")
    assert code(shut) == (401, "invalid_credential")
    assert kept.json()["values"] == {"[EMAIL_1]": MAIL}
    assert [entry.key for entry in vaults if entry.key not in (bobs, shared)] == []
    assert not [message for message in words if message["speaker"] == "ann"]


@pytest.mark.parametrize("given", [{}, PSEUDONYMS], ids=["keep", "pseudonym"])
async def test_what_somebody_said_in_a_group_goes_with_its_trace_and_its_values(given: dict[str, Any]) -> None:
    async with http_service(locked=True, **given) as service:
        backend = await service.key(role=KeyRole.REVEAL)
        team = {**backend, "X-Channel": "lark", "X-Chat-ID": "team"}
        shared = (await ask(service, {**team, "X-User-ID": "ann"}))["session_id"]
        await ask(service, {**team, "X-User-ID": "ann"}, "What is my mail?", session_id=shared)
        other = "My mail is bob@example.org."
        await ask(service, {**team, "X-User-ID": "bob"}, other, session_id=shared)

        await service.http.delete("/v1/users/ann", headers=backend)
        words = await messages_of(service, backend, shared)
        traces = (await service.http.get("/v1/traces", params={"session_id": shared}, headers=backend)).json()["traces"]
        opened = (await reveal(service, backend, shared, "[EMAIL_1]", "[EMAIL_2]", "[CC_1]")).json()

    kept = "bob@example.org" if not given else "[EMAIL_2]"
    texts = [message["text"] for message in words]
    assert texts[0::2] == ["[ERASED]", "[ERASED]", f"My mail is {kept}."]
    assert "[REDACTED_EMAIL]" in texts[3]
    assert "4242" not in texts[3]
    assert [trace["request"] for trace in traces] == ["My mail is [REDACTED_EMAIL].", "[ERASED]", "[ERASED]"]
    assert opened.get("values") == ({"[EMAIL_2]": "bob@example.org"} if given else None)


async def test_user_messages_of_every_route_have_a_speaker_and_go_with_them() -> None:
    async with http_service(locked=True) as service:
        backend = await service.key()
        team = {**backend, "X-Channel": "lark", "X-Chat-ID": "team"}
        ann, body = {**team, "X-User-ID": "ann"}, {"messages": [says("Hi"), says("Well?", "system")]}
        await service.http.post("/v1/sessions", headers=team, json={"id": "g"})
        for route, named in (("/v1/turns", {"session_id": "g"}), (at("g", "turns"), {})):
            turn = await service.http.post(route, headers=ann, json={**body, **named})
            await service.http.post(f"/v1/turns/{turn.json()['turn_id']}/abandon", headers=team)
        await service.http.post(at("g", "messages"), headers=ann, json=body)
        await service.http.post(at("g", "messages"), headers=ann, json=says("Me too", speaker="bob"))
        await service.http.post(at("g", "messages"), headers=team, json=says("And I"))

        spoken = [message["speaker"] for message in await messages_of(service, backend, "g")]
        response = await service.http.delete("/v1/users/ann", headers=backend)

    assert spoken == [*["ann", None] * 3, "bob", None]
    assert response.json()["counts"]["shared_messages"] == 3


async def test_people_erase_themselves_and_nobody_else() -> None:
    async with http_service(jwt_secret=JWT_SECRET) as service:
        ann, admin = jwt_header("ann"), jwt_header("root", role="admin")
        mine = await ask(service, ann, "Hello!")

        refused = await service.http.delete("/v1/users/bob", headers=ann)
        contradicted = await service.http.delete("/v1/users/bob", headers={**admin, "X-User-ID": "ann"})
        there = await service.http.get(at(mine["session_id"]), headers=ann)
        done = await service.http.delete("/v1/users/ann", headers=ann)
        audit = await service.http.get("/v1/privacy/audit", headers=admin)

    assert [code(response) for response in (refused, contradicted)] == [(403, "scope_mismatch")] * 2
    assert there.status_code == 200
    assert done.json()["counts"]["sessions"] == 1
    assert [note["by"] for note in audit.json()["entries"]] == ["themselves"]
    assert '"ann"' not in audit.text


async def test_asking_to_be_erased_again_and_again_sets_off_nothing_more() -> None:
    """Clearing deleted bytes takes the whole store, so the receipt says when it is left to upkeep."""
    async with http_service(jwt_secret=JWT_SECRET) as service:
        ann, bob = jwt_header("ann"), jwt_header("bob")
        told: list[str] = []
        for who, name in ((ann, "ann"), (ann, "ann"), (bob, "bob")):
            if len(told) != 1:
                await ask(service, who, "Hello!")
            told.append((await service.http.delete(f"/v1/users/{name}", headers=who)).json()["compaction"])

    assert told == ["done", "nothing", "later"]


async def test_an_unknown_user_gets_a_receipt_with_nothing_on_it(service: HttpService) -> None:
    body = (await service.http.delete("/v1/users/no%2Fbody%20here", headers={"X-Tenant-ID": "acme"})).json()

    assert sum(body["counts"].values()) == 0
    assert body["tenant"] == "acme"


async def test_erasing_covers_every_site_unless_one_is_named(locked: HttpService) -> None:
    """The receipt says which; others' data and other tenants' stay."""
    backend, other = await locked.key(), await locked.key("globex")
    for key in (backend, other):
        for site in ("", "museum", "park"):
            await ask(locked, {**key, "X-User-ID": "ann", "X-Site-ID": site}, "Hello!")
    await ask(locked, {**backend, "X-User-ID": "bob", "X-Site-ID": "park"}, "Hello!")

    body = (await locked.http.delete("/v1/users/ann", headers=backend)).json()
    left = [
        len((await locked.http.get("/v1/sessions", headers={**key, "X-Site-ID": site})).json()["sessions"])
        for key in (backend, other)
        for site in ("", "museum", "park")
    ]

    assert (body["sites"], body["counts"]["sessions"]) == (["", "museum", "park"], 3)
    assert left == [0, 0, 1, 1, 1, 1]


async def test_erasing_ends_at_the_site_of_the_credential_or_the_one_it_names(locked: HttpService) -> None:
    backend, museum = await locked.key(), await locked.key(site="museum")
    here = await ask(locked, {**backend, "X-User-ID": "ann", "X-Site-ID": "museum"}, "Hello!")
    there = await ask(locked, {**backend, "X-User-ID": "ann", "X-Site-ID": "park"}, "Hello!")

    response = await locked.http.delete("/v1/users/ann", headers=museum, params={"site_id": "park"})
    body = (await locked.http.delete("/v1/users/ann", headers=museum)).json()
    statuses = [
        (await locked.http.get(at(reply["session_id"]), headers={**backend, "X-Site-ID": site})).status_code
        for reply, site in ((here, "museum"), (there, "park"))
    ]
    named = (await locked.http.delete("/v1/users/ann", headers=backend, params={"site_id": "park"})).json()

    assert code(response) == (403, "scope_mismatch")
    assert (body["sites"], body["counts"]["sessions"]) == (["museum"], 1)
    assert statuses == [404, 200]
    assert (named["sites"], named["counts"]["sessions"]) == (["park"], 1)
