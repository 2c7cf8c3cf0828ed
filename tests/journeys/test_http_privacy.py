"""Private data over HTTP: what is stored of it, who sees what stands behind a mark, and how a user is erased."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.access import KeyRole
from tenuto.model import Scope
from tenuto.model.message import is_summary
from tenuto.model.privacy import Mode
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, at, bearer, code, http_service, says
from tests.journeys.json_web_tokens import JWT_SECRET, jwt_header
from tests.journeys.private_chat import MAIL, PSEUDONYMS, SAID, ask, messages_of, reveal
from tests.journeys.server_process import running_server
from tests.samples import CARD, shows_card
from tests.servers.analyzer import analyzer, entities_response, entity, http_response

# By default


@pytest.mark.requirement("T10", "A11")
def test_a_card_and_a_mail_stay_in_their_messages_and_nowhere_else(tmp_path: Path) -> None:
    """A real server at log level debug; title, trace, summary, log and export hold none of it.

    A summary leaves the messages that it covers as they were.
    """
    store = tmp_path / "sessions.db"
    with running_server(store, TENUTO_PRESET="multi_agent", TENUTO_LOG_LEVEL="debug") as server:
        first = server.http.post("/v1/chat", headers=ANN, json={"message": SAID}).json()
        session = first["session_id"]
        asked = {"message": "What is my mail?", "session_id": session}
        quoted = server.http.post("/v1/chat", headers=ANN, json=asked).json()
        live = server.http.get(at(session, "messages"), headers=ANN).json()["messages"]
        for number in range(17):
            talk = {"message": f"Tell me about garden number {number} of the old town.", "session_id": session}
            server.http.post("/v1/chat", headers=ANN, json=talk)
        export = server.http.get(at(session, "export"), headers=ANN).text
        traces = server.http.get("/v1/traces", params={"session_id": session}, headers=ANN).json()["traces"]
        assert server.end(signal.SIGTERM) == 0

    head, messages = asyncio.run(_stored(store, session))
    assert MAIL in quoted["answer"]
    assert MAIL in live[0]["text"]
    summaries = [message for message in messages if is_summary(message)]
    assert summaries, "the talk was long enough for a summary"
    assert summaries[-1].parts[0]["through"] > live[-1]["seq"]
    elsewhere = [str(head), *map(str, summaries), export, json.dumps(traces), *server.log]
    assert not [text for text in elsewhere if MAIL in text or shows_card(text)]
    assert "4242" not in first["title"]
    assert [trace["redacted"] for trace in traces[-2:]] == [{"CC": 1, "EMAIL": 1}] * 2
    assert [message.text for message in messages[: len(live)]] == [message["text"] for message in live]
    assert "redacted" not in messages[0].metadata


@pytest.mark.requirement("X7")
async def test_short_statements_stay_words_and_what_an_operator_redacts_later_says_so() -> None:
    """Eighteen short messages are no reason for a summary; where one changes messages, they are marked."""
    answers, logs = [], []
    later: dict[str, Any] = {"compress_over": 21, "keep_verbatim": 4, "privacy_past": Mode.REDACT}
    for settings in ({}, later):
        async with http_service(**settings) as service:
            reply = await service.http.post("/v1/chat", headers=ANN, json={"message": f"My email is {MAIL}."})
            session = reply.json()["session_id"]
            for number in range(17):
                talk = {"message": f"Garden {number} of the old town has roses.", "session_id": session}
                await service.http.post("/v1/chat", headers=ANN, json=talk)
            await service.tenuto.upkeep.drain()
            asked = {"message": "What is my email?", "session_id": session}
            answers.append((await service.http.post("/v1/chat", headers=ANN, json=asked)).json()["answer"])
            logs.append(await messages_of(service, ANN, session))

    (kept, *more), (changed, *_) = logs
    assert MAIL in answers[0]
    assert MAIL in kept["text"]
    assert not [message for message in more if message["role"] == "item"]
    assert MAIL not in answers[1]
    assert changed["metadata"]["redacted"] == {"EMAIL": 1}
    assert datetime.fromisoformat(changed["metadata"]["redacted_at"]).tzinfo is not None


async def _stored(store: Path, session: str) -> tuple[Any, list[Any]]:
    async with tenuto.open(f"sqlite:///{store}") as app:
        scope = app.scope(tenant="acme", user="ann")
        head = await app.sessions.get(scope, session)
        return head, [message async for page in app.sessions.iter_pages(scope, head) for message in page]


async def test_what_holds_is_told_without_telling_what_is_hidden(tmp_path: Path) -> None:
    policy = tmp_path / "privacy.toml"
    policy.write_text(
        'allow = ["help@example.com"]\n[tenants.acme]\nmessage = "redact"\nalso = ["ORDER_ID"]\n'
        '[[tenants.acme.patterns]]\nname = "CASE"\npattern = "CASE-[0-9]{6}"\n'
    )
    async with http_service(privacy_file=str(policy)) as service:
        acme = await service.http.get("/v1/privacy", headers=ANN)
        evil = await service.http.get("/v1/privacy", headers=EVE)

    assert acme.json()["modes"]["message"] == "redact"
    assert evil.json()["modes"]["message"] == "keep"
    assert "ORDER_ID" in acme.json()["types"]
    assert acme.json()["patterns"] == ["CASE"]
    assert {acme.json()[what] for what in ("vault", "detector", "degraded", "encryption")} == {False}
    assert "[0-9]" not in acme.text
    assert "help@" not in acme.text


# The external detector


async def test_what_became_of_questions_to_an_outside_detector_is_metered() -> None:
    """Answered, failed, and left alone after five failures in a row; labels are words of ours."""
    well = True

    async def answers(_: bytes) -> bytes:
        return entities_response(entity("PERSON", 0, 3)) if well else http_response(b"", "500 Internal Server Error")

    async with (
        analyzer(answers) as url,
        http_service(privacy_detector=url, privacy_message=Mode.REDACT, privacy_trace=Mode.KEEP) as service,
    ):
        before = meters((await service.http.get("/metrics")).text)
        made = (await service.http.post("/v1/sessions", headers=ANN, json={})).json()["id"]
        await service.http.post(at(made, "messages"), headers=ANN, json=says("Ann was here."))
        once = meters((await service.http.get("/metrics")).text)
        well = False
        for _ in range(7):
            await service.http.post(at(made, "messages"), headers=ANN, json=says("Ann was here again."))
        text = (await service.http.get("/metrics")).text

    results = ("answered", "timeout", "failed", "circuit_open")
    assert [before[f'requests_total{{result="{result}"}}'] for result in results] == [0, 0, 0, 0]
    assert [once[f'requests_total{{result="{result}"}}'] for result in results] == [1, 0, 0, 0]
    assert [meters(text)[f'requests_total{{result="{result}"}}'] for result in results] == [1, 0, 5, 2]
    assert (once["matches_total"], once["circuit_open"], meters(text)["circuit_open"]) == (1, 0, 1)
    assert "Ann" not in text


@pytest.mark.requirement("A14")
async def test_a_title_that_is_cut_in_a_name_shows_no_half_of_it() -> None:
    """What only the external detector knows is looked for before the cut as well; places count code points."""
    name = "Wilhelmina Quibble"

    async def answers(body: bytes) -> bytes:
        at = json.loads(body)["text"].find(name)
        return entities_response(*[entity("PERSON", at, at + len(name))] if at >= 0 else [])

    async with analyzer(answers) as url, http_service(privacy_detector=url) as service:
        reply = await ask(service, ANN, f"😀 Would you please ring up {name} about the carpets?")

    assert reply["title"] == "😀 Would you please ring up..."


@pytest.mark.requirement("A14")
async def test_what_only_an_outside_detector_finds_is_taken_out_of_stored_words_and_counted() -> None:
    """Messages, their note of what was taken out, and traces."""

    async def answers(body: bytes) -> bytes:
        at = json.loads(body)["text"].find("Wilhelmina")
        return entities_response(*[entity("PERSON", at, at + 10)] if at >= 0 else [])

    async with analyzer(answers) as url, http_service(privacy_detector=url, privacy_message=Mode.REDACT) as service:
        reply = await ask(service, ANN, "😀 Wilhelmina called from 202-555-0143.")
        said = (await messages_of(service, ANN, reply["session_id"]))[0]
        trace = (await service.http.get(f"/v1/traces/{reply['trace_id']}", headers=ANN)).json()

    assert said["parts"][0]["text"] == "😀 [REDACTED_PERSON] called from [REDACTED_PHONE]."
    assert said["metadata"]["redacted"] == {"PERSON": 1, "PHONE": 1}
    assert trace["request"] == "😀 [REDACTED_PERSON] called from [REDACTED_PHONE]."


async def test_the_first_failure_of_an_outside_detector_is_told_in_its_own_turn() -> None:
    """By default a later turn asks it about the trace alone, when the answer is there already."""
    well = True

    async def answers(_: bytes) -> bytes:
        return entities_response() if well else http_response(b"", "500 Internal Server Error")

    async with analyzer(answers) as url, http_service(privacy_detector=url) as service:
        whole = await ask(service, ANN, "Ann was here.")
        well = False
        lacking = await ask(service, ANN, "Ann was here again.", session_id=whole["session_id"])
        trace = (await service.http.get(f"/v1/traces/{lacking['trace_id']}", headers=ANN)).json()

    assert (whole["degraded"], lacking["degraded"], trace["degraded"]) == ([], ["detector"], ["detector"])


def meters(text: str) -> dict[str, float]:
    """The figures about the external detector."""
    lines = [line.removeprefix("tenuto_detector_").split() for line in text.splitlines()]
    return {line[0]: float(line[1]) for line in lines if len(line) == 2 and "created" not in line[0]}


async def test_a_server_without_an_outside_detector_has_no_meters_of_it(service: HttpService) -> None:
    assert "tenuto_detector" not in (await service.http.get("/metrics")).text


# Exports


@pytest.mark.requirement("T10")
@pytest.mark.parametrize("written", ["json", "jsonl", "markdown"])
async def test_an_export_holds_nothing_private(written: str) -> None:
    """Head and messages: title, context, attributes, metadata, tool arguments and fields of the sender's own."""
    async with http_service(privacy_title=Mode.KEEP) as service:
        head = {"title": f"About {MAIL}", "context": {"mail": MAIL}, "attributes": {"card": CARD}}
        body = (await service.http.post("/v1/sessions", headers=ANN, json=head)).json()
        call = {"type": "tool_call", "id": "1", "name": "pay", "arguments": {"card": CARD}}
        message = {"role": "assistant", "parts": [call], "metadata": {"to": MAIL}, "own": [MAIL]}
        await service.http.post(at(body["id"], "messages"), headers=ANN, json={"messages": [says(SAID), message]})

        export = await service.http.get(at(body["id"], "export"), params={"format": written}, headers=ANN)
        back = await service.http.post("/v1/sessions/import", headers=ANN, content=export.content)

    assert MAIL not in export.text
    assert not shows_card(export.text)
    assert "[REDACTED_EMAIL]" in export.text
    assert back.status_code == 201
    assert back.json()["message_count"] == 2


