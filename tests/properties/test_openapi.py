"""The OpenAPI document is true: what it allows is accepted, what it forbids refused, every answer as described."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import numpy  # noqa: F401 - whole before Hypothesis looks for it: the server begins to import it in a thread
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core import NOT_SET
from schemathesis.generation import GenerationMode
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import positive_data_acceptance, response_schema_conformance

from tenuto.server import create_app, session_events
from tenuto.server.openapi import document
from tenuto.settings import Settings
from tests.attachments import PNG, base64
from tests.samples import fresh

SECRET = "a secret that is long enough for HS256, at least"
# Without the local embedder: it reads its weights in a thread while Hypothesis reads sources, and Python 3.11 cannot
# parse in two threads at once.
INSTALLATION = Settings(
    store="memory://",
    jwt_secret=SECRET,
    requests_per_minute=0,
    wrong_credentials_per_minute=0,
    busy_wait=timedelta(0),
    embedder="none",
)
DOCUMENT = document(create_app(INSTALLATION))
OPERATIONS = [
    pytest.param(path, method, mode, id=f"{method} {path} {mode.value}")
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    # Other protocols have documents, clients and tests of their own.
    if operation["tags"][0] not in ("openai", "anthropic", "mcp", "a2a")
    for mode in GenerationMode
    # Where nothing can be sent, nothing wrong can be sent.
    if mode is GenerationMode.POSITIVE or operation.get("parameters") or operation.get("requestBody")
]
# Whether a text is an export, an object a receipt, or a list of messages ends with something to answer, JSON Schema
# cannot tell.
BEYOND_SCHEMA = ("/v1/sessions/import", "/v1/privacy/verify", "/v1/ai-sdk/chat", "/v1/ag-ui/{assistant}")
TRACES = "/v1/traces"
MEMORIES = "/v1/memories"
TASKS = "/v1/tasks"
KEYS = "/v1/keys"
PERSON = "/v1/person"
# Whether a plan can run, JSON Schema cannot tell.
PLAN: Any = {"steps": [{"id": "ask", "human_input": "Well?"}]}


@pytest.fixture(scope="module", autouse=True)
def short_streams() -> Iterator[None]:
    """A stream of events ends with its first one; only here, since every worker imports this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_events, "_LASTS", 0.0)
        yield


