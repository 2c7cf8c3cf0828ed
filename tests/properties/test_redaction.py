"""Laws of the redactor: values keep their shape, nothing private stays, and twice is the same as once."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.model import Page, Role, tool_result
from tenuto.model.privacy import Mode, PrivacyPolicy, Sink
from tenuto.model.values import Json
from tenuto.privacy import detect
from tenuto.privacy.json_texts import collect_slots, in_order, replace_part_texts, replace_texts
from tenuto.privacy.record_redaction import redact_draft
from tests.doubles import MemoryStore
from tests.redactors import redacting_store, redactor_over
from tests.samples import ANN, odd_texts, opening, says

PRIVATE = odd_texts("private values")
plain = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
pieces = st.one_of(plain, st.sampled_from(PRIVATE), st.sampled_from(["mail ", "电话", " and ", "\n", "卡号 "]))
texts = st.lists(pieces, max_size=6).map("".join)
names = st.one_of(st.sampled_from(["text", "phone", "password", "to", "note", "sent_at"]), plain)
values = st.recursive(
    st.one_of(
        texts, st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=8,
)


@given(values)
def test_a_value_refilled_with_its_own_texts_is_the_same(value: Json) -> None:
    unchanged, slots = collect_slots(partial(replace_texts, value))
    assert unchanged == replace_texts(value, in_order(slot.text for slot in slots)) == value


@settings(deadline=None)
@given(text=texts, output=values, mode=st.sampled_from([Mode.REDACT, Mode.PSEUDONYM]))
async def test_what_is_stored_holds_nothing_that_can_be_found(text: str, output: Json, mode: Mode) -> None:
    policy = PrivacyPolicy(message=mode)
    _, store = redacting_store(policy)
    words = (says(text), says("", Role.TOOL, parts=(tool_result("c", output),)))
    await store.sessions.begin_turn(ANN, opening("s", user_messages=words))

    for message in (await store.sessions.messages(ANN, "s", Page(limit=10))).messages:
        for slot in collect_slots(partial(replace_part_texts, message.parts))[1]:
            assert detect(slot.text) == [], "found again in what was stored"


@settings(deadline=None)
@given(text=texts, output=values)
async def test_redacting_twice_changes_nothing(text: str, output: Json) -> None:
    store = MemoryStore()
    redactor = redactor_over(store)
    message = says(text, parts=({"type": "text", "text": text}, tool_result("c", output)))

    once = await redact_draft(redactor, Sink.SUMMARY, ANN, None, message)
    twice = await redact_draft(redactor, Sink.SUMMARY, ANN, None, once)

    assert twice.parts == once.parts