@pytest.mark.parametrize("written", ["json", "jsonl", "markdown"])
async def test_an_export_keeps_everything_where_the_policy_says_so(written: str) -> None:
    async with http_service(privacy_export=Mode.KEEP) as service:
        session = (await ask(service, ANN))["session_id"]
        export = await service.http.get(at(session, "export"), params={"format": written}, headers=ANN)
        back = (await service.http.post("/v1/sessions/import", headers=ANN, content=export.content)).json()

        before, after = await messages_of(service, ANN, session), await messages_of(service, ANN, back["id"])

    assert [message["parts"] for message in before] == [message["parts"] for message in after]
    assert MAIL in after[0]["text"]


# Pseudonyms


@pytest.mark.requirement("S2")
async def test_a_mark_is_opened_by_the_role_alone_and_every_look_is_noted(store_url: str) -> None:
    """Stored is `[EMAIL_1]`; a member and an admin are refused, the role sees the value, the audit says who."""
    async with http_service(store=store_url, locked=True, **PSEUDONYMS) as service:
        member = await service.key(user="ann")
        admin = await service.key(role=KeyRole.ADMIN)
        opener, secret = await service.keys.create(tenant="acme", role=KeyRole.REVEAL, user="ann")
        session = (await ask(service, member))["session_id"]
        messages = await messages_of(service, member, session)

        refused = [await reveal(service, who, session, "[EMAIL_1]") for who in (member, admin)]
        opened = await reveal(service, bearer(secret), session, "[EMAIL_1]", "[EMAIL_9]", "[EMAIL_1]")
        audit = await service.http.get("/v1/privacy/audit", headers=admin)

    assert messages[0]["text"] == "My mail is [EMAIL_1], my card is [CC_1]."
    assert messages[0]["metadata"]["redacted"] == {"CC": 1, "EMAIL": 1}
    assert [code(response) for response in refused] == [(403, "forbidden")] * 2
    assert opened.json() == {"values": {"[EMAIL_1]": MAIL}, "unknown": ["[EMAIL_9]"]}
    assert opened.headers["cache-control"] == "no-store"
    assert [(note["act"], note["by"]) for note in audit.json()["entries"]] == [("revealed", f"key {opener.id}")]
    assert audit.json()["entries"][0]["about"] == {"session": session, "placeholders": ["[EMAIL_1]"]}
    assert MAIL not in audit.text


