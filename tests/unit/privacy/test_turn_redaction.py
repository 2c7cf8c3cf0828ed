"""What a turn redacts before it cuts, and what metrics and observers get."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import tenuto
from tenuto.app import Tenuto
from tenuto.chat import ChatRequest
from tenuto.context import TokenCounter
from tenuto.errors import ModelFailed
from tenuto.llm.scripted import Call, Fail, Hang, Say, Script
from tenuto.model import Message, Page
from tenuto.model.generation import ToolContext, ToolOutput, ToolSpec
from tenuto.model.privacy import Mode, PiiMatch, PrivacyPolicy, Sink
from tenuto.model.prompt import Disposition
from tenuto.model.turn import ToolRun, Trace, trace_id
from tenuto.model.values import JsonObject
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.json_texts import slots
from tenuto.privacy.record_redaction import TOOL_WORDS, TRACE_WORDS
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.rules.folding import Work
from tenuto.privacy.tenant_policies import TenantPolicies
from tenuto.privacy.turn_redaction import TurnRedaction
from tests.samples import ANN
from tests.unit.privacy.redacting_app import MAIL, prompt_of, redacting_app

CARD = "4242 4242 4242 4242"
# Nearly all of it is values, so that every cut goes through one.
VALUE = "zebra.zebra.zebra.zebra@giraffe.giraffe.giraffe.giraffe.example"
LONG = f"{VALUE} or " * 2000
# How many of them are in the first or the last 8,000 characters; a trace needs no more of a text.
AT_BOTH_ENDS = 2 * 120


class Archive:
    """A tool whose output is too long for any prompt."""

    spec = ToolSpec(name="archive", description="Everything.", parameters={"type": "object"})

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        return ToolOutput(output={"found": LONG})


async def messages(app: Tenuto, session_id: str) -> tuple[Message, ...]:
    return (await app.sessions.messages(ANN, session_id, Page(limit=20))).messages


async def trace_of(app: Tenuto, session_id: str, turn: int = 1) -> Trace:
    found = await app.store.traces.trace(ANN, session_id, turn)
    assert found is not None
    return found


def shows(text: object) -> bool:
    """Whether any part of the value is in the text."""
    return "zebra" in str(text) or "giraffe" in str(text)


# Counts.


async def test_what_was_taken_out_of_an_answer_is_counted_under_it_and_in_the_trace() -> None:
    said = Say("Write to ann@exam", "ple.com or bob@example.org", f", card {CARD}.")
    async with redacting_app(said, privacy_answer="redact") as (app, _):
        reply = await app.ask(ANN, "How do I reach them?")
        [_, answer] = await messages(app, reply.session_id)
        trace = await trace_of(app, reply.session_id)

    assert answer.metadata["redacted"] == trace.redacted == {"EMAIL": 2, "CC": 1}


async def test_what_the_store_takes_out_is_added_to_what_the_answer_lost() -> None:
    scripts: list[Script] = [Call("archive", {"card": CARD}), f"Write to {MAIL}."]
    settings = {"privacy_answer": "redact", "privacy_message": "redact", "privacy_trace": "redact"}
    async with redacting_app(*scripts, tool=Archive(), **settings) as (app, _):
        reply = await app.ask(ANN, "How do I reach her?")
        [_, called, _, answer] = await messages(app, reply.session_id)
        trace = await trace_of(app, reply.session_id)

    assert called.metadata["redacted"] == {"CC": 1}
    assert answer.metadata["redacted"] == {"EMAIL": 1}
    assert trace.redacted == {"EMAIL": 1 + AT_BOTH_ENDS, "CC": 1}


async def test_words_before_a_call_have_a_count_of_their_own() -> None:
    scripts: list[Script] = [[Say(f"I write to {MAIL} first."), Call("archive", {})], "Done."]
    async with redacting_app(*scripts, tool=Archive(), privacy_answer="redact") as (app, _):
        reply = await app.ask(ANN, "Please.")
        stored = await messages(app, reply.session_id)

    assert [one.metadata.get("redacted") for one in stored] == [None, {"EMAIL": 1}, None, None]


async def test_an_answer_that_lost_nothing_has_no_count() -> None:
    async with redacting_app("Hello.", privacy_answer="redact") as (app, _):
        reply = await app.ask(ANN, "Hello.")

        assert "redacted" not in (await messages(app, reply.session_id))[-1].metadata


# Cuts.


@pytest.mark.parametrize("mode", ["redact", "pseudonym"])
async def test_a_prompt_that_is_cut_shows_a_model_no_half_of_a_value(mode: str) -> None:
    async with redacting_app("Noted.", privacy_model=mode) as (app, model):
        first = await app.ask(ANN, LONG)
        second = await app.ask(ANN, f"Again: {LONG}", session_id=first.session_id)

        assert not shows(prompt_of(model, 0) + prompt_of(model, 1))
        for reply in (first, second):
            assert reply.manifest is not None
            assert any(entry.disposition is Disposition.CUT for entry in reply.manifest.entries)


async def test_the_budget_holds_for_marks_that_are_longer_than_what_they_stand_for() -> None:
    """A prompt is counted as it is sent to the model."""
    said = "a@b.co " * 1200
    async with redacting_app("Noted.", privacy_model="redact") as (app, model):
        reply = await app.ask(ANN, said)
        count, manifest = TokenCounter().count, reply.manifest

        assert manifest is not None
        assert count(said) <= manifest.prompt_limit < count(said.replace("a@b.co", "[REDACTED_EMAIL]"))
        assert (
            sum(count(message.text) for message in model.requests[0].messages)
            <= manifest.total
            <= manifest.prompt_limit
        )


async def test_marks_in_a_cut_prompt_are_put_back_as_in_any_other() -> None:
    async with redacting_app("I wrote to [EMAIL_1].", privacy_model="pseudonym") as (app, model):
        reply = await app.ask(ANN, LONG)

        assert "[EMAIL_1]" in prompt_of(model)
        assert reply.text == f"I wrote to {VALUE}."


async def test_a_typed_mark_in_a_prompt_of_pseudonyms_opens_nothing() -> None:
    async with redacting_app("Noted.", "Hm: [EMAIL_1]", privacy_model="pseudonym") as (app, model):
        first = await app.ask(ANN, f"My mail is {MAIL}.")
        await app.ask(ANN, "Say [EMAIL_1].", session_id=first.session_id)

        assert "My mail is [EMAIL_1]." in prompt_of(model)
        assert "Say ［EMAIL_1］." in prompt_of(model)


@pytest.mark.parametrize(("sink", "mode"), [("model", "redact"), ("model", "pseudonym"), ("message", "redact")])
async def test_a_tools_output_that_is_cut_shows_no_half_of_a_value(sink: str, mode: str) -> None:
    scripts: list[Script] = [Call("archive", {}), "Done."]
    async with redacting_app(*scripts, tool=Archive(), **{f"privacy_{sink}": mode}) as (app, model):
        reply = await app.ask(ANN, "Please.")
        stored = await messages(app, reply.session_id)

    assert not shows(prompt_of(model))
    assert not shows(stored)
    assert stored[2].metadata["redacted"] == {"EMAIL": 2000}


async def test_by_default_a_tools_output_is_cut_as_it_is() -> None:
    scripts: list[Script] = [Call("archive", {}), "Done."]
    async with redacting_app(*scripts, tool=Archive()) as (app, model):
        await app.ask(ANN, "Please.")

    assert shows(prompt_of(model))


@pytest.mark.parametrize("mode", ["redact", "pseudonym", "block"])
async def test_a_long_trace_holds_no_half_of_a_value(mode: str) -> None:
    scripts: list[Script] = [Call("archive", {}), LONG]
    async with redacting_app(*scripts, tool=Archive(), privacy_trace=mode) as (app, _):
        reply = await app.ask(ANN, LONG)
        trace = await trace_of(app, reply.session_id)

    assert not shows((trace.request, trace.answer, trace.tools))
    assert trace.redacted == {"EMAIL": 3 * AT_BOTH_ENDS}
    if mode == "block":
        assert (trace.request, trace.answer, trace.tools[0].output) == ("[WITHHELD]",) * 3


async def test_a_long_trace_that_keeps_everything_is_only_cut() -> None:
    async with redacting_app(LONG, privacy_trace="keep") as (app, _):
        reply = await app.ask(ANN, LONG)
        trace = await trace_of(app, reply.session_id)

    assert shows(trace.request)
    assert len(trace.answer) <= 8000
    assert trace.redacted == {}


# Observers.


async def test_observers_see_the_trace_as_it_was_stored() -> None:
    seen: list[Trace] = []
    scripts: list[Script] = [Call("archive", {"card": CARD}), f"I wrote to {MAIL}.", Fail()]
    async with redacting_app(*scripts, tool=Archive(), privacy_trace="pseudonym") as (app, _):
        (await app.chat()).observe(seen.append)
        reply = await app.ask(ANN, f"My mail is {MAIL}.")
        with pytest.raises(ModelFailed):
            await app.ask(ANN, f"And {CARD}.", session_id=reply.session_id)
        kept = [await trace_of(app, reply.session_id, turn) for turn in (1, 2)]

    assert [(one.request, one.answer) for one in seen] == [
        ("My mail is [EMAIL_1].", "I wrote to [EMAIL_1]."),
        ("And [CC_1].", ""),
    ]
    assert [(one.request, one.tools, one.redacted) for one in seen] == [
        (one.request, one.tools, one.redacted) for one in kept
    ]
    assert reply.text == f"I wrote to {MAIL}."
    assert "finish" in seen[0].steps


async def test_observers_of_a_turn_that_left_nothing_behind_see_nothing_private() -> None:
    """Neither if the session is deleted before its turn ends, nor for an assistant without memory."""
    seen: list[Trace] = []
    hang = Hang()
    async with redacting_app([Say(f"It is {MAIL}. "), hang], privacy_trace="pseudonym") as (app, _):
        chat = await app.chat()
        chat.observe(seen.append)
        session = await app.begin(ANN, "Hello.")
        await app.finish(session, "Hello.")
        asking = asyncio.create_task(
            chat.take_turn(ANN, ChatRequest(text=f"My mail is {MAIL}.", session_id=session.session.id))
        )
        await hang.reached.wait()
        await app.sessions.delete(ANN, session.session.id)
        asking.cancel()
        await asyncio.wait([asking])

    assert [(one.request, one.answer) for one in seen] == [("My mail is [REDACTED_EMAIL].", "It is [REDACTED_EMAIL]. ")]


@pytest.mark.parametrize("model", [Mode.REDACT, Mode.BLOCK, Mode.KEEP])
async def test_a_text_for_several_sinks_is_searched_once(model: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value redacted for one sink stays redacted for all, and is counted once."""
    searched: list[str] = []
    find = PiiFinder.find

    def counted(self: PiiFinder, text: str, work: Work | None) -> Sequence[PiiMatch]:
        searched.append(text)
        return find(self, text, work)

    monkeypatch.setattr(PiiFinder, "find", counted)
    redactor = Redactor(policies=TenantPolicies(PrivacyPolicy(message=Mode.REDACT, model=model)))

    clean, taken = await TurnRedaction(redactor).before_cut(ANN, f"write to {MAIL}", (Sink.MODEL, Sink.MESSAGE))

    assert (clean, dict(taken), len(searched)) == ("write to [REDACTED_EMAIL]", {"EMAIL": 1}, 1)


