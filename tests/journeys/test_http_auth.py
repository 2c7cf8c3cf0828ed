"""Who gets in: keys, tokens, and the open door that only this machine sees."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tenuto.access import KeyRole
from tenuto.errors import InvalidSetting
from tenuto.settings import Settings
from tests.journeys.http_service import HttpService, at, bearer, code, http_service
from tests.samples import one_field_each

SECRET = "a shared secret of more than sixty-four bytes, which is what HS512 asks for"


async def status(service: HttpService, headers: dict[str, str], path: str = "/v1/sessions", **query: str) -> int:
    return (await service.http.get(path, headers=headers, params=query)).status_code


# Keys


async def test_without_a_credential_that_holds_nobody_gets_in(locked: HttpService) -> None:
    key, secret = await locked.keys.create(tenant="acme")
    tries = [
        {},
        {"Authorization": secret},
        {"Authorization": f"Basic {secret}"},
        {"X-API-Key": "nonsense"},
        bearer(""),
        bearer("tnt"),
        bearer(f"tnt_{key.id}_"),
        bearer(secret[:-1]),
        bearer(f"{secret}x"),
        bearer("tnt_" + "0" * 16 + "_" + secret.rsplit("_", 1)[1]),
        bearer("x" * 5000),
        bearer("eyJhbGciOiJub25lIn0.eyJ0ZW5hbnRfaWQiOiJhY21lIn0."),
    ]

    answers = [await locked.http.get("/v1/sessions", headers=headers) for headers in tries]

    assert {code(answer) for answer in answers} == {(401, "invalid_credential")}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
    assert len({answer.content for answer in answers}) == 1


async def test_a_key_opens_its_tenant_and_no_other(locked: HttpService) -> None:
    acme, evil = await locked.key("acme"), await locked.key("evil")

    response = await locked.http.post("/v1/sessions", headers=acme, json={"id": "s"})

    assert response.json()["tenant"] == "acme"
    assert await status(locked, acme, at("s")) == 200
    assert await status(locked, evil, at("s")) == 404


async def test_a_key_may_come_as_x_api_key_too(locked: HttpService) -> None:
    _, secret = await locked.keys.create(tenant="acme")

    assert await status(locked, {"X-API-Key": secret}) == 200
    assert await status(locked, {"authorization": f"bearer {secret}"}) == 200


async def test_what_the_request_names_must_agree_with_the_credential(locked: HttpService) -> None:
    key = await locked.key("acme", site="museum")

    assert await status(locked, {**key, "X-Tenant-ID": "acme", "X-Site-ID": "museum"}) == 200
    assert await status(locked, key, tenant_id="acme", site_id="museum") == 200
    for wrong in ({"X-Tenant-ID": "evil"}, {"X-Site-ID": "shop"}):
        assert code(await locked.http.get("/v1/sessions", headers={**key, **wrong})) == (403, "scope_mismatch")
    for named in ({"tenant_id": "evil"}, {"site_id": "shop"}):
        assert code(await locked.http.get("/v1/sessions", headers=key, params=named)) == (403, "scope_mismatch")
        assert code(await locked.http.post("/v1/sessions", headers=key, json=named)) == (403, "scope_mismatch")


async def test_a_site_bound_key_stays_on_its_site_without_being_told(locked: HttpService) -> None:
    museum, any_site = await locked.key("acme", site="museum"), await locked.key("acme")

    await locked.http.post("/v1/sessions", headers=museum, json={"id": "s"})

    assert await status(locked, any_site, at("s")) == 404
    assert await status(locked, {**any_site, "X-Site-ID": "museum"}, at("s")) == 200


async def test_a_users_key_acts_for_that_user_alone(locked: HttpService) -> None:
    ann, bob, backend = await locked.key(user="ann"), await locked.key(user="bob"), await locked.key()
    await locked.http.post("/v1/sessions", headers=ann, json={"id": "s"})

    assert await status(locked, bob, at("s")) == 404
    assert await status(locked, {**ann, "X-User-ID": "ann"}, at("s")) == 200
    assert code(await locked.http.get(at("s"), headers={**bob, "X-User-ID": "ann"})) == (403, "scope_mismatch")
    assert code(await locked.http.get(at("s"), headers={**bob, "X-Chat-ID": "c"})) == (403, "scope_mismatch")
    assert await status(locked, backend, at("s")) == 200
    assert await status(locked, {**backend, "X-User-ID": "ann"}, at("s")) == 200
    assert await status(locked, {**backend, "X-User-ID": "bob"}, at("s")) == 404


async def test_an_admin_key_of_a_user_may_act_for_others_and_for_the_tenant(locked: HttpService) -> None:
    admin = await locked.key(user="root", role=KeyRole.ADMIN)
    await locked.http.post("/v1/sessions", headers={**admin, "X-User-ID": "ann"}, json={"id": "s"})

    assert await status(locked, admin, at("s")) == 404
    assert await status(locked, {**admin, "X-User-ID": "ann"}, at("s")) == 200
    assert await status(locked, {**admin, "X-User-ID": ""}, at("s")) == 200


async def test_a_revoked_key_is_out_within_two_seconds(locked: HttpService) -> None:
    key, secret = await locked.keys.create(tenant="acme")
    assert await status(locked, bearer(secret)) == 200

    await locked.keys.revoke(key.id)
    locked.ticks.now += 2

    assert await status(locked, bearer(secret)) == 401


# Wrong credentials


async def tried(client: httpx.AsyncClient, times: int, headers: dict[str, str]) -> list[int]:
    return [(await client.get("/v1/sessions", headers=headers)).status_code for _ in range(times)]


async def test_an_address_with_many_wrong_credentials_is_told_to_wait() -> None:
    async with http_service(locked=True, wrong_credentials_per_minute=3) as service:
        key, _ = await service.keys.create(tenant="acme")
        wrong = bearer(f"tnt_{key.id}_{'x' * 43}")

        statuses = await tried(service.http, 4, wrong)
        response = await service.http.get("/v1/sessions", headers={"X-API-Key": "nonsense"})

        assert statuses == [401, 401, 401, 429]
        assert code(response) == (429, "rate_limited")
        assert response.headers["retry-after"] == "20"
        assert "wrong credentials" in response.json()["detail"]

        service.ticks.now += 20

        assert await tried(service.http, 2, wrong) == [401, 429]


async def test_wrong_credentials_shut_out_no_right_one() -> None:
    """Neither one that was seen before nor a new one, from the same address or another."""
    async with (
        http_service(locked=True, wrong_credentials_per_minute=1) as service,
        service.from_elsewhere("10.0.0.9") as other,
    ):
        known, new = await service.key(), await service.key()
        assert await status(service, known) == 200

        assert await tried(service.http, 3, bearer("tnt_0_x")) == [401, 429, 429]

        assert await status(service, known) == 200
        service.ticks.now += 2
        assert await status(service, known) == 200
        assert await status(service, new) == 200
        assert await tried(other, 2, bearer("tnt_0_x")) == [401, 429]
        assert await tried(other, 1, new) == [200]


async def test_a_token_that_does_not_hold_counts_and_none_at_all_does_not() -> None:
    async with http_service(jwt_secret=SECRET, wrong_credentials_per_minute=1) as service:
        assert await tried(service.http, 3, {}) == [401, 401, 401]
        assert await tried(service.http, 2, hs(exp=1)) == [401, 429]
        assert await tried(service.http, 1, hs()) == [200]


@pytest.mark.parametrize(
    ("first", "second", "status_of_second"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", 429),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", 401),
        ("10.0.0.1", "::ffff:10.0.0.1", 429),
        ("10.0.0.1", "10.0.0.2", 401),
        ("fe80::1%eth0", "fe80::2%eth0", 429),
    ],
)
async def test_addresses_of_one_network_are_counted_together(first: str, second: str, status_of_second: int) -> None:
    async with (
        http_service(locked=True, wrong_credentials_per_minute=1) as service,
        service.from_elsewhere(first) as one,
        service.from_elsewhere(second) as another,
    ):
        assert await tried(one, 1, bearer("tnt_0_x")) == [401]
        assert await tried(another, 1, bearer("tnt_0_x")) == [status_of_second]


async def test_the_limit_on_wrong_credentials_can_be_switched_off() -> None:
    async with http_service(locked=True, wrong_credentials_per_minute=0) as service:
        assert set(await tried(service.http, 100, bearer("tnt_0_x"))) == {401}


# The open door


async def test_without_keys_the_tenant_is_local_or_as_named(service: HttpService) -> None:
    assert (await service.http.get("/healthz")).json()["auth"] == "open: loopback only, tenant local"
    assert (await service.http.post("/v1/sessions")).json()["tenant"] == "local"
    assert (await service.http.post("/v1/sessions", headers={"X-Tenant-ID": "t"})).json()["tenant"] == "t"
    assert (await service.http.post("/v1/sessions", headers=bearer("whatever"))).status_code == 201


@pytest.mark.parametrize("tenant", ["~tenuto", "~", ""])
async def test_the_installations_own_tenant_cannot_be_named(service: HttpService, tenant: str) -> None:
    assert code(await service.http.get("/v1/sessions", headers={"X-Tenant-ID": tenant})) == (400, "invalid")
    assert (await service.http.post("/v1/sessions", json={"tenant_id": tenant})).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        *one_field_each(
            Host=["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "192.168.1.5:8765"],
            Origin=["https://evil.example", "null", "http://localhost.evil.example:8765", "http://127.0.0.1:3000"],
        ),
        {"Origin": "http://localhost:8765"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://["},
        {"Host": "[::1"},
    ],
    ids=lambda headers: "-".join(*headers.items()),
)
async def test_a_web_page_from_elsewhere_cannot_reach_the_open_door(
    service: HttpService, headers: dict[str, str]
) -> None:
    """DNS rebinding shows in Host, a post from another origin, of this machine too, in Origin or Sec-Fetch-Site."""
    assert code(await service.http.post("/v1/sessions", headers=headers)) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "[::1]:8765", "127.0.0.2", "LOCALHOST:1"])
async def test_this_machine_may_call_itself_by_its_names(service: HttpService, host: str) -> None:
    assert (await service.http.get("/v1/sessions", headers={"Host": host})).status_code == 200
    own_page = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert (await service.http.post("/v1/sessions", headers=own_page)).status_code == 201


async def test_another_machine_cannot_use_the_open_door() -> None:
    async with http_service() as service, service.from_elsewhere("192.168.1.5") as stranger:
        assert code(await stranger.get("/v1/sessions")) == (403, "host_not_allowed")


async def test_where_the_host_is_reachable_there_is_no_open_door() -> None:
    async with http_service(host="0.0.0.0") as service:
        assert code(await service.http.get("/v1/sessions")) == (401, "invalid_credential")


async def test_the_first_key_closes_the_door_within_two_seconds_and_for_good(
    service: HttpService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="tenuto")
    assert await status(service, {}) == 200
    assert "closed" not in caplog.text

    key, secret = await service.keys.create(tenant="acme")
    service.ticks.now += 2

    assert await status(service, {}) == 401
    assert await status(service, bearer(secret)) == 200
    assert (await service.http.get("/healthz")).json()["auth"] == "closed: API keys"
    assert caplog.text.count("closed: the first API key was made, so requests need a credential") == 1

    await service.keys.revoke(key.id)
    service.ticks.now += 2

    assert await status(service, {}) == 401


# Tokens


def claims(**changed: Any) -> dict[str, Any]:
    given = {"tenant_id": "acme", "sub": "ann", "exp": int(time.time()) + 300, **changed}
    return {name: value for name, value in given.items() if value is not None}


def hs(**changed: Any) -> dict[str, str]:
    return bearer(jwt.encode(claims(**changed), SECRET, "HS256"))


async def test_a_token_says_tenant_and_user() -> None:
    async with http_service(jwt_secret=SECRET) as service:
        response = await service.http.post("/v1/sessions", headers=hs(site_id="museum"), json={"id": "s"})

        assert (response.json()["tenant"], response.json()["site"], response.json()["user"]) == (
            "acme",
            "museum",
            "ann",
        )
        assert await status(service, hs(site_id="museum", sub="bob"), at("s")) == 404
        assert await status(service, hs(site_id="museum", tenant_id="evil"), at("s")) == 404
        assert await status(service, {**hs(), "X-Tenant-ID": "evil"}) == 403
        assert await status(service, {**hs(), "X-User-ID": "bob"}) == 403
        assert await status(service, {**hs(role="admin"), "X-User-ID": "bob"}) == 200
        assert (await service.http.get("/healthz")).json()["auth"] == "closed: API keys and tokens"


@pytest.mark.parametrize(
    "changed",
    one_field_each(
        exp=[1, None],
        tenant_id=[None, 7, "", "~tenuto", ["acme"]],
        sub=[None, ""],
        site_id=[7],
        nbf=[9_999_999_999],
        aud=["somebody else"],
    ),
    ids=lambda changed: "-".join(f"{name} {value}" for name, value in changed.items()),
)
async def test_a_token_that_does_not_hold_is_refused(changed: dict[str, Any]) -> None:
    async with http_service(jwt_secret=SECRET) as service:
        assert code(await service.http.get("/v1/sessions", headers=hs(**changed))) == (401, "invalid_credential")


async def test_the_algorithm_is_the_configured_one_whatever_the_token_says() -> None:
    async with http_service(jwt_secret=SECRET) as service:
        for algorithm in ("HS384", "HS512"):
            assert await status(service, bearer(jwt.encode(claims(), SECRET, algorithm))) == 401
        assert await status(service, bearer(jwt.encode(claims(), "", "none"))) == 401
        assert await status(service, bearer(jwt.encode(claims(), f"{SECRET}!", "HS256"))) == 401


async def test_issuer_audience_and_claims_follow_the_settings() -> None:
    names: dict[str, Any] = {"jwt_tenant_claim": "org_id", "jwt_user_claim": "email", "jwt_role_claim": "roles"}
    async with http_service(jwt_secret=SECRET, jwt_issuer="us", jwt_audience="tenuto", **names) as service:
        right = {"iss": "us", "aud": ["tenuto"], "org_id": "acme", "email": "a@x", "tenant_id": None, "sub": None}

        assert await status(service, hs(**right)) == 200
        assert await status(service, {**hs(**right, roles=["admin"]), "X-User-ID": "b"}) == 200
        assert await status(service, hs(**{**right, "iss": "them"})) == 401
        assert await status(service, hs(**{**right, "aud": "them"})) == 401
        assert await status(service, hs(**{**right, "org_id": None, "tenant_id": "acme"})) == 401


async def test_keys_work_beside_tokens() -> None:
    async with http_service(jwt_secret=SECRET) as service:
        assert await status(service, await service.key()) == 200


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any) -> bytes:
    raw: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return raw


def jwk(key: Any, kid: str, **more: str) -> dict[str, Any]:
    made: dict[str, Any] = jwt.get_algorithm_by_name("RS256").to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, **more}


async def test_a_public_key_file_verifies_rs256(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(pem(RSA))
    async with http_service(jwt_key_file=str(file)) as service:
        assert await status(service, bearer(jwt.encode(claims(), RSA, "RS256"))) == 200
        assert await status(service, bearer(jwt.encode(claims(), OTHER_RSA, "RS256"))) == 401
        # The public key used as a shared secret: the oldest trick there is.
        forged = _hmac_signed_with(pem(RSA))
        assert await status(service, bearer(forged)) == 401


def _hmac_signed_with(key: bytes) -> str:
    def part(value: bytes) -> bytes:
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    head = part(msgspec.json.encode({"alg": "HS256", "typ": "JWT"})) + b"." + part(msgspec.json.encode(claims()))
    return (head + b"." + part(hmac.digest(key, head, hashlib.sha256))).decode()


async def test_a_public_key_file_verifies_es256(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(pem(EC))
    async with http_service(jwt_key_file=str(file), jwt_algorithm="ES256") as service:
        assert await status(service, bearer(jwt.encode(claims(), EC, "ES256"))) == 200
        assert await status(service, bearer(jwt.encode(claims(), RSA, "RS256"))) == 401


async def test_a_key_set_is_searched_by_kid_and_read_again_when_turned(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(msgspec.json.encode({"keys": [jwk(RSA, "one"), jwk(OTHER_RSA, "locked", use="enc")]}))
    async with http_service(jwt_jwks_file=str(file)) as service:
        first = bearer(jwt.encode(claims(), RSA, "RS256", headers={"kid": "one"}))
        second = bearer(jwt.encode(claims(), OTHER_RSA, "RS256", headers={"kid": "two"}))
        assert (await status(service, first), await status(service, second)) == (200, 401)
        assert await status(service, bearer(jwt.encode(claims(), OTHER_RSA, "RS256", headers={"kid": "locked"}))) == 401
        assert await status(service, bearer(jwt.encode(claims(), OTHER_RSA, "RS256", headers={"kid": "one"}))) == 401

        file.write_bytes(msgspec.json.encode({"keys": [jwk(OTHER_RSA, "two")]}))

        assert (await status(service, second), await status(service, first)) == (200, 401)


@pytest.mark.parametrize(
    ("content", "setting"),
    [
        (b"no key", "jwt_key_file"),
        (pem(EC), "jwt_key_file"),
        (b"{}", "jwt_jwks_file"),
        (b'{"keys": []}', "jwt_jwks_file"),
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "jwt_jwks_file"),
    ],
    ids=["text", "EC for RS256", "no set", "empty set", "shared secret"],
)
async def test_a_key_file_without_a_fitting_key_stops_the_start(tmp_path: Path, content: bytes, setting: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    given: dict[str, Any] = {setting: str(file)}

    with pytest.raises(InvalidSetting, match=setting):
        async with http_service(**given):
            pass


PAGE = "https://app.example"


@pytest.mark.parametrize("locked", [False, True], ids=["open", "keys"])
async def test_pages_of_listed_origins_can_call_and_read_every_answer(locked: bool) -> None:
    """Preflights, answers, streams and errors; for other origins nothing changes, and nobody is allowed cookies."""
    listed = f"{PAGE}, http://localhost:5173"
    async with http_service(locked=locked, cors_origins=listed) as service, http_service(locked=locked) as unlisted:
        key = await service.key(user="ann") if locked else {}
        wants = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-any"}
        stream = {"message": "hi", "stream": True}
        for path in ("/v1/chat", "/v1/ai-sdk/chat", "/v1/sessions/x", "/v1/nowhere"):
            preflight = await service.http.options(path, headers={"Origin": PAGE, **wants})
            assert preflight.status_code == 200
            assert "authorization" in preflight.headers["access-control-allow-headers"]
            assert "POST" in preflight.headers["access-control-allow-methods"]
        for origin, allowed in ((PAGE, PAGE), ("http://localhost:5173", "http://localhost:5173"), ("https://x", None)):
            headers = {**key, "Origin": origin, "Sec-Fetch-Site": "cross-site"}
            answers = [
                await service.http.post("/v1/chat", headers=headers, json=stream),
                await service.http.get("/v1/sessions/absent", headers=headers),
                await service.http.post("/v1/chat", headers=headers, content=b"no json"),
                await service.http.post("/v1/conversations/absent", headers=headers, json={}),
                await service.http.get("/v1/nowhere", headers=headers),
                await service.http.options("/v1/chat", headers={"Origin": origin, **wants}),
            ]
            assert {answer.headers.get("access-control-allow-origin") for answer in answers} == {allowed}
            assert not any("access-control-allow-credentials" in answer.headers for answer in answers)
            if allowed:
                assert [answer.status_code for answer in answers] == [200, 404, 400, 404, 404, 200]
                assert "x-request-id" in answers[1].headers["access-control-expose-headers"].lower()
        off = await unlisted.http.options("/v1/chat", headers={"Origin": PAGE, **wants})
        assert (off.status_code, "access-control-allow-origin" in off.headers) == (405, False)


async def test_an_open_server_answers_for_the_host_of_its_proxy() -> None:
    """As named in a setting, and for no other name: a page could resolve its own to this machine."""
    async with http_service(allowed_hosts="Chat.example, [2001:db8::1]") as service:
        for host in ("chat.example", "CHAT.example:8443", "[2001:db8::1]:80", "127.0.0.1:8765"):
            own = {"Host": host, "Origin": f"https://{host}", "Sec-Fetch-Site": "same-origin"}
            assert (await service.http.post("/v1/sessions", headers=own)).status_code == 201
        for host in ("evil.example", "chat.example.evil.example", "sub.chat.example"):
            assert code(await service.http.get("/v1/sessions", headers={"Host": host})) == (403, "host_not_allowed")
        foreign = {"Host": "chat.example", "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        assert code(await service.http.post("/v1/sessions", headers=foreign)) == (403, "host_not_allowed")
        async with service.from_elsewhere("192.0.2.7") as stranger:
            answer = await stranger.get("/v1/sessions", headers={"Host": "chat.example"})
            assert code(answer) == (403, "host_not_allowed")


@pytest.mark.parametrize("hosts", ["*", "https://chat.example", "chat.example:8443", "*.example", "a b"])
def test_what_is_no_host_stops_the_start(hosts: str) -> None:
    with pytest.raises(InvalidSetting, match="allowed_hosts"):
        Settings(allowed_hosts=hosts)


@pytest.mark.parametrize(
    "origins",
    [
        *("*", "null", "app.example", "https://app.example/", "https://*.example", "https://APP.example", "ftp://a"),
        *("https://app.example, *", "https://app.example:443", "https://user@app.example", "https://a https://b"),
    ],
)
def test_an_origin_that_no_browser_sends_stops_the_start(origins: str) -> None:
    with pytest.raises(InvalidSetting, match="cors_origins"):
        Settings(cors_origins=origins)


async def test_a_signed_token_is_told_what_it_lacks() -> None:
    """A forged or expired one learns nothing."""
    soon = datetime.now(UTC) + timedelta(minutes=5)
    claims = {"exp": soon, "tenant_id": "acme"}
    async with http_service(jwt_secret=SECRET) as service:

        async def told(secret: str, **more: Any) -> tuple[int, str]:
            token = jwt.encode({**claims, **more}, secret, algorithm="HS256")
            answer = await service.http.get("/v1/scope", headers=bearer(token))
            return answer.status_code, answer.json().get("detail", "")

        status, lacking = await told(SECRET)
        plain = await told("another secret of more than thirty-two bytes")
        expired = await told(SECRET, exp=soon - timedelta(hours=1))
        admin = await told(SECRET, role="admin")
        others = [await told(SECRET, sub="ann", tenant_id=None), await told(SECRET, sub=7)]

    assert others == [
        (401, f"the token is refused: {why}") for why in ("it has no tenant_id", "its sub is not a string")
    ]
    assert (status, "sub" in lacking, "role admin" in lacking) == (401, True, True)
    assert plain == expired == (401, "a valid API key or token is needed: Authorization: Bearer <key>")
    assert admin == (200, "")
