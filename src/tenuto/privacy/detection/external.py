"""An outside detector beside our own rules: asked in time, left alone while it fails, never in the way of a turn."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import ClassVar, Final, NamedTuple

from msgspec.structs import replace

from tenuto.errors import InvalidSetting, TenutoError, reply_error_code
from tenuto.model.privacy import PiiMatch
from tenuto.model.scope import Scope
from tenuto.model.values import Value
from tenuto.ports import Detector
from tenuto.privacy.detection.finder import PiiFinder, merge_matches
from tenuto.privacy.rules.span import MARK, PiiType

_LIFE_SECONDS: Final = 180.0
"""Longer than most turns take, with what follows them."""
_MOST: Final = 512


class DetectorCache:
    """Answers by who asked, for which text."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(16)
        self._given: OrderedDict[bytes, _CacheEntry] = OrderedDict()

    def key(self, scope: Scope, text: str, language: str) -> bytes:
        """What the answer to a question is found by; as which character somebody is answered makes no difference."""
        asked = "\0".join([scope.tenant, scope.site, scope.user or "", *scope.owner, language, text])
        return blake2b(asked.encode(errors="surrogatepass"), digest_size=16, key=self._secret).digest()

    def get(self, key: bytes) -> Sequence[PiiMatch] | None:
        """The answer, if it was given lately."""
        before = self._clock() - _LIFE_SECONDS
        while self._given and next(iter(self._given.values())).at <= before:
            self._given.popitem(last=False)
        given = self._given.get(key)
        return given.found if given is not None else None

    def put(self, key: bytes, found: Sequence[PiiMatch]) -> None:
        """Remember an answer; the oldest go first."""
        self._given[key] = _CacheEntry(found, self._clock())
        self._given.move_to_end(key)
        if len(self._given) > _MOST:
            self._given.popitem(last=False)


class _CacheEntry(NamedTuple):
    """An answer, and when it was given."""

    found: Sequence[PiiMatch]
    at: float


_LONGEST: Final = 20_000
"""Characters in one question; a longer text becomes several."""
_WORTH: Final = re.compile(r"[^\W\d_]{2}")
"""Two letters side by side: less holds no name."""
_HAN: Final = re.compile("[\u3400-\u9fff]")
_KANA: Final = re.compile("[\u3040-\u30ff]")
_HANGUL: Final = re.compile("[\uac00-\ud7af]")
LANGUAGES: Final = ("en", "zh", "ja", "ko")
"""What `language_of` tells apart."""
_MARKED: Final = "mark"
"""In small letters, as no type and no own pattern is."""
_TYPES: Final = frozenset(map(str, PiiType))

log = logging.getLogger(__name__)


class ExternalDetectorPolicy(Value, frozen=True, kw_only=True):
    """How long and how often an outside detector is asked.

    `patience` covers all texts of one call. After `failures` in a row it is left alone for `rest`; then one question
    tries it. Texts in other `languages` than these are not sent.

    Raises:
        InvalidSetting: a language is none that we tell from others.
    """

    patience: timedelta = timedelta(seconds=2)
    at_once: int = 8
    failures: int = 5
    rest: timedelta = timedelta(seconds=30)
    languages: tuple[str, ...] = ("en",)

    def __post_init__(self) -> None:
        if not self.languages or not set(self.languages) <= set(LANGUAGES):
            raise InvalidSetting("privacy_detector_languages", f"lists some of {', '.join(LANGUAGES)}, as in en,zh")


class Breaker:
    """Closed while calls succeed, open after too many failures, and then one probe at a time."""

    def __init__(self, failures: int, rest: timedelta, clock: Callable[[], float]) -> None:
        self._most, self._rest, self._clock = failures, rest.total_seconds(), clock
        self._failures = 0
        self._until = 0.0
        self._probing = False

    @property
    def closed(self) -> bool:
        """Whether the last calls did not all fail."""
        return self._failures < self._most

    def admits(self) -> bool:
        """Whether to call now. A call that was admitted must be told of by `record_success`, `failed` or `given_up`."""
        if self.closed:
            return True
        if self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def record_success(self) -> None:
        """All is well again."""
        self._failures, self._probing = 0, False

    def record_failure(self) -> None:
        """One more; a failed probe waits a full period again."""
        self._failures, self._probing = self._failures + 1, False
        if not self.closed:
            self._until = self._clock() + self._rest

    def record_cancelled(self) -> None:
        """The caller went away, which tells nothing."""
        self._probing = False