def test_only_a_bare_trace_id_is_not_searched() -> None:
    name = trace_id("s", 1, "t")
    others = [f"{name} ann@example.org", f"{name}=", name[:-1]]

    assert [slot.text for slot in slots({"trace": name, "more": others})] == others


async def test_a_turn_takes_the_policy_as_it_was_worked_out_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    mode, asked = PrivacyPolicy.mode, list[Sink]()

    def counted(policy: PrivacyPolicy, sink: Sink) -> Mode:
        asked.append(sink)
        return mode(policy, sink)

    async with tenuto.open("memory://", privacy_message="redact", privacy_model="redact") as app:
        monkeypatch.setattr(PrivacyPolicy, "mode", counted)
        first = await app.ask(ANN, "Hello there")
        await app.ask(ANN, f"write to {MAIL}", session_id=first.session_id)
        await app.upkeep.drain()

    assert asked == []


# Ids, names of ours, codes and figures.
TRACE_OTHERS = frozenset(
    [
        "id",
        "session_id",
        "turn_id",
        "number",
        "began_at",
        "assistant",
        "persona",
        "speaker",
        "model",
        "offline",
        "manifest",
        "tools",
        "steps",
        "spans",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
        "dropped_reasoning",
        "dropped_items",
        "cost_nanos",
        "finish",
        "degraded",
        "error",
        "reason",
        "stopped",
        "redacted",
        "digest_key",
        "app",
        "app_task",
        "store_overridden",
    ]
)
TOOL_OTHERS = frozenset(["name", "milliseconds", "error", "start", "tokens", "uncut_tokens"])


def test_each_field_of_a_trace_is_redacted_or_known_to_hold_no_words() -> None:
    """A new field that a caller fills in belongs among those that are redacted."""
    assert TRACE_OTHERS.isdisjoint(TRACE_WORDS)
    assert {*Trace.__struct_fields__} == {*TRACE_OTHERS, *TRACE_WORDS}
    assert {*ToolRun.__struct_fields__} == {*TOOL_OTHERS, *TOOL_WORDS}
