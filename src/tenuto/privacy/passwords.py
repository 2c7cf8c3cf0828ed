"""Values behind their names: passwords, tokens and keys in code, settings and prose, in five languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tenuto.privacy.folding import Folded
from tenuto.privacy.labels import words
from tenuto.privacy.span import Rule
from tenuto.privacy.values import (
    Value,
    is_blank,
    is_fingerprint,
    is_keylike,
    is_something_else,
    is_varied,
    read_value,
)


class Name(NamedTuple):
    """A name of a secret: where it stands, and whether it is a `password`, a `key`, or a `weak` word for one."""

    start: int
    end: int
    kind: str


# --- names in English and German ---------------------------------------------------------------------------------

# A name is found by its stem, which a plain search does fast; the pattern then tells whether it is one. Secrets and
# credentials share theirs.
_STEMS: Final = {
    "pass": re.compile(r"pass(?:word|phrase|code|wort|wd|w)s?|(?:(?<![a-z])|(?<=require))pass"),
    "pw": re.compile(r"pwd|(?<![a-z])pw"),
    "kennwort": re.compile("kennwort"),
    "cre": re.compile(r"creds?\b|credentials?|(?<=se)crets?"),
    "token": re.compile("tokens?"),
    "key": re.compile("keys?"),
}
_PASSWORDS: Final = frozenset({"pass", "pw", "kennwort", "cre"})
_QUALIFIERS: Final = tuple(
    words(
        """api access secret private auth account encryption signing master license service admin session app deploy
        subscription consumer bot webhook client hmac jwt stripe openai aws azure storage ssh user"""
    )
)
_OF_KEY: Final = re.compile(rf"(?:{'|'.join(_QUALIFIERS)})[_ -]?$")
_JOINTS: Final = frozenset("_ -")
_SETS: Final = frozenset(":=-([")
_SUFFIX: Final = re.compile(
    r"(?:[_-]?(?:key|value|secret|token|prod|production|dev|staging|test|live|base64|[0-9]{1,2}|access[_-]key|string|b64))*"
)
_GOES_ON: Final = re.compile(r"[a-z]|[_-][a-z]")

# --- between a name and its value --------------------------------------------------------------------------------

# "password for the staging server", "token (temporary)"; in the ASCII view the ü of "für" is a question mark.
_ABOUT: Final = r"(?:[ ]\([^()\n]{1,24}\)|[ ](?:for|of|to|on|in|from|f\?r|von|zum|zur)(?:[ ][\w@.'-]{1,16}){1,3}?)?"
_SIGN: Final = re.compile(_ABOUT + r"""["'`\])*]{0,3}[ \t]{0,3}(?P<sign>=>|:=|==?|:|->|>)[ \t]*\n?[ \t]{0,3}""")
_PROSE: Final = re.compile(
    _ABOUT
    + r"""["'`*]?(?:'s\b|[ \t]*,?[ ](?:has been (?:changed|reset|set) to"""
    + r"""|(?:is |was )?(?:changed|reset|set|updated) to"""
    + r"""|will be|should be|is|was|are|to|ist|lautet|war|wurde auf)\b)"""
    + r"""(?:[ ](?:now|still|currently|just|jetzt|probably))?[ ]{0,2}(?::|->)?\s{0,2}"""
)
# "the password you need is": anything may stand between, so the value must leave no doubt.
_FAR: Final = re.compile(r"(?P<about>(?:[ ][a-z']{1,12}){1,4})[ ](?:is|was|ist):?[ ]")
_NOT_ABOUT: Final = frozenset(
    words("hash policy length field column file page manager reset strength hint expiry change count type size id name")
)
_SPACE: Final = re.compile(r"""["'`]?,?[ \t]{1,3}(?:[#-]+[ ])?""")
_LONGEST_LINK: Final = 64
_LINKS: Final = ((_SIGN, "sign"), (_PROSE, "prose"), (_FAR, "far"), (_SPACE, "space"))
_JOINED: Final = re.compile(r"[\w.\"'?&-]")
_PAIRED: Final = re.compile(r"(?:/|账号|帐号|用户名|账户|用户)[/、和及&+ ]{0,2}$")
_MEASURE: Final = re.compile(
    r"[ ](?:characters?|chars?|days?|hours?|minutes?|times?|bits?|digits?|letters?|attempts?|%|Zeichen|Tage)"
)
_WORDS_JOINED: Final = re.compile(r"[A-Za-z]+(?:[-_.'/][A-Za-z]+)*")

