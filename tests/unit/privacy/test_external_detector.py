"""External detectors: requests and answers, and that a slow, broken or wrong one only degrades, visibly."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import EntryPoint
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenuto
from tenuto.errors import InvalidSetting, Unavailable
from tenuto.model import AppendBatch, NewSession, tool_call
from tenuto.model.privacy import CustomPattern, Mode, PiiMatch, PrivacyPolicy, replace_matches
from tenuto.model.scope import Scope
from tenuto.privacy.detection.external import ExternalDetector, ExternalDetectorPolicy, language_of
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.detection.presidio import PresidioDetector
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.tenant_policies import TenantPolicies
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tests.clock import Ticks
from tests.doubles import MemoryStore
from tests.samples import ANN, says
from tests.servers.analyzer import Answering, analyzer, entities_response, entity, http_response
from tests.unit.privacy.scripted_detector import ScriptedDetector, external_detector

TEXT = "😀 Ann Lee moved to Lisbon"
SECRET_WORDS = "Wilhelmina Quux"


@asynccontextmanager
async def service(
    answer: bytes | Answering, timeout: timedelta = timedelta(seconds=20)
) -> AsyncIterator[PresidioDetector]:
    async def same(_: bytes) -> bytes:
        assert isinstance(answer, bytes)
        return answer

    async with analyzer(same if isinstance(answer, bytes) else answer) as url:
        presidio = PresidioDetector(url, timeout=timeout)
        try:
            yield presidio
        finally:
            await presidio.close()


# Presidio's protocol.


async def test_the_service_is_asked_as_presidio_is_and_its_places_count_code_points() -> None:
    asked: list[dict[str, object]] = []

    async def answer(body: bytes) -> bytes:
        asked.append(json.loads(body))
        return entities_response(entity("PERSON", 2, 9), entity("LOCATION", 19, 25))

    async with service(answer) as presidio:
        found = await presidio.find(ANN, TEXT, "en")

    assert asked == [{"text": TEXT, "language": "en", "entities": ["PERSON", "LOCATION"], "score_threshold": 0.5}]
    assert [(TEXT[f.start : f.end], f.type, f.placeholder) for f in found] == [
        ("Ann Lee", "PERSON", "[REDACTED_PERSON]"),
        ("Lisbon", "ADDRESS", "[REDACTED_ADDRESS]"),
    ]
    assert [find.rule for find in found] == ["PRESIDIO_PERSON", "PRESIDIO_LOCATION"]


async def test_entities_that_nobody_mapped_and_weak_ones_are_left_out() -> None:
    async with service(entities_response(entity("DATE_TIME", 0, 3), entity("PERSON", 2, 9, 0.3))) as presidio:
        assert await presidio.find(ANN, TEXT, "en") == []


async def test_half_a_surrogate_pair_does_not_keep_the_rest_from_being_asked() -> None:
    async with service(entities_response(entity("PERSON", 2, 9))) as presidio:
        assert len(await presidio.find(ANN, "\ud800 Ann Lee", "en")) == 1


UNUSABLE = {
    "an error": http_response(b'{"error": "' + SECRET_WORDS.encode() + b'"}', "500 Internal Server Error"),
    "not found": http_response(b"", "404 Not Found"),
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "garbage": http_response(b"<html>" + SECRET_WORDS.encode()),
    "not UTF-8": http_response(b'[{"entity_type": "\xff", "start": 0, "end": 1, "score": 1}]'),
    "another shape": http_response(b'{"results": []}'),
    "a find without a place": http_response(b'[{"entity_type": "PERSON", "score": 1}]'),
    "text for numbers": http_response(b'[{"entity_type": "PERSON", "start": "0", "end": "3", "score": 1}]'),
    "a place before the text": entities_response(entity("PERSON", -1, 3)),
    "a place behind the text": entities_response(entity("PERSON", 2, 9), entity("PERSON", 20, 27)),
    "an empty place": entities_response(entity("PERSON", 3, 3)),
    "a place the wrong way round": entities_response(entity("PERSON", 9, 2)),
    "two megabytes": http_response(b"[" + b" " * (2 << 20) + b"]"),
    "half an answer": http_response(b"[{", length=500),
    "nothing": b"",
    "another protocol": b"+OK\r\n",
    "nested without end": http_response(b"[" * 100_000),
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_an_unusable_answer_is_unavailable_and_quotes_nobody(answer: bytes) -> None:
    async with service(answer) as presidio:
        with pytest.raises(Unavailable) as excinfo:
            await presidio.find(ANN, TEXT, "en")

    assert "external detector" in str(excinfo.value)
    assert "Ann" not in str(excinfo.value)
    assert SECRET_WORDS not in str(excinfo.value)
    assert excinfo.value.__cause__ is None
    assert excinfo.value.__suppress_context__ or excinfo.value.__context__ is None


async def test_a_service_that_takes_too_long_or_is_not_there_is_unavailable() -> None:
    never = asyncio.Event()

    async def answer(_: bytes) -> bytes:
        await never.wait()
        return b""

    async with service(answer, timedelta(milliseconds=50)) as presidio:
        with pytest.raises(Unavailable):
            await presidio.find(ANN, TEXT, "en")
        never.set()
    gone = PresidioDetector("http://127.0.0.1:1")
    with pytest.raises(Unavailable):
        await gone.find(ANN, TEXT, "en")
    await gone.close()


@pytest.mark.parametrize("url", ["", "presidio:5002", "ftp://presidio", "http://", "http://h:99999", "http://h/?a=b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="privacy_detector: "):
        PresidioDetector(url)


def test_types_and_scores_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"^types: "):
        PresidioDetector("http://127.0.0.1:5002", types={"PERSON": "HUMAN"})
    with pytest.raises(InvalidSetting, match=r"^types: "):
        PresidioDetector("http://127.0.0.1:5002", types={})
    with pytest.raises(InvalidSetting, match=r"^least_score: "):
        PresidioDetector("http://127.0.0.1:5002", least_score=2)


# Beside our own rules.


async def redacted(outside: ExternalDetector, text: str, policy: PrivacyPolicy | None = None) -> str:
    finder = PiiFinder(policy or PrivacyPolicy())
    (found,) = await outside.add_matches(ANN, [text], [finder.find(text)], finder)
    return replace_matches(text, found)


@pytest.mark.requirement("A14")
async def test_what_is_found_outside_joins_what_is_found_inside() -> None:
    outside = external_detector(ScriptedDetector("Ann Lee"))

    assert await redacted(outside, "Ann Lee, 202-555-0143") == "[REDACTED_PERSON], [REDACTED_PHONE]"
    assert outside.counts == {"answered": 1, "matches": 1}
    assert not outside.degraded


async def test_what_we_found_is_not_shown_outside() -> None:
    detector = ScriptedDetector()

    await redacted(external_detector(detector), "Ann, 202-555-0143, [EMAIL_1] and ann@example.com")

    assert detector.shown == [("Ann, ************, ********* and ***************", "en")]


async def test_a_mark_is_never_part_of_a_find() -> None:
    outside = external_detector(ScriptedDetector("Ann *** met", "*** met", "REDACTED"))
    text = "Ann [STAFF_NO_1] met [REDACTED_EMAIL]"
    policy = PrivacyPolicy(patterns=(CustomPattern(name="STAFF_NO", pattern="EMP[0-9]{4}"),))

    # The rest of an overlapping match stays a match.
    assert await redacted(outside, text, policy) == "Ann [STAFF_NO_1] [REDACTED_PERSON] [REDACTED_EMAIL]"


async def test_the_policy_holds_for_what_is_found_outside() -> None:
    outside = external_detector(ScriptedDetector("Ann Lee", "Lisbon"))

    assert await redacted(outside, TEXT, PrivacyPolicy(allow=("Ann Lee",))) == "😀 Ann Lee moved to [REDACTED_PERSON]"
    assert await redacted(outside, TEXT, PrivacyPolicy(never=("PERSON",))) == TEXT


async def test_a_type_that_nobody_knows_and_a_place_outside_the_text_are_left_out() -> None:
    assert await redacted(external_detector(ScriptedDetector("Ann", kind="HUMAN")), "Ann") == "Ann"

    class Lost(ScriptedDetector):
        async def find(self, scope: Scope, text: str, language: str) -> Sequence[PiiMatch]:
            return [PiiMatch(start=1, end=99, type="PERSON", rule="LOST", name="PERSON")]

    assert await redacted(external_detector(Lost()), "Ann") == "Ann"


async def test_texts_of_other_languages_and_without_words_are_not_sent() -> None:
    detector = ScriptedDetector("李")
    outside = external_detector(detector)

    for text in ("我叫李雷，住在上海", "12 : 34", "", "わたしは", "저는 서울"):
        assert await redacted(outside, text) == text

    assert detector.shown == []
    assert not outside.degraded


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Ann met 李雷 in Shanghai yesterday", "en"),
        ("请把文件发给 Ann", "zh"),
        ("カナ", "ja"),
        ("한국", "ko"),
        ("Grüße", "en"),
    ],
)
def test_the_language_is_told_by_the_script(text: str, language: str) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize("languages", [(), ("",), ("en", "fr")], ids=str)
def test_a_language_that_is_not_told_from_others_is_refused(languages: tuple[str, ...]) -> None:
    with pytest.raises(InvalidSetting, match=r"privacy_detector_languages: lists some of en, zh, ja, ko, as in en,zh"):
        ExternalDetectorPolicy(languages=languages)


async def test_the_settings_say_which_languages_are_sent() -> None:
    """Issue 4, 4: a Chinese name that only the service finds is redacted in a Chinese text, after an emoji as well."""

    async def knows(_: bytes) -> bytes:
        return entities_response(entity("PERSON", 4, 8))

    async with (
        analyzer(knows) as url,
        tenuto.open(
            "memory://",
            privacy_detector=url,
            privacy_detector_languages="en, zh",
            privacy_detector_timeout=timedelta(minutes=1),
        ) as app,
    ):
        title = await app.redactor.for_title(ANN, "😀 我叫诸葛明月")

    assert title == "😀 我叫[REDACTED_PERSON]"


class Zhuge:
    """A detector of one's own, which knows one name."""

    async def find(self, scope: Scope, text: str, language: str) -> list[PiiMatch]:
        at = text.find("Zhuge")
        return [PiiMatch(start=at, end=at + 5, type="PERSON", rule="OWN", name="PERSON")] if at >= 0 else []


