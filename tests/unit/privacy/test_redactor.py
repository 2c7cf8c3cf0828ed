"""The redactor: which texts of a value are searched and with which name, and long texts that are cut.

A trace keeps both ends of a long text: they are searched quickly, and no part of a value is left at a cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tenuto.context.tokens import truncate_text
from tenuto.model import AppendBatch, Role, tool_call
from tenuto.model.privacy import REDACTED, Mode, PiiMatch, PrivacyPolicy, Sink
from tenuto.model.session import NewSession
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject
from tenuto.privacy.detection import finder as finders
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.json_texts import Slot
from tenuto.privacy.record_redaction import redact_trace
from tenuto.privacy.redactor import SPARE, Redactor
from tenuto.privacy.rules.folding import Work
from tenuto.privacy.tenant_policies import TenantPolicies
from tenuto.privacy.turn_redaction import TurnRedaction
from tests.redactors import redacting_store
from tests.samples import ANN, SENT_AT, fresh, says

pytestmark = pytest.mark.requirement("T10")


SECRETS = {"model": {"password": "hunter22x"}, "trace": {"ssn": "512334455"}, "by": {"phone": "88886666"}}
TOLD = {
    "model": {"password": "[REDACTED_SECRET]"},
    "trace": {"ssn": "[REDACTED_SSN]"},
    "by": {"phone": "[REDACTED_PHONE]"},
}
SHOWN = 8000
LENGTH = 200_000
MAIL = "zoe.quibble@xylophone.example"
BODY = "\n".join(f"{line:02d}QxZ7vW9kJ3+Hf/8sLpTqYb1N".ljust(64, "G") for line in range(50))
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----"
# Borders: of what a cut leaves of the beginning, of what may be shown, of what is searched. The end has the same.
BORDERS = (5_570, SHOWN, SHOWN + SPARE)


def traced(data: JsonObject) -> Trace:
    return Trace(
        id="t1", session_id="s", turn_id="t", number=1, began_at=SENT_AT, assistant="general", request="", data=data
    )


async def test_a_text_is_read_with_its_own_name_below_whatever_name_it_stands() -> None:
    """In traces, tool calls, metadata and memories alike: no name hides a value below it."""
    _, store = redacting_store(PrivacyPolicy(message=Mode.REDACT))
    draft = says("", Role.ASSISTANT, parts=(tool_call("call_1", "save", SECRETS),), metadata=SECRETS)
    create = NewSession(context=SECRETS, attributes=SECRETS, metadata=SECRETS)

    done = await store.sessions.append(ANN, "s", AppendBatch(id=fresh("b"), messages=(draft,), create=create))
    trace = await redact_trace(store.redactor, ANN, None, traced(SECRETS))
    remembered = await store.state.write_state(ANN, "facts", "language", SECRETS)

    head, (said,) = done.session, done.messages
    assert (head.context, head.attributes, head.metadata) == (TOLD, TOLD, TOLD)
    assert said.parts[0]["arguments"] == TOLD
    assert said.metadata == {**TOLD, REDACTED: said.metadata[REDACTED]}
    assert (trace.data, remembered.value) == (TOLD, TOLD)


async def test_the_name_of_a_field_is_redacted_like_its_value_in_a_part_too() -> None:
    _, store = redacting_store(PrivacyPolicy(message=Mode.REDACT))
    part = {"type": "form", f"to {MAIL}": {f"cc {MAIL}": "yes"}, "name": MAIL}

    batch = AppendBatch(id=fresh("b"), messages=(says("", parts=(part,)),), create=NewSession())

    done = await store.sessions.append(ANN, "s", batch)

    assert done.messages[0].parts == (
        {"type": "form", "to [REDACTED_EMAIL]": {"cc [REDACTED_EMAIL]": "yes"}, "name": MAIL},
    )


@pytest.mark.parametrize(
    "name", ["phone_verified_at", "phone_ts", "phone_call_ms", "phone_time", "phone_on", "phoneVerifiedAt"]
)
async def test_a_number_under_the_name_of_an_instant_is_no_phone(name: str) -> None:
    _, store = redacting_store()
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
    _, store = redacting_store()

    entry = await store.state.write_state(ANN, "facts", "habits", {name: number})

    assert entry.value == {name: f"[REDACTED_{type_}]"}


def turn_redaction(trace: Mode = Mode.REDACT) -> TurnRedaction:
    return TurnRedaction(Redactor(policies=TenantPolicies(PrivacyPolicy(trace=trace))))


def filled(value: str, start: int) -> str:
    """A text of words with the value at `start`."""
    words = "so it came " * (LENGTH // 11)
    return f"{words[: start - 1]} {value} {words[start + len(value) + 1 :]}"


def pieces(text: str) -> set[str]:
    """Every six consecutive characters."""
    return {text[at : at + 6] for at in range(len(text) - 5)}


def parts(value: str) -> set[str]:
    """What must not be shown of it; its placeholder has parts of its own name."""
    return pieces(value) - pieces("[REDACTED_PRIVATE_KEY]")


@pytest.mark.parametrize("value", [MAIL, KEY], ids=["mail", "key"])
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("at_the_end", [False, True], ids=["beginning", "end"])
async def test_a_value_across_a_border_is_never_left_in_part(value: str, border: int, at_the_end: bool) -> None:
    """A value across the border is replaced as a whole or not shown at all."""
    in_turn = turn_redaction()
    across = {1, 2, len(value) // 3, len(value) // 2, len(value) - 2, len(value) - 1}

    for before in sorted(across):
        start = LENGTH - border - before if at_the_end else border - before
        clean, _ = await in_turn.before_cut(ANN, filled(value, start), (Sink.TRACE,), SHOWN)
        kept = truncate_text(clean, SHOWN, len)

        assert len(kept) <= SHOWN
        assert parts(value) & pieces(clean) == set()


async def test_what_is_shown_reads_as_if_all_had_been_looked_at() -> None:
    text = f"Ring 202-555-0143. {filled(MAIL, 3_000)} Or write to {MAIL}, please."

    quick, taken = await turn_redaction().before_cut(ANN, text, (Sink.TRACE,), SHOWN)
    whole, _ = await turn_redaction().before_cut(ANN, text, (Sink.TRACE,))

    assert truncate_text(quick, SHOWN, len) == truncate_text(whole, SHOWN, len)
    assert taken == {"PHONE": 1, "EMAIL": 2}


async def test_of_a_megabyte_only_what_matters_to_its_ends_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def seen(finder: PiiFinder, slot: Slot, _: Work | None) -> Sequence[PiiMatch]:
        looked_at.append(len(slot.text))
        return finder.find(slot.text)

    monkeypatch.setattr(finders, "_find_in_slot", seen)
    text = "see 202-555-0143 " * 60_000

    clean, _ = await turn_redaction().before_cut(ANN, text, (Sink.TRACE,), SHOWN)

    assert looked_at == [SHOWN + SPARE] * 2
    assert "0143" not in clean


@pytest.mark.parametrize(("mode", "left"), [(Mode.BLOCK, "[WITHHELD]"), (Mode.KEEP, None)], ids=str)
async def test_a_long_text_is_withheld_or_kept_as_a_short_one(mode: Mode, left: str | None) -> None:
    text = filled(MAIL, 100)

    clean, _ = await turn_redaction(trace=mode).before_cut(ANN, text, (Sink.TRACE,), SHOWN)

    assert clean == (left or text)
