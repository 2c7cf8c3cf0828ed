"""The memory index: what is found first, what is left out, and that only the memories decide, not their order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import Invalid
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery
from tenuto.recall.index import MemoryIndex
from tenuto.recall.index_search import search_index

NOW = datetime(2026, 3, 11, 12, tzinfo=UTC)  # A Wednesday.


def memory(name: str, text: str, *, days: float = 30, **fields: Any) -> Memory:
    known: dict[str, Any] = {"kind": MemoryKind.FACT, "said_at": NOW - timedelta(days=days)}
    return Memory(id=name, text=text, **known | fields)


def found(index: MemoryIndex, text: str, vector: Sequence[float] | None = None, **fields: Any) -> list[str]:
    return [hit.memory.id for hit in hits(index, text, vector, **fields)]


def hits(index: MemoryIndex, text: str, vector: Sequence[float] | None = None, **fields: Any) -> tuple[MemoryHit, ...]:
    return search_index(index, MemoryQuery(text=text, **fields), vector, NOW)


TEA = memory("tea", "My favourite tea is Longjing.")
TRAIN = memory("train", "The train to Bologna leaves at 7:40 in the morning.")
CAT = memory("cat", "我的猫叫小白，今年三岁。")


@pytest.mark.parametrize(
    ("text", "first"),
    [("Which tea do I like?", "tea"), ("when do trains leave", "train"), ("猫叫什么名字", "cat"), ("LONGJING", "tea")],
)
def test_words_find_a_memory(text: str, first: str) -> None:
    assert found(MemoryIndex([TEA, TRAIN, CAT]), text) == [first]


@pytest.mark.parametrize("text", ["", "   ", "🎉🎉🎉", "the of 的", "quantum chromodynamics", "?" * 100])
def test_nothing_is_found_where_nothing_is_shared(text: str) -> None:
    assert found(MemoryIndex([TEA, TRAIN, CAT]), text) == []
    assert found(MemoryIndex(), text) == []


@pytest.mark.parametrize("text", ["", "🎉🎉🎉", "?!"])
def test_a_query_without_a_word_finds_nothing_by_its_vector(text: str) -> None:
    assert found(MemoryIndex([TEA], {"tea": [1, 0]}), text, [1, 0]) == []


def test_a_huge_query_is_answered() -> None:
    text = "tea " + " ".join(f"word{number}" for number in range(15_000))

    assert len(text) > 100_000
    assert found(MemoryIndex([TEA, TRAIN, CAT]), text) == ["tea"]


def test_vectors_find_what_shares_no_word() -> None:
    index = MemoryIndex([TEA, TRAIN], {"tea": [0, 2], "train": [3, 0]})

    assert found(index, "hot beverage", [-0.1, 1]) == ["tea"]
    assert found(index, "hot beverage") == []


def test_a_memory_without_a_vector_is_found_by_its_words() -> None:
    index = MemoryIndex([TEA, TRAIN], {"train": [1, 0]})

    assert "tea" in found(index, "favourite tea", [1, 0])


def test_vectors_of_two_lengths_are_refused() -> None:
    index = MemoryIndex([TEA], {"tea": [1, 0]})

    with pytest.raises(Invalid):
        index.put(TRAIN, [1, 0, 0])
    with pytest.raises(Invalid):
        hits(index, "tea", [1, 0, 0])
    assert found(index, "tea", [1, 0]) == ["tea"]


def test_an_edited_memory_keeps_its_vector_while_its_text_stays() -> None:
    index = MemoryIndex([TEA], {"tea": [1, 0]})

    index.put(memory("tea", TEA.text, mentions=2))
    kept = found(index, "beverage", [1, 0])
    index.put(memory("tea", "I prefer coffee."))

    assert kept == ["tea"]
    assert found(index, "beverage", [1, 0]) == []
    assert found(index, "longjing") == []


def test_a_neighbour_in_the_session_leads_to_the_answer() -> None:
    index = MemoryIndex(
        [
            memory("question", "Where did you spend the holiday in Japan?", session_id="s", seqs=(1,)),
            memory("answer", "Kyoto, and it rained.", session_id="s", seqs=(2,)),
            memory("elsewhere", "Lisbon, and it rained.", session_id="t", seqs=(2,)),
        ]
    )

    assert found(index, "holiday in Japan") == ["question", "answer"]
    index.remove("question")
    assert found(index, "holiday in Japan") == []


def test_what_is_near_the_best_hits_is_found_before_what_is_as_near_the_question() -> None:
    """The hike's best hits speak of the Dolomites, as one of two other memories does; the other one is newer."""
    memories = [
        *[memory(f"hike{number}", f"Hike {number}") for number in range(5)],
        memory("related", "Dolomites", days=3),
        memory("other", "Pancakes", days=2),
        *[memory(f"filler{number}", f"Filler {number}") for number in range(20)],
    ]
    # The question, the Dolomites, and a direction for each memory.
    likeness = [*[(0.6, 0.55)] * 5, (0.5, 0.6), (0.5, 0), *[(0.2, 0)] * 20]
    vectors = {one.id: unit_vector(place, *likeness[place]) for place, one in enumerate(memories)}
    best, rest = [f"hike{number}" for number in range(5)], ["related", "other"]

    names = found(MemoryIndex(memories, vectors), "hike", unit_vector(0, 1), limit=7, mmr_lambda=1)

    assert (sorted(names[:5]), names[5:]) == (best, rest)
    # Where there are few candidates, most of them are no good hits, and draw nothing near.
    few = MemoryIndex([memories[0], *memories[5:7]], vectors)
    _, one, other = hits(few, "hike", unit_vector(0, 1), mmr_lambda=1)
    assert one.score == pytest.approx(other.score, abs=0.05)


