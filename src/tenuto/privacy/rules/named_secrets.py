"""Values after the name of a secret: passwords, tokens and keys in code, settings and prose, in five languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.secret_blocks import block_below
from tenuto.privacy.rules.secret_columns import cells_below
from tenuto.privacy.rules.secret_names import OF_KEY, Name
from tenuto.privacy.rules.secret_values import (
    Value,
    has_special_character,
    is_blank,
    is_fingerprint,
    is_keylike,
    is_other_data,
    is_slug,
    is_varied,
    parse_value,
)
from tenuto.privacy.rules.span import PiiRule
from tenuto.privacy.rules.word_tables import load_table

# Links between a name and its value.

# "password for the staging server", "token (temporary)"; in the ASCII view the ü of "für" is a question mark. A full
# stop after a long word ends a sentence, but not after "Dr" and "Inc".
_ABOUT: Final = (
    r"(?:[ ]\([^()\n]{1,24}\)|[ ](?:for|of|to|on|in|from|f\?r|von|zum|zur)(?:[ ][\w@.'-]{1,16}(?<![a-z]{4}\.)){1,3}?)?"
)
_SIGN: Final = lazy_pattern(
    _ABOUT
    + r"""(?:["'`\])*]{0,3}[ \t]{0,3}(?P<sign>=>|:=|==?|:|<-|->|>)[ \t]*\n?[ \t]{0,3}"""
    # Names and values in two fields: <add key="DbPassword" value="...">, {"name": "DB_PASSWORD", "value": "..."}
    + r"""|(?:["'],|["']?,?\s{1,8})["']?(?P<field>[Vv]alue|[Dd]efault)["']?[ ]{0,8}[:=][ ]?"""
    + r"""|(?P<call>\()(?=["'][^\s"']{3,64}["']))"""
)
# The name and the value in separate fields: variable "db_password" { ... default = "..." }, the same in YAML,
# <entry key="password"><value>..., <key>password</key><string>...
_FIELD: Final = lazy_pattern(
    r"""["']?(?:[ \t]{0,3}\{[^{}]{0,64}?(?<!\w)(?:default|value)["']?[ \t]{0,8}[:=][ \t]{0,3}"""
    r"""|:[ \t]{0,2}\n(?:[ \t]{1,8}[A-Za-z]{1,12}:[^\n]{0,32}\n){0,2}[ \t]{1,8}(?:[Dd]efault|[Vv]alue):[ ]{1,2}"""
    r"""|[ ]?(?:</\w{1,12}>|/?>)\s{0,8}<(?:value|string)>)"""
)
_LONGEST_FIELD: Final = 80
_PROSE: Final = lazy_pattern(
    _ABOUT
    + r"""["'`*]?(?:'s\b|[ \t]*,?[ ](?:"""
    + r"""(?:has been |had been |is |was |got |gets |wurde |ist )?"""
    + r"""(?:(?:changed|reset|set|updated|switched|rotated|ge\?ndert) )?(?:to|as|auf)"""
    + r"""|will be|would be|should be|must be|has to be|used to be|is|was|are|becomes|remains|equals|it's"""
    + r"""|ist|lautet|lautete|war)\b)"""
    + r"""(?:[ ](?:now|still|currently|just|jetzt|probably|nun|noch|simply|actually|set to|called|either))?"""
    + r"""[ ]{0,2}(?::|->)?\s{0,2}"""
)
# "the password you need is": any words may come between, so the value must be unambiguous.
_FAR: Final = lazy_pattern(r"(?P<about>(?:,?[ ][a-z']{1,12}){1,5}),?(?:[ ](?:is|was|ist):?[ ]|:[ ]|[ ]->[ ])")
# "password?" on one line, and only the value on the next one, perhaps after the name of the speaker.
_ANSWER: Final = lazy_pattern(
    r"""[ ]?\??(?:[ ]?\n|(?<=\?)[ ])(?:[<>]{1,2}[ ]?|\[[0-9:. ]{4,20}\][ ]?)?(?:[A-Za-z]{1,16}:[ ])?"""
    r"""(?=[!-~]{6,48}[ ]?(?:\n|\Z))"""
)
_NOT_ABOUT: Final = frozenset(load_table("secrets")["properties"].split())
# "changed my password from ... to ...": two values, and both must be unambiguous.
_FROM: Final = lazy_pattern(
    r"""["'`]?(?:[ ](?:has[ ]been|was|is|wurde))?(?:[ ](?:changed|updated|reset|rotated|switched|ge.ndert))?"""
    r"""[ ](?:from|von)[ ]"""
    r"""|[ ]?(?:已经?|刚)?[从由][ ]?"""
)
_INTO: Final = lazy_pattern(
    r"""["'`”」]?(?:[ ](?:to|into|auf|zu|became|becomes|is[ ]now)[ ]|[ ]?(?:->|=>|→)[ ]?
    |[ ]?(?:改|换|變|变|变更|变成|更新|更改|修改|重置|調整|调整)(?:成|为|為|到)了?[ ]?)""",
    re.VERBOSE,
)
# "X or Y", X、Y: a similar value. After "and" something else may follow, so there more evidence is needed.
_ALSO: Final = lazy_pattern(
    r"""["'`”」]?(?:[ ](?:or|oder|(?P<and>and|und))[ ]|[ ]?(?:或者?|、|(?P<han>和|及|以及|与|还有|跟))[ ]?)"""
)
_SAYS_MORE: Final = lazy_pattern(r"""["'`”」]?[ ]?(?:(?:is|was|are|ist)\b|[:=是为])""")
_SEVERAL: Final = lazy_pattern(r"s\b[^\n]{0,16}\Z|分别|各自|两个")
_MOST_MORE: Final = 3
_SIGHT: Final = 100
"""How far after a name further values are searched."""
_SPACE: Final = lazy_pattern(r"""["'`]?,?[ \t]{1,3}(?:[#-]+[ ])?(?=\S{3})""")
# In a connection string a value ends at the semicolon, and may contain spaces: ;Pwd=three plain words;
_SPACED: Final = lazy_pattern(r"""[^\s;="',]+(?:[ ][^\s;="',]+){1,4}(?=;)""")
_CLOSES: Final = lazy_pattern(r"</[\w.:-]{0,32}\Z")
_COMMAND: Final = lazy_pattern(r"[a-z][\w./-]*[ ]")
# "never set the password to ...": an example, not a value in use.
_WARNING: Final = lazy_pattern(
    r"(?:never|don.?t|do not|avoid)[ ](?:ever[ ])?(?:set|use|make|choose|pick|reuse|setting|using|choosing)[ ]"
    r"(?:[a-z]{1,8}[ ]){0,3}\Z"
)
_SETTING_NAME: Final = lazy_pattern(
    r"""(?<![A-Za-z0-9_])(?P<whose>[A-Z][A-Z0-9_]{1,24})_KEYS?["']?[ ]?[:=][ ]?["']?\Z"""
)
_NO_SECRET_KEY: Final = lazy_pattern(
    "CACHE|PRIMARY|FOREIGN|SORT|PARTITION|PUBLIC|IDEMPOT|ROW|DEDUP|HASH|OBJECT|S3|REDIS"
)
# "set my password to ... for phone: 555-0187": after "to" comes the value.
_SETTING: Final = lazy_pattern(r"(?:set|chang|reset|updat|switch|rotat)[a-z]{0,3}[ ](?:[a-z]{1,8}[ ]){0,3}\Z")
_LONGEST_LINK: Final = 64
_LINKS: Final = (
    (_SIGN, "sign"),
    (_FIELD, "field"),
    (_PROSE, "prose"),
    (_FAR, "far"),
    (_SPACE, "space"),
    (_ANSWER, "far"),
)
_JOINED: Final = lazy_pattern(r"[\w.\"'?&-]")
_PAIRED: Final = lazy_pattern(r"(?:/|账号|帐号|用户名|账户|用户)[/、和及&+ ]{0,2}\Z")
_ONE_TIME: Final = lazy_pattern(
    r"(?:one[ -]time|single[ -]use|动态|一次性|ワンタイム|일회용|[Ee]inmal)[ -]?\Z", re.IGNORECASE
)
_MEASURE: Final = lazy_pattern(
    r"[ ](?:characters?|chars?|days?|hours?|minutes?|times?|bits?|digits?|letters?|attempts?|%|Zeichen|Tage)"
)
_WORDS_JOINED: Final = lazy_pattern(r"[A-Za-z]+(?:[-_.'/][A-Za-z]+)*")

# Names in Chinese, Japanese and Korean.

_HAN_NAME: Final = lazy_pattern(
    "(?P<password>密码|密碼|(?<![\u4e00-\u9fff])密(?=[ ]?[:=])|账密|口令|授权码|提取码"
    "|パスワード|パスコード|パスフレーズ|パス(?=は)|暗証番号|비밀번호|비번|암호|패스워드|패스(?=는)|[Пп]ароль)"
    "|(?P<key>密钥|秘钥|密鑰|私钥|令牌|トークン|토큰|シークレット|시크릿|キー|(?<=[Iiy])키|(?<=[Iiy] )키)"
)
_HAN_LINK: Final = lazy_pattern(
    r"""["'”」』)*]{0,3}[ ]{0,2}
    (?:(?P<about>[\u4e00-\u9fff()（）的]{0,8}?)
        (?:(?:分别是|就是|还是|是|为|為|成|:|=>|=|->|→)了?|(?:改|换|设置?|填写?|用|试试?|默认|统一)(?=[ ]?["“「!-~]))
      |は|が|を|는|은|이|가|를|->|is\b)
    [ ]{0,2}:?[ \t]*\n?[ ]{0,2}|[ \t]{0,2}""",
    re.VERBOSE,
)
# A name alone on its line, perhaps with its owner before it, but no verb: 登录密码.
_HAN_LINE: Final = lazy_pattern(
    "(?:\\A|\n)[ \t]{0,2}(?!忘[记了]|修改|重置|找回|更改|重设|输入|确认|查看|设置|显示|隐藏|验证|变更|保存|记住)"
    "[A-Za-z0-9\u4e00-\u9fff]{0,8}\\Z"
)
_HAN_BELOW: Final = lazy_pattern(r"[ \t]{0,2}\n[ \t]{0,4}(?=[!-~]{4,48}[ \t]{0,2}(?:\n|\Z))")
_HAN_NOT_ABOUT: Final = lazy_pattern(
    "长度|格式|强度|错误|有效期|规则|类型|算法|字段|位数|次数|时间|日期|失败|邮件|数量|不能|必须|哈希|策略|要求|提示|版本|数"
    "|不要|(?<![分特])别|勿|不可|不得|禁止|避免|例如|比如|譬如"
)
# A password that is only an example: 别把密码设成123456, 密码用123456这种.
_HAN_WARNING: Final = lazy_pattern(
    "(?:别|不要|勿|不能|不可|禁止|避免|例如|比如|譬如)再?(?:把|将|使用|用|以|让)?[\u4e00-\u9fff]{0,4}\\Z"
)
_HAN_SETS: Final = lazy_pattern("[成为為用设設改换換]")
_HAN_EXAMPLE: Final = lazy_pattern("[\"'”」]?(?:这种|这类|那种|之类|这样的|这样简单|等弱|等简单)")
# Words followed by a number, and nothing after that: 密码：芝麻开门2024.
_HAN_PHRASE: Final = lazy_pattern(
    "(?!请|见|同|由|详|与|在|和|无|暂|首|默认|联系|至少|不|你|您|他|她|谁|什么|多少)[\u4e00-\u9fff]{3,12}"
    "[!@#$%^&*_-]?[0-9]{1,8}[!@#$%^&*]{0,3}(?![0-9A-Za-z\u3040-\u9fff\uac00-\ud7af])"
)
_SAYS: Final = frozenset(":=是为")
_HAN_NO_PHRASE: Final = lazy_pattern("手机|电话|证|生日|号|位|联系|附件|通知|短信|页|第|后|前|改|年|月")
# First characters of a value, and how far any link reaches from a name.
_VALUE: Final = lazy_pattern("[!-~]{3}|[0-9“「『【]")
_FURTHEST_VALUE: Final = 32
_LONGEST_HAN_NAME: Final = 8
_HAN_FAR: Final = lazy_pattern("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af,，、?？:： ]{1,16}")
_HAN_UNITS: Final = lazy_pattern(
    r"\s{0,2}(?:位|个|次|天|分钟|小时|秒|字符|种|条|年|月|日|号楼|字节|以上|以内|文字|자리|글자|桁)"
)
_HAN_METHOD: Final = lazy_pattern(r"\s{0,2}(?:加密|算法|哈希)")


def find_named_secrets(view: FoldedText, names: list[Name]) -> Iterator[tuple[int, int, PiiRule]]:
    """Every value after one of `names`.

    In `password=key=...` the value is the last name's. Where that finds none, as what follows is no key, it is the
    value of the name before.
    """
    reached = 0
    for before, name, following in zip((None, *names), names, (*names[1:], None), strict=False):
        column = cells_below(view, name)
        if column is not None:
            yield from ((*cell, _rule_for(name)) for cell in column)
        elif name.start >= reached and not _heads(view, name, following):
            found = list(_secrets_after(view, name))
            if not found and before is not None and before.start >= reached and _heads(view, before, name):
                followed = view.ascii[name.end + 1 : name.end + 3].strip()
                found = list(_secrets_after(view, before)) if followed else []
            if found:
                reached = found[-1][1]
                yield from found


def _heads(view: FoldedText, name: Name, following: Name | None) -> bool:
    """Whether a name heads another one: only a sign is between two names that both have one."""
    if following is None or following.start - name.end > 2:
        return False
    sign = view.ascii[name.end : following.start].rstrip(" ")
    return sign in ("=", ":") and view.ascii[following.end : following.end + 1] == sign


def _rule_for(name: Name) -> PiiRule:
    return PiiRule.PASSWORD if name.kind == "password" else PiiRule.API_KEY


def _secrets_after(view: FoldedText, name: Name) -> Iterator[tuple[int, int, PiiRule]]:
    """The value after `name`, if there is one."""
    view.work.judged += 1
    if view.text is not view.ascii and view.text[name.end : name.end + 2].strip()[:1] > "\x7f":
        yield from _cjk_secrets_after(view, name)
        return
    below = block_below(view, name.start, name.end)
    if below is not None:
        yield from _secret_in_block(view, name, below)
        return
    changed = _old_and_new_values(view, name)
    if changed:
        yield from changed
        return
    pair = _is_user_and_password(view, name.start)
    for pattern, how in _LINKS[:3] if name.kind == "weak" else _LINKS:
        link = pattern.match(view.ascii, name.end, name.end + (_LONGEST_FIELD if how == "field" else _LONGEST_LINK))
        value = (
            None
            if link is None
            else _value_with_spaces(view, name, link.end()) or parse_value(view, link.end(), pair=pair)
        )
        if link is None or value is None or _is_about_something_else(view, name, link, how):
            continue
        told = (link["sign"] or "=") if how == "sign" else "=" if how == "field" else how
        if how == "space" and _is_switch(view, name.start):
            told = "="
        if _is_secret(view, name.kind, told, value) and not _is_example_or_command(view, name, told, value):
            yield _start_with_name(view, name, link.end(), value.start), value.end, _rule_for(name)
            yield from _further_values(view, name, value)
            return


def _secret_in_block(view: FoldedText, name: Name, value: Value) -> Iterator[tuple[int, int, PiiRule]]:
    text = view.text[value.start : value.end]
    least = {"password": 0, "key": 8}.get(name.kind, 20)
    if not is_blank(text) and len(text) >= 3 and (not least or is_keylike(text, least)):
        yield value.start, value.end, _rule_for(name)


def _is_about_something_else(view: FoldedText, name: Name, link: re.Match[str], how: str) -> bool:
    """Whether the words between the name and the value are about something else: "set my password to ... from ...:".

    After the name in </password> anything may follow.
    """
    if how == "far":
        return not _NOT_ABOUT.isdisjoint(link[0].split())
    if how == "sign" and link["sign"] == ">":
        return _CLOSES.search(view.ascii, max(0, name.start - 34), name.start) is not None
    if how != "sign" or link["sign"] == "=" or not link[0].startswith(" to "):
        return False
    return _SETTING.search(view.lower, max(0, name.start - 40), name.start) is not None


def _value_with_spaces(view: FoldedText, name: Name, at: int) -> Value | None:
    """The value at `at` including its spaces, where a connection string delimits it."""
    text = view.ascii
    if text[at - 1] != "=" or text[max(0, name.start - 2) : name.start].rstrip(" ")[-1:] != ";":
        return None
    match = _SPACED.match(text, at, at + _LONGEST_LINK)
    return None if match is None else Value(*match.span(), False)


def _is_example_or_command(view: FoldedText, name: Name, told: str, value: Value) -> bool:
    """Whether it is no value: a one-time code, a command with arguments, a bad example."""
    if _is_one_time_code(view, name, view.text[value.start : value.end]):
        return True
    text, first = view.ascii, max(0, name.start - 48)
    if told == "=":
        return text[value.start - 1] == "`" and _COMMAND.match(text, value.start, value.end) is not None
    if told == "space" and ")" not in text[max(first, text.rfind("$(", first, name.start)) : name.start]:
        return text.find("$(", first, name.start) >= 0
    return told in ("prose", "space") and _WARNING.search(view.lower, first, name.start) is not None


def _old_and_new_values(view: FoldedText, name: Name) -> tuple[tuple[int, int, PiiRule], ...]:
    """The old value and the new one, where the sentence names both."""
    link = _FROM.match(view.text, name.end)
    if link is None or name.kind != "password":
        return ()
    old = _certain_value(view, link.end())
    then = None if old is None else _INTO.match(view.text, old.end)
    new = None if then is None else _certain_value(view, then.end())
    if old is None or new is None:
        return ()
    return (old.start, old.end, PiiRule.PASSWORD), (new.start, new.end, PiiRule.PASSWORD)


def _further_values(view: FoldedText, name: Name, value: Value) -> Iterator[tuple[int, int, PiiRule]]:
    """`pw: old -> new`, "the passwords are X and Y": the new value, and further values next to it."""
    if name.kind != "password" or value.end == len(view.text):
        return
    then = _INTO.match(view.text, value.end)
    new = None if then is None else _certain_value(view, then.end())
    if new is not None:
        yield new.start, new.end, PiiRule.PASSWORD
        return
    for _ in range(_MOST_MORE):
        another = _value_beside(view, name, value)
        if another is None or another.end - name.end > _SIGHT:
            return
        yield another.start, another.end, PiiRule.PASSWORD
        value = another


def _value_beside(view: FoldedText, name: Name, value: Value) -> Value | None:
    """A similar value next to another one."""
    joint = _ALSO.match(view.text, value.end)
    another = None if joint is None else _certain_value(view, joint.end())
    if joint is None or another is None or _SAYS_MORE.match(view.text, another.end):
        return None
    text = view.text[another.start : another.end]
    alike = text[:3] == view.text[value.start : value.start + 3] or has_special_character(text)
    if alike or not (joint["and"] or joint["han"]):
        return another
    return another if _SEVERAL.search(view.text, max(0, name.start - 6), value.start) else None


def _certain_value(view: FoldedText, at: int) -> Value | None:
    value = parse_value(view, at)
    if value is None:
        return None
    text = view.text[value.start : value.end]
    sound = len(text) >= 6 and is_varied(text) and any(map(str.isalpha, text))
    return value if sound and not is_blank(text) and not is_other_data(text) else None


def _is_user_and_password(view: FoldedText, at: int) -> bool:
    """`user/password: admin/...`, 账号密码：admin/..."""
    text = view.text
    near = text[max(0, at - 5) : at]
    if "/" not in near and near.isascii():
        return text is not view.ascii and text.startswith("账密", at)
    return text.startswith("账密", at) or _PAIRED.search(near) is not None


def _is_switch(view: FoldedText, begin: int) -> bool:
    """Whether the name is an option of a command: `--password`, `--db-password`."""
    option = view.ascii[max(0, begin - 24) : begin].rpartition(" ")[2]
    return option.startswith("-") and "=" not in option


def _start_with_name(view: FoldedText, name: Name, value: int, start: int) -> int:
    """`password=...` is redacted as a whole, as in the requirements; elsewhere the name stays, for readability."""
    qualified = OF_KEY.search(view.lower, max(0, name.start - 16), name.start)
    begin = name.start if qualified is None else qualified.start()
    lone = not _JOINED.match(view.ascii[begin - 1 : begin])
    return begin if lone and start == value and view.ascii[name.end : value] == "=" else start


def _is_secret(view: FoldedText, kind: str, how: str, value: Value) -> bool:
    text = view.text[value.start : value.end]
    if is_blank(text) or (how != "=" and is_other_data(text)):
        return False
    if how == "far":
        return is_keylike(text, 6) and (kind == "key" or not is_fingerprint(text))
    if kind == "password":
        return _is_password(view, how, value)
    if how in ("=", ":=", "=="):
        # The shortest key in the requirements.
        return (is_keylike(text, 6) and not (kind == "weak" and is_slug(text))) or text == "sk-xxx"
    if kind == "weak":
        return is_keylike(text, 20) and (not is_fingerprint(text) or _is_setting(view, value.start))
    return is_keylike(text, 16 if how == "space" else 8)


def _is_setting(view: FoldedText, at: int) -> bool:
    """Whether the name before the value is a setting's: `PAGERDUTY_KEY: ...`, and not the key of a table or a cache."""
    name = _SETTING_NAME.search(view.ascii, max(0, at - 40), at)
    return name is not None and _NO_SECRET_KEY.search(name["whose"]) is None


def _is_one_time_code(view: FoldedText, name: Name, text: str) -> bool:
    """A one-time code is no password: it expires before it can be misused."""
    return text.isdigit() and _ONE_TIME.search(view.text, max(0, name.start - 12), name.start) is not None


def _is_password(view: FoldedText, how: str, value: Value) -> bool:
    """The weaker the link to the name, the less the value may look like a word."""
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


def _is_last_word(view: FoldedText, value: Value) -> bool:
    """A word counts as a password if nothing follows it on its line, so that no sentence continues."""
    rest = view.text[value.end : value.end + 2]
    return (rest[:1] in ("", "\n") or rest in (".", ".\n")) and (
        _WORDS_JOINED.fullmatch(view.text, value.start, value.end) is not None
    )


def find_cjk_named_secrets(view: FoldedText) -> Iterator[tuple[int, int, PiiRule]]:
    """Every value after a Chinese, Japanese or Korean name. Names without a value nearby are skipped together."""
    match = _HAN_NAME.search(view.text)
    while match is not None:
        at = match.end()
        value = _VALUE.search(view.text, at)
        if value is None:
            return
        if value.start() - at > _FURTHEST_VALUE:
            at = max(at, value.start() - _FURTHEST_VALUE - _LONGEST_HAN_NAME)
        else:
            yield from _cjk_secrets(view, Name(match.start(), at, match.lastgroup or "key"))
        match = _HAN_NAME.search(view.text, at)


def _cjk_secrets(view: FoldedText, name: Name) -> Iterator[tuple[int, int, PiiRule]]:
    view.work.judged += 1
    column = cells_below(view, name)
    if column is None:
        yield from _cjk_secrets_after(view, name)
    else:
        yield from ((*cell, _rule_for(name)) for cell in column)


def _cjk_secrets_after(view: FoldedText, name: Name) -> Iterator[tuple[int, int, PiiRule]]:
    changed = _old_and_new_values(view, name)
    if changed:
        yield from changed
        return
    below = block_below(view, name.start, name.end)
    if below is not None:
        yield from _secret_in_block(view, name, below)
        return
    below = _cjk_value_below(view, name)
    if below is not None:
        yield below.start, below.end, _rule_for(name)
        return
    link = _HAN_LINK.match(view.text, name.end)
    assert link is not None  # its last branch matches the empty string
    if link["about"] and _HAN_NOT_ABOUT.search(link["about"]):
        return
    value = parse_value(view, link.end(), pair=_is_user_and_password(view, name.start))
    if value is None:
        yield from _cjk_passphrase(view, name, link) or _cjk_value_far(view, name)
        return
    text = view.text[value.start : value.end]
    if is_blank(text) or is_other_data(text) or _is_cjk_measure(view, value):
        return
    if _is_one_time_code(view, name, text) or _is_cjk_example(view, name, link, value):
        return
    if name.kind != "password":
        if is_keylike(text, 8):
            yield value.start, value.end, PiiRule.API_KEY
    elif (value.quoted and len(text) >= 3) or (
        len(text) >= 4 and (is_varied(text) or (link[0].strip() not in ("", "is") and text.isascii()))
    ):
        yield value.start, value.end, PiiRule.PASSWORD
        yield from _further_values(view, name, value)


def _cjk_value_below(view: FoldedText, name: Name) -> Value | None:
    """The value alone on the next line, if the name is alone on its line, as in a copied form."""
    below = _HAN_BELOW.match(view.text, name.end)
    if below is None or not _HAN_LINE.search(view.text, max(0, name.start - 10), name.start):
        return None
    value = parse_value(view, below.end())
    text = "" if value is None else view.text[value.start : value.end]
    if len(text) < 4 or not is_varied(text) or is_blank(text) or is_other_data(text):
        return None
    return value if name.kind == "password" or is_keylike(text, 8) else None


def _is_cjk_measure(view: FoldedText, value: Value) -> bool:
    """密码8位, 密钥256位, 密码sha256加密: its length or how it is stored, not the value."""
    if _HAN_METHOD.match(view.text, value.end):
        return True
    text = view.text[value.start : value.end]
    return _HAN_UNITS.match(view.text, value.end) is not None and not (is_keylike(text, 6) and is_varied(text))


def _is_cjk_example(view: FoldedText, name: Name, link: re.Match[str], value: Value) -> bool:
    if _HAN_EXAMPLE.match(view.text, value.end):
        return True
    warning = _HAN_WARNING.search(view.text, max(0, name.start - 12), name.start)
    return warning is not None and _HAN_SETS.search(link[0]) is not None


def _cjk_passphrase(view: FoldedText, name: Name, link: re.Match[str]) -> tuple[tuple[int, int, PiiRule], ...]:
    if name.kind != "password" or link[0].rstrip(" ")[-1:] not in _SAYS:
        return ()
    phrase = _HAN_PHRASE.match(view.text, link.end())
    if phrase is None or _HAN_NO_PHRASE.search(phrase[0]) or _HAN_NOT_ABOUT.search(phrase[0]):
        return ()
    return ((*phrase.span(), PiiRule.PASSWORD),)


def _cjk_value_far(view: FoldedText, name: Name) -> Iterator[tuple[int, int, PiiRule]]:
    """密码还是原来那个 Abc@123: some words come between, so the value must be unambiguous."""
    link = _HAN_FAR.match(view.text, name.end)
    if link is None or name.kind != "password" or _HAN_NOT_ABOUT.search(link[0]):
        return
    value = parse_value(view, link.end())
    if value is None:
        return
    text = view.text[value.start : value.end]
    if is_keylike(text, 6) and has_special_character(text) and not is_blank(text) and not is_other_data(text):
        yield value.start, value.end, PiiRule.PASSWORD