@pytest.fixture(scope="module")
def api() -> Iterator[Any]:
    """The whole application in this process, behind its gate: one for all tests, each of which has its own tenant."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(INSTALLATION))
    # No text of ours may hold NUL, at any depth; a test of its own sends it.
    schema.config.generation.update(allow_x00=False)
    # Literals of our sources as values: the document names all that it takes, and finding them imports every extra.
    schema.config.analysis.constants.enabled = False
    # What the first turn imports would be half loaded while Hypothesis looks for it.
    with asgi.get_client(schema.app) as client:
        client.post("/v1/chat", headers=_credential("acme"), json={"message": "hi"})
    yield schema
    asgi.shutdown_lifespans()


# Threads of the task engine draw random numbers while Hypothesis looks whether a strategy does.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_every_answer_is_one_the_document_promises(api: Any, path: str, method: str, mode: GenerationMode) -> None:
    """Schemathesis with all its default checks, as an admin of a tenant that no other test knows."""
    headers = _credential(fresh("tenant"))
    without: list[Any] = [positive_data_acceptance] if path in BEYOND_SCHEMA else []

    @given(case=api[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=3, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
    def answered(case: schemathesis.Case[Any]) -> None:
        _part_what_excludes_each_other(case)
        if mode is GenerationMode.POSITIVE:
            with asgi.get_client(api.app) as client:
                _lead_somewhere(case, client, headers)
        response = case.call(headers=headers)
        # The schema of a stream is that of the whole text, as clients have it; Schemathesis takes it for each event's.
        streamed = response.headers.get("content-type", [""])[0].startswith("text/event-stream")
        unchecked = [*without, *([response_schema_conformance] if streamed else [])]
        case.validate_response(response, headers=headers, excluded_checks=unchecked)

    answered()


def _credential(tenant: str) -> dict[str, str]:
    claims = {"tenant_id": tenant, "role": ["admin", "privacy.reveal"], "exp": datetime.now(UTC) + timedelta(minutes=5)}
    return {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}


def _part_what_excludes_each_other(case: schemathesis.Case[Any]) -> None:
    """Two that are each fine and refused together, or one without the other, which OpenAPI cannot say.

    Other tests send them so.
    """
    if "before" in case.query:
        case.query.pop("after", None)
    if case.path == TRACES and "session_id" not in case.query:
        case.query.pop("before", None)
    if "since" in case.query:
        # No period ends before it begins.
        case.query.pop("until", None)
    if case.path.startswith(MEMORIES):
        # Whether a credential is bound to a user, OpenAPI cannot say; this one is not.
        case.headers.setdefault("X-User-ID", "ann")
    if "X-Chat-ID" not in case.headers:
        case.headers.pop("X-Thread-ID", None)
    body = case.body if isinstance(case.body, dict) else {}
    if "if_version" in body:
        case.headers.pop("If-Match", None)
        case.headers.pop("If-None-Match", None)
    if "If-None-Match" in case.headers:
        case.headers.pop("If-Match", None)
    if body.get("regenerate"):
        # An answer that is made again, which is of a message that stands there.
        del body["regenerate"]
    if "task_id" in case.path_parameters and "agent" not in body:
        case.headers.setdefault("Tenuto-Agent", "x")
    if body.get("producer") is not None:
        case.headers.pop("Idempotency-Key", None)


def _lead_somewhere(case: schemathesis.Case[Any], client: asgi.ASGIClient, headers: dict[str, str]) -> None:
    """Have the case ask for what is there: a made-up id would only ever be told that it is not found."""
    for who in [name for name in case.headers if name.lower().startswith("x-")]:
        del case.headers[who]
    turn = client.post("/v1/turns", headers=headers, json={"message": {"role": "user", "text": "hi"}}).json()
    if "session_id" in case.path_parameters:
        client.post(f"/v1/turns/{turn['turn_id']}/abandon", headers=headers)
        case.path_parameters["session_id"] = turn["session"]["id"]
    if "turn_id" in case.path_parameters:
        case.path_parameters["turn_id"] = turn["turn_id"]
    if "task_id" in case.path_parameters:
        _lead_to_task(case, client, headers)
        _name_one_agent(case)
    if case.path == TASKS and isinstance(case.body, dict) and case.body.get("plan") is not None:
        case.body["plan"] = PLAN
    if case.path.startswith((MEMORIES, PERSON)):
        case.headers["X-User-ID"] = "ann"
    if case.path == MEMORIES and case.method == "DELETE":
        # Which memories is said in one of three ways, and in no two of them.
        case.query = {"all": "true", "dry_run": case.query.get("dry_run", "false")}
    if "memory_id" in case.path_parameters:
        held = client.post(MEMORIES, headers=headers | {"X-User-ID": "ann"}, json={"text": "I live in Bologna."}).json()
        case.path_parameters["memory_id"] = held["id"]
    if "key_id" in case.path_parameters:
        case.path_parameters["key_id"] = client.post(KEYS, headers=headers, json={}).json()["key"]["id"]
    if case.path == KEYS and isinstance(case.body, dict):
        # Tenant and site are those of the credential, and an agent has no other role, which OpenAPI cannot say.
        case.body = {name: value for name, value in case.body.items() if name not in ("tenant_id", "agent")}
    # A cursor is one that a listing gave; any other is refused, as another test shows.
    case.query.pop("cursor", None)
    if case.body is not NOT_SET:
        case.body = _storable(case.body)
        _add_up_to_a_count(case.body)
        _show_a_picture(case.body)


def _show_a_picture(body: Any) -> None:
    """Whether content is of its type, and whether a model takes it, OpenAPI cannot say."""
    if isinstance(body, dict) and body.get("attachments"):
        body |= {"attachments": [{"data": base64(PNG)}], "require_attachments": False}


def _lead_to_task(case: schemathesis.Case[Any], client: asgi.ASGIClient, headers: dict[str, str]) -> None:
    """A task that can be asked so: one that has ended can be run again and has no more events, others wait."""
    planned = case.path.endswith(("/resume", "/input/{step}"))
    body = {"type": "t", "plan": PLAN if planned else None}
    task = client.post(TASKS, headers=headers, json=body).json()
    if case.path.endswith(("/resume", "/events")):
        client.patch(f"{TASKS}/{task['id']}", headers=headers, json={"status": "failed"})
    case.path_parameters["task_id"] = task["id"]
    if "step" in case.path_parameters:
        case.path_parameters["step"] = "ask"
    if isinstance(case.body, dict) and case.body.get("from_step") is not None:
        case.body["from_step"] = "ask"


def _name_one_agent(case: schemathesis.Case[Any]) -> None:
    """Who writes is named in the header or in the body, and the same in both, which OpenAPI cannot say."""
    case.headers["Tenuto-Agent"] = "x"
    if "agent" in case.path_parameters:
        case.path_parameters["agent"] = "x"
    if isinstance(case.body, dict):
        case.body.pop("agent", None)


def _add_up_to_a_count(body: Any) -> None:
    """Each message's tokens may be as many as a count holds, their sum too; of sums JSON Schema knows nothing."""
    for message in body.get("messages", ()) if isinstance(body, dict) else ():
        if "tokens" in message:
            message["tokens"] = min(message["tokens"], 2**40)


def _storable(value: Any) -> Any:
    """JSON as our stores keep it, which JSON Schema has no words for: whole numbers as such, and of 64 bits."""
    if isinstance(value, dict):
        return {name: _storable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-(2**63), min(value, 2**64 - 1))
    return value