def test_a_long_list_begins_like_a_short_one() -> None:
    """What MMR takes apart does not depend on how many hits are asked for."""
    memories = [memory(f"m{number}", f"Note {number}", days=number + 1) for number in range(120)]
    # The best eight are of one subject.
    vectors = {one.id: unit_vector(at, 0.75 - 0.004 * at, 0.5 * (at < 8)) for at, one in enumerate(memories)}
    index = MemoryIndex(memories, vectors)

    short, long = (found(index, "notebook", unit_vector(0, 1), limit=limit, mmr_lambda=0.3) for limit in (5, 40))

    assert (len(short), short) == (5, long[:5])


def unit_vector(place: int, *first: float) -> list[float]:
    """A vector of length 1 that begins with these numbers; vectors of other places are alike only by them."""
    vector = [0.0] * 130
    vector[: len(first)] = first
    vector[place + 2] = (1 - sum(number * number for number in first)) ** 0.5
    return vector


def test_what_a_query_may_not_see_does_not_count_as_a_neighbour() -> None:
    index = MemoryIndex(
        [
            memory("secret", "The treasure lies in the cave.", session_id="s", seqs=(1,), persona="pirate"),
            memory("gone", "The treasure was sold.", session_id="s", seqs=(3,), expires_at=NOW),
            memory("plain", "It is a nice day.", session_id="s", seqs=(2,)),
        ]
    )

    assert found(index, "treasure", persona="monk") == []
    assert found(index, "treasure", persona="pirate") == ["secret", "plain"]


def test_filters_leave_out_what_was_not_asked_for() -> None:
    index = MemoryIndex(
        [
            memory("old", "tea in the old town", days=90, session_id="a"),
            memory("new", "tea with a lot of sugar", days=2, kind=MemoryKind.PREFERENCE, session_id="b"),
            memory("past", "tea at my former office", superseded_by="new"),
            memory("ended", "tea from my first shop", valid_until=NOW - timedelta(days=1)),
            memory("expired", "tea until yesterday", expires_at=NOW - timedelta(days=1)),
            memory("pirate", "tea on the pirate ship", days=50, persona="pirate"),
        ]
    )

    def ids(**fields: Any) -> set[str]:
        return set(found(index, "tea", limit=10, **fields))

    assert ids() == {"old", "new"}
    assert ids(persona="pirate") == ids(any_persona=True) == {"old", "new", "pirate"}
    assert ids(kinds=(MemoryKind.PREFERENCE,)) == {"new"}
    assert ids(since=NOW - timedelta(days=60), any_persona=True) == {"new", "pirate"}
    assert ids(until=NOW - timedelta(days=60)) == {"old"}
    assert ids(session_id="a") == {"old"}
    assert ids(session_id="unknown") == set()
    assert ids(persona="monk") == {"old", "new"}
    assert ids(superseded=True) == {"old", "new", "past", "ended"}


def test_each_search_sees_what_holds_at_its_moment_for_its_persona() -> None:
    index = MemoryIndex(
        [
            memory("plain", "tea in the old town"),
            memory("ended", "tea from my first shop", valid_until=NOW + timedelta(hours=1)),
            memory("expires", "tea until tomorrow", expires_at=NOW + timedelta(hours=2)),
            memory("monk", "tea in the cloister", persona="monk"),
            memory("pirate", "tea on the pirate ship", persona="pirate"),
        ]
    )

    def ids(hours: float, **fields: Any) -> str:
        query = MemoryQuery(text="tea", limit=10, **fields)
        return " ".join(sorted(hit.memory.id for hit in search_index(index, query, None, NOW + timedelta(hours=hours))))

    assert ids(0) == "ended expires plain"
    assert ids(1) == "expires plain"
    assert ids(1, superseded=True) == "ended expires plain"
    assert ids(2) == "plain"
    assert ids(0) == "ended expires plain"
    assert ids(2, persona="pirate") == "pirate plain"
    assert ids(2, any_persona=True) == "monk pirate plain"
    assert ids(2, persona="monk") == "monk plain"
    index.put(memory("later", "tea from China"))
    assert ids(2, persona="monk") == "later monk plain"
    index.remove("monk")
    assert ids(2, persona="monk") == "later plain"


