"""Values behind their names: passwords, tokens and keys in code, settings and prose, in five languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tenuto.privacy.rules.folding import Folded
from tenuto.privacy.rules.labels import words
from tenuto.privacy.rules.span import Rule
from tenuto.privacy.rules.values import (
    Value,
    is_blank,
    is_fingerprint,
    is_keylike,
    is_odd,
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

# A pass that opens a gate, and no account.
_PAPERS: Final = tuple(
    words("boarding bus train rail season ski game hall day guest visitor press museum park gate mountain")
)
_QUALIFIERS: Final = frozenset(
    words(
        """api access secret private auth account encryption signing master license service admin session app deploy
        subscription consumer bot webhook client hmac jwt stripe openai aws azure storage ssh user security network wifi
        wlan wpa wpa2 shared product recovery root server maps cdn google github project developer dev prod live test
        sandbox activation registration host decryption crypt aes"""
    )
)
_QUALIFIERS_JOINED: Final = tuple(_QUALIFIERS)
_OF_KEY: Final = re.compile(rf"(?:{'|'.join(sorted(_QUALIFIERS))})[_ -]?\Z")
_JOINTS: Final = frozenset("_ -")
_SETS: Final = re.compile(
    r"""s?(?:_?[0-9]{1,2}|_[a-z0-9]{1,10})?["'`\])]{0,2}[ \t]{0,3}(?:[:=([]|->|is |was |["'],?\s|value)"""
)
_SUFFIX: Final = re.compile(
    r"(?:[_-]?(?:key|value|secret|token|prod|production|dev|staging|test|live|base64|[0-9]{1,2}|access[_-]key|string|b64))*"
)
_GOES_ON: Final = re.compile(r"[a-z]|[_-][a-z]")


def _of_pass(lower: str, at: int) -> str | None:
    joined = at > 0 and lower[at - 1] in " -"
    return None if joined and lower.endswith(_PAPERS, max(0, at - 10), at - 1) else "password"


def _of_cre(lower: str, at: int) -> str | None:
    return "key" if lower[at - 2 : at] == "se" else "password"


def _of_schluessel(lower: str, at: int) -> str | None:
    return _of_key(lower, at, at + 9)


def _of_key(lower: str, at: int, end: int = 0) -> str | None:
    end = end or at + 3
    joint = lower[at - 1 : at]
    if joint in _JOINTS:
        if lower[max(0, at - 15) : at - 1].rpartition(joint)[2] in _QUALIFIERS:
            # A private key with dashes behind it is a block's first line, and no name.
            return None if lower.startswith("-----", end) else "key"
    elif joint == "?":
        return "key"  # 高德key: whose it is stands before it, beyond ASCII
    elif joint.isalpha():
        return "key" if lower[max(0, at - 14) : at].endswith(_QUALIFIERS_JOINED) else None
    # A key of no kind: most are figures of speech, and only an assignment makes them something else.
    return "weak" if _SETS.match(lower, end) else None


# A name is found by its stem, which a plain search does fast; a pattern tells whether it is one, and a function of
# which kind. Secrets and credentials share their stem.
_Stem = tuple[re.Pattern[str], Callable[[str, int], str | None]]
_STEMS: Final[dict[str, _Stem]] = {
    "pass": (
        re.compile(
            r"pass(?:word|phrase|code|wort|wd|w|wrd|key)s?|(?<=mot de )passe"
            r"|(?:(?<![a-z])|(?<=require)|(?<=store)|(?<=key)|(?<=db)|(?<=user)|(?<=smtp)|(?<=root)|(?<=admin))pass"
        ),
        _of_pass,
    ),
    "pw": (re.compile(r"pwd|(?<![a-z])pw"), lambda lower, at: "password"),
    "kennwort": (re.compile("kennwort"), lambda lower, at: "password"),
    "cre": (re.compile(r"creds?\b|credentials?|(?<=se)crets?"), _of_cre),
    "token": (re.compile("tokens?"), lambda lower, at: "key"),
    "key": (re.compile("keys?"), _of_key),
    # In the ASCII view a letter beyond it is a question mark.
    "schl?ssel": (re.compile(r"schl\?ssel"), _of_schluessel),
    "contrase?a": (re.compile(r"contrase\?a"), lambda lower, at: "password"),
}

# --- between a name and its value --------------------------------------------------------------------------------