class ExternalDetector:
    """Adds what an outside detector finds to what we found. It raises nothing: without an answer, ours stands alone.

    What we found is not shown to it: the same number of asterisks stands there.
    """

    RESULTS: ClassVar = ("answered", "late", "failed", "left_alone")
    """What becomes of a question; the last one was not asked, since those before it failed."""

    def __init__(
        self,
        detector: Detector,
        *,
        policy: ExternalDetectorPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._detector = detector
        self._policy = policy or ExternalDetectorPolicy()
        self._breaker = Breaker(self._policy.failures, self._policy.rest, clock)
        self._places = asyncio.Semaphore(self._policy.at_once)
        self._answers = DetectorCache(clock)
        self._counts: Counter[str] = Counter()
        self._degraded = False

    @property
    def degraded(self) -> bool:
        """Whether the last question was not answered: names and places may be missing from what was found."""
        return self._degraded

    @property
    def languages(self) -> tuple[str, ...]:
        """Those whose texts it is sent."""
        return self._policy.languages

    @property
    def resting(self) -> bool:
        """Whether it failed so often that it is left alone, but for a try now and then."""
        return not self._breaker.closed

    @property
    def counts(self) -> Mapping[str, int]:
        """Questions by what became of them, one of `RESULTS`; and `found`."""
        return self._counts

    async def add_matches(
        self, scope: Scope, texts: Sequence[str], inside: Sequence[Sequence[PiiMatch]], finder: PiiFinder | None = None
    ) -> list[Sequence[PiiMatch]]:
        """For each text its finds from inside and outside, in order and apart; those from inside stand as they are.

        With a `finder`, what its policy allows or leaves alone is left out.
        """
        patience = asyncio.get_running_loop().time() + self._policy.patience.total_seconds()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._match_text(scope, text, found, finder, patience))
                for text, found in zip(texts, inside, strict=True)
            ]
        return [task.result() for task in tasks]

    async def _match_text(
        self, scope: Scope, text: str, inside: Sequence[PiiMatch], finder: PiiFinder | None, until: float
    ) -> Sequence[PiiMatch]:
        marks = finder.marks if finder else MARK
        placeholders = [
            PiiMatch(start=mark.start(), end=mark.end(), type=_MARKED, rule=_MARKED, name=_MARKED)
            for mark in (marks.finditer(text) if "[" in text else ())
        ]
        taken = [*inside, *placeholders]
        there: list[PiiMatch] = []
        for start, part in _split_questions(_mask_matches(text, taken)):
            language = language_of(part)
            if language in self._policy.languages:
                there += [_shift_match(one, start) for one in await self._ask_cached(scope, part, language, until)]
        if finder:
            there = [one for one in there if finder.admits(text, one)]
        if not there:
            return inside
        both = [one for one in merge_matches(text, taken, there) if one.rule != _MARKED]
        self._counts["found"] += len(both) - len(inside)
        return both

    async def _ask_cached(self, scope: Scope, text: str, language: str, until: float) -> Sequence[PiiMatch]:
        key = self._answers.key(scope, text, language)
        known = self._answers.get(key)
        if known is None:
            known = await self._ask_detector(scope, text, language, until)
            if known is not None:
                self._answers.put(key, known)
        return known or ()

    async def _ask_detector(self, scope: Scope, text: str, language: str, until: float) -> Sequence[PiiMatch] | None:
        """What the detector says; `None` where it says nothing."""
        if not self._breaker.admits():
            self._record_unanswered("left_alone", None)
            return None
        try:
            async with asyncio.timeout_at(until), self._places:
                found = await self._detector.find(scope, text, language)
        except asyncio.CancelledError:
            self._breaker.record_cancelled()
            raise
        except TimeoutError as exc:
            self._breaker.record_failure()
            self._record_unanswered("late", exc)
            return None
        except Exception as exc:
            # Whatever a detector trips over, the turn goes on; its own bugs are told apart by their kind in the log.
            self._breaker.record_failure()
            self._record_unanswered("failed", exc)
            return None
        self._breaker.record_success()
        self._counts["answered"] += 1
        if self._degraded:
            log.info("the outside detector answers again")
        self._degraded = False
        # Plain str: types, rules and names are counted in what is stored.
        return [
            replace(one, type=str(one.type), rule=str(one.rule), name=str(one.name))
            for one in found
            if one.type in _TYPES and 0 <= one.start < one.end <= len(text)
        ]

    def _record_unanswered(self, why: str, exc: Exception | None) -> None:
        self._counts[why] += 1
        if not self._degraded:
            log.warning(
                "the outside detector is of no help, names and places may be missed: %s", _failure_reason(why, exc)
            )
        self._degraded = True


def _failure_reason(why: str, exc: Exception | None) -> str:
    if isinstance(exc, TenutoError):
        return str(exc)
    if isinstance(exc, TimeoutError):
        return "it took too long"
    return reply_error_code(exc) if exc else why


def language_of(text: str) -> str:
    """A guess by script: enough to choose between models, where a few foreign words do not matter."""
    if _KANA.search(text):
        return "ja"
    if _HANGUL.search(text):
        return "ko"
    return "zh" if 8 * len(_HAN.findall(text)) > len(text) else "en"


def _mask_matches(text: str, taken: Sequence[PiiMatch]) -> str:
    parts: list[str] = []
    at = 0
    for one in sorted(taken, key=lambda one: one.start):
        parts += (text[at : one.start], "*" * (one.end - one.start))
        at = one.end
    return "".join([*parts, text[at:]])


def _split_questions(text: str) -> Iterator[tuple[int, str]]:
    """The text in parts of bounded length, cut at a line's end or a space, with their places."""
    start = 0
    while start < len(text):
        end = min(len(text), start + _LONGEST)
        if end < len(text):
            half = start + _LONGEST // 2
            # Both searches give -1 where nothing is found.
            end = (text.rfind("\n", half, end) + 1) or (text.rfind(" ", half, end) + 1) or end
        part = text[start:end]
        if _WORTH.search(part):
            yield start, part
        start = end


def _shift_match(find: PiiMatch, by: int) -> PiiMatch:
    return replace(find, start=find.start + by, end=find.end + by) if by else find
