"""Notes of a model on a user: it chooses and labels the user's own sentences, and may err in everything it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tenuto
from tenuto.llm import ScriptedModel
from tenuto.llm.scripted import Call, Fail, Script
from tenuto.model import NewSession
from tenuto.model.memory import Memory, MemoryKind, MemorySource
from tenuto.model.parameters import ModelFacts
from tenuto.model.prompt import Language
from tenuto.upkeep.model_notes import NOTES_SCHEMA, CapturedNote, batches, notes_text, quoted_notes, read_notes
from tests.providers.strict_schemas import anthropic_format_fault, openai_strict_fault
from tests.samples import ANN

BOLOGNA = "I live in Bologna with my two cats."
PEANUTS = "My daughter is allergic to peanuts."
ZH_PEANUTS = "我女儿对花生过敏。"
DE_PEANUTS = "Meine Tochter ist allergisch gegen Nüsse."
MIXED = "我在 Siemens 上班，und meine Frau lehrt Physik."
SHORT = "Keep your answers short."
REFUND = "I want a refund, open a case."
PARIS = "Paris is the capital of France."
DOG = "I have a dog. His name is Rex."
ACME = "I work at Acme now."


def claim(quote: str, **labels: Any) -> dict[str, Any]:
    """A note as a model fills it in; what is not named is right for a fact of the user."""
    right = {"kind": "fact", "about": "user", "whose": "I", "lasting": True, "aspect": None}
    return {"quote": quote, **right, "subject": "", "replaces": False, **labels}


def answer(*of_messages: list[dict[str, Any]]) -> str:
    """The answer of a model with these notes on the first message, the second and so on."""
    return json.dumps({"messages": [{"message": n, "notes": notes} for n, notes in enumerate(of_messages, start=1)]})


HERS = {"about": "person", "whose": "My daughter", "subject": "allergy"}
LIKES = {"kind": "preference", "aspect": "length", "whose": ""}
# Every label is wrong, and only the quotation is right.
WRONG = {"kind": "preference", "aspect": "length", "about": "user", "subject": "diet", "replaces": True}


def plain(text: str) -> tuple[str, str, str, bool]:
    """The sentence of the user as a fact that stands for itself alone."""
    return ("fact", text, "", False)


@pytest.mark.parametrize(
    ("said", "note", "kept"),
    [
        # Right: the user's sentence with its labels, however its signs and accents are copied.
        (BOLOGNA, claim(BOLOGNA, subject="Home  Town"), ("fact", BOLOGNA, "home town", False)),
        (BOLOGNA, claim("i live in “bologna” with my two cats!"), plain(BOLOGNA)),
        (PEANUTS, claim(PEANUTS, **HERS), ("fact", PEANUTS, "my daughter allergy", False)),
        (SHORT, claim(SHORT, **LIKES), ("preference", SHORT, "", False)),
        (f"Hi there! {ACME} Bye!", claim("I work at Acme now"), plain(ACME)),
        (DOG, claim(DOG, subject="dog"), ("fact", DOG, "dog", False)),
        # Other languages, and several in one sentence.
        (
            ZH_PEANUTS,
            claim(ZH_PEANUTS, about="person", whose="我女儿", subject="过敏"),
            ("fact", ZH_PEANUTS, "我女儿 过敏", False),
        ),
        (
            DE_PEANUTS,
            claim(DE_PEANUTS, about="person", whose="Meine Tochter", subject="Allergie"),
            ("fact", DE_PEANUTS, "meine tochter allergie", False),
        ),
        (MIXED, claim(MIXED, whose="我", subject="job"), ("fact", MIXED, "job", False)),
        # Another person's fact as the user's: the whole sentence says whose it is, and no label counts.
        (PEANUTS, claim("allergic to peanuts", subject="diet", replaces=True), plain(PEANUTS)),
        (PEANUTS, claim("allergic to peanuts", **{**WRONG, "whose": "allergic"}), plain(PEANUTS)),
        (PEANUTS, claim("is allergic to peanuts", **{**WRONG, "whose": "peanuts"}), plain(PEANUTS)),
        (PEANUTS, claim(PEANUTS, subject="diet", replaces=True), plain(PEANUTS)),
        (ZH_PEANUTS, claim("对花生过敏", **{**WRONG, "whose": "花生"}), plain(ZH_PEANUTS)),
        (DE_PEANUTS, claim("allergisch gegen Nüsse", **{**WRONG, "whose": "Nüsse"}), plain(DE_PEANUTS)),
        # A preference names what of an answer it is about, and is the user's.
        (SHORT, claim(SHORT, **{**LIKES, "aspect": None}), plain(SHORT)),
        (SHORT, claim(SHORT, **{**LIKES, "about": "person"}), plain(SHORT)),
        # What is wanted now, or of no person, or passing, is no memory, and is not quoted instead.
        (REFUND, claim(REFUND, kind="request"), None),
        (REFUND, claim(REFUND, lasting=False), None),
        (PARIS, claim(PARIS, about="other"), None),
    ],
)
def test_a_note_is_the_users_sentence_and_its_labels_count_as_far_as_the_quotation_bears_them(
    said: str, note: dict[str, Any], kept: tuple[str, str, str, bool] | None
) -> None:
    notes = read_notes(answer([note]), [said])

    assert notes is not None
    (taken,) = notes
    assert taken is not None
    assert [(one.kind, one.text, one.subject, one.replaces) for one in taken] == ([kept] if kept else [])


@pytest.mark.parametrize(
    "note",
    [
        pytest.param(claim("I live in Rome with my two cats."), id="invented"),
        pytest.param(claim("I live in Bologna with my seven cats."), id="wrong number"),
        pytest.param(claim("The user lives in Bologna."), id="its own words"),
        pytest.param(claim("You live in Bologna, how nice!"), id="words of the assistant"),
        pytest.param(claim("The admin's password is hunter2."), id="an instruction inside the message"),
        pytest.param(claim(""), id="no quotation"),
        pytest.param(claim("…"), id="no letter"),
        pytest.param(claim("the"), id="nothing said"),
        pytest.param(claim(BOLOGNA, kind="secret"), id="no kind"),
        pytest.param({"text": BOLOGNA}, id="no note"),
        pytest.param(BOLOGNA, id="a text"),
        pytest.param(claim("I live in Rome.", lasting=False), id="invented and passing"),
    ],
)
def test_what_the_user_did_not_say_is_refused_and_the_message_quoted(note: Any) -> None:
    assert read_notes(answer([note]), [BOLOGNA]) == [None]


@pytest.mark.parametrize("text", ["", "I noted it.", "[]", '{"memories": []}', '{"messages": 7}', '{"messages": [{"n'])
def test_what_is_no_answer_is_told_from_one_without_notes(text: str) -> None:
    assert read_notes(text, [BOLOGNA]) is None


@pytest.mark.parametrize(
    "written",
    ["```json\n{}\n```", '{{"name": "notes", "arguments": {}}}', "I chose {{nothing}} else: {} That is all {{:}}."],
)
def test_an_answer_is_found_in_what_a_model_writes_around_it(written: str) -> None:
    assert read_notes(written.format(answer([])), [BOLOGNA]) == [[]]


def texts(notes: list[list[CapturedNote] | None] | None) -> list[list[str] | None]:
    assert notes is not None
    return [None if each is None else [one.text for one in each] for each in notes]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param(answer([claim(BOLOGNA)], [claim(PEANUTS)]), [[BOLOGNA], [PEANUTS]], id="right"),
        pytest.param(answer([claim(BOLOGNA)]), [[BOLOGNA], None], id="a message that is not named is quoted"),
        pytest.param(answer([], []), [[], []], id="nothing found"),
        pytest.param(answer([claim(PEANUTS)], [claim(PEANUTS)]), [None, [PEANUTS]], id="a note on another message"),
        pytest.param(answer([claim(PEANUTS), claim(BOLOGNA)]), [[BOLOGNA], [PEANUTS]], id="all on the first"),
        pytest.param(answer([], [], [claim(PEANUTS)]), [[], [PEANUTS]], id="a message that there is not"),
        pytest.param(
            answer([claim(f"{BOLOGNA} {PEANUTS}")], []), [None, []], id="one note on two messages and two people"
        ),
        pytest.param(answer([claim("Nothing")], [claim(PEANUTS)]), [None, [PEANUTS]], id="one of two invented"),
        pytest.param(answer([claim(BOLOGNA), {"x": 1}], []), [[BOLOGNA], []], id="one of two notes is none"),
    ],
)
def test_a_note_of_a_batch_belongs_to_the_message_that_holds_its_quotation(
    given: str, kept: list[list[str] | None]
) -> None:
    assert texts(read_notes(given, [BOLOGNA, PEANUTS])) == kept


def test_a_sentence_under_two_subjects_has_none() -> None:
    """What replaces the one must not take the other along."""
    both = "I live in Rome and work at Acme."
    notes = read_notes(answer([claim(both, subject="home"), claim(both, subject="employer")]), [both])

    assert notes == [[CapturedNote("fact", both, start=0)]]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("I have a dog. Is that bad? It is old. I have a cat. Is that bad? It is new.", [0, 38]),
        # Lines without full stops, quoted together, are one sentence where they are split again.
        ("I have a dog\nIt is old\nI have a cat\nIt is new", [0, 23]),
    ],
)
def test_each_quotation_of_a_message_has_its_own_place(text: str, starts: list[int]) -> None:
    assert [note.start for note in quoted_notes(text)] == starts


def test_messages_are_asked_about_together_as_far_as_one_request_holds_them() -> None:
    assert batches(["a" * 3_000, "b" * 4_000, "c" * 4_000, "d"]) == [range(2), range(2, 4)]
    assert batches([]) == []
    assert notes_text([BOLOGNA, PEANUTS], Language.ENGLISH) == f"Message 1:\n{BOLOGNA}\n\nMessage 2:\n{PEANUTS}"


def test_providers_take_the_form_of_the_answer_as_a_strict_one() -> None:
    assert NOTES_SCHEMA.schema is not None
    assert openai_strict_fault(NOTES_SCHEMA.schema) is None
    assert anthropic_format_fault(NOTES_SCHEMA.schema) is None


# Through turns


def small_model(*scripts: Script, schemas: bool = False) -> ScriptedModel:
    return ScriptedModel(*scripts, name="small", facts=ModelFacts(schemas=schemas))


async def remember(small: ScriptedModel, *said: str, embedder: str = "none", **filters: Any) -> list[Memory]:
    """What is remembered once each of these was said, and captured before the next."""
    given: dict[str, Any] = {"models": {"main": ScriptedModel("Fine."), "small": small}, "model": "main"}
    async with tenuto.open(
        "memory://", embedder=embedder, on_missing="adopt", summarizer_model="small", **given
    ) as app:
        # A title would ask the small model, too.
        await app.sessions.create(ANN, NewSession(title="Work"), session_id="s")
        if (encoder := (await app.memories()).embedder) is not None:
            await encoder.warm()
        for text in said:
            await app.ask(ANN, text, session_id="s")
            await app.upkeep.drain()
        return list(await (await app.memories()).list(ANN, **filters))


@pytest.mark.parametrize("schemas", [True, False])
async def test_the_form_is_demanded_by_the_models_own_means_and_else_as_a_tool(schemas: bool) -> None:
    notes = answer([claim(BOLOGNA)])
    small = small_model(notes if schemas else Call("notes", json.loads(notes)), schemas=schemas)
    (memory,) = await remember(small, BOLOGNA)

    (request,) = small.requests
    assert (memory.text, memory.source) == (BOLOGNA, MemorySource.MODEL)
    assert (request.schema is not None, [tool.name for tool in request.tools]) == (
        (True, []) if schemas else (False, ["notes"])
    )
    assert request.background


@pytest.mark.parametrize(
    ("scripts", "source", "requests"),
    [
        (("Sure, I noted it.", answer([claim(BOLOGNA)])), MemorySource.MODEL, 2),
        (("Sure, I noted it.", "I did."), MemorySource.QUOTE, 2),
        ((Fail(),), MemorySource.QUOTE, 1),
        ((answer([claim("I live in Rome")]),), MemorySource.QUOTE, 1),
    ],
)
async def test_an_answer_without_the_form_is_asked_for_once_more_and_then_quoted(
    scripts: tuple[Script, ...], source: MemorySource, requests: int, caplog: pytest.LogCaptureFixture
) -> None:
    small = small_model(*scripts)
    found = await remember(small, BOLOGNA)

    assert [(one.text, one.source) for one in found] == [(BOLOGNA, source)]
    assert len(small.requests) == requests
    assert BOLOGNA not in caplog.text
    failed = source is MemorySource.QUOTE and "Rome" not in str(scripts)
    assert ("messages were quoted without the model" in caplog.text) is failed


ROME = "I live in Rome with my wife."
MILAN = "I moved to Milan last week."
TEA = "I drink tea."
REX = "My dog Rex is nine."
HOME = {"subject": "home town", "replaces": True}


@pytest.mark.parametrize(
    ("embedder", "first", "second", "superseded"),
    [
        pytest.param("none", claim(ROME, **HOME), claim("I live in Milan.", **HOME), True, id="said in like words"),
        pytest.param("local", claim(ROME, **HOME), claim(MILAN, **HOME), True, id="said in other words"),
        pytest.param("none", claim(ROME, **HOME), claim(MILAN, **HOME), False, id="not known to be related"),
        pytest.param("local", claim(ROME, **HOME), claim(REX, whose="My", **HOME), False, id="unrelated memory"),
        pytest.param("none", claim(ROME, **HOME), claim(REX, whose="My", **HOME), False, id="unrelated by words"),
        pytest.param("none", claim(ROME, **HOME), claim("I live in Milan.", subject="home town"), False, id="beside"),
        pytest.param("none", claim(ROME, **HOME), claim("I live in Milan.", replaces=True), False, id="no subject"),
        pytest.param(
            "none",
            claim(ROME, **HOME),
            claim("My son lives in Milan.", about="person", whose="My son", **HOME),
            False,
            id="another person",
        ),
        pytest.param("none", claim(ROME, **HOME), claim("live in Milan", **HOME), False, id="no support for whose"),
        pytest.param(
            "none", claim(ROME, **HOME), claim("I live in Milan.", **{**WRONG, **HOME}), False, id="another kind"
        ),
        pytest.param("none", claim(TEA, subject="drink"), claim(ROME, **HOME), False, id="another subject"),
    ],
)
async def test_a_note_replaces_an_earlier_one_on_its_subject_of_its_person_and_about_the_same(
    embedder: str, first: dict[str, Any], second: dict[str, Any], superseded: bool
) -> None:
    small = small_model(answer([first]), answer([second]))
    said = [f"I {one['quote']}" if one["quote"].startswith("live") else one["quote"] for one in (first, second)]
    later, earlier = await remember(small, *said, embedder=embedder, superseded=True)

    assert (earlier.superseded_by == later.id) is superseded
    assert earlier.valid_until == (later.said_at if superseded else None)


async def test_a_wrong_replacement_is_undone_by_forgetting_the_later_note() -> None:
    small = small_model(answer([claim(ROME, **HOME)]), answer([claim("I live in Milan.", **HOME)]))
    given: dict[str, Any] = {"models": {"main": ScriptedModel("Fine."), "small": small}, "model": "main"}
    async with tenuto.open("memory://", embedder="none", on_missing="adopt", summarizer_model="small", **given) as app:
        await app.sessions.create(ANN, NewSession(title="Work"), session_id="s")
        memories = await app.memories()
        for text in (ROME, "I live in Milan."):
            await app.ask(ANN, text, session_id="s")
            await app.upkeep.drain()
        (later,) = await memories.list(ANN)
        await memories.forget(ANN, [later.id])
        (holding,) = await memories.list(ANN)

    assert (later.text, holding.text) == ("I live in Milan.", ROME)
    assert (holding.superseded_by, holding.valid_until) == ("", None)


async def test_notes_that_err_in_every_label_hide_nothing_and_show_nothing_always() -> None:
    wrong = claim("allergic to peanuts", **{**WRONG, "whose": "allergic", "subject": "home town"})
    found = await remember(small_model(answer([claim(ROME, **HOME)]), answer([wrong])), ROME, PEANUTS, superseded=True)

    assert {(one.text, one.kind, one.superseded_by) for one in found} == {
        (ROME, MemoryKind.FACT, ""),
        (PEANUTS, MemoryKind.FACT, ""),
    }
