"""One person at several doors: linked by a code, a claim or an admin, recalled as one, and parted again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tenuto.access import KeyRole
from tenuto.access.people import WRONG_CODES
from tenuto.llm import ScriptedModel
from tenuto.model import Scope
from tenuto.model.scope import user_digest
from tenuto.sessions.profiles import Profiles
from tests.clock import FakeClock
from tests.journeys.http_service import HttpService, at, code, http_service, user
from tests.journeys.json_web_tokens import JWT_SECRET, jwt_header
from tests.journeys.lark_bot import ALICE, BOB, bot
from tests.lark_platform import LarkPlatform, start_lark_platform

HARBOUR = "I work on the harbour project."
PEANUTS, BOLOGNA = "I am allergic to peanuts.", "I live in Bologna with my two cats."


async def remember(service: HttpService, who: dict[str, str], text: str, **fields: Any) -> str:
    response = await service.http.post("/v1/memories", headers=who, json={"text": text, **fields})
    assert response.status_code in (200, 201), response.text
    memory: str = response.json()["id"]
    return memory


async def remembered(service: HttpService, who: dict[str, str]) -> set[str]:
    response = await service.http.get("/v1/memories", headers=who)
    return {memory["text"] for memory in response.json()["memories"]}


async def new_code(service: HttpService, who: dict[str, str]) -> str:
    response = await service.http.post("/v1/person/code", headers=who)
    assert response.status_code == 201, response.text
    text: str = response.json()["code"]
    return text


async def use_code(service: HttpService, who: dict[str, str], text: str) -> httpx.Response:
    return await service.http.post("/v1/person/link", headers=who, json={"code": text})


@pytest.fixture
async def platform() -> AsyncIterator[LarkPlatform]:
    async with start_lark_platform() as platform:
        yield platform


async def test_one_person_on_lark_on_the_web_and_in_a_terminal(platform: LarkPlatform) -> None:
    """Linked by codes, told at both doors, recalled as one; a group's talk and strangers stay what they are."""
    chat, group, bobs = platform.p2p(ALICE), platform.group(ALICE, BOB), platform.p2p(BOB)
    async with bot(platform, ScriptedModel(*["Noted."] * 8), memories_in_groups=True) as lark:
        service, people = lark.service, lark.service.tenuto.people
        tenant = platform.app.tenant_key
        web, bob = user("ann", tenant), user(BOB, tenant)
        terminal = Scope(tenant=tenant, user="ann@laptop")
        await lark.answer(chat, ALICE, PEANUTS)
        await lark.answer(group, ALICE, HARBOUR, mention_bot=True)
        await service.tenuto.upkeep.drain()
        await remember(service, web, BOLOGNA)

        in_public = [
            await lark.answer(group, ALICE, text, mention_bot=True) for text in ("/link", "/link 0", "/unlink")
        ]
        shown = await lark.answer(chat, ALICE, "/link")
        linked = await use_code(service, web, shown.split("\n")[0].rpartition(" ")[2])
        told = [await lark.answer(chat, ALICE, "Good.") for _ in range(2)]
        typed = await lark.answer(chat, ALICE, f"/link {(await people.show_code(terminal)).text.lower()}")
        wrong = await lark.answer(bobs, BOB, "/link 7K3QD-M2XVA")
        together = [await remembered(service, who) for who in (web, user("ann@laptop", tenant), bob)]
        of_group = await remembered(service, {**web, "X-Channel": "lark", "X-Chat-ID": group.id})
        sessions = (await service.http.get("/v1/sessions", headers=web)).json()["sessions"]
        parted = [await lark.answer(chat, ALICE, "/unlink") for _ in range(2)]
        apart = [await remembered(service, user(who, tenant)) for who in ("ann", ALICE, "ann@laptop")]

    assert set(in_public) == {"Please write this to me alone, not in a group."}
    assert {identity["user"] for identity in linked.json()["identities"]} == {"ann", ALICE}
    assert ("linked with another one" in told[0], told[1]) == (True, "Noted.")
    assert typed.startswith("Linked: what is remembered of you is now shared by 3 accounts.")
    assert wrong == "此关联码无法使用。请在另一个入口重新获取。"
    assert of_group == {HARBOUR}
    assert together == [{PEANUTS, BOLOGNA}, {PEANUTS, BOLOGNA}, set()]
    assert sessions == []
    assert parted[0].startswith("This account is parted from the others.")
    assert parted[1] == "This account is not linked with another one."
    assert apart == [{BOLOGNA}, {PEANUTS}, {BOLOGNA}]