async def test_a_mark_means_something_in_its_own_session_only() -> None:
    async with http_service(locked=True, **PSEUDONYMS) as service:
        opener = await service.key(role=KeyRole.REVEAL)
        ann = {**opener, "X-User-ID": "ann"}
        bob = {**opener, "X-User-ID": "bob"}
        evil = await service.key(tenant="evil", role=KeyRole.REVEAL)
        hers = (await ask(service, ann))["session_id"]
        his = (await ask(service, bob, "Mine is bob@example.org, not [CC_1]."))["session_id"]

        opened = (await reveal(service, bob, his, "[EMAIL_1]", "[CC_1]")).json()
        foreign = [await reveal(service, who, hers, "[EMAIL_1]") for who in (bob, evil)]
        backend = (await reveal(service, opener, hers, "[CC_1]")).json()

    assert opened == {"values": {"[EMAIL_1]": "bob@example.org"}, "unknown": ["[CC_1]"]}
    assert [code(response) for response in foreign] == [(404, "session_not_found")] * 2
    assert backend == {"values": {"[CC_1]": CARD}, "unknown": []}


async def test_a_mark_is_known_with_and_without_its_brackets_and_an_unknown_one_is_told() -> None:
    """A slip of the pen looks like one, and not like a value that is not there; nothing is noted for it."""
    async with http_service(locked=True, **PSEUDONYMS) as service:
        who = await service.key(role=KeyRole.REVEAL, user="ann")
        session = (await ask(service, who))["session_id"]

        spelled = (await reveal(service, who, session, "EMAIL_1", "[EMAIL_1]", " cc_1 ")).json()
        unknown = [
            await reveal(service, who, session, mark) for mark in ("[EMIAL_1]", "EMAIL_2", "[REDACTED_CC]", MAIL)
        ]
        notes = await service.tenuto.privacy.audit.notes(Scope(tenant="acme"))

    assert spelled == {"values": {"[EMAIL_1]": MAIL, "[CC_1]": CARD}, "unknown": []}
    assert [code(response) for response in unknown] == [(404, "placeholder_not_found")] * 4
    assert MAIL not in unknown[-1].text
    assert [note.about["placeholders"] for note in notes] == [["[EMAIL_1]", "[CC_1]"]]


