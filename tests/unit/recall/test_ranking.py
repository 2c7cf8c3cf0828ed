"""Fusion, duplicates and MMR: scores on one scale, no repetition, the same order for the same scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.recall.ranking import drop_duplicates, jaccard_similarities, min_max_normalize, rank_by_mmr, session_scores

RELEVANCES = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(lambda found: sorted(found, reverse=True))


def alike(
    count: int, pairs: dict[tuple[int, int], float], rest: float = 0.6
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    matrix = np.full((count, count), rest, np.float32)
    np.fill_diagonal(matrix, 1)
    for (one, other), value in pairs.items():
        matrix[one, other] = matrix[other, one] = value
    return matrix


def rank(
    relevances: list[float],
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    limit: int,
    mmr_lambda: float,
    duplicate_at: float = 0.95,
) -> list[int]:
    kept = drop_duplicates(matrix, duplicate_at)
    chosen = rank_by_mmr([relevances[place] for place in kept], matrix[np.ix_(kept, kept)], limit, mmr_lambda)
    return [kept[place] for place in chosen]


@pytest.mark.requirement("A20", "A27", "T11")
def test_near_duplicates_give_way_to_what_is_less_relevant_but_new() -> None:
    # Four restatements of one answer about Kubernetes, then two other answers.
    relevances = [0.95, 0.94, 0.93, 0.92, 0.85, 0.80]
    same = {(one, other): 0.96 for one in range(4) for other in range(one)}

    chosen = rank(relevances, alike(6, same), 3, 0.7)

    assert [relevances[place] for place in chosen] == [0.95, 0.85, 0.80]


def test_without_the_threshold_mmr_lets_a_duplicate_back_in() -> None:
    relevances = [0.95, 0.94, 0.93, 0.92, 0.85, 0.80]
    same = {(one, other): 0.96 for one in range(4) for other in range(one)}

    # Answers this relevant to one question are themselves alike, so the penalties differ little.
    chosen = rank(relevances, alike(6, same, rest=0.9), 3, 0.7, duplicate_at=2.0)

    assert 1 in chosen


@pytest.mark.requirement("A19")
def test_mmr_prefers_what_differs_from_those_taken() -> None:
    assert rank([1.0, 0.9, 0.8], alike(3, {(0, 1): 0.8}, rest=0.1), 2, 0.7) == [0, 2]
    assert rank([1.0, 0.9, 0.8], alike(3, {(0, 1): 0.8}, rest=0.1), 2, 1) == [0, 1]


@pytest.mark.requirement("A19")
def test_equal_candidates_keep_their_order() -> None:
    assert rank([0.5] * 5, alike(5, {}), 4, 0.7) == [0, 1, 2, 3]


@pytest.mark.requirement("A19")
@given(RELEVANCES, st.integers(1, 15))
def test_mmr_with_lambda_one_is_plain_relevance(relevances: list[float], limit: int) -> None:
    matrix = alike(len(relevances), {})

    assert rank(relevances, matrix, limit, 1) == list(range(len(relevances)))[:limit]


@given(RELEVANCES, st.integers(1, 15), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_what_is_chosen_is_distinct_and_as_much_as_asked(
    relevances: list[float], limit: int, mmr_lambda: float, seed: int
) -> None:
    vectors = np.random.default_rng(seed).standard_normal((len(relevances), 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    matrix = vectors @ vectors.T

    chosen = rank(relevances, matrix, limit, mmr_lambda, duplicate_at=0.8)

    assert chosen[0] == 0
    assert len(chosen) == len(set(chosen)) <= limit
    assert all(matrix[one, other] < 0.8 for one in chosen for other in chosen if one != other)


def test_scores_are_scaled_among_those_that_count() -> None:
    scores = np.array([9, 2, 4, 3], np.float32)

    assert min_max_normalize(scores, np.array([False, True, True, True])).tolist() == [0, 0, 1, 0.5]
    assert min_max_normalize(scores, np.zeros(4, np.bool_)).tolist() == [0, 0, 0, 0]


def test_a_session_is_as_good_as_its_three_best() -> None:
    scores = np.array([0.9, 0.6, 0.3, 0.1, 0.8])

    found = session_scores(scores, np.array([7, 7, 7, 7, -1], np.int32))

    assert found.tolist() == pytest.approx([0.6, 0.6, 0.6, 0.6, 0])


def test_shared_terms_count_from_three_on() -> None:
    said = [("a", "b", "c", "d"), ("d", "c", "b"), ("a", "b"), ()]

    assert jaccard_similarities(said).tolist() == [[1, 0.75, 0, 0], [0.75, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert jaccard_similarities([()]).tolist() == [[0]]
