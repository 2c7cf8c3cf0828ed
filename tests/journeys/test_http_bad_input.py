"""Bad input: a clear error with a stable code, nothing half-written, nothing repeated, and the server lives."""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.journeys.http_service import ANN, HttpService, at, code, http_service, says
from tests.samples import one_field_each

WORDS = "what the user said"


@pytest.fixture
async def service() -> AsyncIterator[HttpService]:
    async with http_service(max_message_bytes=2048, max_body_bytes=100_000) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s", "title": "untouched"})
        before = (await service.http.get(at("s"), headers=ANN)).content
        yield service
        assert (await service.http.get(at("s"), headers=ANN)).content == before


BROKEN_JSON = {
    "no JSON": b"hello",
    "half": b'{"role": "user", "text": "',
    "trailing": b'{"role": "user", "text": "x"} y',
    "NaN": b'{"role": "user", "text": "x", "extra": NaN}',
    "infinity": b'{"role": "user", "text": "x", "extra": -Infinity}',
    "single quotes": b"{'role': 'user'}",
    "not UTF-8": b'{"role": "user", "text": "\xff\xfe"}',
    "deep list": b'{"role":"user","text":"x","extra":' + b"[" * 40_000 + b"]" * 40_000 + b"}",
    "deep object": b'{"role":"user","text":"x","extra":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b"}",
    "just too deep": b'{"role":"user","text":"x","extra":' + b"[" * 65 + b"]" * 65 + b"}",
    "more than 64 bits": b'{"role":"user","text":"x","extra":99999999999999999999999}',
}
BROKEN_TEXT = {
    "NUL": b'{"role": "user", "text": "a\\u0000b"}',
    "NUL in a key": b'{"role": "user", "text": "a", "k\\u0000": 1}',
    "high surrogate": b'{"role": "user", "text": "a\\ud800b"}',
    "high surrogate at the end": b'{"role": "user", "text": "a\\ud800"}',
    "low surrogate": b'{"role": "user", "text": "a\\udc00b"}',
    "surrogate in a key": b'{"role": "user", "text": "a", "\\ud800": 1}',
    "surrogates in wrong order": b'{"role": "user", "text": "\\udc00\\ud800"}',
}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        *((body, "invalid_json") for body in BROKEN_JSON.values()),
        *((body, "invalid_text") for body in BROKEN_TEXT.values()),
    ],
    ids=[*BROKEN_JSON, *BROKEN_TEXT],
)
async def test_what_is_not_json_or_no_store_can_keep_is_refused(service: HttpService, body: bytes, error: str) -> None:
    assert code(await service.http.post(at("s", "messages"), headers=ANN, content=body)) == (400, error)


WIDE = {
    name: f'{{"role": "user", "text": "{WORDS}"}}'.encode(name)
    for name in ("utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le")
}


@pytest.mark.parametrize(
    ("body", "told"),
    [*((body, "UTF-8") for body in WIDE.values()), (BROKEN_JSON["not UTF-8"], "the body is not UTF-8")],
    ids=[*WIDE, "no encoding"],
)
async def test_json_in_another_encoding_is_told_which_one_is_right(
    service: HttpService, body: bytes, told: str
) -> None:
    response = await service.http.post(at("s", "messages"), headers=ANN, content=body)

    assert code(response) == (400, "invalid_json")
    assert told in response.json()["detail"]


async def test_a_byte_order_mark_in_utf_8_is_passed_over(service: HttpService) -> None:
    response = await service.http.post("/v1/sessions", headers=ANN, content=codecs.BOM_UTF8 + b'{"title": "here"}')
    twice = await service.http.post("/v1/sessions", headers=ANN, content=codecs.BOM_UTF8 * 2 + b"{}")

    assert (response.status_code, response.json()["title"]) == (201, "here")
    assert code(twice) == (400, "invalid_json")


@pytest.mark.parametrize("number", ["9" * 23, f"-{'9' * 23}", "9" * 5000, "1e400"], ids=lambda number: number[:5])
@pytest.mark.parametrize("session", ["null", '"s"'], ids=["new", "known"])
async def test_a_number_that_no_store_keeps_is_refused_with_its_field(
    service: HttpService, number: str, session: str
) -> None:
    body = f'{{"message": "x", "profile": {{"{WORDS}": [{number}]}}, "session_id": {session}}}'

    response = await service.http.post("/v1/chat", headers=ANN, content=body)

    assert response.status_code == 400
    assert re.match(r"profile.*(integer|number)", response.json()["detail"])
    assert WORDS not in response.text


