"""What the model saw, in words: a trace is joined with what is stored when one looks."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenuto.access import KeyRole
from tenuto.chat import ChatRequest
from tenuto.context import profile_text
from tenuto.llm import ScriptedModel
from tenuto.model import Draft, Role, Scope
from tenuto.model.generation import ToolContext, ToolOutput, ToolSpec
from tenuto.model.message import text_part
from tenuto.model.privacy import Mode
from tenuto.model.prompt import Language, Piece, digest_text
from tenuto.model.session import Retention
from tenuto.model.turn import Page, Rewrite
from tenuto.model.values import Json, JsonObject
from tenuto.ports import utc_now
from tenuto.privacy.crypto.keyring import KeyRing, MasterKey, MasterKeys
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tests.chats import Adder, patient
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, code, http_service, playing

MAIL = "ann.lee@example.com"
KEY = base64.b64encode(b"k" * 32).decode()
SCOPE = Scope(tenant="acme", user="ann")


async def say(service: HttpService, text: str) -> str:
    body = {"message": text, "session_id": "s"}
    return str((await service.http.post("/v1/chat", headers=ANN, json=body)).json()["trace_id"])


async def parts_of(service: HttpService, trace: str) -> list[dict[str, Any]]:
    context = (await service.http.get(f"/v1/traces/{trace}?text=true", headers=ANN)).json()["context"]
    assert sum(entry["tokens"] for entry in context["entries"]) == context["total"]
    entries: list[dict[str, Any]] = context["entries"]
    return entries


def states(entries: list[dict[str, Any]], kind: str) -> list[tuple[str, str | None]]:
    return [(entry["state"], entry["text"]) for entry in entries if entry["kind"] == kind]


async def test_the_assistants_own_texts_are_not_for_its_users() -> None:
    """The system prompt and the tools are shown to admins and the tenant's own key, to the user's key withheld."""
    given = playing(ScriptedModel("Hello."), system={Language.ENGLISH: "Be brief."}, tools=(Adder(),))
    async with http_service(locked=True, **given) as service:
        user, tenant = await service.key(user="ann"), {**await service.key(), "X-User-ID": "ann"}
        admin = await service.key(user="ann", role=KeyRole.ADMIN)
        trace = (await service.http.post("/v1/chat", headers=user, json={"message": "hi"})).json()["trace_id"]
        seen = []
        for who in (user, tenant, admin):
            entries = (await service.http.get(f"/v1/traces/{trace}?text=true", headers=who)).json()["context"][
                "entries"
            ]
            assert states(entries, "question") == [("stored", "hi")]
            [(state, spec)] = states(entries, "tools")
            seen.append((states(entries, "system"), state, '"add"' in (spec or "")))

    assert seen[0] == ([("withheld", None)], "withheld", False)
    assert seen[1:] == [([("stored", "Be brief.")], "stored", True)] * 2


@pytest.mark.requirement("A25", "T10")
async def test_a_trace_shows_what_is_still_stored_of_its_prompt(tmp_path: Path) -> None:
    """Every part of the prompt with its text, as the model saw it; later changes and removals are told."""
    model = ScriptedModel("Hello Ann.", "Noted.", "Halcyon.", "Good.", "So be it.")
    store = f"sqlite:///{tmp_path / 'state.db'}"
    policies = patient(retention=Retention(max_turns=4))
    given = playing(model, system={Language.ENGLISH: "Be brief."}, policies=policies)
    async with http_service(store=store, encryption=True, privacy_key=KEY, **given) as service:
        boat = {"text": "The name of my boat is Halcyon."}
        memory = (await service.http.post("/v1/memories", headers=ANN, json=boat)).json()["id"]
        await service.http.post("/v1/memories", headers=ANN, json={"text": "Answers are short.", "kind": "preference"})
        await say(service, "Hello")
        await say(service, f"My mail is {MAIL}.")
        trace = await say(service, "What is the name of my boat?")

        entries = await parts_of(service, trace)
        assert states(entries, "system") == [("stored", "Be brief.")]
        assert states(entries, "preferences") == [("stored", "- “Answers are short.”")]
        assert states(entries, "question") == [("stored", "What is the name of my boat?")]
        assert states(entries, "frame") == [("unstored", None)]
        texts = ["Hello", "Hello Ann.", f"My mail is {MAIL}.", "Noted."]
        assert states(entries, "message") == [("stored", text) for text in texts]
        [recalled] = [entry for entry in entries if entry["kind"] == "memory"]
        assert (recalled["id"], recalled["state"]) == (memory, "stored")
        assert "Halcyon" in recalled["text"]
        assert recalled["score"] > 0

        plain = (await service.http.get(f"/v1/traces/{trace}", headers=ANN)).json()["context"]
        assert not [entry for entry in plain["entries"] if "text" in entry or "state" in entry]
        for stranger in (BOB, EVE):
            assert code(await service.http.get(f"/v1/traces/{trace}?text=true", headers=stranger))[0] == 404

        page = await service.tenuto.sessions.messages(SCOPE, "s", Page(limit=2, after=0))
        erased = replace(page.messages[0], parts=(text_part("[ERASED]"),), tokens=0)
        await service.tenuto.sessions.rewrite(SCOPE, "s", Rewrite(messages=(erased,)))
        await service.http.patch(
            f"/v1/memories/{memory}", headers=ANN, json={"text": "My boat was sold last spring to a family from Kiel."}
        )
        entries = await parts_of(service, trace)
        assert states(entries, "message")[0] == ("changed", "[ERASED]")
        assert states(entries, "message")[1] == ("stored", "Hello Ann.")
        assert "sold" in str(states(entries, "memory"))
        assert states(entries, "memory")[0][0] == "changed"

        await service.http.delete(f"/v1/memories/{memory}", headers=ANN)
        for text in ("The session keeps four turns.", "This is one too many."):
            await say(service, text)
        entries = await parts_of(service, trace)
        assert states(entries, "memory") == [("gone", None)]
        # How many more leave with them depends on when the upkeep writes its summary.
        assert states(entries, "message")[:2] == [("gone", None), ("gone", None)]


@pytest.mark.parametrize(
    ("modes", "seen", "state", "shown"),
    [
        ({}, f"Mail {MAIL}?", "stored", f"Mail {MAIL}?"),
        ({"privacy_model": Mode.REDACT}, "Mail [REDACTED_EMAIL]?", "stored", "Mail [REDACTED_EMAIL]?"),
        ({"privacy_model": Mode.PSEUDONYM}, "Mail [EMAIL_1]?", "stored", "Mail [EMAIL_1]?"),
        ({"privacy_message": Mode.REDACT}, f"Mail {MAIL}?", "redacted", "Mail [REDACTED_EMAIL]?"),
        ({"privacy_message": Mode.PSEUDONYM}, f"Mail {MAIL}?", "redacted", "Mail [EMAIL_1]?"),
    ],
    ids=str,
)
async def test_what_the_model_saw_is_shown_or_said_to_be_redacted(
    modes: dict[str, Any], seen: str, state: str, shown: str
) -> None:
    """As a question, and under the vault as a message of the next prompt, too."""
    model = ScriptedModel("Yes.", "Yes.")
    async with http_service(privacy_key=KEY, **modes, **playing(model)) as service:
        first, second = await say(service, f"Mail {MAIL}?"), await say(service, "And now?")
        question, later = await parts_of(service, first), await parts_of(service, second)

    assert model.requests[0].messages[-1].text == seen
    assert states(question, "question") == [(state, shown)]
    # What was redacted before it was stored, later prompts see as it is stored.
    stored_then = "stored" if modes.get("privacy_message") is Mode.REDACT else state
    assert states(later, "message")[0] == (stored_then, shown)


async def test_a_part_that_changed_is_never_taken_for_what_the_model_saw() -> None:
    """The same number of tokens is not the same text; and nothing that is answered allows to confirm a guess."""
    model = ScriptedModel(*["Noted."] * 3)
    tools = {"tools": (Adder(),), "system": {Language.ENGLISH: "Be brief."}}
    async with http_service(**playing(model, **tools)) as service:
        facts = {kind: {"text": f"My {kind} is in Paris.", "kind": kind} for kind in ("fact", "preference")}
        ids = {
            kind: (await service.http.post("/v1/memories", headers=ANN, json=body)).json()["id"]
            for kind, body in facts.items()
        }
        await service.http.post(
            "/v1/chat", headers=ANN, json={"message": "I am in Paris.", "session_id": "s", "profile": {"city": "Paris"}}
        )
        trace = await say(service, "What is in Paris?")
        before = {entry["kind"]: entry["state"] for entry in await parts_of(service, trace) if entry["kind"] != "frame"}

        for memory in ids.values():
            text = (await service.http.get(f"/v1/memories/{memory}", headers=ANN)).json()["text"]
            body = {"text": text.replace("Paris", "Berlin")}
            assert (await service.http.patch(f"/v1/memories/{memory}", headers=ANN, json=body)).status_code == 200
        log = (await service.tenuto.sessions.messages(SCOPE, "s", Page(limit=5))).messages
        edited = [replace(one, parts=(text_part(one.text.replace("Paris", "Berlin")),)) for one in log]
        await service.tenuto.sessions.rewrite(SCOPE, "s", Rewrite(messages=tuple(edited)))
        entries = await parts_of(service, trace)
        answer = (await service.http.get(f"/v1/traces/{trace}?text=true", headers=ANN)).text
        stored = await service.tenuto.store.traces.trace(SCOPE, "s", 2)

    assert set(before.values()) == {"stored"}
    assert before.keys() == {"system", "preferences", "message", "memory", "question", "tools"}
    for kind in ("preferences", "memory", "question"):
        assert [state for state, _ in states(entries, kind)] == ["changed"], kind
    assert [state for state, _ in states(entries, "message")] == ["changed", "stored"]
    assert stored is not None
    assert stored.manifest is not None
    secrets = [stored.digest_key, *(entry.digest for entry in stored.manifest.entries)]
    assert len(set(filter(None, secrets))) > 6
    assert not [secret for secret in secrets if secret and secret in answer]


class Contacts:
    """A tool that runs before the model and finds evidence, with a private value and without."""

    spec = ToolSpec(name="contacts", description="Find contacts.", parameters={"type": "object", "properties": {}})

    def plan(self, turn: ToolContext) -> JsonObject | None:
        return {}

    def render(self, output: Json, turn: ToolContext) -> str:
        return str(output)

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        found = {"mail": f"Write to {MAIL}.", "hours": "Opens at nine."}
        pieces = [Piece(id=name, text=text) for name, text in found.items()]
        beside = Piece(id="beside", text=f"Or to {MAIL}.")
        return ToolOutput(output=[{"id": piece.id, "text": piece.text} for piece in pieces], snippets=(*pieces, beside))


SAID = {
    "question": f"Is {MAIL} right?",
    "message": f"The form says {MAIL}.",
    "preferences": profile_text({"mail": MAIL}, Language.ENGLISH),
    "evidence": f"Write to {MAIL}.",
    "beside": f"Or to {MAIL}.",
    "system": f"You help.\n\nAnswer {MAIL}.",
}
CLEAR = {"question": ["stored"], "message": ["stored"], "preferences": ["stored"]}
HIDDEN = {"question": ["redacted"], "message": ["redacted"], "preferences": ["redacted"]}
REDACTED_TRACE = {"evidence": ["redacted", "stored", "unstored"]}


def confirmed(record: Json) -> set[str]:
    """Which of the texts a reader of this record can confirm, with whatever it holds as the key."""
    keys, digests, inside = {b"tenuto"}, set[str](), [record]
    while inside:
        value = inside.pop()
        if isinstance(value, str) and value:
            keys.add(value.encode())
            if len(value) % 2 == 0 and set(value) <= set("0123456789abcdef"):
                keys.add(bytes.fromhex(value))
            digests.add(value)
        elif isinstance(value, dict):
            inside += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            inside += value
    return {name for name, text in SAID.items() if digests & {digest_text(text, key[:64]) for key in keys}}


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, CLEAR | REDACTED_TRACE),
        ({"privacy_trace": Mode.KEEP}, CLEAR | {"evidence": ["stored", "stored", "unstored"]}),
        ({"privacy_message": Mode.REDACT}, HIDDEN | REDACTED_TRACE),
        ({"privacy_message": Mode.PSEUDONYM, "privacy_key": KEY}, HIDDEN | REDACTED_TRACE),
        ({"privacy_key": KEY}, CLEAR | REDACTED_TRACE),
        ({"encryption": True, "privacy_key": KEY}, CLEAR | REDACTED_TRACE),
    ],
    ids=["keep", "keep in traces", "redact", "pseudonym", "master key", "encrypted"],
)
async def test_no_stored_trace_confirms_a_guess(settings: dict[str, Any], shown: dict[str, list[str]]) -> None:
    """A reader of the database has neither a master key nor the machine's: a guess about what is redacted or edited
    later is confirmed by nothing in the record."""
    helping = playing(ScriptedModel("Yes."), tools=(Contacts(),), run_first=("contacts",))
    async with http_service(**settings, **helping) as service:
        said = ((Role.SYSTEM, SAID["message"]), (Role.USER, SAID["question"]))
        messages = [Draft(id=role.value, role=role, sent_at=utc_now(), parts=(text_part(text),)) for role, text in said]
        request = ChatRequest(
            messages=tuple(messages), session_id="s", profile={"mail": MAIL}, instructions=f"Answer {MAIL}."
        )
        reply = await (await service.tenuto.chat()).take_turn(SCOPE, request)
        record = await service.tenuto.stores.unredacted.traces.trace(SCOPE, "s", 1)
        entries = await parts_of(service, reply.trace_id)

    assert confirmed(msgspec.to_builtins(record)) == set()
    assert {kind: [state for state, _ in states(entries, kind)] for kind in shown} == shown


async def test_digests_outlive_a_rotation_and_end_with_the_tenants_keys() -> None:
    """Without its master key, and once its keys are destroyed, a tenant's parts cannot be compared."""
    old, new = (MasterKey(name=name, secret=name.encode() * 32) for name in ("k", "n"))
    async with http_service(privacy_key=KEY, **playing(ScriptedModel("Yes."))) as service:
        trace, seen = await say(service, "Hello"), []
        for current, other in ((old, new), (new, old), (old, new), (None, None)):
            keys = MasterKeys(current=current or old, others=(other or new,))
            ciphers = TenantCiphers(store=service.tenuto.stores.plain_state, ring=KeyRing(keys=keys))
            await (ciphers.rewrap(SCOPE) if current else ciphers.destroy(SCOPE))
            seen += states(await parts_of(service, trace), "question")

    assert seen == [("stored", "Hello"), ("unchecked", "Hello")] * 2


async def test_the_key_of_digests_stays_on_the_machine_and_out_of_the_store(tmp_path: Path) -> None:
    """Another process of the machine compares as the first one did; another machine says that it cannot."""
    store, model = f"sqlite:///{tmp_path}/t.db", playing(ScriptedModel("Yes."))
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    async with http_service(store=store, journal=str(here), **model) as service:
        trace = await say(service, "Hello")
    seen = []
    for journal in (here, elsewhere):
        async with http_service(store=store, journal=str(journal), **model) as service:
            seen += states(await parts_of(service, trace), "question")
    secret, stored = await asyncio.to_thread(_read_all, here, "trace.key"), await asyncio.to_thread(_read_all, tmp_path)

    assert seen == [("stored", "Hello"), ("unchecked", "Hello")]
    assert len(secret) == 32
    assert secret not in stored
    assert secret.hex().encode() not in stored


def _read_all(folder: Path, pattern: str = "t.db*") -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob(pattern))