async def test_no_refusal_of_a_code_tells_its_cause() -> None:
    clock = FakeClock()
    async with http_service(clock=clock, locked=True) as service:
        backend, foreign = await service.key(), await service.key(tenant="evil")
        ann, eve = {**backend, "X-User-ID": "ann"}, {**foreign, "X-User-ID": "eve"}
        used = await new_code(service, ann)
        await use_code(service, {**backend, "X-User-ID": "ann@laptop"}, used)
        own, other_tenant = await new_code(service, ann), await new_code(service, eve)
        wrong = [("used", used), ("foreign", other_tenant), ("made up", "7K3QD-M2XVA"), ("none of ours", "hello")]
        refusals = [await use_code(service, {**backend, "X-User-ID": who}, text) for who, text in wrong]
        refusals.append(await use_code(service, ann, own))
        clock.advance(timedelta(minutes=10))
        refusals.append(await use_code(service, {**backend, "X-User-ID": "late"}, own))
        tries = [await use_code(service, {**backend, "X-User-ID": "eager"}, "0") for _ in range(WRONG_CODES + 1)]

    assert {code(response) for response in refusals} == {(404, "link_code_refused")}
    assert len({response.content for response in refusals}) == 1
    assert code(tries[-1]) == (429, "too_many_link_codes")
    assert int(tries[-1].headers["Retry-After"]) == 600


async def test_whose_key_may_link_read_and_part() -> None:
    """A key reads what is remembered of its person; sessions, and other people, stay closed to it."""
    async with http_service(locked=True) as service:
        admin, ann, eve = (
            await service.key(role=KeyRole.ADMIN), await service.key(user="ann"), await service.key(user="eve"),
        )  # fmt: skip
        backend = await service.key()
        lark = {**backend, "X-User-ID": "ou_ann"}
        peanuts = await remember(service, lark, PEANUTS)
        session = (await service.http.post("/v1/sessions", headers=lark, json={})).json()["id"]

        forbidden = [
            await service.http.post("/v1/person/identities", headers=who, json={"user_id": "ou_ann"})
            for who in (ann, eve, lark)
        ]
        linked = await service.http.post(
            "/v1/person/identities", headers={**admin, "X-User-ID": "ann"}, json={"user_id": "ou_ann"}
        )
        read = await service.http.get(f"/v1/memories/{peanuts}", headers=ann)
        unread = await service.http.get(f"/v1/memories/{peanuts}", headers=eve)
        closed = await service.http.get(at(session), headers=ann)
        nobody = await service.http.get("/v1/person", headers=backend)
        foreign = await service.http.delete("/v1/person/identities/ou_ann", headers=eve)
        parted = await service.http.delete("/v1/person/identities/ou_ann", headers=ann)
        unread_again = await service.http.get(f"/v1/memories/{peanuts}", headers=ann)
        nameless = await service.http.post("/v1/person/code", headers=backend)
        audit = (await service.http.get("/v1/privacy/audit", headers=admin)).json()["entries"]

    assert {code(response) for response in forbidden} == {(403, "forbidden")}
    assert linked.json()["identities"][0]["how"] == "admin"
    assert (read.json()["text"], parted.json()["identities"]) == (PEANUTS, [])
    assert [code(one) for one in (unread, unread_again)] == [(404, "memory_not_found")] * 2
    assert (code(closed), code(foreign)) == ((404, "session_not_found"), (404, "identity_not_found"))
    assert (nobody.json()["identities"], code(nameless)) == ([], (400, "invalid"))
    assert [(entry["act"], entry["by"].split()[0]) for entry in audit] == [
        ("linked", "key"),
        ("unlinked", "themselves"),
    ]
    assert "ou_ann" not in str(audit)


