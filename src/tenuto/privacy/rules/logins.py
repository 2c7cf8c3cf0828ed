"""Passwords by context: before their name, or next to a user name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.prechecks import ORACLE_TOOLS, PASSWORD_STEMS, SLASHED, has_login, has_oracle, has_wifi
from tenuto.privacy.rules.secret_values import (
    has_special_character,
    is_blank,
    is_keylike,
    is_other_data,
    is_varied,
    trim_end,
)
from tenuto.privacy.rules.span import Find, PiiRule

Place = tuple[int, int]

# The value before the name: "... is the new password", "... als Passwort", ...是新密码

_NAME: Final = lazy_pattern(
    r"(?:pass(?:word|phrase|code|wort)|pwd|pw|kennwort)"
    r"(?![\w-]|[ ](?:hash|field|policy|manager|reset|length|algorithm|hint|column|grant|flow|format|rule))"
)
_LEAD: Final = lazy_pattern(
    r"""(?:,?[ ](?:as|for|is|was|that's|thats|that[ ]is|which[ ]is|it's)[ ](?:my|the|your|our|a|his|her|their)[ ]
        (?:(?!common|worst|weak|most)[a-z-]{1,12}[ ]){0,2}
    |[ ]\((?:the[ ])?
    |[ ](?:als|ist[ ](?:das|mein|dein|unser|ihr))[ ](?:[a-z]{1,10}[ ])?(?:[a-z]{2,10}-?)?)\Z""",
    re.VERBOSE,
)
_NAME_IN_HAN: Final = lazy_pattern(
    "密码(?![\u4e00-\u9fff]?(?:长度|格式|错误|规则|哈希|加密|要求))|パスワード"
    "|(?:비밀번호|비번|암호|패스워드)(?:입니다|예요|이에요|로|야|임)"
)
_LEADS_IN_HAN: Final = {
    "密": lazy_pattern("[ ]?(?:就?是|为|作为?|当作?|做|设为|即|这个?|即为)[\u4e00-\u9fff]{0,6}\\Z"),
    "パ": lazy_pattern("[ ]?(?:が|は|を|という)[\u3040-\u9fff]{0,6}\\Z"),
}
_LEAD_IN_KOREAN: Final = lazy_pattern("(?:가|이|를|을|는|은)?[ ]?(?:(?:새|제|내|임시)[ ]?)?\\Z")
_PRINTABLE: Final = lazy_pattern("[!-~]")
_SIGHT: Final = 48
_LAST_WORD: Final = lazy_pattern(r"""(?<![!-~])["'(]{0,2}([!-~]{6,48}?)["'`”」』)]{0,2}\Z""")

# A user name and its password.

# `login: sam / ...`, `Zugangsdaten: mueller:...`
_LOGIN: Final = lazy_pattern(
    r"""(?<![A-Za-z])(?:log[ -]?ins?|creds?|credentials?|zugangsdaten|zugang|logindaten)
        (?:[ ][\w.?-]{1,16}){0,3}?(?:[ ]?[:=][ ]?|[ ](?:is|are|with|as|using|lautet|lauten|sind|ist)[ ]:?[ ]?|[ ])
        ["'`(]?[A-Za-z0-9][\w.@+\\-]{0,47}(?:[ ]?/[ ]?|:[ ]?|[ ]\|[ ])["'`]?(?P<value>[!-~]{5,64})""",
    re.VERBOSE | re.IGNORECASE,
)
# `wifi: guest / ...`. Such passwords have at least eight characters; radio standards are written in the same way.
_WIFI: Final = lazy_pattern(
    r"""(?<![A-Za-z])(?:wi-?fi|wlan)(?:[ ][\w'-]{1,16}){0,2}?(?:[ ]?[:=][ ]?|[ ](?:is|ist)[ ]|是[ ]?)["'`]?
        (?!802|[0-9.]{1,3}[ ]?g)[^\s/|:]{1,32}[ ]?[/|][ ]?["'`]?(?!802|bluetooth|bt)(?P<value>[!-~]{8,63})""",
    re.VERBOSE | re.IGNORECASE,
)
# auth=("bob", "..."), new NetworkCredential("bob", "...")
_CALLED: Final = lazy_pattern(
    r"""(?:[Aa]uth|[Cc]redentials?|[Ll]ogin)\w{0,12}[ ]?=?[ ]?\([ ]?["'][^"'\n]{1,48}["'],[ ]?
    ["'](?P<value>[^"'\s]{3,64})["']""",
    re.VERBOSE,
)
# `ssh in with root/...`, 用 admin/... 登录: a name, a slash and an odd word, next to a word for signing in.
_USER: Final = lazy_pattern(r"(?<![A-Za-z0-9_/.:\\-])[A-Za-z][A-Za-z0-9_.-]{1,31}\Z")
_ODD_WORD: Final = lazy_pattern(r"(?=[!-~]{0,31}[!@#$%^&*])[!-.0-~]{6,32}(?![!-~])")
_SIGNS_IN: Final = lazy_pattern(
    r"(?<![a-z])(?:(?:sign|log)(?:ged|ging|ed|ing)?[ -]?(?:in|on|into)|ssh|rdp|telnet|connect(?:ed)?)(?![a-z])"
    r"|登录|登陆|登入|登錄|账号|帐号|账户|ログイン|로그인"
)
# `sqlplus scott/...@db`: Oracle's tools take user and password as one word.
_ORACLE: Final = lazy_pattern(
    rf"""(?<![\w/.-])(?:{"|".join(ORACLE_TOOLS)})(?:[ ]-\w{{1,8}}){{0,4}}[ ]["']?[A-Za-z][\w$]{{0,29}}/"""
    r"""(?P<value>[^\s@"'/]{4,64})""",
    re.IGNORECASE,
)
_BEYOND: Final = lazy_pattern("[^!-~]")
# An e-mail address with a password after it, as in account lists.
_COMBO: Final = lazy_pattern(
    r"@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,24}){1,4}(?:[:|;]|[ ][/|:][ ]|(?<!xn)-{2,4})"
    r"(?![A-Za-z_]{2,20}=)(?P<value>[!-~]{6,64})"
)
# `root:...@db.example.com:5432/app`, `scott/...@db:1521`: the part before the @, and the part from it on.
_ACCOUNT: Final = lazy_pattern(
    r"""(?!(?:sips?|mailto|xmpp|acct|git|ssh|to|cc|bcc|from|e?-?mail|im|reply-to):)
    (?:jdbc:oracle:thin:\w{1,32}/|[a-z][\w.-]{0,31}:)(?P<value>[^\s@/:"']{4,64})\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_WORD_START: Final = lazy_pattern(r"[^\s\"'(<]+\Z")
_HOST: Final = lazy_pattern(r"@(?:(?:tcp|unix)\(|[\w.-]{1,80}(?:/\w|:[0-9]{2,5}))")


def find_logins(view: FoldedText) -> Iterator[Find]:
    """Every password before its name or next to a user name."""
    for start, end in _login_candidates(view):
        # In the ASCII view a Chinese comma is a question mark, which would count as part of the value.
        beyond = None if view.text is view.ascii else _BEYOND.search(view.text, start, end)
        end = trim_end(view.ascii, start, end if beyond is None else beyond.start())
        value = view.ascii[start:end]
        if beyond is not None and not _is_plausible(value):
            continue
        if len(value) >= 5 and is_varied(value) and not is_blank(value) and not is_other_data(value):
            yield start, end, PiiRule.PASSWORD


def _login_candidates(view: FoldedText) -> Iterator[Place]:
    text = view.ascii
    if view.signed or not view.stems.isdisjoint(PASSWORD_STEMS):
        yield from _passwords_before_names(view)
    if has_login(view):
        yield from (match.span("value") for match in _LOGIN.finditer(text) if _is_plausible(match["value"]))
        yield from (match.span("value") for match in _CALLED.finditer(text))
    if has_wifi(view):
        yield from (match.span("value") for match in _WIFI.finditer(view.text) if _is_plausible(match["value"]))
    if "/" in text:
        if has_oracle(view):
            yield from (match.span("value") for match in _ORACLE.finditer(text))
        yield from _passwords_after_users(view)
    at = text.find("@")
    while at >= 0:
        view.work.judged += 1
        yield from _passwords_beside_at(text, at)
        at = text.find("@", at + 1)


def _passwords_after_users(view: FoldedText) -> Iterator[Place]:
    for slash in SLASHED.finditer(view.ascii):
        at = slash.start()
        word = _ODD_WORD.match(view.text, at + 1)
        user = None if word is None else _USER.search(view.text, max(0, at - 34), at)
        if word is None or user is None or not any(map(str.isdigit, word[0])):
            continue
        around = view.text[max(0, user.start() - 32) : user.start()] + "\n" + view.text[word.end() : word.end() + 12]
        if _SIGNS_IN.search(around.lower()):
            yield word.span()


def _passwords_before_names(view: FoldedText) -> Iterator[Place]:
    for stem in PASSWORD_STEMS & view.stems:
        at = view.lower.find(stem)
        while at >= 0:
            lead = _LEAD.search(view.lower, max(0, at - _SIGHT), at)
            if lead is not None and _NAME.match(view.lower, at):
                yield from _secret_word_before(view.text, lead.start())
            at = view.lower.find(stem, at + len(stem))
    if view.text is not view.ascii:
        yield from _cjk_passwords_before_names(view.text)


def _cjk_passwords_before_names(text: str) -> Iterator[Place]:
    match = _NAME_IN_HAN.search(text)
    while match is not None:
        start, at = match.span()
        if _PRINTABLE.search(text, max(0, start - 13), start):
            lead = _LEADS_IN_HAN.get(match[0][0], _LEAD_IN_KOREAN).search(text, max(0, start - 12), start)
            if lead is not None:
                yield from _secret_word_before(text, lead.start())
        else:
            # No name up to the next one has a word before it.
            word = _PRINTABLE.search(text, at)
            if word is None:
                return
            at = word.end()
        match = _NAME_IN_HAN.search(text, at)


def _secret_word_before(text: str, end: int) -> Iterator[Place]:
    word = _LAST_WORD.search(text, max(0, end - _SIGHT), end)
    if word is not None and is_keylike(word[1], 6):
        yield word.span(1)


def _passwords_beside_at(text: str, at: int) -> Iterator[Place]:
    """Passwords before the @ of a host, or after the e-mail address of the @."""
    if text.rfind(":", max(0, at - 64), at) > text.rfind(" ", max(0, at - 64), at):
        start = _WORD_START.search(text, max(0, at - 100), at)
        account = _ACCOUNT.match(text, start.start(), at) if start is not None else None
        if account is not None and _HOST.match(text, at):
            yield account.span("value")
    combo = _COMBO.match(text, at)
    if combo is not None and text[at - 1 : at].isalnum() and _is_plausible(combo["value"]):
        yield combo.span("value")


def _is_plausible(value: str) -> bool:
    """No path, time or phone: letters mixed with digits or special characters."""
    return "/" not in value and any(map(str.isalpha, value)) and (is_keylike(value, 5) or has_special_character(value))