MESSAGES: list[object] = [
    [],
    "text",
    7,
    None,
    {},
    {"text": WORDS},
    {"role": "user"},
    {"role": WORDS, "text": "x"},
    {"role": ["user"], "text": "x"},
    {"role": "user", "text": 7},
    {"role": "user", "parts": WORDS},
    {"role": "user", "parts": [WORDS]},
    {"role": "user", "parts": [{"text": WORDS}]},
    {"role": "user", "parts": [{"type": "text"}]},
    {"role": "user", "text": "x", "tokens": -1},
    {"role": "user", "text": "x", "tokens": 1.5},
    {"role": "user", "text": "x", "tokens": True},
    {"role": "user", "text": "x", "tokens": 2**60},
    {"role": "user", "text": "x", "sent_at": WORDS},
    {"role": "user", "text": "x", "sent_at": "2026-01-01T00:00:00"},
    {"role": "user", "text": "x", "metadata": [WORDS]},
    {"role": "user", "text": "x", "speaker": 7},
    {"role": "user", "text": "x", "id": 7},
    {"messages": []},
    {"messages": WORDS},
    {"messages": [WORDS]},
    {"messages": [says("x")], WORDS: 1},
    {"messages": [says("x")], "usage": {"tokens": -1}},
    {"messages": [says("x")], "usage": {"cost_usd": -1}},
    {"messages": [says("x")], "usage": {"cost_usd": "NaN"}},
    {"messages": [says("x")], "usage": {"cost_usd": "1e999999"}},
    {"messages": [says("x")], "usage": {"cost_usd": WORDS}},
    {"messages": [says("x")], "producer": {"id": "p", "seq": 0}},
    {"messages": [says("x")], "producer": {"id": "", "seq": 1}},
    {"messages": [says("x")], "producer": {"seq": 1}},
    {"messages": [says("good"), says("bad", role=WORDS)]},
    {"messages": [says("x", tokens=2**53 - 1), says("y", tokens=1)]},
]


@pytest.mark.parametrize(
    "body",
    one_field_each(
        id=["", 7, "x" * 16_385, "😀" * 5000, "a\0b"],
        title=["x" * 513, "two\nlines", None],
        context=[[1]],
        attributes=["x"],
        metadata=[{"a": 2**70}],
        titel=[WORDS],
        site_id=["a\0"],
        **{WORDS: [1]},
    ),
    ids=lambda body: str(body)[:40],
)
async def test_a_session_of_the_wrong_shape_is_not_made(service: HttpService, body: object) -> None:
    response = await service.http.post("/v1/sessions", headers=ANN, json=body)

    assert response.status_code == 400
    assert WORDS not in response.text
    assert len((await service.http.get("/v1/sessions", headers=ANN)).json()["sessions"]) == 1


BAD_QUERIES = {
    "/v1/sessions?limit=": ["0", "-1", "1001", "9" * 26, WORDS, "1.5", ""],
    "/v1/sessions?cursor=": [WORDS, "%00"],
    "/v1/sessions?status=": [WORDS],
    "/v1/sessions?q=": ["%00"],
    "/v1/sessions/s/messages?limit=": ["0", "1000000"],
    "/v1/sessions/s/messages?before=": ["-1"],
    "/v1/sessions/s/messages?after=": ["9007199254740993"],
    "/v1/sessions/s/export?format=": [WORDS],
    "/v1/traces?before=": ["1"],
    "/v1/sessions/": ["%00", "%ff%fe", "x" * 16_385],
}