@pytest.mark.requirement("A14")
@pytest.mark.parametrize("way", ["given", "entry point"])
async def test_a_program_brings_its_own_detector(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handed over, or offered by an installed package under a name."""
    offered = EntryPoint(name="zhuge", value=f"{__name__}:Zhuge", group="tenuto.detectors")
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group, name: [offered] if name == offered.name else []
    )
    chosen: dict[str, Any] = {"detector": Zhuge()} if way == "given" else {"privacy_detector": "zhuge"}

    async with tenuto.open("memory://", privacy_detector_timeout=timedelta(minutes=1), **chosen) as app:
        title = await app.redactor.for_title(ANN, "I am Zhuge, 202-555-0143")

    assert title == "I am [REDACTED_PERSON], [REDACTED_PHONE]"


async def test_what_the_house_notes_for_itself_is_no_question_for_a_detector() -> None:
    """A session finds its assistant and persona again, even if the detector takes their names for persons."""

    async def takes_all(body: bytes) -> bytes:
        return entities_response(entity("PERSON", 0, len(json.loads(body)["text"])))

    async with (
        analyzer(takes_all) as url,
        tenuto.open("memory://", privacy_detector=url, privacy_message="redact") as app,
    ):
        mary = {"assistant": "npc", "persona": "Mary", "personas": {"npc": "Mary"}, "note": "Mary"}
        session, _ = await app.sessions.create(ANN, NewSession(metadata=mary))
        reply = await app.ask(ANN, "hello", session_id=session.id, assistant="general")
        said = (await app.sessions.messages(ANN, session.id)).messages[-1]

    assert session.metadata == {**mary, "note": "[REDACTED_PERSON]"}
    assert (said.text, said.metadata["model"]) == ("[REDACTED_PERSON]", "offline")
    assert said.metadata["trace"] == reply.trace_id


async def test_only_where_the_house_notes_it_is_a_name_its_own() -> None:
    """Under the same names in parts, attributes, memories, traces and deeper there is user text."""
    detector = ScriptedDetector("Mary")
    policy = PrivacyPolicy(message=Mode.REDACT)
    redactor = Redactor(policies=TenantPolicies(policy), outside=external_detector(detector))
    said = {"assistant": "Mary", "persona": ["Mary"], "model": {"by": "Mary"}, "language": "Mary"}
    told = json.loads(json.dumps(said).replace("Mary", "[REDACTED_PERSON]"))
    store = RedactingStore(store=MemoryStore(), redactor=redactor)
    draft = says("", parts=(tool_call("c", "save", said),), metadata={"trace": {"model": "Mary"}, "data": said})
    head = NewSession(attributes=said, context={"profile": said}, metadata={"note": said, "personas": {"npc": said}})

    done = await store.sessions.append(ANN, "s", AppendBatch(id="b", messages=(draft,), create=head))
    remembered = await store.state.write_state(ANN, "facts", "persona", said)

    (message,), session = done.messages, done.session
    assert message.parts[0]["arguments"] == message.metadata["data"] == remembered.value == told
    assert message.metadata["trace"] == {"model": "[REDACTED_PERSON]"}
    assert (session.attributes, session.context) == (told, {"profile": told})
    assert session.metadata == {"note": told, "personas": {"npc": told}}


async def test_a_name_is_whole_when_a_title_or_a_request_to_a_model_is_made_of_it() -> None:
    """A title is cut out of a text, and half a name is not found."""
    policies = TenantPolicies(PrivacyPolicy(model=Mode.REDACT))
    redactor = Redactor(policies=policies, outside=external_detector(ScriptedDetector("Ann Lee")))

    assert await redactor.for_title(ANN, "Write to Ann Lee") == "Write to [REDACTED_PERSON]"
    assert await UpkeepRedaction(redactor).to_model(ANN, "Write to Ann Lee") == "Write to [REDACTED_PERSON]"


async def test_a_long_text_is_asked_in_parts_and_places_come_out_right() -> None:
    detector = ScriptedDetector("Ann Lee")
    text = "".join(f"Ann Lee went home {times} times.\n" for times in range(3000))

    assert await redacted(external_detector(detector), text) == text.replace("Ann Lee", "[REDACTED_PERSON]")
    assert "".join(shown for shown, _ in detector.shown) == text
    assert max(len(shown) for shown, _ in detector.shown) <= 20_000


@pytest.mark.parametrize(
    "failure", [Unavailable("external detector"), RuntimeError(SECRET_WORDS), KeyError(SECRET_WORDS)]
)
async def test_a_failing_detector_leaves_our_own_matches(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    detector = ScriptedDetector("Ann Lee")
    detector.fails = failure
    outside = external_detector(detector)

    with caplog.at_level(logging.INFO):
        assert await redacted(outside, f"{SECRET_WORDS} 202-555-0143") == f"{SECRET_WORDS} [REDACTED_PHONE]"
        degraded = outside.degraded
        detector.fails = None
        assert await redacted(outside, "Ann Lee") == "[REDACTED_PERSON]"

    assert (degraded, outside.degraded) == (True, False)
    assert outside.counts == {"failed": 1, "answered": 1, "matches": 1}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert SECRET_WORDS not in caplog.text


async def test_a_slow_detector_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    detector = ScriptedDetector("Ann Lee")
    detector.gate = asyncio.Event()
    outside = external_detector(detector, timeout=timedelta(milliseconds=30))

    assert await redacted(outside, "Ann Lee 202-555-0143") == "Ann Lee [REDACTED_PHONE]"

    assert caplog.messages[0].endswith("names and places may be missed: it took too long")
    assert outside.degraded
    assert outside.counts == {"timeout": 1}
    assert detector.inside == 0


async def test_after_repeated_failures_it_is_left_alone_for_a_while() -> None:
    clock, detector = Ticks(), ScriptedDetector("Ann Lee")
    outside = external_detector(detector, clock, failure_threshold=3, open_duration=timedelta(seconds=30))
    detector.fails = Unavailable("external detector")
    for _ in range(5):
        await redacted(outside, "Ann Lee")
    assert len(detector.shown) == 3
    assert outside.counts == {"failed": 3, "circuit_open": 2}

    clock.now += 30
    await redacted(outside, "Ann Lee")
    await redacted(outside, "Ann Lee")
    assert len(detector.shown) == 4  # one probe failed, and a full period begins again

    clock.now += 30
    detector.fails = None
    assert await redacted(outside, "Ann Lee") == "[REDACTED_PERSON]"
    assert await redacted(outside, "Ann Lee") == "[REDACTED_PERSON]"
    assert not outside.degraded


async def test_one_probe_at_a_time_tries_a_detector_that_failed() -> None:
    clock, detector = Ticks(), ScriptedDetector("Ann Lee")
    outside = external_detector(detector, clock, failure_threshold=1)
    detector.fails = Unavailable("external detector")
    await redacted(outside, "Ann Lee")
    detector.fails = None
    clock.now += 60

    found = await outside.add_matches(ANN, ["Ann Lee"] * 5, [[]] * 5)

    assert sorted(map(len, found)) == [0, 0, 0, 0, 1]
    assert len(detector.shown) == 2


async def test_no_more_questions_than_allowed_are_asked_at_once() -> None:
    detector = ScriptedDetector("Ann Lee")

    found = await external_detector(detector, max_concurrent=3).add_matches(ANN, ["Ann Lee"] * 20, [[]] * 20)

    assert [len(finds) for finds in found] == [1] * 20
    assert detector.most_inside == 3


async def test_a_caller_who_goes_away_is_no_failure_of_the_detector() -> None:
    clock, detector = Ticks(), ScriptedDetector("Ann Lee")
    outside = external_detector(detector, clock, failure_threshold=1)
    detector.fails = Unavailable("external detector")
    await redacted(outside, "Ann Lee")
    clock.now += 60
    detector.fails, detector.gate = None, asyncio.Event()
    probe = asyncio.create_task(redacted(outside, "Ann Lee"))
    await detector.entered.wait()

    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe

    detector.gate = None
    assert await redacted(outside, "Ann Lee") == "[REDACTED_PERSON]"


async def test_a_service_that_lies_about_places_degrades_and_no_more() -> None:
    async with service(entities_response(entity("PERSON", 0, 10_000))) as presidio:
        outside = external_detector(presidio)

        assert await redacted(outside, "Ann Lee 202-555-0143") == "Ann Lee [REDACTED_PHONE]"

    assert outside.degraded


words = st.sampled_from(["Ann Lee", "Lisbon ", "202-555-0143 ", "[REDACTED_EMAIL]", "ann@example.com", ", ", "and "])


@given(
    st.lists(words, max_size=12).map("".join), st.lists(st.sampled_from(["Ann", "Lee*", "n", "*, a", "Lisbon ****"]))
)
def test_whatever_is_found_outside_ours_stands_and_nothing_overlaps(text: str, seen: list[str]) -> None:
    finder = PiiFinder(PrivacyPolicy())
    inside = finder.find(text)

    (both,) = asyncio.run(external_detector(ScriptedDetector(*seen)).add_matches(ANN, [text], [inside], finder))

    assert set(inside) <= set(both)
    assert all(left.end <= right.start for left, right in pairwise(both))
    assert text.count("[REDACTED_EMAIL]") == replace_matches(text, [one for one in both if one not in inside]).count(
        "[REDACTED_EMAIL]"
    )