async def test_a_server_without_a_vault_knows_no_mark(locked: HttpService) -> None:
    who = await locked.key(role=KeyRole.REVEAL, user="ann")
    session = (await ask(locked, who))["session_id"]

    assert code(await reveal(locked, who, session, "[EMAIL_1]")) == (404, "placeholder_not_found")


async def test_a_token_reveals_by_its_role_and_an_admins_by_both() -> None:
    async with http_service(jwt_secret=JWT_SECRET, **PSEUDONYMS) as service:
        member, opener = jwt_header("ann"), jwt_header("ann", role=KeyRole.REVEAL)
        admin, both = jwt_header("root", role="admin"), jwt_header("root", role=["admin", "privacy.reveal"])
        session = (await ask(service, member))["session_id"]

        statuses = [
            (await reveal(service, {**who, "X-User-ID": "ann"}, session, "[EMAIL_1]")).status_code
            for who in (member, opener, admin, both)
        ]
        audit = (await service.http.get("/v1/privacy/audit", headers=admin)).json()

    assert statuses == [403, 200, 403, 200]
    assert [note["by"] for note in audit["entries"]] == ["token ann", "token root"]


async def test_an_open_server_reveals_nothing_and_says_what_it_takes() -> None:
    async with http_service(**PSEUDONYMS) as service:
        session = (await ask(service, ANN))["session_id"]
        refused = await reveal(service, ANN, session, "[EMAIL_1]")

    assert code(refused) == (403, "forbidden")
    assert "tenuto keys create --role privacy.reveal" in refused.json()["detail"]


