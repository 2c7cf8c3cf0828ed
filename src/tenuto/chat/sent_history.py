"""Where the history that a client sends stands in the session that is stored.

Clients of stateless APIs send the whole conversation each time, as they show it. Both sides are read as units of talk:
what a user says, what is shown, an answer with its calls, the output of a tool. Whatever else a history has (thoughts,
items of a provider, system messages) is no talk, and plays no part. Of what the assistant did with its own tools a
client knows the answer alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from tenuto.model.attachment import ATTACHMENT, MEDIA_PARTS
from tenuto.model.message import INPUT, STOPPED, Draft, Message, Role, readable_part
from tenuto.model.values import JsonObject

_TALK: Final = (Role.USER, Role.ASSISTANT, Role.TOOL)
# Comparisons for each unit in the search for where both sides agree.
_COMPARISONS: Final = 20


class _Kind(StrEnum):
    WORDS = "words"
    SHOWN = "shown"
    ANSWER = "answer"
    OUTPUT = "output"


class Unit(NamedTuple):
    """A unit of talk and the messages that it spans, by their places in what was sent or by sequence numbers.

    `texts` are the forms that a client may have of it: of an answer also with what was said before a tool of the
    assistant's own, as a stream shows it. Of one that was `stopped` the client may have a beginning.
    """

    kind: _Kind
    texts: tuple[str, ...]
    calls: tuple[str, ...]
    first: int
    last: int
    stopped: bool = False

    @property
    def is_answer(self) -> bool:
        """Whether the assistant said it."""
        return self.kind is _Kind.ANSWER

    def is_same(self, sent: Unit) -> bool:
        """Whether this stored unit is the one that was sent."""
        if self.kind is not sent.kind or self.calls != sent.calls:
            return False
        return sent.texts[0] in self.texts or self.is_shortened(sent)

    def is_shortened(self, sent: Unit) -> bool:
        """Whether a beginning of this stopped answer was sent."""
        if not self.stopped or sent.texts[0] in self.texts:
            return False
        return any(text.startswith(sent.texts[0]) for text in self.texts)


class HistoryChange(StrEnum):
    """What a request with a history means for its session."""

    NEW = "new"
    CONTINUED = "continued"
    REGENERATED = "regenerated"
    EDITED = "edited"
    PUT_ASIDE = "put-aside"
    STATELESS = "stateless"


class HistoryMatch(NamedTuple):
    """What the history means: the messages from `rest` on are new.

    They stand behind the stored message `after`, and what follows it is replaced, unless it is put aside. Messages
    before `window_start` are no context any more. Without `common` units all that is stored is talk of another kind.
    `shortened` are stored answers that were stopped, of which the client has less, with the places of what was sent.
    """

    change: HistoryChange
    rest: int
    after: int = 0
    window_start: int | None = None
    common: int = 0
    shortened: tuple[tuple[int, int], ...] = ()


def known_unit(place: int) -> Unit:
    """Stands for all that both sides have up to this place."""
    return Unit(_Kind.WORDS, ("",), (), place, place)


def units_of_sent(drafts: Sequence[Draft]) -> list[Unit]:
    """The talk among the messages of a request."""
    return list(_units(enumerate(drafts)))


def units_of_stored(messages: Iterable[Message]) -> list[Unit]:
    """The talk among stored messages."""
    return list(_units((message.seq, message) for message in messages))


def _units(placed: Iterable[tuple[int, Draft]]) -> Iterator[Unit]:
    talk = [(place, message) for place, message in placed if message.role in _TALK]
    for is_answer, run in groupby(talk, key=lambda one: _is_of_answer(one[1])):
        if is_answer:
            yield from _answer(list(run))
            continue
        for place, message in run:
            for part in map(readable_part, message.parts):
                yield from _unit_of_input(part, place)


def _is_of_answer(message: Draft) -> bool:
    """Whether a message is the assistant's, or the output of a tool that the assistant ran itself."""
    if message.role is Role.TOOL:
        return isinstance(message, Message) and INPUT not in message.metadata
    return message.role is Role.ASSISTANT


