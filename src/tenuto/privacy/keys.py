"""Keys that give themselves away: a provider's prefix, a signed token, a webhook's path, a private-key block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.privacy.folding import Folded
from tenuto.privacy.labels import words
from tenuto.privacy.span import Rule

_LEAST: Final = 16
_WORD: Final = b"a" * _LEAST
_ENDS: Final = re.compile(r"[^A-Za-z0-9_./+=:~%?&-]")
# What any of the patterns below has in it: a plain search for these spares most words the patterns.
_HINTS: Final = tuple(
    words(
        """sk- sk_ pk_ rk_ whsec_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ gl xox xapp- AKIA ASIA AROA AIDA ABIA
        ACCA AIza ya29. GOCSPX- hf_ npm_ pypi- rubygems_ SG. SK AC key -us xkeysib- shp do _v1_ dapi
        lin_api_ secret_ ntn_ fig pat . : sq0 EAA pscale_ hv gsk_ r8_ tfp_ jina_ fw_ sbp_ sntry bkua_ aio_
        fo1_ phc_ phx_ rpa_ tgp_ csk wandb_ xai- pplx- tvly- nvapi- tskey- dsk- ak- pa- vk1- ark- lsv2_
        pcsk_ NRAK PMAK HRKU CFPAT FLWSECK EZAK EZTK ATATT3 ATCTT3 ATBB dckr_ LTAI AKID AKLT ALTAK
        AGE-SECRET rzp_ CCI ops_eyJ"""
    )
)
BLOCK: Final = "-----BEGIN "
LONGEST_BLOCK: Final = 8192

# One line a provider: what their keys begin with, and what follows.
_PREFIXED: Final = (
    r"sk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, DeepSeek, OpenRouter and many more
    r"(?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,}",  # Stripe, Clerk
    r"sk_[a-f0-9]{40,}",
    r"whsec_[A-Za-z0-9+/=]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-[A-Za-z0-9_.-]{16,}",
    r"xox[abeoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}",
    r"xapp-[0-9]-[A-Za-z0-9-]{10,}",
    r"(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"ya29\.[A-Za-z0-9_-]{20,}",
    r"GOCSPX-[A-Za-z0-9_-]{20,}",
    r"hf_[A-Za-z0-9]{20,}",
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-[A-Za-z0-9_-]{30,}",
    r"rubygems_[a-f0-9]{32,}",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"(?:SK|AC)[0-9a-f]{32}",
    r"key-[0-9a-f]{32}",
    r"[0-9a-f]{32}-us[0-9]{1,2}",
    r"xkeysib-[a-f0-9]{32,}(?:-[A-Za-z0-9]+)?",
    r"shp(?:at|ss|ca|pa)_[A-Fa-f0-9]{24,}",
    r"do[opr]_v1_[a-f0-9]{32,}",
    r"dapi[a-f0-9]{32}(?:-[0-9])?",
    r"lin_api_[A-Za-z0-9]{20,}",
    r"(?:secret|ntn)_[A-Za-z0-9]{36,}",
    r"fig[du]_[A-Za-z0-9_-]{20,}",
    r"pat[A-Za-z0-9]{14}\.[a-f0-9]{40,}",
    r"[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",  # Discord bots
    r"[0-9]{8,10}:[A-Za-z0-9_-]{35}",  # Telegram bots
    r"sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{20,}",
    r"EAA[A-Za-z0-9]{40,}",
    r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{20,}",
    r"hv[sb]\.[A-Za-z0-9_-]{20,}",
    r"dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9_.-]{20,}",
    r"(?:gsk|r8|tfp|jina|fw|glsa|glc|sbp|sntry[su]|bkua|aio|fo1|phc|phx|rpa|tgp_v1|csk|wandb_v1)_[A-Za-z0-9_.=+/-]{20,}",
    r"(?:xai|pplx|tvly|nvapi|csk|tskey|dsk|ak|pa|vk1|ark|key_live|key_test)-[A-Za-z0-9_-]{24,}",
    r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}",
    r"pcsk_[A-Za-z0-9_]{20,}",
    r"(?:NRAK|PMAK|HRKU|CFPAT|FLWSECK|FLWSECK_TEST|EZAK|EZTK)-?[A-Za-z0-9_-]{20,}",
    r"AT(?:ATT3|CTT3|BB)[A-Za-z0-9_=-]{20,}",
    r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}",
    r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}",
    r"(?:LTAI|AKID|AKLT|ALTAK-?)[A-Za-z0-9]{12,44}",  # Alibaba, Tencent, Volcengine, Baidu clouds
    r"bce-v3/ALTAK-[A-Za-z0-9]+/[a-f0-9]{32,}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{40,}",
    r"rzp_(?:live|test)_[A-Za-z0-9]{12,}",
    r"CCI(?:PAT|PRJ)_[A-Za-z0-9_]{20,}",
    r"ops_eyJ[A-Za-z0-9_=-]{40,}",
    r"[sp]k\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{16,}",
    r"[0-9a-f]{32}\.[A-Za-z0-9]{16}",  # Zhipu
)
_KEY: Final = re.compile("(?<![A-Za-z0-9])(?:" + "|".join(_PREFIXED) + ")")
_BOT: Final = re.compile(r"(?<=/bot)[0-9]{8,10}:[A-Za-z0-9_-]{35}")
_JWT: Final = re.compile(r"(?<![A-Za-z0-9_])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}")
_WEBHOOK: Final = re.compile(
    r"""(?:https?://)?(?:
        hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{10,}
        |(?:[a-z]+\.)?discord(?:app)?\.com/api/webhooks/[0-9]{6,}/[A-Za-z0-9_-]{8,}
        |open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/(?:v2/)?hook/[A-Za-z0-9-]{8,}
        |oapi\.dingtalk\.com/robot/send\?access_token=[A-Za-z0-9]{8,}
        |qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=[A-Za-z0-9-]{8,}
        |[a-z0-9.-]{1,60}office\.com/webhook(?:b2)?/[A-Za-z0-9@/_-]{16,}
        |hooks\.zapier\.com/hooks/catch/[0-9]{3,}/[A-Za-z0-9]{3,}/?
        |maker\.ifttt\.com/trigger/[A-Za-z0-9_-]{1,40}/with/key/[A-Za-z0-9_-]{8,}
        |hook\.[a-z0-9.]{1,12}make\.com/[a-z0-9]{16,}
    )""",
    re.VERBOSE,
)
_WEBHOOK_SIGNS: Final = ("hook", "robot/send", "ifttt")
BLOCK_PATTERN: Final = re.compile(
    r"-----BEGIN (?P<what>[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?)-----"
    rf"(?:(?s:.{{0,{LONGEST_BLOCK}}}?)-----END (?P=what)-----"
    r"|(?:[\s\\nr]{0,4}[A-Za-z0-9+/=]{16,})*(?:\s[A-Za-z0-9+/=]{1,15}(?=\s|$))?)"
)
_PLACEHOLDER: Final = re.compile(
    r"your|placeholder|insert|replace|example[_-]|[_-]here|redacted|x{5,}|\.\.\.|\*{3}|dummy|sample[_-]|<|\{|todo|changeme",
    re.IGNORECASE,
)


def find_blocks(view: Folded) -> Iterator[tuple[int, int]]:
    """Private-key blocks from BEGIN to END; without an END, as far as the lines look like a key."""
    return (match.span() for match in BLOCK_PATTERN.finditer(view.ascii))


def has_long_words(view: Folded) -> bool:
    """Whether sixteen characters of a key stand together."""
    return _WORD in view.words


def find_keys(view: Folded) -> Iterator[tuple[int, int, Rule]]:
    """Keys, signed tokens and webhooks in the long words of the text."""
    long_words = view.words
    at = long_words.find(_WORD)
    while at >= 0:
        stop = _ENDS.search(view.ascii, at)
        end = stop.start() if stop else len(long_words)
        start = at
        while start > 0 and at - start < 512 and not _ENDS.match(view.ascii, start - 1):
            start -= 1
        yield from _in_word(view, start, end)
        at = long_words.find(_WORD, end)


def _in_word(view: Folded, start: int, end: int) -> Iterator[tuple[int, int, Rule]]:
    word = view.ascii[start:end]
    if any(sign in word for sign in _WEBHOOK_SIGNS):
        for match in _WEBHOOK.finditer(view.ascii, start, end):
            yield *match.span(), Rule.WEBHOOK
    if "eyJ" in word:
        for match in _JWT.finditer(view.ascii, start, end):
            yield *match.span(), Rule.JWT
    if "/bot" in word:
        for match in _BOT.finditer(view.ascii, start, end):
            yield *match.span(), Rule.API_KEY
    if not any(hint in word for hint in _HINTS):
        return
    for match in _KEY.finditer(view.ascii, start, end):
        if is_random(match[0]):
            yield *match.span(), Rule.API_KEY


def is_random(key: str) -> bool:
    """Whether a key's characters vary like a key's, and no word in it says that it stands for one."""
    body = key[4:]
    if len(set(body)) < 4 or _PLACEHOLDER.search(key):
        return False
    return any(map(str.isdigit, body)) or body != body.lower()