@pytest.mark.parametrize(
    "query", [path + end for path, ends in BAD_QUERIES.items() for end in ends], ids=lambda q: q[:60]
)
async def test_negative_absurd_and_meaningless_parameters_are_refused(service: HttpService, query: str) -> None:
    response = await service.http.get(query, headers=ANN)

    assert response.status_code == 400
    assert response.json()["code"] in ("invalid", "invalid_text", "invalid_cursor")
    assert WORDS not in response.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((at("s", "messages"), body) for body in MESSAGES),
        (at("s", "truncate"), {"after": -1}),
        (at("s", "truncate"), {"after": 2**60}),
        (at("s", "truncate"), {}),
        (at("s", "truncate"), {"after": 0, "if_version": -1}),
        (at("s", "truncate"), {"after": 0, "if_version": "1"}),
        (at("s", "fork"), {"at": -1}),
        (at("s", "fork"), {"at": 2**60}),
        (at("s", "fork"), {"id": ""}),
        (at("s", "turns"), {"window": -1}),
        (at("s", "turns"), {"window": 10_001}),
        (at("s", "turns"), {"message": WORDS}),
        ("/v1/turns", {"session_id": 7}),
        ("/v1/turns", {"message": {"role": "user"}}),
        ("/v1/sessions/import", {"format": WORDS}),
        *(
            ("/v1/sessions/import", {"format": "tenuto.session", "version": 1, "session": {}, "messages": [], **wrong})
            for wrong in one_field_each(
                version=[WORDS],
                messages=[WORDS, [WORDS]],
                session=[{"title": 7}, {"cost_usd": "1e999999"}, {"cost_usd": "1e500000"}, {"tokens": "many"}],
            )
        ),
    ],
    ids=str,
)
async def test_a_body_of_the_wrong_shape_is_refused_whole(service: HttpService, path: str, body: object) -> None:
    response = await service.http.post(path, headers=ANN, json=body)

    assert response.status_code == 400
    assert response.json()["code"] in ("invalid", "invalid_json")
    assert WORDS not in response.text


@pytest.mark.parametrize(
    "body",
    [b"", b"hello", b"[]", b"<!-- nothing -->", b"{" * 50_000, b'{"a":' * 15_000, b"<\xff"],
    ids=lambda b: str(b[:9]),
)
async def test_what_is_no_export_is_not_imported(service: HttpService, body: bytes) -> None:
    response = await service.http.post("/v1/sessions/import", headers=ANN, content=body)

    assert code(response) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        (
            "POST",
            "/v1/chat",
            {"message": "hi", "language": "fr"},
            "language: the value does not fit; it may be en or zh",
        ),
        ("GET", "/v1/sessions?status=open", None, "status: the value does not fit; it may be active or inactive or "),
        *(
            (
                "GET",
                f"/v1/{listing}?limits=2&{WORDS}=x&Foo=",
                None,
                "the query: unknown parameters: Foo, limits; expected ",
            )
            for listing in ("sessions", "sessions/s/messages", "traces", "tasks", "memories", "keys", "privacy/audit")
        ),
        (
            "GET",
            f"/v1/sessions?{WORDS}=x",
            None,
            "the query: a parameter is unknown; expected limit, cursor, q, title, status",
        ),
    ],
)
async def test_a_choice_or_name_that_is_none_is_told_which_there_are(
    service: HttpService, method: str, path: str, body: object, told: str
) -> None:
    response = await service.http.request(method, path, headers=ANN, json=body)

    assert code(response) == (400, "invalid")
    assert response.json()["detail"].startswith(told)
    assert WORDS not in response.text


async def test_other_headers_are_read_as_strictly(service: HttpService) -> None:
    for version in (WORDS, "-1", '"x"', "", "9" * 40):
        response = await service.http.patch(at("s"), headers={**ANN, "If-Match": version}, json={"title": "x"})
        assert code(response) == (400, "invalid")
    torn = await service.http.patch(at("s"), headers={**ANN, "If-Match": '"1"'}, json={"if_version": 2})
    assert code(torn) == (400, "invalid")
    empty = await service.http.post("/v1/sessions", headers={**ANN, "Idempotency-Key": ""})
    assert code(empty) == (400, "invalid")
    for name in (b"Idempotency-Key", b"X-User-ID"):
        raw = {b"X-Tenant-ID": b"acme", name: b"\xff\xfe"}
        broken = await service.http.post("/v1/sessions", headers=raw)
        assert code(broken) == (400, "invalid_text")


@pytest.mark.parametrize("unfit", ["laptop", {"seq": 1}, {"id": "laptop", "seq": "one"}], ids=str)
async def test_a_producer_that_does_not_fit_is_told_the_shape(service: HttpService, unfit: object) -> None:
    response = await service.http.post(
        at("s", "messages"), headers=ANN, json={"messages": [says("x")], "producer": unfit}
    )

    assert code(response) == (400, "invalid")
    assert '{"id": "laptop", "seq": 1}' in response.json()["detail"]