def _unit_of_input(part: JsonObject, place: int) -> Iterator[Unit]:
    if part["type"] == "text" and part["text"].strip():
        yield Unit(_Kind.WORDS, (part["text"].strip(),), (), place, place)
    elif part["type"] in MEDIA_PARTS:
        shown = part.get(ATTACHMENT) or part.get("url") or part.get("file_id")
        yield Unit(_Kind.SHOWN, (str(shown),), (), place, place)
    elif part["type"] == "tool_result":
        yield Unit(_Kind.OUTPUT, ("",), (part["call_id"],), place, place)


def _answer(run: Sequence[tuple[int, Draft]]) -> Iterator[Unit]:
    """The answer that these messages are together, if it says or calls anything."""
    said, shown, calls, stopped = "", "", list[str](), False
    for _, message in run:
        if message.role is Role.TOOL:
            said, calls = "", []
            continue
        stopped = stopped or STOPPED in message.metadata
        for part in map(readable_part, message.parts):
            if part["type"] == "text":
                said, shown = said + part["text"], shown + part["text"]
            elif part["type"] == "tool_call":
                calls.append(part["id"])
    texts = tuple(dict.fromkeys(["".join(text.split()) for text in (said, shown)]))
    if texts != ("",) or calls:
        yield Unit(_Kind.ANSWER, texts, tuple(calls), run[0][0], run[-1][0], stopped)


def match_history(
    stored: Sequence[Unit], sent: Sequence[Unit], summaries: tuple[str, ...] = (), *, from_first: bool = True
) -> HistoryMatch:
    """What a history means for a session with this talk.

    What is sent begins where the session does if both have the same there; unless `from_first`, the client may send the
    newest messages alone, and what agrees over more units elsewhere stands there. `summaries` are how texts begin that
    stand for a part of it: an app that has compacted its history goes on with what it sent, and what is stored stays,
    put aside.
    """
    ends = next((place for place in range(len(sent), 0, -1) if sent[place - 1].kind is not _Kind.ANSWER), 0)
    # An answer that the caller began belongs to what is new.
    history, prefill = sent[:ends], sent[ends:]
    if not stored:
        return HistoryMatch(HistoryChange.NEW, 0)
    if not history:
        # Nothing that could stand anywhere: an answer begun by the caller, or a message without words.
        return HistoryMatch(HistoryChange.CONTINUED, 0, stored[-1].last, common=1)
    at, place, common = _align(stored, history, from_first=from_first)
    if not common:
        return _without_common(stored, history, summaries)
    return _from_common(stored, [*history, *prefill], _Common(at, place, common, ends), summaries)


class _Common(NamedTuple):
    """Where both agree: from these places on, over so many units; behind `ends` the caller began an answer."""

    at: int
    place: int
    length: int
    ends: int


def _from_common(
    stored: Sequence[Unit], sent: Sequence[Unit], both: _Common, summaries: tuple[str, ...]
) -> HistoryMatch:
    agreed = stored[: both.place + both.length]
    known, rest = stored[len(agreed) :], sent[both.at + both.length : both.ends]
    prefill = sent[both.ends :]
    answers_alone = len(known) == 1 and known[0].kind is _Kind.ANSWER
    if not rest and not prefill and (not known or answers_alone):
        match = HistoryMatch(HistoryChange.REGENERATED, sent[-1].last + 1, agreed[-1].last)
    elif not rest and known:
        match = _from_last_input(agreed, sent[: both.ends])
    elif not known:
        match = HistoryMatch(HistoryChange.CONTINUED, (*rest, *prefill)[0].first, agreed[-1].last)
    elif _is_compacted(rest, summaries) or _is_rewritten(known, rest):
        match = _put_aside(stored)
    else:
        match = HistoryMatch(HistoryChange.EDITED, rest[0].first, agreed[-1].last)
    start = stored[both.place].first if both.place and match.window_start is None else match.window_start
    pairs = zip(agreed[both.place :], sent[both.at :], strict=False)
    # An answer in several messages stays as it is.
    shortened = [(one.last, other.first) for one, other in pairs if one.is_shortened(other) and one.first == one.last]
    return match._replace(window_start=start, common=both.length, shortened=tuple(shortened))


