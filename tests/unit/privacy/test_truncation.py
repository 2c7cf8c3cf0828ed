"""Long texts that a trace keeps the ends of: quick to look through, and no part of a value is left at a cut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tenuto.context.tokens import truncate_text
from tenuto.model.privacy import Mode, PiiMatch, PrivacyPolicy, Sink
from tenuto.privacy import redactor
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.redactor import SPARE, Redactor, Slot, TenantPolicies
from tenuto.privacy.turn_redaction import TurnRedaction
from tests.samples import ANN

SHOWN = 8000
LENGTH = 200_000
MAIL = "zoe.quibble@xylophone.example"
BODY = "\n".join(f"{line:02d}QxZ7vW9kJ3+Hf/8sLpTqYb1N".ljust(64, "G") for line in range(50))
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----"
# Where something ends: what a cut shows of the beginning, what may be shown, what is looked at. The end has the same.
BORDERS = (5_570, SHOWN, SHOWN + SPARE)


def screen(trace: Mode = Mode.REDACT) -> TurnRedaction:
    return TurnRedaction(Redactor(policies=TenantPolicies(PrivacyPolicy(trace=trace))))


def filled(value: str, start: int) -> str:
    """Words, and among them a value that starts there."""
    words = "so it came " * (LENGTH // 11)
    return f"{words[: start - 1]} {value} {words[start + len(value) + 1 :]}"


def pieces(text: str) -> set[str]:
    """Every six signs in a row."""
    return {text[at : at + 6] for at in range(len(text) - 5)}


def parts(value: str) -> set[str]:
    """What nobody may see of it; the name of what it is stands in its mark as well."""
    return pieces(value) - pieces("[REDACTED_PRIVATE_KEY]")


@pytest.mark.parametrize("value", [MAIL, KEY], ids=["mail", "key"])
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("at_the_end", [False, True], ids=["beginning", "end"])
async def test_a_value_across_a_border_is_never_left_in_part(value: str, border: int, at_the_end: bool) -> None:
    """A26: wherever the value lies around the border, of it stands all in a mark or nothing."""
    in_turn = screen()
    across = {1, 2, len(value) // 3, len(value) // 2, len(value) - 2, len(value) - 1}

    for before in sorted(across):
        start = LENGTH - border - before if at_the_end else border - before
        clean, _ = await in_turn.before_cut(ANN, filled(value, start), (Sink.TRACE,), SHOWN)
        kept = truncate_text(clean, SHOWN, len)

        assert len(kept) <= SHOWN
        assert parts(value) & pieces(clean) == set()


async def test_what_is_shown_reads_as_if_all_had_been_looked_at() -> None:
    text = f"Ring 202-555-0143. {filled(MAIL, 3_000)} Or write to {MAIL}, please."

    quick, taken = await screen().before_cut(ANN, text, (Sink.TRACE,), SHOWN)
    whole, _ = await screen().before_cut(ANN, text, (Sink.TRACE,))

    assert truncate_text(quick, SHOWN, len) == truncate_text(whole, SHOWN, len)
    assert taken == {"PHONE": 1, "EMAIL": 2}


async def test_of_a_megabyte_only_what_matters_to_its_ends_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def seen(finder: PiiFinder, slot: Slot) -> Sequence[PiiMatch]:
        looked_at.append(len(slot.text))
        return finder.find(slot.text)

    monkeypatch.setattr(redactor, "_find_in_slot", seen)
    text = "see 202-555-0143 " * 60_000

    clean, _ = await screen().before_cut(ANN, text, (Sink.TRACE,), SHOWN)

    assert looked_at == [SHOWN + SPARE] * 2
    assert "0143" not in clean


@pytest.mark.parametrize(("mode", "left"), [(Mode.BLOCK, "[WITHHELD]"), (Mode.KEEP, None)], ids=str)
async def test_a_long_text_is_withheld_or_kept_as_a_short_one(mode: Mode, left: str | None) -> None:
    text = filled(MAIL, 100)

    clean, _ = await screen(trace=mode).before_cut(ANN, text, (Sink.TRACE,), SHOWN)

    assert clean == (left or text)
