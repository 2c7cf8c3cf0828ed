"""Laws of the marks of unread sessions: nothing that was said after a reader began is taken for read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenuto.recall.unread_marks import Marks, claim_marks, is_claimed, remove_marks, set_mark

pytestmark = pytest.mark.requirement("D13")

SESSIONS = ("s", "t")
READERS = ("one", "other")
STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "claim", "end", "wait"]), st.sampled_from(SESSIONS), st.sampled_from(READERS)),
    max_size=40,
)


# Said again in the same millisecond, while somebody reads: few random steps come upon it.
@example(steps=[("say", "s", "one"), ("claim", "s", "one"), ("say", "s", "one"), ("end", "s", "one")])
@given(steps=STEPS)
def test_a_session_is_marked_as_long_as_something_was_not_read_and_has_one_reader(
    steps: list[tuple[str, str, str]],
) -> None:
    """Readers read all that was said before they began; one may begin while the claim of another has run out."""
    marks: Marks = {}
    now = datetime(2026, 11, 19, tzinfo=UTC)
    said, read = dict.fromkeys(SESSIONS, 0), dict.fromkeys(SESSIONS, 0)
    reading: dict[tuple[str, str], tuple[int, int]] = {}
    for step, session, reader in steps:
        if step == "say":
            said[session] += 1
            marks = set_mark(session, now, isolated=False)(marks)
        elif step == "claim":
            marks = claim_marks([session], reader, now)(marks)
            if not is_claimed(marks[session], reader, now):
                reading[session, reader] = (marks[session].number, said[session])
                others = [name for name in READERS if name != reader]
                assert all(is_claimed(marks[session], other, now) for other in others)
        elif step == "end" and (session, reader) in reading:
            number, through = reading.pop((session, reader))
            read[session] = max(read[session], through)
            marks = remove_marks({session: number})(marks)
        elif step == "wait":
            now += timedelta(minutes=3)
        assert all(session in marks for session in SESSIONS if read[session] < said[session])
