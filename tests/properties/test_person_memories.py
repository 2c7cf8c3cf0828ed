"""The law of a person's memories: a search over several identities ranks as if one had said everything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tenuto.model import Scope
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.letter_memories import LetterEmbedder, memories_over

IDENTITIES = [Scope(tenant="acme", user=user) for user in ("ann", "ou_ann", "ann@laptop")]
ALONE = Scope(tenant="acme", user="alone")
WORDS = ["bologna", "cats", "peanuts", "cello", "monday", "lawyer", "paris"]
STATEMENTS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.sampled_from(WORDS), min_size=2, max_size=4, unique=True).map(sorted)),
    min_size=1,
    max_size=12,
    unique_by=lambda said: tuple(said[1]),
)


async def linked(scope: Scope) -> Sequence[Scope]:
    return (scope, *(one for one in IDENTITIES if one != scope)) if scope in IDENTITIES else (scope,)


def ranking(hits: Sequence[MemoryHit]) -> list[tuple[str, float]]:
    return [(hit.memory.id, hit.score) for hit in hits]


@given(STATEMENTS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True), st.data())
async def test_a_search_over_identities_ranks_as_if_one_had_said_everything(
    statements: list[tuple[int, list[str]]], question: list[str], data: st.DataObject
) -> None:
    clock = FakeClock()
    memories = memories_over(MemoryStore(clock=clock), clock, LetterEmbedder(), owners_of=linked)
    searched = data.draw(st.sets(st.integers(0, len(statements))))
    query = MemoryQuery(text=" ".join(question), limit=5)
    for number, (place, words) in enumerate(statements):
        said_at = clock() + timedelta(minutes=number)
        memory = Memory(
            id=f"m{number}", kind=MemoryKind.FACT, text=" ".join(words), said_at=said_at, session_id=f"s{place}",
            seqs=(number + 1,),
        )  # fmt: skip
        for scope in (IDENTITIES[place], ALONE):
            await memories.remember(scope, [memory])
        if number in searched:
            # The copy exists already, and follows.
            await memories.search(IDENTITIES[0], query)

    together = (await memories.search(IDENTITIES[-1], query)).hits
    alone = (await memories.search(ALONE, query)).hits

    assert ranking(together) == ranking(alone)