# "password for the staging server", "token (temporary)"; in the ASCII view the ü of "für" is a question mark.
_ABOUT: Final = r"(?:[ ]\([^()\n]{1,24}\)|[ ](?:for|of|to|on|in|from|f\?r|von|zum|zur)(?:[ ][\w@.'-]{1,16}){1,3}?)?"
_SIGN: Final = re.compile(
    _ABOUT
    + r"""(?:["'`\])*]{0,3}[ \t]{0,3}(?P<sign>=>|:=|==?|:|<-|->|>)[ \t]*\n?[ \t]{0,3}"""
    # Names and values in two fields: <add key="DbPassword" value="...">, {"name": "DB_PASSWORD", "value": "..."}
    + r"""|["']?,?\s{1,8}["']?(?P<field>[Vv]alue)["']?[ ]?[:=][ ]?|(?P<call>\()(?=["'][^\s"']{3,64}["']))"""
)
_PROSE: Final = re.compile(
    _ABOUT
    + r"""["'`*]?(?:'s\b|[ \t]*,?[ ](?:"""
    + r"""(?:has been |had been |is |was |got |gets |wurde |ist )?"""
    + r"""(?:(?:changed|reset|set|updated|switched|rotated|ge\?ndert) )?(?:to|as|auf)"""
    + r"""|will be|would be|should be|must be|has to be|used to be|is|was|are|becomes|remains|equals|it's"""
    + r"""|ist|lautet|lautete|war)\b)"""
    + r"""(?:[ ](?:now|still|currently|just|jetzt|probably|nun|noch|simply|actually|set to|called))?"""
    + r"""[ ]{0,2}(?::|->)?\s{0,2}"""
)
# "the password you need is": anything may stand between, so the value must leave no doubt.
_FAR: Final = re.compile(r"(?P<about>(?:,?[ ][a-z']{1,12}){1,5}),?(?:[ ](?:is|was|ist):?[ ]|:[ ]|[ ]->[ ])")
# "password?" on one line, and nothing but the value on the next one, perhaps behind who says it.
_ANSWER: Final = re.compile(
    r"""[ ]?\??(?:[ ]?\n|(?<=\?)[ ])(?:>[ ]?|\[[0-9:. ]{4,20}\][ ]?)?(?:[A-Za-z]{1,16}:[ ])?"""
    r"""(?=[!-~]{6,48}[ ]?(?:\n|\Z))"""
)
_NOT_ABOUT: Final = frozenset(
    words("hash policy length field column file page manager reset strength hint expiry change count type size id name")
)
# "changed my password from ... to ...": two values, and both of them must leave no doubt.
_FROM: Final = re.compile(
    r"""["'`]?(?:[ ](?:has[ ]been|was|is|wurde))?(?:[ ](?:changed|updated|reset|rotated|switched|ge.ndert))?"""
    r"""[ ](?:from|von)[ ]"""
    r"""|[ ]?(?:已经?|刚)?[从由][ ]?"""
)
_INTO: Final = re.compile(
    r"""["'`”」]?(?:[ ](?:to|into|auf|zu|became|becomes|is[ ]now)[ ]|[ ]?(?:->|=>|→)[ ]?
    |[ ]?(?:改|换|變|变|变更|变成|更新|更改|修改|重置|調整|调整)(?:成|为|為|到)了?[ ]?)""",
    re.VERBOSE,
)
_SPACE: Final = re.compile(r"""["'`]?,?[ \t]{1,3}(?:[#-]+[ ])?(?=\S{3})""")
_LONGEST_LINK: Final = 64
_LINKS: Final = ((_SIGN, "sign"), (_PROSE, "prose"), (_FAR, "far"), (_SPACE, "space"), (_ANSWER, "far"))
_JOINED: Final = re.compile(r"[\w.\"'?&-]")
_PAIRED: Final = re.compile(r"(?:/|账号|帐号|用户名|账户|用户)[/、和及&+ ]{0,2}\Z")
_ONE_TIME: Final = re.compile(
    r"(?:one[ -]time|single[ -]use|动态|一次性|ワンタイム|일회용|[Ee]inmal)[ -]?\Z", re.IGNORECASE
)
_MEASURE: Final = re.compile(
    r"[ ](?:characters?|chars?|days?|hours?|minutes?|times?|bits?|digits?|letters?|attempts?|%|Zeichen|Tage)"
)
_WORDS_JOINED: Final = re.compile(r"[A-Za-z]+(?:[-_.'/][A-Za-z]+)*")

