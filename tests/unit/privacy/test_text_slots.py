"""What is read in a value, and with which name (T10)."""

from __future__ import annotations

import pytest

from tenuto.model import AppendBatch, Role, tool_call
from tenuto.model.privacy import REDACTED, Mode, PrivacyPolicy
from tenuto.model.session import NewSession
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject
from tenuto.privacy.record_redaction import redact_trace
from tests.samples import ANN, SENT_AT, fresh, says
from tests.screens import screened

SECRETS = {"model": {"password": "hunter22x"}, "trace": {"ssn": "512334455"}, "by": {"phone": "88886666"}}
TOLD = {
    "model": {"password": "[REDACTED_SECRET]"},
    "trace": {"ssn": "[REDACTED_SSN]"},
    "by": {"phone": "[REDACTED_PHONE]"},
}


def traced(data: JsonObject) -> Trace:
    return Trace(
        id="t1", session_id="s", turn_id="t", number=1, began_at=SENT_AT, assistant="general", request="", data=data
    )


async def test_a_text_is_read_with_its_own_name_below_whatever_name_it_stands() -> None:
    """In traces, tool calls, metadata and memories alike: no name hides what stands under it."""
    _, store = screened(PrivacyPolicy(message=Mode.REDACT))
    draft = says("", Role.ASSISTANT, parts=(tool_call("call_1", "save", SECRETS),), metadata=SECRETS)
    create = NewSession(context=SECRETS, attributes=SECRETS, metadata=SECRETS)

    done = await store.sessions.append(ANN, "s", AppendBatch(id=fresh("b"), messages=(draft,), create=create))
    trace = await redact_trace(store.screen, ANN, None, traced(SECRETS))
    remembered = await store.state.write_state(ANN, "facts", "language", SECRETS)

    head, (said,) = done.session, done.messages
    assert (head.context, head.attributes, head.metadata) == (TOLD, TOLD, TOLD)
    assert said.parts[0]["arguments"] == TOLD
    assert said.metadata == {**TOLD, REDACTED: said.metadata[REDACTED]}
    assert (trace.data, remembered.value) == (TOLD, TOLD)


@pytest.mark.parametrize(
    "name", ["phone_verified_at", "phone_ts", "phone_call_ms", "phone_time", "phone_on", "phoneVerifiedAt"]
)
async def test_a_number_under_the_name_of_an_instant_is_no_phone(name: str) -> None:
    _, store = screened()
    seen = {name: 1700000000, "tel": [{name: [1700000000, 1700000000000]}], "phone": 13812345678}

    entry = await store.state.write_state(ANN, "facts", "phone_timestamp", seen)
    alone = await store.state.write_state(ANN, "facts", "phone_timestamp", 1700000000)

    assert entry.value == {**seen, "phone": "[REDACTED_PHONE]"}
    assert alone.value == 1700000000


@pytest.mark.parametrize(
    ("name", "number", "type_"),
    [
        ("call_me_on", 13812345678, "PHONE"),
        ("phone_at", 8613812345678, "PHONE"),
        ("card_on", 4111111111111111, "CC"),
        ("ssn_on", 512334455, "SSN"),
        ("id_at", 110101199003078515, "CN_ID"),
    ],
)
async def test_a_number_that_no_instant_has_is_read_whatever_its_name(name: str, number: int, type_: str) -> None:
    _, store = screened()

    entry = await store.state.write_state(ANN, "facts", "habits", {name: number})

    assert entry.value == {name: f"[REDACTED_{type_}]"}