# --- names in Chinese, Japanese and Korean -----------------------------------------------------------------------

# Single characters: they are searched for faster than words, and few texts have one by chance.
_SIGNS: Final = ("密", "令", "钥", "授", "パ", "暗", "ト", "비", "암", "토", "キ", "키", "鑰", "シ", "시")
_HAN_NAME: Final = re.compile(
    "(?P<password>密码|密碼|口令|授权码|パスワード|パスコード|暗証番号|비밀번호|비번|암호)"
    "|(?P<key>密钥|秘钥|密鑰|私钥|令牌|トークン|토큰|シークレット|시크릿|キー|(?<=[Iiy])키)"
)
_HAN_LINK: Final = re.compile(
    r"""["'”」』)*]{0,3}[ ]{0,2}
    (?:(?P<about>[\u4e00-\u9fff()（）的]{0,8}?)(?:就是|还是|是|为|為|成|:|=>|=)了?
      |は|が|を|는|은|이|가|를|->|is\b)
    [ ]{0,2}:?[ \t]*\n?[ ]{0,2}|[ \t]{0,2}""",
    re.VERBOSE,
)
_HAN_NOT_ABOUT: Final = re.compile(
    "长度|格式|强度|错误|有效期|规则|类型|算法|字段|位数|次数|时间|日期|失败|邮件|数量|不能|必须|哈希|策略|要求|提示|版本|数"
)
_HAN_UNITS: Final = re.compile(
    r"\s{0,2}(?:位|个|次|天|分钟|小时|秒|字符|种|条|年|月|日|号楼|加密|算法|哈希|字节|以上|以内|文字|자리|글자|桁)"
)


def find_names(view: Folded) -> list[Name] | None:
    """English and German names of secrets, from left to right; None when no stem occurs."""
    lower = view.lower
    found: list[Name] = []
    any_stem = False
    for stem, pattern in _STEMS.items():
        at = lower.find(stem)
        while at >= 0:
            any_stem = True
            kind = _kind(lower, stem, at)
            match = None if kind is None else pattern.match(lower, at)
            end = None if match is None else _name_end(lower, match.end())
            if end is not None and kind is not None:
                found.append(Name(at - 2 if stem == "cre" and kind == "key" else at, end, kind))
            at = lower.find(stem, at + len(stem))
    found.sort()
    return found if any_stem else None


def _kind(lower: str, stem: str, at: int) -> str | None:
    if stem in _PASSWORDS:
        return "key" if lower[at - 2 : at] == "se" else "password"
    if stem != "key":
        return "key"
    joint = lower[at - 1 : at]
    if lower[max(0, at - 14) : at - (joint in _JOINTS)].endswith(_QUALIFIERS):
        return "key"
    # A key of no kind: most are figures of speech, and only an assignment makes them something else.
    if joint.isalpha() or (lower[at + 3 : at + 4] == " " and lower[at + 4 : at + 5] not in _SETS):
        return None
    return "weak"


def _name_end(lower: str, at: int) -> int | None:
    """Where the name ends, or None when the word goes on as another one: `passport`, `token_count`."""
    suffix = _SUFFIX.match(lower, at)
    assert suffix is not None  # it matches the empty string
    return None if _GOES_ON.match(lower, suffix.end()) else suffix.end()


def find_named(view: Folded, names: list[Name]) -> Iterator[tuple[int, int, Rule]]:
    """Every value behind one of `names`."""
    reached = 0
    for name in names:
        if name.start >= reached:
            for found in _behind(view, name):
                reached = found[1]
                yield found


def _behind(view: Folded, name: Name) -> Iterator[tuple[int, int, Rule]]:
    """The value behind `name`, if what stands there is one."""
    if view.text is not view.ascii and view.text[name.end : name.end + 2].strip()[:1] > "\x7f":
        yield from _behind_in_han(view, name)
        return
    pair = _is_pair(view, name.start)
    for pattern, how in _LINKS[:1] if name.kind == "weak" else _LINKS:
        link = pattern.match(view.ascii, name.end, name.end + _LONGEST_LINK)
        value = None if link is None else read_value(view, link.end(), pair=pair)
        if link is None or value is None or (how == "far" and not _NOT_ABOUT.isdisjoint(link["about"].split())):
            continue
        told = link["sign"] if how == "sign" else "=" if how == "space" and _is_switch(view, name.start) else how
        if _is_secret(view, name.kind, told, value):
            rule = Rule.PASSWORD if name.kind == "password" else Rule.API_KEY
            yield _with_name(view, name, link.end(), value.start), value.end, rule
            return