@pytest.mark.parametrize("marks", [[], ["[EMAIL_1]"] * 101, [""], ["x" * 65], "[EMAIL_1]", None])
async def test_odd_lists_of_marks_are_refused(marks: object) -> None:
    async with http_service(locked=True, **PSEUDONYMS) as service:
        who = await service.key(role=KeyRole.REVEAL, user="ann")
        session = (await ask(service, who))["session_id"]
        response = await service.http.post(at(session, "reveal"), headers=who, json={"placeholders": marks})

    assert code(response) == (400, "invalid")


# The audit


async def test_the_audit_is_read_page_by_page_by_those_who_answer_for_the_tenant(locked: HttpService) -> None:
    backend, admin = await locked.key(), await locked.key(user="root", role=KeyRole.ADMIN)
    user, evil = await locked.key(user="ann"), await locked.key(tenant="evil")
    for name in ("one", "two", "three"):
        await locked.http.delete(f"/v1/users/{name}", headers=backend)

    first = (await locked.http.get("/v1/privacy/audit", params={"limit": 2}, headers=admin)).json()
    rest = (
        await locked.http.get("/v1/privacy/audit", params={"limit": 2, "cursor": first["cursor"]}, headers=backend)
    ).json()
    response = await locked.http.get("/v1/privacy/audit", headers=user)
    odd = await locked.http.get("/v1/privacy/audit", params={"cursor": "elsewhere"}, headers=admin)
    other = (await locked.http.get("/v1/privacy/audit", headers=evil)).json()

    assert [len(page["entries"]) for page in (first, rest)] == [2, 1]
    assert rest["cursor"] is None
    assert len({note["id"] for note in first["entries"] + rest["entries"]}) == 3
    assert code(response) == (403, "forbidden")
    assert code(odd) == (400, "invalid_cursor")
    assert other == {"entries": [], "cursor": None}


