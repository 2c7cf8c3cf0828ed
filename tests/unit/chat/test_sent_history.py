"""Where a history stands in a session: what agrees most, and at what cost."""

from __future__ import annotations

import pytest

from tenuto.chat.sent_history import HistoryChange, Unit, match_history, units_of_sent
from tenuto.model import Draft, Role, text_part
from tests.clock import START


def units(texts: str) -> list[Unit]:
    """A talk by its letters: large ones are answers."""
    return units_of_sent(
        [
            Draft(
                id=str(place),
                role=Role.ASSISTANT if letter.isupper() else Role.USER,
                sent_at=START,
                parts=(text_part(letter),),
            )
            for place, letter in enumerate(texts)
        ]
    )


@pytest.mark.parametrize(
    ("stored", "sent", "change", "after"),
    [
        ("sSoOqAoOrB", "oOrBt", HistoryChange.CONTINUED, 9),
        ("oOqAoOrB", "oOrBt", HistoryChange.CONTINUED, 7),
        # Of what agrees as far, the newest; but what stands at the beginning of both stands there.
        ("sSoOqAoOrB", "oOt", HistoryChange.EDITED, 7),
        ("oOqAoOrB", "oOt", HistoryChange.EDITED, 1),
        # The session has lost its oldest.
        ("oOrB", "oOqAoOrBt", HistoryChange.CONTINUED, 3),
        ("sSqA", "oOt", HistoryChange.PUT_ASIDE, 3),
    ],
)
def test_a_history_stands_where_most_of_it_agrees(stored: str, sent: str, change: HistoryChange, after: int) -> None:
    match = match_history(units(stored), units(sent), from_first=False)

    assert (match.change, match.after) == (change, after)


def test_the_whole_chat_of_an_app_begins_where_the_session_does() -> None:
    match = match_history(units("oOqAoOrB"), units("oOrBt"))

    assert (match.change, match.after, match.rest) == (HistoryChange.EDITED, 1, 2)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    ("stored", "sent"), [("x" + "a" * 20_000, "a" * 10_000 + "b"), ("a" * 10_000 + "b", "x" + "a" * 20_000)]
)
def test_equal_messages_are_compared_no_more_than_a_few_times(stored: str, sent: str) -> None:
    assert match_history(units(stored), units(sent), from_first=False).change
