"""The law of people: links and partings in any order are unions and parts of sets."""

from __future__ import annotations

from datetime import timedelta
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from tenuto.access import People, PersonNews
from tenuto.errors import IdentityNotFound, Invalid
from tenuto.model import Scope
from tenuto.model.values import JsonObject
from tests.clock import FakeClock
from tests.doubles import MemoryStore

Step = tuple[str, str, str]
USERS = "abcdef"
STEPS = st.lists(
    st.tuples(st.sampled_from(["link", "unlink"]), st.sampled_from(USERS), st.sampled_from(USERS)), max_size=24
)


def regroup(groups: frozenset[frozenset[str]], step: Step) -> frozenset[frozenset[str]]:
    """The model: groups of users, joined and left."""
    what, one, other = step
    with_one, with_other = (next(group for group in groups if user in group) for user in (one, other))
    if what == "link":
        return groups - {with_one, with_other} | {with_one | with_other}
    left = with_one - {one}
    return groups - {with_one} | {frozenset({one})} | ({left} if left else frozenset())


async def note_nothing(scope: Scope, news: PersonNews, by: str, about: JsonObject) -> None:
    """No audit."""


@given(STEPS)
async def test_links_and_partings_in_any_order_are_unions_and_parts_of_sets(steps: list[Step]) -> None:
    people = People(state=MemoryStore().state, note=note_nothing, clock=FakeClock(), code_life=timedelta(minutes=10))
    expected = reduce(regroup, steps, frozenset(frozenset({user}) for user in USERS))

    for what, one, other in steps:
        scope = Scope(tenant="acme", user=one)
        try:
            await (people.link(scope, other, by="otto") if what == "link" else people.unlink(scope, by="otto"))
        except (IdentityNotFound, Invalid):
            assert what == "unlink" or one == other

    assert {frozenset(await people.members(Scope(tenant="acme", user=user))) for user in USERS} == expected
