"""Keys known by their form: a provider's prefix, a signed token, a webhook's path, a private-key block."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import load_table

_ENDS: Final = lazy_pattern(r"[^A-Za-z0-9_./+=:~%?&$-]")
BLOCK: Final = "-----BEGIN "
LONGEST_BLOCK: Final = 8192
KEY_WORD: Final = b"a" * 16
"""The shortest run of letters, digits, dashes and underscores that a key has, as `FoldedText.words` shows it."""

_HEAD: Final = lazy_pattern("(?<![A-Za-z0-9])[A-Za-z0-9]{2}|(?<![A-Za-z0-9])1/")
_MIXED: Final = lazy_pattern("[0-9]|[a-z][A-Z]")
# One Amazon key id in thirty has neither digits nor lower-case letters.
_AMAZON: Final = lazy_pattern("A[KS]IA[A-Z]{16}")
_RANDOM_PART: Final = lazy_pattern("(?=[A-Za-z]*[0-9]|[A-Za-z]*[a-z][A-Z])[A-Za-z0-9]{8,}|[A-Z]{12,}")
_BOT: Final = lazy_pattern(r"(?<=/bot)[0-9]{8,10}:[A-Za-z0-9_-]{35}")
_JWT: Final = lazy_pattern(r"(?<![A-Za-z0-9_])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}")
_WEBHOOK: Final = lazy_pattern(
    r"""(?:https?://)?(?:
        hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{10,}
        |(?:(?<![a-z])[a-z]{1,32}\.)?discord(?:app)?\.com/api/webhooks/[0-9]{6,}/[A-Za-z0-9_-]{8,}
        |open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/(?:v2/)?hook/[A-Za-z0-9-]{8,}
        |oapi\.dingtalk\.com/robot/send\?access_token=[A-Za-z0-9]{8,}
        |qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=[A-Za-z0-9-]{8,}
        |(?<![a-z0-9.-])[a-z0-9.-]{1,120}office\.com/webhook(?:b2)?/[A-Za-z0-9@/_-]{16,}
        |hooks\.zapier\.com/hooks/catch/[0-9]{3,}/[A-Za-z0-9]{3,}/?
        |maker\.ifttt\.com/trigger/[A-Za-z0-9_-]{1,40}/with/key/[A-Za-z0-9_-]{8,}
        |hook\.[a-z0-9.]{1,12}make\.com/[a-z0-9]{16,}
        |chat\.googleapis\.com/v1/spaces/[A-Za-z0-9_-]{6,}/messages\?key=[A-Za-z0-9_%&=-]{20,}
        |(?<![a-z0-9.-])[a-z0-9.-]{1,120}logic\.azure\.com(?::443)?/workflows/[A-Za-z0-9/_?&=.%-]{32,}
        |(?<![a-z0-9.-])[a-z0-9.-]{4,120}/hooks/[a-z0-9]{26}(?![A-Za-z0-9])
        |(?<![a-z0-9.-])[a-z0-9.-]{1,120}hooks\.(?:n8n\.cloud|pipedream\.net)/[A-Za-z0-9/_-]{16,}
    )""",
    re.VERBOSE,
)
# Keys of unknown providers: the key itself or the sentence says that it is one.
_CHUNK: Final = lazy_pattern("[A-Za-z0-9_+/~%-]{16,512}={0,2}")
_PARTS: Final = lazy_pattern("[_-]")
_SCRAMBLED: Final = 16
_JUDGED: Final = 128
_HEXADECIMAL: Final = lazy_pattern("[0-9a-f]+|[0-9A-F]+")
_CHANGE: Final = lazy_pattern("(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[0-9]|(?<=[0-9])[A-Za-z]")
_SAYS_KEY: Final = lazy_pattern(r"(?:[a-z0-9]{1,12}[_-]){0,3}(?:secret|token|key|apikey|api|pat|sk|rw|priv|auth)[_-]")
_ASSIGNED: Final = lazy_pattern(r"(?<![a-z])(?:ak|sk|sas|sig)[ ]?[:=][ ]?[\"']?\Z")
_CALLED_WITHIN: Final = 32
_KEY_WORDS: Final = """api app auth access server license licence service secret private personal ak sk pat sas sig
    bearer token key credential oauth jwt webhook"""
_CALLED_OTHERWISE: Final = lazy_pattern(
    r"public|idempotency|cache|primary|foreign|partition|sort|redis|s3|object|commit|hash|sha|etag|integrity|checksum|digest"
    r"|trace|request|公钥|公開|공개"
)
_OFFICE: Final = 192
_WEBHOOK_SIGNS: Final = ("hook", "robot/send", "ifttt", "googleapis.com/v1/spaces", "logic.azure")
_BLOCK_BEGIN: Final = lazy_pattern(r"-----BEGIN ([A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?)-----")
_BLOCK_LINES: Final = lazy_pattern(r"(?:[\s\\nr]{0,4}[A-Za-z0-9+/=]{16,})*(?:\s[A-Za-z0-9+/=]{1,15}(?=\s|$))?")
_PLACEHOLDER: Final = lazy_pattern(
    r"your|placeholder|insert|replace|example[_-]|[_-]here|redacted|x{5,}|\.\.\.|\*{3}|dummy|sample[_-]|<|\{|todo|changeme",
    re.IGNORECASE,
)


class _Providers(NamedTuple):
    by_head: dict[str, re.Pattern[str]]
    """The first two characters of a key, and every pattern that begins with them: more prefixes cost no time."""
    shapes: tuple[tuple[str, re.Pattern[str]], ...]
    called: re.Pattern[str]
    """The words before a random-looking word that call it a key."""


@cache
def _load_providers() -> _Providers:
    """The patterns of `providers.toml`, compiled for the first text that needs them."""
    table = load_table("providers")
    by_head: defaultdict[str, list[str]] = defaultdict(list)
    for prefixes, rest in table["prefixes"]:
        for prefix in prefixes.split():
            by_head[prefix[:2]].append(re.escape(prefix) + rest)
    called = "|".join([*_KEY_WORDS.split(), *table["names"].split()])
    return _Providers(
        {head: re.compile("|".join(patterns)) for head, patterns in by_head.items()},
        tuple((sign, re.compile(f"(?<![A-Za-z0-9]){pattern}")) for sign, pattern in table["shapes"]),
        re.compile(
            rf"(?<![a-z])(?:{called})s?[\s:=#\"'`(is,-]{{0,6}}\Z"
            r"|(?:密钥|秘钥|密鑰|令牌|私钥|凭证|トークン|キー|키|토큰)[\s:=是为は는은\"'`]{0,4}\Z"
        ),
    )


class KeyBlock(NamedTuple):
    """The range of a private-key block, and whether its END is there."""

    start: int
    end: int
    complete: bool


def find_private_keys(view: FoldedText) -> Iterator[Find]:
    """Private-key blocks from BEGIN to END; without an END, as far as the lines look like a key."""
    at = view.ascii.find(BLOCK)
    while at >= 0:
        block = parse_key_block(view.ascii, at)
        if block is not None:
            yield block.start, block.end, PiiRule.PRIVATE_KEY
        at = view.ascii.find(BLOCK, at + len(BLOCK) if block is None else block.end)


def parse_key_block(text: str, start: int) -> KeyBlock | None:
    """The block whose BEGIN is at `start`. A plain search for its END costs a hundredth of a regex."""
    begin = _BLOCK_BEGIN.match(text, start)
    if begin is None:
        return None
    last = f"-----END {begin[1]}-----"
    end = text.find(last, begin.end(), begin.end() + LONGEST_BLOCK + len(last))
    if end >= 0:
        return KeyBlock(start, end + len(last), True)
    lines = _BLOCK_LINES.match(text, begin.end())
    return KeyBlock(start, begin.end() if lines is None else lines.end(), False)


def find_api_keys(view: FoldedText) -> Iterator[Find]:
    """Keys, signed tokens and webhooks in the long words of the text."""
    long_words = view.words
    at = long_words.find(KEY_WORD)
    while at >= 0:
        stop = _ENDS.search(view.ascii, at)
        end = stop.start() if stop else len(long_words)
        start = at
        while start > 0 and at - start < 512 and not _ENDS.match(view.ascii, start - 1):
            start -= 1
        yield from _keys_in_word(view, start, end)
        at = long_words.find(KEY_WORD, end)


def _keys_in_word(view: FoldedText, start: int, end: int) -> Iterator[Find]:
    view.work.judged += 1
    word = view.ascii[start:end]
    if any(sign in word for sign in _WEBHOOK_SIGNS):
        # Office webhooks have an @ inside, where other words end.
        further = end + _OFFICE if "office.com/webhook" in word else end
        for match in _WEBHOOK.finditer(view.ascii, start, further):
            yield *match.span(), PiiRule.WEBHOOK
    if not _MIXED.search(word) and not ("IA" in word and _AMAZON.search(word)):
        return
    for match in _provider_keys(view.ascii, start, end):
        if looks_random(match[0]):
            yield *match.span(), PiiRule.API_KEY
    if "eyJ" in word:
        for match in _JWT.finditer(view.ascii, start, end):
            yield *match.span(), PiiRule.JWT
    if "/bot" in word:
        for match in _BOT.finditer(view.ascii, start, end):
            yield *match.span(), PiiRule.API_KEY
    yield from _labelled_keys(view, start, end)


def _provider_keys(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Matches of the providers' patterns."""
    providers = _load_providers()
    for head in _HEAD.finditer(text, start, end):
        pattern = providers.by_head.get(head[0])
        match = None if pattern is None else pattern.match(text, head.start(), end)
        if match is not None:
            yield match
    for sign, pattern in providers.shapes:
        if text.find(sign, start, end) >= 0:
            yield from pattern.finditer(text, start, end)