def test_a_day_alone_lists_what_was_said_then() -> None:
    index = MemoryIndex([memory("friday", "I bought a bicycle.", days=5), memory("sunday", "I sold a boat.", days=3)])

    assert found(index, "What did we discuss on Friday?") == ["friday"]
    assert found(index, "我们星期天聊了什么？") == ["sunday"]
    assert found(index, "What did we discuss yesterday?") == []


def test_a_period_raises_what_was_said_in_it() -> None:
    texts = {"then": 5, "later": 1, "before": 40}
    index = MemoryIndex([memory(name, f"I cooked {name} soup.", days=days) for name, days in texts.items()])

    assert found(index, "What soup did I cook last week?")[0] == "then"
    assert found(index, "What soup did I cook yesterday?")[0] == "later"


def test_an_explicit_date_finds_its_day() -> None:
    index = MemoryIndex([memory(f"d{day}", f"I cooked soup number {day}.", days=day) for day in range(1, 9)])

    assert found(index, "soup on 8 March")[0] == "d3"
    assert found(index, "3月8日的 soup")[0] == "d3"


def test_what_the_named_speaker_said_comes_first() -> None:
    index = MemoryIndex(
        [
            memory("hers", "A dog called Rex!", speaker="Ann", session_id="s", seqs=(2,)),
            memory("his", "Ann, what dog do you have?", speaker="Bob", session_id="s", seqs=(1,)),
        ]
    )

    assert found(index, "What dog does Ann have?")[0] == "hers"


def test_a_follow_up_is_understood_by_the_conversation() -> None:
    index = MemoryIndex([TEA, TRAIN, CAT])

    assert found(index, "and when?") == []
    assert found(index, "and when?", talk=("How do I get to Bologna?", "By train.")) == ["train"]
    assert found(index, "favourite tea?", talk=("How do I get to Bologna?",))[0] == "tea"


@pytest.mark.requirement("A20")
def test_restatements_appear_once() -> None:
    said = "We moved from Hamburg to Porto in the spring of last year"
    index = MemoryIndex(
        [memory(f"m{number}", f"{prefix}{said}") for number, prefix in enumerate(["", "As I told you: ", "Again, "])]
        + [memory("other", "Porto has a famous bridge.")]
    )

    assert found(index, "When did we move to Porto?", limit=3) == ["m0", "other"]


def test_short_memories_of_one_day_are_no_duplicates() -> None:
    index = MemoryIndex([memory("a", "I like tea."), memory("b", "I hate tea."), memory("c", "I like green tea.")])

    assert sorted(found(index, "tea")) == ["a", "b", "c"]


def test_ties_go_to_the_newest_then_to_the_smallest_id() -> None:
    tied = [memory("b", "x apple", days=3), memory("a", "y apple", days=3), memory("c", "z apple", days=2)]

    assert found(MemoryIndex(tied), "apple", mmr_lambda=1) == ["c", "a", "b"]
    assert found(MemoryIndex(reversed(tied)), "apple", mmr_lambda=1) == ["c", "a", "b"]


@pytest.mark.requirement("A20")
def test_the_query_says_how_much_relevance_weighs_against_likeness() -> None:
    """MMR with 1 is relevance alone; with 0 the second is the least like the first."""
    index = MemoryIndex(
        [
            memory("best", "I drink green tea with jasmine every morning."),
            memory("alike", "I drink green tea with honey every evening."),
            memory("other", "The tea shop near the station closes at noon."),
        ]
    )

    for weight, second in ((1, "alike"), (0, "other")):
        assert found(index, "Which green tea with jasmine do I drink?", limit=2, mmr_lambda=weight) == ["best", second]


def test_a_hit_tells_why_it_was_found() -> None:
    index = MemoryIndex([TEA, TRAIN], {"tea": [1, 0], "train": [0, 1]})

    best = hits(index, "Which tea is my favourite colour?", [1, 0])[0]

    assert best.memory == TEA
    assert set(best.scores.terms) == {"tea", "favourit"}
    assert (best.scores.lexical, best.scores.vector, best.scores.cosine) == (0.5, 0.5, 1)
    assert 0 < best.scores.coverage < 1
    assert best.scores.similarity == 0