def _is_pair(view: Folded, at: int) -> bool:
    """`user/password: admin/...`, 账号密码：admin/..."""
    return _PAIRED.search(view.text, max(0, at - 5), at) is not None


def _is_switch(view: Folded, begin: int) -> bool:
    """Whether the name is an option of a command: `--password`, `--db-password`."""
    return view.ascii[max(0, begin - 24) : begin].rpartition(" ")[2].startswith("--")


def _with_name(view: Folded, name: Name, value: int, start: int) -> int:
    """`password=...` goes as a whole, as the documents show it; elsewhere the name stays, for the reader's sake."""
    qualified = _OF_KEY.search(view.lower, max(0, name.start - 16), name.start)
    begin = name.start if qualified is None else qualified.start()
    lone = not _JOINED.match(view.ascii[begin - 1 : begin])
    return begin if lone and start == value and view.ascii[name.end : value] == "=" else start


def _is_secret(view: Folded, kind: str, how: str, value: Value) -> bool:
    text = view.text[value.start : value.end]
    if is_blank(text) or (how != "=" and is_something_else(text)):
        return False
    if how == "far":
        return is_keylike(text, 6) and not is_fingerprint(text)
    if kind == "password":
        return _is_password(view, how, value)
    if how in ("=", ":=", "=="):
        # The shortest key that the documents show.
        return is_keylike(text, 6) or text == "sk-xxx"
    if kind == "weak":
        return is_keylike(text, 20) and not is_fingerprint(text)
    return is_keylike(text, 16 if how == "space" else 8)


def _is_password(view: Folded, how: str, value: Value) -> bool:
    """The looser a value hangs on its name, the less it may look like a word."""
    text = view.text[value.start : value.end]
    varied = is_varied(text)
    if value.quoted:
        return len(text) >= 3 and (varied or how not in ("prose", "space") or " " not in text)
    if how in ("=", "==", ":=", "=>", ">"):
        return len(text) >= (4 if text.isdigit() else 3)
    if len(text) < 4:
        return False
    if how in (":", "->"):
        return varied or _is_last_word(view, value)
    if not varied or _MEASURE.match(view.text, value.end):
        return False
    return how != "space" or (len(text) >= 6 and any(map(str.isdigit, text)))


def _is_last_word(view: Folded, value: Value) -> bool:
    """A password that is a word counts where nothing follows it on its line: no sentence goes on."""
    rest = view.text[value.end : value.end + 2]
    return (rest[:1] in ("", "\n") or rest in (".", ".\n")) and (
        _WORDS_JOINED.fullmatch(view.text, value.start, value.end) is not None
    )


def has_signs(view: Folded) -> bool:
    """Whether a character occurs that the Chinese, Japanese and Korean names have."""
    if view.text is view.ascii:
        return False
    text = view.text
    for sign in _SIGNS:  # noqa: SIM110 - `any` with a generator costs more than the search itself
        if sign in text:
            return True
    return False


def find_named_in_han(view: Folded) -> Iterator[tuple[int, int, Rule]]:
    """Every value behind a Chinese, Japanese or Korean name."""
    for match in _HAN_NAME.finditer(view.text):
        yield from _behind_in_han(view, Name(match.start(), match.end(), match.lastgroup or "key"))


def _behind_in_han(view: Folded, name: Name) -> Iterator[tuple[int, int, Rule]]:
    link = _HAN_LINK.match(view.text, name.end)
    assert link is not None  # its last branch matches the empty string
    if link["about"] and _HAN_NOT_ABOUT.search(link["about"]):
        return
    value = read_value(view, link.end(), pair=_is_pair(view, name.start))
    if value is None:
        return
    text = view.text[value.start : value.end]
    if is_blank(text) or is_something_else(text) or _HAN_UNITS.match(view.text, value.end):
        return
    if name.kind != "password":
        if is_keylike(text, 8):
            yield value.start, value.end, Rule.API_KEY
    elif (value.quoted and len(text) >= 3) or (
        len(text) >= 4 and (is_varied(text) or (link[0].strip() not in ("", "is") and text.isascii()))
    ):
        yield value.start, value.end, Rule.PASSWORD