def _align(stored: Sequence[Unit], sent: Sequence[Unit], *, from_first: bool) -> tuple[int, int, int]:
    """Where both begin to agree, in what was sent and in what is stored, and over how many units.

    Either side may have lost its oldest: an app that sends the newest messages alone, or a session with a cap.
    """
    common = _common(stored, 0, sent, 0)
    if not sent or (common and (from_first or common in (len(stored), len(sent)))):
        return 0, 0, common
    most = _COMPARISONS * (len(stored) + len(sent))
    place, in_stored = _longest(len(stored), len(sent), most, lambda place: _common(stored, place, sent, 0))
    at, in_sent = _longest(len(sent), len(stored), most, lambda at: _common(stored, 0, sent, at))
    if max(in_stored, in_sent) <= max(common, 1):
        return 0, 0, common
    return (0, place, in_stored) if in_stored >= in_sent else (at, 0, in_sent)


def _longest(places: int, whole: int, most: int, common_from: Callable[[int], int]) -> tuple[int, int]:
    """The place behind the first from which most units agree, and how many; of equal ones the newest.

    A talk of equal messages ends the search after so many comparisons at the `most`.
    """
    best, longest = 0, 0
    for place in range(places - 1, 0, -1):
        length = common_from(place)
        most -= length + 1
        if length > longest:
            best, longest = place, length
        if length == whole or most < 0:
            break
    return best, longest


def _common(stored: Sequence[Unit], place: int, sent: Sequence[Unit], at: int) -> int:
    """Over how many units both agree from these places on, whole messages on either side."""
    most = min(len(stored) - place, len(sent) - at)
    length = next((number for number in range(most) if not stored[place + number].is_same(sent[at + number])), most)
    while length and (_is_within_message(stored, place + length) or _is_within_message(sent, at + length)):
        length -= 1
    return length


def _is_within_message(units: Sequence[Unit], place: int) -> bool:
    return place < len(units) and units[place - 1].last == units[place].first


def _without_common(stored: Sequence[Unit], sent: Sequence[Unit], summaries: tuple[str, ...]) -> HistoryMatch:
    """Where the first question is another one the session's talk begins anew; any other history is put aside."""
    known, answer = _first_answer(stored), _first_answer(sent)
    common = known is not None and answer is not None and known.is_same(answer) and known is not stored[0]
    if (common or answer is None) and not _is_compacted(sent, summaries):
        return HistoryMatch(HistoryChange.EDITED, 0, stored[0].first - 1, common=int(common))
    return _put_aside(stored)


def _first_answer(units: Sequence[Unit]) -> Unit | None:
    return next((unit for unit in units if unit.is_answer), None)


def _put_aside(stored: Sequence[Unit]) -> HistoryMatch:
    return HistoryMatch(HistoryChange.PUT_ASIDE, 0, stored[-1].last, stored[-1].last + 1)


def _from_last_input(common: Sequence[Unit], sent: Sequence[Unit]) -> HistoryMatch:
    """The last question is asked again, without what was said since."""
    asked = next((place for place in range(len(sent), 0, -1) if sent[place - 1].kind is _Kind.ANSWER), 0)
    before = len(common) - (len(sent) - asked)
    after = common[before - 1].last if before > 0 else common[0].first - 1
    return HistoryMatch(HistoryChange.EDITED, sent[asked].first, after)


def _is_compacted(rest: Sequence[Unit], summaries: tuple[str, ...]) -> bool:
    return any(unit.kind is _Kind.WORDS and unit.texts[0].startswith(summaries) for unit in rest if summaries)


def _is_rewritten(known: Sequence[Unit], rest: Sequence[Unit]) -> bool:
    """Whether the rest keeps later questions without their answers, as a compaction does; one that lacks whole turns
    does not."""
    answers: dict[str, Unit] = {}
    for question, answer in pairwise(known):
        if question.kind is _Kind.WORDS and answer.kind is _Kind.ANSWER:
            answers.setdefault(question.texts[0], answer)
    return any(
        unit.kind is _Kind.WORDS and unit.texts[0] in answers and not answers[unit.texts[0]].is_same(successor)
        for unit, successor in pairwise(rest)
    )