@pytest.mark.parametrize(
    ("cosines", "text", "expected"),
    [
        ((0.19, 0.16), "zzz nothing", []),
        ((0.21, 0.16), "zzz nothing", ["tea", "train"]),
        ((0.21, 0.14), "zzz nothing", ["tea"]),
        ((0.05, 0.05), "favourite tea", ["tea"]),
        ((0.05, 0.16), "favourite tea", ["tea", "train"]),
    ],
)
def test_what_is_not_about_the_query_is_not_found(cosines: tuple[float, float], text: str, expected: list[str]) -> None:
    """Neither by a term nor by meaning; where no term is shared, the nearest has to be nearer."""
    tea, train = cosines
    vectors = {"tea": [tea, (1 - tea**2) ** 0.5, 0], "train": [train, 0, (1 - train**2) ** 0.5]}

    found = hits(MemoryIndex([TEA, TRAIN], vectors), text, [1, 0, 0])

    assert [hit.memory.id for hit in found] == expected


WORDS = ["tea", "train", "kyoto", "rain", "music", "茶叶", "火车", "音乐"]
MEMORIES = st.lists(
    st.builds(
        lambda number, words, session, seq, days, speaker, persona: memory(
            f"m{number}", " ".join(words), days=days, session_id=session, seqs=(seq,), speaker=speaker, persona=persona
        ),
        st.integers(0, 12),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=5),
        st.sampled_from(["", "s", "t"]),
        st.integers(0, 4),
        st.integers(1, 3),
        st.sampled_from(["", "Ann"]),
        st.sampled_from([None, "pirate"]),
    ),
    max_size=25,
)
QUERIES = st.builds(
    lambda words, persona, mmr_lambda: MemoryQuery(
        text=" ".join(words), limit=4, persona=persona, mmr_lambda=mmr_lambda
    ),
    st.lists(st.sampled_from([*WORDS, "Ann", "yesterday"]), max_size=4),
    st.sampled_from([None, "pirate", "monk"]),
    st.sampled_from([0.0, 0.7, 1.0]),
)


def vector_of(text: str) -> list[float]:
    return [float(text.count(word)) for word in WORDS] + [0.1]


@settings(deadline=None)
@given(MEMORIES, QUERIES, st.randoms(use_true_random=False), st.booleans())
def test_only_the_memories_decide_not_their_order(
    changes: list[Memory], query: MemoryQuery, random: Any, meaning: bool
) -> None:
    kept: dict[str, Memory] = {}
    index = MemoryIndex()
    for change in changes:
        index.put(change, vector_of(change.text) if meaning else None)
        kept[change.id] = change
        if random.random() < 0.3:
            gone = random.choice(sorted(kept))
            index.remove(gone)
            del kept[gone]
    vectors = {name: vector_of(each.text) for name, each in kept.items()} if meaning else {}
    asked = vector_of(query.text) if meaning else None

    fresh = MemoryIndex(sorted(kept.values(), key=lambda each: each.id), vectors)

    assert len(index) == len(kept)
    assert search_index(index, query, asked, NOW) == search_index(fresh, query, asked, NOW)


@settings(deadline=None)
@given(MEMORIES, QUERIES, st.booleans())
def test_hits_are_distinct_visible_and_no_more_than_asked(
    memories: list[Memory], query: MemoryQuery, meaning: bool
) -> None:
    kept = {each.id: each for each in memories}
    vectors = {name: vector_of(each.text) for name, each in kept.items()} if meaning else {}
    asked = vector_of(query.text) if meaning else None

    got = search_index(MemoryIndex(kept.values(), vectors), query, asked, NOW)

    assert len({hit.memory.text for hit in got}) == len(got) <= query.limit
    assert all(hit.memory == kept[hit.memory.id] for hit in got)
    assert all(hit.memory.persona in {None, query.persona} for hit in got)
    assert all(0 <= score <= 1 for hit in got for score in (hit.scores.lexical, hit.scores.vector, hit.scores.coverage))
    summed = ("lexical", "vector", "session", "period", "speaker")
    assert all(hit.score == round(sum(getattr(hit.scores, name) for name in summed), 4) for hit in got)


def test_the_lexical_room_does_not_load_numpy() -> None:
    program = "import tenuto.recall, sys; print('numpy' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout.strip() == "False"


def test_slots_are_reused_and_leave_nothing_behind() -> None:
    index = MemoryIndex([TEA], {"tea": [1, 0]})
    before = index.nbytes()

    for number in range(200):
        index.put(memory("passing", f"passing thought number{number}"), np.array([0, 1], np.float32))
        index.remove("passing")
    index.remove("unknown")

    assert index.nbytes() <= before + 2_000
    assert found(index, "passing thought") == []
