"""The detector: runs every family of rules, the most certain first; of overlapping spans the first one stays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.api_keys import BLOCK, KEY_WORD, find_api_keys, find_private_keys
from tenuto.privacy.rules.cards import SHORTEST_CARD, find_cards
from tenuto.privacy.rules.chunking import LIMIT, Chunker, Piece
from tenuto.privacy.rules.cjk_secrets import find_cjk_named_secrets
from tenuto.privacy.rules.digit_runs import DigitRun, runs
from tenuto.privacy.rules.emails import find_emails
from tenuto.privacy.rules.folding import FoldedText, Work
from tenuto.privacy.rules.identity_numbers import (
    SHORTEST_ID,
    SOCIAL_SECURITY,
    find_ibans,
    find_passports,
    find_resident_ids,
    find_ssns,
)
from tenuto.privacy.rules.ip_addresses import find_ipv4, find_ipv6
from tenuto.privacy.rules.logins import find_logins
from tenuto.privacy.rules.named_secrets import find_named_secrets
from tenuto.privacy.rules.on_request import find_on_request
from tenuto.privacy.rules.own_ids import drop_own_ids
from tenuto.privacy.rules.phones import NOWHERE, find_phones
from tenuto.privacy.rules.prechecks import (
    has_digits,
    has_emails,
    has_ipv4,
    has_ipv6,
    has_logins,
    has_numbers,
    has_passport_word,
    has_secret_syntax,
    has_spelled_out,
    has_urls,
)
from tenuto.privacy.rules.secret_names import find_secret_names
from tenuto.privacy.rules.secret_syntax import find_syntax_secrets, find_url_credentials, find_url_tokens
from tenuto.privacy.rules.span import ALWAYS, MARK, MAY_BE_MARK, ON_REQUEST, TYPE_OF, PiiRule, PiiType, Span
from tenuto.privacy.rules.spelled_out import find_spelled_out
from tenuto.privacy.rules.worded_passwords import find_worded_passwords, has_worded_passwords

_SHORTEST: Final = 6
"""No rule finds anything in fewer characters: a@b.co."""
_SHORTEST_ASKED: Final = 4
"""Except for names, if they are searched: 我叫王伟."""

_ROUNDS: Final = 32
"""How often the text between spans is searched again. Only text made for it needs more than a few rounds."""

Find = tuple[int, int, PiiRule]
Finds = Iterable[Find]

# Families of rules. Half of all messages hold no private data, so each family begins with a cheap precheck. None says
# that it failed; it then fails for every part of the text, too.


def _private_keys(view: FoldedText, _: list[Find]) -> Finds | None:
    if BLOCK not in view.ascii:
        return None
    return ((start, end, PiiRule.PRIVATE_KEY) for start, end in find_private_keys(view))


def _url_credentials(view: FoldedText, _: list[Find]) -> Finds | None:
    return find_url_credentials(view) if has_urls(view) else None


def _url_tokens(view: FoldedText, _: list[Find]) -> Finds | None:
    return find_url_tokens(view) if has_urls(view) else None


def _keys(view: FoldedText, _: list[Find]) -> Finds | None:
    return find_api_keys(view) if view.words.find(KEY_WORD) >= 0 else None


def _syntax_secrets(view: FoldedText, _: list[Find]) -> Finds | None:
    return find_syntax_secrets(view) if has_secret_syntax(view) else None


def _logins(view: FoldedText, _: list[Find]) -> Finds | None:
    if not has_logins(view):
        return None
    return ((start, end, PiiRule.PASSWORD) for start, end in find_logins(view))


def _named_secrets(view: FoldedText, _: list[Find]) -> Finds | None:
    names = find_secret_names(view)
    if names is None:
        return None
    return find_named_secrets(view, names) if names else ()


def _cjk_named_secrets(view: FoldedText, _: list[Find]) -> Finds | None:
    return find_cjk_named_secrets(view) if view.signed else None


def _worded_passwords(view: FoldedText, _: list[Find]) -> Finds | None:
    return find_worded_passwords(view) if has_worded_passwords(view) else None


def _emails(view: FoldedText, _: list[Find]) -> Finds | None:
    if not has_emails(view.ascii):
        return None
    return ((start, end, PiiRule.EMAIL) for start, end in find_emails(view))


def _ipv6(view: FoldedText, _: list[Find]) -> Finds | None:
    return ((start, end, PiiRule.IPV6) for start, end in find_ipv6(view)) if has_ipv6(view) else None


def _ipv4(view: FoldedText, _: list[Find]) -> Finds | None:
    return ((start, end, PiiRule.IPV4) for start, end in find_ipv4(view)) if has_ipv4(view) else None


def _numbers(view: FoldedText, found: list[Find]) -> Finds | None:
    if not has_digits(view):
        return None
    # Not None: a part of the text that begins inside a date may have more numbers.
    return _find_numbers(view, found) if has_numbers(view) else ()


def _passports(view: FoldedText, _: list[Find]) -> Finds | None:
    if not has_passport_word(view):
        return None
    return ((start, end, PiiRule.PASSPORT) for start, end in find_passports(view))


def _spelled_out(view: FoldedText, _: list[Find]) -> Finds | None:
    return find_spelled_out(view) if has_spelled_out(view) else None


def _on_request(view: FoldedText, _: list[Find]) -> Finds | None:
    return find_on_request(view)


Family = Callable[[FoldedText, list[Find]], Finds | None]
# The most certain first: of overlapping spans the first one stays.
FAMILIES: Final[tuple[Family, ...]] = (
    *(
        _private_keys,
        _url_credentials,
        _keys,
        _url_tokens,
        _syntax_secrets,
        _logins,
        _named_secrets,
        _cjk_named_secrets,
        _worded_passwords,
    ),
    *(_emails, _ipv6, _ipv4, _passports, _numbers, _spelled_out),
)


# The families for a text without the characters that the others need.
CALM_FAMILIES: Final[tuple[Family, ...]] = (
    _keys,
    _logins,
    _named_secrets,
    _cjk_named_secrets,
    _worded_passwords,
    _passports,
    _spelled_out,
)
# The families for a text that also has none of the words that the rest need.
SILENT_FAMILIES: Final[tuple[Family, ...]] = (_keys, _spelled_out)
_DASHES: Final = lazy_pattern("-(?:u|----|(?<= -))")
_LOUD: Final = frozenset({"basic", "bearer", "identified by", "auth", "pass"})


def select_families(view: FoldedText) -> tuple[Family, ...]:
    """The families whose prechecks may pass: for most prose a few cheap searches leave `CALM_FAMILIES` or fewer."""
    text = view.ascii
    if has_emails(text) or "|" in text or view.digits.find(b"0.0") >= 0 or has_digits(view):
        return FAMILIES
    if ("-" in text and _DASHES.search(text)) or ("/" in text and " /u" in text):
        return FAMILIES
    if not view.stems.isdisjoint(_LOUD) or has_ipv6(view):
        return FAMILIES
    return CALM_FAMILIES if view.stems or has_logins(view) else SILENT_FAMILIES


def look(view: FoldedText, families: Iterable[Family]) -> tuple[list[Span], list[Family]]:
    """Spans of a text without placeholders, in order, and the families whose prechecks passed."""
    if families is FAMILIES:
        families = select_families(view)
    finds: list[Find] = []
    open_ones: list[Family] = []
    work = view.work
    work.judged += 1
    for family in families:
        candidates = family(view, finds)
        if candidates is None:
            continue
        open_ones.append(family)
        for start, end, rule in candidates:
            work.judged += 1
            at = bisect_left(finds, (start, end, rule))
            if (at == 0 or finds[at - 1][1] <= start) and (at == len(finds) or end <= finds[at][0]):
                finds.insert(at, (start, end, rule))
    if not finds:
        return [], open_ones
    spans = [Span(*view.back(start, end), TYPE_OF[rule], rule) for start, end, rule in finds]
    return drop_own_ids(view.source, spans), open_ones


def _find_numbers(view: FoldedText, found: list[Find]) -> Finds:
    yield from ((start, end, PiiRule.IBAN) for start, end in find_ibans(view))
    previous = NOWHERE
    # No span of this family covers a later run, so only earlier spans are checked.
    surer = found.copy()
    for run in runs(view):
        if surer and _claim_surer(run, surer):
            continue
        yield from _find_identity_numbers(run)
        for place in find_phones(run, previous):
            previous = place
            yield *place, PiiRule.PHONE


def _claim_surer(run: DigitRun, surer: list[Find]) -> bool:
    """Claim the groups inside spans of a surer family; whether one of those has the whole run."""
    first, last = run.starts[0], run.ends[-1]
    for at in range(max(0, bisect_left(surer, first, key=itemgetter(1)) - 1), len(surer)):
        start, end, _ = surer[at]
        if start >= last:
            break
        if start <= first and last <= end:
            return True
        run.claim(bisect_left(run.starts, start), bisect_left(run.ends, end + 1) - 1)
    return False


def _find_identity_numbers(run: DigitRun) -> Iterator[Find]:
    for first, last, tail in find_resident_ids(run) if run.total >= SHORTEST_ID else ():
        yield run.starts[first], run.ends[last] + tail, PiiRule.CN_ID
    for first, last, rule in find_cards(run) if run.total >= SHORTEST_CARD else ():
        run.claim(first, last)
        yield run.starts[first], run.ends[last], rule
    for first, last in find_ssns(run) if run.total >= SOCIAL_SECURITY else ():
        yield run.starts[first], run.ends[last], PiiRule.SSN


def find(text: str, types: Collection[PiiType], work: Work | None = None) -> list[Span]:
    """Every span of one of `types` in `text`, in order, none overlapping. The cost grows faster than the length.

    It is counted in `work`.
    """
    families = FAMILIES if types is ALWAYS or ON_REQUEST.isdisjoint(types) else (*FAMILIES, _on_request)
    least = _SHORTEST_ASKED if _on_request in families else _SHORTEST
    if "[" not in text or not MAY_BE_MARK.search(text):
        return _find_until_stable(FoldedText(text, None, work), 0, types, families) if len(text) >= least else []
    found: list[Span] = []
    at = 0
    for mark in MARK.finditer(text):
        if mark.start() - at >= least:
            found += _find_until_stable(FoldedText(text[at : mark.start()], None, work), at, types, families)
        at = mark.end()
    if len(text) - at >= least:
        found += _find_until_stable(FoldedText(text[at:], None, work), at, types, families)
    return found


def _find_until_stable(
    view: FoldedText, place: int, types: Collection[PiiType], families: Collection[Family], rounds: int = _ROUNDS
) -> list[Span]:
    """Search again between spans until nothing new is found. The view's text is at offset `place`.

    Redacted text is searched in the parts between its placeholders. Spans that those parts would show are found now,
    so that redacting twice changes nothing. A span of a type not in `types` stays and does not split the text.
    """
    spans, open_ones = look(view, families) if rounds else ([], [])
    if not spans:
        return []
    found: list[Span] = []
    at, least = 0, _SHORTEST_ASKED if _on_request in open_ones else _SHORTEST
    for span in spans:
        if span.type in types:
            if span.start - at >= least:
                found += _find_until_stable(view.part(at, span.start), place + at, types, open_ones, rounds - 1)
            found.append(Span(place + span.start, place + span.end, span.type, span.rule))
            at = span.end
    if found and len(view.source) - at >= least:
        found += _find_until_stable(view.part(at, len(view.source)), place + at, types, open_ones, rounds - 1)
    return found


_PORTION: Final = 4 * LIMIT
KNOWN_CHUNKS: Final = 64
"""Chunks of a text whose spans are remembered while it is searched."""


def detect(text: str, *, types: Collection[PiiType] = ALWAYS) -> list[Span]:
    """Every span of private data in `text`, in order, none overlapping. Offsets count code points.

    Placeholders in the text are left alone. The cost is linear in the length of the text.
    """
    if len(check_str(text)) <= LIMIT:
        return find(text, types)
    spans: list[Span] = []
    place = 0
    for own, found in _ChunkedDetector(types).whole(text):
        spans += [Span(place + span.start, place + span.end, span.type, span.rule) for span in found]
        place += len(own)
    return spans


def check_str(text: str) -> str:
    """Return the text; for callers without type checks. The error does not quote the value, which may be private.

    Raises:
        TypeError: it is no `str`.
    """
    if not isinstance(text, str):
        raise TypeError(f"private data is looked for in a str, and this is of the type {type(text).__name__}")
    return text


def redact(text: str, *, types: Collection[PiiType] = ALWAYS) -> str:
    """`text` with a placeholder such as `[REDACTED_EMAIL]` for every span. Redacting twice changes nothing."""
    spans = detect(text, types=types)
    return _replace_spans(text, spans, 0) if spans else text


class RedactionStream:
    """Redacts a text that comes in chunks. What comes out, joined, is `redact` of what went in, joined.

    In prose it holds back about 300 characters; where numbers and keys are dense, or in a private key, a few thousand.
    """

    def __init__(self, *, types: Collection[PiiType] = ALWAYS) -> None:
        self._types = types
        self._looker = _ChunkedDetector(types)
        self._over = 0

    def feed(self, chunk: str) -> str:
        """Take a chunk; return the text that is decided by now, which may be empty."""
        return "".join([self._redact_part(own, spans) for own, spans in self._looker.add(check_str(chunk))])

    def flush(self) -> str:
        """Return the held text, at the end. The stream can then take another text."""
        rest = "".join([self._redact_part(own, spans) for own, spans in self._looker.rest()])
        self._looker, self._over = _ChunkedDetector(self._types), 0
        return rest

    def _redact_part(self, own: str, spans: list[Span]) -> str:
        text = _replace_spans(own, spans, self._over)
        self._over = max(0, (spans[-1].end if spans else self._over) - len(own))
        return text


def _replace_spans(text: str, spans: list[Span], start: int) -> str:
    """`text` from `start` on with placeholders for `spans`."""
    parts: list[str] = []
    for span in spans:
        parts += (text[start : span.start], span.placeholder)
        start = span.end
    parts.append(text[start:])
    return "".join(parts)


class _ChunkedDetector:
    """Finds the spans of a text chunk by chunk."""

    def __init__(self, types: Collection[PiiType]) -> None:
        # Repetition in a long text costs little: the same chunk is searched once.
        self._find = lru_cache(KNOWN_CHUNKS)(lambda text: find(text, types))
        self._pieces = Chunker(asked=not ON_REQUEST.isdisjoint(types))
        self._over = 0
        """How far the last span of a chunk reaches into the next one."""

    def add(self, text: str) -> Iterator[tuple[str, list[Span]]]:
        """Take more text; yield the parts that are decided, each with the spans that begin in it."""
        return map(self._detect_chunk, self._pieces.add(text))

    def rest(self) -> Iterator[tuple[str, list[Span]]]:
        """Yield everything that is left."""
        return map(self._detect_chunk, self._pieces.rest())

    def whole(self, text: str) -> Iterator[tuple[str, list[Span]]]:
        """All of a long text, a portion at a time."""
        for start in range(0, len(text), _PORTION):
            yield from self.add(text[start : start + _PORTION])
        yield from self.rest()

    def _detect_chunk(self, piece: Piece) -> tuple[str, list[Span]]:
        own = piece.text[piece.start : piece.end]
        spans = [
            Span(span.start - piece.start, span.end - piece.start, span.type, span.rule)
            for span in self._find(piece.text)
            if piece.start + self._over <= span.start < piece.end
        ]
        self._over = max(0, (spans[-1].end if spans else self._over) - len(own))
        return own, spans