# --- names in Chinese, Japanese and Korean -----------------------------------------------------------------------

_HAN_NAME: Final = re.compile(
    "(?P<password>密码|密碼|账密|口令|授权码|パスワード|パスコード|パスフレーズ|パス(?=は)|暗証番号|비밀번호|비번|암호|패스워드|패스(?=는)|[Пп]ароль)"
    "|(?P<key>密钥|秘钥|密鑰|私钥|令牌|トークン|토큰|シークレット|시크릿|キー|(?<=[Iiy])키|(?<=[Iiy] )키)"
)
_HAN_LINK: Final = re.compile(
    r"""["'”」』)*]{0,3}[ ]{0,2}
    (?:(?P<about>[\u4e00-\u9fff()（）的]{0,8}?)
        (?:(?:分别是|就是|还是|是|为|為|成|:|=>|=|->)了?|(?:改|换|设置?|填写?|用|试试?|默认|统一)(?=[ ]?["“「!-~]))
      |は|が|を|는|은|이|가|를|->|is\b)
    [ ]{0,2}:?[ \t]*\n?[ ]{0,2}|[ \t]{0,2}""",
    re.VERBOSE,
)
_HAN_NOT_ABOUT: Final = re.compile(
    "长度|格式|强度|错误|有效期|规则|类型|算法|字段|位数|次数|时间|日期|失败|邮件|数量|不能|必须|哈希|策略|要求|提示|版本|数"
)
# What a value may begin with, and how far from a name any link reaches.
_VALUE: Final = re.compile("[!-~“「『【]")
_FURTHEST_VALUE: Final = 32
_LONGEST_HAN_NAME: Final = 8
_HAN_FAR: Final = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af,，、?？:： ]{1,16}")
_HAN_UNITS: Final = re.compile(
    r"\s{0,2}(?:位|个|次|天|分钟|小时|秒|字符|种|条|年|月|日|号楼|加密|算法|哈希|字节|以上|以内|文字|자리|글자|桁)"
)


def find_names(view: Folded) -> list[Name] | None:
    """English and German names of secrets, from left to right; None when no stem occurs."""
    stems = view.stems
    if stems.isdisjoint(_STEMS):
        return None
    found: list[Name] = []
    for stem in stems & _STEMS.keys():
        _add_names(view.lower, stem, found)
    found.sort()
    return found


def _add_names(lower: str, stem: str, found: list[Name]) -> None:
    pattern, kind_of = _STEMS[stem]
    at = lower.find(stem)
    while at >= 0:
        kind = kind_of(lower, at)
        if kind is not None:
            match = pattern.match(lower, at)
            end = None if match is None else _name_end(lower, match.end())
            if end is not None:
                found.append(Name(at - 2 if kind == "key" and stem == "cre" else at, end, kind))
        at = lower.find(stem, at + len(stem))


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
    changed = _changed(view, name)
    if changed:
        yield from changed
        return
    pair = _is_pair(view, name.start)
    for pattern, how in _LINKS[:2] if name.kind == "weak" else _LINKS:
        link = pattern.match(view.ascii, name.end, name.end + _LONGEST_LINK)
        value = None if link is None else read_value(view, link.end(), pair=pair)
        if link is None or value is None or (how == "far" and not _NOT_ABOUT.isdisjoint(link[0].split())):
            continue
        told = (link["sign"] or "=") if how == "sign" else how
        if how == "space" and _is_switch(view, name.start):
            told = "="
        if _is_secret(view, name.kind, told, value) and not _is_one_time(
            view, name, view.text[value.start : value.end]
        ):
            rule = Rule.PASSWORD if name.kind == "password" else Rule.API_KEY
            yield _with_name(view, name, link.end(), value.start), value.end, rule
            yield from _next_one(view, rule, value.end)
            return


def _changed(view: Folded, name: Name) -> tuple[tuple[int, int, Rule], ...]:
    """The old value and the new one, where the sentence names both."""
    link = _FROM.match(view.text, name.end)
    if link is None or name.kind != "password":
        return ()
    old = _value_without_doubt(view, link.end())
    then = None if old is None else _INTO.match(view.text, old.end)
    new = None if then is None else _value_without_doubt(view, then.end())
    if old is None or new is None:
        return ()
    return (old.start, old.end, Rule.PASSWORD), (new.start, new.end, Rule.PASSWORD)


