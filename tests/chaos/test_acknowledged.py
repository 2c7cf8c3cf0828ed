"""The checker of the chaos journeys finds what is planted for it."""

from __future__ import annotations

from tests.chaos.acknowledged import Verdict, check_all, check_session

TURNS = [(f"q{n}", f"a{n}") for n in range(1, 5)]
LOG = [said for question, answer in TURNS for said in (("user", question), ("assistant", answer))]


def test_a_true_log_is_clean() -> None:
    assert check_session(TURNS, LOG) == Verdict(acknowledged=4)
    assert check_session(TURNS, LOG).clean


def test_turns_that_were_not_acknowledged_may_be_stored_once() -> None:
    extra = [*LOG[:2], ("user", "unanswered"), *LOG[2:]]

    assert check_session(TURNS, extra).clean


def test_a_planted_loss_is_found() -> None:
    assert check_session(TURNS, [*LOG[:2], *LOG[4:]]).lost == 1
    assert check_session(TURNS, []).lost == 4


def test_a_lost_or_foreign_answer_is_a_loss() -> None:
    assert check_session(TURNS, [*LOG[:3], *LOG[4:]]).lost == 1
    assert check_session(TURNS, [*LOG[:3], ("assistant", "another"), *LOG[4:]]).lost == 1


def test_an_answer_apart_from_its_question_is_found() -> None:
    assert check_session(TURNS, [*LOG[:3], *LOG[4:6], LOG[3], *LOG[6:]]) == Verdict(acknowledged=4, apart=1)


def test_a_planted_double_is_found() -> None:
    assert check_session(TURNS, [*LOG, *LOG[2:4]]).doubled == 1


def test_a_planted_swap_is_found() -> None:
    assert check_session(TURNS, [*LOG[:4], *LOG[6:], *LOG[4:6]]).reordered == 1


def test_a_session_without_a_log_is_lost() -> None:
    assert check_all({"s": TURNS, "t": TURNS}, {"s": LOG}) == Verdict(acknowledged=8, lost=4)
