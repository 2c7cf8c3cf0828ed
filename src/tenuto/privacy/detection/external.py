"""An external detector beside our own rules, with a timeout, a circuit breaker and a cache.

Its failures never fail a turn: without an answer the matches of our own rules are used alone.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import ClassVar, Final, NamedTuple

from msgspec.structs import replace

from tenuto.errors import InvalidSetting, TenutoError, reply_error_code
from tenuto.lru_cache import LruCache
from tenuto.model.privacy import PiiMatch
from tenuto.model.scope import Scope
from tenuto.model.values import Value
from tenuto.ports import Detector
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.detection.overlaps import merge_matches, shift_match
from tenuto.privacy.rules.span import MARK, PiiType

_LIFE_SECONDS: Final = 180.0
"""Longer than most turns and their upkeep take."""
_MOST: Final = 512
_LONGEST: Final = 20_000
"""Characters in one request; a longer text is split."""
_WORTH: Final = re.compile(r"[^\W\d_]{2}")
"""Two adjacent letters: a text without them holds no name."""
_HAN: Final = re.compile("[\u3400-\u9fff]")
_KANA: Final = re.compile("[\u3040-\u30ff]")
_HANGUL: Final = re.compile("[\uac00-\ud7af]")
LANGUAGES: Final = ("en", "zh", "ja", "ko")
"""The languages that `language_of` distinguishes."""
_MARKED: Final = "mark"
"""Lower case, unlike every type and custom pattern."""
_TYPES: Final = frozenset(map(str, PiiType))

log = logging.getLogger(__name__)


class ExternalDetectorPolicy(Value, frozen=True, kw_only=True):
    """Timeout, concurrency, circuit breaker and languages of an external detector.

    `timeout` is the timeout for all texts of one call. After `failure_threshold` in a row the circuit is open for
    `open_duration`; then one request probes it. Texts in other `languages` are not sent.

    Raises:
        InvalidSetting: a language is not in `LANGUAGES`.
    """

    timeout: timedelta = timedelta(seconds=2)
    max_concurrent: int = 8
    failure_threshold: int = 5
    open_duration: timedelta = timedelta(seconds=30)
    languages: tuple[str, ...] = ("en",)

    def __post_init__(self) -> None:
        if not self.languages or not set(self.languages) <= set(LANGUAGES):
            raise InvalidSetting("privacy_detector_languages", f"lists some of {', '.join(LANGUAGES)}, as in en,zh")


class DetectorBreaker:
    """A circuit breaker: closed while calls succeed, open after too many failures, then one probe at a time.

    Unlike that of the stores, a late success of an earlier call closes it: several requests of a turn run at once.
    """

    def __init__(self, failures: int, rest: timedelta, clock: Callable[[], float]) -> None:
        self._most, self._rest, self._clock = failures, rest.total_seconds(), clock
        self._failures = 0
        self._until = 0.0
        self._probing = False

    @property
    def closed(self) -> bool:
        """Whether fewer than `failures` calls in a row have failed."""
        return self._failures < self._most

    def admits(self) -> bool:
        """Whether to call now. Each admitted call reports `record_success`, `record_failure` or `release_probe`."""
        if self.closed:
            return True
        if self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def record_success(self) -> None:
        """Close the circuit."""
        self._failures, self._probing = 0, False

    def record_failure(self) -> None:
        """Count a failure; a failed probe opens the circuit for a full period again."""
        self._failures, self._probing = self._failures + 1, False
        if not self.closed:
            self._until = self._clock() + self._rest

    def release_probe(self) -> None:
        """A call was cancelled without a result: the next call may probe."""
        self._probing = False


class ExternalDetector:
    """Adds the matches of an external detector to ours. It raises nothing: without an answer ours are used alone.

    Values that we have found are not sent: asterisks replace them.
    """

    RESULTS: ClassVar = ("answered", "timeout", "failed", "circuit_open")
    """Outcomes of a request; `circuit_open` was not sent, since the circuit was open."""

    def __init__(
        self,
        detector: Detector,
        *,
        policy: ExternalDetectorPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._detector = detector
        self._policy = policy or ExternalDetectorPolicy()
        self._breaker = DetectorBreaker(self._policy.failure_threshold, self._policy.open_duration, clock)
        self._places = asyncio.Semaphore(self._policy.max_concurrent)
        self._answers = DetectorCache(clock)
        self._counts: Counter[str] = Counter()
        self._degraded = False

    @property
    def degraded(self) -> bool:
        """Whether the last request got no answer: names and places may be missing from the matches."""
        return self._degraded

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of texts that are sent."""
        return self._policy.languages

    @property
    def circuit_open(self) -> bool:
        """Whether the circuit is open or half-open."""
        return not self._breaker.closed

    @property
    def counts(self) -> Mapping[str, int]:
        """Requests by outcome, one of `RESULTS`; and matches as `found`."""
        return self._counts

    async def add_matches(
        self, scope: Scope, texts: Sequence[str], inside: Sequence[Sequence[PiiMatch]], finder: PiiFinder | None = None
    ) -> list[Sequence[PiiMatch]]:
        """For each text our matches and those of the detector, in order and not overlapping; ours are unchanged.

        With a `finder`, matches that its policy allows or ignores are left out.
        """
        deadline = asyncio.get_running_loop().time() + self._policy.timeout.total_seconds()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._match_text(scope, text, found, finder, deadline))
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
                there += [shift_match(one, start) for one in await self._ask_cached(scope, part, language, until)]
        if finder:
            there = [one for one in there if finder.admits(text, one)]
        if not there:
            return inside
        both = [one for one in merge_matches(text, taken, there) if one.rule != _MARKED]
        self._counts["matches"] += len(both) - len(inside)
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
        """The answer of the detector; `None` without one."""
        if not self._breaker.admits():
            self._record_unanswered("circuit_open", None)
            return None
        try:
            async with asyncio.timeout_at(until), self._places:
                found = await self._detector.find(scope, text, language)
        except asyncio.CancelledError:
            self._breaker.release_probe()
            raise
        except TimeoutError as exc:
            self._breaker.record_failure()
            self._record_unanswered("timeout", exc)
            return None
        except Exception as exc:
            # No error of a detector fails the turn; the log has the error's code.
            self._breaker.record_failure()
            self._record_unanswered("failed", exc)
            return None
        self._breaker.record_success()
        self._counts["answered"] += 1
        if self._degraded:
            log.info("the external detector answers again")
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
                "the external detector does not answer; names and places may be missed: %s", _failure_reason(why, exc)
            )
        self._degraded = True