# Blocking


@pytest.mark.parametrize("sink", ["privacy_message", "privacy_model"])
async def test_what_a_policy_blocks_is_refused_before_anything_is_stored(sink: str) -> None:
    given: dict[str, Any] = {sink: Mode.BLOCK}
    async with http_service(**given) as service:
        whole = await service.http.post("/v1/chat", headers=ANN, json={"message": SAID})
        streamed = await service.http.post("/v1/chat", headers=ANN, json={"message": SAID, "stream": True})
        held = (await service.http.get("/v1/stats", headers=ANN)).json()
        fine = await service.http.post("/v1/chat", headers=ANN, json={"message": "Hello!"})

    assert [code(response) for response in (whole, streamed)] == [(400, "private_data")] * 2
    assert whole.json()["types"] == ["CARD", "EMAIL"]
    assert MAIL not in whole.text
    assert held["sessions"] == 0
    assert fine.status_code == 200


async def test_no_door_stores_a_message_that_is_blocked() -> None:
    async with http_service(privacy_message=Mode.BLOCK) as service:
        made = (await service.http.post("/v1/sessions", headers=ANN, json={})).json()["id"]
        fine = (await service.http.post("/v1/turns", headers=ANN, json={"message": says("Hello!")})).json()
        export = {"format": "tenuto.session", "version": 1, "session": {}, "messages": [says(SAID)]}
        refused = [
            await service.http.post(at(made, "messages"), headers=ANN, json={"messages": [says("Hi."), says(SAID)]}),
            await service.http.post(at(made, "messages"), headers=ANN, json=says("Hi.", own={"mail": MAIL})),
            await service.http.post(at(made, "turns"), headers=ANN, json={"message": says(SAID)}),
            await service.http.post("/v1/turns", headers=BOB, json={"message": says(SAID)}),
            await service.http.post("/v1/sessions/import", headers=BOB, json=export),
            await service.http.post("/v1/npc/chat", headers=BOB, json={"query": SAID}),
        ]
        kept = await messages_of(service, ANN, made)
        bobs = (await service.http.get("/v1/stats", headers=BOB)).json()
        reply = {"message": says(f"I wrote to {MAIL}.", role="assistant")}
        done = await service.http.post(f"/v1/turns/{fine['turn_id']}/finish", headers=ANN, json=reply)

    assert [code(response) for response in refused] == [(400, "private_data")] * len(refused)
    assert kept == []
    assert bobs["sessions"] == 0
    assert done.json()["messages"][0]["text"] == "[WITHHELD]"


# The log

CLERK = f'''
import logging

logging.getLogger("tenuto.clerk").warning("ask {MAIL}", extra={{"fields": {{"card": "{CARD}"}}}})


def look(word: str) -> str:
    """Look a word up."""
    return word
'''


def test_a_line_that_carries_something_private_by_mistake_is_redacted(tmp_path: Path) -> None:
    """A user's tool that logs private text, in a real server."""
    folder = tmp_path / "assistants"
    folder.mkdir()
    (folder / "clerk.toml").write_text('system.en = "You help."\ntools = ["look"]\n')
    (folder / "clerk.py").write_text(CLERK)
    logs = {}
    for mode in ("redact", "keep"):
        environ = {"TENUTO_PRIVACY_LOG": mode, "TENUTO_ASSISTANTS": str(folder)}
        with running_server(tmp_path / f"{mode}.db", **environ) as server:
            server.http.get("/healthz")
            server.end(signal.SIGTERM)
        logs[mode] = "".join(server.log)

    assert 'logger=tenuto.clerk msg="ask [REDACTED_EMAIL]" card=[REDACTED_CC]' in logs["redact"]
    assert MAIL not in logs["redact"]
    assert f'msg="ask {MAIL}" card="{CARD}"' in logs["keep"]
    assert "msg=answered method=GET route=/healthz status=200" in logs["redact"]
