"""What runs here, how it is, and what it looks like from outside."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.server.logs import KeyValueFormatter, request_id
from tenuto.server.metrics import Metrics, merged_text
from tenuto.server.openapi import document
from tenuto.wiring.tasks import can_run_plans
from tests.engines import wait_for_step
from tests.journeys.http_service import ANN, HttpService, at, code, http_service, says


async def test_health_tells_store_and_mode_and_needs_no_key(locked: HttpService) -> None:
    health, ready = await locked.http.get("/healthz"), await locked.http.get("/readyz")

    told = {"status": "ok", "version": "0.1.0", "store": "memory", "auth": "closed: API keys"}
    assert health.json() == {**told, "memories_without_user": False, "session_search": True, "plans": can_run_plans()}
    assert ready.json() == {"status": "ready"}


async def test_a_stores_password_is_in_no_answer(tmp_path: Path) -> None:
    async with http_service(store=f"sqlite:///{tmp_path / 'secret-name.db'}") as service:
        assert "secret-name" not in (await service.http.get("/healthz")).text
        assert (await service.http.get("/healthz")).json()["store"] == "sqlite"


async def test_metrics_count_by_route_and_name_nobody(tmp_path: Path) -> None:
    async with http_service(store=f"sqlite:///{tmp_path / 'sessions.db'}") as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "the-id", "title": "the-title"})
        await service.http.get(at("the-id"), headers=ANN)
        await service.http.get(at("the-id"), headers=ANN)
        await service.http.get(at("absent"), headers=ANN)
        await service.http.get("/v1/the-path", headers=ANN)
        await service.http.request("BREW", "/v1/sessions", headers=ANN)

        text = (await service.http.get("/metrics")).text

        route = 'route="/v1/sessions/{session_id}"'
        assert f'tenuto_http_requests_total{{method="GET",{route},status="200"}} 2.0' in text
        assert f'tenuto_http_requests_total{{method="GET",{route},status="404"}} 1.0' in text
        assert 'route="unmatched",status="404"' in text
        assert 'method="other"' in text
        assert f'tenuto_http_request_seconds_count{{method="GET",{route}}} 3.0' in text
        assert 'tenuto_session_events_total{kind="created"} 1.0' in text
        assert 'tenuto_cache_reads_total{result="hit"} 2.0' in text
        assert "tenuto_cache_sessions 1.0" in text
        for secret in ("the-id", "the-title", "the-path", "acme", "ann", "BREW"):
            assert secret not in text


async def test_workers_tell_the_meters_of_every_store(store_url: str) -> None:
    """Those of breaker and journal as well, which only servers have."""
    async with http_service(store=store_url) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "the-id"})
        meters: Metrics = service.app.state.meters

        merged = merged_text({2: await meters.encode()}, 2).decode()
        alone = meters.text().decode()

    up = [line for line in merged.splitlines() if line.startswith("tenuto_worker_up{")]
    assert up == ['tenuto_worker_up{worker="1"} 0.0', 'tenuto_worker_up{worker="2"} 1.0']
    rest = [line for line in merged.splitlines() if "tenuto_worker_up" not in line]
    unlabelled = [re.sub(r',?worker="2"', "", line).replace("{}", "") for line in rest]
    assert unlabelled == alone.splitlines()


async def test_every_answer_carries_its_id_and_keeps_out_of_caches(service: HttpService) -> None:
    for path in ("/docs", "/healthz", "/v1/sessions", "/v1/sessions/none", "/nowhere"):
        answer = await service.http.get(path)
        assert re.fullmatch(r"[0-9a-f]{24}", answer.headers["x-request-id"])
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
    own = await service.http.get("/healthz", headers={"X-Request-ID": "abc-123"})
    odd = await service.http.get("/healthz", headers={"X-Request-ID": "a b"})
    assert own.headers["x-request-id"] == "abc-123"
    assert odd.headers["x-request-id"] != "a b"


async def test_the_page_of_routes_loads_nothing_from_elsewhere() -> None:
    async with http_service() as service:
        page = await service.http.get("/docs")
        loaded = re.findall(r"""(?:src|href)="(console/[^"]*)""", page.text)
        files = [await service.http.get(f"/{name}") for name in loaded]

    policy = page.headers["content-security-policy"]
    assert page.status_code == 200
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page.text)
    assert [file.status_code for file in files] == [200] * 4
    assert "openapi.json" in page.text


async def test_the_page_of_routes_holds_each_operation_and_each_schema(service: HttpService) -> None:
    page, api = (await service.http.get("/docs")).text, (await service.http.get("/openapi.json")).json()

    names = [operation["operationId"] for path in api["paths"].values() for operation in path.values()]
    assert set(re.findall(r'<details class="route" id="([^"]+)"', page)) == set(names)
    assert set(re.findall(r'href="#(schema-[^"]+)"', page)) <= set(re.findall(r' id="(schema-[^"]+)"', page))
    assert "<code>/v1/chat</code>" in page
    assert "`" not in page


async def test_the_list_of_routes_shows_a_first_step_that_works(service: HttpService) -> None:
    page = (await service.http.get("/docs")).text
    body = re.search(r"-d &#x27;(.*?)&#x27;", page)
    assert body is not None

    response = await service.http.post("/v1/chat", content=body[1].replace("&quot;", '"'))

    assert response.status_code == 200


async def test_the_openapi_has_examples_for_every_body(service: HttpService) -> None:
    api = (await service.http.get("/openapi.json")).json()

    operations = [operation for path in api["paths"].values() for operation in path.values()]
    bodies = [operation["requestBody"] for operation in operations if "requestBody" in operation]
    assert api["openapi"].startswith("3.1")
    referred = re.findall(r'"#/components/(\w+)/([^"]+)"', json.dumps(api))
    assert [name for group, name in referred if name not in api["components"][group]] == []
    assert len(bodies) >= 9
    assert all("example" in body["content"]["application/json"] for body in bodies)
    assert all(operation.get("description") for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert not any("422" in operation["responses"] for operation in operations)
    for path in ("/v1/chat", "/v1/npc/chat", "/goods/qa"):
        assert {"408", "431", "502", "503"} <= api["paths"][path]["post"]["responses"].keys()


async def test_every_example_of_the_openapi_works(service: HttpService) -> None:
    await service.http.post("/v1/sessions", json={"id": "s"})
    await service.http.post(at("s", "messages"), json={"messages": [says(str(n)) for n in range(6)]})
    # The first key ends open mode, so it comes last.
    for path, operations in sorted(document(service.app)["paths"].items(), key=lambda one: one[0] == "/v1/keys"):
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if "example" not in content or path.endswith("/pushNotificationConfigs"):
                # A task of A2A has no id before a client has made it.
                continue
            turn = (await service.http.post("/v1/turns", json={})).json()
            task = await _task_for(service, path)
            # Memories and identities belong to a user; the rest is asked for by the tenant itself.
            owned = path.startswith(("/v1/memories", "/v1/person"))
            who = {"X-User-ID": "ann"} if owned else {"Tenuto-Agent": "labour-law"}
            # Clients of these protocols say so.
            who |= {"A2A-Version": "1.0", "Accept": "application/json, text/event-stream"}
            boat = {"text": "I own a red boat."}
            memory = (await service.http.post("/v1/memories", headers={"X-User-ID": "ann"}, json=boat)).json()
            parts = {
                "task_id": task["id"],
                "step": "read",
                "key": "k",
                "agent": "labour-law",
                "assistant": "general",
                "memory_id": memory["id"],
                "conversation_id": "s",
            }
            address = path.format(session_id="s", name="tier", turn_id=turn["turn_id"], **parts)
            answer = await service.http.request(method, address, headers=who, json=content["example"])
            # What a mark stands for is shown to a role alone, also where no key is asked for; a code works once.
            fine = {"reveal": (403,), "link": (404,)}.get(path.rpartition("/")[2], (200, 201, 202))
            assert answer.status_code in fine, (method, path, answer.text)
            if path.endswith("/turns") and "session_id" in path:
                await service.http.post(f"/v1/turns/{answer.json()['turn_id']}/abandon")


async def _task_for(service: HttpService, path: str) -> dict[str, Any]:
    """A task that the route of a path can be asked about: one that waits for a person or an agent, or has ended."""
    running = path.endswith(("/input/{step}", "/resume", "/complete", "/fail"))
    remote = path.endswith(("/complete", "/fail"))
    step = {"agent": "labour-law", "remote": True} if remote else {"human_input": "Send this?"}
    plan = {"steps": [{"id": "read", **step}]}
    opened = await service.http.post("/v1/tasks", json={"type": "t", **({"plan": plan} if running else {})})
    task: dict[str, Any] = opened.json()
    if running:
        scope = service.tenuto.scope()
        await wait_for_step(service.tenuto.tasks, scope, task["id"], "read", "waiting")
    if path.endswith("/resume"):
        await service.http.post(f"/v1/tasks/{task['id']}/cancel")
    return task


async def test_each_request_is_one_line_with_its_id_route_status_and_time(
    service: HttpService, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await service.http.get(at("some-id"), headers={**ANN, "X-Request-ID": "r-1"})

    record = next(record for record in caplog.records if record.name == "tenuto.server.access")
    token = request_id.set("r-1")
    line = KeyValueFormatter().format(record)
    request_id.reset(token)
    assert re.fullmatch(
        r"time=\S+ level=info logger=tenuto.server.access request=r-1 msg=answered "
        r"method=GET route=/v1/sessions/\{session_id\} status=404 ms=[\d.]+",
        line,
    )


def test_a_log_line_cannot_be_forged_or_broken() -> None:
    evil = 'x"\nlevel=error msg=hacked \x1b[31m\ud800'
    try:
        raise ValueError(evil) from KeyError(evil)
    except ValueError:
        raised = sys.exc_info()
    record = logging.LogRecord("tenuto", logging.INFO, "", 0, "session %s", (evil,), raised)

    line = KeyValueFormatter().format(record)

    assert "\n" not in line
    assert "\x1b" not in line
    assert line.count(" level=") == 1
    assert "raised=" in line
    assert "ValueError at test_http_operations.py" in line
    assert "KeyError" in line
    assert "hacked" not in line.split("raised=")[1]


async def test_a_store_that_was_deleted_under_the_server_is_told(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with http_service(store=f"sqlite:///{path}") as service:
        assert (await service.http.post("/v1/chat", headers=ANN, json={"message": "Hello"})).status_code == 200
        path.unlink()
        response = await service.http.post("/v1/chat", headers=ANN, json={"message": "Hello again"})

        assert code(response) == (503, "store_replaced")
        assert "Retry-After" not in response.headers
        assert code(await service.http.get("/readyz")) == (503, "store_replaced")


async def test_the_start_names_store_and_model(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.INFO, logger="tenuto.server.app"):
        async with http_service(store=f"sqlite:///{tmp_path}/a.db", model="offline"):
            pass

    assert f"store sqlite:///{tmp_path}/a.db, model offline, open: loopback only, tenant local" in caplog.messages