async def test_a_key_and_a_producer_do_not_go_together(service: HttpService) -> None:
    body = {"messages": [says("x")], "producer": {"id": "p", "seq": 1}}

    response = await service.http.post(at("s", "messages"), headers={**ANN, "Idempotency-Key": "k"}, json=body)

    assert code(response) == (400, "invalid")


@pytest.mark.parametrize("said", [None, "5", "200000"], ids=["no length", "a lie", "the truth"])
async def test_a_body_above_its_limit_is_too_large_whatever_its_header_says(
    service: HttpService, said: str | None
) -> None:
    seen = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal seen
        for _ in range(2000):
            seen += 1000
            yield b" " * 1000

    headers = ANN if said is None else {**ANN, "Content-Length": said}
    response = await service.http.post(at("s", "messages"), headers=headers, content=pieces())

    assert code(response) == (413, "too_large")
    assert response.json()["limit_bytes"] == 100_000


@pytest.mark.parametrize("path", ["/", "/v2", "/v1/sessions/", "/v1/sessions/s/nothing", "/api", "/apiv1/x"])
async def test_what_is_nowhere_is_a_problem_too(service: HttpService, path: str) -> None:
    response = await service.http.request("PROPFIND" if path == "/" else "GET", path, headers=ANN)

    assert code(response) in ((404, "not_found"), (405, "method_not_allowed"))


async def test_an_unknown_method_is_told_which_are_known(service: HttpService) -> None:
    response = await service.http.put("/v1/sessions", headers=ANN)

    assert code(response) == (405, "method_not_allowed")
    assert response.headers["allow"] == "GET, HEAD, POST"


@pytest.fixture
def silent_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level("DEBUG"):
        yield caplog
    assert WORDS not in caplog.text
    assert not any(WORDS in str(vars(record)) for record in caplog.records)


async def test_a_failure_nobody_foresaw_tells_nothing_and_logs_no_words(
    service: HttpService, monkeypatch: pytest.MonkeyPatch, silent_log: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a driver that quotes the row")

    with monkeypatch.context() as patched:
        patched.setattr(service.tenuto.store.sessions, "append", broken)
        failed = await service.http.post(at("s", "messages"), headers=ANN, json=says(WORDS))

    assert code(failed) == (500, "internal")
    assert "driver" not in failed.text
    assert failed.headers["x-request-id"]
    assert any(record.levelname == "ERROR" for record in silent_log.records)


async def test_no_log_line_carries_what_people_say(service: HttpService, silent_log: pytest.LogCaptureFixture) -> None:
    response = await service.http.post("/v1/sessions", headers=ANN, json={"title": WORDS})
    await service.http.post(f"{response.headers['location']}/messages", headers=ANN, json=says(WORDS))
    await service.http.get("/v1/sessions", params={"q": WORDS}, headers=ANN)
    refused: httpx.Response = await service.http.post("/v1/sessions", headers=ANN, json={"title": WORDS + "\n" + WORDS})

    assert refused.status_code == 400
    assert silent_log.records
    await service.http.delete(response.headers["location"], headers=ANN)


@pytest.mark.parametrize(("field", "named"), [("temprature", "temprature"), (WORDS, None)])
async def test_an_unknown_field_within_another_is_named_if_it_looks_like_one(field: str, named: str | None) -> None:
    async with http_service() as service:
        answer = await service.http.post("/v1/chat", json={"message": "Hi", "parameters": {field: 1}})

    assert answer.status_code == 400
    expected = f"the field {named} is unknown" if named else "a field is unknown"
    assert answer.json()["detail"] == f"parameters: {expected}"


@pytest.mark.parametrize(
    ("field", "named"), [("mesage", "the field mesage is unknown"), (WORDS, "a field is unknown"), ("我", "a field is")]
)
async def test_an_unknown_field_is_named_where_it_looks_like_a_name(
    service: HttpService, field: str, named: str
) -> None:
    response = await service.http.post("/v1/chat", headers=ANN, json={"message": "hello", field: 1})

    assert code(response) == (400, "invalid")
    assert response.json()["detail"].startswith(f"the body: {named}")
    assert WORDS not in response.text
