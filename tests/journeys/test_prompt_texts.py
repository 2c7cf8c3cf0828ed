"""What the model saw, in words: a trace is joined with what is stored when one looks."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.access import KeyRole
from tenuto.llm import ScriptedModel
from tenuto.model import Scope
from tenuto.model.message import text_part
from tenuto.model.privacy import Mode
from tenuto.model.prompt import Language
from tenuto.model.session import Retention
from tenuto.model.turn import Page, Rewrite
from tests.journeys.door import ANN, BOB, EVE, Door, code, playing, served
from tests.talking import Adder, patient

MAIL = "ann.lee@example.com"
KEY = base64.b64encode(b"k" * 32).decode()
SCOPE = Scope(tenant="acme", user="ann")


async def say(door: Door, text: str) -> str:
    body = {"message": text, "session_id": "s"}
    return str((await door.http.post("/v1/chat", headers=ANN, json=body)).json()["trace_id"])


async def parts_of(door: Door, trace: str) -> list[dict[str, Any]]:
    context = (await door.http.get(f"/v1/traces/{trace}?text=true", headers=ANN)).json()["context"]
    assert sum(entry["tokens"] for entry in context["entries"]) == context["total"]
    entries: list[dict[str, Any]] = context["entries"]
    return entries


def states(entries: list[dict[str, Any]], kind: str) -> list[tuple[str, str | None]]:
    return [(entry["state"], entry["text"]) for entry in entries if entry["kind"] == kind]


async def test_the_assistants_own_texts_are_not_for_its_users() -> None:
    """The system prompt and the tools are shown to admins and the tenant's own key, to the user's key withheld."""
    given = playing(ScriptedModel("Hello."), system={Language.ENGLISH: "Be brief."}, tools=(Adder(),))
    async with served(locked=True, **given) as door:
        user, tenant = await door.key(user="ann"), {**await door.key(), "X-User-ID": "ann"}
        admin = await door.key(user="ann", role=KeyRole.ADMIN)
        trace = (await door.http.post("/v1/chat", headers=user, json={"message": "hi"})).json()["trace_id"]
        seen = []
        for who in (user, tenant, admin):
            entries = (await door.http.get(f"/v1/traces/{trace}?text=true", headers=who)).json()["context"]["entries"]
            assert states(entries, "question") == [("stored", "hi")]
            [(state, spec)] = states(entries, "tools")
            seen.append((states(entries, "system"), state, '"add"' in (spec or "")))

    assert seen[0] == ([("withheld", None)], "withheld", False)
    assert seen[1:] == [([("stored", "Be brief.")], "stored", True)] * 2


async def test_a_trace_shows_what_is_still_stored_of_its_prompt(tmp_path: Path) -> None:
    """A25: every part of the prompt with its text, as the model saw it; later changes and removals are told."""
    model = ScriptedModel("Hello Ann.", "Noted.", "Halcyon.", "Good.", "So be it.")
    store = f"sqlite:///{tmp_path / 'state.db'}"
    policies = patient(retention=Retention(max_turns=4))
    given = playing(model, system={Language.ENGLISH: "Be brief."}, policies=policies)
    async with served(store=store, encryption=True, privacy_key=KEY, **given) as door:
        boat = {"text": "The name of my boat is Halcyon."}
        memory = (await door.http.post("/v1/memories", headers=ANN, json=boat)).json()["id"]
        await door.http.post("/v1/memories", headers=ANN, json={"text": "Answers are short.", "kind": "preference"})
        await say(door, "Hello")
        await say(door, f"My mail is {MAIL}.")
        trace = await say(door, "What is the name of my boat?")

        entries = await parts_of(door, trace)
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

        plain = (await door.http.get(f"/v1/traces/{trace}", headers=ANN)).json()["context"]
        assert not [entry for entry in plain["entries"] if "text" in entry or "state" in entry]
        for stranger in (BOB, EVE):
            assert code(await door.http.get(f"/v1/traces/{trace}?text=true", headers=stranger))[0] == 404

        page = await door.tenuto.sessions.messages(SCOPE, "s", Page(limit=2, after=0))
        erased = replace(page.messages[0], parts=(text_part("[ERASED]"),), tokens=0)
        await door.tenuto.sessions.rewrite(SCOPE, "s", Rewrite(messages=(erased,)))
        await door.http.patch(
            f"/v1/memories/{memory}", headers=ANN, json={"text": "My boat was sold last spring to a family from Kiel."}
        )
        entries = await parts_of(door, trace)
        assert states(entries, "message")[0] == ("changed", "[ERASED]")
        assert states(entries, "message")[1] == ("stored", "Hello Ann.")
        assert "sold" in str(states(entries, "memory"))
        assert states(entries, "memory")[0][0] == "changed"

        await door.http.delete(f"/v1/memories/{memory}", headers=ANN)
        for text in ("The session keeps four turns.", "This is one too many."):
            await say(door, text)
        entries = await parts_of(door, trace)
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
    async with served(privacy_key=KEY, **modes, **playing(model)) as door:
        first, second = await say(door, f"Mail {MAIL}?"), await say(door, "And now?")
        question, later = await parts_of(door, first), await parts_of(door, second)

    assert model.requests[0].messages[-1].text == seen
    assert states(question, "question") == [(state, shown)]
    # What was redacted before it was stored, later prompts see as it is stored.
    stored_then = "stored" if modes.get("privacy_message") is Mode.REDACT else state
    assert states(later, "message")[0] == (stored_then, shown)


async def test_a_part_that_changed_is_never_taken_for_what_the_model_saw() -> None:
    """The same number of tokens is not the same text; and nothing that is answered allows to confirm a guess."""
    model = ScriptedModel(*["Noted."] * 3)
    tools = {"tools": (Adder(),), "system": {Language.ENGLISH: "Be brief."}}
    async with served(**playing(model, **tools)) as door:
        facts = {kind: {"text": f"My {kind} is in Paris.", "kind": kind} for kind in ("fact", "preference")}
        ids = {
            kind: (await door.http.post("/v1/memories", headers=ANN, json=body)).json()["id"]
            for kind, body in facts.items()
        }
        await door.http.post(
            "/v1/chat", headers=ANN, json={"message": "I am in Paris.", "session_id": "s", "profile": {"city": "Paris"}}
        )
        trace = await say(door, "What is in Paris?")
        before = {entry["kind"]: entry["state"] for entry in await parts_of(door, trace) if entry["kind"] != "frame"}

        for memory in ids.values():
            text = (await door.http.get(f"/v1/memories/{memory}", headers=ANN)).json()["text"]
            body = {"text": text.replace("Paris", "Berlin")}
            assert (await door.http.patch(f"/v1/memories/{memory}", headers=ANN, json=body)).status_code == 200
        log = (await door.tenuto.sessions.messages(SCOPE, "s", Page(limit=5))).messages
        edited = [replace(one, parts=(text_part(one.text.replace("Paris", "Berlin")),)) for one in log]
        await door.tenuto.sessions.rewrite(SCOPE, "s", Rewrite(messages=tuple(edited)))
        entries = await parts_of(door, trace)
        answer = (await door.http.get(f"/v1/traces/{trace}?text=true", headers=ANN)).text
        stored = await door.tenuto.store.traces.trace(SCOPE, "s", 2)

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