class DetectorCache:
    """Recent answers by scope, language and text."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(16)
        self._given = LruCache[bytes, _CacheEntry](_MOST)

    def key(self, scope: Scope, text: str, language: str) -> bytes:
        """The cache key of a request; the assistant and its persona make no difference."""
        asked = "\0".join([scope.tenant, scope.site, scope.user or "", *scope.owner, language, text])
        return blake2b(asked.encode(errors="surrogatepass"), digest_size=16, key=self._secret).digest()

    def get(self, key: bytes) -> Sequence[PiiMatch] | None:
        """The cached answer, if it has not expired."""
        before = self._clock() - _LIFE_SECONDS
        while (oldest := next(iter(self._given.items()), None)) and oldest[1].at <= before:
            self._given.drop_oldest()
        given = self._given.peek(key)
        return given.found if given is not None else None

    def put(self, key: bytes, found: Sequence[PiiMatch]) -> None:
        """Cache an answer; the oldest are evicted."""
        self._given.put(key, _CacheEntry(found, self._clock()))


class _CacheEntry(NamedTuple):
    """An answer and its time."""

    found: Sequence[PiiMatch]
    at: float


def _failure_reason(why: str, exc: Exception | None) -> str:
    if isinstance(exc, TenutoError):
        return str(exc)
    if isinstance(exc, TimeoutError):
        return "it took too long"
    return reply_error_code(exc) if exc else why


def language_of(text: str) -> str:
    """The language guessed by script, to choose a model; a few foreign words do not matter."""
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
    """The text in parts of bounded length with their offsets, cut at a line break or a space."""
    start = 0
    while start < len(text):
        end = min(len(text), start + _LONGEST)
        if end < len(text):
            half = start + _LONGEST // 2
            # rfind returns -1 without a hit, so that the sum is 0.
            end = (text.rfind("\n", half, end) + 1) or (text.rfind(" ", half, end) + 1) or end
        part = text[start:end]
        if _WORTH.search(part):
            yield start, part
        start = end