async def test_a_verified_claim_links_and_one_that_is_not_verified_does_not() -> None:
    async with http_service(jwt_secret=JWT_SECRET, jwt_person_claim="employee") as service:
        web, phone = jwt_header("ann", employee="e7"), jwt_header("ann.mobile", employee="e7")
        await remember(service, web, BOLOGNA)
        without, forged = jwt_header("mallory"), {**jwt_header("mallory"), "employee": "e7"}
        found = [await remembered(service, who) for who in (phone, without, forged, jwt_header("bob", employee="e8"))]
        by_admin = await service.http.delete("/v1/person/identities/ann.mobile", headers=web)
        parted = await remembered(service, phone)
        moved = await remembered(service, jwt_header("bob", employee="e7"))

    assert found == [{BOLOGNA}, set(), set(), set()]
    assert (by_admin.status_code, parted, moved) == (200, set(), {BOLOGNA})


async def test_the_profile_is_that_of_the_person(store_url: str) -> None:
    async with http_service(store=store_url) as service:
        app = service.tenuto
        web, lark = (Scope(tenant="acme", user=name) for name in ("ann", "ou_ann"))
        profiles = Profiles(app.store.state, app.people.scopes_of)
        await profiles.update(web, {"city": "Bologna", "response_style": "brief"})
        await profiles.update(lark, {"city": "Wuxi", "name": "Ann"})
        await app.people.link(web, "ou_ann", by="otto")
        linked = [await profiles.read(one) for one in (web, lark)]
        removed = await profiles.update(web, {"name": None, "pets": 2})
        await app.people.unlink(lark, by="otto")
        parted = [await profiles.read(one) for one in (web, lark)]

    assert linked == [{"city": city, "response_style": "brief", "name": "Ann"} for city in ("Bologna", "Wuxi")]
    assert removed == {"city": "Bologna", "response_style": "brief", "pets": 2}
    assert parted == [removed, {"city": "Wuxi"}]


async def test_an_erasure_covers_the_person_and_its_receipt_names_all(store_url: str) -> None:
    """Sessions, memories and keys of each identity, and what only links them; nobody else's."""
    async with http_service(store=store_url, locked=True) as service:
        admin, own = await service.key(role=KeyRole.ADMIN), await service.key(user="ann")
        lark_key = await service.key(user="ou_ann")
        lark, bob = ({**admin, "X-User-ID": name} for name in ("ou_ann", "bob"))
        sessions = [
            (await service.http.post("/v1/chat", headers=who, json={"message": "Hello"})).json()["session_id"]
            for who in (own, lark, bob)
        ]
        for who, text in ((own, BOLOGNA), (lark, PEANUTS), (bob, PEANUTS)):
            await remember(service, who, text)
        await use_code(service, lark, await new_code(service, own))
        await new_code(service, own)

        response = await service.http.delete("/v1/users/ann", headers=own)
        receipt = response.json()
        found = [await service.http.get(at(one), headers=admin | {"X-User-ID": ""}) for one in sessions]
        left = [await remembered(service, {**admin, "X-User-ID": name}) for name in ("ann", "ou_ann", "bob")]
        shut = [code(await service.http.get("/v1/person", headers=who)) for who in (own, lark_key)]
        checks = [
            (await service.http.post("/v1/privacy/verify", headers=admin, json={"receipt": receipt, "user_id": name}))
            .json()["why"] for name in ("ann", "ou_ann", "bob")
        ]  # fmt: skip
        rows = await service.tenuto.store.state.state_keys(Scope(tenant="acme"), "people")

    assert (receipt["counts"]["sessions"], receipt["counts"]["identities"], receipt["counts"]["api_keys"]) == (2, 2, 2)
    assert receipt["identity_digests"] == [user_digest("acme", "ou_ann")]
    assert [one.status_code for one in found] == [404, 404, 200]
    assert left == [set(), set(), {PEANUTS}]
    assert shut == [(401, "invalid_credential")] * 2
    assert checks == [None, None, "it is about another user"]
    assert rows == ("changes",)