def looks_random(key: str) -> bool:
    """Whether the characters vary as in a real key, and no word in it marks a stand-in; its beginning decides."""
    key = key[:_JUDGED]
    body = key[4:]
    if len(set(body)) < 4 or _PLACEHOLDER.search(key):
        return False
    return _RANDOM_PART.search(body) is not None


def _labelled_keys(view: FoldedText, start: int, end: int) -> Iterator[Find]:
    """Long words of no known provider that are keys by their own form or by the words before them."""
    for match in _CHUNK.finditer(view.ascii, start, end):
        if _PLACEHOLDER.search(match[0]):
            continue
        if is_scrambled(match[0]):
            called = _SAYS_KEY.match(match[0]) is not None or _is_labelled_key(view.text, match.start())
        else:
            called = _ASSIGNED.search(view.lower, max(0, match.start() - 8), match.start()) is not None
            called = called and looks_random(match[0])
        if called:
            yield *match.span(), PiiRule.API_KEY


def is_scrambled(word: str) -> bool:
    """Whether letters, capitals and digits alternate as in random text, and not only as hexadecimal."""
    tail = max(_PARTS.split(word), key=len)
    if len(tail) < _SCRAMBLED or _HEXADECIMAL.fullmatch(tail):
        return False
    return sum(map(str.isdigit, tail)) >= 2 and len(_CHANGE.findall(tail)) * 4 >= len(tail)


def _is_labelled_key(text: str, start: int) -> bool:
    window = text[max(0, start - _CALLED_WITHIN) : start].lower().rpartition("\n")[2]
    return _load_providers().called.search(window) is not None and _CALLED_OTHERWISE.search(window) is None