def _next_one(view: Folded, rule: Rule, at: int) -> Iterator[tuple[int, int, Rule]]:
    """`pw: old -> new`: what the value that ends at `at` became."""
    then = _INTO.match(view.text, at) if rule is Rule.PASSWORD else None
    new = None if then is None else _value_without_doubt(view, then.end())
    if new is not None:
        yield new.start, new.end, rule


def _value_without_doubt(view: Folded, at: int) -> Value | None:
    value = read_value(view, at)
    if value is None:
        return None
    text = view.text[value.start : value.end]
    sound = len(text) >= 6 and is_varied(text) and any(map(str.isalpha, text))
    return value if sound and not is_blank(text) and not is_something_else(text) else None


def _is_pair(view: Folded, at: int) -> bool:
    """`user/password: admin/...`, 账号密码：admin/..."""
    text = view.text
    near = text[max(0, at - 5) : at]
    if "/" not in near and near.isascii():
        return text is not view.ascii and text.startswith("账密", at)
    return text.startswith("账密", at) or _PAIRED.search(near) is not None


def _is_switch(view: Folded, begin: int) -> bool:
    """Whether the name is an option of a command: `--password`, `--db-password`."""
    return view.ascii[max(0, begin - 24) : begin].rpartition(" ")[2].startswith("-")


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
        return is_keylike(text, 6) and (kind == "key" or not is_fingerprint(text))
    if kind == "password":
        return _is_password(view, how, value)
    if how in ("=", ":=", "=="):
        # The shortest key that the documents show.
        return is_keylike(text, 6) or text == "sk-xxx"
    if kind == "weak":
        return is_keylike(text, 20) and not is_fingerprint(text)
    return is_keylike(text, 16 if how == "space" else 8)


def _is_one_time(view: Folded, name: Name, text: str) -> bool:
    """A code for once is no password: it is dead before anybody reads it."""
    return text.isdigit() and _ONE_TIME.search(view.text, max(0, name.start - 12), name.start) is not None


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


def find_named_in_han(view: Folded) -> Iterator[tuple[int, int, Rule]]:
    """Every value behind a Chinese, Japanese or Korean name. Where no value is near, names are passed over together."""
    match = _HAN_NAME.search(view.text)
    while match is not None:
        at = match.end()
        value = _VALUE.search(view.text, at)
        if value is None:
            return
        if value.start() - at > _FURTHEST_VALUE:
            at = max(at, value.start() - _FURTHEST_VALUE - _LONGEST_HAN_NAME)
        else:
            yield from _behind_in_han(view, Name(match.start(), at, match.lastgroup or "key"))
        match = _HAN_NAME.search(view.text, at)


def _behind_in_han(view: Folded, name: Name) -> Iterator[tuple[int, int, Rule]]:
    changed = _changed(view, name)
    if changed:
        yield from changed
        return
    link = _HAN_LINK.match(view.text, name.end)
    assert link is not None  # its last branch matches the empty string
    if link["about"] and _HAN_NOT_ABOUT.search(link["about"]):
        return
    value = read_value(view, link.end(), pair=_is_pair(view, name.start))
    if value is None:
        yield from _far_in_han(view, name)
        return
    text = view.text[value.start : value.end]
    if is_blank(text) or is_something_else(text) or _HAN_UNITS.match(view.text, value.end):
        return
    if _is_one_time(view, name, text):
        return
    if name.kind != "password":
        if is_keylike(text, 8):
            yield value.start, value.end, Rule.API_KEY
    elif (value.quoted and len(text) >= 3) or (
        len(text) >= 4 and (is_varied(text) or (link[0].strip() not in ("", "is") and text.isascii()))
    ):
        yield value.start, value.end, Rule.PASSWORD


def _far_in_han(view: Folded, name: Name) -> Iterator[tuple[int, int, Rule]]:
    """密码还是原来那个 Abc@123: some words stand between, so the value must leave no doubt."""
    link = _HAN_FAR.match(view.text, name.end)
    if link is None or name.kind != "password" or _HAN_NOT_ABOUT.search(link[0]):
        return
    value = read_value(view, link.end())
    if value is None:
        return
    text = view.text[value.start : value.end]
    if is_keylike(text, 6) and is_odd(text) and not is_blank(text) and not is_something_else(text):
        yield value.start, value.end, Rule.PASSWORD
